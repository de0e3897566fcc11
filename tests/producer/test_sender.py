"""Responses to Produce requests and the lack of them, and runs of the send loop.

One test has a scripted broker, because no other leaves a partition out of its response.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async.client.client import services_of
from kafka_async.client.connection.broker_connection import BrokerConnection, ConnectionKind
from kafka_async.errors import (
    DeliveryError,
    InvalidConfigurationError,
    InvalidRecordError,
    InvalidTopicError,
    KafkaError,
    KafkaTimeoutError,
    RecordTooLargeError,
    SaslAuthenticationError,
    TaskDiedError,
    UnknownTopicOrPartitionError,
    for_code,
)
from kafka_async.foundation.fairness import MAX_TOPICS_PER_ITERATION
from kafka_async.foundation.memory_network import MemoryTransport
from kafka_async.producer.buffer.accumulator import Accumulator
from kafka_async.producer.idempotence import ProducerIdAndEpoch
from kafka_async.producer.producer import Producer
from kafka_async.producer.topic_metadata import MAX_WAIT_FOR_PARTITION, WARN_AFTER
from kafka_async.protocol.messages.init_producer_id import InitProducerIdRequest
from kafka_async.protocol.messages.metadata import MetadataRequest
from kafka_async.protocol.messages.produce import ProduceRequest, ProduceResponse
from kafka_async.records.batch import RecordBatch
from kafka_async.types import ProducerRecord, TopicPartition
from tests.client.scripted import World, always
from tests.embedded_client import now, settle
from tests.producer.bench import Bench, record_calls

if TYPE_CHECKING:
    from kafka_async.kernel import Delivery

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]

RETRIED = (2, 3, 5, 6, 7, 9, 13, 19, 20, 51, 56, 74, 75, 100, 103)
LARGE = 1 << 20
ENOUGH = RecordBatch.build([ProducerRecord("clicks", bytes(8 * LARGE))])
ROOM = {"batch_size": 9 * LARGE, "max_request_size": 10 * LARGE, "buffer_memory": 64 * LARGE}
LARGE_MESSAGES = {"message_max_bytes": 16 * LARGE}
REFUSED = (-1, 17, 21, 29, 31, 42, 43, 47, 48, 49, 53, 76, 87, 90, 120)


async def enqueue_batches(bench: Bench, *values: bytes, topic: str = "clicks") -> list[Delivery]:
    """Enqueue values, each in a separate batch."""
    deliveries: list[Delivery] = []
    for value in values:
        deliveries.append(await bench.producer.enqueue(topic, value, partition=0))
        await settle()
    return deliveries


def metadata_requests(bench: Bench, topic: str) -> list[set[str]]:
    """Return the topics of each metadata request that names a topic."""
    asked = [{row.name for row in ask.topics or ()} for ask in bench.requests(MetadataRequest)]
    return [names for names in asked if topic in names]


# -- responses ------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", RETRIED)
async def test_retries_retriable_errors(bench: Bench, code: int) -> None:
    bench.refuse(code, code)
    receipt = await bench.producer.send("clicks", b"v")
    assert receipt.offset == 0
    assert bench.sequences() == [(0, 0)] * 3
    assert bench.producer.statistics().record_retry_total == 2


@pytest.mark.parametrize("code", REFUSED)
async def test_raises_errors_that_are_not_retriable(bench: Bench, code: int) -> None:
    bench.refuse(code)
    with pytest.raises(for_code(code)):
        await bench.producer.send("clicks", b"v")
    assert (await bench.producer.send("clicks", b"next")).offset == 0


async def test_raises_the_error_message_of_the_broker() -> None:
    async with Bench() as bench:
        await bench.cluster.create_topic("counts", configs={"cleanup.policy": "compact"})
        with pytest.raises(InvalidRecordError, match="without key in topic partition counts-0"):
            await bench.producer.send("counts", b"v")


@pytest.mark.parametrize("hinted", [True, False], ids=["with a hint", "without a hint"])
async def test_retries_at_the_new_leader_without_a_back_off(hinted: bool) -> None:
    """The response names the leader, or the metadata is refreshed; the back-off is for the old."""
    async with Bench({"clicks": [1, 2]}) as bench:
        await bench.producer.send("clicks", b"v", partition=1)
        requests_before = len(bench.requests(MetadataRequest))
        await bench.lead("clicks", 2)
        if not hinted:
            bench.refuse("NOT_LEADER_OR_FOLLOWER")  # without the leader hint of a broker
        await asyncio.sleep(1)  # so that the last metadata request delays no other
        began = now()
        await bench.producer.send("clicks", b"v", partition=0)
        assert now() == began
        assert hinted or len(bench.requests(MetadataRequest)) == requests_before + 1
        assert bench.producing == [2, 1, 2]


async def test_duplicate_sequence_acknowledges_the_batch(bench: Bench) -> None:
    bench.refuse(46)
    assert (await bench.producer.send("clicks", b"v")).offset == -1


async def test_retries_a_batch_whose_partition_the_response_lacks(bench: Bench) -> None:
    def drop(response: ProduceResponse) -> None:
        response.responses = []

    bench.faults.add(api="Produce", change=drop)
    assert (await bench.producer.send("clicks", b"v")).offset == 0
    assert bench.values("clicks") == [b"v"]


async def test_delivery_fails_if_no_response_has_its_partition() -> None:
    world = World()
    world.add("clicks", 1)
    world.handlers[ProduceRequest.API_KEY] = always(ProduceResponse())
    options: dict[str, Any] = {"dialer": world.network, "enable_idempotence": False}
    async with Producer(world.servers, **options) as producer:
        with pytest.raises(KafkaError, match="the broker's response lacks clicks-0"):
            await producer.send("clicks", b"v")


async def test_acks_0_acknowledges_without_response_or_offset() -> None:
    async with Bench({"clicks": [1]}, acks=0, enable_idempotence=False) as bench:
        assert (await bench.producer.send("clicks", b"v")).offset == -1
        assert bench.values("clicks") == [b"v"]
        assert bench.sequences() == [(-1, -1)]


# -- no answer ------------------------------------------------------------------------------------


@pytest.mark.parametrize("write", [True, False])
async def test_lost_connection_duplicates_no_record(bench: Bench, write: bool) -> None:
    bench.faults.add(api="Produce", disconnect="after" if write else "before")
    assert (await bench.producer.send("clicks", b"v")).offset == 0
    assert bench.values("clicks") == [b"v"]


async def test_retries_a_batch_with_the_same_bytes(bench: Bench) -> None:
    bench.faults.add(api="Produce", disconnect="before")
    bench.refuse("NOT_ENOUGH_REPLICAS")
    await bench.producer.send("clicks", b"v")
    frames = [
        bytes(row.records)
        for request in bench.requests(ProduceRequest)
        for topic in request.topic_data
        for row in topic.partition_data
    ]
    assert len(frames) == 3
    assert frames == frames[:1] * 3


async def test_retries_an_unreachable_broker_until_delivery_timeout_ms() -> None:
    timeouts: dict[str, Any] = {"delivery_timeout_ms": 30_000, "request_timeout_ms": 5_000}
    async with Bench({"clicks": [1], "audit": [2]}, **timeouts) as bench:
        await bench.producer.send("audit", b"v")
        attempts = bench.memory.attempts(1)
        await bench.memory.cut_off(1)
        with pytest.raises(KafkaTimeoutError, match="delivery_timeout_ms") as caught:
            await bench.producer.send("clicks", b"v")
        assert caught.value.topic == "clicks"
        assert now() == pytest.approx(30, abs=1)
        assert 10 < bench.memory.attempts(1) - attempts < 100


async def test_timeout_has_the_last_connection_error() -> None:
    settings = {"advertised_hosts": {1: "b.example"}}
    options = {"allowed_broker_hosts": ["127.0.0.1"]}
    async with Bench({"clicks": [1], "audit": [2]}, settings=settings, **options) as bench:
        await bench.producer.send("audit", b"v")
        reason = r"its leader, broker 1, cannot be reached: .*allowed_broker_hosts"
        with pytest.raises(KafkaTimeoutError, match=reason) as caught:
            await bench.producer.send("clicks", b"v")
        assert isinstance(caught.value.__cause__, InvalidConfigurationError)


@pytest.mark.parametrize(("rejections", "delivered"), [(1, True), (2, False)])
async def test_fails_records_when_a_broker_rejects_the_credentials_twice(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, rejections: int, delivered: bool
) -> None:
    """Checks that a password that brokers learn of later loses no record, and a wrong one does."""
    connect, left = BrokerConnection.connect, [SaslAuthenticationError("wrong")] * rejections

    async def reject(connection: BrokerConnection, timeout: float) -> None:
        if connection.kind is ConnectionKind.PRODUCE and left:
            raise left.pop()
        await connect(connection, timeout)

    monkeypatch.setattr(BrokerConnection, "connect", reject)
    delivery = await bench.producer.enqueue("clicks", b"first")
    if delivered:
        await delivery
    else:
        with pytest.raises(SaslAuthenticationError):
            await delivery
    assert now() < 2
    await bench.producer.send("clicks", b"second")


async def test_unreachable_broker_does_not_delay_others() -> None:
    async with Bench({"clicks": [1], "audit": [2]}) as bench:
        await bench.producer.send("audit", b"v")
        await bench.memory.cut_off(1)
        stuck = await bench.producer.enqueue("clicks", b"v")
        began = now()
        for number in range(20):
            await bench.producer.send("audit", b"%d" % number)
        assert now() - began < 0.1
        assert not stuck.done()


async def test_expired_batch_in_flight_fails_once_and_keeps_its_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """CVE-2026-35554: the transport may still send the bytes, so they must not change."""
    written = record_calls(monkeypatch, MemoryTransport, "write")
    async with Bench(
        {"clicks": [1], "other": [1]}, delivery_timeout_ms=5_000, request_timeout_ms=5_000
    ) as bench:
        hold = bench.hold()
        first = await bench.producer.enqueue("clicks", b"first")
        await asyncio.sleep(4.9)
        hold.release()
        await asyncio.sleep(0.2)
        assert first.result().offset == 0

        late = bench.hold(applied=True)
        second = await bench.producer.enqueue("clicks", b"second")
        await late.wait()
        sent = [data for _, data in written if b"second" in bytes(data)]
        assert sent
        before = [bytes(data) for data in sent]
        await asyncio.sleep(6)
        assert isinstance(second.exception(), KafkaTimeoutError)
        # Other batches are sent while the transport still has the bytes of the expired one.
        for number in range(50):
            await bench.producer.send("other", b"%d" % number)
        assert [bytes(data) for data in sent] == before
        late.release()
        await settle()
        assert bench.values("clicks") == [b"first", b"second"]
        assert bench.values("other") == [b"%d" % number for number in range(50)]
        # The expired batch was written after all, so the sequence has no gap.
        assert (await bench.producer.send("clicks", b"third")).offset == 2


# -- order ----------------------------------------------------------------------------------------


async def test_at_most_five_requests_are_in_flight(bench: Bench) -> None:
    await bench.producer.send("clicks", b"first")
    hold = bench.hold()
    deliveries = await enqueue_batches(bench, *(b"%d" % n for n in range(8)))
    assert bench.producer.statistics().requests_in_flight == 5
    hold.release()
    assert [(await delivery).offset for delivery in deliveries] == list(range(1, 9))


@pytest.mark.parametrize(("idempotent", "under_way"), [(True, 1), (False, 5)])
async def test_no_batch_follows_the_first_of_an_idempotent_producer_until_it_is_written(
    idempotent: bool, under_way: int
) -> None:
    async with Bench({"clicks": [1]}, enable_idempotence=idempotent) as bench:
        hold = bench.hold()
        deliveries = await enqueue_batches(bench, *(b"%d" % n for n in range(8)))
        assert bench.producer.statistics().requests_in_flight == under_way
        hold.release()
        assert [(await delivery).offset for delivery in deliveries][:5] == list(range(5))


async def test_retried_first_batch_keeps_its_position(bench: Bench) -> None:
    hold = bench.hold(error="NOT_LEADER_OR_FOLLOWER")
    deliveries = await enqueue_batches(bench, b"0", b"1", b"2")
    hold.release()
    assert [(await delivery).offset for delivery in deliveries] == [0, 1, 2]
    # A leader would accept any sequence of a producer that it does not know.
    assert [sequence for _, sequence in bench.sequences()] == [0, 0, 1]


async def test_records_waiting_for_a_busy_broker_share_a_batch() -> None:
    async with Bench({"clicks": [1]}, max_in_flight_requests_per_connection=1) as bench:
        hold = bench.hold()
        deliveries = await enqueue_batches(bench, *(b"%d" % n for n in range(8)))
        hold.release()
        assert [(await delivery).offset for delivery in deliveries] == list(range(8))
        assert len(bench.batches("clicks")) == 2


@pytest.mark.parametrize("idempotent", [True, False])
async def test_large_and_tiny_batches_of_one_iteration_keep_their_order(idempotent: bool) -> None:
    room = {"max_request_size": 2 * LARGE, "buffer_memory": 32 * LARGE}
    options: dict[str, Any] = {"settings": LARGE_MESSAGES, "enable_idempotence": idempotent, **room}
    async with Bench({"clicks": [1, 1]}, **options) as bench:
        await bench.producer.send("clicks", b"another partition", partition=1)
        values = [b"%d" % n * (LARGE if n % 2 == 0 else 1) for n in range(8)]
        deliveries = [
            await bench.producer.send_batch(
                TopicPartition("clicks", 0), RecordBatch.build([ProducerRecord("clicks", value)])
            )
            for value in values
        ]
        assert bench.sent == 1  # all are appended before one is sent
        assert [(await delivery).offset for delivery in deliveries] == list(range(8))
        assert bench.values("clicks") == values


async def test_sends_at_most_8_mib_per_event_loop_iteration_to_a_broker() -> None:
    async with Bench({"clicks": [1]}, settings=LARGE_MESSAGES, **ROOM) as bench:
        await bench.producer.send("clicks", b"first")
        for _ in range(3):
            await bench.producer.send_batch(TopicPartition("clicks", 0), ENOUGH)
        sent = [bench.sent]
        for _ in range(3):
            await asyncio.sleep(0)
            sent.append(bench.sent)
        assert sent == [1, 2, 3, 4]
        await bench.producer.flush()


async def test_enqueue_yields_after_8_mib_were_sent_in_an_iteration() -> None:
    async with Bench({"clicks": [1]}, settings=LARGE_MESSAGES, **ROOM) as bench:
        await bench.producer.send("clicks", b"first")
        for _ in range(2):
            await bench.producer.send_batch(TopicPartition("clicks", 0), ENOUGH)
        await bench.producer.enqueue("clicks", b"small")
        large = await bench.producer.enqueue("clicks", bytes(ROOM["batch_size"]))
        # The large record has closed the batch of the small one, so the next record yields.
        assert bench.sent == 1
        await bench.producer.enqueue("clicks", b"v")
        assert bench.sent == 5
        assert (await large).offset == 4


async def test_new_leader_gets_no_batch_while_one_is_in_flight_to_the_old_one() -> None:
    async with Bench({"clicks": [1], "audit": [2]}) as bench:
        hold = bench.hold(applied=True)
        deliveries = await enqueue_batches(bench, b"0")
        await bench.lead("clicks", 2)
        await services_of(bench.producer.client).metadata.refresh()
        deliveries += await enqueue_batches(bench, b"1")
        assert bench.producing == [1]
        hold.release()
        assert [(await delivery).offset for delivery in deliveries] == [0, 1]
        assert bench.producing == [1, 2]


async def test_batches_behind_a_failed_one_are_written(bench: Bench) -> None:
    await bench.producer.send("clicks", b"first")
    hold = bench.hold(error="INVALID_RECORD")
    bad, good, last = await enqueue_batches(bench, b"bad", b"good", b"last")
    hold.release()
    assert (await good).offset == 1
    assert (await last).offset == 2
    assert bad.exception() is not None
    assert bench.values("clicks") == [b"first", b"good", b"last"]
    # The oldest refusal bumped the epoch once, and the remaining batches began at sequence 0.
    assert bench.sequences()[-2:] == [(1, 0), (1, 1)]


async def test_other_partitions_use_a_bumped_epoch_when_idle() -> None:
    async with Bench({"clicks": [1], "other": [1]}) as bench:
        await bench.producer.send("other", b"0")
        await bench.producer.send("clicks", b"first")
        bench.refuse(87)
        with pytest.raises(KafkaError):
            await bench.producer.send("clicks", b"bad")
        await bench.producer.send("clicks", b"good")
        assert (await bench.producer.send("other", b"1")).offset == 1
        assert bench.sequences()[-1] == (1, 0)


async def test_gets_a_new_producer_id_when_epochs_run_out() -> None:
    async with Bench({"clicks": [1, 1]}) as bench:
        await bench.producer.send("clicks", b"v", partition=1)
        runtime: Any = bench.producer._runtime  # pyright: ignore[reportPrivateUsage]  # 32,767 epochs take too long
        first = runtime.accumulator.id_and_epoch.producer_id
        runtime.accumulator.set_id_and_epoch(ProducerIdAndEpoch(first, 2**15 - 1))
        bench.refuse("OUT_OF_ORDER_SEQUENCE_NUMBER")
        assert (await bench.producer.send("clicks", b"v", partition=0)).offset == 0
        assert len(bench.requests(InitProducerIdRequest)) == 2
        sent = [(header.producer_id, header.producer_epoch) for header in bench.headers()]
        assert sent[1:] == [(first, 2**15 - 1), (first + 1, 0)]


async def test_fails_waiting_records_without_permission_for_a_producer_id(bench: Bench) -> None:
    bench.faults.add(api="InitProducerId", error=31)
    with pytest.raises(for_code(31)):
        await bench.producer.send("clicks", b"v")
    assert (await bench.producer.send("clicks", b"v")).offset == 0


async def test_retries_until_it_has_a_producer_id(bench: Bench) -> None:
    bench.faults.add(api="InitProducerId", error="COORDINATOR_LOAD_IN_PROGRESS")
    bench.faults.add(api="InitProducerId", hang=True)
    assert (await bench.producer.send("clicks", b"v")).offset == 0
    assert len(bench.requests(InitProducerIdRequest)) == 3


# -- size -----------------------------------------------------------------------------------------


async def test_splits_a_batch_too_large_for_the_broker() -> None:
    async with Bench({"clicks": [1]}, linger_ms=10) as bench:
        bench.refuse(10, 10)
        values = [b"%d" % n for n in range(7)]
        deliveries = await bench.producer.send_many("clicks", values)
        assert [(await delivery).offset for delivery in deliveries] == list(range(7))
        assert bench.values("clicks") == values
        assert bench.producer.statistics().batch_split_total == 2
        assert bench.memory_in_use == 0
        sizes = [batch.header.records_count for batch in bench.batches("clicks")]
        assert sizes == [1, 2, 4], "the first half was refused and split again"


async def test_fails_a_single_record_too_large_for_the_broker() -> None:
    settings = {"message_max_bytes": 100}
    async with Bench({"clicks": [1]}, settings=settings, linger_ms=10) as bench:
        bad = await bench.producer.enqueue("clicks", b"large" * 20)
        good = await bench.producer.enqueue("clicks", b"small")
        assert (await good).offset == 0
        assert isinstance(bad.exception(), RecordTooLargeError)


async def test_requests_stay_below_max_request_size() -> None:
    topics = {f"t{n}": [1] for n in range(10)}
    async with Bench(topics, linger_ms=50, max_request_size=10_000) as bench:
        for name in topics:
            await bench.producer.enqueue(name, b"x" * 3000)
        await bench.producer.flush()
        produced = [row for row in bench.memory.received if isinstance(row.request, ProduceRequest)]
        sizes = [len(row.request.encode(row.version)) for row in produced]
        assert max(sizes) <= 10_000
        assert len(sizes) == 4


# -- topics ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("known", [True, False], ids=["topic known", "topic not known yet"])
async def test_fails_records_of_a_missing_partition_that_does_not_appear(known: bool) -> None:
    async with Bench({"clicks": [1, 1]} if known else {}) as bench:
        if known:
            await bench.producer.send("clicks", b"v")
        else:
            await bench.cluster.create_topic("clicks", 2)
        requests_before = len(metadata_requests(bench, "clicks"))
        first = await bench.producer.enqueue("clicks", b"v", partition=2)
        await asyncio.sleep(MAX_WAIT_FOR_PARTITION / 2)
        later = await bench.producer.enqueue("clicks", b"v", partition=3)
        for delivery, at in (
            (first, MAX_WAIT_FOR_PARTITION),
            (later, MAX_WAIT_FOR_PARTITION * 1.5),
        ):
            with pytest.raises(
                UnknownTopicOrPartitionError,
                match=r"^clicks-[23]: .*partitions 0 to 1, and got no more within 5 s: name one",
            ):
                await delivery
            assert at <= now() <= at + 2.5  # two of the longest back-offs
        assert 5 <= len(metadata_requests(bench, "clicks")) - requests_before <= 20
        await bench.producer.send("clicks", b"v", partition=1)


async def test_fails_records_placed_on_a_partition_that_the_topic_created_again_lacks() -> None:
    async with Bench({"clicks": [1] * 4}, linger_ms=1_000) as bench:
        placed = [
            await bench.producer.enqueue("clicks", b"v", key=b"%d" % number) for number in range(20)
        ]
        await bench.cluster.delete_topic("clicks")
        await bench.cluster.create_topic("clicks", 2)
        outcomes = await asyncio.gather(*placed, return_exceptions=True)
        failed = {type(error) for error in outcomes if isinstance(error, BaseException)}
        assert failed == {UnknownTopicOrPartitionError}
        for error in outcomes:
            if isinstance(error, UnknownTopicOrPartitionError):
                assert (error.topic, error.partition) in {("clicks", 2), ("clicks", 3)}
                assert "can be sent again, if the topic was created again" in str(error)
            else:
                assert not isinstance(error, BaseException)
                assert error.partition in (0, 1)
        again = [await bench.producer.send("clicks", b"v", key=b"%d" % n) for n in range(20)]
        assert {each.partition for each in again} == {0, 1}


async def test_waits_for_a_missing_partition_at_most_max_block_ms() -> None:
    async with Bench({"clicks": [1, 1]}, max_block_ms=1_000) as bench:
        with pytest.raises(UnknownTopicOrPartitionError, match=r"within (max_block_ms|1 s)"):
            await bench.producer.send("clicks", b"v", partition=2)
        assert now() == pytest.approx(1, abs=0.2)


async def test_writes_to_a_partition_that_appears_later() -> None:
    """Other brokers may lag behind the one that handled CreatePartitions."""
    async with Bench({"clicks": [1, 1]}) as bench:
        await bench.producer.send("clicks", b"v", partition=1)
        deliveries = [await bench.producer.enqueue("clicks", b"v", partition=n) for n in (2, 1, 2)]
        await asyncio.sleep(MAX_WAIT_FOR_PARTITION / 2)
        assert [delivery.done() for delivery in deliveries] == [False, True, False]
        await bench.lead("clicks", 1, 1, 1)
        placed = [await delivery for delivery in deliveries]
        assert [(row.partition, row.offset) for row in placed] == [(2, 0), (1, 1), (2, 1)]


async def test_records_of_a_missing_partition_expire_without_metadata() -> None:
    async with Bench({"clicks": [1, 1]}, max_block_ms=3_000) as bench:
        await bench.producer.send("clicks", b"v")
        bench.faults.add(api="Metadata", hang=True, count=None)
        with pytest.raises(UnknownTopicOrPartitionError, match="partitions 0 to 1"):
            await bench.producer.send("clicks", b"v", partition=2)
        assert now() == pytest.approx(3, abs=0.2)


async def test_records_wait_for_a_topic_that_is_being_created() -> None:
    async with Bench() as bench:
        deliveries = [
            await bench.producer.enqueue("new", b"%d" % n, key=b"%d" % n) for n in range(9)
        ]
        flushing = asyncio.ensure_future(bench.producer.flush())
        await asyncio.sleep(1)
        assert not flushing.done()
        await bench.cluster.create_topic("new", 3)
        await flushing
        assert all(delivery.result().offset >= 0 for delivery in deliveries)
        statistics = bench.producer.statistics()
        assert statistics.record_send_total == 9
        assert statistics.buffer_available_bytes == statistics.buffer_total_bytes


async def test_requests_topics_together_and_fails_only_a_refused_one() -> None:
    async with Bench(settings={"auto_create_topics": True}) as bench:
        names = ("a", "no good", "b")
        good, bad, also_good = [await bench.producer.enqueue(name, b"v") for name in names]
        assert (await good).offset == (await also_good).offset == 0
        with pytest.raises(InvalidTopicError):
            await bad
        assert now() < 0.1
        await asyncio.sleep(10)
        (request,) = metadata_requests(bench, "no good")  # a refused topic is not requested again
        assert request == set(names)


async def test_missing_topic_fails_after_max_block_ms_and_delays_no_other() -> None:
    async with Bench(max_block_ms=3_000) as bench:
        await bench.cluster.create_topic("there")
        nowhere = await bench.producer.enqueue("nowhere", b"v")
        there = await bench.producer.enqueue("there", b"v")
        assert (await there).offset == 0
        assert not nowhere.done()
        with pytest.raises(UnknownTopicOrPartitionError, match="nowhere") as caught:
            await nowhere
        assert caught.value.topic == "nowhere"
        assert now() == pytest.approx(3, abs=0.2)


async def test_many_topics_without_metadata_get_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with Bench(max_block_ms=10_000) as bench:
        bench.hold("Metadata", count=None)
        for number in range(7 * MAX_TOPICS_PER_ITERATION):
            await bench.producer.enqueue(f"topic-{number}", b"v")
            await asyncio.sleep(1e-4)  # the topics are not late at the same instant
        await asyncio.sleep(WARN_AFTER - now())
        assert not caplog.messages
        await asyncio.sleep(5)
        [warning] = [text for text in caplog.messages if "wait for the metadata" in text]
        assert warning.startswith(
            "records wait for the metadata of these topics (224): topic-0, topic-1, topic-2, "
            "topic-3, topic-4, ...; they fail after max_block_ms (10 s): "
        )


async def test_timeout_without_a_leader_says_so() -> None:
    async with Bench({"clicks": [-1]}) as bench:
        with pytest.raises(KafkaTimeoutError, match=r"; the partition has no leader$"):
            await bench.producer.send("clicks", b"v")


@pytest.mark.parametrize("strategy", ["rebootstrap", "none"])
async def test_timeout_names_the_leader_that_cannot_be_reached(strategy: str) -> None:
    """A rebootstrap drops the leaders, and the cluster is not asked about them."""
    options: dict[str, Any] = {"delivery_timeout_ms": 31_000, "request_timeout_ms": 5_000}
    async with Bench({"clicks": [1]}, metadata_recovery_strategy=strategy, **options) as bench:
        await bench.producer.send("clicks", b"v")
        await bench.cluster.stop_broker(1)
        reason = r"; its leader, broker 1, cannot be reached: 127.0.0.1:9092"
        with pytest.raises(KafkaTimeoutError, match=reason):
            await bench.producer.send("clicks", b"v")


async def test_uses_partitions_that_were_added(bench: Bench) -> None:
    await bench.producer.send("clicks", b"v", key=b"key")
    await bench.lead("clicks", 1, 1, 1, 1)
    await services_of(bench.producer.client).metadata.refresh()
    receipts = [await bench.producer.send("clicks", b"v", key=b"%d" % n) for n in range(40)]
    assert {receipt.partition for receipt in receipts} == {0, 1, 2, 3}


# -- flush and failure ----------------------------------------------------------------------------


async def test_flush_raises_errors_of_deliveries_that_were_not_awaited(bench: Bench) -> None:
    bench.refuse(29)
    await bench.producer.enqueue("clicks", b"forgotten")
    with pytest.raises(DeliveryError) as caught:
        await bench.producer.flush()
    (row,) = caught.value.failures
    assert (row.topic, row.partition, row.count) == ("clicks", 0, 1)
    assert isinstance(row.error, for_code(29))
    await bench.producer.flush()


async def test_flush_raises_after_its_timeout_and_loses_no_record() -> None:
    async with Bench({"clicks": [-1]}) as bench:
        delivery = await bench.producer.enqueue("clicks", b"v")
        with pytest.raises(KafkaTimeoutError):
            await bench.producer.flush(2)
        await bench.lead("clicks", 1)
        assert (await delivery).offset == 0


async def test_exception_in_a_task_fails_all_records(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Bench({"clicks": [-1]}) as bench:
        delivery = await bench.producer.enqueue("clicks", b"v")

        def breaks(*_: object, **__: object) -> Any:
            raise RuntimeError("broken")

        metadata = services_of(bench.producer.client).metadata
        monkeypatch.setattr(metadata, "wait_for_topics", breaks)
        await bench.producer.enqueue("other", b"v")
        with pytest.raises(KafkaError, match="broken"):
            await delivery
        with pytest.raises(KafkaError, match="broken"):
            await bench.producer.enqueue("clicks", b"v")


# -- runs of the send loop ------------------------------------------------------------------------


@pytest.mark.parametrize("broken", [(Accumulator, "tick"), (Accumulator, "acknowledge")])
async def test_exception_in_the_sender_stops_the_producer(
    broken: tuple[type[object], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise ZeroDivisionError("a fault")

    async with Bench({"clicks": [1]}) as bench:
        await bench.producer.send("clicks", b"v")
        monkeypatch.setattr(*broken, fails)
        with pytest.raises(TaskDiedError, match="a fault"):
            await bench.producer.send("clicks", b"v")
        with pytest.raises(TaskDiedError, match="a fault"):
            await bench.producer.enqueue("clicks", b"v")


async def test_idle_producer_does_not_run_the_send_loop() -> None:
    no_refresh: Any = {"metadata_max_age_ms": 86_400_000}  # new metadata runs the send loop
    async with Bench({"clicks": [1]}, linger_ms=5, **no_refresh) as bench:
        loop = asyncio.get_running_loop()
        for _ in range(3):
            await bench.producer.send("clicks", b"v")
            await asyncio.sleep(1)
        timeout = bench.config.delivery_timeout_ms / 1000
        with pytest.MonkeyPatch.context() as patch:
            runs = record_calls(patch, Accumulator, "tick")
            started = loop.time()
            await asyncio.sleep(10 * timeout)
            assert loop.time() - started == pytest.approx(10 * timeout)
        assert len(runs) <= 3  # one per batch, at its deadline


async def test_sends_to_a_throttled_broker_after_the_throttle_time(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bench.producer.send("clicks", b"v")
    loop: Any = asyncio.get_running_loop()
    bench.faults.add(api="Produce", throttle=10)
    await bench.producer.send("clicks", b"v")
    until = loop.time() + 10
    timers = record_calls(monkeypatch, loop, "call_at")
    delivery = await bench.producer.enqueue("clicks", b"v")
    for _ in range(50):
        await bench.producer.enqueue("clicks", b"v")
        for _ in range(3):
            await asyncio.sleep(0)
    assert [when for when, *_ in timers] == [until]
    await delivery
    assert loop.time() == until


async def test_metadata_of_each_of_many_topics_is_applied_a_few_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    updates: Counter[str] = Counter()
    update_leaders = Accumulator.update_leaders

    def counted(accumulator: Accumulator, name: str, *arguments: Any) -> None:
        updates[name] += 1
        update_leaders(accumulator, name, *arguments)

    names = [f"topic-{number}" for number in range(30)]
    monkeypatch.setattr(Accumulator, "update_leaders", counted)
    async with Bench({name: [1] for name in names}) as bench:
        for name in names:
            await bench.producer.send(name, b"v")
        assert updates.keys() == set(names)
        assert max(updates.values()) < 5
