"""The ledger of an exactly-once sink: records, state and decisions. Pure.

The ledger is partition 0 of a compacted topic. A sink has these records; their keys are JSON arrays
that begin with its sinkId:

| Key | Value |
|---|---|
| `[sink]` | the head: see `Head` |
| `[sink, query, epoch, partition]` | a transaction that the epoch commits, until it is committed |
| `[sink, query]` | a batch write with a writeId that is committed |

Each transaction contains a new head, so a read_committed reader sees each change as a whole, and
the last head determines which other records count. A streaming query's name is its query id. A
batch write's name is "write:" and its writeId, or else "action:" and a unique id.
"""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

from kafka_async.errors import InvalidConfigurationError, TornEpochError
from kafka_async.types import PreparedTransaction, TopicPartition

LedgerRecord: TypeAlias = tuple[bytes, bytes | None]
"""Key and value; None deletes the key."""

FORMAT: Final = 1
MAX_SUPERSEDED: Final = 100
"""Maximum number of replaced drivers that are remembered until they plan again."""
WRITE_PREFIX: Final = "write:"
ACTION_PREFIX: Final = "action:"
PLAN_SLOTS: Final = 16
"""Number of plans with distinct transactional ids; later plans reuse them."""


class Outcome(enum.Enum):
    """Outcomes of a task's transaction."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    """Aborted by its time-out or a newer producer."""
    UNKNOWN = "unknown"
    """The transaction has ended, and its records are no longer in the log."""


class EpochVerdict(enum.Enum):
    """Outcomes of an epoch whose commit was decided."""

    COMMITTED = "committed"
    EXPIRED = "expired"
    """All transactions were aborted: nothing is visible, and the epoch can be repeated."""
    TORN = "torn"
    """Only some partitions are committed."""


class RepairAction(enum.Enum):
    """Repairs of a torn epoch."""

    RESUME = "resume"
    """Write only the partitions that were not committed when the epoch is repeated."""
    SKIP = "skip"
    """Accept the epoch without the missing partitions: their rows are lost."""
    REPEAT = "repeat"
    """Write the whole epoch again: rows of the committed partitions are duplicated."""


@dataclass(frozen=True)
class OpenEpoch:
    """An epoch after the decision to commit; its transactions may not be committed yet.

    Attributes:
        query: The query's name.
        epoch: The epoch; 0 for a batch write.
        partitions: Numbers of the Spark partitions that have a transaction.
    """

    query: str
    epoch: int
    partitions: tuple[int, ...]


@dataclass(frozen=True)
class TornPartition:
    """A partition of a torn epoch, with its outcome and its records' offsets by topic."""

    partition: int
    outcome: str
    offsets: tuple[tuple[str, int, int, int], ...]

    def __str__(self) -> str:
        places = ", ".join(
            f"{topic}-{number} offsets {first} to {last}"
            for topic, number, first, last in self.offsets
        )
        return f"partition {self.partition} is {self.outcome} ({places or 'offsets unknown'})"


@dataclass(frozen=True)
class TornEpoch:
    """A partially committed epoch."""

    query: str
    epoch: int
    partitions: tuple[TornPartition, ...]


@dataclass(frozen=True)
class Head:
    """State of a sink.

    Attributes:
        plan: Number of the last plan; only its tasks may write, and only its epoch be committed.
        driver: Identity of the driver that made the plan; empty for a batch write.
        superseded: Drivers that were replaced and have not been refused yet.
        decided: The plan's epoch was decided or given up: its tasks may not begin to write.
        open: The epoch that is being committed.
        torn: The torn epoch, which needs a repair.
        committed: Last committed epoch by streaming query.
        resume: Committed partitions of a torn epoch, by query and epoch.
    """

    plan: int = 0
    driver: str = ""
    superseded: tuple[str, ...] = ()
    decided: bool = True
    open: OpenEpoch | None = None
    torn: TornEpoch | None = None
    committed: Mapping[str, int] = field(default_factory=dict[str, int])
    resume: OpenEpoch | None = None

    def is_committed(self, query: str, epoch: int) -> bool:
        """Return True if an epoch of a streaming query is committed."""
        return self.committed.get(query, -1) >= epoch

    def may_write(self, plan: int) -> bool:
        """Return True if a task of a plan may begin to write."""
        return plan == self.plan and not self.decided


