"""Tests of the oracle: each broken promise is a finding."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fuzz import batches, captured, compression, frames, responses, sections, writing
from fuzz.codecs import selector
from fuzz.kernel_pair import PAIR
from fuzz.measure import replay
from fuzz.oracle import MEMORY_LIMIT, Finding, allowed_cpu, allowed_memory, check_error_message
from fuzz.target import load
from kafka_async.errors import CorruptRecordError, DecodeError
from kafka_async.kernel._pykernel import OpenBatch
from kafka_async.protocol.messages.metadata import MetadataResponse
from kafka_async.records.compression import Codec, compress

BATCH = bytes([batches.WRITE | batches.COLUMNS, 0]) + captured.batches()["v2-none"]
SECTION = next(iter(sections.seeds()))[1]
WRITTEN = writing.HEAD.pack(1000, Codec.none) + b"\x02\x01\x03key\x05value\x01\x01h\x02hv"
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


# -- kernels --------------------------------------------------------------------------------------


@pytest.fixture
def change(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that replaces functions or classes of the compiled kernel."""

    def change(**changed: Any) -> None:
        kernel = {name: getattr(PAIR.compiled, name) for name in dir(PAIR.compiled)}
        monkeypatch.setattr(PAIR, "compiled", SimpleNamespace(**kernel | changed))

    return change


def nothing(*arguments: object) -> list[object]:
    return []


@pytest.mark.parametrize(
    ("function", "sentence"),
    [("parse_records", "records of both kernels"), ("parse_columns", "columns of both kernels")],
)
def test_disagreeing_kernels_are_a_finding(
    change: Callable[..., None], function: str, sentence: str
) -> None:
    batches.run(BATCH)
    change(**{function: nothing})
    with pytest.raises(Finding, match=sentence):
        batches.run(BATCH)


def test_kernels_writing_different_bytes_are_a_finding(change: Callable[..., None]) -> None:
    class BatchWithExtraByte(OpenBatch):
        def close(self) -> bytes:
            return super().close() + b"\0"

    change(OpenBatch=BatchWithExtraByte)
    with pytest.raises(Finding, match="written bytes of both kernels"):
        batches.run(BATCH)


def drop_last(function: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    return lambda *arguments: function(*arguments)[:-1]


def without_offsets(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *arguments: function(*arguments)._replace(offsets=b"")


def raising(error: Exception) -> Callable[..., Callable[..., Any]]:
    def fail(*_: object) -> Any:
        raise error

    def change(_: object) -> Callable[..., Any]:
        return fail

    return change


OTHER = raising(CorruptRecordError("another message", topic="topic", partition=7, offset=0))
LONG = raising(CorruptRecordError("x" * 1000))


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"parse_records": drop_last}, Finding),
        ({"parse_records": OTHER, "parse_columns": OTHER}, Finding),
        ({"parse_records": OTHER}, Finding),
        ({"parse_records": LONG, "parse_columns": LONG}, Finding),
        ({"parse_columns": raising(MemoryError())}, MemoryError),
        ({"parse_columns": without_offsets}, Finding),
    ],
    ids=["record less", "other error", "one other error", "long error", "undocumented", "column"],
)
def test_wrong_reader_is_a_finding(
    change: Callable[..., None],
    changes: dict[str, Callable[[Callable[..., Any]], Any]],
    error: type[BaseException],
) -> None:
    sections.run(SECTION)
    change(**{name: edit(getattr(PAIR.compiled, name)) for name, edit in changes.items()})
    with pytest.raises(error):
        sections.run(SECTION)


class BatchWithoutHeaders(OpenBatch):
    """Drops the headers."""

    def append(
        self, timestamp_ms: Any, key: Any = None, value: Any = None, headers: Any = ()
    ) -> Any:
        return super().append(timestamp_ms, key, value)


def too_small_bound(*_: object) -> int:
    return 70


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"OpenBatch": BatchWithoutHeaders}, "written"),
        ({"record_size_bound": too_small_bound}, "bound"),
    ],
    ids=["no headers", "small bound"],
)
def test_wrong_writer_is_a_finding(
    change: Callable[..., None], changes: dict[str, Any], what: str
) -> None:
    writing.run(WRITTEN)
    change(**changes)
    with pytest.raises(Finding, match=what):
        writing.run(WRITTEN)


def test_error_without_offset_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def records(*arguments: object) -> None:
        raise CorruptRecordError("somewhere", topic="topic", partition=7)

    monkeypatch.setattr(batches.BatchView, "records", records)
    with pytest.raises(Finding, match="names no offset"):
        batches.run(BATCH)


def test_mutations_get_past_the_checksums() -> None:
    damaged = bytearray(captured.batches()["v2-none"])
    damaged[-1] ^= 1
    (view,) = batches.iter_batches(batches.repaired(bytes(damaged), 0))
    view.check_crc()
    (view,) = batches.iter_batches(batches.repaired(bytes(damaged), batches.KEEP_CRC))
    with pytest.raises(CorruptRecordError, match="CRC"):
        view.check_crc()


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_harness_compresses_records_with_the_codec_of_the_batch(codec: str) -> None:
    data = dict(batches.seeds())[f"pack-{codec}"]
    (view,) = batches.iter_batches(batches.repaired(data[batches.START :], data[0]))
    assert len(view.records()) == 5
    assert view.header.codec.name == codec
    assert view.decompressed_bytes


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


def test_size_of_compressed_input_is_its_decompressed_size() -> None:
    bomb = compress(Codec.gzip, bytes(100_000))
    assert compression.size(bytes([Codec.gzip]) + bomb) == 100_000
    assert compression.size(b"\x01" + bytes(50)) == 1024  # corrupt, within the first step
    plain = captured.batches()["v2-none"]
    assert batches.size(b"\0\0" + plain) == len(plain)


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
