"""A Hypothesis machine that writes a log, with all that makes offsets differ from records.

The machines of the reading calls extend it. Each has an event loop on virtual time, which runs only
within a rule. Hypothesis shrinks a failure to a short history, and prints its rules as a program.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable, Coroutine
from typing import Any, Final
from unittest import mock
from uuid import UUID

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    precondition,
    rule,
    run_state_machine_as_test,
)

from kafka_async.records.batch import RecordBatch
from kafka_async.testing.clock import VirtualClockEventLoop
from kafka_async.types import ProducerRecord, TopicPartition
from tests.compacted_batch import end_later
from tests.consumer.conftest import Stage

TOPIC: Final = "t"
PARTITIONS: Final = (TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1))
BAD: Final = b"not a number"
Offsets = defaultdict[TopicPartition, set[int]]

numbers = st.integers(0, len(PARTITIONS) - 1)
counts = st.integers(1, 20)
percents = st.integers(0, 100)
pauses = st.sampled_from([0, 0.1, 0.3, 0.5, 1, 3])
"""Seconds after a rule."""


class HandlerError(Exception):
    """Raised by a handler, once for a record."""


def seeded_uuid4() -> UUID:
    """Return a UUID of the random numbers that Hypothesis has seeded."""
    return UUID(int=random.getrandbits(128))


class LogMachine(RuleBasedStateMachine):
    """Writes a topic, in batches, transactions and with gaps.

    Attributes:
        stage: The cluster.
        visible: Records that a consumer may return.
        undecodable: Those among them that cannot be deserialized.
        deleted: Offsets below the start of the log.
        failing: Records whose handlers are to fail once.
        wrong: Faults that were found by callbacks.
    """

    def __init__(self) -> None:
        super().__init__()
        self.visible: Offsets = defaultdict(set)
        self.undecodable: Offsets = defaultdict(set)
        self.deleted: Offsets = defaultdict(set)
        self.failing: set[tuple[TopicPartition, int]] = set()
        self.wrong: list[str] = []
        self.stage = Stage()
        self._failed = self._settled = False
        # Member ids must not differ when Hypothesis repeats a history.
        self._uuid4 = mock.patch("uuid.uuid4", seeded_uuid4)
        self._uuid4.start()
        self._runner = asyncio.Runner(loop_factory=VirtualClockEventLoop)
        self._act(self._open())

    # -- for the machines -------------------------------------------------------------------------

    async def begin(self) -> None:
        """Prepare what the rules need."""

    async def settle_all(self) -> None:
        """Wait until nothing happens any more, and check that nothing is left."""
        raise NotImplementedError

    async def stop_members(self) -> None:
        """Stop the consumers."""
        raise NotImplementedError

    def check_members(self) -> None:
        """Raise what the reading tasks have raised."""
        raise NotImplementedError

    def _act(self, action: Coroutine[Any, Any, None], pause: float = 0) -> None:
        """Run an action, then let time pass."""

        self._settled = False

        async def run() -> None:
            await action
            await asyncio.sleep(pause)
            self.check_members()
            assert not self.wrong, self.wrong[:3]

        try:
            self._runner.run(run())
        except BaseException:
            self._failed = True
            raise

    def teardown(self) -> None:
        try:
            if not self._failed:
                self._act(self.settle_all())
        finally:
            try:
                self._runner.run(self._close())
            finally:
                self._runner.close()
                self._uuid4.stop()

    async def _open(self) -> None:
        await self.stage.__aenter__()
        self._producer = self.stage.producer(transactional_id="x")
        await self._producer.start()
        # The records are of 1970, and only the rules delete any.
        await self.stage.cluster.create_topic(
            TOPIC, len(PARTITIONS), configs={"retention.ms": "-1"}
        )
        await self.begin()

    async def _close(self) -> None:
        await self.stop_members()
        await self._producer.stop()
        await self.stage.__aexit__(*([None] * 3))

    # -- the log ----------------------------------------------------------------------------------

    def end(self, partition: TopicPartition) -> int:
        return self.stage.partition(*partition).log.end_offset

    def place(self, partition: TopicPartition, percent: int) -> int:
        log = self.stage.partition(*partition).log
        return log.start_offset + (log.end_offset - log.start_offset) * percent // 100

    @rule(number=numbers, count=counts, gap=st.sampled_from([0, 2]), pause=pauses)
    def write(self, number: int, count: int, gap: int, pause: float) -> None:
        self._act(self._append(number, [b"%d" % it for it in range(count)], gap), pause)

    @rule(number=numbers, count=counts, percent=percents, pause=pauses)
    def write_undecodable(self, number: int, count: int, percent: int, pause: float) -> None:
        values = [b"%d" % it for it in range(count)]
        values.insert(count * percent // 100, BAD)
        self._act(self._append(number, values, 0), pause)

    async def _append(self, number: int, values: list[bytes], gap: int) -> None:
        """Append a batch; after it there may be a gap, as compaction leaves it."""
        partition = PARTITIONS[number]
        rows = [ProducerRecord("", value, key=value[-1:]) for value in values]
        first = self.end(partition)
        for place, value in enumerate(values):
            self.visible[partition].add(first + place)
            if value == BAD:
                self.undecodable[partition].add(first + place)
        batch = RecordBatch.build(rows, timestamp=1_000).frame()
        self.stage.append(partition, end_later(batch, len(values) - 1 + gap))

    @rule(number=numbers, count=counts, commits=st.booleans(), pause=pauses)
    def write_transaction(self, number: int, count: int, commits: bool, pause: float) -> None:
        self._act(self.transaction(PARTITIONS[number], count, commits=commits), pause)

    async def transaction(self, partition: TopicPartition, count: int, *, commits: bool) -> None:
        transaction = await self._producer.begin()
        first = self.end(partition)
        if commits:
            self.visible[partition] |= set(range(first, first + count))
        for it in range(count):
            await transaction.enqueue(TOPIC, b"%d" % it, partition=partition.partition)
        await self._producer.flush()  # An abort would drop what was not sent.
        await (transaction.commit() if commits else transaction.abort())

    @rule(number=numbers, percent=percents, pause=pauses)
    def delete_records(self, number: int, percent: int, pause: float) -> None:
        async def delete(partition: TopicPartition) -> None:
            target = self.place(partition, percent)
            self.deleted[partition] |= set(range(target))
            self.stage.partition(*partition).log.delete_records_before(target)

        self._act(delete(PARTITIONS[number]), pause)

    # -- handlers ---------------------------------------------------------------------------------

    @rule(number=numbers, percent=percents, count=counts)
    def let_a_handler_fail(self, number: int, percent: int, count: int) -> None:
        partition = PARTITIONS[number]
        self.failing.add((partition, self.place(partition, percent) + count // 2))

    def fail_once(self, partition: TopicPartition, offset: int) -> None:
        """Raise HandlerError if the handler of the record is to fail now."""
        if (partition, offset) in self.failing:
            self.failing.remove((partition, offset))
            raise HandlerError

    @precondition(lambda self: not self._settled)
    @rule()
    def settle(self) -> None:
        self._act(self.settle_all())
        self._settled = True


def run_histories(machine: Callable[[], LogMachine], count: int, steps: int) -> None:
    """Run this many histories of at most `steps` rules."""
    chosen = settings(
        max_examples=count,
        stateful_step_count=steps,
        deadline=None,
        phases=[Phase.generate, Phase.shrink],
        report_multiple_bugs=False,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    # Hypothesis has no setting for it, and its five minutes are longer than a test may take.
    with mock.patch("hypothesis.internal.conjecture.engine.MAX_SHRINKING_SECONDS", 40):
        run_state_machine_as_test(machine, settings=chosen)  # type: ignore[arg-type]
