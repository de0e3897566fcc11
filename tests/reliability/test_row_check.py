"""The comparison of an exactly-once query's output with its input."""

from __future__ import annotations

import json
import random

import pytest

from tests.reliability.row_check import Place, check, ends_of_epoch

pytestmark = pytest.mark.one_kernel

RECORDS: dict[Place, bytes] = {
    (partition, offset): b"row %d" % (10 * partition + offset)
    for partition in range(2)
    for offset in range(4)
}
ENDS = [{0: 2, 1: 1}, {0: 3, 1: 1}, {0: 4, 1: 4}]


def row(place: Place) -> bytes:
    return b"%d:%d:%s" % (*place, RECORDS[place])


ROWS = [row(place) for place in RECORDS]


def test_equal_rows_in_any_order_are_exact() -> None:
    rows = ROWS.copy()
    random.Random(1).shuffle(rows)
    verdict = check(RECORDS, rows, ENDS)
    assert verdict.is_exact
    assert str(verdict) == "8 input records, 0 lost, 0 duplicated, 0 foreign, 0 torn epochs"


def test_names_lost_records() -> None:
    verdict = check(RECORDS, [each for each in ROWS if each != row((0, 2))], ENDS)
    assert not verdict.is_exact
    assert verdict.lost == ((0, 2),)
    assert verdict.torn == ()  # Epoch 1 has no other record.


def test_names_duplicated_records() -> None:
    verdict = check(RECORDS, [*ROWS, row((1, 3))], ENDS)
    assert not verdict.is_exact
    assert verdict.duplicated == ((1, 3),)


def test_a_lost_and_a_duplicated_record_do_not_cancel_out() -> None:
    rows = [each for each in ROWS if each != row((0, 2))] + [row((1, 3))]
    assert len(rows) == len(RECORDS)
    verdict = check(RECORDS, rows, ENDS)
    assert (verdict.lost, verdict.duplicated) == (((0, 2),), ((1, 3),))


@pytest.mark.parametrize("foreign", [b"", b"text", b"0:9:row 9", b"0:0:row 7", b"x:0:row 0"])
def test_names_rows_that_are_not_of_the_input(foreign: bytes) -> None:
    verdict = check(RECORDS, [*ROWS, foreign], ENDS)
    assert not verdict.is_exact
    assert verdict.foreign == (foreign.decode(),)


def test_names_torn_epochs() -> None:
    missing = {row((0, 3)), row((0, 0)), row((0, 1)), row((1, 0))}
    verdict = check(RECORDS, [each for each in ROWS if each not in missing], ENDS)
    assert verdict.torn == (2,)  # Epoch 0 is missing as a whole.
    assert len(verdict.lost) == 4


def test_a_value_may_contain_the_separator() -> None:
    assert check({(0, 0): b"a:b"}, [b"0:0:a:b"], [{0: 1}]).is_exact


def test_reads_the_end_of_an_epoch_from_a_checkpoint() -> None:
    log = "v1\n" + json.dumps({"batchWatermarkMs": 0}) + "\n" + json.dumps({"t": {"0": 7, "1": 9}})
    assert ends_of_epoch(log, "t") == {0: 7, 1: 9}
