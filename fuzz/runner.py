"""Runs fuzzing processes and stores their results."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from fuzz.measure import INPUT, Finding
from fuzz.records import dictionary
from fuzz.target import load

ROOT: Final = Path(__file__).parent.parent
FOLDER: Final = ROOT / "artifacts/fuzz"
"""Folder of the corpus, the findings and the logs."""

MAX_SECONDS_PER_INPUT: Final = 10
MAX_MEMORY_MB: Final = 1024
"""Limits that end a run with a finding; the promised limits are measured afterwards."""

_STARTUP_TIMEOUT: Final = 120  # seconds for writing seeds and instrumenting, besides fuzzing
_PROGRESS: Final = re.compile(r"^#\d+\s+\w+\s+cov: (\d+) ft: (\d+) corp: (\d+)/", re.MULTILINE)
_EXECUTIONS: Final = re.compile(r"^stat::number_of_executed_units: (\d+)$", re.MULTILINE)
_SECONDS: Final = re.compile(r"^Done \d+ runs in (\d+) second", re.MULTILINE)
_ERRORS: Final = (
    r"^(?:[\w.]*(?:Finding|Error|Exception|Exit)\b.*)(?:\n  .*){0,2}",
    r"runtime error: .*",
    r"ERROR: .*",
)
"""Lines of an exception, of UBSan, and of AddressSanitizer or libFuzzer."""
_COMPILED_KERNEL: Final = {"KAFKA_ASYNC_KERNEL": "c"}


class FuzzerFailed(RuntimeError):
    """Raised if the fuzzer itself failed, which says nothing about the client."""


@dataclass(frozen=True)
class Engine:
    """Describes the processes that fuzz.

    Attributes:
        module: Module to run, and its first arguments; the target and libFuzzer's arguments follow.
        replay: Module and arguments that repeat a finding of a target; the file follows.
    """

    module: Sequence[str] = ("fuzz.engine",)
    environment: Mapping[str, str] = field(default_factory=lambda: _COMPILED_KERNEL)
    replay: str = "fuzz replay {}"
    max_length: int = 64 * 1024


ATHERIS: Final = Engine()


@dataclass
class Run:
    """Holds the result of one run of one target; the corpus has an input per new feature."""

    target: str
    seed: int
    executions: int = 0
    seconds: int = 0
    coverage: int = 0
    features: int = 0
    corpus: int = 0
    findings: list[Finding] = field(default_factory=list[Finding])
    replays: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    replay_command: str = ""

    def summary(self) -> str:
        """Return the run in one line."""
        rate = self.executions / max(self.seconds, 1)
        return (
            f"{self.target:12} {self.executions:>11,} executions {rate:>8,.0f}/s, "
            f"coverage {self.coverage:,} edges / {self.features:,} features, "
            f"corpus {self.corpus:,}, findings {len(self.findings)}"
        )

    def report(self) -> int:
        """Print each finding and the command that repeats it; return their number."""
        for finding in self.findings:
            print(f"finding in {self.target}: {finding.what}")
            print(f"  {self.replay_command} {finding.file}", flush=True)
        return len(self.findings)


def fuzz(
    target: str,
    *,
    seconds: int,
    runs: int,
    seed: int,
    folder: Path = FOLDER,
    engine: Engine = ATHERIS,
) -> Run:
    """Fuzz a target for `seconds` or `runs`, 0 for no limit, with the corpus in `folder`.

    Raises:
        FuzzerFailed: The fuzzer did not start, or failed without a finding.
    """
    made = new_run(target, seed, folder, engine)
    corpus, findings, log = (folder / part / target for part in ("corpus", "findings", "log"))
    known = set(findings.iterdir())
    options = [
        f"-seed={seed or 1}",  # 0 would be a random seed
        f"-max_total_time={seconds}",
        f"-runs={runs or -1}",
        f"-max_len={engine.max_length}",
        f"-timeout={MAX_SECONDS_PER_INPUT}",
        f"-rss_limit_mb={MAX_MEMORY_MB}",
        f"-dict={folder / 'dictionary'}",
        f"-artifact_prefix={findings}/",
        "-print_final_stats=1",
        *(str(corpus), str(folder / "seeds" / target)),
    ]
    command = [sys.executable, "-m", *engine.module, target, *options]
    patience = seconds + _STARTUP_TIMEOUT if seconds else None
    with log.open("wb") as out:
        status = _wait(command, engine.environment, out, patience)
    text = log.read_text("utf-8", "replace")
    _read_progress(made, text)
    new = sorted(set(findings.iterdir()) - known)
    made.findings = [Finding(str(path), _error_line(text) or path.name) for path in new]
    if status and not made.findings:
        raise FuzzerFailed(f"{target}: exit status {status}; see {log}\n{text[-2000:]}")
    if not made.executions and not made.findings:
        raise FuzzerFailed(f"{target}: nothing was executed; see {log}")
    return made


def new_run(target: str, seed: int, folder: Path = FOLDER, engine: Engine = ATHERIS) -> Run:
    """Create the folders of a target, and write its seeds, large inputs and the dictionary."""
    for kind in ("corpus", "findings", "seeds", "large"):
        (folder / kind / target).mkdir(parents=True, exist_ok=True)
    (folder / "log").mkdir(exist_ok=True)
    (folder / "dictionary").write_text(dictionary())
    loaded = load(target)
    for name, data in loaded.seeds():
        (folder / "seeds" / target / name).write_bytes(data)
    for number, data in enumerate(loaded.large()):
        (folder / "large" / target / f"{number:03}").write_bytes(data)
    command = f"{Path(sys.executable)} -m {engine.replay.format(target)}"
    return Run(target, seed, replay_command=command)


def _wait(
    command: list[str], environment: Mapping[str, str], out: Any, patience: float | None
) -> int:
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment_with(environment),
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=subprocess.STDOUT,
    )
    try:
        return process.wait(patience)
    except BaseException:
        process.kill()
        process.wait()
        raise


def environment_with(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a process, with these variables."""
    return {**os.environ, "PYTHONHASHSEED": "0", **variables}


