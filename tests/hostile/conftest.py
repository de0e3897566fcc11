"""Fixture that runs a test with each kernel."""

from __future__ import annotations

import importlib
from types import ModuleType

import pytest

import kafka_async.kernel
from kafka_async.protocol import compiler
from tests.kernel import kernels


@pytest.fixture(params=kernels.NAMES)
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Read the records and messages of a test with one kernel."""
    module = kernels.load(request.param)
    names = ("Record", "RecordReader", "parse_records", "parse_columns")
    for name in ("OpenBatch", "Delivery", "murmur2", *names):
        monkeypatch.setattr(kafka_async.kernel, name, getattr(module, name))
    codec = None
    if request.param == "c":
        codec = importlib.import_module("kafka_async.kernel._ccodec")
    monkeypatch.setattr(compiler, "_COMPILED", codec)
    monkeypatch.setattr(compiler, "DECODERS", {})
    return module
