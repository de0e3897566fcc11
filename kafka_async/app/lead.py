"""Holds the lead of a group during an `async with` block, and cancels the block when it is lost.

The lead is the only resource of a `WorkerPool`, and its worker is `Lead._hold`: it obtains the
fencing token, lets the block begin, and is cancelled when the lead is lost. It then cancels the
block and waits for its end: the lead moves only then, unless the session has ended.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final

from kafka_async.errors import ClientClosedError, IllegalStateError, LeadershipLostError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType
    from typing import Self

    from typing_extensions import Unpack

    from kafka_async.app.worker_pool import WorkerPool
    from kafka_async.client.client import Client
    from kafka_async.config import GroupMemberOptions
    from kafka_async.types import Health

logger = logging.getLogger("kafka_async.app")

LEAD: Final = "lead"


class Lead(ABC):
    """Holds the lead while an `async with` block runs.

    Args:
        servers: Addresses of brokers, or a started `Client`.
        pool: The pool class, which defines the protocol type.
        group_id: The group.
        options: Options of the group member.
    """

    def __init__(
        self,
        servers: str | Sequence[str] | Client | None,
        pool: type[WorkerPool],
        group_id: str,
        **options: Unpack[GroupMemberOptions],
    ) -> None:
        self._name = f"{type(self).__name__} {group_id}"
        self._pool = pool(
            servers, group_id=group_id, resources=[LEAD], worker=self._hold, **options
        )
        self._token: int | None = None
        self._held = False
        self._changed = asyncio.Event()
        self._body: asyncio.Task[object] | None = None
        self._body_ended = asyncio.Event()
        self._cancellations = 0
        self._loss: str | None = None

    @property
    def fencing_token(self) -> int:
        """A number higher than every earlier holder's.

        Give it to the systems that the block writes to, and let them refuse numbers lower than the
        highest seen: a holder that was frozen for longer than its session cannot be cancelled in
        time. The numbers grow until the underlying transactional id expires, after
        transactional.id.expiration.ms (7 days) without use.

        Raises:
            IllegalStateError: The lead was not held yet.
        """
        if self._token is None:
            raise IllegalStateError(f"{self._name} has not held the lead: use `async with`")
        return self._token

    def health(self) -> Health:
        """Return a snapshot of the member's condition, see `GroupMember.health`."""
        return self._pool.health()

    # -- the block --------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        """Join the group, and wait until this member has the lead.

        Raises:
            KafkaError: The group rejected the member, or no fencing token could be obtained.
        """
        await self._pool.start()
        try:
            await self._wait_until_held()
        except BaseException:
            await self._pool.stop()
            raise
        body = asyncio.current_task()
        assert body is not None
        self._body, self._cancellations = body, body.cancelling()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Give up the lead and leave the group, so that another member leads at once.

        Raises:
            LeadershipLostError: The lead was lost before the block ended.
        """
        body, self._body = self._body, None
        assert body is not None
        loss, cancelled_outside = self._loss, False
        if loss is not None:
            cancelled_outside = body.uncancel() > self._cancellations
            if error is None and not cancelled_outside:
                await _absorb_cancellation()
        self._body_ended.set()
        try:
            await self._pool.stop()
        except Exception as failure:
            if loss is None and error is None:
                raise
            logger.warning("%s has failed: %r", self._name, failure)
        if loss is None or cancelled_outside:
            return
        if error is None or isinstance(error, asyncio.CancelledError):
            raise LeadershipLostError(f"{self._name} has lost the lead: {loss}") from error
        error.add_note(f"{self._name} has lost the lead: {loss}")

    async def _wait_until_held(self) -> None:
        ended = asyncio.create_task(self._pool.wait())
        ended.add_done_callback(lambda _: self._changed.set())
        try:
            while not self._held:
                if ended.done():
                    ended.result()
                    raise ClientClosedError(f"{self._name} is closed")
                self._changed.clear()
                await self._changed.wait()
        finally:
            ended.cancel()

    # -- the worker -------------------------------------------------------------------------------

    async def _hold(self, _: str) -> None:
        """Hold the lead until this task is cancelled."""
        try:
            token = await self._acquire()
            ends_at = self._pool.session_ends_at
            if ends_at is None or ends_at <= asyncio.get_running_loop().time():
                await _forever()  # The member was frozen during `_acquire`: the lead is being lost.
            self._token, self._held = token, True
            self._changed.set()
            await _forever()
        except asyncio.CancelledError as error:
            self._held = False
            if self._body is not None:
                self._loss = str(error.args[0]) if error.args else "the member was stopped"
                self._body.cancel()
                await self._body_ended.wait()
            raise
        finally:
            await self._release()

    @abstractmethod
    async def _acquire(self) -> int:
        """Fence earlier holders, and return the fencing token."""

    @abstractmethod
    async def _release(self) -> None:
        """Release the resources that `_acquire` obtained."""


async def _forever() -> None:
    await asyncio.Event().wait()


async def _absorb_cancellation() -> None:
    """Absorb a cancellation that was requested but not raised before the block ended."""
    try:
        await asyncio.sleep(0)
    except asyncio.CancelledError:
        return
