"""The orchestrator: runs Spark jobs from an asyncio program, each range once.

    async with Orchestrator("localhost:9092", spark, name="clicks") as orchestrator:
        result = await orchestrator.run(count_clicks, ranges=ranges)

`job_ledger.py` describes the protocol. Only jobs that use Spark need pyspark.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import uuid
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from anyio import CancelScope

from kafka_async.admin import Admin, NewTopic
from kafka_async.client.client import Client
from kafka_async.config import hide_secrets
from kafka_async.consumer.consumer import Consumer
from kafka_async.consumer.group.rebalance_listener import RebalanceListener
from kafka_async.errors import (
    ClientClosedError,
    IllegalStateError,
    InvalidConfigurationError,
    KafkaError,
    TopicExistsError,
)
from kafka_async.foundation.arguments import check_timeout, instance_of, whole_number
from kafka_async.foundation.backoff import Backoff
from kafka_async.foundation.supervisor import Supervisor
from kafka_async.producer.producer import Producer
from kafka_async.spark.offsets import OffsetRange
from kafka_async.spark.orchestrator.active_driver import ActiveDriver, DriverSettings, job_record
from kafka_async.spark.orchestrator.context import JobContext, JobFunction, JobResult
from kafka_async.spark.orchestrator.errors import (
    DriverFencedError,
    JobTimeoutError,
    RetryPolicy,
)
from kafka_async.spark.orchestrator.events import (
    EventBus,
    EventStream,
    OrchestratorEvent,
    query_listener,
)
from kafka_async.spark.orchestrator.range_lookup import RangeLookup
from kafka_async.spark.orchestrator.ranges import (
    Ranges,
    check_ranges,
    split_by_bytes,
    split_by_rows,
)
from kafka_async.spark.orchestrator.threads import JobThreads, in_thread
from kafka_async.spark.orchestrator.triggers import Trigger
from kafka_async.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Self

    from pyspark.sql import SparkSession
    from typing_extensions import Unpack

    from kafka_async.config import ClientOptions
    from kafka_async.consumer.group.rebalance_listener import Partitions

__all__ = ["Orchestrator"]

FunctionT = TypeVar("FunctionT", bound="Callable[[JobContext], object]")

logger = logging.getLogger("kafka_async.spark")

POLL_TIMEOUT: Final = 0.5
"""Seconds between the membership loop's checks for a failure of the active driver."""
MAX_MESSAGES: Final = 100
"""Control messages per transaction."""
LISTENER_TIMEOUT: Final = 5.0
"""Maximum seconds to remove the listener of streaming queries."""


