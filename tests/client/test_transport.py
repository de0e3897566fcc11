"""Tests of dialling, TLS and writing."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import pytest_asyncio

from kafka_async.client.client import Client
from kafka_async.client.connection import transport
from kafka_async.client.connection.transport import (
    OpenStreams,
    Receiver,
    SocketDialer,
    Stream,
    first_to_connect,
)
from kafka_async.errors import BootstrapError, SslAuthenticationError
from kafka_async.foundation.fairness import MAX_BYTES_PER_WRITE
from kafka_async.foundation.supervisor import Supervisor

pytestmark = pytest.mark.asyncio

Rows = list[tuple[Any, ...]]


@pytest_asyncio.fixture
async def dialer() -> AsyncIterator[SocketDialer]:
    supervisor = Supervisor("test")
    await supervisor.start()
    yield SocketDialer(supervisor)
    await supervisor.stop()


def new_stream() -> Stream:
    return Stream(Mock(spec=Receiver))


class Listener:
    """A server that keeps its accepted connections."""

    def __init__(self) -> None:
        self.accepted: list[asyncio.StreamWriter] = []
        self.server: asyncio.Server

    async def start(self, host: str = "127.0.0.1", context: ssl.SSLContext | None = None) -> int:
        self.server = await asyncio.start_server(self._accept, host, 0, ssl=context)
        return self.server.sockets[0].getsockname()[1]

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted.append(writer)
        try:
            await reader.read()
        except ConnectionError:
            pass
        finally:
            writer.close()

    async def stop(self) -> None:
        self.server.close()
        for writer in self.accepted:
            writer.close()
        await asyncio.sleep(0)


@pytest_asyncio.fixture
async def listener() -> AsyncIterator[Listener]:
    listening = Listener()
    yield listening
    await listening.stop()


def resolve_to(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> None:
    rows: Rows = [
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 1)) for address in addresses
    ]

    def getaddrinfo(host: str, port: int) -> Rows:
        return rows

    monkeypatch.setattr(transport, "_getaddrinfo", getaddrinfo)


@asynccontextmanager
async def connected(
    dialer: SocketDialer, host: str, port: int
) -> AsyncGenerator[asyncio.Transport]:
    opened, stream = await dialer.dial(new_stream, host, port)
    yield opened
    opened.abort()
    await stream.ended


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_dials_address_and_name(dialer: SocketDialer, listener: Listener, host: str) -> None:
    port = await listener.start()
    async with connected(dialer, host, port) as opened:
        assert opened.get_extra_info("peername") == ("127.0.0.1", port)
        raw = opened.get_extra_info("socket")
        assert raw.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert raw.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)


async def test_dials_ip_address_without_resolving(
    dialer: SocketDialer, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = await listener.start()
    monkeypatch.setattr(transport, "_getaddrinfo", None)
    async with connected(dialer, "127.0.0.1", port):
        pass


@pytest.mark.parametrize("name", [".", "a..b", "a" * 64])
async def test_name_that_cannot_be_resolved_is_an_error_of_the_connection(
    dialer: SocketDialer, name: str
) -> None:
    with pytest.raises(socket.gaierror):
        await dialer.dial(new_stream, name, 9092)


async def test_raises_for_name_that_does_not_exist(dialer: SocketDialer) -> None:
    with pytest.raises(socket.gaierror):
        await dialer.dial(new_stream, "no-such-host.invalid", 9092)


async def test_tries_all_addresses_of_a_name(
    dialer: SocketDialer, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = await listener.start("127.0.0.1")
    resolve_to(monkeypatch, "127.0.0.2", "127.0.0.1")
    async with connected(dialer, "broker", port) as opened:
        assert opened.get_extra_info("peername")[0] == "127.0.0.1"


async def test_error_of_last_address_has_the_others_in_its_notes(
    dialer: SocketDialer, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolve_to(monkeypatch, "127.0.0.2", "127.0.0.3")
    with pytest.raises(ConnectionRefusedError) as caught:
        await dialer.dial(new_stream, "broker", 1)
    assert [note.partition(":")[0] for note in caught.value.__notes__] == ["127.0.0.2"]


class Attempts:
    """Attempts to open addresses, which succeed when the test sets their events."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.undone: list[str] = []
        self.ready: dict[str, asyncio.Event] = {}

    async def open(self, address: str) -> str:
        self.started.append(address)
        await self.ready.setdefault(address, asyncio.Event()).wait()
        return address

    def start(self, *addresses: str) -> asyncio.Task[str]:
        return asyncio.create_task(first_to_connect(addresses, self.open, self.undone.append))


@pytest.mark.virtual_clock
async def test_tries_next_address_before_a_slow_one_has_failed() -> None:
    attempts = Attempts()
    first = attempts.start("a", "b", "c")
    await asyncio.sleep(0.2)
    assert attempts.started == ["a"]
    await asyncio.sleep(0.1)
    assert attempts.started == ["a", "b"]
    attempts.ready["b"].set()
    assert await first == "b"
    assert attempts.started == ["a", "b"]


