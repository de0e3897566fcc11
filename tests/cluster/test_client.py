"""Tests of `Client`: start, metadata, routing, retries, rebootstrap, stop."""

from __future__ import annotations

import asyncio
import gc
import itertools
import logging
import os
import socket
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async.clock import MemoryNetwork
from kafka_async.cluster.broker_connection import ConnectionKind
from kafka_async.cluster.client import Client
from kafka_async.cluster.metadata import ClusterMetadata, LeaderHint
from kafka_async.cluster.request_destinations import (
    AnyBroker,
    Broker,
    Controller,
    CoordinatorKind,
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
from kafka_async.hooks import Hooks, Rebootstrapped, RequestSent
from kafka_async.protocol.messages.api_versions import ApiVersionsRequest
from kafka_async.protocol.messages.create_topics import CreateTopicsRequest
from kafka_async.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafka_async.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kafka_async.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from kafka_async.protocol.messages.metadata import MetadataRequest
from kafka_async.supervisor import Supervisor
from kafka_async.types import TopicPartition
from tests.embedded_client import InMemory, until

if TYPE_CHECKING:
    from kafka_async.embedded.faults import Fault

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]

NOT_COORDINATOR, UNKNOWN_MEMBER_ID = 16, 25
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
REQUEST = ListGroupsRequest()
"""A request that every broker can handle."""
HEARTBEAT = HeartbeatRequest(group_id="g", member_id="m")
"""A request that the coordinator of group g rejects with UNKNOWN_MEMBER_ID."""


def now() -> float:
    return asyncio.get_running_loop().time()


def freeze(memory: InMemory, *brokers: int) -> list[Fault]:
    """Let brokers accept connections and requests, and respond to none."""
    chosen = brokers or tuple(memory.cluster.brokers)
    return [memory.cluster.faults.add(broker=each, hang=True, count=None) for each in chosen]


def hang(memory: InMemory, api: str, broker: int | None = None) -> Fault:
    """Let requests of one API wait for their response until the fault is removed."""
    return memory.cluster.faults.add(api=api, broker=broker, hang=True, count=None)


def key_at(memory: InMemory, broker: int) -> str:
    """Return a group or transactional id that this broker coordinates."""
    names = map(str, itertools.count())
    return next(name for name in names if memory.cluster.coordinator_for(name) == broker)


async def topic(memory: InMemory, name: str, *leaders: int) -> None:
    """Create a topic whose partitions have one replica each, at these brokers."""
    assignments = {index: [leader] for index, leader in enumerate(leaders)}
    await memory.cluster.create_topic(name, assignments=assignments)


def metadata_requests(memory: InMemory, since: int = 0) -> list[list[str | None]]:
    """Return the topics of each metadata request after the first `since`."""
    requests = memory.requests(MetadataRequest)[since:]
    return [[topic.name for topic in request.topics or ()] for request in requests]


# -- start and stop -------------------------------------------------------------------------------


async def test_start_fetches_brokers_and_features() -> None:
    async with InMemory(3) as memory, memory.client() as client:
        assert sorted(client.metadata.brokers) == [1, 2, 3]
        assert client.metadata.cluster_id == memory.cluster.settings.cluster_id
        assert client.finalized_feature("transaction.version") == 2
        assert client.finalized_feature("no.such") == 0
        assert client.clock.monotonic() == now()


async def test_stop_closes_every_connection() -> None:
    async with InMemory(2) as memory:
        async with memory.client() as client:
            await client.request(REQUEST, to=Broker(2))
            assert memory.connections(2) == 1
        await until(lambda: memory.connections() == 0)
        await client.stop()
        with pytest.raises(ClientClosedError, match="closed"):
            _ = client.metadata


async def test_metadata_raises_before_start() -> None:
    with pytest.raises(ClientClosedError, match="was not started"):
        _ = Client("a:1").metadata


async def test_start_fails_at_deadline_if_server_does_not_respond() -> None:
    async with InMemory() as memory:
        freeze(memory)
        start = now()
        with pytest.raises(
            BootstrapError, match=r"127\.0\.0\.1:9092: it accepts connections but does"
        ):
            await memory.client(default_api_timeout_ms=5000).start()
        assert now() - start == pytest.approx(5.0)


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
        assert refused.endswith("the client keeps retrying")
        freeze(memory, 2)
        await memory.cluster.start_broker(2)
        await asyncio.sleep(10)
        _, changed = warnings()
        assert f"{one}: connection refused" in changed
        assert f"{two}: it accepts connections but does not answer" in changed
        await memory.cluster.start_broker(1)
        await starting
        assert len(warnings()) == 2
        await client.stop()


