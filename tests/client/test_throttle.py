"""Tests of throttle windows (KIP-219): no request leaves within one, and what waits says so."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from kafka_async.client.client import services_of
from kafka_async.client.connection.broker_connection import BrokerConnection, ConnectionKind
from kafka_async.client.connection.throttle import (
    CLIENT_WAITS_FROM,
    HEARTBEAT_APIS,
    ThrottleWindow,
    ThrottleWindows,
    throttle_seconds,
)
from kafka_async.embedded.state.throttle_log import EarlyRequest, Throttle, ThrottleLog
from kafka_async.errors import KafkaConnectionError, KafkaTimeoutError
from kafka_async.hooks import Connected, Hooks, RequestSent, Throttled, ThrottleEnded
from kafka_async.protocol.api import APIS, lookup
from kafka_async.protocol.header import encode_response, leading_throttle_time_ms
from kafka_async.protocol.messages.heartbeat import HeartbeatRequest
from kafka_async.protocol.messages.list_groups import ListGroupsRequest
from tests.embedded_client import InMemory, now, settle

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from kafka_async.client.client import Client

REQUEST = ListGroupsRequest()
LIST_GROUPS, HEARTBEAT, API_VERSIONS = 16, 12, 18
SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36


# -- the rule -------------------------------------------------------------------------------------


def test_window_is_extended_and_never_shortened() -> None:
    window = ThrottleWindow()
    window.extend(10.0, 3.0)
    window.extend(11.0, 1.0)
    assert window.ends_at == 13.0
    window.extend(12.0, 2.0)
    assert window.ends_at == 14.0


def test_windows_are_shared_by_address_and_kind_only() -> None:
    windows = ThrottleWindows()
    first = windows.window("a", 1, "produce")
    assert windows.window("a", 1, "produce") is first
    others = [windows.window(*key) for key in (("a", 2, "produce"), ("b", 1, "produce"))]
    assert first not in (*others, windows.window("a", 1, "fetch"))


def test_client_waits_only_from_the_versions_of_kip_219() -> None:
    assert throttle_seconds(0, CLIENT_WAITS_FROM[0], 1500) == 1.5
    assert throttle_seconds(0, CLIENT_WAITS_FROM[0] - 1, 1500) == 0.0
    assert throttle_seconds(60, 0, 250) == 0.25
    assert throttle_seconds(0, 13, 0) == throttle_seconds(0, 13, -1) == 0.0


def test_heartbeat_apis_are_those_of_the_protocol() -> None:
    assert {lookup(key).name for key in HEARTBEAT_APIS} == {
        api.name for api in APIS if api.name.endswith("Heartbeat") and api.name != "BrokerHeartbeat"
    }


@pytest.mark.parametrize("key", [1, 3, 8, 10, 16, 60, 18, 0])
def test_throttle_time_is_read_without_decoding_if_it_comes_first(key: int) -> None:
    api = lookup(key)
    version = api.versions.max
    response = api.response()
    response.throttle_time_ms = 1234  # type: ignore[attr-defined]
    frame = b"".join(encode_response(response, version, 7))[4:]
    expected = None if key in (0, 18) else 1234
    assert leading_throttle_time_ms(frame, api.response, version) == expected
    assert leading_throttle_time_ms(frame[:5], api.response, version) is None


def test_throttle_log_finds_requests_within_windows() -> None:
    log = ThrottleLog()
    window = Throttle(1, "c", 0, connection=5, start=10.0, end=12.0)
    log.opened(window)
    assert log.is_open(11.0)
    log.received(1, "c", 3, 5, 10.0)  # it left before the response arrived
    log.received(1, "c", 3, 5, 11.0)  # the same connection
    log.received(1, "c", 0, 6, 11.5)  # the same API on another connection
    log.received(1, "c", 1, 6, 11.5)  # another lane
    log.received(1, "d", 0, 6, 11.5)  # another client
    log.received(2, "c", 0, 6, 11.5)  # another broker
    log.received(1, "c", 0, 5, 12.0)  # the window has ended
    expected = [EarlyRequest(window, 3, 5, 11.0), EarlyRequest(window, 0, 6, 11.5)]
    assert log.early_requests == log.violations() == expected
    assert log.violations(grace=0.6) == expected[:1]
    assert not log.is_open(12.0)


# -- connections ----------------------------------------------------------------------------------


class Lane:
    """Two connections of one kind to the only broker, and the times at which requests left."""

    def __init__(self, memory: InMemory, client: Client) -> None:
        self.memory, self.client = memory, client
        self.sent: list[tuple[int, float]] = []
        self.waits: list[ThrottleEnded] = []
        client.hooks.listen(RequestSent, lambda event: self.sent.append((event.api_key, now())))
        client.hooks.listen(ThrottleEnded, self.waits.append)
        self.first = self.connection()

    def connection(self, kind: ConnectionKind = ConnectionKind.COORDINATOR) -> BrokerConnection:
        return services_of(self.client).brokers.connection(1, kind, self)

    def throttle(self, seconds: float, **options: Any) -> None:
        self.memory.cluster.faults.add(api="ListGroups", throttle=seconds, **options)

    def times(self, api_key: int = LIST_GROUPS) -> list[float]:
        return [time for key, time in self.sent if key == api_key]

    def early(self) -> list[EarlyRequest]:
        """Return what the broker has received within windows."""
        return self.memory.cluster.throttle_log.violations()


@pytest_asyncio.fixture
async def lane() -> AsyncIterator[Lane]:
    async with (
        InMemory() as memory,
        memory.client(hooks=Hooks(), metadata_recovery_strategy="none") as client,
    ):
        yield Lane(memory, client)
        assert memory.cluster.throttle_log.violations() == []


@pytest.mark.asyncio
@pytest.mark.virtual_clock
async def test_waiting_requests_wait_on_when_the_window_is_extended(lane: Lane) -> None:
    """A pipelined request brings a longer throttle time while another one waits."""
    await lane.first.connect(1.0)
    start = now()
    lane.throttle(2.0)
    lane.throttle(5.0, delay=1.0)
    one = lane.first.submit(REQUEST, timeout=20.0)
    two = lane.first.submit(REQUEST, timeout=20.0)
    await one
    three = asyncio.ensure_future(lane.first.send(REQUEST, timeout=20.0))
    await two
    assert now() == pytest.approx(start + 3.0)  # muted for 2 s, then delayed for 1 s
    await three
    # The window of the second response begins at 3 s; that of the first one ended at 2 s.
    assert lane.times() == pytest.approx([start, start, start + 2.0])


@pytest.mark.asyncio
@pytest.mark.virtual_clock
async def test_window_is_extended_while_a_request_waits(lane: Lane) -> None:
    """Two connections of the lane: the response on one extends the wait on the other."""
    other = lane.connection()
    await other.connect(1.0)
    await lane.first.connect(1.0)
    start = now()
    lane.throttle(5.0, delay=1.0)
    lane.throttle(2.0)
    late = other.submit(REQUEST, timeout=20.0)
    await settle()
    await lane.first.send(REQUEST, timeout=20.0)
    waiting = asyncio.ensure_future(lane.first.send(REQUEST, timeout=20.0))
    await late
    assert now() == pytest.approx(start + 1.0, abs=0.01)
    await waiting
    assert lane.times()[-1] == pytest.approx(start + 6.0, abs=0.01)


@pytest.mark.asyncio
@pytest.mark.virtual_clock
async def test_new_connection_of_the_lane_opens_after_the_window(lane: Lane) -> None:
    await lane.first.connect(1.0)
    lane.throttle(3.0)
    start = now()
    await lane.first.send(REQUEST, timeout=1.0)
    await lane.memory.cluster.disconnect(1)
    opened: list[tuple[str, float, float]] = []
    lane.client.hooks.listen(
        Connected, lambda event: opened.append((event.kind, now(), event.seconds))
    )
    other = lane.connection()
    await asyncio.gather(*(each.send(REQUEST, timeout=20.0) for each in (lane.first, other)))
    # The handshakes take no time here, so their requests left after the window, too.
    assert [each for each in opened if each[0] == "coordinator"] == [
        ("coordinator", pytest.approx(start + 3.0), 0.0)
    ] * 2
    assert lane.times() == pytest.approx([start, start + 3.0, start + 3.0])


@pytest.mark.asyncio
@pytest.mark.virtual_clock
async def test_other_lanes_and_heartbeats_are_not_affected(lane: Lane) -> None:
    await lane.first.connect(1.0)
    member = lane.connection()
    await member.connect(1.0)
    lane.throttle(3.0)
    start = now()
    await lane.first.send(REQUEST, timeout=1.0)
    await lane.connection(ConnectionKind.PRODUCE).send(REQUEST, timeout=1.0)
    await member.send(HeartbeatRequest(group_id="g", member_id="m"), timeout=1.0)
    assert now() == start
    assert lane.times(HEARTBEAT) == [start]
    # The broker's log groups by API: ListGroups of the produce lane is no evasion.
    log = lane.memory.cluster.throttle_log
    assert [each.api_key for each in log.early_requests] == []


@pytest.mark.asyncio
@pytest.mark.virtual_clock
async def test_other_brokers_are_not_affected() -> None:
    async with InMemory(2) as memory, memory.client() as client:
        memory.cluster.faults.add(api="ListGroups", broker=1, throttle=3.0)
        one, two = (
            services_of(client).brokers.connection(node, ConnectionKind.PRODUCE, client)
            for node in (1, 2)
        )
        start = now()
        await one.send(REQUEST, timeout=1.0)
        await two.send(REQUEST, timeout=1.0)
        assert now() == start


@pytest.mark.asyncio
@pytest.mark.virtual_clock
async def test_throttle_time_of_a_cancelled_request_counts(lane: Lane) -> None:
    await lane.first.connect(1.0)
    lane.throttle(3.0, delay=0.5)
    start = now()
    request = lane.first.submit(REQUEST, timeout=20.0)
    await settle()
    request.cancel()
    await asyncio.sleep(1.0)
    await lane.first.send(REQUEST, timeout=20.0)
    assert lane.times() == pytest.approx([start, start + 3.5], abs=0.01)


@pytest.mark.asyncio
@pytest.mark.virtual_clock
async def test_wait_shows_in_hooks_and_on_the_connection(lane: Lane) -> None:
    throttled: list[Throttled] = []
    lane.client.hooks.listen(Throttled, throttled.append)
    await lane.first.connect(1.0)
    lane.throttle(3.0)
    await lane.first.send(REQUEST, timeout=1.0)
    await asyncio.sleep(1.0)
    await lane.first.send(REQUEST, timeout=5.0)
    client_id = lane.client.config.client_id
    assert throttled == [Throttled(client_id, 1, LIST_GROUPS, "ListGroups", 3.0, "coordinator")]
    (wait,) = lane.waits
    assert (wait.api_key, wait.kind, wait.seconds) == (
        LIST_GROUPS,
        "coordinator",
        pytest.approx(2.0),
    )
    assert lane.first.throttle_wait == pytest.approx(2.0)


@pytest.mark.asyncio
@pytest.mark.virtual_clock
async def test_deadline_error_names_the_throttle_time(lane: Lane) -> None:
    await lane.first.connect(1.0)
    lane.throttle(9.0)
    await lane.first.send(REQUEST, timeout=1.0)
    start = now()
    with pytest.raises(KafkaTimeoutError, match="broker 1 throttles this client for 9 s more"):
        await lane.first.send(REQUEST, timeout=5.0)
    lane.first.disconnect(KafkaConnectionError("closed by the test"))
    with pytest.raises(KafkaTimeoutError, match="broker 1 throttles this client for 9 s more"):
        await lane.first.connect(5.0)
    assert now() == start


# -- handshakes and authentication ----------------------------------------------------------------


@pytest.mark.asyncio
@pytest.mark.virtual_clock
@pytest.mark.parametrize("duration", [3.0, 25.0], ids=["short", "longer than the setup may take"])
async def test_first_request_waits_for_the_throttle_time_of_api_versions(
    lane: Lane, duration: float
) -> None:
    attempts = lane.memory.attempts(1)
    lane.memory.cluster.faults.add(api="ApiVersions", throttle=duration)
    start = now()
    await lane.first.send(REQUEST, timeout=60.0)
    assert lane.times(API_VERSIONS)[-1] == start
    assert lane.times() == [pytest.approx(start + duration)]
    assert lane.memory.attempts(1) == attempts + 1


@pytest.mark.asyncio
@pytest.mark.virtual_clock
async def test_deadline_within_the_throttle_time_of_api_versions_names_it(lane: Lane) -> None:
    lane.memory.cluster.faults.add(api="ApiVersions", throttle=9.0)
    with pytest.raises(KafkaTimeoutError, match="broker 1 throttles this client for"):
        await lane.first.send(REQUEST, timeout=5.0)


@pytest.mark.asyncio
@pytest.mark.virtual_clock
async def test_api_versions_waits_for_a_window_that_opens_while_the_connection_is_dialled(
    lane: Lane,
) -> None:
    await lane.first.connect(1.0)
    other = lane.connection()
    lane.memory.network.delay = 2.0
    lane.throttle(20.0)
    start = now()
    late = asyncio.ensure_future(other.send(REQUEST, timeout=60.0))
    await asyncio.sleep(1.0)
    await lane.first.send(REQUEST, timeout=1.0)
    await late
    assert lane.times(API_VERSIONS)[-1] == pytest.approx(start + 21.0)
    assert lane.times()[-1] == pytest.approx(start + 21.0)


SASL: dict[str, Any] = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_allow_plaintext": True,
    "sasl_mechanism": "SCRAM-SHA-256",
    "sasl_username": "alice",
    "sasl_password": "wonderland",
}


@asynccontextmanager
async def secure_lane(**settings: Any) -> AsyncGenerator[Lane]:
    """Yield a lane whose connections authenticate."""
    given: dict[str, Any] = {
        "listeners": "SASL_PLAINTEXT",
        "users": {"alice": "wonderland"},
        **settings,
    }
    async with InMemory(**given) as memory, memory.client(hooks=Hooks(), **SASL) as client:
        lane = Lane(memory, client)
        yield lane
        assert lane.early() == []


@pytest.mark.asyncio
@pytest.mark.virtual_clock
async def test_authentication_waits_for_the_throttle_time_of_api_versions() -> None:
    async with secure_lane() as lane:
        lane.sent.clear()
        lane.memory.cluster.faults.add(api="ApiVersions", throttle=15.0)
        start = now()
        await lane.first.send(REQUEST, timeout=60.0)
        assert [key for key, _ in lane.sent] == [
            API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE, SASL_AUTHENTICATE, LIST_GROUPS
        ]  # fmt: skip
        assert [time - start for _, time in lane.sent] == pytest.approx([0.0, *[15.0] * 4])


@pytest.mark.asyncio
@pytest.mark.virtual_clock
async def test_each_step_of_an_authentication_waits_for_a_window_of_another_connection() -> None:
    async with secure_lane() as lane:
        await lane.first.connect(1.0)
        lane.sent.clear()
        lane.throttle(20.0)
        lane.memory.cluster.faults.add(api="SaslHandshake", delay=2.0)
        start = now()
        other = asyncio.ensure_future(lane.connection().send(REQUEST, timeout=60.0))
        await asyncio.sleep(1.0)
        await lane.first.send(REQUEST, timeout=1.0)
        await other
        assert lane.times(SASL_HANDSHAKE) == [pytest.approx(start)]
        assert lane.times(SASL_AUTHENTICATE) == pytest.approx([start + 21.0] * 2)
        assert lane.times() == pytest.approx([start + 1.0, start + 21.0])


@pytest.mark.asyncio
@pytest.mark.virtual_clock
async def test_authentication_again_waits_for_the_window_and_holds_requests_meanwhile() -> None:
    """The window opens at 8 s of a session of 10 s, whose renewal is due at 8.5 to 9.5 s."""
    async with secure_lane(connections_max_reauth_ms=10_000) as lane:
        await lane.first.connect(1.0)
        await asyncio.sleep(8.0)
        lane.sent.clear()
        lane.throttle(15.0)
        start = now()
        await lane.first.send(REQUEST, timeout=1.0)
        await asyncio.sleep(5.0)
        # The lane is due; the request is held, and would otherwise leave at once.
        held = lane.first.submit(REQUEST, timeout=60.0)
        sent = asyncio.ensure_future(lane.first.send(REQUEST, timeout=60.0))
        await asyncio.gather(held, sent)
        mine = [row for row in lane.sent if row[1] > start]
        assert lane.times() == [start, *[pytest.approx(start + 15.0)] * 2]
        assert [key for key, _ in mine][-5:] == [
            SASL_HANDSHAKE, SASL_AUTHENTICATE, SASL_AUTHENTICATE, LIST_GROUPS, LIST_GROUPS
        ]  # fmt: skip
        assert all(time >= start + 15.0 for _, time in mine[-5:])


@pytest.mark.asyncio
@pytest.mark.virtual_clock
async def test_window_of_another_connection_during_authentication_again_delays_the_rest() -> None:
    async with secure_lane(connections_max_reauth_ms=10_000) as lane:
        await lane.first.connect(1.0)
        await asyncio.sleep(5.0)  # the other connection's session ends later
        other = lane.connection()
        await other.connect(1.0)
        lane.sent.clear()
        held = lane.memory.cluster.faults.add(api="SaslAuthenticate", delay=2.0, count=1)
        await held.wait()
        lane.throttle(20.0)
        start = now()
        await other.send(REQUEST, timeout=1.0)
        waiting = lane.first.submit(REQUEST, timeout=60.0)
        await waiting
        again = lane.times(SASL_AUTHENTICATE)[:2]
        assert again == [pytest.approx(start, abs=0.01), pytest.approx(start + 20.0, abs=0.01)]
        assert lane.times() == pytest.approx([start, start + 20.0], abs=0.01)


# -- producer and consumer ------------------------------------------------------------------------


@pytest.mark.asyncio
@pytest.mark.virtual_clock
async def test_expired_batch_names_the_throttle_time_and_statistics_have_the_wait() -> None:
    async with InMemory(default_partitions=1) as memory:
        await memory.cluster.create_topic("t")
        options: dict[str, Any] = {"request_timeout_ms": 2000, "delivery_timeout_ms": 3000}
        async with memory.producer(linger_ms=0, **options) as producer:
            await producer.send("t", b"v")
            memory.cluster.faults.add(api="Produce", throttle=8.0)
            await producer.send("t", b"v")
            with pytest.raises(KafkaTimeoutError, match="broker 1 throttles this client for 8 s"):
                await producer.send("t", b"late")
            await asyncio.sleep(3.0)
            start = now()
            await producer.send("t", b"v")
            assert now() - start == pytest.approx(2.0, abs=0.05)
            wait = producer.statistics().produce_throttle_wait_total
            assert wait == pytest.approx(8000, abs=50)
        assert memory.cluster.throttle_log.violations() == []


@pytest.mark.asyncio
@pytest.mark.virtual_clock
async def test_fetches_wait_and_the_statistics_have_the_wait() -> None:
    async with InMemory(default_partitions=1) as memory:
        await memory.cluster.create_topic("t")
        async with (
            memory.producer() as producer,
            memory.consumer("t", group_id="g", auto_offset_reset="earliest") as consumer,
        ):
            await producer.send("t", b"v")
            memory.cluster.faults.add(api="Fetch", throttle=4.0)
            assert len(await consumer.poll(timeout=10)) == 1
            start = now()
            await producer.send("t", b"w")
            assert now() == pytest.approx(start, abs=0.05)  # another lane
            assert len(await consumer.poll(timeout=10)) == 1
            assert now() - start == pytest.approx(4.0, abs=0.6)
            await asyncio.sleep(1.0)
            assert consumer.statistics().fetch_throttle_wait_total == pytest.approx(4000, abs=600)
        assert memory.cluster.throttle_log.violations() == []
