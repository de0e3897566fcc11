"""What an application may want to know of a rebalance, and how it is told."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Collection
from typing import TYPE_CHECKING, TypeAlias

from kafka_async.types import TopicPartition

if TYPE_CHECKING:
    from kafka_async.consumer.delivery_gate import Gate

Partitions: TypeAlias = Collection[TopicPartition]
Callback: TypeAlias = Callable[[Partitions], Awaitable[None] | None]


class RebalanceListener:
    """Override what you need; each may be a plain method or `async def`.

    They run in the consumer's own task, one after another, while nothing is handed out, and
    heartbeats go on. The other members of a rebalance wait for `on_revoked`: if it takes longer
    than the longest max_poll_interval_ms of the group, the coordinator removes this member, which
    joins again afterwards. `on_assigned` may take longer as long as no other rebalance begins. The
    consumer may be sought and committed in them, but not asked for records. What they raise is
    raised by the next call that asks for records.
    """

    def on_assigned(self, partitions: Partitions) -> Awaitable[None] | None:
        """These are newly this consumer's; nothing of them has been fetched yet."""

    def on_revoked(self, partitions: Partitions) -> Awaitable[None] | None:
        """These are about to be given up; they are still this consumer's until this returns."""

    def on_lost(self, partitions: Partitions) -> Awaitable[None] | None:
        """These may be somebody else's already: committing them fails."""


class Herald:
    """Tells listeners, and keeps what they raise for the application's next question."""

    def __init__(self) -> None:
        self.failure: Exception | None = None
        self.assigned: list[Callback] = []
        self.revoked: list[Callback] = []
        self.lost: list[Callback] = []

    def add(self, listener: RebalanceListener) -> None:
        """Tell this one too."""
        for name in ("on_assigned", "on_revoked", "on_lost"):
            if not callable(getattr(listener, name, None)):
                raise TypeError(
                    f"listener has no method {name}: derive {type(listener).__name__} from "
                    "kafka_async.consumer.consumer.RebalanceListener"
                )
        self.assigned.append(listener.on_assigned)
        self.revoked.append(listener.on_revoked)
        self.lost.append(listener.on_lost)

    async def tell(self, callbacks: list[Callback], partitions: Partitions, gate: Gate) -> None:
        """Call each; asking for records is refused to them."""
        for callback in list(callbacks):
            gate.telling(asyncio.current_task())
            try:
                answer = callback(frozenset(partitions))
                if inspect.isawaitable(answer):
                    await answer
            except Exception as error:  # noqa: BLE001  # raised by the next call that asks for records
                self.failure = error
                gate.arrived.set()
            finally:
                gate.telling(None)
