"""Runs tests of record batches on both kernels."""

from tests.hostile.conftest import kernel as kernel
