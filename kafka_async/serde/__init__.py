"""Serializers and deserializers of keys and values.

    Producer(servers, value_serializer=serde.Json())
    Consumer(servers, topics=["orders"], value_deserializer=serde.Pydantic(Order))

One object serves both roles. A null value (a tombstone) stays null: neither role is called for it.
Any function of one argument is a serializer or deserializer too; see docs/serialization.md.
"""

from __future__ import annotations

from kafka_async.serde.integer import Integer
from kafka_async.serde.json import Json
from kafka_async.serde.pydantic import Pydantic
from kafka_async.serde.string import String

__all__ = ["Integer", "Json", "Pydantic", "String"]
