"""Decodes messages."""

cdef struct Reader:
    const uint8_t* at
    const uint8_t* end
    const uint8_t* start
    PyObject* view  # a memoryview of the whole buffer
    int64_t memory_left  # bytes that the message may still allocate


cdef inline int require(Reader* r, Py_ssize_t size) except -1:
    if r.end - r.at < size:
        fall_back()
    return 0


cdef inline int charge_memory(Reader* r, int64_t size) except -1:
    """Subtract `size` bytes from the memory that the message may still allocate."""
    r.memory_left -= size
    if r.memory_left < 0:
        fall_back()
    return 0


cdef inline uint64_t read_big_endian(const uint8_t* at, int size) noexcept:
    """Return `size` bytes as an unsigned big-endian number."""
    cdef uint64_t value = 0
    cdef int i
    for i in range(size):
        value = value << 8 | at[i]
    return value


cdef int64_t read_uvarint(Reader* r) except -1:
    cdef uint64_t value = 0
    cdef int shift = 0
    cdef uint8_t byte
    if r.at < r.end and r.at[0] < 0x80:
        byte = r.at[0]
        r.at += 1
        return byte
    while shift < 35:
        require(r, 1)
        byte = r.at[0]
        r.at += 1
        value |= <uint64_t>(byte & 0x7F) << shift
        if byte < 0x80:
            return <int64_t>value  # more than 32 bits fail the checks of the caller
        shift += 7
    fall_back()


cdef inline int64_t read_length(bint compact, bint short_, Reader* r) except -2:
    """Read a length, -1 for null."""
    cdef int64_t length
    if compact:
        return read_uvarint(r) - 1
    if short_:
        require(r, 2)
        length = <int16_t>read_big_endian(r.at, 2)
        r.at += 2
    else:
        require(r, 4)
        length = <int32_t>read_big_endian(r.at, 4)
        r.at += 4
    if length < -1:
        fall_back()
    return length


cdef inline object read_fixed(int kind, Reader* r):
    """Read a number or bool; the caller has checked the bounds."""
    cdef const uint8_t* at = r.at
    cdef uint64_t bits
    cdef double number
    if kind == INT32:
        r.at += 4
        return <int32_t>read_big_endian(at, 4)
    elif kind == INT64:
        r.at += 8
        return <int64_t>read_big_endian(at, 8)
    elif kind == INT16:
        r.at += 2
        return <int16_t>read_big_endian(at, 2)
    elif kind == BOOL:
        r.at += 1
        return at[0] != 0
    elif kind == INT8:
        r.at += 1
        return <int8_t>at[0]
    elif kind == UINT16:
        r.at += 2
        return <uint16_t>read_big_endian(at, 2)
    elif kind == UINT32:
        r.at += 4
        return <uint32_t>read_big_endian(at, 4)
    bits = read_big_endian(at, 8)
    memcpy(&number, &bits, 8)
    r.at += 8
    return number


cdef inline int width(int kind) noexcept:
    """Return the size of a fixed type in bytes, or 0 for other types."""
    if kind == INT32 or kind == UINT32:
        return 4
    elif kind == INT64 or kind == FLOAT64:
        return 8
    elif kind == INT16 or kind == UINT16:
        return 2
    elif kind == BOOL or kind == INT8:
        return 1
    return 0


cdef object read_uuid(Reader* r):
    require(r, 16)
    cdef object high = read_big_endian(r.at, 8)
    cdef object number = read_big_endian(r.at + 8, 8)
    r.at += 16
    if high:
        number = (high << _64) | number
    made = PyType_GenericAlloc(<PyTypeObject*>_Uuid, 0)
    set_slot(made, UUID_INT, number)
    set_slot(made, UUID_SAFETY, _UNKNOWN_SAFETY)
    return made


cdef object read_sized(int kind, bint compact, bint nullable, Reader* r):
    cdef int64_t length = read_length(compact, kind == STRING, r)
    cdef const uint8_t* at = r.at
    if length < 0:
        if not nullable:
            fall_back()
        return None
    require(r, length)
    r.at += length
    if kind == STRING:
        if length > MAX_STRING:
            fall_back()
        return PyUnicode_DecodeUTF8(<const char*>at, length, NULL)
    if kind == RECORDS:
        return (<object>r.view)[at - r.start:r.at - r.start]
    return PyBytes_FromStringAndSize(<const char*>at, length)