async def test_start_does_not_warn_while_one_of_several_servers_responds(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with InMemory(2) as memory:
        await memory.cluster.stop_broker(1)
        async with memory.client():
            await asyncio.sleep(1)
    assert not [row for row in caplog.records if row.levelno >= logging.WARNING]


async def test_start_fails_after_refused_timeout_if_every_server_refuses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with InMemory(2) as memory:
        for broker in (1, 2):
            await memory.cluster.stop_broker(broker)
        dials: Counter[str] = Counter()
        dial = memory.network.dial

        def counted(factory: Any, host: str, port: int, **options: Any) -> Awaitable[Any]:
            dials[f"{host}:{port}"] += 1
            return dial(factory, host, port, **options)

        monkeypatch.setattr(memory.network, "dial", counted)
        start = now()
        with pytest.raises(BootstrapError) as caught:
            await memory.client().start()
        assert 4.0 <= now() - start < 6.0
        for broker in (1, 2):
            address = memory.address(broker)
            assert f"{address}: connection refused: is the broker running" in str(caught.value)
            assert dials[address] >= 3


async def test_start_fails_after_refused_timeout_if_no_name_can_be_resolved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A name that cannot be resolved is retried as long as a refused connection."""
    attempts = 0

    async def unresolved(*_: Any, **__: Any) -> Any:
        nonlocal attempts
        attempts += 1
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    network = MemoryNetwork()
    monkeypatch.setattr(network, "dial", unresolved)
    start = now()
    with pytest.raises(BootstrapError, match=r"kafak\.example:9092: its name cannot be resolved"):
        await Client("kafak.example:9092", dialer=network).start()
    assert 4.0 <= now() - start < 6.0
    assert attempts >= 3


async def test_start_waits_for_a_server_that_does_not_refuse() -> None:
    async with InMemory(2) as memory:
        await memory.cluster.stop_broker(1)
        freeze(memory, 2)
        start = now()
        silent = f"{memory.address(2)}: it accepts connections but does not answer"
        with pytest.raises(BootstrapError, match=silent):
            await memory.client(default_api_timeout_ms=20_000).start()
        assert now() - start == pytest.approx(20.0)


async def test_start_succeeds_when_a_refusing_server_comes_up_within_seconds() -> None:
    async with InMemory() as memory:
        await memory.cluster.stop_broker(1)
        client = memory.client()
        starting = asyncio.create_task(client.start())
        await asyncio.sleep(3)
        await memory.cluster.start_broker(1)
        await starting
        await client.stop()


async def test_started_client_keeps_retrying_broker_that_refuses() -> None:
    async with InMemory() as memory, memory.client() as client:
        await memory.cluster.stop_broker(1)
        requesting = asyncio.create_task(client.request(REQUEST, to=Broker(1)))
        await asyncio.sleep(30)
        assert not requesting.done()
        await memory.cluster.start_broker(1)
        assert (await requesting).error_code == 0


async def test_stop_does_not_wait_for_silent_brokers() -> None:
    async with InMemory(3) as memory:
        client = memory.client()
        await client.start()
        for node_id in memory.cluster.brokers:
            await client.request(REQUEST, to=Broker(node_id))
        freeze(memory)
        pending = [client.submit(REQUEST, to=Broker(node_id)) for node_id in memory.cluster.brokers]
        await asyncio.sleep(1)
        start = now()
        await client.stop()
        assert now() == start
        assert all(isinstance(future.exception(), ClientClosedError) for future in pending)


class WebServer(asyncio.Protocol):
    """Responds to every connection in HTTP."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")


async def test_start_fails_at_once_if_server_is_not_kafka() -> None:
    network = MemoryNetwork()
    network.listen(WebServer, "web", 80)
    start = now()
    with pytest.raises(BootstrapError, match="it answers in HTTP"):
        await Client("web:80", dialer=network).start()
    assert now() - start < 1.0


