"""One call over many items: retries, what is raised, and when it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from kafka_async.admin.call import Call, Outcome, item_error, raise_first
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

Judge = Callable[[str, int], KafkaError | None]


@pytest_asyncio.fixture
async def client() -> AsyncIterator[Client]:
    async with InMemory() as memory, memory.client(default_api_timeout_ms=10_000) as started:
        yield started


class Broker:
    """Answers for each item apart, as `judge(item, attempt)` says; None is success."""

    def __init__(self, judge: Judge) -> None:
        self.judge = judge
        self.asked: list[list[str]] = []

    async def attempt(self, items: list[str]) -> Outcome[str, str]:
        self.asked.append(items)
        outcome: Outcome[str, str] = Outcome()
        for item in items:
            error = self.judge(item, len(self.asked))
            if error is None:
                outcome.results[item] = item.upper()
            else:
                outcome.errors[item] = error
        return outcome


async def test_results_come_in_the_order_of_the_items_each_once(client: Client) -> None:
    broker = Broker(lambda item, attempt: None)
    assert await Call(client, None).settle("bab", broker.attempt) == {"b": "B", "a": "A"}
    assert broker.asked == [["b", "a"]]


async def test_no_items_are_no_request(client: Client) -> None:
    broker = Broker(lambda item, attempt: None)
    assert await Call(client, None).settle([], broker.attempt) == {}
    assert broker.asked == []


async def test_only_what_may_pass_is_asked_for_again(client: Client) -> None:
    broker = Broker(lambda item, attempt: NotControllerError() if item > "a" * attempt else None)
    assert await Call(client, None).settle(["a", "aa"], broker.attempt) == {"a": "A", "aa": "AA"}
    assert broker.asked == [["a", "aa"], ["aa"]]


async def test_what_failed_is_raised_after_the_rest_is_done_with_the_others_noted(
    client: Client,
) -> None:
    errors: dict[str, KafkaError] = {
        "x": TopicExistsError(topic="x"),
        "y": InvalidTopicError(topic="y"),
    }

    def judge(item: str, attempt: int) -> KafkaError | None:
        return NotControllerError() if attempt == 1 and item == "z" else errors.get(item)

    broker = Broker(judge)
    with pytest.raises(TopicExistsError, match=r"^x: ") as caught:
        await Call(client, None).settle("xyz", broker.attempt)
    assert caught.value.__notes__ == [f"also: {errors['y']}"]
    assert broker.asked == [["x", "y", "z"], ["z"]]


async def test_retries_end_with_the_deadline(client: Client) -> None:
    loop = asyncio.get_running_loop()
    begun = loop.time()
    broker = Broker(lambda item, attempt: RequestTimedOutError())
    with pytest.raises(RequestTimedOutError):
        await Call(client, 5.0).settle("x", broker.attempt)
    assert 3.5 < loop.time() - begun <= 5.0
    assert len(broker.asked) > 3


async def test_the_deadline_is_the_clients_unless_the_caller_has_one(client: Client) -> None:
    assert Call(client, None).left == 10.0
    call = Call(client, 2.0)
    assert call.left == 2.0
    await asyncio.sleep(3)
    assert call.left == 0.0


async def test_an_error_may_be_the_answer(client: Client) -> None:
    broker = Broker(lambda item, attempt: NotControllerError())
    with pytest.raises(NotControllerError):
        await Call(client, None).settle("x", broker.attempt, final=(NotControllerError,))
    assert len(broker.asked) == 1


async def test_an_item_that_is_no_topic_is_named_in_the_text() -> None:
    error = item_error(68, "group", "g", "has members")
    assert isinstance(error, GroupNotEmptyError)
    assert str(error) == "group g: has members [NON_EMPTY_GROUP 68]"
    assert "group g: The principal" in str(item_error(30, "group", "g"))
    with pytest.raises(GroupAuthorizationError):
        raise_first([item_error(30, "group", "g")])
    raise_first([])
