"""Other clients' record classes, without their deprecation warnings or (missing) types."""

from __future__ import annotations

import importlib
import warnings
from typing import Any


def module(judge: str, name: str) -> Any:
    """The module `name` of a client's record package."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return importlib.import_module(f"{judge}.record.{name}")
