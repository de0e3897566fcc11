"""The benchmark of batches: clients do the same work, with the extensions that they name."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from benchmarks import wire_cases
from benchmarks.wire_batch_clients import (
    BatchClient,
    RecordFields,
    aiokafka,
    kafka_python,
    ours,
    plain_aiokafka,
)
from benchmarks.wire_batches import (
    BATCH,
    compiled_cases,
    contenders,
    kernel,
    plain_cases,
    subjects,
)
from benchmarks.wire_cases import Case, WrongResultError, measure

pytestmark = pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated")  # by kafka-python

CLIENTS: dict[str, Callable[[], BatchClient]] = {
    "ours": lambda: ours("ours", kernel("python")),
    "aiokafka": lambda: aiokafka("aiokafka"),
    "aiokafka in plain Python": lambda: plain_aiokafka("aiokafka in plain Python"),
    "kafka-python": kafka_python,
}


@pytest.fixture(autouse=True)
def short_samples(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(wire_cases, "SAMPLE_SECONDS", 1e-6)
    yield
    gc.unfreeze()


@pytest.mark.parametrize("client", CLIENTS)
def test_clients_encode_same_batches_and_decode_same_records(client: str) -> None:
    mine = contenders(CLIENTS[client]())
    assert [name for name, each in mine.items() if not each.is_correct(each.run())] == []
    assert len(mine) == 3 * len(subjects())


@pytest.mark.parametrize("kind", ["encode", "decode", "consume"])
def test_wrong_result_raises(kind: str) -> None:
    correct = ours("ours", kernel("python"))

    def encode(records: Sequence[RecordFields]) -> object:
        return correct.encode(records[:-1])

    def decode(data: bytes) -> list[Any]:
        return list(correct.decode(data))[1:]

    wrong = BatchClient("ours", encode, decode, decode)
    name = f"{kind} {subjects()[0].name}"
    with pytest.raises(WrongResultError, match=f"{name}: ours has a wrong result"):
        measure(Case(name, (contenders(wrong)[name],)), rounds=1)


def test_batches_have_stated_size() -> None:
    assert [round(len(each.data) / BATCH, 1) for each in subjects()] == [1.0] * 4


def test_each_kernel_is_compared_with_peers_of_its_kind() -> None:
    assert [each.client for each in compiled_cases()[0].contenders] == [
        *("kafka_async", "aiokafka in Cython", "kafka-python")
    ]
    assert [each.client for each in plain_cases()[0].contenders] == [
        *("kafka_async in plain Python", "kafka-python", "aiokafka in plain Python")
    ]
    assert [case.units for case in compiled_cases()] == [len(s.records) for s in subjects()] * 3


def test_aiokafka_runs_with_and_without_extensions() -> None:
    data = subjects()[0].data
    fast = {type(record).__name__ for record in aiokafka("fast").decode(data)}
    before = sys.modules["aiokafka.record.default_records"]
    plain = {type(record).__name__ for record in plain_aiokafka("plain").decode(data)}
    assert (fast, plain) == ({"DefaultRecord"}, {"_DefaultRecordPy"})
    assert sys.modules["aiokafka.record.default_records"] is before
