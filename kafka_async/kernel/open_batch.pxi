"""Appends records to open batches."""

cdef enum:
    # Sizes of an open batch's buffer in bytes: the first size; the size up to which it doubles; the
    # largest capacity allocated at once.
    INITIAL_BUFFER_SIZE = 512
    SMALL_BUFFER_SIZE = 4096
    MAX_EAGER_ALLOCATION = 1 << 20


@cython.final
cdef class OpenBatch:
    """Appends records to the records section of an open batch. Owned by one thread."""

    cdef readonly object outcome
    cdef readonly Py_ssize_t capacity
    cdef readonly Py_ssize_t size
    cdef readonly int64_t base_timestamp
    cdef readonly int64_t max_timestamp
    cdef readonly int32_t count
    cdef readonly bint closed
    cdef PyObject* storage  # a bytes object without other references, until it becomes the section
    cdef uint8_t* buffer  # its bytes
    cdef Py_ssize_t allocated

    def __init__(self, outcome, capacity):
        if not 0 <= capacity <= MAX_INT32:
            raise ValueError(f"a batch's capacity is 0 to {MAX_INT32} bytes, not {capacity}")
        self.outcome = outcome
        self.capacity = capacity
        self.base_timestamp = -1
        self.max_timestamp = -1

    def __dealloc__(self):
        Py_XDECREF(self.storage)

    def __reduce__(self):
        # The code that Cython generates would give the buffer a second owner.
        raise copy_error(self)

    @cython.binding(False)
    def append(self, timestamp_ms, key=None, value=None, headers=()):
        """Append a record; return its handle, or None, without a change, if it does not fit."""
        return self.put(self.validate_timestamp(timestamp_ms), key, value, headers)

    def extend(self, capacity):
        """Raise the capacity to `capacity` bytes; never lower it."""
        if not 0 <= capacity <= MAX_INT32:
            raise ValueError(f"a batch's capacity is 0 to {MAX_INT32} bytes, not {capacity}")
        if capacity > self.capacity:
            self.capacity = capacity

    def close(self):
        """Close the batch for appends and return its records section, uncompressed."""
        cdef PyObject* storage = self.storage
        cdef Py_ssize_t size = self.size
        self.check_open()
        self.storage = NULL
        self.buffer = NULL
        self.allocated = self.size = 0
        self.closed = True
        if storage == NULL:
            return b""
        _PyBytes_Resize(&storage, size)
        section = <object>storage
        Py_DECREF(section)
        return section

    def __repr__(self):
        state = "closed" if self.closed else f"{self.size} of {self.capacity} bytes"
        return f"<OpenBatch {self.count} records, {state}>"

    cdef inline int check_open(self) except -1:
        if self.closed:
            raise IllegalStateError("the batch is closed")
        return 0

    cdef int64_t validate_timestamp(self, object timestamp_ms) except? -2:
        self.check_open()
        return to_timestamp(timestamp_ms)

    cdef object put(self, int64_t timestamp, object key, object value, object headers):
        cdef int64_t base
        cdef uint64_t time_delta, offset_delta
        cdef Py_ssize_t body, size
        cdef tuple pairs = None
        cdef uint8_t* at
        if key is not None and not PyBytes_CheckExact(key):
            key = to_bytes(key)
        if value is not None and not PyBytes_CheckExact(value):
            value = to_bytes(value)
        if headers is not EMPTY and len(headers):
            pairs = as_headers(headers)
        # No code of the caller runs from here on, so an append is never left half done.
        self.check_open()
        base = self.base_timestamp if self.count else timestamp
        time_delta = zigzag(timestamp - base)
        offset_delta = zigzag(self.count)
        body = 1 + varint_size(time_delta) + varint_size(offset_delta)
        body += field_size(key) + field_size(value)
        body += 1 if pairs is None else headers_size(pairs)
        size = self.size + varint_size(zigzag(body)) + body
        if size > self.capacity and self.count:
            return None
        if size > self.allocated:
            self.grow(size)
        at = put_varint(self.buffer + self.size, zigzag(body))
        at[0] = 0
        at = put_varint(at + 1, time_delta)
        at = put_varint(at, offset_delta)
        at = put_field(at, key)
        at = put_field(at, value)
        if pairs is None:
            at[0] = 0
        else:
            put_headers(at, pairs)
        delivery = new_delivery(self.outcome, self.count, timestamp)
        self.size = size
        self.base_timestamp = base
        if timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
        self.count += 1
        return delivery

    cdef int put_row(
        self, int64_t timestamp, RecordColumns columns, InputRow* row
    ) except -1:
        """Append a row of Arrow columns and return 1; return 0 if it does not fit."""
        cdef int64_t base = self.base_timestamp if self.count else timestamp
        cdef uint64_t time_delta = zigzag(timestamp - base)
        cdef uint64_t offset_delta = zigzag(self.count)
        cdef Py_ssize_t body = 1 + varint_size(time_delta) + varint_size(offset_delta)
        cdef Py_ssize_t size
        cdef uint8_t* at
        self.check_open()
        body += bytes_field_size(row.key_size) + bytes_field_size(row.value_size)
        body += varint_size(zigzag(row.header_count)) + row.headers_size
        size = self.size + varint_size(zigzag(body)) + body
        if size > self.capacity and self.count:
            return 0
        if size > self.allocated:
            self.grow(size)
        at = put_varint(self.buffer + self.size, zigzag(body))
        at[0] = 0
        at = put_varint(at + 1, time_delta)
        at = put_varint(at, offset_delta)
        at = put_bytes_field(at, row.key, row.key_size)
        at = put_bytes_field(at, row.value, row.value_size)
        if row.header_count:
            columns.put_headers(at, row)
        else:
            at[0] = 0
        self.size = size
        self.base_timestamp = base
        if timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
        self.count += 1
        return 1

    cdef int grow(self, Py_ssize_t needed) except -1:
        cdef Py_ssize_t wanted = self.allocated or INITIAL_BUFFER_SIZE
        if needed > MAX_INT32:
            raise ValueError("a record may not exceed 2 GiB")
        while wanted < needed:
            wanted *= 2
        # Never allocate more than the capacity, and allocate all of a small capacity at once: pages
        # that were not written to take no memory yet.
        if needed <= self.capacity < (
            MAX_EAGER_ALLOCATION if wanted > SMALL_BUFFER_SIZE else wanted
        ):
            wanted = self.capacity
        # Copy the records: a failing _PyBytes_Resize would lose them.
        grown = PyBytes_FromStringAndSize(NULL, wanted)
        if self.size:
            memcpy(PyBytes_AS_STRING(grown), self.buffer, self.size)
        Py_XDECREF(self.storage)
        Py_INCREF(grown)
        self.storage = <PyObject*>grown
        self.buffer = <uint8_t*>PyBytes_AS_STRING(grown)
        self.allocated = wanted
        return 0


