"""Interceptors of a consumer change or drop records, and learn of commits."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async.consumer.consumer import Consumer
from kafka_async.consumer.interceptors import ConsumerInterceptor
from kafka_async.errors import InvalidConfigurationError
from kafka_async.kernel import Record
from tests.embedded_client import now

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kafka_async.types import OffsetAndMetadata, TopicPartition
    from tests.consumer.conftest import Stage

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]


def with_value(record: Record[Any, Any], value: Any) -> Record[Any, Any]:
    return Record(
        record.topic,
        record.partition,
        record.offset,
        record.timestamp,
        record.timestamp_type,
        record.key,
        value,
        record.headers,
        record.leader_epoch,
    )


class Odd(ConsumerInterceptor):
    """Drops records with an even offset, and marks the others; keeps the commits."""

    def __init__(self) -> None:
        self.committed: list[dict[TopicPartition, int]] = []

    def on_records(self, records: Sequence[Record[Any, Any]]) -> Sequence[Record[Any, Any]]:
        return [with_value(each, (each.offset, "odd")) for each in records if each.offset % 2]

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        self.committed.append({place: each.offset for place, each in offsets.items()})


class Broken(ConsumerInterceptor):
    def on_records(self, records: Sequence[Record[Any, Any]]) -> Sequence[Record[Any, Any]]:
        raise ZeroDivisionError

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        raise ZeroDivisionError


class Twice(ConsumerInterceptor):
    def on_records(self, records: Sequence[Record[Any, Any]]) -> Sequence[Record[Any, Any]]:
        return [*records, *records]


EXPECTED = [(offset, "odd") for offset in range(1, 10, 2)]


async def test_poll_returns_what_interceptors_leave(stage: Stage) -> None:
    async with stage.reader(10, interceptors=[Odd()]) as (consumer, partition):
        values: list[Any] = []
        while len(values) < 5:
            values += [record.value for record in await consumer.poll()]
        assert values == EXPECTED
        assert await consumer.position(partition) == 10


async def test_poll_goes_on_if_all_records_are_dropped(stage: Stage) -> None:
    async with stage.reader(10, interceptors=[Odd()]) as (consumer, _):
        values: list[Any] = []
        while len(values) < 5:
            polled = await consumer.poll(max_records=1, timeout=None)
            assert len(polled) == 1
            values.append(polled[0].value)
        assert values == EXPECTED


async def test_poll_keeps_its_timeout_if_all_records_are_dropped(stage: Stage) -> None:
    class Nothing(ConsumerInterceptor):
        def on_records(self, records: Sequence[Record[Any, Any]]) -> Sequence[Record[Any, Any]]:
            return []

    async with stage.reader(10, interceptors=[Nothing()]) as (consumer, _):
        began = now()
        assert await consumer.poll(max_records=1, timeout=2) == []
        assert 2 <= now() - began < 2.1


async def test_stream_returns_what_interceptors_leave(stage: Stage) -> None:
    async with stage.reader(10, interceptors=[Odd()]) as (consumer, _):
        values: list[Any] = []
        async for record in consumer:
            values.append(record.value)
            if len(values) == 5:
                break
        assert values == EXPECTED


async def test_interceptor_gets_deserialized_records(stage: Stage) -> None:
    seen: list[Any] = []

    class See(ConsumerInterceptor):
        def on_records(self, records: Sequence[Record[Any, Any]]) -> Sequence[Record[Any, Any]]:
            seen.extend(record.value for record in records)
            return records

    def length(value: bytes) -> int:
        return len(value)

    async with stage.reader(2, interceptors=[See()], value_deserializer=length) as (consumer, _):
        values = [record.value for record in await consumer.poll()]
        assert values == seen[: len(values)]
        assert {type(value) for value in seen} == {int}


@pytest.mark.parametrize("broken", [Broken(), Twice()])
async def test_failing_interceptor_is_logged_and_keeps_the_records(
    stage: Stage, broken: ConsumerInterceptor, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR, "kafka_async.consumer"):
        async with stage.reader(3, interceptors=[broken]) as (consumer, _):
            offsets: list[int] = []
            while len(offsets) < 3:
                offsets += [record.offset for record in await consumer.poll()]
            assert offsets == [0, 1, 2]
    assert "records are kept" in caplog.text


async def test_interceptor_learns_of_each_commit(stage: Stage) -> None:
    odd = Odd()
    async with stage.member(4, interceptors=[Broken(), odd]) as (consumer, partition):
        records: list[Any] = []
        while len(records) < 2:
            records += await consumer.poll()
        await consumer.commit()
        assert odd.committed == [{partition: 4}]
        await consumer.commit({partition: 2})
        assert odd.committed[1:] == [{partition: 2}]


async def test_objects_without_the_methods_are_refused() -> None:
    for wrong in (object(), Odd, len):
        with pytest.raises(InvalidConfigurationError, match="no method on_records"):
            Consumer("memory:1", interceptors=[wrong])


async def test_objects_with_an_async_method_are_refused() -> None:
    async def waits(*_: Any) -> None: ...

    interceptor: Any = Odd()
    interceptor.on_records = waits

    cure = "on_records is async, and is called without waiting: define it with `def`"
    with pytest.raises(InvalidConfigurationError, match=cure):
        Consumer("memory:1", interceptors=[interceptor])
