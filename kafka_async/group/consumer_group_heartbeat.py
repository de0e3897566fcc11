"""Membership in a group whose coordinator computes the assignment: KIP-848, and KIP-932.

A heartbeat does everything: it joins, states what the member subscribes to and owns, and its
response has the next assignment. The states are those of the classic protocol (`member_states.py`),
with two differences: nothing is revoked before the coordinator requires it, and no other member is
waited for. The member reports at once which partitions it has taken over or revoked; the
coordinator then advances its epoch. In a share group nothing is revoked or taken over: members may
share the partitions.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import uuid
from typing import TYPE_CHECKING, Final, cast

from anyio import move_on_after

from kafka_async.errors import KafkaError
from kafka_async.foundation.backoff import Backoff
from kafka_async.group.coordinator_connection import CoordinatorConnection
from kafka_async.group.member import PollTimeoutError
from kafka_async.group.member_states import (
    CONSUMER_HEARTBEAT_ERRORS,
    CONSUMER_JOIN_ERRORS,
    HEARTBEAT_STATES,
    Invalidation,
    MembershipEvent,
    MemberState,
    membership_error_action,
)
from kafka_async.group.membership import GroupMembership
from kafka_async.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafka_async.client.services import ClientServices
    from kafka_async.foundation.supervisor import Supervisor
    from kafka_async.group.consumer_group_requests import (
        HeartbeatRequests,
        HeartbeatResult,
        TopicIdPartition,
    )
    from kafka_async.group.member import (
        ConsumerProtocolHandler,
        GroupSettings,
        RebalanceHandler,
    )

logger = logging.getLogger("kafka_async.group")

REWINDING_MEMBER_PREFIX: Final = "rewinds-"
"""Prefix of the ids of members that apply the rewinds of others (`Consumer.rewind`)."""
UNKNOWN_TOPIC_DELAY = 0.5
"""Seconds until the names of assigned topics are looked up again."""


class ConsumerGroupMembership(GroupMembership):
    """Keeps a consumer in a group of the consumer protocol, or in a share group.

    Args:
        requests: Builds the heartbeats of the protocol.
    """

    has_epochs = True
    _heartbeat_errors = CONSUMER_HEARTBEAT_ERRORS

    def __init__(
        self,
        services: ClientServices,
        supervisor: Supervisor,
        settings: GroupSettings,
        handler: ConsumerProtocolHandler,
        on_error: Callable[[], None],
        requests: HeartbeatRequests,
    ) -> None:
        # The methods that only the classic protocol has are not called here.
        classic = cast("RebalanceHandler", handler)
        super().__init__(services, supervisor, settings, classic, on_error)
        # Replaces the one of the classic protocol, which would leave with LeaveGroup.
        self._coordinator = CoordinatorConnection(
            services, settings, requests.leave, requests.api_key
        )
        self._assignments = handler
        self._requests = requests
        # The coordinator chooses the interval (KIP-848), and a change makes a heartbeat due at
        # once.
        self._interval = settings.heartbeat_interval
        self._heartbeat_due = asyncio.Event()
        # Assigned by the coordinator, and reported as owned. They differ while partitions are taken
        # over.
        self._target: frozenset[TopicIdPartition] = frozenset()
        self._owned: frozenset[TopicIdPartition] = frozenset()

    def rejoin(self, reason: str) -> None:
        """Send the subscription, which may have changed, at once."""
        super().rejoin(reason)
        self._heartbeat_due.set()

    # -- states -----------------------------------------------------------------------------------

    async def _run_preparing_rebalance(self) -> MembershipEvent:
        self._pending.discard(MembershipEvent.REBALANCE_NEEDED)
        self._begin_rebalance()
        # Unlike in the classic protocol, the member keeps its partitions while it rejoins.
        return self._pending.take(self._state) or MembershipEvent.PREPARED

    async def _run_joining(self) -> MembershipEvent:
        # A member that has an epoch only applies another assignment.
        if self._member.generation > 0:
            return MembershipEvent.JOINED
        return await self._repeat(CONSUMER_JOIN_ERRORS, self._join)

    async def _join(self) -> MembershipEvent:
        if not self._member.member_id:
            # The client chooses its id (KIP-1082).
            prefix = REWINDING_MEMBER_PREFIX if self._settings.applies_rewinds else ""
            self._member.member_id = prefix + _new_member_id()
        self._member.protocol_name = self._requests.assignor_name
        request = self._requests.join(self._member, self._assignments.subscription())
        self._on_heartbeat(await self._coordinator.heartbeat(request))
        return MembershipEvent.JOINED

    async def _run_syncing(self) -> MembershipEvent:
        return self._pending.take(self._state) or MembershipEvent.SYNCED

    async def _run_assigning(self) -> MembershipEvent:
        target = self._target
        try:
            names = await self._assignments.topic_names({topic_id for topic_id, _ in target})
            # Partitions of topics without a name yet follow later; the others need not wait.
            known = frozenset(it for it in target if it[0] in names)
            assigned = frozenset(TopicPartition(names[it[0]], it[1]) for it in known)
            await self._assignments.on_assignment(assigned, self._member.generation)
        except PollTimeoutError:
            return MembershipEvent.POLL_TIMED_OUT
        except KafkaError as error:
            self._set_error(error)
            return MembershipEvent.FAILED
        self._owned = known
        # The coordinator waits for this report before it assigns the revoked partitions.
        self._heartbeat_due.set()
        if known != target:
            asyncio.get_running_loop().call_later(
                UNKNOWN_TOPIC_DELAY, self._retry_unknown_topics, target
            )
        # Another assignment has arrived while this one was applied.
        elif target != self._target:
            self._reconcile()
        self._end_rebalance()
        return MembershipEvent.ASSIGNED

    def _retry_unknown_topics(self, target: frozenset[TopicIdPartition]) -> None:
        # Neither superseded nor applied in the meantime.
        if self._target == target != self._owned:
            self._reconcile()

    def _end_membership(self, invalid: Invalidation) -> None:
        super()._end_membership(invalid)
        self._target = self._owned = frozenset()
        self._requests.forget()

    async def _leave_group(self, reason: str, *, static: bool = False) -> None:
        """Leave by a heartbeat; that of a static member announces its return."""
        if self._member.member_id:
            await self._coordinator.leave(self._member, reason, self._close_deadline)

    # -- heartbeats -------------------------------------------------------------------------------

    async def _send_heartbeats(self) -> None:
        settings = self._settings
        backoff = Backoff(settings.retry_backoff, settings.retry_backoff_max)
        delay = self._interval
        while self._state is not MemberState.CLOSED:
            with move_on_after(delay):
                await self._heartbeat_due.wait()
            self._heartbeat_due.clear()
            # Changed by the responses below.
            delay = self._interval
            # Compared afterwards, since the state may change while the heartbeat is in flight.
            identity = self._member.member_id, self._member.generation
            if not self._sends_heartbeats:
                continue
            request = self._requests.stay(
                self._member, self._assignments.subscription(), self._owned
            )
            try:
                result = await self._coordinator.heartbeat(request)
            except KafkaError as error:
                if self._sends_heartbeats and identity[1] == self._member.generation:
                    self._on_heartbeat_error(error)
                if membership_error_action(self._heartbeat_errors, error).event is None:
                    delay = min(delay, backoff.next())
                continue
            backoff.reset()
            self._on_accepted()
            # Otherwise the response belongs to a former membership.
            if identity == (self._member.member_id, self._member.generation):
                self._on_heartbeat(result)
            delay = self._interval

    @property
    def _sends_heartbeats(self) -> bool:
        """True while the member is in the group, and not about to leave it."""
        joined = self._member.generation > 0 and self._member.invalid is Invalidation.NONE
        return joined and (self._state in HEARTBEAT_STATES or self._state is MemberState.SYNCING)

    def _on_heartbeat(self, result: HeartbeatResult) -> None:
        if result.epoch != self._member.generation:
            # Waiters for the next generation check it.
            self._member.generation = result.epoch
            self._state_changed.set()
        self._member.member_id = result.member_id
        if result.interval > 0:
            self._interval = result.interval
        # A response without an assignment means that it has not changed.
        if result.assignment is None or result.assignment == self._target:
            return
        self._target = result.assignment
        # In other states the current work ends first; `_run_assigning` compares again.
        if self._state is MemberState.STABLE:
            self._reconcile()

    def _reconcile(self) -> None:
        self._rejoin_reason = "the coordinator has sent another assignment"
        self._post(MembershipEvent.REBALANCE_NEEDED)


def _new_member_id() -> str:
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
