"""Parses one JSON value after another into the columns of a schema, as Spark's from_json. Pure.

This parser accepts what Spark accepts: also names and strings in single quotes, NaN, and text after
the object. A field of the wrong type is null, the other fields are kept, and the value is corrupt;
text that is no JSON object gives nulls only. (Spark keeps some fields of a text with an error
within a nested value: those that its parser finds after it.)
"""

from __future__ import annotations

import binascii
import datetime
import decimal
import json
import math
import re
import zoneinfo
from typing import TYPE_CHECKING, Any, Final

import pyarrow
from pyspark.sql import types

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_DEPTH: Final = 1_000
"""Objects and arrays within each other, and"""
MAX_NUMBER_LENGTH: Final = 1_000
"""characters of a number, that Spark's JSON parser (Jackson) accepts."""
CONTROL: Final = "".join(map(chr, range(33)))
"""Characters that Java's String.trim removes."""
EPOCH: Final = datetime.date(1970, 1, 1).toordinal()
MICROSECONDS: Final = 1_000_000
DAYS_OF_400_YEARS: Final = 146_097
FLOAT_NAMES: Final = {
    "NaN": float("nan"),
    "Infinity": float("inf"),
    "-Infinity": float("-inf"),
    "+Infinity": float("inf"),
    "-INF": float("-inf"),
    "+INF": float("inf"),
}
"""Numbers that are not finite, as names, and as strings for floating-point columns."""

_decode_string: Final[Callable[[str, int], tuple[str, int]]] = json.JSONDecoder().raw_decode
_SPACE: Final = re.compile(r"[ \t\r\n]*")
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_NAME: Final = re.compile(r"true|false|null|NaN|[+-]?Infinity|[+-]INF")
_QUOTED: Final = {
    '"': re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL),
    "'": re.compile(r"'((?:[^'\\]|\\.)*)'", re.DOTALL),
}
_TO_ESCAPE: Final = re.compile(r'\\.|"', re.DOTALL)
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_DECIMAL: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,9})?")
_DATE: Final = re.compile(
    r"([+-]?[0-9]{4,7})(?:-([0-9]{1,2})(?:-([0-9]{1,2})(?:[ T].*)?)?)?", re.DOTALL
)
_DAYS: Final = re.compile(r"[+-]?[0-9]{1,10}")
_TIMESTAMP: Final = re.compile(
    r"([+-]?[0-9]{4,6})(?:-([0-9]{1,2})(?:-([0-9]{1,2})"
    r"(?:[ T]([0-9]{1,2})(?::([0-9]{1,2})(?::([0-9]{1,2})(?:\.([0-9]*))?)?)?\s*(\S+)?)?)?)?"
)
_OFFSET: Final = re.compile(r"(?:UTC|GMT|UT)?([+-])([0-9]{1,2})(?::?([0-9]{2}))?")
_BASE64: Final = re.compile(
    r"(?:[\x00-\x20]*(?:[A-Za-z0-9+/]{4}|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{2}==))*[\x00-\x20]*"
)
_MAX_OFFSET: Final = 18 * 60
"""Minutes."""


class MalformedError(Exception):
    """The text is not JSON."""


class WrongTypeError(Exception):
    """A value, which the parser has stepped over, does not have the type of its column."""


