"""Consumers do not notice a rolling restart; the full run is `make reliability-restarts`."""

from __future__ import annotations

import pytest

from kafka_async.embedded import EmbeddedCluster
from kafka_async.foundation.memory_network import MemoryNetwork
from tests.reliability.restarts import (
    BROKERS,
    KINDS,
    MAX_AWAY_SECONDS,
    SESSION_MS,
    Observations,
    Result,
    faults_of,
    run,
    schedule,
    verdict,
)

pytestmark = pytest.mark.one_kernel


def test_schedule_restarts_each_broker_once_per_restart() -> None:
    steps = schedule(7, 10)
    assert steps == schedule(7, 10) != schedule(8, 10)
    for number in range(10):
        rows = steps[3 * number : 3 * number + 3]
        assert {row.restart for row in rows} == {number + 1}
        assert sorted(row.broker for row in rows) == list(BROKERS)
    assert len({tuple(row.broker for row in steps[i : i + 3]) for i in range(0, 30, 3)}) > 1


def unchanged() -> Observations:
    return Observations([3, 3], ["m", "m"], [], [], {0: [0, 1], 1: [0]})


def test_group_without_changes_has_no_faults() -> None:
    assert faults_of(unchanged(), {0: 2, 1: 1}) == []


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"generations": [3, 4]}, "the generation has changed: [3, 4]"),
        ({"member_ids": ["m", "n"]}, "the member id has changed: ['m', 'n']"),
        ({"changes": ["lost [0]"]}, "the assignment has changed: lost [0]"),
        ({"errors": ["E()"]}, "error: E()"),
        ({"offsets": {0: [0, 1, 1], 1: [0]}}, "partition 0: not each of 2 records once"),
        ({"offsets": {0: [0, 1]}}, "partition 1: not each of 1 records once and in order"),
    ],
)
def test_each_change_is_a_fault(change: dict[str, object], fault: str) -> None:
    seen = unchanged()
    for name, value in change.items():
        setattr(seen, name, value)
    (found,) = faults_of(seen, {0: 2, 1: 1})
    assert found.startswith(fault)
    result = Result({0: 2, 1: 1}, {"eager": seen}, [1.0])
    assert verdict(result)[-1] == f"eager: {found}"


@pytest.mark.asyncio
@pytest.mark.virtual_clock
async def test_rolling_restart_changes_no_group_and_raises_nothing() -> None:
    network, lines = MemoryNetwork(), list[str]()
    async with EmbeddedCluster(
        len(BROKERS),
        network=network,
        group_consumer_session_timeout_ms=SESSION_MS,
        coordinator_load_time_ms=1_000,
    ) as cluster:
        result = await run(cluster, schedule(1, 1), lines.append, network, 1.0)
    assert result.faults() == []
    assert result.groups.keys() == KINDS.keys()
    assert len(lines) == len(result.away) == 3
    assert max(result.away) < MAX_AWAY_SECONDS
    assert sum(result.written.values()) > 30
    assert verdict(result)[-1] == "no group has rebalanced, and no call has raised"
