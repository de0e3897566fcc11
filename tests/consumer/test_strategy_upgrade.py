"""A group that changes its assignor from an eager to a cooperative one, member by member."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.rolling_group import RollingGroup

if TYPE_CHECKING:
    from kafka_async.consumer.consumer import Consumer
    from tests.consumer.conftest import Stage

PARTITIONS, MEMBERS = 12, 6


@pytest.mark.asyncio
@pytest.mark.virtual_clock
async def test_strategy_is_upgraded_member_by_member_while_records_flow(stage: Stage) -> None:
    """Checks that no partition is without an owner for two rebalances, and none is read twice."""
    await stage.topic("t", PARTITIONS)

    def member(**options: Any) -> Consumer:
        given: dict[str, Any] = {"enable_auto_commit": True, "heartbeat_interval_ms": 500}
        return stage.consumer("t", **given, **options)

    group = RollingGroup(member, PARTITIONS)
    async with group.producing(stage.producer(), "t", interval=0.2):
        await group.upgrade_strategy(MEMBERS)
    protocol = stage.cluster.groups.classic("g")
    assert protocol is not None
    assert protocol.protocol == "cooperative-sticky"
    await group.close()
    group.check()
    assert group.most_rebalances_without_owner == 1
