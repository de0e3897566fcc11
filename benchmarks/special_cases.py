"""Runs a special case: `python -m benchmarks.special_cases NAME ROUNDS [BOOTSTRAP]`.

Each module of benchmarks/special with a function `measure` is a special case. It runs in a separate
process, which prints its result as JSON.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import sys
from typing import Any, Final

from benchmarks import child_processes, special

TIME_LIMIT: Final = 300.0
SECONDS: Final = {"metadata": 10, "assignor": 20, "fairness": 150, "memory": 150, "idle": 130}
"""Estimated seconds of some cases; that of the others is the time limit."""


def names() -> list[str]:
    """Return the names of all special cases."""
    found = [module.name for module in pkgutil.iter_modules(special.__path__)]
    return [name for name in found if hasattr(_module(name), "measure")]


def brokers(name: str) -> int:
    """Return the number of brokers that a case needs, 0 for none."""
    count: int = _module(name).NEEDS_BROKERS
    return count


def _module(name: str) -> Any:
    return importlib.import_module(f"benchmarks.special.{name}")


def launch(name: str, rounds: int, bootstrap: str | None) -> dict[str, Any]:
    """Run a case in a separate process; the result has an `error` if it failed."""
    command = [sys.executable, "-m", "benchmarks.special_cases", name, str(rounds)]
    command += [bootstrap] if bootstrap else []
    try:
        code, output, errors = child_processes.run(command, TIME_LIMIT)
    except child_processes.TimeLimitError as error:
        return {"case": name, "error": str(error)}
    if code:
        lines = errors.strip().splitlines()[-1:] or ["no output"]
        text = lines[0].replace(sys.executable, "python")[-500:]
        return {"case": name, "error": f"exit code {code}: {text}"}
    result: dict[str, Any] = json.loads(output.splitlines()[-1])
    return result


def main() -> None:
    """Run the case of the command line, and print its result."""
    name, rounds, *bootstrap = sys.argv[1:]
    result = _module(name).measure(bootstrap[0] if bootstrap else None, int(rounds))
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
