"""What moves batches: it asks the accumulator what is due, and does what takes time.

It looks round whenever something has changed or is due: it tells the accumulator what the metadata
says, has batches compressed, and gives each broker what is ready. A look round is a call from the
loop, and so is an answer: a task that waited for either would cost every request turns of the loop.
Connecting, compressing off the loop and asking for a producer id are tasks, so that a slow broker
or a large batch holds up nobody else.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import random
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Final

from kafka_async.backoff import delay_after
from kafka_async.clock import time_function
from kafka_async.cluster.broker_connection import ConnectionKind
from kafka_async.config import seconds
from kafka_async.errors import (
    KafkaError,
    UnknownServerError,
)
from kafka_async.hooks import BatchAcknowledged, BatchClosed, BatchFailed
from kafka_async.producer.accumulator import MAX_BATCHES_PER_REQUEST
from kafka_async.producer.batch_compressor import Compressing
from kafka_async.producer.produce_errors import DOUBTFUL, Reaction, reaction_to
from kafka_async.producer.produce_requests import (
    ProduceCall,
    ProduceRequests,
    answers_by_partition,
    error_of,
    leader_hints,
)
from kafka_async.producer.producer_batch import BatchState
from kafka_async.producer.producer_id import new_identity
from kafka_async.producer.statistics import Counters
from kafka_async.producer.topic_metadata import Learning

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kafka_async.cluster.broker_connection import BrokerConnection
    from kafka_async.cluster.client import Client
    from kafka_async.config import ProducerConfig
    from kafka_async.producer.accumulator import Accumulator
    from kafka_async.producer.partition_queue import PartitionQueue
    from kafka_async.producer.producer_batch import ProducerBatch
    from kafka_async.protocol.messages.produce import ProduceResponse
    from kafka_async.supervisor import Supervisor
    from kafka_async.types import TopicPartition

__all__ = ["Sender"]

logger = logging.getLogger("kafka_async.producer")

BYTES_A_TURN: Final = 8 * 1024 * 1024
"""Bytes with which a broker has enough for a turn: their CRC takes 0.4 ms."""
SHORTEST_NAP: Final = 0.001
"""Seconds. uvloop's timers count in milliseconds: one for less is due at once, before its time."""


class Link:
    """A producer's way to one broker: its lane and what is under way on it."""

    def __init__(self, connection: BrokerConnection) -> None:
        self.connection = connection
        self.in_flight = 0
        self.connecting = False
        self.failures = 0


