"""Loads an instrumented kernel instead of the installed one, and libFuzzer's module."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from pathlib import Path
from types import ModuleType

PACKAGE = "kafka_async.kernel"


class _Finder(MetaPathFinder):
    """Finds the compiled modules of the kernel in another directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the spec of a module of the kernel, None for other modules."""
        package, _, name = fullname.rpartition(".")
        file = self._directory / f"{name}.so"
        if package != PACKAGE or not file.exists():
            return None
        return importlib.util.spec_from_file_location(fullname, file)


def use_kernel(directory: Path) -> None:
    """Make kafka_async use the kernel in a directory; call it before kafka_async is imported."""
    if any(name.partition(".")[0] == "kafka_async" for name in sys.modules):
        raise RuntimeError("kafka_async is imported already, with another kernel")
    os.environ["KAFKA_ASYNC_KERNEL"] = "c"
    sys.meta_path.insert(0, _Finder(directory))


def load_engine(path: Path) -> ModuleType:
    """Return libFuzzer's module; call it before the kernel is imported."""
    flags = sys.getdlopenflags()
    sys.setdlopenflags(os.RTLD_NOW | os.RTLD_GLOBAL)  # the kernel's counters are looked up by name
    try:
        spec = importlib.util.spec_from_file_location("engine", path)
        if spec is None or spec.loader is None:
            raise ImportError(f"{path} is no module")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.setdlopenflags(flags)
    return module
