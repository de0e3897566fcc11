"""The embedded cluster of the demo, in a child process."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, TypeVar

from kafka_async.cli.demo.child_process import ChildProcess, child_process
from kafka_async.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Coroutine
    from typing import Any

T = TypeVar("T")

START_TIMEOUT: Final = 30.0
"""Seconds."""


class ClusterProcess:
    """Watches the process of a running embedded cluster."""

    def __init__(self, servers: str, process: ChildProcess) -> None:
        self.servers = servers
        self._process = process

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work`; raise KafkaError as soon as the cluster's process has ended."""
        work_task = asyncio.create_task(work)
        process_task = asyncio.create_task(self._process.wait())
        try:
            await asyncio.wait({work_task, process_task}, return_when=asyncio.FIRST_COMPLETED)
            if work_task.done():
                return work_task.result()
            raise KafkaError(
                f"the embedded cluster has ended with status {process_task.result()}: "
                f"{self._process.last_error_line()}"
            )
        finally:
            work_task.cancel()
            process_task.cancel()
            await asyncio.wait({work_task, process_task})


@asynccontextmanager
async def embedded_cluster(brokers: int) -> AsyncGenerator[ClusterProcess]:
    """Start an embedded cluster and stop it at the end of the block."""
    options = ("--brokers", str(brokers), "--port", "0", "--while-stdin")
    async with child_process("kafka_async.embedded", *options, force=False) as process:
        try:
            async with asyncio.timeout(START_TIMEOUT):
                servers = await anext(process.lines(), "")
        except TimeoutError:
            raise KafkaError(
                f"the embedded cluster did not start within {START_TIMEOUT:.0f} s"
            ) from None
        if not servers:
            raise KafkaError(f"the embedded cluster did not start: {process.last_error_line()}")
        yield ClusterProcess(servers, process)
