"""Blocking API: Producer, Consumer and Admin for scripts, Spark workers and the REPL.

The clients wrap the asyncio ones, whose event loop runs in one background thread per process,
behind anyio's blocking portal. A forked child (a Spark worker) gets a new event loop. Ctrl-C during
a call cancels the call and leaves the client usable.

Every call is bounded, except iteration over a consumer and `poll(timeout=None)`: by its `timeout`
in seconds, or without one by the option that its documentation names.
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


class _LoopThread:
    """Runs the event loop of this process in a background thread."""

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


_loop_thread: _LoopThread | None = None
_lock = threading.Lock()


def run(function: Callable[..., Awaitable[R]], *args: Any, **keywords: Any) -> R:
    """Run an async function on this process's background event loop.

    An exception while waiting, such as Ctrl-C, cancels the function. Inside a running event loop,
    await the asyncio clients instead.

    Args:
        function: The async function.
        *args: Its positional arguments.
        **keywords: Its keyword arguments.

    Returns:
        The function's result.
    """
    global _loop_thread
    with _lock:
        # The process id differs in a forked child, where the thread does not exist.
        if _loop_thread is None or _loop_thread.pid != os.getpid():
            _loop_thread = _LoopThread()
    future = _loop_thread.portal.start_task_soon(partial(function, *args, **keywords))
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


class _BlockingClient:
    """Wraps an asyncio client, and starts and stops it in a `with` block."""

    def __init__(self, client: Any) -> None:
        # Any, since the methods that call it declare the types of its results.
        self._client = client

    def start(self) -> Self:
        """Connect; entering a `with` block does it too.

        Returns:
            The client.

        Raises:
            KafkaError: No connection was possible within default_api_timeout_ms.
        """
        run(self._client.start)
        return self

    def stop(self, timeout: float | None = None) -> None:
        """Finish pending work and close; leaving a `with` block does it too.

        Args:
            timeout: Maximum time in seconds (default: close_timeout_ms).
        """
        run(self._client.stop, timeout)

    def health(self) -> Health:
        """Return a snapshot of the client's condition; no request is sent."""
        return run(_call, self._client.health)

    def __enter__(self) -> Self:
        run(self._client.__aenter__)
        return self

    def __exit__(self, *exc_info: object) -> None:
        run(self._client.__aexit__, *exc_info)


class Producer(_BlockingClient):
    """Produces records with blocking calls.

    Options, arguments and errors are those of `kafka_async.Producer`.
    """

    def __init__(self, bootstrap_servers: str | Sequence[str], **options: Any) -> None:
        from kafka_async.producer.producer import Producer as AsyncProducer

        super().__init__(AsyncProducer(bootstrap_servers, **options))

    @classmethod
    def from_properties(cls, properties: Mapping[str, object]) -> Self:
        """Create a producer from Java's property names, as {"linger.ms": 5}."""
        from kafka_async.producer.producer import Producer as AsyncProducer

        producer = cls.__new__(cls)
        _BlockingClient.__init__(producer, AsyncProducer.from_properties(properties))
        return producer

    def send(self, topic: str, value: Any = None, **where: Any) -> RecordMetadata:
        """Send a record and wait for its acknowledgement.

        Waits at most max_block_ms for memory and metadata, and delivery_timeout_ms for the
        acknowledgement.

        Args:
            topic: The topic.
            value: The value, bytes or what the value serializer takes.
            **where: key, headers, partition and timestamp.

        Returns:
            The partition and offset of the record.

        Raises:
            KafkaError: The record was not acknowledged.
        """
        return run(self._client.send, topic, value, **where)

    def enqueue(self, topic: str, value: Any = None, **where: Any) -> Delivery:
        """Append a record to a batch, without waiting for its acknowledgement.

        Waits at most max_block_ms for memory and metadata. `flush` raises the errors of failed
        records.

        Args:
            topic: The topic.
            value: The value, bytes or what the value serializer takes.
            **where: key, headers, partition and timestamp.

        Returns:
            The delivery of the record.
        """
        return run(self._client.enqueue, topic, value, **where)

    def send_many(
        self, topic: str, values: Sequence[Any], keys: Sequence[Any] | None = None, **unknown: Never
    ) -> None:
        """Append records to a topic; `flush` waits for their acknowledgements.

        Waits at most max_block_ms for memory, for each record.

        Args:
            topic: The topic.
            values: The values.
            keys: A key for each value.
            **unknown: Raises TypeError with the argument to use instead.
        """
        run(self._client.send_many, topic, values, keys=keys, **unknown)

    def send_records(self, records: Iterable[ProducerRecord], **unknown: Never) -> None:
        """Append records, each to its own topic; `flush` waits for their acknowledgements.

        Waits at most max_block_ms for memory, for each record.

        Args:
            records: The records.
            **unknown: Raises TypeError with the argument to use instead.
        """
        run(self._client.send_records, records, **unknown)

    def flush(self, timeout: float | None = None, **unknown: Never) -> None:
        """Wait until all appended records are acknowledged or have failed.

        Args:
            timeout: Maximum time in seconds; None: until delivery_timeout_ms of the last record.
            **unknown: Raises TypeError with the argument to use instead.

        Raises:
            DeliveryError: Records have failed.
            KafkaTimeoutError: Records were still pending after `timeout`.
        """
        run(self._client.flush, timeout, **unknown)

    @contextmanager
    def transaction(self) -> Generator[Transaction]:
        """Begin a transaction; commit it at the end of the block, abort it if the block raises.

        Begin, commit and abort take at most max_block_ms each, and the pending records at most
        delivery_timeout_ms.

        Yields:
            The transaction.
        """
        scope = run(_call, self._client.transaction)
        transaction = Transaction(run(scope.__aenter__))
        try:
            yield transaction
        except BaseException as error:
            if not run(scope.__aexit__, type(error), error, error.__traceback__):
                raise
        else:
            run(scope.__aexit__, None, None, None)


