"""Conversion of groups between the classic and the consumer protocol (KIP-848). Pure.

A classic group becomes a consumer group when the first member of the consumer protocol joins, and a
classic group again when the last such member has left. The group keeps its members of the classic
protocol, their partitions, and the generation, which equals the epoch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_async.embedded.groups.consumer_group_members import (
    ClassicProtocolMember,
    ConsumerGroupMember,
)
from kafka_async.embedded.groups.members import ClassicGroupMember
from kafka_async.embedded.groups.subscriptions import (
    CONSUMER,
    decode_assignment,
    decode_subscription,
    encode_assignment,
)
from kafka_async.errors import DecodeError, GroupIdNotFoundError, UnsupportedVersionError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    from kafka_async.embedded.groups.classic_group import ClassicGroup
    from kafka_async.embedded.groups.consumer_group import ConsumerGroup


def upgraded_members(group: ClassicGroup, ids: Mapping[str, UUID]) -> list[ConsumerGroupMember]:
    """Return the members of a classic group as members of a consumer group.

    Raises GroupIdNotFoundError if the group's data is not subscriptions and assignments.
    """
    refusal = f"Cannot upgrade classic group {group.id} to consumer group"
    if group.protocol_type != CONSUMER:
        raise GroupIdNotFoundError(
            f"{refusal} because the group does not use the consumer embedded protocol."
        )
    try:
        return [_upgraded(group, member, ids) for member in group.members]
    except (DecodeError, UnsupportedVersionError) as error:
        raise GroupIdNotFoundError(f"{refusal}: {error.message}.") from error


def _upgraded(
    group: ClassicGroup, member: ClassicGroupMember, ids: Mapping[str, UUID]
) -> ConsumerGroupMember:
    protocol = group.protocol or group.members.select_protocol()
    subscription = decode_subscription(member.metadata(protocol))
    assigned = decode_assignment(member.assignment, ids)
    return ConsumerGroupMember(
        id=member.id,
        epoch=group.generation,
        previous_epoch=group.generation,
        instance_id=member.instance_id,
        rack_id=subscription.rack_id,
        rebalance_timeout=member.rebalance_timeout,
        client_id=member.client_id,
        client_host=member.client_host,
        topics=frozenset(subscription.topics),
        assigned=dict.fromkeys(assigned, group.generation),
        classic=ClassicProtocolMember(member.session_timeout, member.protocols),
    )


def downgraded_members(group: ConsumerGroup, names: Mapping[UUID, str]) -> list[ClassicGroupMember]:
    """Return the members of a consumer group, all of the classic protocol, as classic members."""
    return [
        ClassicGroupMember(
            id=member.id,
            instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            session_timeout=member.classic.session_timeout,
            rebalance_timeout=member.rebalance_timeout,
            protocols=member.classic.protocols,
            assignment=encode_assignment(
                group.targets.get(member.id, ()), member.classic.protocols[0].metadata, names
            ),
            is_new=False,
        )
        for member in group.members.values()
        if member.classic is not None
    ]
