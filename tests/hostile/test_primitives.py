"""Malformed lengths, counts, strings and tags of messages raise DecodeError and take no memory.

The tests write each primitive separately, so that any of them can be malformed.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from kafka_async.errors import DecodeError
from kafka_async.protocol.header import decode_request, decode_response
from kafka_async.protocol.messages.api_versions import ApiVersionsResponse
from kafka_async.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from kafka_async.protocol.messages.fetch import FetchResponse
from kafka_async.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafka_async.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kafka_async.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kafka_async.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from kafka_async.protocol.messages.share_acknowledge import ShareAcknowledgeRequest
from kafka_async.protocol.wire import UVARINT
from tests.hostile.measure import allocates_at_most
from tests.protocol.samples import all_classes, structures_in
from tests.rows import row

if TYPE_CHECKING:
    from kafka_async.protocol.message import Message
    from kafka_async.protocol.spec import Struct

KIB = 1024
TAIL = b"\0" * 100


def short(value: int) -> bytes:
    return struct.pack(">h", value)


def integer(value: int) -> bytes:
    return struct.pack(">i", value)


def uvarint(value: int) -> bytes:
    return UVARINT[value]


def tags(*fields: tuple[int, bytes], count: int | None = None, size: int | None = None) -> bytes:
    """Return a tagged section; `count` and `size` replace the valid ones."""
    out = uvarint(len(fields) if count is None else count)
    for tag, payload in fields:
        out += uvarint(tag) + uvarint(len(payload) if size is None else size) + payload
    return out


def heartbeat(section: bytes) -> bytes:
    """Return a HeartbeatRequest of version 4 with this tagged section."""
    return uvarint(2) + b"g" + integer(1) + uvarint(2) + b"m" + uvarint(0) + section


EPOCH = struct.pack(">q", 7)


def api_versions(section: bytes) -> bytes:
    """Return an ApiVersionsResponse of version 3; tag 1 is finalized_features_epoch, an int64."""
    return short(0) + uvarint(1) + integer(0) + section


def acknowledgement(count: int) -> bytes:
    """Return a ShareAcknowledgeRequest of version 1 with an array of this many bytes."""
    partition = integer(0) + uvarint(2) + bytes(16) + uvarint(count + 1) + bytes(count)
    topic = uvarint(2) + bytes(16) + uvarint(2) + partition + b"\0\0\0"
    return uvarint(0) + uvarint(0) + integer(0) + topic + b"\0"


class Case(NamedTuple):
    """Holds a message, its version, malformed bytes and the expected error message."""

    message: type[Message]
    version: int
    data: bytes
    error: str


COORDINATOR, TOPICS, AUTH = FindCoordinatorRequest, MetadataRequest, SaslAuthenticateRequest

CASES: dict[str, Case] = {
    # Varints.
    "uvarint of 6 bytes": Case(COORDINATOR, 3, b"\x80\x80\x80\x80\x80\0" + TAIL, "32 bits"),
    "uvarint without an end": Case(COORDINATOR, 3, b"\xff" * 100, "32 bits"),
    "uvarint above 2^32": Case(COORDINATOR, 3, b"\xff\xff\xff\xff\x1f" + TAIL, "32 bits"),
    "uvarint cut off": Case(COORDINATOR, 3, b"\xff\xff", "end early"),
    "compact length above 2^31": Case(COORDINATOR, 3, uvarint(2**31 + 2) + TAIL, "key claims"),
    "compact length 2^32-1": Case(COORDINATOR, 3, uvarint(2**32 - 1) + TAIL, "key claims"),
    "compact count above 2^31": Case(TOPICS, 9, uvarint(2**31 + 2) + TAIL, "topics claims"),
    # Texts and bytes.
    "string beyond the end": Case(COORDINATOR, 0, short(101) + TAIL, "key claims 101 .* 100 "),
    "compact string beyond the end": Case(COORDINATOR, 3, uvarint(102) + TAIL, "key claims 101"),
    "compact string above 32767": Case(COORDINATOR, 3, uvarint(32769) + bytes(40_000), "32768"),
    "string null where not nullable": Case(COORDINATOR, 0, short(-1) + TAIL, "key is null"),
    "compact string null": Case(COORDINATOR, 3, uvarint(0) + TAIL, "key is null"),
    "string of length -2": Case(COORDINATOR, 0, short(-2) + TAIL, "key claims -2"),
    "nullable string of length -2": Case(HeartbeatRequest, 3, b"\0\1g" + integer(0) + b"\0\1m"
                                         + short(-2) + TAIL, "group_instance_id claims -2"),
    "bytes of length -2": Case(AUTH, 0, integer(-2) + TAIL, "auth_bytes claims -2"),
    "bytes null where not nullable": Case(AUTH, 0, integer(-1) + TAIL, "auth_bytes is null"),
    "bytes beyond the end": Case(AUTH, 0, integer(2**31 - 1) + TAIL, "auth_bytes claims 21474"),
    "compact bytes beyond the end": Case(AUTH, 2, uvarint(2**31) + TAIL, "auth_bytes claims"),
    "UTF-8 with a bad byte": Case(COORDINATOR, 0, short(100) + b"a" * 99 + b"\xff", "utf-8"),
    "UTF-8 cut off": Case(COORDINATOR, 0, short(100) + b"a" * 99 + b"\xc3", "utf-8"),
    "UTF-8 of a surrogate": Case(COORDINATOR, 0, short(100) + b"a" * 97 + b"\xed\xa0\x80", "utf-8"),
    "UTF-8 spelt overlong": Case(COORDINATOR, 0, short(100) + b"a" * 98 + b"\xc0\xaf", "utf-8"),
    "compact UTF-8 with a bad byte": Case(COORDINATOR, 3, uvarint(101) + b"\xfe" * 100, "utf-8"),
    # Arrays.
    "array count above what is left": Case(TOPICS, 1, integer(51) + TAIL, "topics claims 51"),
    "array count 2^31-1": Case(TOPICS, 1, integer(2**31 - 1) + TAIL, "topics claims 21474"),
    "array count -2": Case(TOPICS, 1, integer(-2) + TAIL, "topics claims -2"),
    "array count -2^31": Case(TOPICS, 1, integer(-(2**31)) + TAIL, "topics claims -21474"),
    "array null where not nullable": Case(TOPICS, 0, integer(-1) + TAIL, "topics is null"),
    "nested array count above what is left": Case(MetadataResponse, 0, integer(0) + integer(1)
                                                  + short(0) + short(1) + b"t" + integer(2**30)
                                                  + TAIL, "partitions claims 1073741824"),
    "more than 1,000,000 elements": Case(ShareAcknowledgeRequest, 1, acknowledgement(1_000_001),
                                         "acknowledge_types claims 1000001"),
    # Structures.
    **{
        f"nullable structure marked {marker}": Case(
            ConsumerGroupHeartbeatResponse, 0, integer(0) + short(0) + b"\0\0" + integer(0)
            + integer(0) + struct.pack("b", marker) + TAIL, f"assignment begins with {marker}")
        for marker in (-2, 0, 5)
    },
    "records beyond the end": Case(FetchResponse, 4, integer(0) + integer(1) + short(1) + b"t"
                                   + integer(1) + integer(0) + short(0) + bytes(16)
                                   + integer(-1) + integer(2**31 - 1) + TAIL,
                                   "records claims 2147483647"),
    "records of length -2": Case(FetchResponse, 4, integer(0) + integer(1) + short(1) + b"t"
                                 + integer(1) + integer(0) + short(0) + bytes(16)
                                 + integer(-1) + integer(-2) + TAIL, "records claims -2"),
    "cut off in a number": Case(MetadataResponse, 1, integer(0)[:3], "end early"),
    "bytes left over": Case(COORDINATOR, 0, short(1) + b"k" + TAIL, "100 bytes after the message"),
    # Tagged fields.
    "tag twice": Case(HeartbeatRequest, 4, heartbeat(tags((5, b"x" * 80), (5, b"y" * 80))),
                      "tag 5 comes after tag 5"),
    "tags out of order": Case(HeartbeatRequest, 4, heartbeat(tags((5, b"x" * 80), (4, b""))),
                              "tag 4 comes after tag 5"),
    "known tag twice": Case(ApiVersionsResponse, 3, api_versions(tags((1, EPOCH), (1, EPOCH))),
                            "tag 1 comes after tag 1"),
    "tag beyond 31 bits": Case(HeartbeatRequest, 4, heartbeat(tags((2**31, b"x" * 80))), "31 bits"),
    "tag's size beyond the end": Case(HeartbeatRequest, 4,
                                      heartbeat(tags((5, b"x" * 80), size=82)), "claims 82 bytes"),
    "tag's size 2^32-1": Case(HeartbeatRequest, 4,
                              heartbeat(tags((5, b"x" * 80), size=2**32 - 1)), "claims 4294967295"),
    "known tag's size too small": Case(ApiVersionsResponse, 3,
                                       api_versions(tags((1, EPOCH), size=7)),
                                       "tag 1 does not have the size"),
    "known tag's size too large": Case(ApiVersionsResponse, 3,
                                       api_versions(tags((1, EPOCH + b"!"))),
                                       "tag 1 does not have the size"),
    "tags above what is left": Case(HeartbeatRequest, 4, heartbeat(tags(count=51) + TAIL),
                                    "51 tagged fields in 100 bytes"),
    "tags 2^32-1": Case(HeartbeatRequest, 4, heartbeat(tags(count=2**32 - 1) + TAIL),
                        "4294967295 tagged fields"),
    "more than 10,000 tags": Case(HeartbeatRequest, 4,
                                  heartbeat(tags(*((tag, b"") for tag in range(10_001)))),
                                  "10001 tagged fields"),
}  # fmt: skip


def test_malformed_message_is_decode_error_and_allocates_little(kernel: ModuleType) -> None:
    for name in CASES:
        with row(name):
            case = CASES[name]
            with pytest.raises(DecodeError, match=case.error) as caught:
                case.message.decode(case.data, case.version)  # also creates the decoder
            assert f"{case.message.__name__} version {case.version}" in str(caught.value)
            with allocates_at_most(8 * len(case.data) + 64 * KIB), pytest.raises(DecodeError):
                case.message.decode(case.data, case.version)


# -- at a limit or unusual, but valid -------------------------------------------------------------

ALLOWED: dict[str, tuple[type[Message], int, bytes, Callable[[Any], bool]]] = {
    # Java accepts these too: varints with redundant bytes.
    "overlong compact length": (COORDINATOR, 3, b"\x82\x80\x80\x80\0k\0\0", lambda m: m.key == "k"),
    "overlong null": (TOPICS, 9, b"\x80\0\0\0\0\0", lambda m: m.topics is None),
    "overlong count of tags": (HeartbeatRequest, 4, heartbeat(b"\x80\x80\0"),
                               lambda m: m.unknown_tagged_fields == ()),
    "null of length -1": (TOPICS, 1, integer(-1), lambda m: m.topics is None),
    "1,000,000 elements": (ShareAcknowledgeRequest, 1, acknowledgement(1_000_000),
                           lambda m: len(m.topics) == 1),
    "10,000 tags": (HeartbeatRequest, 4, heartbeat(tags(*((tag, b"abc") for tag in range(10_000)))),
                    lambda m: len(m.unknown_tagged_fields) == 10_000),
    "the highest tag": (HeartbeatRequest, 4, heartbeat(tags((2**31 - 1, b"x"))),
                        lambda m: m.unknown_tagged_fields == ((2**31 - 1, b"x"),)),
    "a string of 32,767 bytes": (COORDINATOR, 3, uvarint(32_768) + b"k" * 32_767 + b"\0\0",
                                 lambda m: len(m.key) == 32_767),
}  # fmt: skip


@pytest.mark.parametrize("name", ALLOWED)
def test_unusual_valid_encodings_are_read(kernel: ModuleType, name: str) -> None:
    message, version, data, is_expected = ALLOWED[name]
    assert is_expected(message.decode(data, version))


# -- headers --------------------------------------------------------------------------------------

HEADERS = {
    "response without a correlation id": lambda: decode_response(b"abc", HeartbeatResponse, 0),
    "response header's tags above what is left": lambda: decode_response(
        integer(1) + tags(count=2**32 - 1) + TAIL, HeartbeatResponse, 4
    ),
    "response header's tag twice": lambda: decode_response(
        integer(1) + tags((5, b"x" * 80), (5, b"")) + TAIL, HeartbeatResponse, 4
    ),
    "request header's client id beyond the end": lambda: decode_request(
        struct.pack(">hhih", 12, 0, 1, 2000) + TAIL
    ),
    "request header's client id of length -2": lambda: decode_request(
        struct.pack(">hhih", 12, 0, 1, -2) + TAIL
    ),
    "request header's client id is no UTF-8": lambda: decode_request(
        struct.pack(">hhih", 12, 0, 1, 100) + b"\xff" * 100
    ),
}


@pytest.mark.parametrize("name", HEADERS)
def test_malformed_header_is_decode_error(kernel: ModuleType, name: str) -> None:
    with pytest.raises(DecodeError):
        HEADERS[name]()


# -- nesting --------------------------------------------------------------------------------------


def test_message_nesting_is_bounded() -> None:
    """The schema bounds the depth of a message: no structure contains itself."""
    assert max(depth(message, ()) for message in all_classes()) <= 6


def depth(kind: type[Struct], above: tuple[type[Struct], ...]) -> int:
    assert kind not in above, f"{kind.__name__} holds itself"
    return 1 + max((depth(each, (*above, kind)) for each in structures_in(kind)), default=0)
