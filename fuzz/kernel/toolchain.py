"""Finds clang and its runtime libraries, or installs them where possible."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

NAMES = ("clang", *(f"clang-{version}" for version in range(22, 13, -1)))
PACKAGES = ("clang", "libclang-rt-dev")  # of Debian
ENGINE = "fuzzer_no_main"
SANITIZER = "asan"


class ToolchainError(Exception):
    """Raised if an instrumented kernel cannot be built; the message says what to install."""


@dataclass(frozen=True, slots=True)
class Clang:
    """Describes a usable clang: its command, version and runtime libraries."""

    command: str
    version: str
    engine: Path
    """libFuzzer without a main function, to be linked."""
    sanitizer: Path
    """AddressSanitizer's shared library, to be loaded before everything else."""


def require_clang() -> Clang:
    """Return the clang of this machine; install it for root on Debian."""
    found = find_clang()
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        _install()
        found = find_clang()
    if found is None:
        advice = f"apt-get install {' '.join(PACKAGES)}"
        raise ToolchainError(f"install clang and its runtime libraries (on Debian: {advice})")
    return found


def find_clang() -> Clang | None:
    """Return the first clang on the PATH that has both libraries, if there is one."""
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
    # The machine is in the file's name, or since LLVM 17 possibly in the directory's.
    for file in (
        f"libclang_rt.{name}-{platform.machine()}.{suffix}",
        f"libclang_rt.{name}.{suffix}",
    ):
        output = Path(_output(command, f"-print-file-name={file}"))
        if output.is_absolute() and output.exists():
            return output
    return None


def _version(command: str) -> str:
    return _output(command, "--version").partition("\n")[0]


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _install() -> None:
    _apt_get("update", "-q")
    print(f"installing {' '.join(PACKAGES)}", flush=True)
    _apt_get("install", "-q", "-y", "--no-install-recommends", *PACKAGES)


def _apt_get(*arguments: str) -> None:
    # Errors are ignored: find_clang tells whether clang is still missing.
    subprocess.run(
        ["apt-get", *arguments],
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        check=False,
    )
