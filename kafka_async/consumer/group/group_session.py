"""Joins a consumer to its group: membership, commits and rewinds.

A consumer has a `GroupSession` if it has a group_id, and else `NoGroup`, which has the same verbs.

    membership ──▶ rebalance handler ──▶ rewinds
         ▲                                  │
         └────────── the session ◀──────────┘
                         │
                         └──▶ offset committer

Rewinds commit and rejoin by the session's methods.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from kafka_async.config import seconds
from kafka_async.consumer.group.offset_committer import OffsetCommitter
from kafka_async.consumer.group.rebalance_handler import ConsumerRebalanceHandler
from kafka_async.consumer.group.rewind.rewind_store import RewindStore
from kafka_async.consumer.group.rewind.rewinds import Rewinds
from kafka_async.consumer.group.rewind.stored_rewinds import StoredRewinds
from kafka_async.errors import ClientClosedError, IllegalStateError, KafkaError, KafkaTimeoutError
from kafka_async.group.consumer_group_heartbeat import ConsumerGroupMembership
from kafka_async.group.consumer_group_requests import ConsumerHeartbeatRequests
from kafka_async.group.member import GroupSettings
from kafka_async.group.member_states import REJOINS_AT_POLL, MemberState
from kafka_async.group.membership import GroupMembership

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from uuid import UUID

    from kafka_async.client.metadata.metadata import ClusterMetadata
    from kafka_async.client.services import ClientServices
    from kafka_async.config import ConsumerConfig
    from kafka_async.consumer.delivery.delivery_gate import DeliveryGate
    from kafka_async.consumer.group.closing import Closing
    from kafka_async.consumer.group.rebalance_listener import RebalanceListenerInvoker
    from kafka_async.consumer.interceptors import ConsumerInterceptors
    from kafka_async.consumer.positions.offset_lookup import OffsetLookup
    from kafka_async.consumer.subscription import Subscription
    from kafka_async.foundation.supervisor import Supervisor
    from kafka_async.group.explanation import AssignmentExplanation
    from kafka_async.group.protocol_choice import GroupProtocol
    from kafka_async.types import (
        GroupMetadata,
        OffsetAndMetadata,
        TopicPartition,
    )

    Offsets = Mapping[TopicPartition, OffsetAndMetadata]

logger = logging.getLogger("kafka_async.consumer")


class NoGroup:
    """Stands for the group of a consumer without group_id: there is nothing to join or commit.

    Args:
        subscription: The consumer reads all partitions of its topics.
        on_partitions_changed: Called after partitions were added.
    """

    commits = False
    failed_permanently = False
    error: Exception | None = None
    in_flight = 0
    heartbeat_at: float | None = None
    commit_count = 0
    rebalances = 0

    def __init__(
        self, subscription: Subscription, on_partitions_changed: Callable[[], None]
    ) -> None:
        self._subscription = subscription
        self._on_partitions_changed = on_partitions_changed

    def start(self) -> None:
        """Do nothing."""

    def on_closing(self, closing: Closing) -> None:
        """Do nothing."""

    def shorten_closing(self) -> None:
        """Do nothing."""

    async def close(self, closing: Closing) -> KafkaError | None:
        """Return None: nothing is committed."""
        return None

    # -- the subscription and its topics ----------------------------------------------------------

    def join(self, reason: str) -> None:
        """Do nothing."""

    async def leave(self) -> None:
        """Do nothing."""

    def on_metadata(self, metadata: ClusterMetadata) -> None:
        """Own all partitions of the subscribed topics."""
        topics = self._subscription.topics
        if self._subscription.own_all_partitions({t: metadata.partitions(t) for t in topics}):
            self._on_partitions_changed()

    def explain(self) -> AssignmentExplanation:
        """Raise IllegalStateError."""
        raise _no_group()

    # -- polls ------------------------------------------------------------------------------------

    def on_poll(self) -> None:
        """Do nothing."""

    def on_stream_progress(self) -> None:
        """Do nothing."""

    def take_error(self) -> Exception | None:
        """Return None."""
        return None

    def drop_error_if(self, outdated: Callable[[Exception | None], bool]) -> None:
        """Do nothing."""

    # -- offsets ----------------------------------------------------------------------------------

    async def commit(self, offsets: Offsets, timeout: float, *, named: bool) -> None:
        """Raise IllegalStateError."""
        raise IllegalStateError("committing needs a group_id")

    async def commit_automatically(self) -> None:
        """Do nothing."""

    async def fetch_committed(
        self,
        partitions: Collection[TopicPartition],
        timeout: float,
        *,
        known_only: bool = False,
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Raise IllegalStateError."""
        raise IllegalStateError("committed offsets need a group_id")

    def on_committed(self, offsets: Offsets) -> None:
        """Do nothing."""

    def note_new_topic(self, topic: str, former: UUID) -> None:
        """Do nothing."""

    async def rewind(
        self, offsets: dict[TopicPartition, int], timeout: float
    ) -> dict[TopicPartition, int]:
        """Raise IllegalStateError."""
        raise _no_rewind()

    def end_rewinds(self) -> None:
        """Do nothing."""

    # -- transactions -----------------------------------------------------------------------------

    @property
    def metadata(self) -> GroupMetadata:
        """Raise IllegalStateError."""
        raise _no_group()

    async def next_generation(self, former: GroupMetadata) -> GroupMetadata | None:
        """Return None."""
        return None


