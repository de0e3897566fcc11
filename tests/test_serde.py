"""Serializers and deserializers: their parameters, their results, and kafka_async.serde."""

from __future__ import annotations

import functools
import json
import sys
import warnings
from collections.abc import AsyncIterator, Callable
from typing import Any

import pydantic
import pytest
import pytest_asyncio

from kafka_async import serde
from kafka_async.config import ProducerConfig
from kafka_async.consumer.consumer import Consumer
from kafka_async.errors import (
    InvalidConfigurationError,
    RecordDeserializationError,
    SerializationError,
)
from kafka_async.producer.producer import Producer
from kafka_async.serde.functions import deserializer, serializer, takes_topic_and_headers
from kafka_async.types import TopicPartition
from tests.embedded_client import InMemory

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]

TP = TopicPartition("t", 0)


class Order(pydantic.BaseModel):
    id: int
    unit_price: float = pydantic.Field(alias="unitPrice")


@pytest_asyncio.fixture
async def memory() -> AsyncIterator[InMemory]:
    async with InMemory() as running:
        await running.cluster.create_topic("t", 1)
        yield running


def writer(memory: InMemory, **options: Any) -> Producer[Any, Any]:
    return memory.producer(**options)


def reader(memory: InMemory, **options: Any) -> Consumer[Any, Any]:
    return memory.consumer(partitions=[TP], auto_offset_reset="earliest", **options)


def raw(memory: InMemory) -> list[tuple[bytes | None, bytes | None]]:
    """Return keys and values without deserializing them."""
    return [(record.key, record.value) for record in memory.records("t")]


# -- parameters of a function ----------------------------------------------------------------------


def three(topic: str, headers: object, value: object) -> bytes:
    return f"{topic} {headers} {value}".encode()


def three_and_an_option(topic: str, headers: object, value: object, option: int = 0) -> bytes:
    return three(topic, headers, value)


def two_optional(value: object, topic: str = "", headers: object = ()) -> bytes:
    return b"one"


def starred(*values: object) -> bytes:
    return b"%d" % len(values)


class Callable3:
    def __call__(self, topic: str, headers: object, value: object) -> bytes:
        return b"three"


FORMS: list[tuple[Callable[..., Any], bool]] = [
    (three, True),
    (three_and_an_option, True),
    (Callable3(), True),
    (functools.partial(three_and_an_option, option=5), True),
    (lambda a, b, c: b"", True),  # pyright: ignore[reportUnknownLambdaType]
    (json.dumps, False),
    (json.loads, False),
    (int, False),
    (str.encode, False),
    (two_optional, False),
    (starred, False),
    (Order.model_validate_json, False),
    (functools.partial(three, "t", ()), False),
]


@pytest.mark.parametrize(("function", "expected"), FORMS)
async def test_functions_with_three_required_parameters_take_topic_and_headers(
    function: Callable[..., Any], expected: bool
) -> None:
    assert takes_topic_and_headers(function) is expected


async def test_inspects_a_function_once(monkeypatch: pytest.MonkeyPatch) -> None:
    encode, decode = serializer("value_serializer", three), deserializer("x", int)
    monkeypatch.setattr("inspect.signature", None)  # Calling it raises from here on.
    assert encode is not None
    assert decode is not None
    assert encode("t", (), 5) == b"t () 5"
    assert decode("t", (), b"5") == 5


async def coroutine(value: object) -> bytes:
    return b""


async def generator(value: object) -> AsyncIterator[bytes]:
    yield b""


class AsyncCall:
    async def __call__(self, value: object) -> bytes:
        return b""


REFUSED: list[tuple[Any, str]] = [
    (coroutine, "is async, and records are converted without waiting"),
    (generator, "is async"),
    (AsyncCall(), "is async"),
    (functools.partial(coroutine), "is async"),
    (5, "must be a function or an object of kafka_async.serde, not int"),
    ("json", "must be a function"),
    (lambda: b"", r"takes \(\)"),
    (lambda a, b: b"", r"takes \(a, b\)"),  # pyright: ignore[reportUnknownLambdaType]
    (serde.Json, "Json is a class: make an object"),
]


