"""Opens the connections to all brokers, and transfers their bytes.

Names are resolved in the client's threads, because asyncio's default executor belongs to the
application. All addresses of a name are tried, each a quarter of a second after the one before or
as soon as that has failed, and the first that connects is used (RFC 8305).

`Stream` is the asyncio protocol: received bytes go into the receiver's buffer without a copy. A
write is passed to the transport at once, or, while requests are in flight, together with the other
writes of the event loop iteration.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, cast

from kafka_async.foundation.fairness import MAX_BYTES_PER_WRITE

if TYPE_CHECKING:
    import ssl as ssl_module
    from collections.abc import Callable, Coroutine, Iterator, Sequence

    from kafka_async.foundation.supervisor import Supervisor
    from kafka_async.protocol.wire import BytesLike

T = TypeVar("T")
P = TypeVar("P", bound=asyncio.BaseProtocol)

MAX_JOINED_BYTES: Final = 64 * 1024
"""Buffers below this size, pieces of larger buffers included, are joined with neighbours."""
HIGH_WATER_MARK: Final = 512 * 1024
"""Bytes in the transport's buffer above which writing pauses."""
MAX_ABORT_TIME: Final = 1.0
"""Maximum seconds for an aborted transport to end, which takes an event loop iteration."""
NEXT_ADDRESS_AFTER: Final = 0.25
"""Seconds without a connection after which the next address is tried (RFC 8305)."""


class Receiver(Protocol):
    """Receives the bytes of a stream; all methods are event loop callbacks."""

    def room(self, sizehint: int) -> memoryview:
        """Return the buffer for the next bytes."""
        ...

    def received(self, nbytes: int) -> None:
        """Process bytes that were written into `room()`."""
        ...

    def lost(self, error: Exception | None) -> None:
        """Handle the end of the stream; `error` is None after an orderly close by either side."""
        ...


class Stream(asyncio.BufferedProtocol):
    """Sends and receives the bytes of one connection, which owns it and is the receiver.

    Reading starts with `attach`: of several addresses that are dialled concurrently only one
    becomes the connection.

    Attributes:
        ended: Done when the transport is closed.
        paused_at: Event loop time at which writing was paused; None while it is not.
    """

    def __init__(self, receiver: Receiver) -> None:
        # The transport calls the receiver directly: one call less per read.
        self.get_buffer = receiver.room
        self.buffer_updated = receiver.received
        # Reading: nothing is passed on before `attach`.
        self._receiver = receiver
        self._attached = False
        self._lost: Exception | None = None
        self._loop = asyncio.get_running_loop()
        # Writing: buffers for the end of the iteration, or until the transport has room.
        self._transport: asyncio.Transport | None = None
        self._outgoing: list[BytesLike] = []
        self._flush_scheduled = False
        self.paused_at: float | None = None
        self._drain_waiters: deque[asyncio.Future[None]] = deque()
        self.ended: asyncio.Future[None] = self._loop.create_future()

    # -- asyncio callbacks ------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Set up the transport; reading starts with `attach`."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=HIGH_WATER_MARK)
        # This may be one of several attempts; the others must not consume bytes.
        self._transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """Complete `ended` and inform the receiver."""
        self._outgoing.clear()
        if not self.ended.done():
            self.ended.set_result(None)
        self._wake_drain_waiters()
        self._lost = exc
        # Otherwise `attach` raises it.
        if self._attached:
            self._receiver.lost(exc)

    def pause_writing(self) -> None:
        """Keep writes until `resume_writing`: the transport's buffer is full."""
        self.paused_at = self._loop.time()

    def resume_writing(self) -> None:
        """Write what was kept while writing was paused."""
        self.paused_at = None
        self._flush()
        # Flushing may have filled the buffer again.
        if self.paused_at is None:
            self._wake_drain_waiters()

    # -- for the connection -----------------------------------------------------------------------

    def attach(self) -> None:
        """Start reading; raise ConnectionResetError or the cause if the peer has already closed."""
        if self._transport is None or self.ended.done():
            raise self._lost or ConnectionResetError("the broker closed the connection at once")
        self._attached = True
        self._transport.resume_reading()

    @property
    def tls_version(self) -> str | None:
        """Version of TLS, such as "TLSv1.3"; None for plaintext."""
        tls = None if self._transport is None else self._transport.get_extra_info("ssl_object")
        return None if tls is None else tls.version()

    @property
    def writing_paused(self) -> bool:
        """True while the peer reads more slowly than the client writes."""
        return self.paused_at is not None

    def write(self, parts: Sequence[BytesLike], flush: bool) -> None:
        """Send buffers, in order; they must not change until they are written.

        With `flush` they are written at once, otherwise together with all other writes of this
        event loop iteration.
        """
        # The common case, a single small request, needs no list.
        small = len(parts) == 1 and len(parts[0]) <= MAX_BYTES_PER_WRITE
        if small and flush and not (self._outgoing or self.writing_paused):
            assert self._transport is not None
            self._transport.write(parts[0])
            return
        self._outgoing.extend(parts)
        if flush:
            self._flush()
        elif not self._flush_scheduled:
            self._flush_scheduled = True
            self._loop.call_soon(self._run_scheduled_flush)

    async def drain(self) -> None:
        """Wait until writing is no longer paused or the connection has ended."""
        # Woken tasks may fill the buffer again, so each checks.
        while self.writing_paused and not self.ended.done():
            waiter = self._loop.create_future()
            self._drain_waiters.append(waiter)
            await waiter

    def pause_reading(self, pause: bool) -> None:
        """Pause or resume receiving."""
        if self._transport is None or self._transport.is_closing():
            return
        if pause:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def close(self) -> None:
        """Flush and close; `ended` is done when the transport is closed."""
        # After a second call, `abort` would have no effect in asyncio's TLS.
        if self._transport is not None and not self._transport.is_closing():
            self._transport.close()

    def abort(self) -> None:
        """Close at once, without flushing."""
        if self._transport is not None:
            self._transport.abort()

    def _run_scheduled_flush(self) -> None:
        self._flush_scheduled = False
        self._flush()

    def _flush(self) -> None:
        transport = self._transport
        if transport is None:
            return
        # The transport pauses writing in `write`; `_chunks` then keeps the rest.
        for chunk in self._chunks():
            transport.write(chunk)

    def _chunks(self) -> Iterator[BytesLike]:
        """Yield the bytes to write, small buffers joined, until writing is paused."""
        parts, self._outgoing = self._outgoing, []
        first = 0
        # Each pass yields a piece of a large buffer, a single buffer, or several small ones joined.
        while first < len(parts):
            if self.writing_paused:
                self._outgoing[:0] = parts[first:]
                return
            if len(parts[first]) > MAX_BYTES_PER_WRITE:
                # Up to Python 3.11, asyncio copies the bytes that the socket does not accept.
                view = memoryview(parts[first])
                parts[first] = view[MAX_BYTES_PER_WRITE:]
                yield view[:MAX_BYTES_PER_WRITE]
                continue
            last = first + 1
            if len(parts[first]) < MAX_JOINED_BYTES:
                while last < len(parts) and len(parts[last]) < MAX_JOINED_BYTES:
                    last += 1
            yield parts[first] if last == first + 1 else b"".join(parts[first:last])
            first = last

    def _wake_drain_waiters(self) -> None:
        while self._drain_waiters:
            waiter = self._drain_waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)


