"""Plans, commits and gives up the epochs of an exactly-once sink, on the driver.

`exactly_once.py` describes the protocol, `ledger.py` has its decisions. Requests go through
`SinkCluster`, so that tests can run the protocol against a model and crash it at every step.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from kafka_async.errors import (
    InvalidConfigurationError,
    KafkaError,
    ProducerFencedError,
    TornEpochError,
    TransactionAbortableError,
)
from kafka_async.spark.sink import ledger as decisions
from kafka_async.spark.sink.ledger import (
    EpochVerdict,
    Head,
    Ledger,
    LedgerRecord,
    OpenEpoch,
    Outcome,
    RepairAction,
)

if TYPE_CHECKING:
    from kafka_async.types import PreparedTransaction

T = TypeVar("T")

logger = logging.getLogger("kafka_async.spark")

MAX_ATTEMPTS: Final = 20
"""Maximum attempts of a call that another driver interrupts by locking the ledger."""


class LedgerLockLostError(KafkaError):
    """Another process has locked the ledger; no record was written."""


class SinkCluster(Protocol):
    """Requests from a driver to the cluster."""

    async def lock(self) -> None:
        """Make this process the only writer of the sink's ledger; earlier writers fail."""
        ...

    async def read(self, *, everything: bool = False) -> Ledger:
        """Return the sink's ledger; `everything` includes all committed batch writes."""
        ...

    async def write(self, records: Sequence[LedgerRecord]) -> None:
        """Write records to the ledger, all or none.

        Raises:
            LedgerLockLostError: Another process has locked the ledger.
        """
        ...

    async def not_open(self, transactions: Sequence[PreparedTransaction]) -> dict[str, str]:
        """Return the states of the transactions that are no longer open, by id."""
        ...

    async def commit(self, transaction: PreparedTransaction) -> Outcome:
        """Commit a prepared transaction and return its outcome, even if it has already ended."""
        ...

    async def unfinished(self, plans: Iterable[int]) -> list[str]:
        """Return the transactional ids of plans that have or may begin a transaction."""
        ...

    async def fence(self, transactional_ids: Sequence[str]) -> None:
        """Abort the transactions of transactional ids, and fence their producers."""
        ...


@dataclass(frozen=True)
class Plan:
    """Permission of one job to write.

    Attributes:
        number: The plan's number.
        driver: Identity of the driver of a streaming query; "" for a batch write.
        query: Name of the batch write; None for a streaming query.
        planned_at: Seconds on the driver's monotonic clock.
        is_done: The batch write is already committed: its tasks write nothing.
        committed: Last committed epoch by streaming query: tasks of these epochs write nothing.
        resume: Partitions that are already committed and not written again.
    """

    number: int
    driver: str
    query: str | None
    planned_at: float
    is_done: bool = False
    committed: Mapping[str, int] = field(default_factory=dict[str, int])
    resume: OpenEpoch | None = None

    def writes_nothing(self, query: str, epoch: int, partition: int) -> bool:
        """Return True if a task must not write because its rows are committed."""
        if self.is_done or self.committed.get(query, -1) >= epoch:
            return True
        resume = self.resume
        return (
            resume is not None
            and (resume.query, resume.epoch) == (query, epoch)
            and partition in resume.partitions
        )


