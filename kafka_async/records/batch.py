"""Encodes and decodes record batches of magic 2: the 61-byte header and the CRC.

Reading starts with `iter_batches`, which iterates over a fetched buffer without copying. A
`BatchView` checks and decompresses its batch only when its records are read. The kernel encodes and
decodes the records themselves. Message sets of magic 0 and 1 are read through the same view (see
`legacy.py`).

The CRC covers only the bytes after it. A broker can therefore assign base offset and leader epoch
without computing the CRC again, but not change the timestamp type or the max timestamp.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, cast

from kafka_async import kernel
from kafka_async.errors import CorruptRecordError, UnsupportedForMessageFormatError
from kafka_async.foundation.arguments import MAX_INT32, MAX_OFFSET, iterable, whole_number
from kafka_async.records import compression, legacy
from kafka_async.records.checksum import load_crc32c
from kafka_async.records.compression import Codec
from kafka_async.records.control import (
    OTHER_CONTROL_RECORD,
    ControlMarker,
    TransactionResult,
    decode_marker,
    encode_marker,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from typing_extensions import Buffer

    from kafka_async.kernel import Record, RecordReader, Section
    from kafka_async.records.legacy import LegacyRecordReader
    from kafka_async.types import Headers

HEADER_SIZE: Final = 61
"""Bytes of a batch before its records."""
NO_TIMESTAMP: Final = -1
NO_PRODUCER_ID: Final = -1
NO_LEADER_EPOCH: Final = -1

_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_PREFIX: Final = struct.Struct(">qi")  # base offset and length: common to all magics
_AFTER_CRC: Final = struct.Struct(">hiqqqhii")
_CRC: Final = struct.Struct(">I")
_LEADER_EPOCH: Final = struct.Struct(">i")
_CRC_AT: Final = 17
_AFTER_CRC_AT: Final = 21
_MAGIC_AT: Final = 16
_MIN_LENGTH: Final = HEADER_SIZE - _PREFIX.size
_MAX_OFFSET: Final = (1 << 63) - 1

_CODEC_BITS: Final = 0x07
_LOG_APPEND_TIME: Final = 0x08
_TRANSACTIONAL: Final = 0x10
_CONTROL: Final = 0x20


class BatchHeader(NamedTuple):
    """Holds the fields of a batch header in wire order."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int

    @classmethod
    def unpack(cls, buffer: Buffer, position: int = 0) -> BatchHeader:
        """Return the header at `position`; raise CorruptRecordError if it is truncated."""
        try:
            return cls._make(_HEADER.unpack_from(buffer, position))
        except struct.error:
            raise CorruptRecordError("the batch ends inside its header") from None

    @property
    def size(self) -> int:
        """Size of the whole batch in bytes."""
        return self.length + _PREFIX.size

    @property
    def codec(self) -> Codec:
        """Codec of the records; raises CorruptRecordError for an unknown number."""
        try:
            return Codec(self.attributes & _CODEC_BITS)
        except ValueError:
            raise CorruptRecordError(
                f"the batch names codec {self.attributes & _CODEC_BITS}, which does not exist"
            ) from None

    @property
    def is_compressed(self) -> bool:
        """True if the records are compressed with any codec."""
        return bool(self.attributes & _CODEC_BITS)

    @property
    def timestamp_type(self) -> int:
        """0 if producers set the timestamps (CreateTime), 1 if the broker did (LogAppendTime)."""
        return 1 if self.attributes & _LOG_APPEND_TIME else 0

    @property
    def is_transactional(self) -> bool:
        """True if the batch belongs to a transaction."""
        return bool(self.attributes & _TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        """True if the batch holds a control record instead of data records."""
        return bool(self.attributes & _CONTROL)


# -- writing --------------------------------------------------------------------------------------


def encode_batch(
    payload: Buffer,
    *,
    codec: Codec,
    count: int,
    base_timestamp: int,
    max_timestamp: int,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytes:
    """Return a complete batch for a records section that is already compressed with `codec`."""
    attributes = codec | (_TRANSACTIONAL if transactional else 0) | (_CONTROL if control else 0)
    times, producer = (base_timestamp, max_timestamp), (producer_id, producer_epoch, base_sequence)
    header = _header(payload, attributes, count, times, producer, base_offset, leader_epoch)
    return b"".join((header, payload))


def encode_control_batch(
    kind: TransactionResult,
    *,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = 0,
) -> bytes:
    """Encode the control batch that ends a producer's transaction in a partition."""
    batch = kernel.OpenBatch(None, HEADER_SIZE)
    batch.append(timestamp, *encode_marker(kind, coordinator_epoch))
    return encode_batch(
        batch.close(),
        codec=Codec.none,
        count=1,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
    )


def _header(
    payload: Buffer,
    attributes: int,
    count: int,
    times: tuple[int, int],
    producer: tuple[int, int, int],
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytes:
    covered = _AFTER_CRC.pack(attributes, count - 1, *times, *producer, count)
    crc32c = load_crc32c()
    length = _MIN_LENGTH + memoryview(payload).nbytes
    crc = crc32c(payload, crc32c(covered))
    return struct.pack(">qiibI", base_offset, length, leader_epoch, 2, crc) + covered


def assign_offsets(
    batch: Buffer, base_offset: int, leader_epoch: int, append_time_ms: int | None = None
) -> bytes:
    """Return a copy of the batch as the leader writes it: with its offsets and leader epoch.

    With `append_time_ms` the timestamp type becomes LogAppendTime.
    """
    out = bytearray(batch)
    header = BatchHeader.unpack(out)
    struct.pack_into(">q", out, 0, base_offset)
    _LEADER_EPOCH.pack_into(out, _PREFIX.size, leader_epoch)
    if append_time_ms is not None:
        changed = header._replace(
            attributes=header.attributes | _LOG_APPEND_TIME, max_timestamp=append_time_ms
        )
        _AFTER_CRC.pack_into(out, _AFTER_CRC_AT, *changed[5:])
        _CRC.pack_into(out, _CRC_AT, load_crc32c()(memoryview(out)[_AFTER_CRC_AT:]))
    return bytes(out)


class RecordLike(Protocol):
    """Describes the records of `RecordBatch.build`: ProducerRecord or consumed Record."""

    @property
    def key(self) -> bytes | None:
        """Key; None if null."""
        ...

    @property
    def value(self) -> bytes | None:
        """Value; None if null."""
        ...

    @property
    def headers(self) -> Headers:
        """(name, value) pairs."""
        ...

    @property
    def timestamp(self) -> int | None:
        """Milliseconds since the epoch, or None."""
        ...


@dataclass(frozen=True, slots=True)
class RecordBatch:
    """Holds a compressed batch that can be sent to any partition, any number of times.

    `payload` is the records section, compressed with `codec`. `frame` adds the header with producer
    and sequence each time the batch is sent.
    """

    payload: bytes
    codec: Codec
    count: int
    base_timestamp: int
    max_timestamp: int

    @classmethod
    def build(
        cls,
        records: Iterable[RecordLike],
        compression: str = "none",
        *,
        level: int | None = None,
        timestamp: int = NO_TIMESTAMP,
    ) -> RecordBatch:
        """Build a batch of records.

        Args:
            records: ProducerRecord or consumed Record objects, at least one.
            compression: none, gzip, snappy, lz4 or zstd.
            level: Compression level; None is the codec's default.
            timestamp: Milliseconds since the epoch for records without a timestamp.

        Returns:
            The batch.

        Raises:
            ValueError: There are no records, or the compression is unknown.
            TypeError: A key, value, header or number has the wrong type.
        """
        if compression not in Codec.__members__:
            raise ValueError(
                f"compression is one of {', '.join(Codec.__members__)}, not {compression!r}"
            )
        if level is not None:
            level = whole_number(level, "level", low=-MAX_INT32, high=MAX_INT32)
        timestamp = whole_number(timestamp, "timestamp", low=NO_TIMESTAMP, high=MAX_OFFSET - 1)
        batch = kernel.OpenBatch(None, 0x7FFF_FFFF)
        for record in cast("Iterable[RecordLike]", iterable(records, "records")):
            try:
                time, headers = record.timestamp, record.headers
            except AttributeError:
                raise TypeError(
                    f"each of records must be a ProducerRecord or a Record, not {record!r:.60}"
                ) from None
            batch.append(timestamp if time is None else time, record.key, record.value, headers)
        return compress_batch(batch, Codec[compression], level)

    @property
    def size(self) -> int:
        """Size in bytes of the batch with its header."""
        return HEADER_SIZE + len(self.payload)

    def frame(
        self,
        *,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        transactional: bool = False,
    ) -> bytes:
        """Return the encoded batch, as a broker stores it; its base offset is 0.

        Args:
            producer_id: Id of an idempotent producer; -1 for none.
            producer_epoch: Epoch of the producer; -1 for none.
            base_sequence: Sequence number of the first record; -1 for none.
            transactional: Whether the batch is part of a transaction.
        """
        header = encode_header(
            self, producer_id, producer_epoch, base_sequence, transactional=transactional
        )
        return b"".join((header, self.payload))


def compress_batch(batch: kernel.OpenBatch, codec: Codec, level: int | None = None) -> RecordBatch:
    """Close an open batch and compress its records; raise ValueError if it is empty."""
    if not batch.count:
        raise ValueError("a batch has at least one record")
    return RecordBatch(
        compression.compress(codec, batch.close(), level),
        codec,
        batch.count,
        batch.base_timestamp,
        batch.max_timestamp,
    )


def encode_header(
    batch: RecordBatch,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    *,
    transactional: bool,
) -> bytes:
    """Return the batch header; with the batch's `payload` after it, it is the complete batch."""
    return _header(
        batch.payload,
        batch.codec | (_TRANSACTIONAL if transactional else 0),
        batch.count,
        (batch.base_timestamp, batch.max_timestamp),
        (producer_id, producer_epoch, base_sequence),
    )


# -- reading --------------------------------------------------------------------------------------


class BatchView:
    """Represents a batch in a fetched buffer; checks and decompresses it when records are read.

    A view keeps the whole buffer alive.
    """

    __slots__ = (
        "_content_size",
        "_cost",
        "_decompressed",
        "decompressed_bytes",
        "decompressing",
        "header",
        "partition",
        "raw",
        "topic",
    )

    def __init__(
        self, header: BatchHeader, raw: memoryview, topic: str | None, partition: int | None
    ) -> None:
        self.header = header
        self.raw = raw
        self.topic = topic
        self.partition = partition
        self.decompressed_bytes = 0
        """Decompressed size in bytes; 0 before decompression, or if the batch is not compressed."""
        self.decompressing = False
        """True from `begin_decompression` to `end_decompression`."""
        self._content_size = self._cost = -1  # unknown
        self._decompressed: Buffer | CorruptRecordError | None = None  # for the next reading

    @property
    def base_offset(self) -> int:
        """Offset of the first record; in a compressed message of magic 0 or 1, of the last."""
        return self.header.base_offset

    @property
    def last_offset(self) -> int:
        """Last offset that the batch covers, even if compaction has removed that record."""
        return self.header.base_offset + self.header.last_offset_delta

    @property
    def next_offset(self) -> int:
        """Offset after the last that the batch covers."""
        return self.last_offset + 1

    @property
    def is_control(self) -> bool:
        """True if the batch holds a control record instead of data records."""
        return self.header.is_control

    @property
    def is_transactional(self) -> bool:
        """True if the batch belongs to a transaction."""
        return self.header.is_transactional

    @property
    def producer_id(self) -> int:
        """Producer id of an idempotent producer, otherwise -1."""
        return self.header.producer_id

    def check_crc(self) -> None:
        """Raise CorruptRecordError if the batch's CRC does not match its bytes."""
        if self.header.magic < 2:
            legacy.check_crc(self.raw, self.topic, self.partition, self.base_offset)
        elif load_crc32c()(self.raw[_AFTER_CRC_AT:]) != self.header.crc:
            raise self._corrupt("the batch's CRC does not match its bytes")

    def section(self, limit: int = compression.MAX_DECOMPRESSED_BYTES_PER_BATCH) -> Section:
        """Check the CRC and return the records section, decompressed to at most `limit` bytes.

        Raises as `records`, and UnsupportedForMessageFormatError for a message set of magic 0 or 1.
        """
        if self.header.magic < 2:
            raise UnsupportedForMessageFormatError(
                f"a message set of magic {self.header.magic} has no records section",
                topic=self.topic,
                partition=self.partition,
                offset=self.base_offset,
            )
        payload, self._decompressed = self._decompressed, None
        self.decompressing = False
        if isinstance(payload, CorruptRecordError):
            raise payload
        header = self.header
        return kernel.Section(
            self._payload(limit) if payload is None else payload,
            header.records_count,
            header.base_offset,
            header.last_offset_delta,
            header.base_timestamp,
            header.max_timestamp,
            header.timestamp_type,
        )

    @property
    def compressed_bytes(self) -> int:
        """Size of the batch in bytes if it must still be decompressed, else 0."""
        compressed = (
            self._decompressed is None and self.header.magic == 2 and self.header.is_compressed
        )
        return self.raw.nbytes if compressed else 0

    @property
    def content_size(self) -> int:
        """Decompressed size in bytes if it can be decompressed together with others, else 0."""
        if self._content_size < 0:
            self._content_size = 0
            if self.compressed_bytes:
                codec = self.header.attributes & _CODEC_BITS
                self._content_size = compression.content_size(codec, self.raw[HEADER_SIZE:])
        return self._content_size

    @property
    def decompression_cost(self) -> int:
        """Estimated decompression time, in bytes that zstd would decompress in that time."""
        if not self.compressed_bytes:
            return 0
        if self._cost < 0:
            codec = self.header.attributes & _CODEC_BITS
            self._cost = self.content_size or compression.decompression_cost(
                codec, self.raw[HEADER_SIZE:]
            )
        return self._cost

    def begin_decompression(self) -> memoryview | None:
        """Return the bytes for the caller to decompress to `content_size` bytes.

        Return None if the CRC is wrong: the next read raises the error.
        """
        try:
            self.check_crc()
        except CorruptRecordError as error:
            self._decompressed = error
            return None
        self.decompressing = True
        return self.raw[HEADER_SIZE:]

    def end_decompression(self, decompressed: Buffer | None) -> None:
        """Set the decompressed bytes for the next read; None if decompression failed.

        After a failure the next read decompresses the batch and raises the error. Does nothing if
        the batch was read or discarded during decompression.
        """
        if self.decompressing:
            self.decompressing, self._decompressed = False, decompressed
            self.decompressed_bytes = self._content_size = (
                0 if decompressed is None else self._content_size
            )

    def discard_decompressed(self) -> None:
        """Discard the decompressed bytes, and the result of a decompression in progress."""
        self.decompressing = False
        if self.header.is_compressed:
            self._decompressed = None

    def decompress(self) -> None:
        """Check and decompress the batch; the next read uses the result or raises the error.

        May run in another thread than the one that reads the batch.
        """
        try:
            self._decompressed = self._payload(compression.MAX_DECOMPRESSED_BYTES_PER_BATCH)
        except CorruptRecordError as error:
            self._decompressed = error

    def _payload(self, limit: int) -> Buffer:
        self.check_crc()
        header, payload = self.header, self.raw[HEADER_SIZE:]
        # Compaction keeps an empty batch to preserve the producer's last sequence number.
        if header.records_count or payload.nbytes:
            try:
                if header.codec is not Codec.none:
                    decompressed = compression.decompress(header.codec, payload, limit)
                    self.decompressed_bytes = len(decompressed)
                    return decompressed
            except CorruptRecordError as error:
                raise self._corrupt(error.message) from error
        return payload

    def records(
        self, start: int = 0, limit: int = compression.MAX_DECOMPRESSED_BYTES_PER_BATCH
    ) -> list[Record]:
        """Return the records from offset `start` on; in a control batch, its control records.

        Raises CorruptRecordError, with topic, partition and offset, if the batch is corrupt or
        decompresses to more than `limit` bytes.
        """
        if self.header.magic < 2:
            topic, partition, _ = self._source()
            records, self.decompressed_bytes = legacy.read_records(
                self.raw, topic, partition, start, limit
            )
            return records
        return kernel.parse_records(self.section(limit), *self._source(), start)

    def reader(self, start: int = 0) -> RecordReader | LegacyRecordReader:
        """Return a reader of the records, which raises where a record is corrupt.

        Raises CorruptRecordError if the batch as a whole is corrupt or too large.
        """
        if self.header.magic < 2:
            return legacy.LegacyRecordReader(self.records(start))
        return kernel.RecordReader(self.section(), *self._source(), start)

    def _source(self) -> tuple[str, int, int]:
        """Return topic, partition and leader epoch of the records."""
        partition = -1 if self.partition is None else self.partition
        return self.topic or "", partition, self.header.leader_epoch

    def control(self) -> ControlMarker:
        """Return the marker of a control batch; raise CorruptRecordError if it is malformed."""
        records = self.records()
        try:
            return (
                decode_marker(records[0].key, records[0].value) if records else OTHER_CONTROL_RECORD
            )
        except CorruptRecordError as error:
            raise self._corrupt(error.message) from error

    def _corrupt(self, message: str) -> CorruptRecordError:
        return CorruptRecordError(
            message, topic=self.topic, partition=self.partition, offset=self.base_offset
        )

    def __repr__(self) -> str:
        kind = "control batch" if self.is_control else "batch"
        offsets = f"{self.topic}-{self.partition} offsets {self.base_offset}-{self.last_offset}"
        return f"<{kind} {offsets}, {self.raw.nbytes} bytes>"


def iter_batches(
    buffer: Buffer, *, topic: str | None = None, partition: int | None = None
) -> Iterator[BatchView]:
    """Yield the batches of a fetched buffer in order.

    A broker truncates its response to the requested size, so an incomplete last batch is legal and
    ends the iteration. Raises CorruptRecordError where the next batch cannot be found: an
    impossible length, an unknown magic, or offsets that do not ascend or exceed int64.
    """
    view = memoryview(buffer).cast("B")
    at = 0
    expected = 0

    def corrupt(what: str) -> CorruptRecordError:
        return CorruptRecordError(what, topic=topic, partition=partition, offset=expected)

    while view.nbytes - at > _MAGIC_AT:
        _, length = _PREFIX.unpack_from(view, at)
        magic = view[at + _MAGIC_AT]
        if magic > 2:
            raise corrupt(f"a batch has magic {magic}, which does not exist")
        if length < (legacy.MIN_LENGTH[magic] if magic < 2 else _MIN_LENGTH):
            raise corrupt(f"a batch has the impossible length {length}")
        end = at + _PREFIX.size + length
        if end > view.nbytes:
            return
        raw = view[at:end]
        header = BatchHeader.unpack(raw) if magic == 2 else _legacy_header(raw)
        # Compaction leaves gaps between batches, but offsets always ascend.
        if header.base_offset < expected:
            raise corrupt(f"a batch begins at {header.base_offset}, before the end of the last")
        if header.last_offset_delta < 0:
            raise corrupt("a batch ends before it begins")
        if header.last_offset_delta >= _MAX_OFFSET - header.base_offset:
            # The next offset would not fit into a fetch request, and would fail the whole request.
            raise corrupt("a batch's offsets are outside the legal range")
        batch = BatchView(header, raw, topic, partition)
        yield batch
        expected = batch.next_offset
        at = end


def _legacy_header(raw: memoryview) -> BatchHeader:
    head = legacy.read_head(raw)
    return BatchHeader(
        base_offset=head.offset,
        length=head.size,
        leader_epoch=NO_LEADER_EPOCH,
        magic=head.magic,
        crc=head.crc,
        attributes=head.attributes & (_CODEC_BITS | _LOG_APPEND_TIME),
        last_offset_delta=0,
        base_timestamp=head.timestamp,
        max_timestamp=head.timestamp,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=-1,
        base_sequence=-1,
        records_count=1,
    )
