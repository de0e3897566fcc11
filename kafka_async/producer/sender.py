"""Sends record batches to brokers and handles produce responses.

The send loop and the response handler run as event-loop callbacks, not as tasks: a task that waits
costs one event loop iteration per request. Only connecting, compressing off the loop and obtaining
a producer id are tasks, so that a slow broker or a large batch delays no other partition.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import random
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Final

from kafka_async.client.connection.broker_connection import ConnectionKind
from kafka_async.client.connection.connection import PRODUCE_API
from kafka_async.client.connection.hedging import REPEAT_AFTER
from kafka_async.client.metadata.request_router import AnyBroker
from kafka_async.client.wire.requested_rows import missing_row
from kafka_async.config import seconds
from kafka_async.errors import (
    AuthenticationError,
    KafkaError,
    KafkaTimeoutError,
    RetriableError,
    raise_for,
)
from kafka_async.foundation.backoff import Backoff
from kafka_async.foundation.clock import time_function
from kafka_async.foundation.fairness import MAX_BYTES_PER_ITERATION
from kafka_async.producer.buffer.accumulator import MAX_BATCHES_PER_REQUEST
from kafka_async.producer.buffer.batch_compressor import BatchCompressor
from kafka_async.producer.buffer.partition_queue import BatchState
from kafka_async.producer.idempotence import ProducerIdAndEpoch
from kafka_async.producer.produce_errors import ProduceErrorAction, action_for
from kafka_async.producer.produce_requests import (
    ProduceCall,
    ProduceRequests,
    error_for_batch,
    leader_hints,
    responses_by_partition,
)
from kafka_async.producer.topic_metadata import TopicMetadataUpdater

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafka_async.client.connection.broker_connection import BrokerConnection
    from kafka_async.client.services import ClientServices
    from kafka_async.config import ProducerConfig
    from kafka_async.foundation.supervisor import Supervisor
    from kafka_async.producer.buffer.accumulator import Accumulator
    from kafka_async.producer.buffer.partition_queue import ProducerBatch
    from kafka_async.producer.buffer.producer_metrics import ProducerMetrics
    from kafka_async.protocol.messages.produce import ProduceResponse

__all__ = ["Sender"]

logger = logging.getLogger("kafka_async.producer")

MIN_TIMER_DELAY: Final = 0.001
"""Seconds. uvloop's timers have a resolution of one millisecond, and fire early below it."""
_NO_TRANSACTION_TIMEOUT_MS: Final = 2**31 - 1
"""Value of InitProducerId for a producer without transactions."""


class BrokerState:
    """Connection and in-flight request count of one broker."""

    def __init__(self, connection: BrokerConnection) -> None:
        self.connection = connection
        self.in_flight = 0
        # True while a task connects; prevents a second one.
        self.connecting = False
        # Failed attempts in a row, for the back-off.
        self.failures = 0
        self.throttled_at: float | None = None
        """Time at which ready batches began to wait for the broker's throttle time."""


