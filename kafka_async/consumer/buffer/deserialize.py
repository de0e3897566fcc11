"""Deserialization of keys and values."""

from __future__ import annotations

from collections.abc import Callable
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Final, cast

from kafka_async.config.spelling import option_error
from kafka_async.consumer.buffer.fetch_buffer import AnyRecord
from kafka_async.errors import InvalidConfigurationError, RecordDeserializationError
from kafka_async.kernel import Record
from kafka_async.serde.functions import deserializer

if TYPE_CHECKING:
    from kafka_async.config import ReaderConfig

Convert = Callable[[AnyRecord], Record[Any, Any]]


PASS_RECORD: Final = (
    'to go past the record, give process or partition_streams on_undecodable="skip" or a function; '
    "after poll and async for, seek to offset {next}"
)
"""Remedy for a record that a consumer cannot deserialize."""
REJECT: Final = (
    "it was released, and is delivered again up to the group's share.delivery.count.limit: to "
    'reject it, read bytes without deserializers, with share_acknowledgement_mode="explicit", and '
    'call acknowledge(record, "reject")'
)
"""Remedy for a record that a share consumer cannot deserialize."""


def converter_of(config: ReaderConfig, remedy: str = PASS_RECORD) -> Convert | None:
    """Return the function that applies a consumer's deserializers, or None.

    The message of an error ends with `remedy`, with the offset after the record as "{next}".

    The function raises RecordDeserializationError, which carries the raw record. A deserializer
    that is not a function, is async, returns a coroutine, or takes other arguments raises
    InvalidConfigurationError.
    """
    key = deserializer("key_deserializer", config.key_deserializer)
    value = deserializer("value_deserializer", config.value_deserializer)
    if key is None and value is None:
        return None

    def convert(raw: AnyRecord) -> AnyRecord:
        # For the message: the part whose deserializer has failed.
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
        # A function may return the coroutine of another one; checked by type, since this runs per
        # record.
        if type(new_key) is CoroutineType or type(new_value) is CoroutineType:
            raise _async_deserializer(cast("object", new_key), cast("object", new_value))
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


def _async_deserializer(key: object, value: object) -> InvalidConfigurationError:
    """Return the error of a plain function that calls an async one, as a lambda may."""
    for each in (key, value):
        if isinstance(each, CoroutineType):
            cast("CoroutineType[Any, Any, Any]", each).close()  # avoids the warning: never awaited
    option = "key_deserializer" if isinstance(key, CoroutineType) else "value_deserializer"
    return option_error(
        option,
        " returned a coroutine, and records are converted without waiting: give a function that "
        "returns the object, and await in the handler what has to wait",
    )
