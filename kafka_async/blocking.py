"""Producer, Consumer and Admin for callers that block: scripts, Spark workers, a REPL.

The clients are the asyncio ones; their loop runs in one background thread a process, behind anyio's
blocking portal. The portal is keyed by process id, so a forked child (a Spark worker) gets a loop
of its own. Ctrl-C while a call waits cancels the call and leaves the client usable.

Every call ends in bounded time, except iteration over a consumer and `poll(timeout=None)`: after
its `timeout` in seconds, or without one after the option that its documentation names; where it
says 60 s, that is default_api_timeout_ms.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import threading
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Never, Self, TypeVar

if TYPE_CHECKING:
    from collections.abc import (
        Awaitable,
        Callable,
        Generator,
        Iterable,
        Iterator,
        Mapping,
        Sequence,
    )

    from anyio.from_thread import BlockingPortal

    from kafka_async.admin import NewTopic
    from kafka_async.consumer.consumer import Consumer as AsyncConsumer
    from kafka_async.consumer.consumer import PartitionBatch
    from kafka_async.kernel import Delivery, Record
    from kafka_async.producer.producer import Transaction as AsyncTransaction
    from kafka_async.types import (
        Health,
        OffsetAndMetadata,
        ProducerRecord,
        RecordMetadata,
        TopicPartition,
    )

R = TypeVar("R")


class _Host:
    """The loop's thread of this process."""

    def __init__(self) -> None:
        from anyio.from_thread import start_blocking_portal

        self.pid = os.getpid()
        self._stack = ExitStack()
        uvloop = importlib.util.find_spec("uvloop") is not None
        self.portal: BlockingPortal = self._stack.enter_context(
            start_blocking_portal(
                "asyncio", {"use_uvloop": uvloop}, name="kafka-async blocking loop"
            )
        )
        atexit.register(self._stop)

    def _stop(self) -> None:
        if os.getpid() == self.pid:
            self.portal.call(partial(self.portal.stop, cancel_remaining=True))
            self._stack.close()


_host: _Host | None = None
_lock = threading.Lock()


def run(function: Callable[..., Awaitable[R]], *args: Any, **keywords: Any) -> R:
    """Run an async function on this process's background loop and return what it returns.

    Whatever interrupts the waiting (Ctrl-C) cancels the function. Not for use inside a running
    event loop: await the asyncio clients there.
    """
    global _host
    with _lock:
        if _host is None or _host.pid != os.getpid():
            _host = _Host()
    future = _host.portal.start_task_soon(partial(function, *args, **keywords))
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


class _Blocking:
    """What the three have in common: an asyncio client, and its life as a `with` block."""

    def __init__(self, client: Any) -> None:
        # Any: what it gives is typed by the signatures of the methods that call it.
        self._client = client

    def start(self) -> Self:
        """Connect within default_api_timeout_ms; `with` does it too."""
        run(self._client.start)
        return self

    def stop(self, timeout: float | None = None) -> None:
        """Finish and close within `timeout` s (close_timeout_ms); `with` does it too."""
        run(self._client.stop, timeout)

    def health(self) -> Health:
        """Return a snapshot of the client's condition; no request is sent."""
        return run(_later, self._client.health)

    def __enter__(self) -> Self:
        run(self._client.__aenter__)
        return self

    def __exit__(self, *exc_info: object) -> None:
        run(self._client.__aexit__, *exc_info)


