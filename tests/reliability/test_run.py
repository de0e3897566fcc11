"""Figures of a reliability run."""

from __future__ import annotations

import pytest

from tests.reliability.fault_schedule import Kill
from tests.reliability.row_check import check
from tests.reliability.run import Record, describe, error_name, error_text

pytestmark = pytest.mark.one_kernel


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (
            "[STREAM_FAILED] ... File x.py, kafka_async.errors.ProducerFencedError: another driver",
            "ProducerFencedError",
        ),
        ("PythonError: TornEpochError: sink s", "TornEpochError"),
        ("[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update", "[CONCURRENT_STREAM_LOG_UPDATE]"),
        ("", ""),
    ],
)
def test_finds_the_error_in_the_text_of_spark(text: str, name: str) -> None:
    assert error_name(text).startswith(name)


def test_shows_the_error_without_the_text_around_it() -> None:
    text = "[STREAM_FAILED] ... DataLossError: a ... kafka_async.errors.DataLossError: t-0 at 5"
    assert error_text(text) == "DataLossError: t-0 at 5"
    assert error_text("other") == "other"


def test_only_kills_in_their_time_are_figures() -> None:
    record = Record()
    record.kills = [Kill("driver", 10, True), Kill("broker", 6, False), Kill("driver", 31, True)]
    figures = describe(record, check({}, [], []), 7)
    assert figures["kills"] == 2
    assert figures["kills by process"] == {"driver": 1, "broker": 1}
    assert figures["kills in a commit"] == 1
    assert figures["epochs"] == 7
    assert figures["verdict"].startswith("0 input records, 0 lost")
