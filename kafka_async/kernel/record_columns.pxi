"""Appends the rows of Arrow columns to open batches."""

cdef enum:
    MAX_INPUT_BUFFERS = 18  # value, key, header names and values: 3 each; 2 for each other column


cdef struct InputBytes:
    const uint8_t* validity  # NULL if no value is null
    const uint8_t* offsets
    const uint8_t* data
    Py_ssize_t start
    Py_ssize_t rows
    Py_ssize_t size          # of the data; for lists, the number of their elements
    bint wide


cdef struct InputNumbers:
    const uint8_t* validity
    const uint8_t* data
    Py_ssize_t start
    bint wide


cdef struct InputRow:
    const uint8_t* key
    const uint8_t* value
    Py_ssize_t key_size       # -1 is null
    Py_ssize_t value_size
    int64_t partition
    int64_t timestamp
    bint has_partition
    bint has_timestamp
    Py_ssize_t first_header
    Py_ssize_t header_count
    Py_ssize_t headers_size   # bytes after their count
    Py_ssize_t headers_bound  # the same, with varints of five bytes


cdef inline bint is_valid_row(const uint8_t* validity, Py_ssize_t at) noexcept nogil:
    return validity == NULL or validity[at >> 3] >> (at & 7) & 1


cdef inline bint read_span(
    InputBytes* column, Py_ssize_t row, int64_t* begin, int64_t* end
) noexcept nogil:
    cdef int64_t wide[2]
    cdef int32_t narrow[2]
    if column.wide:
        memcpy(wide, column.offsets + (column.start + row) * 8, 16)
        begin[0] = wide[0]
        end[0] = wide[1]
    else:
        memcpy(narrow, column.offsets + (column.start + row) * 4, 8)
        begin[0] = narrow[0]
        end[0] = narrow[1]
    return 0 <= begin[0] <= end[0] <= column.size


cdef inline bint read_input(
    InputBytes* column, Py_ssize_t row, const uint8_t** data, Py_ssize_t* size
) noexcept nogil:
    cdef int64_t begin, end
    if not read_span(column, row, &begin, &end):
        return False
    data[0] = column.data + begin
    size[0] = end - begin if is_valid_row(column.validity, column.start + row) else -1
    return True


cdef inline int64_t read_number(InputNumbers* column, Py_ssize_t row) noexcept nogil:
    cdef int64_t wide
    cdef int32_t narrow
    if column.wide:
        memcpy(&wide, column.data + (column.start + row) * 8, 8)
        return wide
    memcpy(&narrow, column.data + (column.start + row) * 4, 4)
    return narrow


cdef inline Py_ssize_t bytes_field_size(Py_ssize_t size) noexcept nogil:
    return 1 if size < 0 else varint_size(zigzag(size)) + size


cdef inline uint8_t* put_bytes_field(
    uint8_t* at, const uint8_t* data, Py_ssize_t size
) noexcept nogil:
    at = put_varint(at, zigzag(size))
    if size > 0:
        memcpy(at, data, size)
        at += size
    return at


cdef bint is_utf8(const uint8_t* data, Py_ssize_t size) noexcept nogil:
    """Return True for well-formed UTF-8: no overlong form, surrogate or value above U+10FFFF."""
    cdef Py_ssize_t at = 0, following
    cdef uint8_t first, lowest, highest  # bounds of the second byte
    while at < size:
        first = data[at]
        at += 1
        if first < 0x80:
            continue
        if not 0xC2 <= first <= 0xF4:
            return False
        following = 1 if first < 0xE0 else 2 if first < 0xF0 else 3
        if size - at < following:
            return False
        lowest = 0xA0 if first == 0xE0 else 0x90 if first == 0xF0 else 0x80
        highest = 0x9F if first == 0xED else 0x8F if first == 0xF4 else 0xBF
        if not lowest <= data[at] <= highest:
            return False
        at += 1
        for _ in range(following - 1):
            if data[at] & 0xC0 != 0x80:
                return False
            at += 1
    return True


