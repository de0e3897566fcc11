"""Who is killed where: decided so that it happens in small texts too, and again with the seed."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from kafka_async.cli.demo.crew import DOOMED, Tally, orders_for
from kafka_async.cli.demo.worker import PHASES, Event

ASSIGNMENTS = {"worker-1": [0, 1], "worker-2": [2, 3], DOOMED: [4, 5]}
LINES = st.lists(st.integers(0, 10_000), min_size=6, max_size=6)


@given(LINES, st.integers(1, 100), st.integers())
def test_the_doomed_worker_has_a_transaction_to_die_in_if_it_has_lines(
    lines: list[int], size: int, seed: int
) -> None:
    share = lines[4] + lines[5]
    orders = orders_for(ASSIGNMENTS, dict(enumerate(lines)), size, random.Random(seed))[DOOMED]
    if share == 0:
        assert orders.hold_after is None
    else:
        assert orders.hold_after is not None
        assert 0 <= orders.hold_after < share
    assert orders.hold_phase in PHASES


@given(LINES, st.integers(1, 100), st.integers())
def test_another_aborts_within_the_transactions_that_it_has(
    lines: list[int], size: int, seed: int
) -> None:
    orders = orders_for(ASSIGNMENTS, dict(enumerate(lines)), size, random.Random(seed))
    first = orders["worker-1"].abort_from
    assert first is not None
    assert 1 <= first <= max(1, (lines[0] + lines[1]) // size)
    assert orders["worker-2"].abort_from is None


def test_a_seed_repeats_the_moment() -> None:
    lines = dict.fromkeys(range(6), 1000)
    seeds = [3, 3, 4, 5]
    first, again, *others = [
        orders_for(ASSIGNMENTS, lines, 100, random.Random(seed))[DOOMED] for seed in seeds
    ]
    assert first == again
    assert any(other != first for other in others)


def test_every_phase_comes_up() -> None:
    lines = dict.fromkeys(range(6), 1000)
    found = {
        orders_for(ASSIGNMENTS, lines, 100, random.Random(seed))[DOOMED].hold_phase
        for seed in range(50)
    }
    assert found == set(PHASES)


def test_work_begins_when_all_partitions_are_owned_and_nobody_idles() -> None:
    tally = Tally()
    for worker, partitions in (("worker-1", [0, 1, 2]), ("worker-2", [3, 4, 5]), (DOOMED, [])):
        tally.add(Event(worker, "assigned", partitions=partitions, generation=1))
    assert not tally.covers(3, 6)
    for worker, partitions in ASSIGNMENTS.items():
        tally.add(Event(worker, "assigned", partitions=partitions, generation=2))
    assert tally.covers(3, 6)
    assert tally.generation == 2


def test_what_workers_report_adds_up() -> None:
    tally = Tally()
    for kind in ("committed", "aborted", "aborted", "restarted", "holding"):
        tally.add(Event("worker-2", kind, detail="why"))
    assert (tally.aborted, tally.restarts, tally.held_at) == (2, 1, "why")
    assert tally.trouble == "worker-2: why"
    assert not tally.failed
