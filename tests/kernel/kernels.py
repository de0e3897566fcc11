"""Both kernels, whichever the run was started with."""

from __future__ import annotations

import importlib
import os
from types import ModuleType

import pytest

NAMES = ("python", "c")
_MODULES = {"python": "_pykernel", "c": "_ckernel"}


def load(name: str) -> ModuleType:
    """The kernel; a compiled one that is not there skips, and fails where CI=true."""
    try:
        return importlib.import_module(f"kafka_async.kernel.{_MODULES[name]}")
    except ImportError as error:
        if os.environ.get("CI", "").lower() in {"true", "1"}:
            raise
        pytest.skip(f"the {name} kernel is not built ({error})")
