"""Tests of the native fuzzer's targets: valid inputs pass, and planted bugs are found."""

from __future__ import annotations

import struct
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from fuzz.kernel import batches, sections, seeds, writing
from fuzz.kernel.kernel_pair import KernelPair
from fuzz.kernel.oracle import Finding, RaisedError, result_of
from fuzz.kernel.targets import TARGETS
from kafka_async.errors import CorruptRecordError
from kafka_async.kernel import _pykernel
from kafka_async.records.batch import iter_batches
from tests.kernel import kernels

VALID = seeds.seeds("sections")[0]
WRITTEN = struct.pack("<iB", 1000, 0) + b"\x02\x01\x03key\x05value\x01\x01h\x02hv"


@pytest.fixture
def compiled() -> Any:
    return kernels.load("c")


def broken(compiled: Any, **changed: Any) -> KernelPair:
    """Return both kernels, the compiled one with changed functions."""
    names = {name: getattr(compiled, name) for name in dir(compiled) if name[0] != "_"}
    return KernelPair(SimpleNamespace(**{**names, **changed}), _pykernel)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", TARGETS)
def test_every_seed_passes_and_can_be_measured(compiled: Any, name: str) -> None:
    pair = KernelPair(compiled, _pykernel)
    target = TARGETS[name]
    inputs = seeds.seeds(name)
    assert inputs
    for data in inputs:
        target.check(pair, data)
        assert target.run(compiled, target.prepare(data)) >= 0


@pytest.mark.parametrize("name", ["sections", "batches"])
def test_large_inputs_are_read_completely(compiled: Any, name: str) -> None:
    for data in seeds.large(name):
        TARGETS[name].check(KernelPair(compiled, _pykernel), data)
        read = TARGETS[name].run(compiled, TARGETS[name].prepare(data))
        assert read > 48 * 1024


def drop_last(function: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    return lambda *arguments: function(*arguments)[:-1]


def undocumented_error(*_: object) -> Any:
    raise MemoryError


def other_message(*_: object) -> Any:
    raise CorruptRecordError("another message", topic="topic", partition=7, offset=0)


def long_message(*_: object) -> Any:
    raise CorruptRecordError("x" * 1000)


def without_offsets(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *arguments: function(*arguments)._replace(offsets=b"")


def instead(error: Callable[..., Any]) -> Callable[..., Callable[..., Any]]:
    def change(_: object) -> Callable[..., Any]:
        return error

    return change


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"parse_records": drop_last}, Finding),
        (
            {"parse_records": instead(other_message), "parse_columns": instead(other_message)},
            Finding,
        ),
        ({"parse_records": instead(other_message)}, Finding),
        ({"parse_records": instead(long_message), "parse_columns": instead(long_message)}, Finding),
        ({"parse_columns": instead(undocumented_error)}, MemoryError),
        ({"parse_columns": without_offsets}, Finding),
    ],
    ids=[
        "a record less",
        "other message",
        "other message of one function",
        "long message",
        "undocumented error",
        "a column",
    ],
)
def test_finds_a_wrong_reader(
    compiled: Any,
    changes: dict[str, Callable[[Callable[..., Any]], Any]],
    error: type[BaseException],
) -> None:
    sections.check(KernelPair(compiled, _pykernel), VALID)
    changed = {name: change(getattr(compiled, name)) for name, change in changes.items()}
    with pytest.raises(error):
        sections.check(broken(compiled, **changed), VALID)


class BatchWithoutHeaders:
    """Wraps an open batch and drops the headers."""

    def __init__(self, kernel: Any, capacity: int) -> None:
        self._batch = kernel.OpenBatch(None, capacity)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batch, name)

    def append(self, timestamp: int, key: Any, value: Any, headers: Any) -> Any:
        return self._batch.append(timestamp, key, value, ())


def test_finds_a_wrong_writer(compiled: Any) -> None:
    writing.check(KernelPair(compiled, _pykernel), WRITTEN)

    def make_batch(_: object, capacity: int) -> BatchWithoutHeaders:
        return BatchWithoutHeaders(compiled, capacity)

    pair = broken(compiled, OpenBatch=make_batch)
    with pytest.raises(Finding, match="written"):
        writing.check(pair, WRITTEN)


def test_finds_a_too_small_size_bound(compiled: Any) -> None:
    def small(*_: object) -> int:
        return 70

    pair = broken(compiled, record_size_bound=small)
    with pytest.raises(Finding, match="bound"):
        writing.check(pair, WRITTEN)


def test_harness_corrects_the_crc() -> None:
    data = seeds.seeds("batches")[0]
    damaged = bytearray(data[batches.START :])
    damaged[-1] ^= 1  # in the records, so that the CRC no longer matches
    (view,) = iter_batches(damaged)
    with pytest.raises(CorruptRecordError, match="CRC"):
        view.check_crc()
    (view,) = iter_batches(batches.repaired(bytes(damaged), 0))
    view.check_crc()
    (view,) = iter_batches(batches.repaired(bytes(damaged), batches.KEEP_CRC))
    with pytest.raises(CorruptRecordError, match="CRC"):
        view.check_crc()


@pytest.mark.parametrize("codec", range(1, 5))
def test_harness_compresses_records_with_the_batchs_codec(codec: int) -> None:
    (data,) = [one for one in seeds.seeds("batches") if one[0] and one[2 + 22] & 7 == codec]
    given, _ = batches.prepare(data)
    (view,) = iter_batches(given)
    assert len(view.records()) == 5
    assert view.compressed_bytes


def test_result_is_a_value_or_a_documented_error() -> None:
    assert result_of(lambda: 5) == 5
    refusal = result_of(lambda: other_message())
    assert refusal == RaisedError("CorruptRecordError", str(refusal[1]), ("topic", 7, 0))  # type: ignore[index]
    with pytest.raises(ZeroDivisionError):
        result_of(lambda: 1 // 0)
    assert result_of(lambda: 1 // 0, ZeroDivisionError) == RaisedError("ZeroDivisionError", "", ())
