"""The active driver of an orchestrator: accepts control messages, runs jobs, writes the ledger.

It exists from the time when the consumer group assigns the control topic to this process until the
assignment ends or another driver fences its producer. See `ledger` for the protocol.
"""

from __future__ import annotations

import asyncio
import contextvars
import enum
import hashlib
import json
import logging
import time
import uuid
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kafka_async.errors import (
    ApplicationRecoverableError,
    KafkaError,
    RetriableError,
    UnknownTopicOrPartitionError,
)
from kafka_async.foundation.backoff import Backoff
from kafka_async.foundation.supervisor import wait_shielded
from kafka_async.producer.producer import Producer
from kafka_async.spark.orchestrator.context import JobContext, JobResult
from kafka_async.spark.orchestrator.control import (
    CancelMessage,
    ControlMessageError,
    PauseMessage,
    RunMessage,
    job_reply,
    parse_message,
    reply,
)
from kafka_async.spark.orchestrator.errors import (
    Bisect,
    DriverFencedError,
    Fail,
    JobCancelledError,
    JobFailedError,
    JobTimeoutError,
    Retry,
    RetryPolicy,
    react,
)
from kafka_async.spark.orchestrator.job_ledger import (
    JobRecord,
    JobState,
    LedgerChange,
    LedgerState,
    RangeAlreadyProcessedError,
)
from kafka_async.spark.orchestrator.ledger_writer import LedgerWriter, fencing_error, read_ledger
from kafka_async.spark.orchestrator.ranges import Ranges, ranges_to_json, size_of
from kafka_async.spark.orchestrator.threads import STOP_TIMEOUT
from kafka_async.spark.orchestrator.triggers import Trigger, is_due, new_ranges, ranges_of_job
from kafka_async.types import ProducerRecord, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping, Sequence

    from kafka_async.client.client import Client
    from kafka_async.consumer.consumer import Consumer
    from kafka_async.kernel import Record
    from kafka_async.spark.orchestrator.context import JobFunction
    from kafka_async.spark.orchestrator.events import EventBus
    from kafka_async.spark.orchestrator.range_lookup import RangeLookup
    from kafka_async.spark.orchestrator.threads import JobThreads
    from kafka_async.types import GroupMetadata

logger = logging.getLogger("kafka_async.spark")

TICK: Final = 0.2
"""Seconds between a trigger's checks of its topic."""
PARTITIONS_INTERVAL: Final = 30.0
"""Seconds between a trigger's checks of its topic's partitions."""
MAX_VALUE_BYTES: Final = 1 << 16
"""Maximum size of a function's result as JSON; a larger one is not stored."""
SPARK_TAG_PREFIX: Final = "kafka_async-"


@dataclass(frozen=True, slots=True)
class DriverSettings:
    """Settings that stay the same between activations.

    Attributes:
        name: The orchestrator's name.
        driver_id: Id of this process's orchestrator in the ledger and in events.
        servers: Bootstrap servers for Spark's reads.
        spark: The Spark session; None for jobs without Spark.
        control: The control topic's partition.
        ledger_topic: The ledger's topic.
        dead_letter_topic: The topic of dead letters.
        retry: Limits for retries and dead letters.
        jobs: The registered functions by name.
        triggers: The triggers.
    """

    name: str
    driver_id: str
    servers: str
    spark: Any
    control: TopicPartition
    ledger_topic: str
    dead_letter_topic: str
    retry: RetryPolicy
    jobs: Mapping[str, JobFunction]
    triggers: Sequence[Trigger]

    @property
    def transactional_id(self) -> str:
        """Transactional id; its producer epoch fences former drivers."""
        return f"orchestrator-{self.name}"

    def group_of(self, scope: str) -> str | None:
        """Return the group that a scope's offsets are committed to; None for a backfill."""
        return f"{self.name}-{scope}" if scope in self.jobs else None


class _StopReason(enum.Enum):
    CANCELLED = "cancelled"
    DRIVER_STOPPED = "driver stopped"


