"""Loads the record classes of other clients without their deprecation warnings."""

from __future__ import annotations

import importlib
import warnings
from typing import Any


def record_module(client: str, name: str) -> Any:
    """Return the module `name` of a client's record package."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return importlib.import_module(f"{client}.record.{name}")
