"""Elects one leader among the processes of a group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_async.app.fencing import fence, token_of
from kafka_async.app.lead import Lead
from kafka_async.app.worker_pool import WorkerPool

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Unpack

    from kafka_async.client.client import Client
    from kafka_async.config import GroupMemberOptions

__all__ = ["LeaderElection"]


class _LeaderElectionPool(WorkerPool):
    _protocol_type = "leader-election"


class LeaderElection(Lead):
    """Elects one leader among the processes of a group for the duration of an `async with` block.

        async with LeaderElection("localhost:9092", group_id="scheduler") as lead:
            await run_schedule(lead.fencing_token)

    Entering the block waits until this process leads. The block is cancelled, and raises
    LeadershipLostError, when the coordinator has removed the member, or has not responded for
    session_timeout_ms; make a new `LeaderElection` to become a candidate again. The lead does not
    move while its holder is in the group. At the end of the block another candidate takes over at
    once; after a crash, within session_timeout_ms plus heartbeat_interval_ms.

    A process that is frozen for longer than its session cannot be cancelled in time: pass
    `fencing_token` to the systems that the block writes to.

    Args:
        servers: Addresses of brokers, as "host:port,host:port" or a sequence; or a started
            `Client`: its connections are shared, and stay open.
        group_id: The group; the fencing tokens come from the transactional id
            "leader-election-" + group_id.
        **options: Options of `GroupMemberConfig`. The default of rebalance_timeout_ms is half of
            session_timeout_ms.

    Raises:
        InvalidConfigurationError: An option is unknown or its value is invalid.
    """

    def __init__(
        self,
        servers: str | Sequence[str] | Client | None = None,
        /,
        *,
        group_id: str,
        **options: Unpack[GroupMemberOptions],
    ) -> None:
        super().__init__(servers, _LeaderElectionPool, group_id, **options)
        self._transactional_id = f"leader-election-{group_id}"

    async def _acquire(self) -> int:
        return token_of(await fence(self._pool.client, self._transactional_id))

    async def _release(self) -> None:
        """Release nothing: the next holder obtains a higher epoch."""
