"""Starting and closing of a client that is one member of a group, and its health."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kafka_async.client.client import services_of
from kafka_async.config import seconds
from kafka_async.errors import ClientClosedError, KafkaError
from kafka_async.foundation.arguments import check_timeout
from kafka_async.foundation.start_guard import StartGuard
from kafka_async.foundation.supervisor import Supervisor, wait_shielded
from kafka_async.foundation.thread_reads import readable_in_any_thread
from kafka_async.hooks import emit_task_died

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from kafka_async.client.client import Client
    from kafka_async.client.services import ClientServices
    from kafka_async.config import ClientConfig
    from kafka_async.group.membership import GroupMembership
    from kafka_async.types import Health

logger = logging.getLogger("kafka_async.group")

CLOSE_RESERVE: Final = 0.5
"""Maximum seconds of a stop that are reserved for disconnecting; at most a quarter of it."""


class GroupClient:
    """Starts and closes a client with one membership in a group.

    Args:
        name: Name of the client in logs.
        client: Client whose connections are used.
        owns: True to start and close the client.
        config: The options.
    """

    def __init__(self, name: str, client: Client, config: ClientConfig, *, owns: bool) -> None:
        self.client = client
        self._owns_client = owns
        self._supervisor = Supervisor(name, partial(emit_task_died, client.hooks))
        # Life cycle. `_closing` is the one task that closes, for all callers.
        self._start_guard = StartGuard(name)
        self._membership: GroupMembership | None = None
        self._stopped = False
        self._close_timeout = seconds(config.close_timeout_ms)
        self._closing: asyncio.Task[None] | None = None

    # -- for derived classes ----------------------------------------------------------------------

    def _begin(self, services: ClientServices) -> GroupMembership:
        """Start the tasks, begin to join the group, and return the membership."""
        raise NotImplementedError

    def _wake(self) -> None:
        """Wake the calls that wait: the client stops, or has failed."""
        raise NotImplementedError

    async def _before_leaving(self, deadline: float, *, finished: bool) -> None:
        """Finish work that needs the membership, until an event loop time.

        `finished` is True if the body of an `async with` has ended without an exception.
        """

    def _running(self) -> GroupMembership:
        """Return the membership; raise if the client was closed or has failed."""
        if self._stopped:
            raise ClientClosedError(f"{self._supervisor.name} is closed")
        self._supervisor.check()
        assert self._membership is not None
        return self._membership

    # -- starting and closing ---------------------------------------------------------------------

    async def start(self) -> None:
        """Connect and begin to join the group. Calls for results wait until it has joined.

        Raises:
            BootstrapError: No bootstrap server could be used.
            ClientClosedError: The client was stopped during the start.
            IllegalStateError: The client was started before.
        """
        async with self._start_guard.starting():
            await self._start()

    async def _start(self) -> None:
        try:
            if self._owns_client:
                await self.client.start()
            await self._supervisor.start()
            services = services_of(self.client)
            self._supervisor.on_failure(lambda _: self._wake())
            self._supervisor.spawn(self._fail_with_client, services, name="client")
            self._membership = self._begin(services)
        # Also when cancelled: a half-started client must leave no task behind.
        except BaseException:
            await self._await_closing(self._tear_down(None))
            raise

    async def _fail_with_client(self, services: ClientServices) -> None:
        """Raise the reason for which the client has stopped or died, once it has."""
        await services.lifetime.wait(asyncio.get_running_loop().create_future())

    async def stop(self, timeout: float | None = None) -> None:
        """Leave the group and close; calls that wait raise ClientClosedError.

        It is completed even if the caller is cancelled. Safe to call again. A start in progress is
        cancelled, and raises ClientClosedError.

        Args:
            timeout: Maximum time in seconds (default: close_timeout_ms).

        Raises:
            IllegalStateError: The client was started in another event loop or process.
        """
        timeout = check_timeout(timeout)
        await self._stop(timeout, finished=False)

    async def _stop(self, timeout: float | None, *, finished: bool) -> None:
        # No start has begun.
        if not await self._start_guard.end():
            return
        if self._membership is None:
            self._stopped = True
            return
        self._supervisor.check_event_loop(self._closing)
        # From here on calls raise; those that wait are woken.
        self._stopped = True
        self._wake()
        limit = self._close_timeout if timeout is None else timeout
        deadline = asyncio.get_running_loop().time() + limit
        await self._await_closing(
            self._leave_and_close(self._membership, deadline, limit, finished=finished)
        )

    async def _leave_and_close(
        self, membership: GroupMembership, deadline: float, limit: float, *, finished: bool
    ) -> None:
        # The time is divided: work as a member, leaving, disconnecting.
        leave_by = deadline - min(CLOSE_RESERVE, limit / 4)
        try:
            # After a failed task nothing can leave in order.
            if self._supervisor.failure is None:
                await self._before_leaving(leave_by - limit / 4, finished=finished)
                async with asyncio.timeout_at(leave_by):
                    await membership.close(leave_by)
        except (KafkaError, TimeoutError):
            logger.warning(
                "%s was closed, but did not leave its group in order: it was %s",
                self._supervisor.name,
                membership.state.value,
            )
        finally:
            await self._tear_down(deadline)

    async def _tear_down(self, deadline: float | None) -> None:
        self._stopped = True
        try:
            await self._supervisor.stop()
        finally:
            if self._owns_client:
                now = asyncio.get_running_loop().time()
                await self.client.stop(None if deadline is None else max(0.0, deadline - now))

    async def _await_closing(self, closing: Any) -> None:
        """Close in a separate task, once, which no cancellation of the caller ends."""
        if self._closing is None:
            # An empty context: it may outlive the task that calls.
            self._closing = asyncio.get_running_loop().create_task(
                closing, name=f"{self._supervisor.name} closing", context=contextvars.Context()
            )
        else:
            # Another call closes already; the coroutine was never started.
            closing.close()
        cancelled = await wait_shielded(self._closing)
        self._closing.result()
        if cancelled is not None:
            raise cancelled

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stop(None, finished=error is None)

    def __del__(self) -> None:
        if getattr(self, "_membership", None) is not None and not self._stopped:
            self._supervisor.warn_never_stopped(self)

    @readable_in_any_thread
    def health(self) -> Health:
        """Return a snapshot of the member's condition; no request is sent.

        This may be called in any thread at any time. Brokers are counted by the client, which
        may be shared.
        """
        health = self.client.health()
        membership, failure = self._membership, self._supervisor.failure
        if membership is None:
            return replace(health, state=self._state_before_membership())
        state, heartbeat_at = health.state, membership.heartbeat_at
        if self._stopped:
            state = "stopping" if self._supervisor.hosting else "closed"
        elif failure is not None or membership.failed_permanently:
            state = "failed"
        error = failure or membership.error
        return replace(
            health,
            state=state,
            in_flight=membership.in_flight,
            last_heartbeat_s=None
            if heartbeat_at is None
            else max(0.0, self._supervisor.loop.time() - heartbeat_at),
            last_error=health.last_error if error is None else f"{type(error).__name__}: {error}",
        )

    def _state_before_membership(self) -> str:
        if self._stopped:
            return "stopping" if self._supervisor.hosting else "closed"
        return "starting" if self._start_guard.begun else "new"
