"""Arguments and results of a job's function."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from kafka_async.errors import IllegalStateError
from kafka_async.spark.orchestrator.ranges import ending_offsets, read_options, starting_offsets
from kafka_async.types import ProducerRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kafka_async.spark.orchestrator.ranges import Ranges
    from kafka_async.types import Headers

JobFunction: TypeAlias = "Callable[[JobContext], object]"


class JobContext:
    """Provides a job's function with the session and its ranges, and collects its output events.

    Used in the job's thread.

    Attributes:
        spark: The Spark session of the orchestrator.
        job: The job's name.
        job_id: The job's id; the same in every attempt, so that side effects can be idempotent.
        ranges: The offset ranges of this call: the whole job or a part of it.
        params: Parameters of the control message.
        attempt: Number of this attempt, from 1.
    """

    def __init__(
        self,
        *,
        spark: Any,
        servers: str,
        job: str,
        job_id: str,
        ranges: Ranges,
        params: Mapping[str, Any],
        attempt: int,
    ) -> None:
        self.spark = spark
        self.job = job
        self.job_id = job_id
        self.ranges = ranges
        self.params = params
        self.attempt = attempt
        self._servers = servers
        self._output: list[ProducerRecord] = []
        self._closed = False
        self._stop = threading.Event()

    @property
    def starting_offsets(self) -> str:
        """JSON for the option startingOffsets of either Kafka connector."""
        return starting_offsets(self.ranges)

    @property
    def ending_offsets(self) -> str:
        """JSON for the option endingOffsets of either Kafka connector."""
        return ending_offsets(self.ranges)

    def read_options(self) -> dict[str, str]:
        """Return the options to read exactly the ranges, for either Kafka connector.

        They set bootstrap servers, isolation level and offsets; add security options.

        Raises:
            InvalidConfigurationError: The job has no ranges.
        """
        return read_options(self.ranges, self._servers)

    @property
    def stop_requested(self) -> bool:
        """True once the job is cancelled; long loops without Spark actions should check it."""
        return self._stop.is_set()

    def wait_for_stop(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds for the job's cancellation; return `stop_requested`."""
        return self._stop.wait(timeout)

    def emit(
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        *,
        partition: int | None = None,
        headers: Headers = (),
    ) -> None:
        """Add an output event to the transaction that ends this call.

        Events of a call that raises or is cancelled are discarded.

        Args:
            topic: Name of an existing topic.
            value: The value; None is a tombstone in a compacted topic.
            key: The key.
            partition: The partition; None lets the partitioner choose.
            headers: (name, value) pairs.

        Raises:
            IllegalStateError: The call has ended.
        """
        if self._closed:
            raise IllegalStateError("the job's call has ended: emit events before it returns")
        self._output.append(ProducerRecord(topic, value, key, headers, partition))

    def request_stop(self) -> None:
        """Set `stop_requested`."""
        self._stop.set()

    def close(self) -> tuple[ProducerRecord, ...]:
        """Refuse further events and return the emitted ones."""
        self._closed = True
        return tuple(self._output)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobResult:
    """Holds the outcome of a job that succeeded.

    Attributes:
        job_id: The job's id.
        values: Return values of the function, one per part. Empty if all ranges had been processed
            before.
        attempts: Calls of the function, including repeated and failed ones.
        dead_letters: Number of records written to the dead-letter topic.
    """

    job_id: str
    values: tuple[object, ...] = ()
    attempts: int = 0
    dead_letters: int = 0

    @property
    def value(self) -> object:
        """The function's result; None unless exactly one call succeeded."""
        return self.values[0] if len(self.values) == 1 else None

    @property
    def skipped(self) -> bool:
        """True if all ranges had been processed before, so the function was not called."""
        return not self.attempts
