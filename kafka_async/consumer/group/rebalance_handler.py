"""Applies the group's assignments: revokes partitions and takes new ones over.

The flow of a rebalance: the membership task calls a method of `ConsumerRebalanceHandler`, which
holds the delivery gate, commits, invokes the application's listeners, changes the subscription and
calls `on_change`; the position finder then looks up the positions of new partitions.

With an eager assignor a consumer revokes all partitions before it joins. With a cooperative one it
revokes only the partitions that the new assignment takes from it, and the group rebalances once
more (KIP-429). Either way partitions are revoked between two polls (`delivery_gate.py`), after
auto-commit has committed the processed records and the listeners have returned.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar, TypeVarTuple

from kafka_async import hooks
from kafka_async.client.metadata.request_router import CoordinatorOfGroup
from kafka_async.client.wire.requested_rows import requested_row
from kafka_async.config import seconds
from kafka_async.consumer.deleted_topics import deleted_topics
from kafka_async.consumer.group.rewind.rewind_messages import merge_rewinds
from kafka_async.errors import (
    AssignorError,
    KafkaError,
    RetriableError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
    error_for,
)
from kafka_async.foundation.fairness import THREAD_ASSIGN_SIZE, THREAD_DECODE_BYTES
from kafka_async.group.assignors import (
    Assignor,
    GroupAssignment,
    MemberSubscription,
    RebalanceProtocol,
    TopicPartitions,
    create_assignors,
    rebalance_protocol,
)
from kafka_async.group.consumer_group_requests import DEFAULT_ASSIGNOR
from kafka_async.group.consumer_protocol import (
    PROTOCOL_TYPE,
    MemberAssignment,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_assignor_error,
    encode_subscription,
)
from kafka_async.group.explanation import (
    AssignmentExplanation,
    MemberExplanation,
    explain_group,
    explain_member,
)
from kafka_async.group.member import AssignorFailedError, GroupSubscription
from kafka_async.protocol.messages.describe_groups import DescribeGroupsRequest
from kafka_async.types import TopicPartition

if TYPE_CHECKING:
    from uuid import UUID

    from kafka_async.client.metadata.metadata import ClusterMetadata
    from kafka_async.client.metadata.metadata_updater import MetadataUpdater
    from kafka_async.client.services import ClientServices
    from kafka_async.config import ConsumerConfig
    from kafka_async.consumer.delivery.delivery_gate import DeliveryGate
    from kafka_async.consumer.group.rebalance_listener import Callback, RebalanceListenerInvoker
    from kafka_async.consumer.group.rewind.rewinds import Offsets, Rewinds
    from kafka_async.consumer.group.rewind.stored_rewinds import StoredRewinds
    from kafka_async.consumer.subscription import Subscription
    from kafka_async.foundation.supervisor import Supervisor
    from kafka_async.group.member import Member

logger = logging.getLogger("kafka_async.consumer")


R = TypeVar("R")
Args = TypeVarTuple("Args")
Partitions = Collection[TopicPartition]
Racks = Mapping[TopicPartition, frozenset[str]]
CommitBeforeRevoke = Callable[[Partitions], Awaitable[None]]


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
        rewinds = merge_rewinds(topics, members).encode()
        encoded = {
            member_id: encode_assignment(
                rows.partitions.get(member_id, ()),
                rows.user_data.get(member_id),
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
    """Return the error that the leader raises, with what it sends to the members."""
    error = _assignor_error(assignor, cause)
    readers = {member_id for member_id, member in members.items() if member.reads_errors}
    message, nothing = encode_assignor_error(error.message), encode_assignment(())
    assignments = {m: message if m in readers else nothing for m in members}
    others_read = len(readers) > 1 or (bool(readers) and len(members) > len(readers))
    return AssignorFailedError(
        error, assignments if others_read else {}, read_by_all=len(readers) == len(members)
    )


def _assignor_error(assignor: Assignor, cause: Exception) -> AssignorError:
    error = AssignorError(
        f"the assignor {assignor.name} raised {cause!r}, so no partitions were assigned; correct "
        "the assignor, and poll again to join again"
    )
    error.__cause__ = cause
    return error


async def topic_names_by_id(
    updater: MetadataUpdater, ids: Collection[UUID], topics: Collection[str] | None, timeout: float
) -> dict[UUID, str]:
    """Return the names of assigned topics, without those that are not known yet.

    If one is missing, the metadata of `topics`, or of all topics, is fetched first.
    """

    def known() -> dict[UUID, str]:
        metadata = updater.snapshot
        return {id_: name for id_ in ids if (name := metadata.topic_name(id_)) is not None}

    if len(found := known()) == len(ids):
        return found
    try:
        if topics is None:
            await updater.refresh(all_topics=True, timeout=timeout)
        else:
            await updater.refresh(topics=topics, timeout=timeout)
    except RetriableError as error:  # The membership looks the names up again.
        logger.debug("looking for the names of assigned topics: %s", error)
    found, snapshot = known(), updater.snapshot
    if len(found) < len(ids) and any(not topic.topic_id.int for topic in snapshot.topics.values()):
        raise UnsupportedVersionError(
            "the coordinator assigns topics by their ids, which the metadata of the brokers does "
            "not have (Kafka has them since 2.8): share groups and group_protocol='consumer' need "
            "them"
        )
    return found


class ConsumerRebalanceHandler:
    """Handles rebalances of a consumer; called by the membership task (`RebalanceHandler`)."""

    protocol_type = PROTOCOL_TYPE

    def __init__(
        self,
        services: ClientServices,
        supervisor: Supervisor,
        config: ConsumerConfig,
        subscription: Subscription,
        delivery_gate: DeliveryGate,
        listeners: RebalanceListenerInvoker,
        commit: CommitBeforeRevoke,
        on_change: Callable[[], None],
    ) -> None:
        self._services = services
        self._supervisor = supervisor
        self._subscription = subscription
        self._delivery_gate = delivery_gate
        self._listeners = listeners
        self._commit = commit
        self._on_change = on_change
        self._rack = config.client_rack or None
        self._timeout = seconds(config.request_timeout_ms)
        self._assignors: dict[str, Assignor] = {
            assignor.name: assignor
            for assignor in create_assignors(config.partition_assignment_strategy)
        }
        self._cooperative = (
            rebalance_protocol(list(self._assignors.values())) is RebalanceProtocol.COOPERATIVE
        )
        self._generation = -1
        self._membership_ended = False
        self._group_id = config.group_id or ""
        self._rebalance_interval = seconds(config.rebalance_min_interval_ms)
        self._rebalanced_at = 0.0
        self._rejoin_pending = False
        self._led: LeaderAssignment | None = None
        self._explained: Mapping[str, MemberExplanation] = {}
        self._explained_by = ""
        self._remote_assignor = config.group_remote_assignor or DEFAULT_ASSIGNOR
        self._led_topics: Mapping[str, int | None] = {}
        self._led_racks: Racks = {}
        self._checking_deleted = False
        self._rewinds: Rewinds | None = None
        self._stored_rewinds: StoredRewinds | None = None

    def set_rewinds(self, rewinds: Rewinds, stored: StoredRewinds | None) -> None:
        """Set what sends and applies rewinds; `stored` are those of the consumer protocol."""
        self._rewinds, self._stored_rewinds = rewinds, stored

    # -- RebalanceHandler -------------------------------------------------------------------------

    def protocols(self) -> Sequence[tuple[str, bytes]]:
        """Return this consumer's subscription, encoded for each of its assignors."""
        topics = self._subscription.topics
        rewinds = b"" if self._rewinds is None else self._rewinds.outgoing()
        return [
            (
                name,
                encode_subscription(
                    MemberSubscription(
                        topics,
                        self._subscription.owned,
                        self._generation,
                        _call(assignor, assignor.user_data, topics),
                        self._rack,
                        version=assignor.version,
                        reads_errors=assignor.reads_errors,
                        rewinds=rewinds,
                    )
                ),
            )
            for name, assignor in self._assignors.items()
        ]

    async def on_join_prepare(self) -> None:
        """Revoke all partitions, or cooperatively those of topics no longer subscribed to."""
        self._track_led_topics({}, {})
        self._led = None
        owned, topics = self._subscription.owned, self._subscription.topics
        if self._cooperative:
            owned = frozenset(p for p in owned if p.topic not in topics)
        if owned:
            await self._revoke(owned)

    async def assign(self, name: str, members: Sequence[Member]) -> Mapping[str, bytes]:
        """Return all members' assignments by the assignor that the group has chosen.

        Work that takes milliseconds in a large group is done in a thread.
        """
        size = sum(len(member.metadata) for member in members)
        subscriptions = await self._run(size > THREAD_DECODE_BYTES, decode_subscriptions, members)
        counts, racks = await self._look_up_topics(subscriptions)
        known = {topic: count for topic, count in counts.items() if count is not None}
        self._led = await self._run(
            sum(known.values()) + len(members) > THREAD_ASSIGN_SIZE,
            assign_partitions,
            self._assignors[name],
            TopicPartitions(known, racks),
            subscriptions,
        )
        self._track_led_topics(counts, racks)
        return self._led.encoded

    async def _look_up_topics(
        self, subscriptions: Mapping[str, MemberSubscription]
    ) -> tuple[dict[str, int | None], Racks]:
        """Return the partition counts of all members' topics, and racks if members have racks."""
        topics = frozenset[str]().union(*(s.topics for s in subscriptions.values()))
        metadata = await self._services.metadata.refresh(topics=topics, timeout=self._timeout)
        in_racks = any(member.rack_id for member in subscriptions.values())
        return (
            {topic: metadata.partitions(topic) for topic in topics},
            metadata.replica_racks(topics) if in_racks else {},
        )

    async def on_assignment_kept(self, members: Sequence[Member]) -> bool:
        """Follow the topics of all members; True if partitions were added while it was away.

        Java's client does not compare and misses these partitions until the next rebalance.
        """
        size = sum(len(member.metadata) for member in members)
        subscriptions = await self._run(size > THREAD_DECODE_BYTES, decode_subscriptions, members)
        counts, racks = await self._look_up_topics(subscriptions)
        self._track_led_topics(counts, racks)
        try:
            assigned = await self._assigned_in_group()
        except KafkaError as error:
            logger.debug("comparing the group's assignment with its topics: %s", error)
            return True
        return any(
            TopicPartition(topic, number) not in assigned
            for topic, count in counts.items()
            for number in range(count or 0)
        )

    async def _assigned_in_group(self) -> frozenset[TopicPartition]:
        """Return the partitions that the coordinator knows as assigned to any member."""
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

    async def on_join_complete(self, name: str, assignment: bytes, generation: int) -> bool:
        """Revoke and add partitions as assigned; True if any was revoked."""
        received = decode_assignment(assignment)
        if received.error is not None:
            raise AssignorError(f"on the group leader: {received.error}")
        owned = self._subscription.owned

        def note() -> None:
            self._note_assignment(name, received, owned)

        if self._rewinds is not None:
            await self._rewinds.on_message(received.rewinds, received.partitions, self._rewind)
        return await self._apply(received.partitions, generation, note)

    async def _rewind(
        self, wanted: Offsets, commit: Callable[[Offsets], Awaitable[Offsets]]
    ) -> Offsets:
        """Commit while no records are returned, and seek; new partitions start there later.

        If that fails, the records that were dropped for it are returned again.
        """
        states = self._subscription.states
        async with self._no_unprocessed(wanted):
            try:
                actual = await commit(wanted)
                for partition in actual.keys() & states.keys():
                    states[partition].rewind(actual[partition])
            except BaseException:
                for partition in wanted.keys() & states.keys():
                    states[partition].seek_to_unfinished()
                raise
            finally:
                self._on_change()
        return actual

    async def rewind_at_once(
        self, wanted: Offsets, commit: Callable[[Offsets], Awaitable[Offsets]]
    ) -> Offsets:
        """Commit while no records are returned, and seek, without a wait for returned records."""
        states = self._subscription.states
        self._delivery_gate.hold()
        try:
            actual = await commit(wanted)
            for partition in actual.keys() & states.keys():
                states[partition].rewind(actual[partition])
            self._on_change()
        finally:
            self._delivery_gate.release()
        return actual

    async def _apply(
        self,
        assigned: frozenset[TopicPartition],
        generation: int,
        note_assignment: Callable[[], None],
    ) -> bool:
        """Revoke and add partitions; True if any was revoked."""
        owned = self._subscription.owned
        revoked = owned - assigned
        if revoked:
            await self._revoke(revoked)
        self._generation = generation
        self._rebalanced_at = asyncio.get_running_loop().time()
        note_assignment()
        await self._assign_new(assigned - owned)
        return bool(revoked)

    # -- ConsumerProtocolHandler ------------------------------------------------------------------

    def subscription(self) -> GroupSubscription:
        """Return the subscribed topics and the regular expression of the broker's."""
        return GroupSubscription(self._subscription.topics, self._subscription.broker_pattern)

    async def topic_names(self, ids: Collection[UUID]) -> Mapping[UUID, str]:
        """Return the names of assigned topics, which metadata is fetched for if needed."""
        matched = bool(self._subscription.broker_pattern)
        topics = None if matched else self._subscription.topics
        return await topic_names_by_id(self._services.metadata, ids, topics, self._timeout)

    async def on_assignment(self, assigned: frozenset[TopicPartition], epoch: int) -> None:
        """Revoke and add partitions as assigned, if anything has changed."""
        owned = self._subscription.owned

        def note() -> None:
            self._explained_by = self._remote_assignor
            self._explained = {"": explain_member(assigned, owned)}

        if assigned != owned or self._generation < 0:
            await self._apply(assigned, epoch, note)
        if self._stored_rewinds is not None:
            await self._stored_rewinds.apply(self._subscription.owned, self._rewind)

    # -- both protocols ---------------------------------------------------------------------------

    def _note_assignment(
        self, name: str, received: MemberAssignment, owned: frozenset[TopicPartition]
    ) -> None:
        """Pass the assignment to the assignor, and keep what explains it."""
        assignor = self._assignors[name]
        _call(
            assignor,
            assignor.on_assignment,
            received.partitions,
            received.user_data,
            self._generation,
        )
        self._subscription.commit_only(assignor.commits)
        self._explained_by, led = name, self._led
        self._led = None
        self._explained = (
            {"": explain_member(received.partitions, owned)}
            if led is None
            else explain_group(led.topics, led.members, led.partitions)
        )

    def explain(self, member_id: str, reason: str) -> AssignmentExplanation:
        """Explain the current assignment."""
        leads = "" not in self._explained
        return AssignmentExplanation(
            group_id=self._group_id,
            generation=self._generation,
            member_id=member_id,
            assignor=self._explained_by,
            reason=reason,
            leads=leads and bool(self._explained),
            members={key or member_id: row for key, row in self._explained.items()},
        )

    def on_membership_ended(self) -> None:
        """Return no records that other members may own, fetched or waiting for handlers."""
        if not self._membership_ended:
            self._membership_ended = True
            self._delivery_gate.hold()
            self._delivery_gate.drop(self._subscription.owned)

    async def on_partitions_lost(self) -> None:
        """Drop all partitions at the next poll; until then the coordinator fences commits."""
        self._track_led_topics({}, {})
        try:
            await self._lose_partitions()
        finally:
            if self._membership_ended:
                self._membership_ended = False
                self._delivery_gate.release()

    async def _lose_partitions(self) -> None:
        if not self._subscription.owned:
            return
        async with self._no_unprocessed(self._subscription.owned, lost=True):
            lost = self._subscription.owned
            self._generation = -1
            await self._remove(lost, self._listeners.lost, hooks.PartitionsLost)

    async def on_leave_prepare(self) -> None:
        """Revoke all partitions."""
        self._track_led_topics({}, {})
        if self._subscription.owned:
            await self._revoke(self._subscription.owned, ignore_poll_timeout=True)
        self._generation = -1

    def last_poll_time(self) -> float:
        """Return the event loop time of the last poll."""
        return self._delivery_gate.last_poll_time()

    # -- revoking and assigning -------------------------------------------------------------------

    async def _revoke(
        self, partitions: frozenset[TopicPartition], *, ignore_poll_timeout: bool = False
    ) -> None:
        async with self._no_unprocessed(partitions, ignore_poll_timeout=ignore_poll_timeout):
            await self._commit(partitions)
            await self._remove(partitions, self._listeners.revoked, hooks.PartitionsRevoked)

    @asynccontextmanager
    async def _no_unprocessed(
        self, partitions: Partitions, *, ignore_poll_timeout: bool = False, lost: bool = False
    ) -> AsyncGenerator[None]:
        """Return no records, once those returned are processed; handlers of `lost` ones end now."""
        gate = self._delivery_gate
        gate.hold()
        try:
            await gate.wait_until_processed(ignore_poll_timeout=ignore_poll_timeout or lost)
            await gate.drain(partitions, 0.0 if lost else None)
            yield
        finally:
            self._delivery_gate.release()

    async def _remove(
        self,
        partitions: frozenset[TopicPartition],
        callbacks: list[Callback],
        event: type[hooks.PartitionsLost | hooks.PartitionsRevoked],
    ) -> None:
        await self._listeners.invoke(callbacks, partitions, self._delivery_gate)
        self._subscription.remove_owned(partitions)
        self._emit(event, partitions)
        self._on_change()

    async def _assign_new(self, partitions: frozenset[TopicPartition]) -> None:
        self._subscription.add_owned(partitions)
        self._on_change()
        self._delivery_gate.hold()
        try:
            await self._listeners.invoke(self._listeners.assigned, partitions, self._delivery_gate)
        finally:
            self._delivery_gate.release()
        self._subscription.start_fetching(partitions)
        self._emit(hooks.PartitionsAssigned, partitions)
        self._on_change()

    def _emit(
        self,
        event: type[hooks.PartitionsAssigned | hooks.PartitionsLost | hooks.PartitionsRevoked],
        partitions: frozenset[TopicPartition],
    ) -> None:
        if self._services.hooks.active:
            self._services.hooks.emit(event(self._services.config.client_id, partitions))

    # -- topics of a leader -----------------------------------------------------------------------

    def on_metadata(self, metadata: ClusterMetadata, rejoin: Callable[[str], None]) -> None:
        """Rejoin if topics that this leader assigned have changed, or were deleted.

        Partitions count, and the racks of replicas if members have racks.
        """
        rejoin = partial(self._rejoin_in_time, rejoin)
        for topic, count in self._led_topics.items():
            now = metadata.partitions(topic)
            if now is not None and now != count:
                rejoin(f"topic {topic} has {now} partitions, not {count or 0}")
                return
        if (
            self._led_racks
            and metadata.replica_racks({t: n for t, n in self._led_topics.items() if n is not None})
            != self._led_racks
        ):
            rejoin("replicas have moved to other racks")
            return
        missing = self._missing_topics(metadata)
        if missing and not self._checking_deleted:
            self._checking_deleted = True
            self._supervisor.spawn(self._check_deleted, missing, rejoin, name="deleted topics")

    def _rejoin_in_time(self, rejoin: Callable[[str], None], reason: str) -> None:
        """Rejoin, but not before `rebalance_min_interval_ms` has passed since the last rebalance.

        Changes until then are part of the same rebalance.
        """
        delay = self._rebalanced_at + self._rebalance_interval - asyncio.get_running_loop().time()
        if delay <= 0:
            rejoin(reason)
        elif not self._rejoin_pending:
            self._rejoin_pending = True
            self._supervisor.spawn(self._rejoin_later, delay, rejoin, reason, name="rejoin")

    async def _rejoin_later(self, delay: float, rejoin: Callable[[str], None], reason: str) -> None:
        generation = self._generation
        await asyncio.sleep(delay)
        self._rejoin_pending = False
        if self._generation == generation and self._led_topics:
            rejoin(reason)

    def _missing_topics(self, metadata: ClusterMetadata) -> frozenset[str]:
        """Return the led topics that metadata reports as unknown; they may exist nevertheless."""
        return frozenset(
            topic
            for topic, count in self._led_topics.items()
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

    def _track_led_topics(self, counts: Mapping[str, int | None], racks: Racks) -> None:
        self._services.metadata.track(counts.keys() - self._led_topics.keys())
        self._services.metadata.untrack(self._led_topics.keys() - counts.keys())
        self._led_topics = counts
        self._led_racks = racks


def _call(assignor: Assignor, method: Callable[[*Args], R], *args: *Args) -> R:
    """Call a method of an assignor; raise AssignorError for its exceptions."""
    try:
        return method(*args)
    except Exception as error:  # raised by the application's assignor
        raise _assignor_error(assignor, error) from error
