"""Values that are never shown: passwords, tokens and private keys.

A secret's text appears in no repr, message, log or traceback with local variables, because code
holds the wrapper and calls `reveal()` only inside the expression that needs the text.
"""

from __future__ import annotations

import hmac
from typing import Final, Generic, NoReturn, TypeVar

HIDDEN: Final = "***"

T = TypeVar("T", str, bytes)


class _Hidden(Generic[T]):
    """Wraps a value that repr, str and format do not show, and that cannot be pickled."""

    __slots__ = ("_value",)

    def __init__(self, value: T) -> None:
        self._value: T = value

    def reveal(self) -> T:
        """Return the value; do not store it in a variable."""
        return self._value

    def __repr__(self) -> str:
        return f"{type(self).__name__}({HIDDEN})"

    def __str__(self) -> str:
        return HIDDEN

    def __format__(self, spec: str) -> str:
        return HIDDEN

    def __bool__(self) -> bool:
        return bool(self._value)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, type(self)):
            return NotImplemented
        return hmac.compare_digest(_encoded(self._value), _encoded(other._value))

    def __hash__(self) -> int:
        return hash(self._value)

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"a {type(self).__name__} is not pickled: pass it by a file or environment")

    def __copy__(self) -> _Hidden[T]:
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> _Hidden[T]:
        return self


class Secret(_Hidden[str]):
    """Wraps a text, such as a password or a token, that is never shown."""

    __slots__ = ()


class SecretBytes(_Hidden[bytes]):
    """Wraps bytes, such as a message that contains a password, that are never shown."""

    __slots__ = ()


def _encoded(value: str | bytes) -> bytes:
    return value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
