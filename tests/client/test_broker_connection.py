"""Tests of `BrokerConnection`: connecting, timeouts, backoff, throttling, idleness, closing."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from kafka_async.client.client import services_of
from kafka_async.client.connection.broker_connection import BrokerConnection, ConnectionKind
from kafka_async.client.connection.throttle import CLIENT_WAITS_FROM
from kafka_async.client.metadata.request_router import Broker
from kafka_async.client.wire import in_flight_requests, pending_response
from kafka_async.errors import (
    ClientClosedError,
    DecodeError,
    EncodeError,
    KafkaConnectionError,
    KafkaTimeoutError,
    UnsupportedVersionError,
)
from kafka_async.hooks import (
    ClientEvent,
    Connected,
    Disconnected,
    Hooks,
    RequestSent,
    ResponseReceived,
    Throttled,
)
from kafka_async.protocol.api import lookup
from kafka_async.protocol.messages.describe_cluster import DescribeClusterRequest
from kafka_async.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from kafka_async.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kafka_async.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from kafka_async.protocol.messages.produce import ProduceRequest, ProduceResponse
from kafka_async.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.embedded_client import InMemory, now, until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable

    from kafka_async.client.client import Client

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]

LIST_GROUPS, PRODUCE, FIND_COORDINATOR = 16, 0, 10
REQUEST = ListGroupsRequest()
"""A request that every broker can handle."""


def numbered(number: int) -> FindCoordinatorRequest:
    """Return a request whose response has the number too; see `number_of`."""
    return FindCoordinatorRequest(coordinator_keys=[str(number)])


def number_of(found: FindCoordinatorResponse) -> int:
    """Return the number of the request that a response belongs to."""
    (row,) = found.coordinators
    assert row.error_code == 0
    return int(row.key)


def sync_group(group_id: str = "g", protocol_name: str = "range") -> SyncGroupRequest:
    return SyncGroupRequest(
        group_id=group_id, member_id="m", protocol_type="consumer", protocol_name=protocol_name
    )


class Setting:
    """A connection to broker 1 of a cluster, and the events of its client."""

    def __init__(self, memory: InMemory, client: Client) -> None:
        self.memory, self.client = memory, client
        self.events: list[ClientEvent] = []
        self.sent: list[float] = []
        """Times at which requests of `LIST_GROUPS` were written, in seconds of the event loop."""
        client.hooks.listen(ClientEvent, self._note)
        self.connection: BrokerConnection = services_of(client).brokers.connection(
            1, ConnectionKind.COORDINATOR, self
        )

    def _note(self, event: ClientEvent) -> None:
        self.events.append(event)
        if isinstance(event, RequestSent) and event.api_key == LIST_GROUPS:
            self.sent.append(now())

    def events_of(self, kind: type[ClientEvent]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def connections(self) -> int:
        return self.memory.connections(1)

    async def disconnect(self) -> None:
        """Reset all connections of the broker."""
        await self.memory.cluster.disconnect(1)


@asynccontextmanager
async def settings(**options: Any) -> AsyncGenerator[Setting]:
    """Yield a connection to the only broker of a cluster with these options."""
    async with (
        InMemory(**options) as memory,
        memory.client(
            hooks=Hooks(),
            request_timeout_ms=10_000,
            metadata_recovery_strategy="none",  # a rebootstrap would close the connection
        ) as client,
    ):
        yield Setting(memory, client)


@pytest_asyncio.fixture
async def setting() -> AsyncIterator[Setting]:
    async with settings() as made:
        yield made


@pytest_asyncio.fixture
async def connection(setting: Setting) -> BrokerConnection:
    """Return the connection of `setting`, connected."""
    await setting.connection.connect(1.0)
    return setting.connection


# -- requests -------------------------------------------------------------------------------------


async def test_connects_on_first_use(setting: Setting) -> None:
    assert not setting.connection.connected
    assert setting.connections == 0
    assert await setting.connection.send(REQUEST, timeout=1.0) == ListGroupsResponse()
    assert setting.connection.connected
    assert setting.connection.version(PRODUCE) == ProduceRequest.VERSIONS.max


async def test_concurrent_requests_share_one_connection_attempt(setting: Setting) -> None:
    await asyncio.gather(*(setting.connection.send(REQUEST, timeout=1.0) for _ in range(10)))
    assert setting.connections == 1
    assert len(setting.memory.requests(ListGroupsRequest)) == 10


async def test_pipelines_requests_in_call_order(
    setting: Setting, connection: BrokerConnection
) -> None:
    held = setting.memory.hang("FindCoordinator")
    futures = [connection.submit(numbered(n), timeout=5.0) for n in range(5)]
    await held.wait()
    sent = [event for event in setting.events_of(RequestSent) if event.api_key == FIND_COORDINATOR]
    assert len(sent) == 5  # before the first response
    assert connection.in_flight == 5
    held.remove()
    found = await asyncio.gather(*futures)
    assert list(map(number_of, found)) == [0, 1, 2, 3, 4]
    received = setting.memory.requests(FindCoordinatorRequest)
    assert [request.coordinator_keys for request in received] == [[str(n)] for n in range(5)]
    assert connection.in_flight == 0


async def test_cancelled_request_does_not_affect_others(
    setting: Setting, connection: BrokerConnection
) -> None:
    held = setting.memory.hang("FindCoordinator")
    first, second = (connection.submit(numbered(n), timeout=5.0) for n in (1, 2))
    await held.wait()
    first.cancel()
    held.remove()
    assert number_of(await second) == 2
    assert connection.connected


async def test_correlation_ids_wrap_around(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_flight_requests, "_MAX_CORRELATION_ID", 1)
    for _ in range(2):
        await setting.connection.send(REQUEST, timeout=1.0)
    assert [event.correlation_id for event in setting.events_of(RequestSent)] == [0, 1, 0]


async def test_request_without_response_is_done_when_sent(
    setting: Setting, connection: BrokerConnection
) -> None:
    future = connection.submit(ProduceRequest(acks=0), timeout=1.0)
    assert future.result() == ProduceResponse()
    await until(lambda: len(setting.memory.requests(ProduceRequest)) == 1)
    await connection.send(REQUEST, timeout=1.0)


async def test_requests_without_a_connection_raise(setting: Setting) -> None:
    results: list[object] = []
    closed = "the coordinator connection to broker 1 is not open"
    with pytest.raises(KafkaConnectionError, match=closed):
        setting.connection.submit(REQUEST, timeout=1.0)
    with pytest.raises(KafkaConnectionError, match=closed):
        setting.connection.submit_with_callback(REQUEST, results.append, timeout=1.0)
    with pytest.raises(KafkaConnectionError, match=closed):
        setting.connection.version(LIST_GROUPS)
    assert results == []


async def test_encode_error_leaves_the_connection_usable(setting: Setting) -> None:
    with pytest.raises(EncodeError):
        await setting.connection.send(ListGroupsRequest(states_filter=5), timeout=1.0)  # pyright: ignore[reportArgumentType]
    with pytest.raises(UnsupportedVersionError):
        await setting.connection.send(REQUEST, timeout=1.0, version=99)
    await setting.connection.send(REQUEST, timeout=1.0)
    assert setting.connections == 1


async def test_unsupported_version_error_names_the_api() -> None:
    async with settings(api_versions={PRODUCE: (0, 0)}) as setting:
        await setting.connection.connect(1.0)
        with pytest.raises(UnsupportedVersionError, match="Produce"):
            await setting.connection.send(ProduceRequest(), timeout=1.0)


async def test_receives_large_response(setting: Setting) -> None:
    state = bytes(range(256)) * 4096
    joined = await setting.connection.send(
        JoinGroupRequest(
            group_id="g",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range")],
        ),
        timeout=1.0,
        version=3,  # the last that needs no second request for a member id
    )
    assigned = await setting.connection.send(
        SyncGroupRequest(
            group_id="g",
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[SyncGroupRequestAssignment(member_id=joined.member_id, assignment=state)],
        ),
        timeout=1.0,
    )
    assert bytes(assigned.assignment) == state


# -- callbacks ------------------------------------------------------------------------------------


async def test_callback_can_send_next_request(connection: BrokerConnection) -> None:
    results: list[object] = []

    def again(result: object) -> None:
        results.append(result)
        if len(results) < 3:
            connection.submit_with_callback(REQUEST, again, timeout=5.0)

    again("begin")
    await until(lambda: len(results) == 3)
    assert results[1:] == [ListGroupsResponse()] * 2
    assert connection.in_flight == 0


async def test_unexpected_exception_while_decoding_is_passed_to_callback(
    connection: BrokerConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault = RuntimeError("no error of ours")

    def broken(*_: object) -> None:
        raise fault

    monkeypatch.setattr(pending_response, "decode_response_body", broken)
    results: list[Any] = []
    connection.submit_with_callback(REQUEST, results.append, timeout=5.0)
    async with asyncio.timeout(5):
        await until(lambda: len(results) == 1)
    assert isinstance(results[0], DecodeError)
    assert results[0].__cause__ is fault
    assert connection.in_flight == 0


async def test_each_callback_gets_one_error_after_the_connection_is_lost(
    setting: Setting, connection: BrokerConnection
) -> None:
    held = setting.memory.hang("ListGroups")
    results: list[tuple[int, bool, Any]] = []

    def callback(number: int) -> Callable[[object], None]:
        return lambda error: results.append((number, connection.connected, error))

    for number in range(3):
        connection.submit_with_callback(REQUEST, callback(number), timeout=5.0)
    connection.disconnect(KafkaConnectionError("enough"))
    assert results == []
    await until(lambda: len(results) == 3)
    assert [row[:2] for row in results] == [(number, False) for number in range(3)]
    assert [str(error) for _, _, error in results] == ["enough"] * 3
    assert len({id(error) for _, _, error in results}) == 3
    held.remove()
    await asyncio.sleep(20)
    assert len(results) == 3


async def test_discards_response_after_deadline(
    setting: Setting, connection: BrokerConnection
) -> None:
    held = setting.memory.hang("ListGroups")
    results: list[Any] = []
    connection.submit_with_callback(REQUEST, results.append, timeout=2.0)
    await until(lambda: len(results) == 1)
    assert isinstance(results[0], KafkaTimeoutError)
    assert connection.in_flight == 1
    held.remove()
    await until(lambda: connection.in_flight == 0)
    assert connection.connected
    assert len(results) == 1


async def test_callback_without_response_runs_in_next_iteration(
    connection: BrokerConnection,
) -> None:
    results: list[object] = []
    connection.submit_with_callback(ProduceRequest(acks=0), results.append, timeout=1.0)
    assert results == []
    await asyncio.sleep(0)
    assert results == [ProduceResponse()]
    assert connection.in_flight == 0


# -- deadlines ------------------------------------------------------------------------------------


async def test_overdue_request_fails_alone(setting: Setting, connection: BrokerConnection) -> None:
    held = setting.memory.hang("ListGroups")
    start = now()
    short = connection.submit(REQUEST, timeout=2.0)
    long = connection.submit(REQUEST, timeout=8.0)
    with pytest.raises(
        KafkaTimeoutError, match="coordinator connection: no response to ListGroups for 2 "
    ):
        await short
    assert now() - start == pytest.approx(2.0)
    assert connection.connected
    assert not long.done()
    held.remove()
    assert await long == ListGroupsResponse()


async def test_connection_without_response_for_request_timeout_is_closed(
    setting: Setting, connection: BrokerConnection
) -> None:
    setting.memory.hang("ListGroups")
    start = now()
    first = connection.submit(REQUEST, timeout=3.0)
    await asyncio.sleep(1)
    second = connection.submit(REQUEST, timeout=60.0)
    with pytest.raises(KafkaTimeoutError):
        await first
    with pytest.raises(KafkaConnectionError, match="no response to ListGroups for 10 s"):
        await second
    assert now() - start == pytest.approx(10.0)
    assert not connection.connected


async def test_request_may_wait_longer_than_request_timeout(
    setting: Setting, connection: BrokerConnection
) -> None:
    setting.memory.hang("ListGroups")
    start = now()
    with pytest.raises(KafkaTimeoutError):
        await connection.send(REQUEST, timeout=300.0)
    assert now() - start == pytest.approx(300.0)


async def test_connection_attempt_continues_after_deadline_of_one_caller(setting: Setting) -> None:
    frozen = setting.memory.hang()
    with pytest.raises(KafkaTimeoutError, match="accepts connections but does not answer"):
        await setting.connection.connect(3.0)
    connections = setting.memory.cluster.brokers[1].connections
    (attempt,) = connections
    with pytest.raises(KafkaConnectionError, match="accepts connections but does not answer"):
        await setting.connection.connect(30.0)
    frozen.release()  # a frozen broker does not notice that a connection is closed
    await until(lambda: attempt not in connections)


async def test_closes_idle_connection(setting: Setting) -> None:
    await setting.connection.send(REQUEST, timeout=1.0)
    await asyncio.sleep(300)
    await setting.connection.send(REQUEST, timeout=1.0)
    await asyncio.sleep(539)
    assert setting.connection.connected
    await asyncio.sleep(2)
    assert not setting.connection.connected
    (event,) = setting.events_of(Disconnected)[-1:]
    assert event.error is None
    start = now()
    await setting.connection.send(REQUEST, timeout=1.0)
    assert now() == start


async def test_connection_with_request_in_flight_is_not_idle(setting: Setting) -> None:
    setting.memory.hang("ListGroups")
    start = now()
    with pytest.raises(KafkaTimeoutError):
        await setting.connection.send(REQUEST, timeout=2000.0)
    assert now() - start == pytest.approx(2000.0)


# -- losing and opening connections ---------------------------------------------------------------


async def test_lost_connection_fails_all_requests_in_flight_at_once(
    setting: Setting, connection: BrokerConnection
) -> None:
    held = setting.memory.hang("ListGroups")
    futures = [connection.submit(REQUEST, timeout=5.0) for _ in range(3)]
    await held.wait()
    start = now()
    await setting.disconnect()
    errors = await asyncio.gather(*futures, return_exceptions=True)
    assert now() == start
    assert len(set(map(id, errors))) == 3
    place = f"{setting.memory.address(1)} (broker 1), coordinator connection: the peer aborted"
    for error in errors:
        assert isinstance(error, KafkaConnectionError)
        assert place in str(error)


async def test_reconnects_after_backoff(setting: Setting, connection: BrokerConnection) -> None:
    await setting.disconnect()
    await until(lambda: not connection.connected)
    start = now()
    assert connection.retry_at > start
    await connection.send(REQUEST, timeout=1.0)
    assert 0.03 <= now() - start <= 0.07


async def test_backoff_doubles_with_each_failure_and_resets_on_success(setting: Setting) -> None:
    await setting.memory.cluster.stop_broker(1)
    waits: list[float] = []
    for _ in range(8):
        before = now()
        with pytest.raises(KafkaConnectionError, match="connection refused"):
            await setting.connection.connect(5.0)
        waits.append(now() - before)
    expected = [0, 0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    for wait, nominal in zip(waits, expected, strict=True):
        assert nominal * 0.79 <= wait <= nominal * 1.21
    await setting.memory.cluster.start_broker(1)
    await setting.connection.connect(5.0)
    assert setting.connection.failure is None
    await setting.disconnect()
    await until(lambda: not setting.connection.connected)
    assert setting.connection.retry_at - now() <= 0.06


async def test_deadline_ends_the_wait_for_backoff(setting: Setting) -> None:
    await setting.memory.cluster.stop_broker(1)
    for _ in range(8):
        with pytest.raises(KafkaConnectionError):
            await setting.connection.connect(5.0)
    start = now()
    with pytest.raises(
        KafkaTimeoutError, match=r"no coordinator connection .*before that: .*refused"
    ):
        await setting.connection.connect(0.1)
    assert now() - start == pytest.approx(0.1)


@pytest.mark.parametrize("steps", range(10))
async def test_cancelling_one_caller_does_not_cancel_the_connection_attempt(
    setting: Setting, steps: int
) -> None:
    one = asyncio.create_task(setting.connection.connect(5.0))
    other = asyncio.create_task(setting.connection.send(REQUEST, timeout=5.0))
    for _ in range(steps):
        await asyncio.sleep(0)
    one.cancel()
    await asyncio.wait([one])
    assert await other == ListGroupsResponse()
    assert setting.connections == 1


async def test_connect_raises_for_broker_that_is_not_in_metadata(setting: Setting) -> None:
    unknown = services_of(setting.client).brokers.connection(9, ConnectionKind.FETCH, setting)
    with pytest.raises(KafkaConnectionError, match="broker 9 is not in the cluster's metadata"):
        await unknown.connect(1.0)


# -- throttling -----------------------------------------------------------------------------------


async def test_throttle_time_mutes_only_its_connection(setting: Setting) -> None:
    setting.memory.cluster.faults.add(api="ListGroups", throttle=3.0, count=None)
    start = now()
    await setting.connection.send(REQUEST, timeout=1.0)
    assert setting.connection.muted_until == pytest.approx(start + 3.0)
    await setting.client.request(REQUEST, to=Broker(1))
    assert now() == start
    await setting.connection.send(REQUEST, timeout=5.0)
    assert setting.sent == pytest.approx([start, start, start + 3.0])
    assert [event.seconds for event in setting.events_of(Throttled)] == [3.0] * 3


async def test_throttle_time_beyond_deadline_fails_request_at_once(setting: Setting) -> None:
    setting.memory.cluster.faults.add(api="ListGroups", throttle=9.0)
    await setting.connection.send(REQUEST, timeout=1.0)
    start = now()
    with pytest.raises(KafkaTimeoutError, match="throttles this client for 9 s more"):
        await setting.connection.send(REQUEST, timeout=5.0)
    assert now() == start


@pytest.mark.parametrize(
    ("request_class", "version", "mutes"),
    [
        (ListGroupsRequest, 1, False),
        (ListGroupsRequest, 2, True),
        (DescribeClusterRequest, 0, True),
    ],
)
async def test_ignores_throttle_time_of_versions_before_kip_219(
    setting: Setting, request_class: type[Any], version: int, mutes: bool
) -> None:
    setting.memory.cluster.faults.add(api=request_class.API_KEY, throttle=3.0)
    response = await setting.connection.send(request_class(), timeout=1.0, version=version)
    assert response.throttle_time_ms == 3000
    assert setting.connection.muted_until == pytest.approx(now() + 3.0 if mutes else 0.0)


async def test_client_waits_from_versions_that_exist() -> None:
    for key, version in CLIENT_WAITS_FROM.items():
        assert version <= lookup(key).versions.max


# -- writing --------------------------------------------------------------------------------------


async def test_large_and_small_requests_arrive_in_order(
    setting: Setting, connection: BrokerConnection
) -> None:
    sizes = [10, 300_000, 20, 70_000, 30, 2_000_000, 5]
    names = ["x" * (size % 30_000) for size in sizes]
    futures = [connection.submit(sync_group(protocol_name=name), timeout=9.0) for name in names]
    await asyncio.gather(*futures)
    received = setting.memory.requests(SyncGroupRequest)
    assert [request.protocol_name for request in received] == names


async def test_requests_wait_while_the_broker_does_not_read(
    setting: Setting, connection: BrokerConnection
) -> None:
    held = setting.memory.hang("SyncGroup")
    futures = [connection.submit(sync_group(), timeout=9.0) for _ in range(3)]
    await held.wait()  # with requests that wait for the first, the broker stops reading
    bulk = sync_group(group_id="x" * 30_000)
    futures += [connection.submit(bulk, timeout=9.0) for _ in range(40)]
    sending = asyncio.create_task(connection.send(REQUEST, timeout=9.0))
    await asyncio.sleep(1)
    assert not sending.done()
    assert setting.sent == []
    assert connection.in_flight == len(futures)
    held.remove()
    await sending
    await asyncio.gather(*futures)


# -- the end --------------------------------------------------------------------------------------


async def test_close_fails_requests_in_flight_and_closes_the_transport(
    setting: Setting, connection: BrokerConnection
) -> None:
    held = setting.memory.hang("ListGroups")
    future = connection.submit(REQUEST, timeout=5.0)
    await held.wait()
    await connection.close()
    with pytest.raises(
        ClientClosedError, match="the coordinator connection to broker 1 was closed"
    ):
        await future
    with pytest.raises(ClientClosedError):
        await connection.send(REQUEST, timeout=1.0)
    with pytest.raises(ClientClosedError):
        connection.submit(REQUEST, timeout=1.0)
    await connection.close()
    held.release()
    await until(lambda: setting.connections == 0)


async def test_close_cancels_connection_attempt(setting: Setting) -> None:
    frozen = setting.memory.hang()
    connecting = asyncio.create_task(setting.connection.connect(50.0))
    await frozen.wait()
    await setting.connection.close()
    with pytest.raises(ClientClosedError):
        await connecting
    frozen.release()
    await until(lambda: setting.connections == 0)


async def test_closes_transport_that_opens_during_close(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = setting.memory.network
    dial, release = network.dial, asyncio.get_running_loop().create_future()

    async def dial_late(*place: Any, **options: Any) -> Any:
        opened = await dial(*place, **options)
        await release
        return opened

    monkeypatch.setattr(network, "dial", dial_late)
    connecting = asyncio.create_task(setting.connection.connect(5.0))
    await until(lambda: setting.connections == 1)
    release.set_result(None)
    await setting.connection.close()  # before the attempt has resumed
    with pytest.raises(ClientClosedError):
        await connecting
    await until(lambda: setting.connections == 0)


async def test_repr_names_broker_owner_and_state(setting: Setting) -> None:
    name = "<BrokerConnection: coordinator connection to broker 1, owner Setting,"
    assert repr(setting.connection) == f"{name} not connected>"
    await setting.connection.connect(1.0)
    assert repr(setting.connection) == f"{name} connected>"
    await setting.connection.close()
    assert repr(setting.connection) == f"{name} closed>"


# -- hooks ----------------------------------------------------------------------------------------


async def test_hooks_report_connections_and_requests(setting: Setting) -> None:
    await setting.connection.send(REQUEST, timeout=1.0)
    (connected,) = setting.events_of(Connected)
    assert (connected.node_id, connected.host) == (1, "127.0.0.1")
    assert connected.port == setting.memory.cluster.brokers[1].port
    assert connected.kind == "coordinator"
    sent = [event for event in setting.events_of(RequestSent) if event.api_key == LIST_GROUPS]
    received = [
        event for event in setting.events_of(ResponseReceived) if event.api_key == LIST_GROUPS
    ]
    assert [event.api_version for event in sent] == [ListGroupsRequest.VERSIONS.max]
    assert sent[0].correlation_id == received[0].correlation_id
    assert sent[0].api == received[0].api == "ListGroups"
    assert sent[0].size > 0
    await setting.disconnect()
    await until(lambda: bool(setting.events_of(Disconnected)))
    (lost,) = setting.events_of(Disconnected)
    assert isinstance(lost.error, KafkaConnectionError)