class SinkDriver:
    """Runs the driver's side of the protocol for one sink.

    Args:
        cluster: Sends the requests.
        sink: The sinkId.
        timeout: Transaction time-out of the tasks, in seconds.
        now: The driver's monotonic clock, in seconds.
    """

    def __init__(
        self, cluster: SinkCluster, sink: str, timeout: float, now: Callable[[], float]
    ) -> None:
        self._cluster = cluster
        self._sink = sink
        self._timeout = timeout
        self._now = now

    async def plan(self, driver: str, query: str | None = None) -> Plan:
        """Resolve an earlier job's open epoch, and return the plan of the next job.

        Args:
            driver: Identity of the driver of a streaming query; "" for a batch write.
            query: Name of the batch write; None for a streaming query.

        Raises:
            ProducerFencedError: Another driver has replaced this one. Raised once: a restarted
                query replaces the other driver.
            TornEpochError: An epoch is torn and needs a repair.
        """
        return await self._repeat(lambda: self._plan(driver, query))

    async def commit(
        self,
        plan: Plan,
        query: str,
        epoch: int,
        transactions: Mapping[int, PreparedTransaction],
    ) -> None:
        """Commit an epoch, and abort the transactions of attempts that were not chosen.

        Args:
            plan: The plan of the job.
            query: The query's name.
            epoch: The epoch.
            transactions: Prepared transactions by partition.

        Raises:
            ProducerFencedError: Another driver has made a newer plan.
            TransactionAbortableError: A transaction timed out or was fenced before any was
                committed: the epoch can be repeated.
            InvalidConfigurationError: The job took more than half of the transaction time-out.
            TornEpochError: Only some of the transactions were committed.
        """
        await self._repeat(lambda: self._commit(plan, query, epoch, transactions))
        await self._abort_unfinished(plan.number)

    async def give_up(self, plan: Plan | None, driver: str = "") -> None:
        """Abort the transactions of a failed job, unless its commit was decided.

        Args:
            plan: The plan of the job; None for the driver's last plan.
            driver: Identity of the driver, if `plan` is None.
        """
        number = await self._repeat(lambda: self._give_up(plan, driver))
        if number is not None:
            await self._abort_unfinished(number)

    async def repair(self, action: RepairAction) -> None:
        """Repair a torn epoch.

        Raises:
            InvalidConfigurationError: No epoch is torn, or the action is not possible.
        """

        async def attempt() -> None:
            found = await self._locked()
            try:
                found = await self._resolved(found)
            except TornEpochError:
                found = await self._cluster.read()
            await self._cluster.write(decisions.repair(self._sink, found.head, action))

        await self._repeat(attempt)

    # -- one attempt each -------------------------------------------------------------------------

    async def _plan(self, driver: str, query: str | None) -> Plan:
        named = query is not None and query.startswith(decisions.WRITE_PREFIX)
        found = await self._locked(everything=named)
        if decisions.is_superseded(found.head, driver):
            await self._write_head(decisions.forget_superseded(found.head, driver))
            raise ProducerFencedError(
                f"another driver has used the sink {self._sink} since: stop one of them, or start "
                "this query again to take the sink over"
            )
        found = await self._resolved(found, everything=named)
        if found.head.torn is not None:
            raise decisions.torn_error(self._sink, found.head.torn)
        head = decisions.next_plan(found.head, driver)
        await self._write_head(head)
        # From here on, no attempt of an earlier plan can begin to write.
        earlier = decisions.earlier_plans(head.plan)
        await self._cluster.fence(await self._cluster.unfinished(earlier))
        return Plan(
            head.plan,
            driver,
            query,
            self._now(),
            is_done=query in found.writes,
            committed=head.committed,
            resume=head.resume,
        )

    async def _commit(
        self, plan: Plan, query: str, epoch: int, transactions: Mapping[int, PreparedTransaction]
    ) -> None:
        if plan.is_done:
            return
        found = await self._locked(everything=query.startswith(decisions.WRITE_PREFIX))
        head = found.head
        # The cases, in order: another plan is newer; an earlier attempt of this call committed the
        # epoch; a repair is due; the epoch was given up, or the decision is still to make; or this
        # call was interrupted after the decision, and only resolves the open epoch.
        if head.plan != plan.number:
            if decisions.is_superseded(head, plan.driver):
                await self._write_head(decisions.forget_superseded(head, plan.driver))
            raise ProducerFencedError(
                f"another driver or write has used the sink {self._sink} since epoch {epoch} of "
                f"query {query} was planned: a sinkId serves one query at a time. This one has "
                "not committed the epoch"
            )
        if head.is_committed(query, epoch) or query in found.writes:
            return
        if head.torn is not None:
            raise decisions.torn_error(self._sink, head.torn)
        if head.open is None:
            if head.decided:
                raise _repeatable(f"epoch {epoch} was given up")
            await self._check_transactions(plan, epoch, transactions)
            records = decisions.decide(self._sink, head, query, epoch, transactions)
            await self._cluster.write(records)
            if not transactions:
                return
            found = decisions.read_ledger(self._sink, records)
        verdict = await self._resolve(found)
        if verdict is EpochVerdict.EXPIRED:
            raise _repeatable(f"all transactions of epoch {epoch} were aborted before the commit")

    async def _check_transactions(
        self, plan: Plan, epoch: int, transactions: Mapping[int, PreparedTransaction]
    ) -> None:
        # Committing takes time too: if only some transactions timed out before it, the epoch would
        # be torn.
        took = self._now() - plan.planned_at
        if took * 2 > self._timeout:
            raise InvalidConfigurationError(
                f"epoch {epoch} took {took:.1f} s from its planning to its commit, so it is not "
                f"committed: transactionTimeoutMs={self._timeout * 1000:.0f} must be at least "
                f"twice that, {took * 2000:.0f}; or read less per batch"
            )
        over = await self._cluster.not_open(list(transactions.values()))
        if over:
            rows = ", ".join(f"{name} is {state}" for name, state in sorted(over.items())[:5])
            raise _repeatable(
                f"transactions of epoch {epoch} have timed out or were fenced: {rows}"
            )

    async def _give_up(self, plan: Plan | None, driver: str) -> int | None:
        """Return the number of the plan, or None if another plan is the last."""
        found = await self._locked()
        head = found.head
        # The job's tasks may have failed before they returned a plan: then it is the driver's last
        # one.
        mine = head.driver == driver != "" if plan is None else head.plan == plan.number
        if not mine:
            return None
        if head.open is not None:
            await self._resolve(found)
        elif not head.decided:
            await self._write_head(decisions.give_up(head))
        return head.plan

    # -- steps ------------------------------------------------------------------------------------

    async def _repeat(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Repeat an attempt that another process interrupts; it reads the ledger anew each time."""
        for _ in range(MAX_ATTEMPTS - 1):
            try:
                return await attempt()
            except LedgerLockLostError as error:
                logger.debug("sink %s: %s", self._sink, error)
        return await attempt()

    async def _locked(self, *, everything: bool = False) -> Ledger:
        await self._cluster.lock()
        return await self._cluster.read(everything=everything)

    async def _write_head(self, head: Head) -> None:
        await self._cluster.write([decisions.head_record(self._sink, head)])

    async def _resolved(self, found: Ledger, *, everything: bool = False) -> Ledger:
        """Resolve the open epoch, if any, and return the ledger after it."""
        if found.head.open is None:
            return found
        verdict = await self._resolve(found)
        logger.info("sink %s: %s is %s", self._sink, found.head.open, verdict.value)
        return await self._cluster.read(everything=everything)

    async def _resolve(self, found: Ledger) -> EpochVerdict:
        """Commit the transactions of the open epoch, and write the verdict.

        Raises:
            TornEpochError: Only some of the transactions were committed.
        """
        transactions = found.transactions
        results = await asyncio.gather(
            *(self._cluster.commit(each) for each in transactions.values()), return_exceptions=True
        )
        outcomes: dict[int, Outcome] = {}
        for number, result in zip(transactions, results, strict=True):
            if isinstance(result, BaseException):
                raise result  # The epoch stays open: the next plan commits it.
            outcomes[number] = result
        verdict = decisions.judge(outcomes.values())
        records = decisions.finish(self._sink, found.head, verdict, outcomes, transactions)
        await self._cluster.write(records)
        if verdict is EpochVerdict.TORN:
            torn = decisions.read_ledger(self._sink, records).head.torn
            assert torn is not None
            raise decisions.torn_error(self._sink, torn)
        return verdict

    async def _abort_unfinished(self, plan: int) -> None:
        """Abort transactions of attempts that were not chosen; the next plan repeats a failure."""
        try:
            await self._cluster.fence(await self._cluster.unfinished([plan]))
        except KafkaError as error:
            logger.warning(
                "sink %s: transactions of failed attempts stay open until the next batch or their "
                "time-out: %s",
                self._sink,
                error,
            )


def _repeatable(message: str) -> TransactionAbortableError:
    return TransactionAbortableError(f"{message}. Nothing is committed: the epoch can be repeated")
