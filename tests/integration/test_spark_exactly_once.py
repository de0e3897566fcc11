"""The exactly-once sink in Spark: batches, streams, lost attempts, and drivers that compete."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import time
import uuid
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async import Consumer, TopicPartition, blocking
from kafka_async.testing.spark_cluster import spark_cluster
from tests.integration.helpers import SPARKS_SIDE, create_topic_blocking, read_values
from tests.integration.spark_sink_program import start_query
from tests.programs import ROOT, output_of, python_path

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from kafka_async.testing.fixtures import ClusterHandle

pytestmark = [pytest.mark.spark, pytest.mark.mainly_on("embedded", reason=SPARKS_SIDE)]

LIMIT = 5.0
"""Seconds after its epoch in which a transaction of an attempt that lost may be open."""

PROGRAM_TIMEOUT = 300
"""Seconds for a driver to start and run a query, on a machine that does much else."""


class Sink:
    """Options of one sink of a test, and what it has written."""

    def __init__(self, cluster: ClusterHandle, directory: Path) -> None:
        self.cluster = cluster
        self.topic = create_topic_blocking(cluster, "output", partitions=2)
        self.id = f"sink-{uuid.uuid4().hex[:8]}"
        self.input = directory / "input"
        self.input.mkdir()
        self.checkpoint = directory / "checkpoint"
        self.options = {
            "kafka.bootstrap.servers": cluster.bootstrap_servers,
            "topic": self.topic,
            "exactlyOnce": "true",
            "sinkId": self.id,
            "ledgerTopic": cluster.topic("ledger"),
            "transactionTimeoutMs": "900000",
        }

    def values(self) -> Counter[str]:
        found = asyncio.run(read_values(self.cluster, self.topic, 2))
        return Counter((value or b"").decode() for value in found)

    def open_transactions(self) -> set[str]:
        with blocking.Admin(self.cluster.bootstrap_servers) as admin:
            return set(admin.list_transactions(states=["Ongoing"], pattern=f"{self.id}:.*"))

    def check_nothing_is_open(self) -> None:
        ended = time.monotonic()
        while found := self.open_transactions():
            assert time.monotonic() - ended < LIMIT, found

    def write(self, rows: DataFrame, format: str = "kafka_async", **options: str) -> None:
        rows.write.format(format).mode("append").options(**self.options, **options).save()

    def add_input(self, *lines: str) -> None:
        """Add an input file, which a query reads in one epoch."""
        number = len(list(self.input.iterdir()))
        path = self.input / f"{number}.txt"
        hidden = self.input / f".{number}"
        hidden.write_text("\n".join(lines))
        hidden.rename(path)

    def repair(self, action: str) -> None:
        """Run the command that repairs the sink's torn epoch."""
        output_of(
            *("-m", "kafka_async", "spark-sink", "repair", self.id),
            *(action, "--ledger-topic", self.options["ledgerTopic"]),
            *("--bootstrap", self.cluster.bootstrap_servers),
        )

    def count_all(self) -> int:
        """Return the number of records of the output, those of aborted transactions included."""
        return len(asyncio.run(read_uncommitted(self.cluster.bootstrap_servers, self.topic)))

    def query(
        self, *, fault: str = "", idle: bool = False, checkpoint: Path | None = None
    ) -> dict[str, Any]:
        """Return the description of a streaming query for `start_query`."""
        options = {**self.options, "checkpointLocation": str(checkpoint or self.checkpoint)}
        return {
            "input": str(self.input),
            "options": {**options, "fault": fault} if fault else options,
            "format": "kafka_async_faulty" if fault else "kafka_async",
            "idle": idle,
        }

    def start(
        self,
        *,
        fault: str = "",
        idle: bool = False,
        checkpoint: Path | None = None,
        master: str = "local[2,4]",
        configuration: dict[str, str] | None = None,
    ) -> subprocess.Popen[str]:
        """Start a driver with a streaming query in another process."""
        given = {
            **self.query(fault=fault, idle=idle, checkpoint=checkpoint),
            "master": master,
            "configuration": configuration or {},
        }
        return subprocess.Popen(
            [sys.executable, "-m", "tests.integration.spark_sink_program", json.dumps(given)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": python_path()},
        )

    @contextmanager
    def running(self, **options: Any) -> Generator[subprocess.Popen[str]]:
        """Start a driver, and end it if it still runs at the end of the block."""
        program = self.start(**options)
        try:
            yield program
        finally:
            if program.poll() is None:
                program.terminate()
                program.communicate(timeout=60)

    def until(self, condition: Callable[[], bool], program: subprocess.Popen[str]) -> None:
        deadline = time.monotonic() + PROGRAM_TIMEOUT
        while not condition():
            assert program.poll() is None, program.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.2)


