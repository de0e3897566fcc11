"""The wheel in a new environment, as installed by an application that uses the pytest fixture."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[2]
CONSTRAINTS = ROOT / "tools" / "constraints.txt"

APPLICATION_TEST = """
import pytest
from kafka_async import Consumer, Producer
from kafka_async.kernel import IMPLEMENTATION


@pytest.mark.asyncio
async def test_my_service(kafka_cluster):
    topic = kafka_cluster.topic("mine")
    async with Producer(kafka_cluster.bootstrap_servers) as producer:
        await producer.send(topic, b"hello")
    async with Consumer(
        kafka_cluster.bootstrap_servers, topics=[topic], auto_offset_reset="earliest"
    ) as consumer:
        assert (await anext(consumer)).value == b"hello"
    assert IMPLEMENTATION == "c"
"""


def run(*command: str | Path, cwd: Path) -> str:
    """Run a program that must succeed, and return its standard output."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("KAFKA_")}
    variables.pop("PYTHONPATH", None)
    finished = subprocess.run(
        list(map(str, command)), cwd=cwd, env=variables, capture_output=True, text=True, check=False
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout


def test_an_application_uses_the_wheel_and_its_fixture(tmp_path: Path) -> None:
    source, wheels, home = tmp_path / "source", tmp_path / "wheels", tmp_path / "home"
    skipped = shutil.ignore_patterns(".git", ".venv*", "build", "*.so", "*.c", "site", "tests")
    shutil.copytree(ROOT, source, ignore=skipped)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    run(*pip, "wheel", "--no-build-isolation", "--no-deps", "-w", wheels, source, cwd=tmp_path)
    (wheel,) = wheels.glob("*.whl")
    run(sys.executable, "-m", "venv", home, cwd=tmp_path)
    python = home / "bin" / "python"
    install = [python, "-m", "pip", "--disable-pip-version-check", "install", "-q"]
    run(*install, "-c", CONSTRAINTS, f"{wheel}[testing]", cwd=tmp_path)
    (tmp_path / "test_mine.py").write_text(APPLICATION_TEST)
    scope = "asyncio_default_fixture_loop_scope=function"
    output = run(
        python, "-m", "pytest", "-q", "-W", "error", "-o", scope, "test_mine.py", cwd=tmp_path
    )
    assert "1 passed" in output
