"""The protocol of the exactly-once sink against a model, with a crash at every step."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kafka_async.errors import (
    InvalidConfigurationError,
    ProducerFencedError,
    TornEpochError,
    TransactionAbortableError,
)
from kafka_async.spark.sink.ledger import (
    RepairAction,
    earlier_plans,
    read_ledger,
    transactional_id,
)
from kafka_async.spark.sink.sink_driver import Plan, SinkDriver
from tests.rows import row
from tests.spark.sink_model import Broker, CrashError, ModelCluster, prepared

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from kafka_async.types import PreparedTransaction

SINK = "orders"
QUERY = "q1"
PARTITIONS = 3
TIMEOUT = 60.0


def driver(broker: Broker, crash_at: int | None = None, now: float = 0.0) -> SinkDriver:
    return SinkDriver(ModelCluster(broker, SINK, crash_at), SINK, TIMEOUT, lambda: now)


def run(call: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(call)


def rows_of(epoch: int, partition: int) -> list[str]:
    return [f"{epoch}/{partition}"]


def run_task(
    broker: Broker, plan: Plan, epoch: int, partition: int, attempt: int = 0, query: str = QUERY
) -> PreparedTransaction | None:
    """Run one attempt as `ExactlyOnceWriter.write` does; None if it has nothing to write."""
    if plan.writes_nothing(query, epoch, partition):
        return None
    name = transactional_id(SINK, plan.number, partition, attempt)
    producer_epoch = broker.init(name)
    assert read_ledger(SINK, broker.records).head.may_write(plan.number)
    assert broker.write(name, producer_epoch, rows_of(epoch, partition))
    return prepared(name, producer_epoch, partition)


def run_tasks(
    broker: Broker, plan: Plan, epoch: int, query: str = QUERY
) -> dict[int, PreparedTransaction]:
    done = {
        number: run_task(broker, plan, epoch, number, query=query) for number in range(PARTITIONS)
    }
    return {number: each for number, each in done.items() if each is not None}


def run_epoch(broker: Broker, epoch: int, crash_at: int | None = None, name: str = "a") -> None:
    """Plan, write and commit an epoch; the driver is killed after `crash_at` half requests."""
    it = driver(broker, crash_at)
    plan = run(it.plan(name))
    run(it.commit(plan, QUERY, epoch, run_tasks(broker, plan, epoch)))


def expected(*epochs: int) -> Counter[str]:
    return Counter(
        row for epoch in epochs for number in range(PARTITIONS) for row in rows_of(epoch, number)
    )


def steps_of_an_epoch() -> int:
    broker = Broker()
    cluster = ModelCluster(broker, SINK)
    it = SinkDriver(cluster, SINK, TIMEOUT, lambda: 0.0)
    plan = run(it.plan("a"))
    run(it.commit(plan, QUERY, 0, run_tasks(broker, plan, 0)))
    return cluster.steps


# -- crashes --------------------------------------------------------------------------------------


def test_an_epoch_takes_effect_once_wherever_its_driver_is_killed() -> None:
    for second_crash_at in [None, *range(0, steps_of_an_epoch(), 5)]:
        for crash_at in range(steps_of_an_epoch()):
            with row(second_crash_at, crash_at):
                check_an_epoch_takes_effect_once_wherever_its_driver_is_killed(
                    crash_at, second_crash_at
                )


def check_an_epoch_takes_effect_once_wherever_its_driver_is_killed(
    crash_at: int, second_crash_at: int | None
) -> None:
    broker = Broker()
    run_epoch(broker, 0)
    with pytest.raises(CrashError):
        run_epoch(broker, 1, crash_at)
    if second_crash_at is not None:
        try:
            run_epoch(broker, 1, second_crash_at, name="b")
        except CrashError:
            pass
    run_epoch(broker, 1, name="c")
    run_epoch(broker, 2, name="c")
    assert Counter(broker.visible) == expected(0, 1, 2)
    assert broker.ongoing == []


def test_tasks_of_a_committed_epoch_write_nothing() -> None:
    broker = Broker()
    run_epoch(broker, 0)
    ids = {name: row.epoch for name, row in broker.ids.items()}
    it = driver(broker)
    plan = run(it.plan("b"))
    assert run_tasks(broker, plan, 0) == {}
    run(it.commit(plan, QUERY, 0, {}))
    assert Counter(broker.visible) == expected(0)
    assert {name: broker.ids[name].epoch for name in ids} == ids


def test_a_new_checkpoint_is_a_new_query() -> None:
    broker = Broker()
    run_epoch(broker, 0)
    it = driver(broker)
    plan = run(it.plan("a"))
    run(it.commit(plan, "q2", 0, run_tasks(broker, plan, 0, query="q2")))
    assert Counter(broker.visible) == expected(0, 0)


def test_a_repeated_commit_changes_nothing() -> None:
    broker = Broker()
    it = driver(broker)
    plan = run(it.plan("a"))
    done = run_tasks(broker, plan, 0)
    for _ in range(2):
        run(it.commit(plan, QUERY, 0, done))
    assert Counter(broker.visible) == expected(0)


def test_an_epoch_without_rows_is_committed() -> None:
    broker = Broker()
    it = driver(broker)
    plan = run(it.plan("a"))
    run(it.commit(plan, QUERY, 0, {}))
    assert run(driver(broker).plan("a")).committed == {QUERY: 0}


# -- attempts that lose ---------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["commit", "give_up", "give_up without messages"])
def test_no_transaction_of_a_losing_attempt_stays_open(end: str) -> None:
    broker = Broker()
    it = driver(broker)
    plan = run(it.plan("a"))
    done = run_tasks(broker, plan, 0)
    for attempt in (1, 2):
        assert run_task(broker, plan, 0, 1, attempt) is not None
    late = broker.init(transactional_id(SINK, plan.number, 2, 5))  # It has not written yet.
    if end == "commit":
        run(it.commit(plan, QUERY, 0, done))
        assert Counter(broker.visible) == expected(0)
    else:
        run(it.give_up(None, "another driver"))
        assert broker.ongoing
        run(it.give_up(None, "a") if end == "give_up without messages" else it.give_up(plan))
        assert broker.visible == []
    assert broker.ongoing == []
    assert not broker.write(transactional_id(SINK, plan.number, 2, 5), late, ["late"])
    head = read_ledger(SINK, broker.records).head
    assert not head.may_write(plan.number)  # An attempt that begins now raises.


def test_a_failed_job_whose_commit_was_decided_is_committed() -> None:
    for crash_at in range(steps_of_an_epoch()):
        broker = Broker()
        plan = run(driver(broker).plan("a"))
        done = run_tasks(broker, plan, 0)
        try:
            run(driver(broker, crash_at).commit(plan, QUERY, 0, done))
        except CrashError:
            pass
        run(driver(broker).give_up(plan))  # Spark calls abort after a failure of commit.
        assert broker.ongoing == []
        run_epoch(broker, 0)
        assert Counter(broker.visible) == expected(0)


def test_a_commit_is_not_decided_once_a_transaction_is_over() -> None:
    broker = Broker()
    it = driver(broker)
    plan = run(it.plan("a"))
    done = run_tasks(broker, plan, 0)
    broker.expire(done[1].transactional_id)
    with pytest.raises(TransactionAbortableError, match="CompleteAbort"):
        run(it.commit(plan, QUERY, 0, done))
    run(it.give_up(plan))
    assert broker.visible == broker.ongoing == []
    run_epoch(broker, 0)
    assert Counter(broker.visible) == expected(0)


def test_a_commit_after_half_of_the_transaction_time_out_is_refused() -> None:
    broker = Broker()
    plan = run(driver(broker).plan("a"))
    done = run_tasks(broker, plan, 0)
    with pytest.raises(InvalidConfigurationError, match=r"transactionTimeoutMs=60000 .* 60020"):
        run(driver(broker, now=30.01).commit(plan, QUERY, 0, done))
    assert broker.visible == []
    run(driver(broker, now=29.99).commit(plan, QUERY, 0, done))


# -- two drivers ----------------------------------------------------------------------------------


def test_of_two_drivers_the_later_wins() -> None:
    broker = Broker()
    run_epoch(broker, 0, name="a")
    first = driver(broker)
    plan = run(first.plan("a"))
    done = run_tasks(broker, plan, 1)
    run_epoch(broker, 1, name="b")
    with pytest.raises(ProducerFencedError):
        run(first.commit(plan, QUERY, 1, done))
    run(first.give_up(plan))
    run_epoch(broker, 2, name="b")
    assert Counter(broker.visible) == expected(0, 1, 2)


def test_an_idle_driver_that_was_replaced_is_told_once() -> None:
    broker = Broker()
    run_epoch(broker, 0, name="a")
    run_epoch(broker, 1, name="b")
    with pytest.raises(ProducerFencedError, match="another driver"):
        run_epoch(broker, 2, name="a")
    run_epoch(broker, 2, name="b")
    run_epoch(broker, 3, name="a")  # Started again, it takes the sink over.
    with pytest.raises(ProducerFencedError):
        run_epoch(broker, 4, name="b")
    assert Counter(broker.visible) == expected(0, 1, 2, 3)


def test_a_suspended_driver_does_not_abort_transactions_of_later_plans() -> None:
    broker = Broker()
    first = run(driver(broker).plan("a"))
    for name in "bcdefgh":  # As many as a plan fences before it.
        later = run(driver(broker).plan(name))
        assert run_task(broker, later, 1, 0) is not None
        suspended = ModelCluster(broker, SINK)
        for plans in ([first.number], earlier_plans(first.number)):
            assert run(suspended.unfinished(plans)) == []


# -- torn epochs ----------------------------------------------------------------------------------


def tear(broker: Broker, committed: int = 1) -> None:
    """Leave epoch 0 decided, with some partitions committed and the others expired."""
    plan = run(driver(broker).plan("a"))
    done = run_tasks(broker, plan, 0)
    cluster = ModelCluster(broker, SINK, 5)  # Lock, read, check, and the decision.
    broker_before = len(broker.records)
    with pytest.raises(CrashError):
        run(SinkDriver(cluster, SINK, TIMEOUT, lambda: 0.0).commit(plan, QUERY, 0, done))
    assert len(broker.records) > broker_before
    for number, each in done.items():
        if number < committed:
            broker.commit(each.transactional_id, each.epoch)
        else:
            broker.expire(each.transactional_id)


def test_an_epoch_that_has_expired_as_a_whole_is_written_again() -> None:
    broker = Broker()
    tear(broker, committed=0)
    run_epoch(broker, 0, name="b")
    assert Counter(broker.visible) == expected(0)


def test_a_torn_epoch_raises_at_every_restart() -> None:
    broker = Broker()
    tear(broker)
    for name in ("a", "b", "b"):
        with pytest.raises(TornEpochError, match="--resume, --skip or --repeat") as raised:
            run(driver(broker).plan(name))
        assert raised.value.epoch == 0
        assert raised.value.partitions == {0: "committed", 1: "aborted", 2: "aborted"}
        assert raised.value.offsets[1] == (("out", 1, 0, 0),)


@pytest.mark.parametrize(
    ("action", "result"),
    [
        (RepairAction.RESUME, expected(0)),
        (RepairAction.SKIP, Counter(rows_of(0, 0))),
        (RepairAction.REPEAT, expected(0) + Counter(rows_of(0, 0))),
    ],
)
def test_repairs_a_torn_epoch(action: RepairAction, result: Counter[str]) -> None:
    broker = Broker()
    tear(broker)
    run(driver(broker).repair(action))
    run_epoch(broker, 0, name="b")
    assert Counter(broker.visible) == result
    run_epoch(broker, 1, name="b")
    assert Counter(broker.visible) == result + expected(1)
    with pytest.raises(InvalidConfigurationError, match="nothing to repair"):
        run(driver(broker).repair(action))


def test_a_resumed_epoch_that_is_torn_again_keeps_what_is_committed() -> None:
    broker = Broker()
    tear(broker, committed=1)
    run(driver(broker).repair(RepairAction.RESUME))
    tear(broker, committed=2)  # Partition 0 has nothing to write any more.
    run(driver(broker).repair(RepairAction.RESUME))
    run_epoch(broker, 0, name="b")
    assert Counter(broker.visible) == expected(0)


# -- batch writes ---------------------------------------------------------------------------------


def run_batch(broker: Broker, query: str, crash_at: int | None = None) -> Plan:
    it = driver(broker, crash_at)
    plan = run(it.plan("", query))
    run(it.commit(plan, query, 0, run_tasks(broker, plan, 0, query=query)))
    return plan


def test_a_batch_write_with_a_write_id_takes_effect_once() -> None:
    for crash_at in range(steps_of_an_epoch()):
        broker = Broker()
        with pytest.raises(CrashError):
            run_batch(broker, "write:w", crash_at)
        assert not run_batch(broker, "write:w").is_done or broker.visible
        assert run_batch(broker, "write:w").is_done
        assert Counter(broker.visible) == expected(0)


def test_batch_writes_without_a_write_id_are_all_written() -> None:
    broker = Broker()
    for number in range(2):
        run_batch(broker, f"action:{number}")
    assert Counter(broker.visible) == expected(0, 0)


def test_a_torn_write_without_a_write_id_cannot_be_resumed() -> None:
    broker = Broker()
    it = driver(broker)
    plan = run(it.plan("", "action:1"))
    done = run_tasks(broker, plan, 0, query="action:1")
    with pytest.raises(CrashError):
        run(driver(broker, 5).commit(plan, "action:1", 0, done))
    broker.commit(done[0].transactional_id, done[0].epoch)
    broker.expire(done[1].transactional_id)
    with pytest.raises(InvalidConfigurationError, match="skip or repeat"):
        run(driver(broker).repair(RepairAction.RESUME))
    run(driver(broker).repair(RepairAction.SKIP))
    run_batch(broker, "action:2")


# -- any order of events --------------------------------------------------------------------------


class Sink(RuleBasedStateMachine):
    """Two drivers that run epochs of one query, killed anywhere, with zombie attempts."""

    def __init__(self) -> None:
        super().__init__()
        self.broker = Broker()
        self.done = 0
        """Epochs that Spark's checkpoint has as committed."""
        self.pending: dict[str, tuple[Plan, int, dict[int, PreparedTransaction]]] = {}

    @rule(name=st.sampled_from("ab"), crash_at=st.none() | st.integers(0, 40))
    def plan_and_write(self, name: str, crash_at: int | None) -> None:
        self.pending.pop(name, None)
        try:
            plan = run(driver(self.broker, crash_at).plan(name))
        except (CrashError, ProducerFencedError):
            return
        self.pending[name] = plan, self.done, run_tasks(self.broker, plan, self.done)

    @rule(name=st.sampled_from("ab"), number=st.integers(0, 2), attempt=st.integers(1, 2))
    def run_another_attempt(self, name: str, number: int, attempt: int) -> None:
        if name not in self.pending:
            return
        plan, epoch, _ = self.pending[name]
        if read_ledger(SINK, self.broker.records).head.may_write(plan.number):
            run_task(self.broker, plan, epoch, number, attempt)

    @precondition(lambda self: self.pending)
    @rule(name=st.sampled_from("ab"), crash_at=st.none() | st.integers(0, 40))
    def commit(self, name: str, crash_at: int | None) -> None:
        if name not in self.pending:
            return
        plan, epoch, transactions = self.pending.pop(name)
        try:
            run(driver(self.broker, crash_at).commit(plan, QUERY, epoch, transactions))
        except (CrashError, ProducerFencedError, TransactionAbortableError):
            return
        self.done = max(self.done, epoch + 1)

    @rule(name=st.sampled_from("ab"), crash_at=st.none() | st.integers(0, 40))
    def give_up(self, name: str, crash_at: int | None) -> None:
        if name not in self.pending:
            return
        plan, _, _ = self.pending.pop(name)
        try:
            run(driver(self.broker, crash_at).give_up(plan))
        except CrashError:
            pass

    @invariant()
    def nothing_is_visible_twice(self) -> None:
        assert all(count == 1 for count in Counter(self.broker.visible).values())

    @invariant()
    def what_spark_has_committed_is_visible(self) -> None:
        assert not expected(*range(self.done)) - Counter(self.broker.visible)

    def teardown(self) -> None:
        for name in "ab":  # The first start may raise ProducerFencedError.
            try:
                run(driver(self.broker).plan(name))
            except ProducerFencedError:
                continue
        plan = run(driver(self.broker).plan("c"))
        done = run_tasks(self.broker, plan, self.done)
        run(driver(self.broker).commit(plan, QUERY, self.done, done))
        assert Counter(self.broker.visible) == expected(*range(self.done + 1))
        assert self.broker.ongoing == []


TestSink = Sink.TestCase
TestSink.settings = settings(max_examples=150, stateful_step_count=25, deadline=None)