async def test_failed_start_names_every_server_and_its_cause() -> None:
    async with InMemory(2) as memory:
        await memory.cluster.stop_broker(1)
        freeze(memory, 2)
        with pytest.raises(BootstrapError) as caught:
            await memory.client(default_api_timeout_ms=3000).start()
        assert f"{memory.address(1)}: connection refused" in str(caught.value)
        silent = f"{memory.address(2)}: it accepts connections but does not answer"
        assert silent in str(caught.value)


async def test_start_needs_one_server_that_responds() -> None:
    async with InMemory(3) as memory:
        await memory.cluster.stop_broker(1)
        await memory.cluster.stop_broker(2)
        async with memory.client() as client:
            assert sorted(client.metadata.brokers) == [3]


async def test_start_waits_for_the_configured_time_while_servers_refuse() -> None:
    async with InMemory() as memory:
        await memory.cluster.stop_broker(1)
        client = memory.client(bootstrap_refused_timeout_ms=30_000)
        starting = asyncio.create_task(client.start())
        await asyncio.sleep(20)
        await memory.cluster.start_broker(1)
        await starting
        assert list(client.metadata.brokers) == [1]
        await client.stop()


async def test_cancelled_start_closes_its_connection() -> None:
    async with InMemory() as memory:
        (frozen,) = freeze(memory)
        starting = asyncio.create_task(memory.client().start())
        await frozen.wait()
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert memory.connections() == 1  # the broker notices with its response
        frozen.release()
        await until(lambda: memory.connections() == 0)


async def test_request_raises_in_forked_process(monkeypatch: pytest.MonkeyPatch) -> None:
    async with InMemory() as memory, memory.client() as client:
        with monkeypatch.context() as patch:
            patch.setattr(os, "getpid", lambda: -1)
            with pytest.raises(IllegalStateError, match="fork"):
                await client.request(REQUEST, to=AnyBroker())


async def test_garbage_collection_of_started_client_warns() -> None:
    async with InMemory() as memory:
        client = memory.client()
        await client.start()
        supervisor, parts = client.supervisor, client._parts  # pyright: ignore[reportPrivateUsage]
        with pytest.warns(ResourceWarning, match="started and never stopped"):  # noqa: PT031
            del client
            gc.collect()
        assert parts is not None
        await parts.brokers.close(ClientClosedError(), timeout=1)
        await supervisor.stop()


async def test_creates_client_from_config_or_properties() -> None:
    async with InMemory() as memory:
        config = memory.client(client_id="from-config").config
        async with Client.from_config(config, dialer=memory.network) as client:
            assert client.config.client_id == "from-config"
    assert Client.from_properties({"bootstrap.servers": "a:1"}).config.bootstrap_servers == ("a:1",)


# -- requests -------------------------------------------------------------------------------------


async def test_requests_are_sent_to_their_destination() -> None:
    async with InMemory(3) as memory:
        await topic(memory, "t", 2, 3)
        places: list[tuple[Destination, int]] = [
            (Broker(1), 1),
            (Leader(P0), 2),
            (Leader(P1), 3),
            (CoordinatorOfGroup(key_at(memory, 3)), 3),
            (CoordinatorOfTransactionalId(key_at(memory, 2)), 2),
            (Controller(), 1),
        ]
        async with memory.client(3, 2) as client:
            for to, expected in places:
                memory.received.clear()
                await client.request(REQUEST, to=to)
                found = [n for n in memory.cluster.brokers if memory.requests(type(REQUEST), n)]
                assert found == [expected], to
            await client.request(REQUEST, to=AnyBroker())


async def test_submitted_request_may_be_awaited_later_or_dropped() -> None:
    async with InMemory() as memory, memory.client() as client:
        first = client.submit(REQUEST, to=Broker(1))
        client.submit(REQUEST, to=Broker(9), timeout=1.0)
        assert isinstance(await first, ListGroupsResponse)
        last = client.submit(REQUEST, to=Broker(9), timeout=1.0)
        with pytest.raises(BrokerNotAvailableError, match="no broker 9 now; it has 1"):
            await last


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
        hang(memory, "ListGroups")
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
        owner = memory.cluster.coordinator_for("g")
        assert owner is not None
        other = 3 - owner
        await memory.cluster.stop_broker(owner)
        async with memory.client() as client:
            assert await client.coordinator(CoordinatorKind.GROUP, "g", timeout=1.0) == other
            await memory.cluster.start_broker(owner)  # and the group moves back
            response = await client.request(HEARTBEAT, to=CoordinatorOfGroup("g"), timeout=20.0)
            assert response.error_code == UNKNOWN_MEMBER_ID
            assert [row.broker for row in memory.received if row.request == HEARTBEAT] == [
                other,
                owner,
            ]
            assert await client.coordinator(CoordinatorKind.GROUP, "g", timeout=1.0) == owner


