"""make instructions: count the instructions of the hot paths, and compare them with their budget.

    python -m tools.instructions                          a table; exit status 1 if one is off
    python -m tools.instructions --only enqueue --top 20  of one path, and where they go
    python -m tools.instructions --write                  the counts are the budget from now on

Counted is what one operation (a record, unless the path says otherwise) takes in this process, by
callgrind: a figure that does not depend on what else the machine does. Exit status 2: this machine
cannot count.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tools.instructions import budget, valgrind
from tools.instructions.paths import PATHS

FOLDER = valgrind.ROOT / "artifacts" / "instructions"


def main(arguments: Sequence[str] | None = None) -> int:
    """Count and compare; returns the exit status."""
    options = _parser().parse_args(arguments)
    paths = [path for path in PATHS if not options.only or path.name in options.only]
    try:
        valgrind.require_valgrind()
        counts = valgrind.count(paths, options.folder)
    except valgrind.ToolError as error:
        print(error, file=sys.stderr)
        return 2
    if options.top:
        _print_functions(counts, options.top)
    counted = {path: count.total for path, count in counts.items()}
    tables = budget.load()
    rows = tables.get(budget.python(), {})
    whole = not options.only
    if options.write:
        tables[budget.python()] = budget.renewed(counted, rows, whole=whole)
        budget.save(tables)
        rows = tables[budget.python()]
    verdicts = budget.judge(counted, rows, whole=whole)
    print(budget.table(verdicts))
    problems = [verdict for verdict in verdicts if verdict.problem]
    for verdict in problems:
        print(f"{verdict.path}: {verdict.problem}")
    return 1 if problems else 0


def _parser() -> argparse.ArgumentParser:
    description, _, details = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        prog="python -m tools.instructions",
        description=description,
        epilog=details,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = [path.name for path in PATHS]
    parser.add_argument(
        "--only", action="append", choices=names, metavar="PATH", help="may be given again"
    )
    parser.add_argument(
        "--top", type=int, default=0, metavar="N", help="list the N dearest functions"
    )
    parser.add_argument("--write", action="store_true", help="make the counts the budget")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="of callgrind's files")
    return parser


def _print_functions(counts: Mapping[str, valgrind.Count], top: int) -> None:
    for path, count in counts.items():
        print(f"{path}: {count.total:,.0f}")
        dearest = sorted(count.functions.items(), key=lambda row: -row[1])[:top]
        for function, instructions in dearest:
            print(f"{instructions:12,.0f}  {function}")
        print()


if __name__ == "__main__":
    sys.exit(main())
