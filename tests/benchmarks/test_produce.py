"""The benchmark counts what arrived, and compares medians."""

from __future__ import annotations

import pytest

from benchmarks.produce import PEERS, Case, Run, measure, table
from kafka_async.embedded import run_in_thread


@pytest.mark.slow
def test_each_peer_sends_all_records_in_every_round() -> None:
    case = Case(records=3_000, size=100, rounds=2)
    with run_in_thread(brokers=1) as cluster:
        runs = measure(cluster.bootstrap_servers, case)
    assert [run.client for run in runs] == [*PEERS, *reversed(PEERS)]
    assert all(run.seconds > 0 and run.cpu_seconds > 0 for run in runs)


def test_a_ratio_is_ours_over_theirs_median_by_median() -> None:
    seconds = {"kafka_async": [1.0, 2.0, 4.0], "aiokafka": [4.0, 8.0, 8.0]}
    runs = [Run(client, s, s / 2, 50) for client, all_s in seconds.items() for s in all_s]
    ours, theirs = table(runs, Case(records=8_000, size=100, rounds=3))
    assert (ours.client, ours.median, ours.low, ours.high) == ("kafka_async", 4_000, 2_000, 8_000)
    assert (ours.ratio, theirs.ratio) == (1.0, 4.0)
    assert theirs.cpu_us == pytest.approx(8 / 2 / 8_000 * 1e6)