async def test_looks_a_coordinator_up_again_after_its_broker_stopped() -> None:
    async with InMemory(2) as memory, memory.client() as client:
        owner = memory.cluster.coordinator_for("g")
        assert owner is not None
        assert await client.coordinator(CoordinatorKind.GROUP, "g", timeout=1.0) == owner
        await memory.cluster.stop_broker(owner)
        response = await client.request(HEARTBEAT, to=CoordinatorOfGroup("g"), timeout=20.0)
        assert response.error_code == UNKNOWN_MEMBER_ID
        assert [row.broker for row in memory.received if row.request == HEARTBEAT] == [3 - owner]


async def test_returns_not_coordinator_when_it_persists_until_the_deadline() -> None:
    async with InMemory() as memory, memory.client() as client:
        memory.cluster.faults.add(api="Heartbeat", error="NOT_COORDINATOR", count=None)
        response = await client.request(HEARTBEAT, to=CoordinatorOfGroup("g"), timeout=3.0)
        assert response.error_code == NOT_COORDINATOR
        once = len(memory.requests(HeartbeatRequest))
        assert once > 1
        await client.request(HEARTBEAT, to=CoordinatorOfGroup("g"), retry=False)
        assert len(memory.requests(HeartbeatRequest)) == once + 1


async def test_slow_requests_share_a_second_connection() -> None:
    async with InMemory() as memory, memory.client() as client:
        await client.request(REQUEST, to=Broker(1))
        slowed = hang(memory, "CreateTopics")
        slow = client.submit(CreateTopicsRequest(), to=Controller(), timeout=20.0)
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


async def test_throttle_time_mutes_only_slow_connection_of_its_broker() -> None:
    hooks = Hooks()
    sent: list[float] = []

    def note(event: RequestSent) -> None:
        if event.api_key == CreateTopicsRequest.API_KEY:
            sent.append(now() - start)

    hooks.listen(RequestSent, note)
    async with InMemory(2) as memory, memory.client(hooks=hooks) as client:
        memory.cluster.faults.add(api="CreateTopics", throttle=3.0, count=None)
        start = now()
        for _ in range(3):
            await client.request(CreateTopicsRequest(), to=Broker(1))
        assert sent == pytest.approx([0.0, 3.0, 6.0])
        await client.request(CreateTopicsRequest(), to=Broker(2))
        assert sent[3] == pytest.approx(6.0)  # throttle times are per broker
        before = now()
        await client.request(REQUEST, to=Broker(1))
        await client.request(REQUEST, to=Broker(2))
        assert now() == before  # and per connection
        assert memory.connections(1) == 2


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


async def test_caches_coordinator_until_it_is_forgotten() -> None:
    async with InMemory(2) as memory, memory.client() as client:
        owner = memory.cluster.coordinator_for("g")
        assert owner is not None
        for _ in range(3):
            assert await client.coordinator(CoordinatorKind.GROUP, "g", timeout=1.0) == owner
        assert len(memory.requests(FindCoordinatorRequest)) == 1
        await memory.cluster.stop_broker(owner)
        client.forget_coordinator(CoordinatorKind.GROUP, "g")
        assert await client.coordinator(CoordinatorKind.GROUP, "g", timeout=1.0) == 3 - owner


@pytest.mark.parametrize(("version", "requests"), [(3, 3), (6, 1)])
async def test_looks_up_several_coordinators_in_one_request_if_supported(
    version: int, requests: int
) -> None:
    async with InMemory(api_versions={10: (0, version)}) as memory, memory.client() as client:
        found = await client.coordinators(CoordinatorKind.GROUP, ["a", "b", "c"], timeout=5.0)
        assert found == {"a": 1, "b": 1, "c": 1}
        assert len(memory.requests(FindCoordinatorRequest)) == requests


