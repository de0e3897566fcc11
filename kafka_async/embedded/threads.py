"""An embedded cluster in a thread of its own; control calls for threads without a loop."""

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

    from typing_extensions import Unpack

    from kafka_async.embedded.cluster import Failure
    from kafka_async.embedded.faults import Faults
    from kafka_async.embedded.partition import Topic
    from kafka_async.embedded.settings import SettingOptions
    from kafka_async.types import TopicPartition

R = TypeVar("R")


class BlockingCluster:
    """The control calls of a cluster for other threads; each waits until it is done."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self.cluster = cluster

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers, as `host:port,host:port`."""
        return self.cluster.bootstrap_servers

    @property
    def faults(self) -> Faults:
        """The rules for faults; usable from any thread."""
        return self.cluster.faults

    @property
    def failures(self) -> list[Failure]:
        """What broke in the cluster itself; empty unless there is a bug."""
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
        """See `EmbeddedCluster.create_topic`."""
        return self._wait(
            self.cluster.create_topic(
                name, partitions, replication_factor, assignments=assignments, configs=configs
            )
        )

    def delete_topic(self, name: str) -> None:
        """See `EmbeddedCluster.delete_topic`."""
        self._wait(self.cluster.delete_topic(name))

    def add_partitions(self, name: str, total: int) -> None:
        """See `EmbeddedCluster.add_partitions`."""
        self._wait(self.cluster.add_partitions(name, total))

    def move_leader(self, tp: TopicPartition, broker_id: int | None = None) -> int:
        """See `EmbeddedCluster.move_leader`."""
        return self._wait(self.cluster.move_leader(tp, broker_id))

    def stop_broker(self, broker_id: int) -> None:
        """See `EmbeddedCluster.stop_broker`."""
        self._wait(self.cluster.stop_broker(broker_id))

    def start_broker(self, broker_id: int) -> None:
        """See `EmbeddedCluster.start_broker`."""
        self._wait(self.cluster.start_broker(broker_id))

    def disconnect(self, broker_id: int | None = None) -> int:
        """See `EmbeddedCluster.disconnect`."""
        return self._wait(self.cluster.disconnect(broker_id))

    def _wait(self, call: Coroutine[Any, Any, R]) -> R:
        if not self.cluster.running:
            call.close()
            raise ClientClosedError("the EmbeddedCluster does not run")
        return asyncio.run_coroutine_threadsafe(call, self.cluster.loop).result()


@contextmanager
def run_in_thread(
    brokers: int = 1,
    *,
    ports: Sequence[int] | None = None,
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
    **settings: Unpack[SettingOptions],
) -> Generator[BlockingCluster]:
    """Run a cluster in a thread with its own loop until the block ends.

    `loop_factory` makes that loop, asyncio's own if not given.
    """
    cluster = EmbeddedCluster(brokers, ports=ports, **settings)
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
    """The thread: start the cluster, hand out how to stop it, wait for that."""

    async def serve() -> None:
        stopping = asyncio.Event()
        loop = asyncio.get_running_loop()
        async with cluster:
            started.set_result(lambda: _call(loop, stopping.set))
            await stopping.wait()

    try:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            runner.run(serve())
    except BaseException as error:
        if started.done():
            raise
        started.set_exception(error)


def _call(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(callback)
