"""Interceptors of a producer change records and learn the outcome of each."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async.errors import (
    BufferFullError,
    DeliveryError,
    InvalidConfigurationError,
    RecordTooLargeError,
    TopicAuthorizationError,
)
from kafka_async.producer.interceptors import ProducerInterceptor
from kafka_async.producer.producer import Producer
from tests.embedded_client import settle
from tests.producer.bench import Bench, transactional

if TYPE_CHECKING:
    from kafka_async.types import ProducerRecord, RecordMetadata

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]


class Tag(ProducerInterceptor):
    """Adds a header, and keeps the outcomes."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.outcomes: list[tuple[ProducerRecord, RecordMetadata | None, BaseException | None]] = []

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return replace(record, headers=[*record.headers, (self.name, b"")])

    def on_acknowledgement(
        self,
        record: ProducerRecord,
        metadata: RecordMetadata | None,
        error: BaseException | None,
    ) -> None:
        self.outcomes.append((record, metadata, error))


class Broken(ProducerInterceptor):
    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        raise ZeroDivisionError

    def on_acknowledgement(self, record: object, metadata: object, error: object) -> None:
        raise ZeroDivisionError


class Forgetful(ProducerInterceptor):
    def on_send(self, record: ProducerRecord) -> Any:
        pass


async def send(bench: Bench) -> None:
    await bench.producer.send("clicks", b"0", key=b"k")


async def enqueue(bench: Bench) -> None:
    await (await bench.producer.enqueue("clicks", b"0", key=b"k"))


async def enqueue_nowait(bench: Bench) -> None:
    await bench.producer.enqueue_nowait("clicks", b"0", key=b"k")


async def send_many(bench: Bench) -> None:
    (delivery,) = await bench.producer.send_many("clicks", [b"0"], [b"k"])
    await delivery


@pytest.mark.parametrize("call", [send, enqueue, enqueue_nowait, send_many])
async def test_interceptors_change_each_record_in_order_and_learn_its_offset(call: Any) -> None:
    first, second = Tag("first"), Tag("second")
    async with Bench({"clicks": [1]}, interceptors=[first, second]) as bench:
        for _ in range(3):  # the second record would take the fast path
            await call(bench)
        await settle()
        records = bench.records("clicks")
        assert [list(record.headers) for record in records] == [
            [("first", b""), ("second", b"")] for _ in range(3)
        ]
        for tag in (first, second):
            assert [metadata and metadata.offset for _, metadata, _ in tag.outcomes] == [0, 1, 2]
            assert {error for _, _, error in tag.outcomes} == {None}
            assert [record.headers[1][0] for record, _, _ in tag.outcomes] == ["second"] * 3


async def test_interceptor_may_send_a_record_to_another_topic() -> None:
    class Redirect(ProducerInterceptor):
        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            return replace(record, topic="views")

    async with Bench({"clicks": [1], "views": [1]}, interceptors=[Redirect()]) as bench:
        receipt = await bench.producer.send("clicks", b"v")
        assert receipt.topic == "views"
        assert bench.values("views") == [b"v"]


async def test_interceptor_gets_the_record_before_serialization() -> None:
    class Count(ProducerInterceptor):
        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            value: Any = record.value
            return replace(record, value=value + 1)

    def serializer(value: int) -> bytes:
        return str(value).encode()

    options: dict[str, Any] = {"interceptors": [Count()], "value_serializer": serializer}
    async with Bench({"clicks": [1]}, **options) as bench:
        number: Any = 41
        await bench.producer.send("clicks", number)
        assert bench.values("clicks") == [b"42"]


@pytest.mark.parametrize("broken", [Broken(), Forgetful()])
async def test_failing_interceptor_is_logged_and_does_not_break_sending(
    broken: ProducerInterceptor, caplog: pytest.LogCaptureFixture
) -> None:
    tag = Tag("after")
    with caplog.at_level(logging.ERROR, "kafka_async.producer"):
        async with Bench({"clicks": [1]}, interceptors=[broken, tag]) as bench:
            await bench.producer.send("clicks", b"v")
            await settle()
            assert bench.values("clicks") == [b"v"]
    assert len(tag.outcomes) == 1
    messages = [row.message for row in caplog.records]
    assert "the record to clicks is kept" in messages[0]
    assert len(messages) == (2 if isinstance(broken, Broken) else 1)


