"""Reads the records of a batch."""

cdef enum:
    MIN_RECORD_SIZE = 7
    CACHED_HEADERS = 8  # by their position in the record; a power of two


cdef struct Row:
    int64_t offset
    int64_t timestamp
    const uint8_t* key
    const uint8_t* value
    const uint8_t* headers   # after their count
    const uint8_t* end
    Py_ssize_t key_size      # -1 is null
    Py_ssize_t value_size
    int32_t header_count
    int32_t timestamp_type


cdef struct Limits:
    int64_t base_offset
    int64_t last_delta
    int64_t base_timestamp
    int64_t max_timestamp
    int64_t count
    int32_t timestamp_type


cdef inline int read_field(
    Cursor* cursor, int fault, const uint8_t** data, Py_ssize_t* size
) noexcept nogil:
    cdef int64_t length
    cdef int problem = read_varint(cursor, 32, &length)
    if problem:
        return problem
    if length < -1 or length > remaining(cursor):
        return fault
    data[0] = cursor.at
    size[0] = length
    if length > 0:
        cursor.at += length
    return VALID


cdef inline int read_header(
    Cursor* cursor, const uint8_t** name, Py_ssize_t* name_size,
    const uint8_t** value, Py_ssize_t* value_size,
) noexcept nogil:
    cdef int problem = read_field(cursor, HEADER, name, name_size)
    if problem:
        return problem
    if name_size[0] < 0:
        return HEADER
    return read_field(cursor, HEADER, value, value_size)


cdef int skip_headers(Cursor* cursor, int64_t count) noexcept nogil:
    cdef const uint8_t* data
    cdef Py_ssize_t size
    cdef int problem
    while count:
        problem = read_header(cursor, &data, &size, &data, &size)
        if problem:
            return problem
        count -= 1
    return VALID


cdef int read_row(
    Cursor* section, Limits* limits, int64_t previous_delta, Row* row
) noexcept nogil:
    cdef Cursor cursor
    cdef int64_t number, time_delta, delta
    cdef int problem = read_varint(section, 32, &number)
    if problem:
        return problem
    if number < 0 or number > remaining(section):
        return LENGTH
    if number == 0:
        return TRUNCATED
    cursor.at = section.at + 1  # no attributes are defined
    cursor.end = section.at + number
    section.at = cursor.end
    problem = read_varint(&cursor, 64, &time_delta)
    if problem:
        return problem
    problem = read_varint(&cursor, 32, &delta)
    if problem:
        return problem
    if delta <= previous_delta or delta > limits.last_delta:
        return OFFSET_DELTA
    row.offset = limits.base_offset + delta
    row.timestamp_type = limits.timestamp_type
    row.timestamp = limits.max_timestamp
    if limits.timestamp_type == 0:
        if time_delta > 0 and limits.base_timestamp > MAX_INT64 - time_delta:
            return TIMESTAMP
        if time_delta < 0 and limits.base_timestamp < -MAX_INT64 - 1 - time_delta:
            return TIMESTAMP
        row.timestamp = limits.base_timestamp + time_delta
    problem = read_field(&cursor, FIELD, &row.key, &row.key_size)
    if problem:
        return problem
    problem = read_field(&cursor, FIELD, &row.value, &row.value_size)
    if problem:
        return problem
    problem = read_varint(&cursor, 32, &number)
    if problem:
        return problem
    if number < 0 or number * 2 > remaining(&cursor):  # a header is at least two lengths
        return HEADER_COUNT
    row.header_count = <int32_t>number
    row.headers = cursor.at
    row.end = cursor.end
    problem = skip_headers(&cursor, number)
    if problem:
        return problem
    return RECORD_LEFTOVER if cursor.at != cursor.end else VALID


