"""Encodes messages."""

cdef struct Writer:
    uint8_t* data
    Py_ssize_t size
    Py_ssize_t capacity
    int open_tags  # tagged fields being written: of unknown size yet, so buffers are copied
    PyObject* parts


cdef int reserve(Writer* w, Py_ssize_t size) except -1:
    """Make room for `size` more bytes."""
    cdef Py_ssize_t capacity = w.capacity
    cdef uint8_t* data
    if w.size + size <= capacity:
        return 0
    while capacity < w.size + size:
        capacity *= 2
    data = <uint8_t*>PyMem_Realloc(w.data, capacity)
    if data == NULL:
        raise MemoryError
    w.data = data
    w.capacity = capacity
    return 0


cdef int flush(Writer* w) except -1:
    """Append the bytes written so far to the parts."""
    if w.size:
        (<list>w.parts).append(PyBytes_FromStringAndSize(<const char*>w.data, w.size))
        w.size = 0
    return 0


cdef inline int put(Writer* w, uint64_t value, int size) except -1:
    """Write the lowest `size` bytes of `value` in big-endian order."""
    cdef uint8_t* at
    cdef int i
    reserve(w, size)
    at = w.data + w.size
    for i in range(size - 1, -1, -1):
        at[i] = <uint8_t>value
        value >>= 8
    w.size += size
    return 0


cdef inline int write_uvarint(Writer* w, uint64_t value) except -1:
    reserve(w, 5)
    while value > 0x7F:
        w.data[w.size] = <uint8_t>(value | 0x80)
        w.size += 1
        value >>= 7
    w.data[w.size] = <uint8_t>value
    w.size += 1
    return 0


cdef int write_bytes(Writer* w, const char* data, Py_ssize_t size) except -1:
    reserve(w, size)
    memcpy(w.data + w.size, data, size)
    w.size += size
    return 0


cdef inline int64_t to_int64(object value) except? -1:
    """Return the value of an int of at most 64 bits."""
    cdef int overflow = 0
    cdef int64_t number
    if not PyLong_Check(value):
        fall_back()
    number = PyLong_AsLongLongAndOverflow(value, &overflow)
    if overflow:
        fall_back()
    return number


cdef int write_int(Writer* w, object value, int64_t low, int64_t high, int size) except -1:
    cdef int64_t number = to_int64(value)
    if not low <= number <= high:
        fall_back()
    return put(w, <uint64_t>number, size)


cdef int write_fixed(Writer* w, int kind, object value) except -1:
    cdef double number
    cdef uint64_t bits
    if kind == INT32:
        return write_int(w, value, -0x8000_0000, 0x7FFF_FFFF, 4)
    elif kind == INT64:
        return put(w, <uint64_t>to_int64(value), 8)
    elif kind == INT16:
        return write_int(w, value, -0x8000, 0x7FFF, 2)
    elif kind == BOOL:
        if value is not True and value is not False:
            fall_back()
        return put(w, value is True, 1)
    elif kind == INT8:
        return write_int(w, value, -0x80, 0x7F, 1)
    elif kind == UINT16:
        return write_int(w, value, 0, 0xFFFF, 2)
    elif kind == UINT32:
        return write_int(w, value, 0, 0xFFFF_FFFF, 4)
    if not PyFloat_CheckExact(value):
        fall_back()
    number = PyFloat_AS_DOUBLE(value)
    memcpy(&bits, &number, 8)
    return put(w, bits, 8)


cdef object uuid_number(object value):
    """Return the 128-bit number of a UUID."""
    if Py_TYPE(value) != <PyTypeObject*>_Uuid or slot(value, UUID_INT)[0] == NULL:
        fall_back()
    number = <object>slot(value, UUID_INT)[0]
    if not PyLong_CheckExact(number):
        fall_back()
    return number


cdef int write_uuid(Writer* w, object value) except -1:
    number = uuid_number(value)
    put(w, <uint64_t>(number >> _64), 8)
    return put(w, <uint64_t>(number & _LOW_64_BITS), 8)


cdef int write_string(Writer* w, bint compact, object value) except -1:
    cdef Py_ssize_t size
    cdef const char* data
    if not PyUnicode_CheckExact(value):
        fall_back()
    data = PyUnicode_AsUTF8AndSize(value, &size)
    if size > MAX_STRING:
        fall_back()
    if compact:
        write_uvarint(w, size + 1)
    else:
        put(w, size, 2)
    return write_bytes(w, data, size)


cdef int write_bytes_field(Writer* w, bint compact, object value) except -1:
    write_bytes_length(w, compact, bytes_size(value))
    return write_part(w, value)


cdef int write_record_buffers(Writer* w, bint compact, tuple value) except -1:
    """Write records that consist of several buffers."""
    cdef Py_ssize_t size = 0
    for piece in value:
        size += bytes_size(piece)
    write_bytes_length(w, compact, size)
    for piece in value:
        write_part(w, piece)
    return 0


cdef int write_bytes_length(Writer* w, bint compact, Py_ssize_t size) except -1:
    if size > 0x7FFF_FFFF:
        fall_back()
    if compact:
        return write_uvarint(w, size + 1)
    return put(w, size, 4)


cdef Py_ssize_t bytes_size(object value) except -1:
    if PyMemoryView_Check(value):
        # The part's receiver expects `len` to be the size in bytes.
        if PyMemoryView_GET_BUFFER(value).ndim != 1 or PyMemoryView_GET_BUFFER(value).itemsize != 1:
            fall_back()
    elif not PyBytes_CheckExact(value) and not PyByteArray_CheckExact(value):
        fall_back()
    return len(value)


