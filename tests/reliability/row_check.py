"""Compares the output of an exactly-once query with its input, row by row. Pure.

Each output row begins with the partition and the offset of its input record.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

Place: TypeAlias = tuple[int, int]
"""Partition and offset of an input record."""

MAX_EXAMPLES: Final = 5
"""Rows of each kind that a verdict names."""

ROW_SQL: Final = "concat_ws(':', partition, offset, cast(value as string)) as value"
"""Makes the value of an output row from an input row."""


@dataclass(frozen=True)
class Verdict:
    """Result of a comparison.

    Attributes:
        rows: Number of input records.
        lost: Input records that the output does not have.
        duplicated: Input records that the output has more than once.
        foreign: Output rows that are not of the input, or have another value.
        torn: Epochs of which the output has some rows and lacks others.
    """

    rows: int
    lost: tuple[Place, ...]
    duplicated: tuple[Place, ...]
    foreign: tuple[str, ...]
    torn: tuple[int, ...]

    @property
    def is_exact(self) -> bool:
        """True if the output equals the input."""
        return not (self.lost or self.duplicated or self.foreign or self.torn)

    def __str__(self) -> str:
        parts = [f"{self.rows} input records"]
        for name in ("lost", "duplicated", "foreign", "torn"):
            found: tuple[object, ...] = getattr(self, name)
            examples = ", ".join(map(str, found[:MAX_EXAMPLES]))
            text = f"{len(found)} {name}" + (" epochs" if name == "torn" else "")
            parts.append(f"{text} ({examples})" if found else text)
        return ", ".join(parts)


def check(
    records: Mapping[Place, bytes], output: Iterable[bytes], ends: Sequence[Mapping[int, int]]
) -> Verdict:
    """Compare the rows of a query's output with the records of its input.

    Args:
        records: Values of the input records.
        output: The output's values.
        ends: For each epoch from 0 on, the offsets by partition at which it ends.
    """
    found: Counter[Place] = Counter()
    foreign: list[str] = []
    for row in output:
        place = _place(row, records)
        if place is None:
            foreign.append(row.decode("utf-8", "replace"))
        else:
            found[place] += 1
    lost = sorted(records.keys() - found.keys())
    visible = _epochs_of(found, ends)
    return Verdict(
        len(records),
        tuple(lost),
        tuple(sorted(place for place, count in found.items() if count > 1)),
        tuple(sorted(foreign)),
        tuple(sorted(visible & _epochs_of(lost, ends))),
    )


def ends_of_epoch(offset_log: str, topic: str) -> dict[int, int]:
    """Return the offsets at which an epoch ends, from a file of a checkpoint's offset log."""
    _, _, line = offset_log.strip().splitlines()  # The version, the metadata, one source.
    return {int(partition): end for partition, end in json.loads(line)[topic].items()}


def _place(row: bytes, records: Mapping[Place, bytes]) -> Place | None:
    parts = row.split(b":", 2)
    if len(parts) != 3 or not (parts[0].isdigit() and parts[1].isdigit()):
        return None
    place = int(parts[0]), int(parts[1])
    return place if records.get(place) == parts[2] else None


def _epochs_of(places: Iterable[Place], ends: Sequence[Mapping[int, int]]) -> set[int]:
    """Return the epochs of records; a record behind the last epoch has none."""
    epochs: set[int] = set()
    for partition, offset in places:
        for epoch, end in enumerate(ends):
            if offset < end.get(partition, 0):
                epochs.add(epoch)
                break
    return epochs