class JsonRecords:
    """Parses JSON objects into the values of columns.

    Args:
        schema: The columns.
        zone: Time zone of timestamps that name none.
    """

    def __init__(self, schema: types.StructType, zone: datetime.tzinfo = datetime.UTC) -> None:
        self._zone = zone
        self._names = [field.name for field in schema.fields]
        self._root = self._reader_of_struct(schema)
        self._text = ""
        self._at = 0
        self._corrupt = False

    def parse(self, text: str) -> tuple[dict[str, Any], bool]:
        """Return the values by column, without those that are missing, and whether it is corrupt.

        Dates are days and timestamps are microseconds since 1970.
        """
        self._text, self._at, self._corrupt = text, 0, False
        try:
            if not self._skip_space():
                return {}, False
            return self._root(), self._corrupt
        except (MalformedError, WrongTypeError):
            return {}, True

    # -- tokens -----------------------------------------------------------------------------------

    def _skip_space(self) -> str:
        """Step over white space and return the next character, or nothing at the end."""
        match = _SPACE.match(self._text, self._at)
        if match is not None:
            self._at = match.end()
        return self._text[self._at : self._at + 1]

    def _take(self, mark: str) -> bool:
        """Step over a mark, if it is next."""
        if self._skip_space() != mark:
            return False
        self._at += 1
        return True

    def _expect(self, mark: str) -> None:
        if not self._take(mark):
            raise MalformedError

    def _string(self) -> str:
        text, start = self._text, self._at
        if text[start] == '"':
            try:
                value, self._at = _decode_string(text, start)
            except ValueError:
                pass  # It may have an escape that Jackson accepts.
            else:
                return _SURROGATE.sub("?", value) if _SURROGATE.search(value) else value
        match = _QUOTED[text[start]].match(text, start)
        if match is None:
            raise MalformedError
        body = _TO_ESCAPE.sub(lambda each: {"\\'": "'", '"': '\\"'}.get(each[0], each[0]), match[1])
        try:
            value, _ = _decode_string(f'"{body}"', 0)
        except ValueError as error:
            raise MalformedError from error
        self._at = match.end()
        return _SURROGATE.sub("?", value)

    def _number(self) -> tuple[str, bool]:
        """Return the text of a number, and whether it is an integer."""
        match = _NUMBER.match(self._text, self._at)
        if match is None or match.end() - match.start() > MAX_NUMBER_LENGTH:
            raise MalformedError
        self._at = match.end()
        return match[0], match[1] is None and match[2] is None

    def _name(self) -> str:
        match = _NAME.match(self._text, self._at)
        if match is None:
            raise MalformedError
        end = match.end()
        follows = self._text[end : end + 1]
        if follows.isidentifier() or follows.isdigit() or follows == "$":
            raise MalformedError
        self._at = end
        return match[0]

    def _token(self) -> tuple[str, str]:
        """Step over a scalar; return its kind (string, int, float or name) and its text."""
        first = self._skip_space()
        if first and first in "\"'":
            return "string", self._string()
        if first.isdigit() or (first == "-" and self._text[self._at + 1 : self._at + 2].isdigit()):
            text, whole = self._number()
            return ("int" if whole else "float"), text
        return "name", self._name()

    def _copy(self) -> str:
        """Step over a value; return it as Spark writes it into a column of type string."""
        out: list[str] = []
        closers: list[str] = []
        while True:
            first = self._skip_space()
            if first and first in "{[":
                if len(closers) == MAX_DEPTH:
                    raise MalformedError
                self._at += 1
                out.append(first)
                closers.append("}" if first == "{" else "]")
                if not self._take(closers[-1]):
                    if first == "{":
                        out.append(self._copied_key())
                    continue
                out.append(closers.pop())
            else:
                out.append(_as_text(*self._token()))
            while closers:
                if self._take(","):
                    out.append(",")
                    if closers[-1] == "}":
                        out.append(self._copied_key())
                    break
                self._expect(closers[-1])
                out.append(closers.pop())
            else:
                return "".join(out)

    def _copied_key(self) -> str:
        return f"{_as_text('string', self._key())}:"

    def _key(self) -> str:
        """Step over the name of a field and the colon."""
        first = self._skip_space()
        if not first or first not in "\"'":
            raise MalformedError
        key = self._string()
        self._expect(":")
        return key

    def _wrong(self) -> Any:
        """Step over a value that does not have the type of its column."""
        self._copy()
        raise WrongTypeError

    # -- types ------------------------------------------------------------------------------------

    def _reader(self, kind: types.DataType) -> Callable[[], Any]:
        """Return a function that parses the next value, which is not null."""
        if isinstance(kind, types.StructType):
            return self._reader_of_struct(kind)
        if isinstance(kind, types.MapType):
            return self._reader_of_map(kind)
        if isinstance(kind, types.ArrayType):
            return self._reader_of_array(kind)
        if isinstance(kind, types.StringType):
            return self._read_string
        convert = _converter(kind, self._zone)

        def scalar() -> Any:
            if self._skip_space() in ("{", "["):
                return self._wrong()
            return convert(*self._token())

        return scalar

    def _value(self, read: Callable[[], Any]) -> Any:
        """Parse the next value; return None for null."""
        if self._skip_space() == "n":
            self._name()
            return None
        return read()

    def _read_string(self) -> str:
        first = self._skip_space()
        return self._string() if first and first in "\"'" else self._copy()

    def _reader_of_struct(self, kind: types.StructType) -> Callable[[], dict[str, Any]]:
        readers = {field.name: self._reader(field.dataType) for field in kind.fields}

        def struct() -> dict[str, Any]:
            if self._skip_space() != "{":
                return self._wrong()
            self._at += 1
            values: dict[str, Any] = {}
            if self._take("}"):
                return values
            while True:
                key = self._key()
                read = readers.get(key)
                if read is None:
                    self._copy()
                else:
                    try:
                        values[key] = self._value(read)
                    except WrongTypeError:
                        self._corrupt = True
                if not self._take(","):
                    self._expect("}")
                    return values

        return struct

    def _reader_of_map(self, kind: types.MapType) -> Callable[[], list[tuple[str, Any]]]:
        read = self._reader(kind.valueType)

        def entries() -> list[tuple[str, Any]]:
            if self._skip_space() != "{":
                return self._wrong()
            self._at += 1
            return self._elements("}", lambda: (self._key(), self._value(read)))

        return entries

    def _reader_of_array(self, kind: types.ArrayType) -> Callable[[], list[Any]]:
        read = self._reader(kind.elementType)

        def elements() -> list[Any]:
            if self._skip_space() != "[":
                return self._wrong()
            self._at += 1
            return self._elements("]", lambda: self._value(read))

        return elements

    def _elements(self, closer: str, element: Callable[[], Any]) -> list[Any]:
        """Parse elements up to the end; one of a wrong type makes the whole value wrong."""
        values: list[Any] = []
        wrong = False
        if self._take(closer):
            return values
        while True:
            try:
                values.append(element())
            except WrongTypeError:
                wrong = True
            if not self._take(","):
                self._expect(closer)
                if wrong:
                    raise WrongTypeError
                return values


