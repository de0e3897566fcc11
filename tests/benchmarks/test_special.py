"""The special cases, with small inputs."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from benchmarks import payload, wire_cases
from benchmarks.special import assignor, idle, idle_client, many_topics, memory, metadata
from benchmarks.special.results import Goal, Result, median_goal, ratio_goal, row
from benchmarks.special.topics_client import SIZE
from benchmarks.wire_cases import WrongResultError
from benchmarks.wire_cases import measure as measure_case
from kafka_async.embedded import run_in_thread

pytestmark = pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated")  # by kafka-python

SMALL = metadata.Shape(6, 3)
MEMBERS = ["a", "b", "c"]
ASSIGNMENT = {
    member: [(topic, number) for topic in SMALL.names] for number, member in enumerate(MEMBERS)
}


@pytest.fixture(autouse=True)
def short_samples(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(wire_cases, "SAMPLE_SECONDS", 1e-6)
    yield
    gc.unfreeze()


def test_measures_metadata_of_every_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "SHAPES", (SMALL,))
    result = metadata.measure(None, 1)
    assert [row["client"] for row in result["rows"]] == [
        *(client.name for client in metadata.clients()),
    ] * 2
    assert {row["what"] for row in result["rows"]} == {
        "6 topics x 3 partitions, first answer",
        "6 topics x 3 partitions, next answer",
    }
    assert [goal["limit"] for goal in result["goals"]] == [2]
    json.dumps(result)


@pytest.mark.parametrize("place", range(4))
def test_missing_leader_raises(place: int) -> None:
    case, less = (metadata.cases(metadata.Shape(topics, 2))[0] for topics in (3, 2))
    contenders = list(case.contenders)
    contenders[place] = replace(contenders[place], run=less.contenders[place].run)
    with pytest.raises(WrongResultError, match=contenders[place].client):
        measure_case(replace(case, contenders=tuple(contenders)), 1)


def test_measures_assignors_of_every_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assignor, "SHAPE", SMALL)
    monkeypatch.setattr(assignor, "MEMBERS", 4)
    result = assignor.measure(None, 1)
    named = [(row["what"], row["client"]) for row in result["rows"]]
    assert len(named) == len(set(named)) == 2 * len(assignor.strategies(SMALL))
    assert ("sticky, one leaves", "kafka_async cooperative-sticky") in named


@pytest.mark.parametrize(
    ("assignment", "even", "valid"),
    [
        (ASSIGNMENT, True, True),
        ({**ASSIGNMENT, "a": ASSIGNMENT["a"][1:]}, False, False),
        ({**ASSIGNMENT, "a": [*ASSIGNMENT["a"], ASSIGNMENT["b"][0]]}, False, False),
        ({**ASSIGNMENT, "a": [*ASSIGNMENT["a"], ("elsewhere", 0)]}, False, False),
        ({"a": ASSIGNMENT["a"], "b": ASSIGNMENT["b"] + ASSIGNMENT["c"]}, False, False),
        ({"a": ASSIGNMENT["a"], "b": ASSIGNMENT["b"] + ASSIGNMENT["c"], "c": []}, False, True),
        ({"a": ASSIGNMENT["a"], "b": ASSIGNMENT["b"] + ASSIGNMENT["c"], "c": []}, True, False),
    ],
    ids=["valid", "lost", "twice", "invented", "member lost", "uneven", "uneven but sticky"],
)
def test_valid_assignment_has_one_owner_per_partition(
    assignment: assignor.Partitions, even: bool, valid: bool
) -> None:
    assert assignor.is_valid(assignment, SMALL, MEMBERS, even=even) == valid


@pytest.mark.parametrize("wrong", [{"records": 9}, {"checksum": 1}])
def test_compares_records_read_from_many_topics(wrong: dict[str, int]) -> None:
    found = {"records": 10, "checksum": payload.expected(10, SIZE)}
    many_topics.check(found, 10)
    with pytest.raises(WrongResultError, match="10"):
        many_topics.check({**found, **wrong}, 10)


def test_goal_is_met_in_its_direction() -> None:
    assert Goal("time", 1, 2, "s").met
    assert not Goal("time", 3, 2, "s").met
    assert Goal("speed", 3, 2, "x", more_is_better=True).met
    assert not Goal("speed", 1, 2, "x", more_is_better=True).met


def test_result_converts_to_json() -> None:
    lines = [row("ours", [3.0, 1.0, 2.0], "ms", ratio=1.0, what="it", settings={"linger_ms": 5})]
    result: dict[str, Any] = json.loads(
        json.dumps(Result("case", "A case", "nothing", lines, [Goal("g", 1, 2, "s")]).plain())
    )
    assert result["rows"][0] == {
        "client": "ours",
        "median": 2.0,
        "low": 1.0,
        "high": 3.0,
        "unit": "ms",
        "ratio": 1.0,
        "settings": {"linger_ms": 5},
        "what": "it",
    }
    assert result["goals"][0]["met"] is True


def test_memory_limit_is_sum_of_base_and_options() -> None:
    assert memory.limit("producer") == pytest.approx(40 + 32 * 2**20 / 1e6)
    assert memory.limit("consumer") == pytest.approx(40 + (64 + 128) * 2**20 / 1e6)


@pytest.mark.slow
def test_writes_and_reads_many_topics() -> None:
    with run_in_thread(brokers=1) as cluster:
        figures = many_topics.write(cluster.bootstrap_servers, many_topics.MANY, 20, 2_000)
    assert figures["seconds"] > 0
    assert figures["peak_mb"] > 10


@pytest.mark.slow
def test_measures_every_idle_client() -> None:
    with run_in_thread(brokers=idle.NEEDS_BROKERS) as cluster:
        spent = idle.spend(cluster.bootstrap_servers, 0.5)
    assert list(spent) == list(idle_client.CLIENTS)
    assert min(spent.values()) > 0


@pytest.mark.slow
def test_measures_memory_while_broker_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "SECONDS", 1.0)
    monkeypatch.setattr(memory, "STALL_AFTER", 0.1)
    monkeypatch.setattr(memory, "STALL", 0.1)
    calls: list[str] = []
    case = memory.Case("small", 100, topics=2, partitions=1, stall=True)
    with run_in_thread(brokers=1) as cluster:
        found = memory.peak(
            cluster.bootstrap_servers,
            case,
            lambda: calls.append("pause"),
            lambda: calls.append("resume"),
        )
    assert found.keys() == {"producer", "consumer"}
    assert min(found.values()) > 10
    assert calls == ["pause", "resume"] * 2


def test_median_goal_has_extremes_of_rounds() -> None:
    goal = median_goal("rate", [0.7, 0.4, 0.6], 0.5, "x", more_is_better=True)
    assert (goal.figure, goal.low, goal.high, goal.met) == (0.6, 0.4, 0.7, True)
    assert not median_goal("time", [0.7, 0.4, 0.6], 0.5, "s").met


def test_ratio_goal_is_about_fastest_other_client() -> None:
    ours = wire_cases.Row("first answer", "kafka_async", 1.0, 1.0, 1.0, 1.0, 1.0, 1.0)
    plain = replace(ours, client="kafka_async in plain Python", ratio=1.1)
    near = replace(ours, client="kafka-python", ratio=2.5, ratio_low=1.9, ratio_high=2.6)
    far = replace(ours, client="aiokafka", ratio=4.0)
    goal = ratio_goal([ours, plain, far, near], 2)
    assert goal.what == "kafka-python, first answer: its time in ours"
    assert (goal.figure, goal.low, goal.high, goal.met) == (2.5, 1.9, 2.6, True)
