"""Faults by rule, over the wire."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async.embedded.codes import Code
from kafka_async.embedded.refusal import Refusal
from kafka_async.errors import InvalidConfigurationError, UnsupportedVersionError
from kafka_async.protocol.api import lookup
from kafka_async.protocol.messages.api_versions import ApiVersionsRequest
from kafka_async.protocol.messages.create_topics import CreateTopicsRequest
from kafka_async.protocol.messages.delete_topics import DeleteTopicsRequest
from kafka_async.protocol.messages.fetch import FetchRequest
from kafka_async.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafka_async.protocol.messages.list_groups import ListGroupsRequest
from kafka_async.protocol.messages.metadata import MetadataRequest
from kafka_async.protocol.messages.produce import ProduceRequest
from kafka_async.types import TopicPartition
from tests.embedded.wire import batch

if TYPE_CHECKING:
    from kafka_async.embedded.context import RequestContext
    from tests.embedded.conftest import StartStage
    from tests.embedded.stage import Stage
    from tests.embedded.wire import Peer

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]

ASK = MetadataRequest(topics=[])


async def produce(peer: Peer, stage: Stage, version: int = 11) -> dict[int, int]:
    """Write one record to each partition of `t`; error codes by partition."""
    topic = stage.cluster.topics.get("t")
    assert topic is not None
    request = ProduceRequest.from_dict(
        {
            "acks": -1,
            "topic_data": [
                {
                    "name": "t",
                    "topic_id": topic.id,
                    "partition_data": [{"index": i, "records": batch(b"v")} for i in (0, 1)],
                }
            ],
        }
    )
    response = await peer.ask(request, version)
    (answer,) = response.responses
    return {entry.index: entry.error_code for entry in answer.partition_responses}


def ends(stage: Stage) -> list[int]:
    topic = stage.cluster.topics.get("t")
    assert topic is not None
    return [partition.log.end_offset for partition in topic.partitions]


async def test_an_error_takes_the_place_of_the_work(stage: Stage) -> None:
    peer = await stage.peer()
    fault = stage.cluster.faults.add(api="Produce", error="NOT_ENOUGH_REPLICAS")
    assert await produce(peer, stage) == {0: 19, 1: 19}
    assert ends(stage) == [0, 0]
    assert await produce(peer, stage) == {0: 0, 1: 0}
    assert fault.hits == 1
    assert fault.spent


async def test_an_error_after_the_work(stage: Stage) -> None:
    peer = await stage.peer()
    stage.cluster.faults.add(api="Produce", error=Code.REQUEST_TIMED_OUT, applied=True)
    assert await produce(peer, stage) == {0: 7, 1: 7}
    assert ends(stage) == [1, 1]


@pytest.mark.parametrize("applied", [False, True])
@pytest.mark.parametrize("version", [11, 13])
async def test_only_the_partition_that_is_meant_fails(
    stage: Stage, applied: bool, version: int
) -> None:
    peer = await stage.peer()
    stage.cluster.faults.add(
        api=0, topic="t", partition=1, error="NOT_ENOUGH_REPLICAS", applied=applied
    )
    assert await produce(peer, stage, version) == {0: 0, 1: 19}
    assert ends(stage) == [1, 1 if applied else 0]


async def test_another_topic_or_partition_is_not_hit(stage: Stage) -> None:
    peer = await stage.peer()
    faults = [
        stage.cluster.faults.add(api="Produce", topic="u", error=1),
        stage.cluster.faults.add(api="Produce", partition=2, error=1),
        stage.cluster.faults.add(api="Fetch", error=1),
    ]
    assert await produce(peer, stage) == {0: 0, 1: 0}
    assert [fault.hits for fault in faults] == [0, 0, 0]


async def test_skip_and_count(stage: Stage) -> None:
    peer = await stage.peer()
    stage.cluster.faults.add(api="Produce", partition=0, error=7, skip=1, count=2)
    codes = [(await produce(peer, stage))[0] for _ in range(5)]
    assert codes == [0, 7, 7, 0, 0]


async def test_without_an_effect_a_rule_counts(stage: Stage) -> None:
    peer = await stage.peer()
    fault = stage.cluster.faults.add(api="Produce", count=None)
    for _ in range(3):
        await produce(peer, stage)
    await peer.ask(ASK, 12)
    assert fault.hits == 3
    assert not fault.spent
    fault.remove()
    await produce(peer, stage)
    assert fault.hits == 3


async def test_by_broker_and_by_predicate(start_stage: StartStage) -> None:
    stage = await start_stage(2)
    first, second = await stage.peer(1), await stage.peer(2)

    def mine(context: RequestContext, request: Any) -> bool:
        return context.client_id == "me" and context.version == 12

    by_broker = stage.cluster.faults.add(broker=2, count=None)
    by_predicate = stage.cluster.faults.add(when=mine, count=None)
    second.client_id = "me"
    await second.ask(ASK, 12)
    await first.ask(ASK, 12)
    first.client_id = "me"
    await first.ask(ASK, 11)
    await first.ask(ASK, 12)
    assert (by_broker.hits, by_predicate.hits) == (1, 1)


async def test_a_delay_takes_its_time(stage: Stage) -> None:
    peer = await stage.peer()
    loop = asyncio.get_running_loop()
    stage.cluster.faults.add(delay=2.5)
    began = loop.time()
    await peer.ask(ASK, 12)
    assert loop.time() - began == pytest.approx(2.5)


async def test_what_hangs_goes_on_when_released(stage: Stage) -> None:
    peer = await stage.peer()
    fault = stage.cluster.faults.add(hang=True, count=2)
    waiting = peer.send(ASK, 12)
    await fault.wait()
    await asyncio.sleep(1_000)
    assert not waiting.done()
    fault.release()
    assert (await waiting).brokers
    await peer.ask(ASK, 12)  # the second hit hangs no more
    assert fault.hits == 2


async def test_clearing_lets_go_of_what_hangs(stage: Stage) -> None:
    peer = await stage.peer()
    fault = stage.cluster.faults.add(hang=True)
    waiting = peer.send(ASK, 12)
    await fault.wait()
    stage.cluster.faults.clear()
    assert (await waiting).brokers


async def test_holds_the_response_to_a_request_that_is_applied(stage: Stage) -> None:
    peer = await stage.peer()
    loop = asyncio.get_running_loop()
    stage.cluster.faults.add(api="Produce", applied=True, delay=2.5)
    fault = stage.cluster.faults.add(api="Produce", applied=True, hang=True, error=7)
    began = loop.time()
    writing = asyncio.ensure_future(produce(peer, stage))
    await asyncio.sleep(1)
    assert ends(stage) == [1, 1]
    await writing
    assert loop.time() - began == pytest.approx(2.5)
    writing = asyncio.ensure_future(produce(peer, stage))
    await fault.wait()
    await asyncio.sleep(1_000)
    assert ends(stage) == [2, 2]
    assert not writing.done()
    fault.release()
    assert await writing == {0: 7, 1: 7}


@pytest.mark.parametrize(("when", "written"), [("before", 0), ("after", 1)])
async def test_a_connection_is_reset_before_or_after_the_work(
    stage: Stage, when: Any, written: int
) -> None:
    peer = await stage.peer()
    stage.cluster.faults.add(api="Produce", disconnect=when)
    with pytest.raises(ConnectionResetError):
        await produce(peer, stage)
    assert ends(stage) == [written, written]


async def test_an_api_without_room_for_an_error_disconnects(stage: Stage) -> None:
    peer = await stage.peer()
    stage.cluster.faults.add(api="Metadata", error=-1)
    with pytest.raises(ConnectionResetError):
        await peer.ask(MetadataRequest(topics=None), 12)


async def test_a_nonsense_rule_is_refused(stage: Stage) -> None:
    with pytest.raises(InvalidConfigurationError, match="NOSUCH"):
        stage.cluster.faults.add(error="NOSUCH")
    with pytest.raises(UnsupportedVersionError):
        stage.cluster.faults.add(api="NoSuchApi")


# -- where errors stand, API by API -------------------------------------------------------------


async def test_errors_by_topic(stage: Stage) -> None:
    peer = await stage.peer()
    faults = stage.cluster.faults
    faults.add(api="Metadata", topic="t", error="LEADER_NOT_AVAILABLE")
    names = [{"name": "t"}, {"name": "u"}]
    response = await peer.ask(MetadataRequest.from_dict({"topics": names}), 12)
    assert {row.name: row.error_code for row in response.topics} == {"t": 5, "u": 3}
    faults.add(api="Metadata", topic="t", error="LEADER_NOT_AVAILABLE")
    response = await peer.ask(MetadataRequest.from_dict({"topics": names[:1]}), 12)
    assert [row.error_code for row in response.topics] == [5]
    assert [row.node_id for row in response.brokers] == [*stage.cluster.brokers]

    faults.add(api="CreateTopics", topic="a", error="POLICY_VIOLATION")
    topics = [{"name": name, "num_partitions": 1, "replication_factor": 1} for name in ("a", "b")]
    created = await peer.ask(CreateTopicsRequest.from_dict({"topics": topics}), 7)
    assert {row.name: row.error_code for row in created.topics} == {"a": 44, "b": 0}

    faults.add(api="DeleteTopics", topic="t", error="TOPIC_DELETION_DISABLED")
    deleted = await peer.ask(DeleteTopicsRequest(topic_names=["t", "b"]), 3)
    assert {row.name: row.error_code for row in deleted.responses} == {"t": 73, "b": 0}


@pytest.mark.parametrize("version", [3, 4])
async def test_errors_of_coordinators(stage: Stage, version: int) -> None:
    peer = await stage.peer()
    stage.cluster.faults.add(api="FindCoordinator", error="COORDINATOR_NOT_AVAILABLE")
    fields = {"coordinator_keys": ["g"]} if version >= 4 else {"key": "g"}
    response = await peer.ask(FindCoordinatorRequest.from_dict(fields), version)
    if version >= 4:
        assert [(row.key, row.error_code) for row in response.coordinators] == [("g", 15)]
    else:
        assert response.error_code == 15


async def test_errors_of_whole_responses(stage: Stage) -> None:
    peer = await stage.peer()
    stage.cluster.faults.add(api="ListGroups", error=15)
    assert (await peer.ask(ListGroupsRequest(), 4)).error_code == 15
    stage.cluster.faults.add(api="ApiVersions", error="REBOOTSTRAP_REQUIRED", applied=True)
    assert (await peer.ask(ApiVersionsRequest(), 0)).error_code == 129
    stage.cluster.faults.add(api="Fetch", error="FETCH_SESSION_ID_NOT_FOUND")
    assert (await peer.ask(FetchRequest(session_id=5, session_epoch=3), 12)).error_code == 70


async def test_a_refused_read_looks_like_one(stage: Stage) -> None:
    peer = await stage.peer()
    stage.cluster.faults.add(api="Fetch", error="NOT_LEADER_OR_FOLLOWER")
    asked = {"topic": "t", "partitions": [{"partition": 1, "fetch_offset": 3}]}
    response = await peer.ask(FetchRequest.from_dict({"topics": [asked]}), 12)
    ((answer,),) = (topic.partitions for topic in response.responses)
    assert (answer.partition_index, answer.error_code, answer.high_watermark) == (1, 6, -1)


async def test_every_api_has_room_for_an_error_or_is_known_to_have_none(stage: Stage) -> None:
    from kafka_async.embedded.context import RequestContext as Context

    none: set[str] = set()
    for key, route in stage.cluster.routes.items():
        for version in range(route.lowest, route.highest + 1):
            api = lookup(key)
            context = Context(stage.cluster, stage.cluster.brokers[1], key, version, None, "", 0.0)
            if Refusal(context, 7).whole(api.request()) is None:
                none.add(api.name)
    # With nothing in the request there is nothing to refuse one by one.
    assert none >= {"Produce", "Metadata", "ListOffsets", "OffsetCommit"}
    assert none.isdisjoint({"JoinGroup", "SyncGroup", "Heartbeat", "InitProducerId", "EndTxn"})


# -- failures of the cluster itself -------------------------------------------------------------


async def test_a_handler_that_raises_is_noted_and_answered(
    start_stage: StartStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = await start_stage()
    await stage.cluster.create_topic("t", 2)
    peer = await stage.peer()
    log = stage.cluster.topics.partition(TopicPartition("t", 0))
    assert log is not None

    def broken(records: object) -> float:
        return 1 / 0

    monkeypatch.setattr(log.log, "check_bytes", broken)
    assert set((await produce(peer, stage)).values()) == {-1}
    (failure,) = stage.cluster.failures
    assert failure.where == "Produce v11 at broker 1"
    assert isinstance(failure.error, ZeroDivisionError)
    stage.cluster.failures.clear()
    assert (await peer.ask(ASK, 12)).brokers


async def test_a_predicate_that_raises_ends_its_connection_only(start_stage: StartStage) -> None:
    stage = await start_stage()

    def broken(context: RequestContext, request: Any) -> bool:
        raise ZeroDivisionError

    fault = stage.cluster.faults.add(when=broken)
    one, two = await stage.peer(), await stage.peer()
    with pytest.raises(ConnectionResetError):
        await one.ask(ASK, 12)
    fault.remove()
    stage.cluster.faults.clear()
    assert (await two.ask(ASK, 12)).brokers
    (failure,) = stage.cluster.failures
    assert isinstance(failure.error, ZeroDivisionError)
    stage.cluster.failures.clear()


async def test_an_answer_that_cannot_be_written_ends_its_connection_only(
    start_stage: StartStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = await start_stage()
    peer = await stage.peer()
    monkeypatch.setattr(stage.cluster.brokers[1], "host", None)
    with pytest.raises(ConnectionResetError):
        await peer.ask(ASK, 12)
    (failure,) = stage.cluster.failures
    assert failure.where == "the answer to Metadata v12 at broker 1"
    stage.cluster.failures.clear()


async def test_a_timer_that_raises_is_noted(start_stage: StartStage) -> None:
    stage = await start_stage()
    stage.cluster.call_later(1, lambda: 1 / 0)
    await asyncio.sleep(2)
    (failure,) = stage.cluster.failures
    assert isinstance(failure.error, ZeroDivisionError)
    stage.cluster.failures.clear()


async def test_a_throttled_response_mutes_its_connection_alone(stage: Stage) -> None:
    peer, other = await stage.peer(), await stage.peer()
    stage.cluster.faults.add(api="Metadata", throttle=2.5)
    loop = asyncio.get_running_loop()
    begun = loop.time()
    assert (await peer.ask(ASK, 13)).throttle_time_ms == 2500
    assert loop.time() == begun
    assert (await other.ask(ASK, 13)).throttle_time_ms == 0
    assert loop.time() == begun
    assert (await peer.ask(ASK, 13)).throttle_time_ms == 0
    assert loop.time() - begun == pytest.approx(2.5)


async def test_a_muted_connection_that_is_lost_is_forgotten_at_once(stage: Stage) -> None:
    peer = await stage.peer()
    stage.cluster.faults.add(api="Metadata", throttle=1000.0)
    await peer.ask(ASK, 13)
    await peer.close()
    loop = asyncio.get_running_loop()
    begun = loop.time()
    async with asyncio.timeout(10):
        while stage.cluster.brokers[1].connections:  # noqa: ASYNC110  # virtual time
            await asyncio.sleep(0)
    assert loop.time() == begun
