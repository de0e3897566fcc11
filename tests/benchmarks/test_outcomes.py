"""Results of targets: verdicts by medians, and their reliability by rounds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchmarks.cases import CASES
from benchmarks.clients import JAVA, OURS, PLAIN, RAW
from benchmarks.outcomes import Outcome, is_met, outcomes, special_outcomes, summary
from benchmarks.report import rows
from benchmarks.special.results import Goal, Result
from benchmarks.targets import TARGETS, Figure, Group, Target, Wanted
from tests.benchmarks.planted_runs import CASE, runs, trips

if TYPE_CHECKING:
    from benchmarks.rounds import Run


def outcomes_of(measured: list[Run], what: str, group: Group = Group.MAIN) -> list[Outcome]:
    """Return the outcomes of the targets with a title."""
    reached = outcomes(TARGETS, rows(measured))
    return [one for one in reached if (one.what, one.group) == (what, group.value)]


@pytest.mark.parametrize(
    ("wanted", "limit", "just", "no_more"),
    [
        (Wanted.TIMES, 1.2, 120.0, 119.0),
        (Wanted.LESS, 1.0, 99.0, 100.0),
        (Wanted.AT_MOST, 1.2, 120.0, 121.0),
        (Wanted.ABOVE, 60.0, 160.0, 161.0),
    ],
)
def test_target_is_met_up_to_its_limit(
    wanted: Wanted, limit: float, just: float, no_more: float
) -> None:
    target = Target("a case", CASE, "enqueue", ("aiokafka",), Figure.RATE, wanted, limit)
    assert is_met(target, just, 100.0)
    assert not is_met(target, no_more, 100.0)


def test_targets_are_met_not_met_or_open() -> None:
    measured = [*runs(OURS, [1.0]), *runs("aiokafka", [8.0]), *runs("confluent", [1.9])]
    found = {one.against: one for one in outcomes_of(measured, "produce 100 B, enqueue")}
    assert found["aiokafka"].met is True
    assert found["confluent-kafka"].met is False
    assert found["confluent-kafka"].reached == "1.90x"
    assert found["confluent-kafka, callbacks"].verdict == "open"
    assert found["Java tool"].met is None
    assert found["Java tool"].reached == "not measured"


@pytest.mark.parametrize(
    ("ours", "theirs", "by_round", "verdict"),
    [
        # Medians of 8.0 and 1.0: 8 times as fast, which is the target, in all rounds or not.
        ([1.0, 1.0, 1.0], [8.0, 8.0, 9.0], "8.00 (8.00 - 9.00)", "met"),
        ([1.0, 1.0, 1.0], [7.0, 8.0, 9.0], "8.00 (7.00 - 9.00)", "met, within noise"),
        ([1.0, 1.0, 1.0], [7.0, 7.5, 9.0], "7.50 (7.00 - 9.00)", "not met, within noise"),
        ([1.0, 1.0, 1.0], [6.0, 7.0, 7.5], "7.00 (6.00 - 7.50)", "not met"),
        # Both are slow in the same round, which the medians do not show.
        ([1.0, 9.0, 1.0], [8.5, 76.5, 8.5], "8.50 (8.50 - 8.50)", "met"),
        ([1.0], [9.0], "9.00 (9.00 - 9.00)", "met, one round"),
    ],
)
def test_verdict_mentions_rounds_that_contradict_it(
    ours: list[float], theirs: list[float], by_round: str, verdict: str
) -> None:
    measured = [*runs(OURS, ours), *runs("aiokafka", theirs)]
    [outcome] = [
        one for one in outcomes_of(measured, "produce 100 B, enqueue") if one.against == "aiokafka"
    ]
    assert (outcome.by_round, outcome.verdict) == (by_round, verdict)


def test_compares_only_rounds_of_both_clients() -> None:
    [first, second, third] = runs("aiokafka", [9.0, 1.0, 9.0])
    measured = [*runs(OURS, [1.0, 1.0, 1.0]), first, third]
    [outcome] = [
        one for one in outcomes_of(measured, "produce 100 B, enqueue") if one.against == "aiokafka"
    ]
    assert outcome.by_round == "9.00 (9.00 - 9.00)"
    assert second.number == 2


def test_compares_with_best_peer_and_names_missing_ones() -> None:
    case = "consume-100"
    seconds = {OURS: 1.0, "aiokafka": 9.0, "confluent": 3.0, "kafka_python": 20.0, JAVA: 0.1}
    measured = [
        run for peer, each in seconds.items() for run in runs(peer, [each], way="poll", case=case)
    ]
    poll = outcomes_of(measured, "consume 100 B, poll")
    assert [(one.against, one.reached, one.met) for one in poll] == [
        ("confluent-kafka (confluent-kafka asyncio not measured)", "3.00x", True),
        ("Java tool", "0.10x", False),
    ]


def test_compares_with_best_call_of_best_peer() -> None:
    case = "produce-1k"
    measured = [
        *runs(OURS, [1.0], case=case),
        *runs("confluent", [2.0], case=case),
        *runs("confluent", [1.5], way="callbacks", case=case),
        *runs(JAVA, [3.0], case=case),
        *runs(JAVA, [1.1], way="program", case=case),
    ]
    [rate] = outcomes_of(measured, "produce 1 KiB, best peer")
    assert rate.against.startswith("Java tool, program (")
    assert (rate.reached, rate.met) == ("1.10x", False)
    [cpu] = outcomes_of(measured, "produce 1 KiB", Group.CPU)
    assert (cpu.reached, cpu.met) == ("0.91x", True)  # CPU is half of the time of each


def test_latency_target_is_difference_from_raw_socket() -> None:
    measured = [
        *trips(OURS, [110.0, 90.0]),
        *trips(RAW, [40.0, 40.0]),
        *trips("aiokafka", [150.0, 150.0]),
    ]
    found = outcomes_of(measured, "round trip, back to back")
    to_socket, to_peers = found[0], found[1]
    assert to_socket.against == "raw socket (the limit)"
    assert (to_socket.reached, to_socket.by_round) == ("+60 us", "+60 (+50 to +70)")
    assert to_socket.verdict == "met, within noise"
    assert to_peers.met is True


def test_compares_plain_python_with_kafka_python() -> None:
    title = CASES["produce-1k-keyed-lz4"].title
    assert [one.verdict for one in outcomes_of([], title, Group.PLAIN)] == ["open"]
    case = "produce-1k-keyed-lz4"
    measured = [*runs(PLAIN, [2.0, 2.0], case=case), *runs("kafka_python", [1.0, 1.0], case=case)]
    [outcome] = outcomes_of(measured, title, Group.PLAIN)
    assert (outcome.reached, outcome.verdict) == ("0.50x", "not met")


def test_each_case_is_compared_with_all_other_clients() -> None:
    others = {"aiokafka", "confluent", "confluent_asyncio", "kafka_python", JAVA}
    for case in [each for each in CASES.values() if each.tuned]:
        present = {contender.peer for contender in case.contenders} & others
        of_case = [target for target in TARGETS if target.case == case.name]
        speeds = [each for each in of_case if each.ours == OURS and each.figure is not Figure.CPU]
        assert present <= {peer for target in speeds for peer in target.against}, case.name
        cpu = [set(each.against) for each in of_case if each.figure is Figure.CPU]
        assert cpu == ([] if case.operations or not present else [present]), case.name


def test_comparison_without_target_is_ahead_or_behind() -> None:
    case, title = "produce-1k-lz4", CASES["produce-1k-lz4"].title
    measured = [*runs(OURS, [2.0, 2.0], case=case), *runs("confluent", [1.0, 1.0], case=case)]
    [outcome] = outcomes_of(measured, title, Group.INFORMATION)
    assert (outcome.reached, outcome.wanted, outcome.verdict) == ("0.50x", "no target", "behind")
    measured = [*trips(OURS, [2.0, 3.0]), *trips("confluent", [9.0, 2.0])]
    [outcome] = outcomes_of(measured, CASES["round-trip"].title, Group.INFORMATION)
    assert outcome.verdict == "ahead, within noise"


def test_verdict_of_special_goal_considers_rounds() -> None:
    goals = [
        Goal("surely", 1.0, 2.0, "ms", low=0.5, high=1.5),
        Goal("hardly", 1.0, 2.0, "ms", low=0.5, high=2.5),
        Goal("not at all", 1.0, 2.0, "x", True, 0.5, 1.5),
        Goal("nearly", 1.0, 2.0, "x", True, 0.5, 2.0),
        Goal("once", 1.0, 2.0, "ms", low=1.0, high=1.0),
        Goal("the highest", 1.0, 2.0, "ms"),
    ]
    found = special_outcomes({"idle": Result("idle", "idle", "", [], goals).plain()}, ["idle"])
    assert [(one.by_round, one.verdict) for one in found] == [
        ("(0.5 - 1.5)", "met"),
        ("(0.5 - 2.5)", "met, within noise"),
        ("(0.5 - 1.5)", "not met"),
        ("(0.5 - 2)", "not met, within noise"),
        ("(1 - 1)", "met, one round"),
        ("", "met"),
    ]


def test_selected_special_cases_without_result_are_open() -> None:
    error: dict[str, object] = {"case": "memory", "error": "it took longer than 300 s"}
    found = special_outcomes({"memory": error})
    assert {(one.what, one.reached) for one in found} >= {
        ("peak memory at full speed", "failed"),
        ("idle, 3 brokers", "not measured"),
    }
    assert {one.verdict for one in found} == {"open"}
    assert special_outcomes({}, ["produce-100"]) == []


def test_summary_counts_met_not_met_and_open() -> None:
    measured = [*runs(OURS, [1.0, 1.0]), *runs("aiokafka", [8.0, 9.0])]
    measured += runs("confluent", [1.9, 2.2])
    reached = outcomes_of(measured, "produce 100 B, enqueue")
    assert summary(reached) == "2 met (1 within noise), 0 not met, 2 open."
