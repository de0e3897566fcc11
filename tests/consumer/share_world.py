"""A scripted cluster with a share group, on connections in memory and virtual time.

It responds to heartbeats with an assignment, and to ShareFetch with what `offer` has put there. It
checks the epochs of share sessions as a broker does, and notes the acknowledgements.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from typing import TYPE_CHECKING, Any, NamedTuple

from kafka_async.consumer.share.share_consumer import ShareConsumer
from kafka_async.protocol.messages import share_acknowledge, share_fetch, share_group_heartbeat
from kafka_async.protocol.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from kafka_async.records.batch import RecordBatch
from kafka_async.types import ProducerRecord
from tests.client.scripted import ScriptedBroker, World

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafka_async.protocol.header import RequestHeader
    from tests.client.scripted import Peer

FIND_COORDINATOR, HEARTBEAT, FETCH, ACKNOWLEDGE = 10, 76, 78, 79
SESSION_NOT_FOUND, INVALID_EPOCH = 122, 123
LOCK_MS = 30_000
ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4


class Acknowledged(NamedTuple):
    """A range of acknowledged offsets, with the API and the broker that it came to."""

    api: int
    broker: int
    partition: int
    first: int
    last: int
    types: tuple[int, ...]


class ShareWorld(World):
    """Has topic "t" and a share group "g" with one member.

    Attributes:
        acknowledged: The acknowledgements in order.
        epochs: Session epochs of all requests, by broker.
        heartbeat_errors: Error codes of the next heartbeats.
        errors: Top-level error codes of the next requests, by API.
        acknowledge_errors: Error codes of acknowledgements, by partition, until removed.
        silent: APIs that get no response.
    """

    def __init__(self, *leaders: int) -> None:
        super().__init__()
        for node_id in set(leaders) - {1}:
            self.brokers[node_id] = ScriptedBroker(self, node_id, f"b{node_id}", 9092)
        self.add("t", *(leaders or (1,)))
        self.acknowledged: list[Acknowledged] = []
        self.epochs: defaultdict[int, list[int]] = defaultdict(list)
        self.heartbeat_errors: deque[int] = deque()
        self.errors: defaultdict[int, deque[int]] = defaultdict(deque)
        self.acknowledge_errors: dict[int, int] = {}
        self.silent: set[int] = set()
        self.heartbeats: list[share_group_heartbeat.ShareGroupHeartbeatRequest] = []
        self._sessions: dict[Peer, int] = {}
        self._offered: defaultdict[int, deque[share_fetch.PartitionData]] = defaultdict(deque)
        self.handlers = {
            FIND_COORDINATOR: self._find,
            HEARTBEAT: self._heartbeat,
            FETCH: self._fetch,
            ACKNOWLEDGE: self._acknowledge,
        }

    def consumer(self, **options: Any) -> ShareConsumer:
        given: dict[str, Any] = {"topics": ["t"], "group_id": "g", **options}
        return ShareConsumer(self.servers, dialer=self.network, **given)

    def offer(
        self,
        first: int,
        values: Sequence[bytes],
        *,
        partition: int = 0,
        acquired: tuple[int, int] | None = None,
        count: int = 1,
        records: bytes | None = None,
    ) -> None:
        """Let the next ShareFetch acquire one batch of records, or a range of its offsets."""
        if records is None:
            batch = RecordBatch.build([ProducerRecord("", value) for value in values], timestamp=1)
            records = first.to_bytes(8, "big") + batch.frame()[8:]
        low, high = acquired or (first, first + len(values) - 1)
        row = share_fetch.AcquiredRecords(first_offset=low, last_offset=high, delivery_count=count)
        self._offered[partition].append(
            share_fetch.PartitionData(
                partition_index=partition, records=records, acquired_records=[row]
            )
        )

    def share_requests(self, api: int, broker: int = 1) -> list[Any]:
        return self.brokers[broker].requests(api)

    # -- handlers ---------------------------------------------------------------------------------

    def _find(self, peer: Peer, header: RequestHeader, request: Any) -> FindCoordinatorResponse:
        rows = [
            Coordinator(key=key, node_id=1, host="b1", port=9092)
            for key in request.coordinator_keys
        ]
        return FindCoordinatorResponse(coordinators=rows)

    def _heartbeat(self, peer: Peer, header: RequestHeader, request: Any) -> Any:
        self.heartbeats.append(request)
        if request.member_epoch < 0:
            return share_group_heartbeat.ShareGroupHeartbeatResponse(member_epoch=-1)
        if self.heartbeat_errors and (code := self.heartbeat_errors.popleft()):
            return share_group_heartbeat.ShareGroupHeartbeatResponse(error_code=code)
        assignment = share_group_heartbeat.Assignment(
            topic_partitions=[
                share_group_heartbeat.TopicPartitions(
                    topic_id=self.ids["t"], partitions=list(range(len(self.topics["t"])))
                )
            ]
        )
        return share_group_heartbeat.ShareGroupHeartbeatResponse(
            member_id=request.member_id,
            member_epoch=request.member_epoch or 1,
            heartbeat_interval_ms=1000,
            assignment=None if request.member_epoch else assignment,
        )

    def _check(self, peer: Peer, api: int, epoch: int) -> int:
        """Return the error code for the epoch of a session, and move it on."""
        self.epochs[peer.broker.node_id].append(epoch)
        if self.errors[api] and (code := self.errors[api].popleft()):
            return code
        expected = self._sessions.get(peer)
        if epoch > 0 and expected is None:
            return SESSION_NOT_FOUND
        if epoch > 0 and epoch != expected:
            return INVALID_EPOCH
        if epoch == 0 and api == ACKNOWLEDGE:
            return INVALID_EPOCH
        self._sessions[peer] = epoch + 1
        return 0

    def _note(self, peer: Peer, api: int, rows: Any) -> list[int]:
        """Note acknowledgements; return the partitions that have some."""
        found: list[int] = []
        for topic in rows:
            for row in topic.partitions:
                if row.acknowledgement_batches:
                    found.append(row.partition_index)
                for each in row.acknowledgement_batches:
                    offsets = each.first_offset, each.last_offset, tuple(each.acknowledge_types)
                    self.acknowledged.append(
                        Acknowledged(api, peer.broker.node_id, row.partition_index, *offsets)
                    )
        return found

    def _fetch(self, peer: Peer, header: RequestHeader, request: Any) -> Any:
        if FETCH in self.silent:
            return None
        if code := self._check(peer, FETCH, request.share_session_epoch):
            return share_fetch.ShareFetchResponse(error_code=code)
        acknowledged = self._note(peer, FETCH, request.topics)
        rows: dict[int, share_fetch.PartitionData] = {}
        for index, leader in enumerate(self.topics["t"]):
            if leader == peer.broker.node_id and self._offered[index]:
                rows[index] = self._offered[index].popleft()
        for index in acknowledged:
            row = rows.setdefault(
                index, share_fetch.PartitionData(partition_index=index, records=b"")
            )
            row.acknowledge_error_code = self.acknowledge_errors.get(index, 0)
        topic = share_fetch.ShareFetchableTopicResponse(
            topic_id=self.ids["t"], partitions=list(rows.values())
        )
        response = share_fetch.ShareFetchResponse(
            acquisition_lock_timeout_ms=LOCK_MS, responses=[topic] if rows else []
        )
        if rows:
            return response
        loop = asyncio.get_running_loop()
        loop.call_later(request.max_wait_ms / 1000, self._respond, peer, header, response)
        return None

    def _respond(self, peer: Peer, header: RequestHeader, response: Any) -> None:
        if peer.open:
            peer.respond(header, response)

    def _acknowledge(self, peer: Peer, header: RequestHeader, request: Any) -> Any:
        if ACKNOWLEDGE in self.silent:
            return None
        if code := self._check(peer, ACKNOWLEDGE, request.share_session_epoch):
            return share_acknowledge.ShareAcknowledgeResponse(error_code=code)
        rows = [
            share_acknowledge.PartitionData(
                partition_index=index,
                error_code=self.acknowledge_errors.get(index, 0),
                current_leader=share_acknowledge.LeaderIdAndEpoch(
                    leader_id=self.topics["t"][index], leader_epoch=1
                ),
            )
            for index in self._note(peer, ACKNOWLEDGE, request.topics)
        ]
        topic = share_acknowledge.ShareAcknowledgeTopicResponse(
            topic_id=self.ids["t"], partitions=rows
        )
        return share_acknowledge.ShareAcknowledgeResponse(
            acquisition_lock_timeout_ms=LOCK_MS, responses=[topic] if rows else []
        )
