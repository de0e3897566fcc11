"""The client against scripted brokers: start, metadata, routing, retries, the end of everything."""

from __future__ import annotations

import asyncio
import gc
import itertools
import logging
import os
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kafka_async.cluster.client import Client
from kafka_async.cluster.destinations import (
    AnyBroker,
    Broker,
    Controller,
    CoordinatorKind,
    Destination,
    GroupCoordinator,
    Leader,
    TransactionCoordinator,
)
from kafka_async.cluster.lane import LaneKind
from kafka_async.cluster.metadata import ClusterMetadata, LeaderHint
from kafka_async.errors import (
    BootstrapError,
    BrokerNotAvailableError,
    ClientClosedError,
    CoordinatorNotAvailableError,
    IllegalStateError,
    InvalidConfigurationError,
    InvalidTopicError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    LeaderNotAvailableError,
    RebootstrapRequiredError,
    TaskDiedError,
    UnknownTopicOrPartitionError,
)
from kafka_async.hooks import Hooks, Rebootstrapped
from kafka_async.protocol.messages.api_versions import ApiVersionsResponse
from kafka_async.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from kafka_async.protocol.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from kafka_async.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kafka_async.protocol.messages.metadata import MetadataResponse
from kafka_async.supervisor import Supervisor
from kafka_async.types import TopicPartition
from tests.cluster.scripted import FIND_COORDINATOR, METADATA, ScriptedBroker, World, always, until
from tests.embedded_client import InMemory

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]

HEARTBEAT, CREATE_TOPICS = HeartbeatRequest.API_KEY, CreateTopicsRequest.API_KEY
NOT_COORDINATOR, NOT_CONTROLLER, REBOOTSTRAP = 16, 41, 129
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def now() -> float:
    return asyncio.get_running_loop().time()


# -- start and stop -------------------------------------------------------------------------------


async def test_a_started_client_knows_the_cluster() -> None:
    world = World(brokers=3)
    async with world.client() as client:
        assert sorted(client.metadata.brokers) == [1, 2, 3]
        assert client.metadata.cluster_id == "world"
        assert client.finalized_feature("transaction.version") == 2
        assert client.finalized_feature("no.such") == 0
        assert client.clock.monotonic() == now()


async def test_nothing_is_left_of_a_stopped_client() -> None:
    world = World(brokers=2)
    async with world.client() as client:
        await client.request(HeartbeatRequest(group_id="g"), to=Broker(2))
        assert world.brokers[2].connections == 1
    await until(lambda: sum(broker.connections for broker in world.brokers.values()) == 0)
    await client.stop()
    with pytest.raises(ClientClosedError, match="closed"):
        _ = client.metadata


async def test_a_client_that_was_not_started_says_so() -> None:
    with pytest.raises(ClientClosedError, match="was not started"):
        _ = World().client().metadata


def fall_silent(broker: ScriptedBroker) -> None:
    broker.silent = True


@pytest.mark.parametrize(
    ("misbehave", "words"),
    [
        (fall_silent, "b1:9092: it accepts connections but does"),
    ],
)
async def test_a_wrong_address_ends_with_the_deadline_and_says_why(
    misbehave: Callable[[ScriptedBroker], None], words: str
) -> None:
    world = World()
    misbehave(world.brokers[1])
    begun = now()
    with pytest.raises(BootstrapError, match=words):
        await world.client(default_api_timeout_ms=5000).start()
    assert now() - begun == pytest.approx(5.0)


async def test_a_wrong_address_is_warned_of_once_until_what_is_wrong_changes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World(brokers=2)
    world.brokers[1].stop()
    world.brokers[2].stop()

    def warnings() -> list[str]:
        return [row.getMessage() for row in caplog.records if row.levelno == logging.WARNING]

    client = world.client(
        socket_connection_setup_timeout_ms=1000, bootstrap_refused_timeout_ms=60_000
    )
    starting = asyncio.create_task(client.start())
    await asyncio.sleep(5)
    (refused,) = warnings()
    assert "b1:9092: connection refused" in refused
    assert "b2:9092: connection refused" in refused
    assert refused.endswith("the client goes on trying")
    world.brokers[2].start()
    world.brokers[2].silent = True
    await asyncio.sleep(10)
    _, changed = warnings()
    assert "b1:9092: connection refused" in changed
    assert "b2:9092: it accepts connections but does not answer" in changed
    world.brokers[1].start()
    await starting
    assert len(warnings()) == 2
    await client.stop()


async def test_a_server_of_several_that_is_down_is_no_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World(brokers=2)
    world.brokers[1].stop()
    async with world.client():
        await asyncio.sleep(1)
    assert not [row for row in caplog.records if row.levelno >= logging.WARNING]


