"""Installs older versions of pyspark next to the development environment, once each.

The environment has the newest version. Another one is a directory with pyspark and py4j, which is
first in PYTHONPATH; everything else is the environment's. The directories are in the user's cache,
so they outlast a clean build, and checkouts share them. pip keeps its downloads too.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kafka_async.testing.backends.jars import Artifact, cache_directory, resolve
from tools.generated_page import ROOT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

VERSIONS: Final = ("4.0.5", "4.1.4", "4.2.1")
"""Newest release of each minor version that the tests of `make test-spark-matrix` run on."""
LEAK_SOCKETS: Final = ("4.0.5", "4.1.4")
"""Those of them whose `DataFrame.collect` does not close the socket that it reads from."""
CONNECTOR_VERSION: Final = "4.2.0"
"""Newest version of Spark's own Kafka connector; it runs on the same version of Spark."""

_STARTED_TOO_LATE: Final = "Python worker failed to connect back"
"""In the error of a query if the process of its source took more than 10 s to start, as on a busy
machine; the query has read nothing then."""

_ALL: Final = ("*:*",)  # Spark has the other dependencies.
# The token provider 4.2.0 is not in every mirror; 4.0.0 works too.
CONNECTOR: Final = (
    Artifact("org.apache.spark", "spark-sql-kafka-0-10_2.13", CONNECTOR_VERSION, _ALL),
    Artifact("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0", _ALL),
    Artifact("org.apache.kafka", "kafka-clients", "3.9.1", _ALL),
    Artifact("org.apache.commons", "commons-pool2", "2.12.0", _ALL),
)


class SparkUnavailableError(Exception):
    """pip could not install a version of pyspark."""


def find_or_install(version: str) -> Path:
    """Return the directory of a version of pyspark; install it (about 450 MB) if it is missing.

    Raises:
        SparkUnavailableError: pip failed; the error has the end of its output.
    """
    target = cache_directory() / "pyspark" / version
    if target.is_dir():
        return target
    print(f"installing pyspark {version} (about 450 MB, once; it takes some minutes)", flush=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f"{version}-") as work:
        installed = Path(work, "installed")
        command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "-q"]
        command += ["--target", str(installed), f"pyspark=={version}"]
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SparkUnavailableError(
                f"pip cannot install pyspark {version}: {done.stderr[-500:]}"
            )
        try:
            installed.rename(target)
        except OSError:
            if not target.is_dir():  # Otherwise another run has installed it.
                raise
    return target


def variables_of(version: str) -> dict[str, str]:
    """Return environment variables of processes that use a version of pyspark, and this checkout.

    Raises:
        SparkUnavailableError: pip could not install the version.
    """
    paths = [str(find_or_install(version)), str(ROOT), os.environ.get("PYTHONPATH", "")]
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    variables.pop("SPARK_HOME", None)
    return variables


def run_again_with(version: str, module: str, arguments: Sequence[str]) -> int | None:
    """Run a module in a process with a version of pyspark; None if this process has the version.

    Raises:
        SparkUnavailableError: pip could not install the version.
    """
    try:
        if metadata.version("pyspark") == version:
            return None
    except metadata.PackageNotFoundError:
        pass
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.run(command, env=variables_of(version), check=False).returncode


def open_session_with_connector(**options: str) -> SparkSession:
    """Return a session on two cores with Spark's own Kafka connector; Maven downloads it once.

    Args:
        **options: Options of Spark, with underscores for dots.

    Raises:
        BackendUnavailableError: Maven is missing, or cannot download the connector.
    """
    os.environ["PYSPARK_PYTHON"] = sys.executable
    paths = [os.environ.get("PYTHONPATH", ""), str(ROOT)]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    from pyspark.sql import SparkSession

    directory = resolve(f"spark-{CONNECTOR_VERSION}", CONNECTOR)
    builder: Any = SparkSession.builder
    chosen = {
        "spark.jars": ",".join(str(path) for path in sorted(directory.glob("*.jar"))),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        **{name.replace("_", "."): text for name, text in options.items()},
    }
    for name, text in chosen.items():
        builder = builder.config(name, text)
    session: SparkSession = builder.master("local[2]").getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session


def run_to_end(writer: DataStreamWriter, attempts: int = 5) -> StreamingQuery:
    """Run a query to its end; start it again if a process of Spark has started too late.

    Args:
        writer: The query, which ends itself, as with the trigger availableNow.
        attempts: Maximum number of starts.

    Raises:
        TimeoutError: A process of Spark has started too late in each attempt.
    """
    reason: Exception | None = None
    for _ in range(attempts):
        try:
            query = writer.start()
            query.awaitTermination()
        except Exception as error:
            if _STARTED_TOO_LATE not in str(error):
                raise
            reason = error
        else:
            return query
    raise TimeoutError(f"a process of Spark started too late in {attempts} attempts") from reason
