"""Checks what the members of a group have returned, and plans their faults. Pure.

The schedule of a run has an orderly stop or start every 500 ms, and a kill or a freeze every 10 s.
"""

from __future__ import annotations

import enum
import random
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Final, NamedTuple

STEP_SECONDS: Final = 0.5
"""Seconds between two orderly stops or starts."""
FAULT_SECONDS: Final = 10.0
"""Seconds between two kills or freezes."""
MAX_DUPLICATES: Final = 0.05
"""Share of the records that may be returned twice."""
MAX_FREEZE: Final = 12.0


class ActionKind(enum.Enum):
    """Actions of a schedule."""

    STOP = "stop"
    START = "start"
    KILL = "kill -9"
    FREEZE = "SIGSTOP"


class Action(NamedTuple):
    """An action on a member; `at` is seconds after the start, `seconds` the time of a freeze."""

    at: float
    kind: ActionKind
    member: int
    seconds: float = 0.0

    def __str__(self) -> str:
        text = f"{self.at:.1f} s: {self.kind.value} of member {self.member}"
        return text if self.kind is not ActionKind.FREEZE else f"{text} for {self.seconds:.1f} s"


def schedule(seed: int, seconds: float, members: int) -> list[Action]:
    """Return the actions of a run in order; at least half of the members are always started."""
    rng = random.Random(seed)
    stopped: list[int] = []
    actions: list[Action] = []
    for step in range(1, int(seconds / STEP_SECONDS)):
        at = step * STEP_SECONDS
        started = [number for number in range(members) if number not in stopped]
        if stopped and (len(stopped) >= members // 2 or rng.random() < 0.5):
            number = stopped.pop(rng.randrange(len(stopped)))
            actions.append(Action(at, ActionKind.START, number))
        else:
            number = rng.choice(started)
            stopped.append(number)
            actions.append(Action(at, ActionKind.STOP, number))
        if at % FAULT_SECONDS == FAULT_SECONDS / 2:
            started = [number for number in range(members) if number not in stopped]
            kind = rng.choice([ActionKind.KILL, ActionKind.FREEZE])
            length = rng.uniform(1.0, MAX_FREEZE) if kind is ActionKind.FREEZE else 0.0
            actions.append(Action(at, kind, rng.choice(started), length))
    return actions


class Returned(NamedTuple):
    """Records of a partition that a poll has returned, at a time; both offsets are included."""

    at: float
    partition: int
    first: int
    last: int


@dataclass(frozen=True)
class Verdict:
    """Holds the result of a run.

    Attributes:
        records: Number of records sent.
        lost: Number of records that no member has returned.
        out_of_order: Number of returned ranges that begin after a record not returned before.
        duplicates: Number of records returned again.
        in_flight: Number of records that killed and frozen members had returned, not committed.
        longest_wait: Longest time in seconds from a record's acknowledgement to its return.
        limit: Limit for it.
    """

    records: int
    lost: int
    out_of_order: int
    duplicates: int
    in_flight: int
    longest_wait: float
    limit: float

    @property
    def passed(self) -> bool:
        """True if the run has shown what it must."""
        few = self.duplicates <= min(self.in_flight, self.records * MAX_DUPLICATES)
        kept = not self.lost and not self.out_of_order
        return kept and few and self.longest_wait <= self.limit

    def __str__(self) -> str:
        share = self.duplicates / max(1, self.records)
        return (
            f"{self.records} records, {self.lost} lost, {self.out_of_order} out of order, "
            f"{self.duplicates} duplicates ({share:.2%}; {self.in_flight} were in flight), longest "
            f"wait {self.longest_wait:.1f} s of at most {self.limit:g} s"
        )


def check(
    sent: dict[int, list[float]], returned: list[Returned], in_flight: int, limit: float
) -> Verdict:
    """Return the verdict.

    Args:
        sent: Times at which the records of each partition were acknowledged, in order.
        returned: What members have returned.
        in_flight: Number of records that killed and frozen members had returned, not committed.
        limit: Limit for the time from a record's acknowledgement to its return, in seconds.
    """
    following: defaultdict[int, int] = defaultdict(int)
    out_of_order = duplicates = 0
    longest = 0.0
    for row in sorted(returned):
        known = following[row.partition]
        out_of_order += row.first > known
        duplicates += max(0, min(row.last + 1, known) - row.first)
        times = sent[row.partition][max(known, row.first) : row.last + 1]
        longest = max(longest, *(row.at - each for each in times), 0.0)
        following[row.partition] = max(known, row.last + 1)
    return Verdict(
        records=sum(map(len, sent.values())),
        lost=sum(max(0, len(times) - following[index]) for index, times in sent.items()),
        out_of_order=out_of_order,
        duplicates=duplicates,
        in_flight=in_flight,
        longest_wait=longest,
        limit=limit,
    )


@dataclass
class Progress:
    """Tracks what a member has returned and committed, for the records in flight.

    Attributes:
        returned: What it has returned.
    """

    returned: list[Returned] = field(default_factory=list[Returned])
    _next: dict[int, int] = field(default_factory=dict[int, int])
    _committed: dict[int, int] = field(default_factory=dict[int, int])

    def on_returned(self, row: Returned) -> None:
        """Note records that a poll has returned."""
        self.returned.append(row)
        self._committed.setdefault(row.partition, row.first)
        self._next[row.partition] = row.last + 1

    def on_committed(self, partition: int, offset: int) -> None:
        """Note a committed offset."""
        self._committed[partition] = offset

    def on_gone(self, partition: int) -> int:
        """Note that the member does not have a partition; return its records in flight."""
        following = self._next.pop(partition, 0)
        return max(0, following - self._committed.pop(partition, following))

    def on_killed(self) -> int:
        """Note that the member does not exist any more; return its records in flight."""
        return sum(self.on_gone(partition) for partition in list(self._next))
