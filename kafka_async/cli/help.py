"""Command classes whose help shows no type for flags."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand, TyperGroup


class Command(TyperCommand):
    """Shows "--json" in its help, and not "--json <bool>"."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters; those that are flags have no type."""
        return _without_type_of_flags(super().get_params(ctx))


class Group(TyperGroup):
    """Holds subcommands, with help as in `Command`."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters; those that are flags have no type."""
        return _without_type_of_flags(super().get_params(ctx))


def _without_type_of_flags(parameters: list[Any]) -> list[Any]:
    for parameter in parameters:
        if getattr(parameter, "is_flag", False) and parameter.metavar is None:
            parameter.metavar = ""
    return parameters