async def read_uncommitted(servers: str, topic: str) -> list[bytes | None]:
    """Return the values of all records of a topic with two partitions."""
    partitions = [TopicPartition(topic, number) for number in range(2)]
    async with Consumer(servers, partitions=partitions, auto_offset_reset="earliest") as consumer:
        ends = await consumer.end_offsets(partitions)
        values: list[bytes | None] = []
        async with asyncio.timeout(60):
            while any([await consumer.position(each) < ends[each] for each in partitions]):
                values += [record.value for record in await consumer.poll(timeout=0.5)]
    return values


@pytest.fixture
def sink(kafka_cluster: ClusterHandle, tmp_path: Path) -> Sink:
    return Sink(kafka_cluster, tmp_path)


def numbers(spark: SparkSession, count: int) -> DataFrame:
    return spark.range(0, count, 1, 2).selectExpr("cast(id as string) as value")


def run(spark: SparkSession, query: dict[str, Any]) -> None:
    """Run a query over the present input to its end."""
    start_query(spark, query).awaitTermination()


def expected(count: int, times: int = 1) -> Counter[str]:
    return Counter({str(number): times for number in range(count)})


# -- batches --------------------------------------------------------------------------------------


def test_a_batch_with_a_write_id_is_written_once(spark: SparkSession, sink: Sink) -> None:
    for _ in range(2):
        sink.write(numbers(spark, 100), writeId="monday")
    assert sink.values() == expected(100)
    sink.write(numbers(spark, 100), writeId="tuesday")
    assert sink.values() == expected(100, 2)


@pytest.mark.slow
@pytest.mark.one_backend("embedded")
def test_each_batch_without_a_write_id_is_written(spark: SparkSession, sink: Sink) -> None:
    for _ in range(2):
        sink.write(numbers(spark, 10))
    assert sink.values() == expected(10, 2)
    sink.check_nothing_is_open()


@pytest.mark.slow
@pytest.mark.one_backend("apache")
def test_a_failed_job_writes_nothing_and_leaves_nothing_open(
    spark: SparkSession, sink: Sink
) -> None:
    rows = numbers(spark, 100).selectExpr(
        "if(value = '99', cast(raise_error('poison') as string), value) as value"
    )
    with pytest.raises(Exception, match="poison"):  # Spark wraps it.
        sink.write(rows)
    sink.check_nothing_is_open()
    sink.write(numbers(spark, 10))
    assert sink.values() == expected(10)


@pytest.mark.slow
@pytest.mark.one_backend("apache")
def test_a_task_killed_after_its_flush_leaves_no_transaction_open(
    spark: SparkSession, sink: Sink
) -> None:
    sink.write(numbers(spark, 100), "kafka_async_faulty", fault="kill-task")
    sink.check_nothing_is_open()
    assert sink.values() == expected(100)
    assert sink.count_all() > 100  # The killed attempts had written.


def test_error_names_the_row(spark: SparkSession, sink: Sink) -> None:
    rows = spark.createDataFrame([(sink.topic, "v"), (None, "v")], "topic string, value string")
    del sink.options["topic"]
    with pytest.raises(Exception, match=r"rows\[1\]: topic is null"):  # Spark wraps it.
        sink.write(rows.coalesce(1))
    sink.check_nothing_is_open()
    assert sink.values() == Counter()


def test_a_sink_id_is_required(spark: SparkSession, sink: Sink) -> None:
    del sink.options["sinkId"]
    with pytest.raises(Exception, match="exactlyOnce needs the option sinkId"):
        sink.write(numbers(spark, 1))


def test_a_time_out_above_the_brokers_maximum_is_refused(spark: SparkSession, sink: Sink) -> None:
    sink.options["transactionTimeoutMs"] = "900001"
    with pytest.raises(Exception, match=r"above the brokers' transaction\.max\.timeout\.ms"):
        sink.write(numbers(spark, 1))


