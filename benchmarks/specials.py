"""The cases of a shape of their own: `python -m benchmarks.specials NAME ROUNDS [BOOTSTRAP]`.

Every module of benchmarks/special is one, in a process of its own: it prints its result as JSON.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import sys
from typing import Any, Final

from benchmarks import children, special

TIME_LIMIT: Final = 300.0
SECONDS: Final = {"metadata": 10, "assignor": 20, "fairness": 150, "memory": 150, "idle": 130}
"""How long some take, about; the others as long as a case may."""


def names() -> list[str]:
    """All of them: the modules that can measure."""
    found = [module.name for module in pkgutil.iter_modules(special.__path__)]
    return [name for name in found if hasattr(_module(name), "measure")]


def brokers(name: str) -> int:
    """How many brokers a case needs; 0 is none."""
    count: int = _module(name).NEEDS_BROKERS
    return count


def _module(name: str) -> Any:
    return importlib.import_module(f"benchmarks.special.{name}")


def launch(name: str, rounds: int, bootstrap: str | None) -> dict[str, Any]:
    """Measure in a process of its own; a result with `error` if it failed."""
    command = [sys.executable, "-m", "benchmarks.specials", name, str(rounds)]
    command += [bootstrap] if bootstrap else []
    try:
        code, printed, complaint = children.run(command, TIME_LIMIT)
    except children.TimeLimitError as error:
        return {"case": name, "error": str(error)}
    if code:
        said = complaint.strip().splitlines()[-1:] or ["it said nothing"]
        text = said[0].replace(sys.executable, "python")[-500:]
        return {"case": name, "error": f"exit code {code}: {text}"}
    result: dict[str, Any] = json.loads(printed.splitlines()[-1])
    return result


def main() -> None:
    """Measure one."""
    name, rounds, *bootstrap = sys.argv[1:]
    result = _module(name).measure(bootstrap[0] if bootstrap else None, int(rounds))
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
