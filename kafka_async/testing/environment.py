"""Facts about a test run from the environment."""

from __future__ import annotations

import os


def in_ci() -> bool:
    """Return whether CI is "true" or "1": a test must then fail instead of being skipped."""
    return os.environ.get("CI", "").lower() in {"true", "1"}
