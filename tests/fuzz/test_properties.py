"""Tests of the fuzz targets' promises with bytes that hypothesis generates."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuzz import batches, captured, compression, frames, responses, sasl
from fuzz.target import KERNEL_NAMES, NAMES, load
from kafka_async.protocol import api
from kafka_async.protocol.header import encode_request
from kafka_async.records.compression import Codec, compress
from tests.protocol.samples import all_versions, sample

if TYPE_CHECKING:
    from kafka_async.protocol.message import Request

ANY = st.binary(max_size=300)
SEEDS = st.integers(0, 1_000)
KINDS = st.sampled_from(all_versions())
CODECS = st.sampled_from(list(Codec))
REQUESTS = st.sampled_from(
    [(each.request, each.versions.max) for each in api.APIS if not each.removed]
)
BATCHES = st.sampled_from(list(captured.batches().values()))

MIN_SEEDS = {
    "batches": 100,
    "compression": 45,
    "frames": 60,
    "responses": 600,
    "sasl": 15,
    "sections": 20,
    "values": 6,
    "writing": 15,
}

# An edit: the position as a fraction of the length, the number of removed bytes, the new bytes.
NUMBERS = [b"\0", b"\xff", b"\x7f", b"\x80", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\xff" * 9]
EDITS = st.lists(
    st.tuples(
        st.floats(0, 1), st.integers(0, 8), st.sampled_from([b"", *NUMBERS]) | st.binary(max_size=4)
    ),
    min_size=1,
    max_size=3,
)


def edited(data: bytes, edits: list[tuple[float, int, bytes]]) -> bytes:
    for position, removed, inserted in edits:
        at = int(position * len(data))
        data = data[:at] + inserted + data[at + removed :]
    return data


@pytest.mark.parametrize("name", MIN_SEEDS)
def test_every_seed_keeps_every_promise(name: str) -> None:
    target = load(name)
    names = [label for label, data in target.seeds() if target.run(data) is None]
    assert len(names) == len(set(names)) >= MIN_SEEDS[name]
    for _, data in list(target.seeds())[-50:]:
        target.subject(data)()
        assert target.size(data) >= 0


def test_every_target_has_a_minimum_of_seeds() -> None:
    assert set(MIN_SEEDS) == {*NAMES, *KERNEL_NAMES}


@pytest.mark.one_kernel
@pytest.mark.parametrize("name", ["sections", "batches"])
def test_large_inputs_are_read_completely(name: str) -> None:
    target = load(name)
    for data in target.large():
        target.run(data)
        assert target.size(data) > 48 * 1024


# -- responses ------------------------------------------------------------------------------------


@given(kind=KINDS, data=ANY)
@settings(deadline=None)
def test_any_bytes_are_rejected_or_round_trip(kind: tuple[Any, int], data: bytes) -> None:
    responses.check(*kind, data)


@given(kind=KINDS, seed=SEEDS, edits=EDITS)
@settings(max_examples=300, deadline=None)
def test_mutated_message_is_rejected_or_round_trips(
    kind: tuple[Any, int], seed: int, edits: list[tuple[float, int, bytes]]
) -> None:
    responses.check(*kind, edited(sample(*kind, seed).encode(kind[1]), edits))


# -- sasl -----------------------------------------------------------------------------------------


@given(data=ANY, mechanism=st.integers(0, len(sasl.mechanisms()) - 1))
@settings(deadline=None)
def test_any_messages_of_a_broker_are_rejected_by_an_authentication_error(
    data: bytes, mechanism: int
) -> None:
    sasl.run(bytes([mechanism]) + data)


@given(seed=st.sampled_from([data for _, data in sasl.seeds()]), edits=EDITS)
@settings(max_examples=300, deadline=None)
def test_mutated_messages_of_a_broker_are_rejected_or_right(
    seed: bytes, edits: list[tuple[float, int, bytes]]
) -> None:
    sasl.run(edited(seed, edits))


# -- frames ---------------------------------------------------------------------------------------


@given(data=ANY)
@settings(deadline=None)
def test_both_readers_split_any_bytes_alike(data: bytes) -> None:
    frames.run(data)


@given(stream=st.lists(st.binary(max_size=40), max_size=6), piece=st.integers(0, 255), edits=EDITS)
@settings(deadline=None)
def test_both_readers_split_frames_in_pieces_alike(
    stream: list[bytes], piece: int, edits: list[tuple[float, int, bytes]]
) -> None:
    sized = b"".join(struct.pack(">i", len(frame)) + frame for frame in stream)
    assert frames.split_frames(sized) == (stream, False)
    frames.run(bytes([piece, 0, 0]) + sized)
    frames.run(bytes([piece, 0, 0]) + edited(sized, edits))


@given(kind=REQUESTS, seed=SEEDS, edits=EDITS)
@settings(deadline=None)
def test_mutated_request_is_rejected_or_round_trips(
    kind: tuple[Any, int], seed: int, edits: list[tuple[float, int, bytes]]
) -> None:
    request = cast("Request[Any]", sample(*kind, seed))
    frame = b"".join(encode_request(request, kind[1], seed, "fuzz"))[4:]
    frames.check_request(frame)
    frames.check_request(edited(frame, edits))


# -- batches --------------------------------------------------------------------------------------


@given(flags=st.integers(0, 31), start=st.integers(0, 20), data=ANY)
@settings(deadline=None)
def test_both_kernels_read_any_bytes_alike(flags: int, start: int, data: bytes) -> None:
    batches.run(bytes([flags, start]) + data)


@given(flags=st.integers(0, 31), start=st.integers(0, 20), data=BATCHES, edits=EDITS)
@settings(max_examples=300, deadline=None)
def test_both_kernels_read_a_mutated_batch_alike(
    flags: int, start: int, data: bytes, edits: list[tuple[float, int, bytes]]
) -> None:
    batches.run(bytes([flags, start]) + edited(data, edits))


# -- compression ----------------------------------------------------------------------------------


@pytest.mark.one_kernel
@given(codec=CODECS, data=ANY)
@settings(deadline=None)
def test_decompressing_any_bytes_stays_within_the_limit(codec: Codec, data: bytes) -> None:
    compression.check(codec, data)


@pytest.mark.one_kernel
@given(codec=CODECS, data=ANY, times=st.integers(1, 50), edits=EDITS)
@settings(deadline=None)
def test_decompressing_mutated_data_stays_within_the_limit(
    codec: Codec, data: bytes, times: int, edits: list[tuple[float, int, bytes]]
) -> None:
    compression.check(codec, edited(compress(codec, data * times), edits))
