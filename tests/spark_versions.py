"""The version of Spark that the tests run on."""

from __future__ import annotations

from importlib import metadata


def spark_version() -> tuple[int, ...]:
    """Return the version of pyspark, as (4, 2, 0); nothing if it is not installed."""
    try:
        text = metadata.version("pyspark")
    except metadata.PackageNotFoundError:
        return ()
    return tuple(int(part) for part in text.split(".")[:3])
