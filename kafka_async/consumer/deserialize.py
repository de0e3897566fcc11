"""Deserialization of keys and values."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from kafka_async.consumer.fetch_buffer import AnyRecord
from kafka_async.errors import RecordDeserializationError
from kafka_async.kernel import Record
from kafka_async.serde.functions import deserializer

if TYPE_CHECKING:
    from kafka_async.config import ReaderConfig

Convert = Callable[[AnyRecord], Record[Any, Any]]


SEEK_PAST: Final = "seek to offset {next} to go past the record"
"""Remedy for a record that a consumer cannot deserialize."""
REJECT: Final = (
    "it was released, and is delivered again up to the group's share.delivery.count.limit: to "
    'reject it, read bytes without deserializers, with share_acknowledgement_mode="explicit", and '
    'call acknowledge(record, "reject")'
)
"""Remedy for a record that a share consumer cannot deserialize."""


def converter_of(config: ReaderConfig, remedy: str = SEEK_PAST) -> Convert | None:
    """Return the function that applies a consumer's deserializers; None without deserializers.

    The message of an error ends with `remedy`, with the offset after the record as "{next}".

    The function raises RecordDeserializationError, which carries the raw record. A deserializer
    that is not a function, is async, or takes other arguments is an InvalidConfigurationError.
    """
    key = deserializer("key_deserializer", config.key_deserializer)
    value = deserializer("value_deserializer", config.value_deserializer)
    if key is None and value is None:
        return None

    def convert(raw: AnyRecord) -> AnyRecord:
        name = "key"
        try:
            new_key = raw.key if key is None else key(raw.topic, raw.headers, raw.key)
            name = "value"
            new_value = raw.value if value is None else value(raw.topic, raw.headers, raw.value)
        except Exception as error:
            advice = remedy.format(next=raw.offset + 1)
            raise RecordDeserializationError(
                f"the {name}'s deserializer failed: {error!r}; {advice}",
                record=raw,
                topic=raw.topic,
                partition=raw.partition,
                offset=raw.offset,
            ) from error
        return Record(
            raw.topic,
            raw.partition,
            raw.offset,
            raw.timestamp,
            raw.timestamp_type,
            new_key,
            new_value,
            raw.headers,
            raw.leader_epoch,
        )

    return convert
