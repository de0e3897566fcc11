"""TLS at the broker, over any transport of asyncio.

asyncio's server-side TLS drops the alert with the reason of a failed handshake. Apache Kafka sends
it, and clients report it, so this module runs the handshake itself.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import threading
from typing import TYPE_CHECKING, Any, Final, cast

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafka_async.embedded.state.brokers import Broker

logger = logging.getLogger("kafka_async.embedded")

LINGER_SECONDS: Final = 0.5
"""Time for a client to read the alert and to close the connection, before the broker closes it."""

INTERNAL_ERROR: Final = bytes((21, 3, 3, 0, 2, 2, 80))
"""The alert that Apache Kafka sends for bytes that are not TLS; OpenSSL has no such alert."""

_CONTEXTS_LOCK: Final = threading.Lock()
"""Held by any thread while a context's `verify_mode` differs from the application's."""


class TlsConnection(asyncio.Protocol):
    """Decrypts a client's connection for a protocol, and encrypts the protocol's output.

    Args:
        context: Server-side context.
        verify_mode: Determines if the client needs a certificate; None for the context's own mode.
        broker: The broker; if it stops during the handshake, it closes the connection.
        protocol: Gets a transport after a successful handshake.
    """

    def __init__(
        self,
        context: ssl.SSLContext,
        verify_mode: ssl.VerifyMode | None,
        broker: Broker,
        protocol: asyncio.BufferedProtocol,
    ) -> None:
        self.protocol = protocol
        self._broker = broker
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.ssl_object = _server_object(context, verify_mode, self._incoming, self._outgoing)
        self._raw: asyncio.Transport | None = None
        self._established = False
        self._failed = False
        self._reading = True
        self._lost = asyncio.Event()

    # -- asyncio.Protocol -------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the client's handshake."""
        self._raw = cast("asyncio.Transport", transport)  # uvloop's is its own class
        if self._broker.alive:
            self._broker.connections.add(self)
        else:
            self._raw.abort()

    def data_received(self, data: bytes) -> None:
        """Continue the handshake, or pass decrypted bytes on."""
        if self._failed:
            return
        self._incoming.write(data)
        if self._established or self._shake_hands():
            self.deliver()

    def eof_received(self) -> bool:
        """Close the connection."""
        return False

    def pause_writing(self) -> None:
        """Pause the protocol's writing."""
        if self._established:
            self.protocol.pause_writing()

    def resume_writing(self) -> None:
        """Resume the protocol's writing."""
        if self._established:
            self.protocol.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Notify the protocol if the handshake was successful."""
        self._broker.connections.discard(self)
        self._lost.set()
        if self._established:
            self.protocol.connection_lost(exc)

    # -- for the broker, until the handshake is over ----------------------------------------------

    def abort(self) -> None:
        """Reset the connection."""
        self.raw.abort()

    async def close(self) -> None:
        """Reset the connection and wait until it has ended."""
        self.abort()
        await self._lost.wait()

    # -- for the transport ------------------------------------------------------------------------

    @property
    def raw(self) -> asyncio.Transport:
        """The transport of encrypted bytes."""
        assert self._raw is not None
        return self._raw

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        """Encrypt and write bytes."""
        if not data or self.raw.is_closing():
            return
        view = memoryview(data)
        while view:
            view = view[self.ssl_object.write(view) :]
        self._flush()

    def shut_down(self) -> None:
        """End the encrypted stream, and close the connection after all output is written."""
        if self.raw.is_closing():
            return
        try:
            self.ssl_object.unwrap()
        except ssl.SSLError:
            pass  # Do not wait for the client's close_notify.
        self._flush()
        self.raw.close()

    def set_reading(self, *, reading: bool) -> None:
        """Pause or resume reading."""
        self._reading = reading
        if reading:
            self.raw.resume_reading()
            asyncio.get_running_loop().call_soon(self.deliver)
        else:
            self.raw.pause_reading()

    def deliver(self) -> None:
        """Decrypt the received bytes until the protocol pauses reading."""
        while self._reading and not self.raw.is_closing():
            buffer = cast("memoryview", self.protocol.get_buffer(-1))
            try:
                count = cast("int", self.ssl_object.read(len(buffer), buffer))
            except ssl.SSLWantReadError:
                break
            except ssl.SSLError as error:
                self._fail(error)
                return
            if count == 0:  # the client's close_notify
                self.shut_down()
                return
            self.protocol.buffer_updated(count)
        self._flush()

    # -- the handshake ----------------------------------------------------------------------------

    def _shake_hands(self) -> bool:
        """Return True when the handshake is complete."""
        try:
            self.ssl_object.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return False
        except ssl.SSLError as error:
            self._fail(error)
            return False
        self._flush()
        self._established = True
        self._broker.connections.discard(self)
        self.protocol.connection_made(TlsTransport(self))
        return True

    def _fail(self, error: ssl.SSLError) -> None:
        """Send the alert, and close the connection if the client does not."""
        logger.info("broker %d closes a connection: TLS failed: %s", self._broker.id, error.reason)
        self._failed = True
        if not self._outgoing.pending and not self._established:
            self._outgoing.write(INTERNAL_ERROR)
        self._flush()
        asyncio.get_running_loop().call_later(LINGER_SECONDS, self.raw.close)

    def _flush(self) -> None:
        if self._outgoing.pending and not self.raw.is_closing():
            self.raw.write(self._outgoing.read())


def _server_object(
    context: ssl.SSLContext,
    verify_mode: ssl.VerifyMode | None,
    incoming: ssl.MemoryBIO,
    outgoing: ssl.MemoryBIO,
) -> ssl.SSLObject:
    """Return the server side of a connection, with a mode that may differ from the context's.

    A context cannot be copied and an object has no setter, but OpenSSL copies the context's mode
    into each new object. So the context has the other mode only during this call.
    """
    with _CONTEXTS_LOCK:
        mode = context.verify_mode
        if verify_mode is not None:
            context.verify_mode = verify_mode
        try:
            return context.wrap_bio(incoming, outgoing, server_side=True)
        finally:
            context.verify_mode = mode


class TlsTransport(asyncio.Transport):
    """The transport for the protocol above TLS."""

    def __init__(self, connection: TlsConnection) -> None:
        super().__init__()
        self._connection = connection
        self._extra: dict[str, Callable[[], object]] = {
            "ssl_object": lambda: connection.ssl_object,
            "peercert": lambda: connection.ssl_object.getpeercert(binary_form=True),
        }

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return the TLS object, the client's certificate in DER, or the socket's information."""
        if name in self._extra:
            return self._extra[name]()
        return self._connection.raw.get_extra_info(name, default)

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        """Encrypt and write bytes."""
        self._connection.write(data)

    def close(self) -> None:
        """Close after all output is written."""
        self._connection.shut_down()

    def abort(self) -> None:
        """Reset the connection."""
        self._connection.raw.abort()

    def is_closing(self) -> bool:
        """Return True if the connection is closed or closing."""
        return self._connection.raw.is_closing()

    def pause_reading(self) -> None:
        """Stop calling the protocol's methods for received bytes."""
        self._connection.set_reading(reading=False)

    def resume_reading(self) -> None:
        """Continue with received bytes."""
        self._connection.set_reading(reading=True)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the water marks for pausing and resuming the protocol's writing."""
        self._connection.raw.set_write_buffer_limits(high, low)
