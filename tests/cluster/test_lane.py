"""A lane and its connections: set-up, deadlines, back-off, throttling, idleness, the end."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from kafka_async.cluster import response
from kafka_async.cluster.broker_connection import BrokerConnection, ConnectionKind
from kafka_async.cluster.request_destinations import Broker
from kafka_async.errors import (
    ClientClosedError,
    DecodeError,
    EncodeError,
    KafkaConnectionError,
    KafkaTimeoutError,
    UnsupportedVersionError,
)
from kafka_async.hooks import (
    Connected,
    Disconnected,
    Event,
    Hooks,
    RequestSent,
    ResponseReceived,
    Throttled,
)
from kafka_async.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from kafka_async.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kafka_async.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from kafka_async.protocol.messages.produce import ProduceRequest, ProduceResponse
from kafka_async.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from tests.embedded_client import InMemory, until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from kafka_async.cluster.client import Client
    from kafka_async.embedded.faults import Fault

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]

LIST_GROUPS, PRODUCE, FIND_COORDINATOR = 16, 0, 10
ASK = ListGroupsRequest()
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
    """A lane to broker 1 of a cluster, and the events of its client."""

    def __init__(self, memory: InMemory, client: Client) -> None:
        self.memory, self.client = memory, client
        self.events: list[Event] = []
        self.sent: list[float] = []
        """Times at which requests of `LIST_GROUPS` were written, in seconds of the event loop."""
        client.hooks.listen(Event, self._note)
        self.connection: BrokerConnection = client.connection(1, ConnectionKind.COORDINATOR, self)

    def _note(self, event: Event) -> None:
        self.events.append(event)
        if isinstance(event, RequestSent) and event.api_key == LIST_GROUPS:
            self.sent.append(now())

    def heard(self, kind: type[Event]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    def hang(self, api: str) -> Fault:
        """Let requests of one API wait for their response until the fault is removed."""
        return self.memory.cluster.faults.add(api=api, hang=True, count=None)

    def freeze(self) -> Fault:
        """Let the broker accept connections and requests, and respond to none."""
        return self.memory.cluster.faults.add(hang=True, count=None)

    @property
    def connections(self) -> int:
        return self.memory.connections(1)

    async def disconnect(self) -> None:
        """Reset all connections of the broker."""
        await self.memory.cluster.disconnect(1)


@asynccontextmanager
async def settings(**options: Any) -> AsyncGenerator[Setting]:
    """Yield a lane in a cluster of one broker with these settings."""
    async with (
        InMemory(**options) as memory,
        memory.client(
            hooks=Hooks(),
            request_timeout_ms=10_000,
            metadata_recovery_strategy="none",  # a rebootstrap would disconnect the lane
        ) as client,
    ):
        yield Setting(memory, client)


@pytest_asyncio.fixture
async def setting() -> AsyncIterator[Setting]:
    async with settings() as made:
        yield made


def now() -> float:
    return asyncio.get_running_loop().time()


# -- requests -------------------------------------------------------------------------------------


async def test_a_lane_connects_when_it_is_first_used(setting: Setting) -> None:
    assert not setting.connection.connected
    assert setting.connections == 0
    assert await setting.connection.send(ASK, timeout=1.0) == ListGroupsResponse()
    assert setting.connection.connected
    assert setting.connection.version(PRODUCE) == ProduceRequest.VERSIONS.max


async def test_concurrent_requests_share_one_connection_attempt(setting: Setting) -> None:
    await asyncio.gather(*(setting.connection.send(ASK, timeout=1.0) for _ in range(10)))
    assert setting.connections == 1
    assert len(setting.memory.requests(ListGroupsRequest)) == 10


async def test_requests_are_pipelined_in_the_order_of_the_calls(setting: Setting) -> None:
    await setting.connection.connect(1.0)
    held = setting.hang("FindCoordinator")
    futures = [setting.connection.submit(numbered(n), timeout=5.0) for n in range(5)]
    await held.wait()
    sent = [event for event in setting.heard(RequestSent) if event.api_key == FIND_COORDINATOR]
    assert len(sent) == 5  # before the first response
    assert setting.connection.in_flight == 5
    held.remove()
    found = await asyncio.gather(*futures)
    assert list(map(number_of, found)) == [0, 1, 2, 3, 4]
    received = setting.memory.requests(FindCoordinatorRequest)
    assert [request.coordinator_keys for request in received] == [[str(n)] for n in range(5)]
    assert setting.connection.in_flight == 0


async def test_a_cancelled_request_disturbs_no_other(setting: Setting) -> None:
    await setting.connection.connect(1.0)
    held = setting.hang("FindCoordinator")
    first, second = (setting.connection.submit(numbered(n), timeout=5.0) for n in (1, 2))
    await held.wait()
    first.cancel()
    held.remove()
    assert number_of(await second) == 2
    assert setting.connection.connected


async def test_a_request_without_response_is_done_when_it_is_sent(setting: Setting) -> None:
    await setting.connection.connect(1.0)
    future = setting.connection.submit(ProduceRequest(acks=0), timeout=1.0, expect_response=False)
    assert future.result() == ProduceResponse()
    await until(lambda: len(setting.memory.requests(ProduceRequest)) == 1)
    await setting.connection.send(ASK, timeout=1.0)


async def test_submit_raises_without_a_connection(setting: Setting) -> None:
    with pytest.raises(KafkaConnectionError, match=r"not connected to broker 1 \(coordinator lane"):
        setting.connection.submit(ASK, timeout=1.0)
    with pytest.raises(KafkaConnectionError):
        setting.connection.version(LIST_GROUPS)


async def test_a_request_that_cannot_be_encoded_raises_and_leaves_the_lane_usable(
    setting: Setting,
) -> None:
    with pytest.raises(EncodeError):
        await setting.connection.send(ListGroupsRequest(states_filter=5), timeout=1.0)  # pyright: ignore[reportArgumentType]
    with pytest.raises(UnsupportedVersionError):
        await setting.connection.send(ASK, timeout=1.0, version=99)
    await setting.connection.send(ASK, timeout=1.0)
    assert setting.connections == 1


async def test_an_api_that_the_broker_lacks_is_named() -> None:
    async with settings(api_versions={PRODUCE: (0, 0)}) as setting:
        await setting.connection.connect(1.0)
        with pytest.raises(UnsupportedVersionError, match="Produce"):
            await setting.connection.send(ProduceRequest(), timeout=1.0)


async def test_a_large_response_is_complete(setting: Setting) -> None:
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


async def test_a_callback_can_send_the_next_request(setting: Setting) -> None:
    await setting.connection.connect(1.0)
    heard: list[object] = []

    def again(answer: object) -> None:
        heard.append(answer)
        if len(heard) < 3:
            setting.connection.ask(ASK, again, timeout=5.0)

    again("begin")
    await until(lambda: len(heard) == 3)
    assert heard[1:] == [ListGroupsResponse()] * 2
    assert setting.connection.in_flight == 0


async def test_an_unexpected_exception_while_decoding_is_passed_to_the_callback(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    await setting.connection.connect(1.0)
    fault = RuntimeError("no error of ours")

    def broken(*_: object) -> None:
        raise fault

    monkeypatch.setattr(response, "decode_response_body", broken)
    heard: list[Any] = []
    setting.connection.ask(ASK, heard.append, timeout=5.0)
    async with asyncio.timeout(5):
        await until(lambda: len(heard) == 1)
    assert isinstance(heard[0], DecodeError)
    assert heard[0].__cause__ is fault
    assert setting.connection.in_flight == 0


async def test_each_callback_gets_one_error_after_the_connection_is_lost(
    setting: Setting,
) -> None:
    await setting.connection.connect(1.0)
    held = setting.hang("ListGroups")
    heard: list[tuple[bool, Any]] = []
    for _ in range(3):
        setting.connection.ask(
            ASK, lambda error: heard.append((setting.connection.connected, error)), timeout=5.0
        )
    setting.connection.disconnect(KafkaConnectionError("enough"))
    assert heard == []
    await until(lambda: len(heard) == 3)
    assert [(connected, str(error)) for connected, error in heard] == [(False, "enough")] * 3
    assert len({id(error) for _, error in heard}) == 3
    held.remove()
    await asyncio.sleep(20)
    assert len(heard) == 3


async def test_a_response_after_its_deadline_is_discarded(setting: Setting) -> None:
    await setting.connection.connect(1.0)
    held = setting.hang("ListGroups")
    heard: list[Any] = []
    setting.connection.ask(ASK, heard.append, timeout=2.0)
    await until(lambda: len(heard) == 1)
    assert isinstance(heard[0], KafkaTimeoutError)
    assert setting.connection.in_flight == 1
    held.remove()
    await until(lambda: setting.connection.in_flight == 0)
    assert setting.connection.connected
    assert len(heard) == 1


async def test_the_callback_of_a_request_without_response_runs_in_the_next_iteration(
    setting: Setting,
) -> None:
    await setting.connection.connect(1.0)
    heard: list[object] = []
    setting.connection.ask(ProduceRequest(acks=0), heard.append, timeout=1.0, expect_response=False)
    assert heard == []
    await asyncio.sleep(0)
    assert heard == [ProduceResponse()]
    assert setting.connection.in_flight == 0


async def test_ask_raises_without_a_connection(setting: Setting) -> None:
    heard: list[object] = []
    with pytest.raises(KafkaConnectionError, match="not connected"):
        setting.connection.ask(ASK, heard.append, timeout=1.0)
    assert heard == []


# -- deadlines ------------------------------------------------------------------------------------


async def test_an_overdue_request_fails_alone(setting: Setting) -> None:
    await setting.connection.connect(1.0)
    held = setting.hang("ListGroups")
    begun = now()
    short = setting.connection.submit(ASK, timeout=2.0)
    long = setting.connection.submit(ASK, timeout=8.0)
    with pytest.raises(KafkaTimeoutError, match="coordinator lane: no answer to ListGroups for 2 "):
        await short
    assert now() - begun == pytest.approx(2.0)
    assert setting.connection.connected
    assert not long.done()
    held.remove()
    assert await long == ListGroupsResponse()


async def test_a_connection_without_response_for_the_request_timeout_is_closed(
    setting: Setting,
) -> None:
    await setting.connection.connect(1.0)
    setting.hang("ListGroups")
    begun = now()
    first = setting.connection.submit(ASK, timeout=3.0)
    await asyncio.sleep(1)
    second = setting.connection.submit(ASK, timeout=60.0)
    with pytest.raises(KafkaTimeoutError):
        await first
    with pytest.raises(KafkaConnectionError, match="no answer to ListGroups for 10 s"):
        await second
    assert now() - begun == pytest.approx(10.0)
    assert not setting.connection.connected


async def test_a_request_may_wait_longer_than_the_request_timeout(setting: Setting) -> None:
    await setting.connection.connect(1.0)
    setting.hang("ListGroups")
    begun = now()
    with pytest.raises(KafkaTimeoutError):
        await setting.connection.send(ASK, timeout=300.0)
    assert now() - begun == pytest.approx(300.0)


async def test_a_connection_attempt_outlives_the_deadline_of_one_caller(setting: Setting) -> None:
    frozen = setting.freeze()
    with pytest.raises(KafkaTimeoutError, match="accepts connections but does not answer"):
        await setting.connection.connect(3.0)
    connections = setting.memory.cluster.brokers[1].connections
    (attempt,) = connections
    with pytest.raises(KafkaConnectionError, match="accepts connections but does not answer"):
        await setting.connection.connect(30.0)
    frozen.release()  # a frozen broker does not notice that a connection is closed
    await until(lambda: attempt not in connections)


async def test_an_idle_connection_is_closed(setting: Setting) -> None:
    await setting.connection.send(ASK, timeout=1.0)
    await asyncio.sleep(300)
    await setting.connection.send(ASK, timeout=1.0)
    await asyncio.sleep(539)
    assert setting.connection.connected
    await asyncio.sleep(2)
    assert not setting.connection.connected
    (event,) = setting.heard(Disconnected)[-1:]
    assert event.error is None
    begun = now()
    await setting.connection.send(ASK, timeout=1.0)
    assert now() == begun


async def test_a_connection_that_waits_for_a_response_is_not_idle(setting: Setting) -> None:
    setting.hang("ListGroups")
    begun = now()
    with pytest.raises(KafkaTimeoutError):
        await setting.connection.send(ASK, timeout=2000.0)
    assert now() - begun == pytest.approx(2000.0)


# -- losing and making connections ----------------------------------------------------------------


async def test_a_lost_connection_fails_all_requests_in_flight_at_once(setting: Setting) -> None:
    await setting.connection.connect(1.0)
    held = setting.hang("ListGroups")
    futures = [setting.connection.submit(ASK, timeout=5.0) for _ in range(3)]
    await held.wait()
    begun = now()
    await setting.disconnect()
    errors = await asyncio.gather(*futures, return_exceptions=True)
    assert now() == begun
    assert len(set(map(id, errors))) == 3
    place = f"{setting.memory.address(1)} (broker 1), coordinator lane: the peer aborted"
    for error in errors:
        assert isinstance(error, KafkaConnectionError)
        assert place in str(error)


async def test_the_connection_after_a_loss_waits_for_its_back_off(setting: Setting) -> None:
    await setting.connection.connect(1.0)
    await setting.disconnect()
    await until(lambda: not setting.connection.connected)
    begun = now()
    assert setting.connection.retry_at > begun
    await setting.connection.send(ASK, timeout=1.0)
    assert 0.03 <= now() - begun <= 0.07


async def test_back_off_doubles_with_each_failure_and_ends_with_success(setting: Setting) -> None:
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


async def test_back_off_is_waited_for_only_until_the_deadline(setting: Setting) -> None:
    await setting.memory.cluster.stop_broker(1)
    for _ in range(8):
        with pytest.raises(KafkaConnectionError):
            await setting.connection.connect(5.0)
    begun = now()
    with pytest.raises(KafkaTimeoutError, match=r"no connection .*before that: .*refused"):
        await setting.connection.connect(0.1)
    assert now() - begun == pytest.approx(0.1)


@pytest.mark.parametrize("steps", range(10))
async def test_cancelling_one_caller_does_not_cancel_the_connection_attempt(
    setting: Setting, steps: int
) -> None:
    one = asyncio.create_task(setting.connection.connect(5.0))
    other = asyncio.create_task(setting.connection.send(ASK, timeout=5.0))
    for _ in range(steps):
        await asyncio.sleep(0)
    one.cancel()
    await asyncio.wait([one])
    assert await other == ListGroupsResponse()
    assert setting.connections == 1


async def test_connect_raises_for_a_broker_that_is_not_in_metadata(setting: Setting) -> None:
    stranger = setting.client.connection(9, ConnectionKind.FETCH, setting)
    with pytest.raises(KafkaConnectionError, match="broker 9 is not in the cluster's metadata"):
        await stranger.connect(1.0)


# -- throttling -----------------------------------------------------------------------------------


async def test_a_throttled_lane_waits_and_others_do_not(setting: Setting) -> None:
    setting.memory.cluster.faults.add(api="ListGroups", throttle=3.0, count=None)
    begun = now()
    await setting.connection.send(ASK, timeout=1.0)
    assert setting.connection.muted_until == pytest.approx(begun + 3.0)
    await setting.client.request(ASK, to=Broker(1))
    assert now() == begun
    await setting.connection.send(ASK, timeout=5.0)
    assert setting.sent == pytest.approx([begun, begun, begun + 3.0])
    assert [event.seconds for event in setting.heard(Throttled)] == [3.0] * 3


async def test_a_throttle_window_beyond_the_deadline_fails_the_request_at_once(
    setting: Setting,
) -> None:
    setting.memory.cluster.faults.add(api="ListGroups", throttle=9.0)
    await setting.connection.send(ASK, timeout=1.0)
    begun = now()
    with pytest.raises(KafkaTimeoutError, match="throttles this client for 9 s more"):
        await setting.connection.send(ASK, timeout=5.0)
    assert now() == begun


async def test_throttle_time_of_a_version_before_kip_219_is_ignored() -> None:
    async with settings(api_versions={LIST_GROUPS: (0, 1)}) as setting:
        setting.memory.cluster.faults.add(api="ListGroups", throttle=3.0)
        response = await setting.connection.send(ASK, timeout=1.0)
        assert response.throttle_time_ms == 3000
        assert setting.connection.muted_until == 0.0


# -- writing --------------------------------------------------------------------------------------


async def test_large_and_small_requests_arrive_in_order(setting: Setting) -> None:
    await setting.connection.connect(1.0)
    sizes = [10, 300_000, 20, 70_000, 30, 2_000_000, 5]
    names = ["x" * (size % 30_000) for size in sizes]
    futures = [
        setting.connection.submit(sync_group(protocol_name=name), timeout=9.0) for name in names
    ]
    await asyncio.gather(*futures)
    received = setting.memory.requests(SyncGroupRequest)
    assert [request.protocol_name for request in received] == names


async def test_requests_wait_while_the_broker_does_not_read(setting: Setting) -> None:
    await setting.connection.connect(1.0)
    held = setting.hang("SyncGroup")
    futures = [setting.connection.submit(sync_group(), timeout=9.0) for _ in range(3)]
    await held.wait()  # with requests that wait for the first, the broker stops reading
    bulk = sync_group(group_id="x" * 30_000)
    futures += [setting.connection.submit(bulk, timeout=9.0) for _ in range(40)]
    sending = asyncio.create_task(setting.connection.send(ASK, timeout=9.0))
    await asyncio.sleep(1)
    assert not sending.done()
    assert setting.sent == []
    assert setting.connection.in_flight == len(futures)
    held.remove()
    await sending
    await asyncio.gather(*futures)


# -- the end --------------------------------------------------------------------------------------


async def test_closing_a_lane_fails_its_requests_and_closes_its_connection(
    setting: Setting,
) -> None:
    await setting.connection.connect(1.0)
    held = setting.hang("ListGroups")
    future = setting.connection.submit(ASK, timeout=5.0)
    await held.wait()
    await setting.connection.close()
    with pytest.raises(
        ClientClosedError, match=r"the lane to broker 1 \(coordinator lane\) was clo"
    ):
        await future
    with pytest.raises(ClientClosedError):
        await setting.connection.send(ASK, timeout=1.0)
    with pytest.raises(ClientClosedError):
        setting.connection.submit(ASK, timeout=1.0)
    await setting.connection.close()
    held.release()
    await until(lambda: setting.connections == 0)


async def test_closing_a_lane_ends_its_connection_attempt(setting: Setting) -> None:
    frozen = setting.freeze()
    connecting = asyncio.create_task(setting.connection.connect(50.0))
    await frozen.wait()
    await setting.connection.close()
    with pytest.raises(ClientClosedError):
        await connecting
    frozen.release()
    await until(lambda: setting.connections == 0)


async def test_a_connection_made_while_its_lane_is_closed_is_closed_too(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = setting.memory.network
    dial, answered = network.dial, asyncio.get_running_loop().create_future()

    async def dial_late(*place: Any, **options: Any) -> Any:
        opened = await dial(*place, **options)
        await answered
        return opened

    monkeypatch.setattr(network, "dial", dial_late)
    connecting = asyncio.create_task(setting.connection.connect(5.0))
    await until(lambda: setting.connections == 1)
    answered.set_result(None)
    await setting.connection.close()  # before the attempt has seen what it waited for
    with pytest.raises(ClientClosedError):
        await connecting
    await until(lambda: setting.connections == 0)


async def test_the_repr_of_a_lane_names_its_broker_owner_and_state(setting: Setting) -> None:
    name = "<Lane to broker 1 (coordinator lane), Setting's,"
    assert repr(setting.connection) == f"{name} not connected>"
    await setting.connection.connect(1.0)
    assert repr(setting.connection) == f"{name} connected>"
    await setting.connection.close()
    assert repr(setting.connection) == f"{name} closed>"


# -- hooks ----------------------------------------------------------------------------------------


async def test_hooks_report_connections_and_requests(setting: Setting) -> None:
    await setting.connection.send(ASK, timeout=1.0)
    (connected,) = setting.heard(Connected)
    assert (connected.node_id, connected.host) == (1, "127.0.0.1")
    assert connected.port == setting.memory.cluster.brokers[1].port
    assert connected.connection == "coordinator"
    sent = [event for event in setting.heard(RequestSent) if event.api_key == LIST_GROUPS]
    answered = [event for event in setting.heard(ResponseReceived) if event.api_key == LIST_GROUPS]
    assert [event.api_version for event in sent] == [ListGroupsRequest.VERSIONS.max]
    assert sent[0].correlation_id == answered[0].correlation_id
    assert sent[0].size > 0
    await setting.disconnect()
    await until(lambda: bool(setting.heard(Disconnected)))
    (lost,) = setting.heard(Disconnected)
    assert isinstance(lost.error, KafkaConnectionError)
