"""Tests of the kernel's small functions and of the selection of a kernel."""

from __future__ import annotations

import os
import subprocess
import sys
from types import ModuleType

import pytest

# From the tests of Java's clients.
MURMUR2 = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize("key", MURMUR2)
def test_murmur2_matches_java(kernel: ModuleType, key: bytes) -> None:
    assert kernel.murmur2(key) == MURMUR2[key]
    assert kernel.murmur2(bytearray(key)) == MURMUR2[key]


def test_murmur2_differs_for_every_length(kernel: ModuleType) -> None:
    data = bytes(range(256))
    hashes = {kernel.murmur2(data[:size]) for size in range(256)}
    assert len(hashes) == 256
    assert all(-(1 << 31) <= value < 1 << 31 for value in hashes)


def test_murmur2_of_str_raises_type_error(kernel: ModuleType) -> None:
    with pytest.raises(TypeError):
        kernel.murmur2("text")


# -- selection of a kernel ------------------------------------------------------------------------


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {k: v for k, v in os.environ.items() if k != "KAFKA_ASYNC_KERNEL"}
    return subprocess.run(
        [sys.executable, "-c", code],
        env=env | {"PYTHONPATH": os.pathsep.join(sys.path)} | environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


PRINT = "from kafka_async import kernel; print(kernel.IMPLEMENTATION, kernel.murmur2.__module__)"
OLD_C = (
    "import sys, types; "
    "sys.modules['kafka_async.kernel._ckernel'] = types.SimpleNamespace(IMPLEMENTATION='c')\n"
)
HIDE_C = "import sys; sys.modules['kafka_async.kernel._ckernel'] = None\n"


def test_environment_variable_selects_kernel(kernel: ModuleType) -> None:
    wanted = [kernel.IMPLEMENTATION, kernel.murmur2.__module__]
    assert run(PRINT, KAFKA_ASYNC_KERNEL=wanted[0]).stdout.split() == wanted


def test_falls_back_to_python_kernel_if_compiled_one_is_missing() -> None:
    assert run(HIDE_C + PRINT).stdout.split()[0] == "python"


def test_kernel_compiled_from_an_older_version_is_not_used() -> None:
    assert run(OLD_C + PRINT).stdout.split()[0] == "python"
    done = run(OLD_C + PRINT, KAFKA_ASYNC_KERNEL="c")
    assert "compiled from an older version: it lacks RecordColumns" in done.stderr.splitlines()[-1]


def test_selected_kernel_that_cannot_be_loaded_raises_import_error() -> None:
    done = run(HIDE_C + PRINT, KAFKA_ASYNC_KERNEL="c")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("ImportError: KAFKA_ASYNC_KERNEL=c, but")


def test_unknown_kernel_raises_import_error() -> None:
    done = run(PRINT, KAFKA_ASYNC_KERNEL="rust")
    assert "'c' or 'python', not 'rust'" in done.stderr.splitlines()[-1]


def test_import_loads_no_codec() -> None:
    done = run(
        "import sys, kafka_async.kernel, kafka_async.records.batch, kafka_async.records.arrow\n"
        "print([m for m in ('crc32c', 'lz4', 'zstandard', 'cramjam', 'pyarrow', 'asyncio', "
        "'anyio') if m in sys.modules])"
    )
    assert done.stdout == "[]\n", done.stderr
