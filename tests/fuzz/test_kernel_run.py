"""Tests of the native fuzzer as a whole: it passes the kernel and finds a missing bounds check."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fuzz.kernel import toolchain
from fuzz.kernel.build import MODULES, SOURCES
from kafka_async.testing.environment import in_ci

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
TARGETS = ("sections", "batches", "writing", "messages", "values")


@pytest.fixture(scope="module", autouse=True)
def require_clang() -> None:
    """Install clang for root on Debian, otherwise skip or, with CI=true, fail."""
    try:
        toolchain.require_clang()
    except toolchain.ToolchainError as error:
        report = pytest.fail if in_ci() else pytest.skip
        report(str(error))


def fuzz(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fuzz.kernel", "--directory", str(folder), *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder in which the correct kernel is compiled once."""
    return tmp_path_factory.mktemp("correct")


def test_short_run_finds_nothing_and_covers_the_parsers(home: Path, seeded: int) -> None:
    done = fuzz(home, "--seconds", "24", "--seed", str(seeded), "--functions")
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert f"seed {seeded}," in said
    for target in TARGETS:
        found = re.search(rf"^fuzz +{target} +([\d,]+) executions.* (\d+) edges", said, re.M)
        assert found, said
        assert int(found[1].replace(",", "")) > 1_000, said
        assert int(found[2]) > 200, said
        assert re.search(rf"^AddressSanitizer +{target} +[1-9]\d* inputs$", said, re.M), said
        assert re.search(rf"^cost +{target} +[1-9]\d* inputs, at most", said, re.M), said
    for function in ("ckernel_read_row", "ckernel_read_field", "ckernel_skip_headers"):
        some, edges = map(int, re.findall(rf"(\d+) of +(\d+)  f {function}$", said, re.M)[0])
        assert some >= 0.8 * edges, said
    assert said.endswith("no findings\n")


def kernel_without(folder: Path, module: str, bound: str, instead: str) -> Path:
    """Copy the kernel's sources without one bounds check."""
    for name in MODULES:
        shutil.copy(SOURCES / f"{name}.pyx", folder)
    source = folder / f"{module}.pyx"
    text = source.read_text()
    assert text.count(bound) == 1, f"the kernel no longer contains {bound!r}"
    source.write_text(text.replace(bound, instead))
    return folder


@pytest.mark.parametrize(
    ("target", "module", "bound", "instead"),
    [
        ("sections", "_ckernel", "length < -1 or length > remaining(cursor)", "length < -1"),
        ("messages", "_ccodec", "    if r.end - r.at < size:\n        fall_back()\n", ""),
    ],
)
def test_finds_and_replays_a_missing_bounds_check(
    tmp_path: Path, home: Path, seeded: int, target: str, module: str, bound: str, instead: str
) -> None:
    sources = tmp_path / "sources"
    sources.mkdir()
    kernel_without(sources, module, bound, instead)
    arguments = ("--targets", target, "--sources", str(sources))
    done = fuzz(tmp_path, *arguments, "--seconds", "20", "--seed", str(seeded))
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"FINDING in {target}" in done.stdout
    kept = re.findall(rf"--targets {target} --replay (\S+)", done.stdout)
    assert kept, done.stdout
    again = fuzz(tmp_path, *arguments, "--replay", kept[0])
    assert again.returncode == 1, again.stdout + again.stderr
    assert f"FINDING in {target} (replay)" in again.stdout
    correct = fuzz(home, "--targets", target, "--replay", kept[0])
    assert correct.returncode == 0, correct.stdout + correct.stderr


def test_missing_compiler_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(toolchain.ToolchainError, match="install clang and its runtime libraries"):
        toolchain.require_clang()
