"""Whatever is wrong with some bytes, the error is ours, and shows at most 64 of them.

An error travels: into logs, into trackers, into answers of web services. What a record holds, or a
secret, must not travel with it; so this looks at all that can be reached from an error: its text,
arguments, attributes, notes, causes and contexts.
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

from kafka_async.cluster.framing import Frame, FrameReader, ReceiveBudget
from kafka_async.cluster.in_flight_requests import InFlightRequest, InFlightRequests
from kafka_async.errors import CorruptRecordError, DecodeError, KafkaError, ProtocolError
from kafka_async.protocol.messages.heartbeat import HeartbeatRequest
from kafka_async.records.batch import BatchView, iter_batches
from kafka_async.records.compression import compress, decompress
from kafka_async.records.legacy import read_records
from tests.hostile import test_batches as batches
from tests.hostile import test_compression as compression
from tests.hostile import test_control_records as control_records
from tests.hostile import test_primitives as primitives
from tests.hostile.feed import BAD, Feed, Reader
from tests.hostile.lies import SECRET, batch, changed
from tests.hostile.measure import assert_it_carries_little
from tests.protocol.samples import all_versions, label, sample

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


def hear(data: bytes) -> None:
    """What a connection does with bytes, while one request (of the id 0) is under way."""
    reader = FrameReader(1000, ReceiveBudget(1 << 20), deque[bool]().append)
    answers: list[Frame] = []

    def answered(exchange: InFlightRequest[None], frame: Frame) -> None:
        answers.append(frame)

    channel: InFlightRequests[None] = InFlightRequests("me", reader, answered)
    channel.encode(HeartbeatRequest(), 4)
    channel.add(InFlightRequest(0, 12, 4, None, 0.0, 1.0, 2.0))
    room = channel.room()
    room[: len(data)] = data
    channel.received(len(data))


def framed(size: int, correlation_id: int) -> bytes:
    return size.to_bytes(4, "big", signed=True) + correlation_id.to_bytes(4, "big") + SECRET


FRAMES = {
    "frame of a negative size": framed(-5, 0),
    "frame of a size too small": framed(3, 0),
    "frame above the cap": framed(1001, 0),
    "frame of another protocol": b"HTTP/1.1 302 Found\r\nLocation: " + SECRET,
    "answer of an unknown id": framed(len(SECRET), 77),
    "answer to nothing": framed(len(SECRET), 0) + SECRET,
}

CORPUS: dict[str, tuple[bytes, Read, type[KafkaError]]] = {
    **{name: (data, hear, ProtocolError) for name, data in FRAMES.items()},
    **{
        name: (case.data, partial(case.message.decode, version=case.version), DecodeError)
        for name, case in primitives.CASES.items()
    },
    **{
        name: (batches.BEFORE + data, read_all, CorruptRecordError)
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
        name: (data, read_all, CorruptRecordError) for name, data in control_records.DAMAGED.items()
    },
}


@pytest.mark.parametrize("name", CORPUS)
def test_an_error_is_ours_and_carries_little(kernel: ModuleType, name: str) -> None:
    data, read, kind = CORPUS[name]
    with pytest.raises(kind) as caught:
        read(data)
    assert_it_carries_little(caught.value, data[:50_000])


@pytest.mark.parametrize("name", primitives.HEADERS)
def test_a_headers_error_carries_little(kernel: ModuleType, name: str) -> None:
    with pytest.raises(DecodeError) as caught:
        primitives.HEADERS[name]()
    assert_it_carries_little(caught.value, b"\xff" * 100)
    assert_it_carries_little(caught.value, b"\0" * 100)


@pytest.mark.parametrize(("message", "version"), all_versions()[::7], ids=label)
def test_spoilt_messages_fail_with_errors_that_carry_little(
    message: type[Message], version: int, seeded: int
) -> None:
    rng = random.Random(seeded)
    body = sample(message, version, seeded).encode(version)
    failed = 0
    for _ in range(10):
        spoilt = bytearray(body or b"\0")
        for _ in range(3):
            spoilt[rng.randrange(len(spoilt))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
        cut = bytes(spoilt[: rng.randrange(len(spoilt))])
        error = failure(partial(message.decode, version=version), cut)
        if error is not None:
            failed += 1
            assert_it_carries_little(error, cut[:2000])
    assert failed or len(body) < 8


@pytest.mark.parametrize("name", [name for name, (data, _) in batches.CASES.items() if data])
def test_spoilt_batches_fail_with_errors_that_carry_little(
    kernel: ModuleType, name: str, seeded: int
) -> None:
    """The CRC is made right again each time, so that what is behind it is reached."""
    rng = random.Random(seeded)
    for _ in range(10):
        spoilt = batch()
        for _ in range(2):
            spoilt = changed(spoilt, rng.randrange(21, len(spoilt)), ">B", rng.randrange(256))
        error = failure(read_all, spoilt)
        if error is not None:
            assert isinstance(error, CorruptRecordError)
            assert_it_carries_little(error, spoilt)


@pytest.mark.parametrize("codec", compression.PACKED)
def test_spoilt_streams_fail_with_errors_that_carry_little(codec: object, seeded: int) -> None:
    assert isinstance(codec, compression.Codec)
    rng = random.Random(seeded)
    whole = compress(codec, SECRET + bytes(2000))
    for _ in range(200):
        spoilt = bytearray(whole)
        spoilt[rng.randrange(len(spoilt))] = rng.randrange(256)
        error = failure(partial(decompress, codec), bytes(spoilt))
        if error is not None:
            assert isinstance(error, CorruptRecordError)
            assert_it_carries_little(error, SECRET)


def failure(read: Read, data: bytes) -> KafkaError | None:
    """The error of reading; None if there is none. One that is not ours fails the test."""
    try:
        read(data)
    except KafkaError as error:
        return error
    return None


@pytest.mark.parametrize("magic", [0, 1])
def test_an_old_message_set_fails_with_an_error_that_carries_little(magic: int) -> None:
    data = changed(batch(), 16, ">b", magic)
    with pytest.raises(CorruptRecordError) as caught:
        read_records(memoryview(data), "t", 0, 0, 1 << 20)
    assert_it_carries_little(caught.value, data)


# -- logs -----------------------------------------------------------------------------------------


@pytest.mark.asyncio
@pytest.mark.virtual_clock
@pytest.mark.parametrize("name", ["CRC-32C mismatch in a record", "codec 5", "key length -2"])
async def test_neither_error_nor_log_of_a_consumer_shows_a_record(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    data, _ = batches.CASES[name]
    feed = Feed()
    feed.data[BAD] = {0: batch(base=0) + data}
    with caplog.at_level(logging.DEBUG):
        async with feed.consumer() as consumer:
            reader = Reader(consumer)
            await reader.until_raised(1)
    assert reader.values
    for error in reader.errors:
        assert_it_carries_little(error, SECRET)
    logged = KafkaError(caplog.text)
    for start in range(0, len(SECRET), 16):  # of a record that is well not one byte is logged
        assert repr(SECRET[start : start + 8])[2:-1] not in caplog.text
    assert_it_carries_little(logged, SECRET)


def test_this_test_sees_what_is_carried() -> None:
    """It would be worth nothing if it looked past what an error holds."""
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
        with pytest.raises(AssertionError, match="carries"):
            assert_it_carries_little(error, data)
    assert_it_carries_little(ValueError(f"{data[:64]!r}"), data)