@pytest.mark.parametrize(("given", "words"), REFUSED)
@pytest.mark.parametrize("side", ["key", "value"])
async def test_refuses_invalid_serializers_at_construction(
    given: Any, words: str, side: str
) -> None:
    options: dict[str, Any] = {f"{side}_serializer": given}
    with pytest.raises(InvalidConfigurationError, match=f"{side}_serializer.*{words}"):
        Producer("a:1", **options)
    with pytest.raises(InvalidConfigurationError, match=f"{side}_serializer.*{words}"):
        Producer(config=ProducerConfig.from_properties({"bootstrap.servers": "a:1", **options}))
    options = {f"{side}_deserializer": given}
    with pytest.raises(InvalidConfigurationError, match=f"{side}_deserializer.*{words}"):
        Consumer("a:1", **options)


# -- results --------------------------------------------------------------------------------------


async def test_encodes_text_and_keeps_null(memory: InMemory) -> None:
    async with writer(memory, key_serializer=str, value_serializer=json.dumps) as producer:
        await producer.send("t", {"name": "Zoë"}, key=7)
        await producer.send("t", None, key=7)
        await producer.send_many("t", [1, None], [None, 8])
    assert raw(memory) == [
        (b"7", b'{"name": "Zo\\u00eb"}'),
        (b"7", None),
        (None, b"1"),
        (b"8", None),
    ]
    async with reader(memory, key_deserializer=int, value_deserializer=json.loads) as consumer:
        records = await consumer.poll(timeout=30)
    assert [(record.key, record.value) for record in records] == [
        (7, {"name": "Zoë"}),
        (7, None),
        (None, 1),
        (8, None),
    ]


async def test_calls_a_function_of_three_arguments_for_null(memory: InMemory) -> None:
    async with writer(memory, value_serializer=three) as producer:
        await producer.send("t", None)
    assert raw(memory) == [(None, b"t () None")]

    def deserialize(topic: str, headers: object, data: bytes | None) -> str:
        return f"{topic} {data}"

    async with reader(memory, key_deserializer=deserialize) as consumer:
        assert [record.key for record in await consumer.poll(timeout=30)] == ["t None"]


@pytest.mark.parametrize("result", [5, {"a": 1}, object(), 1.5, ["x"]])
@pytest.mark.parametrize("call", ["send", "enqueue", "enqueue_nowait"])
async def test_wrong_result_raises_with_the_expected_signature(
    memory: InMemory, result: object, call: str
) -> None:
    async with writer(memory, value_serializer=lambda value: result) as producer:  # type: ignore[misc]
        with pytest.raises(
            SerializationError,
            match=r"value_serializer must return bytes, str or None, as f\(value\) or "
            rf"f\(topic, headers, value\) does, not {type(result).__name__}",
        ):
            await getattr(producer, call)("t", "v")
        await producer.flush()
    assert raw(memory) == []


async def test_function_that_returns_a_coroutine_raises_without_a_warning(memory: InMemory) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        async with writer(memory, value_serializer=lambda value: coroutine(value)) as producer:  # type: ignore[misc]
            with pytest.raises(SerializationError, match="must return bytes, str or None"):
                await producer.send("t", "v")


