"""Sends raw requests to the brokers of any cluster over blocking sockets, without a client."""

from __future__ import annotations

import socket
import time
from typing import Any, TypeVar

from kafka_async.embedded import ErrorCode
from kafka_async.protocol.header import decode_response, encode_request
from kafka_async.protocol.message import Request, Response
from kafka_async.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from kafka_async.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafka_async.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

R = TypeVar("R", bound=Response)

TIMEOUT = 20.0
"""Seconds."""
NOT_READY = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}


class RawConnection:
    """Exchanges requests and responses with one broker."""

    def __init__(self, host: str, port: int) -> None:
        self.address = host, port
        self._socket = socket.create_connection((host, port), timeout=TIMEOUT)
        self._sent = 0

    def call(self, request: Request[R], version: int, *, extra: bytes = b"") -> R:
        """Send a request, with `extra` bytes at the end of its frame; return its response."""
        return self.exchange(request, version, extra=extra)[0]

    def exchange(self, request: Request[R], version: int, *, extra: bytes = b"") -> tuple[R, bytes]:
        """Return the response to a request, decoded to the last byte, and its frame."""
        self._sent += 1
        parts: list[Any] = encode_request(request, version, self._sent, "raw")
        body = b"".join(parts)[4:] + extra
        self._socket.sendall(len(body).to_bytes(4, "big") + body)
        frame = self._read(int.from_bytes(self._read(4), "big"))
        correlation_id, response = decode_response(frame, request.RESPONSE, version)
        assert correlation_id == self._sent
        return response, frame

    def is_closed_after(self, data: bytes) -> bool:
        """Send bytes, and return whether the broker closes the connection without a response."""
        self._socket.sendall(data)
        try:
            return self._socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def close(self) -> None:
        self._socket.close()

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self._socket.recv(size - len(data))
            assert more, "the broker closed the connection"
            data += more
        return data


class RawCluster:
    """Opens connections to the brokers of a cluster by their role."""

    def __init__(self, bootstrap_servers: str) -> None:
        host, _, port = bootstrap_servers.split(",")[0].rpartition(":")
        self._connections: dict[tuple[str, int], RawConnection] = {}
        self.any = self._connection(host, int(port))

    def coordinator(self, kind: int, key: str) -> RawConnection:
        """Return a connection to the coordinator of a group (kind 0) or transactional id (1)."""
        deadline = time.monotonic() + TIMEOUT
        while True:
            request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
            [found] = self.any.call(request, 4).coordinators
            if found.error_code not in NOT_READY or time.monotonic() > deadline:
                assert found.error_code == ErrorCode.NONE
                return self._connection(found.host, found.port)
            time.sleep(0.1)

    def create_topic(self, name: str, leader: int | None = None) -> RawConnection:
        """Create a topic with one partition, on a broker or on any; connect to the leader."""
        if leader is None:
            topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
        else:
            place = CreatableReplicaAssignment(partition_index=0, broker_ids=[leader])
            topic = CreatableTopic(
                name=name, num_partitions=-1, replication_factor=-1, assignments=[place]
            )
        self.any.call(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 5)
        return self.leader(name)

    def leader(self, name: str) -> RawConnection:
        """Wait until a topic has a leader of its first partition, and return a connection to it."""
        deadline = time.monotonic() + TIMEOUT
        while True:
            request = MetadataRequest(topics=[MetadataRequestTopic(name=name)])
            response = self.any.call(request, 9)
            if response.topics[0].error_code == ErrorCode.NONE or time.monotonic() > deadline:
                partition = response.topics[0].partitions[0]
                broker = next(it for it in response.brokers if it.node_id == partition.leader_id)
                return self._connection(broker.host, broker.port)
            time.sleep(0.1)

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()

    def _connection(self, host: str, port: int) -> RawConnection:
        if (host, port) not in self._connections:
            self._connections[host, port] = RawConnection(host, port)
        return self._connections[host, port]
