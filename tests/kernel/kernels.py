"""Loads both kernels, whichever the test run uses."""

from __future__ import annotations

import importlib
import os
from types import ModuleType
from typing import Any

import pytest

NAMES = ("python", "c")
_MODULES = {"python": "_pykernel", "c": "_ckernel"}


def load(name: str) -> ModuleType:
    """Return the kernel's module; skip if it is not built, or raise ImportError if CI=true."""
    try:
        return importlib.import_module(f"kafka_async.kernel.{_MODULES[name]}")
    except ImportError as error:
        if os.environ.get("CI", "").lower() in {"true", "1"}:
            raise
        pytest.skip(f"the {name} kernel is not built ({error})")


def closed_batch(kernel: Any, *records: tuple[Any, ...]) -> bytes:
    """Return the bytes of a batch of records, each as the arguments of `OpenBatch.append`."""
    batch = kernel.OpenBatch(None, 1 << 20)
    for record in records:
        assert batch.append(*record) is not None
    return batch.close()
