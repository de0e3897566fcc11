"""The instructions of the demo's workers, and the state that their events add up to."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from kafka_async.cli.demo.worker import PHASES, Event
from kafka_async.cli.demo.worker_group import KILLED_WORKER, GroupState, choose_instructions

ASSIGNMENTS = {"worker-1": [0, 1], "worker-2": [2, 3], KILLED_WORKER: [4, 5]}
LINES = st.lists(st.integers(0, 10_000), min_size=6, max_size=6)


@given(LINES, st.integers(1, 100), st.integers())
def test_killed_worker_holds_inside_a_transaction_if_it_has_lines(
    lines: list[int], size: int, seed: int
) -> None:
    assigned_lines = lines[4] + lines[5]
    instructions = choose_instructions(
        ASSIGNMENTS, dict(enumerate(lines)), size, random.Random(seed)
    )[KILLED_WORKER]
    if assigned_lines == 0:
        assert instructions.hold_after is None
    else:
        assert instructions.hold_after is not None
        assert 0 <= instructions.hold_after < assigned_lines
    assert instructions.hold_phase in PHASES


@given(LINES, st.integers(1, 100), st.integers())
def test_first_worker_aborts_one_of_its_transactions(
    lines: list[int], size: int, seed: int
) -> None:
    instructions = choose_instructions(
        ASSIGNMENTS, dict(enumerate(lines)), size, random.Random(seed)
    )
    abort_from = instructions["worker-1"].abort_from
    assert abort_from is not None
    assert 1 <= abort_from <= max(1, (lines[0] + lines[1]) // size)
    assert instructions["worker-2"].abort_from is None


def test_a_seed_repeats_the_moment_of_the_kill() -> None:
    lines = dict.fromkeys(range(6), 1000)
    seeds = [3, 3, 4, 5]
    first, again, *others = [
        choose_instructions(ASSIGNMENTS, lines, 100, random.Random(seed))[KILLED_WORKER]
        for seed in seeds
    ]
    assert first == again
    assert any(other != first for other in others)


def test_seeds_choose_every_phase() -> None:
    lines = dict.fromkeys(range(6), 1000)
    phases = {
        choose_instructions(ASSIGNMENTS, lines, 100, random.Random(seed))[KILLED_WORKER].hold_phase
        for seed in range(50)
    }
    assert phases == set(PHASES)


def test_is_fully_assigned_when_all_workers_own_all_partitions() -> None:
    state = GroupState()
    early = {"worker-1": [0, 1, 2], "worker-2": [3, 4, 5], KILLED_WORKER: []}
    for worker, partitions in early.items():
        state.add(Event(worker, "assigned", partitions=partitions, generation=1))
    assert not state.is_fully_assigned(3, 6)
    for worker, partitions in ASSIGNMENTS.items():
        state.add(Event(worker, "assigned", partitions=partitions, generation=2))
    assert state.is_fully_assigned(3, 6)
    assert state.generation == 2


def test_state_counts_events() -> None:
    state = GroupState()
    for kind in ("committed", "aborted", "aborted", "restarted", "holding"):
        state.add(Event("worker-2", kind, detail="why"))
    assert (state.aborted, state.held_phase) == (2, "why")
    assert state.last_error == "worker-2: why"
    assert not state.failed
