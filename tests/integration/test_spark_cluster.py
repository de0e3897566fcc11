"""A pipeline on a standalone cluster of Spark: a killed worker, and executors without the package.

The driver is the command `kafka-async pipeline run`.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sysconfig
import textwrap
import time
import venv
from collections import Counter
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kafka_async import blocking
from kafka_async.testing.spark_cluster import spark_cluster
from tests.cli.programs import Program, run
from tests.integration.helpers import create_topic_blocking
from tests.integration.stream_readers import READ_LIMITS
from tests.spark_versions import spark_version

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kafka_async.testing.fixtures import ClusterHandle, Clusters

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

PARTITIONS = 3
LINES = 1_800
LINES_PER_BATCH = 300
TIMEOUT = 300
"""Seconds."""
DRIVER = {"SPARK_LOCAL_IP": "127.0.0.1"}


class Copy:
    """A pipeline that writes the partition and the offset of each record to another topic.

    Args:
        clusters: The clusters; there is a source and a sink for each.
        directory: Directory of the file and the checkpoint.
    """

    def __init__(self, clusters: Sequence[ClusterHandle], directory: Path) -> None:
        self.file = directory / "copy.toml"
        self._topics = [
            (
                cluster,
                create_topic_blocking(cluster, "lines", partitions=PARTITIONS),
                create_topic_blocking(cluster, "places", partitions=2),
            )
            for cluster in clusters
        ]
        values = [b"%d" % number for number in range(LINES)]
        for cluster, lines, _ in self._topics:
            with blocking.Producer(cluster.bootstrap_servers) as producer:
                producer.send_many(lines, values, keys=values)
        self._directory = directory

    def write(self, spark: str = "") -> None:
        limit = f"options.maxOffsetsPerTrigger = {LINES_PER_BATCH}" if not spark else ""
        _, _, places = self._topics[0]
        text = f"""
            [pipeline]
            name = "copy-{places}"
            master = "local[2]"
            checkpoint = "{self._directory}/checkpoint"
            trigger = "available-now"
        """
        for number, (cluster, lines, places) in enumerate(self._topics):
            text += f"""
            [[source]]
            name = "lines_{number}"
            topics = ["{lines}"]
            options.kafka.bootstrap.servers = "{cluster.bootstrap_servers}"
            options.startingOffsets = "earliest"
            {limit}

            [[step]]
            name = "places_{number}"
            sql = "SELECT CONCAT(partition, ':', offset) AS value FROM lines_{number}"

            [[sink]]
            kind = "topic"
            topic = "{places}"
            from = "places_{number}"
            options.kafka.bootstrap.servers = "{cluster.bootstrap_servers}"
            """
        self.file.write_text(f"{textwrap.dedent(text)}\n[spark]\n{spark}", "utf-8")

    def check(self) -> None:
        """Check that readers of committed records see the place of each record once."""
        for cluster, lines, places in self._topics:
            values = [record.value for record in asyncio.run(cluster.read(places))]
            records = asyncio.run(cluster.read(lines))
            assert len(records) == LINES
            assert Counter((value or b"").decode() for value in values) == Counter(
                f"{record.partition}:{record.offset}" for record in records
            )


@pytest.mark.one_backend("apache")
def test_each_record_is_written_once_although_a_worker_is_killed(
    kafka_cluster: ClusterHandle, tmp_path: Path
) -> None:
    copy = Copy([kafka_cluster], tmp_path)
    copy.write()
    state = {"XDG_STATE_HOME": str(tmp_path)}
    with (
        spark_cluster(workers=2) as cluster,
        Program(
            *("pipeline", "run", str(copy.file), "--master", cluster.master),
            environment=DRIVER | state,
        ) as driver,
    ):
        # Older versions read everything in one batch.
        limited = spark_version() >= READ_LIMITS
        driver.wait_for("topic: running, batch 1," if limited else "topic: starting")
        deadline = time.monotonic() + TIMEOUT
        while not (cluster.executors(0) and cluster.executors(1)):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        cluster.kill_worker(0)
        status, _, err = driver.end(within=TIMEOUT)
    assert status == 0, err
    assert re.search(rf"topic: stopped, batch \d+, {LINES:,} rows", err)
    copy.check()


@pytest.fixture
def all_clusters(
    request: pytest.FixtureRequest, kafka_clusters: Clusters
) -> Iterator[list[ClusterHandle]]:
    """Provide the clusters of all backends: one pipeline reads and writes each, to save time."""
    names = str(request.config.getoption("--kafka-backend")).split(",")
    with ExitStack() as stack:
        yield [stack.enter_context(kafka_clusters.handle(name)) for name in names]


# The distributions whose compiled code a file of --py-files cannot have.
COMPILED = ("crc32c", "cramjam", "lz4", "zstandard")


@pytest.mark.parametrize(
    ("name", "installed", "options"),
    [
        (
            "packages.tar.gz",
            (),
            'spark.archives = "{}#packages"\nspark.executorEnv.PYTHONPATH = "packages"',
        ),
        ("packages.zip", COMPILED, 'spark.submit.pyFiles = "{}"'),
    ],
    ids=["archives", "py-files"],
)
def test_runs_on_executors_without_the_package(
    all_clusters: list[ClusterHandle],
    tmp_path: Path,
    name: str,
    installed: tuple[str, ...],
    options: str,
) -> None:
    """The driver's `python3` has the package, that of the executors has pyspark and pyarrow."""
    package = tmp_path / name
    status, _, err = run("pipeline", "package", str(package))
    assert status == 0, err
    copy = Copy(all_clusters, tmp_path)
    copy.write(options.format(package))
    driver = driver_environment(tmp_path / "driver")
    executor = bare_environment(
        tmp_path / "executor", "pyspark", "py4j", "pyarrow", "numpy", *installed
    )
    variables = {**os.environ, **DRIVER, "PYTHONPATH": "", "PYSPARK_PYTHON": "python3"}
    with spark_cluster(
        workers=1, environment={"PATH": first_in_path(executor), "PYTHONPATH": ""}
    ) as cluster:
        command = ["python3", "-m", "kafka_async", "pipeline", "run", str(copy.file)]
        ended = subprocess.run(
            [driver / command[0], *command[1:], "--master", cluster.master],
            env={**variables, "PATH": first_in_path(driver), "XDG_STATE_HOME": str(tmp_path)},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=False,
        )
    if spark_version() < (4, 1) and name == "packages.zip":  # as in the table of docs/spark.md
        assert ended.returncode == 1
        assert "error: ModuleNotFoundError: No module named 'pyspark_kafka_async'" in ended.stderr
        return
    assert ended.returncode == 0, ended.stderr
    copy.check()


