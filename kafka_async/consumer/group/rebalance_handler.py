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

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeVar, TypeVarTuple

from kafka_async import hooks
from kafka_async.config import seconds
from kafka_async.consumer.group.group_leader import GroupLeader, LeaderAssignment, assignor_error
from kafka_async.errors import (
    AssignorError,
    RetriableError,
    UnsupportedVersionError,
)
from kafka_async.group.assignors import (
    Assignor,
    MemberSubscription,
    RebalanceProtocol,
    create_assignors,
    rebalance_protocol,
)
from kafka_async.group.consumer_group_requests import DEFAULT_ASSIGNOR
from kafka_async.group.consumer_protocol import (
    PROTOCOL_TYPE,
    MemberAssignment,
    decode_assignment,
    encode_subscription,
)
from kafka_async.group.explanation import (
    AssignmentExplanation,
    MemberExplanation,
    explain_group,
    explain_member,
)
from kafka_async.group.member import GroupSubscription
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


async def topic_names_by_id(
    updater: MetadataUpdater, ids: Collection[UUID], topics: Collection[str] | None, timeout: float
) -> dict[UUID, str]:
    """Return the names of assigned topics, except those that are still unknown.

    If one is missing, the metadata of `topics`, or of all topics, is fetched first.
    """

    def known() -> dict[UUID, str]:
        metadata = updater.snapshot
        return {id_: name for id_ in ids if (name := metadata.topic_name(id_)) is not None}

    # Metadata usually has them: a member subscribes to what it is assigned.
    if len(found := known()) == len(ids):
        return found
    try:
        if topics is None:
            await updater.refresh(all_topics=True, timeout=timeout)
        else:
            await updater.refresh(topics=topics, timeout=timeout)
    except RetriableError as error:  # the membership looks the names up again
        logger.debug("looking for the names of assigned topics: %s", error)
    found, snapshot = known(), updater.snapshot
    # Missing names are normal shortly after a topic was created; metadata without any ids is not.
    if len(found) < len(ids) and any(not topic.topic_id.int for topic in snapshot.topics.values()):
        raise UnsupportedVersionError(
            "the coordinator assigns topics by their ids, which the metadata of the brokers does "
            "not have (Kafka has them since 2.8): share groups and group_protocol='consumer' need "
            "them"
        )
    return found


