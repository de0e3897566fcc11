"""Runs each test that uses the fixture `kernel` on both kernels."""

from __future__ import annotations

from types import ModuleType

import pytest

from tests.kernel import kernels


@pytest.fixture(params=kernels.NAMES)
def kernel(request: pytest.FixtureRequest) -> ModuleType:
    """Return a kernel: every test that uses it runs on both kernels."""
    return kernels.load(request.param)