@cython.final
cdef class RecordColumns:
    """Reads record fields from Arrow columns, which must not change while this object exists."""

    cdef readonly Py_ssize_t rows
    cdef Py_buffer buffers[MAX_INPUT_BUFFERS]
    cdef int buffer_count
    cdef bint has_keys
    cdef bint has_partitions
    cdef bint has_timestamps
    cdef bint has_headers
    cdef InputBytes values
    cdef InputBytes keys
    cdef InputNumbers partitions
    cdef InputNumbers timestamps
    cdef InputBytes lists
    cdef InputBytes names
    cdef InputBytes header_values

    def __init__(self, values, keys=None, partitions=None, timestamps=None, headers=None):
        if self.buffer_count:
            raise TypeError("columns cannot be replaced")
        self.rows = values[0]
        for column in (keys, partitions, timestamps, headers):
            if column is not None and column[0] != self.rows:
                raise ValueError(f"columns of {column[0]} and {self.rows} rows")
        self.open_bytes(&self.values, values, "value")
        if keys is not None:
            self.open_bytes(&self.keys, keys, "key")
            self.has_keys = True
        if partitions is not None:
            self.open_numbers(&self.partitions, partitions, "partition")
            self.has_partitions = True
        if timestamps is not None:
            self.open_numbers(&self.timestamps, timestamps, "timestamp")
            self.has_timestamps = True
        if headers is not None:
            self.open_headers(headers)
            self.has_headers = True

    def __dealloc__(self):
        cdef int index
        for index in range(self.buffer_count):
            PyBuffer_Release(&self.buffers[index])

    def __reduce__(self):
        raise copy_error(self)

    cdef const uint8_t* open_buffer(
        self, object data, Py_ssize_t needed, object column
    ) except NULL:
        cdef Py_buffer* buffer
        if self.buffer_count >= MAX_INPUT_BUFFERS:
            raise IndexError("more buffers than a record has")
        buffer = &self.buffers[self.buffer_count]
        PyObject_GetBuffer(data, buffer, PyBUF_SIMPLE)
        self.buffer_count += 1
        if buffer.len < needed:
            raise arrow_layout_error(column)
        return <const uint8_t*>buffer.buf

    cdef Py_ssize_t check_position(
        self, Py_ssize_t start, Py_ssize_t rows, object column
    ) except -1:
        # The sum of both, times eight, does not overflow.
        if not 0 <= start <= MAX_INT64 >> 6 or not 0 <= rows <= MAX_INT64 >> 6:
            raise arrow_layout_error(column)
        return start + rows

    cdef int open_bytes(self, InputBytes* made, object given, object column) except -1:
        made.rows, made.start, validity, offsets, data, made.wide = given
        cdef Py_ssize_t end = self.check_position(made.start, made.rows, column)
        if validity is not None:
            made.validity = self.open_buffer(validity, (end + 7) // 8, column)
        made.offsets = self.open_buffer(
            offsets, (end + 1) * (8 if made.wide else 4) if made.rows else 0, column
        )
        made.data = self.open_buffer(data, 0, column)
        made.size = self.buffers[self.buffer_count - 1].len
        return 0

    cdef int open_numbers(self, InputNumbers* made, object given, object column) except -1:
        cdef Py_ssize_t rows
        rows, made.start, validity, data, made.wide = given
        cdef Py_ssize_t end = self.check_position(made.start, rows, column)
        if validity is not None:
            made.validity = self.open_buffer(validity, (end + 7) // 8, column)
        made.data = self.open_buffer(data, end * (8 if made.wide else 4), column)
        return 0

    cdef int open_headers(self, object given) except -1:
        cdef InputBytes* lists = &self.lists
        lists.rows, lists.start, validity, offsets, lists.wide, names, values = given
        cdef Py_ssize_t end = self.check_position(lists.start, lists.rows, "headers")
        if names[0] != values[0]:
            raise arrow_layout_error("headers")
        if validity is not None:
            lists.validity = self.open_buffer(validity, (end + 7) // 8, "headers")
        lists.offsets = self.open_buffer(
            offsets, (end + 1) * (8 if lists.wide else 4) if lists.rows else 0, "headers"
        )
        self.open_bytes(&self.names, names, "headers")
        self.open_bytes(&self.header_values, values, "headers")
        if self.names.rows != self.header_values.rows:
            raise arrow_layout_error("headers")
        lists.size = self.names.rows
        return 0

    def record(self, row):
        """Return key, value, headers, partition and timestamp of a row."""
        cdef InputRow fields
        cdef Py_ssize_t at, size = 0, value_size = 0
        cdef const uint8_t* data = NULL
        cdef const uint8_t* value = NULL
        self.check_header_name(self.load(row, &fields))
        headers = ()
        if self.has_headers and is_valid_row(self.lists.validity, self.lists.start + <Py_ssize_t>row):
            headers = []
            for at in range(fields.first_header, fields.first_header + fields.header_count):
                read_input(&self.names, at, &data, &size)
                read_input(&self.header_values, at, &value, &value_size)
                name = PyUnicode_DecodeUTF8(<const char*>data, size, NULL)
                headers.append((name, to_field(value, value_size)))
        return (
            to_field(fields.key, fields.key_size),
            to_field(fields.value, fields.value_size),
            headers,
            fields.partition if fields.has_partition else None,
            fields.timestamp if fields.has_timestamp else None,
        )

    def find_fault(
        self, int64_t limit, int64_t partitions, Py_ssize_t start, Py_ssize_t end, selection=None
    ):
        """Return the first row that cannot become a record, with the reason, or None."""
        cdef SelectedRows rows = SelectedRows(start, end, selection)
        cdef InputRow fields
        cdef Py_ssize_t at, row
        cdef int64_t size
        for at in range(start, end):
            row = rows.row(at)
            if self.load(row, &fields):
                return row, RowFault.HEADER_NAME
            if fields.has_partition and not 0 <= fields.partition < partitions:
                return row, RowFault.PARTITION
            if fields.has_timestamp and not -1 <= fields.timestamp <= MAX_TIMESTAMP:
                return row, RowFault.TIMESTAMP
            size = BATCH_HEADER_SIZE + MAX_RECORD_OVERHEAD + fields.headers_bound
            size += max(fields.key_size, 0) + max(fields.value_size, 0)
            if size > limit:
                return row, RowFault.SIZE
        return None

    cdef int check_header_name(self, int fault) except -1:
        if fault:
            raise ValueError(
                "the name of a header is null" if fault == 1 else
                "the name of a header is not UTF-8"
            )
        return 0

    cdef int load(self, Py_ssize_t row, InputRow* fields) except -1:
        """Read a row; return 1 or 2 if a header name is null or not UTF-8."""
        cdef int64_t begin, end
        if not 0 <= row < self.rows:
            raise IndexError(f"row {row} of {self.rows}")
        fields.key = NULL
        fields.key_size = -1
        fields.has_partition = fields.has_timestamp = False
        fields.first_header = fields.header_count = 0
        fields.headers_size = fields.headers_bound = 0
        if not read_input(&self.values, row, &fields.value, &fields.value_size):
            raise arrow_layout_error("value")
        if self.has_keys and not read_input(&self.keys, row, &fields.key, &fields.key_size):
            raise arrow_layout_error("key")
        if self.has_partitions:
            fields.partition = read_number(&self.partitions, row)
            fields.has_partition = is_valid_row(
                self.partitions.validity, self.partitions.start + row
            )
        if self.has_timestamps:
            fields.timestamp = read_number(&self.timestamps, row)
            fields.has_timestamp = is_valid_row(
                self.timestamps.validity, self.timestamps.start + row
            )
        if self.has_headers:
            if not read_span(&self.lists, row, &begin, &end):
                raise arrow_layout_error("headers")
            if begin != end and is_valid_row(self.lists.validity, self.lists.start + row):
                fields.first_header = begin
                fields.header_count = end - begin
                return self.load_headers(fields)
        return 0

    cdef int load_headers(self, InputRow* fields) except -1:
        cdef Py_ssize_t at, size = 0, value_size = 0
        cdef const uint8_t* name = NULL
        cdef const uint8_t* value = NULL
        for at in range(fields.first_header, fields.first_header + fields.header_count):
            if not read_input(&self.names, at, &name, &size) \
                    or not read_input(&self.header_values, at, &value, &value_size):
                raise arrow_layout_error("headers")
            if size < 0:
                return 1
            if not is_utf8(name, size):
                return 2
            fields.headers_size += bytes_field_size(size) + bytes_field_size(value_size)
            fields.headers_bound += 10 + size + max(value_size, 0)
        return 0

    cdef uint8_t* put_headers(self, uint8_t* at, InputRow* fields) noexcept:
        cdef Py_ssize_t index, size = 0
        cdef const uint8_t* data = NULL
        at = put_varint(at, zigzag(fields.header_count))
        for index in range(fields.first_header, fields.first_header + fields.header_count):
            read_input(&self.names, index, &data, &size)
            at = put_bytes_field(at, data, size)
            read_input(&self.header_values, index, &data, &size)
            at = put_bytes_field(at, data, size)
        return at


@cython.final
@cython.internal
cdef class SelectedRows:
    """Returns row numbers: the selection's, or the positions themselves."""

    cdef Py_buffer buffer
    cdef bint held
    cdef const uint8_t* numbers

    def __cinit__(self, Py_ssize_t start, Py_ssize_t end, selection):
        cdef Py_ssize_t size = end
        if selection is not None:
            PyObject_GetBuffer(selection, &self.buffer, PyBUF_SIMPLE)
            self.held = True
            self.numbers = <const uint8_t*>self.buffer.buf
            size = self.buffer.len // sizeof(int64_t)
        if not 0 <= start <= end <= size:
            raise IndexError(f"rows {start} to {end}")

    def __dealloc__(self):
        if self.held:
            PyBuffer_Release(&self.buffer)

    cdef inline Py_ssize_t row(self, Py_ssize_t at) noexcept:
        cdef int64_t number = at
        if self.held:
            memcpy(&number, self.numbers + at * sizeof(int64_t), sizeof(int64_t))
        return number
