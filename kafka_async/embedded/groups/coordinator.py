"""The group coordinator: finds the group, keeps the timers, lets requests wait for their answers.

Groups belong to the cluster, as if they were on disk; which broker may speak for one is a question
of placement. A group is read anew when its broker changes: what waited there fails.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import uuid
from typing import TYPE_CHECKING

from kafka_async.embedded.codes import Code
from kafka_async.embedded.groups.classic import ClassicGroup, GroupLimits
from kafka_async.embedded.groups.members import JoinResult, SyncResult
from kafka_async.embedded.groups.offsets import OffsetStore
from kafka_async.embedded.groups.state import GroupState
from kafka_async.embedded.groups.subscriptions import CONSUMER, subscribed_topics

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafka_async.embedded.cluster import EmbeddedCluster
    from kafka_async.embedded.groups.members import JoinCall, SyncCall


class GroupCoordinator:
    """All groups of the cluster."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        settings = cluster.settings
        self._cluster = cluster
        self._limits = GroupLimits(
            settings.group_initial_rebalance_delay_ms / 1000, settings.group_max_size
        )
        self._sessions = (
            settings.group_min_session_timeout_ms / 1000,
            settings.group_max_session_timeout_ms / 1000,
        )
        self._load_time = settings.coordinator_load_time_ms / 1000
        self._groups: dict[str, ClassicGroup] = {}
        self._brokers: dict[str, int | None] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._waiting: dict[int, asyncio.Future[JoinResult | SyncResult]] = {}
        self._tickets = itertools.count(1)
        self._member_ids = itertools.count(1)
        self.offsets = OffsetStore()

    # -- placement -----------------------------------------------------------------------------

    def route(self, broker_id: int, group_id: str, *, unnamed: bool = False) -> Code:
        """Whether this broker may answer for this group.

        The group without a name has no members, but offsets, for very old clients (`unnamed`).
        """
        if not group_id and not unnamed:
            return Code.INVALID_GROUP_ID
        if self._cluster.coordinator_for(group_id) != broker_id:
            return Code.NOT_COORDINATOR
        return Code.NONE

    def placement_changed(self) -> None:
        """Brokers came or went: groups that have another coordinator now are read anew there."""
        for group_id, group in self._groups.items():
            broker_id = self._cluster.coordinator_for(group_id)
            if broker_id != self._brokers[group_id]:
                self._brokers[group_id] = broker_id
                group.move(self._now(), self._load_time)
                self._settle(group)

    def close(self) -> None:
        """The cluster stops: nobody will be answered any more."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        for waiter in self._waiting.values():
            waiter.cancel()

    # -- membership ----------------------------------------------------------------------------

    async def join(self, group_id: str, call: JoinCall) -> JoinResult:
        """JoinGroup; waits for the rebalance."""
        shortest, longest = self._sessions
        if not shortest <= call.session_timeout <= longest:
            return JoinResult(code=Code.INVALID_SESSION_TIMEOUT, member_id=call.member_id)
        group = self._groups.get(group_id)
        if group is None:
            if call.member_id:
                return JoinResult(code=Code.UNKNOWN_MEMBER_ID, member_id=call.member_id)
            group = self._create(group_id)
        ticket = next(self._tickets)
        group.join(call, ticket, self._now())
        result = await self._answer(group, ticket)
        assert isinstance(result, JoinResult)
        return result

    async def sync(self, group_id: str, call: SyncCall) -> SyncResult:
        """SyncGroup; waits for the leader's."""
        group = self._groups.get(group_id)
        if group is None:
            return SyncResult(code=Code.UNKNOWN_MEMBER_ID)
        ticket = next(self._tickets)
        group.sync(call, ticket, self._now())
        result = await self._answer(group, ticket)
        assert isinstance(result, SyncResult)
        return result

    def heartbeat(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int
    ) -> Code:
        """Heartbeat."""
        group = self._groups.get(group_id)
        if group is None:
            return Code.UNKNOWN_MEMBER_ID
        code = group.heartbeat(member_id, instance_id, generation, self._now())
        self._settle(group)
        return code

    def leave(self, group_id: str, member_id: str, instance_id: str | None) -> Code:
        """One member of a LeaveGroup."""
        group = self._groups.get(group_id)
        if group is None:
            return Code.UNKNOWN_MEMBER_ID
        code = group.leave(member_id, instance_id, self._now())
        self._settle(group)
        return code

    # -- offsets -------------------------------------------------------------------------------

    def check_commit(
        self,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        *,
        transactional: bool = False,
        unknown_group: Code,
    ) -> Code:
        """Whether offsets may be committed; one that names no generation makes the group."""
        group = self._groups.get(group_id)
        if group is None:
            if generation >= 0:
                return unknown_group
            group = self._create(group_id)
        code = group.commit(
            member_id, instance_id, generation, self._now(), transactional=transactional
        )
        self._settle(group)
        return code

    def check_offset_delete(self, group_id: str) -> Code:
        """Whether offsets may be deleted: while there are members, only of a group of consumers."""
        group = self._groups.get(group_id)
        if group is None:
            return Code.GROUP_ID_NOT_FOUND
        if group.state is GroupState.INITIALIZE:
            return Code.COORDINATOR_LOAD_IN_PROGRESS
        if len(group.roster) and group.protocol_type != CONSUMER:
            return Code.NON_EMPTY_GROUP
        return Code.NONE

    def reads(self, group_id: str, topic: str) -> bool:
        """Whether a member subscribes to a topic."""
        group = self._groups.get(group_id)
        if group is None:
            return False
        return any(
            topic in subscribed_topics(member.metadata(group.protocol)) for member in group.roster
        )

    def topic_deleted(self, topic: str) -> None:
        """Drop the offsets of a topic that is gone."""
        self.offsets.forget_topic(topic)

    # -- groups --------------------------------------------------------------------------------

    def find(self, group_id: str) -> ClassicGroup | None:
        """A group, None if there is no such."""
        return self._groups.get(group_id)

    def at(self, broker_id: int) -> Iterator[ClassicGroup]:
        """The groups that a broker coordinates."""
        return (
            group
            for group_id, group in tuple(self._groups.items())
            if self._cluster.coordinator_for(group_id) == broker_id
        )

    def delete(self, group_id: str) -> Code:
        """Drop a group without members, and its offsets."""
        group = self._groups.get(group_id)
        if group is None:
            return Code.GROUP_ID_NOT_FOUND
        code = group.delete()
        if code is Code.NONE:
            self.offsets.forget_group(group_id)
            del self._groups[group_id], self._brokers[group_id]
            self._disarm(group_id)
        return code

    # -- waiting -------------------------------------------------------------------------------

    def _create(self, group_id: str) -> ClassicGroup:
        group = ClassicGroup(group_id, self._limits, self._new_member_id)
        self._groups[group_id] = group
        self._brokers[group_id] = self._cluster.coordinator_for(group_id)
        return group

    async def _answer(self, group: ClassicGroup, ticket: int) -> JoinResult | SyncResult:
        waiter = self._waiting[ticket] = asyncio.get_running_loop().create_future()
        self._settle(group)
        try:
            return await waiter
        finally:
            del self._waiting[ticket]

    def _settle(self, group: ClassicGroup) -> None:
        """After each call: hand out the answers, and set the timer for what is due next."""
        for ticket, result in group.answers():
            waiter = self._waiting.get(ticket)
            if waiter is not None and not waiter.done():
                waiter.set_result(result)
        self._disarm(group.id)
        if group.state is not GroupState.DOWN and group.deadline < math.inf:
            delay = max(group.deadline - self._now(), 0.0)
            self._timers[group.id] = self._cluster.call_later(
                delay, self._expire, group, group.deadline
            )

    def _expire(self, group: ClassicGroup, deadline: float) -> None:
        # A loop may call a little early, by its clock's resolution.
        group.expire(max(self._now(), deadline))
        self._settle(group)

    def _disarm(self, group_id: str) -> None:
        timer = self._timers.pop(group_id, None)
        if timer is not None:
            timer.cancel()

    def _now(self) -> float:
        return self._cluster.loop.time()

    def _new_member_id(self, prefix: str) -> str:
        name = f"{self._cluster.settings.cluster_id}/member/{next(self._member_ids)}"
        return f"{prefix}-{uuid.uuid5(uuid.NAMESPACE_OID, name)}"
