"""`send_arrow` of a producer and of a transaction."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from kafka_async.errors import (
    ClientClosedError,
    DeliveryError,
    IllegalStateError,
    RecordTooLargeError,
    UnknownTopicOrPartitionError,
)
from kafka_async.producer.buffer.accumulator import Accumulator
from tests.embedded_client import IterationCounter
from tests.producer.arrow_rows import HEADER, SCHEMA
from tests.producer.bench import Bench

pa: Any = pytest.importorskip("pyarrow")

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]

TOPICS = {"clicks": [1, 1, 1], "views": [1]}


def rows(values: Sequence[Any], **columns: Any) -> Any:
    """Return a record batch of values and other columns."""
    made: dict[str, Any] = {"value": pa.array(values, pa.binary()), **columns}
    return pa.RecordBatch.from_pydict(made)


async def test_rows_keep_their_order_per_partition_over_many_batches() -> None:
    values = [b"%d" % number for number in range(20_000)]
    async with Bench(TOPICS, batch_size=1_000, buffer_memory=30_000) as bench:
        await bench.producer.send_arrow(rows(values), "clicks")
        await bench.producer.flush()
        found = [bench.values("clicks", number) for number in range(3)]
        assert sorted(value or b"" for value in itertools.chain(*found)) == sorted(values)
        for part in found:
            assert part == sorted(part, key=lambda value: int(value or b""))
        assert bench.producer.statistics().buffer_available_bytes == 30_000


async def test_slices_and_other_types_of_columns() -> None:
    wide = pa.RecordBatch.from_pydict(
        {
            "value": pa.array(["-", "a", None, "c", "-"], pa.large_string()),
            "key": pa.array([b"-", None, b"", b"\xff", b"-"], pa.large_binary()),
            "partition": pa.array([9, 0, None, 0, 9], pa.int32()),
            "timestamp": pa.array(
                [None, datetime.fromtimestamp(5.0015, UTC), None, None, None],
                pa.timestamp("us", tz="UTC"),
            ),
            "headers": pa.array(
                [None, [("n", b"1"), ("m", None)], [], None, None], pa.large_list(HEADER)
            ),
        }
    ).slice(1, 3)
    async with Bench(TOPICS) as bench:
        assert await bench.producer.send_arrow(wide, topic="views") == 3
        await bench.producer.flush()
        found = bench.records("views")
    assert [(row.key, row.value) for row in found] == [(None, b"a"), (b"", None), (b"\xff", b"c")]
    assert [list(row.headers) for row in found] == [[("n", b"1"), ("m", None)], [], []]
    assert found[0].timestamp == 5001
    assert found[1].timestamp > 5001


@pytest.mark.parametrize(
    "values",
    [
        pa.array([b"ab", None, b"cd"], pa.binary(2)),
        pa.array(["ab", None, "cd"], pa.string_view()),
        pa.array([b"ab", None, b"cd"], pa.binary_view()),
        pa.array(["ab", None, "cd"]).dictionary_encode(),
        pa.array([b"ab", None, b"cd"], pa.large_binary()),
    ],
    ids=lambda values: str(values.type),
)
async def test_values_of_types_that_are_cast(values: Any) -> None:
    async with Bench(TOPICS) as bench:
        await bench.producer.send_arrow(pa.RecordBatch.from_arrays([values], ["value"]), "views")
        await bench.producer.flush()
        assert bench.values("views") == [b"ab", None, b"cd"]


class Stream:
    """Arrow data of another library."""

    def __init__(self, table: Any) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._table.__arrow_c_stream__(requested_schema)


class OneBatch:
    """A record batch of another library."""

    def __init__(self, batch: Any) -> None:
        self._batch = batch

    def __arrow_c_array__(self, requested_schema: Any = None) -> Any:
        return self._batch.__arrow_c_array__(requested_schema)


async def test_accepts_arrow_data_of_other_libraries() -> None:
    given: list[Any] = [Stream(pa.Table.from_batches([rows([b"a"])])), OneBatch(rows([b"b"]))]
    async with Bench(TOPICS) as bench:
        for data in given:
            assert await bench.producer.send_arrow(data, "views") == 1
        await bench.producer.flush()
        assert bench.values("views") == [b"a", b"b"]


async def test_names_may_be_strings_in_views_as_of_polars() -> None:
    header = pa.struct([("key", pa.string_view()), ("value", pa.binary_view())])
    data = rows(
        [b"a", b"b", b"c"],
        topic=pa.array(["views", "clicks", "views"], pa.string_view()),
        headers=pa.array([[("name", b"1")], None, []], pa.large_list(header)),
    )
    async with Bench(TOPICS) as bench:
        await bench.producer.send_arrow(data)
        await bench.producer.flush()
        assert bench.values("views") == [b"a", b"c"]
        assert list(bench.records("views")[0].headers) == [("name", b"1")]


@pytest.mark.parametrize(("unit", "per_ms"), [("us", 1_000), ("ns", 1_000_000)])
async def test_times_before_1970_are_rounded_down_like_others(unit: str, per_ms: int) -> None:
    times = pa.array([0, None, 1_999 * per_ms // 1_000, 2 * per_ms], pa.timestamp(unit, tz="UTC"))
    before = pa.array([-1_001 * per_ms // 1_000], pa.timestamp(unit))
    async with Bench(TOPICS) as bench:
        await bench.producer.send_arrow(rows([b""] * 4, timestamp=times), "views")
        with pytest.raises(ValueError, match=r"rows\[0\]: a timestamp is -1 to .*, not -2"):
            await bench.producer.send_arrow(rows([b""], timestamp=before), "views")
        await bench.producer.flush()
        found = [row.timestamp for row in bench.records("views")]
    assert (found[0], *found[2:]) == (0, 1, 2)


async def test_no_rows_append_nothing() -> None:
    async with Bench(TOPICS) as bench:
        assert await bench.producer.send_arrow(rows([]), "views") == 0
        assert await bench.producer.send_arrow(pa.RecordBatch.from_pylist([], schema=SCHEMA)) == 0
        empty: Any = pa.Table.from_batches([], schema=SCHEMA)
        assert await bench.producer.send_arrow(empty) == 0


async def test_waits_for_the_metadata_of_a_topic() -> None:
    async with Bench({}, settings={"auto_create_topics": True}) as bench:
        await bench.producer.send_arrow(rows([b"a", b"b"]), "created")
        await bench.producer.flush()
        created = bench.cluster.topics.get("created")
        assert created is not None
        found = [bench.values("created", number) for number in range(len(created.partitions))]
        assert sorted(value or b"" for value in itertools.chain(*found)) == [b"a", b"b"]


async def test_few_rows_become_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows become objects only where a batch is opened, grows or is closed."""
    appended: list[int] = []
    append: Any = Accumulator.append

    def counted(self: Any, *arguments: Any) -> Any:
        appended.append(1)
        return append(self, *arguments)

    monkeypatch.setattr(Accumulator, "append", counted)
    async with Bench({"clicks": [1]}, linger_ms=5) as bench:
        values = [b"v" * 50] * 50_000
        await bench.producer.send_arrow(rows(values), "clicks")
        await bench.producer.flush()
        assert len(appended) <= 10 * len(bench.batches("clicks"))
        assert len(bench.records("clicks")) == 50_000


