"""Creates a pipeline's Spark session, and extracts causes from Spark's errors."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Generator

    from pyspark.sql import SparkSession

    from kafka_async.spark.pipeline.definition import Definition


@contextmanager
def create_session(definition: Definition, *, master: str | None = None) -> Generator[SparkSession]:
    """Yield a session with the pipeline's configuration; stop it at the end.

    Spark only logs errors, since the pipeline reports its progress. Workers use this process's
    Python unless PYSPARK_PYTHON is set.

    Args:
        definition: The pipeline.
        master: Spark's master in place of the pipeline's.
    """
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    master = master or definition.master
    configuration = {"spark.ui.showConsoleProgress": "false"}
    if master is not None and master.startswith("local"):
        configuration |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    builder: SparkSession.Builder = cast("Any", SparkSession).builder
    builder = builder.appName(definition.name)
    if master is not None:
        builder = builder.master(master)
    for key, value in (configuration | dict(definition.spark)).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    try:
        session.sparkContext.setLogLevel("ERROR")
        yield session
    finally:
        session.stop()


def spark_errors() -> tuple[type[Exception], ...]:
    """Return the base class of Spark's errors, or an empty tuple without pyspark."""
    try:
        from pyspark.errors import PySparkException
    except ImportError:
        return ()
    return (PySparkException,)


def cause_of(error: BaseException) -> str:
    """Return the line with the cause in a Spark error.

    The message of a Spark exception contains the tracebacks of Python workers; the last line of
    each begins with a class name.
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if "Error: " in line and not line.startswith("at ")]
    return (causes[-1] if causes else lines[0] if lines else type(error).__name__)[:500]
