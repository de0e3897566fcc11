"""Runs tests of record batches on both kernels."""

from __future__ import annotations

import pytest

import kafka_async.kernel
from tests.kernel import kernels


@pytest.fixture(params=kernels.NAMES)
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Make the packages above the kernel use this one during a test; return its name."""
    module = kernels.load(request.param)
    names = ("Record", "RecordReader", "parse_records", "parse_columns")
    for name in ("OpenBatch", "Delivery", "murmur2", *names):
        monkeypatch.setattr(kafka_async.kernel, name, getattr(module, name))
    return str(request.param)
