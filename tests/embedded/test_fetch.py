"""Fetch, over the wire: waiting, limits, isolation, sessions, epochs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from kafka_async.embedded.codes import Code
from kafka_async.protocol.messages.fetch import FetchRequest, FetchResponse, PartitionData
from kafka_async.records.batch import iter_batches
from kafka_async.types import TopicPartition
from tests.embedded.wire import batch

if TYPE_CHECKING:
    from tests.embedded.conftest import StartStage
    from tests.embedded.stage import Stage

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]


def write(stage: Stage, records: bytes, partition: int = 0, topic: str = "t") -> None:
    """Append as Produce does, without a request."""
    found = stage.cluster.topics.partition(TopicPartition(topic, partition))
    assert found is not None
    found.log.append(records, stage.cluster.now_ms())
    found.changed()


def fetch(
    stage: Stage,
    version: int,
    offsets: dict[int, int] | None = None,
    *,
    topic: str = "t",
    topic_id: UUID | None = None,
    partition: dict[str, Any] | None = None,
    **fields: Any,
) -> FetchRequest:
    """A fetch of `t` from offset 0 of partition 0, or of `offsets` by partition."""
    known = stage.cluster.topics.get(topic)
    named: dict[str, Any] = {"topic": topic}
    if version >= 13:
        named = {"topic_id": topic_id or (known.id if known else UUID(int=77))}
    asked = [
        {"partition": index, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
        | (partition or {})
        for index, offset in (offsets if offsets is not None else {0: 0}).items()
    ]
    topics = [{**named, "partitions": asked}] if asked else []
    return FetchRequest.from_dict({"max_wait_ms": 500, "min_bytes": 1, "topics": topics} | fields)


def answers(response: FetchResponse) -> dict[int, PartitionData]:
    return {
        answer.partition_index: answer
        for topic in response.responses
        for answer in topic.partitions
    }


def values(answer: PartitionData) -> list[bytes | None]:
    return [
        record.value
        for view in iter_batches(answer.records or b"")
        if not view.is_control
        for record in view.records()
    ]


@pytest.mark.parametrize("version", range(4, 19))
async def test_every_version_reads_what_was_written(stage: Stage, version: int) -> None:
    write(stage, batch(b"a", b"b"))
    peer = await stage.peer()
    response = await peer.ask(fetch(stage, version), version)
    answer = answers(response)[0]
    assert values(answer) == [b"a", b"b"]
    assert (answer.error_code, answer.high_watermark, answer.last_stable_offset) == (0, 2, 2)
    if version < 7:
        assert response.session_id == 0


# -- waiting ------------------------------------------------------------------------------------


async def test_without_data_the_answer_comes_after_max_wait(stage: Stage) -> None:
    peer = await stage.peer()
    loop = asyncio.get_running_loop()
    began = loop.time()
    response = await peer.ask(fetch(stage, 12, max_wait_ms=700), 12)
    assert values(answers(response)[0]) == []
    assert loop.time() - began == pytest.approx(0.7)


async def test_data_that_arrives_ends_the_wait(stage: Stage) -> None:
    peer = await stage.peer()
    loop = asyncio.get_running_loop()
    began = loop.time()
    waiting = peer.send(fetch(stage, 12, {0: 0, 1: 0}, max_wait_ms=60_000), 12)
    loop.call_later(3, write, stage, batch(b"late"), 1)
    assert values(answers(await waiting)[1]) == [b"late"]
    assert loop.time() - began == pytest.approx(3)


async def test_less_than_min_bytes_waits_on(stage: Stage) -> None:
    peer = await stage.peer()
    loop = asyncio.get_running_loop()
    waiting = peer.send(fetch(stage, 12, max_wait_ms=60_000, min_bytes=200), 12)
    for seconds in (1, 2, 3):
        loop.call_later(seconds, write, stage, batch(b"x" * 20))
    assert values(answers(await waiting)[0]) == [b"x" * 20] * 3
    assert loop.time() == pytest.approx(3)


async def test_an_error_is_answered_at_once(stage: Stage) -> None:
    peer = await stage.peer()
    response = await peer.ask(fetch(stage, 12, {0: 0, 9: 0}, max_wait_ms=60_000), 12)
    assert answers(response)[9].error_code == Code.UNKNOWN_TOPIC_OR_PARTITION
    assert asyncio.get_running_loop().time() == 0


async def test_a_leader_that_moves_ends_the_wait(start_stage: StartStage) -> None:
    stage = await start_stage(2)
    await stage.cluster.create_topic("t", 1, assignments={0: [1, 2]})
    peer = await stage.peer()
    waiting = peer.send(fetch(stage, 16, max_wait_ms=60_000), 16)
    await asyncio.sleep(1)
    await stage.cluster.move_leader(TopicPartition("t", 0), 2)
    response = await waiting
    answer = answers(response)[0]
    assert answer.error_code == Code.NOT_LEADER_OR_FOLLOWER
    assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == (2, 1)
    assert [endpoint.node_id for endpoint in response.node_endpoints] == [2]


async def test_a_topic_that_is_deleted_ends_the_wait(stage: Stage) -> None:
    peer = await stage.peer()
    waiting = peer.send(fetch(stage, 13, max_wait_ms=60_000), 13)
    await asyncio.sleep(1)
    await stage.cluster.delete_topic("t")
    assert answers(await waiting)[0].error_code == Code.UNKNOWN_TOPIC_ID


# -- limits -------------------------------------------------------------------------------------


async def test_limits_hold_but_for_the_first_batch(stage: Stage) -> None:
    for partition in (0, 1):
        write(stage, batch(b"x" * 1_000), partition)
        write(stage, batch(b"y" * 1_000), partition)
    peer = await stage.peer()
    both = {0: 0, 1: 0}
    whole = answers(await peer.ask(fetch(stage, 12, both, max_bytes=10_000), 12))
    assert [len(values(answer)) for answer in whole.values()] == [2, 2]
    three = answers(await peer.ask(fetch(stage, 12, both, max_bytes=3_400), 12))
    assert [len(values(answer)) for answer in three.values()] == [2, 1]
    one = answers(await peer.ask(fetch(stage, 12, both, max_bytes=1), 12))
    assert [len(values(answer)) for answer in one.values()] == [1, 0]
    small = fetch(stage, 12, both, partition={"partition_max_bytes": 1})
    assert [len(values(a)) for a in answers(await peer.ask(small, 12)).values()] == [1, 0]


@pytest.mark.parametrize("offset", [-1, 2])
async def test_an_offset_outside_the_log_is_refused(stage: Stage, offset: int) -> None:
    write(stage, batch(b"a"))
    peer = await stage.peer()
    answer = answers(await peer.ask(fetch(stage, 12, {0: offset}), 12))[0]
    assert answer.error_code == Code.OFFSET_OUT_OF_RANGE


# -- isolation ----------------------------------------------------------------------------------


async def test_isolation(stage: Stage) -> None:
    partition = stage.cluster.topics.partition(TopicPartition("t", 0))
    assert partition is not None
    write(stage, batch(b"a"))
    write(stage, batch(b"b", producer_id=4, epoch=0, sequence=0, transactional=True))
    peer = await stage.peer()
    committed = fetch(stage, 12, isolation_level=1)
    answer = answers(await peer.ask(committed, 12))[0]
    assert values(answer) == [b"a"]
    assert (answer.last_stable_offset, answer.high_watermark) == (1, 2)
    assert list(answer.aborted_transactions or ()) == []
    uncommitted = answers(await peer.ask(fetch(stage, 12), 12))[0]
    assert values(uncommitted) == [b"a", b"b"]
    assert uncommitted.aborted_transactions is None
    stage.cluster.write_txn_marker(partition.tp, "abort", producer_id=4, producer_epoch=0)
    answer = answers(await peer.ask(committed, 12))[0]
    aborted = answer.aborted_transactions or ()
    assert [(entry.producer_id, entry.first_offset) for entry in aborted] == [(4, 1)]
    assert values(answer) == [b"a", b"b"]  # it is the client that leaves them out


async def test_a_committed_reader_waits_for_the_marker(stage: Stage) -> None:
    write(stage, batch(b"b", producer_id=4, epoch=0, sequence=0, transactional=True))
    peer = await stage.peer()
    waiting = peer.send(fetch(stage, 12, isolation_level=1, max_wait_ms=60_000), 12)
    await asyncio.sleep(2)
    assert not waiting.done()
    stage.cluster.write_txn_marker(
        TopicPartition("t", 0), "commit", producer_id=4, producer_epoch=0
    )
    assert values(answers(await waiting)[0]) == [b"b"]


# -- epochs -------------------------------------------------------------------------------------


async def test_epochs_of_leaders(start_stage: StartStage) -> None:
    stage = await start_stage(2)
    await stage.cluster.create_topic("t", 1, assignments={0: [1, 2]})
    write(stage, batch(b"a", b"b"))
    tp = TopicPartition("t", 0)
    await stage.cluster.move_leader(tp, 2)
    await stage.cluster.move_leader(tp, 1)
    peer = await stage.peer(1)

    async def ask(offset: int = 0, **partition: Any) -> PartitionData:
        request = fetch(stage, 16, {0: offset}, partition=partition, max_wait_ms=0)
        return answers(await peer.ask(request, 16))[0]

    fenced = await ask(current_leader_epoch=1)
    assert fenced.error_code == Code.FENCED_LEADER_EPOCH
    assert fenced.current_leader.leader_epoch == 2
    assert (await ask(current_leader_epoch=3)).error_code == Code.UNKNOWN_LEADER_EPOCH
    assert (await ask(current_leader_epoch=2)).error_code == 0
    assert values(await ask(last_fetched_epoch=0)) == [b"a", b"b"]
    diverged = await ask(2, last_fetched_epoch=1)
    assert (diverged.diverging_epoch.epoch, diverged.diverging_epoch.end_offset) == (0, 2)


# -- sessions -----------------------------------------------------------------------------------


async def test_a_session_answers_news_only(stage: Stage) -> None:
    write(stage, batch(b"a"), 0)
    peer = await stage.peer()
    full = await peer.ask(fetch(stage, 13, {0: 0, 1: 0}, session_epoch=0), 13)
    assert full.session_id > 0
    assert sorted(answers(full)) == [0, 1]

    def more(epoch: int, offsets: dict[int, int]) -> FetchRequest:
        return fetch(stage, 13, offsets, session_id=full.session_id, session_epoch=epoch)

    quiet = await peer.ask(more(1, {0: 1}), 13)
    assert (answers(quiet), quiet.session_id) == ({}, full.session_id)
    write(stage, batch(b"b"), 1)
    news = await peer.ask(more(2, {}), 13)
    assert {index: values(answer) for index, answer in answers(news).items()} == {1: [b"b"]}


async def test_a_session_forgets_what_it_is_told_to(stage: Stage) -> None:
    peer = await stage.peer()
    full = await peer.ask(fetch(stage, 12, {0: 0, 1: 0}, session_epoch=0, max_wait_ms=0), 12)
    write(stage, batch(b"a"), 0)
    write(stage, batch(b"b"), 1)
    forgetting = fetch(
        stage,
        12,
        {},
        session_id=full.session_id,
        session_epoch=1,
        forgotten_topics_data=[{"topic": "t", "partitions": [0]}],
    )
    assert list(answers(await peer.ask(forgetting, 12))) == [1]


async def test_what_gave_records_is_read_last_next_time(stage: Stage) -> None:
    for partition in (0, 1):
        write(stage, batch(b"x" * 100), partition)
        write(stage, batch(b"x" * 100), partition)
    peer = await stage.peer()
    first = await peer.ask(fetch(stage, 12, {0: 0, 1: 0}, session_epoch=0, max_bytes=1), 12)
    assert [len(values(answer)) for answer in answers(first).values()] == [1, 0]
    again = fetch(stage, 12, {0: 1}, session_id=first.session_id, session_epoch=1, max_bytes=1)
    assert list(answers(await peer.ask(again, 12))) == [1]


@pytest.mark.parametrize(
    ("session", "epoch", "version", "code"),
    [
        (0, 5, 12, Code.FETCH_SESSION_ID_NOT_FOUND),
        (99, 1, 12, Code.FETCH_SESSION_ID_NOT_FOUND),
        (1, 2, 12, Code.INVALID_FETCH_SESSION_EPOCH),
        (1, 1, 13, Code.FETCH_SESSION_TOPIC_ID_ERROR),
    ],
)
async def test_session_errors(
    stage: Stage, session: int, epoch: int, version: int, code: Code
) -> None:
    peer = await stage.peer()
    await peer.ask(fetch(stage, 12, session_epoch=0, max_wait_ms=0), 12)
    request = fetch(stage, version, {}, session_id=session, session_epoch=epoch)
    assert (await peer.ask(request, version)).error_code == code


async def test_a_session_ends_with_its_final_epoch(stage: Stage) -> None:
    peer = await stage.peer()
    opened = await peer.ask(fetch(stage, 12, session_epoch=0, max_wait_ms=0), 12)
    session: dict[str, Any] = {"session_id": opened.session_id, "max_wait_ms": 0}
    closed = await peer.ask(fetch(stage, 12, {}, session_epoch=-1, **session), 12)
    assert (closed.error_code, closed.session_id) == (0, 0)
    gone = await peer.ask(fetch(stage, 12, {}, session_epoch=1, **session), 12)
    assert gone.error_code == Code.FETCH_SESSION_ID_NOT_FOUND


async def test_a_broker_that_restarts_knows_no_sessions(stage: Stage) -> None:
    peer = await stage.peer()
    opened = await peer.ask(fetch(stage, 12, session_epoch=0, max_wait_ms=0), 12)
    await stage.cluster.stop_broker(1)
    await stage.cluster.start_broker(1)
    peer = await stage.peer()
    request = fetch(stage, 12, {}, session_id=opened.session_id, session_epoch=1)
    assert (await peer.ask(request, 12)).error_code == Code.FETCH_SESSION_ID_NOT_FOUND