class GroupSession:
    """Keeps a consumer with a group_id in its group, commits and rewinds.

    Args:
        on_partitions_changed: Called after partitions were added, removed or sought.
        on_error: Called when polls have to raise an error.
    """

    commits = True

    def __init__(
        self,
        services: ClientServices,
        supervisor: Supervisor,
        config: ConsumerConfig,
        subscription: Subscription,
        gate: DeliveryGate,
        listeners: RebalanceListenerInvoker,
        offset_lookup: OffsetLookup,
        interceptors: ConsumerInterceptors | None,
        group_protocol: GroupProtocol,
        on_partitions_changed: Callable[[], None],
        on_error: Callable[[], None],
    ) -> None:
        assert config.group_id is not None
        self._supervisor = supervisor
        self._config = config
        self._subscription = subscription
        self._gate = gate
        self._now = asyncio.get_running_loop().time
        self._report_error = on_error
        self._closing: Closing | None = None
        # Timeouts that closing reschedules, so that it does not wait for a commit or a rewind
        # longer than its own deadlines.
        self._revoke_commit: asyncio.Timeout | None = None
        self._pending_rewinds: set[asyncio.Timeout] = set()
        timeout = seconds(config.request_timeout_ms)
        self._rewinds = Rewinds(offset_lookup, self._commit_at_once, self._rejoin, timeout)
        self._stored_rewinds: StoredRewinds | None = None
        if group_protocol == "consumer":
            self._stored_rewinds = StoredRewinds(
                RewindStore(services, config.group_id, timeout),
                self._rewinds,
                subscription,
                self._rejoin,
                lambda: self._membership.state is MemberState.STABLE,
                seconds(config.rewind_check_interval_ms),
                services.clock.wall,
            )
        self._rebalance_handler = ConsumerRebalanceHandler(
            services,
            supervisor,
            config,
            subscription,
            gate,
            listeners,
            self._rewinds,
            self._stored_rewinds,
            self._commit_before_revoke,
            on_partitions_changed,
        )
        self._membership = self._new_membership(services, group_protocol)
        self._committer = OffsetCommitter(
            services, config, self._membership, subscription, gate, interceptors
        )

    def _new_membership(
        self, services: ClientServices, group_protocol: GroupProtocol
    ) -> GroupMembership:
        config, handler = self._config, self._rebalance_handler
        settings, on_error = GroupSettings.of(config), self._on_member_error
        if group_protocol == "consumer":
            rack = config.client_rack or None
            requests = ConsumerHeartbeatRequests(config.group_remote_assignor, rack)
            return ConsumerGroupMembership(
                services, self._supervisor, settings, handler, on_error, requests
            )
        return GroupMembership(services, self._supervisor, settings, handler, on_error)

    # -- starting and closing ---------------------------------------------------------------------

    def start(self) -> None:
        """Start the tasks; the member joins after a call of `join`."""
        self._membership.start()
        if self._config.enable_auto_commit:
            self._supervisor.spawn(self._run_auto_commit, name="auto-commit")
        if self._stored_rewinds is not None and self._config.rewind_check_interval_ms:
            self._supervisor.spawn(self._stored_rewinds.run, name="rewinds")

    def on_closing(self, closing: Closing) -> None:
        """End what would outlast the consumer: rewinds, and late commits before partitions go."""
        self._closing = closing
        self.end_rewinds()
        self.shorten_closing()

    def shorten_closing(self) -> None:
        """Limit a commit before a revocation to the deadline of closing, which may be earlier."""
        if self._closing is not None and self._revoke_commit is not None:
            self._revoke_commit.reschedule(self._closing.commit_by)

    async def close(self, closing: Closing) -> KafkaError | None:
        """Commit, with auto-commit, and leave; return an error that a retry cannot resolve."""
        failure: KafkaError | None = None
        if self._config.enable_auto_commit:
            failure = await closing.commit(self._committer)
        await closing.leave_group(self._membership)
        return failure

    # -- condition --------------------------------------------------------------------------------

    @property
    def failed_permanently(self) -> bool:
        """True once the group has rejected this member for good."""
        return self._membership.failed_permanently

    @property
    def error(self) -> Exception | None:
        """The member's current error."""
        return self._membership.error

    @property
    def in_flight(self) -> int:
        """Requests of the member without a response."""
        return self._membership.in_flight

    @property
    def heartbeat_at(self) -> float | None:
        """Event loop time of the last successful heartbeat; None before the first."""
        return self._membership.heartbeat_at

    @property
    def commit_count(self) -> int:
        """Number of successful commits."""
        return self._committer.commit_count

    @property
    def rebalances(self) -> int:
        """Number of completed rebalances."""
        return self._membership.rebalances

    # -- the subscription and its topics ----------------------------------------------------------

    def join(self, reason: str) -> None:
        """Join the group, or join again with the current subscription."""
        self._membership.join(reason)

    def _rejoin(self, reason: str) -> None:
        self._membership.rejoin(reason)

    async def leave(self) -> None:
        """Revoke all partitions and leave the group."""
        await self._membership.leave()

    def on_metadata(self, metadata: ClusterMetadata) -> None:
        """Rebalance the group if this member leads it and the topics have changed."""
        self._rebalance_handler.on_metadata(metadata, self._membership.rejoin)

    def explain(self) -> AssignmentExplanation:
        """Explain the current assignment."""
        member = self._membership
        return self._rebalance_handler.explain(member.member_id, member.rebalance_reason)

    # -- polls ------------------------------------------------------------------------------------

    def on_poll(self) -> None:
        """Continue after a poll timeout or an error."""
        # After a poll timeout only if the task of a stream that has caused it has ended.
        if not (self._poll_timed_out and self._gate.poll_timed_out):
            self._membership.on_poll()

    def on_stream_progress(self) -> None:
        """Rejoin once no task of a stream exceeds max_poll_interval_ms any more."""
        if self._poll_timed_out:
            self.on_poll()

    @property
    def _poll_timed_out(self) -> bool:
        return self._membership.state is MemberState.POLL_TIMEOUT

    def take_error(self) -> Exception | None:
        """Return the error that a poll has to raise."""
        return self._membership.take_error()

    def drop_error_if(self, outdated: Callable[[Exception | None], bool]) -> None:
        """Do not raise an error whose cause is gone, such as former credentials."""
        if outdated(self._membership.error):
            self._membership.drop_error()

    def _on_member_error(self) -> None:
        self._report_error()
        if self.failed_permanently or self._supervisor.failure is not None:
            self.end_rewinds()

    # -- offsets ----------------------------------------------------------------------------------

    async def commit(self, offsets: Offsets, timeout: float, *, named: bool) -> None:
        """Commit offsets, see `OffsetCommitter.commit`."""
        await self._committer.commit(offsets, timeout, named=named)

    async def fetch_committed(
        self,
        partitions: Collection[TopicPartition],
        timeout: float,
        *,
        known_only: bool = False,
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the committed offsets, see `OffsetCommitter.fetch_committed`."""
        return await self._committer.fetch_committed(partitions, timeout, known_only=known_only)

    def on_committed(self, offsets: Offsets) -> None:
        """Record offsets that a transaction has committed."""
        self._committer.on_committed(offsets)

    def note_new_topic(self, topic: str, former: UUID) -> None:
        """Warn no more of a commit for a deleted topic: its successor was warned of."""
        self._committer.note_warning(topic, former)

    async def _run_auto_commit(self) -> None:
        interval = seconds(self._config.auto_commit_interval_ms)
        while True:
            await asyncio.sleep(interval)
            if self._closing is not None:
                return  # `close` commits; after LeaveGroup the coordinator would refuse this commit
            # While the gate is held, the rebalance commits.
            if not self._gate.held:
                await self.commit_automatically()

    async def commit_automatically(self) -> None:
        """Commit the processed records; log an error."""
        try:
            await self._commit_at_once(self._subscription.to_commit(include_unprocessed=False))
        except KafkaError as error:
            logger.warning("auto-commit: %s", error)

    async def _commit_at_once(self, offsets: Offsets) -> None:
        """Commit without waiting for a rebalance, which may be waiting for this commit."""
        timeout = seconds(self._config.request_timeout_ms)
        await self._committer.commit(offsets, timeout, wait_for_rebalance=False)

    async def _commit_before_revoke(self, partitions: Collection[TopicPartition]) -> None:
        """Commit processed records before their partitions are revoked, with auto-commit.

        This is not done when a closing consumer leaves: its last commit has come first.
        """
        closing = self._closing
        leaves = self._membership.state is MemberState.LEAVING
        if not self._config.enable_auto_commit or (closing is not None and leaves):
            return
        # Records that are still being processed are delivered again, to the next owner.
        due = self._subscription.to_commit(include_unprocessed=False)
        commit_by = None if closing is None else closing.commit_by
        try:
            # Kept as an attribute, so that closing can shorten it.
            async with asyncio.timeout_at(commit_by) as self._revoke_commit:
                await self._commit_at_once({p: due[p] for p in partitions if p in due})
        except (KafkaError, TimeoutError) as error:
            logger.warning("committing before partitions are revoked: %s", error)
        finally:
            self._revoke_commit = None

    # -- rewinds ----------------------------------------------------------------------------------

    async def rewind(
        self, offsets: dict[TopicPartition, int], timeout: float
    ) -> dict[TopicPartition, int]:
        """Rewind partitions of the group, see `Consumer.rewind`."""
        if not self._subscription.subscribes:
            raise _no_rewind()
        self._gate.check_may_wait_for_rebalance("rewind")
        self._check_member()
        if self._membership.state in REJOINS_AT_POLL:
            raise IllegalStateError(
                f"{self._supervisor.name} has left its group ({self._membership.state.value}), and "
                "joins it again at its next poll: poll, then rewind"
            )
        # Without a limit: `end_rewinds` lets it expire when the consumer stops or fails.
        pending = asyncio.timeout(None)
        self._pending_rewinds.add(pending)
        try:
            async with pending:
                return await self._rewind(offsets, self._now() + timeout)
        except TimeoutError:
            # A timeout of the rewind itself, not of `pending`.
            if not pending.expired():
                raise
        finally:
            self._pending_rewinds.remove(pending)
        if self._closing is None:
            self._supervisor.check()
            self._check_member()
        raise ClientClosedError(
            f"{self._supervisor.name} is closed, and its rewind may or may not have been applied"
        )

    def end_rewinds(self) -> None:
        """End pending rewinds: this consumer applies no more replies."""
        for pending in self._pending_rewinds:
            if not pending.expired():
                pending.reschedule(self._now())

    async def _rewind(
        self, offsets: dict[TopicPartition, int], deadline: float
    ) -> dict[TopicPartition, int]:
        # The short way, without a rebalance. If one has come between, the partitions may be another
        # member's, and the request goes through the group.
        if self._may_rewind_at_once(offsets) and (
            actual := await self._rewind_at_once(offsets, deadline - self._now())
        ):
            return actual
        left = max(0.0, deadline - self._now())
        try:
            if self._stored_rewinds is not None:
                return await self._stored_rewinds.rewind(offsets, left)
            return await self._rewinds.rewind(offsets, left)
        except KafkaTimeoutError as error:
            # The cause is usually in the application: the same task has polled and calls rewind.
            if not self._gate.delays_rebalance:
                raise
            raise KafkaTimeoutError(
                f"{error.message}; {self._supervisor.name} cannot rebalance before the records "
                "that its last poll has returned are processed: commit them before rewind, or poll "
                "in another task meanwhile"
            ) from error

    def _may_rewind_at_once(self, offsets: dict[TopicPartition, int]) -> bool:
        """Return True if this member owns the partitions and no handler has records of them."""
        return (
            self._membership.state is MemberState.STABLE
            and offsets.keys() <= self._subscription.owned
            and self._gate.may_seek
        )

    async def _rewind_at_once(
        self, offsets: dict[TopicPartition, int], timeout: float
    ) -> dict[TopicPartition, int] | None:
        """Rewind owned partitions; return None if a rebalance may have undone that by a commit."""
        member, seek = self._membership, self._rebalance_handler.rewind_at_once
        rebalances = member.rebalances
        actual = await self._rewinds.rewind_at_once(offsets, timeout, seek)
        # A rebalance during the commit may have committed positions from before it.
        undisturbed = member.state is MemberState.STABLE and member.rebalances == rebalances
        return actual if undisturbed else None

    def _check_member(self) -> None:
        """Raise the error for which the group has rejected this member for good."""
        if self._membership.failed_permanently and self._membership.error is not None:
            raise self._membership.error

    # -- transactions -----------------------------------------------------------------------------

    @property
    def metadata(self) -> GroupMetadata:
        """Identity of the member in its current generation."""
        return self._membership.metadata

    async def next_generation(self, former: GroupMetadata) -> GroupMetadata | None:
        """Wait for a generation after `former`; None if this member lost its place."""
        return await self._membership.next_generation(former)


def _no_group() -> IllegalStateError:
    return IllegalStateError("a consumer without group_id has no group")


def _no_rewind() -> IllegalStateError:
    return IllegalStateError("rewind needs a group_id and a subscription; else use seek")
