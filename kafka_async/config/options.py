"""Definition and checks of one option. Pure.

`option` makes the field of a configuration's class: its kind, default, bounds and documentation,
which validation, `from_properties` and the generated page docs/configuration.md read.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar, cast

from typing_extensions import dataclass_transform

from kafka_async.config.spelling import option_error, spell, spell_given
from kafka_async.secrets import HIDDEN, Secret

MAX_INT32: Final = 2**31 - 1
MAX_INT64: Final = 2**63 - 1
PRIVATE_KEY: Final = "PRIVATE KEY-----"
"""A part of PEM texts with a private key, which may be given as an option that is not secret."""

OPTIONS: Final[dict[str, dataclasses.Field[Any]]] = {}
"""By name: the options of all clients."""
ROLES: Final[dict[str, frozenset[str]]] = {}
"""By kind of client, such as "producer": the names of its options."""

Row = dataclasses.Field[Any]
T = TypeVar("T")


def _as_given(row: Row, value: object) -> object:
    return value


class Kind(NamedTuple):
    """The type of an option's values.

    Attributes:
        words: The type in error messages.
        accepts: Returns whether a value has the type, in the form that `stored` returns.
        stored: Returns a value in the form that the field stores; a value of a wrong type stays.
        from_text: Returns the value of a property's text; raises ValueError.
        text: The form of such a text in error messages.
        hidden: The value is not shown in error messages.
        secret: The value is wrapped as a `Secret`.
    """

    words: str
    accepts: Callable[[object], bool]
    stored: Callable[[Row, object], object] = _as_given
    from_text: Callable[[str], object] = str
    text: str = ""
    hidden: bool = False
    secret: bool = False


def option(
    kind: Kind,
    default: Any,
    doc: str,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: Sequence[object] | None = None,
    check: Callable[[Any], object] | None = None,
    java: object = None,
    why: str = "",
) -> Any:
    """Return a dataclass field with the documentation and bounds of an option.

    Args:
        kind: The type of its values. None is allowed if it is the default.
        default: The default.
        doc: The effect of the option.
        low: The lowest value allowed.
        high: The highest value allowed.
        choices: The values allowed.
        check: Raises InvalidConfigurationError for other values that are not allowed; with
            `choices` a true result allows a value that is none of them.
        java: The default of Java's client, where it has the option with another default.
        why: The reason for differing from Java's client.
    """
    facts = {"kind": kind, "doc": doc, "low": low, "high": high, "choices": choices}
    facts |= {"check": check, "java": java, "why": why}
    return dataclasses.field(default=default, metadata=facts)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(option,))
def configuration(role: str = "") -> Callable[[type[T]], type[T]]:
    """Return a decorator that makes a frozen dataclass of options, and registers their names.

    Args:
        role: The kind of client, for messages; empty for options that several kinds share.
    """

    def decorate(cls: type[T]) -> type[T]:
        made = dataclasses.dataclass(frozen=True, init=False)(cls)
        rows = {row.name: row for row in dataclasses.fields(cast("Any", made))}
        OPTIONS.update(rows)
        if role:
            ROLES[role] = frozenset(rows)
        return made

    return decorate


# -- kinds ----------------------------------------------------------------------------------------


def is_whole(value: object) -> bool:
    """Return whether a value is an int and no bool."""
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return is_whole(value) or (isinstance(value, float) and not math.isnan(value))


def _whole(row: Row, value: object) -> object:
    """Return an int for an object with `__index__`, as numpy's integers; else the value."""
    if isinstance(value, bool | float):
        return value
    try:
        return operator.index(cast("Any", value))
    except TypeError:
        return value


def _number(row: Row, value: object) -> object:
    """Return an int as `_whole`, but infinity for milliseconds that no float has."""
    number = _whole(row, value)
    if isinstance(number, int) and abs(number) > MAX_INT64:
        return math.inf if number > 0 else -math.inf
    return number


def _number_from_text(text: str) -> float:
    return int(text) if re.fullmatch(r"-?\d+", text) else float(text)


def _flag_from_text(text: str) -> bool:
    return {"true": True, "false": False}[text.lower()]


def _wrapped(row: Row, value: object) -> object:
    return Secret(value) if isinstance(value, str) else value


def _texts(row: Row, value: object) -> object:
    return _not_empty(row, entries(row.name, value))


def _objects(row: Row, value: object) -> object:
    """Return objects, or names in one text, as a tuple."""
    if isinstance(value, str):
        return _texts(row, value)
    if not isinstance(value, list | tuple):
        raise option_error(
            row.name,
            f" must be a list or a tuple: write {spell_given(row.name, '[...]')}",
            value=f"{value!r:.100}",
        )
    return _not_empty(row, tuple(cast("Iterable[object]", value)))


def _not_empty(row: Row, values: tuple[object, ...]) -> tuple[object, ...]:
    if not values and row.default != ():
        raise option_error(row.name, " is empty: name at least one, or leave it out")
    return values


def _anything(value: object) -> bool:
    return True


def _is(wanted: type) -> Callable[[object], bool]:
    def accepts(value: object) -> bool:
        return isinstance(value, wanted)

    return accepts


def _is_source(value: object) -> bool:
    return isinstance(value, Secret) or callable(value)


def _converts(method: str) -> Callable[[object], bool]:
    def accepts(value: object) -> bool:
        return callable(value) or callable(getattr(value, method, None))

    return accepts


