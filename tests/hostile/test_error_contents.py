"""Errors for malformed input are KafkaError and contain at most 64 consecutive bytes of it.

Errors are written to logs, error trackers and web responses, where records and secrets must not
appear. The tests search everything that can be reached from an error: text, arguments, attributes,
notes, causes and contexts.
"""

from __future__ import annotations

import logging
import random
from collections import deque
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

from kafka_async.client.wire.framing import Frame, FrameReader, ReceiveBudget
from kafka_async.client.wire.in_flight_requests import InFlightRequest, InFlightRequests
from kafka_async.errors import CorruptRecordError, DecodeError, KafkaError, ProtocolError
from kafka_async.protocol.messages.heartbeat import HeartbeatRequest
from kafka_async.records.batch import BatchView, iter_batches
from kafka_async.records.compression import compress, decompress
from tests.hostile import test_batches as batches
from tests.hostile import test_compression as compression
from tests.hostile import test_control_records as control_records
from tests.hostile import test_primitives as primitives
from tests.hostile.malformed_batches import SECRET, batch, with_field
from tests.hostile.measure import assert_contains_little_of
from tests.hostile.scripted_fetch import BAD, Reader, ScriptedFetch
from tests.protocol.samples import all_versions, sample
from tests.rows import row

if TYPE_CHECKING:
    from kafka_async.protocol.message import Message

Read = Callable[[bytes], object]


def read_all(data: bytes) -> None:
    for view in iter_batches(data, topic="t", partition=0):
        read_view(view)


def read_view(view: BatchView) -> None:
    if view.is_control:
        view.control()
    else:
        view.records()


def receive(data: bytes) -> None:
    """Receive bytes as a connection does with one request, of correlation id 0, in flight."""
    reader = FrameReader(1000, ReceiveBudget(1 << 20), deque[bool]().append)
    frames: list[Frame] = []

    def on_response(exchange: InFlightRequest[None], frame: Frame) -> None:
        frames.append(frame)

    in_flight: InFlightRequests[None] = InFlightRequests("me", reader, on_response)
    in_flight.encode(HeartbeatRequest(), 4)
    in_flight.add(InFlightRequest(0, 12, 4, None, 0.0, 1.0, 2.0))
    room = in_flight.room()
    room[: len(data)] = data
    in_flight.received(len(data))


def framed(size: int, correlation_id: int) -> bytes:
    return size.to_bytes(4, "big", signed=True) + correlation_id.to_bytes(4, "big") + SECRET


FRAMES = {
    "frame of a negative size": framed(-5, 0),
    "frame of a size too small": framed(3, 0),
    "frame above the cap": framed(1001, 0),
    "frame of another protocol": b"HTTP/1.1 302 Found\r\nLocation: " + SECRET,
    "response of an unknown id": framed(len(SECRET), 77),
    "response without a request": framed(len(SECRET), 0) + SECRET,
}

CORPUS: dict[str, tuple[bytes, Read, type[KafkaError]]] = {
    **{name: (data, receive, ProtocolError) for name, data in FRAMES.items()},
    **{
        name: (case.data, partial(case.message.decode, version=case.version), DecodeError)
        for name, case in primitives.CASES.items()
    },
    **{
        name: (batches.PREVIOUS + data, read_all, CorruptRecordError)
        for name, (data, _) in batches.CASES.items()
    },
    **{
        name: (data, partial(decompress, codec), CorruptRecordError)
        for name, (codec, data, _) in compression.CASES.items()
    },
    **{
        f"{name} in a batch": (batch(codec=codec, payload=data), read_all, CorruptRecordError)
        for name, (codec, data, _) in compression.CASES.items()
    },
    **{
        name: (data, read_all, CorruptRecordError)
        for name, data in control_records.MALFORMED_MARKERS.items()
    },
}


def test_error_is_kafka_error_with_little_input(kernel: ModuleType) -> None:
    for name in CORPUS:
        with row(name):
            data, read, error_class = CORPUS[name]
            with pytest.raises(error_class) as caught:
                read(data)
            assert_contains_little_of(caught.value, data[:50_000])


