"""Seeds of the targets: batches that Java and we wrote, and boundary values."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from fuzz import captured, responses
from fuzz.kernel import batches, sections
from kafka_async.kernel import OpenBatch, encode_varint
from kafka_async.records.batch import encode_batch, iter_batches
from kafka_async.records.compression import Codec, compress
from kafka_async.records.control import encode_control_batch

TIME = 1_700_000_000_000
LARGE = 64 * 1024
_ANY_START = (0, sections.MAX_INT64)
_READ_ALL = sections.HEADERS | sections.FROM_THE_BEGIN | sections.TO_THE_END


def seeds(target: str) -> list[bytes]:
    """Return the first corpus of a target."""
    if target == "sections":
        return [*_sections(), b"", bytes(sections.ARGUMENTS.size)]
    if target == "batches":
        return [*_batches(), b"\0\0"]
    if target == "messages":
        return [data for _, data in responses.seeds()]
    return _writing() if target == "writing" else _values()


def large(target: str) -> list[bytes]:
    """Return inputs of 64 KiB for measurement, each the worst of its kind for time or memory."""
    if target == "sections":
        return [_section_input(section, count) for section, count in _large_sections()]
    if target == "batches":
        return [_batch_input(*one, codec) for one in _large_sections() for codec in Codec]
    return []


def dictionary() -> str:
    """Return libFuzzer's dictionary: varints, fields and boundary values."""
    edges = [0, -1, 1, -2, 63, 64, -64, 127, (1 << 31) - 1, -(1 << 31), (1 << 63) - 1, -(1 << 63)]
    words = [encode_varint(edge) for edge in edges]
    words += [struct.pack("<q", edge) for edge in edges]
    words += [struct.pack(">i", edge) for edge in edges if -(1 << 31) <= edge < 1 << 31]
    words += [b"\x80", b"\xff\xff\xff\xff\x0f", b"\x80" * 9 + b"\x01", b"\xff" * 9 + b"\x02"]
    words += [_record(), _record(b"k", b"v"), _record(headers=((b"h", b"v"), (b"\xff", None)))]
    escaped = ("".join(f"\\x{byte:02x}" for byte in word) for word in dict.fromkeys(words))
    return "".join(f'"{word}"\n' for word in escaped)


def _sections() -> Iterator[bytes]:
    for buffer in captured.batches().values():
        for view in iter_batches(buffer):
            if view.header.magic == 2:
                data, *header = view.section()
                yield _section_bytes(bytes(memoryview(data)), header, _READ_ALL)
    for flags in (0, sections.AS_VIEW | sections.TWO_SECTIONS, _READ_ALL | sections.TWO_SECTIONS):
        data = _record(b"key", b"value") + _record(delta=1) + _record(b"", b"", delta=2)
        yield _section_bytes(data, [3, 100, 2, TIME, TIME + 9, 0], flags)


def _section_bytes(data: bytes, header: list[int], flags: int) -> bytes:
    *numbers, kind = header
    flags |= sections.LOG_APPEND_TIME if kind else 0
    return sections.ARGUMENTS.pack(flags, *numbers, *_ANY_START, 3) + data


def _batches() -> Iterator[bytes]:
    for name, buffer in captured.batches().items():
        yield b"\0\0" + buffer
        if name in ("v2-none", "v2-three"):
            yield bytes((batches.PACK, 5)) + buffer
    marker = {"producer_id": 5, "producer_epoch": 1, "coordinator_epoch": 3, "timestamp": TIME}
    yield b"\0\0" + encode_control_batch("abort", **marker)
    section = OpenBatch(None, 4096)
    for number in range(5):
        headers = [("h", b"x" * number), ("é", None)] if number & 1 else []
        section.append(TIME + number, b"k" * number, b"v" * number * 9, headers)
    data = section.close()
    for codec in Codec:
        # Uncompressed with a codec in the header: the harness compresses it.
        yield bytes((batches.PACK, 0)) + _framed(data, codec, 5)


def _writing() -> list[bytes]:
    head = struct.pack("<iB", 1000, 0)
    append = b"\x00\x01\x03key\x05value"
    with_headers = b"\x02\x01\xff\x05value\x02\x01h\x02hv\x02n2\xff"
    many = b"\x44\x01\x03\x01a\x00\x01b\x01\xff\x03\x01k\xff\x00\x00"
    wrong = [bytes((6 | which << 4, 1, 1, 107, 1, 118, 0, which)) for which in range(4)]
    ops = [
        append,
        with_headers,
        many,
        *wrong,
        b"\x05\x00\x10\x00\x00",
        b"\x47",
        b"\x00\x00\xfd" + b"12345678\x20\x01",
    ]
    small = [head + op for op in ops]
    packed = [struct.pack("<iB", 100_000, codec) + append * 9 for codec in Codec]
    return [*small, *packed, head + append + with_headers + many, struct.pack("<iB", -1, 0)]


def _values() -> list[bytes]:
    numbers = [0, 1, -1, 300, (1 << 63) - 1, -(1 << 63)]
    return [
        *(struct.pack("<qbB", number, 0, 1) + encode_varint(number) for number in numbers),
        struct.pack("<qbB", 7, 1, 1) + b"abcdefg" + b"\x03key\x05value\x04name\x02ab",
    ]


def _field(value: bytes | None) -> bytes:
    return encode_varint(-1) if value is None else encode_varint(len(value)) + value


def _record(
    key: bytes | None = None,
    value: bytes | None = None,
    headers: tuple[tuple[bytes, bytes | None], ...] = (),
    delta: int = 0,
) -> bytes:
    body = b"\0" + encode_varint(0) + encode_varint(delta) + _field(key) + _field(value)
    body += encode_varint(len(headers))
    body += b"".join(_field(name) + _field(data) for name, data in headers)
    return encode_varint(len(body)) + body


def _large_sections() -> Iterator[tuple[bytes, int]]:
    records: list[bytes] = []
    for key, value in ((None, None), (b"", b""), (b"ab", b"cd"), (b"x" * 100, b"y" * 1000)):
        size = 0
        records = []
        while size < LARGE - 1200:
            records.append(_record(key, value, delta=len(records)))
            size += len(records[-1])
        yield b"".join(records), len(records)
    # Headers grow most when they become objects: from two bytes to a tuple. Consecutive headers
    # differ, because the kernel shares the objects of equal ones.
    high = [bytes([byte]) for byte in range(0x80, 0x100)]  # none is valid UTF-8
    for names, data in (
        ([b""], None),
        ([b"n", b"m"], b"v"),
        ([b"%02x" % number for number in range(256)], None),
        (high, None),
        (high, b"v"),
        ([b"\xc4" + one for one in high[:64]], b"vw"),
    ):
        count = (LARGE - 100) // (len(_field(names[0])) + len(_field(data)))
        yield _record(headers=tuple((names[n % len(names)], data) for n in range(count))), 1
    yield _record(headers=tuple((b"%x" % n, b"") for n in range(9000))), 1
    yield _record(value=b"v" * (LARGE - 100)), 1


def _section_input(data: bytes, count: int) -> bytes:
    return _section_bytes(data, [count, 100, count - 1, TIME, TIME, 0], _READ_ALL)


def _batch_input(data: bytes, count: int, codec: Codec) -> bytes:
    return b"\0\0" + _framed(compress(codec, data), codec, count)


def _framed(payload: bytes, codec: Codec, count: int) -> bytes:
    return encode_batch(
        payload, codec=codec, count=count, base_timestamp=TIME, max_timestamp=TIME + 4
    )
