"""Special cases of the benchmark, one module each with a function `measure(bootstrap, rounds)`.

It returns a `results.Result`. Cases without brokers get no address: they need no cluster, or start
one themselves.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.payload import WrongResultError


@dataclass(frozen=True)
class SpecialCase:
    """Special case: its title and goal if it was not measured, its brokers and its duration."""

    name: str
    title: str
    goal: str
    brokers: int
    seconds: float

    def run(self, bootstrap: str, rounds: int) -> dict[str, Any]:
        """Return the result for JSON, with an `error` if the case failed."""
        try:
            module = importlib.import_module(f"benchmarks.special.{self.name}")
            result: dict[str, Any] = module.measure(bootstrap, rounds).plain()
        except WrongResultError:
            raise
        except Exception as error:  # noqa: BLE001 - it is reported, and the other cases continue
            return {"case": self.name, "error": f"{type(error).__name__}: {error}"}
        return result


_CASES = (
    SpecialCase(
        "metadata",
        "10,000 partitions: metadata to routing table",
        "half the fastest peer's time",
        0,
        10,
    ),
    SpecialCase("assignor", "500 members in an assignor", "no peer is faster", 0, 20),
    SpecialCase("memory", "peak memory at full speed", "at most 40 MB and the budgets", 0, 150),
    SpecialCase("many_topics", "5,000 topics produced to", "half the speed of one topic", 1, 300),
    SpecialCase(
        "idle", "idle, 3 brokers", "a producer 0.02 %, a consumer 0.25 % of a core", 3, 130
    ),
    SpecialCase("fairness", "the longest turn of the event loop", "at most 5 ms", 1, 150),
)
SPECIAL: Final = {case.name: case for case in _CASES}
