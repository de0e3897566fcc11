"""Tests of the options that decode values: valueFormat, valueSchema and what belongs to them."""

from __future__ import annotations

import json
import re

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from kafka_async.errors import InvalidConfigurationError
from kafka_async.spark.source import KafkaDataSource
from kafka_async.spark.source_options import source_options
from kafka_async.spark.value_schema import parse_value_schema

BASE = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "t"}
DDL = """
    id bigint NOT NULL COMMENT 'it''s', `a ``b` : String, n DECIMAL ( 10 , 2 ), m map<string,int>,
    s STRUCT<x: int COMMENT "y", `z`: ARRAY < struct<> >>, i long, d dec, r real, t timestamp_ltz
"""


def simple(text: str) -> str:
    return parse_value_schema(text).simpleString()


def test_schema_is_read_from_ddl() -> None:
    assert simple(DDL) == (
        "struct<id:bigint,a `b:string,n:decimal(10,2),m:map<string,int>,"
        "s:struct<x:int,z:array<struct<>>>,i:bigint,d:decimal(10,0),r:float,t:timestamp>"
    )
    assert simple("struct<a: int, b: decimal(3)>") == "struct<a:int,b:decimal(3,0)>"
    assert all(field.nullable for field in parse_value_schema(DDL).fields)


def test_schema_is_read_from_the_json_of_a_struct_type() -> None:
    schema = parse_value_schema(DDL)
    assert parse_value_schema(schema.json()) == schema


def field(kind: object) -> str:
    return json.dumps({"type": "struct", "fields": [{"name": "a", "type": kind}]})


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("", "a column's name is missing before 'the end'"),
        ("a", "column a has no type"),
        ("a int,", "a column's name is missing before 'the end'"),
        ("a int b int", "'b' is not expected there"),
        ("a int)", "')' is not expected there"),
        ("a integr", "column a has the type integr, which valueFormat=json does not read: did you"),
        ("a variant", "column a has the type variant"),
        ("s struct<a: array<xyz>>", "column s.a has the type xyz"),
        ("a array<int", "'>' is missing after column a, before 'the end'"),
        ("a map<int, string>", "column a has a map whose keys are no strings"),
        ("a decimal(39,2)", "column a has the type decimal(39,2): the precision is at most 38"),
        ("a decimal(2,3)", "decimal(2,3)"),
        ("a decimal(x)", "the type of column a needs a number instead of 'x'"),
        ("a int, a string", "the schema has two columns a"),
        ("a int not", "'null' is missing after column a"),
        ("a int comment 5", "the comment of column a is no string"),
        ("a " + "array<" * 101, "nested too deeply"),
        ("{", "it begins with { and is not JSON"),
        ('{"type":' * 100_000, "nested too deeply"),
        ('{"type":"struct","fields":[]}', "it names no column"),
        ('{"type":"array","elementType":"integer"}', "its JSON is not that of a StructType"),
        ('{"type":"struct","fields":[{"name":"a"}]}', "a field of its JSON has no name or no type"),
        (field("udt"), "column a has the type udt"),
        (field({"type": "udt", "pyClass": "os.system"}), "column a has no type that Spark writes"),
        (field("decimal(40,1)"), "decimal(40,1)"),
    ],
)
def test_error_names_what_is_wrong_in_the_schema(schema: str, message: str) -> None:
    with pytest.raises(InvalidConfigurationError, match=f"^valueSchema .*{re.escape(message)}"):
        parse_value_schema(schema)


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"valueFormat": "jsn", "valueSchema": "a INT"},
            "valueFormat='jsn' is unknown: did you mean json?",
        ),
        (
            {"valueFormat": "avro", "valueSchema": "a INT"},
            "valueFormat='avro' is unknown: known is",
        ),
        ({"valueFormat": "json"}, "valueFormat needs the option valueSchema"),
        ({"valueSchema": "a INT"}, "valueSchema needs the option valueFormat: set it to json"),
        ({"corruptRecordColumn": "c"}, "corruptRecordColumn needs the option valueFormat"),
        ({"timeZone": "UTC"}, "timeZone needs the option valueFormat"),
        ({"valueSchem": "a INT"}, "no option valueSchem: did you mean valueSchema?"),
        (
            {"valueFormat": "json", "valueSchema": "Key INT"},
            "valueSchema names the column Key, but key is",
        ),
        (
            {"valueFormat": "json", "valueSchema": "headers INT"},
            "headers is a column of the record",
        ),
        ({"valueFormat": "json", "valueSchema": "a INT, A INT"}, "there is a column a already"),
        (
            {"valueFormat": "json", "valueSchema": "a INT", "corruptRecordColumn": "offset"},
            "corruptRecordColumn names the column offset",
        ),
        (
            {"valueFormat": "json", "valueSchema": "a INT", "corruptRecordColumn": "a"},
            "corruptRecordColumn=a: the column has the type int in valueSchema",
        ),
        (
            {"valueFormat": "json", "valueSchema": "a STRING", "corruptRecordColumn": "a"},
            "valueSchema names no column but that of corrupt values",
        ),
        (
            {"valueFormat": "json", "valueSchema": "a INT", "corruptRecordColumn": " "},
            "corruptRecordColumn is empty",
        ),
        (
            {"valueFormat": "json", "valueSchema": "a INT", "timeZone": "Mars/Olympus"},
            "timeZone='Mars/Olympus' is no time zone",
        ),
    ],
)
def test_error_names_the_option(options: dict[str, str], message: str, streaming: bool) -> None:
    with pytest.raises(InvalidConfigurationError, match=re.escape(message)):
        source_options({**BASE, **options}, streaming=streaming)
    with pytest.raises(InvalidConfigurationError, match=re.escape(message)):
        KafkaDataSource({**BASE, **options}).schema()


def columns(**options: str) -> list[str]:
    schema = KafkaDataSource({**BASE, "valueFormat": "JSON", **options}).schema()
    assert not isinstance(schema, str)
    return schema.fieldNames()


def test_columns_of_the_schema_replace_the_value() -> None:
    record = ["topic", "partition", "offset", "timestamp", "timestampType"]
    assert columns(valueSchema="value INT, b STRING") == ["key", "value", "b", *record]
    with_corrupt = columns(valueSchema="a INT", corruptRecordColumn="bad", includeHeaders="true")
    assert with_corrupt == ["key", "a", "bad", *record, "headers"]
    in_its_place = columns(valueSchema="bad STRING, a INT", corruptRecordColumn="bad")
    assert in_its_place == ["key", "bad", "a", *record]


def test_corrupt_record_of_spark_is_filled_if_the_schema_has_it() -> None:
    options = {**BASE, "valueFormat": "json"}
    for ddl, name in (
        ("a INT", None),
        ("a INT, _corrupt_record STRING", "_corrupt_record"),
        ("a INT, _corrupt_record INT", None),
    ):
        values = source_options({**options, "valueSchema": ddl}).value_format
        assert values is not None
        assert values.corrupt == name
