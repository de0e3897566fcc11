"""Rules that a request has to meet whatever the state of the cluster. Pure.

The handlers follow them, and so do the scripted brokers of this project's tests: no test double
accepts a request that every broker refuses.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from kafka_async.errors import (
    CorruptRecordError,
    InvalidRecordError,
    KafkaError,
    UnknownServerError,
    UnsupportedCompressionTypeError,
)
from kafka_async.protocol.wire import ZERO_UUID
from kafka_async.records.batch import HEADER_SIZE, NO_PRODUCER_ID, BatchHeader, BatchView
from kafka_async.records.compression import Codec

if TYPE_CHECKING:
    from uuid import UUID

    from typing_extensions import Buffer

ZSTD_SINCE: Final = 7
"""The Produce version from which on batches may be compressed by ZStandard."""
CHECKED_RECORDS: Final = 100
"""Records of a batch that are read to see whether they are sound; Kafka reads all."""
MAGIC: Final = 2
ACKS: Final = (-1, 0, 1)
ISOLATION_LEVELS: Final = (0, 1)
CODEC_BITS: Final = 7
TOPIC_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")


# -- record batches -------------------------------------------------------------------------------


def producer_batch(records: Buffer | None, version: int) -> BatchView:
    """Return the one batch that a partition of a Produce request must hold.

    Raises InvalidRecordError, CorruptRecordError and UnsupportedCompressionTypeError.
    """
    raw = memoryview(records or b"")
    if raw.nbytes < HEADER_SIZE:
        raise InvalidRecordError("Produce requests must contain exactly one record batch")
    header = BatchHeader.unpack(raw)
    if header.magic > MAGIC:
        raise CorruptRecordError(f"a batch has magic {header.magic}, which does not exist")
    if header.magic < MAGIC:
        raise InvalidRecordError(f"a batch of magic {header.magic} is not accepted")
    if header.size != raw.nbytes:
        raise InvalidRecordError("Produce requests must contain exactly one record batch")
    if header.attributes & CODEC_BITS == Codec.zstd and version < ZSTD_SINCE:
        raise UnsupportedCompressionTypeError("Produce requests before version 7 have no ZStandard")
    return BatchView(header, raw, None, None)


def check_batch(batch: BatchView) -> None:
    """Check a batch as a log does before it writes it.

    Raises InvalidRecordError, and UnknownServerError for a codec that does not exist.
    """
    header = batch.header
    if header.base_offset != 0:
        raise InvalidRecordError(f"the base offset of a batch is {header.base_offset}, not 0")
    if header.attributes & CODEC_BITS > max(Codec):
        raise UnknownServerError(f"Unknown compression type id: {header.attributes & CODEC_BITS}")
    if header.is_control:
        raise InvalidRecordError("Clients are not allowed to write control records")
    if header.records_count < 1 or header.records_count != header.last_offset_delta + 1:
        raise InvalidRecordError(
            f"a batch of {header.records_count} records has the last offset delta "
            f"{header.last_offset_delta}"
        )
    if header.producer_id != NO_PRODUCER_ID and header.base_sequence < 0:
        raise InvalidRecordError("a batch with a producer id needs a sequence")
    try:
        batch.reader().read(CHECKED_RECORDS, batch.raw.nbytes)
    except CorruptRecordError as error:
        raise InvalidRecordError(f"the records of a batch cannot be read: {error}") from error


def is_transactional(records: Buffer | None) -> bool:
    """Return whether bytes begin with a transactional batch."""
    raw = memoryview(records or b"")
    if raw.nbytes < HEADER_SIZE:
        return False
    header = BatchHeader.unpack(raw)
    return header.magic == MAGIC and header.is_transactional


def lacks_transactional_id(request: Any) -> bool:
    """Return whether a Produce request has transactional batches but no transactional id."""
    return request.transactional_id is None and any(
        is_transactional(data.records)
        for topic in request.topic_data
        for data in topic.partition_data
    )


# -- requests -------------------------------------------------------------------------------------


def named_software(request: Any) -> bool:
    """Return whether an ApiVersions request of version 3 or later names its client as it must."""
    names = request.client_software_name, request.client_software_version
    return all(_SOFTWARE.fullmatch(name) for name in names)


def half_named(cluster_id: str | None, node_id: int) -> bool:
    """Return whether ApiVersions names a cluster without a broker, or the other way round."""
    return (cluster_id is None) != (node_id == -1)


def half_producer(producer_id: int, epoch: int) -> bool:
    """Return whether only one of producer id and epoch is given."""
    return min(producer_id, epoch) < 0 <= max(producer_id, epoch)


def violations(request: Any, version: int) -> list[str]:
    """Return why every broker refuses a request, in whatever state; empty if none has to."""
    rule = RULES.get(request.API_KEY)
    return [] if rule is None else list(rule(request, version))


def _produce(request: Any, version: int) -> Iterator[str]:
    if request.acks not in ACKS:
        yield f"acks is {request.acks}"
    if lacks_transactional_id(request):
        yield "transactional batches without a transactional id"
    for topic in request.topic_data:
        yield from _named(topic.name, topic.topic_id, by_id=version >= 13)
        yield from _repeated(data.index for data in topic.partition_data)
        for data in topic.partition_data:
            yield from _batch(data.records, version)


def _batch(records: Any, version: int) -> Iterator[str]:
    try:
        batch = producer_batch(records, version)
        batch.check_crc()
        check_batch(batch)
    except KafkaError as error:
        yield f"a batch is refused: {error}"


def _fetch(request: Any, version: int) -> Iterator[str]:
    if request.isolation_level not in ISOLATION_LEVELS:
        yield f"isolation level {request.isolation_level}"
    if request.session_epoch > 0 and request.session_id == 0:
        yield f"epoch {request.session_epoch} without a session"
    for topic in request.topics:
        yield from _named(topic.topic, topic.topic_id, by_id=version >= 13)
        yield from _repeated(row.partition for row in topic.partitions)
        if any(row.partition_max_bytes < 0 or row.fetch_offset < 0 for row in topic.partitions):
            yield "a negative size or offset"


def _list_offsets(request: Any, version: int) -> Iterator[str]:
    if request.isolation_level not in ISOLATION_LEVELS:
        yield f"isolation level {request.isolation_level}"
    for topic in request.topics:
        yield from _repeated(row.partition_index for row in topic.partitions)


def _metadata(request: Any, version: int) -> Iterator[str]:
    for topic in request.topics or ():
        by_id = topic.topic_id != ZERO_UUID
        if topic.name is None and not by_id:
            yield "a topic without name and id"
        if by_id and version < 12:
            yield "a topic by id before version 12"


def _group(request: Any, version: int) -> Iterator[str]:
    if not request.group_id:
        yield "a group without an id"


def _join_group(request: Any, version: int) -> Iterator[str]:
    yield from _group(request, version)
    if not request.protocols or not request.protocol_type:
        yield "a member without protocols"


def _sync_group(request: Any, version: int) -> Iterator[str]:
    yield from _group(request, version)
    if version >= 5 and None in (request.protocol_type, request.protocol_name):
        yield "an assignment without its protocol"


def _find_coordinator(request: Any, version: int) -> Iterator[str]:
    if request.key_type not in (0, 1, 2):
        yield f"a coordinator of kind {request.key_type}"


def _api_versions(request: Any, version: int) -> Iterator[str]:
    if version >= 3 and not named_software(request):
        yield "a client without a proper name and version"
    if version >= 5 and half_named(request.cluster_id, request.node_id):
        yield f"cluster {request.cluster_id} with broker {request.node_id}"


def _init_producer_id(request: Any, version: int) -> Iterator[str]:
    if request.transactional_id == "":
        yield "an empty transactional id"
    if request.transactional_id is not None and request.transaction_timeout_ms <= 0:
        yield f"a transaction time-out of {request.transaction_timeout_ms} ms"
    if half_producer(request.producer_id, request.producer_epoch):
        yield "a producer id without its epoch, or the other way round"


def _transactional(request: Any, version: int) -> Iterator[str]:
    if not request.transactional_id:
        yield "no transactional id"
    if min(request.producer_id, request.producer_epoch) < 0:
        yield "no producer id and epoch"


def _add_partitions(request: Any, version: int) -> Iterator[str]:
    if version < 4 and not request.v3_and_below_transactional_id:
        yield "no transactional id"


def _txn_offset_commit(request: Any, version: int) -> Iterator[str]:
    yield from _group(request, version)
    yield from _transactional(request, version)


def _named(name: str, topic_id: UUID, *, by_id: bool) -> Iterator[str]:
    if topic_id == ZERO_UUID if by_id else not TOPIC_NAME.fullmatch(name):
        yield f"a topic called {name!r} with the id {topic_id}"


def _repeated(indexes: Iterable[int]) -> Iterator[str]:
    found = list(indexes)
    if len(set(found)) < len(found) or any(index < 0 for index in found):
        yield f"partitions {found}"


_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")

RULES: Final[dict[int, Callable[[Any, int], Iterator[str]]]] = {
    0: _produce,
    1: _fetch,
    2: _list_offsets,
    3: _metadata,
    10: _find_coordinator,
    11: _join_group,
    12: _group,
    13: _group,
    14: _sync_group,
    18: _api_versions,
    22: _init_producer_id,
    24: _add_partitions,
    25: _transactional,
    26: _transactional,
    28: _txn_offset_commit,
}
"""By API key; other requests are refused only for what the cluster's state forbids."""
