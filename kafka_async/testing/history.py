"""Histories of sent and read records, and a check for lost, duplicated and reordered ones."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kafka_async.foundation.arguments import instance_of

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable
    from types import TracebackType
    from typing import Self

MAX_EXAMPLES: Final = 5
"""Records of each kind that a verdict lists."""


class History:
    """Writes a history to a file of JSON lines, within a `with` block.

        with History("copies.jsonl") as history:
            history.sent("0:17", key="0")
            history.read("0:17")

    Several processes write one file each; `check_history` takes their lines in any order that
    preserves the order of each key's lines.

    Args:
        path: The file; an existing file is extended.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._file = Path(path).open("a", encoding="utf-8", buffering=1)  # noqa: SIM115

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    def sent(self, record: str, *, key: str | None = None, certain: bool = True) -> None:
        """Log a record that readers must get.

        Args:
            record: A unique name of the record.
            key: Records of a key must be read in the order in which they were sent; None for any
                order.
            certain: False if the outcome is unknown, such as after a time-out: readers may get the
                record.

        Raises:
            TypeError: `record` or `key` is not a str: decode bytes.
        """
        if key is not None:
            instance_of(key, str, "key")
        self._write({"sent": instance_of(record, str, "record"), "key": key, "certain": certain})

    def read(self, record: str) -> None:
        """Log a record that a reader got.

        Args:
            record: The name under which it was sent.

        Raises:
            TypeError: `record` is not a str: decode bytes.
        """
        self._write({"read": instance_of(record, str, "record")})

    def _write(self, line: dict[str, Any]) -> None:
        self._file.write(json.dumps(line) + "\n")


@dataclass(frozen=True)
class Verdict:
    """Result of a check; records have their names of the history.

    Attributes:
        sent: Number of records sent with a certain outcome.
        lost: Records sent with a certain outcome that were not read.
        duplicated: Records that were read more than once.
        unexpected: Records that were read but not sent.
        out_of_order: Records that were first read after a later one of the same key.
    """

    sent: int
    lost: tuple[str, ...]
    duplicated: tuple[str, ...]
    unexpected: tuple[str, ...]
    out_of_order: tuple[str, ...]

    @property
    def is_exact(self) -> bool:
        """True if every record was read once and in order, and no other."""
        return not (self.lost or self.duplicated or self.unexpected or self.out_of_order)

    def __str__(self) -> str:
        parts = [f"{self.sent} sent"]
        for name in ("lost", "duplicated", "unexpected", "out_of_order"):
            found: tuple[str, ...] = getattr(self, name)
            text = f"{len(found)} {name.replace('_', ' ')}"
            more = ", ..." if len(found) > MAX_EXAMPLES else ""
            examples = f" ({', '.join(found[:MAX_EXAMPLES])}{more})"
            parts.append(text + (examples if found else ""))
        return ", ".join(parts)


def check_history(path: str | os.PathLike[str]) -> Verdict:
    """Check the history in a file of `History`.

    Args:
        path: The file. A last line without a line end, as a killed process leaves it, is ignored.

    Raises:
        ValueError: A line is malformed, or a record was sent twice; the message includes the line.
            Or the history has no record to check.
        OSError: The file cannot be read.
    """
    lines = Path(path).read_text("utf-8").split("\n")[:-1]
    return check_lines(lines)


def check_lines(lines: Iterable[str]) -> Verdict:
    """Check the lines of a history, see `check_history`."""
    order: dict[str, int] = {}
    """Numbers of the records, in the order in which they were sent."""
    key_of: dict[str, str | None] = {}
    certain: dict[str, None] = {}
    reads: Counter[str] = Counter()
    for number, line in enumerate(lines, 1):
        match _parse(line):
            case {"sent": str(record), "key": str() | None as key, "certain": bool(sure)}:
                if record in order:
                    raise ValueError(f"line {number}: {record} was sent before")
                order[record] = len(order)
                key_of[record] = key
                if sure:
                    certain[record] = None
            case {"read": str(record)}:
                reads[record] += 1
            case _:
                raise ValueError(f"line {number} is not of a history: {line:.60}")
    if not order and not reads:
        raise ValueError("the history has no record, so there is nothing to judge")
    last: dict[str, int] = {}
    out_of_order: list[str] = []
    for record in reads:
        key = key_of.get(record)
        if key is None:
            continue
        if order[record] < last.get(key, -1):
            out_of_order.append(record)
        else:
            last[key] = order[record]
    return Verdict(
        len(certain),
        tuple(record for record in certain if record not in reads),
        tuple(record for record, count in reads.items() if count > 1),
        tuple(record for record in reads if record not in order),
        tuple(out_of_order),
    )


def _parse(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None
