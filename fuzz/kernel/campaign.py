"""The runs of one campaign, each in a process of its own, and what each says."""

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
"""How a campaign's time is divided: most to what strangers' bytes reach."""
_REPLAY_TIMEOUT = 1800
_SANITIZED = {
    # CPython leaves memory at its end; and its own allocator would hide what the kernel does.
    "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1:strict_string_checks=1",
    "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
    "PYTHONMALLOC": "malloc",
}


@dataclass(slots=True)
class Run:
    """What one process did."""

    findings: list[str] = field(default_factory=list[str])
    """The findings, each with what to do to see it again."""
    executions: int = 0
    per_second: int = 0
    edges: int = 0
    summary: str = ""


@dataclass(frozen=True, slots=True)
class Campaign:
    """The targets on one build, with their corpora below a directory."""

    build: Build
    directory: Path
    every: int
    """The pure kernel is asked about every so many-th input."""
    max_size: int

    def corpus(self, target: str) -> Path:
        """Where the inputs are kept that reach something new; it grows from run to run."""
        return self.directory / "corpus" / target

    def prepare(self, target: str) -> None:
        """Write the seeds and the dictionary, and make room for the rest."""
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
        """Where the inputs of findings are kept."""
        return self.directory / "findings"

    @property
    def dictionary(self) -> Path:
        """libFuzzer's words."""
        return self.directory / "dictionary"

    def fuzz(self, target: str, *, seconds: int, runs: int, seed: int) -> Run:
        """Fuzz for some seconds, or for so many runs."""
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
        status, told = _python(command, {}, None)
        (self.directory / f"{target}.log").write_text(told)
        result = Run(
            executions=_last(r"number_of_executed_units:\s+(\d+)", told),
            per_second=_last(r"average_exec_per_sec:\s+(\d+)", told),
            edges=_last(r"cov: (\d+)", told),
        )
        for file in sorted(self.findings.iterdir()):
            if file.name not in before:
                result.findings.append(f"{_essence(told)}\n  {replay_command(target, file)}")
        if status and not result.findings:
            result.findings.append(f"the fuzzer ended with {status}:\n{told[-3000:]}")
        if not result.edges and not result.findings:
            result.findings.append(f"no coverage was counted:\n{told[-3000:]}")
        return result

    def check(self, target: str, *places: Path) -> Run:
        """Both kernels on those inputs, the compiled one under AddressSanitizer."""
        words = {**_SANITIZED, "LD_PRELOAD": str(self.build.clang.sanitizer)}
        return self._replay("check", str(self.build.memory), words, target, places)

    def measure(self, target: str, *places: Path) -> Run:
        """The installed kernel's time and memory on those inputs."""
        return self._replay("measure", "-", {}, target, places)

    def _replay(
        self, mode: str, kernel: str, words: dict[str, str], target: str, places: tuple[Path, ...]
    ) -> Run:
        places = places or tuple(
            self.directory / kind / target for kind in ("corpus", "seeds", "large")
        )
        command = ["fuzz.kernel.replay", mode, kernel, target, *map(str, places)]
        status, told = _python(command, words, _REPLAY_TIMEOUT)
        (self.directory / f"{target}-{mode}.log").write_text(told)
        result = Run(summary="".join(re.findall(rf"^{MEASURED}(.*)$", told, re.MULTILINE)))
        _, *parts = re.split(rf"^{INPUT}(.*)\n", told, flags=re.MULTILINE)
        names = parts[::2]
        for name, said in zip(names, parts[1::2], strict=True):
            if FINDING in said:
                result.findings.append(
                    f"{_essence(said)}\n  {replay_command(target, Path(name), mode)}"
                )
        if not result.summary:  # the process ended at an input
            again = replay_command(target, Path(names[-1]), mode) if names else ""
            result.findings.append(f"ended with {status}:\n{told[-3000:]}\n  {again}")
        return result

    def coverage(self, targets: list[str]) -> dict[str, list[int]]:
        """Edges reached and edges of each function of the kernel, by all corpora together."""
        pairs = [
            f"{target}={self.directory / kind / target}"
            for target in targets
            for kind in ("corpus", "seeds")
        ]
        kernel, engine = str(self.build.coverage), str(self.build.engine)
        _, told = _python(["fuzz.kernel.coverage", kernel, engine, *pairs], {}, _REPLAY_TIMEOUT)
        return json.loads(told.splitlines()[-1])


def replay_command(target: str, file: Path, mode: str = "check") -> str:
    """What to type to see a finding again."""
    python = Path(sys.executable)
    shown = python.relative_to(ROOT) if python.is_relative_to(ROOT) else python
    measured = " --measure" if mode == "measure" else ""
    return f"{shown} -m fuzz.kernel --targets {target} --replay {file}{measured}"


def _python(arguments: list[str], words: dict[str, str], timeout: float | None) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=ROOT,
        env={**os.environ, **words},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=timeout,
        check=False,
    )
    return done.returncode, done.stdout.decode(errors="replace")


def _last(pattern: str, told: str) -> int:
    found = re.findall(pattern, told)
    return int(found[-1]) if found else 0


def _essence(told: str) -> str:
    """The sentence of an error: the exception's, a sanitizer's, or libFuzzer's."""
    for pattern in (
        r"^(?:[\w.]+(?:Finding|Error|Exception|Exit)\b.*)(?:\n  .*){0,2}",
        r"runtime error: .*",
        r"ERROR: .*",
    ):
        found = re.search(pattern, told, re.MULTILINE)
        if found is not None:
            return found[0]
    return told.strip()[-300:]
