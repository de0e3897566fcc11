"""Parses the option valueSchema: a DDL string, or the JSON of a StructType. Pure.

Spark creates a data source in a Python process without a session, in which pyspark cannot parse
DDL. A schema is checked here, so that an error names the option and the column.
"""

from __future__ import annotations

import difflib
import json
import re
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast

from pyspark.sql import types

from kafka_async.errors import InvalidConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

TYPES: Final[dict[str, Callable[[], types.DataType]]] = {
    "string": types.StringType,
    "boolean": types.BooleanType,
    "tinyint": types.ByteType,
    "smallint": types.ShortType,
    "int": types.IntegerType,
    "bigint": types.LongType,
    "float": types.FloatType,
    "double": types.DoubleType,
    "decimal": types.DecimalType,
    "date": types.DateType,
    "timestamp": types.TimestampType,
    "binary": types.BinaryType,
}
ALIASES: Final = {
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "long": "bigint",
    "real": "float",
    "dec": "decimal",
    "numeric": "decimal",
    "timestamp_ltz": "timestamp",
}
NESTED: Final = ("array", "map", "struct")
MAX_PRECISION: Final = 38
"""Digits of a decimal."""
MAX_DEPTH: Final = 100
"""Nested types within each other."""
_TOKEN: Final = re.compile(
    r"\s*(?:`((?:[^`]|``)+)`|('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")|(\w+)|(.))", re.DOTALL
)
_DECIMAL: Final = re.compile(r"decimal(?:\(\s*([0-9]{1,3})\s*,\s*([0-9]{1,3})\s*\))?")


def parse_value_schema(text: str) -> types.StructType:
    """Return the columns that a valueSchema names; all are nullable, as those of from_json.

    Raises:
        InvalidConfigurationError: The text is no schema, or has a type that JSON values are not
            decoded to, a map whose keys are no strings, or no column.
    """
    schema = _from_json(text) if text.lstrip().startswith("{") else _Ddl(text).schema()
    if not schema.fields:
        _fail("it names no column")
    return schema


def _fail(reason: str) -> NoReturn:
    raise InvalidConfigurationError(
        f"valueSchema is wrong: {reason}; write columns as in CREATE TABLE, such as "
        "'id BIGINT, tags ARRAY<STRING>', or the JSON of a StructType"
    )


def _atomic(name: str, column: str) -> types.DataType:
    """Return a type without parameters."""
    kind = TYPES.get(ALIASES.get(name, name))
    if kind is None:
        known = (*TYPES, *ALIASES, *NESTED)
        near = difflib.get_close_matches(name, known, 1)
        hint = f"did you mean {near[0]}?" if near else f"known are {', '.join((*TYPES, *NESTED))}"
        _fail(f"column {column} has the type {name}, which valueFormat=json does not read: {hint}")
    return kind()


def _decimal(precision: int, scale: int, column: str) -> types.DecimalType:
    if not 0 <= scale <= precision <= MAX_PRECISION or precision == 0:
        _fail(
            f"column {column} has the type decimal({precision},{scale}): the precision is at most "
            f"{MAX_PRECISION}, and the scale at most the precision"
        )
    return types.DecimalType(precision, scale)


def _map(key: types.DataType, value: types.DataType, column: str) -> types.MapType:
    if not isinstance(key, types.StringType):
        _fail(f"column {column} has a map whose keys are no strings, but JSON has only such keys")
    return types.MapType(key, value)


def _struct(fields: Iterable[tuple[str, types.DataType]], column: str) -> types.StructType:
    rows = [types.StructField(name, kind) for name, kind in fields]
    seen: set[str] = set()
    for row in rows:
        if row.name in seen:
            _fail(f"{column or 'the schema'} has two columns {row.name}")
        seen.add(row.name)
    return types.StructType(rows)


# -- JSON --------------------------------------------------------------------------------------


def _from_json(text: str) -> types.StructType:
    try:
        value: object = json.loads(text)
    except ValueError as error:
        _fail(f"it begins with {{ and is not JSON ({error})")
    except RecursionError:
        _fail("its types are nested too deeply")
    kind = _type_of(value, "", 0)
    if not isinstance(kind, types.StructType):
        _fail("its JSON is not that of a StructType")
    return kind


def _type_of(value: object, column: str, depth: int) -> types.DataType:
    """Return the type that a value of a schema's JSON describes.

    Types of users are not read: pyspark would import the module that one names.
    """
    if depth > MAX_DEPTH:
        _fail("its types are nested too deeply")
    if isinstance(value, str):
        match = _DECIMAL.fullmatch(value)
        if match is not None and match[1] is not None:
            return _decimal(int(match[1]), int(match[2]), column)
        return _atomic(value, column)
    row = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    kind = row.get("type")
    if kind == "array" and "elementType" in row:
        return types.ArrayType(_type_of(row["elementType"], column, depth + 1))
    if kind == "map" and {"keyType", "valueType"} <= row.keys():
        key = _type_of(row["keyType"], column, depth + 1)
        return _map(key, _type_of(row["valueType"], column, depth + 1), column)
    fields = row.get("fields")
    if kind == "struct" and isinstance(fields, list):
        return _struct(_fields_of(cast("list[object]", fields), column, depth), column)
    _fail(f"{f'column {column}' if column else 'its JSON'} has no type that Spark writes")


