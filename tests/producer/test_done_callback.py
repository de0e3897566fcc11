"""`Delivery.add_done_callback`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async.errors import KafkaError, TopicAuthorizationError, UnknownTopicOrPartitionError
from tests.embedded_client import settle
from tests.producer.bench import Bench

if TYPE_CHECKING:
    from kafka_async.kernel import Delivery

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]

LINGER_MS = 50


async def test_callback_is_called_once_with_the_delivery_when_its_record_is_acknowledged() -> None:
    async with Bench({"clicks": [1]}, linger_ms=LINGER_MS) as bench:
        called: list[Delivery] = []
        deliveries = [await bench.producer.enqueue("clicks", b"v") for _ in range(3)]
        for delivery in deliveries:
            delivery.add_done_callback(called.append)
        await settle()
        assert not called  # a callback does not end the linger time
        await asyncio.sleep(LINGER_MS / 1000 + 0.001)
        assert called == deliveries
        assert [delivery.result().offset for delivery in called] == [0, 1, 2]


async def test_callback_is_called_soon_if_the_outcome_is_known(bench: Bench) -> None:
    delivery = await bench.producer.enqueue("clicks", b"v")
    await delivery
    called: list[Delivery] = []
    delivery.add_done_callback(called.append)
    assert not called
    await settle()
    assert called == [delivery]


@pytest.mark.parametrize(
    ("topic", "kind"),
    [("clicks", TopicAuthorizationError), ("unknown", UnknownTopicOrPartitionError)],
)
async def test_callback_is_called_when_the_record_fails(topic: str, kind: type[KafkaError]) -> None:
    async with Bench({"clicks": [1]}, max_block_ms=1000) as bench:
        bench.refuse("TOPIC_AUTHORIZATION_FAILED")
        errors: list[BaseException | None] = []
        delivery = await bench.producer.enqueue(topic, b"v")
        delivery.add_done_callback(lambda it: errors.append(it.exception()))
        await asyncio.sleep(2)
        assert [type(error) for error in errors] == [kind]
        await bench.producer.flush()  # the callback has received the error


async def test_callback_is_called_for_a_record_of_a_new_topic() -> None:
    async with Bench(max_block_ms=5000) as bench:
        called: list[Delivery] = []
        delivery = await bench.producer.enqueue("clicks", b"v")
        delivery.add_done_callback(called.append)
        await bench.cluster.create_topic("clicks")
        await delivery
        await settle()
        assert called == [delivery]


async def test_error_of_a_callback_goes_to_the_exception_handler(bench: Bench) -> None:
    reported: list[Any] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: reported.append(context["exception"]))
    delivery = await bench.producer.enqueue("clicks", b"v")
    delivery.add_done_callback(lambda _: 1 // 0)
    assert (await delivery).offset == 0
    await settle()
    assert [type(error) for error in reported] == [ZeroDivisionError]
