"""Fetch, over the wire: waiting, limits, isolation, sessions, epochs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from kafka_async.embedded.error_codes import ErrorCode
from kafka_async.protocol.messages.fetch import FetchRequest, FetchResponse, PartitionData
from kafka_async.records.batch import iter_batches
from kafka_async.types import TopicPartition
from tests.embedded.raw_connection import batch

if TYPE_CHECKING:
    from tests.embedded.conftest import StartHarness
    from tests.embedded.harness import ClusterHarness

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]


def write(harness: ClusterHarness, records: bytes, partition: int = 0, topic: str = "t") -> None:
    """Append records without a Produce request."""
    found = harness.cluster.topics.partition(TopicPartition(topic, partition))
    assert found is not None
    found.log.append(records, harness.cluster.now_ms())
    found.notify_listeners()


def fetch(
    harness: ClusterHarness,
    version: int,
    offsets: dict[int, int] | None = None,
    *,
    topic: str = "t",
    topic_id: UUID | None = None,
    partition: dict[str, Any] | None = None,
    **fields: Any,
) -> FetchRequest:
    """Return a Fetch request for `offsets` by partition; the default is {0: 0}."""
    known = harness.cluster.topics.get(topic)
    named: dict[str, Any] = {"topic": topic}
    if version >= 13:
        named = {"topic_id": topic_id or (known.id if known else UUID(int=77))}
    requested = [
        {"partition": index, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
        | (partition or {})
        for index, offset in (offsets if offsets is not None else {0: 0}).items()
    ]
    topics = [{**named, "partitions": requested}] if requested else []
    return FetchRequest.from_dict({"max_wait_ms": 500, "min_bytes": 1, "topics": topics} | fields)


def partitions_of(response: FetchResponse) -> dict[int, PartitionData]:
    return {data.partition_index: data for topic in response.responses for data in topic.partitions}


def values(data: PartitionData) -> list[bytes | None]:
    return [
        record.value
        for view in iter_batches(data.records or b"")
        if not view.is_control
        for record in view.records()
    ]


@pytest.mark.parametrize("version", range(4, 19))
async def test_reads_records_in_every_version(harness: ClusterHarness, version: int) -> None:
    write(harness, batch(b"a", b"b"))
    connection = await harness.connect()
    response = await connection.call(fetch(harness, version), version)
    data = partitions_of(response)[0]
    assert values(data) == [b"a", b"b"]
    assert (data.error_code, data.high_watermark, data.last_stable_offset) == (0, 2, 2)
    if version < 7:
        assert response.session_id == 0


# -- waiting --------------------------------------------------------------------------------------


async def test_empty_response_after_max_wait(harness: ClusterHarness) -> None:
    connection = await harness.connect()
    loop = asyncio.get_running_loop()
    began = loop.time()
    response = await connection.call(fetch(harness, 12, max_wait_ms=700), 12)
    assert values(partitions_of(response)[0]) == []
    assert loop.time() - began == pytest.approx(0.7)


async def test_new_data_ends_wait(harness: ClusterHarness) -> None:
    connection = await harness.connect()
    loop = asyncio.get_running_loop()
    began = loop.time()
    waiting = connection.send(fetch(harness, 12, {0: 0, 1: 0}, max_wait_ms=60_000), 12)
    loop.call_later(3, write, harness, batch(b"late"), 1)
    assert values(partitions_of(await waiting)[1]) == [b"late"]
    assert loop.time() - began == pytest.approx(3)


async def test_waits_for_min_bytes(harness: ClusterHarness) -> None:
    connection = await harness.connect()
    loop = asyncio.get_running_loop()
    waiting = connection.send(fetch(harness, 12, max_wait_ms=60_000, min_bytes=200), 12)
    for seconds in (1, 2, 3):
        loop.call_later(seconds, write, harness, batch(b"x" * 20))
    assert values(partitions_of(await waiting)[0]) == [b"x" * 20] * 3
    assert loop.time() == pytest.approx(3)


async def test_error_ends_wait(harness: ClusterHarness) -> None:
    connection = await harness.connect()
    response = await connection.call(fetch(harness, 12, {0: 0, 9: 0}, max_wait_ms=60_000), 12)
    assert partitions_of(response)[9].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert asyncio.get_running_loop().time() == 0


async def test_leader_change_ends_wait(start_harness: StartHarness) -> None:
    harness = await start_harness(2)
    await harness.cluster.create_topic("t", 1, assignments={0: [1, 2]})
    connection = await harness.connect()
    waiting = connection.send(fetch(harness, 16, max_wait_ms=60_000), 16)
    await asyncio.sleep(1)
    await harness.cluster.move_leader(TopicPartition("t", 0), 2)
    response = await waiting
    data = partitions_of(response)[0]
    assert data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (data.current_leader.leader_id, data.current_leader.leader_epoch) == (2, 1)
    assert [endpoint.node_id for endpoint in response.node_endpoints] == [2]


async def test_topic_deletion_ends_wait(harness: ClusterHarness) -> None:
    connection = await harness.connect()
    waiting = connection.send(fetch(harness, 13, max_wait_ms=60_000), 13)
    await asyncio.sleep(1)
    await harness.cluster.delete_topic("t")
    assert partitions_of(await waiting)[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


# -- limits ---------------------------------------------------------------------------------------


async def test_limits_apply_except_to_first_batch(harness: ClusterHarness) -> None:
    for partition in (0, 1):
        write(harness, batch(b"x" * 1_000), partition)
        write(harness, batch(b"y" * 1_000), partition)
    connection = await harness.connect()
    both = {0: 0, 1: 0}
    whole = partitions_of(await connection.call(fetch(harness, 12, both, max_bytes=10_000), 12))
    assert [len(values(data)) for data in whole.values()] == [2, 2]
    three = partitions_of(await connection.call(fetch(harness, 12, both, max_bytes=3_400), 12))
    assert [len(values(data)) for data in three.values()] == [2, 1]
    one = partitions_of(await connection.call(fetch(harness, 12, both, max_bytes=1), 12))
    assert [len(values(data)) for data in one.values()] == [1, 0]
    small = fetch(harness, 12, both, partition={"partition_max_bytes": 1})
    assert [len(values(a)) for a in partitions_of(await connection.call(small, 12)).values()] == [
        1,
        0,
    ]


@pytest.mark.parametrize("offset", [-1, 2])
async def test_offset_outside_log_is_rejected(harness: ClusterHarness, offset: int) -> None:
    write(harness, batch(b"a"))
    connection = await harness.connect()
    data = partitions_of(await connection.call(fetch(harness, 12, {0: offset}), 12))[0]
    assert data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


# -- isolation ------------------------------------------------------------------------------------


async def test_read_committed_excludes_ongoing_transaction(harness: ClusterHarness) -> None:
    partition = harness.cluster.topics.partition(TopicPartition("t", 0))
    assert partition is not None
    write(harness, batch(b"a"))
    write(harness, batch(b"b", producer_id=4, epoch=0, sequence=0, transactional=True))
    connection = await harness.connect()
    committed = fetch(harness, 12, isolation_level=1)
    data = partitions_of(await connection.call(committed, 12))[0]
    assert values(data) == [b"a"]
    assert (data.last_stable_offset, data.high_watermark) == (1, 2)
    assert list(data.aborted_transactions or ()) == []
    uncommitted = partitions_of(await connection.call(fetch(harness, 12), 12))[0]
    assert values(uncommitted) == [b"a", b"b"]
    assert uncommitted.aborted_transactions is None
    harness.cluster.write_txn_marker(partition.tp, "abort", producer_id=4, producer_epoch=0)
    data = partitions_of(await connection.call(committed, 12))[0]
    aborted = data.aborted_transactions or ()
    assert [(entry.producer_id, entry.first_offset) for entry in aborted] == [(4, 1)]
    assert values(data) == [b"a", b"b"]  # the client skips aborted records


async def test_read_committed_waits_for_marker(harness: ClusterHarness) -> None:
    write(harness, batch(b"b", producer_id=4, epoch=0, sequence=0, transactional=True))
    connection = await harness.connect()
    waiting = connection.send(fetch(harness, 12, isolation_level=1, max_wait_ms=60_000), 12)
    await asyncio.sleep(2)
    assert not waiting.done()
    harness.cluster.write_txn_marker(
        TopicPartition("t", 0), "commit", producer_id=4, producer_epoch=0
    )
    assert values(partitions_of(await waiting)[0]) == [b"b"]


# -- epochs ---------------------------------------------------------------------------------------


async def test_validates_leader_epoch_and_detects_divergence(start_harness: StartHarness) -> None:
    harness = await start_harness(2)
    await harness.cluster.create_topic("t", 1, assignments={0: [1, 2]})
    write(harness, batch(b"a", b"b"))
    tp = TopicPartition("t", 0)
    await harness.cluster.move_leader(tp, 2)
    await harness.cluster.move_leader(tp, 1)
    connection = await harness.connect(1)

    async def fetch_once(offset: int = 0, **partition: Any) -> PartitionData:
        request = fetch(harness, 16, {0: offset}, partition=partition, max_wait_ms=0)
        return partitions_of(await connection.call(request, 16))[0]

    fenced = await fetch_once(current_leader_epoch=1)
    assert fenced.error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert fenced.current_leader.leader_epoch == 2
    assert (await fetch_once(current_leader_epoch=3)).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert (await fetch_once(current_leader_epoch=2)).error_code == 0
    assert values(await fetch_once(last_fetched_epoch=0)) == [b"a", b"b"]
    diverged = await fetch_once(2, last_fetched_epoch=1)
    assert (diverged.diverging_epoch.epoch, diverged.diverging_epoch.end_offset) == (0, 2)


# -- sessions -------------------------------------------------------------------------------------


async def test_session_returns_changed_partitions_only(harness: ClusterHarness) -> None:
    write(harness, batch(b"a"), 0)
    connection = await harness.connect()
    full = await connection.call(fetch(harness, 13, {0: 0, 1: 0}, session_epoch=0), 13)
    assert full.session_id > 0
    assert sorted(partitions_of(full)) == [0, 1]

    def more(epoch: int, offsets: dict[int, int]) -> FetchRequest:
        return fetch(harness, 13, offsets, session_id=full.session_id, session_epoch=epoch)

    unchanged = await connection.call(more(1, {0: 1}), 13)
    assert (partitions_of(unchanged), unchanged.session_id) == ({}, full.session_id)
    write(harness, batch(b"b"), 1)
    changed = await connection.call(more(2, {}), 13)
    assert {index: values(data) for index, data in partitions_of(changed).items()} == {1: [b"b"]}


async def test_session_removes_forgotten_partitions(harness: ClusterHarness) -> None:
    connection = await harness.connect()
    full = await connection.call(
        fetch(harness, 12, {0: 0, 1: 0}, session_epoch=0, max_wait_ms=0), 12
    )
    write(harness, batch(b"a"), 0)
    write(harness, batch(b"b"), 1)
    forgetting = fetch(
        harness,
        12,
        {},
        session_id=full.session_id,
        session_epoch=1,
        forgotten_topics_data=[{"topic": "t", "partitions": [0]}],
    )
    assert list(partitions_of(await connection.call(forgetting, 12))) == [1]


async def test_partition_with_records_moves_to_end_of_session(harness: ClusterHarness) -> None:
    for partition in (0, 1):
        write(harness, batch(b"x" * 100), partition)
        write(harness, batch(b"x" * 100), partition)
    connection = await harness.connect()
    first = await connection.call(
        fetch(harness, 12, {0: 0, 1: 0}, session_epoch=0, max_bytes=1), 12
    )
    assert [len(values(data)) for data in partitions_of(first).values()] == [1, 0]
    again = fetch(harness, 12, {0: 1}, session_id=first.session_id, session_epoch=1, max_bytes=1)
    assert list(partitions_of(await connection.call(again, 12))) == [1]


@pytest.mark.parametrize(
    ("session", "epoch", "version", "code"),
    [
        (0, 5, 12, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (99, 1, 12, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (1, 2, 12, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (1, 1, 13, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR),
    ],
)
async def test_invalid_session_is_rejected(
    harness: ClusterHarness, session: int, epoch: int, version: int, code: ErrorCode
) -> None:
    connection = await harness.connect()
    await connection.call(fetch(harness, 12, session_epoch=0, max_wait_ms=0), 12)
    request = fetch(harness, version, {}, session_id=session, session_epoch=epoch)
    assert (await connection.call(request, version)).error_code == code


async def test_final_epoch_closes_session(harness: ClusterHarness) -> None:
    connection = await harness.connect()
    opened = await connection.call(fetch(harness, 12, session_epoch=0, max_wait_ms=0), 12)
    session: dict[str, Any] = {"session_id": opened.session_id, "max_wait_ms": 0}
    closed = await connection.call(fetch(harness, 12, {}, session_epoch=-1, **session), 12)
    assert (closed.error_code, closed.session_id) == (0, 0)
    gone = await connection.call(fetch(harness, 12, {}, session_epoch=1, **session), 12)
    assert gone.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


async def test_restarted_broker_has_no_sessions(harness: ClusterHarness) -> None:
    connection = await harness.connect()
    opened = await connection.call(fetch(harness, 12, session_epoch=0, max_wait_ms=0), 12)
    await harness.cluster.stop_broker(1)
    await harness.cluster.start_broker(1)
    connection = await harness.connect()
    request = fetch(harness, 12, {}, session_id=opened.session_id, session_epoch=1)
    assert (await connection.call(request, 12)).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
