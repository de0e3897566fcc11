"""Frames that Kafka's own Java classes wrote, and what those classes say is in them.

`data/frames.jsonl` has one frame a line: requests and responses with size and header, messages
without a key as bare bodies. Bytes are hexadecimal, field names ours. See data/README.md.
"""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from kafka_async.protocol.header import (
    RequestHeader,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from kafka_async.protocol.message import Message, Request, Response
from kafka_async.protocol.spec import BYTES, RECORDS, UUID, Array, Fixed, Sized
from tests.protocol.samples import class_of

if TYPE_CHECKING:
    from kafka_async.protocol.message import Struct
    from kafka_async.protocol.spec import FieldType

DATA = Path(__file__).parent / "data"
FRAMES: list[dict[str, Any]] = [
    json.loads(line) for line in (DATA / "frames.jsonl").read_text(encoding="utf-8").splitlines()
]


def name(frame: dict[str, Any]) -> str:
    return f"{frame['message']}-v{frame['version']}-{frame.get('correlation_id', 'bare')}"


@pytest.mark.parametrize("frame", FRAMES, ids=name)
def test_the_same_fields_make_the_same_bytes_and_the_other_way_round(frame: dict[str, Any]) -> None:
    kind, version, raw = class_of(frame["message"]), frame["version"], bytes.fromhex(frame["bytes"])
    message = kind.from_dict(typed_fields(kind, frame["fields"]))
    if isinstance(message, Request):
        request = cast("Request[Any]", message)
        correlation_id, client_id = frame["correlation_id"], frame["client_id"]
        assert b"".join(encode_request(request, version, correlation_id, client_id)) == raw
        header = RequestHeader(request.API_KEY, version, correlation_id, client_id)
        assert decode_request(raw[4:]) == (header, message)
    elif isinstance(message, Response):
        correlation_id = frame["correlation_id"]
        assert b"".join(encode_response(message, version, correlation_id)) == raw
        assert decode_response(raw[4:], type(message), version) == (correlation_id, message)
    else:
        assert message.encode(version) == raw
        assert kind.decode(raw, version) == message


def test_every_kind_of_message_is_among_them() -> None:
    kinds = {base for frame in FRAMES for base in class_of(frame["message"]).__mro__}
    assert {Request, Response, Message} <= kinds


def typed_fields(kind: type[Struct], fields: dict[str, Any]) -> dict[str, Any]:
    types = {field.name: field.type for field in kind.SPEC.fields}
    return {name: typed(types[name], value) for name, value in fields.items()}


def typed(kind: FieldType, value: Any) -> Any:
    """A value from JSON as the type that its field has."""
    if value is None:
        return None
    if isinstance(kind, Array):
        return [typed(kind.element, item) for item in value]
    if kind is UUID:
        return uuid.UUID(value)
    if kind is BYTES or kind is RECORDS:
        return bytes.fromhex(value)
    return value if isinstance(kind, Fixed | Sized) else typed_fields(kind, value)
