"""Encodes the fields of a record."""

cdef enum:
    MAX_RECORD_OVERHEAD = 36
    BATCH_HEADER_SIZE = 61


cdef inline uint8_t* put_field(uint8_t* at, object data) noexcept:
    cdef Py_ssize_t size
    if data is None:
        at[0] = 1  # -1 in zigzag
        return at + 1
    size = PyBytes_GET_SIZE(data)
    at = put_varint(at, zigzag(size))
    memcpy(at, PyBytes_AS_STRING(data), size)
    return at + size


cdef inline Py_ssize_t field_size(object data) noexcept:
    if data is None:
        return 1
    return varint_size(zigzag(PyBytes_GET_SIZE(data))) + PyBytes_GET_SIZE(data)


cdef inline object to_bytes(object value):
    # bytes(value) would turn an int into that many zero bytes.
    if PyBytes_CheckExact(value):
        return value
    return bytes(memoryview(value))


cdef inline object as_field(object value):
    return None if value is None else to_bytes(value)


cdef tuple as_headers(object headers):
    # Tuples of str and bytes are immutable, so they cannot change while they are written.
    cdef tuple pairs = tuple(headers)
    for header in pairs:
        if not is_header(header):
            return tuple([as_header(name, value) for name, value in pairs])
    return pairs


cdef inline bint is_header(object header) noexcept:
    if not PyTuple_CheckExact(header) or PyTuple_GET_SIZE(header) != 2:
        return False
    value = (<tuple>header)[1]
    return PyUnicode_CheckExact((<tuple>header)[0]) and (value is None or PyBytes_CheckExact(value))


cdef tuple as_header(object name, object value):
    if not isinstance(name, str):
        raise TypeError(f"a header's name is a str, not {type(name).__name__}")
    return PyUnicode_FromObject(name), as_field(value)


cdef Py_ssize_t headers_size(tuple headers) except -1:
    cdef Py_ssize_t size = varint_size(zigzag(PyTuple_GET_SIZE(headers)))
    cdef Py_ssize_t length = 0
    for header in headers:
        PyUnicode_AsUTF8AndSize((<tuple>header)[0], &length)
        size += varint_size(zigzag(length)) + length + field_size((<tuple>header)[1])
    return size


cdef uint8_t* put_headers(uint8_t* at, tuple headers) except NULL:
    cdef const char* name
    cdef Py_ssize_t length = 0
    at = put_varint(at, zigzag(PyTuple_GET_SIZE(headers)))
    for header in headers:
        # Cannot fail: headers_size has read the same bytes.
        name = PyUnicode_AsUTF8AndSize((<tuple>header)[0], &length)
        at = put_varint(at, zigzag(length))
        memcpy(at, name, length)
        at = put_field(at + length, (<tuple>header)[1])
    return at


def record_size_bound(key, value, headers=()):
    """Return an upper bound in bytes for a batch, with its header, of this record only."""
    cdef Py_ssize_t size = BATCH_HEADER_SIZE + MAX_RECORD_OVERHEAD
    if key is not None:
        size += len(to_bytes(key))
    if value is not None:
        size += len(to_bytes(value))
    for name, data in headers:
        size += 10 + len(name.encode())
        if data is not None:
            size += len(to_bytes(data))
    return size