def _fields_of(rows: list[object], column: str, depth: int) -> Iterable[tuple[str, types.DataType]]:
    for row in rows:
        field = cast("dict[str, object]", row) if isinstance(row, dict) else {}
        name = field.get("name")
        if not isinstance(name, str) or "type" not in field:
            _fail(f"a field of {column or 'its JSON'} has no name or no type")
        path = f"{column}.{name}" if column else name
        yield name, _type_of(field["type"], path, depth + 1)


# -- DDL ---------------------------------------------------------------------------------------


class _Ddl:
    """Parses a DDL string by recursive descent."""

    def __init__(self, text: str) -> None:
        self._tokens: list[tuple[str, str]] = []
        for match in _TOKEN.finditer(text):
            quoted, string, word, mark = match.groups()
            if quoted is not None:
                self._tokens.append(("name", quoted.replace("``", "`")))
            elif string is not None:
                self._tokens.append(("string", string))
            elif word is not None:
                self._tokens.append(("word", word))
            elif not mark.isspace():
                self._tokens.append(("mark", mark))
        self._next = 0

    def schema(self) -> types.StructType:
        """Return the columns; the text may also be one type, STRUCT<...>."""
        if self._peek(0) == ("word", "struct") and self._peek(1) == ("mark", "<"):
            kind = self._type("", 0)
            if not isinstance(kind, types.StructType):
                raise AssertionError
        else:
            kind = _struct(self._fields("", 0), "")
        if self._next < len(self._tokens):
            _fail(f"{self._tokens[self._next][1]!r} is not expected there")
        return kind

    def _peek(self, ahead: int = 0) -> tuple[str, str]:
        """Return a token; a word in lower case."""
        if self._next + ahead >= len(self._tokens):
            return "end", ""
        kind, text = self._tokens[self._next + ahead]
        return kind, text.lower() if kind == "word" else text

    def _take(self, text: str) -> bool:
        """Step over a word or a mark, if it is the next token."""
        kind, found = self._peek()
        if kind not in ("word", "mark") or found != text:
            return False
        self._next += 1
        return True

    def _expect(self, text: str, column: str) -> None:
        if not self._take(text):
            found = self._peek()[1]
            _fail(f"{text!r} is missing after column {column}, before {found or 'the end'!r}")

    def _fields(self, parent: str, depth: int) -> list[tuple[str, types.DataType]]:
        fields: list[tuple[str, types.DataType]] = []
        while True:
            kind, _ = self._peek()
            if kind not in ("word", "name"):
                _fail(f"a column's name is missing before {self._peek()[1] or 'the end'!r}")
            name = self._tokens[self._next][1]
            self._next += 1
            path = f"{parent}.{name}" if parent else name
            self._take(":")
            fields.append((name, self._type(path, depth)))
            if self._take("not"):
                self._expect("null", path)
            if self._take("comment"):
                if self._peek()[0] != "string":
                    _fail(f"the comment of column {path} is no string")
                while self._peek()[0] == "string":  # Spark joins strings that follow each other.
                    self._next += 1
            if not self._take(","):
                return fields

    def _type(self, column: str, depth: int) -> types.DataType:
        if depth > MAX_DEPTH:
            _fail("its types are nested too deeply")
        kind, name = self._peek()
        if kind != "word":
            _fail(f"column {column} has no type")
        self._next += 1
        if name == "array":
            self._expect("<", column)
            element = self._type(column, depth + 1)
            self._expect(">", column)
            return types.ArrayType(element)
        if name == "map":
            self._expect("<", column)
            key = self._type(column, depth + 1)
            self._expect(",", column)
            value = self._type(column, depth + 1)
            self._expect(">", column)
            return _map(key, value, column)
        if name == "struct":
            self._expect("<", column)
            fields = [] if self._peek() == ("mark", ">") else self._fields(column, depth + 1)
            self._expect(">", column)
            return _struct(fields, column)
        if ALIASES.get(name, name) == "decimal" and self._take("("):
            precision = self._number(column)
            scale = self._number(column) if self._take(",") else 0
            self._expect(")", column)
            return _decimal(precision, scale, column)
        return _atomic(name, column)

    def _number(self, column: str) -> int:
        kind, text = self._peek()
        if kind != "word" or not (text.isascii() and text.isdecimal()) or len(text) > 3:
            _fail(f"the type of column {column} needs a number instead of {text!r}")
        self._next += 1
        return int(text)
