"""Runs an embedded cluster in a separate thread, controlled by blocking methods."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Generator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from kafka_async.embedded.cluster import EmbeddedCluster
from kafka_async.errors import ClientClosedError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence
    from typing import Literal

    from typing_extensions import Unpack

    from kafka_async.embedded.failures import Failure
    from kafka_async.embedded.faults import Faults
    from kafka_async.embedded.security.listeners import Listeners
    from kafka_async.embedded.settings import SettingOptions
    from kafka_async.embedded.state.acls import AclAuthorizer
    from kafka_async.embedded.state.partition import Topic
    from kafka_async.secrets import Secret
    from kafka_async.types import TopicPartition

R = TypeVar("R")


class _ClusterOfThread(EmbeddedCluster):
    """A cluster in the event loop of its thread, with access from other threads."""

    def wait_for(self, call: Coroutine[Any, Any, R]) -> R:
        """Run a coroutine in the cluster's event loop and return its result."""
        if not self._supervisor.running:
            call.close()
            raise ClientClosedError("the EmbeddedCluster is not running")
        return asyncio.run_coroutine_threadsafe(call, self._supervisor.loop).result()


class BlockingCluster:
    """Controls a cluster from other threads; each method blocks until done.

    `run_in_thread` creates it.
    """

    def __init__(self, cluster: _ClusterOfThread) -> None:
        self.cluster = cluster

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers as `host:port,host:port`."""
        return self.cluster.bootstrap_servers

    def bootstrap_servers_of(self, listener: str) -> str:
        """Return the addresses at a listener; see `EmbeddedCluster.bootstrap_servers_of`."""
        return self.cluster.bootstrap_servers_of(listener)

    @property
    def faults(self) -> Faults:
        """The fault rules; usable from any thread."""
        return self.cluster.faults

    @property
    def failures(self) -> list[Failure]:
        """Internal errors of the cluster; empty unless the cluster has a bug."""
        return self.cluster.failures

    def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        replication_factor: int | None = None,
        *,
        assignments: Mapping[int, Sequence[int]] | None = None,
        configs: Mapping[str, str] | None = None,
    ) -> Topic:
        """Create a topic; see `EmbeddedCluster.create_topic`."""
        return self.cluster.wait_for(
            self.cluster.create_topic(
                name, partitions, replication_factor, assignments=assignments, configs=configs
            )
        )

    def delete_topic(self, name: str) -> None:
        """Delete a topic; see `EmbeddedCluster.delete_topic`."""
        self.cluster.wait_for(self.cluster.delete_topic(name))

    def add_partitions(self, name: str, total: int) -> None:
        """Add partitions to a topic; see `EmbeddedCluster.add_partitions`."""
        self.cluster.wait_for(self.cluster.add_partitions(name, total))

    def move_leader(self, tp: TopicPartition, broker_id: int | None = None) -> int:
        """Elect a leader; see `EmbeddedCluster.move_leader`."""
        return self.cluster.wait_for(self.cluster.move_leader(tp, broker_id))

    def set_password(self, user: str, password: str | Secret | None) -> None:
        """Replace a user's password; see `EmbeddedCluster.set_password`."""
        self.cluster.wait_for(self.cluster.set_password(user, password))

    def stop_broker(self, broker_id: int) -> None:
        """Stop a broker; see `EmbeddedCluster.stop_broker`."""
        self.cluster.wait_for(self.cluster.stop_broker(broker_id))

    def start_broker(self, broker_id: int, *, port: int | None = None) -> None:
        """Start a broker; see `EmbeddedCluster.start_broker`."""
        self.cluster.wait_for(self.cluster.start_broker(broker_id, port=port))

    def disconnect(self, broker_id: int | None = None) -> int:
        """Reset connections; see `EmbeddedCluster.disconnect`."""
        return self.cluster.wait_for(self.cluster.disconnect(broker_id))


@contextmanager
def run_in_thread(
    brokers: int = 1,
    *,
    ports: Sequence[int] | None = None,
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
    listeners: Listeners | None = None,
    users: Mapping[str, str | Secret] | None = None,
    authorizer: AclAuthorizer | Literal[True] | None = None,
    **settings: Unpack[SettingOptions],
) -> Generator[BlockingCluster]:
    """Run a cluster in a thread with an event loop until the block ends.

    Args:
        brokers: Number of brokers.
        ports: Ports of the brokers, 0 for a free port. Default: free ports.
        loop_factory: Creates the event loop. Default: asyncio's.
        listeners: The listeners of each broker; see `EmbeddedCluster`.
        users: Passwords by user name; see `EmbeddedCluster`.
        authorizer: Authorizes clients' operations; see `EmbeddedCluster`.
        settings: Broker settings; see `Settings`.

    Yields:
        The cluster's control methods.

    Raises:
        InvalidConfigurationError: The arguments are not valid.
        OSError: A port cannot be opened.
    """
    cluster = _ClusterOfThread(
        brokers, ports=ports, listeners=listeners, users=users, authorizer=authorizer, **settings
    )
    started: Future[Callable[[], None]] = Future()
    thread = threading.Thread(
        target=_run, args=(cluster, started, loop_factory), name="kafka_async embedded cluster"
    )
    thread.start()
    try:
        stop = started.result()
    except BaseException:
        thread.join()
        raise
    try:
        yield BlockingCluster(cluster)
    finally:
        stop()
        thread.join()


def _run(
    cluster: EmbeddedCluster,
    started: Future[Callable[[], None]],
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None,
) -> None:
    """Run the cluster until the callback that `started` returns is called."""

    async def serve() -> None:
        stopping = asyncio.Event()
        loop = asyncio.get_running_loop()
        async with cluster:
            started.set_result(lambda: _call_soon(loop, stopping.set))
            await stopping.wait()

    try:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            runner.run(serve())
    except BaseException as error:
        if started.done():
            raise
        started.set_exception(error)


def _call_soon(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(callback)
