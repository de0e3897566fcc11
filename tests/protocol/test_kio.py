"""kio, an independent implementation, decodes our messages to equal values and equal bytes."""

from __future__ import annotations

import dataclasses
import datetime
import io
import re
import uuid
from typing import TYPE_CHECKING, Any, cast

import pytest
from kio.index import UnknownEntity, load_entity_schema
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from kafka_async.protocol.spec import Struct
from kafka_async.protocol.wire import ZERO_UUID
from tests.protocol.samples import all_classes, all_versions, label, sample, versions

if TYPE_CHECKING:
    from kio.schema.index import LoadableEntityType

    from kafka_async.protocol.message import Message

KINDS: dict[str, LoadableEntityType] = {
    "Request": EntityType.request,
    "Response": EntityType.response,
    "Header": EntityType.header,
    "": EntityType.data,
}
SAMPLES = 3
"""Number of messages to compare per version."""

# kio does not support unknown tagged fields, so the messages here have none.
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
"""First version that kio does not support, by API: it was generated from an older Kafka."""


@pytest.mark.one_kernel
@pytest.mark.parametrize("message", all_classes(), ids=label)
def test_kio_decodes_and_encodes_equal_messages(message: type[Message], seeded: int) -> None:
    compared = [version for version in versions(message) if agrees(message, version, seeded)]
    newest = NEWER_THAN_KIO.get(message.__name__.removesuffix("Request").removesuffix("Response"))
    known = [version for version in versions(message) if newest is None or version < newest]
    assert compared == known


def test_kio_supports_nearly_all_versions() -> None:
    assert sum(1 for message, version in all_versions() if schema_of(message, version)) == 625
    assert len(all_versions()) == 640


def agrees(message: type[Message], version: int, seed: int) -> bool:
    """Compare messages of one version; return False if kio does not support it."""
    schema = schema_of(message, version)
    if schema is None:
        return False
    for number in range(SAMPLES):
        sent = sample(message, version, f"{seed} {number}", plausible=True)
        body = sent.encode(version)
        read, size = entity_reader(schema)(body, 0)
        assert size == len(body)
        same(sent, read, version)
        written = io.BytesIO()
        entity_writer(schema)(written, read)
        assert written.getvalue() == body
    return True


def schema_of(message: type[Message], version: int) -> Any:
    """Return kio's class of a message in a version, None if there is none."""
    (word,) = re.findall(r"Request$|Response$|Header$|$", message.__name__)[:1]
    try:
        return load_entity_schema(message.__module__.rpartition(".")[2], version, KINDS[word])
    except UnknownEntity:
        return None


def same(ours: Any, theirs: Any, version: int) -> None:
    """Compare a value with kio's, which has different types for times and error codes."""
    if isinstance(ours, Struct):
        # By position and not by name: kio has other names (`type_`, `throttle_time`), and Kafka has
        # renamed some fields.
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
