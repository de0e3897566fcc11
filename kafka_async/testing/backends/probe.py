"""Whether a cluster serves: one Metadata request to each of its brokers, on a plain socket.

It uses no client of ours, so that a backend can be started while the client is what is under test.
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
LARGEST_ANSWER = 16 * 1024 * 1024


def wait_until_ready(
    servers: Sequence[str],
    *,
    brokers: int,
    timeout: float,
    check: Callable[[], None] = lambda: None,
) -> None:
    """Wait until each server answers and says that the cluster has at least `brokers` brokers.

    `check` is called before each attempt, and raises when there is nothing left to wait for.

    Raises:
        TimeoutError: that was not so after `timeout` seconds; the message says how far it came.
    """
    deadline = time.monotonic() + timeout
    waiting = list(servers)
    said = "nobody was asked"
    while waiting:
        check()
        try:
            known = broker_ids(waiting[0], timeout=2)
        except (OSError, KafkaError) as error:
            said = f"{waiting[0]} does not answer: {error}"
        else:
            if len(known) >= brokers:
                waiting.pop(0)
                continue
            said = f"{waiting[0]} knows only of the brokers {sorted(known)}"
        if time.monotonic() > deadline:
            raise TimeoutError(f"the cluster was not ready after {timeout:g} s: {said}")
        time.sleep(0.05)


def broker_ids(server: str, *, timeout: float) -> set[int]:
    """The ids of the brokers that a server believes to be alive.

    Raises:
        OSError: it cannot be reached, hung up, or took longer than `timeout` seconds.
        KafkaError: what it answered is no Metadata response.
    """
    host, _, port = server.strip().rpartition(":")
    request = MetadataRequest(topics=[])
    with socket.create_connection((host, int(port)), timeout=timeout) as stream:
        stream.sendall(b"".join(encode_request(request, METADATA_VERSION, 1, "probe")))
        (size,) = struct.unpack(">i", _receive(stream, 4))
        if not 0 < size <= LARGEST_ANSWER:
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
