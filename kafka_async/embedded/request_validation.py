"""Validates requests without the state of the cluster. Pure.

Used by the handlers, and by the scripted brokers of this project's tests.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from kafka_async.errors import (
    CorruptRecordError,
    InvalidRecordError,
    UnknownServerError,
    UnsupportedCompressionTypeError,
)
from kafka_async.protocol.wire import ZERO_UUID
from kafka_async.records.batch import HEADER_SIZE, NO_PRODUCER_ID, BatchHeader, BatchView
from kafka_async.records.compression import Codec

if TYPE_CHECKING:
    from typing_extensions import Buffer

ZSTD_MIN_VERSION: Final = 7
"""First Produce version with ZStandard compression."""
METADATA_TOPIC_ID_MIN_VERSION: Final = 12
"""First Metadata version with topic ids in the request."""
MAX_VALIDATED_RECORDS: Final = 100
"""Maximum records validated per batch; Kafka validates all."""
MAGIC: Final = 2
VALID_ACKS: Final = (-1, 0, 1)
ISOLATION_LEVELS: Final = (0, 1)
COMPRESSION_CODEC_MASK: Final = 7
TOPIC_NAME_PATTERN: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")


# -- record batches -------------------------------------------------------------------------------


def require_single_batch(records: Buffer | None, version: int) -> BatchView:
    """Return the record batch of a partition in a Produce request."""
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
    if header.attributes & COMPRESSION_CODEC_MASK == Codec.zstd and version < ZSTD_MIN_VERSION:
        raise UnsupportedCompressionTypeError("Produce requests before version 7 have no ZStandard")
    return BatchView(header, raw, None, None)


def validate_batch(batch: BatchView) -> None:
    """Validate a batch as a log does before an append."""
    header = batch.header
    if header.base_offset != 0:
        raise InvalidRecordError(f"the base offset of a batch is {header.base_offset}, not 0")
    if header.attributes & COMPRESSION_CODEC_MASK > max(Codec):
        raise UnknownServerError(
            f"Unknown compression type id: {header.attributes & COMPRESSION_CODEC_MASK}"
        )
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
        reader = batch.reader()
    except CorruptRecordError as error:  # Kafka has no error code for this
        raise UnknownServerError(f"the records of a batch cannot be read: {error}") from error
    try:
        reader.read(MAX_VALIDATED_RECORDS, batch.raw.nbytes)
    except CorruptRecordError as error:
        raise InvalidRecordError(f"the records of a batch cannot be read: {error}") from error


def is_transactional(records: Buffer | None) -> bool:
    """Return True if the bytes begin with a transactional batch."""
    raw = memoryview(records or b"")
    if raw.nbytes < HEADER_SIZE:
        return False
    header = BatchHeader.unpack(raw)
    return header.magic == MAGIC and header.is_transactional


def has_transactional_batches(request: Any) -> bool:
    """Return True if a Produce request has transactional batches."""
    return any(
        is_transactional(data.records)
        for topic in request.topic_data
        for data in topic.partition_data
    )


def lacks_transactional_id(request: Any) -> bool:
    """Return True if a Produce request has transactional batches but no transactional id."""
    return request.transactional_id is None and has_transactional_batches(request)


# -- requests -------------------------------------------------------------------------------------


def has_valid_software_name(request: Any) -> bool:
    """Return True if an ApiVersions request of version 3 or later has valid software names."""
    names = request.client_software_name, request.client_software_version
    return all(_SOFTWARE_NAME.fullmatch(name) for name in names)


def names_only_cluster_or_node(cluster_id: str | None, node_id: int) -> bool:
    """Return True if ApiVersions has a cluster id or a node id, but not both."""
    return (cluster_id is None) != (node_id == -1)


def has_only_id_or_epoch(producer_id: int, epoch: int) -> bool:
    """Return True if only one of producer id and epoch is given."""
    return min(producer_id, epoch) < 0 <= max(producer_id, epoch)


def lacks_name_and_id(topic: Any) -> bool:
    """Return True if a topic of a Metadata request has neither a name nor an id."""
    return topic.name is None and topic.topic_id == ZERO_UUID


def has_unsupported_topic_id(topic: Any, version: int) -> bool:
    """Return True if a topic of a Metadata request has an id in a version without ids."""
    return version < METADATA_TOPIC_ID_MIN_VERSION and topic.topic_id != ZERO_UUID


_SOFTWARE_NAME: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
