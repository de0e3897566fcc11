"""The judge of record batches: it has all that batches may have, and finds what is wrong."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import replace

import pytest

from kafka_async.records.compression import Codec, compress
from kafka_async.testing.backends.base import BackendUnavailableError
from kafka_async.testing.environment import in_ci
from tools.conformance import records, records_ours
from tools.conformance.parts import Options
from tools.conformance.records import Case, expected, run
from tools.conformance.records_columns import read_columns
from tools.conformance.records_framing import framing
from tools.conformance.records_java import ReadBatch, ReadRecord, RecordsJudge
from tools.conformance.records_plan import NONE, Plan, random_plan, with_gaps


@pytest.fixture(scope="module")
def judge() -> Iterator[RecordsJudge]:
    try:
        started = RecordsJudge()
    except BackendUnavailableError as error:
        report = pytest.fail if in_ci() else pytest.skip
        report(f"no judge: {error}")
    with started:
        yield started


@pytest.mark.slow
def test_a_kernel_that_writes_otherwise_is_found(
    judge: RecordsJudge, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = records_ours.write

    def without_the_last(plan: Plan, level: int | None = None) -> bytes:
        return right(replace(plan, records=plan.records[:-1] or plan.records * 2), level)

    monkeypatch.setattr(records_ours, "write", without_the_last)
    outcome = run(Options(1, 1, ("v2-none-create-time-plain", "v2-zstd-append-time-idempotent")))
    assert outcome.differences >= 2
    assert any(shown.startswith("v2-none") for shown in outcome.shown)
    assert any(shown.startswith("v2-zstd") for shown in outcome.shown)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["v1-lz4", "v2-gzip-compacted", "commit", "empty", "voters"])
def test_a_kernel_that_reads_otherwise_is_found(
    name: str, judge: RecordsJudge, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = records_ours.read

    def with_another_epoch(batches: bytes) -> list[ReadBatch]:
        return [batch._replace(leader_epoch=batch.leader_epoch + 1) for batch in right(batches)]

    monkeypatch.setattr(records_ours, "read", with_another_epoch)
    outcome = run(Options(1, 1, (name,)))
    for reader in records_ours.KERNELS:
        found = [shown for shown in outcome.shown if f"by us ({reader})" in shown]
        assert found
        assert all("leader_epoch" in shown for shown in found)


@pytest.mark.slow
def test_columns_that_are_read_otherwise_are_found(
    judge: RecordsJudge, monkeypatch: pytest.MonkeyPatch
) -> None:
    def one_short(batches: bytes) -> list[ReadRecord]:
        return read_columns(batches)[:-1]

    monkeypatch.setattr(records, "read_columns", one_short)
    outcome = run(Options(1, 1, ("v2-snappy-create-time-plain",)))
    assert outcome.differences == 2  # one a kernel
    assert all("read as columns" in shown for shown in outcome.shown)


@pytest.mark.slow
def test_what_java_refuses_is_a_difference(judge: RecordsJudge) -> None:
    case = Case(random.Random(1), judge)
    [batch] = [random_plan(case.dice, codec=Codec.none)]
    spoiled = bytearray(records_ours.write(batch))
    spoiled[-1] ^= 1
    with case.refusals("Java"):
        judge.read(bytes(spoiled))
    assert re.search("CorruptRecordException", case.faults[0])


def test_plans_have_all_that_batches_may_have() -> None:
    dice = random.Random(1)
    plans = [random_plan(dice, codec=Codec.none, sender="idempotent") for _ in range(300)]
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


def test_gaps_lie_between_records_and_after_the_last() -> None:
    dice = random.Random(1)
    plans = [with_gaps(dice, random_plan(dice, codec=Codec.none)) for _ in range(50)]
    assert any(plan.last_offset > plan.records[-1].offset for plan in plans)
    steps = {
        later.offset - earlier.offset
        for plan in plans
        for earlier, later in zip(plan.records, plan.records[1:], strict=False)
    }
    assert 1 in steps
    assert min(steps) == 1
    assert max(steps) > 100


def test_both_kernels_read_what_was_planned() -> None:
    for name in records_ours.KERNELS:
        plan = random_plan(random.Random(name), codec=Codec.gzip, sender="transactional")
        plan = replace(plan.moved(0), leader_epoch=NONE)
        with records_ours.kernel(name):
            batch = records_ours.write(plan)
            wanted = expected(plan, len(batch))
            assert records_ours.read(batch) == [wanted]
            assert read_columns(batch) == wanted.records


@pytest.mark.parametrize("codec", list(Codec)[1:])
def test_another_framing_is_another(codec: Codec) -> None:
    data = compress(codec, b"data" * 20_000)
    assert framing(codec, data) == framing(codec, compress(codec, b"text" * 20_000))
    assert framing(codec, data) != framing(codec, b"\0" + data[1:])


def test_blocks_of_snappy_are_counted() -> None:
    assert framing(Codec.snappy, compress(Codec.snappy, bytes(70_000)))["blocks"] == [
        32_768,
        32_768,
        4_464,
    ]
