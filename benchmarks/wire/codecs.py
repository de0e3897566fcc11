"""Message codecs of all clients with a common interface.

A peer decodes our bytes, and encodes the decoded value again, which must give the same bytes.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from kafka_async.protocol import compiler

OURS = "kafka_async"
PLAIN = "kafka_async in plain Python"


@dataclass(frozen=True)
class Codec:
    """Codec of a client for a message in a version."""

    client: str
    decode: Callable[[bytes], Any]
    encode: Callable[[Any], Any]


def _ours(api: str, name: str, version: int) -> Codec:
    message = getattr(import_module(f"kafka_async.protocol.messages.{api}"), name)
    return Codec(
        OURS,
        lambda data: message.decode(data, version),
        lambda value: value.encode(version),
    )


def _plain(api: str, name: str, version: int) -> Codec:
    """Return the codec of this project in plain Python, as without a C compiler at installation."""
    message = getattr(import_module(f"kafka_async.protocol.messages.{api}"), name)
    encode = compiler.plain_encoder(message, version)
    decode = compiler.plain_decoder(message, version)
    return Codec(
        PLAIN,
        lambda data: decode(data, 0)[0],
        lambda value: b"".join(encode(value)),
    )


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

    return Codec("kio", lambda data: read(data, 0)[0], encode)


_KAFKA_PYTHON = {"metadata": "metadata", "produce": "producer"}
_AIOKAFKA = {"offset_commit": "commit", "join_group": "group"}


def _kafka_python(api: str, name: str, version: int) -> Codec:
    """Return the codec of kafka-python 3: Python functions generated on first use."""
    (module,) = modules("kafka-python", api, name, version)
    message: Any = getattr(import_module(module), name)

    def encode(value: Any) -> Any:
        setattr(value, "_header", None)  # noqa: B010 - decoded values have no header
        return value.encode(version=version)

    return Codec("kafka-python", lambda data: message.decode(data, version=version), encode)


def _aiokafka(api: str, name: str, version: int) -> Codec:
    """Return the codec of aiokafka: schemas interpreted in Python, structures as tuples."""
    (module,) = modules("aiokafka", api, name, version)
    message: Any = getattr(import_module(module), f"{name}_v{version}")
    return Codec("aiokafka", message.decode, lambda value: value.encode())


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
    """Return a client's codec of a message: its API's module, Kafka's name of it and a version."""
    return _CODECS[client](api, name, version)


def modules(client: str, api: str, name: str, version: int) -> tuple[str, ...]:
    """Return the modules that a client loads for a message."""
    match client:
        case "kio":
            kind = "response" if name.endswith("Response") else "request"
            return "kio.index", "kio.serial", f"kio.schema.{api}.v{version}.{kind}"
        case "kafka-python":
            return (f"kafka.protocol.{_KAFKA_PYTHON.get(api, 'consumer')}",)
        case "aiokafka":
            return (f"aiokafka.protocol.{_AIOKAFKA.get(api, api)}",)
        case _:
            return (f"kafka_async.protocol.messages.{api}",)
