"""Decoding of JSON values, compared with Spark's own from_json."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.json_cases import TABLE, TYPES, WITHOUT_MAP, random_values, rows_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

CORRUPT = "_corrupt_record"
VALUES = 1_500


def from_json(
    spark: SparkSession, ddl: str, values: Sequence[bytes | None], zone: str
) -> list[tuple[Any, ...]]:
    """Return the columns of Spark's from_json, one tuple a value."""
    from pyspark.sql import functions as f

    frame = spark.createDataFrame(list(enumerate(values)), "number int, value binary")
    text = f.expr("cast(value as string)")
    parsed = f.from_json(text, f"{ddl}, {CORRUPT} STRING", {"timeZone": zone})
    table: Any = (
        frame.select("number", parsed.alias("parsed")).select("number", "parsed.*").toArrow()
    )
    return rows_of(table.sort_by("number").drop_columns("number").columns)


def decoded(ddl: str, values: Sequence[bytes | None], zone: str) -> list[tuple[Any, ...]]:
    import pyarrow as pa

    from kafka_async.spark.value_format import value_format

    options = {"valueFormat": "json", "valueSchema": ddl, "timeZone": zone}
    decoder = value_format({**options, "corruptRecordColumn": CORRUPT}).decoder()
    return rows_of(decoder.decode_values(pa.array(values, pa.binary())))


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
def test_values_become_the_columns_of_from_json(spark: SparkSession, zone: str) -> None:
    for ddl, values in TABLE.items():
        if zone != "UTC" and "TIMESTAMP" not in ddl:
            continue
        expected = from_json(spark, ddl, values, zone)
        assert len(expected) == len(values)
        for value, ours, theirs in zip(values, decoded(ddl, values, zone), expected, strict=True):
            assert ours == theirs, value
        # One by one, so that Arrow parses each value that it accepts.
        single = [decoded(ddl, [value], zone)[0] for value in values]
        for value, ours, theirs in zip(values, single, expected, strict=True):
            assert ours == theirs, value


def test_random_values_become_the_columns_of_from_json(spark: SparkSession, seeded: int) -> None:
    values = random_values(random.Random(seeded), VALUES)
    for ddl in (TYPES, WITHOUT_MAP):
        ours, theirs = decoded(ddl, values, "UTC"), from_json(spark, ddl, values, "UTC")
        assert differences(values, ours, theirs) == []


def differences(
    values: Sequence[bytes], ours: list[tuple[Any, ...]], theirs: list[tuple[Any, ...]]
) -> list[tuple[bytes, Any, Any]]:
    """Return the values whose columns differ.

    If a text is no JSON, all our columns are null. Spark keeps some if the error is within a nested
    value, so only the corrupt record is compared.
    """
    found: list[tuple[bytes, Any, Any]] = []
    for value, our, their in zip(values, ours, theirs, strict=True):
        is_no_json = our[-1] is not None and set(our[:-1]) <= {None, "None"}
        if our[-1] != their[-1] if is_no_json else our != their:
            found.append((value, our, their))
    return found
