"""Tests of the clients that tasks of a Spark worker process share."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kafka_async import blocking
from kafka_async.config import ConsumerConfig, ProducerConfig
from kafka_async.embedded import BlockingCluster, run_in_thread
from kafka_async.spark.clients import ClientCache, close_clients, lend_consumer, lend_producer
from kafka_async.types import Health, TopicPartition


class FakeClient:
    """A client that notes what becomes of it."""

    def __init__(self, state: str = "running") -> None:
        self.state = state
        self.calls: list[Any] = []

    def __enter__(self) -> FakeClient:
        self.calls.append("start")
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.calls.append(kind)
        self.state = "closed"

    def stop(self, timeout: float | None = None) -> None:
        self.calls.append(("stop", timeout))
        self.state = "closed"

    def health(self) -> Health:
        return Health(state=self.state)


class FakeTimers:
    """Creates timers that the test runs."""

    def __init__(self) -> None:
        self.pending: list[FakeTimer] = []
        self.now = 100.0

    def __call__(self, wait: float, function: Callable[[], None]) -> FakeTimer:
        return FakeTimer(self, self.now + wait, function)

    def advance(self, to: float) -> None:
        self.now = to
        for timer in list(self.pending):
            if timer.at <= to:
                self.pending.remove(timer)
                timer.function()


class FakeTimer:
    """A timer of `FakeTimers`."""

    def __init__(self, timers: FakeTimers, at: float, function: Callable[[], None]) -> None:
        self.timers, self.at, self.function = timers, at, function
        self.daemon = False

    def start(self) -> None:
        assert self.daemon, "a timer must not keep the process from ending"
        self.timers.pending.append(self)

    def cancel(self) -> None:
        if self in self.timers.pending:
            self.timers.pending.remove(self)


@pytest.fixture
def timers() -> FakeTimers:
    return FakeTimers()


@pytest.fixture
def cache(timers: FakeTimers) -> Iterator[Any]:
    made = ClientCache(30.0, 2, now=lambda: timers.now, timer=timers)
    yield made
    made.close()


def test_next_task_uses_the_client_of_the_last_one(cache: Any) -> None:
    first = FakeClient()
    with cache.borrow("a", lambda: first) as lent:
        assert lent is first
    with cache.borrow("a", FakeClient) as lent:
        assert lent is first
    assert first.calls == ["start"]


def test_other_configuration_and_simultaneous_task_get_another_client(cache: Any) -> None:
    with cache.borrow("a", FakeClient) as first:
        with cache.borrow("a", FakeClient) as second:
            assert second is not first
        with cache.borrow("b", FakeClient) as third:
            assert third not in (first, second)
    assert first.calls == third.calls == ["start"]


def test_failed_task_closes_its_client(cache: Any) -> None:
    client = FakeClient()
    with pytest.raises(ZeroDivisionError), cache.borrow("a", lambda: client):
        raise ZeroDivisionError
    assert client.calls == ["start", ZeroDivisionError]
    assert cache.idle_count == 0


@pytest.mark.parametrize("state", ["failed", "closed"])
def test_client_that_has_stopped_is_not_used_again(cache: Any, state: str) -> None:
    with cache.borrow("a", FakeClient) as first:
        pass
    first.state = state
    with cache.borrow("a", FakeClient) as second:
        assert second is not first
    assert ("stop", None) in first.calls


def test_idle_client_is_closed_after_its_time(cache: Any, timers: FakeTimers) -> None:
    with cache.borrow("a", FakeClient) as first:
        pass
    timers.advance(120.0)
    with cache.borrow("b", FakeClient) as second:
        pass
    timers.advance(129.9)
    assert cache.idle_count == 2
    timers.advance(130.0)
    assert first.state == "closed"
    assert second.state == "running"
    timers.advance(150.0)
    assert second.state == "closed"
    assert not timers.pending


def test_client_in_use_is_not_closed(cache: Any, timers: FakeTimers) -> None:
    with cache.borrow("a", FakeClient):
        pass
    with cache.borrow("a", FakeClient) as client:
        timers.advance(1000.0)
        assert client.state == "running"
    timers.advance(1029.0)
    assert client.state == "running"
    timers.advance(1030.0)
    assert client.state == "closed"


def test_number_of_idle_clients_is_bounded(cache: Any, timers: FakeTimers) -> None:
    lent: list[Any] = []
    for key in "abc":
        with cache.borrow(key, FakeClient) as client:
            lent.append(client)
        timers.now += 1
    assert cache.idle_count == 2
    assert [client.state for client in lent] == ["closed", "running", "running"]


def test_close_ends_all_clients_and_the_timer(cache: Any, timers: FakeTimers) -> None:
    with cache.borrow("a", FakeClient) as client:
        pass
    cache.close(5.0)
    assert client.calls == ["start", ("stop", 5.0)]
    assert not timers.pending


# -- with a cluster and real processes ------------------------------------------------------------


@pytest.fixture(scope="module")
def event_loop_thread() -> None:
    """Start the thread of the blocking clients, which remains until the end of the process."""
    blocking.run(asyncio.sleep, 0)


@pytest.fixture
def cluster(event_loop_thread: None) -> Iterator[BlockingCluster]:
    with run_in_thread() as running:
        running.create_topic("clicks", 1)
        yield running
        close_clients()


def connections() -> set[str]:
    """Return the sockets of this process by their inodes."""
    found: set[str] = set()
    for number in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{number}")
        except OSError:
            continue
        if target.startswith("socket:"):
            found.add(target)
    return found


def write(servers: str, value: bytes) -> blocking.Producer:
    with lend_producer(ProducerConfig(servers)) as producer:
        producer.send("clicks", value)
        return producer


def read(servers: str, start: int, end: int) -> tuple[blocking.Consumer, list[bytes | None]]:
    partition = TopicPartition("clicks", 0)
    values: list[bytes | None] = []
    with lend_consumer(ConsumerConfig(servers), [partition]) as consumer:
        consumer.seek(partition, start)
        while consumer.position(partition) < end:
            values += [record.value for record in consumer.poll(timeout=1.0)]
        return consumer, values[: end - start]


def in_child(work: Callable[[], bool]) -> bool:
    """Return what a function returns in a forked child; it ends without cleaning up."""
    pid = os.fork()
    if pid == 0:
        done = False
        try:
            done = work()
        finally:
            os._exit(0 if done else 1)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status) == 0
        threading.Event().wait(0.01)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    pytest.fail("the child process hangs")


def test_tasks_share_a_producer_and_a_consumer(cluster: BlockingCluster) -> None:
    servers = cluster.bootstrap_servers
    assert write(servers, b"0") is write(servers, b"1")
    first, values = read(servers, 0, 2)
    second, again = read(servers, 1, 2)
    assert first is second
    assert (values, again) == ([b"0", b"1"], [b"1"])
    assert second.assignment() == frozenset()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_child_process_uses_and_closes_nothing_of_its_parent(cluster: BlockingCluster) -> None:
    servers = cluster.bootstrap_servers
    of_parent = write(servers, b"parent")
    read(servers, 0, 1)
    before = connections()

    def work() -> bool:
        of_child = write(servers, b"child")
        _, values = read(servers, 0, 2)
        gc.collect()
        return (
            of_child is not of_parent
            and values == [b"parent", b"child"]
            and before <= connections()  # the parent's, untouched, and its own
            and len(connections()) > len(before)
        )

    assert in_child(work)
    # The parent's clients still work, on the connections that they had.
    assert write(servers, b"parent again") is of_parent
    assert read(servers, 2, 3)[1] == [b"parent again"]
    assert before <= connections()
