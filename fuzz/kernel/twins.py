"""The kernel that is fuzzed, and its specification in plain Python beside it."""

from __future__ import annotations

import importlib
from types import ModuleType


class Twins:
    """Both kernels, and when the slow one is asked too: for every n-th input, or for none (0)."""

    def __init__(self, compiled: ModuleType, pure: ModuleType, every: int = 1) -> None:
        self.compiled = compiled
        self.pure = pure
        self._every = every
        self._inputs = 0

    @classmethod
    def loaded(cls, every: int = 1) -> Twins:
        """The kernels as they are installed, or as `use_kernel` has put them."""
        compiled = importlib.import_module("kafka_async.kernel._ckernel")
        return cls(compiled, importlib.import_module("kafka_async.kernel._pykernel"), every)

    def due(self) -> bool:
        """Whether the specification is asked about this input."""
        self._inputs += 1
        return bool(self._every) and self._inputs % self._every == 0
