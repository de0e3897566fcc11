"""Assigns partitions as the leader of a group of the classic protocol, and follows the topics."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar, TypeVarTuple

from kafka_async.client.metadata.request_router import CoordinatorOfGroup
from kafka_async.client.wire.requested_rows import requested_row
from kafka_async.config import seconds
from kafka_async.consumer.deleted_topics import deleted_topics
from kafka_async.consumer.group.rewind.rewind_messages import merge_rewinds
from kafka_async.errors import (
    AssignorError,
    KafkaError,
    UnknownTopicOrPartitionError,
    error_for,
)
from kafka_async.foundation.fairness import THREAD_ASSIGN_SIZE, THREAD_DECODE_BYTES
from kafka_async.group.assignors import (
    Assignor,
    GroupAssignment,
    MemberSubscription,
    TopicPartitions,
)
from kafka_async.group.consumer_protocol import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_assignor_error,
)
from kafka_async.group.member import AssignorFailedError
from kafka_async.protocol.messages.describe_groups import DescribeGroupsRequest
from kafka_async.types import TopicPartition

if TYPE_CHECKING:
    from kafka_async.client.metadata.metadata import ClusterMetadata
    from kafka_async.client.services import ClientServices
    from kafka_async.config import ConsumerConfig
    from kafka_async.foundation.supervisor import Supervisor
    from kafka_async.group.member import Member

logger = logging.getLogger("kafka_async.consumer")

R = TypeVar("R")
Args = TypeVarTuple("Args")
Partitions = Collection[TopicPartition]
Racks = Mapping[TopicPartition, frozenset[str]]


def decode_subscriptions(members: Sequence[Member]) -> dict[str, MemberSubscription]:
    """Return each member's subscription, by member id. Raises DecodeError."""
    return {
        member.member_id: decode_subscription(member.metadata, member.group_instance_id)
        for member in members
    }


class LeaderAssignment(NamedTuple):
    """Input and result of the leader's assignor; `encoded` is what SyncGroup sends."""

    topics: TopicPartitions
    members: Mapping[str, MemberSubscription]
    partitions: Mapping[str, Partitions]
    encoded: Mapping[str, bytes]


def assign_partitions(
    assignor: Assignor, topics: TopicPartitions, members: Mapping[str, MemberSubscription]
) -> LeaderAssignment:
    """Return each member's assignment. Raises AssignorFailedError."""
    try:
        rows = GroupAssignment.of(assignor.assign(topics, members))
        # Every member sends its rewind requests when it joins; the leader passes them on to the
        # owners.
        rewinds = merge_rewinds(topics, members).encode()
        encoded = {
            member_id: encode_assignment(
                rows.partitions.get(member_id, ()),
                rows.user_data.get(member_id),
                # Only members of this client can read them.
                rewinds if member.reads_errors else b"",
            )
            for member_id, member in members.items()
        }
    except Exception as error:  # raised by the application's assignor
        raise _assignor_failed(assignor, members, error) from error
    logger.debug(
        "as the leader: %s of %s among %s: %s", assignor.name, topics, members, rows.partitions
    )
    return LeaderAssignment(topics, members, rows.partitions, encoded)


def _assignor_failed(
    assignor: Assignor, members: Mapping[str, MemberSubscription], cause: Exception
) -> AssignorFailedError:
    """Return the error that the leader raises, with the assignments to send to the members."""
    error = assignor_error(assignor, cause)
    # Members of this client read the error; others get an empty assignment, so that they wait.
    readers = {member_id for member_id, member in members.items() if member.reads_errors}
    message, nothing = encode_assignor_error(error.message), encode_assignment(())
    assignments = {m: message if m in readers else nothing for m in members}
    others_read = len(readers) > 1 or (bool(readers) and len(members) > len(readers))
    return AssignorFailedError(
        error, assignments if others_read else {}, read_by_all=len(readers) == len(members)
    )