@dataclass(slots=True, eq=False)
class _Execution:
    """A running or waiting job.

    Attributes:
        record: The job.
        function: Its function.
        variables: Context variables of the caller, for the job's thread.
        task: The task that runs it.
        stop_reason: The reason for cancelling the task; None before a cancellation.
        ended: True once the ledger has the job's final state.
    """

    record: JobRecord
    function: JobFunction
    variables: contextvars.Context
    task: asyncio.Task[JobResult] | None = None
    stop_reason: _StopReason | None = None
    ended: bool = False

    def cancel(self, reason: _StopReason) -> None:
        """Cancel the task unless its result is in the ledger."""
        if self.task is None or self.task.done():
            return
        if self.stop_reason is not _StopReason.DRIVER_STOPPED:
            self.stop_reason = reason
        # A task cancelled before its first step would never write its final state.
        asyncio.get_running_loop().call_soon(self.task.cancel)


class ActiveDriver:
    """Runs jobs and writes the ledger while this process is the active driver.

    Args:
        client: The started client that all parts share.
        consumer: The consumer of the control topic, which has its partition.
        settings: The settings.
        threads: Runs the jobs' functions.
        lookup: Looks up offsets.
        events: Receives events.
    """

    def __init__(
        self,
        client: Client,
        consumer: Consumer,
        settings: DriverSettings,
        *,
        threads: JobThreads,
        lookup: RangeLookup,
        events: EventBus,
    ) -> None:
        self._client = client
        self._consumer = consumer
        self._settings = settings
        self._threads = threads
        self._lookup = lookup
        self._events = events
        self._producer = Producer(
            client, transactional_id=settings.transactional_id, linger_ms=0, acks="all"
        )
        self._writer: LedgerWriter | None = None
        self._state = LedgerState()
        # Running and waiting jobs, and the tasks of the ledger writer and the triggers.
        self._executions: set[_Execution] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._known_topics: set[str] = set()
        self._resumed = asyncio.Event()
        # `_owned` ends with the assignment, possibly before a failure is known.
        self._failure: BaseException | None = None
        self._owned = True

    # -- start and stop ---------------------------------------------------------------------------

    async def start(self) -> None:
        """Fence the former driver, read the ledger, and continue its jobs.

        Raises:
            DriverFencedError: Another driver has become active.
        """
        await self._producer.start()
        self._state = await read_ledger(self._client, self._settings.ledger_topic)
        control = self._settings.control
        committed = (await self._consumer.committed([control]))[control]
        if committed is None:
            position = (await self._consumer.beginning_offsets([control]))[control]
        else:
            position = committed.offset
        self._writer = writer = LedgerWriter(
            self._producer,
            self._state,
            topic=self._settings.ledger_topic,
            control=control,
            control_offset=position,
            generation=self._generation,
            group_of=self._settings.group_of,
        )
        self._spawn(writer.run(), "ledger writer")
        await self._commit(LedgerChange(driver=self._settings.driver_id))
        self._consumer.seek(control, position)
        if not self._state.paused:
            self._resumed.set()
        for record in self._state.accepted():
            self._continue(record)
        for trigger in self._settings.triggers:
            self._spawn(self._serve(trigger), f"trigger of {trigger.job}")

    async def stop(self, reason: KafkaError) -> None:
        """Interrupt all jobs and wait up to 5 s for their threads; leave the ledger unchanged.

        Args:
            reason: The error to raise to callers that wait for a job.
        """
        self._owned = False
        if self._failure is None:
            self._failure = reason
        if self._writer is not None:
            self._writer.stop(reason)
        for execution in list(self._executions):
            execution.cancel(_StopReason.DRIVER_STOPPED)
        for task in self._tasks:
            task.cancel()
        # The order matters: no change is accepted any more, then jobs end without a final state in
        # the ledger, so that the next driver continues them, and the producer closes last.
        waiting = [*(e.task for e in self._executions if e.task is not None), *self._tasks]
        if waiting:
            await asyncio.wait(waiting)
        try:
            await self._producer.stop(STOP_TIMEOUT)
        except KafkaError as error:
            logger.info("records of a fenced transaction were not delivered: %s", error)

    def lose_ownership(self) -> None:
        """Stop writing: the group has revoked the control topic from this driver."""
        self._owned = False
        failure = DriverFencedError("the group has assigned the control topic to another driver")
        self._fail(failure)
        if self._writer is not None:
            self._writer.stop(failure)

    def check(self) -> None:
        """Raise the error that has stopped this driver, if any."""
        if self._failure is not None:
            raise self._failure

    def _generation(self) -> GroupMetadata:
        metadata = self._consumer.group_metadata()
        # Refuse: coordinators accept offsets without a generation from any client.
        if not self._owned or metadata.generation_id < 0:
            raise DriverFencedError("this driver is no longer a member of its group")
        return metadata

    def _spawn(self, coroutine: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(coroutine, name=f"{self._settings.name} {name}")
        self._tasks.add(task)
        task.add_done_callback(self._task_ended)

    def _task_ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        """Stop the jobs: their results can no longer be committed."""
        if self._failure is None:
            self._failure = error
        for execution in list(self._executions):
            execution.cancel(_StopReason.DRIVER_STOPPED)

    # -- ledger -----------------------------------------------------------------------------------

    def _submit(self, change: LedgerChange) -> asyncio.Future[None]:
        assert self._writer is not None, "the driver was not started"
        return self._writer.submit(change)

    async def _commit(self, change: LedgerChange) -> None:
        """Commit a change; a cancelled caller first waits up to 5 s for the outcome."""
        await _outcome(self._submit(change))

    async def _existing(self, output: Sequence[ProducerRecord]) -> None:
        """Raise if an output topic does not exist: waiting for it would delay all jobs."""
        new = {record.topic for record in output} - self._known_topics
        missing = await self._lookup.missing_topics(sorted(new))
        if missing:
            raise UnknownTopicOrPartitionError(
                f"the job has emitted an event to a topic that does not exist: create {missing[0]}",
                topic=missing[0],
            )
        self._known_topics |= new

    async def _replies(self, *records: ProducerRecord | None) -> tuple[ProducerRecord, ...]:
        """Return the replies whose topics exist."""
        replies: list[ProducerRecord] = []
        for record in records:
            if record is None:
                continue
            try:
                await self._existing([record])
            except UnknownTopicOrPartitionError:
                logger.warning("no reply: the topic %s does not exist", record.topic)
            else:
                replies.append(record)
        return tuple(replies)

    # -- control messages -------------------------------------------------------------------------

    async def accept(self, records: Sequence[Record]) -> None:
        """Handle control messages in one transaction, and start their jobs."""
        if not records:
            return
        new: dict[str, JobRecord] = {}
        replies: list[ProducerRecord | None] = []
        cancelled: list[CancelMessage] = []
        paused: bool | None = None
        for received in records:
            try:
                message = parse_message(received.value, self._settings.jobs)
            except ControlMessageError as error:
                logger.warning("control message at offset %d: %s", received.offset, error)
                replies.append(
                    reply(error.reply_topic, error.message_id, "rejected", error=str(error))
                )
                continue
            if isinstance(message, RunMessage):
                known = self._state.jobs.get(message.record.job_id)
                # A repeated message starts no second job; its reply reports the first one's state.
                if known is None and message.record.job_id not in new:
                    new[message.record.job_id] = message.record
                replies.append(
                    job_reply(replace(known, reply_topic=message.record.reply_topic))
                    if known is not None
                    else job_reply(message.record)
                )
            elif isinstance(message, PauseMessage):
                paused = message.paused
                replies.append(reply(message.reply_topic, message.message_id, "done"))
            else:
                cancelled.append(message)
                matching = [r.job_id for r in new.values() if _matches(r, message.tag)]
                matching += [e.record.job_id for e in self._matching(message.tag)]
                replies.append(
                    reply(message.reply_topic, message.message_id, "done", jobs=matching)
                )
        change = LedgerChange(
            jobs=tuple(new.values()),
            paused=paused,
            control_offset=records[-1].offset + 1,
            output=await self._replies(*replies),
        )
        # Start the jobs while the transaction is in progress: their own transactions come after it.
        # If it is not committed, the next driver reads the messages again.
        accepting = asyncio.create_task(self._commit_with_replies(change))
        if paused is not None:
            (self._resumed.clear if paused else self._resumed.set)()
        for record in new.values():
            self._events.publish("job_accepted", job_id=record.job_id, job=record.job)
            self._continue(record)
        for message in cancelled:
            for execution in self._matching(message.tag):
                execution.cancel(_StopReason.CANCELLED)
        await wait_shielded(accepting)
        accepting.result()

    async def _commit_with_replies(self, change: LedgerChange) -> None:
        """Commit a change, without its replies if they cannot be written."""
        try:
            await self._commit(change)
        except ApplicationRecoverableError:
            raise
        except KafkaError as error:
            if not change.output:
                raise
            logger.warning("replies of the control topic cannot be written: %s", error)
            await self._commit(replace(change, output=()))

    def _continue(self, record: JobRecord) -> None:
        """Run an accepted job without a caller."""
        function = self._settings.jobs.get(record.job)
        if function is None:
            logger.error(
                "job %s is in the ledger, but %s is not registered: register it, or cancel the job",
                record.job_id,
                record.job,
            )
            function = partial(_not_registered, record.job)
        execution = self._start(record, function, contextvars.Context())
        assert execution.task is not None
        execution.task.add_done_callback(_log_unexpected)

    def _matching(self, tag: str) -> list[_Execution]:
        return [e for e in self._executions if _matches(e.record, tag)]

    # -- jobs -------------------------------------------------------------------------------------

    async def run(self, record: JobRecord, function: JobFunction) -> JobResult:
        """Run a job for a caller; cancelling the caller cancels the job.

        Raises:
            JobFailedError: The job has failed; the cause is its function's error.
            JobCancelledError: The job was cancelled by tag.
            JobTimeoutError: The job has not ended within its timeout.
            DriverFencedError: Another driver has become active, or this one was stopped.
        """
        self.check()
        execution = self._start(record, function, contextvars.copy_context())
        task = execution.task
        assert task is not None
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.done():
                execution.cancel(_StopReason.CANCELLED)
                await wait_shielded(task)
                _log_unexpected(task)
            elif execution.stop_reason is _StopReason.DRIVER_STOPPED:
                raise self._stopped() from None
            raise

    async def cancel(self, tag: str) -> tuple[str, ...]:
        """Cancel the jobs with a tag or id; return their ids once their threads have ended."""
        matching = self._matching(tag)
        for execution in matching:
            execution.cancel(_StopReason.CANCELLED)
        tasks = [e.task for e in matching if e.task is not None]
        if tasks:
            await asyncio.wait(tasks)
        return tuple(e.record.job_id for e in matching if e.stop_reason is _StopReason.CANCELLED)

    def processed(self, scope: str, ranges: Ranges) -> list[Ranges]:
        """Return the parts of ranges that are not processed in a scope."""
        return self._state.remaining(scope, ranges)

    def succeeded(self, record: JobRecord) -> bool:
        """Return whether the job has succeeded according to the ledger."""
        known = self._state.jobs.get(record.job_id)
        return known is not None and known.state is JobState.SUCCEEDED

    def _stopped(self) -> BaseException:
        if isinstance(self._failure, ApplicationRecoverableError):
            return self._failure
        error = DriverFencedError("the driver was stopped")
        error.__cause__ = self._failure
        return error

    def _start(
        self, record: JobRecord, function: JobFunction, variables: contextvars.Context
    ) -> _Execution:
        execution = _Execution(record, function, variables)
        execution.task = asyncio.create_task(
            self._execute(execution), name=f"job {record.job} {record.job_id}", context=variables
        )
        self._executions.add(execution)
        execution.task.add_done_callback(lambda _: self._executions.discard(execution))
        return execution

    async def _execute(self, execution: _Execution) -> JobResult:
        """Run a job until its final state is in the ledger."""
        record = execution.record
        job = _Job(execution, self)
        limit = asyncio.timeout(record.timeout)
        try:
            async with limit:
                return await job.run()
        except asyncio.CancelledError:
            if execution.stop_reason is not _StopReason.CANCELLED:
                raise
            if execution.ended:
                return job.result()
            error: KafkaError = JobCancelledError(f"{record.job} {record.job_id} was cancelled")
            state = JobState.CANCELLED
        except TimeoutError as failure:
            if execution.ended:
                return job.result()
            if not limit.expired():
                raise
            error = JobTimeoutError(
                f"{record.job} {record.job_id} has not ended within {record.timeout:.3g} s"
            )
            error.__cause__, state = failure, JobState.FAILED
        except JobFailedError as failure:
            error, state = failure, JobState.FAILED
        self._events.publish(
            f"job_{state.value}", job_id=record.job_id, job=record.job, error=str(error)
        )
        cause = error.__cause__ if isinstance(error, JobFailedError) else None
        shown = f"{type(cause or error).__name__}: {error if cause is None else cause}"
        ended = replace(record, state=state, error=shown[:MAX_VALUE_BYTES])
        replies = await self._replies(job_reply(ended))
        await self._commit_with_replies(LedgerChange(jobs=(ended,), output=replies))
        raise error

    # -- triggers ---------------------------------------------------------------------------------

    async def _serve(self, trigger: Trigger) -> None:
        """Run a trigger's jobs, one after the other."""
        loop = asyncio.get_running_loop()
        backoff = Backoff(1.0, 60.0)
        started_at: float | None = None
        partitions: list[TopicPartition] = []
        looked_at = 0.0
        while True:
            await self._resumed.wait()
            try:
                if not partitions or loop.time() - looked_at >= PARTITIONS_INTERVAL:
                    partitions = await self._lookup.partitions(trigger.topic)
                    looked_at = loop.time()
                    await self._set_starts(trigger, partitions)
                ends = await self._lookup.ends(partitions)
                positions = {tp: self._state.position(trigger.job, tp) or 0 for tp in partitions}
                available = new_ranges(positions, ends)
                late: dict[TopicPartition, int] = {}
                if available and trigger.lag is not None:
                    oldest = time.time() - trigger.lag
                    late = await self._lookup.first_since(partitions, max(0.0, oldest))
                now = loop.time()
                if not is_due(trigger, available, now=now, started_at=started_at, late=late):
                    await asyncio.sleep(TICK)
                    continue
                started_at = now
                ranges = ranges_of_job(trigger, available)
                record = job_record(
                    trigger.job,
                    ranges,
                    tag=trigger.tag,
                    pool=trigger.pool,
                    timeout=trigger.timeout,
                )
                await self.run(record, self._settings.jobs[trigger.job])
            except (JobFailedError, JobCancelledError, RetriableError) as error:
                delay = backoff.next()
                logger.warning(
                    "the trigger of %s continues in %.1f s: %s", trigger.job, delay, error
                )
                await asyncio.sleep(delay)
            else:
                backoff.reset()

    async def _set_starts(self, trigger: Trigger, partitions: Sequence[TopicPartition]) -> None:
        """Store the first offsets of partitions that are new to the trigger."""
        new = [tp for tp in partitions if self._state.position(trigger.job, tp) is None]
        if not new:
            return
        bounds = await self._lookup.bounds(new)
        # A partition added to the topic later is read from its first offset.
        latest = trigger.starting == "latest" and len(new) == len(partitions)
        starts = {tp: bounds[tp][latest] for tp in new}
        await self._commit(LedgerChange(scope=trigger.job, starts=starts))

    # -- parts of a job, for _Job -----------------------------------------------------------------

    @property
    def settings(self) -> DriverSettings:
        """The settings."""
        return self._settings

    async def call(self, execution: _Execution, ranges: Ranges, attempt: int) -> _Call:
        """Call the job's function for ranges once the driver is not paused and a slot is free."""
        record, settings = execution.record, self._settings
        context = JobContext(
            spark=settings.spark,
            servers=settings.servers,
            job=record.job,
            job_id=record.job_id,
            ranges=ranges,
            params=record.params,
            attempt=attempt,
        )
        tags = [f"{SPARK_TAG_PREFIX}{_tag(record.job_id)}"]
        if record.tag is not None:
            tags.append(record.tag)
        value = await self._threads.call(
            execution.function,
            context,
            tags=tuple(tags),
            pool=record.pool,
            resumed=self._resumed,
        )
        output = context.close()
        await self._existing(output)
        return _Call(value, output)

    def publish(self, kind: str, record: JobRecord, **details: object) -> None:
        """Publish an event of a job."""
        self._events.publish(kind, job_id=record.job_id, job=record.job, **details)

    async def commit_part(
        self,
        execution: _Execution,
        processed: Ranges,
        output: tuple[ProducerRecord, ...],
        ended: JobRecord | None,
    ) -> None:
        """Commit a part of a job; `ended` is the job's final state if no part remains."""
        replies = () if ended is None else await self._replies(job_reply(ended))
        change = LedgerChange(
            jobs=() if ended is None else (ended,),
            scope=execution.record.scope,
            processed=processed,
            output=output + replies,
        )
        committed = self._submit(change)
        if ended is not None:
            committed.add_done_callback(partial(_mark_ended, execution))
        await _outcome(committed)

    async def dead_letter(
        self, record: JobRecord, part: Ranges, error: BaseException
    ) -> ProducerRecord:
        """Return the dead letter of the only record of a part.

        Raises:
            JobFailedError: The offset has no record, so the error has another cause.
        """
        (place,) = part
        partition = TopicPartition(place.topic, place.partition)
        found = await self._lookup.read_record(partition, place.start)
        if found is None:
            raise JobFailedError(
                f"{record.job} {record.job_id} fails for offset {place.start} of {partition}, "
                "where there is no record"
            ) from error
        headers = [
            *found.headers,
            ("orchestrator.topic", place.topic.encode()),
            ("orchestrator.partition", b"%d" % place.partition),
            ("orchestrator.offset", b"%d" % place.start),
            ("orchestrator.timestamp", b"%d" % found.timestamp),
            ("orchestrator.job", record.job.encode()),
            ("orchestrator.job_id", record.job_id.encode()),
            ("orchestrator.error", f"{type(error).__name__}: {error}"[:4096].encode()),
        ]
        topic = self._settings.dead_letter_topic
        return ProducerRecord(topic, found.value, found.key, headers)


@dataclass(frozen=True, slots=True)
class _Call:
    """Result of a call: the function's value and the emitted events."""

    value: object
    output: tuple[ProducerRecord, ...]


class _Job:
    """Runs one job: its parts, their retries, and the dead letters."""

    def __init__(self, execution: _Execution, driver: ActiveDriver) -> None:
        self._execution = execution
        self._driver = driver
        self._record = execution.record
        self._values: list[object] = []
        self._attempts = 0
        self._failed: list[tuple[Ranges, BaseException]] = []

    async def run(self) -> JobResult:
        """Process all parts, then the failed records; return the result."""
        record, driver = self._record, self._driver
        if not record.ranges:
            await self._process((), [])
            return self.result()
        pending = driver.processed(record.scope, record.ranges)[::-1]
        while pending:
            part = pending.pop()
            try:
                await self._process(part, pending)
            except RangeAlreadyProcessedError:
                pending += driver.processed(record.scope, part)[::-1]
        if not self._execution.ended:
            await self._finish()
        return self.result()

    def result(self) -> JobResult:
        """Return the result of the processed parts."""
        return JobResult(
            job_id=self._record.job_id,
            values=tuple(self._values),
            attempts=self._attempts,
            dead_letters=len(self._failed),
        )

    async def _process(self, part: Ranges, pending: list[Ranges]) -> None:
        """Call the function for a part until it succeeds or is not to be called again for it."""
        record, driver = self._record, self._driver
        attempts = 0
        while True:
            attempts += 1
            self._attempts += 1
            # A part ends in one of five ways: committed, processed by another job (the caller looks
            # for the rest), failed with its job, split into halves that become pending, or set
            # aside as a dead letter. Only a retry repeats the loop. A fencing error ends the whole
            # driver.
            driver.publish("job_started", record, attempt=attempts, offsets=size_of(part))
            try:
                call = await driver.call(self._execution, part, attempts)
            except Exception as error:
                if fencing_error(error):
                    raise
                reaction = react(
                    error,
                    attempts=attempts,
                    part=part,
                    dead_letters=len(self._failed),
                    policy=driver.settings.retry,
                )
                if isinstance(reaction, Retry):
                    driver.publish("job_retried", record, error=str(error), delay=reaction.delay)
                    await asyncio.sleep(reaction.delay)
                    continue
                if isinstance(reaction, Fail):
                    raise JobFailedError(
                        f"{record.job} {record.job_id} has failed, since {reaction.reason}: "
                        f"{type(error).__name__}: {error}"
                    ) from error
                if isinstance(reaction, Bisect):
                    driver.publish("job_bisected", record, error=str(error), offsets=size_of(part))
                    pending += [reaction.second, reaction.first]
                else:
                    self._failed.append((part, error))
                return
            self._values.append(call.value)
            last = not pending and not self._failed
            try:
                await self._commit(part, call.output, last=last)
            except RangeAlreadyProcessedError:
                self._values.pop()
                raise
            return

    async def _finish(self) -> None:
        """Commit the final state, with the dead letters of the failed records."""
        if not self._failed and self._driver.succeeded(self._record):
            return  # another call has processed the same ranges
        letters: list[ProducerRecord] = []
        processed: list[Ranges] = []
        for part, error in self._failed:
            # Read all failed records first: if one is missing, the job fails without a dead letter.
            letters.append(await self._driver.dead_letter(self._record, part, error))
            processed.append(part)
        if not letters:
            await self._commit((), (), last=True)
        for at, (part, letter) in enumerate(zip(processed, letters, strict=True)):
            try:
                await self._commit(part, (letter,), last=at == len(letters) - 1)
            except RangeAlreadyProcessedError:  # by another job, in which it did not fail
                if at == len(letters) - 1:
                    await self._commit((), (), last=True)

    async def _commit(
        self, processed: Ranges, output: tuple[ProducerRecord, ...], *, last: bool
    ) -> None:
        ended: JobRecord | None = None
        if last:
            value = self._values[0] if len(self._values) == 1 else self._values
            ended = replace(
                self._record,
                state=JobState.SUCCEEDED,
                value=_stored(value),
                dead_letters=len(self._failed),
            )
        try:
            await self._driver.commit_part(self._execution, processed, output, ended)
        except (RangeAlreadyProcessedError, ApplicationRecoverableError):
            raise
        except KafkaError as error:
            raise JobFailedError(
                f"the events of {self._record.job} {self._record.job_id} were not committed: "
                f"{type(error).__name__}: {error}"
            ) from error
        if ended is not None:
            self._driver.publish(
                "job_succeeded", self._record, attempts=self._attempts, value=ended.value
            )


# -- helpers --------------------------------------------------------------------------------------


def job_record(
    job: str,
    ranges: Ranges,
    *,
    tag: str | None,
    pool: str | None,
    timeout: float | None,
) -> JobRecord:
    """Return the record of a job without a control message.

    Its id is derived from the job's name and the ranges; without ranges it is random.
    """
    if ranges:
        text = json.dumps([job, ranges_to_json(ranges)])
        job_id = hashlib.sha256(text.encode()).hexdigest()[:16]
    else:
        job_id = uuid.uuid4().hex[:16]
    return JobRecord(
        job_id=job_id, job=job, scope=job, ranges=ranges, tag=tag, pool=pool, timeout=timeout
    )


def _matches(record: JobRecord, tag: str) -> bool:
    return tag in (record.tag, record.job_id)


def _tag(job_id: str) -> str:
    """Return an id without commas, which a Spark tag must not contain."""
    return job_id.replace(",", "_")


def _stored(value: object) -> object:
    """Return the value if it fits into the ledger, else None."""
    try:
        return value if len(json.dumps(value)) <= MAX_VALUE_BYTES else None
    except (TypeError, ValueError):
        return None


def _mark_ended(execution: _Execution, committed: asyncio.Future[None]) -> None:
    if not committed.cancelled() and committed.exception() is None:
        execution.ended = True


def _not_registered(job: str, _: JobContext) -> object:
    raise NotImplementedError(
        f"there is no job {job!r}: register it before the orchestrator starts"
    )


async def _outcome(committed: asyncio.Future[None]) -> None:
    """Wait for a change; a cancelled caller waits up to 5 s for the outcome before it ends."""
    try:
        await asyncio.shield(committed)
    except asyncio.CancelledError:
        loop = asyncio.get_running_loop()
        waiting = loop.create_task(_settled(committed))
        await wait_shielded(waiting, loop.time() + STOP_TIMEOUT)
        waiting.cancel()
        raise


async def _settled(future: asyncio.Future[None]) -> None:
    await asyncio.wait({future})


def _log_unexpected(task: asyncio.Task[JobResult]) -> None:
    """Log the error of a job without a caller, unless the ledger has its final state."""
    if task.cancelled():
        return
    error = task.exception()
    if error is not None:
        level = logging.INFO if isinstance(error, KafkaError) else logging.ERROR
        logger.log(level, "%s: %s", task.get_name(), error, exc_info=error)
