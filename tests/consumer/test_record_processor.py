"""`RecordProcessor` without a consumer: what makes it poll again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from kafka_async.consumer.delivery.record_processor import ProcessOptions, RecordProcessor
from kafka_async.consumer.delivery.undecodable import UndecodableRecords
from kafka_async.consumer.subscription import Subscription
from kafka_async.kernel import Record
from kafka_async.types import TopicPartition

if TYPE_CHECKING:
    from kafka_async.consumer.buffer.fetch_buffer import AnyRecord
    from kafka_async.consumer.delivery.record_processor import RawKeys

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]

PARTITION = TopicPartition("t", 0)


async def test_polls_again_if_records_are_dropped_before_their_workers_begin() -> None:
    subscription = Subscription()
    subscription.assign_manually([PARTITION])
    handled: list[int] = []
    polls = 0

    async def poll(limit: int, keys: RawKeys) -> list[AnyRecord] | None:
        nonlocal polls
        polls += 1
        if polls > 1:
            return None
        asyncio.get_running_loop().call_soon(processor.drop, {PARTITION})
        return [Record("t", 0, offset, 0, 0, b"key", b"value") for offset in range(3)]

    async def handle(record: AnyRecord) -> None:
        handled.append(record.offset)

    processor = RecordProcessor(
        poll,
        subscription,
        handle,
        ProcessOptions("key", 1, 1, 10.0, None, "raise"),
        UndecodableRecords("raise", lambda _: None, lambda: None),
        rewind_unfinished=lambda: None,
        failed=lambda: False,
        exit_timeout=1.0,
    )
    await asyncio.wait_for(processor.run(), 60)
    assert handled == []
    assert polls == 2
