"""Write the tables of docs/lifecycle.md, from tools/lifecycle.py.

python tools/generate_lifecycle.py [--check]
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from tools import generated_page
from tools.lifecycle import READS_ON, STATES, TABLE, WORDS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tools.lifecycle import Row


def page() -> str:
    """Return the page."""
    tables = {
        "states": generated_page.table(["State", "The client is"], STATES.items()),
        "words": generated_page.table(["Cell", "The call"], WORDS.items()),
        "reading on": ", ".join(f"`{name}`" for name in sorted(READS_ON)),
        **{name: table(rows.items()) for name, rows in TABLE.items()},
    }
    return generated_page.filled("lifecycle.md", tables)


def table(rows: Iterable[tuple[str, Row]]) -> str:
    """Return the table of a client; methods with equal cells share a row."""
    methods: dict[tuple[str, ...], list[str]] = {}
    states: list[str] = []
    for name, row in rows:
        states = list(row)
        methods.setdefault(tuple(row.values()), []).append(f"`{name}`")
    return generated_page.table(
        ["Method", *states],
        ((", ".join(sorted(names)), *cells) for cells, names in methods.items()),
    )


if __name__ == "__main__":
    sys.exit(generated_page.main("lifecycle.md", page))
