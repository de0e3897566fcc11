"""Random messages, and pytest ids for their classes and versions."""

from __future__ import annotations

from tools.conformance.samples import all_classes, all_versions, class_of, sample, versions

__all__ = ["all_classes", "all_versions", "class_of", "label", "sample", "versions"]


def label(value: object) -> str:
    """Return the pytest id of a message class or of a version."""
    return value.__name__ if isinstance(value, type) else f"v{value}"
