"""Group members whose requests are denied: by a password that became wrong, or by a missing ACL.

The error is raised, and the membership continues once its cause was removed.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async.errors import GroupAuthorizationError, KafkaError, SaslAuthenticationError
from kafka_async.protocol.messages.heartbeat import HeartbeatRequest
from kafka_async.protocol.messages.join_group import JoinGroupRequest
from kafka_async.protocol.messages.leave_group import LeaveGroupRequest
from kafka_async.types import TopicPartition
from tests.consumer.conftest import Stage, poll_until
from tests.embedded_client import InMemory, now
from tests.recording_listener import RecordingListener

if TYPE_CHECKING:
    from kafka_async.consumer.consumer import Consumer

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock, pytest.mark.one_kernel]

SASL: dict[str, Any] = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_allow_plaintext": True,
    "sasl_mechanism": "SCRAM-SHA-256",
    "sasl_username": "alice",
    "sasl_password": "wonderland",
}
DENIED = "GROUP_AUTHORIZATION_FAILED"
SESSION_S = 45.0
HEARTBEAT_INTERVAL_S = 3.0
RECOVERY_S = 2.0
"""Maximum seconds from the removal of the cause to the next record or the next generation."""
EAGER = {"partition_assignment_strategy": ["range"]}
COOPERATIVE = {"partition_assignment_strategy": ["cooperative-sticky"]}
strategies = pytest.mark.parametrize(
    "strategy", [pytest.param(EAGER, id="eager"), pytest.param(COOPERATIVE, id="cooperative")]
)


async def poll_error(consumer: Consumer[Any, Any]) -> KafkaError:
    """Poll until an error is raised; return it."""
    async with asyncio.timeout(100):
        while True:
            try:
                await consumer.poll(timeout=1)
            except KafkaError as error:
                return error


async def values_before(consumer: Consumer[Any, Any], count: int, seconds: float) -> list[Any]:
    """Poll until `count` records were returned, at most this long; return their values."""
    values: list[Any] = []
    async with asyncio.timeout(seconds):
        while len(values) < count:
            values += [record.value for record in await consumer.poll()]
    return values


async def check_heartbeats(consumer: Consumer[Any, Any]) -> None:
    """Wait for a heartbeat that succeeds; poll meanwhile."""
    began = now()

    def accepted() -> bool:
        age = consumer.health().last_heartbeat_s
        return age is not None and now() - age >= began

    await poll_until(accepted, consumer)
    assert now() - began < HEARTBEAT_INTERVAL_S + RECOVERY_S


# -- heartbeats -----------------------------------------------------------------------------------


@strategies
async def test_member_continues_after_its_password_was_corrected(strategy: Any) -> None:
    listener = RecordingListener()
    async with InMemory(listeners="SASL_PLAINTEXT", users={"alice": "wonderland"}) as memory:
        await memory.cluster.create_topic("t", partitions=4)
        async with (
            memory.producer(**SASL) as producer,
            memory.consumer(group_id="g", enable_auto_commit=False, **SASL, **strategy) as consumer,
        ):
            consumer.subscribe(["t"], listener=listener)
            await poll_until(lambda: len(consumer.assignment()) == 4, consumer)
            sent = [b"%d" % number for number in range(4)]
            for value in sent:
                await producer.send("t", value)
            assert sorted(await values_before(consumer, 4, 5)) == sent
            member = consumer.group_metadata()

            await consumer.client.set_sasl_credentials("alice", "guess")
            await memory.cluster.disconnect(1)
            assert isinstance(await poll_error(consumer), SaslAuthenticationError)
            await asyncio.sleep(20)
            assert isinstance(await poll_error(consumer), SaslAuthenticationError)

            await consumer.client.set_sasl_credentials("alice", "wonderland")
            more = [b"%d" % number for number in range(4, 8)]
            for value in more:
                await producer.send("t", value)
            found: list[Any] = []
            began = now()
            while len(found) < 4:
                try:
                    found += [record.value for record in await consumer.poll(timeout=1)]
                except SaslAuthenticationError:  # of requests before the correction
                    assert now() - began < RECOVERY_S
            assert now() - began < RECOVERY_S
            assert sorted(found) == more
            await check_heartbeats(consumer)
            assert await consumer.poll(timeout=SESSION_S + 10) == []
            assert consumer.group_metadata() == member
            assert listener.lines == [("assigned", [0, 1, 2, 3])]
            await consumer.commit()


async def test_member_continues_after_a_missing_permission_was_granted(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    listener = RecordingListener()
    (partition,) = await stage.topic("t", 1, 3)
    async with stage.consumer(group_id="g") as consumer:
        consumer.subscribe(["t"], listener=listener)
        assert len(await values_before(consumer, 3, 10)) == 3
        member = consumer.group_metadata()
        denied = stage.cluster.faults.add(api="Heartbeat", error=DENIED, count=None)
        for _ in range(3):
            assert isinstance(await poll_error(consumer), GroupAuthorizationError)
        warnings = [row.getMessage() for row in caplog.records if row.levelno >= logging.WARNING]
        [text] = [line for line in warnings if "GroupAuthorizationError" in line]
        assert "lacks READ on the group g" in text
        assert "keeps its partitions and its member id, and retries until its session ends" in text
        assert "45 s (session_timeout_ms)" in text
        denied.remove()
        stage.produce(partition, [3, 4])
        assert await values_before(consumer, 2, RECOVERY_S) == [b"3", b"4"]
        await check_heartbeats(consumer)
        assert consumer.group_metadata() == member
        assert listener.lines == [("assigned", [0])]
        assert len(stage.requests(JoinGroupRequest)) == 2  # one for the member id (KIP-394)


async def test_stream_continues_after_an_error_where_it_ended(stage: Stage) -> None:
    (partition,) = await stage.topic("t", 1, 3)
    async with stage.consumer("t") as consumer:
        found: list[Any] = []

        async def read(count: int) -> None:
            async for record in consumer:
                found.append(record.value)
                if len(found) == count:
                    return

        stage.cluster.faults.add(api="Heartbeat", error=DENIED)
        with pytest.raises(GroupAuthorizationError):
            await read(4)
        stage.produce(partition, [3])
        async with asyncio.timeout(RECOVERY_S):
            await read(4)
        assert found == [b"0", b"1", b"2", b"3"]


async def test_polls_in_a_loop_do_not_send_heartbeats_in_a_loop(stage: Stage) -> None:
    async with stage.member(records=1) as (consumer, _):
        await consumer.poll(timeout=10)
        stage.cluster.faults.add(api="Heartbeat", error=DENIED, count=None)
        before, began = len(stage.requests(HeartbeatRequest)), now()
        errors = 0
        while now() - began < 20:
            try:
                await consumer.poll(timeout=0.01)
            except GroupAuthorizationError:
                errors += 1
        sent = len(stage.requests(HeartbeatRequest)) - before
        assert 10 < sent < 35
        assert errors == pytest.approx(sent, abs=1)
        stage.cluster.faults.clear()


async def test_member_whose_session_has_ended_meanwhile_joins_again(stage: Stage) -> None:
    listener = RecordingListener()
    await stage.topic("t", 1, 3)
    async with stage.consumer(group_id="g") as consumer:
        consumer.subscribe(["t"], listener=listener)
        assert len(await values_before(consumer, 3, 10)) == 3
        await consumer.commit()
        member = consumer.group_metadata()
        denied = stage.cluster.faults.add(api="Heartbeat", error=DENIED, count=None)
        assert isinstance(await poll_error(consumer), GroupAuthorizationError)
        await asyncio.sleep(SESSION_S + 1)
        denied.remove()
        assert isinstance(await poll_error(consumer), GroupAuthorizationError)
        await poll_until(lambda: len(listener.lines) == 3, consumer, timeout=RECOVERY_S)
        assert listener.lines == [("assigned", [0]), ("lost", [0]), ("assigned", [0])]
        assert consumer.group_metadata().member_id != member.member_id


async def test_denial_that_ended_before_a_poll_is_only_logged(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "kafka_async.group")
    async with stage.member(records=1) as (consumer, partition):
        assert len(await consumer.poll(timeout=10)) == 1
        member = consumer.group_metadata()
        denied = stage.cluster.faults.add(api="Heartbeat", error=DENIED, count=None)
        await asyncio.sleep(SESSION_S - 5)
        last_error = consumer.health().last_error
        assert last_error is not None
        assert last_error.startswith("GroupAuthorizationError")
        denied.remove()
        await asyncio.sleep(RECOVERY_S)
        assert "the coordinator accepts requests again" in caplog.text
        assert consumer.health().last_error is None
        stage.produce(partition, [1])
        assert await values_before(consumer, 1, RECOVERY_S) == [b"1"]
        await asyncio.sleep(SESSION_S)
        await consumer.poll(timeout=1)
        assert consumer.group_metadata() == member


async def test_denied_member_leaves_the_group_when_it_is_closed(stage: Stage) -> None:
    listener = RecordingListener()
    await stage.topic("t", 1, 1)
    async with stage.consumer(group_id="g") as consumer:
        consumer.subscribe(["t"], listener=listener)
        assert len(await values_before(consumer, 1, 10)) == 1
        stage.cluster.faults.add(api="Heartbeat", error=DENIED, count=None)
        assert isinstance(await poll_error(consumer), GroupAuthorizationError)
    assert len(stage.requests(LeaveGroupRequest)) == 1
    assert listener.lines == [("assigned", [0]), ("revoked", [0])]


async def test_rebalance_that_began_meanwhile_is_joined_with_the_same_member_id(
    stage: Stage,
) -> None:
    await stage.topic("t", 2, 1)
    async with stage.consumer("t") as consumer, stage.consumer("t") as other:
        await poll_until(lambda: len(consumer.assignment()) == 2, consumer)
        member = consumer.group_metadata()
        denied = stage.cluster.faults.add(api="Heartbeat", error=DENIED, count=None)
        assert isinstance(await poll_error(consumer), GroupAuthorizationError)
        other.subscribe(["t"])
        joining = asyncio.create_task(other.poll(timeout=10))
        await asyncio.sleep(5)
        denied.remove()
        assert isinstance(await poll_error(consumer), GroupAuthorizationError)  # the last denial
        await poll_until(lambda: len(consumer.assignment()) == 1, consumer, timeout=5)
        await joining
        assert consumer.group_metadata().member_id == member.member_id


# -- JoinGroup and SyncGroup ----------------------------------------------------------------------


@strategies
@pytest.mark.parametrize("api", ["JoinGroup", "SyncGroup"])
async def test_member_that_may_not_join_a_rebalance_joins_it_later_with_the_same_member_id(
    stage: Stage, strategy: Any, api: str, caplog: pytest.LogCaptureFixture
) -> None:
    listener = RecordingListener()
    (partition,) = await stage.topic("t", 1, 3)
    async with stage.consumer(group_id="g", enable_auto_commit=True, **strategy) as consumer:
        consumer.subscribe(["t"], listener=listener)
        assert len(await values_before(consumer, 3, 10)) == 3
        await consumer.poll(timeout=0)  # the records are processed
        member = consumer.group_metadata()
        denied = stage.cluster.faults.add(api=api, error=DENIED, count=None)
        consumer.subscribe(["t", "other"], listener=listener)
        for _ in range(3):
            assert isinstance(await poll_error(consumer), GroupAuthorizationError)
        assert "joins again at the next poll, with the same member id" in caplog.text
        denied.remove()
        stage.produce(partition, [3])
        assert await values_before(consumer, 1, RECOVERY_S) == [b"3"]
        await poll_until(
            lambda: consumer.group_metadata().generation_id > member.generation_id, consumer
        )
        await consumer.poll(timeout=5)
        assert consumer.group_metadata().member_id == member.member_id
        assert not any(kind == "lost" for kind, _ in listener.lines)


async def test_first_join_that_was_denied_is_sent_again_by_the_next_poll(stage: Stage) -> None:
    denied = stage.cluster.faults.add(api="JoinGroup", error=DENIED, count=None)
    async with stage.member(records=1) as (consumer, _):
        for _ in range(2):
            assert isinstance(await poll_error(consumer), GroupAuthorizationError)
        denied.remove()
        assert len(await values_before(consumer, 1, RECOVERY_S)) == 1


# -- fetches --------------------------------------------------------------------------------------


@pytest.mark.parametrize("lost", ["every connection", "the connection for fetches"])
async def test_error_of_a_connection_is_raised_once_for_all_partitions(lost: str) -> None:
    async with InMemory(listeners="SASL_PLAINTEXT", users={"alice": "wonderland"}) as memory:
        await memory.cluster.create_topic("t", partitions=20)
        async with memory.consumer(enable_auto_commit=False, **SASL) as consumer:
            consumer.assign([TopicPartition("t", number) for number in range(20)])
            await consumer.poll(timeout=5)
            await consumer.client.set_sasl_credentials("alice", "guess")
            if lost == "every connection":
                await memory.cluster.disconnect(1)
            else:
                memory.cluster.faults.add(api="Fetch", disconnect="before")
            assert isinstance(await poll_error(consumer), SaslAuthenticationError)
            await consumer.client.set_sasl_credentials("alice", "wonderland")
            began, errors = now(), 0
            while now() - began < 10:
                try:
                    await consumer.poll(timeout=1)
                except SaslAuthenticationError:
                    errors += 1
            assert errors <= 1