class Producer(_Blocking):
    """A producer whose calls wait. Options and errors are those of `kafka_async.Producer`."""

    def __init__(self, bootstrap_servers: str | Sequence[str], **options: Any) -> None:
        from kafka_async.producer.producer import Producer as AsyncProducer

        super().__init__(AsyncProducer(bootstrap_servers, **options))

    @classmethod
    def from_properties(cls, properties: Mapping[str, object]) -> Self:
        """A producer from options under Java's names, as {"linger.ms": 5}."""
        from kafka_async.producer.producer import Producer as AsyncProducer

        made = cls.__new__(cls)
        _Blocking.__init__(made, AsyncProducer.from_properties(properties))
        return made

    def send(self, topic: str, value: Any = None, **where: Any) -> RecordMetadata:
        """Send one record and wait until it is acknowledged (key=, headers=, partition=, ...).

        Waits at most max_block_ms for room, and delivery_timeout_ms for the acknowledgement.
        """
        return run(self._client.send, topic, value, **where)

    def enqueue(self, topic: str, value: Any = None, **where: Any) -> Delivery:
        """Append a record; waits only while the buffer is full, at most max_block_ms.

        `flush` raises what fails.
        """
        return run(self._client.enqueue, topic, value, **where)

    def send_many(
        self, topic: str, values: Sequence[Any], keys: Sequence[Any] | None = None, **unknown: Never
    ) -> None:
        """Append many records of one topic; `flush` waits for them.

        Each waits for room at most max_block_ms.
        """
        run(self._client.send_many, topic, values, keys=keys, **unknown)

    def send_records(self, records: Iterable[ProducerRecord], **unknown: Never) -> None:
        """Append records to wherever each says; `flush` waits for them.

        Each waits for room at most max_block_ms.
        """
        run(self._client.send_records, records, **unknown)

    def flush(self, timeout: float | None = None, **unknown: Never) -> None:
        """Wait until everything appended is acknowledged; raises DeliveryError for what failed.

        After `timeout` s it raises KafkaTimeoutError. Without one it ends when delivery_timeout_ms
        of the last record has passed.
        """
        run(self._client.flush, timeout, **unknown)

    @contextmanager
    def transaction(self) -> Generator[Transaction]:
        """Begin a transaction; commit at the end of the block, abort if it raises.

        Each takes at most max_block_ms, and delivery_timeout_ms for the records.
        """
        scope = run(_later, self._client.transaction)
        transaction = Transaction(run(scope.__aenter__))
        try:
            yield transaction
        except BaseException as error:
            if not run(scope.__aexit__, type(error), error, error.__traceback__):
                raise
        else:
            run(scope.__aexit__, None, None, None)


class Transaction:
    """An open transaction of a blocking producer."""

    def __init__(self, transaction: AsyncTransaction[Any, Any]) -> None:
        self._transaction = transaction

    def enqueue(self, topic: str, value: Any = None, **where: Any) -> Delivery:
        """Append a record to the transaction; waits for room at most max_block_ms."""
        return run(self._transaction.enqueue, topic, value, **where)

    def commit_offsets(
        self, consumer: Consumer, *, timeout: float | None = None, **unknown: Never
    ) -> None:
        """Commit, with the transaction, what the consumer handed out (KIP-447).

        Takes at most `timeout` s (max_block_ms).
        """
        run(self._transaction.commit_offsets, consumer.asynchronous, timeout=timeout, **unknown)