async def test_yields_to_the_event_loop_while_rows_are_appended() -> None:
    async with Bench({"clicks": [1]}) as bench, IterationCounter() as iterations:
        await bench.producer.send_arrow(rows([b"v" * 1_000] * 20_000), "clicks")
        assert iterations.count >= 100  # of 20 MB, in batches of 128 KiB
        await bench.producer.flush()


async def test_failure_of_a_batch_is_raised_by_flush() -> None:
    async with Bench({"views": [1]}) as bench:
        bench.refuse("TOPIC_AUTHORIZATION_FAILED")
        await bench.producer.send_arrow(rows([b"a", b"b"]), "views")
        with pytest.raises(DeliveryError, match="2 records were not delivered"):
            await bench.producer.flush()


async def test_transaction_writes_rows() -> None:
    async with Bench(TOPICS, transactional_id="t") as bench:
        async with bench.producer.transaction() as txn:
            with pytest.raises(IllegalStateError):
                await bench.producer.send_arrow(rows([b"no"]), "views")
            assert await txn.send_arrow(rows([b"a", b"b"]), "views") == 2
        with pytest.raises(IllegalStateError):
            await txn.send_arrow(rows([b"late"]), "views")
        assert bench.values("views")[:2] == [b"a", b"b"]


async def test_stopped_producer_appends_nothing() -> None:
    async with Bench(TOPICS) as bench:
        await bench.producer.send_arrow(rows([b"a"]), "views")
        await bench.producer.stop()
        with pytest.raises(ClientClosedError):
            await bench.producer.send_arrow(rows([b"b"]), "views")
        assert bench.values("views") == [b"a"]