@dataclass(frozen=True)
class Ledger:
    """Records of one sink.

    Attributes:
        head: The last head.
        entries: Transactions by query, epoch and partition.
        writes: Names of the committed batch writes with a writeId.
    """

    head: Head = field(default_factory=Head)
    entries: Mapping[tuple[str, int, int], PreparedTransaction] = field(
        default_factory=dict[tuple[str, int, int], PreparedTransaction]
    )
    writes: frozenset[str] = frozenset()

    @property
    def transactions(self) -> dict[int, PreparedTransaction]:
        """Transactions of the open epoch by partition; raises KeyError if one was not read."""
        opened = self.head.open
        if opened is None:
            return {}
        return {
            number: self.entries[opened.query, opened.epoch, number] for number in opened.partitions
        }

    @property
    def is_complete(self) -> bool:
        """True if every transaction of the open epoch was read."""
        opened = self.head.open
        return opened is None or all(
            (opened.query, opened.epoch, number) in self.entries for number in opened.partitions
        )


# -- decisions ------------------------------------------------------------------------------------


def is_superseded(head: Head, driver: str) -> bool:
    """Return True if another driver has replaced this one since it planned."""
    return bool(driver) and driver in head.superseded


def forget_superseded(head: Head, driver: str) -> Head:
    """Return the head after a superseded driver has been refused."""
    return replace(head, superseded=tuple(name for name in head.superseded if name != driver))


def next_plan(head: Head, driver: str) -> Head:
    """Return the head of a new plan, which ends the previous plan.

    If another driver made the previous plan, it is superseded. `driver` is empty for a batch write.
    """
    # The planning driver is no longer superseded.
    superseded = [name for name in head.superseded if name != driver]
    if head.driver and head.driver != driver:
        superseded = [name for name in superseded if name != head.driver] + [head.driver]
    return replace(
        head,
        plan=head.plan + 1,
        driver=driver,
        superseded=tuple(superseded[-MAX_SUPERSEDED:]),
        decided=False,
    )


def decide(
    sink: str,
    head: Head,
    query: str,
    epoch: int,
    transactions: Mapping[int, PreparedTransaction],
) -> list[LedgerRecord]:
    """Return the records that decide to commit an epoch, or complete one without transactions."""
    entries = [
        (_key(sink, query, epoch, number), _transaction_value(prepared))
        for number, prepared in transactions.items()
    ]
    opened = OpenEpoch(query, epoch, tuple(sorted(transactions)))
    head = replace(head, decided=True, open=opened)
    if not transactions:
        return finish(sink, head, EpochVerdict.COMMITTED)
    return [*entries, head_record(sink, head)]


def give_up(head: Head) -> Head:
    """Return the head after the plan's job has failed: its tasks may not begin to write."""
    return replace(head, decided=True)


def judge(outcomes: Iterable[Outcome]) -> EpochVerdict:
    """Return the verdict on an epoch from the outcomes of its transactions."""
    found = set(outcomes)
    if found <= {Outcome.COMMITTED}:
        return EpochVerdict.COMMITTED
    # An unknown outcome is torn, since its rows may be visible.
    return EpochVerdict.EXPIRED if found == {Outcome.ABORTED} else EpochVerdict.TORN


def finish(
    sink: str,
    head: Head,
    verdict: EpochVerdict,
    outcomes: Mapping[int, Outcome] | None = None,
    transactions: Mapping[int, PreparedTransaction] | None = None,
) -> list[LedgerRecord]:
    """Return the records that end the open epoch; a torn epoch's records stay until its repair."""
    opened = head.open
    assert opened is not None, "no epoch is open"
    if verdict is EpochVerdict.TORN:
        rows = tuple(
            TornPartition(number, outcome.value, _places((transactions or {})[number]))
            for number, outcome in sorted((outcomes or {}).items())
        )
        torn = TornEpoch(opened.query, opened.epoch, rows)
        return [head_record(sink, replace(head, open=None, torn=torn))]
    records: list[LedgerRecord] = [
        (_key(sink, opened.query, opened.epoch, number), None) for number in opened.partitions
    ]
    head = replace(head, open=None)
    if verdict is EpochVerdict.COMMITTED:
        head, marks = _mark_committed(sink, head, opened.query, opened.epoch)
        records += marks
    return [*records, head_record(sink, head)]