def _read_progress(made: Run, text: str) -> None:
    if progress := _PROGRESS.findall(text):
        made.coverage, made.features, made.corpus = map(int, progress[-1])
    if executions := _EXECUTIONS.findall(text):
        made.executions = int(executions[-1])
    if seconds := _SECONDS.findall(text):
        made.seconds = int(seconds[-1])


def _error_line(output: str) -> str:
    """Return the lines of an exception, or of an error of a sanitizer or libFuzzer."""
    for pattern in _ERRORS:
        if found := re.search(pattern, output, re.MULTILINE):
            return found[0]
    return ""


# -- replay ---------------------------------------------------------------------------------------


def replay(
    made: Run, what: str, environment: Mapping[str, str], folder: Path, *options: str
) -> None:
    """Replay the corpus in a process with this environment; add to the run's findings."""
    # Large inputs are the most expensive of their kind, and measure the compiled kernel.
    large = () if environment.get("KAFKA_ASYNC_KERNEL") == "python" else ("large",)
    places = [str(folder / part / made.target) for part in ("seeds", "corpus", *large)]
    found = measure(made.target, places, environment, *options)
    for finding in found.pop("findings"):
        kept = folder / "findings" / made.target / f"replay-{Path(finding['file']).name}"
        kept.write_bytes(Path(finding["file"]).read_bytes())
        made.findings.append(Finding(str(kept), f"{finding['what']} ({what})"))
    made.replays[what] = found


def measure(
    target: str, places: list[str], environment: Mapping[str, str], *options: str
) -> dict[str, Any]:
    """Run fuzz.measure in a process; if the process ends at an input, that is the finding."""
    done = subprocess.run(
        [sys.executable, "-m", "fuzz.measure", *options, target, *places],
        cwd=ROOT,
        env=environment_with(environment),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    *inputs, last = done.stdout.splitlines() or [""]
    if done.returncode == 0:
        return json.loads(last)
    if not last.startswith(INPUT):
        raise FuzzerFailed(f"{target}: the replay failed\n{done.stderr[-2000:]}")
    what = _error_line(done.stderr) or f"exit status {done.returncode}: {done.stderr[-300:]}"
    finding = {"file": last.removeprefix(INPUT), "what": what}
    return {"inputs": len(inputs) + 1, "findings": [finding]}
