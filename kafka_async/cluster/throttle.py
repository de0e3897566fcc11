"""Tracks how long a connection is muted because a broker's quota was exceeded (KIP-13, KIP-219).

Pure. A broker responds at once, states the throttle time and does not read the connection for that
long. Requests sent meanwhile would only fill buffers, so the client waits. Before KIP-219 the
broker delayed the response instead, and the throttle time was informational; `CLIENT_WAITS_FROM`
has the version from which the client waits, for the APIs that are older than the KIP. For all other
APIs the client always waits.
"""

from __future__ import annotations

from typing import Final

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


class Throttle:
    """Tracks until when one connection is muted. Owned by its `BrokerConnection`.

    Attributes:
        muted_until: End of the throttle time, in seconds of the loop's clock; in the past while
            the connection is not muted.
    """

    __slots__ = ("muted_until",)

    def __init__(self) -> None:
        self.muted_until = 0.0

    def record(self, api_key: int, version: int, throttle_time_ms: int, now: float) -> float:
        """Record the throttle time of a response.

        A later response with a shorter time does not shorten the wait: requests are pipelined.

        Returns:
            The seconds that the client has to wait because of this response.
        """
        if throttle_time_ms <= 0 or version < CLIENT_WAITS_FROM.get(api_key, 0):
            return 0.0
        seconds = throttle_time_ms / 1000
        self.muted_until = max(self.muted_until, now + seconds)
        return seconds

    def delay(self, now: float) -> float:
        """Return the seconds until a request may be sent; 0 if the connection is not muted."""
        return max(0.0, self.muted_until - now)
