"""Producers of a cluster in memory, on virtual time."""

from __future__ import annotations

from tests.consumer.conftest import stage, start_stage

__all__ = ["stage", "start_stage"]
