"""A token endpoint on https for tests, which can be as hostile as a test wants."""

from __future__ import annotations

import asyncio
import ssl
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

if TYPE_CHECKING:
    from tests.integration.certificates import Authority, Certificate


@dataclass
class Received:
    """A request, as the issuer received it."""

    line: str
    headers: dict[str, str]
    form: dict[str, list[str]]


Respond = Callable[[Received, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Issuer:
    """Answers requests one by one; the last answer is repeated."""

    port: int = 0
    answers: list[Respond] = field(default_factory=list[Respond])
    requests: list[Received] = field(default_factory=list[Received])
    tasks: set[asyncio.Task[object]] = field(default_factory=set[asyncio.Task[object]])

    @property
    def url(self) -> str:
        """The URL of the token endpoint."""
        return f"https://127.0.0.1:{self.port}/oauth2/token"

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.tasks.add(task)
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            line, *rows = head.strip().split("\r\n")
            headers = {name.lower(): value for name, value in (row.split(": ", 1) for row in rows)}
            body = await reader.readexactly(int(headers.get("content-length", "0")))
            request = Received(line, headers, parse_qs(body.decode()))
            self.requests.append(request)
            await self.answers[min(len(self.requests), len(self.answers)) - 1](request, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self.tasks.discard(task)
            writer.close()

    async def refuse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer a TLS handshake as an HTTP server does."""
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()


def answer(status: int, body: str | bytes = "", *headers: str) -> Respond:
    """Return an answer with a status, a body and headers."""
    content = body.encode() if isinstance(body, str) else body

    async def respond(request: Received, writer: asyncio.StreamWriter) -> None:
        lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(content)}", "Connection: close"]
        writer.write("\r\n".join([*lines, *headers, "", ""]).encode() + content)
        await writer.drain()

    return respond


async def drop(request: Received, writer: asyncio.StreamWriter) -> None:
    """Close the connection without an answer."""


async def hang(request: Received, writer: asyncio.StreamWriter) -> None:
    """Send a byte of the head at a time, for ever."""
    while True:
        writer.write(b"H")
        await writer.drain()
        await asyncio.sleep(0.05)


async def flood(request: Received, writer: asyncio.StreamWriter) -> None:
    """Send a body that does not end."""
    writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        writer.write(b"x" * 65_536)
        await writer.drain()


def server_context(certificate: Certificate) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "issuer.pem")
        path.write_text(certificate.pem)
        context.load_cert_chain(path)
    return context


@asynccontextmanager
async def issuer(
    authority: Authority,
    *answers: Respond,
    certificate: Certificate | None = None,
    tls: bool = True,
) -> AsyncGenerator[Issuer]:
    """Run an issuer whose certificate is by an authority; without `tls`, it speaks http."""
    started = Issuer(answers=list(answers))
    context = server_context(certificate or authority.issue()) if tls else None
    handle = started.handle if tls else started.refuse
    server = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=context)
    started.port = server.sockets[0].getsockname()[1]
    try:
        yield started
    finally:
        server.close()
        for task in list(started.tasks):
            task.cancel()
            await asyncio.wait([task])
