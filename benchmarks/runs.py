"""The runs of a benchmark, and the file that records each of them at once.

An interrupted benchmark can be continued from that file.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.cases import Case, Contender
from benchmarks.peers.task import Figures

CHECK: Final = 0
"""Number of the round that checks consumers; timed rounds count from 1."""


@dataclass(frozen=True)
class Run:
    """Run of a contender in a round, with its figures or its error."""

    case: str
    peer: str
    way: str
    number: int
    figures: Figures | None = None
    error: str | None = None

    @property
    def contender(self) -> Contender:
        """Contender of the run."""
        return Contender(self.peer, self.way)


class RunLog:
    """All runs so far, in a file of JSON lines; the first line describes the machine."""

    def __init__(self, path: Path, context: dict[str, Any], *, resume: bool) -> None:
        self.runs: list[Run] = []
        self.specials: dict[str, Any] = {}
        self.context = context
        self._path = path
        if resume and path.exists():
            self._load()
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps({"context": context}) + "\n", "utf-8")

    def add(self, run: Run) -> None:
        """Add a run."""
        self.runs.append(run)
        self._append({"run": asdict(run)})

    def add_special(self, name: str, result: dict[str, Any]) -> None:
        """Add the result of a special case."""
        self.specials[name] = result
        self._append({"special": name, "result": result})

    def missing(self, case: Case, contenders: Sequence[Contender], number: int) -> list[Contender]:
        """Return the contenders without a run in a round."""
        mine = [run for run in self.runs if (run.case, run.number) == (case.name, number)]
        present = {run.contender for run in mine}
        return [contender for contender in contenders if contender not in present]

    def has_failed(self, case: Case, contender: Contender) -> bool:
        """Return True if the contender has failed in the case."""
        return any(
            run.error is not None
            for run in self.runs
            if (run.case, run.contender) == (case.name, contender)
        )

    def failure(self) -> str:
        """Return the failures, or that no case was measured, or an empty text."""
        failed = [f"{run.peer} in {run.case}" for run in self.runs if run.error is not None]
        failed += [name for name, result in self.specials.items() if "error" in result]
        if failed:
            return "failed: " + ", ".join(failed)
        return "" if self.runs or self.specials else "nothing was measured"

    def _append(self, line: dict[str, Any]) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def _load(self) -> None:
        """Read the file, and remove failed runs from it, which are repeated."""
        first, *lines = self._path.read_text("utf-8").splitlines()
        before = json.loads(first)["context"]
        keys = (self.context.keys() | before.keys()) - {"date"}  # it may be continued on any day
        changed = sorted(key for key in keys if before.get(key) != self.context.get(key))
        if changed:
            raise SystemExit(
                f"{self._path} differs in its machine or versions ({', '.join(changed)}): run "
                "without --resume"
            )
        self.context = {**self.context, **before}
        kept = [first, *(text for text in lines if self._restore(text))]
        self._path.write_text("\n".join(kept) + "\n", "utf-8")

    def _restore(self, text: str) -> bool:
        """Restore a line; return False if it is of a failed run."""
        try:
            line = json.loads(text)
        except ValueError:  # truncated when the benchmark was interrupted
            return False
        if "special" in line:
            if "error" in line["result"]:
                return False
            self.specials[line["special"]] = line["result"]
        elif line["run"]["error"] is not None:
            return False
        else:
            figures = Figures(**line["run"].pop("figures"))
            self.runs.append(Run(**line["run"], figures=figures))
        return True
