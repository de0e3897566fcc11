"""Lists the reads, streams and writes that both connectors run."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from kafka_async.spark.offsets import OffsetRange
from kafka_async.spark.orchestrator.ranges import read_options
from tools.conformance.spark.topics import (
    APPENDED,
    COMPACTED,
    EMPTY,
    FIRST_TIMESTAMP,
    GROWING,
    PLAIN,
    SHRINKING,
    TRANSACTIONAL,
    TRIMMED,
    add_partition,
    delete_all_but,
    extend,
)

Options = Mapping[str, str]
COMMITTED: Final = {"kafka.isolation.level": "read_committed"}


@dataclass(frozen=True)
class Batch:
    """A batch read.

    Attributes:
        name: Name of the case.
        options: Options of the read.
        condition: Filter of the rows.
        tasks_differ: Reason for which the offsets of tasks are not compared.
    """

    name: str
    options: Options
    condition: str = "true"
    tasks_differ: str = ""


@dataclass(frozen=True)
class Stream:
    """Runs of a streaming query with one checkpoint.

    Attributes:
        name: Name of the case.
        options: Options of the read.
        between: Changes the topics before the second run; None: there is one run.
        other_format: The other connector does the first run.
    """

    name: str
    options: Options
    between: Callable[[str], None] | None = None
    other_format: bool = False


@dataclass(frozen=True)
class StreamWrite:
    """A streaming query whose sink is the target; the same connector reads its source.

    Attributes:
        name: Name of the case.
        columns: Columns of SQL for each row of the source, or for each group beside its key.
        options: Options of the read.
        groups: Column to group the rows by; empty: none.
        output_mode: Output mode of the query.
    """

    name: str
    columns: tuple[str, ...]
    options: Options
    groups: str = ""
    output_mode: str = "append"


@dataclass(frozen=True)
class Write:
    """A batch write of rows of SQL, in which `{topic}` is the target.

    Attributes:
        name: Name of the case.
        rows: The rows in SQL.
        options: Options of the write.
        has_target_option: The option topic names the target.
    """

    name: str
    rows: str
    options: Options = field(default_factory=dict[str, str])
    has_target_option: bool = True


def _json(document: object) -> str:
    return json.dumps(document)


ALL: Final = {"subscribe": PLAIN, "includeHeaders": "true"}
ONLY_IN_STREAMS: Final = "without minPartitions the connector splits by records only in streams"
SPECIFIC: Final = _json({PLAIN: {"0": 10, "1": -2, "2": 95}})
TIMES: Final = _json({PLAIN: {str(n): FIRST_TIMESTAMP + 90_500 + 10_000 * n for n in range(3)}})
LATE: Final = str(FIRST_TIMESTAMP + 10_000_000)


def _range_options() -> Options:
    """Return the options with which a job of the orchestrator reads its ranges."""
    ranges = [OffsetRange(PLAIN, 0, 7, 60), OffsetRange(TRANSACTIONAL, 1, 0, 9)]
    options = read_options(ranges, "")
    return {name: text for name, text in options.items() if name != "kafka.bootstrap.servers"}


BATCHES: Final = [
    Batch("all records", ALL),
    Batch("without headers", {"subscribe": PLAIN}),
    Batch("log append time", {"subscribe": APPENDED, "includeHeaders": "true"}),
    Batch("two topics", {"subscribe": f"{PLAIN}, {APPENDED}"}),
    Batch("empty topic", {"subscribe": EMPTY}),
    Batch("pattern", {"subscribePattern": "plain.*"}),
    Batch("pattern of parts of names", {"subscribePattern": "lain"}),
    Batch("pattern of whole names", {"subscribePattern": "^plain$"}),
    Batch("pattern with spaces", {"subscribePattern": " plain.* "}),
    Batch("pattern without topics", {"subscribePattern": "absent"}),
    Batch("assign", {"assign": _json({PLAIN: [0, 2], APPENDED: [0]})}),
    Batch("assign a missing partition", {"assign": _json({PLAIN: [9]})}),
    Batch("assign one more partition", {"assign": _json({PLAIN: [0, 9]})}),
    Batch("assign a missing topic", {"assign": _json({"missing": [0]})}),
    Batch("missing topic", {"subscribe": "missing"}),
    Batch("specific start", {**ALL, "startingOffsets": SPECIFIC}),
    Batch(
        "specific end",
        {**ALL, "endingOffsets": _json({PLAIN: {"0": 10, "1": -1, "2": 0}})},
    ),
    Batch(
        "start without one partition",
        {**ALL, "startingOffsets": _json({PLAIN: {"0": 5}})},
    ),
    Batch("end without one partition", {**ALL, "endingOffsets": _json({PLAIN: {"0": 5}})}),
    Batch(
        "starts at the latest of a partition",
        {**ALL, "startingOffsets": _json({PLAIN: {"0": 5, "1": 5, "2": -1}})},
    ),
    Batch(
        "start and end",
        {
            **ALL,
            "startingOffsets": _json({PLAIN: {"0": 7, "1": 8, "2": 9}}),
            "endingOffsets": _json({PLAIN: {"0": 8, "1": 8, "2": 90}}),
        },
    ),
    Batch("starts at latest", {**ALL, "startingOffsets": "latest"}),
    Batch("ends at earliest", {**ALL, "endingOffsets": "earliest"}),
    Batch(
        "ends at the earliest of a partition",
        {**ALL, "endingOffsets": _json({PLAIN: {"0": -2, "1": 5, "2": 5}})},
    ),
    Batch(
        "starts after the end",
        {**ALL, "startingOffsets": _json({PLAIN: {"0": 500, "1": 0, "2": 0}})},
    ),
    Batch(
        "starts after the end, loss allowed",
        {
            **ALL,
            "startingOffsets": _json({PLAIN: {"0": 500, "1": 0, "2": 0}}),
            "failOnDataLoss": "false",
        },
    ),
    Batch(
        "deleted records",
        {"subscribe": TRIMMED, "startingOffsets": _json({TRIMMED: {"0": 3, "1": 3}})},
    ),
    Batch(
        "deleted records, loss allowed",
        {
            "subscribe": TRIMMED,
            "startingOffsets": _json({TRIMMED: {"0": 3, "1": 3}}),
            "failOnDataLoss": "false",
        },
    ),
    Batch("earliest after a deletion", {"subscribe": TRIMMED}),
    Batch("starting timestamp", {**ALL, "startingTimestamp": str(FIRST_TIMESTAMP + 150_000)}),
    Batch("ending timestamp", {**ALL, "endingTimestamp": str(FIRST_TIMESTAMP + 150_500)}),
    Batch("timestamps by partition", {**ALL, "startingOffsetsByTimestamp": TIMES}),
    Batch("ends by partition", {**ALL, "endingOffsetsByTimestamp": TIMES}),
    Batch("timestamp before all", {**ALL, "startingTimestamp": "1"}),
    Batch("timestamp after all", {**ALL, "startingTimestamp": LATE}),
    Batch(
        "timestamp after all, latest",
        {
            **ALL,
            "startingTimestamp": LATE,
            "startingOffsetsByTimestampStrategy": "latest",
        },
    ),
    Batch("ending timestamp after all", {**ALL, "endingTimestamp": LATE}),
    Batch(
        "timestamp before offsets",
        {**ALL, "startingTimestamp": str(FIRST_TIMESTAMP + 200_000), "startingOffsets": SPECIFIC},
    ),
    Batch("uncommitted", {"subscribe": TRANSACTIONAL}),
    Batch("committed", {"subscribe": TRANSACTIONAL, **COMMITTED}),
    Batch("committed, split", {"subscribe": TRANSACTIONAL, **COMMITTED, "minPartitions": "7"}),
    Batch("compacted", {"subscribe": COMPACTED}),
    Batch("compacted, split", {"subscribe": COMPACTED, "minPartitions": "5"}),
    Batch("7 tasks", {**ALL, "minPartitions": "7"}),
    Batch("2 tasks", {**ALL, "minPartitions": "2"}),
    Batch(
        "30 records per task", {**ALL, "maxRecordsPerPartition": "30"}, tasks_differ=ONLY_IN_STREAMS
    ),
    Batch("both limits", {**ALL, "minPartitions": "4", "maxRecordsPerPartition": "70"}),
    Batch("condition", ALL, "partition = 1 and offset >= 20 and timestamp < '2023-11-14 22:16:00'"),
    Batch("ranges of the orchestrator", _range_options()),
    Batch("two selections", {"subscribe": PLAIN, "assign": _json({PLAIN: [0]})}),
    Batch("starting offsets -3", {**ALL, "startingOffsets": _json({PLAIN: {"0": -3}})}),
    Batch("no offsets", {**ALL, "startingOffsets": "first"}),
    Batch("minPartitions 0", {**ALL, "minPartitions": "0"}),
    Batch("group id", {**ALL, "kafka.group.id": "some-group"}),
    Batch("auto.offset.reset", {**ALL, "kafka.auto.offset.reset": "latest"}),
    Batch("small fetches", {**ALL, "kafka.max.partition.fetch.bytes": "500"}),
]

EARLIEST: Final = {"startingOffsets": "earliest", "includeHeaders": "true"}


def _grow(servers: str) -> None:
    extend(servers, GROWING, 101)


def _grow_partitions(servers: str) -> None:
    add_partition(servers)
    extend(servers, GROWING, 100)


def _lose_records(servers: str) -> None:
    extend(servers, SHRINKING, 100)
    delete_all_but(servers, SHRINKING, 20)


STREAMS: Final = [
    Stream("all available", {**EARLIEST, "subscribe": PLAIN}),
    Stream("70 offsets per batch", {**EARLIEST, "subscribe": PLAIN, "maxOffsetsPerTrigger": "70"}),
    Stream(
        "2 offsets per batch",
        {**EARLIEST, "assign": _json({PLAIN: [1]}), "maxOffsetsPerTrigger": "40"},
    ),
    Stream(
        "limit over uneven partitions",
        {
            "startingOffsets": _json({PLAIN: {"0": 90, "1": 50, "2": -2}}),
            "subscribe": PLAIN,
            "maxOffsetsPerTrigger": "50",
        },
    ),
    Stream("pattern", {**EARLIEST, "subscribePattern": "plain.*", "maxOffsetsPerTrigger": "250"}),
    Stream("starts by time", {"subscribe": PLAIN, "startingOffsetsByTimestamp": TIMES}),
    Stream("committed", {**EARLIEST, **COMMITTED, "subscribe": TRANSACTIONAL}),
    Stream(
        "committed, 9 offsets per batch",
        {**EARLIEST, **COMMITTED, "subscribe": TRANSACTIONAL, "maxOffsetsPerTrigger": "9"},
    ),
    Stream("compacted", {**EARLIEST, "subscribe": COMPACTED, "maxOffsetsPerTrigger": "30"}),
    Stream("deleted records", {**EARLIEST, "subscribe": TRIMMED, "maxOffsetsPerTrigger": "100"}),
    Stream("empty topic", {**EARLIEST, "subscribe": EMPTY}),
    Stream("ending offsets", {**EARLIEST, "subscribe": PLAIN, "endingOffsets": "latest"}),
    Stream(
        "minimum that is not reached",
        {**EARLIEST, "subscribe": PLAIN, "minOffsetsPerTrigger": "5000"},
    ),
    Stream("new records from the latest on", {"subscribe": GROWING}, _grow),
    Stream(
        "checkpoint of the other connector",
        {**EARLIEST, "subscribe": GROWING, "maxOffsetsPerTrigger": "150"},
        _grow,
        other_format=True,
    ),
    Stream("new partition", {**EARLIEST, "subscribe": GROWING}, _grow_partitions),
    Stream("starting timestamp", {**ALL, "startingTimestamp": str(FIRST_TIMESTAMP + 150_000)}),
    Stream("timestamp after all", {**ALL, "startingTimestamp": LATE}),
    Stream(
        "timestamp after all, latest",
        {**ALL, "startingTimestamp": LATE, "startingOffsetsByTimestampStrategy": "latest"},
    ),
    Stream("7 tasks", {**EARLIEST, "subscribe": PLAIN, "minPartitions": "7"}),
    Stream(
        "30 records per task",
        {**EARLIEST, "subscribe": PLAIN, "maxRecordsPerPartition": "30"},
    ),
    Stream(
        "records lost between runs",
        {**EARLIEST, "subscribe": SHRINKING},
        _lose_records,
    ),
    Stream(
        "records lost between runs, loss allowed",
        {**EARLIEST, "subscribe": SHRINKING, "failOnDataLoss": "false"},
        _lose_records,
    ),
]

STREAM_WRITES: Final = [
    StreamWrite("keys, values and headers", ("key", "value", "headers"), {**ALL, **EARLIEST}),
    StreamWrite(
        "three batches",
        ("key", "value", "partition"),
        {**EARLIEST, "subscribe": PLAIN, "maxOffsetsPerTrigger": "100"},
    ),
    StreamWrite(
        "whole result of each batch",
        ("cast(count(*) as string) as value",),
        {**EARLIEST, "subscribe": PLAIN, "maxOffsetsPerTrigger": "100"},
        groups="key",
        output_mode="complete",
    ),
    StreamWrite("no value", ("key",), {**EARLIEST, "subscribe": PLAIN}),
]

NUMBERS: Final = "select concat('k', id % 7) as key, concat('v', id) as value{more} from range(100)"

WRITES: Final = [
    Write("keys and values", NUMBERS.replace("{more}", "")),
    Write("values only", "select cast(id as string) as value from range(100)"),
    Write(
        "binary columns",
        "select cast(concat('k', id) as binary) key, cast('v' as binary) value from range(20)",
    ),
    Write("null values", "select 'k' as key, cast(null as string) as value from range(5)"),
    Write("null keys", "select cast(null as string) as key, 'v' as value from range(5)"),
    Write("empty strings", "select '' as key, '' as value from range(3)"),
    Write("partitions", NUMBERS.replace("{more}", ", cast(id % 3 as int) as partition")),
    Write(
        "headers",
        NUMBERS.replace(
            "{more}",
            ", array(named_struct('key', 'h', 'value', cast(id as binary)), "
            "named_struct('key', 'n', 'value', cast(null as binary))) as headers",
        ).replace("id as binary", "cast(id as string) as binary"),
        {"includeHeaders": "true"},
    ),
    Write(
        "null headers",
        "select 'v' as value, cast(null as array<struct<key: string, value: binary>>) as headers",
        {"includeHeaders": "true"},
    ),
    Write("topic column", "select '{topic}' as topic, 'v' as value", has_target_option=False),
    Write("topic column and option", "select 'elsewhere' as topic, 'v' as value"),
    Write("other columns", "select 'v' as value, 1 as other"),
    Write("columns of a read", "select 'v' value, 1L offset, now() timestamp, 0 timestampType"),
    Write("null topic", "select cast(null as string) as topic, 'v' as value", {}, False),
    Write("no topic", "select 'v' as value", has_target_option=False),
    Write("no value", "select 'k' as key"),
    Write("integer value", "select 1 as value"),
    Write("text as partition", "select 'v' as value, '1' as partition"),
    Write("long as partition", "select 'v' as value, 1L as partition"),
    Write(
        "missing partition", "select 'v' as value, 77 as partition", {"kafka.max.block.ms": "3000"}
    ),
]
