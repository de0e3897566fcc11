"""Returns records one by one to `async for`."""


@cython.final
cdef class NextRecord:
    """Returns the next record each time it is awaited."""

    cdef object time
    cdef object more
    cdef public list records
    cdef public Py_ssize_t at
    cdef public double until

    def __init__(self, time, more):
        self.time = time
        self.more = more
        self.records = []
        self.until = float("-inf")

    def __reduce__(self):
        raise copy_error(self)

    # An iterator over itself, so that a fetched record needs no coroutine.

    def __await__(self):
        if has_record(self) and <double>self.time() < self.until:
            return self
        return self.more().__await__()

    def __iter__(self):
        return self

    def __next__(self):
        # Called instead of `send_record` only under a debugger or profiler.
        if not has_record(self):
            raise IllegalStateError("there is no fetched record")
        raise StopIteration(pop_record(self))


cdef inline bint has_record(NextRecord self) noexcept:
    return self.records is not None and 0 <= self.at < PyList_GET_SIZE(self.records)


cdef inline object pop_record(NextRecord self):
    record = self.records[self.at]
    self.at += 1
    return record


cdef int send_record(object self, object value, PyObject** result) except -1:
    if not has_record(<NextRecord>self):
        raise IllegalStateError("there is no fetched record")
    record = pop_record(<NextRecord>self)
    Py_INCREF(record)
    result[0] = <PyObject*>record
    return 0  # PYGEN_RETURN


# This slot returns a value without a StopIteration; Cython has no name for it.
(<PyTypeObject*>NextRecord).tp_as_async.am_send = <void*>send_record


@cython.final
cdef class RecordIterator:
    """Iterates asynchronously over the records that a `NextRecord` returns."""

    cdef readonly object next_record
    cdef object __weakref__

    def __init__(self, next_record):
        self.next_record = next_record

    @classmethod
    def __class_getitem__(cls, parameters):
        return types.GenericAlias(cls, parameters)

    def __aiter__(self):
        """Return the iterator itself."""
        return self

    def __anext__(self):
        """Return the awaitable of the next record."""
        return self.next_record
