"""The data source in Spark on a listener with TLS and SASL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kafka_async import blocking
from kafka_async.admin import AclOperation
from tests.integration.helpers import create_topic_blocking
from tests.integration.secure_cluster import ADMIN, USERS
from tests.integration.test_spark_permissions import allow, once_allowed, options_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.integration.secure_cluster import SecureCluster

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.mark.one_backend("apache")
def test_writes_and_reads_with_a_password_from_a_file(
    secure_cluster: SecureCluster, spark: SparkSession, tmp_path: Path
) -> None:
    password = tmp_path / "password"
    password.touch(0o600)
    password.write_text(USERS[ADMIN])
    topic = create_topic_blocking(secure_cluster.handle, partitions=2)
    options: dict[str, Any] = {
        "kafka.bootstrap.servers": secure_cluster.servers("SASL_SSL"),
        "security_protocol": "SASL_SSL",
        "ssl_cafile": secure_cluster.certificates.cafile,
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_username": ADMIN,
        "sasl_password_file": str(password),
    }
    rows = spark.createDataFrame([(b"one",), (b"two",), (b"three",)], ["value"])
    rows.write.format("kafka_async").mode("append").options(**options, topic=topic).save()
    read = spark.read.format("kafka_async").options(**options, subscribe=topic).load()
    assert sorted(row["value"] for row in read.collect()) == [b"one", b"three", b"two"]


def test_error_names_the_topic_and_the_missing_permission(
    secure_cluster: SecureCluster, spark: SparkSession
) -> None:
    from kafka_async.spark.source.reader import BatchReader
    from kafka_async.spark.source.source_options import source_options

    topic = create_topic_blocking(secure_cluster.handle)
    with blocking.Producer(secure_cluster.handle.bootstrap_servers) as producer:
        producer.send(topic, b"v")
    options = options_of(secure_cluster)
    source = spark.read.format("kafka_async").options(**options, subscribe=topic)
    rows = spark.createDataFrame([(b"w",)], ["value"])
    sink = rows.write.format("kafka_async").mode("append").options(**options, topic=topic)
    # A producer id needs another permission, whose lack would be the first error.
    sink = sink.option("kafka.enable.idempotence", "false")

    def read() -> int:
        return source.load().count()

    def missing(call: Callable[[], object], operation: str) -> None:
        message = rf"{topic}(-0)?: the principal lacks {operation}"
        with pytest.raises(Exception, match=message):  # Spark wraps it.
            call()

    missing(read, "DESCRIBE on the topic")
    missing(sink.save, r"DESCRIBE \(or CREATE, if it does not exist\) on the topic")
    allow(secure_cluster, topic, AclOperation.DESCRIBE)
    once_allowed(BatchReader(source_options({**options, "subscribe": topic})).partitions)
    missing(read, "READ on the topic")
    missing(sink.save, "WRITE on the topic")
