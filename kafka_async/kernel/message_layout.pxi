"""Describes messages by tables of their fields."""

# The type of a field. Fixed-size types have their letter of the module `struct`.
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
    bint ignorable  # versions without the field drop its value
    int64_t tag
    Py_ssize_t offset  # of the slot in the object
    Py_ssize_t min_size  # minimum bytes of an array's element
    Py_ssize_t cost  # bytes of memory of an array's element
    PyObject* default  # NULL if the default is a new structure
    PyObject* inner  # the Layout of a structure, or of an array's elements

cdef struct Fields:
    Py_ssize_t count
    Field* at


cdef int make_table(Fields* made, list rows, type cls, list kept) except -1:
    """Turn rows of `protocol/layouts.py` into an array; `kept` keeps their objects alive.

    The owner of `made` frees the array, even if this function raises.
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