def repair(sink: str, head: Head, action: RepairAction) -> list[LedgerRecord]:
    """Return the records that repair a torn epoch, and end the current plan."""
    torn = head.torn
    if torn is None:
        raise InvalidConfigurationError(
            f"sink {sink} has no torn epoch: there is nothing to repair"
        )
    records: list[LedgerRecord] = [
        (_key(sink, torn.query, torn.epoch, row.partition), None) for row in torn.partitions
    ]
    # A driver that still runs with the previous plan must not commit.
    head = replace(head, torn=None, decided=True, plan=head.plan + 1)
    if action is RepairAction.SKIP:
        head, marks = _mark_committed(sink, head, torn.query, torn.epoch)
        records += marks
    elif action is RepairAction.RESUME:
        unknown = [row.partition for row in torn.partitions if row.outcome == Outcome.UNKNOWN.value]
        if unknown:
            raise InvalidConfigurationError(
                f"the outcome of the partitions {unknown} is not known, so the epoch cannot be "
                "resumed: skip or repeat it"
            )
        if torn.query.startswith(ACTION_PREFIX):
            raise InvalidConfigurationError(
                "a batch write without writeId is never repeated by name, so it cannot be resumed: "
                "skip or repeat it"
            )
        committed = {
            row.partition for row in torn.partitions if row.outcome == Outcome.COMMITTED.value
        }
        if head.resume is not None and _same_epoch(head.resume, torn):
            # A resumed epoch may be torn again.
            committed |= set(head.resume.partitions)
        head = replace(head, resume=OpenEpoch(torn.query, torn.epoch, tuple(sorted(committed))))
    elif head.resume is not None and _same_epoch(head.resume, torn):
        head = replace(head, resume=None)
    return [*records, head_record(sink, head)]


def torn_error(sink: str, torn: TornEpoch) -> TornEpochError:
    """Return the error for a torn epoch."""
    rows = "; ".join(map(str, torn.partitions))
    return TornEpochError(
        f"sink {sink}: only some partitions of epoch {torn.epoch} of query {torn.query} are "
        f"committed: {rows}. Nothing more is written until you choose a repair: "
        f"kafka-async spark-sink repair {sink} --resume, --skip or --repeat",
        epoch=torn.epoch,
        partitions={row.partition: row.outcome for row in torn.partitions},
        offsets={row.partition: row.offsets for row in torn.partitions},
    )


def _same_epoch(resume: OpenEpoch, torn: TornEpoch) -> bool:
    return (resume.query, resume.epoch) == (torn.query, torn.epoch)


def _mark_committed(
    sink: str, head: Head, query: str, epoch: int
) -> tuple[Head, list[LedgerRecord]]:
    if head.resume is not None and (head.resume.query, head.resume.epoch) == (query, epoch):
        head = replace(head, resume=None)
    if query.startswith(WRITE_PREFIX):
        return head, [(_key(sink, query), _json({"committed": True}))]
    if query.startswith(ACTION_PREFIX):
        return head, []
    return replace(head, committed={**head.committed, query: epoch}), []


# -- transactional ids ----------------------------------------------------------------------------


def transactional_id(sink: str, plan: int, partition: int, attempt: int) -> str:
    """Return the transactional id of a task's attempt, unique within its plan."""
    return f"{sink}:{plan % PLAN_SLOTS}:{partition}:{attempt}"


def ids_of_plans(sink: str, plans: Iterable[int]) -> str:
    """Return a regular expression for the transactional ids of all attempts of plans."""
    slots = "|".join(str(slot) for slot in sorted({plan % PLAN_SLOTS for plan in plans}))
    return rf"{re.escape(sink)}:({slots}):\d+:\d+"


