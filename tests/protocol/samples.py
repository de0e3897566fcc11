"""Random messages for tests, and how tests are called after them."""

from __future__ import annotations

from tools.conformance.samples import all_classes, all_versions, class_of, sample, versions

__all__ = ["all_classes", "all_versions", "class_of", "label", "sample", "versions"]


def label(value: object) -> str:
    """How pytest shows a class in a test's name."""
    return value.__name__ if isinstance(value, type) else f"v{value}"
