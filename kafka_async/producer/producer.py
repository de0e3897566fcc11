"""The public API of the producer, which builds, starts and stops its parts."""

from __future__ import annotations

import asyncio
import random
import warnings
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic

from typing_extensions import TypeVar

from kafka_async.arguments import check_timeout
from kafka_async.cluster.broker_connection import close_connections
from kafka_async.cluster.client import Client
from kafka_async.config import ProducerConfig, seconds
from kafka_async.errors import (
    ClientClosedError,
    IllegalStateError,
    InvalidConfigurationError,
    KafkaError,
    KafkaTimeoutError,
    TransactionStateError,
    convert_transaction_errors,
)
from kafka_async.foreign_names import (
    PRODUCER,
    add_foreign_names,
    check_construction,
    unknown_keyword,
)
from kafka_async.producer.accumulator import MAX_ITEMS_PER_ITERATION, Accumulator
from kafka_async.producer.failure_log import FailureLog
from kafka_async.producer.idempotence import Sequencer
from kafka_async.producer.preload import preload
from kafka_async.producer.sender import Sender
from kafka_async.producer.statistics import ProducerStatistics
from kafka_async.producer.transaction import Transaction
from kafka_async.producer.transaction_manager import TransactionManager
from kafka_async.producer.transaction_state import TransactionState
from kafka_async.producer.writer import ProducerRuntime, RecordWriter, Serializers
from kafka_async.supervisor import Supervisor, wait_shielded

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType
    from typing import Never, Self

    from typing_extensions import Unpack

    from kafka_async.clock import Clock, Dialer
    from kafka_async.config import ProducerOptions
    from kafka_async.hooks import Hooks
    from kafka_async.types import Health

__all__ = ["Producer"]

K = TypeVar("K", default=bytes)
V = TypeVar("V", default=bytes)

