"""The data source in Spark on a listener with TLS and SASL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.helpers import create_topic_blocking
from tests.integration.secure_cluster import ADMIN, USERS

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.integration.secure_cluster import SecureCluster

pytestmark = [pytest.mark.spark, pytest.mark.slow]


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
