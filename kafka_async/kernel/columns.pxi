"""Reads records into the buffers of Arrow arrays."""


cdef class Rows:
    """Holds the selected rows of several sections and the buffers into which they point."""

    cdef Row* rows
    cdef Py_ssize_t count
    cdef Py_ssize_t allocated
    cdef Py_buffer* buffers
    cdef Py_ssize_t buffer_count
    cdef Py_ssize_t sections

    def __cinit__(self, Py_ssize_t sections):
        self.sections = sections
        self.buffers = <Py_buffer*>PyMem_Malloc(max(sections, 1) * sizeof(Py_buffer))
        if self.buffers == NULL:
            raise MemoryError

    def __dealloc__(self):
        cdef Py_ssize_t index
        for index in range(self.buffer_count):
            PyBuffer_Release(&self.buffers[index])
        PyMem_Free(self.buffers)
        PyMem_Free(self.rows)

    cdef int reserve(self, Py_ssize_t more) except -1:
        cdef Py_ssize_t wanted = self.count + more
        cdef void* moved
        if wanted > self.allocated:
            wanted = max(wanted, 2 * self.allocated)
            moved = PyMem_Realloc(self.rows, wanted * sizeof(Row))
            if moved == NULL:
                raise MemoryError
            self.rows = <Row*>moved
            self.allocated = wanted
        return 0

    cdef int add_section(
        self, object section, object topic, object partition, int64_t start, int64_t end
    ) except -1:
        cdef Limits limits
        cdef Cursor cursor
        cdef Row* row
        cdef int64_t delta = -1, index
        cdef int problem
        cdef Py_buffer* data
        if self.buffer_count >= self.sections:
            raise IndexError("more sections than were announced")
        data = &self.buffers[self.buffer_count]
        PyObject_GetBuffer(section[0], data, PyBUF_SIMPLE)
        self.buffer_count += 1
        problem = open_section(section, data.len, &limits)
        if problem:
            raise corrupt_record_error(problem, topic, partition, limits.base_offset)
        self.reserve(limits.count)
        cursor.at = <const uint8_t*>data.buf
        cursor.end = cursor.at + data.len
        for index in range(limits.count):
            row = &self.rows[self.count]
            problem = read_row(&cursor, &limits, delta, row)
            if problem:
                offset = limits.base_offset + delta + 1
                raise corrupt_record_error(problem, topic, partition, offset)
            delta = row.offset - limits.base_offset
            if start <= row.offset < end:
                self.count += 1
        if cursor.at != cursor.end:
            offset = limits.base_offset + delta + 1
            raise corrupt_record_error(SECTION_LEFTOVER, topic, partition, offset)
        return 0


def parse_columns(sections, topic, partition, start=0, end=0x7FFF_FFFF_FFFF_FFFF, headers=False):
    """Return the records of several sections with `start` <= offset < `end`, as Arrow buffers."""
    # A copy: the caller's sequence may change, or report a wrong length.
    cdef tuple copied = tuple(sections)
    cdef Rows rows = Rows(len(copied))
    for section in copied:
        rows.add_section(section, topic, partition, start, end)
    return Columns(
        rows.count,
        field_column(rows, False),
        field_column(rows, True),
        offset_column(rows),
        timestamp_column(rows),
        type_column(rows),
        header_column(rows, topic, partition) if headers else None,
    )


cdef object new_bytes(Py_ssize_t size):
    return PyBytes_FromStringAndSize(NULL, size)


cdef object offset_column(Rows rows):
    cdef object column = new_bytes(rows.count * sizeof(int64_t))
    cdef int64_t* cells = <int64_t*>PyBytes_AS_STRING(column)
    cdef Py_ssize_t index
    for index in range(rows.count):
        cells[index] = rows.rows[index].offset
    return column


cdef object timestamp_column(Rows rows):
    cdef object column = new_bytes(rows.count * sizeof(int64_t))
    cdef int64_t* cells = <int64_t*>PyBytes_AS_STRING(column)
    cdef Py_ssize_t index
    for index in range(rows.count):
        cells[index] = rows.rows[index].timestamp
    return column


cdef object type_column(Rows rows):
    cdef object column = new_bytes(rows.count * sizeof(int32_t))
    cdef int32_t* cells = <int32_t*>PyBytes_AS_STRING(column)
    cdef Py_ssize_t index
    for index in range(rows.count):
        cells[index] = rows.rows[index].timestamp_type
    return column