# -- kafka_async.serde ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("made", "value", "data"),
    [
        (serde.Json(), {"b": [1, None, "Zoë"]}, '{"b":[1,null,"Zoë"]}'.encode()),
        (serde.Json(), 0, b"0"),
        (serde.Json(), "", b'""'),
        (serde.String(), "Zoë", "Zoë".encode()),
        (serde.String(), "", b""),
        (serde.String("utf-16-le"), "a", b"a\x00"),
        (serde.Integer(), 1, b"\x00\x00\x00\x01"),
        (serde.Integer(), -(1 << 31), b"\x80\x00\x00\x00"),
        (serde.Integer(bits=64), -2, b"\xff" * 7 + b"\xfe"),
        (serde.Integer(bits=64), 1 << 40, b"\x00\x00\x01" + bytes(5)),
        (serde.Pydantic(Order), Order(id=1, unitPrice=2.5), b'{"id":1,"unitPrice":2.5}'),
        (serde.Pydantic(dict[str, int]), {"a": 1}, b'{"a":1}'),
    ],
)
async def test_object_serializes_and_deserializes(
    memory: InMemory, made: Any, value: object, data: bytes
) -> None:
    async with writer(memory, key_serializer=made, value_serializer=made) as producer:
        await producer.send("t", value, key=value)
        await producer.send("t", None)
    assert raw(memory) == [(data, data), (None, None)]
    async with reader(memory, key_deserializer=made, value_deserializer=made) as consumer:
        records = await consumer.poll(timeout=30)
    assert [(record.key, record.value) for record in records] == [(value, value), (None, None)]


@pytest.mark.parametrize(
    ("made", "value", "words"),
    [
        (serde.Json(), object(), "not JSON serializable"),
        (serde.Json(), float("nan"), "not JSON compliant"),
        (serde.String(), b"bytes", "serde.String takes str, not bytes"),
        (serde.Integer(), 1 << 31, r"does not fit in 32 bits: take serde.Integer\(bits=64\)"),
        (serde.Integer(bits=64), 1 << 63, "does not fit in 64 bits"),
        (serde.Integer(), "5", "serde.Integer takes int, not str"),
        (serde.Integer(), True, "serde.Integer takes int, not bool"),
        (serde.Pydantic(Order), {"id": "x"}, "2 validation errors"),
    ],
)
async def test_value_of_another_type_raises(
    memory: InMemory, made: Any, value: object, words: str
) -> None:
    async with writer(memory, value_serializer=made) as producer:
        with pytest.raises(SerializationError, match=f"value's serializer failed: .*{words}"):
            await producer.send("t", value)
        with pytest.raises(SerializationError, match=r"values\[1\]: the value's serializer"):
            await producer.send_many("t", [None, value])


@pytest.mark.parametrize(
    ("made", "data", "words"),
    [
        (serde.Json(), b"{", "JSONDecodeError"),
        (serde.String(), b"\xff", "UnicodeDecodeError"),
        (serde.Integer(), bytes(8), "LongSerializer wrote them, take bits=64"),
        (serde.Integer(bits=64), bytes(4), "IntegerSerializer wrote them, take bits=32"),
        (serde.Integer(), b"12", "2 bytes are no number of 32 bits"),
        (serde.Pydantic(Order), b'{"id": 1}', "unitPrice"),
    ],
)
async def test_undecodable_bytes_raise_with_the_record(
    memory: InMemory, made: Any, data: bytes, words: str
) -> None:
    async with writer(memory) as producer:
        await producer.send("t", data)
    async with reader(memory, value_deserializer=made) as consumer:
        with pytest.raises(RecordDeserializationError, match=words) as raised:
            await consumer.poll(timeout=30)
        record: Any = raised.value.record
        assert record.value == data


async def test_json_takes_a_default() -> None:
    assert serde.Json(default=str).serialize({"p": 1 + 2j}) == '{"p":"(1+2j)"}'


async def test_integer_has_the_sizes_of_javas_serializers() -> None:
    with pytest.raises(ValueError, match=r"bits is 32 .* or 64 .*, not 16"):
        serde.Integer(16)


async def test_only_the_pydantic_class_needs_pydantic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydantic", None)
    serde.Json()
    with pytest.raises(ImportError, match="the extra pydantic: pip install"):
        serde.Pydantic(dict)