cdef int open_section(object section, Py_ssize_t size, Limits* limits) except -1:
    _, limits.count, limits.base_offset, limits.last_delta, limits.base_timestamp, \
        limits.max_timestamp, limits.timestamp_type = section
    if limits.base_offset < 0 or limits.last_delta < 0:
        return OFFSETS
    if limits.last_delta >= MAX_INT64 - limits.base_offset:
        return OFFSETS
    # The first comparison keeps the multiplication from overflowing.
    if limits.count < 0 or limits.count > size or limits.count * MIN_RECORD_SIZE > size:
        return COUNT
    return VALID


cdef inline object to_field(const uint8_t* data, Py_ssize_t size):
    return None if size < 0 else PyBytes_FromStringAndSize(<const char*>data, size)


cdef inline void set_attribute(PyObject** attribute, object value) noexcept:
    Py_INCREF(value)
    attribute[0] = <PyObject*>value


# A header in the section.
cdef struct RawHeader:
    const uint8_t* at
    const uint8_t* name
    Py_ssize_t size
    Py_ssize_t name_size


@cython.final
cdef class RecordReader:
    """Reads the records of a section from offset `start` on, some at a time."""

    # Objects equal to the previous record's are reused: mostly the timestamp, header names, and
    # some whole headers. The bytes in the section are compared.
    cdef object topic
    cdef object partition
    cdef object epoch
    cdef object timestamp
    cdef object timestamp_type
    cdef int64_t last_timestamp
    cdef list last_headers
    cdef dict short_names
    cdef RawHeader raw_headers[CACHED_HEADERS]
    # The section, whose buffer is held only during a call: the garbage collector could not break
    # a cycle through an exported buffer.
    cdef object data
    cdef Py_ssize_t size
    cdef Py_ssize_t at
    cdef Limits limits
    cdef int64_t first
    cdef int64_t delta
    cdef int64_t remaining_records

    def __init__(self, section, topic, partition, leader_epoch=-1, start=0):
        cdef int problem
        if self.last_headers is not None:
            raise TypeError("a reader reads one section")
        self.topic = topic
        self.partition = partition
        self.epoch = None if leader_epoch < 0 else leader_epoch
        self.last_headers = [None] * CACHED_HEADERS
        self.first = start
        self.delta = -1
        self.data = section[0]
        self.size = memoryview(self.data).nbytes
        problem = open_section(section, self.size, &self.limits)
        if problem:
            raise self.corruption(problem)
        self.remaining_records = self.limits.count

    def __reduce__(self):
        raise copy_error(self)

    @property
    def done(self):
        """True if the section was read to its end without an error."""
        return self.remaining_records == 0 and self.at == self.size

    def read(self, count, size=0x7FFF_FFFF_FFFF_FFFF):
        """Read the next `count` records and return those at offset `start` or higher."""
        cdef list records = []
        cdef int problem = self.read_into(records, count, size)
        if problem and not records:
            raise self.corruption(problem)
        return records

    cdef object corruption(self, int problem):
        # In this order: a refused base offset may be the lowest integer.
        offset = self.limits.base_offset + (self.delta + 1)
        return corrupt_record_error(problem, self.topic, self.partition, offset)

    cdef int read_into(self, list records, int64_t count, int64_t size) except -1:
        cdef Py_buffer data
        PyObject_GetBuffer(self.data, &data, PyBUF_SIMPLE)
        try:
            self.size = data.len
            if self.at > data.len:  # the section's owner has changed it
                return TRUNCATED
            memset(self.raw_headers, 0, sizeof(self.raw_headers))
            return self.read_rows(records, count, size, <const uint8_t*>data.buf)
        finally:
            PyBuffer_Release(&data)

    cdef int read_rows(
        self, list records, int64_t count, int64_t size, const uint8_t* begin
    ) except -1:
        cdef Cursor cursor
        cdef Row row
        cdef int problem
        cdef Py_ssize_t first = self.at
        cursor.at = begin + self.at
        cursor.end = begin + self.size
        while self.remaining_records:
            if count <= 0 or self.at - first >= size:
                return VALID
            problem = read_row(&cursor, &self.limits, self.delta, &row)
            if problem:
                return problem
            self.at = cursor.at - begin
            count -= 1
            self.remaining_records -= 1
            self.delta = row.offset - self.limits.base_offset
            if row.offset >= self.first:
                records.append(self.record(&row))
        return SECTION_LEFTOVER if self.at != self.size else VALID

    cdef Record record(self, Row* row):
        cdef object offset = row.offset
        cdef object key = to_field(row.key, row.key_size)
        cdef object value = to_field(row.value, row.value_size)
        cdef object headers = self.headers(row) if row.header_count else EMPTY
        if self.timestamp is None or row.timestamp != self.last_timestamp:
            self.timestamp = row.timestamp
            self.timestamp_type = row.timestamp_type
            self.last_timestamp = row.timestamp
        # Record.__new__ would first set all attributes to None. The garbage collector does not
        # track the record: its attributes are bytes, text and numbers, which form no cycles.
        cdef PyObject* made = _PyObject_GC_New(<PyTypeObject*>Record)
        cdef PyObject** attributes = <PyObject**>(<char*>made + RECORD_ATTRIBUTES)
        set_attribute(&attributes[0], self.topic)
        set_attribute(&attributes[1], self.partition)
        set_attribute(&attributes[2], offset)
        set_attribute(&attributes[3], self.timestamp)
        set_attribute(&attributes[4], self.timestamp_type)
        set_attribute(&attributes[5], key)
        set_attribute(&attributes[6], value)
        set_attribute(&attributes[7], headers)
        set_attribute(&attributes[8], self.epoch)
        record = <Record>made
        Py_DECREF(record)  # the reference from _PyObject_GC_New; the variable has its own
        return record

    cdef tuple headers(self, Row* row):
        cdef Cursor cursor
        cdef int32_t index
        cdef tuple headers = PyTuple_New(row.header_count)
        cursor.at = row.headers
        cursor.end = row.end
        for index in range(row.header_count):
            header = self.header(&cursor, index & (CACHED_HEADERS - 1), row.offset)
            Py_INCREF(header)
            PyTuple_SET_ITEM(headers, index, header)
        PyObject_GC_UnTrack(headers)
        return headers

    cdef object header_name(self, const uint8_t* data, Py_ssize_t size):
        name = PyUnicode_DecodeUTF8(<const char*>data, size, "replace")
        # A one-byte name that is not UTF-8 becomes a string of 76 bytes. Sharing the few short
        # names keeps a batch full of them within its memory limit.
        if 0 < size <= 2 and (data[0] | data[size - 1]) & 0x80:
            if self.short_names is None:
                self.short_names = {}
            return self.short_names.setdefault(name, name)
        return name

    cdef inline object header(self, Cursor* cursor, int slot, int64_t offset):
        cdef RawHeader* last = &self.raw_headers[slot]
        cdef RawHeader new
        cdef const uint8_t* value = NULL
        cdef Py_ssize_t value_size = 0
        cdef int problem
        new.at = cursor.at
        problem = read_header(cursor, &new.name, &new.name_size, &value, &value_size)
        if problem:  # the section's owner has changed it after validation
            raise corrupt_record_error(problem, self.topic, self.partition, offset)
        new.size = cursor.at - new.at
        if new.size == last.size and memcmp(new.at, last.at, new.size) == 0:
            return self.last_headers[slot]
        if last.size and new.name_size == last.name_size \
                and memcmp(new.name, last.name, new.name_size) == 0:
            name = (<tuple>self.last_headers[slot])[0]
        else:
            name = self.header_name(new.name, new.name_size)
        header = (name, to_field(value, value_size))
        PyObject_GC_UnTrack(header)
        self.last_headers[slot] = header
        last[0] = new
        return header


def parse_records(section, topic, partition, leader_epoch=-1, start=0):
    """Return all records of a section from offset `start` on; the whole section is validated."""
    cdef RecordReader reader = RecordReader(section, topic, partition, leader_epoch, start)
    cdef list records = []
    cdef int problem = reader.read_into(records, MAX_INT64, MAX_INT64)
    if problem:
        raise reader.corruption(problem)
    return records