ANY: Final = Kind("", _anything)
FLAG: Final = Kind("True or False", _is(bool), from_text=_flag_from_text, text="true or false")
WHOLE: Final = Kind("a whole number (int)", is_whole, _whole, _number_from_text, "a number")
NUMBER: Final = Kind("a number", _is_number, _number, _number_from_text, "a number")
TEXT: Final = Kind("a str", _is(str))
TEXTS: Final = Kind("", _anything, _texts)
OBJECTS: Final = Kind("", _anything, _objects)
MAPPING: Final = Kind("a dict", _is(Mapping))
FUNCTION: Final = Kind("a function", callable)
# A token may be given in place of its provider.
TOKEN_PROVIDER: Final = Kind("a coroutine function", callable, hidden=True)
SECRET: Final = Kind("a str or a Secret", _is(Secret), _wrapped, hidden=True, secret=True)
SECRET_SOURCE: Final = Kind(
    "a str, a Secret or a function that returns one", _is_source, _wrapped, hidden=True, secret=True
)
_CONVERTER: Final = "a function or an object of kafka_async.serde"
SERIALIZER: Final = Kind(_CONVERTER, _converts("serialize"))
DESERIALIZER: Final = Kind(_CONVERTER, _converts("deserialize"))


# -- values ---------------------------------------------------------------------------------------


def checked(row: Row, value: object) -> object:
    """Return a value in the form that the field stores.

    Raises:
        InvalidConfigurationError: The value has a wrong type, or is not allowed.
    """
    if value is None and row.default is None:
        return None
    kind: Kind = row.metadata["kind"]
    value = kind.stored(row, value)
    if isinstance(value, Secret) and not kind.secret:
        _refuse_private_key(row.name, value)
    facts = row.metadata
    choices, check, low, high = facts["choices"], facts["check"], facts["low"], facts["high"]
    if choices is not None and not (check is not None and check(value)):
        _check_choice(row.name, value, choices)
    if not kind.accepts(value):
        shown = HIDDEN if kind.hidden or _may_be_key(row.name, value) else f"{value!r:.100}"
        raise option_error(
            row.name, f" must be {kind.words}, not {type(value).__name__}", value=shown
        )
    if check is not None:
        check(value)
    number = cast("float", value)
    if (low is not None and number < low) or (high is not None and number > high):
        bounds = f"at least {low}" if high is None else f"from {low} to {high}"
        raise option_error(row.name, f" must be {bounds}", value=repr(value))
    return value


def value_of_text(row: Row, value: object) -> object:
    """Convert a property's text to its option's type; return any other value unchanged.

    Raises:
        InvalidConfigurationError: The option is a truth value or a number, and the text is not one.
    """
    if not isinstance(value, str):
        return value
    kind: Kind = row.metadata["kind"]
    for choice in row.metadata["choices"] or ():
        if value == str(choice):
            return choice
    try:
        return kind.from_text(value)
    except (KeyError, ValueError):
        raise option_error(row.name, f" must be {kind.text}", value=f"{value!r:.100}") from None


def split(text: str) -> list[str]:
    """Return the parts of a text with commas, without spaces around them."""
    return [part.strip() for part in text.split(",") if part.strip()]


def entries(name: str, value: object) -> tuple[str, ...]:
    """Return the texts of an option that takes a list, or one text with commas."""
    if isinstance(value, str):
        return tuple(split(value))
    if isinstance(value, list | tuple | set | frozenset):
        texts = tuple(cast("Iterable[object]", value))
        if all(isinstance(text, str) for text in texts):
            return cast("tuple[str, ...]", texts)
    raise option_error(
        name, " must be a list of str, or one str with commas between", value=f"{value!r:.100}"
    )


def nearest(value: object, choices: Sequence[object]) -> str:
    """Return a question for the choice that a value resembles; nothing if none does.

    Case and the separators "-" and "_" do not count.
    """
    if not isinstance(value, str):
        return ""
    names = {each.casefold().replace("_", "-"): each for each in choices if isinstance(each, str)}
    near = difflib.get_close_matches(value.strip().casefold().replace("_", "-"), names, 1, 0.8)
    return f": did you mean {names[near[0]]}?" if near else ""


def _check_choice(name: str, value: object, choices: Sequence[object]) -> None:
    if (type(value), value) not in [(type(one), one) for one in choices]:
        allowed = ", ".join(map(repr, choices))
        raise option_error(
            name, f" is not one of {allowed}{nearest(value, choices)}", value=f"{value!r:.100}"
        )


def _may_be_key(name: str, value: object) -> bool:
    """Return whether bytes, which no option takes, may be a private key."""
    given_as_file = isinstance(value, bytes) and name.startswith("ssl_")
    return given_as_file or (isinstance(value, bytes) and PRIVATE_KEY.encode() in value)


def _refuse_private_key(name: str, value: Secret) -> None:
    """Raise for a private key as an option that is not secret."""
    if PRIVATE_KEY not in value.reveal():
        return
    key = spell("ssl_keyfile")
    advice = f"leave it out, change the key if others have seen it, and give it as {key}"
    if name in ("ssl_cafile", "ssl_certfile"):
        advice = f"give the key's text as {key}, and only the certificates as {spell(name)}"
    elif name.startswith("sasl_oauthbearer_assertion_"):
        advice = (
            "it takes the path of a file, not the key's text: write the text to a file "
            "that only this user can read, and give its path"
        )
    raise option_error(name, f" contains a private key: {advice}")


# -- units ----------------------------------------------------------------------------------------


def seconds(milliseconds: float) -> float:
    """Convert an option's milliseconds to the seconds that the code counts in."""
    return milliseconds / 1000


def request_ms(duration: float) -> int:
    """Convert seconds to the milliseconds of a request, which are int32, and 24 days at most.

    Longer times, infinity included, become the longest one, and no time above 0 becomes 0, which
    brokers take for a request that must not wait.
    """
    if duration <= 0:
        return 0
    return max(1, round(min(duration * 1000, MAX_INT32)))