class Orchestrator:
    """Runs Spark jobs from Kafka events without blocking the event loop.

        orchestrator = Orchestrator("localhost:9092", spark, name="clicks")

        @orchestrator.job
        def count_clicks(context):
            return spark.read.format("kafka_async").options(**context.read_options()).load().count()

        orchestrator.trigger("count_clicks", "clicks", rows=10_000, lag=60)
        async with orchestrator:
            async for event in orchestrator.events():
                ...

    Several processes may run the same orchestrator: one of them is the active driver, the others
    take over when it ends. A job's ranges, output events and consumed offsets are committed in one
    transaction, so each range takes effect once. Jobs run in threads.

    Args:
        servers: Addresses of brokers, as "host:port,host:port" or a sequence; or a started
            `Client`: its connections are shared, and stay open.
        spark: The Spark session; None for jobs that do not use Spark.
        name: Name of the orchestrator, the same in all its drivers. The consumer group and the
            transactional id are "orchestrator-NAME".
        max_concurrency: Maximum number of jobs that run at a time (default: 4).
        control_topic: Topic of control messages, with one partition (default: "NAME-control").
        ledger_topic: Compacted topic of the job ledger, with one partition (default:
            "NAME-ledger").
        dead_letter_topic: Topic of records that a job cannot process (default:
            "NAME-dead-letters").
        events_topic: Topic for all events as JSON; None for no topic.
        retry: Limits of retries and dead letters.
        session_timeout_ms: Time without heartbeats after which another driver takes over (default:
            6000, the brokers' default minimum).
        **options: Options of `ClientConfig`, such as the TLS and SASL options.

    Missing topics are created, with the cluster's replication factor.

    Raises:
        InvalidConfigurationError: An option is unknown or its value is invalid.
    """

    def __init__(
        self,
        servers: str | Sequence[str] | Client,
        spark: SparkSession | None = None,
        *,
        name: str,
        max_concurrency: int = 4,
        control_topic: str | None = None,
        ledger_topic: str | None = None,
        dead_letter_topic: str | None = None,
        events_topic: str | None = None,
        retry: RetryPolicy | None = None,
        session_timeout_ms: int = 6_000,
        **options: Unpack[ClientOptions],
    ) -> None:
        servers, options = hide_secrets(servers), hide_secrets(options)
        if not name:
            raise ValueError("name must not be empty: drivers of one name share a ledger")
        whole_number(max_concurrency, "max_concurrency", low=1)
        whole_number(session_timeout_ms, "session_timeout_ms", low=1)
        self.name = name
        self._owns_client = not isinstance(servers, Client)
        self._client = servers if isinstance(servers, Client) else Client(servers, **options)
        if options and not self._owns_client:
            raise InvalidConfigurationError("options belong to the shared Client: give them to it")
        self._spark = spark
        self._max_concurrency = max_concurrency
        self._control = TopicPartition(control_topic or f"{name}-control", 0)
        self._ledger_topic = ledger_topic or f"{name}-ledger"
        self._dead_letter_topic = dead_letter_topic or f"{name}-dead-letters"
        self._events_topic = events_topic
        self._retry = retry or RetryPolicy()
        self._session_timeout_ms = session_timeout_ms
        self._jobs: dict[str, JobFunction] = {}
        self._triggers: list[Trigger] = []
        self._driver_id = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self._supervisor = Supervisor(f"Orchestrator {name}")
        self._events = EventBus(self._write_event)
        self._driver: ActiveDriver | None = None
        self._activated = asyncio.Event()
        self._started = self._stopped = False
        self._event_producer: Producer | None = None
        self._listener: Any = None

    # -- declarations -----------------------------------------------------------------------------

    def job(self, function: FunctionT, name: str | None = None) -> FunctionT:
        """Register a function, so that triggers and control messages can run it.

        Usable as a decorator.

        Args:
            function: Called with a `JobContext`, in a thread.
            name: The job's name (default: the function's). The ledger stores processed offsets
                under this name: under another name, the function processes them again.

        Returns:
            The function.

        Raises:
            ValueError: Another function has this name, or the name is empty or contains "@".
        """
        chosen = name or getattr(function, "__name__", "")
        if not chosen or "<" in chosen or "@" in chosen:
            raise ValueError(f"a job needs a name without @, not {chosen!r}: pass name=")
        if self._jobs.setdefault(chosen, function) != function:
            raise ValueError(f"another function is registered as {chosen!r}: pass another name=")
        return function

    def trigger(
        self,
        job: str | JobFunction,
        topic: str,
        *,
        rows: int | None = None,
        lag: float | None = None,
        interval: float | None = None,
        max_rows: int | None = None,
        starting: Literal["earliest", "latest"] = "earliest",
        tag: str | None = None,
        pool: str | None = None,
        timeout: float | None = None,
    ) -> None:
        """Run a job for the new records of a topic; any of the conditions starts it.

        A trigger's jobs run one after the other, each for the offsets after the previous one. A
        failed job runs again after 1 s to 60 s. Call this before `start`.

        Args:
            job: The job, or its name.
            topic: The topic.
            rows: Start at this number of new offsets.
            lag: Start once a new record is older than this, in seconds.
            interval: Start this many seconds after the previous start, if there is a new offset.
            max_rows: Maximum offsets per job (default: all new offsets).
            starting: First offset if the job has never run: "earliest" (default) or "latest".
            tag: Tag of the jobs, for `cancel`.
            pool: Spark's scheduler pool for the jobs.
            timeout: Maximum time of a job, in seconds.

        Raises:
            ValueError: There is no condition, or a value is out of range.
            IllegalStateError: The orchestrator is started.
        """
        if self._started:
            raise IllegalStateError("add triggers before the orchestrator starts")
        name, _ = self._resolve(job)
        _check_tag(tag)
        self._triggers.append(
            Trigger(
                job=name,
                topic=topic,
                rows=rows,
                lag=lag,
                interval=interval,
                max_rows=max_rows,
                starting=starting,
                tag=tag,
                pool=pool,
                timeout=timeout,
            )
        )

    def _resolve(self, job: str | JobFunction) -> tuple[str, JobFunction]:
        if isinstance(job, str):
            if job not in self._jobs:
                known = ", ".join(sorted(self._jobs)) or "none"
                raise ValueError(f"there is no job {job!r}: registered are {known}")
            return job, self._jobs[job]
        for name, function in self._jobs.items():
            if function == job:
                return name, function
        self.job(job)
        return job.__name__, job

    # -- start and stop ---------------------------------------------------------------------------

    async def start(self) -> None:
        """Connect, create missing topics, and join the group of drivers.

        Returns before this driver is active; see `wait_active`.

        Raises:
            BootstrapError: None of the bootstrap servers could be used.
            InvalidConfigurationError: A topic has more than one partition, or another option or
                permission must be changed.
        """
        if self._started:
            raise IllegalStateError("the orchestrator was started before; make a new one instead")
        self._started = True
        if self._owns_client:
            await self._client.start()
        try:
            await self._supervisor.start()
            self._supervisor.on_failure(lambda _: self._activated.set())
            await self._create_topics()
            self._threads = JobThreads(self._spark, self._max_concurrency)
            self._lookup = RangeLookup(self._client)
            await self._lookup.start()
            if self._events_topic is not None:
                producer = Producer(self._client)
                await producer.start()
                self._event_producer = producer
            if self._spark is not None:
                await self._add_listener(self._spark)
            self._supervisor.spawn(self._serve, name="membership")
        except BaseException:
            await self.stop()
            raise

    async def _create_topics(self) -> None:
        compacted = {"cleanup.policy": "compact"}
        wanted = {
            self._control.topic: NewTopic(self._control.topic, 1),
            self._ledger_topic: NewTopic(self._ledger_topic, 1, configs=compacted),
            self._dead_letter_topic: NewTopic(self._dead_letter_topic, 1),
        }
        if self._events_topic is not None:
            wanted[self._events_topic] = NewTopic(self._events_topic, 1)
        async with Admin(self._client) as admin:
            existing = await admin.list_topics()
            for name, topic in wanted.items():
                if name not in existing:
                    try:
                        await admin.create_topics([topic])
                    except TopicExistsError:
                        pass  # created by another driver
            described = await admin.describe_topics([self._control.topic, self._ledger_topic])
        for name, description in described.items():
            if len(description.partitions) != 1:
                raise InvalidConfigurationError(
                    f"topic {name} has {len(description.partitions)} partitions, and must have 1: "
                    "its order is the order of the orchestrator's decisions; use another topic"
                )

    async def stop(self) -> None:
        """Interrupt all jobs, wait for their threads up to 5 s, and leave the group.

        Another driver takes over at once. Jobs of control messages stay in the ledger.

        Raises:
            IllegalStateError: The orchestrator was started in another event loop or process.
        """
        if self._stopped:
            return
        self._supervisor.check_event_loop()
        self._stopped = True
        self._activated.set()  # wake callers that wait for the active driver
        await self._supervisor.stop()
        if self._listener is not None and self._spark is not None:
            spark, listener = self._spark, self._listener
            removing = in_thread(lambda: spark.streams.removeListener(listener), "remove listener")
            await asyncio.wait({removing}, timeout=LISTENER_TIMEOUT)
        self._events.close()
        if self._event_producer is not None:
            await self._event_producer.stop()
        if hasattr(self, "_lookup"):
            await self._lookup.stop()
        if self._owns_client:
            await self._client.stop()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    # -- membership -------------------------------------------------------------------------------

    @property
    def active(self) -> bool:
        """True while this is the active driver."""
        return self._driver is not None

    async def wait_active(self, timeout: float | None = None) -> None:
        """Wait until this is the active driver.

        Args:
            timeout: Maximum time in seconds (None: no limit).

        Raises:
            TimeoutError: This driver is still not active.
            ClientClosedError: The orchestrator was not started, or is stopped.
        """
        timeout = check_timeout(timeout, unlimited="no limit")
        async with asyncio.timeout(timeout):
            await self._active_driver()

    async def _active_driver(self) -> ActiveDriver:
        while True:
            self._check()
            if self._driver is not None:
                return self._driver
            await self._activated.wait()

    def _check(self) -> None:
        if not self._started or self._stopped:
            raise ClientClosedError("the orchestrator is not running: use `async with`")
        self._supervisor.check()

    async def _serve(self) -> None:
        """Be a member of the group, and the active driver while the control topic is assigned."""
        backoff = Backoff(0.2, 10.0)
        while True:
            try:
                if await self._join():
                    backoff.reset()
            except KafkaError as error:
                logger.warning("the driver stops and joins again: %s", error)
            await asyncio.sleep(backoff.next())

    async def _join(self) -> bool:
        """Serve one membership of the group; return whether this driver was active."""
        listener = _OwnershipListener()
        consumer = Consumer(
            self._client,
            topics=[self._control.topic],
            group_id=f"orchestrator-{self.name}",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
            partition_assignment_strategy=["cooperative-sticky"],
            session_timeout_ms=self._session_timeout_ms,
            heartbeat_interval_ms=max(1, self._session_timeout_ms // 4),
            listener=listener,
        )
        async with consumer:
            driver: ActiveDriver | None = None
            reason: KafkaError = DriverFencedError("the driver was stopped")
            try:
                while True:
                    # Standby: poll until the partition is assigned, then make a driver. Active:
                    # check the driver and accept messages, until the partition is lost or the
                    # driver fails. Records polled in the iteration of the assignment are dropped:
                    # the driver seeks to its committed position.
                    records = await consumer.poll(timeout=POLL_TIMEOUT, max_records=MAX_MESSAGES)
                    if driver is not None:
                        driver.check()
                        if listener.lost:
                            return True
                        await driver.accept(records)
                    elif self._control in consumer.assignment():
                        listener.lost = False
                        driver = ActiveDriver(
                            self._client,
                            consumer,
                            self._settings(),
                            threads=self._threads,
                            lookup=self._lookup,
                            events=self._events,
                        )
                        listener.on_loss = driver.lose_ownership
                        await driver.start()
                        self._set_active(driver)
            except KafkaError as error:
                reason = error
                raise
            finally:
                if driver is not None:
                    self._set_active(None)
                    with CancelScope(shield=True):
                        await driver.stop(reason)

    def _set_active(self, driver: ActiveDriver | None) -> None:
        if driver is self._driver:
            return
        self._driver = driver
        if driver is None and not self._stopped:
            self._activated.clear()
        else:
            self._activated.set()
        kind = "driver_standby" if driver is None else "driver_active"
        logger.info("%s: %s", self.name, kind)
        self._events.publish(kind, driver=self._driver_id)

    def _settings(self) -> DriverSettings:
        servers = self._client.config.bootstrap_servers
        return DriverSettings(
            name=self.name,
            driver_id=self._driver_id,
            servers=servers if isinstance(servers, str) else ",".join(servers),
            spark=self._spark,
            control=self._control,
            ledger_topic=self._ledger_topic,
            dead_letter_topic=self._dead_letter_topic,
            retry=self._retry,
            jobs=self._jobs,
            triggers=tuple(self._triggers),
        )

    # -- jobs -------------------------------------------------------------------------------------

    async def run(
        self,
        job: str | JobFunction,
        *,
        ranges: Iterable[OffsetRange] | None = None,
        tag: str | None = None,
        pool: str | None = None,
        timeout: float | None = None,
    ) -> JobResult:
        """Run a job in a thread and return its result once it is in the ledger.

        With ranges, offsets that a job of this name has processed are left out: each range takes
        effect once. Without ranges, every call is a new job. Waits until this driver is active and
        one of the max_concurrency slots is free. Cancelling the call interrupts the job's Spark
        actions and waits up to 5 s for its thread; a job whose transaction has begun still takes
        effect.

        Args:
            job: The function, or the name of a registered function.
            ranges: The offset ranges to process, at most one per partition.
            tag: Tag for `cancel`, which also accepts the job's id.
            pool: Spark's scheduler pool (default: the default pool).
            timeout: Maximum time in seconds, including waiting and retries (default: no limit).

        Raises:
            JobFailedError: The job has failed; the cause is its function's error.
            JobCancelledError: The job was cancelled by its tag.
            JobTimeoutError: The job has not ended within the timeout.
            DriverFencedError: Another driver has become active, or this driver was stopped. The
                job's transaction may have been committed: run the same ranges again.
            ClientClosedError: The orchestrator was not started, or is stopped.
            ValueError: A range or the tag is not valid, or the job is not registered.
        """
        timeout = check_timeout(timeout, unlimited="no limit")
        checked = () if ranges is None else check_ranges(ranges)
        _check_tag(tag)
        name, function = self._resolve(job)
        if ranges is not None and not checked:
            return JobResult(job_id="")
        loop = asyncio.get_running_loop()
        deadline = None if timeout is None else loop.time() + timeout
        limit = asyncio.timeout_at(deadline)
        try:
            async with limit:
                driver = await self._active_driver()
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise JobTimeoutError(f"no driver became active within {timeout:g} s") from error
        left = None if deadline is None else max(0.0, deadline - loop.time())
        record = job_record(name, checked, tag=tag, pool=pool, timeout=left)
        return await driver.run(record, function)

    async def cancel(self, tag: str) -> tuple[str, ...]:
        """Cancel the jobs with a tag, and wait for their threads up to 5 s.

        Args:
            tag: A tag, or the id of a job.

        Returns:
            The ids of the cancelled jobs.

        Raises:
            IllegalStateError: This is not the active driver; send a control message instead.
        """
        self._check()
        if self._driver is None:
            raise IllegalStateError(
                "this driver is not active: send a cancel message to the control topic"
            )
        return await self._driver.cancel(tag)

    async def plan(
        self,
        topic: str,
        by: Literal["rows", "bytes"] = "rows",
        size: int = 1_000_000,
        *,
        job: str | None = None,
    ) -> list[Ranges]:
        """Return offset ranges that cover a topic, for one job each.

        The ranges end at the last stable offset, so their content is final.

        Args:
            topic: The topic.
            by: Unit of `size`: "rows" counts offsets, and there may be fewer records; "bytes" is
                estimated from samples of the stored, compressed batches.
            size: Maximum offsets, or approximate bytes, per job.
            job: Leave out offsets that this job has processed; requires the active driver.

        Raises:
            UnknownTopicOrPartitionError: The topic does not exist.
            ValueError: `by` or `size` is not valid.
        """
        self._check()
        if by not in ("rows", "bytes"):
            raise ValueError(f'by must be "rows" or "bytes", not {by!r}')
        whole_number(size, "size", low=1)
        bounds = await self._lookup.bounds(await self._lookup.partitions(topic))
        whole = tuple(
            OffsetRange(tp.topic, tp.partition, first, last)
            for tp, (first, last) in sorted(bounds.items())
            if first < last
        )
        parts = [whole] if whole else []
        if job is not None and whole:
            parts = (await self._active_driver()).processed(job, whole)
        planned: list[Ranges] = []
        for part in parts:
            if by == "rows":
                planned += split_by_rows(part, size)
            else:
                planned += split_by_bytes(part, size, await self._lookup.sample_sizes(part))
        return planned

    # -- events -----------------------------------------------------------------------------------

    def events(self) -> EventStream:
        """Return an asynchronous iterator over the events from now on.

        These are events of drivers, jobs, and the Spark session's streaming queries. A stream keeps
        up to 10,000 unread events, then drops the oldest.
        """
        return self._events.stream()

    def _write_event(self, event: OrchestratorEvent) -> None:
        producer, topic = self._event_producer, self._events_topic
        if producer is None or topic is None:
            return
        try:
            producer.enqueue_nowait(topic, event.to_json())
        except KafkaError as error:
            logger.warning("an event was not written to %s: %s", topic, error)

    async def _add_listener(self, spark: SparkSession) -> None:
        listener = query_listener(self._events.publish)
        adding = in_thread(lambda: spark.streams.addListener(listener), "add listener")
        await adding
        self._listener = listener


class _OwnershipListener(RebalanceListener):
    """Stops the active driver when the group revokes its partition."""

    def __init__(self) -> None:
        self.lost = False
        self.on_loss: Callable[[], None] = _nothing

    def on_revoked(self, partitions: Partitions) -> None:
        """Handle the revocation, before another driver gets the partition."""
        self.on_lost(partitions)

    def on_lost(self, partitions: Partitions) -> None:
        """Handle the loss: another driver may already have the partition."""
        if partitions:
            self.lost = True
            self.on_loss()


def _nothing() -> None:
    pass


def _check_tag(tag: str | None) -> None:
    if tag is not None and (not instance_of(tag, str, "tag") or "," in tag):
        raise ValueError(f"tag={tag!r} must be a text without commas, which separate Spark's tags")