async def test_addresses_that_all_refuse_end_the_start_after_some_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(brokers=2)
    world.brokers[1].stop()
    world.brokers[2].stop()
    dials: Counter[str] = Counter()
    dial = world.network.dial

    def counted(factory: Any, host: str, port: int, **options: Any) -> Awaitable[Any]:
        dials[host] += 1
        return dial(factory, host, port, **options)

    monkeypatch.setattr(world.network, "dial", counted)
    begun = now()
    with pytest.raises(BootstrapError) as caught:
        await world.client().start()
    assert "b1:9092: connection refused: is the broker running" in str(caught.value)
    assert "b2:9092: connection refused: is the broker running" in str(caught.value)
    assert 4.0 <= now() - begun < 6.0
    assert min(dials[host] for host in ("b1", "b2")) >= 3


async def test_a_server_that_does_not_refuse_is_waited_for() -> None:
    world = World(brokers=2)
    world.brokers[1].stop()
    world.brokers[2].silent = True
    begun = now()
    with pytest.raises(BootstrapError, match="b2:9092: it accepts connections but does not answer"):
        await world.client(default_api_timeout_ms=20_000).start()
    assert now() - begun == pytest.approx(20.0)


async def test_a_broker_that_starts_within_these_seconds_is_used() -> None:
    world = World()
    world.brokers[1].stop()
    client = world.client()
    starting = asyncio.create_task(client.start())
    await asyncio.sleep(3)
    world.brokers[1].start()
    await starting
    await client.stop()


async def test_a_started_client_that_is_refused_keeps_retrying() -> None:
    world = World()
    async with world.client() as client:
        world.brokers[1].stop()
        asking = asyncio.create_task(client.request(HeartbeatRequest(group_id="g"), to=Broker(1)))
        await asyncio.sleep(30)
        world.brokers[1].start()
        assert (await asking).error_code == 0


async def test_stop_takes_no_time_when_there_is_nothing_to_write() -> None:
    world = World(brokers=3)
    client = world.client()
    await client.start()
    for node_id, broker in world.brokers.items():
        await client.request(HeartbeatRequest(group_id="g"), to=Broker(node_id))
        broker.silent = True
    pending = [
        client.submit(HeartbeatRequest(group_id="g"), to=Broker(node_id))
        for node_id in world.brokers
    ]
    await asyncio.sleep(1)
    begun = now()
    await client.stop()
    assert now() == begun
    assert all(isinstance(future.exception(), ClientClosedError) for future in pending)


async def test_what_cannot_get_better_ends_at_once() -> None:
    world = World()
    world.brokers[1].greeting = b"HTTP/1.1 400 Bad Request\r\n\r\n"
    begun = now()
    with pytest.raises(BootstrapError, match="it answers in HTTP"):
        await world.client().start()
    assert now() - begun < 1.0


async def test_every_server_that_was_tried_is_named() -> None:
    world = World(brokers=2)
    world.brokers[1].stop()
    world.brokers[2].silent = True
    with pytest.raises(BootstrapError) as caught:
        await world.client(default_api_timeout_ms=3000).start()
    assert "b1:9092: connection refused" in str(caught.value)
    assert "b2:9092: it accepts connections but does not answer" in str(caught.value)


async def test_one_good_server_is_enough() -> None:
    world = World(brokers=3)
    world.brokers[1].stop()
    world.brokers[2].stop()
    async with world.client() as client:
        assert sorted(client.metadata.brokers) == [3]


async def test_a_cluster_that_comes_up_late_is_waited_for() -> None:
    world = World()
    world.brokers[1].stop()
    client = world.client(bootstrap_refused_timeout_ms=30_000)
    starting = asyncio.create_task(client.start())
    await asyncio.sleep(20)
    world.brokers[1].start()
    await starting
    assert list(client.metadata.brokers) == [1]
    await client.stop()


async def test_cancelling_start_leaves_nothing() -> None:
    world = World()
    world.brokers[1].silent = True
    starting = asyncio.create_task(world.client().start())
    await until(lambda: world.brokers[1].connections == 1)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    await until(lambda: world.brokers[1].connections == 0)


async def test_a_client_belongs_to_its_process(monkeypatch: pytest.MonkeyPatch) -> None:
    async with World().client() as client:
        with monkeypatch.context() as patch:
            patch.setattr(os, "getpid", lambda: -1)
            with pytest.raises(IllegalStateError, match="fork"):
                await client.request(HeartbeatRequest(group_id="g"), to=AnyBroker())


async def test_a_client_that_is_forgotten_while_started_warns() -> None:
    world = World()
    client = world.client()
    await client.start()
    supervisor, parts = client.supervisor, client._parts  # pyright: ignore[reportPrivateUsage]
    with pytest.warns(ResourceWarning, match="started and never stopped"):  # noqa: PT031
        del client
        gc.collect()
    assert parts is not None
    await parts.brokers.close(ClientClosedError(), timeout=1)
    await supervisor.stop()


