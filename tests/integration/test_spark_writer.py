"""Rows that Spark writes, and rows that cannot become records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.helpers import SPARKS_SIDE, as_bytes, create_topic_blocking
from tests.integration.test_spark import read, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kafka_async.testing.fixtures import ClusterHandle

pytestmark = [pytest.mark.spark, pytest.mark.mainly_on("embedded", reason=SPARKS_SIDE)]

ALL_COLUMNS = (
    "topic string, partition int, key string, value binary, "
    "headers array<struct<key: string, value: binary>>"
)


def test_all_columns_become_records_and_columns_again(
    kafka_cluster: ClusterHandle, spark: SparkSession
) -> None:
    topics = [create_topic_blocking(kafka_cluster, name, partitions=2) for name in ("a", "b")]
    rows: list[Any] = [
        (topics[0], 1, "k", b"v", [("h", b"x"), ("null", None)]),
        (topics[1], 0, None, None, None),
        (topics[0], 0, "", b"", []),
        (topics[1], None, "key", b"\xff", [("", b"")]),
    ]
    write(spark.createDataFrame(rows, ALL_COLUMNS), kafka_cluster)
    found: list[Any] = read(
        spark, kafka_cluster, subscribe=",".join(topics), includeHeaders="true"
    ).collect()
    back = {
        (
            row["topic"],
            as_bytes(row["key"]),
            as_bytes(row["value"]),
            tuple((each["key"], as_bytes(each["value"])) for each in row["headers"] or ()),
        )
        for row in found
    }
    assert back == {
        (topic, None if key is None else key.encode(), value, tuple(headers or ()))
        for topic, _, key, value, headers in rows
    }
    named = {as_bytes(row["key"]): row["partition"] for row in found if row["key"] != b"key"}
    assert named == {b"k": 1, None: 0, b"": 0}


def test_error_names_the_row(kafka_cluster: ClusterHandle, spark: SparkSession) -> None:
    """Checks one mistake; test_spark_row_errors has the others, without Spark's Java side."""
    topic = create_topic_blocking(kafka_cluster, partitions=1)
    rows: list[Any] = [(topic, "v", 0), (topic, "v", 7)]
    frame = spark.createDataFrame(rows, "topic string, value string, partition int").coalesce(1)
    message = r"rows\[1\]: the topic has the partitions 0 to 0"
    with pytest.raises(Exception, match=message):  # Spark wraps the source's exception.
        write(frame, kafka_cluster)
    assert read(spark, kafka_cluster, subscribe=topic).count() == 0
