"""Consumed records and delivery handles."""


@cython.final
cdef class Record:
    """Represents a consumed record; immutable.

    Attributes:
        topic: Topic name.
        partition: Partition number.
        offset: Offset in the partition.
        timestamp: Milliseconds since the epoch.
        timestamp_type: 0 if the producer set the timestamp (CreateTime), 1 if the broker did
            (LogAppendTime).
        key: Bytes, or the deserialized object; None if null.
        value: Bytes, or the deserialized object; None for a tombstone.
        headers: (name, value) pairs; a value is bytes or None.
        leader_epoch: Leader epoch of the record's batch; None if unknown.
    """

    # In the order of ATTRIBUTE_NAMES.
    cdef object topic
    cdef object partition
    cdef object offset
    cdef object timestamp
    cdef object timestamp_type
    cdef object key
    cdef object value
    cdef object headers
    cdef object leader_epoch

    def __init__(self, topic, partition, offset, timestamp, timestamp_type, key, value,
                 headers=(), leader_epoch=None):
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.timestamp = timestamp
        self.timestamp_type = timestamp_type
        self.key = key
        self.value = value
        self.headers = headers
        self.leader_epoch = leader_epoch

    @classmethod
    def __class_getitem__(cls, parameters):
        return types.GenericAlias(cls, parameters)

    def __eq__(self, other):
        if not isinstance(other, Record):
            return NotImplemented
        return _fields(self) == _fields(<Record>other)

    def __hash__(self):
        return hash((self.topic, self.partition, self.offset))

    def __reduce__(self):
        return Record, _fields(self)

    def __repr__(self):
        headers = ", ".join([f"({name!r}, {abbreviate(value)})" for name, value in self.headers])
        return (
            f"Record(topic={self.topic!r}, partition={self.partition}, offset={self.offset}, "
            f"timestamp={self.timestamp}, key={abbreviate(self.key)}, "
            f"value={abbreviate(self.value)}, headers=({headers}))"
        )


cdef extern from *:
    """
    #include <structmember.h>
    /* Offset of the first of a record's attributes, which are contiguous. Should Cython ever name
       its structs differently, this does not compile. */
    #define RECORD_ATTRIBUTES \\
        offsetof(struct __pyx_obj_11kafka_async_6kernel_8_ckernel_Record, topic)
    """
    ctypedef struct PyMemberDef:
        const char* name
        int type
        Py_ssize_t offset
        int flags
        const char* doc
    ctypedef struct PyAsyncMethods:
        void* am_send
    ctypedef struct PyTypeObject:
        PyObject* tp_dict
        PyAsyncMethods* tp_as_async
    const int T_OBJECT_EX
    const int READONLY
    const Py_ssize_t RECORD_ATTRIBUTES
    object PyDescr_NewMember(PyTypeObject*, PyMemberDef*)
    PyObject* _PyObject_GC_New(PyTypeObject*) except NULL
    void PyType_Modified(PyTypeObject*)


cdef const char** ATTRIBUTE_NAMES = [
    b"topic", b"partition", b"offset", b"timestamp", b"timestamp_type", b"key", b"value",
    b"headers", b"leader_epoch",
]
cdef PyMemberDef RECORD_MEMBERS[9]


cdef int expose_attributes() except -1:
    # The interpreter reads members in place, four times as fast as through Cython's getter of a
    # readonly attribute.
    cdef PyTypeObject* kind = <PyTypeObject*>Record
    cdef PyMemberDef* member
    cdef int index
    for index in range(9):
        member = &RECORD_MEMBERS[index]
        member.name = ATTRIBUTE_NAMES[index]
        member.type = T_OBJECT_EX
        member.offset = RECORD_ATTRIBUTES + index * <Py_ssize_t>sizeof(PyObject*)
        member.flags = READONLY
        (<object>kind.tp_dict)[member.name.decode()] = PyDescr_NewMember(kind, member)
    PyType_Modified(kind)
    return 0


expose_attributes()


cdef tuple _fields(Record record):
    return (
        record.topic, record.partition, record.offset, record.timestamp, record.timestamp_type,
        record.key, record.value, record.headers, record.leader_epoch,
    )


@cython.final
@cython.freelist(512)
cdef class Delivery:
    """Represents an appended record; await it for the record's `RecordMetadata`.

    It may be awaited any number of times, by any number of tasks. Cancelling one of these tasks, or
    dropping the handle, does not affect the record. Immutable; it refers to the outcome of its
    batch, never to the batch's bytes.
    """

    cdef readonly object outcome
    cdef readonly int64_t timestamp
    cdef readonly int32_t index

    def __init__(self, outcome, index, timestamp):
        self.outcome = outcome
        self.index = index
        self.timestamp = timestamp

    def __reduce__(self):
        raise copy_error(self)

    def __await__(self):
        return _outcome(self).wait(self)

    def done(self):
        """Return True if the record was acknowledged or has failed."""
        return _outcome(self).done

    def result(self):
        """Return the record's metadata.

        Raises:
            KafkaError: The record was not delivered.
            IllegalStateError: The record is still pending.
        """
        return _outcome(self).result(self)

    def exception(self):
        """Return the record's error, or None if the record was acknowledged.

        Raises:
            IllegalStateError: The record is still pending.
        """
        return _outcome(self).exception(self)

    def add_done_callback(self, callback):
        """Call `callback(delivery)` from the event loop once the record's outcome is decided.

        If that has already happened, the callback is scheduled at once. An exception that it raises
        goes to the event loop's exception handler. A callback does not count as awaiting: the
        record still lingers, and `flush()` still raises its failure unless the callback calls
        `result()` or `exception()`.

        Args:
            callback: Called with this delivery.

        Raises:
            TypeError: `callback` is not callable, or an async function.
        """
        if not callable(callback):
            raise TypeError(f"callback must be callable, not {callback!r:.60}")
        _outcome(self).add_done_callback(self, callback)

    def __repr__(self):
        state = "done" if self.outcome is not None and self.outcome.done else "pending"
        return f"<Delivery index={self.index} timestamp={self.timestamp} {state}>"


cdef object _outcome(Delivery delivery):
    if delivery.outcome is None:
        raise IllegalStateError("the record's batch has no outcome")
    return delivery.outcome


cdef inline Delivery new_delivery(object outcome, int32_t index, int64_t timestamp):
    cdef Delivery delivery = Delivery.__new__(Delivery)
    delivery.outcome = outcome
    delivery.index = index
    delivery.timestamp = timestamp
    return delivery
