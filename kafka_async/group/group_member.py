"""The public member of a group that is not a consumer group: any protocol type, any state.

    async with GroupMember(servers, group_id="g", protocol_type="t", protocols={"p": f}) as member:
        async for assignment in member:
            ...

`GroupMembership` joins, rebalances and sends heartbeats. `_MemberHandler` provides the member's
state and computes the assignments of a leader; `_AssignmentQueue` passes assignments on to the
application. A third task watches the session: when it has ended without a response, it reports the
assignment as lost, since the coordinator may have removed the member.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias, cast

from kafka_async.client.client import connect_with
from kafka_async.config import GroupMemberConfig, hide_secrets, seconds
from kafka_async.errors import IllegalStateError
from kafka_async.foundation.arguments import function, instance_of, text
from kafka_async.group.group_client import GroupClient
from kafka_async.group.member import NO_GENERATION, GroupSettings, Member
from kafka_async.group.member_states import MemberState
from kafka_async.group.membership import GroupMembership
from kafka_async.types import GroupMetadata

if TYPE_CHECKING:
    from typing import Self

    from typing_extensions import Unpack

    from kafka_async.client.client import Client
    from kafka_async.client.services import ClientServices
    from kafka_async.config import GroupMemberOptions
    from kafka_async.foundation.clock import Clock, Dialer
    from kafka_async.hooks import Hooks

__all__ = ["AssignFunction", "GroupMember", "Member", "MemberAssignment", "MemberMetadata"]

logger = logging.getLogger("kafka_async.group")
_protocol_call: ContextVar[object] = ContextVar("protocol_call", default=None)
"""The call of a protocol's function that runs the current code; its tasks inherit it."""

Assignments: TypeAlias = Mapping[str, bytes]
AssignFunction: TypeAlias = Callable[[Sequence[Member]], Assignments | Awaitable[Assignments]]
"""Returns each member's assignment by member id, or is a coroutine function that does."""
MemberMetadata: TypeAlias = bytes | Callable[[str], bytes]
"""The member's state, or a function that returns it for a protocol's name at each join."""


@dataclass(frozen=True, slots=True)
class MemberAssignment:
    """The assignment of a member by the group's leader in one generation.

    Attributes:
        generation: Generation of the group; -1 if the assignment is lost.
        protocol: The protocol that the group has chosen, supported by all members.
        member_id: The member's id, chosen by the coordinator.
        data: The bytes that the leader has assigned; empty if it assigned none.
        lost: True if the member is no longer in the group, or its session has ended without a
            response of the coordinator: the assignment may belong to other members already.
    """

    generation: int
    protocol: str
    member_id: str
    data: bytes
    lost: bool = False


