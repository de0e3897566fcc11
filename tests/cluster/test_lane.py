"""A lane and its connections: set-up, deadlines, back-off, throttling, idleness, the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from kafka_async.cluster import response
from kafka_async.cluster.destinations import Broker
from kafka_async.cluster.lane import Lane, LaneKind
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
    RequestAnswered,
    RequestSent,
    Throttled,
)
from kafka_async.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kafka_async.protocol.messages.produce import ProduceRequest, ProduceResponse
from kafka_async.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from tests.cluster.scripted import ScriptedBroker, World, always, never
from tests.embedded_client import until

if TYPE_CHECKING:
    from kafka_async.cluster.client import Client

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]

HEARTBEAT, PRODUCE, SYNC_GROUP = 12, 0, 14


def sync_group(group_id: str = "g", protocol_name: str = "range") -> SyncGroupRequest:
    return SyncGroupRequest(
        group_id=group_id, protocol_type="consumer", protocol_name=protocol_name
    )


class Setting:
    """A lane to broker 1 of a world, and what was heard of it."""

    def __init__(self, world: World, client: Client) -> None:
        self.world, self.client = world, client
        self.events: list[Event] = []
        client.hooks.listen(Event, self.events.append)
        self.lane: Lane = client.lane(1, LaneKind.COORDINATOR, self)

    @property
    def broker(self) -> ScriptedBroker:
        return self.world.brokers[1]

    def heard(self, kind: type[Event]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    def beats(self) -> int:
        return len(self.broker.asked(HEARTBEAT))


@pytest_asyncio.fixture
async def setting() -> AsyncIterator[Setting]:
    world = World()
    async with world.client(
        hooks=Hooks(),
        request_timeout_ms=10_000,
        metadata_recovery_strategy="none",  # a rebootstrap would disconnect the lane
    ) as client:
        yield Setting(world, client)


def now() -> float:
    return asyncio.get_running_loop().time()


# -- requests -------------------------------------------------------------------------------------


async def test_a_lane_connects_when_it_is_first_used(setting: Setting) -> None:
    assert not setting.lane.connected
    assert setting.broker.connections == 0
    assert (
        await setting.lane.send(HeartbeatRequest(group_id="g"), timeout=1.0) == HeartbeatResponse()
    )
    assert setting.lane.connected
    assert setting.lane.version(PRODUCE) == ProduceRequest.VERSIONS.max


async def test_everybody_who_waits_shares_one_attempt(setting: Setting) -> None:
    sends = [setting.lane.send(HeartbeatRequest(group_id="g"), timeout=1.0) for _ in range(10)]
    await asyncio.gather(*sends)
    assert setting.broker.connections == 1
    assert setting.beats() == 10


async def test_requests_are_pipelined_in_the_order_of_the_calls(setting: Setting) -> None:
    await setting.lane.connect(1.0)
    setting.broker.held.add(HEARTBEAT)
    futures = [
        setting.lane.submit(HeartbeatRequest(group_id=str(n)), timeout=5.0) for n in range(5)
    ]
    await until(lambda: setting.beats() == 5)
    assert setting.lane.in_flight == 5
    assert [r.group_id for r in setting.broker.asked(HEARTBEAT)] == ["0", "1", "2", "3", "4"]
    (peer,) = [peer for peer in setting.broker.peers if peer.open]
    for header, _ in peer.seen[1:]:
        peer.say(header, HeartbeatResponse(error_code=header.correlation_id))
    answers = await asyncio.gather(*futures)
    assert [answer.error_code for answer in answers] == [1, 2, 3, 4, 5]
    assert setting.lane.in_flight == 0


async def test_a_cancelled_request_disturbs_no_other(setting: Setting) -> None:
    await setting.lane.connect(1.0)
    setting.broker.held.add(HEARTBEAT)
    first, second = (
        setting.lane.submit(HeartbeatRequest(group_id="g"), timeout=5.0) for _ in range(2)
    )
    await until(lambda: setting.beats() == 2)
    first.cancel()
    (peer,) = [peer for peer in setting.broker.peers if peer.open]
    for (header, _), code in zip(peer.seen[1:], (1, 2), strict=True):
        peer.say(header, HeartbeatResponse(error_code=code))
    assert (await second).error_code == 2
    assert setting.lane.connected


async def test_what_expects_no_answer_is_done_when_it_is_sent(setting: Setting) -> None:
    await setting.lane.connect(1.0)
    request = ProduceRequest(acks=0)
    future = setting.lane.submit(request, timeout=1.0, expect_response=False)
    assert future.result() == ProduceResponse()
    setting.broker.answers[PRODUCE] = never
    await until(lambda: len(setting.broker.asked(PRODUCE)) == 1)
    await setting.lane.send(HeartbeatRequest(group_id="g"), timeout=1.0)


async def test_submitting_needs_a_connection(setting: Setting) -> None:
    with pytest.raises(KafkaConnectionError, match=r"not connected to broker 1 \(coordinator lane"):
        setting.lane.submit(HeartbeatRequest(group_id="g"), timeout=1.0)
    with pytest.raises(KafkaConnectionError):
        setting.lane.version(HEARTBEAT)


async def test_a_request_that_cannot_be_said_is_refused_and_the_lane_goes_on(
    setting: Setting,
) -> None:
    with pytest.raises(EncodeError):
        await setting.lane.send(HeartbeatRequest(group_id=5), timeout=1.0)  # pyright: ignore[reportArgumentType]
    with pytest.raises(UnsupportedVersionError):
        await setting.lane.send(HeartbeatRequest(group_id="g"), timeout=1.0, version=99)
    await setting.lane.send(HeartbeatRequest(group_id="g"), timeout=1.0)
    assert setting.broker.connections == 1


async def test_an_api_that_the_broker_lacks_is_named(setting: Setting) -> None:
    setting.world.max_versions[PRODUCE] = 0
    await setting.lane.connect(1.0)
    with pytest.raises(UnsupportedVersionError, match="Produce"):
        await setting.lane.send(ProduceRequest(), timeout=1.0)


async def test_a_large_answer_is_decoded_by_who_waits_for_it(setting: Setting) -> None:
    state = bytes(range(256)) * 4096
    setting.broker.answers[SYNC_GROUP] = always(SyncGroupResponse(assignment=state))
    answer = await setting.lane.send(sync_group(), timeout=1.0)
    assert bytes(answer.assignment) == state


async def test_an_answer_that_makes_no_sense_fails_its_request_alone(setting: Setting) -> None:
    def nonsense(peer: Any, header: Any, request: Any) -> None:
        body = header.correlation_id.to_bytes(4, "big") + b"\x00\xff"
        peer.transport.write(len(body).to_bytes(4, "big") + body)

    setting.broker.answers[HEARTBEAT] = nonsense
    await setting.lane.connect(1.0)
    future = setting.lane.submit(HeartbeatRequest(group_id="g"), timeout=1.0)
    gathered = await asyncio.gather(future, return_exceptions=True)
    assert isinstance(gathered[0], DecodeError)
    with pytest.raises(DecodeError, match="HeartbeatResponse version 4"):
        await setting.lane.send(HeartbeatRequest(group_id="g"), timeout=1.0)


# -- answers that are heard -----------------------------------------------------------------------


async def test_an_answer_is_heard_where_it_arrives(setting: Setting) -> None:
    await setting.lane.connect(1.0)
    setting.broker.held.add(HEARTBEAT)
    order: list[object] = []
    future = setting.lane.submit(HeartbeatRequest(group_id="g"), timeout=5.0)
    future.add_done_callback(lambda _: order.append("a future, in the turn after"))
    setting.lane.ask(HeartbeatRequest(group_id="g"), order.append, timeout=5.0)
    await until(lambda: setting.beats() == 2)
    (peer,) = [peer for peer in setting.broker.peers if peer.open]
    for code, (header, _) in enumerate(peer.seen[1:]):
        peer.say(header, HeartbeatResponse(error_code=code))
    await until(lambda: len(order) == 2)
    assert order == [HeartbeatResponse(error_code=1), "a future, in the turn after"]


async def test_asking_again_from_within_an_answer_works(setting: Setting) -> None:
    await setting.lane.connect(1.0)
    heard: list[object] = []

    def again(answer: object) -> None:
        heard.append(answer)
        if len(heard) < 3:
            setting.lane.ask(HeartbeatRequest(group_id="g"), again, timeout=5.0)

    again("begin")
    await until(lambda: len(heard) == 3)
    assert heard[1:] == [HeartbeatResponse()] * 2
    assert setting.lane.in_flight == 0


async def test_a_fault_in_decoding_is_an_outcome_too(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    await setting.lane.connect(1.0)
    fault = RuntimeError("no error of ours")

    def broken(*_: object) -> None:
        raise fault

    monkeypatch.setattr(response, "read_response", broken)
    heard: list[Any] = []
    setting.lane.ask(HeartbeatRequest(group_id="g"), heard.append, timeout=5.0)
    async with asyncio.timeout(5):
        await until(lambda: len(heard) == 1)
    assert isinstance(heard[0], DecodeError)
    assert heard[0].__cause__ is fault
    assert setting.lane.in_flight == 0


async def test_a_lost_connection_is_heard_of_once_by_each_and_after_it_is_down(
    setting: Setting,
) -> None:
    await setting.lane.connect(1.0)
    setting.broker.held.add(HEARTBEAT)
    heard: list[tuple[bool, Any]] = []
    for _ in range(3):
        setting.lane.ask(
            HeartbeatRequest(group_id="g"),
            lambda error: heard.append((setting.lane.connected, error)),
            timeout=5.0,
        )
    setting.lane.disconnect(KafkaConnectionError("enough"))
    assert heard == []
    await until(lambda: len(heard) == 3)
    assert [(connected, str(error)) for connected, error in heard] == [(False, "enough")] * 3
    assert len({id(error) for _, error in heard}) == 3
    await asyncio.sleep(20)
    assert len(heard) == 3


async def test_an_answer_that_is_overdue_is_not_heard_when_it_comes_after_all(
    setting: Setting,
) -> None:
    await setting.lane.connect(1.0)
    setting.broker.held.add(HEARTBEAT)
    heard: list[Any] = []
    setting.lane.ask(HeartbeatRequest(group_id="g"), heard.append, timeout=2.0)
    await until(lambda: len(heard) == 1)
    assert isinstance(heard[0], KafkaTimeoutError)
    (peer,) = [peer for peer in setting.broker.peers if peer.open]
    peer.say(peer.seen[-1][0], HeartbeatResponse())
    await until(lambda: setting.lane.in_flight == 0)
    assert setting.lane.connected
    assert len(heard) == 1


async def test_nonsense_is_heard_as_an_error(setting: Setting) -> None:
    def nonsense(peer: Any, header: Any, request: Any) -> None:
        body = header.correlation_id.to_bytes(4, "big") + b"\x00\xff"
        peer.transport.write(len(body).to_bytes(4, "big") + body)

    setting.broker.answers[HEARTBEAT] = nonsense
    await setting.lane.connect(1.0)
    heard: list[Any] = []
    setting.lane.ask(HeartbeatRequest(group_id="g"), heard.append, timeout=1.0)
    await until(lambda: len(heard) == 1)
    assert isinstance(heard[0], DecodeError)
    assert setting.lane.connected


async def test_what_expects_no_answer_is_heard_of_in_the_next_turn(setting: Setting) -> None:
    await setting.lane.connect(1.0)
    heard: list[object] = []
    setting.lane.ask(ProduceRequest(acks=0), heard.append, timeout=1.0, expect_response=False)
    assert heard == []
    await until(lambda: len(heard) == 1)
    assert heard == [ProduceResponse()]
    assert setting.lane.in_flight == 0


async def test_asking_needs_a_connection(setting: Setting) -> None:
    heard: list[object] = []
    with pytest.raises(KafkaConnectionError, match="not connected"):
        setting.lane.ask(HeartbeatRequest(group_id="g"), heard.append, timeout=1.0)
    assert heard == []


# -- deadlines ------------------------------------------------------------------------------------


async def test_a_request_that_is_overdue_fails_alone(setting: Setting) -> None:
    await setting.lane.connect(1.0)
    setting.broker.held.add(HEARTBEAT)
    begun = now()
    short = setting.lane.submit(HeartbeatRequest(group_id="g"), timeout=2.0)
    long = setting.lane.submit(HeartbeatRequest(group_id="g"), timeout=8.0)
    with pytest.raises(KafkaTimeoutError, match="coordinator lane: no answer to Heartbeat for 2 s"):
        await short
    assert now() - begun == pytest.approx(2.0)
    assert setting.lane.connected
    assert not long.done()
    (peer,) = [peer for peer in setting.broker.peers if peer.open]
    for header, _ in peer.seen[1:]:
        peer.say(header, HeartbeatResponse())
    assert await long == HeartbeatResponse()


async def test_a_broker_silent_for_the_request_timeout_is_given_up(setting: Setting) -> None:
    await setting.lane.connect(1.0)
    setting.broker.held.add(HEARTBEAT)
    begun = now()
    first = setting.lane.submit(HeartbeatRequest(group_id="g"), timeout=3.0)
    await asyncio.sleep(1)
    second = setting.lane.submit(HeartbeatRequest(group_id="g"), timeout=60.0)
    with pytest.raises(KafkaTimeoutError):
        await first
    with pytest.raises(KafkaConnectionError, match="no answer to Heartbeat for 10 s"):
        await second
    assert now() - begun == pytest.approx(10.0)
    assert not setting.lane.connected


async def test_a_long_poll_may_take_its_own_time(setting: Setting) -> None:
    await setting.lane.connect(1.0)
    setting.broker.held.add(HEARTBEAT)
    begun = now()
    with pytest.raises(KafkaTimeoutError):
        await setting.lane.send(HeartbeatRequest(group_id="g"), timeout=300.0)
    assert now() - begun == pytest.approx(300.0)


async def test_a_connection_that_does_not_come_about_ends_with_the_callers_deadline(
    setting: Setting,
) -> None:
    setting.broker.silent = True
    with pytest.raises(KafkaTimeoutError, match="accepts connections but does not answer"):
        await setting.lane.connect(3.0)
    assert setting.broker.connections == 1
    with pytest.raises(KafkaConnectionError, match="accepts connections but does not answer"):
        await setting.lane.connect(30.0)
    await until(lambda: setting.broker.connections == 0)


async def test_an_idle_connection_is_closed(setting: Setting) -> None:
    await setting.lane.send(HeartbeatRequest(group_id="g"), timeout=1.0)
    await asyncio.sleep(300)
    await setting.lane.send(HeartbeatRequest(group_id="g"), timeout=1.0)
    await asyncio.sleep(539)
    assert setting.lane.connected
    await asyncio.sleep(2)
    assert not setting.lane.connected
    (event,) = setting.heard(Disconnected)[-1:]
    assert event.error is None
    begun = now()
    await setting.lane.send(HeartbeatRequest(group_id="g"), timeout=1.0)
    assert now() == begun


async def test_a_connection_that_waits_for_an_answer_is_not_idle(setting: Setting) -> None:
    setting.broker.held.add(HEARTBEAT)
    begun = now()
    with pytest.raises(KafkaTimeoutError):
        await setting.lane.send(HeartbeatRequest(group_id="g"), timeout=2000.0)
    assert now() - begun == pytest.approx(2000.0)


# -- losing and making connections ----------------------------------------------------------------


async def test_a_lost_connection_fails_all_that_is_under_way_at_once(setting: Setting) -> None:
    await setting.lane.connect(1.0)
    setting.broker.held.add(HEARTBEAT)
    futures = [setting.lane.submit(HeartbeatRequest(group_id="g"), timeout=5.0) for _ in range(3)]
    await until(lambda: setting.beats() == 3)
    begun = now()
    setting.broker.drop()
    errors = await asyncio.gather(*futures, return_exceptions=True)
    assert now() == begun
    assert len(set(map(id, errors))) == 3
    for error in errors:
        assert isinstance(error, KafkaConnectionError)
        assert "b1:9092 (broker 1), coordinator lane: the peer aborted" in str(error)


async def test_an_answer_out_of_order_ends_the_connection(setting: Setting) -> None:
    def other(peer: Any, header: Any, request: Any) -> None:
        peer.say(header._replace(correlation_id=77), HeartbeatResponse())

    setting.broker.answers[HEARTBEAT] = other
    with pytest.raises(KafkaConnectionError, match="an answer to request 77 came; 1 is due"):
        await setting.lane.send(HeartbeatRequest(group_id="g"), timeout=1.0)
    assert not setting.lane.connected


async def test_after_a_loss_the_next_connection_waits_for_its_back_off(setting: Setting) -> None:
    await setting.lane.connect(1.0)
    setting.broker.drop()
    await until(lambda: not setting.lane.connected)
    begun = now()
    assert setting.lane.retry_at > begun
    await setting.lane.send(HeartbeatRequest(group_id="g"), timeout=1.0)
    assert 0.03 <= now() - begun <= 0.07


async def test_back_off_doubles_with_each_failure_and_ends_with_success(setting: Setting) -> None:
    setting.broker.stop()
    waits: list[float] = []
    for _ in range(8):
        before = now()
        with pytest.raises(KafkaConnectionError, match="connection refused"):
            await setting.lane.connect(5.0)
        waits.append(now() - before)
    expected = [0, 0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    for wait, nominal in zip(waits, expected, strict=True):
        assert nominal * 0.79 <= wait <= nominal * 1.21
    setting.broker.start()
    await setting.lane.connect(5.0)
    assert setting.lane.failure is None
    setting.broker.drop()
    await until(lambda: not setting.lane.connected)
    assert setting.lane.retry_at - now() <= 0.06


async def test_back_off_is_waited_for_only_until_the_deadline(setting: Setting) -> None:
    setting.broker.stop()
    for _ in range(8):
        with pytest.raises(KafkaConnectionError):
            await setting.lane.connect(5.0)
    begun = now()
    with pytest.raises(KafkaTimeoutError, match=r"no connection .*before that: .*refused"):
        await setting.lane.connect(0.1)
    assert now() - begun == pytest.approx(0.1)


@pytest.mark.parametrize("steps", range(10))
async def test_cancelling_who_connects_disturbs_nobody_else(setting: Setting, steps: int) -> None:
    one = asyncio.create_task(setting.lane.connect(5.0))
    other = asyncio.create_task(setting.lane.send(HeartbeatRequest(group_id="g"), timeout=5.0))
    for _ in range(steps):
        await asyncio.sleep(0)
    one.cancel()
    await asyncio.wait([one])
    assert await other == HeartbeatResponse()
    assert setting.broker.connections == 1


async def test_a_broker_that_is_not_in_metadata_has_no_address(setting: Setting) -> None:
    stranger = setting.client.lane(9, LaneKind.FETCH, setting)
    with pytest.raises(KafkaConnectionError, match="broker 9 is not in the cluster's metadata"):
        await stranger.connect(1.0)


async def test_a_frame_above_the_lanes_cap_ends_the_connection(setting: Setting) -> None:
    def huge(peer: Any, header: Any, request: Any) -> None:
        peer.transport.write((17 * 2**20).to_bytes(4, "big"))

    setting.broker.answers[HEARTBEAT] = huge
    with pytest.raises(KafkaConnectionError, match="claims 17825792 bytes, 4 to 16777216 are"):
        await setting.lane.send(HeartbeatRequest(group_id="g"), timeout=1.0)


async def test_a_frame_above_1_mib_is_refused_before_the_handshake_is_over(
    setting: Setting,
) -> None:
    setting.broker.greeting = (2**20 + 1).to_bytes(4, "big")
    with pytest.raises(KafkaConnectionError, match="bytes that are no Kafka"):
        await setting.lane.connect(1.0)


# -- throttling -----------------------------------------------------------------------------------


async def test_a_throttled_lane_waits_and_others_do_not(setting: Setting) -> None:
    setting.broker.answers[HEARTBEAT] = always(HeartbeatResponse(throttle_time_ms=3000))
    begun = now()
    await setting.lane.send(HeartbeatRequest(group_id="g"), timeout=1.0)
    assert setting.lane.throttled_until == pytest.approx(begun + 3.0)
    await setting.client.request(HeartbeatRequest(group_id="g"), to=Broker(1))
    assert now() == begun
    await setting.lane.send(HeartbeatRequest(group_id="g"), timeout=5.0)
    assert now() - begun == pytest.approx(3.0)
    assert [event.seconds for event in setting.heard(Throttled)] == [3.0] * 3


async def test_a_window_that_is_extended_meanwhile_is_waited_for_to_its_end(
    setting: Setting,
) -> None:
    setting.broker.answers[HEARTBEAT] = always(HeartbeatResponse(throttle_time_ms=3000))
    begun = now()
    await setting.lane.send(HeartbeatRequest(group_id="g"), timeout=1.0)
    setting.broker.answers.clear()
    waiting = asyncio.create_task(setting.lane.send(HeartbeatRequest(group_id="g"), timeout=30.0))
    await asyncio.sleep(2)
    setting.broker.answers[HEARTBEAT] = always(HeartbeatResponse(throttle_time_ms=6000))
    await setting.lane.submit(
        HeartbeatRequest(group_id="g"), timeout=1.0
    )  # as one that was pipelined
    setting.broker.answers.clear()
    await waiting
    assert now() - begun == pytest.approx(8.0)


async def test_a_throttle_beyond_the_deadline_fails_at_once(setting: Setting) -> None:
    setting.broker.answers[HEARTBEAT] = always(HeartbeatResponse(throttle_time_ms=9000))
    await setting.lane.send(HeartbeatRequest(group_id="g"), timeout=1.0)
    begun = now()
    with pytest.raises(KafkaTimeoutError, match="throttles this client for 9 s more"):
        await setting.lane.send(HeartbeatRequest(group_id="g"), timeout=5.0)
    assert now() == begun


async def test_a_version_from_before_the_client_had_to_wait_does_not_throttle(
    setting: Setting,
) -> None:
    setting.world.max_versions[HEARTBEAT] = 1
    setting.broker.answers[HEARTBEAT] = always(HeartbeatResponse(throttle_time_ms=3000))
    await setting.lane.send(HeartbeatRequest(group_id="g"), timeout=1.0)
    assert setting.lane.throttled_until == 0.0


# -- writing --------------------------------------------------------------------------------------


async def test_large_and_small_parts_arrive_in_order(setting: Setting) -> None:
    await setting.lane.connect(1.0)
    setting.broker.answers[SYNC_GROUP] = always(SyncGroupResponse())
    sizes = [10, 300_000, 20, 70_000, 30, 2_000_000, 5]
    futures = [
        setting.lane.submit(sync_group(protocol_name="x" * (size % 30_000)), timeout=9.0)
        for size in sizes
    ]
    await asyncio.gather(*futures)
    heard = [len(request.protocol_name) for request in setting.broker.asked(SYNC_GROUP)]
    assert heard == [size % 30_000 for size in sizes]


async def test_a_broker_that_does_not_read_is_waited_for(setting: Setting) -> None:
    await setting.lane.connect(1.0)
    (peer,) = [peer for peer in setting.broker.peers if peer.open]
    peer.transport.pause_reading()
    bulk = sync_group(group_id="x" * 30_000)
    futures = [setting.lane.submit(bulk, timeout=9.0) for _ in range(40)]
    sending = asyncio.create_task(setting.lane.send(HeartbeatRequest(group_id="g"), timeout=9.0))
    await asyncio.sleep(1)
    assert not sending.done()
    assert setting.lane.in_flight == 40
    peer.transport.resume_reading()
    await sending
    await asyncio.gather(*futures)


# -- the end --------------------------------------------------------------------------------------


async def test_a_closed_lane_says_so_and_leaves_nothing(setting: Setting) -> None:
    await setting.lane.connect(1.0)
    setting.broker.held.add(HEARTBEAT)
    future = setting.lane.submit(HeartbeatRequest(group_id="g"), timeout=5.0)
    await setting.lane.close()
    with pytest.raises(
        ClientClosedError, match=r"the lane to broker 1 \(coordinator lane\) was clo"
    ):
        await future
    with pytest.raises(ClientClosedError):
        await setting.lane.send(HeartbeatRequest(group_id="g"), timeout=1.0)
    with pytest.raises(ClientClosedError):
        setting.lane.submit(HeartbeatRequest(group_id="g"), timeout=1.0)
    await setting.lane.close()
    await until(lambda: setting.broker.connections == 0)


async def test_closing_a_lane_that_connects_ends_the_attempt(setting: Setting) -> None:
    setting.broker.silent = True
    connecting = asyncio.create_task(setting.lane.connect(50.0))
    await until(lambda: setting.broker.connections == 1)
    await setting.lane.close()
    with pytest.raises(ClientClosedError):
        await connecting
    await until(lambda: setting.broker.connections == 0)


async def test_a_connection_that_comes_about_just_as_its_lane_is_closed_is_closed_too(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    dial, answered = setting.world.network.dial, asyncio.get_running_loop().create_future()

    async def dial_late(*place: Any, **options: Any) -> Any:
        opened = await dial(*place, **options)
        await answered
        return opened

    monkeypatch.setattr(setting.world.network, "dial", dial_late)
    connecting = asyncio.create_task(setting.lane.connect(5.0))
    await until(lambda: setting.broker.connections == 1)
    answered.set_result(None)
    await setting.lane.close()  # before the attempt has seen what it waited for
    with pytest.raises(ClientClosedError):
        await connecting
    await until(lambda: setting.broker.connections == 0)


async def test_a_lane_says_whose_it_is(setting: Setting) -> None:
    name = "<Lane to broker 1 (coordinator lane), Setting's,"
    assert repr(setting.lane) == f"{name} not connected>"
    await setting.lane.connect(1.0)
    assert repr(setting.lane) == f"{name} connected>"
    await setting.lane.close()
    assert repr(setting.lane) == f"{name} closed>"


# -- hooks ----------------------------------------------------------------------------------------


async def test_listeners_hear_of_connections_and_requests(setting: Setting) -> None:
    await setting.lane.send(HeartbeatRequest(group_id="g"), timeout=1.0)
    (connected,) = setting.heard(Connected)
    assert (connected.node_id, connected.host, connected.port) == (1, "b1", 9092)
    assert connected.lane == "coordinator"
    sent = [event for event in setting.heard(RequestSent) if event.api_key == HEARTBEAT]
    answered = [event for event in setting.heard(RequestAnswered) if event.api_key == HEARTBEAT]
    assert [event.api_version for event in sent] == [HeartbeatRequest.VERSIONS.max]
    assert sent[0].correlation_id == answered[0].correlation_id
    assert sent[0].size > 0
    setting.broker.drop()
    await until(lambda: bool(setting.heard(Disconnected)))
    (lost,) = setting.heard(Disconnected)
    assert isinstance(lost.error, KafkaConnectionError)
