"""Frames written by Kafka's Java classes, with the fields that those classes read from them.

`data/frames.jsonl` has one frame per line: requests and responses with size and header, messages
without an API key as bodies. Bytes are hexadecimal, field names in snake case. See data/README.md.
"""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

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
from tests.rows import row

if TYPE_CHECKING:
    from kafka_async.protocol.spec import FieldType, Struct

DATA = Path(__file__).parent / "data"
FRAMES: list[dict[str, Any]] = [
    json.loads(line) for line in (DATA / "frames.jsonl").read_text(encoding="utf-8").splitlines()
]


def test_encodes_and_decodes_frames_of_java_classes() -> None:
    for frame in FRAMES:
        with row(frame["message"], frame["version"], frame.get("correlation_id", "bare")):
            check_frame(frame)


def check_frame(frame: dict[str, Any]) -> None:
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


def test_frames_include_requests_responses_and_messages_without_key() -> None:
    kinds = {base for frame in FRAMES for base in class_of(frame["message"]).__mro__}
    assert {Request, Response, Message} <= kinds


def typed_fields(kind: type[Struct], fields: dict[str, Any]) -> dict[str, Any]:
    types = {field.name: field.type for field in kind.SPEC.fields}
    return {name: typed(types[name], value) for name, value in fields.items()}


def typed(kind: FieldType, value: Any) -> Any:
    """Convert a JSON value to the type of its field."""
    if value is None:
        return None
    if isinstance(kind, Array):
        return [typed(kind.element, item) for item in value]
    if kind is UUID:
        return uuid.UUID(value)
    if kind is BYTES or kind is RECORDS:
        return bytes.fromhex(value)
    return value if isinstance(kind, Fixed | Sized) else typed_fields(kind, value)