async def test_custom_partitioner_chooses_the_partition() -> None:
    def last(topic: str, key: bytes | None, count: int) -> int:
        return count - 1

    async with Bench(TOPICS, partitioner=last) as bench:
        await bench.producer.send_arrow(rows([b"a", b"b"], key=pa.array([b"1", b"2"])), "clicks")
        await bench.producer.flush()
        assert bench.values("clicks", 2) == [b"a", b"b"]


# -- wrong rows and columns -----------------------------------------------------------------------

GOOD = [b"v"] * 3
KEYS = pa.array([b"k"] * 3)


@pytest.mark.parametrize(
    ("data", "kind", "message"),
    [
        ({"value": [b"v"], "topic": [None]}, ValueError, r"rows\[0\]: topic is null"),
        (
            {"value": GOOD, "topic": ["views", None, "views"]},
            ValueError,
            r"rows\[1\]: topic is null: set it, or give one topic for all rows",
        ),
        ({"value": [b"v"], "topic": [""]}, ValueError, "must not be empty"),
        ({"value": [b"v"]}, ValueError, "neither an argument topic nor a column topic"),
        ({"key": [b"v"], "topic": ["views"]}, ValueError, "there is no column value"),
        ({"value": [b"v"], "offset": [1]}, ValueError, "column offset is not part of a record"),
        ({"value": [1], "topic": ["views"]}, TypeError, "column value must be binary or string"),
        ({"value": GOOD, "key": [1.5] * 3, "topic": ["views"] * 3}, TypeError, "column key must"),
        ({"value": [b"v"], "topic": [b"views"]}, TypeError, "column topic must be string"),
        (
            {"value": [b"v"], "topic": ["views"], "partition": [0]},
            TypeError,
            "column partition must be int32, not int64",
        ),
        (
            {"value": [b"v"], "topic": ["views"], "timestamp": [1.5]},
            TypeError,
            "column timestamp must be a timestamp, or int64 in milliseconds",
        ),
        (
            {"value": [b"v"], "topic": ["views"], "headers": [["a"]]},
            TypeError,
            "column headers must be list<struct<key: string, value: binary>>",
        ),
        (
            {"value": [b"v"], "topic": ["views"], "headers": [[{"key": "a", "other": b""}]]},
            TypeError,
            "column headers must be",
        ),
        (
            {"value": [b"v"], "topic": ["views"], "headers": [[{"key": "a", "value": 1}]]},
            TypeError,
            "column headers must be",
        ),
    ],
)
async def test_wrong_columns_raise_an_error_that_names_them(
    data: dict[str, list[Any]], kind: type[Exception], message: str
) -> None:
    async with Bench(TOPICS) as bench:
        with pytest.raises(kind, match=message):
            await bench.producer.send_arrow(pa.RecordBatch.from_pydict(data))
        assert bench.memory_in_use == 0


