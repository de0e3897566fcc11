"""The one task that owns a membership, and the one that says it is alive.

The owner does what its state says until an event ends the state (`state.py`); a broker's error is
looked up in the table of its request. Callers never touch the membership: they say what they want
(`join`, `rejoin`, `leave`, `asked`) and the owner hears of it where it waits. JoinGroup and
SyncGroup are abandoned when the caller no longer wants them; listeners of the application are not.

Heartbeats share the lane with JoinGroup and SyncGroup, which park; commits do not use it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, TypeVar

from anyio import CancelScope, move_on_after

from kafka_async import hooks
from kafka_async.backoff import Backoff
from kafka_async.cluster.broker_connection import ConnectionKind
from kafka_async.cluster.request_destinations import Broker, CoordinatorKind
from kafka_async.errors import (
    ClientClosedError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    RetriableError,
)
from kafka_async.group import classic_protocol
from kafka_async.group.membership import GroupProtocol, Membership, QuietError
from kafka_async.group.state import (
    BEATING,
    FINAL,
    HEARTBEAT,
    JOIN,
    SYNC,
    Event,
    Reactions,
    State,
    Void,
    follow,
    reaction,
)
from kafka_async.protocol.messages.leave_group import LeaveGroupRequest
from kafka_async.protocol.messages.metadata import MetadataRequest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Mapping

    from kafka_async.cluster.broker_connection import BrokerConnection
    from kafka_async.cluster.client import Client
    from kafka_async.group.membership import GroupSettings
    from kafka_async.supervisor import Supervisor
    from kafka_async.types import GroupMetadata

R = TypeVar("R")
logger = logging.getLogger("kafka_async.group")

_JOIN_GRACE = 5.0
"""JoinGroup is answered at the latest when the rebalance times out; this is for the way."""
_LEAVE_TIMEOUT = 5.0
_CLOSE_TIMEOUT = 2.0
"""Maximum seconds to wait for the response to LeaveGroup while the consumer is closed."""
_SETTLED = frozenset({State.STABLE, State.OUT, State.REFUSED, State.SILENT, State.CLOSED})
_NO_MEMBER = frozenset({State.OUT, State.CLOSED})
_OUTSIDE = frozenset(
    {State.OUT, State.LOST, State.SILENT, State.REFUSED, State.LEAVING, State.CLOSED}
)
"""States of a member whose partitions are lost, or given up."""


class GroupCoordinator:
    """A membership of a group. `error` is why the group refuses it, None if it does not."""

    def __init__(
        self,
        client: Client,
        supervisor: Supervisor,
        settings: GroupSettings,
        protocol: GroupProtocol,
    ) -> None:
        self.error: Exception | None = None
        self.rebalances = 0
        self.on_refused: Callable[[], None] = _nothing
        """Called when `error` has been set."""
        self._client = client
        self._supervisor = supervisor
        self._settings = settings
        self._protocol = protocol
        self._membership = Membership(settings)
        self._state = State.OUT
        self._wanted = self._closing = self._asked = False
        self._reason: str | None = None  # why everybody should join again
        self._heard: Event | None = None  # what heartbeats found
        self._void = Void.NOTHING
        self._joined: classic_protocol.Joined | None = None
        self._share = b""
        self._began = 0.0
        self._why = ""
        self._leave_by: float | None = None
        self._beat_sent: float | None = None  # when the heartbeat in flight was sent
        self._alive_at = 0.0  # when the coordinator responded last
        self.heartbeat_at: float | None = None
        """Loop time of the last successful heartbeat; None before the first."""
        self._blocked = False  # a JoinGroup or SyncGroup is in flight
        self._poke = asyncio.Event()
        self._settled = asyncio.Event()
        self._absent = asyncio.Event()
        self._entered = asyncio.Event()
        self._interrupt: CancelScope | None = None
        self._connection: BrokerConnection | None = None
        self._backoff = Backoff(settings.retry_backoff, settings.retry_backoff_max)
        self._steps: Mapping[State, Callable[[], Awaitable[Event]]] = {
            State.OUT: self._out,
            State.PREPARING: self._preparing,
            State.JOINING: self._joining,
            State.SYNCING: self._syncing,
            State.TAKING: self._taking,
            State.STABLE: self._stable,
            State.LOST: self._lost,
            State.SILENT: self._silent,
            State.REFUSED: self._refused,
            State.LEAVING: self._leaving,
        }

    # -- what callers may say ---------------------------------------------------------------------

    @property
    def state(self) -> State:
        """What the member is doing."""
        return self._state

    @property
    def metadata(self) -> GroupMetadata:
        """Who the member is right now."""
        return self._membership.metadata()

    @property
    def generation(self) -> int:
        """The group's generation, -1 while this is no member."""
        return self._membership.generation

    @property
    def in_flight(self) -> int:
        """Requests to the coordinator that have no response yet."""
        return 0 if self._connection is None else self._connection.in_flight

    @property
    def hopeless(self) -> bool:
        """Whether asking the group again cannot change its refusal."""
        return type(self.error) in FINAL

    def start(self) -> None:
        """Start the tasks; the member joins when `join` has been called."""
        self._supervisor.on_failure(self._died)
        self._supervisor.spawn(self._run, name=f"group {self._settings.group_id}")
        self._supervisor.spawn(self._beat, name=f"heartbeats of {self._settings.group_id}")

    def join(self, reason: str) -> None:
        """Be a member from now on; one that is joins again."""
        self._wanted = True
        self.rejoin(reason)

    def rejoin(self, reason: str) -> None:
        """Have everybody join again: what this member says, or shares out, has changed."""
        self._reason = reason
        self._poke.set()

    def asked(self) -> None:
        """The application has asked for something: one that was silent comes back."""
        if self._state in (State.SILENT, State.REFUSED):
            self._asked = True
            self._poke.set()

    async def leave(self, *, close: bool = False, deadline: float | None = None) -> None:
        """Give everything up and leave; returns when that is done.

        `close`: for good, and no response to LeaveGroup is waited for beyond `deadline` (the loop's
        time), or where the coordinator does not respond.
        """
        self._wanted = False
        self._leave_by = deadline
        self._closing = self._closing or close
        self._poke.set()
        if self._interrupt is not None:
            self._interrupt.cancel()
        await asyncio.sleep(0)
        await self._absent.wait()
        self._supervisor.check()

    async def next_generation(self, former: GroupMetadata) -> GroupMetadata | None:
        """Wait until this member has joined a generation after `former`'s; None if it has not."""
        while True:
            current = self.metadata
            if current.member_id != former.member_id or self._state in _OUTSIDE:
                return None
            if current.generation_id > former.generation_id:
                return current
            self._entered.clear()
            await self._entered.wait()

    async def wait_settled(self) -> None:
        """Wait until no rebalance is under way."""
        await self._settled.wait()

    def _died(self, _: KafkaError) -> None:
        self._absent.set()
        self._settled.set()

    # -- the owner --------------------------------------------------------------------------------

    async def _run(self) -> None:
        self._enter(State.OUT)
        try:
            while self._state is not State.CLOSED:
                event = await self._steps[self._state]()
                self._enter(follow(self._state, event))
            await self._use_connection(None)
        finally:
            if self._connection is not None:
                self._connection.end(ClientClosedError("the consumer is closed"))

    def _enter(self, state: State) -> None:
        if state is not self._state:
            logger.info("group %s: %s", self._settings.group_id, state.value)
        self._state = state
        self._entered.set()
        for event, states in ((self._settled, _SETTLED), (self._absent, _NO_MEMBER)):
            event.set() if state in states else event.clear()

    async def _out(self) -> Event:
        while True:
            if self._wanted:
                return Event.WANTED
            if self._closing:
                return Event.STOPPED
            await self._poked()

    async def _preparing(self) -> Event:
        reason, self._reason = self._reason or "the group rebalances", None
        self._begin(reason)
        try:
            await self._protocol.prepare()
        except QuietError:
            return Event.QUIET
        if self._heard in (Event.FORGOTTEN, Event.DENIED):
            return self._take_heard()
        self._heard = None
        return Event.PREPARED if self._wanted else Event.UNWANTED

    async def _joining(self) -> Event:
        while self._wanted:
            with self._interruptible():
                event = await self._attempt(JOIN, self._join)
                if event is not None:
                    return event
        return Event.UNWANTED

    async def _join(self) -> Event:
        self._joined = joined = await self._parked(
            classic_protocol.join(
                self._membership,
                self._protocol.protocol_type,
                self._protocol.protocols(),
                self._why,
            ),
            max(self._settings.request_timeout, self._settings.rebalance_timeout + _JOIN_GRACE),
        )
        self._membership.member_id = joined.member_id
        self._membership.generation = joined.generation
        self._membership.protocol_name = joined.protocol_name
        return Event.JOINED

    async def _syncing(self) -> Event:
        while self._wanted:
            with self._interruptible():
                event = await self._attempt(SYNC, self._sync)
                if event is not None:
                    return event
        return Event.UNWANTED

    async def _sync(self) -> Event:
        joined = self._joined
        assert joined is not None
        shares: Mapping[str, bytes] = {}
        if joined.leads and not joined.skip_assignment:
            shares = await self._assign(joined)
        self._share = await self._parked(
            classic_protocol.sync(self._membership, self._protocol.protocol_type, shares),
            max(self._settings.request_timeout, self._settings.rebalance_timeout + _JOIN_GRACE),
        )
        return Event.SYNCED

    async def _assign(self, joined: classic_protocol.Joined) -> Mapping[str, bytes]:
        """Assign as the leader; leave at once if that fails: the other members wait for it."""
        try:
            return await self._protocol.assign(joined.protocol_name, joined.members)
        except RetriableError:
            raise  # the group rebalances again
        except Exception as error:
            logger.warning(
                "group %s: the assignor %s raised %r, so this member, the leader, leaves",
                self._settings.group_id,
                joined.protocol_name,
                error,
            )
            await self._say_goodbye("the assignor has failed", static=True)
            raise

    async def _taking(self) -> Event:
        assert self._joined is not None
        self._heard = None
        name, generation = self._joined.protocol_name, self._joined.generation
        try:
            again = await self._protocol.take(name, self._share, generation)
        except QuietError:
            return Event.QUIET
        except KafkaError as error:
            self.error = error
            return Event.DENIED
        if again and self._reason is None:
            self._reason = "partitions were given up for other members"
        self._end()
        return Event.TAKEN

    async def _stable(self) -> Event:
        self._backoff.reset()
        while True:
            if not self._wanted:
                return Event.UNWANTED
            if self._heard is not None:
                return self._take_heard()
            if self._reason is not None:
                return Event.DISTURBED
            left = self._protocol.last_asked() + self._settings.rebalance_timeout - self._now()
            if left <= 0:
                return Event.QUIET
            await self._poked(left)

    async def _lost(self) -> Event:
        await self._protocol.lose()
        self._membership.void(max(self._void, Void.GENERATION))
        self._void, self._heard, self.error = Void.NOTHING, None, None
        return Event.GIVEN_UP if self._wanted else Event.UNWANTED

    async def _silent(self) -> Event:
        logger.warning(
            "group %s: nothing was asked of the consumer for max_poll_interval_ms (%.0f s), so it "
            "leaves; it comes back when it is asked",
            self._settings.group_id,
            self._settings.rebalance_timeout,
        )
        self._void, self._asked = Void.MEMBER, False
        await self._say_goodbye("max.poll.interval.ms has passed without a poll")
        return await self._until_asked()

    async def _refused(self) -> Event:
        self.on_refused()
        self._void, self._asked = Void.MEMBER, False
        return await self._until_asked()

    async def _until_asked(self) -> Event:
        while self._wanted:
            if self._asked and not self.hopeless:
                return Event.ASKED
            await self._poked()
        return Event.UNWANTED

    async def _leaving(self) -> Event:
        if self._void is Void.NOTHING and self._heard is not Event.FORGOTTEN:
            await self._protocol.release()
            await self._say_goodbye("the consumer is being closed or unsubscribed")
        else:
            await self._protocol.lose()
        self._membership.void(Void.MEMBER)
        self._void, self._heard, self._reason, self.error = Void.NOTHING, None, None, None
        return Event.LEFT

    # -- requests and their errors ----------------------------------------------------------------

    async def _attempt(
        self, table: Reactions, request: Callable[[], Awaitable[Event]]
    ) -> Event | None:
        """The event that a request brings about, by success or by error; None: try again."""
        try:
            return await request()
        except KafkaError as error:
            row = reaction(table, error)
            logger.debug("group %s: %s", self._settings.group_id, error)
            self._void = max(self._void, row.void)
            if row.find:
                self._client.forget_coordinator(CoordinatorKind.GROUP, self._settings.group_id)
            if row.event is Event.DENIED:
                self.error = error
            else:
                await asyncio.sleep(self._backoff.next())
            return row.event
        except Exception as error:  # noqa: BLE001  # an assignor of the application failed
            self.error = error
            return Event.DENIED

    async def _parked(self, procedure: Generator[Any, Any, R], timeout: float) -> R:
        """Exchange requests that the coordinator answers late; nothing behind them is handled."""
        self._blocked, self._alive_at = True, self._now()
        try:
            result = await self._exchange(procedure, timeout)
        except KafkaError:
            self._blocked = False
            raise
        self._blocked, self._alive_at = False, self._now()
        return result

    async def _exchange(self, procedure: Generator[Any, Any, R], timeout: float) -> R:
        connection = await self._find_connection(min(timeout, self._settings.request_timeout))
        request = next(procedure)
        while True:
            response = await connection.send(request, timeout=timeout)
            try:
                request = procedure.send(response)
            except StopIteration as result:
                return result.value

    async def _find_connection(self, timeout: float) -> BrokerConnection:
        node_id = await self._client.coordinator(
            CoordinatorKind.GROUP, self._settings.group_id, timeout=timeout
        )
        connection = self._connection
        if connection is None or connection.node_id != node_id:
            connection = self._client.connection(node_id, ConnectionKind.COORDINATOR, self)
            await self._use_connection(connection)
        return connection

    async def _use_connection(self, connection: BrokerConnection | None) -> None:
        old, self._connection = self._connection, connection
        if old is not None:
            await old.close()

    async def _say_goodbye(self, reason: str, *, static: bool = False) -> None:
        """Send LeaveGroup, unless it is a static member, which leaves only if `static`."""
        membership = self._membership
        if not membership.member_id:
            return
        if self._settings.group_instance_id is not None and not static:
            return
        timeout = _LEAVE_TIMEOUT
        if self._leave_by is not None:
            timeout = min(_CLOSE_TIMEOUT, max(0.0, self._leave_by - self._now()))
        if self._blocked and self._connection is not None:  # by a JoinGroup that was abandoned
            self._connection.disconnect(KafkaConnectionError("the member leaves the group"))
        self._blocked = False
        try:
            if self._closing and not self._responsive():
                self._send_goodbye(reason)
                return
            async with asyncio.timeout(timeout):
                connection = await self._find_connection(timeout)
                await connection.connect(timeout)
                version = connection.version(LeaveGroupRequest.API_KEY)
                await self._exchange(classic_protocol.leave(membership, version, reason), timeout)
        except (KafkaError, TimeoutError) as error:
            logger.info(
                "leaving group %s: %s",
                self._settings.group_id,
                error if isinstance(error, KafkaError) else f"no response for {timeout:g} s",
            )

    def _responsive(self) -> bool:
        """Return whether a response to LeaveGroup can be expected."""
        overdue = self._beat_sent is not None and self._now() - self._beat_sent > _CLOSE_TIMEOUT / 2
        return not overdue and self._client.responsive

    def _send_goodbye(self, reason: str) -> None:
        """Send LeaveGroup, if there is a connection, without waiting for the response."""
        connection = self._connection
        if connection is not None and connection.connected:
            version = connection.version(LeaveGroupRequest.API_KEY)
            request = next(classic_protocol.leave(self._membership, version, reason))
            connection.submit(request, timeout=_CLOSE_TIMEOUT)

    # -- heartbeats -------------------------------------------------------------------------------

    async def _beat(self) -> None:
        settings = self._settings
        backoff = Backoff(settings.retry_backoff, settings.retry_backoff_max)
        delay = settings.heartbeat_interval
        while self._state is not State.CLOSED:
            await asyncio.sleep(delay)
            delay = settings.heartbeat_interval
            generation = self._membership.generation
            if self._blocked:
                await self._probe()
                continue
            if self._state not in BEATING or generation < 0:
                continue
            self._beat_sent = self._now()
            try:
                timeout = self._heartbeat_timeout()
                await self._exchange(classic_protocol.heartbeat(self._membership), timeout)
                self._alive_at = self._now()
                self.heartbeat_at = self._now()
                backoff.reset()
            except KafkaError as error:
                if isinstance(error, KafkaTimeoutError):
                    self._drop_coordinator(error)
                if self._state in BEATING and generation == self._membership.generation:
                    self._hear(error)
                if reaction(HEARTBEAT, error).event is None:
                    delay = min(delay, backoff.next())
            finally:
                self._beat_sent = None

    def _heartbeat_timeout(self) -> float:
        """Seconds to wait for a heartbeat's response: at most until the session ends."""
        settings = self._settings
        left = self._alive_at + settings.session_timeout - self._now()
        timeout = left if left > 0 else settings.session_timeout
        return min(settings.request_timeout, max(timeout, settings.heartbeat_interval / 2))

    async def _probe(self) -> None:
        """While JoinGroup or SyncGroup waits for the group: find out whether the broker responds.

        It may take until the rebalance times out, five minutes by default, and nothing else is
        answered on its connection; a frozen broker would not be noticed for as long.
        """
        settings, connection, now = self._settings, self._connection, self._now()
        if connection is None or now - self._alive_at < settings.session_timeout / 2:
            return
        try:
            await self._client.request(
                MetadataRequest(topics=[], allow_auto_topic_creation=False),
                to=Broker(connection.node_id),
                timeout=min(settings.request_timeout, settings.session_timeout / 2),
                retry=False,
            )
            self._alive_at = self._now()
        except KafkaError as error:
            if self._blocked and connection is self._connection:
                self._drop_coordinator(error)

    def _drop_coordinator(self, error: KafkaError) -> None:
        """Fail the requests to a coordinator that does not respond, and look it up again."""
        logger.info("group %s: %s", self._settings.group_id, error)
        self._client.forget_coordinator(CoordinatorKind.GROUP, self._settings.group_id)
        if self._connection is not None:
            self._connection.disconnect(
                KafkaConnectionError(f"the coordinator does not respond: {error}")
            )

    def _hear(self, error: KafkaError) -> None:
        row = reaction(HEARTBEAT, error)
        logger.debug("heartbeat of group %s: %s", self._settings.group_id, error)
        if row.find:
            self._client.forget_coordinator(CoordinatorKind.GROUP, self._settings.group_id)
        if row.event is None or self._heard in (Event.FORGOTTEN, Event.DENIED):
            return
        if row.event is Event.DENIED:
            self.error = error
        self._void = max(self._void, row.void)
        self._heard = row.event
        self._poke.set()

    # -- small things -----------------------------------------------------------------------------

    def _take_heard(self) -> Event:
        heard, self._heard = self._heard, None
        assert heard is not None
        return heard

    def _interruptible(self) -> CancelScope:
        self._interrupt = CancelScope()
        return self._interrupt

    async def _poked(self, timeout: float | None = None) -> None:
        """Wait until a caller or a heartbeat has something to say, or the time is over."""
        with move_on_after(timeout):
            await self._poke.wait()
        self._poke.clear()

    def _begin(self, reason: str) -> None:
        self._why, self._began = reason, self._now()
        if self._client.hooks.active:
            self._client.hooks.emit(
                hooks.RebalanceBegun(self._client.config.client_id, self._settings.group_id, reason)
            )

    def _end(self) -> None:
        self.rebalances += 1
        if not self._client.hooks.active:
            return
        membership = self._membership
        self._client.hooks.emit(
            hooks.RebalanceEnded(
                self._client.config.client_id,
                self._settings.group_id,
                membership.generation,
                membership.member_id,
                self._now() - self._began,
            )
        )

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()


def _nothing() -> None:
    pass