cdef int64_t to_timestamp(object timestamp_ms) except? -2:
    cdef int overflow = 0
    # int(timestamp_ms) would round a float.
    cdef int64_t timestamp = PyLong_AsLongLongAndOverflow(PyNumber_Index(timestamp_ms), &overflow)
    if overflow or not -1 <= timestamp <= MAX_TIMESTAMP:
        raise ValueError(f"a timestamp is -1 to {MAX_TIMESTAMP} ms, not {timestamp_ms}")
    return timestamp


@cython.final
cdef class TopicOpenBatches:
    """Appends records to the open batches of one topic, by partition. Owned by one thread."""

    cdef public Py_ssize_t partitions
    cdef Py_ssize_t _sticky_partition
    cdef OpenBatch sticky_batch  # the open batch of that partition
    cdef dict batches

    def __init__(self):
        self.batches = {}
        self.sticky_partition = -1

    @property
    def sticky_partition(self):
        return self._sticky_partition

    @sticky_partition.setter
    def sticky_partition(self, partition):
        self._sticky_partition = partition
        self.sticky_batch = self.batches.get(partition)

    def __reduce__(self):
        raise copy_error(self)

    def __len__(self):
        return len(self.batches)

    def add(self, partition, OpenBatch batch not None):
        """Append records of the partition to this batch from now on."""
        self.batches[partition] = batch
        if partition == self._sticky_partition:
            self.sticky_batch = batch

    def remove(self, partition):
        """Remove the open batch of the partition."""
        self.batches.pop(partition, None)
        if partition == self._sticky_partition:
            self.sticky_batch = None

    @cython.binding(False)
    def append(self, timestamp_ms, key=None, value=None, headers=(), partition=None):
        """Append a record to the open batch of `partition`, by default the key's partition."""
        cdef OpenBatch batch = self.find_batch(key, partition)
        if batch is None:
            return None
        return batch.put(batch.validate_timestamp(timestamp_ms), key, value, headers)

    def append_many(self, timestamp_ms, values, keys=None, partition=None):
        """Append values, each with its key if there are keys, until `append` returns None."""
        cdef list deliveries = []
        cdef Py_ssize_t index, total = len(values)
        cdef OpenBatch batch = None
        cdef int64_t timestamp = -1
        cdef bint hashed = keys is not None and partition is None
        key = None
        if keys is not None and len(keys) != total:
            raise ValueError(f"{len(keys)} keys for {total} values")
        for index in range(total):
            try:
                if keys is not None:
                    key = keys[index]
                if hashed or batch is None:
                    batch = self.find_batch(key, partition)
                    if batch is None:
                        break
                    if index == 0:
                        timestamp = batch.validate_timestamp(timestamp_ms)
                delivery = batch.put(timestamp, key, values[index], ())
            except Exception:
                if deliveries:
                    break
                raise
            if delivery is None:
                break
            deliveries.append(delivery)
        return deliveries

    def append_rows(
        self, timestamp_ms, RecordColumns columns not None, Py_ssize_t start, Py_ssize_t end,
        selection=None,
    ):
        """Append rows of Arrow columns until one does not fit; return the position of that row."""
        cdef int64_t timestamp, given = to_timestamp(timestamp_ms)
        cdef int64_t partition
        cdef Py_ssize_t at
        cdef InputRow row
        cdef SelectedRows rows = SelectedRows(start, end, selection)
        cdef OpenBatch sticky = self.sticky_batch
        cdef PyObject** batches = NULL  # by partition; the loop runs no code of the caller
        cdef PyObject* batch
        try:
            for at in range(start, end):
                columns.check_header_name(columns.load(rows.row(at), &row))
                timestamp = given
                if row.has_timestamp:
                    timestamp = row.timestamp
                    if not -1 <= timestamp <= MAX_TIMESTAMP:
                        to_timestamp(timestamp)
                if not self.partitions:
                    return at
                if not row.has_partition and row.key_size < 0:
                    batch = <PyObject*>sticky if sticky is not None else NULL
                else:
                    partition = row.partition
                    if not row.has_partition:
                        partition = murmur2_bytes(row.key, row.key_size) & MAX_INT32
                        partition %= self.partitions
                    if batches == NULL:
                        batches = self.batches_by_partition()
                    batch = batches[partition] if 0 <= partition < self.partitions else NULL
                if batch == NULL or not (<OpenBatch>batch).put_row(timestamp, columns, &row):
                    return at
        finally:
            PyMem_Free(batches)
        return end

    cdef PyObject** batches_by_partition(self) except NULL:
        """Return the open batches in an array, which the caller frees."""
        cdef Py_ssize_t size = self.partitions * sizeof(PyObject*)
        cdef Py_ssize_t number
        cdef PyObject** found = <PyObject**>PyMem_Malloc(size)
        if found == NULL:
            raise MemoryError
        memset(found, 0, size)
        for partition, batch in self.batches.items():
            number = partition
            if 0 <= number < self.partitions:
                found[number] = <PyObject*>batch
        return found

    cdef OpenBatch find_batch(self, object key, object partition):
        if not self.partitions:
            return None
        if partition is None:
            if key is None:
                return self.sticky_batch
            partition = (murmur2_hash(key) & MAX_INT32) % self.partitions
        return self.batches.get(partition)
