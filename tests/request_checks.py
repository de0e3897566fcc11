"""Checks of the requests that test doubles receive, for errors that every broker refuses.

The contract tests compare them with the responses of Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from kafka_async.embedded.request_validation import (
    ISOLATION_LEVELS,
    METADATA_TOPIC_ID_MIN_VERSION,
    TOPIC_NAME_PATTERN,
    VALID_ACKS,
    has_only_id_or_epoch,
    has_unsupported_topic_id,
    has_valid_software_name,
    lacks_name_and_id,
    lacks_transactional_id,
    names_only_cluster_or_node,
    require_single_batch,
    validate_batch,
)
from kafka_async.errors import DecodeError, KafkaError, UnsupportedVersionError
from kafka_async.protocol.header import decode_request
from kafka_async.protocol.wire import ZERO_UUID

if TYPE_CHECKING:
    from uuid import UUID

    from kafka_async.protocol.header import RequestHeader
    from kafka_async.protocol.message import Request
    from kafka_async.protocol.wire import BytesLike

REFUSED: Final[list[str]] = []
"""Reasons found in the running test, which fails at its end unless the list is empty."""


def receive(frame: BytesLike) -> tuple[RequestHeader, Request[Any]] | None:
    """Decode a request, and record the reasons for which a broker would refuse it.

    Returns:
        The request; None if a broker would close the connection.
    """
    try:
        header, request = decode_request(frame)
        if not type(request).VERSIONS.contains(header.api_version):
            raise UnsupportedVersionError(f"version {header.api_version} is not released")
    except (DecodeError, UnsupportedVersionError) as error:
        REFUSED.append(str(error))
        return None
    reasons = violations(request, header.api_version)
    REFUSED.extend(f"{type(request).__name__}: {reason}" for reason in reasons)
    return header, request


def violations(request: Any, version: int) -> list[str]:
    """Return the reasons for which every broker refuses a request, whatever its state."""
    rule = RULES.get(request.API_KEY)
    return [] if rule is None else list(rule(request, version))


def _check_produce(request: Any, version: int) -> Iterator[str]:
    if request.acks not in VALID_ACKS:
        yield f"acks is {request.acks}"
    if lacks_transactional_id(request):
        yield "transactional batches without a transactional id"
    for topic in request.topic_data:
        yield from _check_topic(topic.name, topic.topic_id, by_id=version >= 13)
        yield from _check_partitions(data.index for data in topic.partition_data)
        for data in topic.partition_data:
            yield from _check_batch(data.records, version)


def _check_batch(records: Any, version: int) -> Iterator[str]:
    try:
        batch = require_single_batch(records, version)
        batch.check_crc()
        validate_batch(batch)
    except KafkaError as error:
        yield f"a batch is refused: {error}"


def _check_fetch(request: Any, version: int) -> Iterator[str]:
    if request.isolation_level not in ISOLATION_LEVELS:
        yield f"isolation level {request.isolation_level}"
    if request.session_epoch > 0 and request.session_id == 0:
        yield f"epoch {request.session_epoch} without a session"
    for topic in request.topics:
        yield from _check_topic(topic.topic, topic.topic_id, by_id=version >= 13)
        yield from _check_partitions(row.partition for row in topic.partitions)
        if any(row.partition_max_bytes < 0 or row.fetch_offset < 0 for row in topic.partitions):
            yield "a negative size or offset"


def _check_list_offsets(request: Any, version: int) -> Iterator[str]:
    if request.isolation_level not in ISOLATION_LEVELS:
        yield f"isolation level {request.isolation_level}"
    for topic in request.topics:
        yield from _check_partitions(row.partition_index for row in topic.partitions)


def _check_metadata(request: Any, version: int) -> Iterator[str]:
    for topic in request.topics or ():
        if lacks_name_and_id(topic):
            yield "a topic without name and id"
        if has_unsupported_topic_id(topic, version):
            yield f"a topic by id before version {METADATA_TOPIC_ID_MIN_VERSION}"


def _check_group(request: Any, version: int) -> Iterator[str]:
    if not request.group_id:
        yield "a group without an id"


def _check_join_group(request: Any, version: int) -> Iterator[str]:
    yield from _check_group(request, version)
    if not request.protocols or not request.protocol_type:
        yield "a member without protocols"


def _check_sync_group(request: Any, version: int) -> Iterator[str]:
    yield from _check_group(request, version)
    if version >= 5 and None in (request.protocol_type, request.protocol_name):
        yield "an assignment without its protocol"


def _check_find_coordinator(request: Any, version: int) -> Iterator[str]:
    if request.key_type not in (0, 1, 2):
        yield f"a coordinator of kind {request.key_type}"


def _check_api_versions(request: Any, version: int) -> Iterator[str]:
    if version >= 3 and not has_valid_software_name(request):
        yield "a client without a proper name and version"
    if version >= 5 and names_only_cluster_or_node(request.cluster_id, request.node_id):
        yield f"cluster {request.cluster_id} with broker {request.node_id}"


def _check_init_producer_id(request: Any, version: int) -> Iterator[str]:
    if request.transactional_id == "":
        yield "an empty transactional id"
    if request.transactional_id is not None and request.transaction_timeout_ms <= 0:
        yield f"a transaction time-out of {request.transaction_timeout_ms} ms"
    if has_only_id_or_epoch(request.producer_id, request.producer_epoch):
        yield "a producer id without its epoch, or the other way round"


def _check_transaction(request: Any, version: int) -> Iterator[str]:
    if not request.transactional_id:
        yield "no transactional id"
    if min(request.producer_id, request.producer_epoch) < 0:
        yield "no producer id and epoch"


def _check_add_partitions(request: Any, version: int) -> Iterator[str]:
    if version < 4 and not request.v3_and_below_transactional_id:
        yield "no transactional id"


def _check_txn_offset_commit(request: Any, version: int) -> Iterator[str]:
    yield from _check_group(request, version)
    yield from _check_transaction(request, version)


def _check_topic(name: str, topic_id: UUID, *, by_id: bool) -> Iterator[str]:
    if topic_id == ZERO_UUID if by_id else not TOPIC_NAME_PATTERN.fullmatch(name):
        yield f"a topic called {name!r} with the id {topic_id}"


def _check_partitions(indexes: Iterable[int]) -> Iterator[str]:
    partitions = list(indexes)
    if len(set(partitions)) < len(partitions) or any(index < 0 for index in partitions):
        yield f"partitions {partitions}"


RULES: Final[dict[int, Callable[[Any, int], Iterator[str]]]] = {
    0: _check_produce,
    1: _check_fetch,
    2: _check_list_offsets,
    3: _check_metadata,
    10: _check_find_coordinator,
    11: _check_join_group,
    12: _check_group,
    13: _check_group,
    14: _check_sync_group,
    18: _check_api_versions,
    22: _check_init_producer_id,
    24: _check_add_partitions,
    25: _check_transaction,
    26: _check_transaction,
    28: _check_txn_offset_commit,
}
"""Checks by API key; a broker refuses other requests only because of its state."""
