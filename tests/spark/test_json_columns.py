"""Tests of decoding JSON values, without Spark.

tests/integration/test_spark_json_values.py compares the same values with Spark's from_json.
"""

from __future__ import annotations

import datetime
import json
import random
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from kafka_async.spark.json_columns import ROWS_PARSED_ONE_BY_ONE, JsonColumns
from kafka_async.spark.value_schema import parse_value_schema
from tests.spark.json_cases import TABLE, TYPES, WITHOUT_MAP, random_values, rows_of

pa: Any = pytest.importorskip("pyarrow")

CORRUPT = "_corrupt_record"


def decoder(ddl: str, zone: str = "UTC") -> JsonColumns:
    return JsonColumns(parse_value_schema(f"{ddl}, {CORRUPT} STRING"), CORRUPT, zone)


def decode(columns: JsonColumns, values: list[bytes | None]) -> list[tuple[Any, ...]]:
    return rows_of(columns.decode_values(pa.array(values, pa.binary())))


def one_by_one(ddl: str, values: list[bytes | None]) -> list[tuple[Any, ...]]:
    """Decode without Arrow's parser."""
    columns = decoder(ddl)
    with patch.object(columns, "_decode_batch", side_effect=pa.ArrowInvalid):
        return decode(columns, values)


def good(number: int) -> bytes:
    return json.dumps({"a": number, "b": f"text {number}"}).encode()


