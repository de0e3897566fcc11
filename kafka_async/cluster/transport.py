"""Sockets: how a connection is opened, and the two ends of its byte stream. Nothing else opens any.

Names are looked up in the client's own threads, since asyncio's executor belongs to the user. All
addresses of a name are tried, each a quarter of a second after the one before or as soon as that
has failed, and the first to answer is taken (RFC 8305).

`Stream` is what asyncio calls: bytes go straight into the receiver's buffer, and what is written
leaves at once or, where requests are under way already, with all that is written in the same turn.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, cast

if TYPE_CHECKING:
    import ssl as ssl_module
    from collections.abc import Callable, Coroutine, Iterator, Sequence

    from kafka_async.protocol.wire import BytesLike
    from kafka_async.supervisor import Supervisor

T = TypeVar("T")
P = TypeVar("P", bound=asyncio.BaseProtocol)

MAX_JOINED_BYTES: Final = 64 * 1024
PIECE: Final = 1024 * 1024
HIGH_WATER: Final = 512 * 1024
NEXT_ADDRESS_AFTER: Final = 0.25


class Receiver(Protocol):
    """What a stream hands its bytes to; every call comes from the loop."""

    def room(self, sizehint: int) -> memoryview:
        """Where the next bytes go."""
        ...

    def received(self, nbytes: int) -> None:
        """So many bytes were put there."""
        ...

    def lost(self, error: Exception | None) -> None:
        """The stream has ended; None if the peer or we closed it in good order."""
        ...


class Stream(asyncio.BufferedProtocol):
    """One connection's bytes, both ways. Owned by its connection, which is the receiver.

    Nothing is read until it is attached: of several addresses that are dialled at once only one
    becomes the connection.
    """

    def __init__(self, receiver: Receiver) -> None:
        # What the transport calls for each read goes to the receiver without a call in between.
        self.get_buffer = receiver.room
        self.buffer_updated = receiver.received
        self._receiver = receiver
        self._attached = False
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._outgoing: list[BytesLike] = []
        self._corked = False
        self._full = False
        self._drained: deque[asyncio.Future[None]] = deque()
        self.ended: asyncio.Future[None] = self._loop.create_future()

    # -- what asyncio calls -----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Bytes can flow."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=HIGH_WATER)
        self._transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """The end, whoever wanted it."""
        self._outgoing.clear()
        if not self.ended.done():
            self.ended.set_result(None)
        self._wake()
        if self._attached:
            self._receiver.lost(exc)

    def pause_writing(self) -> None:
        """The transport's buffer is full: keep what is written until `resume_writing`."""
        self._full = True

    def resume_writing(self) -> None:
        """The transport has room again."""
        self._full = False
        self._flush()
        if not self._full:
            self._wake()

    # -- what the connection calls ----------------------------------------------------------------

    def attach(self) -> None:
        """Begin to read; raises ConnectionResetError if the connection is lost already."""
        if self._transport is None or self.ended.done():
            raise ConnectionResetError("the broker closed the connection at once")
        self._attached = True
        self._transport.resume_reading()

    @property
    def full(self) -> bool:
        """Whether the peer reads more slowly than we write."""
        return self._full

    def write(self, parts: Sequence[BytesLike], hurry: bool) -> None:
        """Send buffers, in order; those above 64 KiB are not copied here and must not change.

        In a `hurry` they leave at once, else with all that is written in this turn of the loop.
        """
        small = len(parts) == 1 and len(parts[0]) <= PIECE
        if small and hurry and not (self._outgoing or self._full):
            assert self._transport is not None
            self._transport.write(parts[0])
            return
        self._outgoing.extend(parts)
        if hurry:
            self._flush()
        elif not self._corked:
            self._corked = True
            self._loop.call_soon(self._uncork)

    async def drain(self) -> None:
        """Wait until `full` is over, or the connection."""
        while self._full and not self.ended.done():
            waiter = self._loop.create_future()
            self._drained.append(waiter)
            await waiter

    def pause_reading(self, pause: bool) -> None:
        """Stop receiving for a while, or go on."""
        if self._transport is None or self._transport.is_closing():
            return
        if pause:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def close(self) -> None:
        """Close in good order; `ended` is resolved when it has happened."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    def _uncork(self) -> None:
        self._corked = False
        self._flush()

    def _flush(self) -> None:
        transport = self._transport
        if transport is None:
            return
        for chunk in self._chunks():
            transport.write(chunk)

    def _chunks(self) -> Iterator[BytesLike]:
        """What is to be written, small parts joined, until the transport has enough."""
        parts, self._outgoing = self._outgoing, []
        first = 0
        while first < len(parts):
            if self._full:
                self._outgoing[:0] = parts[first:]
                return
            if len(parts[first]) > PIECE:
                # asyncio copies what the socket does not take, up to Python 3.11.
                view = memoryview(parts[first])
                parts[first] = view[PIECE:]
                yield view[:PIECE]
                continue
            last = first + 1
            if len(parts[first]) < MAX_JOINED_BYTES:
                while last < len(parts) and len(parts[last]) < MAX_JOINED_BYTES:
                    last += 1
            yield parts[first] if last == first + 1 else b"".join(parts[first:last])
            first = last

    def _wake(self) -> None:
        while self._drained:
            waiter = self._drained.popleft()
            if not waiter.done():
                waiter.set_result(None)


class SocketDialer:
    """Opens TCP and TLS connections in the running loop. It is a `kafka_async.clock.Dialer`.

    Raises OSError, `ssl.SSLError` and `socket.gaierror` as the system does; with several addresses,
    what the last of them failed with, the others in its notes.
    """

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor

    async def dial(
        self,
        protocol_factory: Callable[[], P],
        host: str,
        port: int,
        *,
        ssl: ssl_module.SSLContext | None = None,
        server_hostname: str | None = None,
    ) -> tuple[asyncio.Transport, P]:
        """Connect to the first address of `host` that answers."""
        host = host.removeprefix("[").removesuffix("]")
        addresses = [host] if _is_address(host) else await self._resolve(host, port)
        name = server_hostname or host

        async def open_one(address: str) -> tuple[asyncio.Transport, P]:
            return await asyncio.get_running_loop().create_connection(
                protocol_factory,
                address,
                port,
                ssl=ssl,
                server_hostname=name if ssl is not None else None,
            )

        if len(addresses) == 1:
            opened = await open_one(addresses[0])
        else:
            opened = await first_to_answer(addresses, open_one, _abort)
        try:
            _keep_alive(opened[0])
        except OSError:  # the peer is gone already, and nobody else knows the transport
            opened[0].abort()
            raise
        return opened

    async def _resolve(self, host: str, port: int) -> list[str]:
        rows = await self._supervisor.offload(_look_up, host, port)
        return list(dict.fromkeys(str(row[4][0]) for row in rows))


async def first_to_answer(
    addresses: Sequence[str],
    attempt: Callable[[str], Coroutine[Any, Any, T]],
    undo: Callable[[T], None],
) -> T:
    """What `attempt(address)` gives for the first address that answers; `undo` lets go of others.

    Each address is tried a quarter of a second after the one before, or as soon as that has failed.

    Raises:
        OSError: all failed: the last one's error, with the others' in its notes.
    """
    attempts: dict[asyncio.Task[T], str] = {}
    failures: list[tuple[str, OSError]] = []
    left = deque(addresses)
    try:
        while left or attempts:
            if left:
                address = left.popleft()
                attempts[asyncio.create_task(attempt(address))] = address
            wait = NEXT_ADDRESS_AFTER if left else None
            done, _ = await asyncio.wait(
                attempts, timeout=wait, return_when=asyncio.FIRST_COMPLETED
            )
            for task in done:
                address, error = attempts.pop(task), task.exception()
                if error is None:
                    return task.result()
                if not isinstance(error, OSError):
                    raise error
                failures.append((address, error))
    finally:
        for task in attempts:
            task.cancel()
            task.add_done_callback(partial(_let_go, undo))
    *before, (_, last) = failures
    for address, failure in before:
        last.add_note(f"{address}: {failure}")
    raise last


def _let_go(undo: Callable[[T], None], task: asyncio.Task[T]) -> None:
    """The end of an attempt that nobody wants any more; it may have succeeded all the same."""
    if not task.cancelled() and task.exception() is None:
        undo(task.result())


def _abort(opened: tuple[asyncio.Transport, object]) -> None:
    opened[0].abort()


def _look_up(host: str, port: int) -> list[Any]:
    return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


def _keep_alive(transport: asyncio.Transport) -> None:
    sock = transport.get_extra_info("socket")
    if sock is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