def earlier_plans(plan: int) -> range:
    """Return the plans whose attempts a new plan aborts: the earlier ones only.

    A driver that was suspended after planning must not abort transactions of drivers that planned
    later.
    """
    return range(plan - PLAN_SLOTS // 2, plan + 1)


# -- records --------------------------------------------------------------------------------------


def head_record(sink: str, head: Head) -> LedgerRecord:
    """Return the record of a head."""
    value = {
        "format": FORMAT,
        "plan": head.plan,
        "driver": head.driver,
        "superseded": list(head.superseded),
        "decided": head.decided,
        "open": _epoch_value(head.open),
        "resume": _epoch_value(head.resume),
        "torn": None
        if head.torn is None
        else {
            "query": head.torn.query,
            "epoch": head.torn.epoch,
            "partitions": [
                [row.partition, row.outcome, [list(place) for place in row.offsets]]
                for row in head.torn.partitions
            ],
        },
        "committed": dict(head.committed),
    }
    return _key(sink), _json(value)


def read_ledger(sink: str, records: Iterable[LedgerRecord]) -> Ledger:
    """Return a sink's state from ledger records; other sinks' records are skipped.

    Raises:
        InvalidConfigurationError: A newer version of this package has written a head.
    """
    head = Head()
    entries: dict[tuple[str, int, int], PreparedTransaction] = {}
    writes: set[str] = set()
    for key, value in records:
        parts: list[Any] = json.loads(key)
        if parts[0] != sink:
            continue
        if len(parts) == 1 and value is not None:
            head = _head(json.loads(value))
        elif len(parts) == 2:
            writes.add(parts[1])
        elif len(parts) == 4:
            place = (str(parts[1]), int(parts[2]), int(parts[3]))
            if value is None:
                entries.pop(place, None)
            else:
                entries[place] = _transaction(json.loads(value))
    return Ledger(head, entries, frozenset(writes))


def has_head(sink: str, records: Iterable[LedgerRecord]) -> bool:
    """Return True if one of the records is a head of the sink."""
    return any(key == _key(sink) for key, _ in records)


def _key(*parts: object) -> bytes:
    return _json(list(parts))


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _epoch_value(epoch: OpenEpoch | None) -> object:
    if epoch is None:
        return None
    return {
        "query": epoch.query,
        "epoch": epoch.epoch,
        "partitions": list(epoch.partitions),
    }


def _epoch(value: Any) -> OpenEpoch | None:
    if value is None:
        return None
    return OpenEpoch(value["query"], value["epoch"], tuple(value["partitions"]))


def _head(value: dict[str, Any]) -> Head:
    if value["format"] != FORMAT:
        raise InvalidConfigurationError(
            f"the sink's ledger has format {value['format']}, and this version of kafka_async "
            f"reads format {FORMAT}: use the newest version on every driver and worker"
        )
    torn = value["torn"]
    return Head(
        plan=value["plan"],
        driver=value["driver"],
        superseded=tuple(value["superseded"]),
        decided=value["decided"],
        open=_epoch(value["open"]),
        resume=_epoch(value["resume"]),
        torn=None
        if torn is None
        else TornEpoch(
            torn["query"],
            torn["epoch"],
            tuple(
                TornPartition(number, outcome, tuple((t, p, a, b) for t, p, a, b in places))
                for number, outcome, places in torn["partitions"]
            ),
        ),
        committed=value["committed"],
    )


def _places(prepared: PreparedTransaction) -> tuple[tuple[str, int, int, int], ...]:
    return tuple(
        (topic, number, first, last)
        for (topic, number), (first, last) in sorted(prepared.offsets.items())
    )


def _transaction_value(prepared: PreparedTransaction) -> bytes:
    return _json(
        {
            "transactional_id": prepared.transactional_id,
            "producer_id": prepared.producer_id,
            "epoch": prepared.epoch,
            "version": prepared.version,
            "offsets": [list(place) for place in _places(prepared)],
        }
    )


def _transaction(value: dict[str, Any]) -> PreparedTransaction:
    return PreparedTransaction(
        value["transactional_id"],
        value["producer_id"],
        value["epoch"],
        value["version"],
        {TopicPartition(t, p): (first, last) for t, p, first, last in value["offsets"]},
    )
