"""Runs fuzzing processes and stores their results."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parent.parent
FOLDER: Final = ROOT / "artifacts/fuzz"
"""Folder of the corpus, the findings, the logs and the state of the long run."""

MAX_LENGTH: Final = 64 * 1024
MAX_SECONDS_PER_INPUT: Final = 10
MAX_MEMORY_MB: Final = 1024
"""Limits that end a run with a finding; the promised limits are measured afterwards."""

_STARTUP_TIMEOUT: Final = 120  # seconds for writing seeds and instrumenting, besides fuzzing
_PROGRESS: Final = re.compile(r"^#\d+\s+\w+\s+cov: (\d+) ft: (\d+) corp: (\d+)/", re.MULTILINE)
_EXECUTIONS: Final = re.compile(r"^stat::number_of_executed_units: (\d+)$", re.MULTILINE)
_SECONDS: Final = re.compile(r"^Done \d+ runs in (\d+) second", re.MULTILINE)
_EXCEPTION: Final = "=== Uncaught Python exception: ==="


class FuzzerFailed(RuntimeError):
    """Raised if the fuzzer itself failed, which says nothing about the client."""


@dataclass
class Finding:
    """Names an input that breaks a promise, and the promise."""

    file: str
    what: str

    def replay(self, target: str) -> str:
        """Return the command that repeats it."""
        return f"{Path(sys.executable)} -m fuzz replay {target} {self.file}"


@dataclass
class Run:
    """Holds the result of one run of one target.

    Attributes:
        coverage: Edges that were reached.
        features: Edges and how often they were reached, as libFuzzer counts them.
        corpus: Number of inputs that are kept because each reaches a new feature.
        replays: Measurements of the replay, by kernel.
    """

    target: str
    seed: int
    executions: int = 0
    seconds: int = 0
    coverage: int = 0
    features: int = 0
    corpus: int = 0
    findings: list[Finding] = field(default_factory=list[Finding])
    replays: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])

    def summary(self) -> str:
        """Return the run in one line."""
        rate = self.executions / max(self.seconds, 1)
        return (
            f"{self.target:12} {self.executions:>11,} executions {rate:>8,.0f}/s, "
            f"coverage {self.coverage:,} edges / {self.features:,} features, "
            f"corpus {self.corpus:,}, findings {len(self.findings)}"
        )


def fuzz(target: str, *, seconds: int, runs: int, seed: int, folder: Path = FOLDER) -> Run:
    """Fuzz a target for `seconds` or `runs`, 0 for no limit, with the corpus in `folder`.

    Raises FuzzerFailed if the fuzzer did not start, or failed without a finding.
    """
    corpus, findings, log = (folder / part / target for part in ("corpus", "findings", "log"))
    for path in (corpus, findings, log.parent):
        path.mkdir(parents=True, exist_ok=True)
    known = set(findings.iterdir())
    options = [
        f"-seed={seed or 1}",  # 0 would be a random seed
        f"-max_total_time={seconds}",
        f"-runs={runs or -1}",
        f"-max_len={MAX_LENGTH}",
        f"-timeout={MAX_SECONDS_PER_INPUT}",
        f"-rss_limit_mb={MAX_MEMORY_MB}",
        f"-artifact_prefix={findings}/",
        "-print_final_stats=1",
        str(corpus),
    ]
    command = [sys.executable, "-m", "fuzz.engine", target, str(folder / "seeds" / target)]
    with log.open("wb") as out:
        status = _wait([*command, *options], out, seconds + _STARTUP_TIMEOUT if seconds else None)
    text = log.read_text("utf-8", "replace")
    made = Run(target, seed)
    _read_progress(made, text)
    new = sorted(set(findings.iterdir()) - known)
    made.findings = [Finding(str(path), _what(text, path)) for path in new]
    if status and not made.findings:
        raise FuzzerFailed(f"{target}: exit status {status}; see {log}\n{text[-2000:]}")
    if not made.executions:
        raise FuzzerFailed(f"{target}: nothing was executed; see {log}")
    return made


def _wait(command: list[str], out: Any, patience: float | None) -> int:
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env=_environment("c"),
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


def _environment(kernel: str) -> dict[str, str]:
    return {**os.environ, "KAFKA_ASYNC_KERNEL": kernel, "PYTHONHASHSEED": "0"}


def _read_progress(made: Run, text: str) -> None:
    if progress := _PROGRESS.findall(text):
        made.coverage, made.features, made.corpus = map(int, progress[-1])
    if executions := _EXECUTIONS.findall(text):
        made.executions = int(executions[-1])
    if seconds := _SECONDS.findall(text):
        made.seconds = int(seconds[-1])


def _what(text: str, path: Path) -> str:
    """Return libFuzzer's finding in one line: the exception, or the exceeded limit."""
    _, found, rest = text.partition(_EXCEPTION)
    lines = [line for line in rest.splitlines() if line.strip()]
    return lines[0][:300] if found and lines else path.name.partition("-")[0]


# -- replay ---------------------------------------------------------------------------------------


def replay(made: Run, kernels: tuple[str, ...] = ("c",), folder: Path = FOLDER) -> None:
    """Replay the corpus without instrumentation on each kernel; add to the run's findings."""
    places = [str(folder / part / made.target) for part in ("seeds", "corpus")]
    for kernel in kernels:
        found = measure(made.target, kernel, places)
        made.replays[kernel] = found
        for finding in found.pop("findings"):
            kept = folder / "findings" / made.target / f"replay-{Path(finding['file']).name}"
            kept.write_bytes(Path(finding["file"]).read_bytes())
            made.findings.append(Finding(str(kept), f"{finding['what']} (kernel {kernel})"))


def measure(target: str, kernel: str, places: list[str]) -> dict[str, Any]:
    """Return the JSON of fuzz.measure for files and folders, run in a separate process."""
    done = subprocess.run(
        [sys.executable, "-m", "fuzz.measure", target, *places],
        cwd=ROOT,
        env=_environment(kernel),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise FuzzerFailed(f"{target}: the replay failed\n{done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


# -- state of the long run ------------------------------------------------------------------------


def save_run(made: Run, folder: Path = FOLDER) -> dict[str, Any]:
    """Add a run to the state of the long run; return the entry of its target."""
    path = folder / "state.json"
    state = load_state(folder)
    entry = state.setdefault(made.target, {"executions": 0, "seconds": 0, "runs": []})
    entry["executions"] += made.executions
    entry["seconds"] += made.seconds
    entry["runs"].append(asdict(made))
    for name in ("coverage", "features", "corpus"):
        entry[name] = getattr(made, name)
    path.write_text(json.dumps(state, indent=1) + "\n", "utf-8")
    return entry


def load_state(folder: Path = FOLDER) -> dict[str, Any]:
    """Return the state of the long run by target; empty before the first run."""
    path = folder / "state.json"
    return json.loads(path.read_text("utf-8")) if path.exists() else {}