def test_batch_of_good_values_is_parsed_at_once() -> None:
    columns = decoder("a INT, b STRING, t TIMESTAMP, d DATE, x BINARY, s STRUCT<l: ARRAY<DATE>>")
    rows: list[dict[str, Any]] = [
        {
            "a": n,
            "b": "ä\n",
            "t": "2020-01-02T03:04:05Z",
            "d": "2020-01-02",
            "x": "QUI=",
            "s": {"l": ["2020-01-02", None]},
            "more": [1, {}],
        }
        for n in range(1_000)
    ]
    values: list[bytes | None] = [None, *(json.dumps(row).encode() for row in rows), None]
    found: list[Any] = [each.to_pylist() for each in columns.decode_values(pa.array(values))]
    assert columns.parsed_one_by_one == 0
    day = datetime.date(2020, 1, 2)
    moment = datetime.datetime(2020, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
    assert found[0] == [None, *range(1_000), None]
    assert found[1:] == [
        [None, *[value] * 1_000, None]
        for value in ("ä\n", moment, day, b"AB", {"l": [day, None]}, None)
    ]


def test_batch_of_maps_is_parsed_at_once() -> None:
    columns = decoder(
        "m MAP<STRING, DATE>, l ARRAY<MAP<STRING, STRING>>, "
        "s STRUCT<m: MAP<STRING, MAP<STRING, INT>>>"
    )
    names = ["a", "", "key", "value", 'quote " and \\', "{[:,]}", "ä\n", "\\"]
    day = datetime.date(2020, 1, 2)
    maps: list[Any] = [dict.fromkeys(names[:count], "2020-01-02") for count in range(8)]
    rows: list[dict[str, Any]] = [
        {
            "m": maps[n % 8],
            "other": {"m": {"x": [{}]}},
            "l": [None, {}, dict.fromkeys(names, names[n % 8]), {"x": None}],
            "s": {"m": {"first": {"b": n, "a": 1}, "empty": {}, "none": None}},
        }
        for n in range(1_000)
    ]
    rows += [{"m": None, "l": None, "s": None}, {"l": [], "s": {"m": None}}, {"s": {}}]
    values = [json.dumps(row, indent=n % 2 or None).encode() for n, row in enumerate(rows)]
    found = columns.decode_values(pa.array(values))
    assert columns.parsed_one_by_one == 0
    for array in found:
        array.validate(full=True)
    m, lists, s, corrupt = (array.to_pylist() for array in found)
    assert m == [*([(k, day) for k in maps[n % 8]] for n in range(1_000)), None, None, None]
    expected: list[Any] = [
        [None, [], [(name, names[n % 8]) for name in names], [("x", None)]] for n in range(1_000)
    ]
    assert lists == [*expected, None, [], None]
    entries: list[Any] = [
        [("first", [("b", n), ("a", 1)]), ("empty", []), ("none", None)] for n in range(1000)
    ]
    assert s == [*({"m": each} for each in entries), None, {"m": None}, {"m": None}]
    assert corrupt == [None] * len(rows)


@pytest.mark.parametrize(
    "text",
    [
        *('[{"key":"a","value":"1"}]', '[["a","1"]]', '{"a"}', '{"a","b":"1":"2"}', "{null}"),
        *('{null:"1"}', '{"a":"1"]', '["a":"1"}', '{"a" "1"}', "{,}", '{"a":"1",}', '{:"1"}'),
        *('{1:"1"}', '{"a":}', '{"a":"1"}}', '{"a":"1"', '{{}:"1"}', '{"a":"1" "b":"2"}', '"a"'),
        *('{"a":"1","value":"2"', '{"a","value":"1"}', '{"a\\":"1"}', '{"a\\"":"1"}', "[]", "null"),
        *('{"a":{"b":"1"}}', '{"a":["1"]}', '{"a":"1"},"m":{"b":"2"}', '{"a":"1","a":"2"}'),
        '{"key":"a","value":"1"}',
    ],
)
def test_map_is_what_it_is_when_it_is_parsed_alone(text: str) -> None:
    ddl = "m MAP<STRING, STRING>, z INT"
    for value in (f'{{"z":1,"m":{text}}}', f'{{"\\u006d":{text},"z":1}}'):
        rows = decode(decoder(ddl), [value.encode()])
        assert rows == one_by_one(ddl, [value.encode()])
    values = [b'{"m":{"x":"y"}}', f'{{"z":1,"m":{text}}}'.encode(), b'{"z":2}']
    assert decode(decoder(ddl), [*values]) == one_by_one(ddl, [*values])


@pytest.mark.parametrize("bad", [b"nonsense", b'{"a":"x"}', b"", b"{}{}", b"\xff", b'{"a":1}\n{'])
def test_bad_value_does_not_slow_down_the_others(bad: bytes) -> None:
    values: list[bytes | None] = [good(number) for number in range(5_000)]
    values[1_234] = bad
    columns = decoder("a INT, b STRING")
    rows = decode(columns, values)
    assert 0 < columns.parsed_one_by_one <= ROWS_PARSED_ONE_BY_ONE
    del rows[1_234], values[1_234]
    assert rows == [
        (str(number), f"text {number}", None) for number in range(5_000) if number != 1_234
    ]


def test_values_that_arrow_would_join_are_two_records() -> None:
    # Together they are two objects, but the first one ends in the second value.
    values: list[bytes | None] = [b'{"a":', b"1}{}"]
    assert decode(decoder("a INT"), values) == [("None", '{"a":'), ("None", "1}{}")]


def test_null_values_have_null_columns_and_are_not_corrupt() -> None:
    columns = decoder("a INT, b STRING")
    assert decode(columns, [None, None]) == [("None", None, None)] * 2
    assert decode(columns, [None, b"x", good(1)])[0] == ("None", None, None)
    assert decode(columns, []) == []


def test_slice_of_a_batch_is_decoded() -> None:
    values = pa.array([good(0), None, b"x", good(3), None, good(5)])[2:5]
    (a, b, corrupt) = decoder("a INT, b STRING").decode_values(values)
    assert a.to_pylist() == [None, 3, None]
    assert b.to_pylist() == [None, "text 3", None]
    assert corrupt.to_pylist() == ["x", None, None]


def test_deeply_nested_values_are_corrupt_or_ignored() -> None:
    deep = b'{"a":1,"more":' + b"[" * 500_000 + b"]" * 500_000 + b"}"
    assert one_by_one("a INT", [deep]) == [("None", deep.decode())]
    assert decode(decoder("a INT"), [deep])[0][0] == "1"
    assert one_by_one("a STRING", [b'{"a":' + b"[" * 500_000])[0][0] is None


@pytest.mark.parametrize("ddl", [TYPES, WITHOUT_MAP], ids=["with-map", "without-map"])
def test_both_parsers_give_the_same_columns(ddl: str, seeded: int) -> None:
    values: list[bytes | None] = [*random_values(random.Random(seeded), 400)]
    expected = one_by_one(ddl, values)
    columns = decoder(ddl)
    assert [decode(columns, [value])[0] for value in values] == expected
    assert columns.parsed_one_by_one < len(values) / 2
    assert decode(decoder(ddl), values) == expected


@pytest.mark.parametrize("ddl", TABLE)
def test_both_parsers_give_the_same_columns_for_every_rule(ddl: str) -> None:
    values = list(TABLE[ddl])
    columns = decoder(ddl)
    assert [decode(columns, [value])[0] for value in values] == one_by_one(ddl, values)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


def as_bytes(row: dict[str, Any], ascii_only: bool) -> bytes:
    return json.dumps(row, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")


ROWS = st.builds(as_bytes, st.dictionaries(st.sampled_from("abcde"), JSON), st.booleans())


@settings(max_examples=40)
@given(st.lists(st.binary() | ROWS, max_size=5))
def test_both_parsers_give_the_same_columns_for_any_bytes(values: list[bytes | None]) -> None:
    ddl = "a BIGINT, b STRING, c DOUBLE, d ARRAY<STRING>, e STRUCT<a: DECIMAL(5,2), b: BINARY>"
    assert decode(decoder(ddl), values) == one_by_one(ddl, values)


MAPS = (
    "a MAP<STRING, DOUBLE>, b ARRAY<MAP<STRING, STRING>>, "
    "c STRUCT<a: MAP<STRING, MAP<STRING, INT>>>, d MAP<STRING, STRUCT<e: MAP<STRING, BINARY>>>"
)
MARKS = (
    *(b"{", b"}", b"[", b"]", b":", b",", b'"', b"\\", b"\n", b"1", b"null", b'"a"', b"{}"),
    *(b'"key":', b'"value":', b'{"a":1}', b'[{"key":"a","value":1}]'),
)


def damaged(value: bytes, rng: random.Random) -> bytes:
    """Insert, delete or replace a mark of JSON."""
    at = rng.choice([place for place, byte in enumerate(value) if byte in b'{}[]:,"\\'])
    return value[:at] + rng.choice((*MARKS, b"")) + value[at + rng.randrange(2) :]


def test_both_parsers_give_the_same_maps_for_damaged_values(seeded: int) -> None:
    rng = random.Random(seeded)
    inner: dict[str, Any] = {"a": 1, 'b"\\': None, "value": 3}
    rows: list[dict[str, Any]] = [
        {"a": {"a": 1.5, "key": None}, "b": [{"{": "}"}, {}, None]},
        {"c": {"a": {"a": inner, "": {}}, "more": inner}, "more": {"a": inner}},
        {"d": {"x": {"e": {"ä": "QUI="}}, "y": None}, "a": {}},
    ]
    wholly = decoder(MAPS)
    for _ in range(80):
        values: list[bytes | None] = [json.dumps(rng.choice(rows)).encode() for _ in range(2)]
        assert decode(wholly, values) == one_by_one(MAPS, values)
        values[1] = damaged(values[1] or b"", rng)
        assert decode(decoder(MAPS), values) == one_by_one(MAPS, values)
    assert wholly.parsed_one_by_one == 0