async def test_options_come_from_a_config_too() -> None:
    world = World()
    config = world.client(client_id="from-config").config
    async with Client.from_config(config, dialer=world.network) as client:
        assert client.config.client_id == "from-config"
    assert Client.from_properties({"bootstrap.servers": "a:1"}).config.bootstrap_servers == ("a:1",)


# -- requests -------------------------------------------------------------------------------------


async def test_requests_go_where_they_belong() -> None:
    world = World(brokers=3)
    world.add("t", 2, 3)
    world.coordinator, world.controller = 3, 2
    places: list[tuple[Destination, int]] = [
        (Broker(1), 1),
        (Leader(P0), 2),
        (Leader(P1), 3),
        (GroupCoordinator("g"), 3),
        (TransactionCoordinator("x"), 3),
        (Controller(), 2),
    ]
    async with world.client() as client:
        for to, expected in places:
            for broker in world.brokers.values():
                broker.seen.clear()
            await client.request(HeartbeatRequest(group_id="g"), to=to)
            found = [n for n, broker in world.brokers.items() if broker.asked(HEARTBEAT)]
            assert found == [expected], to
        await client.request(HeartbeatRequest(group_id="g"), to=AnyBroker())


async def test_a_submitted_request_may_be_awaited_later_or_forgotten() -> None:
    world = World()
    async with world.client() as client:
        first = client.submit(HeartbeatRequest(group_id="g"), to=Broker(1))
        client.submit(HeartbeatRequest(group_id="g"), to=Broker(9), timeout=1.0)
        assert isinstance(await first, HeartbeatResponse)
        last = client.submit(HeartbeatRequest(group_id="g"), to=Broker(9), timeout=1.0)
        with pytest.raises(BrokerNotAvailableError, match="no broker 9 now; it has 1"):
            await last


async def test_a_lost_connection_is_retried() -> None:
    world = World()

    def drop_once(peer: Any, header: Any, request: Any) -> None:
        del world.answers[HEARTBEAT]
        peer.drop()

    world.answers[HEARTBEAT] = drop_once
    async with world.client() as client:
        await client.request(HeartbeatRequest(group_id="g"), to=Broker(1))
        assert len(world.brokers[1].asked(HEARTBEAT)) == 2
        world.answers[HEARTBEAT] = drop_once
        with pytest.raises(KafkaConnectionError, match=r"b1:9092 \(broker 1\), general lane"):
            await client.request(HeartbeatRequest(group_id="g"), to=Broker(1), retry=False)


async def test_a_request_without_answer_ends_with_its_deadline() -> None:
    world = World()
    async with world.client() as client:
        world.brokers[1].held.add(HEARTBEAT)
        begun = now()
        with pytest.raises(KafkaTimeoutError, match="no answer to Heartbeat for 7 s"):
            await client.request(HeartbeatRequest(group_id="g"), to=Broker(1), timeout=7.0)
        assert now() - begun == pytest.approx(7.0)


async def test_retries_end_with_the_deadline() -> None:
    world = World()
    async with world.client() as client:
        world.brokers[1].stop()
        begun = now()
        with pytest.raises(KafkaTimeoutError, match="connection refused"):
            await client.request(HeartbeatRequest(group_id="g"), to=Broker(1), timeout=10.0)
        assert 8.0 < now() - begun <= 10.0


async def test_a_coordinator_that_moved_is_looked_up_again() -> None:
    world = World(brokers=2)
    world.brokers[1].answers[HEARTBEAT] = always(HeartbeatResponse(error_code=NOT_COORDINATOR))
    async with world.client() as client:
        asking = asyncio.create_task(
            client.request(HeartbeatRequest(group_id="g"), to=GroupCoordinator("g"), timeout=20.0)
        )
        await until(lambda: bool(world.brokers[1].asked(HEARTBEAT)))
        world.coordinator = 2
        assert (await asking).error_code == 0
        assert await client.coordinator(CoordinatorKind.GROUP, "g", timeout=1.0) == 2


async def test_an_answer_that_still_says_so_at_the_deadline_is_returned() -> None:
    world = World()
    world.answers[HEARTBEAT] = always(HeartbeatResponse(error_code=NOT_COORDINATOR))
    async with world.client() as client:
        answer = await client.request(
            HeartbeatRequest(group_id="g"), to=GroupCoordinator("g"), timeout=3.0
        )
        assert answer.error_code == NOT_COORDINATOR
        once = len(world.brokers[1].asked(HEARTBEAT))
        await client.request(HeartbeatRequest(group_id="g"), to=GroupCoordinator("g"), retry=False)
        assert len(world.brokers[1].asked(HEARTBEAT)) == once + 1


