"""Options of a source that decodes values: valueFormat, valueSchema and what belongs to them."""

from __future__ import annotations

import difflib
import zoneinfo
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql import types

from kafka_async.errors import InvalidConfigurationError
from kafka_async.spark.json_columns import JsonColumns
from kafka_async.spark.value_schema import parse_value_schema

if TYPE_CHECKING:
    from collections.abc import Mapping

FORMATS: Final = ("json",)
SPARKS_CORRUPT_RECORD: Final = "_corrupt_record"
"""Name of the column that Spark's from_json fills if it is in the schema."""
RECORD_COLUMNS: Final = (
    *("key", "topic", "partition", "offset", "timestamp", "timestampType", "headers"),
)
"""Columns that a read has besides those of the value."""


@dataclass(frozen=True)
class ValueFormat:
    """Holds how values become columns.

    Attributes:
        schema: The columns in place of the column value, with that of corrupt values.
        corrupt: Name of the column for the text of corrupt values, if there is one.
        zone: Time zone of timestamps that name none.
    """

    schema: types.StructType
    corrupt: str | None
    zone: str = "UTC"

    def columns(self, of_record: str) -> types.StructType:
        """Return the columns of a read.

        Args:
            of_record: Columns without valueFormat, as DDL.
        """
        columns: list[types.StructField] = []
        for field in parse_value_schema(of_record).fields:
            columns += self.schema.fields if field.name == "value" else [field]
        return types.StructType(columns)

    def decoder(self) -> JsonColumns:
        """Return a decoder of a task's batches."""
        return JsonColumns(self.schema, self.corrupt, self.zone)


def value_format(own: Mapping[str, str]) -> ValueFormat:
    """Return how to decode values.

    Args:
        own: Options of the data source by canonical name, among them valueFormat.

    Raises:
        InvalidConfigurationError: An option is wrong or missing, or a column has the name of
            another one.
    """
    name = own["valueFormat"].strip().lower()
    if name not in FORMATS:
        near = difflib.get_close_matches(name, FORMATS, 1, cutoff=0.3)
        hint = f"did you mean {near[0]}?" if near else f"known is {', '.join(FORMATS)}"
        raise InvalidConfigurationError(f"valueFormat={own['valueFormat']!r} is unknown: {hint}")
    if "valueSchema" not in own:
        raise InvalidConfigurationError(
            "valueFormat needs the option valueSchema, such as 'id BIGINT, tags ARRAY<STRING>'"
        )
    schema = parse_value_schema(own["valueSchema"])
    schema, corrupt = _with_corrupt_record(schema, own.get("corruptRecordColumn"))
    _check_names(schema, corrupt)
    zone = own.get("timeZone", "UTC").strip()
    try:
        zoneinfo.ZoneInfo(zone)
    except (ValueError, OSError, KeyError) as error:
        raise InvalidConfigurationError(
            f"timeZone={zone!r} is no time zone: write a name such as Europe/Berlin"
        ) from error
    return ValueFormat(schema, corrupt, zone)


def _with_corrupt_record(
    schema: types.StructType, name: str | None
) -> tuple[types.StructType, str | None]:
    """Return the schema with the column of corrupt values, and its name."""
    named = {field.name: field.dataType for field in schema.fields}
    if name is None:
        kind = named.get(SPARKS_CORRUPT_RECORD)
        return schema, SPARKS_CORRUPT_RECORD if isinstance(kind, types.StringType) else None
    if not name.strip():
        raise InvalidConfigurationError("corruptRecordColumn is empty: give the column a name")
    if name not in named:
        return types.StructType([*schema.fields, types.StructField(name, types.StringType())]), name
    if not isinstance(named[name], types.StringType):
        raise InvalidConfigurationError(
            f"corruptRecordColumn={name}: the column has the type {named[name].simpleString()} in "
            "valueSchema: make it a string, or leave it out"
        )
    return schema, name


def _check_names(schema: types.StructType, corrupt: str | None) -> None:
    taken = {name.lower(): name for name in RECORD_COLUMNS}
    for field in schema.fields:
        option = "corruptRecordColumn" if field.name == corrupt else "valueSchema"
        other = taken.get(field.name.lower())
        if other in RECORD_COLUMNS:
            raise InvalidConfigurationError(
                f"{option} names the column {field.name}, but {other} is a column of the record: "
                "leave it out, or read the column value without valueFormat and use from_json"
            )
        if other is not None:
            raise InvalidConfigurationError(
                f"{option} names the column {field.name}, but there is a column {other} already, "
                "and Spark does not distinguish letter case"
            )
        taken[field.name.lower()] = field.name
    if [field.name for field in schema.fields] == [corrupt]:
        raise InvalidConfigurationError(
            "valueSchema names no column but that of corrupt values: add those to decode"
        )