class Consumer(_Blocking):
    """A consumer whose calls wait. Options and errors are those of `kafka_async.Consumer`."""

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        *,
        topics: Iterable[str] | None = None,
        partitions: Iterable[TopicPartition] | None = None,
        **options: Any,
    ) -> None:
        from kafka_async.consumer.consumer import Consumer as AsyncConsumer

        super().__init__(
            AsyncConsumer(bootstrap_servers, topics=topics, partitions=partitions, **options)
        )

    @classmethod
    def from_properties(
        cls,
        properties: Mapping[str, object],
        *,
        topics: Iterable[str] | None = None,
        partitions: Iterable[TopicPartition] | None = None,
    ) -> Self:
        """A consumer from options under Java's names, as {"fetch.min.bytes": 1}."""
        from kafka_async.consumer.consumer import Consumer as AsyncConsumer

        made = cls.__new__(cls)
        client = AsyncConsumer.from_properties(properties, topics=topics, partitions=partitions)
        _Blocking.__init__(made, client)
        return made

    @property
    def asynchronous(self) -> AsyncConsumer[Any, Any]:
        """The asyncio consumer inside; it belongs to the background loop."""
        return self._client

    def __iter__(self) -> Iterator[Record]:
        """Records, one after the other, without end; a new one commits those before it.

        Waits for the next record without a limit: use `poll` to wait for a bounded time.
        """
        while True:
            yield run(self._client.__anext__)

    def poll(
        self,
        *misplaced: Never,
        timeout: float | None = 1.0,
        max_records: int | None = None,
        **unknown: Never,
    ) -> list[Record]:
        """Up to `max_records` records; an empty list after `timeout` seconds without any."""
        return run(
            self._client.poll, *misplaced, max_records=max_records, timeout=timeout, **unknown
        )

    def poll_batches(
        self, *misplaced: Never, timeout: float | None = 1.0, **unknown: Never
    ) -> list[PartitionBatch]:
        """What is there, per partition, undecoded; an empty list after `timeout` seconds."""
        return run(self._client.poll_batches, *misplaced, timeout=timeout, **unknown)

    def commit(
        self,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None = None,
        *,
        timeout: float | None = None,
        **unknown: Never,
    ) -> None:
        """Commit everything handed out, or the given offsets, within `timeout` s (60)."""
        run(self._client.commit, offsets, timeout=timeout, **unknown)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions, outside any group. Does not wait."""
        run(_later, self._client.assign, partitions)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Read on from an offset. Does not wait."""
        run(_later, self._client.seek, partition, offset)

    def high_watermark(self, partition: TopicPartition) -> int | None:
        """Return the high watermark of the last fetch response; None until known."""
        return run(_later, self._client.high_watermark, partition)

    def last_stable_offset(self, partition: TopicPartition) -> int | None:
        """Return the last stable offset of the last fetch response; None until known."""
        return run(_later, self._client.last_stable_offset, partition)

    def position(
        self, partition: TopicPartition, *, timeout: float | None = None, **unknown: Never
    ) -> int:
        """The offset of the next record to be handed out, known within `timeout` s (60)."""
        return run(self._client.position, partition, timeout=timeout, **unknown)

    def topics(self, *, timeout: float | None = None, **unknown: Never) -> list[str]:
        """The names of all topics, within `timeout` s (60)."""
        return sorted(run(self._client.topics, timeout=timeout, **unknown))

    def partitions_for(
        self, topic: str, timeout: float | None = None, **unknown: Never
    ) -> list[int]:
        """The partitions of a topic, within `timeout` s (60).

        Raises UnknownTopicOrPartitionError if there is no such topic.
        """
        return sorted(run(self._client.partitions_for, topic, timeout=timeout, **unknown))

    def beginning_offsets(
        self,
        partitions: Sequence[TopicPartition],
        *,
        timeout: float | None = None,
        **unknown: Never,
    ) -> dict[TopicPartition, int]:
        """The first offset that each partition still has, within `timeout` s (60)."""
        return run(self._client.beginning_offsets, partitions, timeout=timeout, **unknown)

    def end_offsets(
        self,
        partitions: Sequence[TopicPartition],
        *,
        timeout: float | None = None,
        **unknown: Never,
    ) -> dict[TopicPartition, int]:
        """The offset after the last record that may be read, within `timeout` s (60)."""
        return run(self._client.end_offsets, partitions, timeout=timeout, **unknown)


class Admin(_Blocking):
    """An admin client whose calls wait. Options and errors are those of `kafka_async.Admin`."""

    def __init__(self, bootstrap_servers: str | Sequence[str], **options: Any) -> None:
        from kafka_async.admin import Admin as AsyncAdmin

        super().__init__(AsyncAdmin(bootstrap_servers, **options))

    def create_topics(
        self, topics: Sequence[NewTopic], *, timeout: float | None = None, **unknown: Never
    ) -> None:
        """Create topics and wait until they have leaders, within `timeout` s (60)."""
        run(self._client.create_topics, topics, timeout=timeout, **unknown)

    def delete_topics(
        self, names: Sequence[str], *, timeout: float | None = None, **unknown: Never
    ) -> None:
        """Delete topics within `timeout` s (60)."""
        run(self._client.delete_topics, names, timeout=timeout, **unknown)

    def list_topics(self, *, timeout: float | None = None, **unknown: Never) -> list[str]:
        """The names of all topics, within `timeout` s (60)."""
        return sorted(run(self._client.list_topics, timeout=timeout, **unknown))


async def _later(function: Callable[..., R], *args: Any) -> R:
    """Call a plain function in the loop's thread."""
    return function(*args)
