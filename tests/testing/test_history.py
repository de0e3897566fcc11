"""The check of a history of records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kafka_async.testing import History, check_history

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.one_kernel


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "history.jsonl"


def test_exact_history(path: Path) -> None:
    with History(path) as history:
        for record in ("a", "b"):
            history.sent(record, key="k")
        for record in ("a", "b"):
            history.read(record)
    verdict = check_history(path)
    assert verdict.is_exact
    assert str(verdict) == "2 sent, 0 lost, 0 duplicated, 0 unexpected, 0 out of order"


def test_empty_history_is_refused(path: Path) -> None:
    with History(path):
        pass
    with pytest.raises(ValueError, match="no record, so there is nothing to judge"):
        check_history(path)


@pytest.mark.parametrize(
    ("call", "given", "name"),
    [
        ("sent", {"record": b"a"}, "record"),
        ("sent", {"record": "a", "key": b"k"}, "key"),
        ("read", {"record": b"a"}, "record"),
    ],
)
def test_bytes_are_refused(path: Path, call: str, given: dict[str, Any], name: str) -> None:
    with (
        History(path) as history,
        pytest.raises(TypeError, match=f"{name} must be str, not bytes"),
    ):
        getattr(history, call)(**given)
    assert path.read_text() == ""


def test_each_kind_of_defect_is_found(path: Path) -> None:
    with History(path) as history:
        for record in ("a", "b", "c", "d"):
            history.sent(record, key="k")
        for record in ("b", "a", "d", "d", "x"):
            history.read(record)
    verdict = check_history(path)
    assert not verdict.is_exact
    assert verdict.lost == ("c",)
    assert verdict.duplicated == ("d",)
    assert verdict.unexpected == ("x",)
    assert verdict.out_of_order == ("a",)
    assert "1 lost (c)" in str(verdict)


@pytest.mark.parametrize(
    ("reads", "field"),
    [(["a"], "lost"), (["a", "b", "b"], "duplicated"), (["a", "b", "c"], "unexpected")],
)
def test_one_defect_is_enough(path: Path, reads: list[str], field: str) -> None:
    with History(path) as history:
        history.sent("a")
        history.sent("b")
        for record in reads:
            history.read(record)
    verdict = check_history(path)
    assert not verdict.is_exact
    assert len(getattr(verdict, field)) == 1


def test_records_without_a_key_and_of_other_keys_have_no_order(path: Path) -> None:
    with History(path) as history:
        for record, key in (("a", None), ("b", None), ("c", "x"), ("d", "y")):
            history.sent(record, key=key)
        for record in ("d", "c", "b", "a"):
            history.read(record)
    assert check_history(path).is_exact


def test_record_that_is_read_again_is_duplicated_but_not_out_of_order(path: Path) -> None:
    with History(path) as history:
        history.sent("a", key="k")
        history.sent("b", key="k")
        for record in ("a", "b", "a"):
            history.read(record)
    verdict = check_history(path)
    assert (verdict.duplicated, verdict.out_of_order) == (("a",), ())


@pytest.mark.parametrize("was_read", [True, False])
def test_record_of_unknown_outcome_may_be_read(path: Path, *, was_read: bool) -> None:
    with History(path) as history:
        history.sent("a", certain=False)
        if was_read:
            history.read("a")
    verdict = check_history(path)
    assert verdict.is_exact
    assert verdict.sent == 0


def test_files_are_continued_and_an_unfinished_line_is_ignored(path: Path) -> None:
    with History(path) as history:
        history.sent("a")
    with path.open("a") as file:
        file.write('{"read": "a"}\n{"read": "b')
    assert check_history(path).is_exact


@pytest.mark.parametrize("line", ["{", "[]", '{"read": 1}', '{"sent": "a"}', "null"])
def test_other_lines_are_refused_with_their_number(path: Path, line: str) -> None:
    path.write_text('{"read": "a"}\n' + line + "\n")
    with pytest.raises(ValueError, match="line 2 is not of a history"):
        check_history(path)


def test_record_that_is_sent_twice_is_refused(path: Path) -> None:
    with History(path) as history:
        history.sent("a")
        history.sent("a")
    with pytest.raises(ValueError, match="line 2: a was sent before"):
        check_history(path)


def test_verdict_names_some_examples(path: Path) -> None:
    with History(path) as history:
        for number in range(9):
            history.sent(str(number))
    assert "9 lost (0, 1, 2, 3, 4, ...)" in str(check_history(path))
