"""Explains an assignment: the partitions of each member, and the reasons. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kafka_async.types import TopicPartition

if TYPE_CHECKING:
    from kafka_async.group.assignors.abc import Members, MemberSubscription, TopicPartitions


@dataclass(frozen=True, slots=True)
class MemberExplanation:
    """Assignment of one member.

    Attributes:
        partitions: Reason for each assigned partition.
        revoked: Partitions that the member owned and must revoke, with the reason for each.
        topics: Subscribed topics, or None if this member does not have them.
        group_instance_id: Name of a static member, or None.
        rack_id: Rack of the member, or None if it has none or this member does not have it.
    """

    partitions: Mapping[TopicPartition, str]
    revoked: Mapping[TopicPartition, str] = field(default_factory=dict[TopicPartition, str])
    topics: frozenset[str] | None = None
    group_instance_id: str | None = None
    rack_id: str | None = None


@dataclass(frozen=True, slots=True)
class AssignmentExplanation:
    """Assignment of a group in one generation, as far as one of its members has it.

    Attributes:
        group_id: The group.
        generation: Generation of the group; -1 before the first assignment.
        member_id: The member that explains.
        assignor: Name of the assignor; in the consumer protocol group_remote_assignor, or
            "the coordinator's default assignor".
        reason: Reason of the rebalance, as far as the member has it.
        leads: True if the member has computed the assignment as the leader. Otherwise `members`
            has only this member.
        members: Assignment of each member, by member id.
    """

    group_id: str
    generation: int
    member_id: str
    assignor: str
    reason: str
    leads: bool
    members: Mapping[str, MemberExplanation]

    def __str__(self) -> str:
        known = (
            "this member is the leader"
            if self.leads
            else "this member is not the leader, so only its own partitions are known"
        )
        lines = [
            f"group {self.group_id}, generation {self.generation}, assigned by {self.assignor}: "
            f"{self.reason} ({known})"
        ]
        for member_id, member in self.members.items():
            static = (
                f", static member {member.group_instance_id}" if member.group_instance_id else ""
            )
            rack = f", rack {member.rack_id}" if member.rack_id else ""
            lines.append(f"{member_id}{static}{rack}: {len(member.partitions)} partitions")
            lines += [f"  {p}: {reason}" for p, reason in sorted(member.partitions.items())]
            lines += [f"  revokes {p}: {reason}" for p, reason in sorted(member.revoked.items())]
        return "\n".join(lines)


def explain_member(
    assigned: Collection[TopicPartition], owned: Collection[TopicPartition]
) -> MemberExplanation:
    """Explain a member's own assignment, without the assignments of others."""
    return MemberExplanation(
        {p: "kept" if p in owned else "new" for p in assigned},
        {p: "assigned to another member or to none" for p in owned if p not in assigned},
    )


def explain_group(
    topics: TopicPartitions,
    members: Members,
    assignments: Mapping[str, Collection[TopicPartition]],
) -> dict[str, MemberExplanation]:
    """Explain the assignment of all members, on the leader that has computed it."""
    owners: dict[TopicPartition, str] = {}
    # The newest generation last, so that its claims replace older ones.
    for member_id, member in sorted(members.items(), key=lambda row: row[1].generation):
        owners.update(dict.fromkeys(member.owned, member_id))
    taken = {p for assigned in assignments.values() for p in assigned}
    found: dict[str, MemberExplanation] = {}
    for member_id, member in members.items():
        assigned = assignments.get(member_id, ())
        found[member_id] = MemberExplanation(
            {p: _reason(p, member_id, member, owners.get(p), topics) for p in sorted(assigned)},
            {
                p: _revoked(p, member, topics, is_taken=p in taken)
                for p in sorted(member.owned.difference(assigned))
            },
            member.topics,
            member.group_instance_id,
            member.rack_id,
        )
    return found


def _reason(
    partition: TopicPartition,
    member_id: str,
    member: MemberSubscription,
    owner: str | None,
    topics: TopicPartitions,
) -> str:
    if partition in member.owned:
        reason = "kept"
    elif owner is not None and owner != member_id:
        reason = f"moved from {owner}"
    else:
        reason = "no member owned it"
    if member.rack_id and topics.racks(partition):
        inside = member.rack_id in topics.racks(partition)
        reason += ", a replica is in the member's rack" if inside else ", no replica in its rack"
    return reason


def _revoked(
    partition: TopicPartition,
    member: MemberSubscription,
    topics: TopicPartitions,
    *,
    is_taken: bool,
) -> str:
    if partition.topic not in member.topics:
        return "the member does not subscribe to the topic any more"
    if partition.partition >= topics.get(partition.topic, 0):
        return "the partition does not exist any more"
    if is_taken:
        return "another member owns it"
    return "another member gets it in the next rebalance"
