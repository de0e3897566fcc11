"""The wire benchmark: checks of results, and ratios per round."""

from __future__ import annotations

import dataclasses
import gc
import json
import re
from collections.abc import Iterator

import pytest

from benchmarks import wire_cases, wire_first_use
from benchmarks.wire import first_use_table, message_cases, summary, sweep_line
from benchmarks.wire_cases import Case, Contender, Row, WrongResultError, markdown, measure
from benchmarks.wire_codecs import CLIENTS, NEWEST, OURS, codec, modules
from benchmarks.wire_first_use import FirstUse, Task
from benchmarks.wire_messages import SUBJECTS

ROWS = [
    Row("decode A", "kafka_async", 2.0, 1.0, 3.0, 1.0, 1.0, 1.0),
    Row("decode A", "kio", 4.0, 3.0, 5.0, 2.0, 1.5, 2.5),
    Row("decode A", "kafka-python", 12.0, 9.0, 15.0, 6.0, 5.0, 7.0),
    Row("encode B", "kafka_async", 1.0, 1.0, 1.0, 1.0, 1.0, 1.0),
    Row("encode B", "kio", 5.0, 5.0, 5.0, 5.0, 5.0, 5.0),
]


pytestmark = pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated")  # by kafka-python


@pytest.fixture(autouse=True)
def short_samples(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(wire_cases, "SAMPLE_SECONDS", 1e-6)
    yield
    gc.unfreeze()


def contender(client: str, result: object) -> Contender:
    return Contender(client, lambda: result, lambda made: made == "right")


def test_wrong_result_raises() -> None:
    case = Case("case", (contender("ours", "right"), contender("theirs", "wrong")))
    with pytest.raises(WrongResultError, match="case: theirs has a wrong result"):
        measure(case, rounds=1)


def test_ratios_compare_times_of_same_round() -> None:
    clock = iter([0.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 2.0, 0.0, 9.0, 0.0, 3.0])
    case = Case("case", (contender("ours", "right"), contender("theirs", "right")), units=1_000)
    ours, theirs = measure(case, 2, lambda: next(clock))
    # The first round runs ours (1 s), then theirs (2 s); the second theirs (9 s), then ours (3 s).
    assert (ours.median, ours.low, ours.high) == (2_000, 1_000, 3_000)
    assert (theirs.low, theirs.high) == (2_000, 9_000)
    assert (theirs.ratio, theirs.ratio_low, theirs.ratio_high) == (2.5, 2, 3)
    assert ours.ratio == 1


def test_table_has_line_per_case_and_dash_for_missing_client() -> None:
    assert markdown(ROWS, "message").splitlines() == [
        "| case | kafka_async, us a message | kio | kafka-python |",
        "|---|---:|---:|---:|",
        "| decode A | 2.00 (1.00 - 3.00) | x2.00 (1.50 - 2.50) | x6.00 (5.00 - 7.00) |",
        "| encode B | 1.00 (1.00 - 1.00) | x5.00 (5.00 - 5.00) | - |",
    ]


def test_summary_counts_only_readers_of_kio_as_rust() -> None:
    assert summary(ROWS).splitlines() == [
        "- The closest of the codecs in Python: kio, x5.00 (encode B).",
        "- The closest of the readers in Rust: kio, x2.00 (decode A).",
    ]


@pytest.mark.parametrize("api", SUBJECTS)
def test_clients_decode_and_encode_same_message(api: str) -> None:
    cases = message_cases([api])
    assert [len(case.contenders) for case in cases] == [len(NEWEST)] * 2 + [len(CLIENTS)] * 2
    for case in cases:
        assert [each.client for each in case.contenders if each.is_correct(each.run())] == [
            each.client for each in case.contenders
        ]


@pytest.mark.parametrize("client", CLIENTS)
def test_other_message_has_other_values(client: str) -> None:
    subject = SUBJECTS["offset_commit"]
    some, others = subject.make(10, subject.classic), subject.make(20, subject.classic)
    theirs = codec(client, "offset_commit", "OffsetCommitRequest", subject.classic)
    ours = codec(OURS, "offset_commit", "OffsetCommitRequest", subject.classic)
    read = theirs.plain(theirs.decode(some.encode(subject.classic)))
    assert read == ours.plain(some)
    assert read != ours.plain(others)


@pytest.mark.parametrize("client", NEWEST)
def test_measures_first_use_in_new_process(client: str) -> None:
    frame = SUBJECTS["join_group"].make(1, 9).encode(9)
    needed = modules(client, "join_group", "JoinGroupResponse", 9)
    task = Task(client, needed, "join_group", "JoinGroupResponse", 9, frame.hex())
    found = wire_first_use.measure("case", task, processes=1)
    assert (found.case, found.client) == ("case", client)
    assert min(found.load, found.use) > 0
    assert json.loads(json.dumps(dataclasses.asdict(found)))["use"] == found.use


def test_formats_first_uses_and_sweep() -> None:
    uses = [FirstUse("A", "ours", 30.4, 0.1, 0.1, 0.1), FirstUse("A", "kio", 100, 2, 2, 2)]
    assert first_use_table(uses).splitlines()[2] == "| A | 0.10 (30) | 2.00 (100) |"
    line = sweep_line("c", {"decoder of A v0": 1.0, "encoder of A v0": 2.0})
    assert re.search(r"2 codecs.* median 1\.50 ms, worst 2\.00 ms \(encoder of A v0\)", line)
