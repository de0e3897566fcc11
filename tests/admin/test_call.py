"""Tests of the errors of one item of an admin call."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kafka_async.admin.call import Call, Results, item_error, raise_first
from kafka_async.client.metadata.request_router import FoundBroker
from kafka_async.errors import (
    GroupNotEmptyError,
    KafkaConnectionError,
    KafkaTimeoutError,
    RefreshRetriableError,
    UnknownTopicOrPartitionError,
)
from kafka_async.protocol.messages.list_groups import ListGroupsRequest
from kafka_async.types import TopicPartition
from tests.embedded_client import InMemory

if TYPE_CHECKING:
    from kafka_async.protocol.messages.offset_fetch import OffsetFetchResponse

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]


async def test_lost_connection_is_the_error_of_the_items_of_that_broker() -> None:
    async def query(node_id: int, items: list[str]) -> Results[str, str]:
        if node_id == 2:
            raise KafkaConnectionError("lost")
        return {item: item.upper() for item in items}

    async with InMemory() as memory, memory.client() as client:
        results = await Call(client, None).query_brokers({"a": 1, "b": 2, "c": 1, "d": 2}, query)
    assert (results["a"], results["c"]) == ("A", "C")
    assert isinstance(results["b"], KafkaConnectionError)
    assert results["d"] is results["b"]


async def test_broker_that_left_the_cluster_is_the_error_of_its_items() -> None:
    """A coordinator is killed between its lookup and the request to it; the call looks again."""

    async with InMemory() as memory, memory.client() as client:
        call = Call(client, None)

        async def query(node_id: int, items: list[str]) -> Results[str, str]:
            request = ListGroupsRequest()
            await call.services.request(request, to=FoundBroker(node_id), timeout=5)
            return {item: item.upper() for item in items}

        results = await call.query_brokers({"a": 1, "b": 9}, query)
    assert results["a"] == "A"
    assert isinstance(results["b"], RefreshRetriableError)
    assert str(results["b"]) == "the cluster has no broker 9 now; it has 1"


async def test_time_out_of_a_later_attempt_does_not_hide_the_error_before_it() -> None:
    attempts = 0

    async def attempt(items: list[str]) -> Results[str, str]:
        nonlocal attempts
        attempts += 1
        if attempts == 2:
            raise KafkaTimeoutError("no response in time")
        return {item: UnknownTopicOrPartitionError(topic=item) for item in items}

    async with InMemory() as memory, memory.client() as client:
        with pytest.raises(UnknownTopicOrPartitionError, match="t: The broker"):
            await Call(client, 10.0).run(["t"], attempt)
    assert attempts == 2


async def test_time_out_of_the_first_attempt_is_raised() -> None:
    async def attempt(items: list[str]) -> Results[str, str]:
        raise KafkaTimeoutError("no response in time")

    async with InMemory() as memory, memory.client() as client:
        with pytest.raises(KafkaTimeoutError):
            await Call(client, 10.0).run(["t"], attempt)


async def test_error_of_an_item_names_it() -> None:
    error = item_error("group", "g", 68, "has members")
    assert isinstance(error, GroupNotEmptyError)
    assert str(error) == "group g: has members [NON_EMPTY_GROUP 68]"
    assert "group g: The principal" in str(item_error("group", "g", 30))
    assert item_error("group", "g", 0) is None
    with pytest.raises(GroupNotEmptyError):
        raise_first([error])
    raise_first([])


async def test_group_that_a_response_lacks_is_requested_again() -> None:
    def drop_groups(response: OffsetFetchResponse) -> None:
        response.groups = []

    partition = TopicPartition("t", 0)
    async with InMemory() as memory, memory.admin() as admin:
        await memory.cluster.create_topic("t", 1)
        await admin.alter_group_offsets("g", {partition: 7})
        rule = memory.cluster.faults.add(api="OffsetFetch", change=drop_groups)
        assert (await admin.list_group_offsets("g", [partition]))[partition].offset == 7
    assert rule.hits == 1
