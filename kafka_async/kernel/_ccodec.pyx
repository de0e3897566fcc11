# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False, embedsignature=True
"""Decodes and encodes protocol messages by a table: the compiled fast path of the codecs.

The functions that `protocol/compiler.py` generates are the specification. A `Layout` does the same
for valid messages and values only. Anything else raises `FallbackRequired`, and the caller then
uses the generated function, which accepts the message or raises a precise error. So this module
knows only formats: it has no error messages and no rules about which fields may be set.

Objects are made empty and their slots are set in memory. That is safe because a layout is used for
exactly one class and finds the offsets of its slots in that class. Bytes are read through a
`Reader`: two pointers, and each function that advances it first compares the size with what is
left.

While a message is written no Python code runs, so nothing can change meanwhile, thanks to the lock
of the interpreter. Unlike the kernel, this module therefore does not declare
freethreading_compatible: another thread could shorten a list whose items are being written.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_CheckExact
from cpython.bytes cimport PyBytes_CheckExact, PyBytes_FromStringAndSize
from cpython.float cimport PyFloat_AS_DOUBLE, PyFloat_CheckExact
from cpython.list cimport PyList_CheckExact, PyList_GET_ITEM, PyList_GET_SIZE, PyList_New, \
    PyList_SET_ITEM
from cpython.mem cimport PyMem_Calloc, PyMem_Free, PyMem_Malloc, PyMem_Realloc
from cpython.memoryview cimport PyMemoryView_GET_BUFFER
from cpython.object cimport PyObject, PyTypeObject, Py_TYPE
from cpython.ref cimport Py_INCREF, Py_XDECREF
from cpython.tuple cimport PyTuple_CheckExact, PyTuple_GET_ITEM, PyTuple_GET_SIZE, PyTuple_New, \
    PyTuple_SET_ITEM
from cpython.unicode cimport PyUnicode_CheckExact, PyUnicode_DecodeUTF8
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memmove, memset
import uuid

import cython

cdef extern from "Python.h":
    ctypedef struct PyMemberDef:
        Py_ssize_t offset
    ctypedef struct PyMemberDescrObject:
        PyMemberDef* d_member
    PyTypeObject PyMemberDescr_Type
    void PyObject_GC_UnTrack(object)
    bint PyMemoryView_Check(object)
    bint PyLong_Check(object)
    bint PyLong_CheckExact(object)
    long long PyLong_AsLongLongAndOverflow(object, int*) except? -1
    object PyType_GenericAlloc(PyTypeObject*, Py_ssize_t)
    const char* PyUnicode_AsUTF8AndSize(object, Py_ssize_t*) except NULL

cdef enum:
    MAX_ELEMENTS = 1_000_000
    MAX_TAGS = 10_000
    MAX_TAG = 0x7FFF_FFFF
    MAX_STRING = 0x7FFF
    # Bytes of memory that a message may take; see `protocol/memory_cost.py`.
    MEMORY_FACTOR = 64
    MEMORY_ALLOWANCE = 14 * 1024
    MAX_MEMORY = 192 * 1024 * 1024
    ARRAY_COST = 88
    TAGS_COST = 48
    TAG_COST = 140
    MIN_PART_SIZE = 4096  # bytes; a bytes field of this size is passed on instead of copied
    INITIAL_BUFFER_SIZE = 512

# The type of a field. Types of a fixed size have the letter of the module `struct`.
cdef enum Kind:
    BOOL = 63  # ?
    INT8 = 98  # b
    INT16 = 104  # h
    UINT16 = 72  # H
    INT32 = 105  # i
    UINT32 = 73  # I
    INT64 = 113  # q
    FLOAT64 = 100  # d
    UUID = 117  # u
    STRING = 115  # s
    BYTES = 121  # y
    RECORDS = 114  # r
    ARRAY = 97  # a
    STRUCT = 109  # m

cdef struct Field:
    int kind
    int element  # of an array
    bint compact
    bint nullable
    bint ignorable  # a version without the field may drop a value that was set
    int64_t tag
    Py_ssize_t offset  # of the slot in the object
    Py_ssize_t min_size  # minimum bytes of an array's element
    Py_ssize_t cost  # bytes of memory of an array's element
    PyObject* default  # NULL if the default is a new structure
    PyObject* inner  # the Layout of a structure, or of an array's elements

cdef struct Fields:
    Py_ssize_t count
    Field* at

cdef struct Reader:
    const uint8_t* at
    const uint8_t* end
    const uint8_t* start
    PyObject* view  # a memoryview of the whole buffer
    int64_t memory_left  # bytes that the message may still take

cdef struct Writer:
    uint8_t* data
    Py_ssize_t size
    Py_ssize_t capacity
    int open_tags  # tagged fields being written; their size is not known yet, so all is copied
    PyObject* parts


class FallbackRequired(ValueError):
    """Raised for a message or value that only the generated codec handles."""


cdef int fall_back() except -1:
    raise FallbackRequired


cdef Py_ssize_t slot_offset(type kind, str name) except -1:
    """Return the offset of the slot `name` in objects of a class."""
    cdef object member = getattr(kind, name)
    if Py_TYPE(member) != &PyMemberDescr_Type:
        raise TypeError(f"{kind.__name__}.{name} is no slot")
    return (<PyMemberDescrObject*>member).d_member.offset


cdef object _Uuid = uuid.UUID
cdef object _UNKNOWN_SAFETY = uuid.SafeUUID.unknown
cdef object _ZERO = 0
cdef object _LOW_64_BITS = 0xFFFF_FFFF_FFFF_FFFF
cdef object _64 = 64
cdef tuple _EMPTY = ()
cdef tuple _INT8 = (*range(128), *range(-128, 0))  # numbers by their byte; see `protocol/wire.py`
cdef Py_ssize_t UUID_INT, UUID_SAFETY
try:
    UUID_INT = slot_offset(_Uuid, "int")
    UUID_SAFETY = slot_offset(_Uuid, "is_safe")
except TypeError as error:
    raise ImportError(f"this Python stores UUIDs differently: {error}") from error


# -- layouts --------------------------------------------------------------------------------------


cdef int make_table(Fields* made, list rows, type cls, list kept) except -1:
    """Turn rows of `protocol/layouts.py` into an array; `kept` keeps their objects alive.

    The owner of `made` frees the array, also if this function raises.
    """
    cdef Field* field
    made.count = len(rows)
    made.at = <Field*>PyMem_Calloc(made.count + 1, sizeof(Field))
    if made.at == NULL:
        raise MemoryError
    for number, row in enumerate(rows):
        field = &made.at[number]
        default, inner = row.default, row.inner
        kept += (default, inner)
        field.kind = ord(row.kind)
        field.element = ord(row.element) if row.element else 0
        field.compact = row.compact
        field.nullable = row.nullable
        field.ignorable = row.ignorable
        field.tag = row.tag
        field.offset = slot_offset(cls, row.name)
        field.min_size = row.min_size
        field.cost = row.cost
        # A structure's default is a new one, unless it is None.
        field.default = NULL if row.new_default else <PyObject*>default
        field.inner = <PyObject*>inner
    return 0


@cython.final
@cython.no_gc_clear  # otherwise `kept` could be emptied while fields still point to its objects
cdef class Layout:
    """Decodes and encodes one structure in one version.

    Args:
        cls: Class of the structure.
        every: A row per field of the class; see `protocol/layouts.py`.
        line: Rows of the fields outside the tagged section, in wire order.
        tagged: Rows of the fields in the tagged section, by tag.
        absent: Rows of the fields that this version lacks.
        flexible: True if the version has a tagged section.
    """

    cdef type cls
    cdef PyTypeObject* kind
    cdef Fields every
    cdef Fields line
    cdef Fields tagged
    cdef Fields absent
    cdef Py_ssize_t unknown
    cdef bint flexible
    cdef list kept

    def __cinit__(self, type cls, list every, list line, list tagged, list absent, bint flexible):
        self.kept = []
        self.cls = cls
        self.kind = <PyTypeObject*>cls
        self.flexible = flexible
        self.unknown = slot_offset(cls, "unknown_tagged_fields")
        make_table(&self.every, every, cls, self.kept)
        make_table(&self.line, line, cls, self.kept)
        make_table(&self.tagged, tagged, cls, self.kept)
        make_table(&self.absent, absent, cls, self.kept)

    def __dealloc__(self):
        PyMem_Free(self.every.at)
        PyMem_Free(self.line.at)
        PyMem_Free(self.tagged.at)
        PyMem_Free(self.absent.at)

    def decode(self, source, Py_ssize_t position):
        """Return the message at `position` and the position after it.

        Raises:
            FallbackRequired: The generated decoder must decode the message.
            ValueError: The same.
        """
        cdef Py_buffer view
        cdef Reader reader
        PyObject_GetBuffer(source, &view, PyBUF_SIMPLE)
        try:
            if not 0 <= position <= view.len:
                fall_back()
            reader.start = <const uint8_t*>view.buf
            reader.at = reader.start + position
            reader.end = reader.start + view.len
            reader.memory_left = min(
                <int64_t>view.len * MEMORY_FACTOR + MEMORY_ALLOWANCE, <int64_t>MAX_MEMORY
            )
            whole_view = memoryview(source)
            reader.view = <PyObject*>whole_view
            made = read_struct(self, &reader)
            return made, reader.at - reader.start
        finally:
            PyBuffer_Release(&view)

    def encode(self, value):
        """Return the parts of the message: small fields joined, large bytes fields as they are.

        Raises:
            FallbackRequired: The generated encoder must encode the value.
            ValueError: The same.
            BufferError: The same.
        """
        cdef list parts = []
        cdef Writer writer
        writer.parts = <PyObject*>parts
        writer.size = writer.open_tags = 0
        writer.capacity = INITIAL_BUFFER_SIZE
        writer.data = <uint8_t*>PyMem_Malloc(INITIAL_BUFFER_SIZE)
        if writer.data == NULL:
            raise MemoryError
        try:
            write_struct(self, value, &writer)
            flush(&writer)
        finally:
            PyMem_Free(writer.data)
        return parts


cdef inline PyObject** slot(object value, Py_ssize_t offset) noexcept:
    return <PyObject**>(<char*><PyObject*>value + offset)


cdef inline void set_slot(object owner, Py_ssize_t offset, object value) noexcept:
    """Set an empty slot."""
    Py_INCREF(value)
    slot(owner, offset)[0] = <PyObject*>value


cdef inline void replace_slot(object owner, Py_ssize_t offset, object value) noexcept:
    """Set a slot that may hold an object."""
    cdef PyObject* old = slot(owner, offset)[0]
    set_slot(owner, offset, value)
    Py_XDECREF(old)


cdef object new_default(Layout layout):
    """Make the structure with the defaults of its class."""
    made = PyType_GenericAlloc(layout.kind, 0)
    set_slot(made, layout.unknown, _EMPTY)
    fill_defaults(made, &layout.every)
    return made


cdef int fill_defaults(object made, Fields* fields) except -1:
    cdef Py_ssize_t i
    cdef Field* field
    for i in range(fields.count):
        field = &fields.at[i]
        if field.default != NULL:
            set_slot(made, field.offset, <object>field.default)
        else:
            set_slot(made, field.offset, new_default(<Layout>field.inner))
    return 0


# -- reading --------------------------------------------------------------------------------------


cdef inline int require(Reader* r, Py_ssize_t size) except -1:
    if r.end - r.at < size:
        fall_back()
    return 0


cdef inline int charge_memory(Reader* r, int64_t size) except -1:
    """Charge `size` bytes to the memory that the message may take."""
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
    """Read a number or bool; the caller has checked that the bytes are there."""
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
    """Return the bytes that a fixed type takes, 0 for other types."""
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
        return _EMPTY  # an empty list each would take most of a hostile message's memory
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
    """Read an array of a fixed type; the caller has checked that the bytes are there."""
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


# -- writing --------------------------------------------------------------------------------------


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
        # The receiver of the part takes its `len` for the size in bytes.
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
