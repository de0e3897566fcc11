"""Rebalance listeners and their invocation."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Collection
from typing import TYPE_CHECKING, TypeAlias

from kafka_async.types import TopicPartition

if TYPE_CHECKING:
    from kafka_async.consumer.delivery_gate import DeliveryGate

Partitions: TypeAlias = Collection[TopicPartition]
Callback: TypeAlias = Callable[[Partitions], Awaitable[None] | None]


class RebalanceListener:
    """Receives changes of the partition assignment; override the methods you need.

    Each may be a plain method or `async def`. They run in the consumer's membership task, one after
    another, while no records are returned; heartbeats continue. The other members of a rebalance
    wait for `on_revoked`: if it takes longer than the group's longest max_poll_interval_ms, the
    coordinator removes this member, which joins again afterwards. `on_assigned` may take longer as
    long as no other rebalance starts. The methods may seek and commit; a poll from them raises
    IllegalStateError, and polls of other tasks wait. The application's next poll raises their last
    exception.
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
    """Invokes the listeners, and keeps the last exception for the application's next poll."""

    def __init__(self) -> None:
        self._failure: Exception | None = None
        self.assigned: list[Callback] = []
        self.revoked: list[Callback] = []
        self.lost: list[Callback] = []

    def add(self, listener: RebalanceListener) -> None:
        """Add a listener."""
        for name in ("on_assigned", "on_revoked", "on_lost"):
            if not callable(getattr(listener, name, None)):
                raise TypeError(
                    f"listener has no method {name}: derive {type(listener).__name__} from "
                    "kafka_async.consumer.consumer.RebalanceListener"
                )
        self.assigned.append(listener.on_assigned)
        self.revoked.append(listener.on_revoked)
        self.lost.append(listener.on_lost)

    def take_failure(self) -> Exception | None:
        """Return the last exception that was not returned before; None if there is none."""
        failure, self._failure = self._failure, None
        return failure

    async def invoke(
        self, callbacks: list[Callback], partitions: Partitions, delivery_gate: DeliveryGate
    ) -> None:
        """Call each callback.

        A poll from a callback raises IllegalStateError; the caller holds the delivery gate, so
        polls of other tasks wait.
        """
        for callback in list(callbacks):
            delivery_gate.set_listener_task(asyncio.current_task())
            try:
                result = callback(frozenset(partitions))
                if inspect.isawaitable(result):
                    await result
            except Exception as error:  # noqa: BLE001  # raised by the next poll
                self._failure = error
                delivery_gate.wake_poll()
            finally:
                delivery_gate.set_listener_task(None)
