"""The special cases, with small inputs."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from dataclasses import replace

import pytest

from benchmarks.payload import WrongResultError
from benchmarks.special import assignor, fairness, idle, many_topics, memory, metadata
from benchmarks.special.metadata import Shape
from benchmarks.wire import timing
from kafka_async.embedded import run_in_thread

pytestmark = pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated")  # by kafka-python

SMALL = Shape(6, 3)
MEMBERS = ["a", "b", "c"]


@pytest.fixture(autouse=True)
def short_samples(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(timing, "SAMPLE_SECONDS", 1e-6)
    yield
    gc.unfreeze()


def test_measures_metadata_of_every_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "SHAPES", (SMALL,))
    result = json.loads(json.dumps(metadata.measure("", 1).plain()))
    assert [(row["what"], row["client"]) for row in result["rows"]] == [
        (f"6 topics x 3 partitions, {kind} answer", client.name)
        for kind in ("first", "next")
        for client in metadata.clients()
    ]
    [goal] = result["goals"]
    assert (goal["limit"], goal["met"]) == (2, goal["figure"] >= 2)


@pytest.mark.parametrize("place", range(4))
def test_missing_leader_raises(place: int) -> None:
    case, less = (metadata.cases(Shape(topics, 2))[0] for topics in (3, 2))
    contenders = list(case.contenders)
    contenders[place] = replace(contenders[place], run=less.contenders[place].run)
    with pytest.raises(WrongResultError, match=contenders[place].client):
        timing.measure(replace(case, contenders=tuple(contenders)), 1)


def test_measures_assignors_of_every_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assignor, "SHAPE", SMALL)
    monkeypatch.setattr(assignor, "MEMBERS", 4)
    named = [(row.what, row.client) for row in assignor.measure("", 1).rows]
    assert len(named) == len(set(named)) == 2 * len(assignor.strategies(SMALL))
    assert ("sticky, one leaves", "kafka_async cooperative-sticky") in named


def test_measures_longest_iteration_of_each_case(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = {name: fairness.CASES[name] for name in ("a record a call", "record by record")}
    monkeypatch.setattr(fairness, "RECORDS", 1000)
    monkeypatch.setattr(fairness, "CASES", cases)
    monkeypatch.setattr(fairness, "CLIENTS", ("kafka_async",))
    with run_in_thread() as cluster:
        result = fairness.measure(cluster.bootstrap_servers, 1)
    assert [row.what for row in result.rows] == list(cases)
    assert all(row.median > 0 for row in result.rows)
    assert [goal.figure for goal in result.goals] == [max(row.median for row in result.rows)]


def test_writes_and_reads_many_topics() -> None:
    with run_in_thread(brokers=1) as cluster:
        figures = many_topics.write(cluster.bootstrap_servers, 20, 1, 2_000)
    assert figures.seconds > 0
    assert figures.peak_mb > 10


@pytest.mark.slow
def test_measures_every_idle_client() -> None:
    with run_in_thread(brokers=3) as cluster:
        spent = idle.spend(cluster.bootstrap_servers, 0.5)
    assert set(spent) == {(role, client) for role in idle.ROLES for client in idle.CLIENTS}
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
