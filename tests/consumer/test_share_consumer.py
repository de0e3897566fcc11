"""A share consumer and its requests, on scripted brokers and virtual time."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async import hooks
from kafka_async.consumer.share.share_consumer import ShareConsumer
from kafka_async.errors import (
    ClientClosedError,
    CorruptRecordError,
    GroupAuthorizationError,
    GroupMaxSizeReachedError,
    IllegalStateError,
    InvalidConfigurationError,
    InvalidRecordStateError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    NotLeaderOrFollowerError,
    ProtocolError,
    RecordDeserializationError,
    ShareSessionNotFoundError,
    UnsupportedVersionError,
)
from kafka_async.types import TopicPartition
from tests.consumer.share_world import (
    ACCEPT,
    ACKNOWLEDGE,
    FETCH,
    HEARTBEAT,
    REJECT,
    RELEASE,
    RENEW,
    SESSION_NOT_FOUND,
    Acknowledged,
    ShareWorld,
)
from tests.embedded_client import InMemory

if TYPE_CHECKING:
    from kafka_async.consumer.share.share_record import ShareRecord

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]

EXPLICIT: dict[str, Any] = {"share_acknowledgement_mode": "explicit"}
T0 = TopicPartition("t", 0)
NOT_LEADER, FENCED_EPOCH, UNKNOWN_MEMBER, INVALID_STATE = 6, 110, 25, 121
GROUP_DENIED, GROUP_FULL, UNSUPPORTED = 30, 81, 35


def acks(world: ShareWorld) -> list[tuple[int, int, tuple[int, ...]]]:
    return [(each.first, each.last, each.types) for each in world.acknowledged]


async def poll_records(consumer: ShareConsumer, count: int, **options: Any) -> list[ShareRecord]:
    records: list[ShareRecord] = []
    async with asyncio.timeout(100):
        while len(records) < count:
            records += await consumer.poll(**options)
    return records


# -- implicit acknowledgement ---------------------------------------------------------------------


async def test_next_fetch_carries_the_acknowledgements_of_the_last_poll() -> None:
    world = ShareWorld()
    world.offer(0, [b"a", b"b", b"c"])
    async with world.consumer() as consumer:
        records = await poll_records(consumer, 3)
        assert [(r.value, r.delivery_count) for r in records] == [(b"a", 1), (b"b", 1), (b"c", 1)]
        assert world.acknowledged == []
        world.offer(3, [b"d"], count=2)
        (record,) = await poll_records(consumer, 1)
        assert (record.offset, record.delivery_count) == (3, 2)
        assert world.acknowledged == [Acknowledged(FETCH, 1, 0, 0, 2, (ACCEPT,))]
    assert world.acknowledged[1:] == [Acknowledged(ACKNOWLEDGE, 1, 0, 3, 3, (ACCEPT,))]
    assert world.epochs[1] == [0, 1, -1]


async def test_records_are_acquired_only_while_a_poll_waits() -> None:
    world = ShareWorld()
    async with world.consumer() as consumer:
        assert await consumer.poll(timeout=1.0) == []
        fetches = len(world.share_requests(FETCH))
        await asyncio.sleep(100)
        assert len(world.share_requests(FETCH)) == fetches


async def test_fetch_waits_no_longer_than_the_poll() -> None:
    world = ShareWorld()
    async with world.consumer(fetch_max_wait_ms=500) as consumer:
        await consumer.poll(timeout=5.0)
        await consumer.poll(timeout=0.2)
        assert world.share_requests(FETCH)[0].max_wait_ms == 500
        assert world.share_requests(FETCH)[-1].max_wait_ms <= 200


async def test_acknowledgements_without_a_fetch_are_sent_within_half_a_second() -> None:
    world = ShareWorld()
    world.offer(0, [b"a", b"b", b"c", b"d"])
    async with world.consumer() as consumer:
        await poll_records(consumer, 2, max_records=2)
        await poll_records(consumer, 1, max_records=1)
        await asyncio.sleep(0.6)
        assert world.acknowledged == [Acknowledged(ACKNOWLEDGE, 1, 0, 0, 1, (ACCEPT,))]


async def test_commit_accepts_the_records_of_the_last_poll() -> None:
    world = ShareWorld()
    world.offer(0, [b"a", b"b"])
    async with world.consumer() as consumer:
        await poll_records(consumer, 2)
        assert await consumer.commit() == {T0: None}
        assert acks(world) == [(0, 1, (ACCEPT,))]
        assert await consumer.commit() == {}


async def test_exception_in_the_body_releases_what_is_not_processed() -> None:
    world = ShareWorld()
    world.offer(0, [b"a", b"b", b"c"])

    async def process() -> None:
        async with world.consumer() as consumer:
            async for record in consumer:
                if record.offset == 1:
                    raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await process()
    assert acks(world) == [(0, 2, (ACCEPT, RELEASE, RELEASE))]
    assert world.heartbeats[-1].member_epoch == -1


async def test_end_of_the_body_accepts_what_was_returned_and_releases_the_rest() -> None:
    world = ShareWorld()
    world.offer(0, [b"a", b"b", b"c"])
    async with world.consumer() as consumer:
        async for record in consumer:
            if record.offset == 1:
                break
    assert acks(world) == [(0, 2, (ACCEPT, ACCEPT, RELEASE))]


async def test_stop_ends_an_iteration() -> None:
    world = ShareWorld()
    consumer = world.consumer()
    await consumer.start()
    seen: list[ShareRecord] = []

    async def read() -> None:
        seen.extend([record async for record in consumer])

    reading = asyncio.create_task(read())
    await asyncio.sleep(5)
    await consumer.stop()
    await reading
    assert seen == []
    with pytest.raises(ClientClosedError, match="is closed"):
        await consumer.poll()


# -- cancellation ---------------------------------------------------------------------------------


async def test_cancelled_poll_releases_what_arrives_later() -> None:
    world = ShareWorld()
    async with world.consumer() as consumer:
        polling = asyncio.create_task(consumer.poll(timeout=None))
        await asyncio.sleep(1.2)  # a fetch is in flight
        polling.cancel()
        await asyncio.wait({polling})
        world.offer(0, [b"a"])
        await asyncio.sleep(0.7)  # the broker responds without records
        polling = asyncio.create_task(consumer.poll(timeout=None))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        polling.cancel()  # its request is sent, and the response comes after the cancellation
        await asyncio.wait({polling})
        await asyncio.sleep(2)
        assert acks(world) == [(0, 0, (RELEASE,))]


async def test_cancelled_stop_is_completed_and_releases_records() -> None:
    world = ShareWorld()
    world.offer(0, [b"a", b"b"])
    consumer = world.consumer()
    await consumer.start()
    await poll_records(consumer, 1, max_records=1)
    stopping = asyncio.create_task(consumer.stop())
    await asyncio.sleep(0)
    stopping.cancel()
    await asyncio.wait({stopping})
    assert stopping.cancelled()
    assert acks(world) == [(0, 1, (RELEASE,))]
    assert consumer.health().state == "closed"


async def test_close_does_not_wait_for_a_silent_broker() -> None:
    world = ShareWorld()
    world.offer(0, [b"a"])
    consumer = world.consumer()
    await consumer.start()
    await poll_records(consumer, 1)
    world.silent.add(ACKNOWLEDGE)
    started = asyncio.get_running_loop().time()
    await consumer.stop(timeout=4)
    assert asyncio.get_running_loop().time() - started <= 4


# -- explicit acknowledgement ---------------------------------------------------------------------


async def test_poll_raises_while_records_are_unacknowledged() -> None:
    world = ShareWorld()
    world.offer(0, [b"a", b"b", b"c"])
    async with world.consumer(**EXPLICIT) as consumer:
        records = await poll_records(consumer, 3)
        for record, kind in zip(records, ("accept", "reject", "release"), strict=True):
            with pytest.raises(IllegalStateError, match="not acknowledged"):
                await consumer.poll()
            consumer.acknowledge(record, kind)
        assert await consumer.poll(timeout=0.1) == []
        assert acks(world) == [(0, 2, (ACCEPT, REJECT, RELEASE))]
        with pytest.raises(IllegalStateError, match="offset 0 is not a record"):
            consumer.acknowledge(records[0])


async def test_last_acknowledgement_before_the_request_counts() -> None:
    world = ShareWorld()
    world.offer(0, [b"a"])
    async with world.consumer(**EXPLICIT) as consumer:
        (record,) = await poll_records(consumer, 1)
        consumer.acknowledge(record, "release")
        consumer.acknowledge(record, "accept")
        assert await consumer.commit() == {T0: None}
        assert acks(world) == [(0, 0, (ACCEPT,))]


async def test_close_releases_unacknowledged_records() -> None:
    world = ShareWorld()
    world.offer(0, [b"a", b"b"])
    async with world.consumer(**EXPLICIT) as consumer:
        records = await poll_records(consumer, 2)
        consumer.acknowledge(records[0])
    assert acks(world) == [(0, 1, (ACCEPT, RELEASE))]


async def test_renewed_record_is_returned_before_others() -> None:
    world = ShareWorld()
    world.offer(0, [b"a", b"b", b"c"])
    async with world.consumer(**EXPLICIT) as consumer:
        (record,) = await poll_records(consumer, 1, max_records=1)
        consumer.acknowledge(record, "renew")
        assert await consumer.commit() == {T0: None}
        (request,) = world.share_requests(ACKNOWLEDGE)
        assert request.is_renew_ack
        assert acks(world) == [(0, 0, (RENEW,))]
        again = await poll_records(consumer, 2, max_records=2)
        assert [r.offset for r in again] == [0, 1]
        assert again[0] == record


async def test_fetch_does_not_carry_renewals() -> None:
    world = ShareWorld()
    world.offer(0, [b"a"])
    async with world.consumer(**EXPLICIT) as consumer:
        (record,) = await poll_records(consumer, 1)
        consumer.acknowledge(record, "renew")
        assert await poll_records(consumer, 1) == [record]
        assert [each.api for each in world.acknowledged] == [ACKNOWLEDGE]
        consumer.acknowledge(record)


async def test_renewals_do_not_wait_for_a_fetch() -> None:
    world = ShareWorld()
    world.offer(0, [b"a"])
    loop = asyncio.get_running_loop()
    async with world.consumer(**EXPLICIT, fetch_max_wait_ms=100_000) as consumer:
        (record,) = await poll_records(consumer, 1)
        for pause in (20.0, 20.0, 0.0, 0.0):
            await asyncio.sleep(pause)
            consumer.acknowledge(record, "renew")
            started = loop.time()
            assert await consumer.poll(timeout=None) == [record]
            assert loop.time() - started <= 0.6
        consumer.acknowledge(record)
        assert await consumer.commit() == {T0: None}


async def test_polls_return_others_while_a_record_is_renewed() -> None:
    world = ShareWorld()
    world.offer(0, [b"a"])
    async with world.consumer(**EXPLICIT) as consumer:
        (slow,) = await poll_records(consumer, 1)
        consumer.acknowledge(slow, "renew")
        world.offer(1, [b"b"])
        others: list[int] = []
        async with asyncio.timeout(10):
            while not others:
                for record in await consumer.poll():
                    consumer.acknowledge(record, "renew" if record == slow else "accept")
                    others += [] if record == slow else [record.offset]
        assert others == [1]


async def test_renewals_do_not_wait_for_the_fetch_from_another_broker() -> None:
    world = ShareWorld(1, 2)
    world.offer(0, [b"a"])
    options: dict[str, Any] = {"share_acquire_mode": "record_limit", "fetch_max_wait_ms": 100_000}
    async with world.consumer(**EXPLICIT, **options) as consumer:
        (record,) = await poll_records(consumer, 1)
        consumer.acknowledge(record, "renew")
        started = asyncio.get_running_loop().time()
        assert await consumer.poll(timeout=None) == [record]
        assert asyncio.get_running_loop().time() - started <= 0.6
        consumer.acknowledge(record)


async def test_wrong_acknowledgements_are_refused() -> None:
    world = ShareWorld()
    world.offer(0, [b"a"])
    async with world.consumer() as consumer:
        (record,) = await poll_records(consumer, 1)
        with pytest.raises(IllegalStateError, match='use share_acknowledgement_mode="explicit"'):
            consumer.acknowledge(record)
        kind: Any = "forget"
        with pytest.raises(ValueError, match="accept, release, reject, renew, not 'forget'"):
            consumer.acknowledge(record, kind)
        wrong: Any = {"type": "accept", "kind": 1}
        with pytest.raises(TypeError, match="unexpected keyword argument 'kind'"):
            consumer.acknowledge(record, **wrong)
    other: Any = 3
    async with world.consumer(**EXPLICIT) as consumer:
        with pytest.raises(TypeError, match="record must be"):
            consumer.acknowledge(other)


# -- failed acknowledgements ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "kind"),
    [(INVALID_STATE, InvalidRecordStateError), (NOT_LEADER, NotLeaderOrFollowerError)],
)
async def test_commit_returns_the_error_of_each_partition(
    code: int, kind: type[KafkaError]
) -> None:
    world = ShareWorld(1, 1)
    world.offer(0, [b"a"])
    world.offer(7, [b"b"], partition=1)
    async with world.consumer(**EXPLICIT) as consumer:
        for record in await poll_records(consumer, 2):
            consumer.acknowledge(record)
        world.acknowledge_errors[1] = code
        outcome = await consumer.commit()
        assert outcome[T0] is None
        error = outcome[TopicPartition("t", 1)]
        assert isinstance(error, kind)
        assert (error.topic, error.partition) == ("t", 1)


async def test_statistics_and_events_count_acknowledgements_by_type() -> None:
    world = ShareWorld(1, 1)
    world.offer(0, [b"a", b"b", b"c", b"d"])
    world.offer(7, [b"e"], partition=1)
    events: list[hooks.ClientEvent] = []
    listeners = hooks.Hooks()
    listeners.listen(hooks.RecordsAcknowledged, events.append)
    listeners.listen(hooks.AcknowledgementFailed, events.append)
    async with world.consumer(**EXPLICIT, hooks=listeners, client_id="c") as consumer:
        records = {record.value: record for record in await poll_records(consumer, 5)}
        kinds: dict[bytes, Any] = {
            b"a": "accept",
            b"b": "accept",
            b"c": "release",
            b"d": "renew",
            b"e": "reject",
        }
        for value, kind in kinds.items():
            consumer.acknowledge(records[value], kind)
        assert consumer.statistics().acquired_records == 5
        world.acknowledge_errors[1] = NOT_LEADER
        assert (await consumer.commit())[T0] is None
        found = consumer.statistics()
    assert found.records_consumed_total == 5
    assert found.fetch_total >= 1
    assert found.bytes_consumed_total > 0
    assert (found.rebalance_total, found.assigned_partitions) == (1, 2)
    assert found.acknowledgements_total == {"accept": 2, "release": 1, "reject": 0, "renew": 1}
    assert found.acknowledgements_error_total == 1
    assert found.acquired_records == 1  # the renewed one
    counts = (("accept", 2), ("release", 1), ("renew", 1))
    assert hooks.RecordsAcknowledged("c", "g", T0, counts) in events
    (failed,) = [each for each in events if isinstance(each, hooks.AcknowledgementFailed)]
    assert (failed.partition.partition, failed.counts) == (1, (("reject", 1),))
    assert isinstance(failed.error, NotLeaderOrFollowerError)


async def test_outcome_of_piggybacked_acknowledgements_goes_to_the_callback() -> None:
    world = ShareWorld()
    world.offer(0, [b"a", b"b"])
    world.acknowledge_errors[0] = INVALID_STATE
    outcomes: list[tuple[TopicPartition, frozenset[int], KafkaError | None]] = []
    async with world.consumer() as consumer:
        consumer.on_acknowledged(lambda tp, rows, error: outcomes.append((tp, rows, error)))
        await poll_records(consumer, 2)
        assert await consumer.poll(timeout=0.1) == []
        await asyncio.sleep(1)
        assert [each.api for each in world.acknowledged] == [FETCH]
        ((partition, offsets, error),) = outcomes
        assert (partition, offsets) == (T0, {0, 1})
        assert isinstance(error, InvalidRecordStateError)


async def test_failed_acknowledgement_is_logged_without_a_callback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = ShareWorld()
    world.offer(4, [b"a", b"b"])
    world.acknowledge_errors[0] = INVALID_STATE
    async with world.consumer() as consumer:
        await poll_records(consumer, 2)
        with caplog.at_level(logging.WARNING, "kafka_async.consumer"):
            await consumer.poll(timeout=0.1)
            await asyncio.sleep(1)
    assert "2 records of t-0, from offset 4 on, were not acknowledged" in caplog.text


async def test_leader_change_is_reported_and_the_new_leader_is_fetched() -> None:
    world = ShareWorld(1, 2)
    world.offer(0, [b"a"])
    async with world.consumer(**EXPLICIT) as consumer:
        (record,) = await poll_records(consumer, 1)
        consumer.acknowledge(record)
        world.topics["t"][0] = 2
        world.acknowledge_errors[0] = NOT_LEADER
        outcome = await consumer.commit()
        assert isinstance(outcome[T0], NotLeaderOrFollowerError)
        world.acknowledge_errors.clear()
        world.offer(0, [b"a"], count=2)
        (again,) = await poll_records(consumer, 1)
        assert again.delivery_count == 2
        consumer.acknowledge(again)
        assert await consumer.commit() == {T0: None}
        assert world.acknowledged[-1].broker == 2


async def test_lost_connection_ends_the_session_and_is_reported() -> None:
    world = ShareWorld()
    world.offer(0, [b"a"])
    async with world.consumer(**EXPLICIT) as consumer:
        (record,) = await poll_records(consumer, 1)
        consumer.acknowledge(record)
        for peer in world.brokers[1].peers:
            peer.transport.abort()
        outcome = await consumer.commit()
        assert isinstance(outcome[T0], KafkaConnectionError | ShareSessionNotFoundError)
        world.offer(0, [b"a"], count=2)
        (again,) = await poll_records(consumer, 1)
        consumer.acknowledge(again)
        assert await consumer.commit() == {T0: None}


async def test_lost_response_is_an_error_although_the_acknowledgement_is_recorded() -> None:
    async with InMemory() as memory, memory.admin() as admin:
        await memory.cluster.create_topic("t", 1)
        async with memory.producer() as producer:
            await producer.send_many("t", [b"a", b"b"], partition=0)
        await admin.alter_share_group_offsets("g", {T0: 0})
        servers = memory.cluster.bootstrap_servers
        async with ShareConsumer(
            servers, dialer=memory.network, topics=["t"], group_id="g"
        ) as consumer:
            await poll_records(consumer, 2)
            memory.cluster.faults.add(api="ShareAcknowledge", disconnect="after", count=1)
            assert isinstance((await consumer.commit())[T0], KafkaConnectionError)
            assert await consumer.poll(timeout=60) == []  # they are not delivered again


async def test_acknowledgement_without_a_session_is_not_sent() -> None:
    world = ShareWorld()
    world.offer(0, [b"a", b"b"])
    async with world.consumer(**EXPLICIT) as consumer:
        one, two = await poll_records(consumer, 2)
        consumer.acknowledge(one)
        world.errors[ACKNOWLEDGE].append(SESSION_NOT_FOUND)
        assert isinstance((await consumer.commit())[T0], ShareSessionNotFoundError)
        requests = len(world.share_requests(ACKNOWLEDGE))
        consumer.acknowledge(two)
        assert isinstance((await consumer.commit())[T0], ShareSessionNotFoundError)
        assert len(world.share_requests(ACKNOWLEDGE)) == requests
        await consumer.poll(timeout=0.1)
        assert world.epochs[1].count(0) == 2  # a new session


async def test_commit_reports_a_record_that_a_poll_acquires_again() -> None:
    world = ShareWorld()
    world.offer(0, [b"a", b"b"])
    async with world.consumer(**EXPLICIT) as consumer:
        one, two = await poll_records(consumer, 2)
        consumer.acknowledge(one)
        world.errors[ACKNOWLEDGE].append(SESSION_NOT_FOUND)
        assert isinstance((await consumer.commit())[T0], ShareSessionNotFoundError)
        consumer.acknowledge(two)
        world.offer(1, [b"b"], count=2)
        (again,), outcome = await asyncio.gather(consumer.poll(), consumer.commit())
        assert (again.offset, again.delivery_count) == (1, 2)
        assert isinstance(outcome[T0], InvalidRecordStateError)
        consumer.acknowledge(again)
        assert await consumer.commit() == {T0: None}
        assert acks(world) == [(1, 1, (ACCEPT,))]


async def test_commit_reports_partitions_without_a_response() -> None:
    world = ShareWorld()
    world.offer(0, [b"a"])
    async with world.consumer() as consumer:
        await poll_records(consumer, 1)
        world.silent.add(ACKNOWLEDGE)
        outcome = await consumer.commit(timeout=3)
        assert isinstance(outcome[T0], KafkaTimeoutError)
        world.silent.clear()


# -- records that are not returned ----------------------------------------------------------------


async def test_offsets_without_a_record_are_acknowledged_as_gaps() -> None:
    world = ShareWorld()
    world.offer(2, [b"c", b"d"], acquired=(0, 3))
    async with world.consumer(**EXPLICIT) as consumer:
        records = await poll_records(consumer, 2)
        for record in records:
            consumer.acknowledge(record)
        assert await consumer.commit() == {T0: None}
        assert acks(world) == [(0, 3, (0, 0, ACCEPT, ACCEPT))]


async def test_only_acquired_records_of_a_batch_are_returned() -> None:
    world = ShareWorld()
    world.offer(0, [b"a", b"b", b"c", b"d"], acquired=(1, 2))
    async with world.consumer() as consumer:
        assert [r.offset for r in await poll_records(consumer, 2)] == [1, 2]
        assert await consumer.commit() == {T0: None}
        assert acks(world) == [(1, 2, (ACCEPT,))]


async def test_corrupt_records_are_rejected_and_raised_once() -> None:
    world = ShareWorld()
    world.offer(0, [b"a", b"b"])
    batch = world._offered[0].pop()  # pyright: ignore[reportPrivateUsage]
    corrupt = bytearray(batch.records or b"")
    corrupt[-1] ^= 0xFF
    world.offer(0, [b"a", b"b"], records=bytes(corrupt))
    async with world.consumer() as consumer:
        with pytest.raises(CorruptRecordError):
            await consumer.poll(timeout=5)
        assert await consumer.poll(timeout=1) == []
        assert acks(world) == [(0, 1, (REJECT,))]


async def test_batches_around_a_corrupt_batch_are_returned() -> None:
    world = ShareWorld()
    for first in (0, 3, 5):
        world.offer(first, [b"a", b"b"])
    offered = world._offered[0]  # pyright: ignore[reportPrivateUsage]
    batches = [bytearray(offered.popleft().records or b"") for _ in range(3)]
    batches[1][-1] ^= 0xFF
    world.offer(0, [], acquired=(0, 6), records=b"".join(batches))
    async with world.consumer() as consumer:
        assert [r.offset for r in await poll_records(consumer, 4)] == [0, 1, 5, 6]
        with pytest.raises(CorruptRecordError):
            await consumer.poll(timeout=5)
        assert await consumer.poll(timeout=1) == []
        # Offset 2 has no record.
        assert acks(world) == [(0, 6, (ACCEPT, ACCEPT, 0, REJECT, REJECT, ACCEPT, ACCEPT))]


async def test_record_that_cannot_be_deserialized_is_released_and_raised_once() -> None:
    world = ShareWorld()
    world.offer(0, [b"1", b"x", b"3"])
    async with world.consumer(value_deserializer=int) as consumer:
        assert [r.value for r in await poll_records(consumer, 2)] == [1, 3]
        with pytest.raises(RecordDeserializationError, match=r'"reject"\)') as raised:
            await consumer.poll(timeout=5)
        assert raised.value.offset == 1
        assert "seek" not in str(raised.value)
        assert await consumer.poll(timeout=1) == []
        assert sorted(acks(world)) == [(0, 2, (ACCEPT, RELEASE, ACCEPT))]


async def test_impossible_number_of_acquired_records_is_an_error() -> None:
    world = ShareWorld()
    world.offer(0, [b"a"], acquired=(0, 2**62))
    async with world.consumer() as consumer:
        with pytest.raises(ProtocolError, match="more than a broker may lock"):
            await consumer.poll(timeout=5)
        assert await consumer.poll(timeout=0.1) == []


async def test_records_whose_lock_has_ended_are_not_returned() -> None:
    world = ShareWorld()
    world.offer(0, [b"a", b"b"])
    async with world.consumer() as consumer:
        await poll_records(consumer, 1, max_records=1)
        await asyncio.sleep(31)
        assert await consumer.poll(timeout=1) == []


# -- limits ---------------------------------------------------------------------------------------


async def test_requests_have_the_limits_of_the_poll() -> None:
    world = ShareWorld()
    async with world.consumer(max_poll_records=70, share_acquire_mode="record_limit") as consumer:
        await consumer.poll(timeout=0.6)
        await consumer.poll(timeout=0.6, max_records=3)
        first, last = world.share_requests(FETCH)[0], world.share_requests(FETCH)[-1]
        assert (first.max_records, last.max_records) == (70, 3)
        assert {each.share_acquire_mode for each in (first, last)} == {1}
    async with world.consumer() as consumer:
        await consumer.poll(timeout=0.6)
        assert world.share_requests(FETCH)[-1].share_acquire_mode == 0


@pytest.mark.parametrize(("mode", "at_once"), [("record_limit", 1), ("batch_optimized", 2)])
async def test_record_limit_fetches_from_one_broker_at_a_time(mode: Any, at_once: int) -> None:
    world = ShareWorld(1, 2)
    async with world.consumer(share_acquire_mode=mode) as consumer:
        await consumer.poll(timeout=1)
        polling = asyncio.create_task(consumer.poll(timeout=20))
        seen: set[int] = set()
        for _ in range(200):
            await asyncio.sleep(0.01)
            seen.add(consumer.health().in_flight)
        assert max(seen) == at_once
        assert all(world.share_requests(FETCH, broker) for broker in (1, 2))
        await polling


# -- membership -----------------------------------------------------------------------------------


async def test_first_heartbeat_joins_and_later_ones_state_changes_only() -> None:
    world = ShareWorld()
    async with world.consumer(client_rack="r1") as consumer:
        await consumer.poll(timeout=5)
        assert consumer.assignment() == {T0}
        assert consumer.subscription() == {"t"}
    join, *stay, leave = world.heartbeats
    assert (join.member_epoch, join.rack_id, join.subscribed_topic_names) == (0, "r1", ["t"])
    stated = {(each.member_epoch, each.rack_id, each.subscribed_topic_names) for each in stay}
    assert stated == {(1, None, None)}
    assert leave.member_epoch == -1
    assert {h.member_id for h in world.heartbeats} == {join.member_id}


@pytest.mark.parametrize("code", [FENCED_EPOCH, UNKNOWN_MEMBER])
async def test_fenced_or_unknown_member_joins_again(code: int) -> None:
    world = ShareWorld()
    async with world.consumer() as consumer:
        await consumer.poll(timeout=3)
        world.heartbeat_errors.append(code)
        await consumer.poll(timeout=5)
        world.offer(0, [b"a"])
        assert len(await poll_records(consumer, 1)) == 1
    assert [h.member_epoch for h in world.heartbeats].count(0) == 2


async def test_loss_of_the_membership_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    world = ShareWorld()
    async with world.consumer() as consumer:
        await consumer.poll(timeout=3)
        world.heartbeat_errors.append(UNKNOWN_MEMBER)
        await consumer.poll(timeout=5)
        assert consumer.assignment() == {T0}
    (warning,) = [text for text in caplog.messages if "has lost its place" in text]
    assert warning.startswith("share group g: this member has lost its place in the group")


async def test_brokers_without_share_groups_raise_at_each_poll() -> None:
    world = ShareWorld()
    versions, share = world.api_versions, (HEARTBEAT, FETCH, ACKNOWLEDGE)

    def old() -> Any:
        response = versions()
        response.api_keys = [row for row in response.api_keys if row.api_key not in share]
        return response

    world.api_versions = old
    async with world.consumer() as consumer:
        for _ in range(2):
            with pytest.raises(UnsupportedVersionError):
                await consumer.poll(timeout=60)
        assert consumer.health().state == "failed"


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (UNSUPPORTED, UnsupportedVersionError),
        (GROUP_DENIED, GroupAuthorizationError),
        (GROUP_FULL, GroupMaxSizeReachedError),
    ],
)
async def test_refusal_of_the_group_is_raised_by_the_first_poll(
    code: int, kind: type[KafkaError]
) -> None:
    world = ShareWorld()
    world.heartbeat_errors.append(code)
    async with world.consumer() as consumer:
        with pytest.raises(kind):
            await consumer.poll(timeout=60)
        last_error = consumer.health().last_error
        assert last_error is not None
        assert last_error.startswith(kind.__name__)
        if kind is not UnsupportedVersionError:  # which joining again cannot change
            world.offer(0, [b"a"])
            assert len(await poll_records(consumer, 1)) == 1


async def test_denied_fetch_is_raised_and_tried_again() -> None:
    world = ShareWorld()
    world.errors[FETCH].append(GROUP_DENIED)
    async with world.consumer() as consumer:
        with pytest.raises(GroupAuthorizationError, match="READ on the group g"):
            await consumer.poll(timeout=60)
        world.offer(0, [b"a"])
        assert len(await poll_records(consumer, 1)) == 1


async def test_member_that_does_not_poll_leaves_and_joins_again_at_the_next_poll() -> None:
    world = ShareWorld()
    async with world.consumer(max_poll_interval_ms=10_000) as consumer:
        await consumer.poll(timeout=3)
        await asyncio.sleep(15)
        assert world.heartbeats[-1].member_epoch == -1
        world.offer(0, [b"a"])
        assert len(await poll_records(consumer, 1)) == 1


async def test_health() -> None:
    world = ShareWorld()
    consumer = world.consumer()
    assert consumer.health().state == "new"
    async with consumer:
        world.offer(0, [b"a"])
        await poll_records(consumer, 1)
        await asyncio.sleep(2.5)
        health = consumer.health()
        assert (health.state, health.assignment, health.in_flight) == ("running", (T0,), 0)
        assert health.last_poll_s == pytest.approx(2.5, abs=0.1)
        assert health.last_heartbeat_s is not None
        assert health.last_error is None
    assert consumer.health().state == "closed"


# -- arguments ------------------------------------------------------------------------------------


async def test_second_poll_at_the_same_time_is_refused() -> None:
    world = ShareWorld()
    async with world.consumer() as consumer:
        polling = asyncio.create_task(consumer.poll(timeout=5))
        await asyncio.sleep(1)
        with pytest.raises(IllegalStateError, match="only one task at a time"):
            await consumer.poll()
        await polling


async def test_construction_and_poll_check_arguments() -> None:
    world = ShareWorld()
    with pytest.raises(InvalidConfigurationError, match="needs group_id"):
        world.consumer(group_id=None)
    with pytest.raises(InvalidConfigurationError, match="share_acknowledgement_mode"):
        world.consumer(share_acknowledgement_mode="automatic")
    with pytest.raises(InvalidConfigurationError, match="auto_offset_reset"):
        world.consumer(auto_offset_reset="earliest")
    consumer = world.consumer()
    with pytest.raises(ClientClosedError, match="was not started"):
        await consumer.poll()
    async with consumer:
        with pytest.raises(ValueError, match="max_records"):
            await consumer.poll(max_records=0)
