"""Extension of griffe that adapts signatures of the API reference to their callers.

Calls take `**unknown: Never` to raise a TypeError that names the right argument. Such parameters
are not part of the API. The fields of a NamedTuple are, as the arguments of its constructor.
"""

from __future__ import annotations

import re
from typing import Any

import griffe


class PublicSignatures(griffe.Extension):
    """Removes parameters whose type is Never, and adds the constructors of named tuples."""

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        """Remove the parameters of a function that no caller can pass, and their descriptions."""
        for name in [one.name for one in func.parameters if str(one.annotation) == "Never"]:
            del func.parameters[name]
            if func.docstring is not None:
                entry = rf"^( *)\*+{name}:.*\n?(?:\1 +.*\n?)*"
                func.docstring.value = re.sub(entry, "", func.docstring.value, flags=re.MULTILINE)

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
