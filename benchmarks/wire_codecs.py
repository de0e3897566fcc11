"""Each client's message codecs behind one face: bytes to its own values and back.

A peer decodes the bytes we wrote, and what it decoded is what it has to encode again. `plain` turns
its values into nested tuples in the order of the wire, so that all can be compared with ours.
"""

from __future__ import annotations

import dataclasses
import datetime
import importlib
import io
from collections.abc import Callable, Iterable
from typing import Any, cast

from kafka_async.protocol import compiler
from kafka_async.protocol.message import Struct
from kafka_async.protocol.wire import ZERO_UUID

OURS = "kafka_async"
PLAIN = "kafka_async in plain Python"

_NOT_ASKED = -(2**31)
"""The authorized operations of a topic when nobody asked for them; kafka-python says None."""

_MILLISECOND = datetime.timedelta(milliseconds=1)


@dataclasses.dataclass(frozen=True)
class Codec:
    """How a client encodes and decodes one message in one version.

    Attributes:
        client: whose codec it is.
        decode: bytes to the client's own value.
        encode: the client's own value to bytes.
        plain: the client's own value as nested tuples.
    """

    client: str
    decode: Callable[[bytes], Any]
    encode: Callable[[Any], Any]
    plain: Callable[[Any], object]


def _ours(api: str, name: str, version: int) -> Codec:
    """This project's, on the kernel in use."""
    message = getattr(importlib.import_module(f"kafka_async.protocol.messages.{api}"), name)
    return Codec(
        OURS,
        lambda data: message.decode(data, version),
        lambda value: value.encode(version),
        lambda value: _our_values(value, version),
    )


def _plain(api: str, name: str, version: int) -> Codec:
    """This project's, as it is where no compiler was at hand at installation."""
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
        carried = value.SPEC.carried(version)
        return tuple(_our_values(getattr(value, field.name), version) for field in carried)
    if isinstance(value, list | tuple):
        return tuple(_our_values(item, version) for item in _items(value))
    return _bare(value)


def _kio(api: str, name: str, version: int) -> Codec:
    """kio: readers in Rust, writers in Python; a data class for every version."""
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
        in_line = [each for each in dataclasses.fields(value) if "tag" not in each.metadata]
        return tuple(
            ZERO_UUID
            if (held := getattr(value, each.name)) is None
            and each.metadata.get("kafka_type") == "uuid"
            else _kio_values(held)
            for each in in_line
        )
    if isinstance(value, tuple):
        return tuple(map(_kio_values, _items(value)))
    return _bare(value)


_KAFKA_PYTHON = {
    "metadata": "kafka.protocol.metadata",
    "fetch": "kafka.protocol.consumer",
    "produce": "kafka.protocol.producer",
    "offset_commit": "kafka.protocol.consumer",
    "join_group": "kafka.protocol.consumer",
}


def _kafka_python(api: str, name: str, version: int) -> Codec:
    """kafka-python 3: functions in Python, generated for a message and a version on first use."""
    message: Any = getattr(importlib.import_module(_KAFKA_PYTHON[api]), name)

    def encode(value: Any) -> Any:
        setattr(value, "_header", None)  # noqa: B010 - what was decoded without one lacks it
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
        carried = struct.untagged_fields(version)
        return tuple(
            _NOT_ASKED
            if (held := getattr(value, each.name)) is None and each.type_str == "bitfield"
            else _kafka_python_values(held, version)
            for each in carried
        )
    if isinstance(value, list | tuple):
        return tuple(_kafka_python_values(item, version) for item in _items(value))
    return _bare(value)


_AIOKAFKA = {
    "metadata": "metadata",
    "fetch": "fetch",
    "produce": "produce",
    "offset_commit": "commit",
    "join_group": "group",
}


def _aiokafka(api: str, name: str, version: int) -> Codec:
    """aiokafka: schemas interpreted in Python, structures as tuples."""
    home = importlib.import_module(f"aiokafka.protocol.{_AIOKAFKA[api]}")
    message: Any = getattr(home, f"{name}_v{version}")
    return Codec("aiokafka", message.decode, lambda value: value.encode(), _aiokafka_values)


def _aiokafka_values(value: Any) -> object:
    if hasattr(value, "SCHEMA"):
        return tuple(_aiokafka_values(value.get_item(name)) for name in value.SCHEMA.names)
    if isinstance(value, list | tuple):
        return tuple(map(_aiokafka_values, _items(value)))
    return _bare(value)


def _items(value: Any) -> Iterable[Any]:
    return cast("Iterable[Any]", value)


def _bare(value: Any) -> object:
    """A single value without the types of its own that a client may have."""
    if isinstance(value, datetime.timedelta):
        return value // _MILLISECOND
    if isinstance(value, memoryview | bytearray):
        return bytes(cast("bytearray", value))
    if isinstance(value, int):
        return int(value)
    return value


# -- all of them ----------------------------------------------------------------------------------

_CODECS: dict[str, Callable[[str, str, int], Codec]] = {
    OURS: _ours,
    PLAIN: _plain,
    "kio": _kio,
    "kafka-python": _kafka_python,
    "aiokafka": _aiokafka,
}

CLIENTS = tuple(_CODECS)
"""Whose codecs there are, ours first."""

NEWEST = CLIENTS[:-1]
"""Those that know the versions of today's brokers."""


def codec(client: str, api: str, name: str, version: int) -> Codec:
    """A client's codec of one message in one version, its modules loaded and nothing else done.

    Args:
        client: one of `CLIENTS`.
        api: the module of the message's API, such as "offset_commit".
        name: the message's class as Kafka calls it, such as "OffsetCommitRequest".
        version: one that the client has.
    """
    return _CODECS[client](api, name, version)


def modules(client: str, api: str, name: str, version: int) -> tuple[str, ...]:
    """What a client has to load for one message."""
    if client == "kio":
        kind = "response" if name.endswith("Response") else "request"
        return "kio.index", "kio.serial", f"kio.schema.{api}.v{version}.{kind}"
    if client == "kafka-python":
        return (_KAFKA_PYTHON[api],)
    if client == "aiokafka":
        return (f"aiokafka.protocol.{_AIOKAFKA[api]}",)
    return (f"kafka_async.protocol.messages.{api}",)