def _as_text(kind: str, text: str) -> str:
    """Return a scalar as Jackson writes it."""
    if kind == "string":
        return f'"{_JSON_ESCAPES.sub(_escaped, text)}"'
    if kind == "int":
        return str(int(text))
    if kind == "float":
        return _double_text(float(text))
    return _double_text(FLOAT_NAMES[text]) if text in FLOAT_NAMES else text


_JSON_ESCAPES: Final = re.compile(r'["\\\x00-\x1f]')
_SHORT_ESCAPES: Final = {
    '"': '\\"',
    "\\": "\\\\",
    "\b": "\\b",
    "\t": "\\t",
    "\n": "\\n",
    "\f": "\\f",
    "\r": "\\r",
}


def _escaped(match: re.Match[str]) -> str:
    return _SHORT_ESCAPES.get(match[0]) or f"\\u{ord(match[0]):04X}"


def _double_text(value: float) -> str:
    """Return a number as Java's Double.toString; one that is not finite as a JSON string."""
    if not math.isfinite(value):
        name = "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        return f'"{name}"'
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return format(decimal.Decimal(repr(value)), "f")
    sign, digits, exponent = decimal.Decimal(repr(value)).normalize().as_tuple()
    text = "".join(map(str, digits))
    power = int(exponent) + len(digits) - 1
    return f"{'-' if sign else ''}{text[0]}.{text[1:] or '0'}E{power}"


def _converter(kind: types.DataType, zone: datetime.tzinfo) -> Callable[[str, str], Any]:
    """Return a function from the kind and the text of a scalar to a value of a type."""
    for of, (low, high) in INTEGERS.items():
        if isinstance(kind, of):
            return lambda token, text: _integer(token, text, low, high)
    if isinstance(kind, types.DecimalType):
        return lambda token, text: _decimal(token, text, kind.precision, kind.scale)
    if isinstance(kind, types.TimestampType):
        return lambda token, text: _timestamp(token, text, zone)
    return SCALARS[type(kind)]


def _boolean(token: str, text: str) -> bool:
    if token != "name" or text not in ("true", "false"):
        raise WrongTypeError
    return text == "true"


def _integer(token: str, text: str, low: int, high: int) -> int:
    if token != "int":
        raise WrongTypeError
    value = int(text)
    if low == -(1 << 7) and high < value < 1 << 8:
        return value - (1 << 8)  # Jackson takes such a byte as unsigned.
    if not low <= value <= high:
        raise WrongTypeError
    return value


def _double(token: str, text: str) -> float:
    if token in ("int", "float"):
        return float(text) + (0.0 if token == "int" else -0.0)  # The integer -0 is 0.
    if text not in FLOAT_NAMES:
        raise WrongTypeError
    return FLOAT_NAMES[text]


def _float(token: str, text: str) -> float:
    value = _double(token, text)
    if token in ("int", "float") and math.isfinite(value):
        # A number that is rounded twice, to a double and then to a float, may be another one.
        value = _as_float(text) + (0.0 if token == "int" else -0.0)
    return value


def _as_float(text: str) -> float:
    scalar: Any = pyarrow.scalar(text)
    return scalar.cast(pyarrow.float32()).as_py()