async def test_retries_an_unavailable_coordinator_until_the_deadline() -> None:
    async with InMemory() as memory, memory.client() as client:
        fault = memory.cluster.faults.add(
            api="FindCoordinator", error="COORDINATOR_NOT_AVAILABLE", count=None
        )
        with pytest.raises(CoordinatorNotAvailableError, match="g"):
            await client.coordinator(CoordinatorKind.GROUP, "g", timeout=3.0)
        finding = asyncio.create_task(client.coordinator(CoordinatorKind.GROUP, "g", timeout=9.0))
        await asyncio.sleep(2)
        fault.remove()
        assert await finding == 1


# -- metadata -------------------------------------------------------------------------------------


async def test_metadata_for_waits_until_the_topic_exists() -> None:
    async with InMemory() as memory, memory.client() as client:
        waiting = asyncio.create_task(client.metadata_for(["t"], timeout=30.0))
        await asyncio.sleep(5)
        assert not waiting.done()
        await memory.cluster.create_topic("t", 2)
        assert (await waiting).partitions("t") == 2


async def test_metadata_for_raises_when_the_topic_does_not_appear_in_time() -> None:
    async with InMemory() as memory, memory.client() as client:
        start = now()
        with pytest.raises(UnknownTopicOrPartitionError, match=r"^t: "):
            await client.metadata_for(["t"], timeout=5.0)
        assert 3.0 < now() - start <= 5.0


async def test_metadata_for_rejects_invalid_name_at_once() -> None:
    async with InMemory() as memory, memory.client() as client:
        start = now()
        with pytest.raises(InvalidTopicError):
            await client.metadata_for(["no/name"], timeout=5.0)
        assert now() - start < 1.0


async def test_metadata_for_creates_a_topic_only_when_allowed() -> None:
    async with InMemory(auto_create_topics=True) as memory, memory.client() as client:
        with pytest.raises(UnknownTopicOrPartitionError):
            await client.metadata_for(["t"], timeout=1.0)
        cluster = await client.metadata_for(["t"], timeout=1.0, allow_auto_create=True)
        assert cluster.partitions("t") == 1


async def test_metadata_for_names_the_cause_when_no_broker_responds() -> None:
    async with InMemory() as memory, memory.client() as client:
        await memory.cluster.stop_broker(1)
        with pytest.raises(KafkaTimeoutError, match=r"no metadata within 5 s.*refused"):
            await client.metadata_for(["t"], timeout=5.0)


async def test_refresh_metadata_finds_topics_by_id() -> None:
    async with InMemory() as memory, memory.client() as client:
        created = await memory.cluster.create_topic("t")
        cluster = await client.refresh_metadata(topic_ids=[created.id])
        assert cluster.topic_name(created.id) == "t"


async def test_refresh_metadata_can_fetch_all_topics() -> None:
    async with InMemory() as memory, memory.client() as client:
        await memory.cluster.create_topic("t")
        await memory.cluster.create_topic("u")
        assert client.metadata.topics == {}
        assert sorted((await client.refresh_metadata(all_topics=True)).topics) == ["t", "u"]


async def test_tracked_topics_are_fetched_at_once_and_refreshed_by_age() -> None:
    async with InMemory(2) as memory:
        await topic(memory, "t", 1)
        async with memory.client(metadata_max_age_ms=60_000) as client:
            client.track_topics(["t"])
            await until(lambda: client.metadata.leader(P0) == (1, 0))
            await memory.cluster.move_leader(P0, 2)
            await asyncio.sleep(61)
            assert client.metadata.leader(P0) == (2, 1)


async def test_untracked_topics_are_dropped_after_some_time() -> None:
    async with InMemory() as memory:
        await memory.cluster.create_topic("t")
        async with memory.client(metadata_max_age_ms=60_000) as client:
            client.track_topics(["t"])
            client.track_topics(["t"])
            await until(lambda: client.metadata.topic("t") is not None)
            client.untrack_topics(["t"])
            await asyncio.sleep(200)
            assert client.metadata.topic("t") is not None
            client.untrack_topics(["t"])
            await asyncio.sleep(200)
            assert client.metadata.topic("t") is None


async def test_combines_update_requests_into_one_metadata_request() -> None:
    async with InMemory(2) as memory:
        await topic(memory, "t", 1)
        async with memory.client() as client:
            client.track_topics(["t"])
            await until(lambda: client.metadata.leader(P0) is not None)
            before = len(metadata_requests(memory))
            await memory.cluster.move_leader(P0, 2)
            for _ in range(100):
                client.request_metadata_update()
            await until(lambda: client.metadata.leader(P0) == (2, 1))
            await asyncio.sleep(1)
            assert len(metadata_requests(memory)) == before + 1


