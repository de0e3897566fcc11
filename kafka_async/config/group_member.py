"""Options of group members."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kafka_async.config.client import ClientConfig, ClientOptions
from kafka_async.config.hidden import hide_secrets
from kafka_async.config.membership import (
    LOOP_WATCHDOG,
    check_heartbeat_interval,
    check_instance_id,
)
from kafka_async.config.options import FLAG, MAX_INT32, TEXT, WHOLE, configuration, option

if TYPE_CHECKING:
    from typing_extensions import Unpack


class GroupMemberOptions(ClientOptions, total=False):
    """Names the keyword arguments of a group member; see `GroupMemberConfig`."""

    group_instance_id: str | None
    session_timeout_ms: int
    heartbeat_interval_ms: int
    rebalance_timeout_ms: int
    loop_watchdog: bool


@configuration()
class GroupMemberConfig(ClientConfig):
    """Holds the options of a group member; its arguments are like those of `ClientConfig`."""

    group_instance_id: str | None = option(TEXT, None, "Id of a static member (KIP-345).")
    session_timeout_ms: int = option(
        WHOLE,
        10_000,
        "Time without heartbeats after which the coordinator removes the member.",
        low=1,
        high=MAX_INT32,
    )
    heartbeat_interval_ms: int = option(
        WHOLE, 3_000, "Time between heartbeats to the coordinator.", low=1, high=MAX_INT32
    )
    rebalance_timeout_ms: int = option(
        WHOLE,
        60_000,
        "Maximum time the coordinator waits for the members to join again in a rebalance.",
        low=1,
        high=MAX_INT32,
    )
    loop_watchdog: bool = option(
        FLAG, False, LOOP_WATCHDOG, why="Java sends heartbeats from a thread, which nothing blocks"
    )

    def __init__(
        self, servers: str | Sequence[str] = (), /, **options: Unpack[GroupMemberOptions]
    ) -> None:
        servers, options = hide_secrets(servers), hide_secrets(options)
        self._set(servers, options)

    def _check_together(self) -> None:
        super()._check_together()
        check_heartbeat_interval(self)
        check_instance_id(self)
