"""Requests about topics without ids: the last version that names topics (KIP-516)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kafka_async.client.wire.handshake import BrokerVersions
from kafka_async.client.wire.topic_ids import LAST_VERSION_WITH_NAMES, max_version_for
from kafka_async.errors import UnsupportedVersionError
from kafka_async.protocol.api import APIS, lookup
from kafka_async.protocol.spec import Array, Struct, VersionRange
from kafka_async.protocol.wire import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.one_kernel


def structs_of(struct: Any) -> Iterator[Any]:
    """Yield the structures of a message, the message included."""
    yield struct
    for field in struct.SPEC.fields:
        kind = field.type.element if isinstance(field.type, Array) else field.type
        if isinstance(kind, type) and issubclass(kind, Struct):
            yield from structs_of(kind)


def last_version_with_names(request: Any) -> int | None:
    """Return the last version before an id replaces the name of a topic in a request."""
    for struct in structs_of(request):
        fields = {field.name: field.versions for field in struct.SPEC.fields}
        named = fields.get("name", fields.get("topic"))
        if "topic_id" in fields and named is not None and named.max < fields["topic_id"].max:
            return named.max
    return None


def test_the_table_has_every_request_in_which_ids_replace_names() -> None:
    derived = {api.key: last_version_with_names(api.request) for api in APIS if not api.removed}
    assert {key: last for key, last in derived.items() if last is not None} == (
        LAST_VERSION_WITH_NAMES
    )


def test_an_unknown_topic_id_limits_the_version() -> None:
    known = lookup(9).versions  # no ids are needed to call it
    assert max_version_for(9, [ZERO_UUID]) == 9
    assert max_version_for(9, []) is None
    versions = BrokerVersions({9: VersionRange(0, known.max), 8: VersionRange(10, 10)})
    assert versions.version(9, 9) == 9
    assert versions.version(9) == known.max
    with pytest.raises(UnsupportedVersionError) as caught:
        versions.version(8, 9)
    assert caught.value.message == (
        "OffsetCommit for topics by name needs version 9 or older, the broker offers 10"
    )
