"""The demo's own cluster: the embedded one, in a process of its own."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, TypeVar

from kafka_async.cli.demo.child import Child, child
from kafka_async.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Coroutine
    from typing import Any

T = TypeVar("T")

START: Final = 30.0


class OwnCluster:
    """A running embedded cluster."""

    def __init__(self, servers: str, process: Child) -> None:
        self.servers = servers
        self._process = process

    async def while_it_runs(self, work: Coroutine[Any, Any, T]) -> T:
        """What `work` returns; raises KafkaError as soon as the cluster is gone."""
        working = asyncio.create_task(work)
        ending = asyncio.create_task(self._process.ended())
        try:
            await asyncio.wait({working, ending}, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                return working.result()
            raise KafkaError(
                f"the embedded cluster has ended with status {ending.result()}: "
                f"{self._process.last_words()}"
            )
        finally:
            working.cancel()
            ending.cancel()
            await asyncio.wait({working, ending})


@asynccontextmanager
async def embedded_cluster(brokers: int) -> AsyncGenerator[OwnCluster]:
    """Start it, and end it whatever happens."""
    options = ("--brokers", str(brokers), "--port", "0", "--while-stdin")
    async with child("kafka_async.embedded", *options, force=False) as process:
        try:
            async with asyncio.timeout(START):
                servers = await anext(process.lines(), "")
        except TimeoutError:
            raise KafkaError(f"the embedded cluster did not start within {START:.0f} s") from None
        if not servers:
            raise KafkaError(f"the embedded cluster did not start: {process.last_words()}")
        yield OwnCluster(servers, process)