class ConsumerRebalanceHandler:
    """Handles rebalances of a consumer; called by the membership task (see `RebalanceHandler`)."""

    protocol_type = PROTOCOL_TYPE

    def __init__(
        self,
        services: ClientServices,
        supervisor: Supervisor,
        config: ConsumerConfig,
        subscription: Subscription,
        delivery_gate: DeliveryGate,
        listeners: RebalanceListenerInvoker,
        rewinds: Rewinds,
        stored_rewinds: StoredRewinds | None,
        commit: CommitBeforeRevoke,
        on_change: Callable[[], None],
    ) -> None:
        # Parts of the consumer.
        self._services = services
        self._subscription = subscription
        self._delivery_gate = delivery_gate
        self._listeners = listeners
        self._commit = commit
        self._on_change = on_change
        # Sent to the group: the subscription's rack and the assignors, in order of preference.
        self._rack = config.client_rack or None
        self._timeout = seconds(config.request_timeout_ms)
        self._assignors: dict[str, Assignor] = {
            assignor.name: assignor
            for assignor in create_assignors(config.partition_assignment_strategy)
        }
        self._cooperative = (
            rebalance_protocol(list(self._assignors.values())) is RebalanceProtocol.COOPERATIVE
        )
        # Generation of the assignment; -1 until there is one, and after the partitions were lost.
        self._generation = -1
        self._membership_ended = False
        self._group_id = config.group_id or ""
        self._leader = GroupLeader(services, supervisor, config)
        # For `Consumer.explain_assignment`: what the leader assigned, and what this member
        # received.
        self._led: LeaderAssignment | None = None
        self._explained: Mapping[str, MemberExplanation] = {}
        self._explained_by = ""
        self._remote_assignor = config.group_remote_assignor or DEFAULT_ASSIGNOR
        self._rewinds = rewinds
        self._stored_rewinds = stored_rewinds

    # -- RebalanceHandler -------------------------------------------------------------------------

    def protocols(self) -> Sequence[tuple[str, bytes]]:
        """Return this consumer's subscription, encoded for each of its assignors."""
        topics = self._subscription.topics
        rewinds = self._rewinds.outgoing()
        return [
            (
                name,
                encode_subscription(
                    MemberSubscription(
                        topics,
                        # Sticky assignors need both: of two claims to a partition the newer one
                        # counts (KIP-792).
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
        """Revoke all partitions, or cooperatively only of topics that are not subscribed to."""
        # The next leader may be another member.
        self._leader.end()
        self._led = None
        owned, topics = self._subscription.owned, self._subscription.topics
        if self._cooperative:
            owned = frozenset(p for p in owned if p.topic not in topics)
        if owned:
            await self._revoke(owned)

    async def assign(self, name: str, members: Sequence[Member]) -> Mapping[str, bytes]:
        """Return all members' assignments by the assignor that the group has chosen."""
        self._led = await self._leader.assign(self._assignors[name], members)
        return self._led.encoded

    async def on_assignment_kept(self, members: Sequence[Member]) -> bool:
        """Follow the topics of all members; return True if partitions were added while it was away.

        Java's client does not compare and misses these partitions until the next rebalance.
        """
        return await self._leader.on_assignment_kept(members)

    async def on_join_complete(self, name: str, assignment: bytes, generation: int) -> bool:
        """Revoke and add partitions as assigned; return True if any was revoked."""
        received = decode_assignment(assignment)
        if received.error is not None:
            raise AssignorError(f"on the group leader: {received.error}")
        # Before the assignment changes it.
        owned = self._subscription.owned

        def note() -> None:
            self._note_assignment(name, received, owned)

        # First, since the positions must be committed before a new owner looks them up.
        await self._rewinds.on_message(received.rewinds, received.partitions, self._rewind)
        return await self._apply(received.partitions, generation, note)

    async def _rewind(
        self, wanted: Offsets, commit: Callable[[Offsets], Awaitable[Offsets]]
    ) -> Offsets:
        """Commit while no records are returned, and seek. New owners start there later.

        If that fails, dropped records are returned again.
        """
        states = self._subscription.states
        async with self._no_unprocessed(wanted):
            try:
                actual = await commit(wanted)
                # Only partitions that this consumer reads.
                for partition in actual.keys() & states.keys():
                    states[partition].rewind(actual[partition])
            except BaseException:
                for partition in wanted.keys() & states.keys():
                    states[partition].seek_to_unfinished()
                raise
            finally:
                # In any case: positions have changed.
                self._on_change()
        return actual

    async def rewind_at_once(
        self, wanted: Offsets, commit: Callable[[Offsets], Awaitable[Offsets]]
    ) -> Offsets:
        """Commit and seek while no records are returned, without waiting for returned records."""
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
        """Revoke and add partitions; return True if any was revoked."""
        owned = self._subscription.owned
        revoked = owned - assigned
        # Under the old generation, in which revoked partitions can still be committed.
        if revoked:
            await self._revoke(revoked)
        self._generation = generation
        self._leader.on_rebalanced()
        note_assignment()
        await self._assign_new(assigned - owned)
        return bool(revoked)

    # -- ConsumerProtocolHandler ------------------------------------------------------------------

    def subscription(self) -> GroupSubscription:
        """Return the subscribed topics, and the regular expression that the broker matches."""
        return GroupSubscription(self._subscription.topics, self._subscription.broker_pattern)

    async def topic_names(self, ids: Collection[UUID]) -> Mapping[UUID, str]:
        """Return the names of assigned topics; their metadata is fetched if needed."""
        matched = bool(self._subscription.broker_pattern)
        topics = None if matched else self._subscription.topics
        return await topic_names_by_id(self._services.metadata, ids, topics, self._timeout)

    async def on_assignment(self, assigned: frozenset[TopicPartition], epoch: int) -> None:
        """Revoke and add partitions as assigned, if anything has changed."""
        owned = self._subscription.owned

        def note() -> None:
            self._explained_by = self._remote_assignor
            self._explained = {"": explain_member(assigned, owned)}

        # The first assignment counts even if it is empty, later ones only if they differ.
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
        # An assignor may let several members read a partition; one of them commits.
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
        # A member that does not lead has one entry, under an empty key.
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
        # May be called again before the next poll.
        if not self._membership_ended:
            self._membership_ended = True
            self._delivery_gate.hold()
            self._delivery_gate.drop(self._subscription.owned)

    async def on_partitions_lost(self) -> None:
        """Drop all partitions at the next poll. Until then the coordinator fences commits."""
        self._leader.end()
        try:
            await self._lose_partitions()
        finally:
            # The hold of `on_membership_ended`; released even if a listener raises.
            if self._membership_ended:
                self._membership_ended = False
                self._delivery_gate.release()

    async def _lose_partitions(self) -> None:
        if not self._subscription.owned:
            return
        # Records are already fenced, so handlers are not waited for.
        async with self._no_unprocessed(self._subscription.owned, lost=True):
            lost = self._subscription.owned
            self._generation = -1
            await self._remove(lost, self._listeners.lost, hooks.PartitionsLost)

    async def on_leave_prepare(self) -> None:
        """Revoke all partitions."""
        self._leader.end()
        if self._subscription.owned:
            # Leaving revokes in order even if the application has not polled in time.
            await self._revoke(self._subscription.owned, ignore_poll_timeout=True)
        self._generation = -1

    def last_poll_time(self) -> float:
        """Return the event loop time of the last poll."""
        return self._delivery_gate.last_poll_time()

    def on_metadata(self, metadata: ClusterMetadata, rejoin: Callable[[str], None]) -> None:
        """Rejoin if topics that this member has assigned as the leader have changed."""
        self._leader.on_metadata(metadata, rejoin)

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
        """Return no records once returned ones are processed; end handlers of `lost` ones now."""
        gate = self._delivery_gate
        # Held first: otherwise a poll could return further records during the wait.
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
        # The listener runs while the partitions are still assigned, so that it can commit their
        # offsets.
        await self._listeners.invoke(callbacks, partitions, self._delivery_gate)
        self._subscription.remove_owned(partitions)
        self._emit(event, partitions)
        self._on_change()

    async def _assign_new(self, partitions: frozenset[TopicPartition]) -> None:
        # Assigned first, so that the listener can seek; fetching starts after it.
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


def _call(assignor: Assignor, method: Callable[[*Args], R], *args: *Args) -> R:
    """Call a method of an assignor; raise AssignorError for its exceptions."""
    try:
        return method(*args)
    except Exception as error:  # raised by the application's assignor
        raise assignor_error(assignor, error) from error
