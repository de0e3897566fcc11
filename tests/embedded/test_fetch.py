"""Fetches that wait, and limits, sessions and epochs that the contract does not have."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async.embedded.error_codes import ErrorCode
from kafka_async.records.batch import iter_batches
from kafka_async.types import TopicPartition
from tests.contract.cases.log import fetch
from tests.contract.model import SendRequest, T, TopicId, reply
from tests.embedded.harness import Session, running_session
from tests.raw_connection import batch

if TYPE_CHECKING:
    from kafka_async.protocol.messages.fetch import PartitionData

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]

TP = TopicPartition("t", 0)
LONG = {"min_bytes": 1, "max_wait_ms": 60_000}


def write(it: Session, records: bytes, index: int = 0) -> None:
    """Append records without a Produce request."""
    partition = it.partition(index)
    partition.log.append(records, it.embedded.scheduler.now_ms())
    partition.notify_listeners()


def both(**fields: Any) -> list[dict[str, Any]]:
    """Return the topics of a request for both partitions."""
    row = {"fetch_offset": 0, "partition_max_bytes": 1 << 20, **fields}
    return [{"topic": T, "partitions": [{"partition": index, **row} for index in (0, 1)]}]


def session(epoch: int) -> tuple[Any, int]:
    return reply("s", "session_id"), epoch


async def partitions(it: Session, step: SendRequest) -> dict[int, PartitionData]:
    response = await it.ask(step)
    return {data.partition_index: data for topic in response.responses for data in topic.partitions}


def values(data: PartitionData) -> list[bytes | None]:
    return [
        record.value
        for view in iter_batches(data.records or b"")
        if not view.is_control
        for record in view.records()
    ]


async def counts(it: Session, step: SendRequest) -> dict[int, int]:
    """Return the number of records of each partition in a response."""
    return {index: len(values(data)) for index, data in (await partitions(it, step)).items()}


# -- waiting --------------------------------------------------------------------------------------


async def test_empty_response_after_max_wait() -> None:
    async with running_session() as it:
        assert await counts(it, fetch(12, min_bytes=1, max_wait_ms=700)) == {0: 0}
        assert asyncio.get_running_loop().time() == pytest.approx(0.7)


async def test_new_data_ends_wait() -> None:
    async with running_session() as it:
        loop = asyncio.get_running_loop()
        loop.call_later(3, write, it, batch(b"late"), 1)
        found = await partitions(it, fetch(12, topics=both(), **LONG))
        assert values(found[1]) == [b"late"]
        assert loop.time() == pytest.approx(3)


async def test_waits_for_min_bytes() -> None:
    async with running_session() as it:
        loop = asyncio.get_running_loop()
        for seconds in (1, 2, 3):
            loop.call_later(seconds, write, it, batch(b"x" * 20))
        assert await counts(it, fetch(12, **LONG | {"min_bytes": 200})) == {0: 3}
        assert loop.time() == pytest.approx(3)


async def test_error_ends_wait() -> None:
    async with running_session() as it:
        rows = [
            {"partition": index, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
            for index in (9, 0)
        ]
        unknown = fetch(12, topics=[{"topic": T, "partitions": rows}], **LONG)
        assert await it.code(unknown) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert asyncio.get_running_loop().time() == 0


async def test_leader_change_ends_wait() -> None:
    async with running_session(2) as it:
        asyncio.get_running_loop().call_later(1, it.partition().move_leader, 2)
        row = {"current_leader_epoch": 0}
        response = await it.ask(fetch(16, by_id=True, row=row, **LONG))
        data = response.responses[0].partitions[0]
        assert data.error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert (data.current_leader.leader_id, data.current_leader.leader_epoch) == (2, 1)
        assert [endpoint.node_id for endpoint in response.node_endpoints] == [2]


async def test_leader_change_ends_wait_of_a_version_that_followers_do_not_serve() -> None:
    async with running_session(2) as it:
        asyncio.get_running_loop().call_later(1, it.partition().move_leader, 2)
        assert await it.code(fetch(10, **LONG)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert asyncio.get_running_loop().time() == pytest.approx(1)


async def test_former_leader_serves_a_wait_without_epoch_as_follower() -> None:
    async with running_session(2) as it:
        loop = asyncio.get_running_loop()
        loop.call_later(1, it.partition().move_leader, 2)
        loop.call_later(3, write, it, batch(b"late"))
        assert values((await partitions(it, fetch(12, **LONG)))[0]) == [b"late"]
        assert loop.time() == pytest.approx(3)


async def test_topic_deletion_ends_wait() -> None:
    async with running_session() as it:
        asyncio.get_running_loop().call_later(1, it.embedded.topics.delete, "t")
        assert await it.code(fetch(13, by_id=True, **LONG)) is ErrorCode.UNKNOWN_TOPIC_ID


async def test_read_committed_waits_for_marker() -> None:
    async with running_session() as it:
        write(it, batch(b"b", producer_id=4, epoch=0, sequence=0, transactional=True))
        waiting = asyncio.create_task(partitions(it, fetch(12, isolation_level=1, **LONG)))
        await asyncio.sleep(2)
        assert not waiting.done()
        now = it.embedded.scheduler.now_ms()
        it.partition().append_end_txn_marker("commit", producer_id=4, producer_epoch=0, now=now)
        assert values((await waiting)[0]) == [b"b"]


# -- limits and epochs ----------------------------------------------------------------------------


async def test_limits_apply_except_to_first_batch() -> None:
    async with running_session() as it:
        for index in (0, 1, 0, 1):
            write(it, batch(b"x" * 1_000), index)
        for limit, expected in ((10_000, {0: 2, 1: 2}), (3_400, {0: 2, 1: 1}), (1, {0: 1, 1: 0})):
            assert await counts(it, fetch(12, topics=both(), max_bytes=limit)) == expected
        small = fetch(12, topics=both(partition_max_bytes=1))
        assert await counts(it, small) == {0: 1, 1: 0}


async def test_validates_leader_epoch_and_detects_divergence() -> None:
    async with running_session(2) as it:
        write(it, batch(b"a", b"b"))
        await it.embedded.move_leader(TP, 2)
        await it.embedded.move_leader(TP, 1)

        async def fetch_once(offset: int = 0, **row: Any) -> PartitionData:
            return (await partitions(it, fetch(16, offset, by_id=True, row=row)))[0]

        fenced = await fetch_once(current_leader_epoch=1)
        assert fenced.error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert fenced.current_leader.leader_epoch == 2
        unknown = await fetch_once(current_leader_epoch=3)
        assert unknown.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
        assert (await fetch_once(current_leader_epoch=2)).error_code == 0
        assert values(await fetch_once(last_fetched_epoch=0)) == [b"a", b"b"]
        diverged = await fetch_once(2, last_fetched_epoch=1)
        assert (diverged.diverging_epoch.epoch, diverged.diverging_epoch.end_offset) == (0, 2)


# -- sessions -------------------------------------------------------------------------------------


async def test_session_returns_changed_partitions_only() -> None:
    async with running_session() as it:
        write(it, batch(b"a"))
        opening = fetch(12, topics=both(), session=(0, 0), label="s")
        assert await counts(it, opening) == {0: 1, 1: 0}
        assert await counts(it, fetch(12, 1, session=session(1))) == {}
        write(it, batch(b"b"), 1)
        assert await counts(it, fetch(12, session=session(2), topics=[])) == {1: 1}


@pytest.mark.parametrize("version", [12, 13])
async def test_session_removes_forgotten_partitions(version: int) -> None:
    async with running_session() as it:
        where = {"topic_id": TopicId()} if version >= 13 else {"topic": T}
        topics = [where | {"partitions": both()[0]["partitions"]}]
        await it.ask(fetch(version, topics=topics, session=(0, 0), label="s"))
        write(it, batch(b"a"), 0)
        write(it, batch(b"b"), 1)
        forgotten = [where | {"partitions": [0]}]
        more = fetch(version, session=session(1), topics=[], forgotten_topics_data=forgotten)
        assert await counts(it, more) == {1: 1}


async def test_partition_with_records_moves_to_end_of_session() -> None:
    async with running_session() as it:
        for index in (0, 1, 0, 1):
            write(it, batch(b"x" * 100), index)
        opening = fetch(12, topics=both(), session=(0, 0), label="s", max_bytes=1)
        assert await counts(it, opening) == {0: 1, 1: 0}
        again = fetch(12, 1, session=session(1), max_bytes=1)
        assert list(await partitions(it, again)) == [1]


async def test_restarted_broker_has_no_sessions() -> None:
    async with running_session() as it:
        await it.ask(fetch(12, session=(0, 0), label="s"))
        await it.embedded.stop_broker(1)
        await it.embedded.start_broker(1)
        more = fetch(12, session=session(1), topics=[])
        assert await it.code(more) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
