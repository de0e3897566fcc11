"""Rows that cannot become records, in the writers as Spark's tasks call them.

`test_spark_writer` has batch writes without exactlyOnce, and `test_spark_stream_writer` a query.
"""

from __future__ import annotations

import asyncio
import pickle
import re
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async import blocking
from tests.integration.helpers import create_topic_blocking, read_values

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafka_async.testing.fixtures import ClusterHandle

pytestmark = pytest.mark.spark

GOOD = ("{topic}", "v", 0)
BAD: dict[str, tuple[tuple[str | None, str, int], str]] = {
    "null topic": ((None, "v", 0), r"topic is null"),
    "oversized": (
        ("{topic}", "v" * 2**20, 0),
        r"1048\d+ bytes are more than max_request_size=1048576",
    ),
    "wrong partition": (("{topic}", "v", 7), r"the topic has the partitions 0 to 0"),
    "negative partition": (("{topic}", "v", -1), r"partition must be 0 to 2147483647, not -1"),
}


def schema() -> Any:
    """Return the schema of the rows; pyspark is imported by the tests only."""
    from pyspark.sql.types import IntegerType, StringType, StructType

    return (
        StructType()
        .add("topic", StringType())
        .add("value", StringType())
        .add("partition", IntegerType())
    )


class Context:
    """Tells a task of the first epoch of a query about itself, as Spark does."""

    def partitionId(self) -> int:
        return 0

    def attemptNumber(self) -> int:
        return 0

    def getLocalProperty(self, name: str) -> str:
        return {"sql.streaming.queryId": "q", "streaming.sql.batchId": "0"}[name]


def tasks_rows(rows: list[Any], *, streaming: bool) -> Iterator[Any]:
    """Return rows as the installed version of Spark gives them to a writer."""
    from kafka_async.spark.sink.stream_writer import arrow_batches, gives_arrow_batches

    if streaming and not gives_arrow_batches():
        return iter(rows)
    return arrow_batches(rows, schema())


WRITERS = pytest.mark.parametrize(
    ("streaming", "exactly_once"), [(True, False), (False, True), (True, True)]
)


def write_bad_row(
    cluster: ClusterHandle, row: tuple[Any, ...], *, streaming: bool, exactly_once: bool
) -> None:
    """Write four rows, of which the third is bad, in a task."""
    from kafka_async.spark.source import KafkaDataSource

    topic = create_topic_blocking(cluster)
    options = {"kafka.bootstrap.servers": cluster.bootstrap_servers}
    if exactly_once:
        ledger = {"sinkId": cluster.topic("sink"), "ledgerTopic": cluster.topic("ledger")}
        options |= {"exactlyOnce": "true", **ledger}
    source = KafkaDataSource(options)
    writer: Any = (source.streamWriter if streaming else source.writer)(schema(), False)
    writer = pickle.loads(pickle.dumps(writer))  # A task has a copy.
    rows = [
        tuple(cell.format(topic=topic) if isinstance(cell, str) else cell for cell in each)
        for each in (GOOD, GOOD, row, GOOD)
    ]
    writer.write(tasks_rows(rows, streaming=streaming))


@pytest.fixture(autouse=True)
def task(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run each test as in a task of Spark."""
    from pyspark import TaskContext

    monkeypatch.setattr(TaskContext, "get", Context)


@pytest.mark.parametrize("case", BAD)
@WRITERS
def test_error_names_the_row(
    kafka_cluster: ClusterHandle, case: str, streaming: bool, exactly_once: bool
) -> None:
    row, message = BAD[case]
    with pytest.raises(Exception, match=rf"rows\[2\]: .*{message}"):
        write_bad_row(kafka_cluster, row, streaming=streaming, exactly_once=exactly_once)
    check_nothing_was_written(kafka_cluster)


@WRITERS
def test_error_in_a_later_arrow_batch_has_the_index_of_the_row_in_the_task(
    kafka_cluster: ClusterHandle,
    monkeypatch: pytest.MonkeyPatch,
    streaming: bool,
    exactly_once: bool,
) -> None:
    from kafka_async.spark.sink import stream_writer

    monkeypatch.setattr(stream_writer, "MAX_ROWS_PER_CONVERSION", 2)
    with pytest.raises(ValueError, match=r"rows\[0\]: .*topic is null") as raised:
        write_bad_row(
            kafka_cluster, BAD["null topic"][0], streaming=streaming, exactly_once=exactly_once
        )
    assert raised.value.__notes__ == ["rows[0] is the row with the index 2 of the task"]
    if exactly_once:
        check_nothing_was_written(kafka_cluster)


def check_nothing_was_written(cluster: ClusterHandle) -> None:
    """Check that the topic is empty, and that no transaction of the sink is open."""
    assert asyncio.run(read_values(cluster, cluster.topic())) == []
    with blocking.Admin(cluster.bootstrap_servers) as admin:
        pattern = f"{re.escape(cluster.topic('sink'))}:.*"
        assert admin.list_transactions(states=["Ongoing"], pattern=pattern) == {}
