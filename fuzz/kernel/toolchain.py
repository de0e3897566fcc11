"""clang and its runtime libraries: found, installed where that is possible, or asked for."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

NAMES = ("clang", *(f"clang-{version}" for version in range(22, 13, -1)))
ENGINE = "fuzzer_no_main"
SANITIZER = "asan"


class ToolchainError(Exception):
    """This machine cannot build an instrumented kernel; the message says what to install."""


@dataclass(frozen=True, slots=True)
class Clang:
    """A clang that has what is needed: its command, what it says it is, and two libraries."""

    command: str
    version: str
    engine: Path
    """libFuzzer without a main function of its own, to be linked."""
    sanitizer: Path
    """AddressSanitizer's shared library, to be loaded before everything else."""


def require_clang() -> Clang:
    """The clang of this machine; root on a Debian gets it installed.

    Raises:
        ToolchainError: there is none, or it lacks its runtime libraries, and it stays so.
    """
    found = find_clang()
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        _install()
        found = find_clang()
    if found is None:
        advice = f"apt-get install {' '.join(_packages())}"
        raise ToolchainError(f"install clang and its runtime libraries (on Debian: {advice})")
    return found


def find_clang() -> Clang | None:
    """The first clang on the PATH that has both libraries, if there is one."""
    for name in NAMES:
        command = shutil.which(name)
        if command is None:
            continue
        engine = _library(command, ENGINE, "a")
        sanitizer = _library(command, SANITIZER, "so")
        if engine is not None and sanitizer is not None:
            return Clang(command, _version(command), engine, sanitizer)
    return None


def _library(command: str, name: str, suffix: str) -> Path | None:
    # With the machine in the file's name, or since LLVM 17 perhaps in its directory's.
    for file in (
        f"libclang_rt.{name}-{platform.machine()}.{suffix}",
        f"libclang_rt.{name}.{suffix}",
    ):
        told = Path(_output(command, f"-print-file-name={file}"))
        if told.is_absolute() and told.exists():
            return told
    return None


def _version(command: str) -> str:
    return _output(command, "--version").partition("\n")[0]


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _packages() -> list[str]:
    command = shutil.which("clang")
    if command is None:
        return ["clang", "libclang-rt-14-dev"] if not shutil.which("apt-cache") else _depended()
    major = re.search(r"version (\d+)", _version(command))
    return ["clang", f"libclang-rt-{major[1] if major else 14}-dev"]


def _depended() -> list[str]:
    # The package `clang` is a name for the release's own version: clang-14, say.
    told = subprocess.run(
        ["apt-cache", "depends", "clang"], capture_output=True, text=True, check=False
    )
    major = re.search(r"Depends: clang-(\d+)", told.stdout)
    return ["clang", f"libclang-rt-{major[1] if major else 14}-dev"]


def _install() -> None:
    _apt_get("update", "-q")
    packages = _packages()
    print(f"installing {' '.join(packages)}", flush=True)
    _apt_get("install", "-q", "-y", "--no-install-recommends", *packages)


def _apt_get(*arguments: str) -> None:
    # What goes wrong shows in what is still missing.
    subprocess.run(
        ["apt-get", *arguments],
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        check=False,
    )
