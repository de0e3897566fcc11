"""Spreads named resources over the members of a group, and runs a worker for each resource.

The membership (`GroupMember`) reports assignments; the pool starts and cancels workers. A resource
moves in two rebalances: its holder cancels the worker, waits for its end and joins again without
the resource; then the leader assigns it to another member. At most one worker of a resource runs
while sessions last, however long a worker takes to end.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from kafka_async.app.resource_assignment import (
    PROTOCOL,
    ResourceState,
    assign_resources,
    decode_resources,
    decode_state,
    encode_resources,
    encode_state,
)
from kafka_async.config import GroupMemberConfig, hide_secrets, seconds
from kafka_async.errors import KafkaError
from kafka_async.foundation.arguments import awaitable_result, check_timeout, function, texts
from kafka_async.foundation.start_guard import StartGuard
from kafka_async.foundation.supervisor import check_event_loop, not_started_error, wait_shielded
from kafka_async.group.group_member import GroupMember

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType
    from typing import Self

    from typing_extensions import Unpack

    from kafka_async.client.client import Client
    from kafka_async.config import GroupMemberOptions
    from kafka_async.group.group_member import Member, MemberAssignment
    from kafka_async.types import Health

__all__ = ["Worker", "WorkerPool"]

logger = logging.getLogger("kafka_async.app")
_worker: contextvars.ContextVar[asyncio.Task[object] | None] = contextvars.ContextVar(
    "worker", default=None
)
"""The worker that runs the current code; the tasks that it creates inherit it."""

Worker: TypeAlias = Callable[[str], Awaitable[object]]
"""Coroutine function that works on a resource until it is cancelled or finished."""


def assign(members: Sequence[Member]) -> Mapping[str, bytes]:
    """Return the encoded resources of each member."""
    states = {member.member_id: decode_state(member.metadata) for member in members}
    return {member: encode_resources(held) for member, held in assign_resources(states).items()}


class WorkerPool:
    """Spreads named resources over the processes of a group, and runs a worker for each.

        async def worker(shard):
            while True:
                await index(shard)

        async with WorkerPool(
            "localhost:9092", group_id="indexers", resources=["a", "b", "c"], worker=worker
        ) as pool:
            await pool.wait()

    Each resource is held by one member that has it in its `resources`. The worker is cancelled when
    the resource moves to another member, when the session ends without a response from the
    coordinator, and when the pool is stopped. The resource moves once the worker has ended. A
    worker that returns is not started again while this member holds the resource. A worker that
    raises ends the pool: all workers are cancelled, the member leaves the group, and `wait` and
    `stop` raise the error.

    A process that is frozen for longer than its session cannot cancel its workers in time. If two
    workers of a resource must never write at the same time, fence the writes, as `SingleWriter`
    does.

    Args:
        servers: Addresses of brokers, as "host:port,host:port" or a sequence; or a started
            `Client`: its connections are shared, and stay open.
        group_id: The group.
        resources: Names of the resources that this member can work on.
        worker: Coroutine function of a resource's name.
        **options: Options of `GroupMemberConfig`. The default of rebalance_timeout_ms is half of
            session_timeout_ms, so that no rebalance lasts longer than a session.

    Raises:
        InvalidConfigurationError: An option is unknown or its value is invalid.
    """

    _protocol_type: ClassVar[str] = "worker-pool"

    def __init__(
        self,
        servers: str | Sequence[str] | Client | None = None,
        /,
        *,
        group_id: str,
        resources: Iterable[str],
        worker: Worker,
        **options: Unpack[GroupMemberOptions],
    ) -> None:
        servers, options = hide_secrets(servers), hide_secrets(options)
        self._resources = frozenset(texts(resources, "resources"))
        self._worker: Worker = function(worker, "worker")
        session = options.get("session_timeout_ms", GroupMemberConfig.session_timeout_ms)
        # A wrong type is left to the check of GroupMemberConfig.
        if isinstance(session, int):  # pyright: ignore[reportUnnecessaryIsInstance]
            options.setdefault("rebalance_timeout_ms", max(1, session // 2))
        self._member = GroupMember(
            servers,
            group_id=group_id,
            protocol_type=self._protocol_type,
            protocols={PROTOCOL: assign},
            state=self._encode_state,
            **options,
        )
        self._name = f"{self._protocol_type} {group_id}"
        self._start_guard = StartGuard(self._name)
        # From the last assignment: its generation and resources, and the resources whose workers
        # have returned.
        self._generation = -1
        self._assigned = frozenset[str]()
        self._finished = frozenset[str]()
        # Workers by resource, including cancelled ones that have not ended yet.
        self._running: dict[str, asyncio.Task[object]] = {}
        self._cancelled = set[str]()
        self._failure: BaseException | None = None
        self._pid = 0
        self._follower: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._ended = asyncio.Event()

    # -- starting and closing ---------------------------------------------------------------------

    async def start(self) -> None:
        """Connect and begin to join the group; workers start when resources are assigned.

        Raises:
            BootstrapError: No bootstrap server could be used.
            ClientClosedError: The pool was stopped while it started.
            IllegalStateError: The pool was started before.
        """
        async with self._start_guard.starting():
            await self._member.start()
            self._pid = os.getpid()
            self._follower = self._spawn(self._follow(), "assignments")

    async def stop(self, timeout: float | None = None) -> None:
        """Cancel the workers, wait for them, and leave the group, so that others continue at once.

        The call completes even if the caller is cancelled, and may be repeated. A start in progress
        is cancelled, and raises ClientClosedError. Called in a worker, or in a task that a worker
        created, it returns at once, and this worker is cancelled like the others.

        Args:
            timeout: Maximum time in seconds (default: close_timeout_ms).

        Raises:
            IllegalStateError: The pool was started in another event loop or process.
            Exception: A worker's exception, or the error that ended the pool.
        """
        timeout = check_timeout(timeout)
        if not await self._start_guard.end():
            return
        if self._follower is None:
            await self._member.stop()
            return
        self._check_event_loop(self._follower)
        closing = self._close("the pool is stopped", timeout)
        if _worker.get() in self._running.values():
            return
        cancelled = await wait_shielded(closing)
        if cancelled is not None:
            raise cancelled
        if self._failure is not None:
            raise self._failure

    async def wait(self) -> None:
        """Wait until the pool is stopped.

        Raises:
            ClientClosedError: The pool was not started.
            IllegalStateError: The pool was started in another event loop or process.
            Exception: A worker's exception, or the error that ended the pool: any error that
                iterating over a `GroupMember` raises.
        """
        if self._follower is None:
            raise not_started_error(self._name)
        self._check_event_loop(self._follower)
        await self._ended.wait()
        if self._failure is not None:
            raise self._failure

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop; raise a worker's error unless the block has raised."""
        try:
            await self.stop()
        except Exception as failure:
            if error is None:
                raise
            if failure is not error:
                error.add_note(f"the pool has failed too: {failure!r}")

    def _check_event_loop(self, follower: asyncio.Task[None]) -> None:
        check_event_loop(self._name, follower.get_loop(), self._closing, self._pid)

    def _close(self, reason: str, timeout: float | None = None) -> asyncio.Task[None]:
        if self._closing is None:
            limit = seconds(self._member.config.close_timeout_ms) if timeout is None else timeout
            self._closing = self._spawn(self._run_close(reason, limit), "closing")
        return self._closing

    async def _run_close(self, reason: str, limit: float) -> None:
        """Cancel the workers and leave the group; ends the pool."""
        deadline = asyncio.get_running_loop().time() + limit
        assert self._follower is not None
        self._follower.cancel()
        try:
            for resource in list(self._running):
                self._cancel(resource, reason)
            if self._running:
                _, pending = await asyncio.wait(self._running.values(), timeout=limit)
                if pending:
                    logger.warning(
                        "%s leaves its group although %d cancelled workers have not ended",
                        self._name,
                        len(pending),
                    )
            left = max(0.0, deadline - asyncio.get_running_loop().time())
            await self._member.stop(left)
        finally:
            self._ended.set()

    def _fail(self, error: BaseException) -> None:
        """End the pool because of an error."""
        if self._closing is None:
            logger.error("%s has failed: %r", self._name, error)
        if self._failure is None:
            self._failure = error
        self._close(f"the pool has failed: {error!r}")

    def _spawn(self, body: Any, name: str) -> asyncio.Task[Any]:
        loop = asyncio.get_running_loop()
        return loop.create_task(body, name=f"{self._name} {name}", context=contextvars.Context())

    # -- the group --------------------------------------------------------------------------------

    @property
    def client(self) -> Client:
        """The client: the pool's own, or the shared one."""
        return self._member.client

    @property
    def held(self) -> frozenset[str]:
        """Resources whose workers run."""
        return frozenset(self._running)

    @property
    def session_ends_at(self) -> float | None:
        """Event loop time until which the coordinator keeps the member; None before it joined."""
        return self._member.session_ends_at

    def health(self) -> Health:
        """Return a snapshot of the member's condition, see `GroupMember.health`."""
        health = self._member.health()
        if self._failure is None:
            return health
        error = f"{type(self._failure).__name__}: {self._failure}"
        return replace(health, state="failed", last_error=error)

    def _encode_state(self, _: str) -> bytes:
        held = self._assigned | self._running.keys()
        return encode_state(ResourceState(self._resources, held, self._generation))

    async def _follow(self) -> None:
        try:
            async for assignment in self._member:
                self._apply(assignment)
        except Exception as error:  # noqa: BLE001  # ends the pool, which raises it
            self._fail(error)

    def _apply(self, assignment: MemberAssignment) -> None:
        self._generation = assignment.generation
        self._assigned = decode_resources(assignment.data)
        self._finished &= self._assigned
        reason = (
            "the session has ended, or the coordinator has removed the member"
            if assignment.lost
            else f"the group has moved it in generation {assignment.generation}"
        )
        for resource in self._running.keys() - self._assigned:
            self._cancel(resource, reason)
        for resource in sorted(self._assigned - self._running.keys() - self._finished):
            self._start(resource)

    # -- workers ----------------------------------------------------------------------------------

    def _start(self, resource: str) -> None:
        logger.info("%s starts the worker of %s", self._name, resource)
        task = self._spawn(self._work(resource), f"worker of {resource}")
        self._running[resource] = task
        task.add_done_callback(partial(self._on_worker_ended, resource))

    async def _work(self, resource: str) -> None:
        _worker.set(asyncio.current_task())
        await awaitable_result(self._worker(resource), self._worker, "worker")

    def _cancel(self, resource: str, reason: str) -> None:
        """Cancel a worker once: a second cancellation would interrupt its cleanup."""
        if resource not in self._cancelled:
            logger.info("%s cancels the worker of %s: %s", self._name, resource, reason)
            self._cancelled.add(resource)
            self._running[resource].cancel(reason)

    def _on_worker_ended(self, resource: str, task: asyncio.Task[object]) -> None:
        del self._running[resource]
        was_cancelled = resource in self._cancelled
        self._cancelled.discard(resource)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._fail(error)
        elif self._closing is not None:
            return
        elif not was_cancelled:
            self._finished |= {resource}
        elif resource in self._assigned:
            self._start(resource)
        else:
            with suppress(KafkaError):  # `_follow` reports that the member has ended.
                self._member.rejoin(f"{resource} was released")
