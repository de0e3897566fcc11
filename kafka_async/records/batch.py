"""Record batches of magic 2: the 61-byte header, its CRC, and what producers and brokers do to it.

Reading starts with `iter_batches`, which walks a fetched buffer without copying; a `BatchView`
checks and decompresses its batch only when its records are asked for. The records themselves are
the kernel's. Message sets of magic 0 and 1 are read through the same view (see legacy.py).

The CRC covers everything after itself, so a broker assigns base offset and leader epoch without
touching it; a change of timestamp type or max timestamp must compute it anew.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, cast

from kafka_async import kernel
from kafka_async.arguments import several
from kafka_async.errors import CorruptRecordError, UnsupportedForMessageFormatError
from kafka_async.records import compression, legacy
from kafka_async.records.checksum import checksum
from kafka_async.records.compression import Codec
from kafka_async.records.marker import OTHER, ControlMarker, decode_marker

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
    """The header of a batch, field by field as on the wire."""

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
        """The header at `position`. Raises CorruptRecordError if fewer than 61 bytes are there."""
        try:
            return cls._make(_HEADER.unpack_from(buffer, position))
        except struct.error:
            raise CorruptRecordError("the batch ends inside its header") from None

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return self.length + _PREFIX.size

    @property
    def codec(self) -> Codec:
        """How the records are compressed. Raises CorruptRecordError for a codec nobody knows."""
        try:
            return Codec(self.attributes & _CODEC_BITS)
        except ValueError:
            raise CorruptRecordError(
                f"the batch names codec {self.attributes & _CODEC_BITS}, which does not exist"
            ) from None

    @property
    def is_compressed(self) -> bool:
        """Whether the records are compressed, with whatever codec."""
        return bool(self.attributes & _CODEC_BITS)

    @property
    def timestamp_type(self) -> int:
        """0 if producers set the timestamps (CreateTime), 1 if the broker did (LogAppendTime)."""
        return 1 if self.attributes & _LOG_APPEND_TIME else 0

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction."""
        return bool(self.attributes & _TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        """Whether the batch holds a marker instead of records."""
        return bool(self.attributes & _CONTROL)


# -- writing --------------------------------------------------------------------------------------


def encode_batch(  # noqa: PLR0913 one a field of the header
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
    log_append_time: bool = False,
) -> bytes:
    """A complete batch around a records section that is already compressed with `codec`."""
    attributes = (
        codec
        | (_LOG_APPEND_TIME if log_append_time else 0)
        | (_TRANSACTIONAL if transactional else 0)
        | (_CONTROL if control else 0)
    )
    times, producer = (base_timestamp, max_timestamp), (producer_id, producer_epoch, base_sequence)
    header = _header(payload, attributes, count, times, producer, base_offset, leader_epoch)
    return b"".join((header, payload))


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
    crc32c = checksum()
    length = _MIN_LENGTH + memoryview(payload).nbytes
    crc = crc32c(payload, crc32c(covered))
    return struct.pack(">qiibI", base_offset, length, leader_epoch, 2, crc) + covered


def assign_offsets(
    batch: Buffer, base_offset: int, leader_epoch: int, append_time_ms: int | None = None
) -> bytes:
    """The batch as a leader writes it into its log: its offsets, its epoch, perhaps its time.

    With `append_time_ms` the batch becomes one of LogAppendTime. `batch` is not changed.
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
        _CRC.pack_into(out, _CRC_AT, checksum()(memoryview(out)[_AFTER_CRC_AT:]))
    return bytes(out)


class RecordLike(Protocol):
    """What a ready-made batch is built of: a ProducerRecord or a consumed Record."""

    @property
    def key(self) -> bytes | None:
        """The key."""
        ...

    @property
    def value(self) -> bytes | None:
        """The value."""
        ...

    @property
    def headers(self) -> Headers:
        """The headers."""
        ...

    @property
    def timestamp(self) -> int | None:
        """Milliseconds since the epoch, or None."""
        ...


@dataclass(frozen=True, slots=True)
class RecordBatch:
    """A batch that is ready to be sent as it is: compressed once, sent to any partition.

    `payload` is the records section, compressed with `codec`. The header, which says who sends it
    and in which order, is made by `frame` each time it is sent.
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
        """A batch of these records; `timestamp` (ms) is for those that carry none.

        Raises ValueError if there are no records or the compression is unknown; TypeError for a
        key, value or header of the wrong type.
        """
        if compression not in Codec.__members__:
            raise ValueError(
                f"compression is one of {', '.join(Codec.__members__)}, not {compression!r}"
            )
        section = kernel.OpenBatch(None, 0x7FFF_FFFF)
        for record in cast("Iterable[RecordLike]", several(records, "records")):
            try:
                time, headers = record.timestamp, record.headers
            except AttributeError:
                raise TypeError(
                    f"each of records must be a ProducerRecord or a Record, not {record!r:.60}"
                ) from None
            section.append(timestamp if time is None else time, record.key, record.value, headers)
        return cls.seal(section, Codec[compression], level)

    @classmethod
    def seal(cls, section: kernel.OpenBatch, codec: Codec, level: int | None = None) -> RecordBatch:
        """The batch that an open one has become; seals it. Raises ValueError if it is empty."""
        if not section.count:
            raise ValueError("a batch has at least one record")
        return cls(
            compression.compress(codec, section.seal(), level),
            codec,
            section.count,
            section.base_timestamp,
            section.max_timestamp,
        )

    @property
    def size(self) -> int:
        """Bytes of the batch once it is framed."""
        return HEADER_SIZE + len(self.payload)

    def frame(
        self,
        *,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        transactional: bool = False,
    ) -> bytes:
        """The complete batch, from this producer, with this sequence."""
        header = self.header(
            producer_id, producer_epoch, base_sequence, transactional=transactional
        )
        return b"".join((header, self.payload))

    def header(
        self, producer_id: int, producer_epoch: int, base_sequence: int, *, transactional: bool
    ) -> bytes:
        """What comes before `payload` when it is sent so: together they are what `frame` gives."""
        return _header(
            self.payload,
            self.codec | (_TRANSACTIONAL if transactional else 0),
            self.count,
            (self.base_timestamp, self.max_timestamp),
            (producer_id, producer_epoch, base_sequence),
        )


# -- reading --------------------------------------------------------------------------------------


class BatchView:
    """A batch in a fetched buffer, checked and decompressed when its records are asked for.

    It refers to the buffer; whoever keeps a view keeps the whole buffer.
    """

    __slots__ = (
        "_effort",
        "_size",
        "_unpacked",
        "awaited",
        "decompressed_bytes",
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
        """Bytes that it was decompressed to; 0 if it has not been, or is not compressed."""
        self.awaited = False
        """Whether it is being decompressed with others: from `begin_decompression` on."""
        self._size = self._effort = -1  # what `content_size` and `decompression_cost` have found
        self._unpacked: Buffer | CorruptRecordError | None = None

    @property
    def base_offset(self) -> int:
        """The first record's offset (of a compressed message set of magic 0 or 1, the last's)."""
        return self.header.base_offset

    @property
    def last_offset(self) -> int:
        """The last offset that the batch covers, whether or not compaction has left a record."""
        return self.header.base_offset + self.header.last_offset_delta

    @property
    def next_offset(self) -> int:
        """Where reading goes on after this batch."""
        return self.last_offset + 1

    @property
    def is_control(self) -> bool:
        """Whether the batch holds a marker instead of records."""
        return self.header.is_control

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction."""
        return self.header.is_transactional

    @property
    def producer_id(self) -> int:
        """The idempotent producer's id, -1 for others."""
        return self.header.producer_id

    def check_crc(self) -> None:
        """Raise CorruptRecordError if the batch's bytes are not those that were written."""
        if self.header.magic < 2:
            legacy.check_crc(self.raw, self.topic, self.partition, self.base_offset)
        elif checksum()(self.raw[_AFTER_CRC_AT:]) != self.header.crc:
            raise self._corrupt("the batch's CRC does not match its bytes")

    def section(self, limit: int = compression.MAX_DECOMPRESSED_BYTES_PER_BATCH) -> Section:
        """The records section, its CRC checked, decompressed to at most `limit` bytes.

        Raises as `records`, and UnsupportedForMessageFormatError for a message set of magic 0 or 1.
        """
        if self.header.magic < 2:
            raise UnsupportedForMessageFormatError(
                f"a message set of magic {self.header.magic} has no records section",
                topic=self.topic,
                partition=self.partition,
                offset=self.base_offset,
            )
        payload, self._unpacked = self._unpacked, None
        self.awaited = False
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
        """Bytes to decompress before the records can be read; 0 if there is nothing to do."""
        packed = self._unpacked is None and self.header.magic == 2 and self.header.is_compressed
        return self.raw.nbytes if packed else 0

    @property
    def content_size(self) -> int:
        """What it decompresses to, in bytes, if it can be unpacked with others; else 0."""
        if self._size < 0:
            self._size = 0
            if self.compressed_bytes:
                codec = self.header.attributes & _CODEC_BITS
                self._size = compression.content_size(codec, self.raw[HEADER_SIZE:])
        return self._size

    @property
    def decompression_cost(self) -> int:
        """About how long decompressing it takes, in bytes that zstd makes in that time."""
        if not self.compressed_bytes:
            return 0
        if self._effort < 0:
            codec = self.header.attributes & _CODEC_BITS
            self._effort = self.content_size or compression.decompression_cost(
                codec, self.raw[HEADER_SIZE:]
            )
        return self._effort

    def begin_decompression(self) -> memoryview | None:
        """What somebody is to decompress, with others, to `content_size` bytes.

        None if it need not: its CRC is wrong, which the next reading raises.
        """
        try:
            self.check_crc()
        except CorruptRecordError as error:
            self._unpacked = error
            return None
        self.awaited = True
        return self.raw[HEADER_SIZE:]

    def end_decompression(self, unpacked: Buffer | None) -> None:
        """What the next reading gets; None: it decompresses alone, and says what is wrong.

        Nothing if it is not `awaited` any more.
        """
        if self.awaited:
            self.awaited, self._unpacked = False, unpacked
            self.decompressed_bytes = self._size = 0 if unpacked is None else self._size

    def pack(self) -> None:
        """Forget what it was, or is being, decompressed to."""
        self.awaited = False
        if self.header.is_compressed:
            self._unpacked = None

    def unpack(self) -> None:
        """Check and decompress ahead of the next reading, which gets the result or the error.

        A view may be unpacked in another thread than it is read in.
        """
        try:
            self._unpacked = self._payload(compression.MAX_DECOMPRESSED_BYTES_PER_BATCH)
        except CorruptRecordError as error:
            self._unpacked = error

    def _payload(self, limit: int) -> Buffer:
        self.check_crc()
        header, payload = self.header, self.raw[HEADER_SIZE:]
        # Compaction may leave a batch without records, to keep its producer's sequence.
        if header.records_count or payload.nbytes:
            try:
                if header.codec is not Codec.none:
                    unpacked = compression.decompress(header.codec, payload, limit)
                    self.decompressed_bytes = len(unpacked)
                    return unpacked
            except CorruptRecordError as error:
                raise self._corrupt(error.message) from error
        return payload

    def records(
        self, start: int = 0, limit: int = compression.MAX_DECOMPRESSED_BYTES_PER_BATCH
    ) -> list[Record]:
        """The records from offset `start` on; those of a control batch are its markers.

        Raises CorruptRecordError, with topic, partition and offset, if the batch is damaged or
        decompresses to more than `limit` bytes.
        """
        if self.header.magic < 2:
            topic, partition, _ = self._place()
            records, self.decompressed_bytes = legacy.read_records(
                self.raw, topic, partition, start, limit
            )
            return records
        return kernel.parse_records(self.section(limit), *self._place(), start)

    def reader(self, start: int = 0) -> RecordReader | LegacyRecordReader:
        """What gives the records of `records` some at a time, and raises where one is damaged.

        Raises CorruptRecordError at once if the batch as a whole is damaged or too large.
        """
        if self.header.magic < 2:
            return legacy.LegacyRecordReader(self.records(start))
        return kernel.RecordReader(self.section(), *self._place(), start)

    def _place(self) -> tuple[str, int, int]:
        """Topic, partition and leader epoch of the records."""
        partition = -1 if self.partition is None else self.partition
        return self.topic or "", partition, self.header.leader_epoch

    def control(self) -> ControlMarker:
        """The marker of a control batch. Raises CorruptRecordError if it cannot be read."""
        records = self.records()
        try:
            return decode_marker(records[0].key, records[0].value) if records else OTHER
        except CorruptRecordError as error:
            raise self._corrupt(error.message) from error

    def _corrupt(self, message: str) -> CorruptRecordError:
        return CorruptRecordError(
            message, topic=self.topic, partition=self.partition, offset=self.base_offset
        )

    def __repr__(self) -> str:
        kind = "control batch" if self.is_control else "batch"
        place = f"{self.topic}-{self.partition} offsets {self.base_offset}-{self.last_offset}"
        return f"<{kind} {place}, {self.raw.nbytes} bytes>"


def iter_batches(
    buffer: Buffer, *, topic: str | None = None, partition: int | None = None
) -> Iterator[BatchView]:
    """The batches of a fetched buffer, in order.

    A broker cuts what it sends at the size asked for, so a batch that goes beyond the buffer is
    legal and ends the iteration. Raises CorruptRecordError where the next batch cannot be found: an
    impossible length, an unknown magic, offsets that do not ascend or have no end.
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
        if header.base_offset < expected:
            raise corrupt(f"a batch begins at {header.base_offset}, before the end of the last")
        if header.last_offset_delta < 0:
            raise corrupt("a batch ends before it begins")
        if header.last_offset_delta >= _MAX_OFFSET - header.base_offset:
            # Nobody could ask for what comes after it, nor for anything else in the same request.
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
