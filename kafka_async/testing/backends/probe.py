"""Readiness check of a cluster: a Metadata request to each of its brokers on a plain socket.

It does not use this project's client, since that may be the code under test.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Sequence
from typing import BinaryIO

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

    `check` is called before each attempt, and raises if waiting is futile. Raises TimeoutError with
    the last error after `timeout` seconds.
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
    """Return the broker ids in a server's metadata; raise OSError or KafkaError if not ready.

    `timeout` is the maximum time in seconds to connect, and for each read.
    """
    host, _, port = server.strip().rpartition(":")
    request = MetadataRequest(topics=[])
    with (
        socket.create_connection((host, int(port)), timeout=timeout) as connection,
        connection.makefile("rb") as stream,
    ):
        connection.sendall(b"".join(encode_request(request, METADATA_VERSION, 1, "probe")))
        (size,) = struct.unpack(">i", _receive(stream, 4))
        if not 0 < size <= MAX_RESPONSE_BYTES:
            raise OSError(f"{server} does not speak Kafka's protocol")
        _, response = decode_response(_receive(stream, size), MetadataResponse, METADATA_VERSION)
    return {broker.node_id for broker in response.brokers}


def _receive(stream: BinaryIO, size: int) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        raise ConnectionError("the connection was closed")
    return data
