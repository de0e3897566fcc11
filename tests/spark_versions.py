"""The version of Spark that the tests run on."""

from __future__ import annotations

import re
from importlib import metadata


def spark_version() -> tuple[int, ...]:
    """Return the version of pyspark, as (4, 2, 0); nothing if it is not installed."""
    try:
        text = metadata.version("pyspark")
    except metadata.PackageNotFoundError:
        return ()
    return tuple(map(int, re.findall(r"\d+", text)[:3]))
