"""What the producer does with each answer, and with none."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async.errors import (
    DeliveryError,
    InvalidTopicError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    RecordTooLargeError,
    UnknownTopicOrPartitionError,
    for_code,
)
from kafka_async.producer.accumulator import Accumulator
from kafka_async.producer.reactions import PRODUCE_REACTIONS, Reaction, reaction_to
from kafka_async.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from kafka_async.protocol.messages.produce import ProduceRequest
from kafka_async.records.batch import RecordBatch, iter_batches
from kafka_async.types import ProducerRecord, TopicPartition
from tests.producer.scripted import Answer, Bench, turns

if TYPE_CHECKING:
    from kafka_async.kernel import Delivery

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]

RETRIED = (2, 3, 5, 6, 7, 9, 13, 19, 20, 51, 56, 74, 75, 100, 103)
LARGE = 1 << 20
ENOUGH = RecordBatch.build([ProducerRecord("clicks", bytes(8 * LARGE))])
ROOM = {"batch_size": 9 * LARGE, "max_request_size": 10 * LARGE, "buffer_memory": 64 * LARGE}
REFUSED = (-1, 17, 21, 29, 31, 42, 43, 47, 48, 49, 53, 76, 87, 90, 120)


def sequences(bench: Bench) -> list[tuple[int, int]]:
    """Epoch and base sequence of every batch that was sent, in order."""
    found: list[tuple[int, int]] = []
    for request in bench.cluster.requests(ProduceRequest):
        for topic in request.topic_data:
            for row in topic.partition_data:
                pieces: Any = row.records
                header = next(iter_batches(b"".join(pieces))).header
                found.append((header.producer_epoch, header.base_sequence))
    return found


async def each(bench: Bench, *values: bytes, topic: str = "clicks") -> list[Delivery]:
    """Enqueue values as batches of their own."""
    deliveries: list[Delivery] = []
    for value in values:
        deliveries.append(await bench.producer.enqueue(topic, value, partition=0))
        await turns()
    return deliveries


# -- answers --------------------------------------------------------------------------------------


async def test_a_record_is_written_and_acknowledged() -> None:
    async with Bench({"clicks": [1, 2]}) as bench:
        receipt = await bench.producer.send("clicks", b"v", key=b"k", headers=[("h", b"x")])
        assert (receipt.topic, receipt.offset) == ("clicks", 0)
        assert bench.cluster.log("clicks", receipt.partition).records == [(b"k", b"v")]


@pytest.mark.parametrize("code", RETRIED)
async def test_what_may_pass_is_retried_until_it_does(code: int) -> None:
    async with Bench({"clicks": [1]}) as bench:
        bench.cluster.script += [Answer(code=code), Answer(code=code)]
        receipt = await bench.producer.send("clicks", b"v")
        assert receipt.offset == 0
        assert sequences(bench) == [(0, 0)] * 3
        assert bench.producer.statistics().record_retry_total == 2


@pytest.mark.parametrize("code", REFUSED)
async def test_what_will_not_pass_fails_with_the_brokers_error(code: int) -> None:
    async with Bench({"clicks": [1]}) as bench:
        bench.cluster.script.append(Answer(code=code, message="because"))
        with pytest.raises(for_code(code), match="because"):
            await bench.producer.send("clicks", b"v")
        assert (await bench.producer.send("clicks", b"next")).offset == 0


async def test_every_row_of_the_reaction_table_is_reached() -> None:
    assert {reaction_to(cls()) for cls in PRODUCE_REACTIONS} == set(Reaction) - {Reaction.FAIL}
    assert reaction_to(ValueError()) is Reaction.FAIL


async def test_a_stale_leader_is_looked_up_again() -> None:
    async with Bench({"clicks": [1]}) as bench:
        bench.cluster.script.append(Answer(code=6))
        sending = asyncio.ensure_future(bench.producer.send("clicks", b"v"))
        await turns()
        assert bench.cluster.updates == 1
        bench.cluster.set_topic("clicks", [2])
        began = asyncio.get_running_loop().time()
        await sending
        # A new leader is asked at once: the back-off was for the old one.
        assert asyncio.get_running_loop().time() == began
        assert [node for node, _, _ in bench.cluster.sent if node >= 0] == [1, 2]


async def test_a_leader_that_the_broker_names_is_used_at_once() -> None:
    async with Bench({"clicks": [1]}) as bench:
        bench.cluster.script.append(Answer(code=6, leader=(2, 5)))
        began = asyncio.get_running_loop().time()
        await bench.producer.send("clicks", b"v")
        assert asyncio.get_running_loop().time() == began
        assert [node for node, _, _ in bench.cluster.sent if node >= 0] == [1, 2]


async def test_a_duplicate_counts_as_written() -> None:
    async with Bench({"clicks": [1]}) as bench:
        bench.cluster.script.append(Answer(code=46))
        assert (await bench.producer.send("clicks", b"v")).offset == -1


async def test_an_answer_without_the_partition_fails_it() -> None:
    async with Bench({"clicks": [1]}) as bench:
        original = bench.cluster.produced

        def forgetful(*args: Any, **kwargs: Any) -> Any:
            response = original(*args, **kwargs)
            response.responses = ()
            return response

        bench.cluster.produced = forgetful
        with pytest.raises(KafkaError, match="leaves the partition out"):
            await bench.producer.send("clicks", b"v")


async def test_acks_0_needs_no_answer_and_knows_no_offset() -> None:
    async with Bench({"clicks": [1]}, acks=0, enable_idempotence=False) as bench:
        assert (await bench.producer.send("clicks", b"v")).offset == -1
        assert bench.cluster.log("clicks").values == [b"v"]
        assert sequences(bench) == [(-1, -1)]


# -- no answer ------------------------------------------------------------------------------------


@pytest.mark.parametrize("write", [True, False])
async def test_a_lost_connection_writes_nothing_twice(write: bool) -> None:
    async with Bench({"clicks": [1]}) as bench:
        bench.cluster.script.append(Answer(lose=True, write=write))
        assert (await bench.producer.send("clicks", b"v")).offset == 0
        assert bench.cluster.log("clicks").values == [b"v"]


async def test_the_retry_of_a_batch_is_the_same_bytes() -> None:
    async with Bench({"clicks": [1]}) as bench:
        bench.cluster.script += [Answer(lose=True), Answer(code=19)]
        await bench.producer.send("clicks", b"v")
        frames: list[Any] = [
            row.records
            for request in bench.cluster.requests(ProduceRequest)
            for topic in request.topic_data
            for row in topic.partition_data
        ]
        assert len(frames) == 3
        assert all(frame is frames[0] for frame in frames)
        assert all(isinstance(piece, bytes) for piece in frames[0])


async def test_a_broker_that_cannot_be_reached_is_tried_until_the_deadline() -> None:
    async with Bench(
        {"clicks": [1]}, delivery_timeout_ms=30_000, request_timeout_ms=5_000
    ) as bench:
        bench.cluster.refusing[1] = KafkaConnectionError("refused")
        with pytest.raises(KafkaTimeoutError, match="delivery_timeout_ms") as caught:
            await bench.producer.send("clicks", b"v")
        assert caught.value.topic == "clicks"
        assert asyncio.get_running_loop().time() == pytest.approx(30, abs=1)
        assert 10 < bench.cluster.lane_to(1).connects < 100


async def test_one_dead_broker_holds_up_nobody_else() -> None:
    async with Bench({"clicks": [1], "audit": [2]}) as bench:
        bench.cluster.refusing[1] = KafkaConnectionError("refused")
        stuck = await bench.producer.enqueue("clicks", b"v")
        began = asyncio.get_running_loop().time()
        for number in range(20):
            await bench.producer.send("audit", b"%d" % number)
        assert asyncio.get_running_loop().time() - began < 0.1
        assert not stuck.done()


async def test_an_expired_batch_on_the_wire_is_decided_by_its_answer() -> None:
    """CVE-2026-35554: until its request has ended, a batch is neither failed nor reused."""
    async with Bench(
        {"clicks": [1], "other": [1]}, delivery_timeout_ms=5_000, request_timeout_ms=5_000
    ) as bench:
        hold = asyncio.Event()
        bench.cluster.script.append(Answer(hold=hold))
        first = await bench.producer.enqueue("clicks", b"first")
        await asyncio.sleep(4.9)
        hold.set()
        await asyncio.sleep(0.2)
        assert first.result().offset == 0

        late = asyncio.Event()
        bench.cluster.script.append(Answer(hold=late))
        second = await bench.producer.enqueue("clicks", b"second")
        await asyncio.sleep(0.01)
        (request,) = bench.cluster.requests(ProduceRequest)[1:]
        frame: Any = request.topic_data[0].partition_data[0].records
        before = b"".join(frame)
        await asyncio.sleep(6)
        assert isinstance(second.exception(), KafkaTimeoutError)
        # Others come and go while the transport still has the bytes of the expired batch.
        for number in range(50):
            await bench.producer.send("other", b"%d" % number)
        assert b"".join(frame) == before
        late.set()
        await turns()
        assert bench.cluster.log("clicks").values == [b"first", b"second"]
        assert bench.cluster.log("other").values == [b"%d" % number for number in range(50)]
        # What was reported as unknown was written after all: the chain goes on without a hole.
        assert (await bench.producer.send("clicks", b"third")).offset == 2


# -- order ----------------------------------------------------------------------------------------


async def test_five_requests_are_under_way_and_no_more() -> None:
    async with Bench({"clicks": [1]}) as bench:
        await bench.producer.send("clicks", b"first")
        hold = asyncio.Event()
        bench.cluster.script += [Answer(hold=hold) for _ in range(5)]
        deliveries = await each(bench, *(b"%d" % n for n in range(8)))
        assert bench.producer.statistics().requests_in_flight == 5
        hold.set()
        assert [(await delivery).offset for delivery in deliveries] == list(range(1, 9))


@pytest.mark.parametrize(("idempotent", "under_way"), [(True, 1), (False, 5)])
async def test_nothing_follows_the_first_batch_of_an_idempotent_producer_until_it_is_written(
    idempotent: bool, under_way: int
) -> None:
    async with Bench({"clicks": [1]}, enable_idempotence=idempotent) as bench:
        hold = asyncio.Event()
        bench.cluster.script += [Answer(hold=hold) for _ in range(5)]
        deliveries = await each(bench, *(b"%d" % n for n in range(8)))
        assert bench.producer.statistics().requests_in_flight == under_way
        hold.set()
        assert [(await delivery).offset for delivery in deliveries][:5] == list(range(5))


async def test_a_first_batch_that_is_refused_at_first_keeps_its_place() -> None:
    async with Bench({"clicks": [1]}) as bench:
        hold = asyncio.Event()
        bench.cluster.script.append(Answer(hold=hold, code=6))
        deliveries = await each(bench, b"0", b"1", b"2")
        hold.set()
        assert [(await delivery).offset for delivery in deliveries] == [0, 1, 2]
        # Not by luck: a leader takes any sequence of a producer that it does not know.
        assert [sequence for _, sequence in sequences(bench)] == [0, 0, 1]


async def test_what_waits_for_a_busy_broker_joins_one_batch() -> None:
    async with Bench({"clicks": [1]}, max_in_flight_requests_per_connection=1) as bench:
        hold = asyncio.Event()
        bench.cluster.script.append(Answer(hold=hold))
        deliveries = await each(bench, *(b"%d" % n for n in range(8)))
        hold.set()
        assert [(await delivery).offset for delivery in deliveries] == list(range(8))
        assert len(bench.cluster.log("clicks").batches) == 2


@pytest.mark.parametrize("idempotent", [True, False])
async def test_large_and_tiny_batches_of_one_turn_are_written_in_the_order_sent(
    idempotent: bool,
) -> None:
    room = {"max_request_size": 2 * LARGE, "buffer_memory": 32 * LARGE}
    async with Bench({"clicks": [1]}, enable_idempotence=idempotent, **room) as bench:
        values = [b"%d" % n * (LARGE if n % 2 == 0 else 1) for n in range(8)]
        deliveries = [
            await bench.producer.send_batch(
                TopicPartition("clicks", 0), RecordBatch.build([ProducerRecord("clicks", value)])
            )
            for value in values
        ]
        assert bench.cluster.requests(ProduceRequest) == []  # all are there before one is sent
        assert [(await delivery).offset for delivery in deliveries] == list(range(8))
        assert bench.cluster.log("clicks").values == values


async def test_a_broker_has_enough_for_a_turn_with_8_mib() -> None:
    async with Bench({"clicks": [1]}, **ROOM) as bench:
        await bench.producer.send("clicks", b"first")
        for _ in range(3):
            await bench.producer.send_batch(TopicPartition("clicks", 0), ENOUGH)
        sent = [len(bench.cluster.requests(ProduceRequest))]
        for _ in range(3):
            await asyncio.sleep(0)
            sent.append(len(bench.cluster.requests(ProduceRequest)))
        assert sent == [1, 2, 3, 4]
        await bench.producer.flush()


async def test_nobody_appends_in_a_turn_in_which_a_broker_got_enough() -> None:
    async with Bench({"clicks": [1]}, **ROOM) as bench:
        await bench.producer.send("clicks", b"first")
        for _ in range(2):
            await bench.producer.send_batch(TopicPartition("clicks", 0), ENOUGH)
        await bench.producer.enqueue("clicks", b"small")
        large = await bench.producer.enqueue("clicks", bytes(ROOM["batch_size"]))
        # That has closed the batch of the small one, and the next record gives up the loop for it.
        assert len(bench.cluster.requests(ProduceRequest)) == 1
        await bench.producer.enqueue("clicks", b"v")
        assert len(bench.cluster.requests(ProduceRequest)) == 5
        assert (await large).offset == 4


async def test_a_failure_in_the_middle_keeps_the_order() -> None:
    async with Bench({"clicks": [1]}) as bench:
        hold = asyncio.Event()
        bench.cluster.script += [
            Answer(hold=hold),
            Answer(hold=hold, code=19),
            Answer(hold=hold),
            Answer(hold=hold),
        ]
        deliveries = await each(bench, b"0", b"1", b"2", b"3")
        hold.set()
        assert [(await delivery).offset for delivery in deliveries] == [0, 1, 2, 3]
        assert bench.cluster.log("clicks").values == [b"0", b"1", b"2", b"3"]


async def test_a_new_leader_waits_for_what_the_old_one_has() -> None:
    async with Bench({"clicks": [1]}) as bench:
        hold = asyncio.Event()
        bench.cluster.script.append(Answer(hold=hold))
        deliveries = await each(bench, b"0")
        bench.cluster.set_topic("clicks", [2])
        deliveries += await each(bench, b"1")
        assert len(bench.cluster.requests(ProduceRequest)) == 1
        hold.set()
        assert [(await delivery).offset for delivery in deliveries] == [0, 1]


async def test_a_batch_that_fails_for_good_breaks_nothing_behind_it() -> None:
    async with Bench({"clicks": [1]}) as bench:
        await bench.producer.send("clicks", b"first")
        hold = asyncio.Event()
        bench.cluster.script += [Answer(hold=hold, code=87), Answer(hold=hold), Answer(hold=hold)]
        bad, good, last = await each(bench, b"bad", b"good", b"last")
        hold.set()
        assert (await good).offset == 1
        assert (await last).offset == 2
        assert bad.exception() is not None
        assert bench.cluster.log("clicks").values == [b"first", b"good", b"last"]
        # The oldest refusal bumped the epoch, once, and what was left began at sequence 0.
        assert sequences(bench)[-2:] == [(1, 0), (1, 1)]


async def test_an_epoch_that_was_bumped_is_taken_over_by_other_partitions_when_idle() -> None:
    async with Bench({"clicks": [1], "other": [1]}) as bench:
        await bench.producer.send("other", b"0")
        await bench.producer.send("clicks", b"first")
        bench.cluster.script.append(Answer(code=87))
        with pytest.raises(KafkaError):
            await bench.producer.send("clicks", b"bad")
        await bench.producer.send("clicks", b"good")
        assert (await bench.producer.send("other", b"1")).offset == 1
        assert sequences(bench)[-1] == (1, 0)


async def test_epochs_run_out_and_a_new_id_is_asked_for() -> None:
    async with Bench({"clicks": [1]}) as bench:
        bench.cluster.replies.append(InitProducerIdResponse(producer_id=3, producer_epoch=32767))
        bench.cluster.script.append(Answer(code=45, write=False))
        assert (await bench.producer.send("clicks", b"v")).offset == 0
        assert len(bench.cluster.requests(InitProducerIdRequest)) == 2


async def test_no_producer_id_for_want_of_permission_fails_what_waits() -> None:
    async with Bench({"clicks": [1]}) as bench:
        bench.cluster.replies.append(InitProducerIdResponse(error_code=31))
        with pytest.raises(for_code(31)):
            await bench.producer.send("clicks", b"v")
        assert (await bench.producer.send("clicks", b"v")).offset == 0


async def test_no_producer_id_yet_is_asked_for_again() -> None:
    async with Bench({"clicks": [1]}) as bench:
        bench.cluster.replies += [InitProducerIdResponse(error_code=14), KafkaTimeoutError("slow")]
        assert (await bench.producer.send("clicks", b"v")).offset == 0
        assert len(bench.cluster.requests(InitProducerIdRequest)) == 3


# -- size -----------------------------------------------------------------------------------------


async def test_a_batch_too_large_for_the_broker_is_split() -> None:
    async with Bench({"clicks": [1]}, linger_ms=10) as bench:
        bench.cluster.script += [Answer(code=10), Answer(code=10)]
        values = [b"%d" % n for n in range(7)]
        deliveries = await bench.producer.send_many("clicks", values)
        assert [(await delivery).offset for delivery in deliveries] == list(range(7))
        assert bench.cluster.log("clicks").values == values
        assert bench.producer.statistics().batch_split_total == 2
        assert bench.producer.statistics().buffer_available_bytes == bench.config.buffer_memory


async def test_a_single_record_too_large_for_the_broker_fails_alone() -> None:
    async with Bench({"clicks": [1]}, linger_ms=10) as bench:
        bench.cluster.script += [Answer(code=10), Answer(code=10)]
        bad = await bench.producer.enqueue("clicks", b"large")
        good = await bench.producer.enqueue("clicks", b"small")
        assert (await good).offset == 0
        assert isinstance(bad.exception(), RecordTooLargeError)


async def test_requests_stay_below_max_request_size() -> None:
    topics = {f"t{n}": [1] for n in range(10)}
    async with Bench(topics, linger_ms=50, max_request_size=10_000) as bench:
        for name in topics:
            await bench.producer.enqueue(name, b"x" * 3000)
        await bench.producer.flush()
        sizes = [len(request.encode(12)) for request in bench.cluster.requests(ProduceRequest)]
        assert max(sizes) <= 10_000
        assert len(sizes) == 4


# -- topics ---------------------------------------------------------------------------------------


async def test_a_topic_that_is_not_there_fails_within_max_block() -> None:
    async with Bench(max_block_ms=3_000) as bench:
        with pytest.raises(UnknownTopicOrPartitionError, match="nowhere") as caught:
            await bench.producer.send("nowhere", b"v")
        assert caught.value.topic == "nowhere"
        assert asyncio.get_running_loop().time() == pytest.approx(3, abs=0.2)


async def test_many_topics_are_each_looked_at_a_few_times_and_not_for_every_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks: Counter[str] = Counter()
    update = Accumulator.update

    def counted(
        accumulator: Accumulator, name: str, leaders: tuple[int | None, ...], now: float
    ) -> None:
        looks[name] += 1
        update(accumulator, name, leaders, now)

    names = [f"topic-{number}" for number in range(30)]
    monkeypatch.setattr(Accumulator, "update", counted)
    async with Bench({name: [1] for name in names}) as bench:
        for name in names:
            await bench.producer.send(name, b"v")
        assert looks.keys() == set(names)
        assert max(looks.values()) < 5


@pytest.mark.parametrize("known", [True, False], ids=["topic known", "topic not known yet"])
async def test_a_partition_that_is_not_there_fails_once_that_is_asked_for_anew(known: bool) -> None:
    async with Bench({"clicks": [1, 1]}, max_block_ms=3_000) as bench:
        if known:
            await bench.producer.send("clicks", b"v")
        with pytest.raises(UnknownTopicOrPartitionError, match=r"^clicks-2: .*partitions, 0 to 1"):
            await bench.producer.send("clicks", b"v", partition=2)
        assert bench.cluster.refreshed == [["clicks"]]
        assert asyncio.get_running_loop().time() == pytest.approx(0, abs=0.1)
        await bench.producer.send("clicks", b"v", partition=1)


async def test_a_partition_that_has_come_meanwhile_is_written_to() -> None:
    async with Bench({"clicks": [1, 1]}) as bench:
        await bench.producer.send("clicks", b"v")
        bench.cluster.creatable["clicks"] = [1, 1, 2]
        assert (await bench.producer.send("clicks", b"v", partition=2)).partition == 2


async def test_a_partition_that_is_not_there_expires_when_nobody_answers() -> None:
    async with Bench({"clicks": [1, 1]}, max_block_ms=3_000) as bench:
        await bench.producer.send("clicks", b"v")
        bench.cluster.learning = asyncio.Event()
        with pytest.raises(UnknownTopicOrPartitionError, match="partitions 0 to 1"):
            await bench.producer.send("clicks", b"v", partition=2)
        assert asyncio.get_running_loop().time() == pytest.approx(3, abs=0.2)
        bench.cluster.learning.set()
        await turns()


async def test_records_wait_for_a_topic_that_is_being_created() -> None:
    async with Bench() as bench:
        bench.cluster.learning = asyncio.Event()
        bench.cluster.creatable["new"] = [1, 1, 1]
        deliveries = [
            await bench.producer.enqueue("new", b"%d" % n, key=b"%d" % n) for n in range(9)
        ]
        flushing = asyncio.ensure_future(bench.producer.flush())
        await turns()
        assert not flushing.done()
        bench.cluster.learning.set()
        await flushing
        assert all(delivery.result().offset >= 0 for delivery in deliveries)
        statistics = bench.producer.statistics()
        assert statistics.record_send_total == 9
        assert statistics.buffer_available_bytes == statistics.buffer_total_bytes


async def test_an_illegal_topic_fails_at_once() -> None:
    async with Bench() as bench:

        async def refused(*_: Any, **__: Any) -> Any:
            raise InvalidTopicError("a name with spaces", topic="no good")

        bench.cluster.metadata_for = refused
        began = asyncio.get_running_loop().time()
        with pytest.raises(InvalidTopicError):
            await bench.producer.send("no good", b"v")
        assert asyncio.get_running_loop().time() == began


async def test_topics_are_learnt_together_and_one_that_is_refused_fails_alone() -> None:
    async with Bench() as bench:
        bench.cluster.creatable = {"a": [1], "b": [1]}
        learn, asked = bench.cluster.metadata_for, list[set[str]]()

        async def refusing(topics: Any, **options: Any) -> Any:
            asked.append(set(topics))
            if "no good" in topics:
                raise InvalidTopicError("a name with spaces", topic="no good")
            return await learn(topics, **options)

        bench.cluster.metadata_for = refusing
        names = ("a", "no good", "b")
        good, bad, also_good = [await bench.producer.enqueue(name, b"v") for name in names]
        assert (await good).offset == (await also_good).offset == 0
        with pytest.raises(InvalidTopicError):
            await bad
        await turns()
        assert asked == [set(names), {"a", "b"}], "what was refused is not asked for again"


async def test_a_topic_that_is_there_does_not_wait_for_one_that_is_not() -> None:
    async with Bench(max_block_ms=3_000) as bench:
        bench.cluster.creatable = {"there": [1]}
        nowhere = await bench.producer.enqueue("nowhere", b"v")
        there = await bench.producer.enqueue("there", b"v")
        assert (await there).offset == 0
        assert not nowhere.done()
        with pytest.raises(UnknownTopicOrPartitionError, match="nowhere"):
            await nowhere


async def test_a_partition_that_gets_a_leader_is_sent() -> None:
    async with Bench({"clicks": [-1]}) as bench:
        delivery = await bench.producer.enqueue("clicks", b"v", partition=0)
        await asyncio.sleep(20)
        assert not delivery.done()
        bench.cluster.set_topic("clicks", [4])
        assert (await delivery).offset == 0


async def test_a_partition_without_leader_times_out_and_says_so() -> None:
    async with Bench({"clicks": [-1]}) as bench:
        with pytest.raises(KafkaTimeoutError, match="no leader"):
            await bench.producer.send("clicks", b"v")


async def test_more_partitions_are_used_when_they_come() -> None:
    async with Bench({"clicks": [1]}) as bench:
        await bench.producer.send("clicks", b"v", key=b"key")
        bench.cluster.set_topic("clicks", [1, 2, 1, 2])
        receipts = [await bench.producer.send("clicks", b"v", key=b"%d" % n) for n in range(40)]
        assert {receipt.partition for receipt in receipts} == {0, 1, 2, 3}


# -- flush and failure ----------------------------------------------------------------------------


async def test_flush_raises_what_nobody_asked_for() -> None:
    async with Bench({"clicks": [1]}) as bench:
        bench.cluster.script.append(Answer(code=29))
        await bench.producer.enqueue("clicks", b"forgotten")
        with pytest.raises(DeliveryError) as caught:
            await bench.producer.flush()
        (row,) = caught.value.failures
        assert (row.topic, row.partition, row.count) == ("clicks", 0, 1)
        assert isinstance(row.error, for_code(29))
        await bench.producer.flush()


async def test_flush_is_silent_about_what_was_told() -> None:
    async with Bench({"clicks": [1]}) as bench:
        bench.cluster.script.append(Answer(code=29))
        with pytest.raises(for_code(29)):
            await bench.producer.send("clicks", b"v")
        await bench.producer.flush()


async def test_flush_does_not_linger() -> None:
    async with Bench({"clicks": [1]}, linger_ms=60_000) as bench:
        await bench.producer.enqueue("clicks", b"v")
        await bench.producer.flush()
        assert asyncio.get_running_loop().time() < 1


async def test_flush_gives_up_after_its_timeout_and_loses_nothing() -> None:
    async with Bench({"clicks": [-1]}) as bench:
        delivery = await bench.producer.enqueue("clicks", b"v")
        with pytest.raises(KafkaTimeoutError):
            await bench.producer.flush(2)
        bench.cluster.set_topic("clicks", [1])
        assert (await delivery).offset == 0


async def test_a_task_that_dies_fails_everything_at_once() -> None:
    async with Bench({"clicks": [-1]}) as bench:
        delivery = await bench.producer.enqueue("clicks", b"v")

        def breaks(*_: object, **__: object) -> Any:
            raise RuntimeError("broken")

        bench.cluster.metadata_for = breaks
        await bench.producer.enqueue("other", b"v")
        with pytest.raises(KafkaError, match="broken"):
            await delivery
        with pytest.raises(KafkaError, match="broken"):
            await bench.producer.enqueue("clicks", b"v")
