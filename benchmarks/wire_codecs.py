"""Message codecs of all clients with a common interface.

A peer decodes our bytes, and encodes the decoded value again. `plain` converts its values to nested
tuples in the order of the wire format, for comparison with ours.
"""

from __future__ import annotations

import dataclasses
import datetime
import importlib
import io
from collections.abc import Callable, Iterable
from typing import Any, cast

from kafka_async.protocol import compiler
from kafka_async.protocol.spec import Struct
from kafka_async.protocol.wire import ZERO_UUID

OURS = "kafka_async"
PLAIN = "kafka_async in plain Python"

_NOT_REQUESTED = -(2**31)
"""Authorized operations of a topic that were not requested; None in kafka-python."""

_MILLISECOND = datetime.timedelta(milliseconds=1)


@dataclasses.dataclass(frozen=True)
class Codec:
    """Codec of a client for a message in a version.

    Attributes:
        client: the name of the client.
        decode: decodes bytes to the client's value.
        encode: encodes the client's value.
        plain: converts the client's value to nested tuples.
    """

    client: str
    decode: Callable[[bytes], Any]
    encode: Callable[[Any], Any]
    plain: Callable[[Any], object]


def _ours(api: str, name: str, version: int) -> Codec:
    """Return the codec of this project with the kernel in use."""
    message = getattr(importlib.import_module(f"kafka_async.protocol.messages.{api}"), name)
    return Codec(
        OURS,
        lambda data: message.decode(data, version),
        lambda value: value.encode(version),
        lambda value: _our_values(value, version),
    )


def _plain(api: str, name: str, version: int) -> Codec:
    """Return the codec of this project in plain Python, as without a C compiler at installation."""
    message = getattr(importlib.import_module(f"kafka_async.protocol.messages.{api}"), name)
    encode = compiler.plain_encoder(message, version)
    decode = compiler.plain_decoder(message, version)
    return Codec(
        PLAIN,
        lambda data: decode(data, 0)[0],
        lambda value: b"".join(encode(value)),
        lambda value: _our_values(value, version),
    )


def _our_values(value: Any, version: int) -> object:
    if isinstance(value, Struct):
        untagged = value.SPEC.untagged_fields(version)
        return tuple(_our_values(getattr(value, field.name), version) for field in untagged)
    if isinstance(value, list | tuple):
        return tuple(_our_values(item, version) for item in _items(value))
    return _built_in(value)


def _kio(api: str, name: str, version: int) -> Codec:
    """Return the codec of kio: readers in Rust, writers in Python, a data class per version."""
    from kio.index import load_entity_schema
    from kio.serial import entity_reader, entity_writer
    from kio.static.constants import EntityType

    kind = EntityType.response if name.endswith("Response") else EntityType.request
    schema: Any = load_entity_schema(api, version, kind)
    read: Any = entity_reader(schema)
    write: Any = entity_writer(schema)

    def encode(value: Any) -> bytes:
        with io.BytesIO() as buffer:
            write(buffer, value)
            return buffer.getvalue()

    return Codec("kio", lambda data: read(data, 0)[0], encode, _kio_values)


def _kio_values(value: Any) -> object:
    if dataclasses.is_dataclass(value):
        untagged = [each for each in dataclasses.fields(value) if "tag" not in each.metadata]
        return tuple(
            ZERO_UUID
            if (item := getattr(value, each.name)) is None
            and each.metadata.get("kafka_type") == "uuid"
            else _kio_values(item)
            for each in untagged
        )
    if isinstance(value, tuple):
        return tuple(map(_kio_values, _items(value)))
    return _built_in(value)


_KAFKA_PYTHON = {
    "metadata": "kafka.protocol.metadata",
    "fetch": "kafka.protocol.consumer",
    "produce": "kafka.protocol.producer",
    "offset_commit": "kafka.protocol.consumer",
    "join_group": "kafka.protocol.consumer",
}


def _kafka_python(api: str, name: str, version: int) -> Codec:
    """Return the codec of kafka-python 3: Python functions generated on first use."""
    message: Any = getattr(importlib.import_module(_KAFKA_PYTHON[api]), name)

    def encode(value: Any) -> Any:
        setattr(value, "_header", None)  # noqa: B010 - decoded values have no header
        return value.encode(version=version)

    return Codec(
        "kafka-python",
        lambda data: message.decode(data, version=version),
        encode,
        lambda value: _kafka_python_values(value, version),
    )


def _kafka_python_values(value: Any, version: int) -> object:
    struct = getattr(value, "_struct", None)
    if struct is not None:
        untagged = struct.untagged_fields(version)
        return tuple(
            _NOT_REQUESTED
            if (item := getattr(value, each.name)) is None and each.type_str == "bitfield"
            else _kafka_python_values(item, version)
            for each in untagged
        )
    if isinstance(value, list | tuple):
        return tuple(_kafka_python_values(item, version) for item in _items(value))
    return _built_in(value)


_AIOKAFKA = {
    "metadata": "metadata",
    "fetch": "fetch",
    "produce": "produce",
    "offset_commit": "commit",
    "join_group": "group",
}


def _aiokafka(api: str, name: str, version: int) -> Codec:
    """Return the codec of aiokafka: schemas interpreted in Python, structures as tuples."""
    module = importlib.import_module(f"aiokafka.protocol.{_AIOKAFKA[api]}")
    message: Any = getattr(module, f"{name}_v{version}")
    return Codec("aiokafka", message.decode, lambda value: value.encode(), _aiokafka_values)


def _aiokafka_values(value: Any) -> object:
    if hasattr(value, "SCHEMA"):
        return tuple(_aiokafka_values(value.get_item(name)) for name in value.SCHEMA.names)
    if isinstance(value, list | tuple):
        return tuple(map(_aiokafka_values, _items(value)))
    return _built_in(value)


def _items(value: Any) -> Iterable[Any]:
    return cast("Iterable[Any]", value)


def _built_in(value: Any) -> object:
    """Convert a value of a client's special type to a built-in type."""
    if isinstance(value, datetime.timedelta):
        return value // _MILLISECOND
    if isinstance(value, memoryview | bytearray):
        return bytes(cast("bytearray", value))
    if isinstance(value, int):
        return int(value)
    return value


# -- table ----------------------------------------------------------------------------------------

_CODECS: dict[str, Callable[[str, str, int], Codec]] = {
    OURS: _ours,
    PLAIN: _plain,
    "kio": _kio,
    "kafka-python": _kafka_python,
    "aiokafka": _aiokafka,
}

CLIENTS = tuple(_CODECS)
"""Names of the clients, ours first."""

NEWEST = CLIENTS[:-1]
"""Clients that support the versions of current brokers."""


def codec(client: str, api: str, name: str, version: int) -> Codec:
    """Return a client's codec of a message in a version, with its modules loaded.

    Args:
        client: one of `CLIENTS`.
        api: the module of the message's API, for example "offset_commit".
        name: Kafka's name of the message, for example "OffsetCommitRequest".
        version: a version that the client supports.
    """
    return _CODECS[client](api, name, version)


def modules(client: str, api: str, name: str, version: int) -> tuple[str, ...]:
    """Return the modules that a client loads for a message."""
    if client == "kio":
        kind = "response" if name.endswith("Response") else "request"
        return "kio.index", "kio.serial", f"kio.schema.{api}.v{version}.{kind}"
    if client == "kafka-python":
        return (_KAFKA_PYTHON[api],)
    if client == "aiokafka":
        return (f"aiokafka.protocol.{_AIOKAFKA[api]}",)
    return (f"kafka_async.protocol.messages.{api}",)
