"""Rebalance listeners and their invocation."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Collection
from typing import TYPE_CHECKING, TypeAlias

from kafka_async.errors import KafkaTimeoutError
from kafka_async.types import TopicPartition

if TYPE_CHECKING:
    from kafka_async.consumer.delivery.delivery_gate import DeliveryGate

logger = logging.getLogger("kafka_async.consumer")

Partitions: TypeAlias = Collection[TopicPartition]
Callback: TypeAlias = Callable[[Partitions], Awaitable[None] | None]


class RebalanceListener:
    """Receives changes of the partition assignment; override the methods you need.

    Each may be a plain method or `async def`. They run in the consumer's membership task, one after
    another, while no records are returned; heartbeats continue. The other members of a rebalance
    wait for `on_revoked`: if it takes longer than the group's longest max_poll_interval_ms, the
    coordinator removes this member, which joins again afterwards. `on_assigned` may take longer as
    long as no other rebalance starts. A coroutine that takes longer than
    rebalance_listener_timeout_ms is cancelled, and the rebalance continues as if it had returned.
    The methods may seek and commit. A poll from them, or from a task that they have created, raises
    IllegalStateError until they return; polls of other tasks wait. The application's next poll
    raises their last exception, or `stop` does, once the consumer is closed.
    """

    def on_assigned(self, partitions: Partitions) -> Awaitable[None] | None:
        """Handle newly assigned partitions, before anything is fetched from them.

        Args:
            partitions: The partitions that are new.
        """

    def on_revoked(self, partitions: Partitions) -> Awaitable[None] | None:
        """Handle partitions about to be revoked; they are owned until this returns.

        Args:
            partitions: The partitions to be revoked.
        """

    def on_lost(self, partitions: Partitions) -> Awaitable[None] | None:
        """Handle lost partitions: another member may own them already, and commits fail.

        Args:
            partitions: The partitions that were lost.
        """


class RebalanceListenerInvoker:
    """Invokes the listeners, and keeps the last exception for the application's next poll.

    Args:
        timeout: Seconds after which a callback is cancelled.
    """

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._failure: Exception | None = None
        self.assigned: list[Callback] = []
        self.revoked: list[Callback] = []
        self.lost: list[Callback] = []

    def add(self, listener: RebalanceListener) -> None:
        """Add a listener."""
        # Duck typing: a listener need not derive from RebalanceListener, but must be complete.
        for name in ("on_assigned", "on_revoked", "on_lost"):
            if not callable(getattr(listener, name, None)):
                raise TypeError(
                    f"listener has no method {name}: derive {type(listener).__name__} from "
                    "kafka_async.RebalanceListener"
                )
        self.assigned.append(listener.on_assigned)
        self.revoked.append(listener.on_revoked)
        self.lost.append(listener.on_lost)

    def take_failure(self) -> Exception | None:
        """Return the last exception that was not returned before, or None."""
        failure, self._failure = self._failure, None
        return failure

    async def invoke(
        self, callbacks: list[Callback], partitions: Partitions, delivery_gate: DeliveryGate
    ) -> None:
        """Call each callback, for `timeout` seconds at most.

        A poll from a callback raises IllegalStateError. The caller holds the delivery gate, so
        polls of other tasks wait.
        """
        now = asyncio.get_running_loop().time
        # A copy, since a callback may add callbacks.
        for callback in list(callbacks):
            started_at, limit = now(), asyncio.timeout(self._timeout)
            try:
                with delivery_gate.calling_listener():
                    async with limit:
                        result = callback(frozenset(partitions))
                        if inspect.isawaitable(result):
                            await result
                # A plain function cannot be cancelled.
                if now() - started_at > self._timeout:
                    logger.warning("%s; it has returned", self._overrun(callback))
            except Exception as error:  # noqa: BLE001  # raised by the next poll
                self._failure = error
                if limit.expired():
                    message = f"{self._overrun(callback)}, so it was cancelled"
                    logger.warning("%s; the rebalance continues", message)
                    self._failure = KafkaTimeoutError(message)
                    self._failure.__cause__ = error
                # A poll that is waiting raises the exception now.
                delivery_gate.wake_poll()

    def _overrun(self, callback: Callback) -> str:
        name = getattr(callback, "__qualname__", repr(callback))
        return (
            f"the rebalance listener {name} took longer than rebalance_listener_timeout_ms "
            f"({self._timeout:g} s)"
        )
