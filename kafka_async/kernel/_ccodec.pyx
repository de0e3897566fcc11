# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False, embedsignature=True
"""Messages to bytes and back by a table: the compiled short cut of the codecs in plain Python.

The functions that `protocol/compiler.py` writes are the specification. A `Layout` does what they do
for messages and values that are as they should be, and for nothing else: whatever looks odd makes
it give up with `FallbackRequired`, and the caller asks the plain function, which accepts it or says what is
wrong. So there is no message of an error here, and no rule about who may set what: only formats.

Objects are made empty and their slots are filled where they lie; that is safe because a layout is
used for exactly the class it was made for, and finds the places out from the class itself. Reading
goes through a `Reader`, two pointers whose only ways forward compare what they take with what is
left. While a message is written no Python code runs, so nothing can change under the pen: the lock
of the interpreter sees to it. Therefore this module does not claim to do without that lock, as the
kernel does: another thread could shorten a list whose items are being written.
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
    # Memory, see `protocol/memory_cost.py`.
    FACTOR = 64
    SPARE = 14 * 1024
    MOST = 192 * 1024 * 1024
    ARRAY_COST = 88
    TAGS_COST = 48
    TAG_COST = 140
    PART = 4096  # bytes from which a bytes field is handed over as it is rather than copied
    FIRST_BUFFER = 512

# What a field holds. The fixed ones are called as `struct` calls them.
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
    bint ignorable  # a version that lacks the field may drop what was set
    int64_t tag
    Py_ssize_t offset  # of the slot in the object
    Py_ssize_t least  # bytes an element of an array takes at least
    Py_ssize_t cost  # bytes of memory that it takes
    PyObject* default  # NULL where it is a fresh structure
    PyObject* inner  # the Layout of a structure, or of an array's elements

cdef struct Fields:
    Py_ssize_t count
    Field* at

cdef struct Reader:
    const uint8_t* at
    const uint8_t* end
    const uint8_t* start
    PyObject* view  # a memoryview of it all
    int64_t left  # bytes of memory that the message may still take

cdef struct Writer:
    uint8_t* data
    Py_ssize_t size
    Py_ssize_t capacity
    int inside  # tagged fields that are open: their size is not known yet, so all is copied
    PyObject* parts


class FallbackRequired(ValueError):
    """Not a message, or not a value, that the compiled codec decides on."""


cdef int unsure() except -1:
    raise FallbackRequired


cdef Py_ssize_t slot_of(type kind, str name) except -1:
    """Where objects of a class keep what its slot `name` holds."""
    cdef object member = getattr(kind, name)
    if Py_TYPE(member) != &PyMemberDescr_Type:
        raise TypeError(f"{kind.__name__}.{name} is no slot")
    return (<PyMemberDescrObject*>member).d_member.offset


cdef object _Uuid = uuid.UUID
cdef object _UNKNOWN_SAFETY = uuid.SafeUUID.unknown
cdef object _ZERO = 0
cdef object _LOW = 0xFFFF_FFFF_FFFF_FFFF
cdef object _64 = 64
cdef tuple _NOTHING = ()
cdef tuple _INT8 = (*range(128), *range(-128, 0))  # shared, see `protocol/wire.py`
cdef Py_ssize_t UUID_INT, UUID_SAFETY
try:
    UUID_INT = slot_of(_Uuid, "int")
    UUID_SAFETY = slot_of(_Uuid, "is_safe")
except TypeError as error:
    raise ImportError(f"this Python keeps UUIDs in another way: {error}") from error


# -- layouts --------------------------------------------------------------------------------------


cdef int table(Fields* made, list rows, type cls, list kept) except -1:
    """Rows of the specification as an array; the objects they name are kept alive in `kept`.

    The array belongs to the owner of `made` from the start, who frees it if this fails.
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
        field.offset = slot_of(cls, row.name)
        field.least = row.least
        field.cost = row.cost
        # A structure's default is a fresh one, where it is not None.
        field.default = NULL if row.fresh else <PyObject*>default
        field.inner = <PyObject*>inner
    return 0