async def test_slow_requests_share_a_connection_apart_from_the_others() -> None:
    world = World()
    async with world.client() as client:
        await client.request(HeartbeatRequest(group_id="g"), to=Broker(1))
        world.brokers[1].held.add(CREATE_TOPICS)
        slow = client.submit(CreateTopicsRequest(), to=Controller(), timeout=20.0)
        await until(lambda: bool(world.brokers[1].asked(CREATE_TOPICS)))
        await client.request(HeartbeatRequest(group_id="g"), to=Broker(1))
        assert world.brokers[1].connections == 2
        with pytest.raises(KafkaTimeoutError):
            await slow
        world.brokers[1].held.clear()
        world.brokers[1].drop()
        for _ in range(3):
            await client.request(CreateTopicsRequest(), to=Controller())
        assert world.brokers[1].connections == 1


async def test_slow_requests_wait_for_their_brokers_throttle_window() -> None:
    world = World(brokers=2)
    world.answers[CREATE_TOPICS] = always(CreateTopicsResponse(throttle_time_ms=3000))
    async with world.client() as client:
        begun = now()
        sent: list[float] = []
        for _ in range(3):
            await client.request(CreateTopicsRequest(), to=Broker(1))
            sent.append(now() - begun)
        assert sent == pytest.approx([0.0, 3.0, 6.0])
        await client.request(CreateTopicsRequest(), to=Broker(2))
        assert now() - begun == pytest.approx(6.0)  # the other broker has a window of its own


async def test_the_version_can_be_bounded() -> None:
    world = World()
    async with world.client() as client:
        await client.request(HeartbeatRequest(group_id="g"), to=Broker(1), max_version=2)
        await client.request(HeartbeatRequest(group_id="g"), to=Broker(1))
    versions = [h.api_version for h, _ in world.brokers[1].seen if h.api_key == HEARTBEAT]
    assert versions == [2, 4]


@pytest.mark.parametrize("steps", range(12))
async def test_a_request_may_be_cancelled_at_any_step(steps: int) -> None:
    world = World(brokers=2)
    world.add("t", 2)
    async with world.client() as client:
        asking = asyncio.create_task(client.request(HeartbeatRequest(group_id="g"), to=Leader(P0)))
        for _ in range(steps):
            await asyncio.sleep(0)
        asking.cancel()
        await asyncio.wait([asking])
        assert isinstance(
            await client.request(HeartbeatRequest(group_id="g"), to=Leader(P0), timeout=1.0),
            HeartbeatResponse,
        )


@pytest.mark.parametrize("allowed", [["b?", "*.corp"], "b?,*.corp", "b1"])
async def test_brokers_elsewhere_are_refused_if_only_some_are_allowed(allowed: Any) -> None:
    world = World(brokers=2)
    world.brokers[2].host = "evil.example"
    async with world.client("b1:9092", allowed_broker_hosts=allowed) as client:
        await client.request(HeartbeatRequest(group_id="g"), to=Broker(1))
        with pytest.raises(InvalidConfigurationError, match=r"evil\.example:9092 .*allowed_broker"):
            await client.request(HeartbeatRequest(group_id="g"), to=Broker(2), timeout=5.0)


# -- coordinators ---------------------------------------------------------------------------------


async def test_a_coordinator_is_looked_up_once() -> None:
    world = World(brokers=2)
    world.coordinator = 2
    async with world.client() as client:
        for _ in range(3):
            assert await client.coordinator(CoordinatorKind.GROUP, "g", timeout=1.0) == 2
        asked = [broker.asked(FIND_COORDINATOR) for broker in world.brokers.values()]
        assert sum(map(len, asked)) == 1
        client.forget_coordinator(CoordinatorKind.GROUP, "g")
        world.coordinator = 1
        assert await client.coordinator(CoordinatorKind.GROUP, "g", timeout=1.0) == 1


@pytest.mark.parametrize(("version", "requests"), [(3, 3), (6, 1)])
async def test_several_keys_are_one_request_where_that_is_known(
    version: int, requests: int
) -> None:
    world = World()
    world.max_versions[FIND_COORDINATOR] = version
    async with world.client() as client:
        found = await client.coordinators(CoordinatorKind.GROUP, ["a", "b", "c"], timeout=5.0)
        assert found == {"a": 1, "b": 1, "c": 1}
        assert len(world.brokers[1].asked(FIND_COORDINATOR)) == requests


