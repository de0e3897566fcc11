"""Heartbeats of a member in the consumer group protocol, as generators (KIP-848). Pure.

Each generator yields requests, is sent the responses, and returns the result or raises the broker's
error. The action for an error is a row in `member_states.py`.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias
from uuid import UUID

from kafka_async.errors import error_for
from kafka_async.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
    ConsumerGroupHeartbeatResponse,
)

if TYPE_CHECKING:
    from collections.abc import Generator

    from kafka_async.errors import KafkaError
    from kafka_async.group.member import GroupSubscription, LocalMember

TopicIdPartition: TypeAlias = tuple[UUID, int]
Procedure: TypeAlias = (
    "Generator[ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse, HeartbeatResult]"
)

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
STATIC_LEAVE_EPOCH: Final = -2


class HeartbeatResult(NamedTuple):
    """Content of a successful response.

    Attributes:
        member_id: Id of the member.
        epoch: Epoch of the member.
        interval: Seconds until the next heartbeat.
        assignment: Partitions of the member; None if they are unchanged.
    """

    member_id: str
    epoch: int
    interval: float
    assignment: frozenset[TopicIdPartition] | None


class _Statement(NamedTuple):
    """Holds what the coordinator knows of the member."""

    subscription: GroupSubscription
    owned: frozenset[TopicIdPartition]


class HeartbeatRequests:
    """Builds heartbeats that state only what the coordinator does not know yet.

    After a failed heartbeat the next one states everything: the coordinator may have handled it.
    """

    def __init__(self, assignor: str | None, rack: str | None) -> None:
        self._assignor = assignor
        self._rack = rack
        self._known: _Statement | None = None
        self._has_sent_pattern = False

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

    def _send(self, member: LocalMember, epoch: int, stated: _Statement) -> Procedure:
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
    ) -> ConsumerGroupHeartbeatRequest:
        settings = member.settings
        request = ConsumerGroupHeartbeatRequest(
            group_id=settings.group_id,
            member_id=member.member_id,
            member_epoch=epoch,
            instance_id=settings.group_instance_id,
        )
        if known is None:
            request.rack_id = self._rack
            request.rebalance_timeout_ms = round(settings.rebalance_timeout * 1000)
            request.server_assignor = self._assignor
        topics, pattern = stated.subscription
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


def leave(
    member: LocalMember, version: int, reason: str
) -> Generator[ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse, None]:
    """Leave the group; a static member leaves for a while, and keeps its partitions (KIP-345)."""
    instance_id = member.settings.group_instance_id
    response = yield ConsumerGroupHeartbeatRequest(
        group_id=member.settings.group_id,
        member_id=member.member_id,
        member_epoch=LEAVE_EPOCH if instance_id is None else STATIC_LEAVE_EPOCH,
        instance_id=instance_id,
    )
    if response.error_code:
        raise _error(response, member)


def _error(response: ConsumerGroupHeartbeatResponse, member: LocalMember) -> KafkaError:
    message, group_id = response.error_message, member.settings.group_id
    return error_for(response.error_code, message, needs="READ", name=group_id)


def _by_topic(
    partitions: frozenset[TopicIdPartition],
) -> list[ConsumerGroupHeartbeatRequestTopicPartitions]:
    topics: defaultdict[UUID, list[int]] = defaultdict(list)
    for topic_id, partition in sorted(partitions):
        topics[topic_id].append(partition)
    return [
        ConsumerGroupHeartbeatRequestTopicPartitions(topic_id=topic_id, partitions=indexes)
        for topic_id, indexes in topics.items()
    ]