@cython.final
cdef class BinaryColumnBuilder:
    """Builds a binary column of known size; the validity is allocated only if values are null."""

    cdef object offsets
    cdef object data
    cdef object validity
    cdef int32_t* ends
    cdef char* bits  # NULL while no value is null
    cdef char* at
    cdef int32_t total
    cdef Py_ssize_t count

    def __cinit__(self, Py_ssize_t rows, Py_ssize_t size, bint nullable):
        if size > MAX_INT32:
            raise ValueError("a column may not exceed 2 GiB")
        self.offsets = new_bytes((rows + 1) * sizeof(int32_t))
        self.ends = <int32_t*>PyBytes_AS_STRING(self.offsets)
        self.ends[0] = 0
        self.data = new_bytes(size)
        self.at = PyBytes_AS_STRING(self.data)
        if nullable:
            self.validity = new_bytes((rows + 7) // 8)
            self.bits = PyBytes_AS_STRING(self.validity)
            memset(self.bits, 0, (rows + 7) // 8)

    cdef inline void put(self, const uint8_t* data, Py_ssize_t size) noexcept:
        if size > 0:
            memcpy(self.at, data, size)
            self.at += size
            self.total += <int32_t>size
        if self.bits != NULL and size >= 0:
            self.bits[self.count >> 3] |= 1 << (self.count & 7)
        self.count += 1
        self.ends[self.count] = self.total

    cdef object finish(self):
        return BinaryColumn(self.validity, self.offsets, self.data)


cdef object field_column(Rows rows, bint values):
    cdef Py_ssize_t index, size, total = 0
    cdef bint nullable = False
    cdef Row* row
    cdef BinaryColumnBuilder column
    for index in range(rows.count):
        row = &rows.rows[index]
        size = row.value_size if values else row.key_size
        if size < 0:
            nullable = True
        else:
            total += size
    column = BinaryColumnBuilder(rows.count, total, nullable)
    for index in range(rows.count):
        row = &rows.rows[index]
        if values:
            column.put(row.value, row.value_size)
        else:
            column.put(row.key, row.key_size)
    return column.finish()


@cython.final
@cython.internal
cdef class GrowingColumn:
    """Builds a binary column of unknown size."""

    cdef uint8_t* data
    cdef int32_t* ends
    cdef uint8_t* valid  # a byte per value
    cdef Py_ssize_t size
    cdef Py_ssize_t allocated
    cdef Py_ssize_t count
    cdef Py_ssize_t rows  # capacity of `ends` and `valid`
    cdef bint nullable

    def __dealloc__(self):
        PyMem_Free(self.data)
        PyMem_Free(self.ends)
        PyMem_Free(self.valid)

    cdef int put(self, const uint8_t* data, Py_ssize_t size) except -1:
        cdef Py_ssize_t needed = self.size + max(size, 0)
        if needed > MAX_INT32:
            raise ValueError("a column may not exceed 2 GiB")
        if self.count == self.rows:
            self.rows = max(64, 2 * self.rows)
            self.ends = <int32_t*>reallocated(self.ends, self.rows * sizeof(int32_t))
            self.valid = <uint8_t*>reallocated(self.valid, self.rows)
        if self.data == NULL or needed > self.allocated:
            self.allocated = max(needed, 2 * self.allocated, 512)
            self.data = <uint8_t*>reallocated(self.data, self.allocated)
        if size > 0:
            memcpy(self.data + self.size, data, size)
            self.size = needed
        self.valid[self.count] = size >= 0
        self.nullable |= size < 0
        self.ends[self.count] = <int32_t>self.size
        self.count += 1
        return 0

    cdef int put_text(self, const uint8_t* data, Py_ssize_t size) except -1:
        """Append valid UTF-8; replace other bytes with replacement characters."""
        cdef Py_ssize_t length = 0
        cdef const char* encoded
        if is_utf8(data, size):
            return self.put(data, size)
        text = PyUnicode_DecodeUTF8(<const char*>data, size, "replace")
        encoded = PyUnicode_AsUTF8AndSize(text, &length)
        return self.put(<const uint8_t*>encoded, length)

    cdef object finish(self):
        cdef BinaryColumnBuilder column = BinaryColumnBuilder(self.count, self.size, self.nullable)
        cdef Py_ssize_t index
        cdef Py_ssize_t begin = 0
        for index in range(self.count):
            if self.valid[index]:
                column.put(self.data + begin, self.ends[index] - begin)
            else:
                column.put(NULL, -1)
            begin = self.ends[index]
        return column.finish()


cdef void* reallocated(void* memory, Py_ssize_t size) except NULL:
    cdef void* moved = PyMem_Realloc(memory, size)
    if moved == NULL:
        raise MemoryError
    return moved


cdef object header_column(Rows rows, object topic, object partition):
    cdef Py_ssize_t index
    cdef object offsets = new_bytes((rows.count + 1) * sizeof(int32_t))
    cdef int32_t* ends = <int32_t*>PyBytes_AS_STRING(offsets)
    cdef object validity = new_bytes((rows.count + 7) // 8)
    cdef char* bits = PyBytes_AS_STRING(validity)
    cdef bint nullable = False
    cdef GrowingColumn names = GrowingColumn()
    cdef GrowingColumn values = GrowingColumn()
    cdef Cursor cursor
    cdef const uint8_t* name = NULL
    cdef const uint8_t* value = NULL
    cdef Py_ssize_t name_size = 0, value_size = 0
    cdef int32_t header
    cdef int problem
    if rows.count:
        memset(bits, 0, (rows.count + 7) // 8)
    ends[0] = 0
    for index in range(rows.count):
        if rows.rows[index].header_count:
            bits[index >> 3] |= 1 << (index & 7)
            cursor.at = rows.rows[index].headers
            cursor.end = rows.rows[index].end
            for header in range(rows.rows[index].header_count):
                problem = read_header(&cursor, &name, &name_size, &value, &value_size)
                if problem:  # the section's owner has changed it after validation
                    raise corrupt_record_error(problem, topic, partition, rows.rows[index].offset)
                names.put_text(name, name_size)
                values.put(value, value_size)
        else:
            nullable = True
        if names.count > MAX_INT32:
            raise ValueError("a column may not exceed 2 GiB")
        ends[index + 1] = <int32_t>names.count
    return HeaderColumn(validity if nullable else None, offsets, names.finish(), values.finish())