class Sender:
    """Sends what the accumulator holds. Owned by its producer's supervisor.

    `admit` is called with partitions that must join the transaction before they are sent; while
    `draining` is set, what comes back from a broker fails with it instead of being sent again.
    `in_flight` counts the requests without an answer, `turns` the looks round; `laden` says that
    the last one gave a broker all that a turn allows, so that others should not do much in it.
    `now()` is the time that everything here goes by, and that the writers append by: uvloop's own
    stands still within a turn, and what was appended in it would be due in the future.
    """

    def __init__(
        self,
        config: ProducerConfig,
        client: Client,
        accumulator: Accumulator,
        supervisor: Supervisor,
        rng: random.Random,
    ) -> None:
        self.counters = Counters()
        self.admit: Callable[[list[PartitionQueue]], None] | None = None
        self.requests = ProduceRequests(config)
        self.draining: Exception | None = None
        self.in_flight = 0
        self.last_error: Exception | None = None
        self.turns = 0
        self.laden = False
        self._config = config
        self._client = client
        self._accumulator = accumulator
        self._ledger = accumulator.ledger
        self._ledger.on_failure = self._note_failure
        self._sequencer = accumulator.sequencer
        self._supervisor = supervisor
        self._rng = rng
        self._loop = supervisor.loop
        self.now = time_function(self._loop)
        self._links: dict[int, Link] = {}
        self._over: asyncio.Future[None] = self._loop.create_future()
        self._ended = False
        self._woken = False
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at = 0.0
        self._again_at = inf
        self._context = contextvars.Context()  # nothing of a caller's request is to leak into it
        self._identifying = False
        self._request_timeout = seconds(config.request_timeout_ms)
        accumulator.on_due(self.wake)
        self._compressing = Compressing(
            config, accumulator, supervisor, now=self.now, wake=self.wake, fail=self._fail
        )
        self._learning = Learning(
            client,
            accumulator,
            supervisor,
            config.max_block_ms,
            now=self.now,
            wake=self.wake,
            delay=self._delay,
        )

    # -- what others call -------------------------------------------------------------------------

    def wake(self) -> None:
        """Something may be due: look round in the loop's next turn."""
        if not self._woken:
            self._woken = True
            self._loop.call_soon(self._turn, context=self._context)

    async def delivered(self) -> None:
        """Wait until everything that was appended by now is acknowledged or has failed."""
        self._accumulator.flushes += 1
        self.wake()
        try:
            for number, outcome in enumerate(self._ledger.incomplete, 1):
                await outcome.settled()
                if number % 1_000 == 0:  # those that are settled already suspend nobody
                    await asyncio.sleep(0)
        finally:
            self._accumulator.flushes -= 1

    def end(self) -> None:
        """Send nothing more, first or again; what is on the wire may still be answered."""
        self._ended = True

    async def run(self) -> None:
        """Send until cancelled. Raises what a look round or an answer's handling raised."""
        self.wake()
        try:
            await self._over
        finally:
            if self._alarm is not None:
                self._alarm.cancel()

    def close(self) -> list[BrokerConnection]:
        """Forget the topics; returns the lanes, for the caller to close."""
        self._learning.close()
        return [link.connection for link in self._links.values()]

    # -- one look round ---------------------------------------------------------------------------

    def _turn(self) -> None:
        self._woken = False
        self.turns += 1
        self.laden = False
        if self._ended or self._over.done():
            return
        now = self.now()
        self._again_at = inf
        try:
            self._look_round(now)
        except Exception as error:  # noqa: BLE001  # the producer ends with it, whatever it is
            self._over.set_exception(error)
        else:
            self._set_alarm(now)

    def _set_alarm(self, now: float) -> None:
        """Look round again when something is due; too early does no harm, so alarms are kept."""
        due = max(min(self._accumulator.next_due(), self._again_at), now + SHORTEST_NAP)
        if due == inf:
            return
        if self._alarm is not None:
            if self._alarm_at <= due:
                return
            self._alarm.cancel()
        self._alarm_at = due
        self._alarm = self._loop.call_at(due, self._ring, context=self._context)

    def _ring(self) -> None:
        self._alarm = None
        if not self._woken:
            self._turn()

    def _look_round(self, now: float) -> None:
        accumulator = self._accumulator
        self._learning.look_round(now)
        if accumulator.tick(now):
            self.wake()  # for the rest
        self._compressing.look_round()
        schedule = accumulator.schedule
        if schedule.unadmitted and self.admit is not None:
            queues, schedule.unadmitted = schedule.unadmitted, {}
            self.admit(list(queues))
        nodes = schedule.nodes()
        if nodes and not self._sequencer.ready:
            self._identify()
            return
        for node in nodes:
            if self._serve(node, now):
                self.wake()  # the rest, and the other brokers, in the loop's next turn
                break
        if accumulator.compressible:
            self.wake()  # what was open until it was its turn to be sent

    # -- to the brokers ---------------------------------------------------------------------------

    def _serve(self, node: int, now: float) -> bool:
        """Give a broker what its connection takes; whether it was as much as a turn allows."""
        link = self._links.get(node)
        if link is None:
            link = self._links[node] = Link(
                self._client.connection(node, ConnectionKind.PRODUCE, self)
            )
        if link.connecting:
            return False
        if not link.connection.connected:
            link.connecting = True
            self._supervisor.spawn(self._connect, link, name=f"connecting to broker {node}")
            return False
        if link.connection.muted_until > now:
            self._again_at = min(self._again_at, link.connection.muted_until)
            return False
        schedule, left = self._accumulator.schedule, BYTES_A_TURN
        most = self._config.max_in_flight_requests_per_connection
        while link.in_flight < most and schedule.holds(node):
            batches = self._accumulator.take(node, self.requests.room, now)
            if batches:
                self._send(link, batches, now)
            if len(batches) in (0, MAX_BATCHES_PER_REQUEST):
                return bool(batches)
            left -= sum([batch.wire_size for batch in batches])
            if left <= 0:
                self.laden = True
                return True
        return False

    async def _connect(self, link: Link) -> None:
        try:
            await link.connection.connect(seconds(self._config.socket_connection_setup_timeout_ms))
        except KafkaError as error:
            logger.debug("broker %d: %s", link.connection.node_id, error)
            self._accumulator.obstacles[link.connection.node_id] = self.last_error = error
            self._client.request_metadata_update()
            await asyncio.sleep(self._delay(link.failures, floor=self._config.reconnect_backoff_ms))
            link.failures += 1
        else:
            link.failures = 0
            self._accumulator.obstacles.pop(link.connection.node_id, None)
        finally:
            link.connecting = False
        self.wake()

    def _send(self, link: Link, batches: Sequence[ProducerBatch], now: float) -> None:
        link.in_flight += 1
        self.in_flight += 1
        self.counters.requests += 1
        try:
            call = self.requests.build(batches, link.connection, self._learning.seen.topic_id)
            link.connection.submit_with_callback(
                call.request,
                partial(self._heard, link, batches, call),
                timeout=self._request_timeout,
                expect_response=self.requests.acks != 0,
                version=call.version,
            )
        except KafkaError as error:
            link.in_flight -= 1
            self.in_flight -= 1
            self._lost(batches, error, now)
            return
        if self._client.hooks.active:
            self._tell_closed(batches)

    def _heard(
        self,
        link: Link,
        batches: Sequence[ProducerBatch],
        call: ProduceCall,
        answer: ProduceResponse | KafkaError,
    ) -> None:
        link.in_flight -= 1
        self.in_flight -= 1
        now = self.now()
        batches = [batch for batch in batches if batch.state is BatchState.ON_WIRE]
        try:
            if isinstance(answer, KafkaError):
                self._lost(batches, answer, now)
            elif self.requests.acks == 0:
                for batch in batches:
                    self._acknowledge(batch, -1, -1, now)
            else:
                self._read_response(batches, call, answer, now)
        except Exception as error:  # noqa: BLE001  # the producer ends with it, whatever it is
            if not self._over.done():
                self._over.set_exception(error)
        if self._accumulator.schedule.busy:
            self.wake()

    def _read_response(
        self,
        batches: Sequence[ProducerBatch],
        call: ProduceCall,
        response: ProduceResponse,
        now: float,
    ) -> None:
        self.counters.throttled(response.throttle_time_ms)
        answers = answers_by_partition(response, call.names)
        if response.node_endpoints:
            self._client.update_leaders(leader_hints(response, answers))
        for batch in batches:
            answer = answers.get(batch.queue.partition)
            if answer is None:
                missing = UnknownServerError("the broker's answer leaves the partition out")
                self._react(batch, missing, now)
            elif answer.error_code:
                self._react(batch, error_of(batch, answer), now)
            else:
                self._acknowledge(batch, answer.base_offset, answer.log_append_time_ms, now)

    # -- what became of batches -------------------------------------------------------------------

    def _lost(self, batches: Sequence[ProducerBatch], error: Exception, now: float) -> None:
        """A request got no answer: whether its batches are written, nobody knows."""
        for batch in batches:
            self._react(batch, error, now)

    def _react(self, batch: ProducerBatch, error: Exception, now: float) -> None:
        self.last_error = error
        reaction = reaction_to(error)
        batch.doubtful = batch.doubtful or isinstance(error, DOUBTFUL)
        if reaction is Reaction.RESEQUENCE:
            self._out_of_order(batch, error, now)
        elif reaction is Reaction.WRITTEN:
            self._acknowledge(batch, -1, -1, now)
        elif reaction is Reaction.SPLIT and batch.count > 1 and not batch.doubtful:
            self.counters.splits += 1
            self._ledger.split(batch, now)
        elif reaction in (Reaction.RETRY, Reaction.REFRESH):
            if reaction is Reaction.REFRESH:
                self._client.request_metadata_update()
            self._retry(batch, error, now)
        else:
            self._fail(batch, error, now)

    def _retry(self, batch: ProducerBatch, error: Exception, now: float) -> None:
        batch.error = error
        if self.draining is not None:
            self._fail(batch, self.draining, now, report=False)
        elif now >= batch.deadline:
            self._fail(batch, self._accumulator.expired(batch), now)
        else:
            self.counters.retries += batch.count
            logger.debug("%s: retry after attempt %d: %s", batch, batch.attempts, error)
            self._ledger.retry(batch, error, now + self._delay(batch.attempts - 1), now)

    def _out_of_order(self, batch: ProducerBatch, error: Exception, now: float) -> None:
        """The broker misses what came before; only the oldest batch's word counts for a hole."""
        if not batch.queue.is_oldest(batch):
            self._retry(batch, error, now)
        elif self._config.transactional_id is not None or now >= batch.deadline:
            self._fail(batch, error, now)
        else:
            logger.info(
                "%s: sequence broken, the epoch is bumped: %s", batch.queue.partition, error
            )
            self.counters.retries += batch.count
            self._ledger.resequence(batch, error, now)

    def _acknowledge(
        self, batch: ProducerBatch, base_offset: int, append_time: int, now: float
    ) -> None:
        self.counters.records += batch.count
        self.counters.batches += 1
        self.counters.bytes += batch.wire_size
        if self._client.hooks.active:
            event = BatchAcknowledged(
                self._config.client_id,
                batch.queue.partition,
                batch.count,
                base_offset,
                now - batch.closed_at,
            )
            self._client.hooks.emit(event)
        self._ledger.acknowledge(batch, base_offset, append_time, now)

    def _fail(
        self, batch: ProducerBatch, error: Exception, now: float, *, report: bool = True
    ) -> None:
        logger.debug("%s failed: %s", batch, error)
        self._ledger.fail(batch, error, now, report=report)

    def _note_failure(self, partition: TopicPartition, records: int, error: Exception) -> None:
        self.counters.errors += records
        self.last_error = error
        if self._client.hooks.active:
            event = BatchFailed(self._config.client_id, partition, records, error)
            self._client.hooks.emit(event)

    # -- the producer's identity ------------------------------------------------------------------

    def _identify(self) -> None:
        if self._config.transactional_id is None and not self._identifying:
            self._identifying = True
            self._supervisor.spawn(self._get_identity, name="producer id")

    async def _get_identity(self) -> None:
        """Get a producer id; if there will be none, what waits for it fails."""
        try:
            self._sequencer.adopt(await new_identity(self._config, self._client, self._rng))
        except KafkaError as error:
            logger.warning("no producer id: %s", error)
            self.last_error = error
            self._ledger.fail_all(error, self.now())
        self._identifying = False
        self.wake()

    # -- small things -----------------------------------------------------------------------------

    def _delay(self, failures: int, floor: float = 0.0) -> float:
        config = self._config
        initial, most = seconds(config.retry_backoff_ms), seconds(config.retry_backoff_max_ms)
        delay = delay_after(failures, initial, most) * self._rng.uniform(0.8, 1.2)
        return max(delay, seconds(floor))

    def _tell_closed(self, batches: Sequence[ProducerBatch]) -> None:
        for batch in batches:
            if batch.attempts == 1:
                event = BatchClosed(
                    self._config.client_id,
                    batch.queue.partition,
                    batch.count,
                    batch.held,
                    batch.wire_size,
                )
                self._client.hooks.emit(event)
