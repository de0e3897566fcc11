"""Tests of `Client`: start, metadata, routing, retries, rebootstrap, stop."""

from __future__ import annotations

import asyncio
import gc
import itertools
import logging
import re
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async.client.client import Client, services_of
from kafka_async.client.connection.broker_connection import ConnectionKind
from kafka_async.client.metadata.coordinator_lookup import CoordinatorKind, CoordinatorLookup
from kafka_async.client.metadata.metadata import ClusterMetadata, LeaderHint
from kafka_async.client.metadata.request_router import (
    AnyBroker,
    Broker,
    Controller,
    CoordinatorOfGroup,
    CoordinatorOfTransactionalId,
    Destination,
    Leader,
)
from kafka_async.embedded import EmbeddedCluster
from kafka_async.errors import (
    BootstrapError,
    BrokerNotAvailableError,
    ClientClosedError,
    CoordinatorNotAvailableError,
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
from kafka_async.foundation.memory_network import MemoryNetwork
from kafka_async.foundation.supervisor import Supervisor
from kafka_async.hooks import Rebootstrapped
from kafka_async.protocol.messages.api_versions import ApiVersionsRequest
from kafka_async.protocol.messages.create_topics import CreateTopicsRequest
from kafka_async.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafka_async.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kafka_async.protocol.messages.list_groups import ListGroupsRequest
from kafka_async.protocol.messages.metadata import MetadataRequest
from kafka_async.types import TopicPartition
from tests.client.scripted import World
from tests.embedded_client import InMemory, now, until

if TYPE_CHECKING:
    from kafka_async.client.metadata.metadata_updater import MetadataUpdater

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]

NOT_COORDINATOR, UNKNOWN_MEMBER_ID = 16, 25
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
REQUEST = ListGroupsRequest()
"""A request that every broker can handle."""
HEARTBEAT = HeartbeatRequest(group_id="g", member_id="m")
"""A request that the coordinator of group g rejects with UNKNOWN_MEMBER_ID."""


async def find(coordinators: CoordinatorLookup, timeout: float = 1.0) -> int:
    """Look the coordinator of group g up."""
    return await coordinators.find(CoordinatorKind.GROUP, "g", timeout=timeout)


async def topic(memory: InMemory, name: str, *leaders: int) -> None:
    """Create a topic whose partitions have one replica each, at these brokers."""
    assignments = {index: [leader] for index, leader in enumerate(leaders or (1,))}
    await memory.cluster.create_topic(name, assignments=assignments)


@asynccontextmanager
async def updater(
    memory: InMemory, *brokers: int, track: str = "", **options: Any
) -> AsyncGenerator[MetadataUpdater]:
    """Start a client and yield its metadata, with the tracked topics fetched."""
    async with memory.client(*brokers, **options) as client:
        metadata = services_of(client).metadata
        if track:
            metadata.track(track.split())
            await until(lambda: set(metadata.snapshot.topics) == set(track.split()))
        yield metadata


def metadata_requests(memory: InMemory, since: int = 0) -> list[list[str | None]]:
    """Return the topics of each metadata request after the first `since`."""
    requests = memory.requests(MetadataRequest)[since:]
    return [[topic.name for topic in request.topics or ()] for request in requests]


# -- start and stop -------------------------------------------------------------------------------


async def test_start_fetches_brokers_and_features() -> None:
    async with InMemory(3) as memory, memory.client() as client:
        services = services_of(client)
        assert sorted(services.metadata.snapshot.brokers) == [1, 2, 3]
        assert services.metadata.snapshot.cluster_id == memory.cluster.settings.cluster_id
        assert services.brokers.finalized_feature("transaction.version") == 2
        assert services.brokers.finalized_feature("no.such") == 0
        assert services.clock.monotonic() == now()


async def test_stop_closes_every_connection() -> None:
    async with InMemory(2) as memory:
        async with memory.client() as client:
            await client.request(REQUEST, to=Broker(2))
            assert memory.connections(2) == 1
        await until(lambda: memory.connections() == 0)
        await client.stop()
        with pytest.raises(ClientClosedError, match="closed"):
            services_of(client)


async def test_services_raise_before_start() -> None:
    with pytest.raises(ClientClosedError, match="was not started"):
        services_of(Client("a:1"))


async def test_start_fails_at_deadline_if_server_does_not_respond() -> None:
    async with InMemory() as memory:
        memory.hang()
        start = now()
        with pytest.raises(
            BootstrapError, match=r"127\.0\.0\.1:9092: it accepts connections but does"
        ):
            await memory.client(default_api_timeout_ms=5000).start()
        assert now() - start == pytest.approx(5.0)


async def test_start_waits_for_a_server_that_does_not_refuse_and_names_each_cause() -> None:
    async with InMemory(2) as memory:
        await memory.cluster.stop_broker(1)
        memory.hang(broker=2)
        start = now()
        with pytest.raises(BootstrapError) as caught:
            await memory.client(default_api_timeout_ms=20_000).start()
        assert now() - start == pytest.approx(20.0)
        assert f"{memory.address(1)}: connection refused" in str(caught.value)
        silent = f"{memory.address(2)}: it accepts connections but does not answer"
        assert silent in str(caught.value)


