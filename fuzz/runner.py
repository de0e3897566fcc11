"""Runs the fuzzer in processes of its own, and keeps what came of it."""

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
"""Where the corpus, the findings, the logs and the state of the long run lie."""

MAX_LENGTH: Final = 64 * 1024
SECONDS_AN_INPUT: Final = 10
MEGABYTES: Final = 1024
"""What ends a run as a finding at once; what is promised is measured afterwards."""

_PATIENCE: Final = 120  # seconds that a process may take beside its fuzzing: seeds, instruments
_PROGRESS: Final = re.compile(r"^#\d+\s+\w+\s+cov: (\d+) ft: (\d+) corp: (\d+)/", re.MULTILINE)
_EXECUTIONS: Final = re.compile(r"^stat::number_of_executed_units: (\d+)$", re.MULTILINE)
_SECONDS: Final = re.compile(r"^Done \d+ runs in (\d+) second", re.MULTILINE)
_EXCEPTION: Final = "=== Uncaught Python exception: ==="


class FuzzerFailed(RuntimeError):
    """The fuzzer itself did not run: it says nothing about the product."""


@dataclass
class Finding:
    """An input that breaks a promise: the file that holds it, and what it breaks."""

    file: str
    what: str

    def replay(self, target: str) -> str:
        """The command that repeats it."""
        return f"{Path(sys.executable)} -m fuzz replay {target} {self.file}"


@dataclass
class Run:
    """What came of one run over one target.

    Attributes:
        coverage: edges that were reached; `features`: edges and how often, as libFuzzer counts.
        corpus: inputs that are kept because each reaches something of its own.
        replays: by kernel, what the second look measured.
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

    def line(self) -> str:
        """The run in one line."""
        rate = self.executions / max(self.seconds, 1)
        return (
            f"{self.target:12} {self.executions:>11,} executions {rate:>8,.0f}/s, "
            f"coverage {self.coverage:,} edges / {self.features:,} features, "
            f"corpus {self.corpus:,}, findings {len(self.findings)}"
        )


def fuzz(target: str, *, seconds: int, runs: int, seed: int, folder: Path = FOLDER) -> Run:
    """Fuzz a target for so many seconds or runs, 0 for no bound, on with the corpus in `folder`.

    Raises FuzzerFailed if the fuzzer did not start, or stopped for no reason of the target's.
    """
    corpus, findings, log = (folder / part / target for part in ("corpus", "findings", "log"))
    for path in (corpus, findings, log.parent):
        path.mkdir(parents=True, exist_ok=True)
    known = set(findings.iterdir())
    options = [
        f"-seed={seed or 1}",  # 0 would be "any"
        f"-max_total_time={seconds}",
        f"-runs={runs or -1}",
        f"-max_len={MAX_LENGTH}",
        f"-timeout={SECONDS_AN_INPUT}",
        f"-rss_limit_mb={MEGABYTES}",
        f"-artifact_prefix={findings}/",
        "-print_final_stats=1",
        str(corpus),
    ]
    command = [sys.executable, "-m", "fuzz.engine", target, str(folder / "seeds" / target)]
    with log.open("wb") as out:
        status = _wait([*command, *options], out, seconds + _PATIENCE if seconds else None)
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
    """What libFuzzer found, in a line: the exception, or that it took too long or too much."""
    _, found, rest = text.partition(_EXCEPTION)
    lines = [line for line in rest.splitlines() if line.strip()]
    return lines[0][:300] if found and lines else path.name.partition("-")[0]


# -- the second look ------------------------------------------------------------------------------


def replay(made: Run, kernels: tuple[str, ...] = ("c",), folder: Path = FOLDER) -> None:
    """Replay the whole corpus without instruments, with each kernel; adds to the run's findings."""
    places = [str(folder / part / made.target) for part in ("seeds", "corpus")]
    for kernel in kernels:
        found = measure(made.target, kernel, places)
        made.replays[kernel] = found
        for finding in found.pop("findings"):
            kept = folder / "findings" / made.target / f"replay-{Path(finding['file']).name}"
            kept.write_bytes(Path(finding["file"]).read_bytes())
            made.findings.append(Finding(str(kept), f"{finding['what']} (kernel {kernel})"))


def measure(target: str, kernel: str, places: list[str]) -> dict[str, Any]:
    """What fuzz.measure says of files and folders, in a process of its own."""
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


# -- what the long run has done so far ------------------------------------------------------------


def remember(made: Run, folder: Path = FOLDER) -> dict[str, Any]:
    """Add a run to the state of the long run; gives what stands there of its target."""
    path = folder / "state.json"
    state = remembered(folder)
    entry = state.setdefault(made.target, {"executions": 0, "seconds": 0, "runs": []})
    entry["executions"] += made.executions
    entry["seconds"] += made.seconds
    entry["runs"].append(asdict(made))
    for name in ("coverage", "features", "corpus"):
        entry[name] = getattr(made, name)
    path.write_text(json.dumps(state, indent=1) + "\n", "utf-8")
    return entry


def remembered(folder: Path = FOLDER) -> dict[str, Any]:
    """The state of the long run by target; empty before its first run."""
    path = folder / "state.json"
    return json.loads(path.read_text("utf-8")) if path.exists() else {}
