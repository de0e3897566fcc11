"""Logs once per process which kernel is in use, and warns if the compiled one is missing.

An installer hides the output of the build, so this log line is how a user learns that the build
found no compiler.
"""

from __future__ import annotations

import logging
import os
from functools import cache

from kafka_async.kernel import IMPLEMENTATION

__all__ = ["log_kernel"]

logger = logging.getLogger("kafka_async.kernel")


@cache
def log_kernel() -> None:
    """Log the kernel in use, on the first call only."""
    if IMPLEMENTATION == "c":
        logger.info("the compiled kernel is in use")
    elif os.environ.get("KAFKA_ASYNC_KERNEL") == "python":
        logger.info("the kernel in plain Python is in use, as KAFKA_ASYNC_KERNEL=python demands")
    else:
        logger.warning(
            "the kernel in plain Python is in use, which is several times slower: the installation "
            "has no compiled one. Install a C compiler and reinstall kafka-async without pip's "
            "cache (KAFKA_ASYNC_KERNEL=c makes a failing build an error), or set "
            "KAFKA_ASYNC_KERNEL=python to use this one without a warning"
        )
