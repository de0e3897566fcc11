"""What the environment says about this run."""

from __future__ import annotations

import os


def in_ci() -> bool:
    """Whether it says CI=true (or CI=1), where nothing may be skipped in silence."""
    return os.environ.get("CI", "").lower() in {"true", "1"}