async def test_start_warns_once_of_unreachable_servers_until_the_cause_changes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def warnings() -> list[str]:
        return [row.getMessage() for row in caplog.records if row.levelno == logging.WARNING]

    async with InMemory(2) as memory:
        one, two = memory.address(1), memory.address(2)
        await memory.cluster.stop_broker(1)
        await memory.cluster.stop_broker(2)
        client = memory.client(
            socket_connection_setup_timeout_ms=1000, bootstrap_refused_timeout_ms=60_000
        )
        starting = asyncio.create_task(client.start())
        await asyncio.sleep(5)
        (refused,) = warnings()
        assert f"{one}: connection refused" in refused
        assert f"{two}: connection refused" in refused
        assert re.search("the client retries for up to 5[789] s more$", refused)
        memory.hang(broker=2)
        await memory.cluster.start_broker(2)
        await asyncio.sleep(10)
        _, changed = warnings()
        assert f"{one}: connection refused" in changed
        assert f"{two}: it accepts connections but does not answer" in changed
        await memory.cluster.start_broker(1)
        await starting
        assert len(warnings()) == 2
        await client.stop()


async def test_warning_of_a_start_names_the_time_until_refused_servers_end_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with InMemory() as memory:
        await memory.cluster.stop_broker(1)
        with pytest.raises(BootstrapError, match="connection refused"):
            await memory.client(bootstrap_refused_timeout_ms=4_000).start()
    (warning,) = [row.getMessage() for row in caplog.records if row.levelno == logging.WARNING]
    assert re.search("the client retries for up to [23] s more$", warning)