class _AssignmentQueue:
    """Passes assignments from the membership task to the task that iterates over the member.

    Attributes:
        assigned: Set while the member has an assignment that is neither lost nor superseded.
    """

    def __init__(self) -> None:
        self.assigned = asyncio.Event()
        # At most one assignment that is not lost: the next rebalance withdraws it.
        self._rows: deque[MemberAssignment] = deque()
        self._changed = asyncio.Event()
        self._last: MemberAssignment | None = None

    def put(self, assignment: MemberAssignment) -> None:
        self._last = assignment
        self._rows.append(assignment)
        self.assigned.set()
        self._changed.set()

    def withdraw(self) -> None:
        """Remove an assignment that was not returned: the member rejoins without it."""
        if self._rows and not self._rows[-1].lost:
            self._rows.pop()

    def lose(self) -> None:
        """Report that the current assignment is lost, unless there is none."""
        if not self.assigned.is_set():
            return
        self.assigned.clear()
        # The application need not see an assignment that is already lost.
        self.withdraw()
        assert self._last is not None
        self._rows.append(replace(self._last, generation=NO_GENERATION, data=b"", lost=True))
        self._changed.set()

    def take(self) -> MemberAssignment | None:
        return self._rows.popleft() if self._rows else None

    async def wait(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    def wake(self) -> None:
        self._changed.set()


class _MemberHandler:
    """Provides the member's state, and applies assignments (`RebalanceHandler`)."""

    def __init__(
        self,
        protocol_type: str,
        protocols: Mapping[str, AssignFunction],
        metadata: MemberMetadata,
        queue: _AssignmentQueue,
        member_id: Callable[[], str],
    ) -> None:
        self.protocol_type = protocol_type
        self._protocols = protocols
        self._metadata = metadata
        self._queue = queue
        self._member_id = member_id
        self._now = asyncio.get_running_loop().time
        self._assigning: object = None

    def protocols(self) -> Sequence[tuple[str, bytes]]:
        metadata = self._metadata
        if isinstance(metadata, bytes):
            return [(name, metadata) for name in self._protocols]
        return [(name, instance_of(metadata(name), bytes, "the state")) for name in self._protocols]

    async def on_join_prepare(self) -> None:
        self._queue.withdraw()

    async def assign(self, name: str, members: Sequence[Member]) -> Assignments:
        # Identifies the call, so that tasks that the function creates are recognised too.
        self._assigning = object()
        outer = _protocol_call.set(self._assigning)
        try:
            result = self._protocols[name](members)
            assignments = result if isinstance(result, Mapping) else await result
        finally:
            _protocol_call.reset(outer)
            self._assigning = None
        return _checked(name, assignments, {member.member_id for member in members})

    def check_may_wait(self, call: str) -> None:
        """Raise if the function of a protocol, for which the member waits, waits for the member."""
        if self._assigning is not None and _protocol_call.get() is self._assigning:
            raise IllegalStateError(
                f"{call} in the function of a protocol, or in a task that it has created, would "
                "wait for the function itself: call it after the function has returned, or in a "
                "task that the function does not await and that has its own context: "
                "create_task(..., context=contextvars.Context())"
            )

    async def on_assignment_kept(self, members: Sequence[Member]) -> bool:
        return False

    async def on_join_complete(self, name: str, assignment: bytes, generation: int) -> bool:
        self._queue.put(MemberAssignment(generation, name, self._member_id(), assignment))
        return False

    def on_membership_ended(self) -> None:
        pass  # `on_partitions_lost` follows even if the application does not iterate

    async def on_partitions_lost(self) -> None:
        self._queue.lose()

    async def on_leave_prepare(self) -> None:
        self._queue.withdraw()

    def last_poll_time(self) -> float:
        return self._now()  # iterating is no sign of life; heartbeats are


class GroupMember(GroupClient):
    """Takes part in a group that is not a consumer group, by the classic group protocol.

        def assign(members):
            return {member.member_id: b"..." for member in members}

        async with GroupMember(
            "localhost:9092", group_id="g", protocol_type="jobs", protocols={"v0": assign}
        ) as member:
            async for assignment in member:
                ...

    The coordinator chooses one member as the leader in each generation, and a protocol that all
    members support. The leader's function for that protocol receives the state of all members and
    returns the bytes for each. Each iteration returns the next assignment; an assignment that
    another rebalance has superseded before it was returned is skipped. An assignment with `lost`
    set means that the member has been removed, or that its session has ended without a response of
    the coordinator. The member then rejoins automatically.

    A member belongs to the event loop and the process in which it was started, and only one task
    at a time may iterate over it. Heartbeats do not depend on the iteration.

    Args:
        servers: Addresses of brokers, as "host:port,host:port" or a sequence, may also be given as
            `bootstrap_servers`; or a started `Client`, whose connections are then shared and not
            closed.
        group_id: The group.
        protocol_type: The kind of the group; the coordinator rejects members of another kind.
        protocols: Functions by protocol name, the preferred protocol first. A function receives the
            members and returns their assignments by member id, or is a coroutine function that
            does.
        state: The member's metadata for the leader's function, or a function of the protocol's name
            that returns it at each join.
        config: The options as an object, without other options.
        hooks: Listeners for events; not with a `Client`.
        clock: Clock, for tests; not with a `Client`.
        dialer: Opens connections, for tests; not with a `Client`.
        **options: Options of `GroupMemberConfig`; connection options not with a `Client`.

    Attributes:
        config: The options.
        client: The client whose connections are used; shared if one was given.

    Raises:
        InvalidConfigurationError: An option is unknown or its value is invalid.
    """

    def __init__(
        self,
        servers: str | Sequence[str] | Client | None = None,
        /,
        *,
        group_id: str,
        protocol_type: str,
        protocols: Mapping[str, AssignFunction],
        state: MemberMetadata = b"",
        config: GroupMemberConfig | None = None,
        hooks: Hooks | None = None,
        clock: Clock | None = None,
        dialer: Dialer | None = None,
        **options: Unpack[GroupMemberOptions],
    ) -> None:
        servers, options = hide_secrets(servers), hide_secrets(options)
        self._group_id = text(group_id, "group_id")
        self._protocol_type = text(protocol_type, "protocol_type")
        self._protocols = _checked_protocols(protocols)
        self._metadata: MemberMetadata = (
            state if callable(state) else instance_of(state, bytes, "state")
        )
        self.config, client, owns_client = connect_with(
            servers, GroupMemberConfig, config, options, hooks=hooks, clock=clock, dialer=dialer
        )
        super().__init__(f"GroupMember {group_id}", client, self.config, owns=owns_client)
        self._queue = _AssignmentQueue()
        self._iterating = False
        self._handler: _MemberHandler | None = None

    async def stop(self, timeout: float | None = None) -> None:
        """Leave the group and close; calls that wait raise ClientClosedError.

        It is completed even if the caller is cancelled. Safe to call again. A start in progress is
        cancelled, and raises ClientClosedError.

        Args:
            timeout: Maximum time in seconds (default: close_timeout_ms).

        Raises:
            IllegalStateError: The function of a protocol calls it, or the member was started in
                another event loop or process.
        """
        self._check_may_wait("stop()")
        await super().stop(timeout)

    def _check_may_wait(self, call: str) -> None:
        if self._handler is not None:
            self._handler.check_may_wait(call)

    def _begin(self, services: ClientServices) -> GroupMembership:
        self._handler = handler = _MemberHandler(
            self._protocol_type,
            self._protocols,
            self._metadata,
            self._queue,
            lambda: self.group_metadata().member_id,
        )
        settings = GroupSettings.of_member(self.config, self._group_id)
        membership = GroupMembership(
            services, self._supervisor, settings, handler, self._queue.wake
        )
        membership.start()
        self._supervisor.spawn(self._watch_session, membership, name="session")
        membership.join("the member has started")
        return membership

    def _wake(self) -> None:
        self._queue.wake()

    # -- assignments ------------------------------------------------------------------------------

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> MemberAssignment:
        """Return the next assignment.

        After an error the next iteration joins again, except after a permanent one.

        Raises:
            InconsistentGroupProtocolError: The group has another protocol type, or its members
                support none of the protocols.
            GroupAuthorizationError: READ on the group is not allowed.
            FencedInstanceIdError: Another member has the same group_instance_id.
            ClientClosedError: The member was not started, or is closed.
            IllegalStateError: Another task iterates already, or the function of a protocol does.
            TaskDiedError: A task of the member has failed.
            Exception: An exception of the chosen protocol's function on this member, the leader,
                which has left the group.
        """
        membership = self._running()
        if self._iterating:
            raise IllegalStateError("only one task at a time may iterate over a GroupMember")
        self._check_may_wait("an iteration")
        self._iterating = True
        try:
            # After an error or a poll timeout the iteration makes the member join again.
            membership.on_poll()
            # Ends with an assignment or an error; assignments come first, since they are older.
            while True:
                self._running()
                assignment = self._queue.take()
                if assignment is not None:
                    return assignment
                error = membership.take_error()
                if error is not None:
                    raise error
                await self._queue.wait()
        finally:
            self._iterating = False

    def rejoin(self, reason: str) -> None:
        """Make all members of the group join again, with their current state.

        Args:
            reason: The reason, for the coordinator's log (KIP-800).

        Raises:
            ClientClosedError: The member was not started, or is closed.
        """
        self._running().rejoin(text(reason, "reason"))

    def group_metadata(self) -> GroupMetadata:
        """Return the member's identity in its current generation, which is -1 outside a group."""
        if self._membership is None:
            return GroupMetadata(self._group_id)
        return self._membership.metadata

    @property
    def session_ends_at(self) -> float | None:
        """Event loop time until which the coordinator keeps the member without another heartbeat.

        It is session_timeout_ms after the last acknowledged request was sent, or None before the
        member has joined.
        """
        return None if self._membership is None else self._membership.session_ends_at

    async def _watch_session(self, membership: GroupMembership) -> None:
        """Report the assignment as lost when the session has ended without a response."""
        now = asyncio.get_running_loop().time
        while True:
            await self._queue.assigned.wait()
            ends_at = membership.session_ends_at
            assert ends_at is not None
            # Each heartbeat moves the end, so it is read again after the wait.
            if (left := ends_at - now()) > 0:
                await asyncio.sleep(left)
                continue
            logger.warning(
                "group %s: the coordinator has not responded for session_timeout_ms (%g s), so "
                "the assignment may belong to other members",
                self._group_id,
                seconds(self.config.session_timeout_ms),
            )
            self._queue.lose()
            # In other states the membership is already rejoining.
            if membership.state is MemberState.STABLE:
                membership.rejoin("the session has ended without a response")


def _checked_protocols(protocols: Mapping[str, AssignFunction]) -> dict[str, AssignFunction]:
    """Return a copy of the protocols; raise unless they are functions by name."""
    if not isinstance(protocols, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"protocols must be functions by name, not {type(protocols).__name__}")
    if not protocols:
        raise ValueError("protocols must not be empty: give the function of at least one protocol")
    return {
        text(name, "each name of protocols"): function(assign, f"the function of {name}")
        for name, assign in protocols.items()
    }


def _checked(name: str, assignments: object, members: set[str]) -> Assignments:
    """Return the result of a protocol's function; raise unless it is bytes by member id."""
    if not isinstance(assignments, Mapping):
        raise TypeError(
            f"the function of {name} must return bytes by member id, not "
            f"{type(assignments).__name__}"
        )
    rows = cast("Mapping[object, object]", assignments)
    for member_id, data in rows.items():
        if member_id not in members:
            raise ValueError(f"the function of {name} has returned no member's id: {member_id!r}")
        instance_of(data, bytes, f"the assignment of {member_id}")
    return cast("Assignments", rows)
