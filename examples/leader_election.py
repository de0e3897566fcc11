"""Elects a leader among processes, which runs a schedule until it ends or loses the lead.

    python examples/leader_election.py localhost:9092 scheduler

Start it several times and kill the leader: another process leads within 7 s, the session time-out
plus a heartbeat interval. The fencing token grows with each leader.
"""

from __future__ import annotations

import asyncio
import sys

from kafka_async import run
from kafka_async.app import LeaderElection
from kafka_async.errors import LeadershipLostError


async def main(servers: str, group_id: str) -> None:
    """Run the schedule whenever this process leads."""
    while True:
        try:
            async with LeaderElection(
                servers, group_id=group_id, session_timeout_ms=6_000, heartbeat_interval_ms=1_000
            ) as lead:
                print("leading with token", lead.fencing_token, flush=True)
                await run_schedule()
        except LeadershipLostError as error:
            print(error, flush=True)


async def run_schedule() -> None:
    """Do the work of the leader, until it is cancelled."""
    await asyncio.Event().wait()


if __name__ == "__main__":
    run(main(*sys.argv[1:]))
