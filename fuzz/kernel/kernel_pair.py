"""The kernel that is fuzzed and the kernel in plain Python with which it is compared."""

from __future__ import annotations

import importlib
from types import ModuleType


class KernelPair:
    """Holds both kernels; the pure one runs every n-th input, or none if `every` is 0."""

    def __init__(self, compiled: ModuleType, pure: ModuleType, every: int = 1) -> None:
        self.compiled = compiled
        self.pure = pure
        self._every = every
        self._inputs = 0

    @classmethod
    def loaded(cls, every: int = 1) -> KernelPair:
        """Return the kernels that are installed or set by `use_kernel`."""
        compiled = importlib.import_module("kafka_async.kernel._ckernel")
        return cls(compiled, importlib.import_module("kafka_async.kernel._pykernel"), every)

    def due(self) -> bool:
        """Return True if the pure kernel runs this input too."""
        self._inputs += 1
        return bool(self._every) and self._inputs % self._every == 0
