"""Kafka for tests: clusters to test against, the pytest fixture, and a clock that jumps.

The fixture `kafka_cluster` comes with the `testing` extra (`pip install '.[testing]'` in a
checkout) and needs no import; what is here is for those who want a cluster or virtual time without.
"""

from __future__ import annotations

from kafka_async.testing.clock import VirtualClockEventLoop, VirtualTimeError, run_virtual

__all__ = ["VirtualClockEventLoop", "VirtualTimeError", "run_virtual"]