def _decimal(token: str, text: str, precision: int, scale: int) -> decimal.Decimal:
    if token == "string":
        text = text.replace(",", "")
    if token == "name" or not _DECIMAL.fullmatch(text):
        raise WrongTypeError
    value = decimal.Decimal(text)
    if value and value.adjusted() > precision:
        raise WrongTypeError
    with decimal.localcontext() as context:
        context.prec = precision + scale + 2
        value = value.quantize(decimal.Decimal(1).scaleb(-scale), decimal.ROUND_HALF_UP)
    if value.adjusted() + 1 > precision - scale and value:
        raise WrongTypeError
    return value


def _days(year: int, month: int, day: int) -> int:
    """Return days since 1970 in the proleptic Gregorian calendar, which has a year 0."""
    cycles, year = divmod(year, 400)
    try:
        moved = datetime.date(year + 2000, month, day)
    except ValueError as error:
        raise WrongTypeError from error
    return moved.toordinal() - EPOCH + (cycles - 5) * DAYS_OF_400_YEARS


def _date(token: str, text: str) -> int:
    match = _DATE.fullmatch(text.strip(CONTROL)) if token == "string" else None
    if match is not None:
        days = _days(int(match[1]), int(match[2] or 1), int(match[3] or 1))
    elif token == "string" and _DAYS.fullmatch(text):
        days = int(text)  # Spark 1.5 wrote dates so, and newer versions read them.
    else:
        raise WrongTypeError
    return _in_range(days, 1 << 31)


def _in_range(value: int, limit: int) -> int:
    """Return a value that is at least -limit and below limit."""
    if not -limit <= value < limit:
        raise WrongTypeError
    return value


def _timestamp(token: str, text: str, zone: datetime.tzinfo) -> int:
    if token == "int":
        return _in_range(int(text) * MICROSECONDS, 1 << 63)
    match = _TIMESTAMP.fullmatch(text.strip(CONTROL)) if token == "string" else None
    if match is None:
        raise WrongTypeError
    year, month, day, hour, minute, second = (
        int(match[group] or default)
        for group, default in zip(range(1, 7), (0, 1, 1, 0, 0, 0), strict=True)
    )
    if hour > 23 or minute > 59 or second > 59:
        raise WrongTypeError
    fraction = int((match[7] or "")[:6].ljust(6, "0"))
    seconds = _days(year, month, day) * 86_400 + (hour * 60 + minute) * 60 + second
    offset = _zone_offset(match[8])
    if offset is None:
        named = zone if match[8] is None else _zone(match[8])
        offset = _offset_at(seconds, named)
    return _in_range((seconds - offset) * MICROSECONDS + fraction, 1 << 63)


def _zone_offset(text: str | None) -> int | None:
    """Return the seconds of an offset such as +01:00 or Z; None for a name."""
    if text in ("Z", "UTC", "GMT"):
        return 0
    match = _OFFSET.fullmatch(text or "")
    if match is None:
        return None
    minutes = int(match[2]) * 60 + int(match[3] or 0)
    if minutes > _MAX_OFFSET or int(match[3] or 0) > 59:
        raise WrongTypeError
    return (-minutes if match[1] == "-" else minutes) * 60


def _zone(name: str) -> datetime.tzinfo:
    try:
        return zoneinfo.ZoneInfo(name)
    except (ValueError, OSError, KeyError) as error:
        raise WrongTypeError from error


def _offset_at(seconds: int, zone: datetime.tzinfo) -> int:
    """Return the offset of a zone at a local time; of two, that before a change of the clocks."""
    if zone is datetime.UTC:
        return 0
    first = datetime.datetime.min
    since = datetime.timedelta(seconds=seconds - _days(1, 1, 1) * 86_400)
    local = first + min(max(since, datetime.timedelta()), datetime.datetime.max - first)
    offset = zone.utcoffset(local)
    return 0 if offset is None else round(offset.total_seconds())


def _binary(token: str, text: str) -> bytes:
    if token != "string" or not _BASE64.fullmatch(text):
        raise WrongTypeError
    quads = "".join(text.split()).translate(_NO_CONTROL)
    return b"".join(binascii.a2b_base64(quads[at : at + 4]) for at in range(0, len(quads), 4))


_NO_CONTROL: Final = dict.fromkeys(range(33))
INTEGERS: Final[dict[type[types.DataType], tuple[int, int]]] = {
    types.ByteType: (-(1 << 7), (1 << 7) - 1),
    types.ShortType: (-(1 << 15), (1 << 15) - 1),
    types.IntegerType: (-(1 << 31), (1 << 31) - 1),
    types.LongType: (-(1 << 63), (1 << 63) - 1),
}
SCALARS: Final[dict[type[types.DataType], Callable[[str, str], Any]]] = {
    types.BooleanType: _boolean,
    types.FloatType: _float,
    types.DoubleType: _double,
    types.DateType: _date,
    types.BinaryType: _binary,
}
