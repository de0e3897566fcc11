"""Servers with one response per connection, such as a broker that serves Metadata requests."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress

from kafka_async.protocol.header import encode_response
from kafka_async.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
)
from tests import request_checks


@contextmanager
def server(respond: Callable[[bytes], bytes], port: int = 0) -> Generator[str]:
    """Serve one request per connection, and yield the address."""
    with socket.create_server(("127.0.0.1", port)) as listener:
        host, bound = listener.getsockname()

        def serve() -> None:
            while True:
                connection, _ = listener.accept()
                with connection, suppress(ConnectionError):
                    request = connection.recv(65536)
                    if request == b"end":
                        return
                    connection.sendall(respond(request))

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"{host}:{bound}"
        finally:
            with socket.create_connection((host, bound)) as last:
                last.sendall(b"end")
            thread.join()


def metadata_of(*ids: int) -> Callable[[bytes], bytes]:
    """Return a function that responds to Metadata requests with the brokers of these ids."""

    def respond(frame: bytes) -> bytes:
        received = request_checks.receive(frame[4:])
        assert received is not None
        header, request = received
        assert isinstance(request, MetadataRequest)
        brokers = [MetadataResponseBroker(node_id=one, host="h", port=1) for one in ids]
        response = MetadataResponse(brokers=brokers)
        return b"".join(encode_response(response, header.api_version, header.correlation_id))

    return respond
