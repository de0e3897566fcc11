"""Compiles the kernel with clang twice: with counters for coverage, and with AddressSanitizer.

A build is kept under a hash of its sources, compiler and flags, so that it is compiled again only
if one of them changes.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import sysconfig
import uuid
from dataclasses import dataclass
from pathlib import Path

from fuzz.kernel.toolchain import Clang, ToolchainError

HERE = Path(__file__).parent
SOURCES = HERE.parent.parent / "kafka_async" / "kernel"
MODULES = ("_ckernel", "_ccodec")

COMMON = ["-gline-tables-only", "-fPIC", "-shared", "-fno-omit-frame-pointer", "-O1"]
COVERAGE = ["-fwrapv", "-fsanitize=fuzzer-no-link"]
# Without -fwrapv, which Python uses for extensions, so that overflows are reported.
MEMORY = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-shared-libasan"]
COUNTERS = HERE / "counters.c"


@dataclass(frozen=True, slots=True)
class Build:
    """Holds the directories of the instrumented kernels, libFuzzer's module and the compiler."""

    coverage: Path
    memory: Path
    engine: Path
    clang: Clang


def build(clang: Clang, directory: Path, sources: Path = SOURCES) -> Build:
    """Compile both kernels and libFuzzer's module unless they exist already."""
    compiler = Compiler(clang, directory)
    kernel = [sources / f"{name}.pyx" for name in MODULES]
    included = [*sources.glob("*.pxi"), *sources.glob("*.h")]
    libraries = ["-Wl,--whole-archive", str(clang.engine), "-Wl,--no-whole-archive"]
    libraries += ["-lstdc++", "-lm", "-lpthread", "-ldl"]
    return Build(
        coverage=compiler.extensions("coverage", kernel, COVERAGE, included, COUNTERS),
        memory=compiler.extensions("memory", kernel, MEMORY, included),
        engine=compiler.extensions("engine", [HERE / "engine.pyx"], libraries, []) / "engine.so",
        clang=clang,
    )


@dataclass(frozen=True, slots=True)
class Compiler:
    """Compiles extension modules from Cython sources with clang."""

    clang: Clang
    directory: Path

    def extensions(
        self,
        name: str,
        sources: list[Path],
        flags: list[str],
        included: list[Path],
        with_plain: Path | None = None,
    ) -> Path:
        """Return the directory of the modules; `with_plain` is linked, compiled without flags."""
        key = hashlib.sha256(sys.version.encode())
        for word in (self.clang.version, *COMMON, *flags):
            key.update(word.encode())
        for file in (*sources, *sorted(included), *([with_plain] if with_plain else [])):
            key.update(file.read_bytes())
        home = self.directory / name / key.hexdigest()[:12]
        if not home.exists():
            shutil.rmtree(home.parent, ignore_errors=True)
            unfinished = self.directory / f"{name}-{uuid.uuid4().hex}"
            unfinished.mkdir(parents=True)
            for source in sources:
                self._compile(unfinished, source, flags, with_plain)
            home.parent.mkdir()
            unfinished.rename(home)
        return home

    def _compile(self, home: Path, source: Path, flags: list[str], with_plain: Path | None) -> None:
        c_file = home / f"{source.stem}.c"
        # The kernel refers to its own structs, whose names Cython derives from the module's name.
        name = f"kafka_async.kernel.{source.stem}" if source.stem in MODULES else source.stem
        cython = [sys.executable, "-m", "cython", "-3", "--module-name", name]
        _run(*cython, str(source), "-o", str(c_file))
        if with_plain is not None:
            plain = home / f"{source.stem}-{with_plain.stem}.o"
            _run(self.clang.command, "-fPIC", "-c", str(with_plain), "-o", str(plain))
            flags = [*flags, str(plain)]
        include = (f"-I{sysconfig.get_path('include')}", f"-I{source.parent}")
        output = ["-o", str(home / f"{source.stem}.so")]
        _run(self.clang.command, *COMMON, *include, str(c_file), *output, *flags)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ToolchainError(f"{command[0]} failed on the kernel:\n{done.stdout}{done.stderr}")
