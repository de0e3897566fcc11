"""What the two writers of codec source share: lines, indentation, names and fixed-width runs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar

from kafka_async.protocol.spec import Array, Fixed, Sized

if TYPE_CHECKING:
    from collections.abc import Generator

    from kafka_async.protocol.message import Message, Struct
    from kafka_async.protocol.spec import Field, FieldType


class Source(ABC):
    """The text of one function over one message in one version, as it is being written.

    Attributes:
        name: the function's name.
        names: objects the text refers to, beside those that every codec gets.
    """

    VERB: ClassVar[str]
    """What the function does: first word of its name."""

    METHOD: ClassVar[str]
    """The method of `struct.Struct` that its fixed-width runs use."""

    def __init__(self, message: type[Message], version: int) -> None:
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
    def _write(self, message: type[Message]) -> None:
        """Write the whole function."""

    def text(self) -> str:
        """The source: the bound `struct` methods it uses, then the function."""
        bound = [
            f'{name} = Struct(">{format}").{self.METHOD}' for format, name in self._runs.items()
        ]
        return "\n".join([*bound, "", "", *self._lines, ""])

    def line(self, text: str) -> None:
        """Add one line at the present depth."""
        self._lines.append("    " * self._depth + text)

    @contextmanager
    def block(self, head: str) -> Generator[None]:
        """Add `head:` and indent what is added inside; a block that stays empty passes."""
        self.line(f"{head}:")
        self._depth += 1
        before = len(self._lines)
        yield
        if len(self._lines) == before:
            self.line("pass")
        self._depth -= 1

    def fresh(self, stem: str) -> str:
        """A variable name that nothing else uses."""
        self._serial[stem] = serial = self._serial.get(stem, 0) + 1
        return f"{stem}{serial}"

    def run(self, format: str) -> str:
        """The name of the bound `struct` method for a run of this format."""
        return self._runs.setdefault(format, f"{self.METHOD.split('_', 1)[0]}_{len(self._runs)}")

    def refer(self, struct: type[Struct]) -> str:
        """The name under which the text refers to a class."""
        self.names[struct.__name__] = struct
        return struct.__name__

    def is_compact(self, field: Field) -> bool:
        """Whether `field` has a varint length here rather than a fixed one."""
        return self.flexible and field.flexible.contains(self.version)

    def is_nullable(self, field: Field) -> bool:
        """Whether `field` may be None here."""
        return field.nullable.contains(self.version)


def smallest(kind: FieldType, version: int, flexible: bool) -> int:
    """The fewest bytes that one element of this type can take: what bounds an array's count."""
    if isinstance(kind, Fixed):
        return kind.size
    if isinstance(kind, Array):
        return 1 if flexible else 4
    if isinstance(kind, Sized):
        return 1 if flexible else 2
    size = sum(
        1 if field.nullable.contains(version) else smallest(field.type, version, flexible)
        for field in kind.SPEC.carried(version)
    )
    return size + flexible
