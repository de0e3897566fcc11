"""Offsets and timestamps with a special meaning, and the isolation level. Pure.

Fetch and ListOffsets share them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kafka_async.config import ConsumerConfig

UNKNOWN: Final = -1
"""An offset or a leader epoch that is not known."""
LATEST: Final = -1
EARLIEST: Final = -2
"""Timestamps that stand for the two ends of a log in ListOffsets."""


def is_read_committed(config: ConsumerConfig) -> bool:
    """Return True if only records of committed transactions are returned."""
    return config.isolation_level == "read_committed"
