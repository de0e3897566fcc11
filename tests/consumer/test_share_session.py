"""The session of a share group's member ends while it cannot send heartbeats."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async import ShareConsumer
from kafka_async.admin import ConfigResource, ResourceType
from kafka_async.errors import InvalidRecordStateError, ShareSessionNotFoundError
from kafka_async.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from tests.embedded_client import until

if TYPE_CHECKING:
    from kafka_async.consumer.share.share_record import ShareRecord
    from tests.consumer.conftest import Stage

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]

SESSION = 45.0
"""Seconds; the default of brokers, and longer than the lock of a record."""


async def poll_records(consumer: ShareConsumer, count: int) -> list[ShareRecord]:
    """Poll until a consumer has returned this many records."""
    records: list[ShareRecord] = []
    async with asyncio.timeout(200):
        while len(records) < count:
            records += await consumer.poll(timeout=1.0)
    return records


async def read_from_start(stage: Stage) -> None:
    """Let share group "g" start at the first records."""
    async with stage.admin() as admin:
        group = ConfigResource(ResourceType.GROUP, "g")
        await admin.alter_configs({group: {"share.auto.offset.reset": "earliest"}})


def share_consumer(stage: Stage, client_id: str, **options: Any) -> ShareConsumer:
    """Return a consumer of topic "t" that was not started."""
    given: dict[str, Any] = {"topics": ["t"], "group_id": "g", "client_id": client_id}
    return ShareConsumer(stage.cluster.bootstrap_servers, dialer=stage.network, **given, **options)


async def test_member_without_heartbeats_is_removed_and_its_records_come_again(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """It reports the loss and the failed acknowledgements, and joins again."""
    (partition,) = await stage.topic("t", 1, 2)
    await read_from_start(stage)

    def joins() -> int:
        return [row.member_epoch for row in stage.requests(ShareGroupHeartbeatRequest)].count(0)

    async with share_consumer(stage, "silent", share_acknowledgement_mode="explicit") as silent:
        records = await poll_records(silent, 2)
        held = stage.cluster.faults.add(
            api="ShareGroupHeartbeat",
            when=lambda context, _: context.client_id == "silent",
            count=None,
            hang=True,
        )
        await held.wait()
        await asyncio.sleep(SESSION + 1)
        async with share_consumer(stage, "other") as other:
            again = await poll_records(other, 2)
            assert [record.delivery_count for record in again] == [2, 2]
            assert joins() == 2
            held.remove()
            for record in records:
                silent.acknowledge(record)
            outcome = await silent.commit()
            assert isinstance(outcome[partition], InvalidRecordStateError)
            assert await other.commit() == {partition: None}
            async with asyncio.timeout(30):
                await until(lambda: joins() == 3)
        stage.produce(partition, range(2, 4))
        new = await poll_records(silent, 2)
        assert [record.offset for record in new] == [2, 3]
        for record in new:
            silent.acknowledge(record)
        assert await silent.commit() == {partition: None}
    (warning,) = [text for text in caplog.messages if "has lost its place" in text]
    assert warning.startswith("share group g: this member has lost its place in the group")


@pytest.mark.parametrize("api", ["ShareFetch", "ShareAcknowledge"])
async def test_fault_rules_select_topics_and_partitions_of_share_requests(
    stage: Stage, api: str
) -> None:
    """The requests have ids of topics; an error is the one of the whole response."""
    (partition,) = await stage.topic("t", 1, 2)
    await read_from_start(stage)
    others = [
        stage.cluster.faults.add(api=api, count=None, topic=topic, partition=number)
        for topic, number in (("u", None), ("t", 1))
    ]
    error = "SHARE_SESSION_NOT_FOUND"
    fault = stage.cluster.faults.add(api=api, topic="t", partition=0, error=error)
    async with share_consumer(stage, "c") as consumer:
        await poll_records(consumer, 2)
        outcome = (await consumer.commit())[partition]
        assert fault.hits == 1
        expected = ShareSessionNotFoundError if api == "ShareAcknowledge" else type(None)
        assert isinstance(outcome, expected)
    assert [each.hits for each in others] == [0, 0]
