"""JSON values for the tests that compare our decoding with Spark's from_json."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

TYPES: Final = (
    "a INT, b STRING, c BIGINT, d DOUBLE, e BOOLEAN, f FLOAT, g DECIMAL(7,2), h TINYINT, "
    "i SMALLINT, j DATE, k TIMESTAMP, l ARRAY<INT>, m MAP<STRING, DOUBLE>, "
    "n STRUCT<x: INT, y: STRUCT<z: ARRAY<STRUCT<w: DATE>>>>, o ARRAY<ARRAY<STRING>>"
)
WITHOUT_MAP: Final = TYPES.replace("m MAP<STRING, DOUBLE>, ", "")
_PLAIN: Final[dict[str, tuple[Any, ...]]] = {
    "a": (0, -1, 7, 2**31 - 1, -(2**31), None),
    "b": ("", "x", "ä€😀", 'q"\\/\b\f\n\r\t\x00', "\u2028", None, "Inf, -NaN", "{"),
    "c": (2**63 - 1, -(2**63), 5, None),
    "d": (0.5, 1e300, -2.5e-7, 3, None, 1e22, 123456789.125),
    "e": (True, False, None),
    "f": (0.25, 16777217, 1e-3, None),
    "g": (1.25, 7, -99999.99, None, 0.1),
    "h": (127, -128, 0, None),
    "i": (32767, -32768, None),
    "j": ("2020-01-02", "0001-01-01", "9999-12-31", "1582-10-10", None),
    "k": (
        "2020-01-02T03:04:05Z",
        "2020-01-02 03:04:05.25",
        "1969-12-31T23:59:59.999999+01:30",
        None,
    ),
    "l": ([], [1], [1, None, 3], None),
    "m": ({}, {"k": 1.5, "ä": None}, None),
    "n": ({}, {"x": 1, "y": {"z": [{"w": "2020-01-02"}, None, {}]}, "more": 1}, {"y": None}, None),
    "o": ([["a"], None, []], [[None]], None),
    "unknown": (1, {"deep": [1, {"x": None}]}, "text", None, [True]),
}
_ODD: Final[tuple[Any, ...]] = (
    *(
        1,
        -0.0,
        1.5,
        1e400,
        2**31,
        2**63,
        128,
        255,
        256,
        1e2,
        True,
        "",
        "x",
        "1",
        "1.5",
        "1,5",
        " 1 ",
    ),
    *("NaN", "Infinity", "-INF", "INF", "2020-1-2", "2020-02-30", "2020-01-02T", "2020", "2020-01"),
    *("2020-01-02T3:4:5", "2020-01-02T24:00:00", "2020-01-02T03:04", "2020-01-02T03:04:05+0100"),
    *("2020-01-02T03:04:05.123456789Z", "2020-01-02T03:04:05 Europe/Berlin", " 2020-01-02 "),
    *([], {}, [1], ["x"], [[1]], {"k": 1}, {"k": "x"}, {"x": "bad", "y": 1}, [None], {"x": 1.0}),
    *(
        {"y": {"z": 1}},
        {"y": {"z": [{"w": "x"}]}},
        [{"x": [1.50, "a"]}],
        0.001,
        12345678.9,
        99999.995,
    ),
)
_REPLACED: Final = (
    *(
        (b":1", b": 01"),
        (b":1", b":1."),
        (b":", b" :\t"),
        (b",", b",\n"),
        (b'"', b"'"),
        (b"}", b""),
    ),
    *(
        (b"{", b"["),
        (b"null", b"nul"),
        (b"true", b"True"),
        (b'"', b""),
        (b",", b",,"),
        (b"\\", b"\\q"),
    ),
    *(
        (b'"x"', b"NaN"),
        (b'"x"', b"-Infinity"),
        (b'"x"', b"Inf"),
        (b'"x"', b"-NaN"),
        (b'"x"', b"+INF"),
    ),
    *(
        (b'"x"', b'"\\ud800"'),
        (b'"x"', b'"\xff"'),
        (b'"x"', b'"\n"'),
        (b'"x"', b'"it\\\'s"'),
        (b"1", b"-"),
    ),
    *(
        (b'"x"', b"'q\"q'"),
        (b"1", b"1e"),
        (b"1", b"-0"),
        (b"1", b"1 2"),
        (b"1", b"+1"),
        (b"}", b"}x"),
    ),
    *(
        (b"}", b"}{}"),
        (b"{", b"{,"),
        (b"{", b"\xef\xbb\xbf{"),
        (b"{", b" {"),
        (b"]", b",]"),
        (b'"x"', b'"\\u00e4"'),
    ),
)

TABLE: Final[dict[str, tuple[bytes | None, ...]]] = {
    "a INT, b STRING": (
        *(
            None,
            b"",
            b" ",
            b"\n\t",
            b"\x0b",
            b"null",
            b"null x",
            b"nullx",
            b"true",
            b"1",
            b'"s"',
            b"[]",
        ),
        *(b'[{"a":1}]', b"{}", b'{"a":1}x', b'{"a":1}{"a":2}', b'{"a":1', b'{"a":1,"a":2}', b"{"),
        *(b'{"a":1,"a":"x"}', b'{"a":"x","a":1}', b'{"A":1}', b"{'a':1}", b"{a:1}", b'{"a":\n1}'),
        *(
            b'{"b":{"x": 1.0 , "y":[1, 2.50]}}',
            b'{"b":1.50}',
            b'{"b":1e400}',
            b'{"b":1e-5}',
            b'{"b":1e7}',
        ),
        *(
            b'{"b":-0}',
            b'{"b":-0.0}',
            b'{"b":12345678901234567890}',
            b'{"b":true}',
            b'{"b":NaN}',
            b'{"b":[]}',
        ),
        *(
            b'{"b":"a\x00"}',
            b'{"b":"\\u0000"}',
            b'{"b":[1, {"a" : "\\u00e9\\n\\u001f"}]}',
            b'{"b":{"a":NaN}}',
        ),
        *(
            b'{"b":"\\ud83d\\ude00 \\ud800"}',
            b'\xc2\xa0{"a":1}',
            b'{"a":1} // c',
            b'{"a":1}\x00{"b":2}',
        ),
        *(
            b'{"x":Inf,"a":1}',
            b'{"x":-NaN,"a":1}',
            b'{"x":NaN,"a":1}',
            b'{"x":{"x":1,"x":2},"a":1}',
        ),
        *(b'{"a":1,"x":[1,}', b'{"a":1;}', b'{"a" 1}', b'{"a":1 "b":"x"}', b'{"b":"\xf0\x9f\x98"}'),
    ),
    "a TINYINT, b SMALLINT, c BIGINT": (
        *(
            b'{"a":%d,"b":%d}' % (n, n)
            for n in (127, 128, 255, 256, -128, -129, 32767, 32768, -32769)
        ),
        *(b'{"c":%d}' % n for n in (2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 10**400)),
        *(b'{"c":1E5}', b'{"c":1.0}', b'{"c":-0}'),
    ),
    "a FLOAT, b DOUBLE": tuple(
        b'{"a":%b,"b":%b}' % (text, text)
        for text in (
            *(
                b"1",
                b"1e39",
                b"1e400",
                b"-1e400",
                b"1e-400",
                b"16777217",
                b"-0",
                b"-0.0",
                b"1.",
                b".5",
            ),
            *(
                b"1.00000017881393432617187499",
                b"123456789012345678901234567890",
                b'"NaN"',
                b'"nan"',
            ),
            *(
                b'"Infinity"',
                b'"-Infinity"',
                b'"+Infinity"',
                b'"INF"',
                b'"-INF"',
                b'"+INF"',
                b"NaN",
            ),
            *(b"INF", b"-INF", b"+INF", b"Infinity", b"-Infinity", b"+Infinity", b"-NaN", b'"1.5"'),
        )
    ),
    "a DECIMAL(5,2), b DECIMAL(38,10), c DECIMAL": tuple(
        b'{"a":%b,"b":%b,"c":%b}' % (text, text, text)
        for text in (
            *(
                b"1",
                b"1.005",
                b"1.015",
                b"-1.005",
                b"999.99",
                b"999.995",
                b"1000",
                b'"1.5"',
                b'"x"',
            ),
            *(
                b'"1,000.5"',
                b'""',
                b"1e2",
                b"1E-1",
                b'"1e2"',
                b'" 1 "',
                b"true",
                b"NaN",
                b'"+1"',
                b'".5"',
            ),
            *(
                b'"1."',
                b"-0",
                b"1e400",
                b"12345678901234567890123456789012345",
                b"1e-400",
                b"0.005",
            ),
        )
    ),
    "a DATE": tuple(
        b'{"a":"%b"}' % text
        for text in (
            *(
                b"2020-01-02",
                b"2020-1-2",
                b"2020",
                b"2020-01",
                b"2020-01-02T",
                b"2020-01-02 x",
                b"x",
                b"",
            ),
            *(
                b"2020-01-02T10:00:00",
                b" 2020-01-02 ",
                b"0000-01-01",
                b"2020-02-30",
                b"2021-02-29",
                b"now",
            ),
            *(
                b"1582-10-10",
                b"0001-01-01",
                b"9999-12-31",
                b"2020-13-01",
                b"2020-00-01",
                b"2020-01-00",
            ),
            *(
                b"12020-01-01",
                b"-0001-01-01",
                b"+12020-01-01",
                b"18000",
                b"20200102",
                b"-5",
                b"99999999999",
            ),
            *(b"5881580-07-11", b"5881580-07-12", b"-5877641-06-23", b"-5877641-06-22"),
        )
    ),
    "a TIMESTAMP": (
        *(
            b'{"a":"%b"}' % text
            for text in (
                *(
                    b"2020-01-02",
                    b"2020-01-02T03:04:05",
                    b"2020-01-02 03:04:05",
                    b"2020",
                    b"x",
                    b"",
                    b"epoch",
                ),
                *(
                    b"2020-01-02T03:04:05%b" % zone
                    for zone in (b"Z", b"+01:00", b"+0100", b"+01", b"-18:00")
                ),
                *(
                    b"2020-01-02T03:04:05%b" % zone
                    for zone in (b"+19:00", b"+18:30", b" UTC", b"z", b"+1:00")
                ),
                *(
                    b"2020-01-02T03:04:05%b" % zone
                    for zone in (b" Europe/Berlin", b"Europe/Berlin", b"GMT+1")
                ),
                *(
                    b"2020-01-02T03:04:05%b" % part
                    for part in (b".", b".1", b".123456Z", b".123456789Z")
                ),
                *(
                    b"2020-01-02T3:4:5",
                    b"2020-01-02T03:04",
                    b"2020-01-02T03",
                    b"2020-01-02T24:00:00",
                ),
                *(b"2020-01-02T23:59:60", b"0000-01-01T00:00:00Z", b"9999-12-31T23:59:59.999999Z"),
                *(b"0001-01-01T00:00:00Z", b" 2020-01-02T03:04:05 ", b"2020-01-02t03:04:05Z"),
                *(
                    b"1500-03-01T00:00:00Z",
                    b"1577923200",
                    b"2020-03-29T02:30:00",
                    b"2020-10-25T02:30:00",
                ),
                *(
                    b"1890-01-01T00:00:00",
                    b"2050-07-01T12:00:00",
                    b"2020-01-02T",
                    b"2020-01T03:04:05",
                ),
                *(
                    b"12020-01-01",
                    b"-0001-01-01T00:00:00Z",
                    b"294247-01-10T04:00:54Z",
                    b"294247-01-11",
                ),
            )
        ),
        *(b'{"a":1577923200}', b'{"a":1577923200.5}', b'{"a":-1}', b'{"a":true}', b'{"a":{}}'),
    ),
    "a BINARY": tuple(
        b'{"a":%b}' % text
        for text in (
            *(
                b'"QUJD"',
                b'"QUI="',
                b'"QQ=="',
                b'"QR=="',
                b'"+/+/"',
                b'""',
                b"1",
                b"null",
                b'"QUI=QUJD"',
            ),
            *(
                b'" QUJD "',
                b'"QQ==QQ=="',
                b'"QUJD\\u0000"',
                b'"-_-_"',
                b'"QU JD"',
                b'"QQ"',
                b'"QUI"',
            ),
            *(b'"===="', b'"\xc3\xa4"', b'"QUJD="', b"[]", b"{}"),
        )
    ),
    "a ARRAY<INT>, m MAP<STRING, ARRAY<INT>>, s STRUCT<x: INT, y: STRING>, z INT": tuple(
        b'{"z":1,%b}' % text
        for text in (
            *(
                b'"a":[1,2,null]',
                b'"a":[1,"x"]',
                b'"a":1',
                b'"a":{}',
                b'"a":[]',
                b'"a":null',
                b'"a":[[1]]',
            ),
            *(
                b'"m":{"k":[1],"l":null}',
                b'"m":{}',
                b'"m":[]',
                b'"m":{"k":["x"],"l":[2]}',
                b'"m":"x"',
            ),
            *(
                b'"s":{"x":1,"y":"b","q":1}',
                b'"s":{"x":"bad","y":"b"}',
                b'"s":[]',
                b'"s":{}',
                b'"s":null',
            ),
            *(
                b'"s":[{"x":1}]',
                b'"s":{"x":1,"x":2}',
                b'"a":""',
                b'"m":""',
                b'"s":""',
                b'"s":{"x":1',
            ),
        )
    ),
    "a ARRAY<STRUCT<x: INT, y: STRING>>, b MAP<STRING, STRUCT<x: INT>>, c ARRAY<ARRAY<INT>>, "
    "z INT": tuple(
        b'{"z":1,%b}' % text
        for text in (
            *(
                b'"a":[{"x":1},{"x":"bad","y":"k"},null,{"y":"z"}]',
                b'"a":[{"x":1},2]',
                b'"a":[{"x":1}',
            ),
            *(
                b'"b":{"k":{"x":1},"l":{"x":"bad"},"n":{"x":3}}',
                b'"c":[[1],["x"],null,[]]',
                b'"c":[1]',
            ),
            *(
                b'"a":[{"x":1}],"q":tru',
                b'"z":"x","a":[{"x":1}]',
                b'"b":{"k":1}',
                b'"b":{"k":{"x":1}',
            ),
        )
    ),
    "a MAP<STRING, STRING>, b ARRAY<MAP<STRING, INT>>, "
    "c STRUCT<d: MAP<STRING, MAP<STRING, DATE>>>, z INT": tuple(
        b'{"z":1,%b}' % text
        for text in (
            *(
                b'"a":{}',
                b'"a":{ "k" : "v" , "" : null }',
                b'"a":{"k":"{[:,]}"}',
                b'"a":{"q\\"":"\\\\"}',
                b'"a":{"key":"a","value":"b"}',
                b'"a":{"k":"v","k":"w"}',
                b'"a":{"k":1,"l":{"m":2}}',
            ),
            *(
                b'"a":[{"key":"a","value":"b"}]',
                b'"a":[]',
                b'"\\u0061":{"k":"v"}',
                b'"a":{"k":"v"},"a":{"l":"w"}',
                b'"o":{"a":{"k":1}}',
            ),
            *(
                b'"b":[{"k":1},null,{},{"k":null}]',
                b'"b":[{"k":"x"}]',
                b'"b":[[]]',
                b'"b":{"k":{"k":1}}',
                b'"c":{"d":{"k":{"l":"2020-01-02"},"m":null,"n":{}}}',
            ),
            *(
                b'"c":{"d":{"k":{"l":"x"}}}',
                b'"c":{"d":null,"a":{"k":1}}',
                b'"c":{"d":{"k":{"l":null}},"d":{}}',
            ),
        )
    ),
}
"""Values by schema: every rule of Spark's JSON reader that decoding depends on."""


