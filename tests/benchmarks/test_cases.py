"""Consistency of the tables of cases, targets and clients."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from benchmarks import special_cases
from benchmarks.cases import ALL_CASES, CASES, PYTHON_CASES, Case, Contender
from benchmarks.clients import JAVA, OURS, PEERS, PLAIN, PYTHONS, THIS_PYTHON, on_python
from benchmarks.targets import (
    DEFAULT_TARGETS,
    PYTHON_TARGETS,
    REASONS,
    SPECIAL,
    TARGETS,
    Target,
    comparisons,
)

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"


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


def test_produce_cases_differ_in_size_keys_or_compression() -> None:
    produced = [case for case in CASES.values() if case.name.startswith("produce-")]
    shapes = {(case.size, case.keyed, case.compression) for case in produced}
    assert len(produced) == len(shapes) == 12


def test_defaults_table_has_no_equal_calls_of_a_client() -> None:
    tuned, untuned = (
        CASES["produce-100"].contenders_of_table(tuned=tuned) for tuned in (True, False)
    )
    assert set(tuned) - set(untuned) == {
        Contender("confluent", "callbacks"),
        Contender("java", "program"),
    }
    keyed = CASES["produce-100-keyed"].contenders_of_table(tuned=False)
    assert Contender("java", "program") in keyed  # the only call of the client


def test_scale_reduces_number_of_records() -> None:
    case, contender = CASES["produce-100"], Contender(OURS, "enqueue")
    assert case.records(contender, 0.5) == case.records(contender) // 2
    assert case.records(contender, 0.0) == 1_000


@pytest.mark.parametrize("version", PYTHONS)
def test_python_versions_have_same_contenders_and_targets(version: str) -> None:
    for case in PYTHON_CASES.values():
        ways = [each.way for each in case.contenders if each.peer == on_python(OURS, version)]
        assert ways == [
            each.way for each in case.contenders if each.peer == on_python(OURS, PYTHONS[0])
        ]
        assert {PEERS[each.peer].python for each in case.contenders} - {""} == set(PYTHONS)
    mine = [each for each in PYTHON_TARGETS if each.ours == on_python(OURS, version)]
    limits = {(each.way, each.against, each.limit) for each in mine if each.case.endswith("-100")}
    assert limits >= {
        ("enqueue", (on_python(OURS, version),), 0.667),
        ("enqueue_nowait", (on_python(OURS, version),), 0.667),
        ("enqueue", (on_python("confluent", version),), 2.5),
        ("enqueue", (JAVA,), 1.5),
    }
    assert {each.case for each in mine} == set(PYTHON_CASES)


def test_client_runs_on_its_python_version() -> None:
    assert PEERS[OURS].interpreter == PEERS[JAVA].interpreter == sys.executable
    assert PEERS[on_python(OURS, THIS_PYTHON)].interpreter == sys.executable
    others = [version for version in PYTHONS if version != THIS_PYTHON]
    found = [PEERS[on_python("confluent", version)].interpreter for version in others]
    assert [path.split("/")[-3:] for path in found] == [
        [f".venv-{version}", "bin", "python"] for version in others
    ]


def test_defaults_only_case_is_not_in_tuned_table() -> None:
    assert not CASES["lone-send"].tuned
    assert "lone-send" not in {target.case for target in TARGETS}
    assert "lone-send" in {target.case for target in comparisons(tuned=False)}


def test_each_row_behind_in_defaults_table_has_reason() -> None:
    document = json.loads((RESULTS / "bench_defaults.json").read_text())
    titles = {case.title: case.name for case in CASES.values()}
    behind = {
        titles[row["what"]] for row in document["outcomes"] if row["verdict"].startswith("behind")
    }
    assert behind == set(REASONS), "each row behind has a reason in targets.REASONS, others none"


def test_each_special_case_has_title_and_goal() -> None:
    assert sorted(SPECIAL) == sorted(special_cases.names())