@pytest.mark.parametrize("name", primitives.HEADERS)
def test_header_error_has_little_input(kernel: ModuleType, name: str) -> None:
    with pytest.raises(DecodeError) as caught:
        primitives.HEADERS[name]()
    assert_contains_little_of(caught.value, b"\xff" * 100)
    assert_contains_little_of(caught.value, b"\0" * 100)


def test_errors_of_corrupted_messages_have_little_input(seeded: int) -> None:
    for message, version in all_versions()[::7]:
        with row(message, version):
            check_errors_of_message(message, version, random.Random(seeded), seeded)


def check_errors_of_message(
    message: type[Message], version: int, rng: random.Random, seeded: int
) -> None:
    body = sample(message, version, seeded).encode(version)
    failed = 0
    for _ in range(10):
        corrupted = bytearray(body or b"\0")
        for _ in range(3):
            corrupted[rng.randrange(len(corrupted))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
        cut = bytes(corrupted[: rng.randrange(len(corrupted))])
        error = failure(partial(message.decode, version=version), cut)
        if error is not None:
            failed += 1
            assert_contains_little_of(error, cut[:2000])
    assert failed or len(body) < 8


def test_errors_of_corrupted_batches_have_little_input(kernel: ModuleType, seeded: int) -> None:
    """The CRC is updated each time, so that the fields after it are validated."""
    rng = random.Random(seeded)
    for _ in range(200):
        corrupted = batch()
        for _ in range(2):
            corrupted = with_field(
                corrupted, rng.randrange(21, len(corrupted)), ">B", rng.randrange(256)
            )
        error = failure(read_all, corrupted)
        if error is not None:
            assert isinstance(error, CorruptRecordError)
            assert_contains_little_of(error, corrupted)


@pytest.mark.parametrize("codec", compression.COMPRESSED_CODECS)
def test_errors_of_corrupted_streams_have_little_input(codec: object, seeded: int) -> None:
    assert isinstance(codec, compression.Codec)
    rng = random.Random(seeded)
    whole = compress(codec, SECRET + bytes(2000))
    for _ in range(200):
        corrupted = bytearray(whole)
        corrupted[rng.randrange(len(corrupted))] = rng.randrange(256)
        error = failure(partial(decompress, codec), bytes(corrupted))
        if error is not None:
            assert isinstance(error, CorruptRecordError)
            assert_contains_little_of(error, SECRET)


def failure(read: Read, data: bytes) -> KafkaError | None:
    """Return the KafkaError of reading, None without one; other errors fail the test."""
    try:
        read(data)
    except KafkaError as error:
        return error
    return None


# -- logs -----------------------------------------------------------------------------------------


@pytest.mark.asyncio
@pytest.mark.virtual_clock
@pytest.mark.parametrize("name", ["CRC-32C mismatch in a record", "codec 5", "key length -2"])
async def test_consumer_errors_and_logs_contain_no_record(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    data, _ = batches.CASES[name]
    script = ScriptedFetch()
    script.data[BAD] = {0: batch(base=0) + data}
    with caplog.at_level(logging.DEBUG):
        async with script.consumer() as consumer:
            reader = Reader(consumer)
            await reader.until_errors(1)
    assert reader.values
    for error in reader.errors:
        assert_contains_little_of(error, SECRET)
    logged = KafkaError(caplog.text)
    for start in range(0, len(SECRET), 16):  # no byte of a valid record is logged
        assert repr(SECRET[start : start + 8])[2:-1] not in caplog.text
    assert_contains_little_of(logged, SECRET)


def test_check_finds_input_in_errors() -> None:
    """The check finds input in each part of an error."""
    data = bytes(range(256))
    hidden = ValueError("short")
    hidden.__context__ = UnicodeDecodeError("utf-8", data, 0, 1, "bad")
    noted = ValueError("short")
    noted.add_note(data[100:200].hex())
    attribute = KafkaError("short")
    attribute.__dict__["head"] = memoryview(data)
    for error in (
        ValueError(data.decode("latin-1")),
        ValueError(f"{data[10:90]!r}"),
        hidden,
        noted,
        attribute,
    ):
        with pytest.raises(AssertionError, match="contains"):
            assert_contains_little_of(error, data)
    assert_contains_little_of(ValueError(f"{data[:64]!r}"), data)