def random_values(rng: random.Random, count: int) -> list[bytes]:
    """Return values for the columns of TYPES: most are right, others wrong or no JSON."""
    values: list[bytes] = []
    for _ in range(count):
        names = rng.sample(sorted(_PLAIN), rng.randrange(len(_PLAIN) + 1))
        row = {name: rng.choice(_PLAIN[name]) for name in names}
        if rng.random() < 0.4 and names:
            row[rng.choice(names)] = rng.choice(_ODD)
        text = json.dumps(row, ensure_ascii=rng.random() < 0.5, allow_nan=True)
        value = text.replace("Infinity", "1e999").encode() if "1e999" in text else text.encode()
        if rng.random() < 0.3:
            old, new = rng.choice(_REPLACED)
            places = value.count(old)
            if places:
                parts = value.split(old)
                at = rng.randrange(1, places + 1)
                value = old.join(parts[:at]) + new + old.join(parts[at:])
        values.append(value)
    return values


def rows_of(columns: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Return comparable rows: Python has no year 0, and NaN is not equal to itself."""
    import pyarrow as pa

    plain: list[list[Any]] = []
    for column in columns:
        if pa.types.is_date32(column.type):
            column = column.cast(pa.int32())
        elif pa.types.is_timestamp(column.type):
            column = column.cast(pa.timestamp("us", "UTC")).cast(pa.int64())
        elif pa.types.is_string(column.type):  # Spark's may have invalid UTF-8.
            texts = column.cast(pa.binary()).to_pylist()
            plain.append([text and text.decode("utf-8", "replace") for text in texts])
            continue
        plain.append(list(map(repr, column.to_pylist())))
    return list(zip(*plain, strict=True))