class Transaction:
    """Appends records and offsets to an open transaction with blocking calls."""

    def __init__(self, transaction: AsyncTransaction[Any, Any]) -> None:
        self._transaction = transaction

    def enqueue(self, topic: str, value: Any = None, **where: Any) -> Delivery:
        """Append a record to the transaction.

        Waits at most max_block_ms for memory and metadata.

        Args:
            topic: The topic.
            value: The value, bytes or what the value serializer takes.
            **where: key, headers, partition and timestamp.

        Returns:
            The delivery of the record.
        """
        return run(self._transaction.enqueue, topic, value, **where)

    def commit_offsets(
        self, consumer: Consumer, *, timeout: float | None = None, **unknown: Never
    ) -> None:
        """Commit the offsets of a consumer's returned records with the transaction (KIP-447).

        Args:
            consumer: The consumer.
            timeout: Maximum time in seconds (default: max_block_ms).
            **unknown: Raises TypeError with the argument to use instead.
        """
        run(self._transaction.commit_offsets, consumer.asynchronous, timeout=timeout, **unknown)


class Consumer(_BlockingClient):
    """Consumes records with blocking calls.

    Options, arguments and errors are those of `kafka_async.Consumer`. Calls with a `timeout` (in
    seconds) take at most default_api_timeout_ms without one, unless their documentation says
    otherwise.
    """

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
        """Create a consumer from Java's property names, as {"fetch.min.bytes": 1}."""
        from kafka_async.consumer.consumer import Consumer as AsyncConsumer

        consumer = cls.__new__(cls)
        client = AsyncConsumer.from_properties(properties, topics=topics, partitions=partitions)
        _BlockingClient.__init__(consumer, client)
        return consumer

    @property
    def asynchronous(self) -> AsyncConsumer[Any, Any]:
        """Underlying asyncio consumer; it belongs to the background event loop."""
        return self._client

    def __iter__(self) -> Iterator[Record]:
        """Yield records without end; requesting a record marks those before it as done.

        Waits for the next record without a limit; `poll` waits for a bounded time.
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
        """Return records, waiting for the first one.

        Args:
            *misplaced: Raises TypeError: arguments are given by name.
            timeout: Maximum time in seconds to wait for the first record; None: no limit.
            max_records: Maximum number of records (default: max_poll_records).
            **unknown: Raises TypeError with the argument to use instead.

        Returns:
            The records; an empty list after `timeout`.
        """
        return run(
            self._client.poll, *misplaced, max_records=max_records, timeout=timeout, **unknown
        )

    def poll_batches(
        self, *misplaced: Never, timeout: float | None = 1.0, **unknown: Never
    ) -> list[PartitionBatch]:
        """Return fetched data as undecoded batches per partition, waiting for the first one.

        Args:
            *misplaced: Raises TypeError: arguments are given by name.
            timeout: Maximum time in seconds to wait for the first batch; None: no limit.
            **unknown: Raises TypeError with the argument to use instead.

        Returns:
            The batches; an empty list after `timeout`.
        """
        return run(self._client.poll_batches, *misplaced, timeout=timeout, **unknown)

    def commit(
        self,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None = None,
        *,
        timeout: float | None = None,
        **unknown: Never,
    ) -> None:
        """Commit the offsets of all returned records, or the given offsets."""
        run(self._client.commit, offsets, timeout=timeout, **unknown)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Consume exactly these partitions, without a group; does not wait."""
        run(_call, self._client.assign, partitions)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Set the position of a partition; does not wait."""
        run(_call, self._client.seek, partition, offset)

    def high_watermark(self, partition: TopicPartition) -> int | None:
        """Return the high watermark of the last fetch response; None before the first one."""
        return run(_call, self._client.high_watermark, partition)

    def last_stable_offset(self, partition: TopicPartition) -> int | None:
        """Return the last stable offset of the last fetch response; None before the first one."""
        return run(_call, self._client.last_stable_offset, partition)

    def position(
        self, partition: TopicPartition, *, timeout: float | None = None, **unknown: Never
    ) -> int:
        """Return the offset of the next record to return, waiting until it is known."""
        return run(self._client.position, partition, timeout=timeout, **unknown)

    def topics(self, *, timeout: float | None = None, **unknown: Never) -> list[str]:
        """Return the names of all topics."""
        return sorted(run(self._client.topics, timeout=timeout, **unknown))

    def partitions_for(
        self, topic: str, timeout: float | None = None, **unknown: Never
    ) -> list[int]:
        """Return the partition numbers of a topic.

        Raises:
            UnknownTopicOrPartitionError: The topic does not exist.
        """
        return sorted(run(self._client.partitions_for, topic, timeout=timeout, **unknown))

    def beginning_offsets(
        self,
        partitions: Sequence[TopicPartition],
        *,
        timeout: float | None = None,
        **unknown: Never,
    ) -> dict[TopicPartition, int]:
        """Return the offset of the first record that each partition still has."""
        return run(self._client.beginning_offsets, partitions, timeout=timeout, **unknown)

    def end_offsets(
        self,
        partitions: Sequence[TopicPartition],
        *,
        timeout: float | None = None,
        **unknown: Never,
    ) -> dict[TopicPartition, int]:
        """Return the offset after the last record of each partition that may be read."""
        return run(self._client.end_offsets, partitions, timeout=timeout, **unknown)


class Admin(_BlockingClient):
    """Manages topics with blocking calls.

    Options, arguments and errors are those of `kafka_async.Admin`. `timeout` is in seconds
    (default: default_api_timeout_ms).
    """

    def __init__(self, bootstrap_servers: str | Sequence[str], **options: Any) -> None:
        from kafka_async.admin import Admin as AsyncAdmin

        super().__init__(AsyncAdmin(bootstrap_servers, **options))

    def create_topics(
        self, topics: Sequence[NewTopic], *, timeout: float | None = None, **unknown: Never
    ) -> None:
        """Create topics and wait until their partitions have leaders."""
        run(self._client.create_topics, topics, timeout=timeout, **unknown)

    def delete_topics(
        self, names: Sequence[str], *, timeout: float | None = None, **unknown: Never
    ) -> None:
        """Delete topics."""
        run(self._client.delete_topics, names, timeout=timeout, **unknown)

    def list_topics(self, *, timeout: float | None = None, **unknown: Never) -> list[str]:
        """Return the names of all topics."""
        return sorted(run(self._client.list_topics, timeout=timeout, **unknown))


async def _call(function: Callable[..., R], *args: Any) -> R:
    """Call a synchronous function in the event loop's thread."""
    return function(*args)
