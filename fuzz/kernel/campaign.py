"""Runs the processes of a fuzzing campaign and reads their output."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from fuzz.kernel import seeds
from fuzz.kernel.replay import FINDING, INPUT, MEASURED

if TYPE_CHECKING:
    from fuzz.kernel.build import Build

ROOT = Path(__file__).parent.parent.parent
TARGETS: Final = ("sections", "batches", "writing", "messages", "values")
SHARES: Final = {"sections": 3, "batches": 4, "writing": 2, "messages": 2, "values": 1}
"""Shares of a campaign's time; targets that read bytes from the network get most."""
_REPLAY_TIMEOUT = 1800
_SANITIZED = {
    # CPython leaks memory at exit, and its allocator would hide errors of the kernel.
    "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1:strict_string_checks=1",
    "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
    "PYTHONMALLOC": "malloc",
}


@dataclass(slots=True)
class Run:
    """Holds the result of one process."""

    findings: list[str] = field(default_factory=list[str])
    """Findings, each with the command that repeats it."""
    executions: int = 0
    per_second: int = 0
    edges: int = 0
    summary: str = ""


@dataclass(frozen=True, slots=True)
class Campaign:
    """Runs targets on one build, with their corpora below a directory."""

    build: Build
    directory: Path
    every: int
    """Every n-th input also runs on the pure kernel."""
    max_size: int

    def corpus(self, target: str) -> Path:
        """Return the directory of the inputs that reach new code; it grows with each run."""
        return self.directory / "corpus" / target

    def prepare(self, target: str) -> None:
        """Write the seeds and the dictionary, and create the other directories."""
        for directory in (self.corpus(target), self.findings):
            directory.mkdir(parents=True, exist_ok=True)
        for kind, inputs in (("seeds", seeds.seeds(target)), ("large", seeds.large(target))):
            directory = self.directory / kind / target
            directory.mkdir(parents=True, exist_ok=True)
            for number, data in enumerate(inputs):
                (directory / f"{number:03}").write_bytes(data)
        self.dictionary.write_text(seeds.dictionary())

    @property
    def findings(self) -> Path:
        """Directory of the inputs of findings."""
        return self.directory / "findings"

    @property
    def dictionary(self) -> Path:
        """File of libFuzzer's dictionary."""
        return self.directory / "dictionary"

    def fuzz(self, target: str, *, seconds: int, runs: int, seed: int) -> Run:
        """Fuzz for `seconds`, or for `runs` executions if that is not 0."""
        before = {file.name for file in self.findings.iterdir()}
        limit = f"-runs={runs}" if runs else f"-max_total_time={seconds}"
        arguments = [
            *(str(self.corpus(target)), str(self.directory / "seeds" / target), limit),
            *(f"-seed={seed}", f"-max_len={self.max_size}", f"-dict={self.dictionary}"),
            *("-timeout=20", "-print_final_stats=1"),
            f"-artifact_prefix={self.findings / target}-",
        ]
        kernel, engine = str(self.build.coverage), str(self.build.engine)
        command = ["fuzz.kernel.worker", target, kernel, engine, str(self.every), *arguments]
        status, output = _python(command, {}, None)
        (self.directory / f"{target}.log").write_text(output)
        result = Run(
            executions=_last(r"number_of_executed_units:\s+(\d+)", output),
            per_second=_last(r"average_exec_per_sec:\s+(\d+)", output),
            edges=_last(r"cov: (\d+)", output),
        )
        for file in sorted(self.findings.iterdir()):
            if file.name not in before:
                result.findings.append(f"{_error_line(output)}\n  {replay_command(target, file)}")
        if status and not result.findings:
            result.findings.append(f"the fuzzer ended with {status}:\n{output[-3000:]}")
        if not result.edges and not result.findings:
            result.findings.append(f"no coverage was counted:\n{output[-3000:]}")
        return result

    def check(self, target: str, *places: Path) -> Run:
        """Run both kernels on inputs, the compiled one with AddressSanitizer."""
        environment = {**_SANITIZED, "LD_PRELOAD": str(self.build.clang.sanitizer)}
        return self._replay("check", str(self.build.memory), environment, target, places)

    def measure(self, target: str, *places: Path) -> Run:
        """Measure time and memory of the installed kernel on inputs."""
        return self._replay("measure", "-", {}, target, places)

    def _replay(
        self,
        mode: str,
        kernel: str,
        environment: dict[str, str],
        target: str,
        places: tuple[Path, ...],
    ) -> Run:
        places = places or tuple(
            self.directory / kind / target for kind in ("corpus", "seeds", "large")
        )
        command = ["fuzz.kernel.replay", mode, kernel, target, *map(str, places)]
        status, output = _python(command, environment, _REPLAY_TIMEOUT)
        (self.directory / f"{target}-{mode}.log").write_text(output)
        result = Run(summary="".join(re.findall(rf"^{MEASURED}(.*)$", output, re.MULTILINE)))
        _, *parts = re.split(rf"^{INPUT}(.*)\n", output, flags=re.MULTILINE)
        names = parts[::2]
        for name, said in zip(names, parts[1::2], strict=True):
            if FINDING in said:
                result.findings.append(
                    f"{_error_line(said)}\n  {replay_command(target, Path(name), mode)}"
                )
        if not result.summary:  # the process ended at an input
            again = replay_command(target, Path(names[-1]), mode) if names else ""
            result.findings.append(f"ended with {status}:\n{output[-3000:]}\n  {again}")
        return result

    def coverage(self, targets: list[str]) -> dict[str, list[int]]:
        """Return the reached edges and all edges of each kernel function, over all corpora."""
        pairs = [
            f"{target}={self.directory / kind / target}"
            for target in targets
            for kind in ("corpus", "seeds")
        ]
        kernel, engine = str(self.build.coverage), str(self.build.engine)
        _, output = _python(["fuzz.kernel.coverage", kernel, engine, *pairs], {}, _REPLAY_TIMEOUT)
        return json.loads(output.splitlines()[-1])


def replay_command(target: str, file: Path, mode: str = "check") -> str:
    """Return the command that repeats a finding."""
    python = Path(sys.executable)
    shown = python.relative_to(ROOT) if python.is_relative_to(ROOT) else python
    measured = " --measure" if mode == "measure" else ""
    return f"{shown} -m fuzz.kernel --targets {target} --replay {file}{measured}"


def _python(
    arguments: list[str], environment: dict[str, str], timeout: float | None
) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=timeout,
        check=False,
    )
    return done.returncode, done.stdout.decode(errors="replace")


def _last(pattern: str, output: str) -> int:
    found = re.findall(pattern, output)
    return int(found[-1]) if found else 0


def _error_line(output: str) -> str:
    """Return the line of an exception, or of an error of a sanitizer or libFuzzer."""
    for pattern in (
        r"^(?:[\w.]+(?:Finding|Error|Exception|Exit)\b.*)(?:\n  .*){0,2}",
        r"runtime error: .*",
        r"ERROR: .*",
    ):
        found = re.search(pattern, output, re.MULTILINE)
        if found is not None:
            return found[0]
    return output.strip()[-300:]
