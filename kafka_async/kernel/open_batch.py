"""Appends records to open batches."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, NoReturn

from kafka_async.errors import IllegalStateError
from kafka_async.kernel.key_hash import murmur2
from kafka_async.kernel.record_columns import selected_rows
from kafka_async.kernel.record_encoder import NULL, encode_headers
from kafka_async.kernel.shared import MAX_INT32, MAX_TIMESTAMP, copy_error, to_bytes
from kafka_async.kernel.values import Delivery, DeliveryFields
from kafka_async.kernel.varints import VARINTS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Buffer

    from kafka_async.kernel.record_columns import RecordColumns
    from kafka_async.kernel.values import DeliveryOutcome
    from kafka_async.types import Headers


class OpenBatch:
    """Appends records to the records section of an open batch. Owned by one thread.

    `capacity` limits the section in bytes, without the 61 bytes of the batch header. The first
    record is accepted at any size. The buffer grows as records are appended.
    """

    __slots__ = (
        "_base_timestamp",
        "_capacity",
        "_closed",
        "_count",
        "_max_timestamp",
        "_outcome",
        "_parts",
        "_size",
    )

    def __init__(self, outcome: DeliveryOutcome | None, capacity: int) -> None:
        if not 0 <= capacity <= MAX_INT32:
            raise ValueError(f"a batch's capacity is 0 to {MAX_INT32} bytes, not {capacity}")
        self._outcome = outcome
        self._capacity = capacity
        self._parts: list[bytes] = []
        self._size = 0
        self._count = 0
        self._base_timestamp = -1
        self._max_timestamp = -1
        self._closed = False

    def __reduce__(self) -> NoReturn:
        raise copy_error(self)

    @property
    def outcome(self) -> DeliveryOutcome | None:
        """Outcome shared by the deliveries of this batch."""
        return self._outcome

    @property
    def capacity(self) -> int:
        """Maximum size of the section in bytes."""
        return self._capacity

    @property
    def count(self) -> int:
        """Number of appended records."""
        return self._count

    @property
    def size(self) -> int:
        """Size of the section in bytes; 0 once the batch is closed."""
        return self._size

    @property
    def base_timestamp(self) -> int:
        """Timestamp of the first record, -1 while the batch is empty."""
        return self._base_timestamp

    @property
    def max_timestamp(self) -> int:
        """Largest timestamp of a record, -1 while the batch is empty."""
        return self._max_timestamp

    @property
    def closed(self) -> bool:
        """True once the batch was closed for appends."""
        return self._closed

    def append(
        self,
        timestamp_ms: int,
        key: Buffer | None = None,
        value: Buffer | None = None,
        headers: Headers = (),
    ) -> Delivery | None:
        """Append a record; return its handle, or None, without a change, if it does not fit.

        Raises:
            TypeError: The timestamp, the key, the value or a header has the wrong type.
            ValueError: The timestamp is not in -1 to 2**63 - 2, or the record exceeds 2 GiB.
            IllegalStateError: The batch is closed.
        """
        self._check_open()
        timestamp = _check_timestamp(timestamp_ms)
        fields = [b"\0", b"", b""]
        for field in (key, value):
            if field is None:
                fields.append(NULL)
            else:
                data = field if type(field) is bytes else to_bytes(field)
                fields += (VARINTS[len(data)], data)
        fields.append(encode_headers(headers) if len(headers) else b"\0")
        # No code of the caller runs from here on, so an append is never left half done.
        self._check_open()
        count = self._count
        base = self._base_timestamp if count else timestamp
        fields[1], fields[2] = VARINTS[timestamp - base], VARINTS[count]
        body = b"".join(fields)
        length = VARINTS[len(body)]
        size = self._size + len(length) + len(body)
        if size > self._capacity and count:
            return None
        if size > MAX_INT32:
            raise ValueError("a record may not exceed 2 GiB")
        self._parts += (length, body)
        self._size = size
        self._count = count + 1
        self._base_timestamp = base
        if timestamp > self._max_timestamp:
            self._max_timestamp = timestamp
        delivery: Any = DeliveryFields()
        delivery.outcome = self._outcome
        delivery.index = count
        delivery.timestamp = timestamp
        delivery.__class__ = Delivery
        return delivery

    def extend(self, capacity: int) -> None:
        """Raise the capacity to `capacity` bytes; never lower it."""
        if not 0 <= capacity <= MAX_INT32:
            raise ValueError(f"a batch's capacity is 0 to {MAX_INT32} bytes, not {capacity}")
        self._capacity = max(self._capacity, capacity)

    def close(self) -> bytes:
        """Close the batch for appends and return its records section, uncompressed.

        Raises:
            IllegalStateError: The batch is already closed.
        """
        self._check_open()
        section = b"".join(self._parts)
        self._parts = []
        self._size = 0
        self._closed = True
        return section

    def _check_open(self) -> None:
        if self._closed:
            raise IllegalStateError("the batch is closed")

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{self.size} of {self._capacity} bytes"
        return f"<OpenBatch {self._count} records, {state}>"


def _check_timestamp(timestamp_ms: int) -> int:
    timestamp = operator.index(timestamp_ms)  # int() would round a float
    if not -1 <= timestamp <= MAX_TIMESTAMP:
        raise ValueError(f"a timestamp is -1 to {MAX_TIMESTAMP} ms, not {timestamp_ms}")
    return timestamp


class TopicOpenBatches:
    """Appends records to the open batches of one topic, by partition. Owned by one thread.

    `partitions` is the topic's number of partitions, 0 while unknown. `sticky_partition` is the
    partition of records with neither key nor partition, -1 before the partitioner has chosen it.
    """

    __slots__ = ("_batches", "partitions", "sticky_partition")

    def __init__(self) -> None:
        self.partitions = 0
        self.sticky_partition = -1
        self._batches: dict[int, OpenBatch] = {}

    def __reduce__(self) -> NoReturn:
        raise copy_error(self)

    def __len__(self) -> int:
        return len(self._batches)

    def add(self, partition: int, batch: OpenBatch) -> None:
        """Append records of the partition to this batch from now on."""
        self._batches[partition] = batch

    def remove(self, partition: int) -> None:
        """Remove the open batch of the partition."""
        self._batches.pop(partition, None)

    def append(
        self,
        timestamp_ms: int,
        key: Buffer | None = None,
        value: Buffer | None = None,
        headers: Headers = (),
        partition: int | None = None,
    ) -> Delivery | None:
        """Append a record to the open batch of `partition`, by default the key's partition.

        Returns None and changes nothing if the partition has no open batch or the record does not
        fit. Raises as `OpenBatch.append`.
        """
        batch = self._find_batch(key, partition)
        return None if batch is None else batch.append(timestamp_ms, key, value, headers)

    def append_many(
        self,
        timestamp_ms: int,
        values: Sequence[Buffer | None],
        keys: Sequence[Buffer | None] | None = None,
        partition: int | None = None,
    ) -> list[Delivery]:
        """Append values, each with its key if there are keys, until `append` returns None.

        Returns the handles of the appended records. An exception ends the call; it is raised only
        if no record was appended before, so that no handle is lost.
        """
        total = len(values)
        if keys is not None and len(keys) != total:
            raise ValueError(f"{len(keys)} keys for {total} values")
        deliveries: list[Delivery] = []
        batch: OpenBatch | None = None
        hashed = keys is not None and partition is None
        key = None
        for index in range(total):
            try:
                if keys is not None:
                    key = keys[index]
                # The loop ends at the first record that finds no batch, does not fit or raises. All
                # records share a batch unless their keys choose the partitions.
                if hashed or batch is None:
                    batch = self._find_batch(key, partition)
                    if batch is None:
                        break
                delivery = batch.append(timestamp_ms, key, values[index])
            except Exception:
                if deliveries:
                    break
                raise
            if delivery is None:
                break
            deliveries.append(delivery)
        return deliveries

    def append_rows(
        self,
        timestamp_ms: int,
        columns: RecordColumns,
        start: int,
        end: int,
        selection: Buffer | None = None,
    ) -> int:
        """Append rows of Arrow columns until one does not fit; return the position of that row.

        A row without a timestamp gets `timestamp_ms`; a row without a partition goes to its key's
        partition. Rows are appended as by `append`, but no handles are made.

        Args:
            timestamp_ms: Milliseconds since the epoch.
            columns: The columns.
            start: First row, or first position in `selection`.
            end: Row or position after the last one.
            selection: Numbers of the rows as int64.

        Returns:
            The row or position of the first row that was not appended; `end` if all were.

        Raises:
            IndexError: A row does not exist.
            ValueError: A timestamp is out of range, or a column is not valid.
        """
        _check_timestamp(timestamp_ms)
        for at, row in enumerate(selected_rows(start, end, selection), start):
            key, value, headers, partition, timestamp = columns.record(row)
            stamp = timestamp_ms if timestamp is None else timestamp
            if partition is not None and partition >= self.partitions:
                return at
            if self.append(stamp, key, value, headers, partition) is None:
                return at
        return end

    def _find_batch(self, key: Buffer | None, partition: int | None) -> OpenBatch | None:
        if not self.partitions:
            return None
        if partition is None:
            partition = self.sticky_partition
            if key is not None:
                partition = (murmur2(key) & MAX_INT32) % self.partitions
        return self._batches.get(partition)