@cython.final
@cython.no_gc_clear  # or `kept` could be emptied while the fields still point to what it held
cdef class Layout:
    """One structure in one version: where its fields lie in the bytes, and where in the object.

    Args:
        cls: the structure's class.
        every: a row for each field, in line or not; see `protocol/layouts.py`.
        line: the rows of those that stand in line, in that order.
        tagged: the rows of those in the tagged section, by tag.
        absent: the rows of those this version lacks.
        flexible: whether there is a tagged section.
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
        self.unknown = slot_of(cls, "unknown_tagged_fields")
        table(&self.every, every, cls, self.kept)
        table(&self.line, line, cls, self.kept)
        table(&self.tagged, tagged, cls, self.kept)
        table(&self.absent, absent, cls, self.kept)

    def __dealloc__(self):
        PyMem_Free(self.every.at)
        PyMem_Free(self.line.at)
        PyMem_Free(self.tagged.at)
        PyMem_Free(self.absent.at)

    def decode(self, source, Py_ssize_t position):
        """The message at `position`, and the position after it.

        Raises:
            Unsure: the plain decoder has to look.
            ValueError: as well.
        """
        cdef Py_buffer view
        cdef Reader reader
        PyObject_GetBuffer(source, &view, PyBUF_SIMPLE)
        try:
            if not 0 <= position <= view.len:
                unsure()
            reader.start = <const uint8_t*>view.buf
            reader.at = reader.start + position
            reader.end = reader.start + view.len
            reader.left = min(<int64_t>view.len * FACTOR + SPARE, <int64_t>MOST)
            whole_view = memoryview(source)
            reader.view = <PyObject*>whole_view
            made = read_struct(self, &reader)
            return made, reader.at - reader.start
        finally:
            PyBuffer_Release(&view)

    def encode(self, value):
        """The parts of the message, small ones joined, large bytes as they are.

        Raises:
            Unsure: the plain encoder has to look.
            ValueError, BufferError: as well.
        """
        cdef list parts = []
        cdef Writer writer
        writer.parts = <PyObject*>parts
        writer.size = writer.inside = 0
        writer.capacity = FIRST_BUFFER
        writer.data = <uint8_t*>PyMem_Malloc(FIRST_BUFFER)
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


cdef inline void fill(object owner, Py_ssize_t offset, object value) noexcept:
    """Put `value` into a slot that is empty."""
    Py_INCREF(value)
    slot(owner, offset)[0] = <PyObject*>value


cdef inline void replace(object owner, Py_ssize_t offset, object value) noexcept:
    """Put `value` into a slot that may hold something."""
    cdef PyObject* old = slot(owner, offset)[0]
    fill(owner, offset, value)
    Py_XDECREF(old)


cdef object fresh(Layout layout):
    """The structure as its class makes it without arguments."""
    made = PyType_GenericAlloc(layout.kind, 0)
    fill(made, layout.unknown, _NOTHING)
    fill_defaults(made, &layout.every)
    return made


cdef int fill_defaults(object made, Fields* fields) except -1:
    cdef Py_ssize_t i
    cdef Field* field
    for i in range(fields.count):
        field = &fields.at[i]
        if field.default != NULL:
            fill(made, field.offset, <object>field.default)
        else:
            fill(made, field.offset, fresh(<Layout>field.inner))
    return 0


# -- reading --------------------------------------------------------------------------------------


cdef inline int need(Reader* r, Py_ssize_t size) except -1:
    if r.end - r.at < size:
        unsure()
    return 0


cdef inline int spend(Reader* r, int64_t size) except -1:
    """Take so many bytes from the memory that the message may cost."""
    r.left -= size
    if r.left < 0:
        unsure()
    return 0


cdef inline uint64_t big(const uint8_t* at, int size) noexcept:
    """`size` bytes as a number, the most significant first."""
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
        need(r, 1)
        byte = r.at[0]
        r.at += 1
        value |= <uint64_t>(byte & 0x7F) << shift
        if byte < 0x80:
            return <int64_t>value  # beyond 32 bits it is more than there is of anything
        shift += 7
    unsure()


cdef inline int64_t read_length(bint compact, bint short_, Reader* r) except -2:
    """A length, -1 for null."""
    cdef int64_t length
    if compact:
        return read_uvarint(r) - 1
    if short_:
        need(r, 2)
        length = <int16_t>big(r.at, 2)
        r.at += 2
    else:
        need(r, 4)
        length = <int32_t>big(r.at, 4)
        r.at += 4
    if length < -1:
        unsure()
    return length


cdef inline object read_fixed(int kind, Reader* r):
    """One number or bool; that there are enough bytes is known."""
    cdef const uint8_t* at = r.at
    cdef uint64_t bits
    cdef double number
    if kind == INT32:
        r.at += 4
        return <int32_t>big(at, 4)
    elif kind == INT64:
        r.at += 8
        return <int64_t>big(at, 8)
    elif kind == INT16:
        r.at += 2
        return <int16_t>big(at, 2)
    elif kind == BOOL:
        r.at += 1
        return at[0] != 0
    elif kind == INT8:
        r.at += 1
        return <int8_t>at[0]
    elif kind == UINT16:
        r.at += 2
        return <uint16_t>big(at, 2)
    elif kind == UINT32:
        r.at += 4
        return <uint32_t>big(at, 4)
    bits = big(at, 8)
    memcpy(&number, &bits, 8)
    r.at += 8
    return number


cdef inline int width(int kind) noexcept:
    """The bytes of a fixed kind, 0 for others."""
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
    need(r, 16)
    cdef object high = big(r.at, 8)
    cdef object number = big(r.at + 8, 8)
    r.at += 16
    if high:
        number = (high << _64) | number
    made = PyType_GenericAlloc(<PyTypeObject*>_Uuid, 0)
    fill(made, UUID_INT, number)
    fill(made, UUID_SAFETY, _UNKNOWN_SAFETY)
    return made


cdef object read_sized(int kind, bint compact, bint nullable, Reader* r):
    cdef int64_t length = read_length(compact, kind == STRING, r)
    cdef const uint8_t* at = r.at
    if length < 0:
        if not nullable:
            unsure()
        return None
    need(r, length)
    r.at += length
    if kind == STRING:
        if length > MAX_STRING:
            unsure()
        return PyUnicode_DecodeUTF8(<const char*>at, length, NULL)
    if kind == RECORDS:
        return (<object>r.view)[at - r.start:r.at - r.start]
    return PyBytes_FromStringAndSize(<const char*>at, length)


cdef object read_array(Field* field, Reader* r):
    cdef int64_t count = read_length(field.compact, False, r)
    if count < 0:
        if not field.nullable:
            unsure()
        return None
    if count > MAX_ELEMENTS or count * field.least > r.end - r.at:
        unsure()
    if count:
        spend(r, ARRAY_COST + count * field.cost)
    if width(field.element):
        return read_numbers(field.element, count, r)
    if not count:
        return _NOTHING  # a list of its own would be the most of a hostile message's memory
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
    """An array of a fixed kind; that there are enough bytes is known."""
    if count == 0:
        return _NOTHING
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
    PyObject_GC_UnTrack(items)  # numbers make no cycles
    return items


cdef object read_value(Field* field, Reader* r):
    cdef int kind = field.kind
    cdef int size = width(kind), marker
    if size:
        need(r, size)
        return read_fixed(kind, r)
    elif kind == ARRAY:
        return read_array(field, r)
    elif kind == UUID:
        return read_uuid(r)
    elif kind != STRUCT:
        return read_sized(kind, field.compact, field.nullable, r)
    if field.nullable:
        need(r, 1)
        marker = <int8_t>r.at[0]
        r.at += 1
        if marker == -1:
            return None
        if marker != 1:
            unsure()
    return read_struct(<Layout>field.inner, r)


cdef object read_struct(Layout layout, Reader* r):
    cdef Py_ssize_t i
    cdef Field* field = layout.line.at
    made = PyType_GenericAlloc(layout.kind, 0)
    for i in range(layout.line.count):
        fill(made, field.offset, read_value(field, r))
        field += 1
    fill_defaults(made, &layout.absent)
    fill_defaults(made, &layout.tagged)
    fill(made, layout.unknown, _NOTHING)
    if layout.flexible:
        need(r, 1)
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
        unsure()
    spend(r, TAGS_COST + count * TAG_COST)
    for _ in range(count):
        tag = read_uvarint(r)
        size = read_uvarint(r)
        if tag <= last or tag > MAX_TAG:
            unsure()
        last = tag
        need(r, size)
        stop = r.at + size
        for i in range(layout.tagged.count):
            if layout.tagged.at[i].tag == tag:
                value = read_value(&layout.tagged.at[i], r)
                replace(made, layout.tagged.at[i].offset, value)
                break
        else:
            unknown.append((tag, PyBytes_FromStringAndSize(<const char*>r.at, size)))
            r.at = stop
        if r.at != stop:
            unsure()
    replace(made, layout.unknown, tuple(unknown))
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
    """Hand over what was written so far as a part."""
    if w.size:
        (<list>w.parts).append(PyBytes_FromStringAndSize(<const char*>w.data, w.size))
        w.size = 0
    return 0


cdef inline int put(Writer* w, uint64_t value, int size) except -1:
    """The lowest `size` bytes of `value`, the most significant first."""
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


cdef inline int64_t whole(object value) except? -1:
    """An int of 64 bits."""
    cdef int overflow = 0
    cdef int64_t number
    if not PyLong_Check(value):
        unsure()
    number = PyLong_AsLongLongAndOverflow(value, &overflow)
    if overflow:
        unsure()
    return number


cdef int write_int(Writer* w, object value, int64_t least, int64_t most, int size) except -1:
    cdef int64_t number = whole(value)
    if not least <= number <= most:
        unsure()
    return put(w, <uint64_t>number, size)


cdef int write_fixed(Writer* w, int kind, object value) except -1:
    cdef double number
    cdef uint64_t bits
    if kind == INT32:
        return write_int(w, value, -0x8000_0000, 0x7FFF_FFFF, 4)
    elif kind == INT64:
        return put(w, <uint64_t>whole(value), 8)
    elif kind == INT16:
        return write_int(w, value, -0x8000, 0x7FFF, 2)
    elif kind == BOOL:
        if value is not True and value is not False:
            unsure()
        return put(w, value is True, 1)
    elif kind == INT8:
        return write_int(w, value, -0x80, 0x7F, 1)
    elif kind == UINT16:
        return write_int(w, value, 0, 0xFFFF, 2)
    elif kind == UINT32:
        return write_int(w, value, 0, 0xFFFF_FFFF, 4)
    if not PyFloat_CheckExact(value):
        unsure()
    number = PyFloat_AS_DOUBLE(value)
    memcpy(&bits, &number, 8)
    return put(w, bits, 8)


cdef object uuid_number(object value):
    """The number that a UUID is."""
    if Py_TYPE(value) != <PyTypeObject*>_Uuid or slot(value, UUID_INT)[0] == NULL:
        unsure()
    number = <object>slot(value, UUID_INT)[0]
    if not PyLong_CheckExact(number):
        unsure()
    return number


cdef int write_uuid(Writer* w, object value) except -1:
    number = uuid_number(value)
    put(w, <uint64_t>(number >> _64), 8)
    return put(w, <uint64_t>(number & _LOW), 8)


cdef int write_string(Writer* w, bint compact, object value) except -1:
    cdef Py_ssize_t size
    cdef const char* data
    if not PyUnicode_CheckExact(value):
        unsure()
    data = PyUnicode_AsUTF8AndSize(value, &size)
    if size > MAX_STRING:
        unsure()
    if compact:
        write_uvarint(w, size + 1)
    else:
        put(w, size, 2)
    return write_bytes(w, data, size)


cdef int write_octets(Writer* w, bint compact, object value) except -1:
    write_octets_size(w, compact, octets_size(value))
    return write_part(w, value)


cdef int write_pieces(Writer* w, bint compact, tuple value) except -1:
    """Records that lie in several buffers."""
    cdef Py_ssize_t size = 0
    for piece in value:
        size += octets_size(piece)
    write_octets_size(w, compact, size)
    for piece in value:
        write_part(w, piece)
    return 0


cdef int write_octets_size(Writer* w, bint compact, Py_ssize_t size) except -1:
    if size > 0x7FFF_FFFF:
        unsure()
    if compact:
        return write_uvarint(w, size + 1)
    return put(w, size, 4)


cdef Py_ssize_t octets_size(object value) except -1:
    if PyMemoryView_Check(value):
        # `len` has to be the size in bytes for those who get the part.
        if PyMemoryView_GET_BUFFER(value).ndim != 1 or PyMemoryView_GET_BUFFER(value).itemsize != 1:
            unsure()
    elif not PyBytes_CheckExact(value) and not PyByteArray_CheckExact(value):
        unsure()
    return len(value)


cdef int write_part(Writer* w, object value) except -1:
    cdef Py_buffer view
    PyObject_GetBuffer(value, &view, PyBUF_SIMPLE)
    try:
        if view.len < PART or w.inside:
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
        unsure()
    count = PyList_GET_SIZE(value) if is_list else PyTuple_GET_SIZE(value)
    if count > 0x7FFF_FFFF:
        unsure()
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
            write_octets(w, field.compact, item)
    return 0


cdef int write_null(Writer* w, Field* field) except -1:
    if not field.nullable:
        unsure()
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
        return write_pieces(w, field.compact, <tuple>value)
    return write_octets(w, field.compact, value)


cdef inline object held(object owner, Field* field):
    """What a field holds."""
    if slot(owner, field.offset)[0] == NULL:
        unsure()
    return <object>slot(owner, field.offset)[0]


cdef int write_struct(Layout layout, object value, Writer* w) except -1:
    cdef Py_ssize_t i
    cdef Field* field
    if Py_TYPE(value) != layout.kind:
        unsure()
    for i in range(layout.absent.count):
        field = &layout.absent.at[i]
        if not field.ignorable and is_set(held(value, field), field):
            unsure()
    field = layout.line.at
    for i in range(layout.line.count):
        write_value(w, field, held(value, field))
        field += 1
    if layout.flexible:
        write_tagged(layout, value, w)
    return 0


cdef int write_tagged(Layout layout, object value, Writer* w) except -1:
    """The tagged section. Fields that the schema does not know are the plain encoder's."""
    cdef Py_ssize_t i, start, size, shift
    cdef int count = 0
    cdef Field* field
    cdef uint64_t rest
    if slot(value, layout.unknown)[0] != <PyObject*>_NOTHING:
        unsure()
    for i in range(layout.tagged.count):
        count += is_set(held(value, &layout.tagged.at[i]), &layout.tagged.at[i])
    write_uvarint(w, count)
    if not count:
        return 0
    for i in range(layout.tagged.count):
        field = &layout.tagged.at[i]
        if not is_set(held(value, field), field):
            continue
        write_uvarint(w, field.tag)
        w.inside += 1
        start = w.size
        write_value(w, field, held(value, field))
        w.inside -= 1
        size = w.size - start
        # The size stands before what it is the size of: move that to make room.
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
    """Whether a field holds something else than its default."""
    if <PyObject*>value == field.default:
        return False
    if field.kind == STRUCT and field.default == NULL:
        return not is_fresh(value, <Layout>field.inner)
    if value is None or <object>field.default is None:
        return True
    if field.kind == ARRAY:
        if PyList_CheckExact(value):
            return PyList_GET_SIZE(value) > 0
        if PyTuple_CheckExact(value):
            return PyTuple_GET_SIZE(value) > 0
        unsure()
    if field.kind == UUID:
        return uuid_number(value) != uuid_number(<object>field.default)
    if PyLong_Check(value) or PyUnicode_CheckExact(value) or PyBytes_CheckExact(value):
        if Py_TYPE(value) == Py_TYPE(<object>field.default):
            return value != <object>field.default
    unsure()


cdef bint is_fresh(object value, Layout layout) except -1:
    """Whether a structure is as its class makes it without arguments."""
    cdef Py_ssize_t i
    if Py_TYPE(value) != layout.kind or slot(value, layout.unknown)[0] != <PyObject*>_NOTHING:
        unsure()
    for i in range(layout.every.count):
        if is_set(held(value, &layout.every.at[i]), &layout.every.at[i]):
            return False
    return True
