"""The tables of cases and targets fit each other and the clients."""

from __future__ import annotations

import pytest

from benchmarks import specials
from benchmarks.cases import CASES, Case, Contender
from benchmarks.contenders import OURS, PEERS, PLAIN
from benchmarks.targets import SPECIAL, TARGETS, Target


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_all_contenders_of_a_case_have_records_for_about_a_second(case: Case) -> None:
    for contender in case.contenders:
        records = case.records(contender)
        assert 20 <= records <= 10_000_000
        assert case.operations or records % 1_000 == 0  # so each value occurs as often


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_a_case_is_about_both_kernels(case: Case) -> None:
    peers = {contender.peer for contender in case.contenders}
    assert {OURS, PLAIN} <= peers <= set(PEERS)


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: f"{target.what}, {target.against}")
def test_a_target_is_about_contenders_of_its_case(target: Target) -> None:
    contenders = CASES[target.case].contenders
    assert Contender(target.ours, target.way) in contenders
    assert set(target.against) <= {contender.peer for contender in contenders}
    if target.against_way is not None:
        assert Contender(target.against[0], target.against_way) in contenders


def test_cases_are_told_apart_by_size_keys_and_compression() -> None:
    produced = [case for case in CASES.values() if case.name.startswith("produce-")]
    shapes = {(case.size, case.keyed, case.compression) for case in produced}
    assert len(produced) == len(shapes) == 12


def test_at_the_defaults_no_client_is_measured_twice_in_the_same_way() -> None:
    tuned, untuned = (CASES["produce-100"].taking_part(tuned=tuned) for tuned in (True, False))
    assert set(tuned) - set(untuned) == {
        Contender("confluent", "callbacks"),
        Contender("java", "program"),
    }
    keyed = CASES["produce-100-keyed"].taking_part(tuned=False)
    assert Contender("java", "program") in keyed  # which is the only one there


def test_a_part_of_the_records_is_asked_for_by_scale() -> None:
    case, contender = CASES["produce-100"], Contender(OURS, "enqueue")
    assert case.records(contender, 0.5) == case.records(contender) // 2
    assert case.records(contender, 0.0) == 1_000


def test_each_special_case_has_a_line_for_when_it_is_not_measured() -> None:
    assert sorted(SPECIAL) == sorted(specials.names())