async def test_start_does_not_announce_retries_before_a_permanent_failure(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Connects to a broker that closes each connection, as the port of a TLS listener does."""
    async with InMemory() as memory:
        memory.cluster.faults.add(disconnect="before", count=None)
        with pytest.raises(BootstrapError, match="or a TLS port"):
            await memory.client().start()
        assert now() < 2
    assert not [row for row in caplog.records if row.levelno >= logging.WARNING]


async def test_start_needs_one_server_that_responds_and_does_not_warn_of_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with InMemory(3) as memory:
        await memory.cluster.stop_broker(1)
        await memory.cluster.stop_broker(2)
        async with updater(memory) as metadata:
            assert sorted(metadata.snapshot.brokers) == [3]
            await asyncio.sleep(1)
    assert not [row for row in caplog.records if row.levelno >= logging.WARNING]


async def test_start_fails_after_refused_timeout_if_every_server_refuses() -> None:
    async with InMemory(2) as memory:
        for broker in (1, 2):
            await memory.cluster.stop_broker(broker)
        start = now()
        with pytest.raises(BootstrapError) as caught:
            await memory.client().start()
        assert 4.0 <= now() - start < 6.0
        for broker in (1, 2):
            refused = f"{memory.address(broker)}: connection refused: is the broker running"
            assert refused in str(caught.value)
            assert memory.attempts(broker) >= 3


async def test_start_fails_after_refused_timeout_if_no_name_can_be_resolved() -> None:
    """A name that cannot be resolved is retried as long as a refused connection."""
    attempts: list[str] = []

    class Unresolved(MemoryNetwork):
        async def dial(self, protocol_factory: Any, host: str, *_: Any, **__: Any) -> Any:
            attempts.append(host)
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    start = now()
    with pytest.raises(BootstrapError, match=r"kafak\.example:9092: its name cannot be resolved"):
        await Client("kafak.example:9092", dialer=Unresolved()).start()
    assert 4.0 <= now() - start < 6.0
    assert len(attempts) >= 3


@pytest.mark.parametrize(
    ("seconds", "options"), [(3, {}), (20, {"bootstrap_refused_timeout_ms": 30_000})]
)
async def test_start_succeeds_when_a_refusing_server_comes_up_within_the_refused_timeout(
    seconds: float, options: dict[str, Any]
) -> None:
    async with InMemory() as memory:
        await memory.cluster.stop_broker(1)
        client = memory.client(**options)
        starting = asyncio.create_task(client.start())
        await asyncio.sleep(seconds)
        await memory.cluster.start_broker(1)
        await starting
        assert list(services_of(client).metadata.snapshot.brokers) == [1]
        await client.stop()


async def test_started_client_keeps_retrying_broker_that_refuses() -> None:
    async with InMemory() as memory, memory.client() as client:
        await memory.cluster.stop_broker(1)
        requesting = asyncio.create_task(client.request(REQUEST, to=Broker(1)))
        await asyncio.sleep(30)
        assert not requesting.done()
        await memory.cluster.start_broker(1)
        assert (await requesting).error_code == 0


async def test_start_fails_at_once_if_server_is_not_kafka() -> None:
    world = World()
    world.brokers[1].greeting = b"HTTP/1.1 400 Bad Request\r\n\r\n"
    start = now()
    with pytest.raises(BootstrapError, match="it answers in HTTP"):
        await world.client().start()
    assert now() - start < 1.0


async def test_cancelled_start_closes_its_connection() -> None:
    async with InMemory() as memory:
        frozen = memory.hang()
        starting = asyncio.create_task(memory.client().start())
        await frozen.wait()
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert memory.connections() == 1  # the broker notices with its response
        frozen.release()
        await until(lambda: memory.connections() == 0)


async def test_garbage_collection_of_started_client_warns() -> None:
    async with InMemory() as memory:
        client = memory.client()
        await client.start()
        services = services_of(client)
        with pytest.warns(ResourceWarning, match="started and never stopped"):  # noqa: PT031
            del client
            gc.collect()
        await services.brokers.close(ClientClosedError(), timeout=1)
        await services.supervisor.stop()


# -- requests -------------------------------------------------------------------------------------


async def test_requests_are_sent_to_their_destination() -> None:
    async with InMemory(3) as memory:
        await topic(memory, "t", 2, 3)
        places: list[tuple[Destination, int]] = [
            (Broker(1), 1),
            (Leader(P0), 2),
            (Leader(P1), 3),
            (CoordinatorOfGroup(memory.coordinated_by(3)), 3),
            (CoordinatorOfTransactionalId(memory.coordinated_by(2)), 2),
            (Controller(), 1),
        ]
        async with memory.client(3, 2) as client:
            for to, expected in places:
                memory.received.clear()
                await client.request(REQUEST, to=to)
                found = [n for n in memory.cluster.brokers if memory.requests(type(REQUEST), n)]
                assert found == [expected], to
            await client.request(REQUEST, to=AnyBroker())


async def test_request_to_a_broker_that_does_not_exist_fails() -> None:
    async with InMemory() as memory, memory.client() as client:
        with pytest.raises(BrokerNotAvailableError, match="no broker 9 now; it has 1"):
            await client.request(REQUEST, to=Broker(9), timeout=1.0)


async def test_retries_a_request_whose_connection_is_lost() -> None:
    async with InMemory() as memory, memory.client() as client:
        memory.cluster.faults.add(api="ListGroups", disconnect="before")
        await client.request(REQUEST, to=Broker(1))
        assert len(memory.requests(ListGroupsRequest)) == 2
        memory.cluster.faults.add(api="ListGroups", disconnect="before")
        place = rf"{memory.address(1)} \(broker 1\), general connection"
        with pytest.raises(KafkaConnectionError, match=place):
            await client.request(REQUEST, to=Broker(1), retry=False)
        assert len(memory.requests(ListGroupsRequest)) == 3


async def test_request_without_response_fails_at_deadline() -> None:
    async with InMemory() as memory, memory.client() as client:
        memory.hang("ListGroups")
        start = now()
        with pytest.raises(KafkaTimeoutError, match="no response to ListGroups for 7 s"):
            await client.request(REQUEST, to=Broker(1), timeout=7.0)
        assert now() - start == pytest.approx(7.0)


async def test_stops_retrying_at_deadline() -> None:
    async with InMemory() as memory, memory.client() as client:
        await memory.cluster.stop_broker(1)
        start = now()
        with pytest.raises(KafkaTimeoutError, match="connection refused"):
            await client.request(REQUEST, to=Broker(1), timeout=10.0)
        assert 8.0 < now() - start <= 10.0


async def test_looks_a_coordinator_up_again_after_not_coordinator() -> None:
    async with InMemory(2) as memory:
        owner = memory.coordinator("g")
        await memory.cluster.stop_broker(owner)
        async with memory.client() as client:
            assert await find(services_of(client).coordinators) == 3 - owner
            await memory.cluster.start_broker(owner)  # and the group moves back
            response = await client.request(HEARTBEAT, to=CoordinatorOfGroup("g"), timeout=20.0)
            assert response.error_code == UNKNOWN_MEMBER_ID
            assert memory.receivers(HeartbeatRequest) == [3 - owner, owner]
            assert await find(services_of(client).coordinators) == owner


async def test_looks_a_coordinator_up_again_after_its_broker_stopped() -> None:
    async with InMemory(2) as memory, memory.client() as client:
        owner = memory.coordinator("g")
        assert await find(services_of(client).coordinators) == owner
        await memory.cluster.stop_broker(owner)
        response = await client.request(HEARTBEAT, to=CoordinatorOfGroup("g"), timeout=20.0)
        assert response.error_code == UNKNOWN_MEMBER_ID
        assert memory.receivers(HeartbeatRequest) == [3 - owner]


async def test_returns_not_coordinator_when_it_persists_until_the_deadline() -> None:
    async with InMemory() as memory, memory.client() as client:
        memory.cluster.faults.add(api="Heartbeat", error="NOT_COORDINATOR", count=None)
        response = await client.request(HEARTBEAT, to=CoordinatorOfGroup("g"), timeout=3.0)
        assert response.error_code == NOT_COORDINATOR
        once = len(memory.receivers(HeartbeatRequest))
        assert once > 1
        await client.request(HEARTBEAT, to=CoordinatorOfGroup("g"), retry=False)
        assert len(memory.receivers(HeartbeatRequest)) == once + 1


async def test_slow_requests_share_a_second_connection() -> None:
    async with InMemory() as memory, memory.client() as client:
        await client.request(REQUEST, to=Broker(1))
        slowed = memory.hang("CreateTopics")
        slow = asyncio.create_task(
            client.request(CreateTopicsRequest(), to=Controller(), timeout=20.0)
        )
        await slowed.wait()
        start = now()
        await client.request(REQUEST, to=Broker(1))
        assert now() == start  # a broker handles the requests of a connection one by one
        assert memory.connections(1) == 2
        with pytest.raises(KafkaTimeoutError):
            await slow
        slowed.remove()
        await memory.cluster.disconnect(1)
        for _ in range(3):
            await client.request(CreateTopicsRequest(), to=Controller())
        assert memory.connections(1) == 1


async def test_max_version_limits_negotiated_version() -> None:
    async with InMemory() as memory, memory.client() as client:
        await client.request(REQUEST, to=Broker(1), max_version=2)
        await client.request(REQUEST, to=Broker(1))
        versions = [row.version for row in memory.received if row.request == REQUEST]
        assert versions == [2, ListGroupsRequest.VERSIONS.max]


@pytest.mark.parametrize("steps", range(12))
async def test_request_can_be_cancelled_at_any_step(steps: int) -> None:
    async with InMemory(2) as memory:
        await topic(memory, "t", 2)
        async with memory.client() as client:
            requesting = asyncio.create_task(client.request(REQUEST, to=Leader(P0)))
            for _ in range(steps):
                await asyncio.sleep(0)
            requesting.cancel()
            await asyncio.wait([requesting])
            response = await client.request(REQUEST, to=Leader(P0), timeout=1.0)
            assert response.error_code == 0


@pytest.mark.parametrize("allowed", [["127.*", "*.corp"], "127.?.0.*,*.corp", "127.0.0.1"])
async def test_requests_to_hosts_that_are_not_allowed_raise(allowed: Any) -> None:
    async with (
        InMemory(2, advertised_hosts={2: "evil.example"}) as memory,
        memory.client(1, allowed_broker_hosts=allowed) as client,
    ):
        await client.request(REQUEST, to=Broker(1))
        with pytest.raises(InvalidConfigurationError, match=r"evil\.example:\d+ .*allowed_broker"):
            await client.request(REQUEST, to=Broker(2), timeout=5.0)


# -- coordinators ---------------------------------------------------------------------------------


@pytest.mark.parametrize("moves", [False, True], ids=["restarts", "moves"])
async def test_versions_of_a_broker_are_those_of_its_present_process(moves: bool) -> None:
    """An older broker takes the place of a newer one, at the same address or at another one."""

    def limit(response: Any) -> None:
        (row,) = [row for row in response.api_keys if row.api_key == MetadataRequest.API_KEY]
        row.max_version = 9

    async with InMemory(2) as memory, memory.client() as client:
        connection = services_of(client).brokers.general(1)
        await connection.connect(5)
        newest = connection.version(MetadataRequest.API_KEY)
        assert newest > 9
        memory.cluster.faults.add(api="ApiVersions", broker=1, count=None, change=limit)
        await memory.cluster.stop_broker(1)
        port = memory.cluster.brokers[1].port + moves * 1000
        await memory.cluster.start_broker(1, port=port)
        await services_of(client).metadata.refresh(timeout=30)
        await connection.connect(30)
        assert connection.version(MetadataRequest.API_KEY) == 9
        assert memory.address(1).endswith(f":{port}")


async def test_caches_coordinator_until_it_is_forgotten() -> None:
    async with InMemory(2) as memory, memory.client() as client:
        owner, coordinators = memory.coordinator("g"), services_of(client).coordinators
        assert [await find(coordinators) for _ in range(3)] == [owner] * 3
        assert len(memory.requests(FindCoordinatorRequest)) == 1
        await memory.cluster.stop_broker(owner)
        coordinators.forget(CoordinatorKind.GROUP, "g")
        assert await find(coordinators) == 3 - owner


@pytest.mark.parametrize(("version", "requests"), [(3, 3), (6, 1)])
async def test_looks_up_several_coordinators_in_one_request_if_supported(
    version: int, requests: int
) -> None:
    async with InMemory(api_versions={10: (0, version)}) as memory, memory.client() as client:
        found = await services_of(client).coordinators.find_all(
            CoordinatorKind.GROUP, ["a", "b", "c"], timeout=5.0
        )
        assert found == {"a": 1, "b": 1, "c": 1}
        assert len(memory.requests(FindCoordinatorRequest)) == requests


async def test_retries_an_unavailable_coordinator_until_the_deadline() -> None:
    async with InMemory() as memory, memory.client() as client:
        fault = memory.cluster.faults.add(
            api="FindCoordinator", error="COORDINATOR_NOT_AVAILABLE", count=None
        )
        coordinators = services_of(client).coordinators
        with pytest.raises(CoordinatorNotAvailableError, match="g"):
            await find(coordinators, timeout=3.0)
        finding = asyncio.create_task(find(coordinators, timeout=9.0))
        await asyncio.sleep(2)
        fault.remove()
        assert await finding == 1


# -- metadata -------------------------------------------------------------------------------------


async def test_wait_for_topics_waits_until_the_topic_exists() -> None:
    async with InMemory() as memory, updater(memory) as metadata:
        waiting = asyncio.create_task(metadata.wait_for_topics(["t"], timeout=30.0))
        await asyncio.sleep(5)
        assert not waiting.done()
        await memory.cluster.create_topic("t", 2)
        assert (await waiting).partitions("t") == 2


async def test_wait_for_topics_raises_when_the_topic_does_not_appear_in_time() -> None:
    async with InMemory() as memory, updater(memory) as metadata:
        start = now()
        with pytest.raises(UnknownTopicOrPartitionError, match=r"^t: "):
            await metadata.wait_for_topics(["t"], timeout=5.0)
        assert 3.0 < now() - start <= 5.0


async def test_wait_for_topics_rejects_invalid_name_at_once() -> None:
    async with InMemory() as memory, updater(memory) as metadata:
        start = now()
        with pytest.raises(InvalidTopicError):
            await metadata.wait_for_topics(["no/name"], timeout=5.0)
        assert now() - start < 1.0


async def test_wait_for_topics_creates_a_topic_only_when_allowed() -> None:
    async with InMemory(auto_create_topics=True) as memory, updater(memory) as metadata:
        with pytest.raises(UnknownTopicOrPartitionError):
            await metadata.wait_for_topics(["t"], timeout=1.0)
        cluster = await metadata.wait_for_topics(["t"], timeout=1.0, allow_auto_create=True)
        assert cluster.partitions("t") == 1


async def test_wait_for_topics_names_the_cause_when_no_broker_responds() -> None:
    async with InMemory() as memory, updater(memory) as metadata:
        await memory.cluster.stop_broker(1)
        with pytest.raises(KafkaTimeoutError, match=r"no metadata within 5 s.*refused"):
            await metadata.wait_for_topics(["t"], timeout=5.0)


async def test_refresh_finds_topics_by_id() -> None:
    async with InMemory() as memory, updater(memory) as metadata:
        created = await memory.cluster.create_topic("t")
        cluster = await metadata.refresh(topic_ids=[created.id])
        assert cluster.topic_name(created.id) == "t"


async def test_refresh_can_fetch_all_topics() -> None:
    async with InMemory() as memory, updater(memory) as metadata:
        await topic(memory, "t")
        await topic(memory, "u")
        assert metadata.snapshot.topics == {}
        assert sorted((await metadata.refresh(all_topics=True)).topics) == ["t", "u"]


async def test_tracked_topics_are_fetched_at_once_and_refreshed_by_age() -> None:
    async with InMemory(2) as memory:
        await topic(memory, "t", 1)
        async with updater(memory, track="t", metadata_max_age_ms=60_000) as metadata:
            assert metadata.snapshot.leader(P0) == (1, 0)
            await memory.cluster.move_leader(P0, 2)
            await asyncio.sleep(61)
            assert metadata.snapshot.leader(P0) == (2, 1)


async def test_untracked_topics_are_dropped_after_some_time() -> None:
    async with InMemory() as memory:
        await topic(memory, "t")
        async with updater(memory, track="t", metadata_max_age_ms=60_000) as metadata:
            metadata.track(["t"])
            metadata.untrack(["t"])
            await asyncio.sleep(200)
            assert metadata.snapshot.topic("t") is not None
            metadata.untrack(["t"])
            await asyncio.sleep(200)
            assert metadata.snapshot.topic("t") is None


async def test_combines_update_requests_into_one_metadata_request() -> None:
    async with InMemory(2) as memory:
        await topic(memory, "t", 1)
        async with updater(memory, track="t") as metadata:
            before = len(metadata_requests(memory))
            await memory.cluster.move_leader(P0, 2)
            for _ in range(100):
                metadata.request_update()
            await until(lambda: metadata.snapshot.leader(P0) == (2, 1))
            await asyncio.sleep(1)
            assert len(metadata_requests(memory)) == before + 1


async def test_update_request_during_update_of_same_topics_sends_no_second_request() -> None:
    async with InMemory() as memory:
        await topic(memory, "t")
        async with updater(memory) as metadata:
            before = len(metadata_requests(memory))
            metadata.track(["t"])
            metadata.request_update()
            await asyncio.sleep(10)
            assert metadata_requests(memory, before) == [["t"]]


async def test_refetches_tracked_topic_without_leader_at_limited_rate() -> None:
    async with InMemory(2) as memory:
        await topic(memory, "t", 2)
        await memory.cluster.stop_broker(2)
        async with updater(memory, 1, track="t") as metadata:
            await asyncio.sleep(10)
            assert 8 <= len(metadata_requests(memory)) <= 25
            await memory.cluster.start_broker(2)
            await asyncio.sleep(1.5)
            leader = metadata.snapshot.leader(P0)
            assert leader is not None
            assert leader[0] == 2


async def test_request_to_leader_waits_for_election() -> None:
    async with InMemory(2) as memory:
        await topic(memory, "t", 2)
        await memory.cluster.stop_broker(2)
        async with memory.client(1) as client:
            with pytest.raises(LeaderNotAvailableError, match="t-0"):
                await client.request(REQUEST, to=Leader(P0), timeout=2.0)
            requesting = asyncio.create_task(client.request(REQUEST, to=Leader(P0), timeout=20.0))
            await asyncio.sleep(1)
            assert not requesting.done()
            await memory.cluster.start_broker(2)
            await requesting
            assert len(memory.requests(ListGroupsRequest, 2)) == 1


async def test_request_to_leader_waits_for_a_new_partition() -> None:
    new = TopicPartition("t", 1)
    async with InMemory() as memory, memory.client() as client:
        await memory.cluster.create_topic("t")
        with pytest.raises(
            UnknownTopicOrPartitionError, match="t-1: no such partition: the topic has 1 partition"
        ):
            await client.request(REQUEST, to=Leader(new), timeout=2.0)
        requesting = asyncio.create_task(client.request(REQUEST, to=Leader(new), timeout=20.0))
        await asyncio.sleep(10)
        assert not requesting.done()
        await memory.cluster.add_partitions("t", 2)
        await requesting


async def test_wait_for_topics_does_not_fetch_tracked_topics() -> None:
    async with InMemory() as memory:
        for name in ("t", "u", "v"):
            await topic(memory, name)
        async with updater(memory, track="t u") as metadata:
            before = len(metadata_requests(memory))
            await metadata.wait_for_topics(["v"], timeout=1.0)
            assert sorted(metadata.snapshot.topics) == ["t", "u", "v"]
            assert metadata_requests(memory, before) == [["v"]]


async def test_fetches_metadata_of_125_topics_per_request() -> None:
    names = [f"topic-{number:04}" for number in range(300)]
    async with InMemory() as memory:
        for name in names:
            await topic(memory, name)
        async with updater(memory) as metadata:
            snapshots: list[ClusterMetadata] = []
            metadata.change_listeners.add(snapshots.append)
            before = len(metadata_requests(memory))
            metadata.track(names)
            await until(lambda: len(metadata.snapshot.topics) == len(names))
            assert metadata_requests(memory, before) == [names[:125], names[125:250], names[250:]]
            await metadata.refresh()
            assert [len(each) for each in metadata_requests(memory, before + 3)] == [125, 125, 50]
            assert [len(each.topics) for each in snapshots] == [len(names)] * 2


async def test_only_topics_without_leader_are_refetched() -> None:
    async with InMemory(2) as memory:
        await topic(memory, "t", 2)
        await topic(memory, "u", 1)
        await memory.cluster.stop_broker(2)
        async with updater(memory, 1, track="t u"):
            before = len(metadata_requests(memory))
            await asyncio.sleep(5)
            again = metadata_requests(memory, before)
            assert again == [["t"]] * len(again)
            assert again


async def test_repeated_small_requests_do_not_postpone_a_requested_update() -> None:
    names = list(map(str, range(100)))
    async with InMemory() as memory:
        for name in ("t", *names):
            await topic(memory, name)
        async with updater(memory, track="t", retry_backoff_ms=100) as metadata:
            before = len(metadata_requests(memory))
            metadata.request_update()
            for name in names:
                await metadata.wait_for_topics([name], timeout=1.0)
                await asyncio.sleep(0.01)
            assert any("t" in topics for topics in metadata_requests(memory, before))


async def test_update_leaders_changes_metadata_once_and_ignores_older_epochs() -> None:
    async with InMemory(2) as memory:
        await topic(memory, "t", 1, 1)
        async with updater(memory, track="t") as metadata:
            snapshots: list[ClusterMetadata] = []
            stop = metadata.change_listeners.add(snapshots.append)
            metadata.update_leaders(
                [LeaderHint(P0, 2, 1), LeaderHint(P1, 2, 3), LeaderHint(P1, 1, 2)]
            )
            assert [metadata.snapshot.leader(each) for each in (P0, P1)] == [(2, 1), (2, 3)]
            metadata.update_leaders([LeaderHint(P0, 1, 0)])
            assert snapshots == [metadata.snapshot]
            stop()
            stop()
            metadata.update_leaders([LeaderHint(P0, 1, 2)])
            assert len(snapshots) == 1


async def test_repeated_leader_updates_do_not_delay_large_metadata(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    merged = ClusterMetadata.merged
    async with InMemory() as memory:
        await topic(memory, "t")
        await memory.cluster.create_topic("wide", 1_001)
        async with updater(memory, track="t") as metadata:
            epochs = itertools.count(1)

            def hinted(*args: Any, **options: Any) -> ClusterMetadata:
                metadata.update_leaders([LeaderHint(P0, 1, next(epochs))])
                return merged(*args, **options)

            monkeypatch.setattr(ClusterMetadata, "merged", hinted)
            async with asyncio.timeout(5):
                cluster = await metadata.wait_for_topics(["wide"], timeout=1.0)
            assert cluster.partitions("wide") == 1_001
            assert next(epochs) > 1


@pytest.mark.parametrize("tracked", [True, False], ids=["tracked", "untracked"])
async def test_topics_tracked_while_large_metadata_is_merged_are_refetched(
    monkeypatch: pytest.MonkeyPatch, tracked: bool
) -> None:
    async with InMemory(2) as memory:
        await topic(memory, "late", 2)
        await topic(memory, "wide", *[1] * 1_001)
        await memory.cluster.stop_broker(2)
        async with updater(memory, 1) as metadata:
            changes = [metadata.untrack, metadata.track]
            before_merge, after_merge = changes if tracked else reversed(changes)

            async def offload(_: Supervisor, function: Callable[..., Any], *args: Any) -> Any:
                before_merge(["late"])
                result = function(*args)
                after_merge(["late"])
                return result

            monkeypatch.setattr(Supervisor, "offload", offload)
            await metadata.wait_for_topics(["late", "wide"], timeout=1.0)
            await metadata.refresh()
            before = len(metadata_requests(memory))
            await asyncio.sleep(5)
            again = metadata_requests(memory, before)
            assert again == [["late"]] * len(again)
            assert bool(again) == tracked


# -- rebootstrap ----------------------------------------------------------------------------------


def rebootstrap_reasons(client: Client) -> list[str]:
    reasons: list[str] = []
    client.hooks.listen(Rebootstrapped, lambda event: reasons.append(event.reason))
    return reasons


async def test_rebootstraps_when_no_known_broker_can_be_reached() -> None:
    async with InMemory(3) as memory:
        await memory.cluster.stop_broker(3)
        async with memory.client() as client:
            reasons, metadata = rebootstrap_reasons(client), services_of(client).metadata
            assert sorted(metadata.snapshot.brokers) == [1, 2]
            await memory.cluster.start_broker(3)
            await memory.cluster.stop_broker(1)
            await memory.cluster.stop_broker(2)
            await asyncio.sleep(1)
            assert sorted((await metadata.refresh(timeout=20.0)).brokers) == [3]
            assert reasons == ["no known broker is available"]


async def test_without_rebootstrap_only_known_brokers_are_retried() -> None:
    async with InMemory(2) as memory:
        await memory.cluster.stop_broker(2)
        async with updater(memory, metadata_recovery_strategy="none") as metadata:
            await memory.cluster.start_broker(2)
            await memory.cluster.stop_broker(1)
            with pytest.raises(KafkaTimeoutError):
                await metadata.refresh(timeout=20.0)
            await memory.cluster.start_broker(1)
            assert sorted((await metadata.refresh(timeout=20.0)).brokers) == [1, 2]


async def test_rebootstraps_after_the_trigger_time_without_metadata() -> None:
    async with InMemory(2) as memory:
        await memory.cluster.stop_broker(2)
        async with memory.client(
            metadata_recovery_rebootstrap_trigger_ms=40_000, request_timeout_ms=10_000
        ) as client:
            reasons = rebootstrap_reasons(client)
            await asyncio.sleep(100)  # no time without metadata, as no request is pending
            await memory.cluster.start_broker(2)
            memory.hang("Metadata", 1)
            start = now()
            cluster = await services_of(client).metadata.refresh(timeout=120.0)
            assert 40 <= now() - start < 50
            assert reasons == ["no metadata for 40 s"]
            assert sorted(cluster.brokers) == [1, 2]


async def test_rebootstrap_required_in_metadata_fails_requests_in_flight() -> None:
    async with InMemory(2) as memory, memory.client(2) as client:
        reasons = rebootstrap_reasons(client)
        held = memory.hang("Heartbeat", 1)
        connection = services_of(client).brokers.connection(1, ConnectionKind.COORDINATOR, None)
        pending = asyncio.create_task(connection.send(HEARTBEAT, timeout=100.0))
        await held.wait()
        memory.cluster.faults.add(api="Metadata", error="REBOOTSTRAP_REQUIRED")
        await services_of(client).metadata.refresh(timeout=20.0)
        assert len(reasons) == 1
        assert "REBOOTSTRAP_REQUIRED" in reasons[0]
        with pytest.raises(KafkaConnectionError, match="bootstraps again"):
            await pending
        held.remove()
        assert isinstance(await connection.send(HEARTBEAT, timeout=1.0), HeartbeatResponse)
        await services_of(client).metadata.refresh(timeout=20.0)
        assert len(reasons) == 1


async def test_rebootstrap_required_in_metadata_is_only_retried_without_the_strategy() -> None:
    async with InMemory(2) as memory, memory.client(metadata_recovery_strategy="none") as client:
        reasons = rebootstrap_reasons(client)
        memory.cluster.faults.add(api="Metadata", error="REBOOTSTRAP_REQUIRED")
        await services_of(client).metadata.refresh(timeout=20.0)
        assert reasons == []


async def test_rebootstraps_when_another_cluster_responds() -> None:
    async with InMemory(2) as memory, memory.client() as client:
        reasons = rebootstrap_reasons(client)
        ports = [broker.port for broker in memory.cluster.brokers.values()]
        for broker in memory.cluster.brokers:
            await memory.cluster.stop_broker(broker)
        async with EmbeddedCluster(
            2, ports=ports, network=memory.network, cluster_id="another"
        ) as another:
            cluster = await services_of(client).metadata.refresh(timeout=20.0)
            assert len(reasons) == 1
            assert "another broker or cluster responds at this address" in reasons[0]
            assert cluster.cluster_id == "another"
            assert another.failures == []
            await client.stop()


@pytest.mark.parametrize("strategy", ["rebootstrap", "none"])
async def test_request_does_not_raise_rebootstrap_required(strategy: Any) -> None:
    async with (
        InMemory(2) as memory,
        memory.client(1, metadata_recovery_strategy=strategy) as client,
    ):
        refused = memory.cluster.faults.add(
            api="ApiVersions", broker=2, error="REBOOTSTRAP_REQUIRED", count=None
        )
        with pytest.raises(KafkaConnectionError, match="another broker or cluster") as raised:
            await client.request(REQUEST, to=Broker(2), retry=False)
        assert isinstance(raised.value.__cause__, RebootstrapRequiredError)
        requesting = asyncio.create_task(client.request(REQUEST, to=Broker(2)))
        await asyncio.sleep(3)
        assert not requesting.done()
        refused.remove()
        assert (await requesting).error_code == 0


@pytest.mark.parametrize(
    ("strategy", "check", "sent"),
    [("rebootstrap", True, True), ("rebootstrap", False, False), ("none", True, False)],
)
async def test_sends_expected_cluster_and_node_only_with_rebootstrap_and_check(
    strategy: Any, check: bool, sent: bool
) -> None:
    async with (
        InMemory(2) as memory,
        memory.client(
            1, metadata_recovery_strategy=strategy, metadata_cluster_check_enable=check
        ) as client,
    ):
        await client.request(REQUEST, to=Broker(2))
        named = {(each.cluster_id, each.node_id) for each in memory.requests(ApiVersionsRequest, 2)}
        cluster_id = memory.cluster.settings.cluster_id
        assert named == {(cluster_id, 2) if sent else (None, -1)}


# -- the end --------------------------------------------------------------------------------------


async def pending(client: Client, memory: InMemory) -> list[Awaitable[object]]:
    memory.hang("ListGroups")
    services = services_of(client)
    connection = services.brokers.connection(1, ConnectionKind.FETCH, None)
    await connection.connect(1.0)
    waits: list[Awaitable[object]] = [
        connection.submit(REQUEST, timeout=100.0),
        asyncio.create_task(client.request(REQUEST, to=Broker(1))),
        asyncio.create_task(services.metadata.wait_for_topics(["nowhere"], timeout=100.0)),
        asyncio.create_task(services.lifetime.sleep(100.0)),
    ]
    await asyncio.sleep(1)
    return waits


async def test_stop_fails_all_pending_calls_without_waiting_for_brokers() -> None:
    async with InMemory() as memory:
        client = memory.client()
        await client.start()
        waits = await pending(client, memory)
        start = now()
        await client.stop()
        assert now() == start
        for outcome in await asyncio.gather(*waits, return_exceptions=True):
            assert isinstance(outcome, ClientClosedError)
        assert now() == start


async def test_died_task_fails_all_pending_calls_at_once() -> None:
    async def die() -> None:
        raise ZeroDivisionError("a bug")

    async with InMemory() as memory:
        client = memory.client()
        await client.start()
        waits = await pending(client, memory)
        start = now()
        services_of(client).supervisor.spawn(die, name="doomed")
        for outcome in await asyncio.gather(*waits, return_exceptions=True):
            assert isinstance(outcome, TaskDiedError)
        assert now() == start
        with pytest.raises(TaskDiedError):
            await client.request(REQUEST, to=Broker(1))
        await client.stop()


async def test_metadata_listener_that_raises_stops_the_client() -> None:
    def listener(_: object) -> None:
        raise ZeroDivisionError

    async with InMemory() as memory:
        client = memory.client()
        await client.start()
        metadata = services_of(client).metadata
        metadata.change_listeners.add(listener)
        with pytest.raises(KafkaError):
            await metadata.refresh(timeout=5.0)
        with pytest.raises(TaskDiedError):
            services_of(client)
        await client.stop()


@pytest.mark.parametrize(
    ("to", "text"),
    [
        (AnyBroker(), "any broker"),
        (Broker(1), "broker 1"),
        (Controller(), "the controller"),
        (Leader(TopicPartition("t", 0)), "the leader of t-0"),
        (CoordinatorOfGroup("g"), "the coordinator of group g"),
        (CoordinatorOfTransactionalId("x"), "the coordinator of transactional id x"),
    ],
)
async def test_destination_says_where_a_request_goes(to: Destination, text: str) -> None:
    assert str(to) == text
