"""Finds or installs valgrind, and runs programs under callgrind.

The program (`tools.instructions.worker`) marks the begin and the end of a path, and callgrind
writes a file for each. Instrumentation starts with the first path, so that Python starts in a
second or two instead of half a minute.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tools.instructions.paths import Path

HERE = FilePath(__file__).parent
ROOT = HERE.parents[1]
TIME_LIMIT = 300
"""Time limit of a path in seconds; most take three."""
PATHS = "tools.instructions.paths"
"""Module with the table of paths."""

# The environment is constant, because its size shifts the addresses of the program. The C library
# uses the instructions of all x86-64 processors instead of the best ones of this processor. Large
# blocks get pages of their own, so that one that grows is never copied, whatever lies behind it.
ENVIRONMENT = {
    "PATH": os.defpath,
    "PYTHONHASHSEED": "0",
    "KAFKA_ASYNC_KERNEL": "c",
    "GLIBC_TUNABLES": "glibc.malloc.mmap_threshold=65536:"
    "glibc.cpu.hwcaps=-AVX512F,-AVX2,-AVX2_Usable,-AVX_Fast_Unaligned_Load,-ERMS",
}


class ToolError(Exception):
    """This machine cannot count instructions; the message has the reason and what to install."""


@dataclass(frozen=True)
class Count:
    """Instructions per operation, in total and by function."""

    total: float
    functions: Mapping[str, float]


def require_valgrind() -> None:
    """Check that valgrind and a C compiler are installed; as root on Debian, install valgrind."""
    if not _is_installed() and os.geteuid() == 0 and shutil.which("apt-get"):
        for arguments in (["update"], ["install", "-y", "--no-install-recommends", "valgrind"]):
            subprocess.run(
                ["apt-get", "-q", *arguments],
                env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                check=False,
            )
    if not _is_installed():
        raise ToolError(
            "install valgrind with its C headers, and a C compiler "
            "(on Debian: apt-get install valgrind gcc)"
        )


def _is_installed() -> bool:
    if not shutil.which("valgrind") or not shutil.which("cc"):
        return False
    include = subprocess.run(
        ["cc", "-E", "-x", "c", "-", "-o", os.devnull],
        input=b"#include <valgrind/callgrind.h>",
        capture_output=True,
        check=False,
    )
    return include.returncode == 0


def count(paths: Iterable[Path], folder: FilePath, module: str = PATHS) -> dict[str, Count]:
    """Count the instructions of one operation of each path, each in a separate process.

    It replaces the files that callgrind wrote to `folder` before.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("callgrind.out*"):
        old.unlink()
    library = folder / "requests.so"
    _run(["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(HERE / "requests.c")])
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        work = {path.name: pool.submit(_count, path, library, module) for path in paths}
        return {name: future.result() for name, future in work.items()}


def _count(path: Path, library: FilePath, module: str) -> Count:
    name = re.sub("[^a-z0-9]+", "-", path.name.lower())
    out = library.with_name(f"callgrind.out.{name}")
    command = ["valgrind", "--quiet", "--tool=callgrind", "--instr-atstart=no"]
    command += [f"--callgrind-out-file={out}"]
    command += [sys.executable, "-m", "tools.instructions.worker", str(library), module, path.name]
    _run(command, ENVIRONMENT)
    once, twice = (_read(out.with_name(f"{out.name}.{part}")) for part in (1, 2))
    functions = {
        name: (instructions - once.functions.get(name, 0)) / path.operations
        for name, instructions in twice.functions.items()
    }
    return Count((twice.total - once.total) / path.operations, functions)


def _run(command: list[str], environment: Mapping[str, str] | None = None) -> None:
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIME_LIMIT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ToolError(f"{command[0]} was stopped: it took longer than {TIME_LIMIT} s") from None
    if done.returncode:
        raise ToolError(f"{command[0]} failed:\n{done.stdout}{done.stderr}")


_NAME = re.compile(r"\((\d+)\)(?: (.*))?")


def _read(path: FilePath) -> Count:
    total = 0
    functions: Counter[str] = Counter()
    names: dict[str, str] = {}
    lines = iter(path.read_text().splitlines())
    function = ""
    for line in lines:
        if line.startswith("fn="):
            function = _function_name(line.removeprefix("fn="), names)
        elif line.startswith("cfn="):
            _function_name(line.removeprefix("cfn="), names)
        elif line.startswith("calls="):
            next(lines)  # the cost of the call, which belongs to the called function
        elif line.startswith("totals: "):
            total = int(line.removeprefix("totals: "))
        elif line and line[0] in "+-*0123456789":
            functions[function] += int(line.split()[1])
    return Count(total, functions)


def _function_name(text: str, names: dict[str, str]) -> str:
    found = _NAME.fullmatch(text)
    if found is None:
        return text
    number, name = found.groups()
    # callgrind appends '2 to the name of a recursive call.
    return names.setdefault(number, (name or "?").removesuffix("'2"))
