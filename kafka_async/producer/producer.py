"""The public API of the producer, which builds, starts and stops its parts."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Generic

from typing_extensions import TypeVar

from kafka_async.client.client import connect_with, services_of
from kafka_async.client.connection.broker_connection import close_connections
from kafka_async.config import ProducerConfig, hide_secrets, seconds
from kafka_async.errors import (
    ClientClosedError,
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    TransactionStateError,
    convert_transaction_errors,
)
from kafka_async.foundation.arguments import check_timeout
from kafka_async.foundation.process_end import report_lost, unwatch, watch
from kafka_async.foundation.start_guard import StartGuard
from kafka_async.foundation.supervisor import Supervisor, wait_shielded
from kafka_async.foundation.thread_reads import readable_in_any_thread
from kafka_async.hooks import emit_task_died
from kafka_async.producer.interceptors import ProducerInterceptors
from kafka_async.producer.runtime import ProducerRuntime, Serializers
from kafka_async.producer.statistics import ProducerStatistics
from kafka_async.producer.transactions.manager import TransactionManager
from kafka_async.producer.transactions.state import TransactionState
from kafka_async.producer.transactions.transaction import Transaction
from kafka_async.producer.unfinished import UnfinishedRecords
from kafka_async.producer.writer import RecordWriter
from kafka_async.records.batch import RecordBatch
from kafka_async.types import ProducerRecord

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType
    from typing import Self

    from typing_extensions import Unpack

    from kafka_async.client.client import Client
    from kafka_async.config import ProducerOptions
    from kafka_async.foundation.clock import Clock, Dialer
    from kafka_async.hooks import Hooks
    from kafka_async.producer.idempotence import ProducerIdAndEpoch
    from kafka_async.types import Health

__all__ = ["Producer"]

K = TypeVar("K", default=bytes)
V = TypeVar("V", default=bytes)

CLOSE_TIMEOUT_AFTER_ERROR: Final = 10.0
"""Maximum seconds for delivering records when an `async with` block is left by an exception."""
MAX_CLEANUP_TIME: Final = 5.0
"""Maximum seconds for ending an open transaction, and for closing after a failed start."""

_MESSAGES: Final = ("produce", "init_producer_id")
_TRANSACTION_MESSAGES: Final = (
    "add_offsets_to_txn",
    "add_partitions_to_txn",
    "end_txn",
    "txn_offset_commit",
)


class Producer(RecordWriter[K, V], Generic[K, V]):
    """Sends records.

        async with Producer("localhost:9092", linger_ms=5) as producer:
            receipt = await producer.send("clicks", b"value", key=b"key")   # acknowledged
            delivery = await producer.enqueue("clicks", b"value")           # appended
            await producer.flush()

    By default records are written once and in order (idempotence), and are acknowledged when all
    in-sync replicas have them. Keys and values are bytes unless serializers are given. A producer
    belongs to the event loop and the process in which it is started.

    Args:
        servers: Addresses of brokers, as "host:port,host:port" or a sequence, may also be given as
            `bootstrap_servers`; or a started `Client`, whose connections and metadata are then
            shared and not closed.
        config: The options as an object, without other options.
        hooks: Receives the producer's events; not with a `Client`.
        clock: Replaces the system's clocks, for tests; not with a `Client`.
        dialer: Replaces TCP connections, for tests; not with a `Client`.
        **options: Options of `ProducerConfig`, under Kafka's names.

    Raises:
        InvalidConfigurationError: An option is unknown or its value is invalid.
    """

    def __init__(
        self,
        servers: str | Sequence[str] | Client | None = None,
        /,
        *,
        config: ProducerConfig | None = None,
        hooks: Hooks | None = None,
        clock: Clock | None = None,
        dialer: Dialer | None = None,
        **options: Unpack[ProducerOptions],
    ) -> None:
        super().__init__()
        # Wrapped before anything can fail: tracebacks may show local variables.
        servers, options = hide_secrets(servers), hide_secrets(options)
        self.config, self.client, self._owned = connect_with(
            servers, ProducerConfig, config, options, hooks=hooks, clock=clock, dialer=dialer
        )
        # Checked now, so that a wrong option raises in the constructor and not in `start()`.
        self._serializers = Serializers.from_config(self.config)
        self._interceptors = ProducerInterceptors.from_config(self.config)
        # Life cycle: only `start` sets `_started`, and `_closing` is the one task that releases
        # everything.
        self._transactions: TransactionManager | None = None
        name = f"Producer {self.config.transactional_id or self.config.client_id}"
        self._supervisor = Supervisor(name, partial(emit_task_died, self.client.hooks))
        self._start_guard = StartGuard(name)
        self._started = False
        self._stopping = False
        self._stopped = asyncio.Event()
        self._closing: asyncio.Task[None] | None = None

    # -- start and stop ---------------------------------------------------------------------------

    async def start(self) -> None:
        """Connect; a transactional producer obtains its producer id, which fences an earlier one.

        Raises:
            BootstrapError: None of the bootstrap servers could be used.
            ApplicationRecoverableError: A transactional producer could use none of the bootstrap
                servers, or received no producer id within max_block_ms; its cause has the reason.
                Start a new producer.
            InvalidConfigurationError: An option or a permission must be changed first.
            ClientClosedError: The producer was stopped during the start.
            IllegalStateError: The producer was started before.
        """
        async with self._start_guard.starting():
            if self.config.transactional_id is None:
                await self._start()
            else:
                with convert_transaction_errors(begun=False):
                    await self._start()

    async def _start(self) -> None:
        try:
            if self._owned:
                await self.client.start()
            await self._supervisor.start()
            transactional = self.config.transactional_id is not None
            # Imports would block the event loop for milliseconds, later and in the middle of a
            # send.
            await self._supervisor.offload(
                partial(preload, self.config.compression_type, transactional=transactional)
            )
            self._runtime = ProducerRuntime(
                self.config,
                services_of(self.client),
                self._supervisor,
                self._serializers,
                self._interceptors,
            )
            if transactional:
                self._transactions = TransactionManager(self._runtime)
                await self._transactions.init_transactions()
        # Also when cancelled: connections and tasks must not outlive a failed start.
        except BaseException:
            await self._close(asyncio.get_running_loop().time() + MAX_CLEANUP_TIME)
            raise
        # From here on `stop()` has something to deliver.
        self._started = True
        self._unfinished = UnfinishedRecords(self._runtime, self._transactions)
        watch(self._unfinished)
        self._open_writer(self._runtime)

    async def stop(self, timeout: float | None = None) -> None:
        """Abort an open transaction, deliver what was enqueued, and close.

        Records of the aborted transaction that were not sent yet fail. Does nothing if the producer
        is already stopped. While another call stops it, this one waits for the other, within the
        other's timeout, and raises nothing. A start in progress is cancelled, and raises
        ClientClosedError.

        Args:
            timeout: Maximum time for all of it, in seconds (default: close_timeout_ms). With 0 the
                producer is closed at once and everything undelivered fails.

        Raises:
            DeliveryError: Some records were not delivered; it counts them, and `failures` has one
                entry per batch.
            IllegalStateError: The producer was started in another event loop or process.
        """
        timeout = check_timeout(timeout, unlimited="close_timeout_ms")
        # False: no start has begun, so there is nothing to stop.
        if not await self._start_guard.end():
            return
        if not self._started:
            self._stopping = True
        if not self._started or self._stopped.is_set():
            return
        self._supervisor.check_event_loop(self._closing)
        # A second call waits for the first, which delivers and raises.
        if self._stopping:
            await self._stopped.wait()
            return
        self._stopping = True
        try:
            await self._stop(timeout)
        finally:
            self._stopped.set()

    async def _stop(self, timeout: float | None) -> None:
        # The fast path appends without checking the state.
        self._force_slow_path()
        assert self._runtime is not None
        if timeout is None:
            timeout = seconds(self.config.close_timeout_ms)
        deadline = self._supervisor.loop.time() + timeout
        try:
            # The transaction first: its records fail at once and need no flush.
            if self._transactions is not None:
                await self._transactions.end_open_transaction(min(MAX_CLEANUP_TIME, timeout))
            # After a failed task nothing sends, and the records have failed already.
            if self._supervisor.failure is None:
                await self._runtime.flush_before_stop(deadline, timeout)
        # Cancelled: nothing has raised or logged the records that are now lost.
        except BaseException:
            unwatch(self._unfinished)
            report_lost(self._unfinished, self._unfinished.lost(), "Its stop() was cancelled")
            raise
        finally:
            await self._close(deadline)
            unwatch(self._unfinished)
        # Only after `_close`, so that the error includes what failed there.
        failures = self._runtime.accumulator.take_failures()
        if failures is not None:
            raise failures

    async def _close(self, deadline: float) -> None:
        """End all tasks and connections, even if the caller is cancelled repeatedly.

        Remaining records fail. Connections that are not closed at `deadline` (event loop time) are
        aborted.
        """
        self._stopping = True
        # One task for all callers, since cancelling a caller must not stop it halfway.
        if self._closing is None:
            loop = asyncio.get_running_loop()
            self._closing = loop.create_task(
                self._close_all(deadline), name=f"{self._supervisor.name} closing"
            )
        cancelled = await wait_shielded(self._closing)
        self._closing.result()
        if cancelled is not None:
            raise cancelled

    async def _close_all(self, deadline: float) -> None:
        if self._runtime is not None:
            connections = await self._runtime.stop()
            if self._transactions is not None:
                connections += self._transactions.connections
                self._transactions.detach()
            await close_connections(connections, deadline - self._supervisor.loop.time())
        # Connections of the producer are closed by now; those of an owned client follow.
        await self._supervisor.stop()
        if self._owned:
            left = deadline - asyncio.get_running_loop().time()
            await self.client.stop(max(0.0, min(MAX_CLEANUP_TIME, left)))

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        from anyio import CancelScope

        if error is None:
            await self.stop()
            return
        # The exception of the block may be a cancellation, which must not cut the delivery short.
        with CancelScope(shield=True):
            try:
                await self.stop(
                    min(CLOSE_TIMEOUT_AFTER_ERROR, seconds(self.config.close_timeout_ms))
                )
            except KafkaError as failure:
                error.add_note(f"Stopping the producer: {failure}")

    def __del__(self) -> None:
        if getattr(self, "_started", False) and not self._stopping:
            self._supervisor.warn_never_stopped(self)

    # -- deliveries -------------------------------------------------------------------------------

    async def flush(self, timeout: float | None = None) -> None:
        """Wait until everything enqueued is acknowledged or has failed.

        Lingering batches are sent at once.

        Args:
            timeout: Maximum time in seconds (default: no limit but delivery_timeout_ms).

        Raises:
            DeliveryError: Records failed whose deliveries no task has awaited; `failures` has one
                entry per batch.
            KafkaTimeoutError: The timeout has passed.
        """
        timeout = check_timeout(timeout, unlimited="no limit but delivery_timeout_ms")
        runtime = self._check_running()
        try:
            async with asyncio.timeout(timeout):
                await runtime.flush()
        except TimeoutError as error:
            raise KafkaTimeoutError(f"not everything was delivered in {timeout:g} s") from error
        failures = runtime.accumulator.take_failures()
        if failures is not None:
            raise failures

    def purge(self, *, queued: bool = True, in_flight: bool = False) -> int:
        """Drop records that are not acknowledged; their deliveries raise RecordPurgedError.

        `flush` and `stop` do not report these records. In a transaction, records that were purged
        make it abortable only: its calls raise TransactionAbortableError until `abort`.

        Args:
            queued: Drop records that were not sent yet.
            in_flight: Drop records that were sent, in flight or to be sent again. They may or may
                not be in the log. An idempotent producer continues with a new epoch, so that
                records sent later are still written once and in order.

        Returns:
            The number of records dropped.

        Raises:
            ClientClosedError: The producer was stopped.
        """
        runtime = self._check_running()
        return runtime.accumulator.purge(runtime.now(), queued=queued, in_flight=in_flight)

    @readable_in_any_thread
    def statistics(self) -> ProducerStatistics:
        """Return counts since the start, under Kafka's metric names.

        This may be called in any thread at any time: before `start` all counts are 0, and after
        `stop` they are the last ones.
        """
        if self._runtime is None:
            memory = self.config.buffer_memory
            return ProducerStatistics(buffer_total_bytes=memory, buffer_available_bytes=memory)
        return self._runtime.statistics()

    @readable_in_any_thread
    def health(self) -> Health:
        """Return a snapshot of the producer's condition; no request is sent.

        This may be called in any thread at any time, also before `start` and after `stop`. Brokers
        are counted by the client, which may be shared. `in_flight` counts the producer's own
        requests, and `buffered_bytes` the bytes of buffer_memory that unacknowledged records use.
        """
        health = replace(self.client.health(), state=self._state(), in_flight=0)
        runtime, transactions = self._runtime, self._transactions
        if runtime is None:
            return health
        error: BaseException | None = self._supervisor.failure or runtime.last_error
        in_flight = runtime.sender.in_flight
        if transactions is not None:
            error = transactions.error or error
            in_flight += sum(connection.in_flight for connection in transactions.connections)
        return replace(
            health,
            in_flight=in_flight,
            buffered_bytes=runtime.buffer_pool.reserved_bytes,
            last_error=health.last_error if error is None else f"{type(error).__name__}: {error}",
        )

    def _state(self) -> str:
        if self._stopping:
            return "stopping" if self._supervisor.hosting else "closed"
        transactions = self._transactions
        if self._supervisor.failure is not None or (
            transactions is not None and transactions.state is TransactionState.FATAL_ERROR
        ):
            return "failed"
        if not self._started:
            return "starting" if self._start_guard.begun else "new"
        return self.client.health().state

    # -- transactions -----------------------------------------------------------------------------

    def transaction(self, *, ignore_failed_sends: bool = False) -> Transaction[K, V]:
        """Return a transaction for `async with producer.transaction() as txn`.

        Args:
            ignore_failed_sends: Let it commit without the records of calls that raised; by default
                `commit` raises TransactionAbortableError then.

        Raises:
            TransactionStateError: The producer has no transactional_id.
            ApplicationRecoverableError: The producer is closed or has failed.
        """
        with convert_transaction_errors():
            manager = self._require_transactions()
            runtime = self._check_running()
            return Transaction(manager, runtime, ignore_failed_sends=ignore_failed_sends)

    async def begin(self, *, ignore_failed_sends: bool = False) -> Transaction[K, V]:
        """Open a transaction; commit or abort it.

        If the calls that ended the previous transaction were cancelled, this waits for its end
        first, up to max_block_ms.

        Args:
            ignore_failed_sends: See `transaction`.

        Raises:
            TransactionStateError: A transaction is open.
            TransactionAbortableError, InvalidConfigurationError: The previous transaction, whose
                `commit` was cancelled, was not committed. It is aborted; begin again.
            ApplicationRecoverableError: The producer cannot continue.
        """
        return await self.transaction(ignore_failed_sends=ignore_failed_sends).__aenter__()

    async def init_transactions(self, *, timeout: float | None = None) -> None:
        """Obtain a new epoch, which fences earlier producers with the same transactional_id.

        The coordinator aborts a transaction that one of them, or a commit with an unknown outcome,
        left open.

        `start()` has done it once. Call it after an unknown outcome, or to fence another producer
        with the same id.

        Args:
            timeout: Maximum time in seconds (default: max_block_ms).

        Raises:
            TransactionStateError: A transaction is open.
            ApplicationRecoverableError: There is no new epoch; its cause has the reason.
            InvalidConfigurationError: An option or a permission must be changed first.
        """
        timeout = check_timeout(timeout, unlimited="max_block_ms")
        with convert_transaction_errors(begun=False):
            await self._require_transactions().init_transactions(timeout)

    # -- helpers ----------------------------------------------------------------------------------

    def _require_transactions(self) -> TransactionManager:
        self._check_running()
        if self._transactions is None:
            raise TransactionStateError("no transactional_id was given to this producer")
        return self._transactions

    def _check_running(self) -> ProducerRuntime:
        if self._stopping:
            raise ClientClosedError(f"{self._supervisor.name} is closed")
        self._supervisor.check()
        assert self._runtime is not None
        return self._runtime

    def _check_writable(self) -> None:
        if self._stopping:
            raise ClientClosedError(f"{self._supervisor.name} is closed")
        if self._transactions is not None:
            raise IllegalStateError(
                "records of a transactional producer go through a transaction: use txn.send in "
                "place of producer.send, and so for enqueue, enqueue_nowait, send_many, "
                "send_records, send_batch and send_arrow, in `async with producer.transaction() "
                "as txn` (kafka_async.blocking: `with`)"
            )


def id_and_epoch_of(producer: Producer[Any, Any]) -> ProducerIdAndEpoch:
    """Return the producer id and epoch of a started transactional producer."""
    runtime = producer._check_running()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    id_and_epoch = runtime.accumulator.id_and_epoch
    assert id_and_epoch is not None, "it was obtained by start()"
    return id_and_epoch


def preload(compression: str, *, transactional: bool) -> None:
    """Load codec, checksum and messages; raise InvalidConfigurationError without the codec.

    A producer does it in a thread: importing them later would block the event loop.
    """
    RecordBatch.build([ProducerRecord("", b"")], compression).frame()
    for name in (*_MESSAGES, *(_TRANSACTION_MESSAGES if transactional else ())):
        import_module(f"kafka_async.protocol.messages.{name}")
