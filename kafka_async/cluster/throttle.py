"""Quotas as a lane sees them (KIP-13, KIP-219): how long to hold requests back. Pure.

A broker answers at once and says how long it will not read the connection. Sending into that window
would only fill buffers, so the client waits it out. Before KIP-219 the broker held the answer back
instead and told the time only for information; `CLIENT_WAITS_FROM` has the version from which it is
the client's to wait, for the APIs that are older than the KIP. For all others it always is.
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
    """The window of one lane. Owned by the lane; times in seconds of the loop's clock.

    `until` is when the window ends; it is in the past while the lane is free.
    """

    __slots__ = ("until",)

    def __init__(self) -> None:
        self.until = 0.0

    def answered(self, api_key: int, version: int, throttle_time_ms: int, now: float) -> float:
        """Take in an answer's throttle time; returns the seconds to wait that it asks for.

        A later answer with a shorter time does not shorten the window: requests were pipelined.
        """
        if throttle_time_ms <= 0 or version < CLIENT_WAITS_FROM.get(api_key, 0):
            return 0.0
        seconds = throttle_time_ms / 1000
        self.until = max(self.until, now + seconds)
        return seconds

    def delay(self, now: float) -> float:
        """Seconds until a request may be sent; 0 if it may at once."""
        return max(0.0, self.until - now)