cdef int write_part(Writer* w, object value) except -1:
    cdef Py_buffer view
    PyObject_GetBuffer(value, &view, PyBUF_SIMPLE)
    try:
        if view.len < MIN_PART_SIZE or w.open_tags:
            return write_bytes(w, <const char*>view.buf, view.len)
    finally:
        PyBuffer_Release(&view)
    flush(w)
    (<list>w.parts).append(value)
    return 0


cdef int write_array(Writer* w, Field* field, object value) except -1:
    cdef bint is_list = PyList_CheckExact(value)
    cdef Py_ssize_t i, count
    if not is_list and not PyTuple_CheckExact(value):
        fall_back()
    count = PyList_GET_SIZE(value) if is_list else PyTuple_GET_SIZE(value)
    if count > 0x7FFF_FFFF:
        fall_back()
    if field.compact:
        write_uvarint(w, count + 1)
    else:
        put(w, count, 4)
    for i in range(count):
        item = <object>(PyList_GET_ITEM(value, i) if is_list else PyTuple_GET_ITEM(value, i))
        if field.element == STRUCT:
            write_struct(<Layout>field.inner, item, w)
        elif width(field.element):
            write_fixed(w, field.element, item)
        elif field.element == STRING:
            write_string(w, field.compact, item)
        elif field.element == UUID:
            write_uuid(w, item)
        else:
            write_bytes_field(w, field.compact, item)
    return 0


cdef int write_null(Writer* w, Field* field) except -1:
    if not field.nullable:
        fall_back()
    if field.kind == STRUCT:
        return put(w, 0xFF, 1)
    if field.compact:
        return put(w, 0, 1)
    return put(w, 0xFFFF_FFFF, 2 if field.kind == STRING else 4)


cdef int write_value(Writer* w, Field* field, object value) except -1:
    cdef int kind = field.kind
    if width(kind):
        return write_fixed(w, kind, value)
    elif value is None:
        return write_null(w, field)
    elif kind == STRING:
        return write_string(w, field.compact, value)
    elif kind == ARRAY:
        return write_array(w, field, value)
    elif kind == UUID:
        return write_uuid(w, value)
    elif kind == STRUCT:
        if field.nullable:
            put(w, 1, 1)
        return write_struct(<Layout>field.inner, value, w)
    elif kind == RECORDS and PyTuple_CheckExact(value):
        return write_record_buffers(w, field.compact, <tuple>value)
    return write_bytes_field(w, field.compact, value)


cdef inline object field_value(object owner, Field* field):
    """Return the value of a field."""
    if slot(owner, field.offset)[0] == NULL:
        fall_back()
    return <object>slot(owner, field.offset)[0]


cdef int write_struct(Layout layout, object value, Writer* w) except -1:
    cdef Py_ssize_t i
    cdef Field* field
    if Py_TYPE(value) != layout.kind:
        fall_back()
    for i in range(layout.absent.count):
        field = &layout.absent.at[i]
        if not field.ignorable and is_set(field_value(value, field), field):
            fall_back()
    field = layout.line.at
    for i in range(layout.line.count):
        write_value(w, field, field_value(value, field))
        field += 1
    if layout.flexible:
        write_tagged(layout, value, w)
    return 0


cdef int write_tagged(Layout layout, object value, Writer* w) except -1:
    """Write the tagged section; the generated encoder handles fields that the schema lacks."""
    cdef Py_ssize_t i, start, size, shift
    cdef int count = 0
    cdef Field* field
    cdef uint64_t rest
    if slot(value, layout.unknown)[0] != <PyObject*>_EMPTY:
        fall_back()
    for i in range(layout.tagged.count):
        count += is_set(field_value(value, &layout.tagged.at[i]), &layout.tagged.at[i])
    write_uvarint(w, count)
    if not count:
        return 0
    for i in range(layout.tagged.count):
        field = &layout.tagged.at[i]
        if not is_set(field_value(value, field), field):
            continue
        write_uvarint(w, field.tag)
        w.open_tags += 1
        start = w.size
        write_value(w, field, field_value(value, field))
        w.open_tags -= 1
        size = w.size - start
        # The size precedes the field, which is moved to make room for it.
        shift, rest = 1, <uint64_t>size
        while rest > 0x7F:
            shift += 1
            rest >>= 7
        reserve(w, shift)
        memmove(w.data + start + shift, w.data + start, size)
        w.size = start
        write_uvarint(w, size)
        w.size += size
    return 0


cdef bint is_set(object value, Field* field) except -1:
    """Return True if the value of a field is not its default."""
    if <PyObject*>value == field.default:
        return False
    if field.kind == STRUCT and field.default == NULL:
        return not is_default(value, <Layout>field.inner)
    if value is None or <object>field.default is None:
        return True
    if field.kind == ARRAY:
        if PyList_CheckExact(value):
            return PyList_GET_SIZE(value) > 0
        if PyTuple_CheckExact(value):
            return PyTuple_GET_SIZE(value) > 0
        fall_back()
    if field.kind == UUID:
        return uuid_number(value) != uuid_number(<object>field.default)
    if PyLong_Check(value) or PyUnicode_CheckExact(value) or PyBytes_CheckExact(value):
        if Py_TYPE(value) == Py_TYPE(<object>field.default):
            return value != <object>field.default
    fall_back()


cdef bint is_default(object value, Layout layout) except -1:
    """Return True if all fields of a structure have their defaults."""
    cdef Py_ssize_t i
    if Py_TYPE(value) != layout.kind or slot(value, layout.unknown)[0] != <PyObject*>_EMPTY:
        fall_back()
    for i in range(layout.every.count):
        if is_set(field_value(value, &layout.every.at[i]), &layout.every.at[i]):
            return False
    return True