async def test_interceptor_learns_the_error_of_a_batch_and_flush_still_raises_it() -> None:
    tag = Tag("t")
    async with Bench({"clicks": [1]}, interceptors=[tag]) as bench:
        bench.refuse("TOPIC_AUTHORIZATION_FAILED")
        await bench.producer.enqueue("clicks", b"v")
        with pytest.raises(DeliveryError):
            await bench.producer.flush()
        await settle()
        ((record, metadata, error),) = tag.outcomes
        assert record.topic == "clicks"
        assert metadata is None
        assert isinstance(error, TopicAuthorizationError)


async def test_interceptor_learns_the_outcome_of_a_record_that_waits_for_metadata() -> None:
    tag = Tag("t")
    async with Bench({"clicks": [1]}, interceptors=[tag], max_block_ms=1_000) as bench:
        await bench.cluster.create_topic("late", assignments={0: [1]})
        await (await bench.producer.enqueue("late", b"v"))
        missing = await bench.producer.enqueue("missing", b"v")
        await asyncio.wait_for(asyncio.gather(missing, return_exceptions=True), 100)
        await settle()
        assert [error is None for _, _, error in tag.outcomes] == [True, False]


def fill_buffer(bench: Bench) -> None:
    for _ in range(100):
        bench.producer.enqueue_nowait("clicks", b"v" * 500)


async def test_interceptor_learns_of_a_record_that_was_not_appended() -> None:
    tag = Tag("t")
    options: dict[str, Any] = {"max_request_size": 1_000, "buffer_memory": 5_000}
    async with Bench({"clicks": [1]}, interceptors=[tag], **options) as bench:
        with pytest.raises(RecordTooLargeError):
            await bench.producer.send("clicks", b"v" * 2_000)
        bench.hold()
        with pytest.raises(BufferFullError):
            fill_buffer(bench)
        assert [type(error) for _, _, error in tag.outcomes] == [
            RecordTooLargeError,
            BufferFullError,
        ]


async def test_interceptor_learns_of_a_record_whose_wait_for_memory_was_cancelled() -> None:
    tag = Tag("t")
    async with Bench({"clicks": [1]}, interceptors=[tag], buffer_memory=5_000) as bench:
        bench.hold()
        await bench.producer.enqueue("clicks", b"v" * 3_000)

        async def enqueue_another() -> None:
            await bench.producer.enqueue("clicks", b"v" * 3_000)

        waiting = asyncio.create_task(enqueue_another())
        await settle()
        assert not waiting.done()
        assert tag.outcomes == []
        waiting.cancel()
        await asyncio.wait({waiting})
        assert [type(error) for _, _, error in tag.outcomes] == [asyncio.CancelledError]


async def test_interceptors_see_the_records_of_a_transaction() -> None:
    tag = Tag("t")
    async with transactional(interceptors=[tag]) as bench:
        async with bench.producer.transaction() as txn:
            await txn.enqueue("counts", b"1")
        await settle()
        assert [list(each.headers) for each in bench.records("counts")] == [[("t", b"")]]
        assert len(tag.outcomes) == 1


async def test_objects_without_the_methods_are_refused() -> None:
    for wrong in (object(), Tag, len):
        with pytest.raises(InvalidConfigurationError, match="no method on_send"):
            Producer("memory:1", interceptors=[wrong])


async def test_objects_with_an_async_method_are_refused() -> None:
    async def waits(*_: Any) -> None: ...

    interceptor: Any = Tag("t")
    interceptor.on_acknowledgement = waits

    cure = "on_acknowledgement is async, and is called without waiting: define it with `def`"
    with pytest.raises(InvalidConfigurationError, match=cure):
        Producer("memory:1", interceptors=[interceptor])


@pytest.mark.parametrize("wrong", [Tag("t"), {}, 5, None])
async def test_interceptors_that_are_no_list_are_refused(wrong: Any) -> None:
    with pytest.raises(InvalidConfigurationError, match=r"write interceptors=\[\.\.\.\]$"):
        Producer("memory:1", interceptors=wrong)
