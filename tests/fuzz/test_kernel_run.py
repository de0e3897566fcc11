"""Tests of the native fuzzer as a whole: it passes the kernel and finds a missing bounds check."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fuzz.kernel import toolchain
from fuzz.kernel.build import SOURCES
from fuzz.target import KERNEL_NAMES
from tests.programs import run_python

if TYPE_CHECKING:
    from tests.conftest import CannotRun

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module", autouse=True)
def require_clang(cannot_run: CannotRun) -> None:
    """Install clang for root on Debian, otherwise skip or, with CI=true, fail."""
    try:
        toolchain.require_clang()
    except toolchain.ToolchainError as error:
        cannot_run("the native fuzzer", error)


def fuzz(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run_python("-m", "fuzz.kernel", "--directory", folder, *arguments)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder in which the correct kernel is compiled once."""
    return tmp_path_factory.mktemp("correct")


def test_short_run_finds_nothing_and_covers_the_parsers(home: Path, seeded: int) -> None:
    done = fuzz(home, "--runs", "5000", "--seed", str(seeded), "--functions")
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert f"seed {seeded}\n" in said
    for target in KERNEL_NAMES:
        found = re.search(rf"^{target} +([\d,]+) executions.* ([\d,]+) edges", said, re.M)
        assert found, said
        assert int(found[1].replace(",", "")) > 1_000, said
        assert int(found[2].replace(",", "")) > 200, said
        assert re.search(rf"^AddressSanitizer +{target} +[1-9]\d* inputs$", said, re.M), said
        assert re.search(rf"^cost +{target} +[1-9]\d* inputs, at most", said, re.M), said
    for function in ("ckernel_read_row", "ckernel_read_field", "ckernel_skip_headers"):
        some, edges = map(int, re.findall(rf"(\d+) of +(\d+)  f {function}$", said, re.M)[0])
        assert some >= 0.8 * edges, said
    assert said.endswith("no findings\n")


def kernel_without(folder: Path, part: str, bound: str, instead: str) -> Path:
    """Copy the kernel's sources without one bounds check."""
    for suffix in ("pyx", "pxi", "h"):
        for path in SOURCES.glob(f"*.{suffix}"):
            shutil.copy(path, folder)
    source = folder / part
    text = source.read_text()
    assert text.count(bound) == 1, f"the kernel no longer contains {bound!r}"
    source.write_text(text.replace(bound, instead))
    return folder


def test_finds_and_replays_a_missing_bounds_check(tmp_path: Path, home: Path, seeded: int) -> None:
    target = "sections"
    sources = tmp_path / "sources"
    sources.mkdir()
    bound = "length < -1 or length > remaining(cursor)"
    kernel_without(sources, "record_reader.pxi", bound, "length < -1")
    arguments = ("--targets", target, "--sources", str(sources))
    done = fuzz(tmp_path, *arguments, "--seconds", "20", "--seed", str(seeded))
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"finding in {target}" in done.stdout
    kept = re.findall(rf"--targets {target} --replay (\S+)", done.stdout)
    assert kept, done.stdout
    again = fuzz(tmp_path, *arguments, "--replay", kept[0])
    assert again.returncode == 1, again.stdout + again.stderr
    assert f"finding in {target}" in again.stdout
    correct = fuzz(home, "--targets", target, "--replay", kept[0])
    assert correct.returncode == 0, correct.stdout + correct.stderr


def test_missing_compiler_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(toolchain.ToolchainError, match="install clang and its runtime libraries"):
        toolchain.require_clang()
