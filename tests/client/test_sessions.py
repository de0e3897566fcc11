"""Tests of clients whose sessions end every few seconds, and whose credentials change."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import Counter
from contextlib import asynccontextmanager, suppress
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from kafka_async.admin import Admin, NewTopic
from kafka_async.client.security import oidc
from kafka_async.client.security.oidc import TokenEndpoint
from kafka_async.consumer.consumer import Consumer
from kafka_async.embedded import Listener
from kafka_async.errors import (
    BootstrapError,
    Category,
    ClientClosedError,
    IllegalStateError,
    KafkaError,
    SaslAuthenticationError,
)
from kafka_async.hooks import Authenticated, AuthenticationFailed, Disconnected, Hooks
from kafka_async.producer.producer import Producer
from kafka_async.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from kafka_async.types import Token, TopicPartition
from tests.embedded_client import InMemory, now, settle, until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]

USERS = {"alice": "wonderland", "bob": "builder"}
OPTIONS: dict[str, Any] = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_allow_plaintext": True,
    "sasl_mechanism": "SCRAM-SHA-256",
    "sasl_username": "alice",
    "sasl_password": "wonderland",
}


class Watch:
    """Counts authentications by kind of connection, and lost connections."""

    def __init__(self) -> None:
        self.hooks = Hooks()
        self.again: Counter[str] = Counter()
        self.lost: list[Disconnected] = []
        self.hooks.listen(Authenticated, self._on_authenticated)
        self.hooks.listen(Disconnected, self._on_disconnected)

    def _on_authenticated(self, event: Authenticated) -> None:
        self.again[event.kind] += event.reauthentication

    def _on_disconnected(self, event: Disconnected) -> None:
        closed = isinstance(event.error, ClientClosedError) or "has left" in str(event.error)
        if event.error is not None and not closed:
            self.lost.append(event)


@asynccontextmanager
async def secure(brokers: int = 1, **settings: Any) -> AsyncGenerator[InMemory]:
    given = {"listeners": "SASL_PLAINTEXT", "users": USERS} | settings
    async with InMemory(brokers, **given) as memory:
        await memory.cluster.create_topic("t", partitions=4)
        yield memory


async def poll_until_it_raises(consumer: Consumer[Any, Any]) -> None:
    while True:
        await consumer.poll(timeout=5)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_producer_and_consumer_lose_no_record_while_sessions_end(mechanism: str) -> None:
    watch = Watch()
    options = OPTIONS | {"sasl_mechanism": mechanism, "hooks": watch.hooks}
    async with (
        secure(2, connections_max_reauth_ms=3_000) as memory,
        memory.producer(linger_ms=0, **options) as producer,
        memory.consumer("t", group_id="g", auto_offset_reset="earliest", **options) as consumer,
    ):
        read: list[bytes | None] = []

        async def consume() -> None:
            while len(read) < 600:
                read.extend([record.value for record in await consumer.poll(timeout=1.0)])

        consuming = asyncio.create_task(consume())
        for number in range(600):
            await producer.send("t", str(number).encode(), partition=number % 4)
            await asyncio.sleep(0.05)
        await consuming
    assert Counter(read) == Counter(str(number).encode() for number in range(600))
    assert watch.lost == []
    for kind in ("general", "produce", "fetch", "coordinator"):
        assert watch.again[kind] >= 5


async def test_requests_that_are_read_after_the_end_of_their_session_are_sent_again() -> None:
    """Holds a request beyond the end of its session while others wait behind it."""
    watch = Watch()
    async with (
        secure(connections_max_reauth_ms=3_000) as memory,
        memory.producer(linger_ms=0, hooks=watch.hooks, **OPTIONS) as producer,
    ):
        await producer.send("t", b"first", partition=0)
        held = memory.hang("Produce")
        sending = [asyncio.create_task(producer.send("t", b"0", partition=0))]
        await held.wait()
        for number in range(1, 4):
            sending.append(
                asyncio.create_task(producer.send("t", str(number).encode(), partition=number))
            )
            await settle()
        await asyncio.sleep(4)
        held.remove()
        await asyncio.gather(*sending)
        assert [lost.kind for lost in watch.lost] == ["produce"]
        assert memory.values("t", 0) == [b"first", b"0"]
        assert [memory.values("t", number) for number in range(1, 4)] == [[b"1"], [b"2"], [b"3"]]


async def test_transactions_go_on_while_sessions_end() -> None:
    watch = Watch()
    async with (
        secure(connections_max_reauth_ms=2_000) as memory,
        memory.producer(transactional_id="tx", hooks=watch.hooks, **OPTIONS) as producer,
    ):
        for number in range(100):
            async with producer.transaction() as transaction:
                await transaction.send("t", str(number).encode(), partition=0)
            await asyncio.sleep(0.2)
        assert memory.values("t") == [str(number).encode() for number in range(100)]
    assert watch.lost == []
    assert watch.again["produce"] >= 5


async def test_admin_requests_that_take_long_survive_the_end_of_their_session() -> None:
    watch = Watch()
    async with (
        secure(connections_max_reauth_ms=2_000) as memory,
        memory.client(hooks=watch.hooks, **OPTIONS) as client,
        Admin(client) as admin,
    ):
        for number in range(10):
            await admin.create_topics([NewTopic(f"new-{number}", 1)])
            await asyncio.sleep(1)
    assert watch.lost == []
    assert watch.again["slow"] >= 3


async def test_changed_password_of_a_running_producer_and_consumer_loses_no_record() -> None:
    watch = Watch()
    options = OPTIONS | {"hooks": watch.hooks}
    async with (
        secure(connections_max_reauth_ms=3_000) as memory,
        memory.producer(linger_ms=0, **options) as producer,
        memory.consumer("t", group_id="g", auto_offset_reset="earliest", **options) as consumer,
    ):
        read: list[bytes | None] = []

        async def consume() -> None:
            while len(read) < 300:
                read.extend([record.value for record in await consumer.poll(timeout=1.0)])

        consuming = asyncio.create_task(consume())
        for number in range(300):
            if number == 100:
                for each in (producer, consumer):
                    await each.client.set_sasl_credentials("bob", "builder")
            await producer.send("t", str(number).encode(), partition=number % 4)
            await asyncio.sleep(0.05)
        await consuming
    assert Counter(read) == Counter(str(number).encode() for number in range(300))
    assert watch.lost == []


@pytest.mark.parametrize("brokers", [1, 3])
@pytest.mark.parametrize("role", ["client", "producer", "consumer", "admin"])
async def test_start_ends_when_the_token_provider_has_hung_for_its_limit(
    role: str, brokers: int
) -> None:
    calls: list[float] = []

    async def hang() -> Token:
        calls.append(now())
        await asyncio.sleep(100_000)
        raise AssertionError

    listener = Listener(security_protocol="SASL_PLAINTEXT", sasl_mechanisms=["OAUTHBEARER"])
    async with secure(brokers, listeners={"SASL": listener}) as memory:
        client: Any = getattr(memory, role)(
            security_protocol="SASL_PLAINTEXT",
            sasl_allow_plaintext=True,
            sasl_mechanism="OAUTHBEARER",
            sasl_token_provider=hang,
        )
        began = now()
        with pytest.raises(BootstrapError, match="sasl_token_provider did not return within 30 s"):
            await client.start()
        assert 30 <= now() - began < 32
        assert len(calls) == 1


async def start_with_issuer(
    monkeypatch: pytest.MonkeyPatch,
    role: str,
    respond: Callable[[httpx.Request], httpx.Response],
    **options: Any,
) -> tuple[KafkaError, float]:
    """Return the error of a start whose requests for tokens `respond` answers, and its time."""
    endpoint = partial(TokenEndpoint, transport=httpx.MockTransport(respond))
    monkeypatch.setattr(oidc, "TokenEndpoint", endpoint)
    listener = Listener(security_protocol="SASL_PLAINTEXT", sasl_mechanisms=["OAUTHBEARER"])
    async with secure(3, listeners={"SASL": listener}) as memory:
        client: Any = getattr(memory, role)(
            security_protocol="SASL_PLAINTEXT",
            sasl_allow_plaintext=True,
            sasl_mechanism="OAUTHBEARER",
            sasl_oauthbearer_token_endpoint_url="https://issuer.example/token",
            sasl_oauthbearer_client_credentials_client_id="client",
            sasl_oauthbearer_client_credentials_client_secret="secret",
            **options,
        )
        began = now()
        with pytest.raises(KafkaError) as raised:
            await client.start()
        return raised.value, now() - began


def failing(cause: OSError) -> Callable[[httpx.Request], httpx.Response]:
    """Return a function that fails as httpx does when it cannot connect."""

    def respond(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("All connection attempts failed") from cause

    return respond


@pytest.mark.parametrize("role", ["client", "producer", "consumer", "admin"])
async def test_start_ends_at_once_if_the_name_of_the_token_endpoint_does_not_exist(
    monkeypatch: pytest.MonkeyPatch, role: str
) -> None:
    unknown = failing(socket.gaierror(socket.EAI_NONAME, "Name or service not known"))
    error, waited = await start_with_issuer(monkeypatch, role, unknown)
    assert isinstance(error, BootstrapError)
    assert "https://issuer.example/token: its name cannot be resolved (Name or" in error.message
    assert waited < 2


@pytest.mark.parametrize("role", ["client", "producer", "consumer", "admin"])
@pytest.mark.parametrize("status", [400, 401, 403, 404])
async def test_start_ends_at_once_if_the_token_endpoint_refuses(
    monkeypatch: pytest.MonkeyPatch, role: str, status: int
) -> None:
    requests: list[httpx.Request] = []

    def refuse(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        return httpx.Response(status, stream=httpx.ByteStream(b""))

    error, waited = await start_with_issuer(monkeypatch, role, refuse)
    assert isinstance(error, SaslAuthenticationError)
    assert f"https://issuer.example/token refused to issue a token: HTTP {status}" in error.message
    assert waited < 2
    assert len(requests) == 1


@pytest.mark.parametrize(
    "cause",
    [
        ConnectionRefusedError(111, "Connection refused"),
        socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"),
    ],
    ids=["refused", "no DNS"],
)
async def test_start_warns_at_once_and_ends_after_the_refused_timeout_without_token_endpoint(
    monkeypatch: pytest.MonkeyPatch, cause: OSError, caplog: pytest.LogCaptureFixture
) -> None:
    warned: list[float] = []

    def note(record: logging.LogRecord) -> bool:
        if record.getMessage().startswith("no token yet: https://issuer.example/token: "):
            warned.append(now())
        return True

    caplog.handler.addFilter(note)
    began = now()
    error, waited = await start_with_issuer(monkeypatch, "client", failing(cause))
    assert isinstance(error, BootstrapError)
    assert "https://issuer.example/token: " in error.message
    assert str(cause.strerror).lower() in error.message.lower()
    assert 4 <= waited < 6
    assert len(warned) == 1
    assert warned[0] - began < 1
    _, waited = await start_with_issuer(
        monkeypatch, "client", failing(cause), bootstrap_refused_timeout_ms=20_000
    )
    assert 20 <= waited < 30


async def test_start_retries_a_token_endpoint_that_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unavailable(request: httpx.Request) -> httpx.Response:
        return httpx.Response(503, stream=httpx.ByteStream(b""))

    error, waited = await start_with_issuer(monkeypatch, "client", unavailable)
    assert isinstance(error, BootstrapError)
    assert "https://issuer.example/token failed with HTTP 503" in error.message
    assert 60 <= waited < 62


@pytest.mark.parametrize("role", ["client", "producer", "consumer", "admin"])
async def test_wrong_password_ends_start_at_once(role: str) -> None:
    async with secure() as memory:
        client: Any = getattr(memory, role)(**(OPTIONS | {"sasl_password": "guess"}))
        began = now()
        with pytest.raises(SaslAuthenticationError, match="check sasl_username"):
            await client.start()
        assert now() - began < 2
        assert memory.attempts(1) == 1


async def test_poll_raises_when_credentials_become_invalid_and_goes_on_after_new_ones() -> None:
    async with (
        secure() as memory,
        memory.producer(**OPTIONS) as producer,
        memory.consumer(
            partitions=[TopicPartition("t", 0)], auto_offset_reset="earliest", **OPTIONS
        ) as consumer,
    ):
        await producer.send("t", b"1", partition=0)
        assert [each.value for each in await consumer.poll(timeout=5)] == [b"1"]
        await consumer.client.set_sasl_credentials("alice", "guess")
        await memory.cluster.disconnect(1)
        with pytest.raises(SaslAuthenticationError):
            await poll_until_it_raises(consumer)
        await consumer.client.set_sasl_credentials("alice", "wonderland")
        await producer.send("t", b"2", partition=0)
        found: list[bytes | None] = []
        began = now()
        while not found and now() - began < 20:
            with suppress(SaslAuthenticationError):
                found = [each.value for each in await consumer.poll(timeout=5)]
        assert found == [b"2"]


async def test_group_member_raises_when_credentials_become_invalid() -> None:
    async with (
        secure() as memory,
        memory.consumer("t", group_id="g", **OPTIONS) as consumer,
    ):
        await consumer.poll(timeout=5)
        await consumer.client.set_sasl_credentials("alice", "guess")
        await memory.cluster.disconnect(1)
        began = now()
        with pytest.raises(SaslAuthenticationError):
            await poll_until_it_raises(consumer)
        assert now() - began < 10
        member = consumer.group_metadata()
        await consumer.client.set_sasl_credentials("alice", "wonderland")
        while now() - began < 90:
            with suppress(SaslAuthenticationError):
                await consumer.poll(timeout=5)
        assert len(consumer.assignment()) == 4
        assert consumer.group_metadata() == member


@pytest.mark.parametrize("brokers", [1, 3])
async def test_records_fail_soon_with_invalid_credentials_and_are_delivered_with_valid_ones(
    brokers: int,
) -> None:
    async with secure(brokers) as memory, memory.producer(**OPTIONS) as producer:
        await producer.send("t", b"1", partition=0)
        await producer.client.set_sasl_credentials("alice", "guess")
        for broker in memory.cluster.brokers:
            await memory.cluster.disconnect(broker)
        began = now()
        for _ in range(3):
            with pytest.raises(SaslAuthenticationError, match="check sasl_username"):
                await producer.send("t", b"lost", partition=0)
        assert now() - began < 10
        await asyncio.sleep(30)
        assert memory.attempts(1) < 150
        await producer.client.set_sasl_credentials("alice", "wonderland")
        await asyncio.sleep(5)
        await producer.send("t", b"2", partition=0)
        assert memory.values("t") == [b"1", b"2"]


@pytest.mark.parametrize("brokers", [1, 3])
@pytest.mark.parametrize(("recovery", "simultaneous"), [("rebootstrap", 0), ("none", 4)])
async def test_each_broker_receives_failed_logins_at_the_pace_of_the_back_off(
    brokers: int, recovery: str, simultaneous: int
) -> None:
    """Counts them at the brokers, for all connections together.

    The connections to a broker that the client keeps may all connect before the first is rejected:
    one of each kind.
    """
    backoff, seconds = 0.5, 30.0
    async with secure(brokers) as memory:
        client = memory.client(
            reconnect_backoff_ms=1000 * backoff,
            reconnect_backoff_max_ms=1000 * backoff,
            metadata_recovery_strategy=recovery,
            **OPTIONS,
        )
        async with (
            client,
            Producer(client) as producer,
            Consumer(client, topics=["t"], group_id="g", enable_auto_commit=False) as consumer,
        ):
            await producer.send("t", b"value")
            await consumer.poll(timeout=5)
            began = now()
            await client.set_sasl_credentials("alice", "guess")
            for broker in memory.cluster.brokers:
                await memory.cluster.disconnect(broker)
            while now() - began < seconds:
                for call in (producer.send("t", b"value"), consumer.poll(timeout=0.1)):
                    with suppress(SaslAuthenticationError):
                        await call
            messages = [
                row
                for row in memory.received
                if row.time >= began and isinstance(row.request, SaslAuthenticateRequest)
            ]
            await client.set_sasl_credentials("alice", "wonderland")
        for broker in memory.cluster.brokers:
            # A login has two messages; the broker receives them at the same (virtual) time.
            times = [row.time for row in messages if row.broker == broker]
            logins, second = times[::2], times[1::2]
            assert second == pytest.approx(logins[: len(second)], abs=0.01)
            assert len(logins) > seconds / (8 * backoff)
            # A back-off is up to a fifth shorter, at random.
            gaps = [later - earlier for earlier, later in pairwise(logins[simultaneous:])]
            assert min(gaps) >= backoff * 0.8


@pytest.mark.parametrize("step", ["send", "enqueue", "commit"])
@pytest.mark.parametrize(
    "aborts", ["after the correction", "before and after", "after begin was refused"]
)
async def test_transaction_with_invalid_credentials_is_aborted_and_the_next_one_committed(
    step: str, aborts: str
) -> None:
    async with secure() as memory, memory.producer(transactional_id="x", **OPTIONS) as producer:
        async with producer.transaction() as transaction:
            await transaction.send("t", b"first", partition=0)
        failing = await producer.begin()
        await failing.send("t", b"aborted", partition=0)
        await producer.client.set_sasl_credentials("alice", "guess")
        await memory.cluster.disconnect(1)
        began = now()

        async def fail() -> None:
            if step == "send":
                await failing.send("t", b"not sent", partition=0)
            elif step == "enqueue":
                await failing.enqueue("t", b"not sent", partition=0)
            await failing.commit()

        with pytest.raises(SaslAuthenticationError, match="check sasl_username") as raised:
            await fail()
        assert raised.value.category is Category.INVALID_CONFIGURATION
        assert now() - began < 2
        if aborts == "before and after":
            with pytest.raises(SaslAuthenticationError):
                await failing.abort()
        await producer.client.set_sasl_credentials("alice", "wonderland")
        if aborts == "after the correction":
            await failing.abort()
        elif aborts == "before and after":
            with pytest.raises(SaslAuthenticationError):  # it has ended with this error
                await failing.abort()
        else:
            with pytest.raises(IllegalStateError):
                await producer.begin()
            await failing.abort()
        began = now()
        async with producer.transaction() as transaction:
            await transaction.send("t", b"second", partition=0)
        assert now() - began < 2
        async with memory.consumer(
            partitions=[TopicPartition("t", 0)],
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            **OPTIONS,
        ) as consumer:
            found: list[bytes | None] = []
            while len(found) < 2:
                found += [each.value for each in await consumer.poll(timeout=5)]
            found += [each.value for each in await consumer.poll(timeout=5)]
        assert found == [b"first", b"second"]


async def test_one_rejection_does_not_fail_a_record() -> None:
    """Brokers learn of a new password one after the other."""
    async with secure() as memory, memory.producer(**OPTIONS) as producer:
        await producer.send("t", b"1", partition=0)
        rejected: list[AuthenticationFailed] = []
        changes: list[asyncio.Task[None]] = []

        def restore(event: AuthenticationFailed) -> None:
            if not rejected:
                changes.append(
                    asyncio.create_task(producer.client.set_sasl_credentials("alice", "wonderland"))
                )
            rejected.append(event)

        producer.client.hooks.listen(AuthenticationFailed, restore)
        await producer.client.set_sasl_credentials("alice", "guess")
        await memory.cluster.disconnect(1)
        await producer.send("t", b"2", partition=0)
        assert len(rejected) >= 1
        assert memory.values("t") == [b"1", b"2"]


async def test_record_that_expires_without_a_leader_names_the_outage() -> None:
    async with (
        InMemory() as memory,
        memory.producer(delivery_timeout_ms=20_000, request_timeout_ms=10_000) as producer,
    ):
        await memory.cluster.create_topic("t")
        await producer.send("t", b"1", partition=0)
        await memory.cut_off(1)
        await asyncio.sleep(3)
        with pytest.raises(KafkaError, match="refused"):
            await producer.send("t", b"2", partition=0)


async def test_send_to_an_unknown_topic_raises_at_once_with_invalid_credentials() -> None:
    async with secure() as memory, memory.producer(**OPTIONS) as producer:
        await producer.send("t", b"1", partition=0)
        await producer.client.set_sasl_credentials("alice", "guess")
        await memory.cluster.disconnect(1)
        await until(lambda: memory.connections() == 0)
        began = now()
        with pytest.raises(SaslAuthenticationError):
            await producer.send("other", b"2")
        assert now() - began < 3
