"""valgrind: found, installed where that is possible, or asked for; and a program run under it.

The program (`tools.instructions.worker`) says itself when a path begins and ends, and callgrind
writes a file for each. Nothing is instrumented before the first path, so that the start of Python
takes a second or two, not half a minute.
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
    from tools.instructions.path import Path

HERE = FilePath(__file__).parent
ROOT = HERE.parents[1]
SECONDS = 300
"""After which a path is given up: most take three."""
PATHS = "tools.instructions.paths"
"""The module with the table of the paths."""

# Nothing of the caller's environment, which would lie in the program's memory and move it; and the
# C library copies with the instructions that every x86-64 processor has, not with the best ones of
# the one at hand.
ENVIRONMENT = {
    "PATH": os.defpath,
    "PYTHONHASHSEED": "0",
    "KAFKA_ASYNC_KERNEL": "c",
    "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX512F,-AVX2,-AVX2_Usable,-AVX_Fast_Unaligned_Load,-ERMS",
}


class ToolError(Exception):
    """Nothing can be counted on this machine; the message says why and what to install."""


@dataclass(frozen=True)
class Count:
    """Instructions: all of them, and those of each function by itself."""

    total: float
    functions: Mapping[str, float]


def require_valgrind() -> None:
    """See to it that there is a valgrind; root on a Debian gets it installed.

    Raises:
        ToolError: there is none, and it stays so.
    """
    if not _complete() and os.geteuid() == 0 and shutil.which("apt-get"):
        for arguments in (["update"], ["install", "-y", "--no-install-recommends", "valgrind"]):
            subprocess.run(
                ["apt-get", "-q", *arguments],
                env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                check=False,
            )
    if not _complete():
        raise ToolError(
            "install valgrind with its C headers, and a C compiler "
            "(on Debian: apt-get install valgrind gcc)"
        )


def _complete() -> bool:
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
    """The instructions that one operation of each path takes, each path in a process of its own.

    Args:
        paths: what to count; as many at once as there are processors.
        folder: for callgrind's files and a small library; what lies there is replaced.
        module: whose table `PATHS` the paths are in.

    Raises:
        ToolError: a program failed; the message is what it said.
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
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ToolError(f"{command[0]} was ended: it took longer than {SECONDS} s") from None
    if done.returncode:
        raise ToolError(f"{command[0]} failed:\n{done.stdout}{done.stderr}")


_NAME = re.compile(r"\((\d+)\)(?: (.*))?")


def _read(path: FilePath) -> Count:
    """What a file of callgrind's says."""
    total = 0
    functions: Counter[str] = Counter()
    names: dict[str, str] = {}
    lines = iter(path.read_text().splitlines())
    function = ""
    for line in lines:
        if line.startswith("fn="):
            function = _named(line.removeprefix("fn="), names)
        elif line.startswith("cfn="):
            _named(line.removeprefix("cfn="), names)
        elif line.startswith("calls="):
            next(lines)  # what the call cost, which is the other function's
        elif line.startswith("totals: "):
            total = int(line.removeprefix("totals: "))
        elif line and line[0] in "+-*0123456789":
            functions[function] += int(line.split()[1])
    return Count(total, functions)


def _named(text: str, names: dict[str, str]) -> str:
    found = _NAME.fullmatch(text)
    if found is None:
        return text
    number, name = found.groups()
    # A function that is entered again has another name there, which ends with '2.
    return names.setdefault(number, (name or "?").removesuffix("'2"))
