"""Consistency of the tables of cases, targets and clients."""

from __future__ import annotations

import json
import sys

import pytest

from benchmarks.__main__ import RESULTS
from benchmarks.cases import ALL_CASES, CASES, PYTHON_CASES, Case, Contender
from benchmarks.clients import JAVA, OURS, PEERS, PLAIN, PYTHONS, THIS_PYTHON, on_python
from benchmarks.rows import Figure
from benchmarks.targets import (
    DEFAULT_TARGETS,
    PYTHON_TARGETS,
    REASONS,
    TARGETS,
    Target,
    comparisons,
)


@pytest.mark.parametrize("case", ALL_CASES.values(), ids=list(ALL_CASES))
def test_contenders_have_records_for_about_a_second(case: Case) -> None:
    for contender in case.contenders:
        records = case.records(contender)
        assert 20 <= records <= 10_000_000
        assert case.operations or records % 1_000 == 0  # each value occurs equally often


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_case_has_both_kernels(case: Case) -> None:
    peers = {contender.peer for contender in case.contenders}
    assert {OURS, PLAIN} <= peers <= set(PEERS)


@pytest.mark.parametrize(
    "target",
    [*TARGETS, *DEFAULT_TARGETS, *PYTHON_TARGETS],
    ids=lambda target: f"{target.what}, {target.against}",
)
def test_target_has_contenders_of_its_case(target: Target) -> None:
    contenders = ALL_CASES[target.case].contenders
    assert Contender(target.ours, target.way) in contenders
    assert set(target.against) <= {contender.peer for contender in contenders}
    if target.against_way is not None:
        assert Contender(target.against[0], target.against_way) in contenders


def test_each_case_is_compared_with_all_other_clients() -> None:
    others = {"aiokafka", "confluent", "confluent_asyncio", "kafka_python", JAVA}
    for case in [each for each in CASES.values() if each.tuned]:
        present = {contender.peer for contender in case.contenders} & others
        of_case = [target for target in TARGETS if target.case == case.name]
        speeds = [each for each in of_case if each.ours == OURS and each.figure is not Figure.CPU]
        assert present <= {peer for target in speeds for peer in target.against}, case.name
        cpu = [set(each.against) for each in of_case if each.figure is Figure.CPU]
        assert cpu == ([] if case.operations or not present else [present]), case.name


def test_defaults_table_has_no_equal_calls_of_a_client() -> None:
    tuned, untuned = (
        CASES["produce-100"].contenders_of_table(tuned=tuned) for tuned in (True, False)
    )
    assert set(tuned) - set(untuned) == {("confluent", "callbacks"), ("java", "program")}
    keyed = CASES["produce-100-keyed"].contenders_of_table(tuned=False)
    assert Contender("java", "program") in keyed  # the only call of the client


def test_defaults_only_case_is_not_in_tuned_table() -> None:
    assert not CASES["lone-send"].tuned
    assert "lone-send" not in {target.case for target in TARGETS}
    assert "lone-send" in {target.case for target in comparisons(tuned=False)}


def test_scale_reduces_number_of_records() -> None:
    case, contender = CASES["produce-100"], Contender(OURS, "enqueue")
    assert case.records(contender, 0.5) == case.records(contender) // 2
    assert case.records(contender, 0.0) == 1_000


@pytest.mark.parametrize("version", PYTHONS)
def test_python_versions_have_same_contenders_and_targets(version: str) -> None:
    mine = [each for each in PYTHON_TARGETS if each.ours == on_python(OURS, version)]
    first = [each for each in PYTHON_TARGETS if each.ours == on_python(OURS, PYTHONS[0])]
    assert [(each.case, each.way, each.limit) for each in mine] == [
        (each.case, each.way, each.limit) for each in first
    ]
    assert {each.case for each in mine} == set(PYTHON_CASES)
    for case in PYTHON_CASES.values():
        assert {PEERS[each.peer].python for each in case.contenders} - {""} == set(PYTHONS)


def test_client_runs_on_its_python_version() -> None:
    assert PEERS[OURS].interpreter == PEERS[JAVA].interpreter == sys.executable
    assert PEERS[on_python(OURS, THIS_PYTHON)].interpreter == sys.executable
    for version in set(PYTHONS) - {THIS_PYTHON}:
        path = PEERS[on_python("confluent", version)].interpreter
        assert path.endswith(f".venv-{version}/bin/python")


def test_each_row_behind_in_defaults_table_has_reason() -> None:
    document = json.loads((RESULTS / "bench_defaults.json").read_text())
    titles = {case.title: case.name for case in CASES.values()}
    behind = {
        titles[row["what"]] for row in document["outcomes"] if row["verdict"].startswith("behind")
    }
    assert behind == set(REASONS), "each row behind has a reason in targets.REASONS, others none"
