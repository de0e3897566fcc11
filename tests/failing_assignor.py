"""An assignor that can be made to raise."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_async.group.assignors.abc import Assignor
from kafka_async.group.assignors.range import RangeAssignor

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafka_async.group.assignors.abc import Assignments, Members


class FailingAssignor(Assignor):
    """Assigns ranges until `broken` is set, and then raises ZeroDivisionError."""

    name = "failing"

    def __init__(self) -> None:
        self.broken = False

    def assign(self, partitions: Mapping[str, int], members: Members) -> Assignments:
        if self.broken:
            raise ZeroDivisionError("no shares")
        return RangeAssignor().assign(partitions, members)