async def test_a_coordinator_that_is_not_there_yet_is_asked_for_until_the_deadline() -> None:
    world = World()
    rows = [Coordinator(key="g", node_id=-1, error_code=15, error_message=None)]
    world.answers[FIND_COORDINATOR] = always(FindCoordinatorResponse(coordinators=rows))
    async with world.client() as client:
        with pytest.raises(CoordinatorNotAvailableError, match="g"):
            await client.coordinator(CoordinatorKind.GROUP, "g", timeout=3.0)
        finding = asyncio.create_task(client.coordinator(CoordinatorKind.GROUP, "g", timeout=9.0))
        await asyncio.sleep(2)
        del world.answers[FIND_COORDINATOR]
        assert await finding == 1


# -- metadata -------------------------------------------------------------------------------------


async def test_metadata_of_a_topic_is_waited_for() -> None:
    async with InMemory() as memory, memory.client() as client:
        waiting = asyncio.create_task(client.metadata_for(["t"], timeout=30.0))
        await asyncio.sleep(5)
        assert not waiting.done()
        await memory.cluster.create_topic("t", 2)
        assert (await waiting).partitions("t") == 2


async def test_a_topic_that_does_not_come_is_unknown() -> None:
    async with InMemory() as memory, memory.client() as client:
        begun = now()
        with pytest.raises(UnknownTopicOrPartitionError, match=r"^t: "):
            await client.metadata_for(["t"], timeout=5.0)
        assert 3.0 < now() - begun <= 5.0


async def test_a_topic_that_can_never_be_is_refused_at_once() -> None:
    async with InMemory() as memory, memory.client() as client:
        begun = now()
        with pytest.raises(InvalidTopicError):
            await client.metadata_for(["no/name"], timeout=5.0)
        assert now() - begun < 1.0


async def test_a_topic_is_created_only_if_that_is_asked_for() -> None:
    async with InMemory(auto_create_topics=True) as memory, memory.client() as client:
        with pytest.raises(UnknownTopicOrPartitionError):
            await client.metadata_for(["t"], timeout=1.0)
        cluster = await client.metadata_for(["t"], timeout=1.0, allow_auto_create=True)
        assert cluster.partitions("t") == 1


async def test_without_an_answer_the_deadline_says_why() -> None:
    world = World()
    async with world.client() as client:
        world.brokers[1].stop()
        with pytest.raises(KafkaTimeoutError, match=r"no metadata within 5 s.*refused"):
            await client.metadata_for(["t"], timeout=5.0)


async def test_topics_are_found_by_id() -> None:
    async with InMemory() as memory, memory.client() as client:
        topic = await memory.cluster.create_topic("t")
        cluster = await client.refresh_metadata(topic_ids=[topic.id])
        assert cluster.topic_name(topic.id) == "t"


async def test_all_topics_can_be_asked_for() -> None:
    async with InMemory() as memory, memory.client() as client:
        await memory.cluster.create_topic("t")
        await memory.cluster.create_topic("u")
        assert client.metadata.topics == {}
        assert sorted((await client.refresh_metadata(all_topics=True)).topics) == ["t", "u"]


async def test_tracked_topics_are_asked_for_at_once_and_kept_fresh() -> None:
    world = World(brokers=2)
    world.add("t", 1)
    async with world.client(metadata_max_age_ms=60_000) as client:
        client.track_topics(["t"])
        await until(lambda: client.metadata.leader(P0) == (1, 0))
        world.topics["t"], world.epochs["t"] = [2], 1
        await asyncio.sleep(61)
        assert client.metadata.leader(P0) == (2, 1)


async def test_topics_nobody_tracks_are_forgotten_after_a_while() -> None:
    world = World()
    world.add("t", 1)
    async with world.client(metadata_max_age_ms=60_000) as client:
        client.track_topics(["t"])
        client.track_topics(["t"])
        await until(lambda: client.metadata.topic("t") is not None)
        client.untrack_topics(["t"])
        await asyncio.sleep(200)
        assert client.metadata.topic("t") is not None
        client.untrack_topics(["t"])
        await asyncio.sleep(200)
        assert client.metadata.topic("t") is None


async def test_a_nudge_renews_metadata_and_many_are_one() -> None:
    world = World(brokers=2)
    world.add("t", 1)
    async with world.client() as client:
        client.track_topics(["t"])
        await until(lambda: client.metadata.leader(P0) is not None)
        before = sum(len(broker.asked(METADATA)) for broker in world.brokers.values())
        world.topics["t"], world.epochs["t"] = [2], 1
        for _ in range(100):
            client.request_metadata_update()
        await until(lambda: client.metadata.leader(P0) == (2, 1))
        await asyncio.sleep(1)
        after = sum(len(broker.asked(METADATA)) for broker in world.brokers.values())
        assert after == before + 1


async def test_a_nudge_about_topics_that_are_asked_for_anyway_asks_no_second_time() -> None:
    world = World(brokers=1)
    world.add("t", 1)
    async with world.client() as client:
        before = len(asked(world))
        client.track_topics(["t"])
        client.request_metadata_update()
        await asyncio.sleep(10)
        assert [list(topics) for topics in asked(world, before)] == [["t"]]


