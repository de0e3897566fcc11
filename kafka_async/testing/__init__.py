"""Tools for tests: clusters, the pytest fixture and an event loop on virtual time.

The fixture `kafka_cluster` comes with the `testing` extra (`pip install '.[testing]'` in a
checkout) and needs no import. This package offers clusters and virtual time without the fixture,
and `check_assignor`, which checks assignors of partitions.
"""

from __future__ import annotations

from kafka_async.testing.assignor_check import check_assignor
from kafka_async.testing.clock import VirtualClockEventLoop, VirtualTimeError, run_virtual

__all__ = ["VirtualClockEventLoop", "VirtualTimeError", "check_assignor", "run_virtual"]
