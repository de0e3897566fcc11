"""Spells the names of options in errors as the user wrote them. Pure."""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Final

from kafka_async.errors import InvalidConfigurationError

__all__ = ["names_as_written", "with_underscores"]

_VALUE: Final = r"""(?<!\w)(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""
"""A quoted value. A quote after a letter is an apostrophe and begins none."""


def with_underscores(written: str) -> str:
    """Return the name of an option in Python for one with dots or dashes."""
    return written.replace(".", "_").replace("-", "_")


@contextmanager
def names_as_written(written: Mapping[str, str]) -> Generator[None]:
    """Spell names in an InvalidConfigurationError of the block as the user wrote them.

    Names that the user did not write, such as those that a message recommends, stay as they are.

    Args:
        written: The spelling by option, whose name has underscores.
    """
    try:
        yield
    except InvalidConfigurationError as error:
        message = _respell(error.message, written)
        if message == error.message:
            raise
        raise type(error)(message).with_traceback(error.__traceback__) from error.__cause__


def _respell(message: str, written: Mapping[str, str]) -> str:
    """Replace names with underscores or dots, except in quoted values."""
    spelling = {
        name: spelled
        for option, spelled in written.items()
        for name in (option, option.replace("_", "."))
    }
    if not spelling:
        return message
    names = "|".join(map(re.escape, sorted(spelling, key=len, reverse=True)))
    pattern = rf"{_VALUE}|(?<![\w.-])(?P<name>{names})(?![\w-]|\.\w)"
    return re.sub(
        pattern, lambda match: spelling[match["name"]] if match["name"] else match[0], message
    )