def first_in_path(programs: Path) -> str:
    return f"{programs}:{os.environ['PATH']}"


def bare_environment(directory: Path, *packages: str) -> Path:
    """Create a virtual environment with some packages of this one; return its programs."""
    target = empty_environment(directory)
    for package in packages:
        place = place_of(package)
        for path in (place, place.with_name(f"{package}.libs")):
            if path.exists():
                target.joinpath(path.name).symlink_to(path)
    python = directory / "bin" / "python3"
    code = "import pyarrow, importlib.util as u; assert u.find_spec('kafka_async') is None"
    subprocess.run([python, "-c", code], check=True, env={**os.environ, "PYTHONPATH": ""}, cwd="/")
    return python.parent


def driver_environment(directory: Path) -> Path:
    """Create a virtual environment with all packages of this one; return its programs.

    The package that is tested and pyspark are parts of it, however they are installed here.
    """
    target = empty_environment(directory)
    package = place_of("kafka_async")
    tested = [package, package.with_name("pyspark_kafka_async.py")]
    tested += [place_of("pyspark"), place_of("py4j")]
    names = {path.name for path in tested}
    others = Path(sysconfig.get_path("purelib")).iterdir()
    for path in (*tested, *(other for other in others if other.name not in names)):
        if path.suffix != ".pth":
            target.joinpath(path.name).symlink_to(path)
    return directory / "bin"


def empty_environment(directory: Path) -> Path:
    venv.create(directory, symlinks=True, with_pip=False)
    variables = {"base": str(directory), "platbase": str(directory)}
    return Path(sysconfig.get_path("purelib", "venv", variables))


def place_of(package: str) -> Path:
    found = find_spec(package)
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent
