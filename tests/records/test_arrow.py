"""Tests of the conversion of batches to Arrow."""

from __future__ import annotations

import datetime
import json
import struct
import sys
from pathlib import Path
from typing import Any

import crc32c
import pytest

from kafka_async.errors import (
    CorruptRecordError,
    InvalidConfigurationError,
    UnsupportedForMessageFormatError,
)
from kafka_async.records.arrow import MIN_KEPT_ROWS, arrow_schema, to_arrow
from kafka_async.records.batch import RecordBatch, assign_offsets, iter_batches
from kafka_async.types import ProducerRecord
from tests.programs import output_of

pytestmark = pytest.mark.usefixtures("kernel")

DATA = Path(__file__).parent / "data" / "java_batches.json"
CASES: dict[str, Any] = json.loads(DATA.read_text())["cases"]
JAVA = [name for name in CASES if name.startswith("v2")]
TIME = 1_700_000_000_000


def batch(*records: ProducerRecord, base_offset: int = 0, codec: str = "none") -> bytes:
    return assign_offsets(RecordBatch.build(records, codec).frame(), base_offset, 1)


def convert(data: bytes, **options: Any) -> list[dict[str, Any]]:
    views = iter_batches(data, topic="t", partition=3)
    table = to_arrow(views, topic="t", partition=3, **options)
    table.validate(full=True)
    return table.to_pylist()


def row(offset: int, time: int, value: bytes | None = b"v", key: bytes | None = None) -> Any:
    moment = datetime.datetime.fromtimestamp(0, datetime.UTC) + datetime.timedelta(
        milliseconds=time
    )
    return {
        "key": key,
        "value": value,
        "topic": "t",
        "partition": 3,
        "offset": offset,
        "timestamp": moment,
        "timestampType": 0,
    }


def test_columns_match_sparks_kafka_source() -> None:
    schema: Any = arrow_schema(headers=True)
    assert [[field.name, str(field.type)] for field in schema] == [
        ["key", "binary"],
        ["value", "binary"],
        ["topic", "string"],
        ["partition", "int32"],
        ["offset", "int64"],
        ["timestamp", "timestamp[us, tz=UTC]"],
        ["timestampType", "int32"],
        ["headers", "list<item: struct<key: string, value: binary>>"],
    ]
    assert arrow_schema().names == arrow_schema(headers=True).names[:-1]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_converts_records_to_rows(codec: str) -> None:
    first = batch(
        ProducerRecord("t", b"v", timestamp=TIME),
        ProducerRecord("t", None, b"k", timestamp=TIME + 1),
        codec=codec,
    )
    second = batch(ProducerRecord("t", b"", b"", timestamp=-1), base_offset=10, codec=codec)
    assert convert(first + second) == [
        row(0, TIME),
        row(1, TIME + 1, None, b"k"),
        row(10, -1, b"", b""),
    ]


@pytest.mark.parametrize("name", JAVA)
def test_rows_match_records_read_by_java(name: str) -> None:
    rows = convert(bytes.fromhex(CASES[name]["hex"]), headers=True)
    assert [
        (row["offset"], row["key"], row["value"], row["headers"], row["timestampType"])
        for row in rows
    ] == [
        (
            offset,
            None if key is None else bytes.fromhex(key),
            None if value is None else bytes.fromhex(value),
            [
                {"key": name, "value": None if data is None else bytes.fromhex(data)}
                for name, data in headers
            ]
            or None,
            batch["timestamp_type"],
        )
        for batch in CASES[name]["batches"]
        if not batch["control"]
        for offset, _, key, value, headers in batch["records"]
    ]


def test_converts_only_requested_offsets() -> None:
    data = batch(*(ProducerRecord("t", b"%d" % n, timestamp=TIME) for n in range(10)))
    assert [row["offset"] for row in convert(data, start=3, end=6)] == [3, 4, 5]
    assert convert(data, start=10) == []


def test_each_row_has_the_topic_whatever_the_size_of_batches_before() -> None:
    for topic, count in [("t", 3), ("t", MIN_KEPT_ROWS + 1), ("t", 2), ("\u00e9", 5)]:
        data = batch(*(ProducerRecord(topic, b"v", timestamp=TIME) for _ in range(count)))
        rows = to_arrow(iter_batches(data), topic=topic, partition=0)
        rows.validate(full=True)
        assert rows.column("topic").to_pylist() == [topic] * count


def test_no_batches_give_no_rows() -> None:
    assert convert(b"", headers=True) == []


def test_arrow_batch_does_not_reference_the_buffer() -> None:
    buffer = bytearray(batch(ProducerRecord("t", b"v", timestamp=TIME)))
    views = list(iter_batches(buffer))
    table = to_arrow(views, topic="t", partition=3)
    buffer[61:] = bytes(len(buffer) - 61)
    assert table.to_pylist() == [row(0, TIME)]


def test_does_not_import_pandas() -> None:
    program = f"""
import sys
from kafka_async.records.arrow import to_arrow
from kafka_async.records.batch import iter_batches
to_arrow(iter_batches({batch(ProducerRecord("t", b"v", timestamp=TIME))!r}), topic="t", partition=0)
print(*{{"pyarrow", "pandas"}} & set(sys.modules))
"""
    assert output_of("-c", program) == "pyarrow\n"


def test_timestamp_beyond_microseconds_is_corrupt() -> None:
    data = batch(ProducerRecord("t", b"v", timestamp=1 << 62))
    with pytest.raises(CorruptRecordError, match="microseconds") as caught:
        convert(data)
    assert (caught.value.topic, caught.value.partition) == ("t", 3)


def test_corruption_names_topic_partition_and_offset() -> None:
    data = bytearray(batch(ProducerRecord("t", b"v"), base_offset=7))
    data[-1] = 9
    struct.pack_into(">I", data, 17, crc32c.crc32c(bytes(data[21:])))
    with pytest.raises(CorruptRecordError) as caught:
        convert(bytes(data))
    assert caught.value.offset == 7


def test_message_sets_are_not_supported() -> None:
    with pytest.raises(UnsupportedForMessageFormatError):
        convert(bytes.fromhex(CASES["v1-none"]["hex"]))


def test_missing_pyarrow_raises_invalid_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(
        InvalidConfigurationError, match=r"the extra spark: pip install '\.\[spark\]'"
    ):
        arrow_schema()
