"""Runs the arithmetic of Spark's Kafka connector in Java, to compare this package with it."""

from __future__ import annotations

import json
import os
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kafka_async.testing.backends.base import BackendUnavailableError
from kafka_async.testing.backends.jars import Artifact, resolve
from kafka_async.testing.backends.jvm import find_java
from tools.conformance.java import JavaError, class_path, compile_files

if TYPE_CHECKING:
    from collections.abc import Sequence

SOURCE: Final = Path(__file__).with_name("SparkArithmetic.java")
VERSION: Final = "4.2.0"
"""Newest version of the connector; Spark's own jars come with pyspark."""
CONNECTOR: Final = Artifact(
    "org.apache.spark", "spark-sql-kafka-0-10_2.13", VERSION, exclusions=("*:*",)
)
TIMEOUT: Final = 300
"""Seconds."""
OPENED: Final = ("java.base/java.lang=ALL-UNNAMED", "java.base/java.nio=ALL-UNNAMED")


def run_cases(cases: Sequence[dict[str, Any]]) -> list[Any]:
    """Return the results of Spark's connector for cases; see SparkArithmetic.java.

    Raises:
        BackendUnavailableError: pyspark, Java, its compiler or the connector's jar is missing.
        JavaError: The program failed.
    """
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise BackendUnavailableError("install pyspark: make spark")
    spark = Path(spec.origin).parent / "jars"
    connector = resolve(f"spark-connector-{VERSION}", (CONNECTOR,))
    jars = os.pathsep.join([f"{connector}/*", f"{spark}/*", class_path()])
    classes = compile_files([SOURCE], jars)
    options = [flag for module in OPENED for flag in ("--add-opens", module)]
    done = subprocess.run(
        [
            find_java().command,
            *options,
            "-cp",
            os.pathsep.join([str(classes), jars]),
            "SparkArithmetic",
        ],
        input=json.dumps(list(cases)),
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("results: ")]
    if done.returncode or not lines:
        raise JavaError(f"SparkArithmetic failed: {done.stderr[-4000:]}")
    return json.loads(lines[0].removeprefix("results: "))
