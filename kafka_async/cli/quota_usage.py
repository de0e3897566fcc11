"""The option --quota: shows how much of its client quotas a command uses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kafka_async.cli import terminal

if TYPE_CHECKING:
    from collections.abc import Mapping

Quota = Annotated[
    bool, typer.Option("--quota", help="Show how much of its client quotas the command uses.")
]


def in_progress(usage: Mapping[tuple[int, str], float | None]) -> str:
    """Return the text for a progress display: the highest usage, if known."""
    known = [percent for percent in usage.values() if percent is not None]
    return f", {max(known):.0f}% of the quota" if known else ""


def print_usage(usage: Mapping[tuple[int, str], float | None]) -> None:
    """Print the usage of each quota in percent, by broker and kind."""
    for (broker, kind), percent in sorted(usage.items()):
        used = "an unknown part" if percent is None else f"{percent:.0f}%"
        unset = f", or no {kind} quota applies" if percent == 0 else ""
        terminal.err.print(f"broker {broker}: {used} of the {kind} quota{unset}", markup=False)
    if None in usage.values():
        terminal.err.print(
            "the quotas are unknown: they need the permission DESCRIBE_CONFIGS of the cluster",
            markup=False,
            soft_wrap=True,
        )
