"""Runs the functions of jobs in threads, with Spark's tags and scheduler pools.

Spark's actions block, and tags and pools belong to a thread, so every call gets a new thread. The
thread's connection to Spark's JVM is closed with the thread. Cancelling a call interrupts its tag
repeatedly, since the function may start another action after an interrupted one.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
from typing import TYPE_CHECKING, Any, Final

from kafka_async.errors import InvalidConfigurationError
from kafka_async.foundation.supervisor import wait_shielded
from kafka_async.spark.orchestrator.errors import JobNotStoppedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafka_async.spark.orchestrator.context import JobContext, JobFunction

logger = logging.getLogger("kafka_async.spark")

STOP_TIMEOUT: Final = 5.0
"""Seconds that a cancelled call may take to end."""
INTERRUPT_INTERVAL: Final = 0.25
"""Seconds between interruptions of a tag."""
POOL_PROPERTY: Final = "spark.scheduler.pool"


def in_thread(function: Callable[[], object], name: str) -> asyncio.Future[Any]:
    """Call a function in a new daemon thread; the future has its result.

    A daemon thread does not delay the exit of the process.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def finish(result: object, error: BaseException | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)
            future.exception()  # mark the exception as retrieved: the caller may be gone

    def run() -> None:
        result: object = None
        failure: BaseException | None = None
        try:
            result = function()
        except BaseException as error:  # noqa: BLE001 (raised where the future is awaited)
            failure = error
            if isinstance(error, StopIteration) or not isinstance(error, Exception):
                # A future does not accept StopIteration; SystemExit would end the event loop, and
                # CancelledError would look like a cancellation of the job.
                failure = RuntimeError(f"the function raised {error!r}")
                failure.__cause__ = error
        try:
            loop.call_soon_threadsafe(finish, result, failure)
        except RuntimeError:
            pass  # the event loop was closed

    threading.Thread(target=run, name=name, daemon=True).start()
    return future


class JobThreads:
    """Calls functions of jobs in threads, at most `max_concurrency` at a time.

    Args:
        spark: The Spark session; None for functions that do not use Spark.
        max_concurrency: Maximum number of calls at a time; more wait in order.

    Attributes:
        running: Number of threads that have not ended.
    """

    def __init__(self, spark: Any, max_concurrency: int) -> None:
        self._spark = spark
        self._slots = asyncio.Semaphore(max_concurrency)
        self.running = 0

    async def call(
        self,
        function: JobFunction,
        context: JobContext,
        *,
        tags: tuple[str, ...],
        pool: str | None,
        resumed: asyncio.Event,
    ) -> object:
        """Call `function(context)` in a thread and return its result.

        If the caller is cancelled, interrupt the tag and wait up to 5 s for the thread.

        Args:
            function: The function.
            context: Its argument.
            tags: Tags for the function's Spark jobs; the first is unique to this call.
            pool: Spark's scheduler pool for these jobs; None for the default pool.
            resumed: Event that is set while calls may start.

        Raises:
            Exception: The function's exception.
        """
        await self._acquire(resumed)
        variables = contextvars.copy_context()
        self.running += 1
        try:
            future = in_thread(
                lambda: variables.run(self._run, function, context, tags, pool),
                f"job {context.job} {context.job_id}",
            )
        except BaseException:
            self._release(None)
            raise
        future.add_done_callback(self._release)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError as error:
            context.request_stop()
            stopping = asyncio.ensure_future(self._stop(future, tags[0]))
            await wait_shielded(stopping)
            if not future.done():
                error.add_note(str(self._not_stopped(context)))
            raise

    async def _acquire(self, resumed: asyncio.Event) -> None:
        while True:
            await resumed.wait()
            # The driver may be paused while a call waits for a slot.
            await self._slots.acquire()
            if resumed.is_set():
                return
            self._slots.release()

    def _release(self, _: object) -> None:
        self.running -= 1
        self._slots.release()

    def _run(
        self, function: JobFunction, context: JobContext, tags: tuple[str, ...], pool: str | None
    ) -> object:
        spark = self._spark
        if spark is None:
            return function(context)
        spark_context = _context_of(spark)
        for tag in tags:
            # A classic session's tags can be interrupted only by the thread that added them, its
            # context's tags by any thread.
            spark.addTag(tag) if spark_context is None else spark_context.addJobTag(tag)
        if pool is not None:
            _set_pool(spark_context, pool)
        if context.stop_requested:  # an interruption before the tag was added had no effect
            raise InterruptedError("the job was cancelled before it started")
        return function(context)

    async def _stop(self, future: asyncio.Future[object], tag: str) -> None:
        """Interrupt the tag until the thread ends, for at most STOP_TIMEOUT seconds."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + STOP_TIMEOUT
        while not future.done() and loop.time() < deadline:
            if self._spark is not None:
                interrupting = in_thread(lambda: _interrupt(self._spark, tag), f"interrupt {tag}")
                await asyncio.wait({interrupting}, timeout=deadline - loop.time())
            left = max(0.0, min(INTERRUPT_INTERVAL, deadline - loop.time()))
            await asyncio.wait({future}, timeout=left)

    def _not_stopped(self, context: JobContext) -> JobNotStoppedError:
        error = JobNotStoppedError(
            f"the thread of {context.job} {context.job_id} has not ended {STOP_TIMEOUT:g} s after "
            "its cancellation, and occupies one of max_concurrency: check context.stop_requested "
            "in loops without Spark actions"
        )
        logger.warning("%s", error)
        return error


def _context_of(spark: Any) -> Any:
    """Return the SparkContext of a session, or None with Spark Connect."""
    try:
        return spark.sparkContext
    except Exception:  # noqa: BLE001  # pyspark's class of the error depends on its version
        return None


def _interrupt(spark: Any, tag: str) -> None:
    spark_context = _context_of(spark)
    if spark_context is None:
        spark.interruptTag(tag)
    else:
        spark_context.cancelJobsWithTag(tag)


def _set_pool(spark_context: Any, pool: str) -> None:
    if spark_context is None:
        raise InvalidConfigurationError(
            f"pool={pool!r}: Spark Connect has no scheduler pools for clients; leave pool out"
        )
    spark_context.setLocalProperty(POOL_PROPERTY, pool)
