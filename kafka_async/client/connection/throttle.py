"""Throttle times of brokers (KIP-219): until when a client sends a broker no request. Pure.

A response may have a throttle time. For this time the broker does not read the connection. A
request sent on it would only fill buffers, and one on a new connection would evade the quota. So a
window covers all connections of one client to the same address for the same purpose, including
connections that are opened later. Connections for other purposes have other windows. A group
member's heartbeats wait only for the connection that carries them: another member or producer of
the client, throttled by the same coordinator, must not end the member's session.
"""

from __future__ import annotations

from typing import Final

HEARTBEAT_APIS: Final = frozenset({12, 68, 76, 88})
"""Heartbeat, ConsumerGroupHeartbeat, ShareGroupHeartbeat and StreamsGroupHeartbeat."""
CLIENT_WAITS_FROM: Final[dict[int, int]] = {
    0: 6,  # Produce
    1: 8,  # Fetch
    2: 3,  # ListOffsets
    3: 6,  # Metadata
    8: 4,  # OffsetCommit
    9: 4,  # OffsetFetch
    10: 2,  # FindCoordinator
    11: 3,  # JoinGroup
    12: 2,  # Heartbeat
    13: 2,  # LeaveGroup
    14: 2,  # SyncGroup
    15: 2,  # DescribeGroups
    16: 2,  # ListGroups
    18: 2,  # ApiVersions
    19: 3,  # CreateTopics
    20: 2,  # DeleteTopics
    21: 1,  # DeleteRecords
    22: 1,  # InitProducerId
    24: 1,  # AddPartitionsToTxn
    25: 1,  # AddOffsetsToTxn
    26: 1,  # EndTxn
    28: 1,  # TxnOffsetCommit
    29: 1,  # DescribeAcls
    30: 1,  # CreateAcls
    31: 1,  # DeleteAcls
    32: 2,  # DescribeConfigs
    33: 1,  # AlterConfigs
    34: 1,  # AlterReplicaLogDirs
    35: 1,  # DescribeLogDirs
    37: 1,  # CreatePartitions
    38: 1,  # CreateDelegationToken
    39: 1,  # RenewDelegationToken
    40: 1,  # ExpireDelegationToken
    41: 1,  # DescribeDelegationToken
    42: 1,  # DeleteGroups
}
"""First version of an API whose throttle time the client waits for; any of other APIs.

Since KIP-219 a broker responds immediately and does not read the connection for the throttle time.
Before, it delayed the response instead.
"""


class ThrottleWindow:
    """The time until which a client sends no request to one address for one purpose.

    Attributes:
        ends_at: End of the window, in seconds of the event loop's clock; 0 before the first.
    """

    __slots__ = ("ends_at",)

    def __init__(self) -> None:
        self.ends_at = 0.0

    def extend(self, now: float, duration: float) -> None:
        """Extend the window to `duration` seconds from now; it never becomes shorter.

        Requests are pipelined, so a later response may have a shorter throttle time.
        """
        self.ends_at = max(self.ends_at, now + duration)


class ThrottleWindows:
    """The windows of one client, by address and purpose of connections."""

    def __init__(self) -> None:
        self._windows: dict[tuple[str, int, str], ThrottleWindow] = {}

    def window(self, host: str, port: int, kind: str) -> ThrottleWindow:
        """Return the window that connections to this address for this purpose share."""
        return self._windows.setdefault((host, port, kind), ThrottleWindow())


def throttle_seconds(api_key: int, version: int, throttle_time_ms: int) -> float:
    """Return the seconds that the client waits after a response with this throttle time.

    Before KIP-219 a broker delayed the response itself, so the client does not wait.
    """
    if throttle_time_ms <= 0 or version < CLIENT_WAITS_FROM.get(api_key, 0):
        return 0.0
    return throttle_time_ms / 1000
