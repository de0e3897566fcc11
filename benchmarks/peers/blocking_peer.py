"""The runs that all blocking clients have in common, for a client's connections and calls."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from benchmarks.peers.pacing import paced
from benchmarks.peers.task import SETTLE_SECONDS, Figures, Stopwatch, Task, latency

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager


class BlockingPeer(ABC):
    """Base class of the peers with a blocking client; `reads` are its loops by call."""

    reads: ClassVar[Mapping[str, Callable[[Any, Task], tuple[int, int]]]]
    """Loops that return the number of records, and the sum of their weights."""

    @abstractmethod
    def producer_options(self, task: Task, linger_ms: int = 0) -> dict[str, Any]:
        """Return the options of a producer, without the cluster."""

    @abstractmethod
    def consumer_options(self, task: Task) -> dict[str, Any]:
        """Return the options of a consumer, without the cluster and the partitions."""

    @abstractmethod
    def producer(self, task: Task, options: dict[str, Any]) -> AbstractContextManager[Any]:
        """Connect a producer that has sent a warm-up record."""

    @abstractmethod
    def consumer(self, task: Task, options: dict[str, Any]) -> AbstractContextManager[Any]:
        """Connect a consumer with metadata, which does not fetch."""

    @abstractmethod
    def group_consumer(self, task: Task) -> AbstractContextManager[Any]:
        """Connect a consumer in a group, with default options."""

    @abstractmethod
    def assign(self, consumer: Any, task: Task) -> None:
        """Assign all partitions from their beginning."""

    @abstractmethod
    def send_all(self, producer: Any, task: Task) -> int:
        """Send all records, and wait until they are acknowledged; return their number."""

    @abstractmethod
    def send_call(self, producer: Any, topic: str) -> Callable[[bytes], object]:
        """Return a function that sends a value and waits for the acknowledgement."""

    @abstractmethod
    def enqueue(self, producer: Any, topic: str, value: bytes) -> None:
        """Send a value without waiting."""

    @abstractmethod
    def receive(self, consumer: Any) -> bytes:
        """Return the next value."""

    @abstractmethod
    def poll(self, consumer: Any, seconds: float) -> bool:
        """Wait for records; return True if there are some."""

    def produce(self, task: Task) -> Figures:
        """Send all records, and wait until they are acknowledged."""
        options = self.producer_options(task, linger_ms=5)
        with self.producer(task, options) as producer:
            with Stopwatch() as watch:
                sent = self.send_all(producer, task)
            return watch.figures(sent, options)

    def consume(self, task: Task) -> Figures:
        """Read the records of the task from the beginning of the topic."""
        options = self.consumer_options(task)
        with self.consumer(task, options) as consumer:
            with Stopwatch() as watch:
                self.assign(consumer, task)
                count, total = self.reads[task.way](consumer, task)
            return watch.figures(count, options, checksum=total if task.verify else None)

    def round_trip(self, task: Task) -> Figures:
        """Send records one after the other, waiting for each acknowledgement."""
        options = self.producer_options(task)
        with self.producer(task, options) as producer:
            return round_trips(self.send_call(producer, task.topic), task, options)

    def end_to_end(self, task: Task) -> Figures:
        """Send in this thread and receive in another; each value begins with the time."""
        sending, reading = self.producer_options(task), self.consumer_options(task)
        latencies: list[float] = []
        with self.producer(task, sending) as producer, self.consumer(task, reading) as consumer:
            self.assign(consumer, task)
            self.receive(consumer)  # the warm-up record

            def receive() -> None:
                while len(latencies) < task.records:
                    latencies.append(latency(self.receive(consumer)))

            reader = threading.Thread(target=receive, daemon=True)
            reader.start()
            with Stopwatch() as watch:
                for value in paced(task.values(), task.rate):
                    self.enqueue(producer, task.topic, task.timed(value))
                reader.join()
        return watch.figures(len(latencies), sending | reading, latencies=latencies)

    def idle_producer(self, task: Task) -> Figures:
        """Measure a producer without work."""
        with self.producer(task, self.producer_options(task)):
            time.sleep(SETTLE_SECONDS)
            with Stopwatch() as watch:
                time.sleep(task.seconds)
        return watch.figures(0)

    def idle_consumer(self, task: Task) -> Figures:
        """Measure a group member in long polls, after it has read a record."""
        with self.group_consumer(task) as consumer:
            while not self.poll(consumer, 1.0):
                pass
            self._poll_for(consumer, SETTLE_SECONDS)
            with Stopwatch() as watch:
                self._poll_for(consumer, task.seconds)
        return watch.figures(0)

    def _poll_for(self, consumer: Any, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (remaining := end - time.monotonic()) > 0:
            self.poll(consumer, remaining)


def in_lists(
    poll: Callable[[Any, Task, int], tuple[int, int]],
) -> Callable[[Any, Task], tuple[int, int]]:
    """Return the loop over a call that reads at most a number of records, and weighs them."""

    def read(consumer: Any, task: Task) -> tuple[int, int]:
        count = total = 0
        while count < task.records:
            polled, weight = poll(consumer, task, task.records - count)
            if not polled:
                raise TimeoutError(f"{count} of {task.records} records, then none")
            count += polled
            total += weight
        return count, total

    return read


def round_trips(send: Callable[[bytes], object], task: Task, options: Mapping[str, Any]) -> Figures:
    """Measure a call for each value, one after another, at the rate of the task."""
    latencies: list[float] = []
    with Stopwatch() as watch:
        for value in paced(task.values(), task.rate, task.start):
            begun = time.perf_counter()
            send(value)
            latencies.append(time.perf_counter() - begun)
    return watch.figures(len(latencies), options, latencies=latencies)
