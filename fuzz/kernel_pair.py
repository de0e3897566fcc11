"""Both kernels, which must give the same results."""

from __future__ import annotations

import importlib
from typing import Any


class KernelPair:
    """Holds both kernels; the pure one runs every n-th input, or none if `every` is 0.

    Without the compiled kernel, both are the one in plain Python.
    """

    def __init__(self) -> None:
        self.pure: Any = importlib.import_module("kafka_async.kernel._pykernel")
        try:
            self.compiled: Any = importlib.import_module("kafka_async.kernel._ckernel")
        except ImportError:
            self.compiled = self.pure
        self.every = 1
        self._inputs = 0

    def due(self) -> bool:
        """Return True if the pure kernel runs this input too."""
        self._inputs += 1
        return bool(self.every) and self._inputs % self.every == 0


PAIR = KernelPair()
