"""Readiness check of a cluster: a Metadata request to each of its brokers on a plain socket.

It does not use this project's client, which may be the code under test.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Sequence

from kafka_async.errors import KafkaError
from kafka_async.protocol.header import decode_response, encode_request
from kafka_async.protocol.messages.metadata import MetadataRequest, MetadataResponse

METADATA_VERSION = 12
MAX_RESPONSE_BYTES = 16 * 1024 * 1024
RETRY_DELAY = 0.05
"""Seconds."""


def wait_until_ready(
    servers: Sequence[str],
    *,
    brokers: int,
    timeout: float,
    check: Callable[[], None] = lambda: None,
) -> None:
    """Wait until each server responds and its metadata has at least `brokers` brokers.

    Args:
        servers: Addresses of the brokers, as host:port.
        brokers: Number of brokers that have to be alive.
        timeout: Maximum time in seconds.
        check: Called before each attempt; raises if waiting is futile.

    Raises:
        TimeoutError: The cluster was not ready after `timeout`; the message has the reason.
    """
    deadline = time.monotonic() + timeout
    pending = list(servers)
    reason = "no server was given"
    while pending:
        check()
        try:
            alive = broker_ids(pending[0], timeout=2)
        except (OSError, KafkaError) as error:
            reason = f"{pending[0]} does not respond: {error}"
        else:
            if len(alive) >= brokers:
                pending.pop(0)
                continue
            reason = f"{pending[0]} has only the brokers {sorted(alive)} in its metadata"
        if time.monotonic() > deadline:
            raise TimeoutError(f"the cluster was not ready after {timeout:g} s: {reason}")
        time.sleep(RETRY_DELAY)


def broker_ids(server: str, *, timeout: float) -> set[int]:
    """Return the ids of the brokers in a server's metadata.

    Args:
        server: The address, as host:port.
        timeout: Maximum time in seconds to connect, and for each read.

    Raises:
        OSError: The server could not be reached, closed the connection, or did not respond within
            `timeout`.
        KafkaError: The response is not a Metadata response.
    """
    host, _, port = server.strip().rpartition(":")
    request = MetadataRequest(topics=[])
    with socket.create_connection((host, int(port)), timeout=timeout) as stream:
        stream.sendall(b"".join(encode_request(request, METADATA_VERSION, 1, "probe")))
        (size,) = struct.unpack(">i", _receive(stream, 4))
        if not 0 < size <= MAX_RESPONSE_BYTES:
            raise OSError(f"{server} does not speak Kafka's protocol")
        _, response = decode_response(_receive(stream, size), MetadataResponse, METADATA_VERSION)
    return {broker.node_id for broker in response.brokers}


def _receive(stream: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = stream.recv(size - len(data))
        if not piece:
            raise ConnectionError("the connection was closed")
        data += piece
    return bytes(data)