async def test_a_tracked_topic_without_leader_is_asked_about_again_but_not_in_a_storm() -> None:
    world = World()
    world.add("t", -1)
    async with world.client() as client:
        client.track_topics(["t"])
        await asyncio.sleep(10)
        assert 8 <= len(world.brokers[1].asked(METADATA)) <= 25
        world.topics["t"], world.epochs["t"] = [1], 1
        await asyncio.sleep(1.5)
        assert client.metadata.leader(P0) == (1, 1)


async def test_a_leader_is_waited_for() -> None:
    world = World()
    world.add("t", -1)
    async with world.client() as client:
        with pytest.raises(LeaderNotAvailableError, match="t-0"):
            await client.request(HeartbeatRequest(group_id="g"), to=Leader(P0), timeout=2.0)
        asking = client.submit(HeartbeatRequest(group_id="g"), to=Leader(P0), timeout=20.0)
        await asyncio.sleep(1)
        world.topics["t"] = [1]
        await asking


def asked(world: World, since: int = 0) -> list[list[str]]:
    """The topics of each metadata request but so many."""
    requests = world.brokers[1].asked(METADATA)[since:]
    return [[topic.name for topic in request.topics] for request in requests]


async def test_one_topic_more_is_asked_for_without_those_that_are_tracked() -> None:
    world = World()
    for name in ("t", "u", "v"):
        world.add(name, 1)
    async with world.client() as client:
        client.track_topics(["t", "u"])
        await until(lambda: len(client.metadata.topics) == 2)
        before = len(asked(world))
        await client.metadata_for(["v"], timeout=1.0)
        assert sorted(client.metadata.topics) == ["t", "u", "v"]
        assert asked(world, before) == [["v"]]


async def test_thousands_of_topics_are_asked_for_some_hundred_a_request() -> None:
    world = World()
    names = [f"topic-{number:04}" for number in range(300)]
    for name in names:
        world.add(name, 1)
    async with world.client() as client:
        heard: list[ClusterMetadata] = []
        client.on_metadata(heard.append)
        before = len(asked(world))
        client.track_topics(names)
        await until(lambda: len(client.metadata.topics) == len(names))
        assert asked(world, before) == [names[:125], names[125:250], names[250:]]
        await client.refresh_metadata()
        assert [len(some) for some in asked(world, before + 3)] == [125, 125, 50]
        assert [len(metadata.topics) for metadata in heard] == [len(names)] * 2


async def test_only_what_lacks_a_leader_is_asked_about_again() -> None:
    world = World()
    world.add("t", -1)
    world.add("u", 1)
    async with world.client() as client:
        client.track_topics(["t", "u"])
        await until(lambda: len(client.metadata.topics) == 2)
        before = len(asked(world))
        await asyncio.sleep(5)
        again = asked(world, before)
        assert again == [["t"]] * len(again)
        assert again


async def test_small_rounds_that_keep_coming_do_not_put_off_a_nudge() -> None:
    world = World(brokers=1)
    for name in ("t", *map(str, range(100))):
        world.add(name, 1)
    async with world.client(retry_backoff_ms=100) as client:
        client.track_topics(["t"])
        await until(lambda: client.metadata.leader(P0) is not None)
        before = len(asked(world))
        client.request_metadata_update()
        for name in map(str, range(100)):
            await client.metadata_for([name], timeout=1.0)
            await asyncio.sleep(0.01)
        assert any("t" in topics for topics in asked(world, before))


async def test_many_hints_are_one_change() -> None:
    world = World(brokers=2)
    world.add("t", 1, 1)
    async with world.client() as client:
        await client.metadata_for(["t"], timeout=1.0)
        heard: list[ClusterMetadata] = []
        client.on_metadata(heard.append)
        client.note_leaders([LeaderHint(P0, 2, 1), LeaderHint(P1, 2, 3), LeaderHint(P1, 1, 2)])
        assert [client.metadata.leader(each) for each in (P0, P1)] == [(2, 1), (2, 3)]
        client.note_leaders([LeaderHint(P0, 1, 0)])
        assert heard == [client.metadata]


async def test_a_hint_at_a_leader_is_taken_in() -> None:
    world = World(brokers=2)
    world.add("t", 1)
    async with world.client() as client:
        cluster = await client.metadata_for(["t"], timeout=1.0)
        heard: list[object] = []
        stop = client.on_metadata(heard.append)
        client.note_leader(P0, 2, 1, cluster.brokers[2])
        client.note_leader(P0, 1, 0, cluster.brokers[1])
        assert client.metadata.leader(P0) == (2, 1)
        assert heard == [client.metadata]
        stop()
        stop()
        client.note_leader(P0, 1, 2)
        assert len(heard) == 1


