"""Comparison of record batches: random batches, and detection of differences."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NoReturn

import pytest

from kafka_async.records.compression import Codec, compress
from kafka_async.testing.backends.base import BackendUnavailableError
from tools.conformance import records, records_ours
from tools.conformance.parts import Options
from tools.conformance.records import Case, run
from tools.conformance.records_framing import framing
from tools.conformance.records_java import JavaRecords, ReadBatch, ReadRecord
from tools.conformance.records_ours import read_columns
from tools.conformance.records_plan import NONE, Plan, random_plan, with_gaps


@pytest.fixture(scope="module")
def java(cannot_run: Callable[[str, object], NoReturn]) -> Iterator[JavaRecords]:
    try:
        started = JavaRecords()
    except BackendUnavailableError as error:
        cannot_run("conformance", error)
    with started:
        yield started


@pytest.mark.slow
def test_reports_kernel_that_writes_other_batches(
    java: JavaRecords, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = records_ours.write

    def without_the_last(plan: Plan, level: int | None = None) -> bytes:
        return write(replace(plan, records=plan.records[:-1] or plan.records * 2), level)

    monkeypatch.setattr(records_ours, "write", without_the_last)
    result = run(Options(1, 1, ("v2-none-create-time-plain", "v2-zstd-append-time-idempotent")))
    assert result.differences >= 2
    assert any(shown.startswith("v2-none") for shown in result.shown)
    assert any(shown.startswith("v2-zstd") for shown in result.shown)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["v1-lz4", "v2-gzip-compacted", "commit", "empty", "VotersRecord"])
def test_reports_kernel_that_reads_other_fields(
    name: str, java: JavaRecords, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = records_ours.read

    def with_another_epoch(batches: bytes) -> list[ReadBatch]:
        return [batch._replace(leader_epoch=batch.leader_epoch + 1) for batch in read(batches)]

    monkeypatch.setattr(records_ours, "read", with_another_epoch)
    result = run(Options(1, 1, (name,)))
    for reader in records_ours.KERNELS:
        found = [shown for shown in result.shown if f"by us ({reader})" in shown]
        assert found
        assert all("leader_epoch" in shown for shown in found)


@pytest.mark.slow
def test_reports_missing_row_in_columns(java: JavaRecords, monkeypatch: pytest.MonkeyPatch) -> None:
    def one_short(batches: bytes) -> list[ReadRecord]:
        return read_columns(batches)[:-1]

    monkeypatch.setattr(records, "read_columns", one_short)
    result = run(Options(1, 1, ("v2-snappy-create-time-plain",)))
    assert result.differences == 2  # one per kernel
    assert all("read as columns" in shown for shown in result.shown)


@pytest.mark.slow
def test_reports_batch_that_java_refuses(java: JavaRecords) -> None:
    case = Case(random.Random(1), java)
    [batch] = [random_plan(case.rng, codec=Codec.none)]
    corrupt = bytearray(records_ours.write(batch))
    corrupt[-1] ^= 1
    with case.catch_errors("Java"):
        java.read(bytes(corrupt))
    assert re.search("CorruptRecordException", case.differences[0])


def test_plans_include_edge_cases() -> None:
    rng = random.Random(1)
    plans = [random_plan(rng, codec=Codec.none, sender="idempotent") for _ in range(300)]
    all_records = [record for plan in plans for record in plan.records]
    assert any(len(plan.records) >= 1000 for plan in plans)
    assert any(len(plan.records) == 1 for plan in plans)
    for name in ("key", "value"):
        data = [getattr(record, name) for record in all_records]
        assert {None, b""} <= set(data)
    assert max(len(record.value or b"") for record in all_records) > 1_000_000
    headers = [header for record in all_records for header in record.headers]
    assert {None, b""} <= {value for _, value in headers}
    assert any(name == "" for name, _ in headers)
    assert any(ord(letter) > 0xFFFF for name, _ in headers for letter in name)
    assert {NONE, 0} <= {record.timestamp for record in all_records}
    assert {0, (1 << 31) - 1} <= {plan.base_sequence for plan in plans}


def test_gaps_are_between_records_and_after_last() -> None:
    rng = random.Random(1)
    plans = [with_gaps(rng, random_plan(rng, codec=Codec.none)) for _ in range(50)]
    assert any(plan.last_offset > plan.records[-1].offset for plan in plans)
    steps = {
        later.offset - earlier.offset
        for plan in plans
        for earlier, later in zip(plan.records, plan.records[1:], strict=False)
    }
    assert 1 in steps
    assert min(steps) == 1
    assert max(steps) > 100


@pytest.mark.parametrize("codec", list(Codec)[1:])
def test_framing_differs_with_header(codec: Codec) -> None:
    data = compress(codec, b"data" * 20_000)
    assert framing(codec, data) == framing(codec, compress(codec, b"text" * 20_000))
    assert framing(codec, data) != framing(codec, b"\0" + data[1:])


def test_framing_has_block_sizes_of_snappy() -> None:
    assert framing(Codec.snappy, compress(Codec.snappy, bytes(70_000)))["blocks"] == [
        32_768,
        32_768,
        4_464,
    ]
