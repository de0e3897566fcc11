"""The group coordinator: groups, their timers and pending requests.

Groups belong to the cluster, as if on disk; `Brokers.coordinator_for` selects the broker that
coordinates a group. When the coordinator changes, pending requests fail and the group is loaded.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import math
import uuid
from typing import TYPE_CHECKING, TypeAlias

from kafka_async.embedded.error_codes import ErrorCode, error_code_of
from kafka_async.embedded.groups.classic_group import ClassicGroup, GroupConfig
from kafka_async.embedded.groups.consumer_group import (
    ConsumerGroup,
    ConsumerGroupConfig,
    TopicPartitions,
)
from kafka_async.embedded.groups.consumer_group_members import JOIN_EPOCH
from kafka_async.embedded.groups.members import JoinResult, SyncResult
from kafka_async.embedded.groups.migration import downgraded_members, upgraded_members
from kafka_async.embedded.groups.share_group import ShareGroup, ShareGroupConfig
from kafka_async.embedded.groups.share_states import UNINITIALIZED, ShareKey
from kafka_async.embedded.groups.subscriptions import CONSUMER, decode_subscription
from kafka_async.errors import (
    CoordinatorLoadInProgressError,
    DecodeError,
    GroupIdNotFoundError,
    GroupNotEmptyError,
    KafkaError,
    StaleMemberEpochError,
    UnsupportedVersionError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from uuid import UUID

    from kafka_async.embedded.groups.consumer_group_members import (
        ConsumerHeartbeat,
        HeartbeatResult,
    )
    from kafka_async.embedded.groups.group_configs import GroupConfigs
    from kafka_async.embedded.groups.members import JoinRequest, SyncRequest
    from kafka_async.embedded.groups.server_assignors import TopicIdPartition
    from kafka_async.embedded.groups.share_group import ShareHeartbeat
    from kafka_async.embedded.groups.share_states import ShareStates
    from kafka_async.embedded.scheduler import Scheduler
    from kafka_async.embedded.settings import Settings
    from kafka_async.embedded.state.brokers import Brokers
    from kafka_async.embedded.state.offset_metadata_manager import OffsetMetadataManager
    from kafka_async.embedded.state.topics import TopicTable

Group: TypeAlias = ClassicGroup | ConsumerGroup | ShareGroup


def subscribed_topics(metadata: bytes) -> frozenset[str]:
    """Return the topics of a subscription, or no topics if the bytes are not a subscription."""
    try:
        subscription = decode_subscription(metadata)
    except (DecodeError, UnsupportedVersionError):
        return frozenset()
    return frozenset(subscription.topics)


class GroupCoordinator:
    """Coordinates all groups of the cluster, and owns their committed offsets."""

    def __init__(
        self,
        settings: Settings,
        brokers: Brokers,
        scheduler: Scheduler,
        offsets: OffsetMetadataManager,
        topics: TopicTable,
        share_states: ShareStates,
        configs: GroupConfigs,
    ) -> None:
        self.offsets = offsets
        self._share_states = share_states
        self._group_configs = configs
        self._topics = topics
        self._brokers = brokers
        self._scheduler = scheduler
        self._cluster_id = settings.cluster_id
        self._config = GroupConfig(
            settings.group_initial_rebalance_delay_ms / 1000,
            settings.group_max_size,
            settings.group_forward_assignor_errors,
            settings.group_random_leader,
            settings.group_persistent_members,
        )
        self._session_timeouts = (
            settings.group_min_session_timeout_ms / 1000,
            settings.group_max_session_timeout_ms / 1000,
        )
        self._load_time = settings.coordinator_load_time_ms / 1000
        policy = settings.group_consumer_migration_policy
        self._mixes = policy != "disabled"
        self._upgrades = policy in ("bidirectional", "upgrade")
        self._downgrades = policy in ("bidirectional", "downgrade")
        self._consumer_max_size = settings.group_consumer_max_size
        self._share_max_size = settings.group_share_max_size
        # By group id: the group, the broker that coordinated it last, and its timer.
        self._groups: dict[str, Group] = {}
        self._coordinators: dict[str, int | None] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        # By request id: JoinGroup and SyncGroup requests that wait for a rebalance.
        self._pending: dict[int, asyncio.Future[JoinResult | SyncResult]] = {}
        self._request_ids = itertools.count(1)
        self._member_ids = itertools.count(1)

    # -- coordinators -----------------------------------------------------------------------------

    def check_coordinator(
        self, broker_id: int, group_id: str, *, allow_empty_group_id: bool = False
    ) -> ErrorCode:
        """Return NONE if this broker coordinates the group.

        The empty group id has offsets, for very old clients, but no members.
        """
        if not group_id and not allow_empty_group_id:
            return ErrorCode.INVALID_GROUP_ID
        if self._brokers.coordinator_for(group_id) != broker_id:
            return ErrorCode.NOT_COORDINATOR
        return ErrorCode.NONE

    def on_brokers_changed(self) -> None:
        """Load the groups of changed coordinators."""
        for group_id, group in self._groups.items():
            broker_id = self._brokers.coordinator_for(group_id)
            if broker_id != self._coordinators[group_id]:
                self._coordinators[group_id] = broker_id
                group.reload(self._scheduler.now(), self._load_time)
                self._update(group)

    def close(self) -> None:
        """Cancel timers and pending requests."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        for future in self._pending.values():
            future.cancel()

    # -- membership -------------------------------------------------------------------------------

    async def join(self, group_id: str, request: JoinRequest) -> JoinResult:
        """Handle JoinGroup; wait for the rebalance."""
        minimum, maximum = self._session_timeouts
        if not minimum <= request.session_timeout <= maximum:
            return JoinResult(code=ErrorCode.INVALID_SESSION_TIMEOUT, member_id=request.member_id)
        group = self._groups.get(group_id)
        if isinstance(group, ShareGroup):
            return JoinResult(code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if isinstance(group, ConsumerGroup):
            if group.loading:
                return JoinResult(
                    code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, member_id=request.member_id
                )
            if group.members:
                if not self._mixes:
                    return JoinResult(code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
                return self._join_consumer_group(group, request)
            self._drop_group(group_id)  # An empty group takes the protocol of its first member.
            group = None
        if group is None:
            if request.member_id:
                return JoinResult(code=ErrorCode.UNKNOWN_MEMBER_ID, member_id=request.member_id)
            group = self._create_group(group_id)
        request_id = next(self._request_ids)
        group.join(request, request_id, self._scheduler.now())
        result = await self._response(group, request_id)
        assert isinstance(result, JoinResult)
        return result

    def _join_consumer_group(self, group: ConsumerGroup, request: JoinRequest) -> JoinResult:
        try:
            result = group.join_classic(request, self._scheduler.now())
        except KafkaError as error:
            return JoinResult(code=ErrorCode(error_code_of(error)))
        finally:
            self._update(group)
        if self._must_downgrade(group):  # the last other member was replaced
            self._downgrade(group, group.epoch)
        return result

    async def sync(self, group_id: str, request: SyncRequest) -> SyncResult:
        """Handle SyncGroup; wait for the leader's assignment."""
        group = self._groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            try:
                return group.sync_classic(request, self._scheduler.now())
            except KafkaError as error:
                return SyncResult(code=ErrorCode(error_code_of(error)))
            finally:
                self._update(group)
        if not isinstance(group, ClassicGroup):
            return SyncResult(code=ErrorCode.UNKNOWN_MEMBER_ID)
        request_id = next(self._request_ids)
        group.sync(request, request_id, self._scheduler.now())
        result = await self._response(group, request_id)
        assert isinstance(result, SyncResult)
        return result

    def heartbeat(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int
    ) -> ErrorCode:
        """Handle Heartbeat."""
        group = self._groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            try:
                group.heartbeat_classic(member_id, instance_id, generation, self._scheduler.now())
            except KafkaError as error:
                return ErrorCode(error_code_of(error))
            finally:
                self._update(group)
            return ErrorCode.NONE
        if not isinstance(group, ClassicGroup):
            return ErrorCode.UNKNOWN_MEMBER_ID
        code = group.heartbeat(member_id, instance_id, generation, self._scheduler.now())
        self._update(group)
        return code

    def leave(self, group_id: str, members: Sequence[tuple[str, str | None]]) -> list[ErrorCode]:
        """Handle LeaveGroup of members with their ids and instance ids; return their codes."""
        group, now = self._groups.get(group_id), self._scheduler.now()
        if group is None or isinstance(group, ShareGroup):
            return [ErrorCode.UNKNOWN_MEMBER_ID] * len(members)
        if isinstance(group, ConsumerGroup):
            codes = group.leave_classic(members, now)
        else:
            codes = [group.leave(*member, now) for member in members]
        self._on_members_removed(group)
        return codes

    def consumer_heartbeat(
        self, group_id: str, request: ConsumerHeartbeat, may_describe: Callable[[str], bool]
    ) -> HeartbeatResult:
        """Handle ConsumerGroupHeartbeat; raises the broker's error.

        A group is created by its first member; an empty classic group becomes a consumer group.
        """
        now = self._scheduler.now()
        former = self._groups.get(group_id)
        if isinstance(former, ConsumerGroup):
            group = former
        elif request.epoch == JOIN_EPOCH:
            group = self._new_consumer_group(group_id)
            if isinstance(former, ShareGroup):
                raise GroupIdNotFoundError(f"Group {group_id} is not a consumer group.")
            if former is not None:
                self._upgrade(former, group)
        else:
            reason = "not found" if former is None else "is not a consumer group"
            raise GroupIdNotFoundError(f"Consumer group {group_id} {reason}.")
        if request.epoch < JOIN_EPOCH:
            result = group.leave(request, now)
        else:
            result = group.heartbeat(request, now, may_describe)
        if group is not former:
            self._replace_group(former, group)
        self._on_members_removed(group)
        return result

    # -- online migration -------------------------------------------------------------------------

    def _upgrade(self, former: ClassicGroup, group: ConsumerGroup) -> None:
        """Give a consumer group the members of a classic group. Raises the broker's error."""
        if former.loading:
            raise CoordinatorLoadInProgressError("The coordinator is loading the group.")
        if not len(former.members):
            return
        refusal = f"Cannot upgrade classic group {former.id} to consumer group because"
        if not self._upgrades:
            raise GroupIdNotFoundError(f"{refusal} online upgrade is disabled.")
        if len(former.members) > self._consumer_max_size:
            raise GroupIdNotFoundError(f"{refusal} it exceeds the maximum size.")
        ids = {name: topic.id for name, topic in self._describe_topics().items()}
        members = upgraded_members(former, ids)
        group.take_over(former.generation, members, self._scheduler.now())

    def _must_downgrade(self, group: Group) -> bool:
        return (
            self._downgrades
            and isinstance(group, ConsumerGroup)
            and not group.loading
            and group.is_classic
            and len(group.members) <= self._config.max_size
        )

    def _downgrade(self, group: ConsumerGroup, generation: int) -> ClassicGroup:
        names = {topic.id: name for name, topic in self._describe_topics().items()}
        classic = ClassicGroup.restored(
            group.id,
            self._config,
            self._new_member_id,
            generation,
            downgraded_members(group, names),
            self._scheduler.now(),
        )
        self._replace_group(group, classic)
        self._update(classic)
        return classic

    def _on_members_removed(self, group: Group) -> None:
        """Update a group; without members of the consumer protocol it becomes a classic group."""
        if isinstance(group, ConsumerGroup) and self._must_downgrade(group):
            # The removal has begun an epoch, and the rebalance begins the generation of this
            # number.
            group = self._downgrade(group, group.epoch - 1)
            group.rebalance(self._scheduler.now())
        self._update(group)

    def _replace_group(self, former: Group | None, group: Group) -> None:
        self._drop_group(group.id)
        self._add_group(group)
        if isinstance(former, ClassicGroup):
            former.end()
            self._send_responses(former)

    def heartbeat_interval(self, group_id: str) -> float:
        """Return the seconds between two heartbeats of the members of a consumer group."""
        return self._consumer_config(group_id).heartbeat_interval

    # -- share groups -----------------------------------------------------------------------------

    def share_heartbeat(self, group_id: str, request: ShareHeartbeat) -> HeartbeatResult:
        """Handle ShareGroupHeartbeat; raises the broker's error.

        A group is created by its first member. Share states of new partitions are initialized after
        the response, so that the next heartbeat assigns them.
        """
        creates = request.epoch == JOIN_EPOCH and group_id not in self._groups
        group = self._new_share_group(group_id) if creates else self.require_share(group_id)
        if request.epoch < JOIN_EPOCH:
            result = group.leave(request)
        else:
            result = group.heartbeat(request, self._scheduler.now())
        if creates:
            self._add_group(group)
        self._initialize(group, dict.fromkeys(group.uninitialized_partitions(), UNINITIALIZED))
        self._update(group)
        return result

    def share_heartbeat_interval(self, group_id: str) -> float:
        """Return the seconds between two heartbeats of the members of a share group."""
        return self._share_config(group_id).heartbeat_interval

    def require_share(self, group_id: str) -> ShareGroup:
        """Return a share group; raises GroupIdNotFoundError."""
        group = self._groups.get(group_id)
        if isinstance(group, ShareGroup):
            return group
        if group is None:
            raise GroupIdNotFoundError(f"Share group {group_id} not found.")
        raise GroupIdNotFoundError(f"Group {group_id} is not a share group.")

    def alter_share_offsets(self, group_id: str, offsets: Mapping[TopicIdPartition, int]) -> None:
        """Begin new states of share partitions; the group must have no members, and may be missing.

        Raises:
            GroupIdNotFoundError: A group of another type has this id.
            GroupNotEmptyError: The group has members.
        """
        creates = group_id not in self._groups
        group = self._new_share_group(group_id) if creates else self.require_share(group_id)
        if group.members:
            raise GroupNotEmptyError("The group is not empty.")
        if creates:
            self._add_group(group)
        self._initialize(group, offsets)

    def delete_share_offsets(self, group_id: str, topic_ids: Collection[UUID]) -> set[UUID]:
        """Delete the share states of topics; return the topics that had states.

        Raises:
            GroupIdNotFoundError: The share group does not exist.
            GroupNotEmptyError: The group has members.
        """
        group = self.require_share(group_id)
        if group.members:
            raise GroupNotEmptyError("The group is not empty.")
        deleted = {topic_id for topic_id, _ in group.initialized} & set(topic_ids)
        group.initialized = {it for it in group.initialized if it[0] not in deleted}
        for topic_id in deleted:
            self._share_states.delete(group_id, topic_id)
        return deleted

    def _initialize(self, group: ShareGroup, offsets: Mapping[TopicIdPartition, int]) -> None:
        for (topic_id, partition), offset in offsets.items():
            key = ShareKey(group.id, topic_id, partition)
            self._share_states.initialize(key, offset, group.epoch)
            group.initialized.add((topic_id, partition))

    def _new_share_group(self, group_id: str) -> ShareGroup:
        return ShareGroup(group_id, lambda: self._share_config(group_id), self._describe_topics)

    def _share_config(self, group_id: str) -> ShareGroupConfig:
        configs = self._group_configs
        return ShareGroupConfig(
            configs.seconds(group_id, "share.session.timeout.ms"),
            configs.seconds(group_id, "share.heartbeat.interval.ms"),
            configs.seconds(group_id, "share.assignment.interval.ms"),
            self._share_max_size,
        )

    # -- offsets ----------------------------------------------------------------------------------

    def validate_offset_commit(
        self,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        partitions: Iterable[TopicIdPartition],
        *,
        transactional: bool = False,
        version: int,
        unknown_group: ErrorCode,
        stale_epoch: ErrorCode,
    ) -> ErrorCode:
        """Return NONE if offsets may be committed; without a generation, create a missing group.

        `unknown_group` and `stale_epoch` are the error codes in the request's version.
        """
        group = self._groups.get(group_id)
        if isinstance(group, ShareGroup):
            return ErrorCode.GROUP_ID_NOT_FOUND
        if isinstance(group, ConsumerGroup):
            try:
                group.validate_offset_commit(
                    member_id,
                    instance_id,
                    generation,
                    partitions,
                    transactional=transactional,
                    version=version,
                )
            except StaleMemberEpochError:
                return stale_epoch
            except KafkaError as error:
                return ErrorCode(error_code_of(error))
            return ErrorCode.NONE
        if group is None:
            if generation >= 0:
                return unknown_group
            group = self._create_group(group_id)
        code = group.validate_offset_commit(
            member_id, instance_id, generation, self._scheduler.now(), transactional=transactional
        )
        self._update(group)
        return code

    def validate_offset_fetch(
        self, group_id: str, member_id: str | None = None, epoch: int = -1
    ) -> ErrorCode:
        """Return NONE if offsets may be fetched, by a member or by another client."""
        group = self._groups.get(group_id)
        if group is None:
            return ErrorCode.NONE
        if group.loading:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        if isinstance(group, ConsumerGroup):
            try:
                group.validate_offset_fetch(member_id, epoch)
            except KafkaError as error:
                return ErrorCode(error_code_of(error))
        return ErrorCode.NONE

    def validate_offset_delete(self, group_id: str) -> ErrorCode:
        """Return NONE if offsets of a group may be deleted.

        The group must be empty, or have the protocol type "consumer"; the caller must then check
        that no member subscribes to the topic.
        """
        group = self._groups.get(group_id)
        if group is None or isinstance(group, ShareGroup):
            return ErrorCode.GROUP_ID_NOT_FOUND
        if group.loading:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        if len(group.members) and group.protocol_type != CONSUMER:
            return ErrorCode.NON_EMPTY_GROUP
        return ErrorCode.NONE

    def is_subscribed(self, group_id: str, topic: str) -> bool:
        """Return True if a member subscribes to a topic."""
        group = self._groups.get(group_id)
        if group is None:
            return False
        if not isinstance(group, ClassicGroup):
            return topic in group.subscribed_topics
        return any(
            topic in subscribed_topics(member.metadata(group.protocol)) for member in group.members
        )

    # -- groups -----------------------------------------------------------------------------------

    def classic(self, group_id: str) -> ClassicGroup | None:
        """Return a group of the classic protocol, or None."""
        group = self._groups.get(group_id)
        return group if isinstance(group, ClassicGroup) else None

    def consumer(self, group_id: str) -> ConsumerGroup | None:
        """Return a group of the consumer protocol, or None."""
        group = self._groups.get(group_id)
        return group if isinstance(group, ConsumerGroup) else None

    def exists(self, group_id: str) -> bool:
        """Return True if a group of any protocol has this id."""
        return group_id in self._groups

    def coordinated_by(self, broker_id: int) -> Iterator[Group]:
        """Return the groups that a broker coordinates."""
        return (
            group
            for group_id, group in tuple(self._groups.items())
            if self._brokers.coordinator_for(group_id) == broker_id
        )

    def delete(self, group_id: str) -> ErrorCode:
        """Delete a group without members, and its offsets."""
        group = self._groups.get(group_id)
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        code = group.delete()
        if code is ErrorCode.NONE:
            self.offsets.delete_group(group_id)
            self._share_states.delete(group_id)
            self._drop_group(group_id)
        return code

    # -- pending requests -------------------------------------------------------------------------

    def _create_group(self, group_id: str) -> ClassicGroup:
        group = ClassicGroup(group_id, self._config, self._new_member_id)
        self._add_group(group)
        return group

    def _new_consumer_group(self, group_id: str) -> ConsumerGroup:
        return ConsumerGroup(
            group_id,
            lambda: self._consumer_config(group_id),
            self._describe_topics,
            self._new_consumer_member_id,
        )

    def _consumer_config(self, group_id: str) -> ConsumerGroupConfig:
        configs = self._group_configs
        return ConsumerGroupConfig(
            configs.seconds(group_id, "consumer.session.timeout.ms"),
            configs.seconds(group_id, "consumer.heartbeat.interval.ms"),
            configs.seconds(group_id, "consumer.assignment.interval.ms"),
            self._consumer_max_size,
        )

    def _describe_topics(self) -> Mapping[str, TopicPartitions]:
        return {it.name: TopicPartitions(it.id, len(it.partitions)) for it in self._topics}

    def _add_group(self, group: Group) -> None:
        self._groups[group.id] = group
        self._coordinators[group.id] = self._brokers.coordinator_for(group.id)

    def _drop_group(self, group_id: str) -> None:
        """Remove a group, but not its offsets."""
        self._groups.pop(group_id, None)
        self._coordinators.pop(group_id, None)
        self._cancel_timer(group_id)

    async def _response(self, group: ClassicGroup, request_id: int) -> JoinResult | SyncResult:
        future = self._pending[request_id] = asyncio.get_running_loop().create_future()
        self._update(group)
        try:
            return await future
        finally:
            del self._pending[request_id]

    def _update(self, group: Group) -> None:
        """Send the ready responses and set the group's timer; called after each change."""
        if isinstance(group, ClassicGroup):
            self._send_responses(group)
        self._cancel_timer(group.id)
        if self._groups.get(group.id) is group and group.deadline < math.inf:
            delay = max(group.deadline - self._scheduler.now(), 0.0)
            self._timers[group.id] = self._scheduler.call_later(
                delay, self._expire, group, group.deadline
            )

    def _send_responses(self, group: ClassicGroup) -> None:
        for request_id, result in group.pop_responses():
            future = self._pending.get(request_id)
            if future is not None and not future.done():
                future.set_result(result)

    def _expire(self, group: Group, deadline: float) -> None:
        # An event loop may call early, by up to its clock's resolution.
        group.expire(max(self._scheduler.now(), deadline))
        self._on_members_removed(group)

    def _cancel_timer(self, group_id: str) -> None:
        timer = self._timers.pop(group_id, None)
        if timer is not None:
            timer.cancel()

    def _new_member_id(self, prefix: str) -> str:
        name = f"{self._cluster_id}/member/{next(self._member_ids)}"
        return f"{prefix}-{uuid.uuid5(uuid.NAMESPACE_OID, name)}"

    def _new_consumer_member_id(self) -> str:
        name = f"{self._cluster_id}/member/{next(self._member_ids)}"
        generated = uuid.uuid5(uuid.NAMESPACE_OID, name).bytes
        return base64.urlsafe_b64encode(generated).rstrip(b"=").decode()