async def test_hints_that_keep_coming_do_not_hold_up_large_metadata(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    world.add("t", 1)
    world.add("wide", *[1] * 1_001)
    merged = ClusterMetadata.merged
    async with world.client() as client:
        await client.metadata_for(["t"], timeout=1.0)
        epochs = itertools.count(1)

        def hinted(*args: Any, **options: Any) -> ClusterMetadata:
            client.note_leader(P0, 1, next(epochs))
            return merged(*args, **options)

        monkeypatch.setattr(ClusterMetadata, "merged", hinted)
        async with asyncio.timeout(5):
            cluster = await client.metadata_for(["wide"], timeout=1.0)
        assert cluster.partitions("wide") == 1_001


@pytest.mark.parametrize("tracked", [True, False], ids=["tracked", "untracked"])
async def test_what_is_tracked_while_large_metadata_is_merged_counts(
    monkeypatch: pytest.MonkeyPatch, tracked: bool
) -> None:
    world = World()
    world.add("late", -1)
    world.add("wide", *[1] * 1_001)

    async def offload(_: Supervisor, function: Callable[..., Any], *args: Any) -> Any:
        (client.untrack_topics if tracked else client.track_topics)(["late"])
        result = function(*args)
        (client.track_topics if tracked else client.untrack_topics)(["late"])
        return result

    monkeypatch.setattr(Supervisor, "offload", offload)
    async with world.client() as client:
        await client.metadata_for(["late", "wide"], timeout=1.0)
        await client.refresh_metadata()
        before = len(asked(world))
        await asyncio.sleep(5)
        again = asked(world, before)
        assert again == [["late"]] * len(again)
        assert bool(again) == tracked


async def test_a_broker_that_knows_no_brokers_is_asked_again() -> None:
    world = World()
    world.answers[METADATA] = always(MetadataResponse())
    client = world.client()
    starting = asyncio.create_task(client.start())
    await asyncio.sleep(5)
    assert not starting.done()
    assert len(world.brokers[1].asked(METADATA)) <= 12
    del world.answers[METADATA]
    await starting
    await client.stop()


# -- rebootstrap ----------------------------------------------------------------------------------


def heard_of(hooks: Hooks) -> list[str]:
    reasons: list[str] = []
    hooks.listen(Rebootstrapped, lambda event: reasons.append(event.reason))
    return reasons


async def test_when_all_known_brokers_are_gone_the_servers_are_asked_again() -> None:
    world = World(brokers=3)
    hooks = Hooks()
    reasons = heard_of(hooks)
    world.brokers[3].stop()
    async with world.client("b1:9092,b2:9092,b3:9092", hooks=hooks) as client:
        assert sorted(client.metadata.brokers) == [1, 2]
        world.brokers[3].start()
        world.brokers[1].stop()
        world.brokers[2].stop()
        await asyncio.sleep(1)
        cluster = await client.refresh_metadata(timeout=20.0)
        assert sorted(cluster.brokers) == [3]
        assert reasons == ["no known broker is available"]


async def test_the_strategy_none_waits_for_the_brokers_it_knows() -> None:
    world = World(brokers=2)
    world.brokers[2].stop()
    async with world.client(metadata_recovery_strategy="none") as client:
        world.brokers[2].start()
        world.brokers[1].stop()
        with pytest.raises(KafkaTimeoutError):
            await client.refresh_metadata(timeout=20.0)
        world.brokers[1].start()
        assert sorted((await client.refresh_metadata(timeout=20.0)).brokers) == [1, 2]


async def test_brokers_that_answer_nothing_for_the_triggers_time_are_given_up() -> None:
    world = World(brokers=2)
    hooks = Hooks()
    reasons = heard_of(hooks)
    world.brokers[2].stop()
    async with world.client(
        hooks=hooks, metadata_recovery_rebootstrap_trigger_ms=40_000, request_timeout_ms=10_000
    ) as client:
        world.brokers[2].start()
        world.brokers[1].held.add(METADATA)
        cluster = await client.refresh_metadata(timeout=120.0)
        assert reasons == ["no metadata for 40 s"]
        assert sorted(cluster.brokers) == [1, 2]


async def test_a_broker_may_ask_for_it_and_what_was_under_way_fails() -> None:
    world = World(brokers=2)
    hooks = Hooks()
    reasons = heard_of(hooks)
    async with world.client("b2:9092", hooks=hooks) as client:
        world.brokers[1].held.add(HEARTBEAT)
        lane = client.lane(1, LaneKind.COORDINATOR, None)
        parked = asyncio.create_task(lane.send(HeartbeatRequest(group_id="g"), timeout=100.0))
        await until(lambda: bool(world.brokers[1].asked(HEARTBEAT)))

        def once(peer: Any, header: Any, request: Any) -> MetadataResponse:
            world.answers.clear()
            return MetadataResponse(error_code=REBOOTSTRAP)

        world.answers[METADATA] = once
        await client.refresh_metadata(timeout=20.0)
        assert len(reasons) == 1
        assert "REBOOTSTRAP_REQUIRED" in reasons[0]
        with pytest.raises(KafkaConnectionError, match="bootstraps again"):
            await parked
        world.brokers[1].held.clear()
        assert isinstance(
            await lane.send(HeartbeatRequest(group_id="g"), timeout=1.0), HeartbeatResponse
        )


async def test_a_stranger_at_a_brokers_address_is_a_reason_too() -> None:
    world = World(brokers=2)
    hooks = Hooks()
    reasons = heard_of(hooks)
    async with world.client("b2:9092", hooks=hooks) as client:
        world.brokers[1].drop()
        world.brokers[2].drop()
        for broker in world.brokers.values():
            broker.answers[18] = always(ApiVersionsResponse(error_code=REBOOTSTRAP))
        updating = asyncio.create_task(client.refresh_metadata(timeout=20.0))
        await until(lambda: bool(reasons))
        for broker in world.brokers.values():
            broker.answers.clear()
        await updating


@pytest.mark.parametrize("strategy", ["rebootstrap", "none"])
async def test_a_request_never_raises_that_a_rebootstrap_is_required(strategy: Any) -> None:
    world = World(brokers=2)
    async with world.client("b1:9092", metadata_recovery_strategy=strategy) as client:
        refused = always(ApiVersionsResponse(error_code=REBOOTSTRAP))
        world.brokers[2].answers[18] = refused
        with pytest.raises(KafkaConnectionError, match="another broker or cluster") as raised:
            await client.request(HeartbeatRequest(group_id="g"), to=Broker(2), retry=False)
        assert isinstance(raised.value.__cause__, RebootstrapRequiredError)
        asking = asyncio.create_task(client.request(HeartbeatRequest(group_id="g"), to=Broker(2)))
        await asyncio.sleep(3)
        world.brokers[2].answers.clear()
        assert (await asking).error_code == 0


async def test_without_rebootstrap_brokers_are_not_asked_who_they_are() -> None:
    world = World(brokers=2)
    async with world.client(metadata_recovery_strategy="none") as client:
        await client.request(HeartbeatRequest(group_id="g"), to=Broker(2))
        asked = [request for broker in world.brokers.values() for request in broker.asked(18)]
        assert {(request.cluster_id, request.node_id) for request in asked} == {(None, -1)}


# -- the end --------------------------------------------------------------------------------------


async def pending(client: Client, world: World) -> list[Awaitable[object]]:
    world.brokers[1].held.add(HEARTBEAT)
    lane = client.lane(1, LaneKind.FETCH, None)
    await lane.connect(1.0)
    waits: list[Awaitable[object]] = [
        lane.submit(HeartbeatRequest(group_id="g"), timeout=100.0),
        asyncio.ensure_future(client.request(HeartbeatRequest(group_id="g"), to=Broker(1))),
        asyncio.ensure_future(client.metadata_for(["nowhere"], timeout=100.0)),
        asyncio.ensure_future(client.pause(100.0)),
        client.submit(HeartbeatRequest(group_id="g"), to=Broker(1)),
    ]
    await asyncio.sleep(1)
    return waits


async def test_stopping_fails_everything_that_waits() -> None:
    world = World()
    client = world.client()
    await client.start()
    waits = await pending(client, world)
    begun = now()
    await client.stop()
    for outcome in await asyncio.gather(*waits, return_exceptions=True):
        assert isinstance(outcome, ClientClosedError)
    assert now() - begun < 1.0


async def test_a_task_that_dies_fails_everything_that_waits_at_once() -> None:
    world = World()
    client = world.client()
    await client.start()
    waits = await pending(client, world)
    begun = now()

    async def die() -> None:
        raise ZeroDivisionError("a bug")

    client.supervisor.spawn(die, name="doomed")
    for outcome in await asyncio.gather(*waits, return_exceptions=True):
        assert isinstance(outcome, TaskDiedError)
    assert now() == begun
    with pytest.raises(TaskDiedError):
        await client.request(HeartbeatRequest(group_id="g"), to=Broker(1))
    await client.stop()


async def test_a_listener_that_raises_is_a_bug_and_ends_the_client() -> None:
    world = World()
    client = world.client()
    await client.start()

    def listener(_: object) -> None:
        raise ZeroDivisionError

    client.on_metadata(listener)
    with pytest.raises(KafkaError):
        await client.refresh_metadata(timeout=5.0)
    with pytest.raises(TaskDiedError):
        _ = client.metadata
    await client.stop()
