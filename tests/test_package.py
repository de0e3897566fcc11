"""The public names of the package, which are loaded on first use."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

import kafka_async

HEAVY = ("crc32c", "lz4", "zstandard", "cramjam", "uvloop", "typer", "rich", "pyspark", "anyio")


@pytest.mark.parametrize("name", kafka_async.__all__)
def test_every_public_name_resolves(name: str) -> None:
    assert getattr(kafka_async, name) is not None
    assert name in dir(kafka_async)


def test_unknown_name_raises_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        _ = kafka_async.Nothing


def test_importing_the_package_loads_no_other_module_of_it() -> None:
    code = "import sys, kafka_async; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = run.stdout.split()
    assert [name for name in loaded if name.split(".")[0] in HEAVY] == []
    assert [name for name in loaded if name.startswith("kafka_async.")] == []


def test_run_returns_the_result_of_a_coroutine() -> None:
    async def main() -> str:
        return type(asyncio.get_running_loop()).__module__

    assert kafka_async.run(main()).split(".")[0] in {"uvloop", "asyncio"}