def assignor_error(assignor: Assignor, cause: Exception) -> AssignorError:
    """Return the error for an exception that the application's assignor has raised."""
    error = AssignorError(
        f"the assignor {assignor.name} raised {cause!r}, so no partitions were assigned; correct "
        "the assignor, and poll again to join again"
    )
    error.__cause__ = cause
    return error


class GroupLeader:
    """Assigns partitions while this member leads its group, and rejoins if their topics change."""

    def __init__(
        self, services: ClientServices, supervisor: Supervisor, config: ConsumerConfig
    ) -> None:
        self._services = services
        self._supervisor = supervisor
        self._group_id = config.group_id or ""
        self._timeout = seconds(config.request_timeout_ms)
        # Rejoins are spaced by rebalance_min_interval_ms: changes in between count together.
        self._rebalance_interval = seconds(config.rebalance_min_interval_ms)
        self._rebalanced_at = 0.0
        self._rejoin_pending = False
        # Topics that this leader assigned, whose changes require a rebalance.
        self._topics: Mapping[str, int | None] = {}
        self._racks: Racks = {}
        self._checking_deleted = False

    # -- assigning --------------------------------------------------------------------------------

    async def assign(self, assignor: Assignor, members: Sequence[Member]) -> LeaderAssignment:
        """Assign the partitions of all members' topics, and follow these topics.

        Work that takes milliseconds in a large group is done in a thread.
        """
        # Compared with the size, since decoding thousands of subscriptions takes milliseconds.
        size = sum(len(member.metadata) for member in members)
        subscriptions = await self._run(size > THREAD_DECODE_BYTES, decode_subscriptions, members)
        counts, racks = await self._look_up_topics(subscriptions)
        known = {topic: count for topic, count in counts.items() if count is not None}
        assignment = await self._run(
            sum(known.values()) + len(members) > THREAD_ASSIGN_SIZE,
            assign_partitions,
            assignor,
            TopicPartitions(known, racks),
            subscriptions,
        )
        self._track_topics(counts, racks)
        return assignment

    async def on_assignment_kept(self, members: Sequence[Member]) -> bool:
        """Follow the topics of all members; return True if partitions were added while it was away.

        Java's client does not compare and misses these partitions until the next rebalance.
        """
        size = sum(len(member.metadata) for member in members)
        subscriptions = await self._run(size > THREAD_DECODE_BYTES, decode_subscriptions, members)
        counts, racks = await self._look_up_topics(subscriptions)
        self._track_topics(counts, racks)
        # A static member that restarts as the leader has no memory of what it assigned (KIP-345).
        try:
            assigned = await self._assigned_in_group()
        except KafkaError as error:
            logger.debug("comparing the group's assignment with its topics: %s", error)
            # Better one rebalance too many than partitions that no member reads.
            return True
        return any(
            TopicPartition(topic, number) not in assigned
            for topic, count in counts.items()
            for number in range(count or 0)
        )

    async def _look_up_topics(
        self, subscriptions: Mapping[str, MemberSubscription]
    ) -> tuple[dict[str, int | None], Racks]:
        """Return the partition counts of all members' topics, and racks if members have racks."""
        topics = frozenset[str]().union(*(s.topics for s in subscriptions.values()))
        # Refreshed: an assignment by old counts would need another rebalance.
        metadata = await self._services.metadata.refresh(topics=topics, timeout=self._timeout)
        in_racks = any(member.rack_id for member in subscriptions.values())
        return (
            {topic: metadata.partitions(topic) for topic in topics},
            # Only rack-aware assignment needs them (KIP-881).
            metadata.replica_racks(topics) if in_racks else {},
        )

    async def _assigned_in_group(self) -> frozenset[TopicPartition]:
        """Return the partitions that the coordinator describes as assigned to any member."""
        response = await self._services.request(
            DescribeGroupsRequest(groups=[self._group_id]),
            to=CoordinatorOfGroup(self._group_id),
            timeout=self._timeout,
        )
        group = requested_row(self._group_id, response.groups, lambda row: row.group_id)
        if group.error_code:
            raise error_for(group.error_code, needs="DESCRIBE", name=self._group_id)
        assignments = [decode_assignment(row.member_assignment) for row in group.members]
        return frozenset[TopicPartition]().union(*(each.partitions for each in assignments))

    async def _run(self, in_thread: bool, function: Callable[[*Args], R], *args: *Args) -> R:
        if in_thread:
            return await self._services.supervisor.offload(function, *args)
        return function(*args)

    # -- following the topics ---------------------------------------------------------------------

    def on_rebalanced(self) -> None:
        """Note the end of a rebalance."""
        self._rebalanced_at = asyncio.get_running_loop().time()

    def end(self) -> None:
        """Follow no topics any more: another member may lead."""
        self._track_topics({}, {})

    def on_metadata(self, metadata: ClusterMetadata, rejoin: Callable[[str], None]) -> None:
        """Rejoin if topics that this leader assigned have changed, or were deleted.

        That is, the number of partitions, and the racks of replicas if members have racks.
        """
        rejoin = partial(self._rejoin_in_time, rejoin)
        # At most one reason: the first difference leads to a rebalance that covers all.
        for topic, count in self._topics.items():
            now = metadata.partitions(topic)
            if now is not None and now != count:
                rejoin(f"topic {topic} has {now} partitions, not {count or 0}")
                return
        if (
            self._racks
            and metadata.replica_racks({t: n for t, n in self._topics.items() if n is not None})
            != self._racks
        ):
            rejoin("replicas have moved to other racks")
            return
        # Metadata of a single broker is no proof that a topic was deleted.
        missing = self._missing_topics(metadata)
        if missing and not self._checking_deleted:
            self._checking_deleted = True
            self._supervisor.spawn(self._check_deleted, missing, rejoin, name="deleted topics")

    def _rejoin_in_time(self, rejoin: Callable[[str], None], reason: str) -> None:
        """Rejoin, but not before `rebalance_min_interval_ms` has passed since the last rebalance.

        Later changes up to then are part of the same rebalance.
        """
        delay = self._rebalanced_at + self._rebalance_interval - asyncio.get_running_loop().time()
        if delay <= 0:
            rejoin(reason)
        elif not self._rejoin_pending:
            self._rejoin_pending = True
            self._supervisor.spawn(self._rejoin_later, delay, rejoin, reason, name="rejoin")

    async def _rejoin_later(self, delay: float, rejoin: Callable[[str], None], reason: str) -> None:
        rebalanced_at = self._rebalanced_at
        await asyncio.sleep(delay)
        self._rejoin_pending = False
        # A rebalance in between has covered the change, or made another member the leader.
        if self._rebalanced_at == rebalanced_at and self._topics:
            rejoin(reason)

    def _missing_topics(self, metadata: ClusterMetadata) -> frozenset[str]:
        """Return the led topics that metadata reports as unknown.

        They may exist: brokers update their metadata one by one.
        """
        return frozenset(
            topic
            for topic, count in self._topics.items()
            if count is not None and isinstance(metadata.error(topic), UnknownTopicOrPartitionError)
        )

    async def _check_deleted(self, topics: frozenset[str], rejoin: Callable[[str], None]) -> None:
        """Rejoin once it is certain that topics were deleted."""
        deadline = asyncio.get_running_loop().time() + self._timeout
        try:
            deleted = await deleted_topics(self._services, topics, deadline)
            missing = deleted & self._missing_topics(self._services.metadata.snapshot)
            if missing:
                rejoin(f"topics were deleted: {', '.join(sorted(missing))}")
        except KafkaError as error:  # the next metadata response starts the check again
            logger.debug("checking whether topics were deleted: %s", error)
        finally:
            self._checking_deleted = False

    def _track_topics(self, counts: Mapping[str, int | None], racks: Racks) -> None:
        # Tracked only for the assignment: this member may not subscribe to them.
        self._services.metadata.track(counts.keys() - self._topics.keys())
        self._services.metadata.untrack(self._topics.keys() - counts.keys())
        self._topics = counts
        self._racks = racks
