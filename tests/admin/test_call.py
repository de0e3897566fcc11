"""Tests of `Call`: retries per item, raised errors, deadlines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from kafka_async.admin.call import Call, ItemResults, item_error, raise_first
from kafka_async.errors import (
    GroupAuthorizationError,
    GroupNotEmptyError,
    InvalidTopicError,
    KafkaError,
    NotControllerError,
    RequestTimedOutError,
    TopicExistsError,
)
from tests.embedded_client import InMemory

if TYPE_CHECKING:
    from kafka_async.cluster.client import Client

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]

Script = Callable[[str, int], KafkaError | None]


@pytest_asyncio.fixture
async def client() -> AsyncIterator[Client]:
    async with InMemory() as memory, memory.client(default_api_timeout_ms=10_000) as started:
        yield started


class Broker:
    """Fails each item with the error of `script(item, attempt)`; None is success."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.requests: list[list[str]] = []

    async def attempt(self, items: list[str]) -> ItemResults[str, str]:
        self.requests.append(items)
        results: ItemResults[str, str] = ItemResults()
        for item in items:
            error = self.script(item, len(self.requests))
            if error is None:
                results.values[item] = item.upper()
            else:
                results.errors[item] = error
        return results


async def test_returns_values_in_item_order_without_duplicates(client: Client) -> None:
    broker = Broker(lambda item, attempt: None)
    assert await Call(client, None).run("bab", broker.attempt) == {"b": "B", "a": "A"}
    assert broker.requests == [["b", "a"]]


async def test_sends_no_request_without_items(client: Client) -> None:
    broker = Broker(lambda item, attempt: None)
    assert await Call(client, None).run([], broker.attempt) == {}
    assert broker.requests == []


async def test_retries_only_items_with_retriable_errors(client: Client) -> None:
    broker = Broker(lambda item, attempt: NotControllerError() if item > "a" * attempt else None)
    assert await Call(client, None).run(["a", "aa"], broker.attempt) == {"a": "A", "aa": "AA"}
    assert broker.requests == [["a", "aa"], ["aa"]]


async def test_raises_first_error_with_others_in_notes_after_all_items_are_done(
    client: Client,
) -> None:
    errors: dict[str, KafkaError] = {
        "x": TopicExistsError(topic="x"),
        "y": InvalidTopicError(topic="y"),
    }

    def script(item: str, attempt: int) -> KafkaError | None:
        return NotControllerError() if attempt == 1 and item == "z" else errors.get(item)

    broker = Broker(script)
    with pytest.raises(TopicExistsError, match=r"^x: ") as caught:
        await Call(client, None).run("xyz", broker.attempt)
    assert caught.value.__notes__ == [f"also: {errors['y']}"]
    assert broker.requests == [["x", "y", "z"], ["z"]]


async def test_stops_retrying_at_deadline(client: Client) -> None:
    loop = asyncio.get_running_loop()
    start = loop.time()
    broker = Broker(lambda item, attempt: RequestTimedOutError())
    with pytest.raises(RequestTimedOutError):
        await Call(client, 5.0).run("x", broker.attempt)
    assert 3.5 < loop.time() - start <= 5.0
    assert len(broker.requests) > 3


async def test_timeout_defaults_to_default_api_timeout(client: Client) -> None:
    assert Call(client, None).left == 10.0
    call = Call(client, 2.0)
    assert call.left == 2.0
    await asyncio.sleep(3)
    assert call.left == 0.0


async def test_does_not_retry_final_errors(client: Client) -> None:
    broker = Broker(lambda item, attempt: NotControllerError())
    with pytest.raises(NotControllerError):
        await Call(client, None).run("x", broker.attempt, final=(NotControllerError,))
    assert len(broker.requests) == 1


async def test_item_error_names_kind_and_item() -> None:
    error = item_error(68, "group", "g", "has members")
    assert isinstance(error, GroupNotEmptyError)
    assert str(error) == "group g: has members [NON_EMPTY_GROUP 68]"
    assert "group g: The principal" in str(item_error(30, "group", "g"))
    with pytest.raises(GroupAuthorizationError):
        raise_first([item_error(30, "group", "g")])
    raise_first([])
