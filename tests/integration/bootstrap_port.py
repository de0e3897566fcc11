"""A port that leads to a bootstrap server, for clients whose name resolution a test cannot set."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType

HOST = "127.0.0.1"


class BootstrapPort:
    """Forwards connections to the address `target`, which may change, as behind a load balancer.

    Attributes:
        target: Address of new connections, as host:port.
        connections: Number of connections so far.
    """

    def __init__(self, target: str) -> None:
        self.target = target
        self.connections = 0
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def address(self) -> str:
        """The port's `host:port`."""
        return f"{HOST}:{self._server.sockets[0].getsockname()[1]}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, HOST, 0)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.close()
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        host, _, port = self.target.rpartition(":")
        try:
            to_reader, to_writer = await asyncio.open_connection(host, int(port))
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(_copy(reader, to_writer))
                    group.create_task(_copy(to_reader, writer))
            finally:
                to_writer.transport.abort()
        except (OSError, ExceptionGroup, asyncio.CancelledError):
            pass
        finally:
            writer.transport.abort()
            self._tasks.discard(task)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy bytes until one side ends, which ends the other copy too."""
    while data := await reader.read(65_536):
        writer.write(data)
        await writer.drain()
    raise ConnectionResetError
