"""Errors of credentials that were replaced are not raised, whether they were stored or came later.

Each stored error is raised once before the replacement, to show that it is stored.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from kafka_async.admin import Admin
from kafka_async.consumer.consumer import Consumer
from kafka_async.errors import SaslAuthenticationError
from kafka_async.hooks import AuthenticationFailed
from kafka_async.producer.producer import Producer
from kafka_async.types import TopicPartition
from tests.consumer.conftest import poll_until
from tests.embedded_client import InMemory, now

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine

    from kafka_async.client.client import Client

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock, pytest.mark.one_kernel]

RIGHT, WRONG = "wonderland", "guess"
SASL: dict[str, Any] = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_allow_plaintext": True,
    "sasl_mechanism": "SCRAM-SHA-256",
    "sasl_username": "alice",
    "sasl_password": RIGHT,
}
PARTITIONS = [TopicPartition("t", number) for number in range(4)]
STORED_S = 25.0
"""Seconds after which an error is stored: several heartbeats and attempts to connect."""


class Clients(NamedTuple):
    """Clients that share connections, and their cluster."""

    memory: InMemory
    client: Client
    producer: Producer
    consumer: Consumer[Any, Any]
    admin: Admin

    async def use(self, password: str) -> None:
        """Replace the credentials."""
        await self.client.set_sasl_credentials("alice", password)

    async def invalidate(self) -> None:
        """Use a wrong password and close all connections."""
        await self.use(WRONG)
        for broker in self.memory.cluster.brokers:
            await self.memory.cluster.disconnect(broker)


@asynccontextmanager
async def started(brokers: int = 1, **options: Any) -> AsyncGenerator[Clients]:
    """Start clients; the consumer is in a group and has read nothing yet."""
    async with InMemory(brokers, listeners="SASL_PLAINTEXT", users={"alice": RIGHT}) as memory:
        await memory.cluster.create_topic("t", partitions=4)
        async with (
            memory.client(**(SASL | options)) as client,
            Producer(client) as producer,
            Consumer(
                client, group_id="g", enable_auto_commit=False, max_poll_interval_ms=3_600_000
            ) as consumer,
            Admin(client) as admin,
        ):
            yield Clients(memory, client, producer, consumer, admin)


async def fail(call: Callable[[], Awaitable[Any]]) -> None:
    """Repeat a call until it raises."""
    while True:
        await call()


async def check_error_is_stored_and_dropped(clients: Clients) -> None:
    """Check that a stored error is raised at once, and that replacing the credentials drops it."""
    await clients.invalidate()
    for _ in range(2):
        await asyncio.sleep(STORED_S)
        with pytest.raises(SaslAuthenticationError):
            await clients.consumer.poll(timeout=0)
    await asyncio.sleep(STORED_S)
    await clients.use(RIGHT)
    began = now()
    while now() - began < STORED_S:
        await clients.consumer.poll(timeout=1)


async def check_records_are_read(clients: Clients) -> None:
    """Check that a record arrives, without an error meanwhile."""
    await clients.producer.send("t", b"value", partition=0)
    async with asyncio.timeout(10):
        while not (records := await clients.consumer.poll(timeout=1)):
            pass
    assert [record.value for record in records] == [b"value"]


async def test_error_of_fetches_is_dropped() -> None:
    async with started() as clients:
        clients.consumer.assign(PARTITIONS)
        await clients.consumer.poll(timeout=5)
        await check_error_is_stored_and_dropped(clients)
        await check_records_are_read(clients)


async def test_error_of_heartbeats_is_dropped() -> None:
    async with started() as clients:
        consumer = clients.consumer
        consumer.subscribe(["t"])
        await poll_until(lambda: len(consumer.assignment()) == 4, consumer)
        consumer.pause(PARTITIONS)
        await check_error_is_stored_and_dropped(clients)
        consumer.resume(PARTITIONS)
        await check_records_are_read(clients)


async def test_error_of_a_join_is_dropped() -> None:
    async with started() as clients:
        consumer = clients.consumer
        denied = clients.memory.hang("JoinGroup")
        consumer.subscribe(["t"])
        await denied.wait()
        denied.remove()
        await check_error_is_stored_and_dropped(clients)
        assert len(consumer.assignment()) == 4
        await check_records_are_read(clients)


async def test_error_of_metadata_is_dropped() -> None:
    async with started() as clients:
        clients.consumer.assign(PARTITIONS)
        await clients.consumer.poll(timeout=5)
        clients.consumer.pause(PARTITIONS)
        await check_error_is_stored_and_dropped(clients)
        clients.consumer.resume(PARTITIONS)
        await check_records_are_read(clients)


# -- calls ----------------------------------------------------------------------------------------


async def send(clients: Clients) -> None:
    await clients.producer.send("t", b"value")


async def poll(clients: Clients) -> None:
    await clients.consumer.poll(timeout=5)


async def commit(clients: Clients) -> None:
    await clients.consumer.commit({PARTITIONS[0]: 0})


async def describe(clients: Clients) -> None:
    await clients.admin.describe_topics(["t"])


calls = pytest.mark.parametrize(
    ("call", "brokers"), [(send, 1), (poll, 3), (commit, 1), (describe, 3)]
)


@calls
async def test_attempt_in_progress_is_repeated_with_the_new_credentials(
    brokers: int, call: Callable[[Clients], Coroutine[Any, Any, None]]
) -> None:
    async with started(brokers) as clients:
        clients.consumer.subscribe(["t"])
        await poll_until(lambda: len(clients.consumer.assignment()) == 4, clients.consumer)
        await call(clients)
        await clients.invalidate()
        with pytest.raises(SaslAuthenticationError):
            await fail(lambda: call(clients))
        held = clients.memory.hang("SaslAuthenticate")
        calling = asyncio.create_task(call(clients))
        await held.wait()
        await asyncio.sleep(2)
        await clients.use(RIGHT)
        held.remove()
        await calling
        for _ in range(10):
            await call(clients)


@calls
async def test_attempt_that_fails_just_before_the_replacement_raises_no_error(
    brokers: int, call: Callable[[Clients], Coroutine[Any, Any, None]]
) -> None:
    """Replaces the credentials before the tasks run that wait for the attempt."""
    async with started(brokers) as clients:
        clients.consumer.subscribe(["t"])
        await poll_until(lambda: len(clients.consumer.assignment()) == 4, clients.consumer)
        await call(clients)
        for number in range(1, 20):
            failures: list[asyncio.Task[None]] = []

            def on_failure(
                _: AuthenticationFailed, number: int = number, failures: list[Any] = failures
            ) -> None:
                failures.append(asyncio.create_task(replace(len(failures) + 1 == number)))

            async def replace(reached: bool) -> None:
                if reached:
                    await clients.use(RIGHT)
                    for _ in range(3):
                        await call(clients)

            remove = clients.client.hooks.listen(AuthenticationFailed, on_failure)
            await clients.invalidate()
            await asyncio.sleep(10)
            remove()
            await asyncio.gather(*failures)
            await clients.use(RIGHT)
            await asyncio.sleep(5)


async def test_new_credentials_are_used_without_the_backoff_of_the_former_ones() -> None:
    async with started(reconnect_backoff_ms=60_000, reconnect_backoff_max_ms=60_000) as clients:
        clients.consumer.assign(PARTITIONS)
        await clients.consumer.poll(timeout=5)
        await clients.invalidate()
        with pytest.raises(SaslAuthenticationError):
            await fail(lambda: clients.consumer.poll(timeout=5))
        await asyncio.sleep(5)
        await clients.use(RIGHT)
        began = now()
        async with clients.memory.producer(**SASL) as producer:
            await producer.send("t", b"value", partition=0)
        assert len(await clients.consumer.poll(timeout=5)) == 1
        assert now() - began < 2


async def test_setting_the_same_credentials_again_keeps_the_backoff() -> None:
    """Otherwise an application that does so after each error would lock its user out."""
    async with started(reconnect_backoff_ms=2_000, reconnect_backoff_max_ms=2_000) as clients:
        clients.consumer.assign(PARTITIONS)
        await clients.consumer.poll(timeout=5)
        failures: list[AuthenticationFailed] = []
        clients.client.hooks.listen(AuthenticationFailed, failures.append)
        await clients.invalidate()
        began = now()
        while now() - began < 60:
            try:
                await clients.consumer.poll(timeout=0.1)
            except SaslAuthenticationError:
                await clients.use(WRONG)
        assert 10 < len(failures) < 60 / 2_000 / 0.8 * 1_000 + 4