async def test_column_that_occurs_twice_raises() -> None:
    twice: Any = pa.RecordBatch.from_arrays([pa.array(GOOD)] * 2, ["value", "value"])
    async with Bench(TOPICS) as bench:
        with pytest.raises(ValueError, match="several columns value"):
            await bench.producer.send_arrow(twice, "views")


@pytest.mark.parametrize("data", [[b"v"], {"value": [b"v"]}, b"v", None])
async def test_other_data_raises(data: Any) -> None:
    async with Bench(TOPICS) as bench:
        with pytest.raises(TypeError, match="rows must be an Arrow record batch or table"):
            await bench.producer.send_arrow(data, "views")


BAD_HEADERS = [None, None, [{"key": None, "value": b""}]]
BAD_STRUCT = [None, None, [None]]


@pytest.mark.parametrize(
    ("columns", "kind", "message"),
    [
        ({"partition": pa.array([0, None, -1], pa.int32())}, ValueError, "not -1"),
        (
            {"partition": pa.array([0, None, 3], pa.int32())},
            UnknownTopicOrPartitionError,
            "the topic has the partitions 0 to 2: name one of those, or add partitions",
        ),
        ({"timestamp": pa.array([0, None, -2])}, ValueError, "a timestamp is -1 to .*, not -2"),
        (
            {"headers": pa.array(BAD_HEADERS, pa.list_(HEADER))},
            ValueError,
            "the name of a header is null",
        ),
        (
            {"headers": pa.array(BAD_STRUCT, pa.list_(HEADER))},
            ValueError,
            "the name of a header is null",
        ),
        (
            {"value": pa.array([b"", b"", b"v" * 2**20])},
            RecordTooLargeError,
            "1048673 bytes are more than max_request_size=1048576 allows",
        ),
    ],
)
async def test_wrong_row_raises_an_error_that_names_it_before_any_row_is_appended(
    columns: dict[str, Any], kind: type[Exception], message: str
) -> None:
    good = rows(GOOD)
    bad = (
        rows(**{"values": GOOD, **columns})
        if "value" not in columns
        else (pa.RecordBatch.from_pydict(columns))
    )
    async with Bench(TOPICS) as bench:
        with pytest.raises(kind, match=rf"rows\[2\]: .*{message}"):
            await bench.producer.send_arrow(bad, "clicks")
        # Rows of a table are numbered from its beginning.
        table = pa.concat_tables(
            [pa.Table.from_batches([good]), pa.Table.from_batches([bad])], promote_options="default"
        )
        with pytest.raises(kind, match=rf"rows\[5\]: .*{message}"):
            await bench.producer.send_arrow(table, "clicks")
        assert bench.memory_in_use == 0
        await bench.producer.flush()
        assert bench.values("clicks") == []


async def test_partition_that_was_added_is_found() -> None:
    async with Bench({"views": [1]}) as bench:
        await bench.producer.send_arrow(rows([b"a"]), "views")
        await bench.lead("views", 1, 1)
        await bench.producer.send_arrow(rows([b"b"], partition=pa.array([1], pa.int32())), "views")
        await bench.producer.flush()
        assert bench.values("views", 1) == [b"b"]


async def test_missing_topic_raises() -> None:
    async with Bench({}, max_block_ms=1_000) as bench:
        with pytest.raises(UnknownTopicOrPartitionError, match="missing"):
            await bench.producer.send_arrow(rows([b"a"]), "missing")


async def test_full_buffer_delays_the_rows() -> None:
    async with Bench({"views": [1]}, buffer_memory=20_000, batch_size=1_000) as bench:
        held = bench.hold()
        task = asyncio.ensure_future(bench.producer.send_arrow(rows([b"v" * 500] * 100), "views"))
        await asyncio.sleep(1)
        assert not task.done()
        held.release()
        assert await task == 100
        await bench.producer.flush()
        assert len(bench.values("views")) == 100