@pytest.mark.virtual_clock
async def test_undoes_second_of_two_simultaneous_connections() -> None:
    attempts = Attempts()
    first = attempts.start("a", "b")
    await asyncio.sleep(0.3)
    for event in attempts.ready.values():
        event.set()
    winner = await first
    assert attempts.undone == [name for name in ("a", "b") if name != winner]


@pytest.mark.virtual_clock
async def test_cancellation_cancels_every_attempt() -> None:
    attempts = Attempts()
    first = attempts.start("a", "b")
    await asyncio.sleep(0.3)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert attempts.undone == []


@pytest.mark.virtual_clock
async def test_undoes_connection_that_succeeds_during_cancellation() -> None:
    attempts = Attempts()
    first = attempts.start("a", "b")
    await asyncio.sleep(0.3)
    attempts.ready["a"].set()
    while not first.done():
        first.cancel()
        await asyncio.sleep(0)
    await asyncio.sleep(0.1)
    assert attempts.undone == ["a"]


# -- the whole client on real sockets -------------------------------------------------------------


DATA = Path(__file__).parent / "data"
CERTIFICATE, KEY = DATA / "localhost.pem", DATA / "localhost.key"
"""A self-signed certificate for localhost and its key, for tests only."""
READS_FILE = pytest.mark.may_block  # the test reads the certificate's file in the loop


@pytest.mark.parametrize(
    ("host", "protocol", "trusting", "timeout_ms", "words"),
    [
        ("localhost", "PLAINTEXT", False, 60_000, r'TLS port .then set security_protocol="SSL"'),
        ("localhost", "SSL", False, 60_000, "certificate is not accepted .*ssl_cafile"),
        pytest.param(
            *("localhost", "SSL", True, 500, "accepts connections but does not answer"),
            marks=READS_FILE,
        ),
        pytest.param(
            *("127.0.0.1", "SSL", True, 60_000, r"certificate is not accepted .*127\.0\.0\.1"),
            marks=READS_FILE,
        ),
    ],
)
async def test_client_accepts_only_trusted_certificate_for_its_name(
    listener: Listener, host: str, protocol: Any, trusting: bool, timeout_ms: int, words: str
) -> None:
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(CERTIFICATE, KEY)
    port = await listener.start(context=serving)
    context = ssl.create_default_context(cafile=CERTIFICATE) if trusting else None
    client = Client(
        f"{host}:{port}",
        security_protocol=protocol,
        ssl_context=context,
        default_api_timeout_ms=timeout_ms,
    )
    expected = SslAuthenticationError if "certificate" in words else BootstrapError
    with pytest.raises(expected, match=words):
        await client.start()


async def test_names_plaintext_port_to_tls_client() -> None:
    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(respond, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with pytest.raises(BootstrapError, match=r"TLS failed .*leave security_protocol out"):
        await Client(f"127.0.0.1:{port}", security_protocol="SSL").start()
    server.close()


# -- writing --------------------------------------------------------------------------------------


class LimitedTransport:
    """A transport that accepts a number of buffers, then pauses writing until it is emptied."""

    def __init__(self, stream: Stream, limit: int) -> None:
        self.stream = stream
        self.limit = self.remaining = limit
        self.written: list[bytes] = []
        stream.connection_made(self)  # pyright: ignore[reportArgumentType]

    def set_write_buffer_limits(self, high: int) -> None: ...

    def pause_reading(self) -> None: ...

    def write(self, data: Any) -> None:
        assert self.remaining > 0
        self.written.append(bytes(data))
        self.remaining -= 1
        if not self.remaining:
            self.stream.pause_writing()

    def empty(self) -> None:
        self.remaining = self.limit
        self.stream.resume_writing()


@pytest.mark.parametrize("flush", [True, False])
async def test_writes_large_buffers_in_pieces(flush: bool) -> None:
    # asyncio copies what the socket does not accept: for 16 MiB that takes milliseconds.
    stream = new_stream()
    pipe = LimitedTransport(stream, limit=2)
    large = bytes(range(256)) * (5 * MAX_BYTES_PER_WRITE // 256) + b"end"
    stream.write([large], flush=flush)
    stream.write([b"behind"], flush=flush)
    await asyncio.sleep(0)
    assert len(pipe.written) == 2
    pipe.empty()
    assert len(pipe.written) == 4
    pipe.empty()
    pipe.empty()
    assert b"".join(pipe.written) == large + b"behind"
    assert max(map(len, pipe.written)) == MAX_BYTES_PER_WRITE


async def test_streams_of_a_client_that_stops_are_aborted_at_the_deadline() -> None:
    """The first has ended, the second ends by itself, and the third only when it is aborted."""
    streams, stuck = OpenStreams(), Mock(spec=asyncio.Transport)
    ended, ending, open_stream = new_stream(), new_stream(), new_stream()
    stuck.abort.side_effect = lambda: open_stream.connection_lost(None)
    open_stream.connection_made(stuck)
    for stream in (ended, ending, open_stream):
        streams.add(stream)
    ended.connection_lost(None)
    asyncio.get_running_loop().call_soon(ending.connection_lost, None)
    await streams.wait_ended(0.01)
    assert open_stream.ended.done()
    stuck.abort.assert_called_once_with()
    await streams.wait_ended(0)  # returns at once, since there is none left