CLOSE_TIMEOUT_AFTER_ERROR: Final = 10.0
"""Maximum seconds for delivering records when an `async with` block is left by an exception."""
MAX_CLEANUP_TIME: Final = 5.0
"""Maximum seconds for ending an open transaction, and for closing after a failed start."""


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
        bootstrap_servers: Addresses of brokers, as "host:port,host:port" or a sequence; or a
            started `Client`, whose connections and metadata are then shared and not closed.
        hooks: Receives the producer's events.
        clock: Replaces the system's clocks, for tests.
        dialer: Replaces TCP connections, for tests.
        **options: Options of `ProducerConfig`, under Kafka's names.

    Raises:
        InvalidConfigurationError: An option is unknown or its value is invalid.
    """

    if not TYPE_CHECKING:

        def __new__(cls, *args: Any, **options: Any) -> Self:
            """Reject arguments in the form of other Kafka clients."""
            check_construction(cls, args, options)
            return super().__new__(cls)

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str] | Client,
        *,
        hooks: Hooks | None = None,
        clock: Clock | None = None,
        dialer: Dialer | None = None,
        **options: Unpack[ProducerOptions],
    ) -> None:
        super().__init__()
        given: dict[str, Any] = dict(options)
        if isinstance(bootstrap_servers, Client):
            if hooks is not None or clock is not None or dialer is not None:
                raise InvalidConfigurationError(
                    "hooks, clock and dialer belong to the shared Client: give them to it"
                )
            config = ProducerConfig.shared(bootstrap_servers.config, **given)
            self._init(config, bootstrap_servers, owned=False)
        else:
            config = ProducerConfig.create(bootstrap_servers, **given)
            client = Client.from_config(config, hooks=hooks, clock=clock, dialer=dialer)
            self._init(config, client, owned=True)

    @classmethod
    def from_properties(cls, properties: Mapping[str, object]) -> Self:
        """Return a producer with options under Java's names.

        Args:
            properties: Options, as {"linger.ms": 5}.

        Raises:
            InvalidConfigurationError: An option is unknown or its value is invalid.
        """
        config = ProducerConfig.from_properties(properties)
        producer = cls.__new__(cls)
        super(Producer, producer).__init__()
        producer._init(config, Client.from_config(config), owned=True)  # noqa: SLF001
        return producer

    def _init(self, config: ProducerConfig, client: Client, *, owned: bool) -> None:
        self.config = config
        self.client = client
        self._serializers = Serializers.from_config(config)
        self.transaction_manager: TransactionManager | None = None
        self.current_transaction: Transaction[K, V] | None = None
        self._owned = owned
        name = f"Producer {config.transactional_id or config.client_id}"
        self._supervisor = Supervisor(name, client.hooks)
        self._sender: Sender | None = None
        self._accumulator: Accumulator | None = None
        self._starting = False
        self._started = False
        self._stopping = False
        self._stopped = asyncio.Event()
        self._closing: asyncio.Task[None] | None = None

    # -- start and stop ---------------------------------------------------------------------------

    async def start(self, **unknown: Never) -> None:
        """Connect; a transactional producer obtains its producer id, which fences an earlier one.

        Args:
            **unknown: Not accepted; the error names the right keyword.

        Raises:
            BootstrapError: None of the bootstrap servers could be used.
            ApplicationRecoverableError: A transactional producer could use none of the bootstrap
                servers, or received no producer id within max_block_ms; the cause says why. Start a
                new producer.
            InvalidConfigurationError: An option or a permission must be changed first.
        """
        if unknown:
            raise unknown_keyword(self.start, unknown)
        self._starting = True
        if self.config.transactional_id is None:
            await self._start()
        else:
            with convert_transaction_errors(begun=False):
                await self._start()

    async def _start(self) -> None:
        if self._owned:
            await self.client.start()
        try:
            await self._supervisor.start()
            transactional = self.config.transactional_id is not None
            await self._supervisor.offload(
                partial(preload, self.config.compression_type, transactional=transactional)
            )
            runtime = self._build()
            if self.transaction_manager is not None:
                await self.transaction_manager.init_transactions()
        except BaseException:
            await self._close(asyncio.get_running_loop().time() + MAX_CLEANUP_TIME)
            raise
        self._started = True
        self._open_writer(runtime)

    def _build(self) -> ProducerRuntime:
        loop = self._supervisor.loop
        rng = random.Random()
        sequencer = Sequencer(enabled=self.config.enable_idempotence)
        accumulator = Accumulator(self.config, sequencer, loop.create_future, rng)
        sender = Sender(self.config, self.client, accumulator, self._supervisor, rng)
        self._accumulator, self._sender = accumulator, sender
        self._failure_log = FailureLog(loop, sender.now)
        if self.config.transactional_id is None:
            accumulator.incomplete.unreported_failures.log_to(self._failure_log)
        else:  # failures are raised by the next transactional call
            self.transaction_manager = TransactionManager(
                self.config, self.client, accumulator, sender, self._supervisor, rng
            )

        def fail_everything(error: KafkaError) -> None:
            accumulator.incomplete.fail_all(error, sender.now())
            accumulator.buffer_pool.wake_all_waiters()

        self._supervisor.on_failure(fail_everything)
        self._remove_failure_listener = self.client.supervisor.on_failure(fail_everything)
        self._sending = self._supervisor.spawn(sender.run, name="sender")
        self._runtime = ProducerRuntime(
            self.config,
            self._serializers,
            accumulator,
            sender,
            self._supervisor,
            self.client.clock,
        )
        return self._runtime

    async def stop(self, timeout: float | None = None, **unknown: Never) -> None:
        """Abort an open transaction, deliver what was enqueued, and close.

        Records of the aborted transaction that were not sent yet fail. Does nothing if the producer
        was not started or is already stopped. While another call stops it, this one waits for the
        other, within the other's timeout, and raises nothing.

        Args:
            timeout: Maximum time for all of it, in seconds (default: close_timeout_ms). With 0 the
                producer is closed at once and everything undelivered fails.
            **unknown: Not accepted; the error names the right keyword.

        Raises:
            DeliveryError: Some records were not delivered; it counts them, and `failures` has one
                entry per batch.
        """
        if unknown:
            raise unknown_keyword(self.stop, unknown)
        check_timeout(timeout, unlimited="close_timeout_ms")
        if not self._started:
            return
        if self._stopping:
            await self._stopped.wait()
            return
        self._stopping = True
        try:
            await self._stop(timeout)
        finally:
            self._stopped.set()

    async def _stop(self, timeout: float | None) -> None:
        self._force_slow_path()
        assert self._accumulator is not None
        assert self._sender is not None
        if timeout is None:
            timeout = seconds(self.config.close_timeout_ms)
        deadline = self._supervisor.loop.time() + timeout
        try:
            if self.transaction_manager is not None:
                await self.transaction_manager.close(min(MAX_CLEANUP_TIME, timeout))
            await self._flush_before_close(self._accumulator, self._sender, deadline, timeout)
        finally:
            await self._close(deadline)
        failures = self._accumulator.incomplete.unreported_failures.take_error()
        if failures is not None:
            raise failures

    async def _flush_before_close(
        self, accumulator: Accumulator, sender: Sender, deadline: float, timeout: float
    ) -> None:
        if self._supervisor.failure is not None:
            return
        try:
            async with asyncio.timeout_at(deadline):
                await sender.flush()
        except TimeoutError:
            error = KafkaTimeoutError(
                f"not delivered within the {timeout:g} s that stop() had: give it more, or raise "
                "close_timeout_ms"
            )
            sender.stop_sending()  # batches that are about to fail must not be sent
            # There may be thousands of batches: yield to the event loop between groups of them.
            while accumulator.incomplete.fail_oldest(error, sender.now(), MAX_ITEMS_PER_ITERATION):  # noqa: ASYNC110
                await asyncio.sleep(0)

    async def _close(self, deadline: float) -> None:
        """End all tasks and connections, even if the caller is cancelled repeatedly.

        Remaining records fail. Connections that are not closed at `deadline` (event loop time) are
        aborted.
        """
        self._stopping = True
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
        accumulator, sender = self._accumulator, self._sender
        if accumulator is not None and sender is not None:
            self._remove_failure_listener()
            self._sending.cancel()
            await self._sending.wait()
            closed = ClientClosedError(f"{self._supervisor.name} is closed")
            accumulator.incomplete.fail_all(closed, sender.now())
            accumulator.buffer_pool.wake_all_waiters()
            self._failure_log.clear()
            connections = sender.close() + (
                [] if self.transaction_manager is None else self.transaction_manager.connections
            )
            await close_connections(connections, deadline - self._supervisor.loop.time())
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
        with CancelScope(shield=True):
            try:
                await self.stop(
                    min(CLOSE_TIMEOUT_AFTER_ERROR, seconds(self.config.close_timeout_ms))
                )
            except KafkaError as failure:
                error.add_note(f"Stopping the producer: {failure}")

    def __del__(self) -> None:
        if getattr(self, "_started", False) and not self._stopping:
            warnings.warn(
                f"{self._supervisor.name} was started and never stopped: use `async with`, "
                "or await stop()",
                ResourceWarning,
                stacklevel=1,
                source=self,
            )

    # -- deliveries -------------------------------------------------------------------------------

    async def flush(self, timeout: float | None = None, **unknown: Never) -> None:
        """Wait until everything enqueued is acknowledged or has failed.

        Batches do not linger meanwhile.

        Args:
            timeout: Maximum time in seconds (default: no limit but delivery_timeout_ms).
            **unknown: Not accepted; the error names the right keyword.

        Raises:
            DeliveryError: Records failed whose deliveries no task has awaited; `failures` has one
                entry per batch.
            KafkaTimeoutError: The timeout has passed.
        """
        if unknown:
            raise unknown_keyword(self.flush, unknown)
        check_timeout(timeout, unlimited="no limit but delivery_timeout_ms")
        self._check_running()
        assert self._accumulator is not None
        assert self._sender is not None
        try:
            async with asyncio.timeout(timeout):
                await self._sender.flush()
        except TimeoutError as error:
            raise KafkaTimeoutError(f"not everything was delivered in {timeout:g} s") from error
        failures = self._accumulator.incomplete.unreported_failures.take_error()
        if failures is not None:
            raise failures

    def statistics(self) -> ProducerStatistics:
        """Return counts since the start, under Kafka's metric names."""
        self._check_running()
        assert self._accumulator is not None
        assert self._sender is not None
        counters, buffer_pool = self._sender.counters, self._accumulator.buffer_pool
        return ProducerStatistics(
            record_send_total=counters.records,
            record_error_total=counters.errors,
            record_retry_total=counters.retries,
            batch_total=counters.batches,
            batch_split_total=counters.splits,
            byte_total=counters.bytes,
            request_total=counters.requests,
            requests_in_flight=self._sender.in_flight,
            buffer_total_bytes=buffer_pool.total_bytes,
            buffer_available_bytes=max(0, buffer_pool.total_bytes - buffer_pool.reserved_bytes),
            waiting_threads=buffer_pool.waiter_count,
            produce_throttle_time_avg=counters.throttle_total / max(1, counters.responses),
            produce_throttle_time_max=counters.throttle_max,
        )

    def health(self) -> Health:
        """Return a snapshot of the producer's condition; no request is sent.

        It may be taken at any time, also before `start` and after `stop`. The brokers are those of
        its client, which may be shared. `in_flight` counts the producer's own requests, and
        `buffered_bytes` the bytes of buffer_memory that unacknowledged records use.
        """
        health = replace(self.client.health(), state=self._state(), in_flight=0)
        accumulator, sender, transaction_manager = (
            self._accumulator,
            self._sender,
            self.transaction_manager,
        )
        if accumulator is None or sender is None:
            return health
        error: BaseException | None = self._supervisor.failure or sender.last_error
        in_flight = sender.in_flight
        if transaction_manager is not None:
            error = transaction_manager.state_machine.error or error
            in_flight += sum(connection.in_flight for connection in transaction_manager.connections)
        return replace(
            health,
            in_flight=in_flight,
            buffered_bytes=accumulator.buffer_pool.reserved_bytes,
            last_error=health.last_error if error is None else f"{type(error).__name__}: {error}",
        )

    def _state(self) -> str:
        transaction_manager = self.transaction_manager
        if self._stopping:
            return "stopping" if self._supervisor.hosting else "closed"
        if self._supervisor.failure is not None:
            return "failed"
        if (
            transaction_manager is not None
            and transaction_manager.state_machine.state is TransactionState.FAILED
        ):
            return "failed"
        if not self._started:
            return "starting" if self._starting else "new"
        return self.client.health().state

    # -- transactions -----------------------------------------------------------------------------

    def transaction(self) -> Transaction[K, V]:
        """Return a transaction for `async with producer.transaction() as txn`.

        Raises:
            TransactionStateError: The producer has no transactional_id.
            ApplicationRecoverableError: The producer is closed or has failed.
        """
        with convert_transaction_errors():
            self._require_transactions()
        return Transaction(self)

    async def begin(self, **unknown: Never) -> Transaction[K, V]:
        """Open a transaction; commit or abort it.

        If the calls that ended the previous transaction were cancelled, this waits for its end
        first, up to max_block_ms.

        Args:
            **unknown: Not accepted; the error names the right keyword.

        Raises:
            TransactionStateError: A transaction is open.
            TransactionAbortableError, InvalidConfigurationError: The previous transaction, whose
                `commit` was cancelled, was not committed. It is aborted; begin again.
            ApplicationRecoverableError: The producer cannot continue.
        """
        if unknown:
            raise unknown_keyword(self.begin, unknown)
        transaction = self.transaction()
        await transaction.begin()
        return transaction

    async def init_transactions(self, *, timeout: float | None = None, **unknown: Never) -> None:
        """Obtain a new epoch, which fences earlier producers with the same transactional_id.

        The coordinator aborts a transaction that one of them, or a commit with an unknown outcome,
        left open.

        `start()` has done it once. Call it after an unknown outcome, or to fence another producer
        with the same id.

        Args:
            timeout: Maximum time in seconds (default: max_block_ms).
            **unknown: Not accepted; the error names the right keyword.

        Raises:
            TransactionStateError: A transaction is open.
            ApplicationRecoverableError: There is no new epoch; its cause says why.
            InvalidConfigurationError: An option or a permission must be changed first.
        """
        if unknown:
            raise unknown_keyword(self.init_transactions, unknown)
        check_timeout(timeout, unlimited="max_block_ms")
        with convert_transaction_errors(begun=False):
            await self._require_transactions().init_transactions(timeout)
        self.current_transaction = None

    async def open_transaction(self, transaction: Transaction[K, V]) -> ProducerRuntime:
        """Begin a transaction; called by `Transaction.begin`."""
        transaction_manager = self._require_transactions()
        await transaction_manager.begin()
        self.current_transaction = transaction

        transaction_manager.on_state = transaction.on_state_changed
        assert self._runtime is not None
        return self._runtime

    # -- helpers ----------------------------------------------------------------------------------

    def _require_transactions(self) -> TransactionManager:
        self._check_running()
        if self.transaction_manager is None:
            raise TransactionStateError("no transactional_id was given to this producer")
        return self.transaction_manager

    def _check_running(self) -> None:
        if self._stopping:
            raise ClientClosedError(f"{self._supervisor.name} is closed")
        self._supervisor.check()

    def _check_writable(self) -> None:
        if self._stopping:
            raise ClientClosedError(f"{self._supervisor.name} is closed")
        if self.transaction_manager is not None:
            raise IllegalStateError(
                "records of a transactional producer go through a transaction: "
                "use `async with producer.transaction() as txn` and txn.enqueue"
            )


add_foreign_names(Producer, PRODUCER)
