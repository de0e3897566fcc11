"""Names of options in messages, as the caller writes them. Pure.

Messages take every name from `spell`. A caller who does not write keyword arguments chooses the
writing: with `options_written_as` for a block that reads options, or with `process_writes` for all
messages of a process, which are also those of tasks and threads of a client.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from kafka_async.errors import InvalidConfigurationError


class Writing:
    """Names options as keyword arguments of Python do; other writings derive from it.

    Attributes:
        takes_objects: The caller can give Python objects, such as functions.
    """

    takes_objects = True

    def literal(self, value: object) -> str:
        """Return a value as the caller writes it."""
        return f'"{value}"' if isinstance(value, str) else str(value)

    def write(self, option: str, value: str | None) -> str:
        """Return an option, with a literal value unless that is None."""
        return option if value is None else f"{option}={value}"


class PropertyNames(Writing):
    """Names options as Java's properties do, such as linger.ms.

    Args:
        written: By option: its name as the caller has written it.
        prefix: Prefix of the names that the caller has not written.
        takes_objects: The caller can give Python objects.
    """

    def __init__(
        self, written: Mapping[str, str], *, prefix: str = "", takes_objects: bool = True
    ) -> None:
        self._written = written
        self._prefix = prefix
        self.takes_objects = takes_objects

    def literal(self, value: object) -> str:
        """Return a value without quotes, true or false."""
        return str(value).lower() if isinstance(value, bool) else str(value)

    def write(self, option: str, value: str | None) -> str:
        """Return a property, with a value unless that is None."""
        name = self._written.get(option) or self._prefix + with_dots(option)
        return name if value is None else f"{name}={value}"


class _Process:
    """Holds the writing of messages outside of blocks."""

    writing = Writing()


_of_block: Final[ContextVar[Writing | None]] = ContextVar("writing", default=None)


@contextmanager
def options_written_as(writing: Writing, *, by_default: bool = False) -> Generator[None]:
    """Name options in messages of this block as `writing` does.

    Args:
        writing: The writing.
        by_default: Keep the writing that an outer block has chosen.
    """
    if by_default and type(_writing()) is not Writing:
        yield
        return
    token = _of_block.set(writing)
    try:
        yield
    finally:
        _of_block.reset(token)


@contextmanager
def process_writes(writing: Writing) -> Generator[None]:
    """Name options as `writing` does in all messages of the process during this block."""
    before, _Process.writing = _Process.writing, writing
    try:
        yield
    finally:
        _Process.writing = before


def _writing() -> Writing:
    return _of_block.get() or _Process.writing


def spell(option: str, *values: object) -> str:
    """Return the name of an option as the caller writes it.

    Args:
        option: The name in Python.
        *values: Values to give it, joined with "or".
    """
    writing = _writing()
    return writing.write(option, " or ".join(map(writing.literal, values)) if values else None)


def spell_given(option: str, value: str) -> str:
    """Return an option with the value that was given, as a message shows it."""
    return _writing().write(option, value)


def if_objects(text: str) -> str:
    """Return a text about a Python object if the caller can give one; else nothing."""
    return text if _writing().takes_objects else ""


def option_error(
    option: str, problem: str, *, value: str | None = None
) -> InvalidConfigurationError:
    """Return the error of an option, whose message begins with the name.

    Args:
        option: The name in Python.
        problem: The rest of the message.
        value: The value that was given, to be shown after the name.
    """
    name = spell(option) if value is None else spell_given(option, value)
    return InvalidConfigurationError(f"{name}{problem}", option=option)


def with_underscores(written: str) -> str:
    """Return the name of an option in Python for one with dots or dashes."""
    return written.replace(".", "_").replace("-", "_")


def with_dots(option: str) -> str:
    """Return the name of a property for the name of an option in Python."""
    return option.replace("_", ".")
