"""Clients of a Spark worker process, which its tasks use one after another.

Connecting takes several round trips, and more with TLS and SASL, so a task reuses the client of an
earlier task with the same configuration. A client serves one task at a time; concurrent tasks in
threads get one client each. A client is closed after IDLE_SECONDS without a task, and at most
MAX_IDLE_CLIENTS are kept.

Spark forks its workers. A forked process has no event loop thread, and shares its parent's sockets,
so it drops the parent's clients without closing them: the parent still uses the sockets.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections import OrderedDict
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kafka_async import blocking

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator

    from kafka_async.blocking.portal import BlockingClient
    from kafka_async.config import ConsumerConfig, ProducerConfig
    from kafka_async.types import TopicPartition

ClientT = TypeVar("ClientT", bound="BlockingClient")

IDLE_SECONDS: Final = 30.0
"""Seconds without a task after which a client is closed; Spark ends idle workers after 60 s."""
MAX_IDLE_CLIENTS: Final = 8
"""Clients kept for later tasks; beyond that, the client that is idle the longest is closed."""
CLOSE_SECONDS: Final = 5.0
"""Maximum seconds for which closing a client delays the exit of the process."""


@dataclass
class _IdleClient:
    """A started client without a task, and the time at which it became idle."""

    client: Any
    since: float


class ClientCache:
    """Lends started clients to tasks, one task at a time.

    Args:
        idle_seconds: Seconds without a task after which a client is closed.
        max_idle: Maximum number of idle clients.
        now: A clock in seconds.
        timer: A class with the interface of `threading.Timer`.
    """

    def __init__(
        self,
        idle_seconds: float = IDLE_SECONDS,
        max_idle: int = MAX_IDLE_CLIENTS,
        now: Callable[[], float] = time.monotonic,
        timer: Callable[[float, Callable[[], None]], Any] = threading.Timer,
    ) -> None:
        self._idle_seconds = idle_seconds
        self._max_idle = max_idle
        self._now = now
        self._new_timer = timer
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._idle: OrderedDict[int, tuple[object, _IdleClient]] = OrderedDict()
        self._timer: Any = None
        self._closes_at_exit = False

    def after_fork(self) -> None:
        """Drop the parent's clients in a forked process, without closing them."""
        if self._pid == os.getpid():
            return
        # Keep them alive: their finalizers would close sockets that the parent uses.
        _parents.append(self._idle)
        self._reset()

    @contextmanager
    def borrow(self, key: object, make: Callable[[], ClientT]) -> Generator[ClientT]:
        """Lend a started client to a `with` block; keep it afterwards unless the block raises.

        Args:
            key: Parameters of the client: clients with equal keys are interchangeable.
            make: Returns a new client, not started.
        """
        self.after_fork()
        client = self._take(key)
        if client is None:
            client = make()
            client.__enter__()
        pid = os.getpid()
        try:
            yield client
        except BaseException as error:
            if pid == os.getpid():
                with suppress(Exception):  # the block's error has precedence
                    client.__exit__(type(error), error, error.__traceback__)
            raise
        if pid == os.getpid():
            self._keep(key, client)

    @property
    def idle_count(self) -> int:
        """Number of clients without a task."""
        return len(self._idle)

    def close_idle(self) -> None:
        """Close the clients that no task has used for the idle time, and set the next timer."""
        self.after_fork()
        with self._lock:
            self._timer = None
            due = self._now() - self._idle_seconds
            closing = [
                self._idle.pop(number)[1].client
                for number, (_, idle) in list(self._idle.items())
                if idle.since <= due
            ]
            self._start_timer()
        _close(closing)

    def close(self, timeout: float | None = None) -> None:
        """Close all clients without a task, each within `timeout` seconds."""
        self.after_fork()
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            closing = [idle.client for _, idle in self._idle.values()]
            self._idle.clear()
        _close(closing, timeout)

    def _close_at_exit(self, pid: int) -> None:
        if pid == os.getpid():
            self.close(CLOSE_SECONDS)

    def _take(self, key: object) -> Any:
        """Return an idle client that still runs, or None."""
        broken: list[Any] = []
        found = None
        with self._lock:
            for number, (given, idle) in reversed(list(self._idle.items())):
                if given != key:
                    continue
                del self._idle[number]
                if _runs(idle.client):
                    found = idle.client
                    break
                broken.append(idle.client)
        _close(broken)
        return found

    def _keep(self, key: object, client: Any) -> None:
        closing: list[Any] = []
        with self._lock:
            if not self._closes_at_exit:
                # Register after the event loop's thread has started: exit handlers run in reverse
                # order, so this runs before the thread ends.
                self._closes_at_exit = True
                atexit.register(self._close_at_exit, os.getpid())
            # The newest clients are last: they are lent first, and the oldest are closed first.
            self._idle[id(client)] = (key, _IdleClient(client, self._now()))
            while len(self._idle) > self._max_idle:
                closing.append(self._idle.popitem(last=False)[1][1].client)
            self._start_timer()
        _close(closing)

    def _start_timer(self) -> None:
        if self._timer is None and self._idle:
            oldest = min(idle.since for _, idle in self._idle.values())
            wait = max(0.0, oldest + self._idle_seconds - self._now())
            self._timer = self._new_timer(wait, self.close_idle)
            self._timer.daemon = True
            self._timer.start()


def _runs(client: Any) -> bool:
    """Return whether a client still runs; a failure may have stopped it."""
    return client.health().state in ("running", "degraded")


def _close(clients: list[Any], timeout: float | None = None) -> None:
    for client in clients:
        with suppress(Exception):  # no task waits for the outcome
            client.stop(timeout)


_parents: list[Any] = []
"""Clients of parent processes."""
_cache = ClientCache()


def close_clients() -> None:
    """Close the clients of this process that no task uses."""
    _cache.close(CLOSE_SECONDS)


os.register_at_fork(after_in_child=_cache.after_fork)


@contextmanager
def lend_producer(config: ProducerConfig) -> Generator[blocking.Producer]:
    """Lend a producer to a task, which flushes it."""
    with _cache.borrow(config, lambda: blocking.Producer(config=config)) as client:
        yield client


@contextmanager
def lend_consumer(
    config: ConsumerConfig, partitions: Collection[TopicPartition]
) -> Generator[blocking.Consumer]:
    """Lend a consumer of some partitions to a task, which seeks to its start offsets."""
    with _cache.borrow(config, lambda: blocking.Consumer(config=config, partitions=())) as client:
        client.assign(partitions)
        yield client
        client.assign(())
