"""Stores rewinds of a group of the consumer protocol, so that all members can read them.

Members of such a group exchange no user data. Each partition's request and the replies to it are
the metadata of an offset that is committed for a second group, `<group id>.rewinds`, which has no
members: Kafka's compacted topic of offsets keeps the newest row of each partition.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from kafka_async.client.metadata.coordinator_lookup import CoordinatorKind
from kafka_async.client.metadata.request_router import CoordinatorOfGroup
from kafka_async.client.offset_fetch import fetch_offsets
from kafka_async.client.wire.requested_rows import requested_row, requested_rows
from kafka_async.client.wire.topic_ids import LAST_VERSION_WITH_NAMES
from kafka_async.errors import (
    GroupAuthorizationError,
    GroupIdNotFoundError,
    KafkaError,
    RefreshRetriableError,
    error_for,
)
from kafka_async.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    DescribedGroup,
)
from kafka_async.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafka_async.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from kafka_async.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable, Mapping

    from kafka_async.client.services import ClientServices

    Offsets = dict[TopicPartition, int]
    Reply = int | str

MAX_REPLIES: Final = 3
"""Replies kept in a row: another request may follow before a member has read its reply."""
MAX_REFUSAL: Final = 500
"""Characters of a refusal; brokers accept 4,096 bytes of metadata."""


@dataclass(frozen=True, slots=True)
class RewindRow:
    """The last request for a partition, with replies to it and to former requests.

    Attributes:
        offset: The offset to rewind to.
        request: Id of the request.
        expires_at: Seconds since the epoch after which the request must not be applied.
        replies: By request id, the offset that an owner has committed, or the reason of its
        refusal.
    """

    offset: int
    request: str = ""
    expires_at: float = 0.0
    replies: Mapping[str, Reply] = field(default_factory=dict[str, "Reply"])

    def is_pending(self, now: float) -> bool:
        """Return True if an owner must still reply to the request."""
        return bool(self.request) and self.request not in self.replies and now < self.expires_at

    def replied(self, request: str, reply: Reply) -> RewindRow:
        """Return the row with the reply to a request."""
        if isinstance(reply, str):
            reply = reply[:MAX_REFUSAL]
        former = {key: each for key, each in self.replies.items() if key != request}
        kept = dict(list(former.items())[1 - MAX_REPLIES :])
        return RewindRow(self.offset, self.request, self.expires_at, kept | {request: reply})

    def encode(self) -> str:
        """Return the metadata of the committed offset."""
        content = {"request": self.request, "expires": self.expires_at, "replies": self.replies}
        return json.dumps(content, separators=(",", ":"))

    @classmethod
    def decode(cls, offset: int, metadata: str) -> RewindRow:
        """Return a row, without a request if the metadata does not belong to a rewind."""
        try:
            content: Any = json.loads(metadata)
            replies = {
                str(name): reply if isinstance(reply, str) else int(reply)
                for name, reply in content["replies"].items()
            }
            return cls(offset, str(content["request"]), float(content["expires"]), replies)
        except (ValueError, KeyError, TypeError, AttributeError):
            # The group may be used by another program: its metadata is no error.
            return cls(offset)


class RewindStore:
    """Reads and writes the rewinds of a group; each call sends one request.

    Args:
        services: The client's connections.
        group_id: The group whose partitions are rewound.
        timeout: Maximum seconds of a call.
    """

    def __init__(self, services: ClientServices, group_id: str, timeout: float) -> None:
        self._services = services
        # The group that holds the rewinds; it has no members.
        self._group_id = group_id
        self._store_id = f"{group_id}.rewinds"
        self._timeout = timeout

    async def describe_group(self) -> DescribedGroup:
        """Describe the group. Raises KafkaError."""
        group_id = self._group_id
        response = await self._services.request(
            ConsumerGroupDescribeRequest(group_ids=[group_id]),
            to=CoordinatorOfGroup(group_id),
            timeout=self._timeout,
        )
        row = requested_row(group_id, response.groups, lambda row: row.group_id)
        if row.error_code:
            raise self._error(row.error_code, row.error_message, group_id, needs="DESCRIBE")
        return row

    async def read(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, RewindRow]:
        """Return the rows of partitions that have one. Raises KafkaError."""
        topics: defaultdict[str, list[int]] = defaultdict(list)
        partitions = sorted(partitions)
        for topic, number in partitions:
            topics[topic].append(number)
        rows = [OffsetFetchRequestTopics(name=t, partition_indexes=n) for t, n in topics.items()]

        def send(request: OffsetFetchRequest) -> Awaitable[OffsetFetchResponse]:
            return self._services.request(
                request,
                to=CoordinatorOfGroup(self._store_id),
                timeout=self._timeout,
                max_version=LAST_VERSION_WITH_NAMES[request.API_KEY],
            )

        group = await fetch_offsets(
            send,
            # Rewinds are not part of transactions, so open ones are not waited for.
            OffsetFetchRequestGroup(group_id=self._store_id, topics=rows),
            require_stable=False,
        )
        # No rewind was ever stored.
        if group.error_code == GroupIdNotFoundError.code:
            return {}
        if group.error_code:
            raise self._error(group.error_code, None, self._store_id, needs="DESCRIBE")
        fetched = {
            TopicPartition(topic.name, row.partition_index): row
            for topic in group.topics
            for row in topic.partitions
        }
        found: dict[TopicPartition, RewindRow] = {}
        for partition, row in requested_rows(partitions, fetched).items():
            if isinstance(row, KafkaError):
                raise row
            if row.error_code:
                raise self._row_error(row.error_code, *partition)
            if row.committed_offset >= 0:
                found[partition] = RewindRow.decode(row.committed_offset, row.metadata or "")
        return found

    async def write(self, rows: Mapping[TopicPartition, RewindRow]) -> None:
        """Replace the rows of partitions. Raises KafkaError."""
        topics: defaultdict[str, list[OffsetCommitRequestPartition]] = defaultdict(list)
        for (topic, number), row in sorted(rows.items(), key=lambda item: item[0]):
            topics[topic].append(
                OffsetCommitRequestPartition(
                    partition_index=number,
                    committed_offset=row.offset,
                    committed_metadata=row.encode(),
                )
            )
        response = await self._services.request(
            OffsetCommitRequest(
                group_id=self._store_id,
                topics=[OffsetCommitRequestTopic(name=t, partitions=p) for t, p in topics.items()],
            ),
            to=CoordinatorOfGroup(self._store_id),
            timeout=self._timeout,
            max_version=LAST_VERSION_WITH_NAMES[OffsetCommitRequest.API_KEY],
        )
        codes = {
            TopicPartition(topic.name, row.partition_index): row.error_code
            for topic in response.topics
            for row in topic.partitions
        }
        for partition, code in requested_rows(rows, codes).items():
            if isinstance(code, KafkaError):
                raise code
            if code:
                raise self._row_error(code, *partition)

    def _row_error(self, code: int, topic: str, partition: int) -> KafkaError:
        """Return the error of a partition, which may be the error of the store's group."""
        error = self._error(code, None, self._store_id, needs="READ")
        if isinstance(error, GroupAuthorizationError):
            return error
        return error_for(code, topic=topic, partition=partition, needs="READ")

    def _error(self, code: int, message: str | None, group_id: str, *, needs: str) -> KafkaError:
        error = error_for(code, message, needs=needs, name=group_id)
        # The coordinator has moved: the next call looks it up.
        if isinstance(error, RefreshRetriableError):
            self._services.coordinators.forget(CoordinatorKind.GROUP, group_id)
        return error