cdef object read_array(Field* field, Reader* r):
    cdef int64_t count = read_length(field.compact, False, r)
    if count < 0:
        if not field.nullable:
            fall_back()
        return None
    if count > MAX_ELEMENTS or count * field.min_size > r.end - r.at:
        fall_back()
    if count:
        charge_memory(r, ARRAY_COST + count * field.cost)
    if width(field.element):
        return read_numbers(field.element, count, r)
    if not count:
        return _EMPTY  # separate empty lists would take most of a hostile message's memory
    cdef list items = PyList_New(count)
    cdef Py_ssize_t i
    for i in range(count):
        if field.element == STRUCT:
            item = read_struct(<Layout>field.inner, r)
        elif field.element == UUID:
            item = read_uuid(r)
        else:
            item = read_sized(field.element, field.compact, False, r)
        Py_INCREF(item)
        PyList_SET_ITEM(items, i, item)
    return items


cdef object read_numbers(int kind, Py_ssize_t count, Reader* r):
    """Read an array of a fixed type; the caller has checked the bounds."""
    if count == 0:
        return _EMPTY
    cdef tuple items = PyTuple_New(count)
    cdef Py_ssize_t i
    for i in range(count):
        if kind == INT8:
            item = _INT8[r.at[0]]
            r.at += 1
        else:
            item = read_fixed(kind, r)
        Py_INCREF(item)
        PyTuple_SET_ITEM(items, i, item)
    PyObject_GC_UnTrack(items)  # numbers form no cycles
    return items


cdef object read_value(Field* field, Reader* r):
    cdef int kind = field.kind
    cdef int size = width(kind), marker
    if size:
        require(r, size)
        return read_fixed(kind, r)
    elif kind == ARRAY:
        return read_array(field, r)
    elif kind == UUID:
        return read_uuid(r)
    elif kind != STRUCT:
        return read_sized(kind, field.compact, field.nullable, r)
    if field.nullable:
        require(r, 1)
        marker = <int8_t>r.at[0]
        r.at += 1
        if marker == -1:
            return None
        if marker != 1:
            fall_back()
    return read_struct(<Layout>field.inner, r)


cdef object read_struct(Layout layout, Reader* r):
    cdef Py_ssize_t i
    cdef Field* field = layout.line.at
    made = PyType_GenericAlloc(layout.kind, 0)
    for i in range(layout.line.count):
        set_slot(made, field.offset, read_value(field, r))
        field += 1
    fill_defaults(made, &layout.absent)
    fill_defaults(made, &layout.tagged)
    set_slot(made, layout.unknown, _EMPTY)
    if layout.flexible:
        require(r, 1)
        if r.at[0] == 0:
            r.at += 1
        else:
            read_tagged(layout, made, r)
    return made


cdef int read_tagged(Layout layout, object made, Reader* r) except -1:
    cdef int64_t count = read_uvarint(r)
    cdef int64_t tag, last = -1, size
    cdef const uint8_t* stop
    cdef Py_ssize_t i
    cdef list unknown = []
    if count > MAX_TAGS:
        fall_back()
    charge_memory(r, TAGS_COST + count * TAG_COST)
    for _ in range(count):
        tag = read_uvarint(r)
        size = read_uvarint(r)
        if tag <= last or tag > MAX_TAG:
            fall_back()
        last = tag
        require(r, size)
        stop = r.at + size
        for i in range(layout.tagged.count):
            if layout.tagged.at[i].tag == tag:
                value = read_value(&layout.tagged.at[i], r)
                replace_slot(made, layout.tagged.at[i].offset, value)
                break
        else:
            unknown.append((tag, PyBytes_FromStringAndSize(<const char*>r.at, size)))
            r.at = stop
        if r.at != stop:
            fall_back()
    replace_slot(made, layout.unknown, tuple(unknown))
    return 0
