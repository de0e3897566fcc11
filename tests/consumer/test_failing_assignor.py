"""An assignor that raises on the leader does not delay the other members."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from tests.failing_assignor import FailingAssignor

if TYPE_CHECKING:
    from tests.consumer.conftest import Stage

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]


@pytest.mark.parametrize("static", [False, True], ids=["dynamic", "static"])
async def test_leader_with_failing_assignor_leaves_and_raises(stage: Stage, static: bool) -> None:
    await stage.topic("t", 2)
    failing = FailingAssignor()
    names: list[dict[str, Any]] = [{"group_instance_id": n} if static else {} for n in "ab"]
    leader = stage.consumer("t", partition_assignment_strategy=[failing], **names[0])
    other = stage.consumer("t", partition_assignment_strategy=[FailingAssignor()], **names[1])
    async with leader, other:
        async with asyncio.timeout(60):
            while len(leader.assignment()) + len(other.assignment()) < 2:
                await leader.poll(timeout=0.1)
                await other.poll(timeout=0.1)
        failing.broken = True
        async with asyncio.timeout(15):  # a session is 45 s
            with pytest.raises(ZeroDivisionError, match="no shares"):
                await leader_meets_a_rebalance(stage, leader, other)
            while len(other.assignment()) < 2:
                await other.poll(timeout=0.1)


async def leader_meets_a_rebalance(stage: Stage, leader: Any, other: Any) -> None:
    await stage.cluster.add_partitions("t", 3)
    await leader.client.refresh_metadata()
    while True:
        await leader.poll(timeout=0.1)
        await other.poll(timeout=0.1)