# -- streams --------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.one_backend("apache")
def test_a_query_continues_from_its_checkpoint_after_its_driver_was_killed(
    spark: SparkSession, sink: Sink
) -> None:
    for number in range(3):
        sink.add_input(f"{number}a", f"{number}b")
    with sink.running(fault="kill-driver") as program:
        program.communicate(timeout=PROGRAM_TIMEOUT)
        assert program.returncode != 0
    assert sink.open_transactions()  # The epoch is decided, and one transaction is committed.
    run(spark, sink.query(fault="check-ledger"))
    assert sink.values() == Counter(f"{number}{letter}" for number in range(3) for letter in "ab")
    assert sink.count_all() == 6  # The tasks of the committed epoch have written nothing.
    sink.check_nothing_is_open()
    run(spark, sink.query(checkpoint=sink.input.parent / "new"))  # A new query writes all.
    assert set(sink.values().values()) == {2}


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.one_backend("embedded")
def test_an_attempt_that_lost_to_a_speculative_one_leaves_no_transaction_open(sink: Sink) -> None:
    """The first attempt has flushed its rows when Spark kills it for the second one."""
    sink.add_input(*map(str, range(10)))
    speculation = {
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.multiplier": "0.1",
        "spark.speculation.quantile": "0.1",
        "spark.speculation.efficiency.enabled": "false",
        "spark.executor.memory": "512m",
        "spark.executorEnv.PYTHONPATH": python_path(),
    }
    with spark_cluster(0) as cluster:
        for host in ("127.0.0.1", "127.0.0.2"):
            cluster.add_worker(host)
        with sink.running(
            fault="slow-task", master=cluster.master, configuration=speculation
        ) as program:
            out, err = program.communicate(timeout=PROGRAM_TIMEOUT)
    sink.check_nothing_is_open()
    assert "done" in out, err
    assert sink.values() == Counter(map(str, range(10)))
    assert sink.count_all() > 10  # Both attempts have written.


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.one_backend("embedded")
def test_a_commit_that_fails_after_its_decision_is_completed(
    spark: SparkSession, sink: Sink
) -> None:
    sink.add_input("a", "b")
    with pytest.raises(Exception, match="ZeroDivisionError"):  # Spark wraps it.
        run(spark, sink.query(fault="fail-commit"))
    run(spark, sink.query())
    assert sink.values() == Counter(["a", "b"])
    sink.check_nothing_is_open()


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.one_backend("apache")
def test_a_torn_epoch_stops_each_start_of_the_query_until_it_is_repaired(
    spark: SparkSession, sink: Sink
) -> None:
    sink.add_input("a", "b")
    with sink.running(fault="kill-driver") as program:
        program.communicate(timeout=PROGRAM_TIMEOUT)
    (pending,) = sink.open_transactions()  # The other partition is committed.
    with blocking.Admin(sink.cluster.bootstrap_servers) as admin:
        admin.fence_producers([pending])  # As if it had timed out before the next start.
    (visible,) = sink.values()
    for _ in range(2):
        with pytest.raises(Exception, match="TornEpochError") as raised:  # Spark wraps it.
            run(spark, sink.query())
        message = str(raised.value)
        assert "only some partitions of epoch 0 of query" in message
        for outcome in ("committed", "aborted"):
            places = rf"partition [01] is {outcome} \({sink.topic}-[01] offsets \d+ to \d+\)"
            assert re.search(places, message), message
        assert f"kafka-async spark-sink repair {sink.id} --resume" in message
    assert sink.values() == Counter([visible])
    sink.repair("--resume")
    run(spark, sink.query())
    assert sink.values() == Counter(["a", "b"])
    assert sink.count_all() == 3  # The committed partition was not written again.
    sink.check_nothing_is_open()


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.one_backend("apache")
def test_of_two_drivers_the_later_wins(spark: SparkSession, sink: Sink) -> None:
    sink.add_input("1")
    with sink.running(idle=True) as first:
        sink.until(lambda: sink.values() == Counter(["1"]), first)
        second = start_query(spark, sink.query(idle=True, checkpoint=sink.input.parent / "second"))
        try:
            second.processAllAvailable()
            assert sink.values() == Counter(["1", "1"])
            sink.add_input("2")
            out, _ = first.communicate(timeout=PROGRAM_TIMEOUT)
            assert "ProducerFencedError" in out
            second.processAllAvailable()
            assert sink.values() == Counter(["1", "1", "2"])
        finally:
            second.stop()