async def test_update_request_during_update_of_same_topics_sends_no_second_request() -> None:
    async with InMemory() as memory:
        await memory.cluster.create_topic("t")
        async with memory.client() as client:
            before = len(metadata_requests(memory))
            client.track_topics(["t"])
            client.request_metadata_update()
            await asyncio.sleep(10)
            assert metadata_requests(memory, before) == [["t"]]


async def test_refetches_tracked_topic_without_leader_at_limited_rate() -> None:
    async with InMemory(2) as memory:
        await topic(memory, "t", 2)
        await memory.cluster.stop_broker(2)
        async with memory.client(1) as client:
            client.track_topics(["t"])
            await asyncio.sleep(10)
            assert 8 <= len(metadata_requests(memory)) <= 25
            await memory.cluster.start_broker(2)
            await asyncio.sleep(1.5)
            leader = client.metadata.leader(P0)
            assert leader is not None
            assert leader[0] == 2


async def test_request_to_leader_waits_for_election() -> None:
    async with InMemory(2) as memory:
        await topic(memory, "t", 2)
        await memory.cluster.stop_broker(2)
        async with memory.client(1) as client:
            with pytest.raises(LeaderNotAvailableError, match="t-0"):
                await client.request(REQUEST, to=Leader(P0), timeout=2.0)
            requesting = client.submit(REQUEST, to=Leader(P0), timeout=20.0)
            await asyncio.sleep(1)
            assert not requesting.done()
            await memory.cluster.start_broker(2)
            await requesting
            assert len(memory.requests(ListGroupsRequest, 2)) == 1


async def test_metadata_for_does_not_fetch_tracked_topics() -> None:
    async with InMemory() as memory:
        for name in ("t", "u", "v"):
            await memory.cluster.create_topic(name)
        async with memory.client() as client:
            client.track_topics(["t", "u"])
            await until(lambda: len(client.metadata.topics) == 2)
            before = len(metadata_requests(memory))
            await client.metadata_for(["v"], timeout=1.0)
            assert sorted(client.metadata.topics) == ["t", "u", "v"]
            assert metadata_requests(memory, before) == [["v"]]


async def test_fetches_metadata_of_125_topics_per_request() -> None:
    names = [f"topic-{number:04}" for number in range(300)]
    async with InMemory() as memory:
        for name in names:
            await memory.cluster.create_topic(name)
        async with memory.client() as client:
            snapshots: list[ClusterMetadata] = []
            client.on_metadata(snapshots.append)
            before = len(metadata_requests(memory))
            client.track_topics(names)
            await until(lambda: len(client.metadata.topics) == len(names))
            assert metadata_requests(memory, before) == [names[:125], names[125:250], names[250:]]
            await client.refresh_metadata()
            assert [len(topics) for topics in metadata_requests(memory, before + 3)] == [
                125,
                125,
                50,
            ]
            assert [len(metadata.topics) for metadata in snapshots] == [len(names)] * 2


async def test_only_topics_without_leader_are_refetched() -> None:
    async with InMemory(2) as memory:
        await topic(memory, "t", 2)
        await topic(memory, "u", 1)
        await memory.cluster.stop_broker(2)
        async with memory.client(1) as client:
            client.track_topics(["t", "u"])
            await until(lambda: len(client.metadata.topics) == 2)
            before = len(metadata_requests(memory))
            await asyncio.sleep(5)
            again = metadata_requests(memory, before)
            assert again == [["t"]] * len(again)
            assert again


async def test_repeated_small_requests_do_not_postpone_a_requested_update() -> None:
    names = list(map(str, range(100)))
    async with InMemory() as memory:
        for name in ("t", *names):
            await memory.cluster.create_topic(name)
        async with memory.client(retry_backoff_ms=100) as client:
            client.track_topics(["t"])
            await until(lambda: client.metadata.leader(P0) is not None)
            before = len(metadata_requests(memory))
            client.request_metadata_update()
            for name in names:
                await client.metadata_for([name], timeout=1.0)
                await asyncio.sleep(0.01)
            assert any("t" in topics for topics in metadata_requests(memory, before))