class Sender:
    """Drains ready batches, sends produce requests and reports the outcome of each batch.

    One per producer; runs in the producer's event loop.

    Attributes:
        in_flight: Number of requests without a response.
        run_count: Number of runs of the send loop.
        saturated: The last run sent a broker MAX_BYTES_PER_ITERATION, so other callbacks of the
            iteration should do little. The limit of batches per request does not set it.
        now: Returns the time in seconds, here and for appends. It is not the loop's clock: uvloop's
            `loop.time()` is fixed during an event loop iteration, so a batch that was opened within
            the iteration would seem to be from the future.
    """

    def __init__(
        self,
        config: ProducerConfig,
        services: ClientServices,
        accumulator: Accumulator,
        metrics: ProducerMetrics,
        supervisor: Supervisor,
        rng: random.Random,
    ) -> None:
        # Read by the writer, to share the event loop iteration fairly, and when the producer stops.
        self.in_flight = 0
        self.run_count = 0
        self.saturated = False
        # Parts of the producer and its client.
        self._config = config
        self._services = services
        self._accumulator = accumulator
        self._metrics = metrics
        self._requests = ProduceRequests(config)
        self._supervisor = supervisor
        self._rng = rng
        self._loop = supervisor.loop
        self.now = time_function(self._loop)
        # Only brokers that had ready batches. `_finished` ends `run` when a callback raises.
        self._brokers: dict[int, BrokerState] = {}
        self._finished: asyncio.Future[None] = self._loop.create_future()
        self._stopped_sending = False
        # One wakeup and one timer at most. `_next_run_at` is the time that a run asks for itself,
        # in addition to what the accumulator has due.
        self._wakeup_scheduled = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._next_run_at = inf
        # Callbacks must not see the context variables of the task that happens to wake the sender.
        self._context = contextvars.Context()
        self._requesting_producer_id = False
        self._request_timeout = seconds(config.request_timeout_ms)
        # Noting it costs a call per broker and run, so it is left out where nothing reads it.
        self._notes_availability = (
            config.partitioner_adaptive_partitioning_enable
            and config.partitioner_availability_timeout_ms > 0
        )
        self._backoff = Backoff(
            seconds(config.retry_backoff_ms), seconds(config.retry_backoff_max_ms), rng=rng
        )
        self._unsubscribe = services.metadata.rejection_listeners.add(self._on_rejection)
        self._compressor = BatchCompressor(
            config, accumulator, supervisor, now=self.now, wakeup=self.wakeup
        )
        self._topic_metadata = TopicMetadataUpdater(
            services,
            accumulator,
            supervisor,
            config,
            now=self.now,
            wakeup=self.wakeup,
            delay=self._delay,
        )

    def wakeup(self) -> None:
        """Schedule a run of the send loop for the next event loop iteration."""
        # Appends wake the sender for each batch; one run serves them all.
        if not self._wakeup_scheduled:
            self._wakeup_scheduled = True
            self._loop.call_soon(self._run_once, context=self._context)

    async def wait_for_partitions(self, topic: str, at_least: int = 1) -> int:
        """Return the number of partitions of a topic; see `TopicMetadataUpdater`."""
        return await self._topic_metadata.wait_for_partitions(topic, at_least)

    def stop_sending(self) -> None:
        """Send no more batches; responses to those in flight are still handled."""
        self._stopped_sending = True

    async def run(self) -> None:
        """Send until cancelled; raise the exception of a run or response handler."""
        self.wakeup()
        try:
            await self._finished
        finally:
            if self._timer is not None:
                self._timer.cancel()

    def release_connections(self) -> list[BrokerConnection]:
        """Stop tracking topics, and return the connections for the caller to close."""
        self._topic_metadata.untrack_topics()
        self._unsubscribe()
        return [broker.connection for broker in self._brokers.values()]

    # -- send loop --------------------------------------------------------------------------------

    def _run_once(self) -> None:
        """Send what is ready now and set the timer for what becomes ready later."""
        self._wakeup_scheduled = False
        self.run_count += 1
        self.saturated = False
        if self._stopped_sending or self._finished.done():
            return
        now = self.now()
        self._next_run_at = inf
        try:
            self._send_ready(now)
        except Exception as error:  # noqa: BLE001  # stops the producer
            # An exception cannot leave a callback of the event loop, so `run` raises it.
            self._finished.set_exception(error)
        else:
            self._set_timer(now)

    def _set_timer(self, now: float) -> None:
        """Set the timer for what is due next.

        An earlier timer is kept, since an extra run is harmless.
        """
        due = max(min(self._accumulator.next_due(), self._next_run_at), now + MIN_TIMER_DELAY)
        if due == inf:
            return
        if self._timer is not None:
            # A timer per append would be costly; most fire when something else has already sent the
            # batch.
            if self._timer_at <= due:
                return
            self._timer.cancel()
        self._timer_at = due
        self._timer = self._loop.call_at(due, self._on_timer, context=self._context)

    def _on_timer(self) -> None:
        self._timer = None
        # The scheduled run does the same work.
        if not self._wakeup_scheduled:
            self._run_once()

    def _send_ready(self, now: float) -> None:
        """Apply metadata, compress batches, and send to each broker with ready partitions."""
        # The order matters: new leaders and the end of linger times make batches available to the
        # compressor, and both make partitions ready.
        accumulator = self._accumulator
        self._topic_metadata.update(now)
        self._move_batches(now)
        if accumulator.tick(now):
            self.wakeup()  # more is due
        self._compressor.run()
        nodes = accumulator.ready_nodes(now)
        # Without sequences a batch cannot be sent; the task that obtains the producer id wakes the
        # sender.
        if nodes and accumulator.needs_producer_id:
            self._request_producer_id()
            return
        for node in nodes:
            if self._send_ready_batches(node, now):
                self.wakeup()  # continue in the next event loop iteration
                break
        if accumulator.has_batches_to_compress:
            self.wakeup()  # draining has closed open batches

    def _move_batches(self, now: float) -> None:
        """Take batches back from a broker that does not respond and no longer leads the partition.

        The new leader recognises what it has by the sequence numbers. Without them a batch could be
        written twice, so it waits for request_timeout_ms.
        """
        if not self._config.enable_idempotence:
            return
        moved = self._accumulator.in_flight_at_former_leaders()
        for queue in moved:
            # A frozen broker keeps its connection open, so that no error ends these requests.
            broker = self._brokers[queue.in_flight_node]
            if broker.connection.suspected:
                error = KafkaTimeoutError(
                    f"broker {queue.in_flight_node} has not responded, and broker {queue.leader} "
                    "leads the partition now"
                )
                for batch in list(queue.in_flight):
                    self._accumulator.retry(batch, error, now, now)
        if moved:
            # No event reports that a request has become overdue.
            self._next_run_at = min(self._next_run_at, now + REPEAT_AFTER)

    # -- requests ---------------------------------------------------------------------------------

    def _send_ready_batches(self, node: int, now: float) -> bool:
        """Send a broker its ready batches, until a limit of requests, batches or bytes is reached.

        True is returned if a byte or batch limit was reached and more batches may be ready.
        """
        broker = self._brokers.get(node)
        if broker is None:
            broker = self._brokers[node] = BrokerState(
                self._services.brokers.connection(node, ConnectionKind.PRODUCE, self)
            )
        if self._notes_availability:
            # Also when nothing can be sent, since the time without capacity is what counts
            # (KIP-794).
            self._accumulator.partitions.note_sendable(
                node, now, sendable=self._accepts_batches(broker, now)
            )
        # Leaves with False if an event will continue (a connection, the end of the throttle time, a
        # response), and with True if only the limit of the iteration was reached.
        if broker.connecting:
            return False
        if not broker.connection.connected:
            broker.connecting = True
            self._supervisor.spawn(self._connect, broker, name=f"connecting to broker {node}")
            return False
        # A broker that throttles reads nothing until the end of that time (KIP-219): sending would
        # only fill the socket.
        if broker.connection.muted_until > now:
            self._on_throttled(node, broker, now)
            return False
        if broker.throttled_at is not None:
            self._on_unthrottled(node, broker, now)
        accumulator, left = self._accumulator, MAX_BYTES_PER_ITERATION
        max_in_flight = self._config.max_in_flight_requests_per_connection
        while broker.in_flight < max_in_flight:
            batches = accumulator.drain(node, self._requests.room, now)
            if batches:
                self._send_request(broker, batches, now)
            # No batch, or as many as a request may have. In the second case the next run continues,
            # since encoding them has taken the time of this iteration.
            if len(batches) in (0, MAX_BATCHES_PER_REQUEST):
                return bool(batches)
            left -= sum([batch.wire_size for batch in batches])
            if left <= 0:
                self.saturated = True
                return True
            if not accumulator.has_ready(node):
                break
        return False

    def _accepts_batches(self, broker: BrokerState, now: float) -> bool:
        return (
            broker.connection.connected
            and broker.connection.muted_until <= now
            and broker.in_flight < self._config.max_in_flight_requests_per_connection
        )

    def _on_throttled(self, node: int, broker: BrokerState, now: float) -> None:
        """Run again at the end of the throttle time; the error of an expired batch includes it."""
        self._next_run_at = min(self._next_run_at, broker.connection.muted_until)
        if broker.throttled_at is None:
            broker.throttled_at = now
        self._accumulator.expiry.note_throttled(node, broker.connection.muted_until - now)

    def _on_unthrottled(self, node: int, broker: BrokerState, now: float) -> None:
        """Note for how long the batches that are sent now have waited."""
        assert broker.throttled_at is not None
        waited, broker.throttled_at = now - broker.throttled_at, None
        self._accumulator.expiry.note_throttled(node, None)
        self._metrics.add_throttle_wait(waited)
        broker.connection.note_throttle_wait(PRODUCE_API, waited)

    async def _connect(self, broker: BrokerState) -> None:
        node = broker.connection.node_id
        try:
            await broker.connection.connect(
                seconds(self._config.socket_connection_setup_timeout_ms)
            )
        except KafkaError as error:
            logger.debug("broker %d: %s", node, error)
            self._accumulator.expiry.note_connected(node, error)
            self._metrics.note_error(error)
            ended = self._services.lifetime.ended
            if ended is not None:  # the client was stopped: no later attempt can succeed
                self._accumulator.fail_all(ended, self.now())
                return
            # The second attempt decides, since brokers apply a new password at different times.
            if broker.failures and isinstance(error, AuthenticationError):
                self._accumulator.fail_unsent_to(node, error, self.now())
            self._services.metadata.request_update()
            await asyncio.sleep(
                self._delay(broker.failures, floor=self._config.reconnect_backoff_ms)
            )
            broker.failures += 1
        else:
            broker.failures = 0
            self._accumulator.expiry.note_connected(node)
        finally:
            # Before the wakeup below, which connects again if batches are still waiting.
            broker.connecting = False
        self.wakeup()

    def _send_request(
        self, broker: BrokerState, batches: Sequence[ProducerBatch], now: float
    ) -> None:
        broker.in_flight += 1
        self.in_flight += 1
        self._metrics.add_request()
        try:
            call = self._requests.build(
                batches,
                broker.connection,
                self._topic_metadata.metadata.topic_id,
                transactions_v2=self._accumulator.transaction.is_v2,
            )
            broker.connection.submit_with_callback(
                call.request,
                # The attempts identify the batches' current request, see `_on_response`.
                partial(self._on_response, broker, batches, [b.attempts for b in batches], call),
                timeout=self._request_timeout,
                version=call.version,
            )
        except KafkaError as error:
            # The request was not sent, for example because the connection has closed since the
            # check.
            broker.in_flight -= 1
            self.in_flight -= 1
            self._on_no_response(batches, error, now)
            return
        self._metrics.sent(batches)

    def _on_response(
        self,
        broker: BrokerState,
        batches: Sequence[ProducerBatch],
        attempts: Sequence[int],
        call: ProduceCall,
        response: ProduceResponse | KafkaError,
    ) -> None:
        """Complete, retry, split or fail each batch of a request.

        Batches that were moved to a new leader are left to the response of that broker.
        """
        broker.in_flight -= 1
        self.in_flight -= 1
        now = self.now()
        batches = [
            batch
            for batch, attempt in zip(batches, attempts, strict=True)
            # Neither done nor retried since this request was sent.
            if batch.state is BatchState.IN_FLIGHT and batch.attempts == attempt
        ]
        try:
            if isinstance(response, KafkaError):
                self._on_no_response(batches, response, now)
            elif self._requests.acks == 0:
                # With acks=0 the broker sends no response, and the request completes once it is
                # written.
                for batch in batches:
                    self._accumulator.acknowledge(batch, -1, -1, now)
            else:
                self._handle_response(batches, call, response, now)
        except Exception as error:  # noqa: BLE001  # stops the producer
            # The first exception is the one to raise.
            if not self._finished.done():
                self._finished.set_exception(error)
        if self._accumulator.has_work:
            self.wakeup()

    def _handle_response(
        self,
        batches: Sequence[ProducerBatch],
        call: ProduceCall,
        response: ProduceResponse,
        now: float,
    ) -> None:
        self._metrics.add_response(response.throttle_time_ms)
        responses = responses_by_partition(response, call.names)
        if response.node_endpoints:
            # Before the errors are handled, so that retries go to the new leaders (KIP-951).
            self._services.metadata.update_leaders(leader_hints(response, call.names))
        for batch in batches:
            row = responses.get(batch.partition)
            # A response without a requested row is retried: nothing is known about the batch.
            if row is None:
                self._handle_error(batch, missing_row(batch.partition), now)
            elif row.error_code:
                self._handle_error(batch, error_for_batch(batch, row), now)
            else:
                self._accumulator.acknowledge(batch, row.base_offset, row.log_append_time_ms, now)

    # -- errors ---------------------------------------------------------------------------------

    def _on_no_response(
        self, batches: Sequence[ProducerBatch], error: Exception, now: float
    ) -> None:
        """Handle a request that was not sent or got no response; it may have been written."""
        for batch in batches:
            self._handle_error(batch, error, now)

    def _handle_error(self, batch: ProducerBatch, error: Exception, now: float) -> None:
        """Take the action that `produce_errors` defines for an error of a batch."""
        accumulator, action = self._accumulator, action_for(error)
        self._metrics.note_error(error)
        # `attempts` includes the failed one, so the first retry has the shortest delay.
        not_before = now + self._delay(batch.attempts - 1)
        if action is ProduceErrorAction.RESTART_SEQUENCE:
            accumulator.restart_sequence(batch, error, not_before, now)
        elif action is ProduceErrorAction.ACKNOWLEDGE:
            accumulator.acknowledge(batch, -1, -1, now)
        elif action is ProduceErrorAction.SPLIT and batch.splittable:
            accumulator.split(batch, now)
        elif action in (ProduceErrorAction.RETRY, ProduceErrorAction.REFRESH_AND_RETRY):
            if action is ProduceErrorAction.REFRESH_AND_RETRY:
                self._services.metadata.request_update()
            accumulator.retry(batch, error, not_before, now)
        else:
            accumulator.fail(batch, error, now)

    def _on_rejection(self, error: AuthenticationError) -> None:
        """Fail batches that wait for metadata: the credentials were rejected."""
        self._metrics.note_error(error)
        self._accumulator.fail_unsent_to(None, error, self.now())

    # -- producer id ------------------------------------------------------------------------------

    def _request_producer_id(self) -> None:
        # A transactional producer gets its id from `TransactionManager`, with the epoch that fences
        # others.
        if self._config.transactional_id is None and not self._requesting_producer_id:
            self._requesting_producer_id = True
            self._supervisor.spawn(self._get_producer_id, name="producer id")

    async def _get_producer_id(self) -> None:
        """Obtain a producer id; fail all batches if that is impossible."""
        try:
            self._accumulator.set_id_and_epoch(
                await request_producer_id(self._config, self._services, self._rng)
            )
        except KafkaError as error:
            logger.warning("no producer id: %s", error)
            self._metrics.note_error(error)
            # Only errors that are not retriable are raised, so no batch can ever be sent.
            self._accumulator.fail_all(error, self.now())
        self._requesting_producer_id = False
        self.wakeup()

    # -- helpers ----------------------------------------------------------------------------------

    def _delay(self, failures: int, floor: float = 0.0) -> float:
        return max(self._backoff.after(failures), seconds(floor))


async def request_producer_id(
    config: ProducerConfig, services: ClientServices, rng: random.Random
) -> ProducerIdAndEpoch:
    """Return a producer id from any broker; raise only errors that are not retriable."""
    from kafka_async.protocol.messages.init_producer_id import InitProducerIdRequest

    request = InitProducerIdRequest(
        transactional_id=None, transaction_timeout_ms=_NO_TRANSACTION_TIMEOUT_MS
    )
    backoff = Backoff(
        seconds(config.retry_backoff_ms), seconds(config.retry_backoff_max_ms), rng=rng
    )
    while True:
        try:
            response = await services.request(request, to=AnyBroker())
            # One of them is enough (KIP-679).
            raise_for(response.error_code, needs="WRITE on a topic, or IDEMPOTENT_WRITE")
        except RetriableError as error:
            logger.debug("no producer id yet: %s", error)
            await asyncio.sleep(backoff.next())
        else:
            return ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
