"""make instructions: count the instructions of the hot paths, and compare them with the budget.

    python -m tools.instructions                          print a table
    python -m tools.instructions --only enqueue --top 20  one path, with its functions
    python -m tools.instructions --write                  write the counts as the new budget

callgrind counts the instructions of one operation (a record, unless the path's name says otherwise)
in this process, which do not depend on the load of the machine. The exit status is 1 if a count
differs from the budget, and 2 if this machine cannot count.
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
    """Count and compare; return the exit status."""
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
    rows = tables.get(budget.python_version(), {})
    whole = not options.only
    if options.write:
        tables[budget.python_version()] = budget.updated(counted, rows, whole=whole)
        budget.save(tables)
        rows = tables[budget.python_version()]
    comparisons = budget.compare(counted, rows, whole=whole)
    print(budget.table(comparisons))
    problems = [comparison for comparison in comparisons if comparison.problem]
    for comparison in problems:
        print(f"{comparison.path}: {comparison.problem}")
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
        "--only", action="append", choices=names, metavar="PATH", help="may be repeated"
    )
    parser.add_argument(
        "--top", type=int, default=0, metavar="N", help="list the N most expensive functions"
    )
    parser.add_argument("--write", action="store_true", help="write the counts as the budget")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="folder for callgrind's files")
    return parser


def _print_functions(counts: Mapping[str, valgrind.Count], top: int) -> None:
    for path, count in counts.items():
        print(f"{path}: {count.total:,.0f}")
        functions = sorted(count.functions.items(), key=lambda row: -row[1])[:top]
        for function, instructions in functions:
            print(f"{instructions:12,.0f}  {function}")
        print()


if __name__ == "__main__":
    sys.exit(main())
