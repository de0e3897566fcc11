"""Divides 100 units among processes in proportion to their capacities, without a topic.

    python examples/group_member.py localhost:9092 capacity 8

Start it several times with different capacities: each process prints its share whenever the group
has changed.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from kafka_async import GroupMember, run

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kafka_async.group.group_member import Member

UNITS = 100


def divide(members: Sequence[Member]) -> Mapping[str, bytes]:
    """Return each member's share of the units, as the leader of the group."""
    total = sum(int(member.metadata) for member in members)
    return {member.member_id: b"%d" % (UNITS * int(member.metadata) // total) for member in members}


async def main(servers: str, group_id: str, capacity: str) -> None:
    """Print the share of this process whenever the group has changed."""
    async with GroupMember(
        servers,
        group_id=group_id,
        protocol_type="capacity",
        protocols={"proportional": divide},
        state=capacity.encode(),
        session_timeout_ms=6_000,
        heartbeat_interval_ms=1_000,
    ) as member:
        async for assignment in member:
            share = 0 if assignment.lost else int(assignment.data)
            print("share", share, flush=True)


if __name__ == "__main__":
    run(main(*sys.argv[1:]))
