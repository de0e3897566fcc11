"""A model of a cluster with an exactly-once sink's ledger and transactions, which can crash."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from kafka_async.spark.sink.ledger import Ledger, LedgerRecord, Outcome, ids_of_plans, read_ledger
from kafka_async.spark.sink.sink_driver import LedgerLockLostError
from kafka_async.types import PreparedTransaction, TopicPartition


class CrashError(BaseException):
    """The driver's process was killed."""


@dataclass
class Transactional:
    """State of one transactional id."""

    epoch: int = -1
    state: str = "Empty"
    rows: list[str] = field(default_factory=list[str])


class Broker:
    """The state that outlives drivers and tasks: a ledger, transactional ids and visible rows."""

    def __init__(self) -> None:
        self.records: list[LedgerRecord] = []
        self.lock_epoch = 0
        self.ids: dict[str, Transactional] = {}
        self.visible: list[str] = []
        self.outcomes: dict[tuple[str, int], Outcome] = {}

    def init(self, name: str) -> int:
        """Handle InitProducerId: abort an open transaction and return the new epoch."""
        row = self.ids.setdefault(name, Transactional())
        self.abort(name)
        row.epoch, row.state = row.epoch + 1, "Empty"
        return row.epoch

    def abort(self, name: str) -> None:
        row = self.ids[name]
        if row.state == "Ongoing":
            self.outcomes[name, row.epoch] = Outcome.ABORTED
            row.state, row.rows = "CompleteAbort", []

    def expire(self, name: str) -> None:
        """Abort an open transaction because of its time-out, which fences its producer."""
        if self.ids[name].state == "Ongoing":
            self.abort(name)
            self.ids[name].epoch += 1

    def write(self, name: str, epoch: int, rows: Sequence[str]) -> bool:
        """Write rows in a transaction; return False if the producer was fenced."""
        row = self.ids[name]
        if row.epoch != epoch:
            return False
        row.state = "Ongoing"
        row.rows += rows
        return True

    def commit(self, name: str, epoch: int) -> Outcome:
        row = self.ids[name]
        if row.epoch == epoch and row.state == "Ongoing":
            self.visible += row.rows
            row.state, row.rows = "CompleteCommit", []
            self.outcomes[name, epoch] = Outcome.COMMITTED
        return self.outcomes[name, epoch]

    @property
    def ongoing(self) -> list[str]:
        return [name for name, row in self.ids.items() if row.state == "Ongoing"]


class ModelCluster:
    """The requests of one driver process, which is killed before or after a request.

    Args:
        broker: The state of the cluster.
        sink: The sinkId.
        crash_at: Number of half requests that succeed; None: the driver is not killed. An even
            number kills it before a request is handled, an odd one before its response arrives.
    """

    def __init__(self, broker: Broker, sink: str, crash_at: int | None = None) -> None:
        self.broker = broker
        self.steps = 0
        self._sink = sink
        self._crash_at = crash_at
        self._epoch = -1

    def _step(self) -> None:
        if self._crash_at is not None and self.steps >= self._crash_at:
            raise CrashError
        self.steps += 1

    async def lock(self) -> None:
        self._step()
        self.broker.lock_epoch += 1
        self._epoch = self.broker.lock_epoch
        self._step()

    async def read(self, *, everything: bool = False) -> Ledger:
        self._step()
        return read_ledger(self._sink, self.broker.records)

    async def write(self, records: Sequence[LedgerRecord]) -> None:
        self._step()
        if self._epoch != self.broker.lock_epoch:
            raise LedgerLockLostError("locked by another driver")
        self.broker.records += records
        self._step()

    async def not_open(self, transactions: Sequence[PreparedTransaction]) -> dict[str, str]:
        self._step()
        ids = self.broker.ids
        return {
            each.transactional_id: ids[each.transactional_id].state
            for each in transactions
            if (ids[each.transactional_id].state, ids[each.transactional_id].epoch)
            != ("Ongoing", each.epoch)
        }

    async def commit(self, transaction: PreparedTransaction) -> Outcome:
        self._step()
        outcome = self.broker.commit(transaction.transactional_id, transaction.epoch)
        self._step()
        return outcome

    async def unfinished(self, plans: Iterable[int]) -> list[str]:
        self._step()
        pattern = ids_of_plans(self._sink, plans)
        return [
            name
            for name, row in self.broker.ids.items()
            if row.state in ("Empty", "Ongoing") and re.fullmatch(pattern, name)
        ]

    async def fence(self, transactional_ids: Sequence[str]) -> None:
        for name in transactional_ids:
            self._step()
            self.broker.init(name)
            self._step()


def prepared(name: str, epoch: int, partition: int) -> PreparedTransaction:
    return PreparedTransaction(name, 1, epoch, offsets={TopicPartition("out", partition): (0, 0)})
