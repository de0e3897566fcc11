"""Consumers whose group_protocol is "auto": which protocol they choose, and why."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async.errors import (
    CoordinatorLoadInProgressError,
    GroupAuthorizationError,
    GroupIdNotFoundError,
    KafkaError,
    TopicAuthorizationError,
    UnsupportedVersionError,
)
from kafka_async.group.protocol_choice import choose
from kafka_async.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from kafka_async.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.consumer.conftest import poll_until

if TYPE_CHECKING:
    from kafka_async.consumer.consumer import Consumer
    from tests.consumer.conftest import Stage, StartStage

AUTO: dict[str, Any] = {"group_protocol": "auto"}
NO_CONSUMER_PROTOCOL: dict[int, tuple[int, int]] = {68: (0, -1), 69: (0, -1)}


@pytest.mark.parametrize(
    ("error", "state", "protocol"),
    [
        (None, "", "consumer"),
        (TopicAuthorizationError(), "", "consumer"),
        (GroupIdNotFoundError(), "Dead", "consumer"),
        (GroupIdNotFoundError(), "Empty", "consumer"),
        (GroupIdNotFoundError(), "PreparingRebalance", "classic"),
        (GroupIdNotFoundError(), "Stable", "classic"),
        (UnsupportedVersionError(), "", "classic"),
        (GroupAuthorizationError(), "", "classic"),
    ],
)
def test_protocol_depends_on_the_group_and_the_brokers(
    error: KafkaError | None, state: str, protocol: str
) -> None:
    assert choose(error, state).protocol == protocol


class Log:
    """Reads which protocols consumers have chosen, with the reasons."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO, "kafka_async.group")
        self._caplog = caplog

    @property
    def choices(self) -> list[str]:
        return [
            message.partition("group_protocol is ")[2]
            for message in self._caplog.messages
            if "group_protocol is" in message
        ]


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Log:
    return Log(caplog)


async def assigned(consumer: Consumer, *others: Consumer) -> None:
    await poll_until(lambda: all(it.assignment() for it in (consumer, *others)), consumer, *others)


def of_consumer_protocol(stage: Stage) -> int:
    """Count the joins by ConsumerGroupHeartbeat."""
    return sum(it.member_epoch == 0 for it in stage.requests(ConsumerGroupHeartbeatRequest))


@pytest.mark.asyncio
@pytest.mark.virtual_clock
async def test_takes_the_consumer_protocol_for_an_empty_group_and_one_of_that_type(
    stage: Stage, log: Log
) -> None:
    await stage.topic("t", 2)
    async with stage.consumer("t", **AUTO) as first:
        await assigned(first)
        async with stage.consumer("t", **AUTO) as second:
            await assigned(first, second)
    assert of_consumer_protocol(stage) == 2
    assert log.choices == [
        "consumer: the group has no members",
        "consumer: the group is of this protocol",
    ]


@pytest.mark.asyncio
@pytest.mark.virtual_clock
async def test_takes_the_protocol_of_the_members_of_a_classic_group(stage: Stage, log: Log) -> None:
    await stage.topic("t", 2)
    async with stage.consumer("t") as first:
        await assigned(first)
        async with stage.consumer("t", **AUTO) as second:
            await assigned(first, second)
    assert of_consumer_protocol(stage) == 0
    assert log.choices == ["classic: the group has members of the classic protocol"]
    async with stage.consumer("t", **AUTO) as third:
        await assigned(third)
    assert of_consumer_protocol(stage) == 1


@pytest.mark.asyncio
@pytest.mark.virtual_clock
async def test_options_of_the_classic_protocol_choose_it(stage: Stage, log: Log) -> None:
    await stage.topic("t", 1)
    options = {"heartbeat_interval_ms": 1_000, "partition_assignment_strategy": ["range"]}
    async with stage.consumer("t", **AUTO, **options) as consumer:
        await assigned(consumer)
    assert of_consumer_protocol(stage) == 0
    assert stage.requests(ConsumerGroupDescribeRequest) == []
    assert log.choices == [
        "classic: only this protocol has heartbeat_interval_ms, partition_assignment_strategy"
    ]


@pytest.mark.asyncio
@pytest.mark.virtual_clock
@pytest.mark.parametrize("settings", [{"group_version": 0}, {"api_versions": NO_CONSUMER_PROTOCOL}])
async def test_brokers_without_the_consumer_protocol_get_the_classic_one(
    start_stage: StartStage, settings: Any, log: Log
) -> None:
    stage = await start_stage(**settings)
    await stage.topic("t", 1)
    async with stage.consumer("t", **AUTO) as consumer:
        await assigned(consumer)
    assert log.choices == ["classic: the brokers do not have the consumer protocol"]


@pytest.mark.asyncio
@pytest.mark.virtual_clock
@pytest.mark.parametrize(
    ("newest", "choice"),
    [
        (9, "classic: the metadata of the brokers has no topic ids"),
        (10, "consumer: the group has no members"),
    ],
)
async def test_brokers_without_topic_ids_get_the_classic_protocol(
    start_stage: StartStage, newest: int, choice: str, log: Log
) -> None:
    stage = await start_stage(api_versions={3: (0, newest)})
    await stage.topic("t", 1)
    async with stage.consumer("t", **AUTO) as consumer:
        await assigned(consumer)
    assert log.choices == [choice]


@pytest.mark.asyncio
@pytest.mark.virtual_clock
async def test_waits_for_a_coordinator_that_loads_or_moves(stage: Stage, log: Log) -> None:
    await stage.topic("t", 1)
    stage.cluster.faults.add(
        api="ConsumerGroupDescribe", error="COORDINATOR_LOAD_IN_PROGRESS", count=3
    )
    stage.cluster.faults.add(api="DescribeGroups", error="NOT_COORDINATOR", count=2)
    async with stage.consumer("t", **AUTO) as consumer:
        await assigned(consumer)
    assert log.choices == ["consumer: the group has no members"]


@pytest.mark.asyncio
@pytest.mark.virtual_clock
async def test_raises_at_the_start_if_the_coordinator_does_not_become_available(
    stage: Stage,
) -> None:
    stage.cluster.faults.add(
        api="ConsumerGroupDescribe", error="COORDINATOR_LOAD_IN_PROGRESS", count=None
    )
    consumer = stage.consumer("t", **AUTO, default_api_timeout_ms=5_000)
    with pytest.raises(CoordinatorLoadInProgressError):
        await consumer.start()


@pytest.mark.asyncio
@pytest.mark.virtual_clock
async def test_client_matches_patterns_in_either_protocol(stage: Stage) -> None:
    await stage.topic("ab", 1)
    async with stage.consumer(group_id="g", **AUTO) as consumer:
        for pattern in ("a.", re.compile("ab")):
            consumer.subscribe(pattern=pattern)
            await assigned(consumer)
    regular_expressions = {
        it.subscribed_topic_regex for it in stage.requests(ConsumerGroupHeartbeatRequest)
    }
    assert regular_expressions == {None}