class OpenStreams:
    """Tracks the streams of a client until they have ended.

    The orderly end of a TLS stream waits for the broker, longer than the connection is used.
    """

    def __init__(self) -> None:
        self._streams: set[Stream] = set()

    def add(self, stream: Stream) -> None:
        """Track a stream that has been dialled."""
        self._streams.add(stream)
        stream.ended.add_done_callback(lambda _: self._streams.discard(stream))

    async def wait_ended(self, timeout: float) -> None:
        """Wait until all streams have ended; abort those still open after `timeout` seconds."""
        ended = {stream.ended for stream in self._streams}
        if not ended:
            return
        _, late = await asyncio.wait(ended, timeout=max(0.0, timeout))
        # `ended` needs one more iteration after an abort.
        for stream in list(self._streams):
            stream.abort()
        if late:
            await asyncio.wait(late, timeout=MAX_ABORT_TIME)


class SocketDialer:
    """Opens TCP and TLS connections in the running loop. It is a `Dialer`."""

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
        """Connect to the first address of `host` that accepts the connection.

        Raises as `first_to_connect`; `ssl.SSLError` and `socket.gaierror` are subclasses of
        OSError.
        """
        host = host.removeprefix("[").removesuffix("]")
        # An address needs no thread for its resolution.
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

        # Without the race, which costs tasks.
        if len(addresses) == 1:
            opened = await open_one(addresses[0])
        else:
            opened = await first_to_connect(addresses, open_one, _abort)
        try:
            _enable_keep_alive(opened[0])
        except OSError:  # the peer has closed the connection
            opened[0].abort()
            raise
        return opened

    async def _resolve(self, host: str, port: int) -> list[str]:
        rows = await self._supervisor.offload(_getaddrinfo, host, port)
        # Without duplicates, which would only repeat a failure.
        return list(dict.fromkeys(str(row[4][0]) for row in rows))


async def first_to_connect(
    addresses: Sequence[str],
    attempt: Callable[[str], Coroutine[Any, Any, T]],
    undo: Callable[[T], None],
) -> T:
    """Return the result of `attempt(address)` for the first address that succeeds.

    Each address is tried NEXT_ADDRESS_AFTER seconds after the one before, or as soon as that has
    failed. Further results are passed to `undo`. If all attempts fail, the OSError of the last one
    is raised, with the others in its notes.
    """
    attempts: dict[asyncio.Task[T], str] = {}
    failures: list[tuple[str, OSError]] = []
    remaining = deque(addresses)
    try:
        # Each pass starts one attempt, then waits for the first result or for the next attempt's
        # time.
        while remaining or attempts:
            if remaining:
                address = remaining.popleft()
                attempts[asyncio.create_task(attempt(address))] = address
            wait = NEXT_ADDRESS_AFTER if remaining else None
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
            # Cancelled too late, an attempt may still succeed.
            task.cancel()
            task.add_done_callback(partial(_undo_result, undo))
    *before, (_, last) = failures
    for address, failure in before:
        last.add_note(f"{address}: {failure}")
    raise last


def _undo_result(undo: Callable[[T], None], task: asyncio.Task[T]) -> None:
    """Undo an attempt that succeeded although it was cancelled."""
    if not task.cancelled() and task.exception() is None:
        undo(task.result())


def _abort(opened: tuple[asyncio.Transport, object]) -> None:
    opened[0].abort()


def _getaddrinfo(host: str, port: int) -> list[Any]:
    try:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError:
        # A broker may advertise any text as its host name.
        raise socket.gaierror(socket.EAI_NONAME, "not a valid host name") from None


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


def _enable_keep_alive(transport: asyncio.Transport) -> None:
    sock = transport.get_extra_info("socket")
    # A peer that vanishes without a FIN would otherwise be noticed only by a request's timeout.
    if sock is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
