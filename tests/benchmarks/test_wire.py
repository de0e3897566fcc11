"""The wire benchmark: clients do the same work, wrong results end it, ratios are per round."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks.payload import WrongResultError
from benchmarks.wire import first_use, timing
from benchmarks.wire.__main__ import first_use_table, message_cases, summary, sweep_line
from benchmarks.wire.batch_clients import (
    BatchClient,
    RecordFields,
    aiokafka,
    kafka_python,
    ours,
    plain_aiokafka,
)
from benchmarks.wire.batches import cases, kernel, subjects
from benchmarks.wire.codecs import CLIENTS, NEWEST, codec, modules
from benchmarks.wire.first_use import FirstUse
from benchmarks.wire.messages import SUBJECTS
from benchmarks.wire.timing import Case, Contender, Row, markdown, measure

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
BATCH_CLIENTS: dict[str, Callable[[], BatchClient]] = {
    "ours": lambda: ours("ours", kernel("python")),
    "aiokafka": lambda: aiokafka("aiokafka"),
    "aiokafka in plain Python": lambda: plain_aiokafka("aiokafka in plain Python"),
    "kafka-python": kafka_python,
}

pytestmark = pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated")  # by kafka-python


@pytest.fixture(autouse=True)
def short_samples(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(timing, "SAMPLE_SECONDS", 1e-6)
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


def test_checked_in_results_have_their_tables() -> None:
    document = json.loads((RESULTS / "wire.json").read_text())
    page = (RESULTS / "wire.md").read_text()
    rows = [Row(**row) for row in document["rows"]]
    uses = [FirstUse(**use) for use in document["first_use"]]
    assert f"\n{markdown(rows, 'message')}\n{summary(rows)}\n" in page
    assert f"\n{first_use_table(uses)}\n" in page
    assert page.endswith("".join(sweep_line(*sweep) for sweep in document["codecs_ms"].items()))


@pytest.mark.parametrize("api", SUBJECTS)
def test_clients_decode_and_encode_same_message(api: str) -> None:
    cases = message_cases([api])
    assert [len(case.contenders) for case in cases] == [len(NEWEST)] * 2 + [len(CLIENTS)] * 2
    for case in cases:
        for each in case.contenders:
            assert each.is_correct(each.run()), (case.name, each.client)


@pytest.mark.parametrize("client", CLIENTS)
def test_client_that_decodes_or_encodes_other_values_is_wrong(client: str) -> None:
    place = CLIENTS.index(client)
    subject = SUBJECTS["offset_commit"]
    some = message_cases(["offset_commit"])[2:]
    less = codec(client, "offset_commit", "OffsetCommitRequest", subject.classic)
    value = less.decode(subject.make(10).encode(subject.classic))
    decoding, encoding = (case.contenders[place] for case in some)
    assert not decoding.is_correct(value)
    assert not encoding.is_correct(less.encode(value))


@pytest.mark.parametrize("client", NEWEST)
def test_measures_first_use_in_new_process(client: str) -> None:
    frame = SUBJECTS["join_group"].make(1).encode(9)
    codec = (client, "join_group", "JoinGroupResponse", 9)
    found = first_use.measure(codec, modules(*codec), frame, processes=1)
    assert (found.case, found.client) == ("JoinGroupResponse v9", client)
    assert min(found.load, found.use) > 0


# -- batches --------------------------------------------------------------------------------------


@pytest.mark.parametrize("client", BATCH_CLIENTS)
def test_clients_encode_same_batches_and_decode_same_records(client: str) -> None:
    mine = [(case.name, *case.contenders) for case in cases([BATCH_CLIENTS[client]()])]
    assert [name for name, each in mine if not each.is_correct(each.run())] == []
    assert len(mine) == 3 * len(subjects())


@pytest.mark.parametrize("kind", ["encode", "decode", "consume"])
def test_wrong_batch_raises(kind: str) -> None:
    correct = ours("ours", kernel("python"))

    def encode(records: Sequence[RecordFields]) -> object:
        return correct.encode(records[:-1])

    def decode(data: bytes) -> list[Any]:
        return list(correct.decode(data))[1:]

    case = next(
        each for each in cases([BatchClient("ours", encode, decode, decode)]) if kind in each.name
    )
    with pytest.raises(WrongResultError, match=f"{kind} .*: ours has a wrong result"):
        measure(case, rounds=1)
