"""kio, which shares no code with us, reads what we write as the same values and writes it alike."""

from __future__ import annotations

import dataclasses
import datetime
import io
import uuid
from typing import TYPE_CHECKING, Any, cast

import pytest
from kio.index import UnknownEntity, load_entity_schema
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from kafka_async.protocol.message import Struct
from kafka_async.protocol.wire import ZERO_UUID
from tests.protocol.samples import all_classes, label, sample, versions

if TYPE_CHECKING:
    from kafka_async.protocol.message import Message

HEADERS = {"RequestHeader", "ResponseHeader"}
"""kio keeps these elsewhere."""

NEWER_THAN_KIO = {
    "AbortedTxn": 0,
    "ApiVersions": 5,
    "DeleteGroups": 3,
    "StreamsGroupDescribe": 1,
    "StreamsGroupHeartbeat": 1,
    "StreamsGroupTopologyDescriptionUpdate": 0,
    "TxnOffsetCommit": 6,
    "UnregisterController": 0,
}


@pytest.mark.parametrize("message", all_classes(), ids=label)
def test_kio_agrees(message: type[Message], seeded: int) -> None:
    judged = [version for version in versions(message) if agrees(message, version, seeded)]
    newest = NEWER_THAN_KIO.get(message.__name__.removesuffix("Request").removesuffix("Response"))
    known = [version for version in versions(message) if newest is None or version < newest]
    assert message.__name__ in HEADERS or judged == known


def agrees(message: type[Message], version: int, seed: int) -> bool:
    """Compare one version; False if kio does not know it."""
    name = message.__name__
    kind = EntityType.response if name.endswith("Response") else EntityType.data
    kind = EntityType.request if name.endswith("Request") else kind
    try:
        schema = load_entity_schema(message.__module__.rpartition(".")[2], version, kind)
    except UnknownEntity:
        return False
    sent = sample(message, version, seed, plausible=True)
    body = sent.encode(version)
    read, size = entity_reader(schema)(body, 0)
    assert size == len(body)
    same(sent, read, version)
    written = io.BytesIO()
    entity_writer(schema)(written, read)
    assert written.getvalue() == body
    return True


def same(ours: Any, theirs: Any, version: int) -> None:
    """Compare a value with kio's, which has types of its own for times and codes."""
    if isinstance(ours, Struct):
        # By place, not by name: kio says `type_` and `throttle_time`, and Kafka has renamed some.
        fields = [field for field in ours.SPEC.fields if field.versions.contains(version)]
        for field, other in zip(fields, dataclasses.fields(theirs), strict=True):
            same(getattr(ours, field.name), getattr(theirs, other.name), version)
    elif isinstance(theirs, tuple):
        for one, other in zip(ours, cast("tuple[Any, ...]", theirs), strict=True):
            same(one, other, version)
    elif isinstance(theirs, datetime.timedelta):
        assert ours == theirs / datetime.timedelta(milliseconds=1)
    elif isinstance(theirs, datetime.datetime):
        assert ours == round(theirs.timestamp() * 1000)
    elif isinstance(ours, uuid.UUID) and theirs is None:
        assert ours == ZERO_UUID
    else:
        assert ours == theirs
