"""The producer, as its user sees it: it wires the parts, and starts and stops them."""

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
from kafka_async.producer.accumulator import A_TURN, Accumulator
from kafka_async.producer.failure_log import FailureLog
from kafka_async.producer.idempotence import Sequencer
from kafka_async.producer.preload import preload
from kafka_async.producer.sender import Sender
from kafka_async.producer.statistics import ProducerStatistics
from kafka_async.producer.transaction import Transaction
from kafka_async.producer.transaction_manager import TransactionDriver
from kafka_async.producer.transaction_state import State
from kafka_async.producer.writer import Engine, RecordWriter, Serializers
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

HURRY: Final = 10.0
"""Seconds for what is left when an `async with` is left by an exception."""
CLOSING: Final = 5.0
"""Maximum seconds for ending an open transaction, and for closing after a start that failed."""


class Producer(RecordWriter[K, V], Generic[K, V]):
    """Sends records.

        async with Producer("localhost:9092", linger_ms=5) as producer:
            receipt = await producer.send("clicks", b"value", key=b"key")   # acknowledged
            delivery = await producer.enqueue("clicks", b"value")           # appended
            await producer.flush()

    The first argument is bootstrap servers, or a started `Client`, whose connections and metadata
    are shared then and not closed. All others are keyword options (see `ProducerConfig`), under
    Kafka's own names. By default records are written once and in order (idempotence) and count when
    all in-sync replicas have them. A producer belongs to the event loop and the process it is
    started in. Keys and values are bytes unless serializers are given.
    """

    if not TYPE_CHECKING:

        def __new__(cls, *args: Any, **options: Any) -> Self:
            """Refuse arguments in the form of other clients."""
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
        """A producer with options under Java's names, as {"linger.ms": 5}."""
        config = ProducerConfig.from_properties(properties)
        producer = cls.__new__(cls)
        super(Producer, producer).__init__()
        producer._init(config, Client.from_config(config), owned=True)  # noqa: SLF001  # its own
        return producer

    def _init(self, config: ProducerConfig, client: Client, *, owned: bool) -> None:
        self.config = config
        self.client = client
        self._serializers = Serializers.of(config)
        self.driver: TransactionDriver | None = None
        self.current: Transaction[K, V] | None = None
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

    # -- life -------------------------------------------------------------------------------------

    async def start(self, **unknown: Never) -> None:
        """Connect; a transactional producer gets its producer id, which fences a former one.

        Raises:
            BootstrapError: None of the bootstrap servers could be used.
            ApplicationRecoverableError: The same of a transactional producer, or there was no
                producer id within max_block_ms; its cause says why. Start a new producer.
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
            engine = self._build()
            if self.driver is not None:
                await self.driver.initialise()
        except BaseException:
            await self._tear_down(asyncio.get_running_loop().time() + CLOSING)
            raise
        self._started = True
        self._open_writer(engine)

    def _build(self) -> Engine:
        loop = self._supervisor.loop
        rng = random.Random()
        sequencer = Sequencer(enabled=self.config.enable_idempotence)
        accumulator = Accumulator(self.config, sequencer, loop.create_future, rng)
        sender = Sender(self.config, self.client, accumulator, self._supervisor, rng)
        self._accumulator, self._sender = accumulator, sender
        self._failure_log = FailureLog(loop, sender.now)
        if self.config.transactional_id is None:
            accumulator.ledger.failures.log_to(self._failure_log)
        else:  # the next transactional call raises what failed
            self.driver = TransactionDriver(
                self.config, self.client, accumulator, sender, self._supervisor, rng
            )

        def died(error: KafkaError) -> None:
            accumulator.ledger.fail_all(error, sender.now())
            accumulator.memory.wake_all()

        self._supervisor.on_failure(died)
        self._unlisten = self.client.supervisor.on_failure(died)
        self._sending = self._supervisor.spawn(sender.run, name="sender")
        self._engine = Engine(
            self.config,
            self._serializers,
            accumulator,
            sender,
            self._supervisor,
            self.client.clock,
        )
        return self._engine

    async def stop(self, timeout: float | None = None, **unknown: Never) -> None:
        """Deliver what was enqueued, abort a transaction that is open, and close.

        Does nothing if the producer was not started or is stopped already. While another call stops
        it, this one waits for the other, within the other's time-out, and raises nothing.

        Args:
            timeout: Maximum time for all of it, in seconds (default: close_timeout_ms). With 0 the
                producer is closed at once and everything undelivered fails.

        Raises:
            DeliveryError: Some records were not delivered; it counts them, and `failures` has a row
                for each batch.
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
        self._shut_writer()
        assert self._accumulator is not None
        assert self._sender is not None
        if timeout is None:
            timeout = seconds(self.config.close_timeout_ms)
        deadline = self._supervisor.loop.time() + timeout
        try:
            if self.driver is not None:
                await self.driver.close(min(CLOSING, timeout))
            await self._deliver_rest(self._accumulator, self._sender, deadline, timeout)
        finally:
            await self._tear_down(deadline)
        failures = self._accumulator.ledger.failures.take()
        if failures is not None:
            raise failures

    async def _deliver_rest(
        self, accumulator: Accumulator, sender: Sender, deadline: float, timeout: float
    ) -> None:
        if self._supervisor.failure is not None:
            return
        try:
            async with asyncio.timeout_at(deadline):
                await sender.delivered()
        except TimeoutError:
            error = KafkaTimeoutError(
                f"the producer was stopped, and {timeout:g} s were not enough to deliver it"
            )
            sender.end()  # what is about to fail must not be sent
            # An event loop iteration between some and the next: there may be thousands.
            while accumulator.ledger.fail_some(error, sender.now(), A_TURN):  # noqa: ASYNC110
                await asyncio.sleep(0)

    async def _tear_down(self, deadline: float) -> None:
        """End all tasks and connections, however often the caller is cancelled.

        What is left fails. Connections that are not closed at `deadline` (event loop time) are
        aborted.
        """
        self._stopping = True
        if self._closing is None:
            loop = asyncio.get_running_loop()
            self._closing = loop.create_task(
                self._end_everything(deadline), name=f"{self._supervisor.name} closing"
            )
        cancelled = await wait_shielded(self._closing)
        self._closing.result()
        if cancelled is not None:
            raise cancelled

    async def _end_everything(self, deadline: float) -> None:
        accumulator, sender = self._accumulator, self._sender
        if accumulator is not None and sender is not None:
            self._unlisten()
            self._sending.cancel()
            await self._sending.wait()
            closed = ClientClosedError(f"{self._supervisor.name} is closed")
            accumulator.ledger.fail_all(closed, sender.now())
            accumulator.memory.wake_all()
            self._failure_log.clear()
            connections = sender.close() + ([] if self.driver is None else self.driver.connections)
            await close_connections(connections, deadline - self._supervisor.loop.time())
        await self._supervisor.stop()
        if self._owned:
            left = deadline - asyncio.get_running_loop().time()
            await self.client.stop(max(0.0, min(CLOSING, left)))

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
                await self.stop(min(HURRY, seconds(self.config.close_timeout_ms)))
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
        """Wait until everything that was enqueued is acknowledged or has failed; no lingering.

        Raises:
            DeliveryError: records failed whose handles nobody has asked; a row for each batch.
            TimeoutError: `timeout` seconds (default: no limit but delivery_timeout_ms) have passed.
        """
        if unknown:
            raise unknown_keyword(self.flush, unknown)
        check_timeout(timeout, unlimited="no limit but delivery_timeout_ms")
        self._running()
        assert self._accumulator is not None
        assert self._sender is not None
        try:
            async with asyncio.timeout(timeout):
                await self._sender.delivered()
        except TimeoutError as error:
            raise KafkaTimeoutError(f"not everything was delivered in {timeout:g} s") from error
        failures = self._accumulator.ledger.failures.take()
        if failures is not None:
            raise failures

    def statistics(self) -> ProducerStatistics:
        """What the producer has done so far, under Kafka's own metric names."""
        self._running()
        assert self._accumulator is not None
        assert self._sender is not None
        counters, memory = self._sender.counters, self._accumulator.memory
        return ProducerStatistics(
            record_send_total=counters.records,
            record_error_total=counters.errors,
            record_retry_total=counters.retries,
            batch_total=counters.batches,
            batch_split_total=counters.splits,
            byte_total=counters.bytes,
            request_total=counters.requests,
            requests_in_flight=self._sender.in_flight,
            buffer_total_bytes=memory.total,
            buffer_available_bytes=max(0, memory.total - memory.used),
            waiting_threads=memory.waiting,
            produce_throttle_time_avg=counters.throttle_total / max(1, counters.responses),
            produce_throttle_time_max=counters.throttle_max,
        )

    def health(self) -> Health:
        """Return a snapshot of the producer's condition; no request is sent.

        It may be taken at any time, before `start` and after `stop` too. The brokers are those of
        its client, which it may share. `in_flight` counts the producer's own requests, and
        `buffered_bytes` what unacknowledged records take of buffer_memory.
        """
        health = replace(self.client.health(), state=self._state(), in_flight=0)
        accumulator, sender, driver = self._accumulator, self._sender, self.driver
        if accumulator is None or sender is None:
            return health
        error: BaseException | None = self._supervisor.failure or sender.last_error
        in_flight = sender.in_flight
        if driver is not None:
            error = driver.machine.error or error
            in_flight += sum(connection.in_flight for connection in driver.connections)
        return replace(
            health,
            in_flight=in_flight,
            buffered_bytes=accumulator.memory.used,
            last_error=health.last_error if error is None else f"{type(error).__name__}: {error}",
        )

    def _state(self) -> str:
        driver = self.driver
        if self._stopping:
            return "stopping" if self._supervisor.hosting else "closed"
        if self._supervisor.failure is not None:
            return "failed"
        if driver is not None and driver.machine.state is State.FAILED:
            return "failed"
        if not self._started:
            return "starting" if self._starting else "new"
        return self.client.health().state

    # -- transactions -----------------------------------------------------------------------------

    def transaction(self) -> Transaction[K, V]:
        """Return a transaction as a block: `async with producer.transaction() as txn`.

        Raises:
            TransactionStateError: The producer has no transactional_id.
            ApplicationRecoverableError: The producer is closed or has failed.
        """
        with convert_transaction_errors():
            self._transactional()
        return Transaction(self)

    async def begin(self, **unknown: Never) -> Transaction[K, V]:
        """Open a transaction; commit or abort it.

        If the calls that ended the former transaction were cancelled, its end is waited for first,
        up to max_block_ms.

        Raises:
            TransactionStateError: A transaction is open.
            TransactionAbortableError, InvalidConfigurationError: The former transaction, whose
                `commit` was cancelled, was not committed. It is aborted; begin again.
            ApplicationRecoverableError: The producer cannot go on.
        """
        if unknown:
            raise unknown_keyword(self.begin, unknown)
        transaction = self.transaction()
        await transaction.begin()
        return transaction

    async def init_transactions(self, *, timeout: float | None = None, **unknown: Never) -> None:
        """Get a new epoch: after an unknown outcome, or to fence another producer of the same id.

        `start()` has done it once.

        Args:
            timeout: Maximum time in seconds (default: max_block_ms).

        Raises:
            TransactionStateError: A transaction is open.
            ApplicationRecoverableError: There is no new epoch; its cause says why.
            InvalidConfigurationError: An option or a permission must be changed first.
        """
        if unknown:
            raise unknown_keyword(self.init_transactions, unknown)
        check_timeout(timeout, unlimited="max_block_ms")
        with convert_transaction_errors(begun=False):
            await self._transactional().initialise(timeout)
        self.current = None

    async def open_transaction(self, transaction: Transaction[K, V]) -> Engine:
        """Begin `transaction`; called by it."""
        driver = self._transactional()
        await driver.begin()
        self.current = transaction

        def heard(state: State) -> None:
            transaction.heard(state)

        driver.on_state = heard
        assert self._engine is not None
        return self._engine

    # -- pieces -----------------------------------------------------------------------------------

    def _transactional(self) -> TransactionDriver:
        self._running()
        if self.driver is None:
            raise TransactionStateError("no transactional_id was given to this producer")
        return self.driver

    def _running(self) -> None:
        if self._stopping:
            raise ClientClosedError(f"{self._supervisor.name} is closed")
        self._supervisor.check()

    def _check_writable(self) -> None:
        if self._stopping:
            raise ClientClosedError(f"{self._supervisor.name} is closed")
        if self.driver is not None:
            raise IllegalStateError(
                "records of a transactional producer go through a transaction: "
                "use `async with producer.transaction() as txn` and txn.enqueue"
            )


add_foreign_names(Producer, PRODUCER)
