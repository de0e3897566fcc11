"""Tools for tests: clusters, the pytest fixture and an event loop on virtual time.

The fixture `kafka_cluster` comes with the `testing` extra (`pip install '.[testing]'` in a
checkout) and needs no import. This package provides clusters, virtual time and connections in
memory without the fixture, `check_assignor` for partition assignors, and `check_history`, which
finds lost, duplicated and reordered records.
"""

from __future__ import annotations

from kafka_async.foundation.memory_network import MemoryNetwork
from kafka_async.testing.assignor_check import check_assignor
from kafka_async.testing.clock import VirtualClockEventLoop, VirtualTimeError, run_virtual
from kafka_async.testing.history import History, Verdict, check_history

__all__ = [
    "History",
    "MemoryNetwork",
    "Verdict",
    "VirtualClockEventLoop",
    "VirtualTimeError",
    "check_assignor",
    "check_history",
    "run_virtual",
]
