"""Extension of griffe that shows the fields of a NamedTuple as arguments of its constructor."""

from __future__ import annotations

from typing import Any

import griffe


class PublicSignatures(griffe.Extension):
    """Adds the constructors of named tuples."""

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        """Add the constructor of a class that derives from NamedTuple."""
        if "NamedTuple" not in map(str, cls.bases) or "__init__" in cls.members:
            return
        either = griffe.ParameterKind.positional_or_keyword
        parameters = [griffe.Parameter("self", kind=either)]
        for name, field in cls.members.items():
            if isinstance(field, griffe.Attribute) and field.annotation is not None:
                parameter = griffe.Parameter(
                    name, annotation=field.annotation, kind=either, default=field.value
                )
                parameters.append(parameter)
        cls.set_member(
            "__init__", griffe.Function("__init__", parameters=griffe.Parameters(*parameters))
        )