async def test_update_leaders_changes_metadata_once() -> None:
    async with InMemory(2) as memory:
        await topic(memory, "t", 1, 1)
        async with memory.client() as client:
            await client.metadata_for(["t"], timeout=1.0)
            snapshots: list[ClusterMetadata] = []
            client.on_metadata(snapshots.append)
            client.update_leaders(
                [LeaderHint(P0, 2, 1), LeaderHint(P1, 2, 3), LeaderHint(P1, 1, 2)]
            )
            assert [client.metadata.leader(each) for each in (P0, P1)] == [(2, 1), (2, 3)]
            client.update_leaders([LeaderHint(P0, 1, 0)])
            assert snapshots == [client.metadata]


async def test_update_leader_ignores_older_epoch() -> None:
    async with InMemory(2) as memory:
        await topic(memory, "t", 1)
        async with memory.client() as client:
            cluster = await client.metadata_for(["t"], timeout=1.0)
            snapshots: list[object] = []
            stop = client.on_metadata(snapshots.append)
            client.update_leader(P0, 2, 1, cluster.brokers[2])
            client.update_leader(P0, 1, 0, cluster.brokers[1])
            assert client.metadata.leader(P0) == (2, 1)
            assert snapshots == [client.metadata]
            stop()
            stop()
            client.update_leader(P0, 1, 2)
            assert len(snapshots) == 1


