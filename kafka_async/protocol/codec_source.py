"""Base of the codec generators: lines, indentation, names and runs of fixed-width fields."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar

from kafka_async.protocol.spec import Array, Fixed, Sized

if TYPE_CHECKING:
    from collections.abc import Generator

    from kafka_async.protocol.spec import Field, FieldType, Struct, VersionedStruct


class Source(ABC):
    """Generates the source of one function for a message in a version.

    `names` are the objects that only this codec's source refers to.
    """

    VERB: ClassVar[str]
    """First word of the function's name."""

    METHOD: ClassVar[str]
    """Method of `struct.Struct` for runs of fixed-width fields."""

    def __init__(self, message: type[VersionedStruct], version: int) -> None:
        self.version = version
        self.flexible = message.FLEXIBLE_FROM is not None and version >= message.FLEXIBLE_FROM
        self.name = f"{self.VERB}_{message.__name__}_v{version}"
        self.names: dict[str, object] = {}
        self._lines: list[str] = []
        self._depth = 0
        self._serial: dict[str, int] = {}
        self._runs: dict[str, str] = {}
        self._write(message)

    @abstractmethod
    def _write(self, message: type[VersionedStruct]) -> None:
        """Generate the function."""

    def text(self) -> str:
        """Return the source: the bound `struct` methods in use, then the function."""
        bound = [
            f'{name} = Struct(">{format}").{self.METHOD}' for format, name in self._runs.items()
        ]
        return "\n".join([*bound, "", "", *self._lines, ""])

    def line(self, text: str) -> None:
        """Append a line with the current indentation."""
        self._lines.append("    " * self._depth + text)

    @contextmanager
    def block(self, head: str) -> Generator[None]:
        """Append `head:` and indent the lines of the block, or `pass` if it is empty."""
        self.line(f"{head}:")
        self._depth += 1
        before = len(self._lines)
        yield
        if len(self._lines) == before:
            self.line("pass")
        self._depth -= 1

    def new_name(self, stem: str) -> str:
        """Return an unused variable name that begins with `stem`."""
        self._serial[stem] = serial = self._serial.get(stem, 0) + 1
        return f"{stem}{serial}"

    def struct_method(self, format: str) -> str:
        """Return the name of the bound `struct` method for a run of this format."""
        return self._runs.setdefault(format, f"{self.METHOD.split('_', 1)[0]}_{len(self._runs)}")

    def class_name(self, struct: type[Struct]) -> str:
        """Make a class available to the source, and return its name there."""
        self.names[struct.__name__] = struct
        return struct.__name__

    def is_compact(self, field: Field) -> bool:
        """Return True if the length of `field` is a varint in this version."""
        return self.flexible and field.flexible.contains(self.version)

    def is_nullable(self, field: Field) -> bool:
        """Return True if `field` may be None in this version."""
        return field.nullable.contains(self.version)


def min_size(kind: FieldType, version: int, flexible: bool) -> int:
    """Return the minimum size of an array element of this type, in bytes.

    It limits the element count that a decoder accepts.
    """
    if isinstance(kind, Fixed):
        return kind.size
    if isinstance(kind, Array):
        return 1 if flexible else 4
    if isinstance(kind, Sized):
        return 1 if flexible else 2
    size = sum(
        1 if field.nullable.contains(version) else min_size(field.type, version, flexible)
        for field in kind.SPEC.untagged_fields(version)
    )
    return size + flexible
