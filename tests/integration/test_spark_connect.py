"""The data source through Spark Connect: batches, and a stream with the exactly-once sink."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cli.programs import Program
from tests.integration.helpers import create_topic_blocking
from tests.integration.spark_connect_program import ROWS

if TYPE_CHECKING:
    from kafka_async.testing.fixtures import ClusterHandle, Clusters

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

TIMEOUT = 300
"""Seconds."""


def test_reads_writes_and_streams_through_connect(kafka_clusters: Clusters, tmp_path: Path) -> None:
    """Uses the embedded cluster: Spark Connect changes nothing of what brokers receive."""
    with kafka_clusters.handle("embedded") as cluster:
        check(cluster, tmp_path)


def check(cluster: ClusterHandle, tmp_path: Path) -> None:
    topic = create_topic_blocking(cluster, "numbers", partitions=2)
    copy = create_topic_blocking(cluster, "copies", partitions=2)
    arguments = (cluster.bootstrap_servers, topic, copy, str(tmp_path))
    environment = {"SPARK_LOCAL_IP": "127.0.0.1"}
    module = "tests.integration.spark_connect_program"
    with Program(*arguments, module=module, environment=environment) as program:
        status, out, err = program.end(within=TIMEOUT)
        assert program.left() == []
    assert status == 0, err
    assert json.loads(out.splitlines()[-1]) == {
        "session": "pyspark.sql.connect.session",
        "rows": ROWS,
        "failure": "None",
    }
    written = [(record.value or b"").decode() for record in asyncio.run(cluster.read(copy))]
    records = asyncio.run(cluster.read(topic))
    assert sorted(written) == sorted(f"{record.partition}:{record.offset}" for record in records)
