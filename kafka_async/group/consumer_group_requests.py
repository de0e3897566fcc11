"""Heartbeats of a member whose coordinator assigns (KIP-848, KIP-932), as generators. Pure.

Each generator yields requests, is sent the responses, and returns the result or raises the broker's
error. The action for an error is a row in `member_states.py`.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias
from uuid import UUID

from kafka_async.config import request_ms
from kafka_async.errors import error_for
from kafka_async.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
)
from kafka_async.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

if TYPE_CHECKING:
    from collections.abc import Generator

    from kafka_async.errors import KafkaError
    from kafka_async.group.member import GroupSubscription, LocalMember
    from kafka_async.protocol.messages.consumer_group_heartbeat import (
        ConsumerGroupHeartbeatResponse,
    )
    from kafka_async.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatResponse

    HeartbeatResponse: TypeAlias = ConsumerGroupHeartbeatResponse | ShareGroupHeartbeatResponse

TopicIdPartition: TypeAlias = tuple[UUID, int]
HeartbeatRequest: TypeAlias = ConsumerGroupHeartbeatRequest | ShareGroupHeartbeatRequest
Procedure: TypeAlias = "Generator[HeartbeatRequest, HeartbeatResponse, HeartbeatResult]"

# Epochs of the protocol: a static member leaves temporarily with -2, and keeps its partitions.
JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
STATIC_LEAVE_EPOCH: Final = -2
DEFAULT_ASSIGNOR: Final = "the coordinator's default assignor"
"""Name for an assignor that the member has not chosen; no heartbeat response contains it."""


class HeartbeatResult(NamedTuple):
    """Content of a successful response.

    Attributes:
        member_id: Id of the member.
        epoch: Epoch of the member.
        interval: Seconds until the next heartbeat.
        assignment: Partitions of the member, or None if they are unchanged.
    """

    member_id: str
    epoch: int
    interval: float
    assignment: frozenset[TopicIdPartition] | None


class _Statement(NamedTuple):
    """Subscription and partitions of the member, as the coordinator has them."""

    subscription: GroupSubscription
    owned: frozenset[TopicIdPartition]


class HeartbeatRequests:
    """Builds heartbeats that state only what has changed since the last successful one.

    After a failed heartbeat the next one states everything: the coordinator may or may not have
    handled it.
    """

    api_key: int
    assignor_name = DEFAULT_ASSIGNOR

    def __init__(self, rack: str | None) -> None:
        self._rack = rack
        self._known: _Statement | None = None

    def forget(self) -> None:
        """State everything in the next heartbeat."""
        self._known = None

    def join(self, member: LocalMember, subscription: GroupSubscription) -> Procedure:
        """Join the group."""
        self.forget()
        return self._send(member, JOIN_EPOCH, _Statement(subscription, frozenset()))

    def stay(
        self,
        member: LocalMember,
        subscription: GroupSubscription,
        owned: frozenset[TopicIdPartition],
    ) -> Procedure:
        """Stay in the group; `owned` are the partitions that the member has taken over."""
        return self._send(member, member.generation, _Statement(subscription, owned))

    def leave(
        self, member: LocalMember, version: int, reason: str
    ) -> Generator[HeartbeatRequest, HeartbeatResponse, None]:
        """Leave the group."""
        response = yield self._leave_request(member)
        if response.error_code:
            raise _error(response, member)

    def _send(self, member: LocalMember, epoch: int, stated: _Statement) -> Procedure:
        # Cleared until the response has arrived: without one, the next heartbeat states everything.
        known, self._known = self._known, None
        response = yield self._request(member, epoch, stated, known)
        if response.error_code:
            raise _error(response, member)
        self._known = stated
        assignment = response.assignment
        return HeartbeatResult(
            response.member_id or member.member_id,
            response.member_epoch,
            response.heartbeat_interval_ms / 1000,
            None
            if assignment is None
            else frozenset(
                (row.topic_id, index)
                for row in assignment.topic_partitions
                for index in row.partitions
            ),
        )

    def _request(
        self, member: LocalMember, epoch: int, stated: _Statement, known: _Statement | None
    ) -> HeartbeatRequest:
        raise NotImplementedError

    def _leave_request(self, member: LocalMember) -> HeartbeatRequest:
        raise NotImplementedError


class ConsumerHeartbeatRequests(HeartbeatRequests):
    """Builds heartbeats of a member in the consumer protocol (KIP-848)."""

    api_key = ConsumerGroupHeartbeatRequest.API_KEY

    def __init__(self, assignor: str | None, rack: str | None) -> None:
        super().__init__(rack)
        self._assignor = assignor
        self.assignor_name = assignor or DEFAULT_ASSIGNOR
        self._has_sent_pattern = False

    def _request(
        self, member: LocalMember, epoch: int, stated: _Statement, known: _Statement | None
    ) -> ConsumerGroupHeartbeatRequest:
        settings = member.settings
        request = ConsumerGroupHeartbeatRequest(
            group_id=settings.group_id,
            member_id=member.member_id,
            member_epoch=epoch,
            instance_id=settings.group_instance_id,
        )
        # Fixed for a member, so they are sent once.
        if known is None:
            request.rack_id = self._rack
            request.rebalance_timeout_ms = request_ms(settings.rebalance_timeout)
            request.server_assignor = self._assignor
        topics, pattern = stated.subscription
        # A missing field means that it has not changed (KIP-848).
        if known is None or topics != known.subscription.topics:
            request.subscribed_topic_names = sorted(topics)
        # Version 0 has no regular expressions, so an empty one is sent only to end another.
        before = None if known is None else known.subscription.pattern
        if pattern != before and (pattern or self._has_sent_pattern):
            request.subscribed_topic_regex = pattern
            self._has_sent_pattern = True
        if known is None or stated.owned != known.owned:
            request.topic_partitions = _by_topic(stated.owned)
        return request

    def _leave_request(self, member: LocalMember) -> ConsumerGroupHeartbeatRequest:
        """Return the request; a static member leaves for a while, and keeps its partitions."""
        instance_id = member.settings.group_instance_id  # KIP-345
        return ConsumerGroupHeartbeatRequest(
            group_id=member.settings.group_id,
            member_id=member.member_id,
            member_epoch=LEAVE_EPOCH if instance_id is None else STATIC_LEAVE_EPOCH,
            instance_id=instance_id,
        )


class ShareHeartbeatRequests(HeartbeatRequests):
    """Builds heartbeats of a member of a share group (KIP-932).

    They do not include the partitions that the member owns: other members may have the same ones.
    """

    api_key = ShareGroupHeartbeatRequest.API_KEY

    def _request(
        self, member: LocalMember, epoch: int, stated: _Statement, known: _Statement | None
    ) -> ShareGroupHeartbeatRequest:
        topics = stated.subscription.topics
        return ShareGroupHeartbeatRequest(
            group_id=member.settings.group_id,
            member_id=member.member_id,
            member_epoch=epoch,
            rack_id=self._rack if known is None else None,
            subscribed_topic_names=sorted(topics)
            if known is None or topics != known.subscription.topics
            else None,
        )

    def _leave_request(self, member: LocalMember) -> ShareGroupHeartbeatRequest:
        return ShareGroupHeartbeatRequest(
            group_id=member.settings.group_id,
            member_id=member.member_id,
            member_epoch=LEAVE_EPOCH,
        )


def _error(response: HeartbeatResponse, member: LocalMember) -> KafkaError:
    message, group_id = response.error_message, member.settings.group_id
    return error_for(response.error_code, message, needs="READ", name=group_id)


def _by_topic(
    partitions: frozenset[TopicIdPartition],
) -> list[ConsumerGroupHeartbeatRequestTopicPartitions]:
    topics: defaultdict[UUID, list[int]] = defaultdict(list)
    # Sorted, so that equal assignments are equal requests.
    for topic_id, partition in sorted(partitions):
        topics[topic_id].append(partition)
    return [
        ConsumerGroupHeartbeatRequestTopicPartitions(topic_id=topic_id, partitions=indexes)
        for topic_id, indexes in topics.items()
    ]