async def test_repeated_leader_updates_do_not_delay_large_metadata(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    merged = ClusterMetadata.merged
    async with InMemory() as memory:
        await memory.cluster.create_topic("t")
        await memory.cluster.create_topic("wide", 1_001)
        async with memory.client() as client:
            await client.metadata_for(["t"], timeout=1.0)
            epochs = itertools.count(1)

            def hinted(*args: Any, **options: Any) -> ClusterMetadata:
                client.update_leader(P0, 1, next(epochs))
                return merged(*args, **options)

            monkeypatch.setattr(ClusterMetadata, "merged", hinted)
            async with asyncio.timeout(5):
                cluster = await client.metadata_for(["wide"], timeout=1.0)
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

        async def offload(_: Supervisor, function: Callable[..., Any], *args: Any) -> Any:
            (client.untrack_topics if tracked else client.track_topics)(["late"])
            result = function(*args)
            (client.track_topics if tracked else client.untrack_topics)(["late"])
            return result

        monkeypatch.setattr(Supervisor, "offload", offload)
        async with memory.client(1) as client:
            await client.metadata_for(["late", "wide"], timeout=1.0)
            await client.refresh_metadata()
            before = len(metadata_requests(memory))
            await asyncio.sleep(5)
            again = metadata_requests(memory, before)
            assert again == [["late"]] * len(again)
            assert bool(again) == tracked


# -- rebootstrap ----------------------------------------------------------------------------------


def rebootstrap_reasons(hooks: Hooks) -> list[str]:
    reasons: list[str] = []
    hooks.listen(Rebootstrapped, lambda event: reasons.append(event.reason))
    return reasons


async def test_rebootstraps_when_no_known_broker_can_be_reached() -> None:
    hooks = Hooks()
    reasons = rebootstrap_reasons(hooks)
    async with InMemory(3) as memory:
        await memory.cluster.stop_broker(3)
        async with memory.client(hooks=hooks) as client:
            assert sorted(client.metadata.brokers) == [1, 2]
            await memory.cluster.start_broker(3)
            await memory.cluster.stop_broker(1)
            await memory.cluster.stop_broker(2)
            await asyncio.sleep(1)
            cluster = await client.refresh_metadata(timeout=20.0)
            assert sorted(cluster.brokers) == [3]
            assert reasons == ["no known broker is available"]


async def test_without_rebootstrap_only_known_brokers_are_retried() -> None:
    async with InMemory(2) as memory:
        await memory.cluster.stop_broker(2)
        async with memory.client(metadata_recovery_strategy="none") as client:
            await memory.cluster.start_broker(2)
            await memory.cluster.stop_broker(1)
            with pytest.raises(KafkaTimeoutError):
                await client.refresh_metadata(timeout=20.0)
            await memory.cluster.start_broker(1)
            assert sorted((await client.refresh_metadata(timeout=20.0)).brokers) == [1, 2]


async def test_rebootstraps_after_the_trigger_time_without_metadata() -> None:
    hooks = Hooks()
    reasons = rebootstrap_reasons(hooks)
    async with InMemory(2) as memory:
        await memory.cluster.stop_broker(2)
        async with memory.client(
            hooks=hooks, metadata_recovery_rebootstrap_trigger_ms=40_000, request_timeout_ms=10_000
        ) as client:
            await memory.cluster.start_broker(2)
            hang(memory, "Metadata", 1)
            cluster = await client.refresh_metadata(timeout=120.0)
            assert reasons == ["no metadata for 40 s"]
            assert sorted(cluster.brokers) == [1, 2]


async def test_rebootstrap_required_in_metadata_fails_requests_in_flight() -> None:
    hooks = Hooks()
    reasons = rebootstrap_reasons(hooks)
    async with InMemory(2) as memory, memory.client(2, hooks=hooks) as client:
        held = hang(memory, "Heartbeat", 1)
        connection = client.connection(1, ConnectionKind.COORDINATOR, None)
        pending = asyncio.create_task(connection.send(HEARTBEAT, timeout=100.0))
        await held.wait()
        memory.cluster.faults.add(api="Metadata", error="REBOOTSTRAP_REQUIRED")
        await client.refresh_metadata(timeout=20.0)
        assert len(reasons) == 1
        assert "REBOOTSTRAP_REQUIRED" in reasons[0]
        with pytest.raises(KafkaConnectionError, match="bootstraps again"):
            await pending
        held.remove()
        assert isinstance(await connection.send(HEARTBEAT, timeout=1.0), HeartbeatResponse)


async def test_rebootstraps_when_another_cluster_responds() -> None:
    hooks = Hooks()
    reasons = rebootstrap_reasons(hooks)
    async with InMemory(2) as memory, memory.client(hooks=hooks) as client:
        ports = [broker.port for broker in memory.cluster.brokers.values()]
        for broker in memory.cluster.brokers:
            await memory.cluster.stop_broker(broker)
        async with EmbeddedCluster(
            2, ports=ports, network=memory.network, cluster_id="another"
        ) as another:
            cluster = await client.refresh_metadata(timeout=20.0)
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


@pytest.mark.parametrize("strategy", ["rebootstrap", "none"])
async def test_sends_expected_cluster_and_node_only_with_rebootstrap(strategy: Any) -> None:
    async with (
        InMemory(2) as memory,
        memory.client(1, metadata_recovery_strategy=strategy) as client,
    ):
        await client.request(REQUEST, to=Broker(2))
        named = {(each.cluster_id, each.node_id) for each in memory.requests(ApiVersionsRequest, 2)}
        cluster_id = memory.cluster.settings.cluster_id
        assert named == ({(None, -1)} if strategy == "none" else {(cluster_id, 2)})


# -- the end --------------------------------------------------------------------------------------


async def pending(client: Client, memory: InMemory) -> list[Awaitable[object]]:
    hang(memory, "ListGroups")
    connection = client.connection(1, ConnectionKind.FETCH, None)
    await connection.connect(1.0)
    waits: list[Awaitable[object]] = [
        connection.submit(REQUEST, timeout=100.0),
        asyncio.ensure_future(client.request(REQUEST, to=Broker(1))),
        asyncio.ensure_future(client.metadata_for(["nowhere"], timeout=100.0)),
        asyncio.ensure_future(client.pause(100.0)),
        client.submit(REQUEST, to=Broker(1)),
    ]
    await asyncio.sleep(1)
    return waits


async def test_stop_fails_all_pending_calls() -> None:
    async with InMemory() as memory:
        client = memory.client()
        await client.start()
        waits = await pending(client, memory)
        start = now()
        await client.stop()
        for outcome in await asyncio.gather(*waits, return_exceptions=True):
            assert isinstance(outcome, ClientClosedError)
        assert now() - start < 1.0


async def test_died_task_fails_all_pending_calls_at_once() -> None:
    async def die() -> None:
        raise ZeroDivisionError("a bug")

    async with InMemory() as memory:
        client = memory.client()
        await client.start()
        waits = await pending(client, memory)
        start = now()
        client.supervisor.spawn(die, name="doomed")
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
        client.on_metadata(listener)
        with pytest.raises(KafkaError):
            await client.refresh_metadata(timeout=5.0)
        with pytest.raises(TaskDiedError):
            _ = client.metadata
        await client.stop()
