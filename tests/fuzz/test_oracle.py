"""Tests of the oracle: each broken promise is a finding."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fuzz import batches, captured, compression, frames, responses
from fuzz.codecs import selector
from fuzz.measure import replay
from fuzz.oracle import (
    MEMORY_LIMIT,
    Finding,
    allowed_cpu,
    allowed_memory,
    check_error_message,
    same,
)
from fuzz.target import load
from kafka_async.errors import CorruptRecordError, DecodeError
from kafka_async.kernel import _pykernel
from kafka_async.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    OpData,
)
from kafka_async.protocol.messages.metadata import MetadataResponse
from kafka_async.records.compression import Codec, compress

BATCH = b"\x0f" + captured.batches()["v2-none"]
METADATA = MetadataResponse(throttle_time_ms=5, cluster_id="c")


def test_unexpected_exception_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def decode(data: bytes, version: int) -> None:
        raise KeyError("lost")

    monkeypatch.setattr(MetadataResponse, "decode", decode)
    with pytest.raises(KeyError):
        responses.run(selector(MetadataResponse, 12) + METADATA.encode(12))


def test_failed_message_round_trip_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def encode_without_cluster_id(self: MetadataResponse, version: int) -> bytes:
        return b"".join(MetadataResponse(throttle_time_ms=5).encode_parts(version))

    monkeypatch.setattr(MetadataResponse, "encode", encode_without_cluster_id)
    with pytest.raises(Finding, match="does not come back the same"):
        responses.check(MetadataResponse, 12, b"".join(METADATA.encode_parts(12)))


def test_disagreeing_codecs_are_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def plainly(*arguments: object) -> None:
        return None

    monkeypatch.setattr(responses, "decode_plain", plainly)
    with pytest.raises(Finding, match="plain Python decodes something else"):
        responses.check(MetadataResponse, 12, METADATA.encode(12))


def kernel_with(function: str, replacement: Any) -> SimpleNamespace:
    """Return the compiled kernel with one function or class replaced."""
    kernel = {name: getattr(batches.COMPILED, name) for name in dir(batches.COMPILED)}
    return SimpleNamespace(**kernel | {function: replacement})


def nothing(*arguments: object) -> list[object]:
    return []


@pytest.mark.parametrize(
    ("function", "sentence"),
    [("parse_records", "read different records"), ("parse_columns", "columns differ")],
)
def test_disagreeing_kernels_are_a_finding(
    monkeypatch: pytest.MonkeyPatch, function: str, sentence: str
) -> None:
    batches.run(BATCH)
    monkeypatch.setattr(batches, "COMPILED", kernel_with(function, nothing))
    with pytest.raises(Finding, match=sentence):
        batches.run(BATCH)


def test_kernels_writing_different_bytes_are_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    class BatchWithExtraByte(_pykernel.OpenBatch):
        def close(self) -> bytes:
            return super().close() + b"\0"

    monkeypatch.setattr(batches, "COMPILED", kernel_with("OpenBatch", BatchWithExtraByte))
    with pytest.raises(Finding, match="write different bytes"):
        batches.run(BATCH)


def test_error_without_offset_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def records(*arguments: object) -> None:
        raise CorruptRecordError("somewhere", topic="t", partition=3)

    monkeypatch.setattr(batches.BatchView, "records", records)
    with pytest.raises(Finding, match="names no offset"):
        batches.run(BATCH)


def test_mutations_get_past_the_checksums() -> None:
    damaged = bytearray(captured.batches()["v2-none"])
    damaged[-1] ^= 1
    (view,) = batches.iter_batches(batches.repaired(bytes(damaged), 1))
    view.check_crc()
    (view,) = batches.iter_batches(batches.repaired(bytes(damaged), 0))
    with pytest.raises(CorruptRecordError, match="CRC"):
        view.check_crc()


def test_decompressing_beyond_the_limit_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def decompress_too_much(codec: Codec, data: bytes, limit: int = 0) -> bytes:
        return bytes(100)

    monkeypatch.setattr(compression, "decompress", decompress_too_much)
    with pytest.raises(Finding, match="were allowed"):
        compression.check(Codec.gzip, b"", limit=99)
    with pytest.raises(Finding, match="gives more than it is allowed"):
        compression.check(Codec.gzip, b"", limit=100)


def test_lost_frame_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    data = b"\xff\0\0" + b"\0\0\0\x04abcd" * 2
    frames.run(data)
    monkeypatch.setattr(frames.framing.FrameReader, "received", nothing)
    with pytest.raises(Finding, match="client's reader"):
        frames.run(data)


def test_error_containing_its_input_is_a_finding() -> None:
    data = bytes(range(256))
    check_error_message(DecodeError("short"), data)
    check_error_message(DecodeError(data[:64].hex()), data)
    with pytest.raises(Finding, match="an error of"):
        check_error_message(DecodeError("x" * 500), data)
    for text in (data[33:98].decode("latin-1"), data[33:98].hex()):
        with pytest.raises(Finding, match="carries its input"):
            check_error_message(DecodeError(f"no such thing: {text}"), data)


def test_nan_equals_nan() -> None:
    """A quota is a float, which may be NaN."""
    nan = float("nan")
    assert same(entry("finance", nan), entry("finance", nan))
    assert not same(entry("finance", nan), entry("finance", 1.0))
    assert not same(entry("finance", nan), entry("other", nan))


def entry(name: str, value: float) -> AlterClientQuotasRequest:
    op = OpData(key=name, value=value)
    return AlterClientQuotasRequest(entries=[AlterClientQuotasRequestEntryData(ops=[op])])


def test_size_of_compressed_input_is_its_decompressed_size() -> None:
    bomb = compress(Codec.gzip, bytes(100_000))
    assert compression.size(bytes([Codec.gzip]) + bomb) == 100_000
    assert compression.size(b"\x01" + bytes(50)) == 1024  # corrupt, within the first step
    plain = captured.batches()["v2-none"]
    assert batches.size(b"\0" + plain) == len(plain)


# -- time and memory ------------------------------------------------------------------------------


def test_limits_grow_with_the_input_up_to_a_maximum() -> None:
    assert allowed_memory(1000, 10) == 32_010
    assert allowed_memory(100_000_000, 10) == MEMORY_LIMIT
    assert allowed_cpu(64 * 1024) == 0.050
    assert allowed_cpu(10) == 0.002


@pytest.mark.parametrize(
    ("data", "what"),
    [(b"\x01slow", "ms of CPU"), (b"\x02greedy", "bytes of memory"), (b"Kafka", "the planted")],
)
def test_replay_finds_slow_greedy_and_wrong_inputs(tmp_path: Path, data: bytes, what: str) -> None:
    (tmp_path / "input").write_bytes(data)
    (tmp_path / "harmless").write_bytes(b"harmless")
    made = replay(load("tests.fuzz.planted"), sorted(tmp_path.iterdir()))
    (finding,) = made.findings
    assert what in finding.what
    assert finding.file == str(tmp_path / "input")
    assert made.inputs == 2
