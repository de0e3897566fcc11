"""Tests of client quotas: sensors, precedence, throttle times, and what a broker does with them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async.embedded.quotas.client_quotas import (
    CONNECTION,
    CONTROLLER_MUTATION,
    FETCH,
    PRODUCE,
    REQUEST,
    ClientQuotas,
    Entity,
    InvalidQuotaError,
    candidates,
    validate,
)
from kafka_async.embedded.quotas.quota_manager import QuotaClient, QuotaManager, QuotaOptions
from kafka_async.embedded.quotas.sensors import RateSensor, TokenBucket
from kafka_async.errors import InvalidConfigurationError
from kafka_async.hooks import Hooks, Throttled
from tests.embedded_client import InMemory, now

if TYPE_CHECKING:
    from collections.abc import Hashable

    from kafka_async.embedded.quotas.sensors import Formula

MB = 1_000_000
ALICE = QuotaClient("alice", "app")


def entity(**names: str | None) -> Entity:
    return frozenset((kind.replace("_", "-"), name) for kind, name in names.items())


def manager(formula: Formula = "kafka", **limits: float) -> QuotaManager:
    """Return a manager with quotas of the user alice."""
    quotas = ClientQuotas()
    if limits:
        quotas.alter(entity(user="alice"), limits)
    return QuotaManager(quotas, QuotaOptions(formula=formula))


# -- sensors --------------------------------------------------------------------------------------


def test_rate_is_over_ten_seconds_at_least() -> None:
    sensor = RateSensor("s", 11, 1000)
    sensor.record(100, 0)
    assert sensor.rate(0) == 10.0
    assert sensor.rate(500) == 100 / 10.5
    sensor.record(100, 10_500)
    assert sensor.rate(10_500) == pytest.approx(200 / 10.5)


def test_samples_end_after_all_windows() -> None:
    sensor = RateSensor("s", 11, 1000)
    sensor.record(100, 0)
    assert sensor.total(10_999) == 100
    assert sensor.total(11_000) == 0
    for at in range(0, 30_000, 1000):
        sensor.record(100, 40_000 + at)
    assert sensor.total(70_000 - 1) == 100 * 11
    assert sensor.rate(69_000) == pytest.approx(110.0)


def test_bounds_of_a_sensor() -> None:
    sensor = RateSensor("s", 11, 1000)
    sensor.minimum, sensor.maximum = 5.0, 10.0
    assert sensor.violated(0)
    sensor.record(70, 0)
    assert not sensor.violated(0)
    assert sensor.violated(0, more=31)
    sensor.record(40, 0)
    assert sensor.violated(0)
    sensor.minimum = sensor.maximum = None
    assert not sensor.violated(0)
    assert sensor.throttle_ms(0) == 0


@pytest.mark.parametrize("formula", ["kafka", "seed"])
def test_example_of_seed_004(formula: Formula) -> None:
    """60 MB in a window whose bound is 50 MB, at 5 MB/s: a delay of two seconds."""
    quotas = manager(formula, producer_byte_rate=5 * MB)
    assert quotas.max_in_window(PRODUCE, ALICE) == 50 * MB
    assert quotas.on_response(1, PRODUCE, ALICE, 50 * MB, 0.0) == 0.0
    assert quotas.check(1, PRODUCE, ALICE, 0.0)
    assert not quotas.check(1, PRODUCE, ALICE, 0.0, size=10 * MB)
    assert quotas.on_response(1, PRODUCE, ALICE, 10 * MB, 0.0) == 2.0
    assert not quotas.check(1, PRODUCE, ALICE, 0.0)
    assert quotas.check(1, PRODUCE, ALICE, 12.0)


def test_formulas_differ_once_the_window_is_full() -> None:
    """Kafka's formula counts the part of the current sample, the seed's counts full windows."""
    throttles: dict[str, float] = {}
    formulas: tuple[Formula, ...] = ("kafka", "seed")
    for formula in formulas:
        quotas = manager(formula, producer_byte_rate=5 * MB)
        quotas.on_response(1, PRODUCE, ALICE, 50 * MB, 0.0)
        throttles[formula] = quotas.on_response(1, PRODUCE, ALICE, 10 * MB, 0.5)
    assert throttles == {"kafka": 1.5, "seed": 2.0}


def test_token_bucket_allows_a_burst_and_counts_debt() -> None:
    bucket = TokenBucket("b", 11, 1000, 0, rate=2.0)
    assert bucket.tokens(0) == 22.0
    bucket.record(30, 0)
    assert bucket.throttle_ms(0) == 4000
    assert bucket.throttle_ms(1000) == 3000
    assert bucket.throttle_ms(4000) == 0
    assert bucket.tokens(100_000) == 22.0


# -- entities -------------------------------------------------------------------------------------


def test_precedence_of_entities_is_kafkas() -> None:
    quotas = ClientQuotas()
    order = candidates("alice", "app")
    assert order == [
        entity(user="alice", client_id="app"),
        entity(user="alice", client_id=None),
        entity(user="alice"),
        entity(user=None, client_id="app"),
        entity(user=None, client_id=None),
        entity(user=None),
        entity(client_id="app"),
        entity(client_id=None),
    ]
    for value, each in enumerate(reversed(order), start=1):
        quotas.alter(each, {PRODUCE: value})
        assert quotas.find(PRODUCE, "alice", "app") == (each, value)
    assert quotas.find(FETCH, "alice", "app") is None
    for value, each in zip(range(8, 0, -1), order, strict=True):
        assert quotas.find(PRODUCE, "alice", "app") == (each, value)
        quotas.alter(each, {PRODUCE: None})
    assert quotas.find(PRODUCE, "alice", "app") is None
    assert quotas.entries() == {}


def test_clients_share_the_quota_of_their_entity() -> None:
    quotas = manager(producer_byte_rate=10)
    other = QuotaClient("alice", "other")
    quotas.on_response(1, PRODUCE, ALICE, 60, 0.0)
    assert quotas.usage(1, PRODUCE, other, 0.0) == 60.0
    assert quotas.usage(2, PRODUCE, other, 0.0) == 0.0  # each broker counts for itself
    assert quotas.usage(1, PRODUCE, QuotaClient("bob", "app"), 0.0) is None
    quotas.quotas.alter(entity(user="alice", client_id=None), {PRODUCE: 10})
    quotas.on_response(1, PRODUCE, ALICE, 30, 0.0)
    assert quotas.usage(1, PRODUCE, ALICE, 0.0) == 30.0
    assert quotas.usage(1, PRODUCE, other, 0.0) == 0.0


def test_changes_apply_at_once() -> None:
    quotas = manager(producer_byte_rate=10)
    assert quotas.on_response(1, PRODUCE, ALICE, 200, 0.0) == 10.0
    quotas.quotas.alter(entity(user="alice"), {PRODUCE: 20})
    assert quotas.on_response(1, PRODUCE, ALICE, 0, 0.0) == 0.0
    quotas.quotas.alter(entity(user="alice", client_id="app"), {PRODUCE: 1})
    assert quotas.on_response(1, PRODUCE, ALICE, 20, 0.0) == 10.0


def test_enforcement_is_switched_for_a_client_and_for_the_cluster() -> None:
    quotas = manager(producer_byte_rate=10)
    quotas.set_enforcement(ALICE, on=False)
    assert quotas.on_response(1, PRODUCE, ALICE, 200, 0.0) == 0.0
    assert quotas.check(1, PRODUCE, ALICE, 0.0)
    assert quotas.max_in_window(PRODUCE, ALICE) is None
    other = QuotaClient("alice", "other")
    assert quotas.on_response(1, PRODUCE, other, 0, 0.0) == 10.0
    quotas.set_enforcement(ALICE, on=True)
    assert quotas.on_response(1, PRODUCE, ALICE, 0, 0.0) == 10.0
    quotas.enforced = False
    assert quotas.on_response(1, PRODUCE, ALICE, 0, 0.0) == 0.0
    assert quotas.usage(1, PRODUCE, ALICE, 0.0) == 100.0  # measured all the same
    quotas.shutdown()
    assert quotas.usage(1, PRODUCE, ALICE, 0.0) == 0.0


def test_metrics_have_the_fraction_in_percent() -> None:
    quotas = manager(producer_byte_rate=10, consumer_byte_rate=100)
    quotas.on_response(1, PRODUCE, ALICE, 25, 0.0)
    quotas.on_response(2, FETCH, ALICE, 5000, 0.0)
    assert quotas.metrics(0.0) == {
        (1, PRODUCE, ("alice", None)): 25.0,
        (2, FETCH, ("alice", None)): 100.0,
    }


def test_request_percentage_is_limited_to_one_window() -> None:
    quotas = manager(request_percentage=1.0)
    assert quotas.on_response(1, REQUEST, ALICE, 1000, 0.0) == 1.0
    assert quotas.on_response(1, REQUEST, QuotaClient("bob", ""), 1000, 0.0) == 0.0


def test_connection_rate_of_an_address() -> None:
    quotas = manager()
    quotas.quotas.alter(entity(ip=None), {CONNECTION: 1})
    quotas.quotas.alter(entity(ip="10.0.0.1"), {CONNECTION: 2})
    accepted = [quotas.on_connection(1, "10.0.0.1", 0.0) for _ in range(21)]
    assert accepted == [0.0] * 20 + [0.5]
    assert [quotas.on_connection(1, "10.0.0.2", 0.0) for _ in range(11)] == [0.0] * 10 + [1.0]
    assert quotas.on_connection(1, "10.0.0.1", 0.5) == 0.0


def test_controller_mutations_have_debt() -> None:
    quotas = manager(controller_mutation_rate=1.0)
    assert quotas.mutation_debt(ALICE, 0.0) == 0.0
    assert quotas.record_mutations(ALICE, 14, 0.0) == 3.0
    assert quotas.mutation_debt(ALICE, 1.0) == 2.0
    assert quotas.mutation_debt(ALICE, 3.0) == 0.0
    assert quotas.record_mutations(QuotaClient("bob", ""), 99, 0.0) == 0.0


class EvenQuotas:
    """A quota callback: all clients of an even-numbered client id share one quota."""

    def quota_limit(self, kind: str, client: QuotaClient) -> float | None:
        return 10.0 if kind == PRODUCE and int(client.client_id) % 2 == 0 else None

    def quota_key(self, kind: str, client: QuotaClient) -> Hashable:
        return int(client.client_id) % 2


def test_quota_callback_decides() -> None:
    quotas = QuotaManager(ClientQuotas(), QuotaOptions(), EvenQuotas())
    assert quotas.active
    assert quotas.on_response(1, PRODUCE, QuotaClient("u", "2"), 100, 0.0) == 0.0
    assert quotas.on_response(1, PRODUCE, QuotaClient("u", "4"), 10, 0.0) == 1.0
    assert quotas.on_response(1, PRODUCE, QuotaClient("u", "3"), 1000, 0.0) == 0.0


@pytest.mark.parametrize(
    ("names", "changes", "message"),
    [
        ({}, {}, "Invalid empty client quota entity"),
        ({"group": "g"}, {}, "Unhandled client quota entity type: group"),
        ({"user": ""}, {}, "Empty user not supported"),
        ({"ip": "::1", "user": "u"}, {}, "shouldnot be combined"),
        ({"ip": "no address"}, {}, "not a valid IP"),
        ({"user": "u"}, {"speed": 1.0}, "Invalid configuration key speed"),
        ({"user": "u"}, {CONNECTION: 1.0}, "Invalid configuration key"),
        ({"ip": "::1"}, {PRODUCE: 1.0}, "Invalid configuration key"),
        ({"user": "u"}, {PRODUCE: 0.0}, "must be greater than 0"),
        ({"user": "u"}, {PRODUCE: float("nan")}, "must be a finite number"),
        ({"user": "u"}, {PRODUCE: 1.5}, "cannot be a fractional value"),
        ({"user": "u"}, {PRODUCE: 1e20}, "too large for a LONG"),
        ({"ip": "::1"}, {CONNECTION: 1e10}, "too large for an INT"),
    ],
)
def test_alterations_that_are_not_valid(
    names: dict[str, str | None], changes: dict[str, float | None], message: str
) -> None:
    with pytest.raises(InvalidQuotaError, match=message):
        validate(names, changes)


def test_alterations_that_are_valid() -> None:
    validate({"user": None, "client-id": "c"}, {PRODUCE: 1.0, REQUEST: 0.5, FETCH: None})
    validate({"ip": "localhost"}, {CONNECTION: 3.0, "speed": None})
    validate({"ip": None}, {CONNECTION: 3.0})
    validate({"client-id": "c"}, {CONTROLLER_MUTATION: 0.1})


# -- brokers --------------------------------------------------------------------------------------


class Throttles:
    """A cluster whose client has quotas, and the throttle times that it gets."""

    def __init__(self, memory: InMemory, **limits: float) -> None:
        self.memory = memory
        self.hooks = Hooks()
        self.events: list[Throttled] = []
        self.hooks.listen(Throttled, self.events.append)
        memory.cluster.quotas.quotas.alter(entity(client_id="app"), limits)

    def kept(self) -> bool:
        return not self.memory.cluster.throttle_log.violations()


@pytest.mark.asyncio
@pytest.mark.virtual_clock
async def test_producer_is_answered_first_and_then_muted() -> None:
    async with InMemory() as memory:
        await memory.cluster.create_topic("t")
        throttles = Throttles(memory, producer_byte_rate=1000)
        async with memory.producer(client_id="app", hooks=throttles.hooks, linger_ms=0) as producer:
            await producer.send("t", b"first")  # metadata takes time, too
            start = now()
            await producer.send("t", b"v" * 11_000)
            assert now() == pytest.approx(start, abs=0.01)  # the response came at once
            (event,) = throttles.events
            size = event.seconds * 1000 + 10_000
            assert 11_000 < size < 11_400  # the bodies of both requests
            usage = memory.cluster.quotas.usage(1, PRODUCE, QuotaClient("ANONYMOUS", "app"), now())
            assert usage == 100.0
            await producer.send("t", b"w")
            assert now() == pytest.approx(start + event.seconds, abs=0.01)
        assert throttles.kept()


@pytest.mark.asyncio
@pytest.mark.virtual_clock
async def test_acks_0_is_muted_too() -> None:
    async with InMemory() as memory:
        Throttles(memory, producer_byte_rate=1000)
        options: dict[str, Any] = {"acks": 0, "enable_idempotence": False, "linger_ms": 0}
        async with memory.producer(client_id="app", **options) as producer:
            for _ in range(3):
                await producer.send("t", b"v" * 8_000)
            start = now()
            while len(memory.values("t")) < 3:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            assert now() - start > 4.0
            (first, *_) = memory.cluster.throttle_log.throttles
            assert first.api_key == 0


@pytest.mark.asyncio
@pytest.mark.virtual_clock
@pytest.mark.parametrize("formula", ["kafka", "seed"])
async def test_consumer_gets_no_records_while_it_is_throttled(formula: Formula) -> None:
    async with InMemory(quota_formula=formula) as memory:
        async with memory.producer(batch_size=4000, linger_ms=0) as producer:
            for _ in range(12):
                await producer.send("t", b"v" * 3_000)
        throttles = Throttles(memory, consumer_byte_rate=1000)
        async with memory.consumer(
            "t", client_id="app", hooks=throttles.hooks, auto_offset_reset="earliest", group_id="g"
        ) as consumer:
            start, received = now(), 0
            while received < 12:
                received += len(await consumer.poll(timeout=60.0))
            # 36 kB at 1 kB/s after a burst of ten seconds; Kafka drops what it has read too early.
            assert 22.0 < now() - start < (80.0 if formula == "kafka" else 37.0)
        assert throttles.events
        assert throttles.kept()


@pytest.mark.asyncio
@pytest.mark.virtual_clock
async def test_request_percentage_throttles_any_request() -> None:
    async with InMemory(quota_request_time_ms=300.0) as memory:
        throttles = Throttles(memory, request_percentage=10.0)
        async with memory.client(client_id="app", hooks=throttles.hooks):
            await asyncio.sleep(1.0)
        assert not throttles.events
        async with memory.admin(client_id="app", hooks=throttles.hooks) as admin:
            for _ in range(4):
                await admin.list_topics()
        assert {event.seconds for event in throttles.events} == {1.0}
        assert throttles.kept()


@pytest.mark.asyncio
@pytest.mark.virtual_clock
async def test_connections_over_the_rate_are_closed_after_the_throttle_time() -> None:
    async with InMemory() as memory:
        memory.cluster.quotas.quotas.alter(entity(ip=None), {CONNECTION: 1})
        start = now()
        opened: list[Any] = []
        for _ in range(11):
            transport, _ = await memory.network.dial(
                asyncio.Protocol, *_host_port(memory.address(1))
            )
            opened.append(transport)
        assert memory.connections(1) == 11
        await asyncio.sleep(1.001)
        assert memory.connections(1) == 10
        assert opened[10].is_closing()
        assert not opened[9].is_closing()
        assert now() == pytest.approx(start + 1.001)
        for transport in opened:
            transport.abort()
        await asyncio.sleep(0.01)


def _host_port(address: str) -> tuple[str, int]:
    host, port = address.split(":")
    return host, int(port)


@pytest.mark.parametrize(
    "options", [{"quota_formula": "java"}, {"quota_window_num": 1}, {"quota_request_time_ms": -1}]
)
def test_settings_that_are_not_valid(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidConfigurationError, match=next(iter(options))):
        InMemory(**options)
