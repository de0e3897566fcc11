# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False, embedsignature=True, freethreading_compatible=True
# cython: auto_pickle=False, embedsignature.format=clinic
"""The compiled kernel: the same functions, classes, bytes and errors as `_pykernel`.

`_pykernel` is the specification and explains the formats. For memory safety, bytes are read through
a `Cursor`: two pointers, and each function that advances it first compares the size with what is
left. Functions return a corruption as a number, which becomes the shared exception at the top.

The module is freethreading_compatible: objects are confined to the thread of their client, records
and deliveries never change once they are returned, and the module has no mutable state.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, \
    PyBytes_GET_SIZE, _PyBytes_Resize
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from cpython.list cimport PyList_GET_SIZE
from cpython.long cimport PyLong_AsLongLongAndOverflow
from cpython.number cimport PyNumber_Index
from cpython.tuple cimport PyTuple_CheckExact, PyTuple_GET_ITEM, PyTuple_GET_SIZE, PyTuple_New, \
    PyTuple_SET_ITEM
from cpython.ref cimport Py_DECREF, Py_INCREF, Py_XDECREF, PyObject
from cpython.unicode cimport PyUnicode_CheckExact, PyUnicode_DecodeUTF8
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memset
import time
import types

import cython

from kafka_async.errors import IllegalStateError
from kafka_async.kernel._shared import BinaryColumn, Columns, HeaderColumn, abbreviate, \
    copy_error, corrupt_record_error

IMPLEMENTATION = "c"

cdef extern from "Python.h":
    void PyObject_GC_UnTrack(object)
    const char* PyUnicode_AsUTF8AndSize(object, Py_ssize_t*) except NULL
    object PyUnicode_FromObject(object)

cdef tuple EMPTY = ()
cdef int64_t MAX_INT64 = 0x7FFF_FFFF_FFFF_FFFF
cdef int64_t MAX_TIMESTAMP = 0x7FFF_FFFF_FFFF_FFFE
cdef int64_t MAX_INT32 = 0x7FFF_FFFF
cdef enum:
    MIN_RECORD_SIZE = 7
    MAX_RECORD_OVERHEAD = 36
    BATCH_HEADER_SIZE = 61
    # Bytes of an open batch's buffer: the first; up to where it only doubles; the largest capacity
    # that is allocated at once.
    INITIAL_BUFFER_SIZE = 512
    SMALL_BUFFER_SIZE = 4096
    MAX_EAGER_ALLOCATION = 1 << 20

# The same numbers as _shared.Corruption.
cdef enum Corruption:
    VALID = 0
    TRUNCATED = 1
    VARINT = 2
    COUNT = 3
    OFFSETS = 4
    LENGTH = 5
    OFFSET_DELTA = 6
    TIMESTAMP = 7
    FIELD = 8
    HEADER_COUNT = 9
    HEADER = 10
    RECORD_LEFTOVER = 11
    SECTION_LEFTOVER = 12


# -- values ---------------------------------------------------------------------------------------


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
        key: Bytes, or the object that the deserializer returned; None if null.
        value: Bytes, or the object that the deserializer returned; None for a tombstone.
        headers: Pairs of a name and a value, which is bytes or None.
        leader_epoch: Leader epoch of the record's batch, None if unknown.
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
    # The interpreter reads members in place, four times as fast as it calls the getter that Cython
    # makes of a readonly attribute.
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
        """Return the record's error, None if it was acknowledged.

        Raises:
            IllegalStateError: The record is still pending.
        """
        return _outcome(self).exception(self)

    def add_done_callback(self, callback):
        """Call `callback(delivery)` from the event loop once the record's outcome is known.

        If the outcome is known already, the callback is scheduled at once. An exception that it
        raises goes to the event loop's exception handler. A callback does not count as awaiting:
        the record still lingers, and `flush()` still raises its failure unless the callback calls
        `result()` or `exception()`.

        Args:
            callback: Function of one argument, this delivery.

        Raises:
            TypeError: `callback` is not callable.
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


# -- writing --------------------------------------------------------------------------------------


cdef inline uint64_t zigzag(int64_t value) noexcept nogil:
    return (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)


cdef inline int varint_size(uint64_t raw) noexcept nogil:
    cdef int size = 1
    while raw >= 0x80:
        raw >>= 7
        size += 1
    return size


cdef inline uint8_t* put_varint(uint8_t* at, uint64_t raw) noexcept nogil:
    while raw >= 0x80:
        at[0] = <uint8_t>(raw | 0x80)
        at += 1
        raw >>= 7
    at[0] = <uint8_t>raw
    return at + 1


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
    # bytes(value) would turn an int into a run of zeros.
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
        # This cannot fail and returns the same bytes as in headers_size.
        name = PyUnicode_AsUTF8AndSize((<tuple>header)[0], &length)
        at = put_varint(at, zigzag(length))
        memcpy(at, name, length)
        at = put_field(at + length, (<tuple>header)[1])
    return at


@cython.final
cdef class OpenBatch:
    """Appends records to the records section of an open batch. Owned by one thread.

    `capacity` limits the section in bytes, without the 61 bytes of the batch header. The first
    record is accepted whatever its size. The buffer grows as records are appended.
    """

    cdef readonly object outcome
    cdef readonly Py_ssize_t capacity
    cdef readonly Py_ssize_t size
    cdef readonly int64_t base_timestamp
    cdef readonly int64_t max_timestamp
    cdef readonly int32_t count
    cdef readonly bint closed
    cdef PyObject* storage  # a bytes object without other references, until it becomes the section
    cdef uint8_t* buffer  # its bytes
    cdef Py_ssize_t allocated

    def __init__(self, outcome, capacity):
        if not 0 <= capacity <= MAX_INT32:
            raise ValueError(f"a batch's capacity is 0 to {MAX_INT32} bytes, not {capacity}")
        self.outcome = outcome
        self.capacity = capacity
        self.base_timestamp = -1
        self.max_timestamp = -1

    def __dealloc__(self):
        Py_XDECREF(self.storage)

    def __reduce__(self):
        # What Cython generates would give the buffer a second owner.
        raise copy_error(self)

    @cython.binding(False)
    def append(self, timestamp_ms, key=None, value=None, headers=()):
        """Append a record and return its handle; return None and change nothing if it does not fit.

        Raises:
            TypeError: The timestamp, the key, the value or a header has the wrong type.
            ValueError: The timestamp is not in -1 to 2**63 - 2, or the record exceeds 2 GiB.
            IllegalStateError: The batch is closed.
        """
        return self.put(self.validate_timestamp(timestamp_ms), key, value, headers)

    def extend(self, capacity):
        """Raise the capacity to `capacity` bytes; never lower it."""
        if not 0 <= capacity <= MAX_INT32:
            raise ValueError(f"a batch's capacity is 0 to {MAX_INT32} bytes, not {capacity}")
        if capacity > self.capacity:
            self.capacity = capacity

    def close(self):
        """Close the batch for appends and return its records section, uncompressed.

        Raises:
            IllegalStateError: The batch is closed already.
        """
        cdef PyObject* storage = self.storage
        cdef Py_ssize_t size = self.size
        self.check_open()
        self.storage = NULL
        self.buffer = NULL
        self.allocated = self.size = 0
        self.closed = True
        if storage == NULL:
            return b""
        _PyBytes_Resize(&storage, size)
        section = <object>storage
        Py_DECREF(section)
        return section

    def __repr__(self):
        state = "closed" if self.closed else f"{self.size} of {self.capacity} bytes"
        return f"<OpenBatch {self.count} records, {state}>"

    cdef inline int check_open(self) except -1:
        if self.closed:
            raise IllegalStateError("the batch is closed")
        return 0

    cdef int64_t validate_timestamp(self, object timestamp_ms) except? -2:
        cdef int64_t timestamp = -2
        cdef int overflow = 0
        self.check_open()
        # int(timestamp_ms) would round a float.
        timestamp = PyLong_AsLongLongAndOverflow(PyNumber_Index(timestamp_ms), &overflow)
        if overflow or not -1 <= timestamp <= MAX_TIMESTAMP:
            raise ValueError(f"a timestamp is -1 to {MAX_TIMESTAMP} ms, not {timestamp_ms}")
        return timestamp

    cdef object put(self, int64_t timestamp, object key, object value, object headers):
        cdef int64_t base
        cdef uint64_t time_delta, offset_delta
        cdef Py_ssize_t body, size
        cdef tuple pairs = None
        cdef uint8_t* at
        if key is not None and not PyBytes_CheckExact(key):
            key = to_bytes(key)
        if value is not None and not PyBytes_CheckExact(value):
            value = to_bytes(value)
        if headers is not EMPTY and len(headers):
            pairs = as_headers(headers)
        # From here on no code of the caller runs, so nothing changes in between.
        self.check_open()
        base = self.base_timestamp if self.count else timestamp
        time_delta = zigzag(timestamp - base)
        offset_delta = zigzag(self.count)
        body = 1 + varint_size(time_delta) + varint_size(offset_delta)
        body += field_size(key) + field_size(value)
        body += 1 if pairs is None else headers_size(pairs)
        size = self.size + varint_size(zigzag(body)) + body
        if size > self.capacity and self.count:
            return None
        if size > self.allocated:
            self.grow(size)
        at = put_varint(self.buffer + self.size, zigzag(body))
        at[0] = 0
        at = put_varint(at + 1, time_delta)
        at = put_varint(at, offset_delta)
        at = put_field(at, key)
        at = put_field(at, value)
        if pairs is None:
            at[0] = 0
        else:
            put_headers(at, pairs)
        delivery = new_delivery(self.outcome, self.count, timestamp)
        self.size = size
        self.base_timestamp = base
        if timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
        self.count += 1
        return delivery

    cdef int grow(self, Py_ssize_t needed) except -1:
        cdef Py_ssize_t wanted = self.allocated or INITIAL_BUFFER_SIZE
        if needed > MAX_INT32:
            raise ValueError("a record may not exceed 2 GiB")
        while wanted < needed:
            wanted *= 2
        # Never allocate more than the capacity, and allocate all of a small capacity at once: pages
        # that were not written to take no memory yet.
        if needed <= self.capacity < (
            MAX_EAGER_ALLOCATION if wanted > SMALL_BUFFER_SIZE else wanted
        ):
            wanted = self.capacity
        # A failing _PyBytes_Resize would lose the records, so they are copied.
        grown = PyBytes_FromStringAndSize(NULL, wanted)
        if self.size:
            memcpy(PyBytes_AS_STRING(grown), self.buffer, self.size)
        Py_XDECREF(self.storage)
        Py_INCREF(grown)
        self.storage = <PyObject*>grown
        self.buffer = <uint8_t*>PyBytes_AS_STRING(grown)
        self.allocated = wanted
        return 0


@cython.final
cdef class TopicOpenBatches:
    """Appends records to the open batches of one topic, by partition. Owned by one thread.

    `partitions` is the topic's number of partitions, 0 while unknown. `sticky_partition` is the
    partition of records with neither key nor partition, -1 while none is chosen.
    """

    cdef public Py_ssize_t partitions
    cdef Py_ssize_t _sticky_partition
    cdef OpenBatch sticky_batch  # the open batch of that partition
    cdef dict batches

    def __init__(self):
        self.batches = {}
        self.sticky_partition = -1

    @property
    def sticky_partition(self):
        return self._sticky_partition

    @sticky_partition.setter
    def sticky_partition(self, partition):
        self._sticky_partition = partition
        self.sticky_batch = self.batches.get(partition)

    def __reduce__(self):
        raise copy_error(self)

    def __len__(self):
        return len(self.batches)

    def open(self, partition, OpenBatch batch not None):
        """Append records of the partition to this batch from now on."""
        self.batches[partition] = batch
        if partition == self._sticky_partition:
            self.sticky_batch = batch

    def close(self, partition):
        """Remove the open batch of the partition."""
        self.batches.pop(partition, None)
        if partition == self._sticky_partition:
            self.sticky_batch = None

    @cython.binding(False)
    def append(self, timestamp_ms, key=None, value=None, headers=(), partition=None):
        """Append a record to the open batch of `partition`, by default the key's partition.

        Return None and change nothing if the partition has no open batch or the record does not
        fit. Raises as `OpenBatch.append`.
        """
        cdef OpenBatch batch = self.find_batch(key, partition)
        if batch is None:
            return None
        return batch.put(batch.validate_timestamp(timestamp_ms), key, value, headers)

    def append_many(self, timestamp_ms, values, keys=None, partition=None):
        """Append values, each with its key if there are keys, until `append` returns None.

        Return the handles of the appended records. An exception ends the call; it is raised only if
        no record was appended before, so that no handle is lost.
        """
        cdef list deliveries = []
        cdef Py_ssize_t index, total = len(values)
        cdef OpenBatch batch = None
        cdef int64_t timestamp = -1
        cdef bint hashed = keys is not None and partition is None
        key = None
        if keys is not None and len(keys) != total:
            raise ValueError(f"{len(keys)} keys for {total} values")
        for index in range(total):
            try:
                if keys is not None:
                    key = keys[index]
                if hashed or batch is None:
                    batch = self.find_batch(key, partition)
                    if batch is None:
                        break
                    if index == 0:
                        timestamp = batch.validate_timestamp(timestamp_ms)
                delivery = batch.put(timestamp, key, values[index], ())
            except Exception:
                if deliveries:
                    break
                raise
            if delivery is None:
                break
            deliveries.append(delivery)
        return deliveries

    cdef OpenBatch find_batch(self, object key, object partition):
        if not self.partitions:
            return None
        if partition is None:
            if key is None:
                return self.sticky_batch
            partition = (murmur2_hash(key) & MAX_INT32) % self.partitions
        return self.batches.get(partition)


cdef inline Delivery new_delivery(object outcome, int32_t index, int64_t timestamp):
    cdef Delivery delivery = Delivery.__new__(Delivery)
    delivery.outcome = outcome
    delivery.index = index
    delivery.timestamp = timestamp
    return delivery


# -- one record per call --------------------------------------------------------------------------

# Making, running and freeing a coroutine costs more than appending a record. So `enqueue` returns an
# awaitable that appends when it is awaited, and makes a coroutine only on the slow path. It is its
# own iterator, which ends with the record's handle. It is written in C: Cython cannot end an
# iterator with a value without a traceback, and its objects take twice as long to make and free. On
# Python 3.12 and newer the value has to be in a StopIteration, and making one costs as much as
# appending; so each appender keeps a freed call for reuse, and the call keeps its StopIteration.

cdef extern from *:
    """
    typedef struct EnqueueCallObject EnqueueCallObject;

    typedef struct {
        EnqueueCallObject *spare;  /* a freed call for reuse, or NULL */
    } EnqueuePool;

    /* Returns a new reference to the handle, or to None if the slow path is needed. */
    typedef PyObject *(*EnqueueFunction)(EnqueueCallObject *);

    struct EnqueueCallObject {
        PyObject_HEAD
        EnqueuePool *pool;  /* of its appender */
        PyObject *appender;
        PyObject *topic;
        PyObject *value;
        PyObject *key;  /* this and the next three are NULL for the default */
        PyObject *partition;
        PyObject *timestamp;
        PyObject *headers;
        PyObject *delivery;
        PyObject *stop;
        int awaited;
    };

    static EnqueueFunction enqueue_append;
    static EnqueueFunction enqueue_coroutine;

    static void enqueue_clear(EnqueueCallObject *call) {
        Py_CLEAR(call->topic);
        Py_CLEAR(call->value);
        Py_CLEAR(call->key);
        Py_CLEAR(call->partition);
        Py_CLEAR(call->timestamp);
        Py_CLEAR(call->headers);
    }

    static PyObject *enqueue_await(PyObject *self) {
        EnqueueCallObject *call = (EnqueueCallObject *)self;
        PyObject *result;
        if (call->awaited) {
            PyErr_SetString(PyExc_RuntimeError, "cannot reuse already awaited call of enqueue()");
            return NULL;
        }
        call->awaited = 1;
        result = enqueue_append(call);
        if (result == NULL)
            return NULL;
        if (result != Py_None) {
            call->delivery = result;
            result = Py_NewRef(self);
        }
        else {
            PyObject *coroutine;
            Py_DECREF(result);
            coroutine = enqueue_coroutine(call);
            if (coroutine == NULL)
                return NULL;
            result = PyObject_CallMethod(coroutine, "__await__", NULL);
            Py_DECREF(coroutine);
        }
        enqueue_clear(call);
        return result;
    }

    static PyObject *enqueue_iternext(PyObject *self) {
        EnqueueCallObject *call = (EnqueueCallObject *)self;
        PyObject *value = call->delivery;
        call->delivery = NULL;
        if (value == NULL)
            return NULL;
    #if PY_VERSION_HEX >= 0x030C0000
        PyStopIterationObject *stop = (PyStopIterationObject *)call->stop;
        if (stop == NULL || Py_REFCNT(stop) != 1 || stop->traceback != NULL
                || stop->context != NULL || stop->cause != NULL || stop->notes != NULL
                || stop->dict != NULL) {
            stop = (PyStopIterationObject *)PyObject_CallNoArgs(PyExc_StopIteration);
            if (stop == NULL) {
                Py_DECREF(value);
                return NULL;
            }
            Py_XSETREF(call->stop, (PyObject *)stop);
        }
        Py_XSETREF(stop->value, value);
        PyErr_SetRaisedException(Py_NewRef((PyObject *)stop));
    #else
        /* The value is neither a tuple nor an exception, so no StopIteration is instantiated. */
        PyErr_Restore(Py_NewRef(PyExc_StopIteration), value, NULL);
    #endif
        return NULL;
    }

    static PySendResult enqueue_send(PyObject *self, PyObject *sent, PyObject **result) {
        EnqueueCallObject *call = (EnqueueCallObject *)self;
        *result = call->delivery != NULL ? call->delivery : Py_NewRef(Py_None);
        call->delivery = NULL;
        return PYGEN_RETURN;
    }

    static void enqueue_warn(PyTypeObject *kind) {
        PyObject *type, *value, *traceback;
        PyErr_Fetch(&type, &value, &traceback);
        if (PyErr_WarnEx(PyExc_RuntimeWarning, "a call of enqueue() was never awaited: "
                         "its record was not appended", 1) < 0)
            PyErr_WriteUnraisable((PyObject *)kind);
        PyErr_Restore(type, value, traceback);
    }

    static void enqueue_free(EnqueueCallObject *call) {
        PyTypeObject *type = Py_TYPE(call);
        Py_XDECREF(call->stop);
        PyObject_Free(call);
        Py_DECREF(type);
    }

    static void enqueue_dealloc(PyObject *self) {
        EnqueueCallObject *call = (EnqueueCallObject *)self;
        PyObject *appender = call->appender;
        if (!call->awaited) {
            enqueue_warn(Py_TYPE(self));
            enqueue_clear(call);
        }
        Py_CLEAR(call->delivery);
    #if PY_VERSION_HEX >= 0x030C0000
        if (call->stop != NULL && Py_REFCNT(call->stop) == 1)
            Py_CLEAR(((PyStopIterationObject *)call->stop)->value);
    #endif
        if (call->pool->spare == NULL)
            call->pool->spare = call;
        else
            enqueue_free(call);
        Py_DECREF(appender);
    }

    static PyType_Slot enqueue_slots[] = {
        {Py_tp_doc, (void *)"A call of enqueue(): appends when it is awaited."},
        {Py_tp_dealloc, (void *)enqueue_dealloc},
        {Py_tp_iter, (void *)PyObject_SelfIter},
        {Py_tp_iternext, (void *)enqueue_iternext},
        {Py_am_await, (void *)enqueue_await},
        {Py_am_send, (void *)enqueue_send},
        {0, NULL},
    };

    static PyType_Spec enqueue_spec = {
        "kafka_async.kernel._ckernel.EnqueueCall", sizeof(EnqueueCallObject), 0,
        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
        enqueue_slots,
    };

    static PyTypeObject *enqueue_type;

    /* Returns a call without its optional arguments. */
    static inline EnqueueCallObject *enqueue_call(
        EnqueuePool *pool, PyObject *appender, PyObject *topic, PyObject *value
    ) {
        EnqueueCallObject *call = pool->spare;
        if (call != NULL) {
            pool->spare = NULL;
    #if defined(Py_GIL_DISABLED) || defined(Py_REF_DEBUG)
            _Py_NewReference((PyObject *)call);
    #else
            Py_SET_REFCNT((PyObject *)call, 1);
    #endif
        }
        else {
            call = PyObject_New(EnqueueCallObject, enqueue_type);
            if (call == NULL)
                return NULL;
            call->stop = NULL;
        }
        call->pool = pool;
        call->appender = Py_NewRef(appender);
        call->topic = Py_NewRef(topic);
        call->value = Py_NewRef(value);
        call->key = call->partition = call->timestamp = call->headers = NULL;
        call->delivery = NULL;
        call->awaited = 0;
        return call;
    }

    static PyObject *enqueue_call_with(
        EnqueuePool *pool, PyObject *appender, PyObject *topic, PyObject *value,
        PyObject *key, PyObject *partition, PyObject *timestamp, PyObject *headers
    ) {
        EnqueueCallObject *call = enqueue_call(pool, appender, topic, value);
        if (call != NULL) {
            call->key = Py_XNewRef(key);
            call->partition = Py_XNewRef(partition);
            call->timestamp = Py_XNewRef(timestamp);
            call->headers = Py_XNewRef(headers);
        }
        return (PyObject *)call;
    }

    static void enqueue_empty(EnqueuePool *pool) {
        EnqueueCallObject *call = pool->spare;
        pool->spare = NULL;
        if (call != NULL)
            enqueue_free(call);
    }

    static double monotonic_seconds(void) {
    #if PY_VERSION_HEX >= 0x030D0000
        PyTime_t now = 0;
        (void)PyTime_MonotonicRaw(&now);
        return (double)now / 1e9;
    #else
        return (double)_PyTime_GetMonotonicClock() / 1e9;
    #endif
    }

    /* Returns a number that changes with each tick of the system's timer (1 to 10 ms). */
    static inline int64_t timer_tick(void) {
    #ifdef CLOCK_MONOTONIC_COARSE
        struct timespec now = {0, 0};
        (void)clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
        return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
    #else
        static int64_t calls = 0;
        return ++calls;
    #endif
    }

    /* The method enqueue as Cython makes it. The method that replaces it does not parse the most
       frequent arguments: `enqueue(topic, value)` then takes 100 instructions less on Python 3.11
       and 140 on 3.13, of 1,680 and 2,270. */
    static PyMethodDef enqueue_definition;
    static _PyCFunctionFastWithKeywords enqueue_parsed;

    static EnqueuePool *(*enqueue_pool)(PyObject *appender);

    static PyObject *enqueue_unparsed(
        PyObject *self, PyObject *const *arguments, Py_ssize_t count, PyObject *names
    ) {
        if (count != 2 || names != NULL)
            return enqueue_parsed(self, arguments, count, names);
        return (PyObject *)enqueue_call(enqueue_pool(self), self, arguments[0], arguments[1]);
    }

    static PyObject *enqueue_method(PyTypeObject *kind, PyObject *parsed) {
        enqueue_definition = *((PyMethodDescrObject *)parsed)->d_method;
        enqueue_parsed = (_PyCFunctionFastWithKeywords)(void (*)(void))enqueue_definition.ml_meth;
        enqueue_definition.ml_meth = (PyCFunction)(void (*)(void))enqueue_unparsed;
        return PyDescr_NewMethod(kind, &enqueue_definition);
    }
    """
    ctypedef struct PyType_Spec:
        pass
    ctypedef struct EnqueuePool:
        pass
    ctypedef struct EnqueueCallObject:
        PyObject* appender
        PyObject* topic
        PyObject* value
        PyObject* key
        PyObject* partition
        PyObject* timestamp
        PyObject* headers
    ctypedef object (*EnqueueFunction)(EnqueueCallObject*)
    PyType_Spec enqueue_spec
    EnqueueFunction enqueue_append
    EnqueueFunction enqueue_coroutine
    EnqueuePool* (*enqueue_pool)(PyObject*) noexcept
    PyTypeObject* enqueue_type
    PyObject* PyType_FromSpec(PyType_Spec*) except NULL
    object enqueue_call_with(
        EnqueuePool*, object, object, object, PyObject*, PyObject*, PyObject*, PyObject*
    )
    object enqueue_method(PyTypeObject*, object)
    void enqueue_empty(EnqueuePool*)
    double monotonic_seconds() noexcept
    int64_t timer_tick() noexcept

enqueue_type = <PyTypeObject*>PyType_FromSpec(&enqueue_spec)
cdef object MONOTONIC = time.monotonic
cdef enum:
    CALLS_PER_CLOCK_READ = 16


cdef class RecordAppender:
    """Appends records to the open batches of their topics: the fast path of a producer.

    `enqueue` takes the fast path while `_now()` is below `_fast_until`, and `enqueue_nowait` while
    it is below `_nowait_until`; a record without a timestamp gets `_default_timestamp`. The slow
    path is the subclass's `_enqueue` and `_enqueue_nowait`. If the clock is `time.monotonic`, one
    reading may serve 16 calls within one tick of the system's timer.
    """

    cdef public double _fast_until
    cdef public double _nowait_until
    cdef public int64_t _default_timestamp
    cdef readonly object _now
    cdef bint monotonic  # `_now` is time.monotonic, which need not be called
    cdef double last_time  # seconds, the last reading of the clock
    cdef int64_t last_tick  # of the system's timer at that reading
    cdef int calls  # for which the last reading still serves
    cdef dict open
    cdef object last_topic
    cdef TopicOpenBatches last_batches  # of that topic
    cdef EnqueuePool pool

    def __cinit__(self):
        self.open = {}

    def __dealloc__(self):
        enqueue_empty(&self.pool)

    @classmethod
    def __class_getitem__(cls, parameters):
        return types.GenericAlias(cls, parameters)

    def _set_clock(self, now):
        """Set the clock: a function that returns seconds."""
        self._now = now
        self.monotonic = now is MONOTONIC
        self.calls = 0

    cdef inline double time(self) except? -1:
        # Of the 200 ns of a call, reading the clock takes 30 and reading the timer's tick takes 5.
        # So the clock is read in the first call of each tick and in every sixteenth call.
        cdef int64_t tick
        if not self.monotonic:
            return self._now()
        tick = timer_tick()
        if not self.calls or tick != self.last_tick:
            self.last_time = monotonic_seconds()
            self.last_tick = tick
            self.calls = CALLS_PER_CLOCK_READ
        self.calls -= 1
        return self.last_time

    def _disable_fast_path(self):
        """Disable the fast path until `_fast_until` or `_nowait_until` is set again."""
        self._fast_until = self._nowait_until = float("-inf")

    def _add_topic(self, topic, TopicOpenBatches batches not None):
        """Append records of the topic to these open batches from now on."""
        self.open[topic] = batches
        self.last_topic = None

    def _batches(self, topic):
        """Return the open batches of a topic; None if it was not added."""
        return self.open.get(topic)

    @cython.binding(False)
    def enqueue(self, topic, value=None, key=None, partition=None, timestamp=None, headers=()):
        """Append a record to its batch; wait up to max_block_ms while buffer_memory is full.

        Await the call at once: it appends when it is awaited, and a call that is never awaited
        appends nothing and warns (RuntimeWarning). It is an awaitable, not a coroutine: for a task
        use `asyncio.ensure_future(producer.enqueue(...))`. Called in a loop, it yields to the event
        loop about once per millisecond, so that batches are sent. Cancelling it while it waits or
        yields guarantees that nothing was appended.

        Args:
            topic: Topic name.
            value: Bytes, or the object that `value_serializer` takes. None is a tombstone.
            key: Bytes, or the object that `key_serializer` takes.
            partition: Partition number; by default the key's partition, or for records without a
                key one that changes after about batch_size bytes (KIP-794).
            timestamp: Milliseconds since the epoch; by default the client's clock.
            headers: Pairs of a name and a value, which is bytes or None.

        Returns:
            A handle: await it for the `RecordMetadata`. It may be dropped: `flush()` raises the
            failures of records that were not awaited.

        Raises:
            KafkaTimeoutError: buffer_memory stayed full for max_block_ms.
            RecordTooLargeError: The record is larger than max_request_size or buffer_memory.
            SerializationError: A serializer failed; its exception is the cause.
            TypeError: An argument has the wrong type.
            ValueError: The partition or the timestamp is out of range, or the topic is empty.
            ClientClosedError: The producer was stopped.
            IllegalStateError: The producer was not started, or it is transactional and records go
                through a transaction.
        """
        return enqueue_call_with(
            &self.pool, self, topic, value, or_null(key), or_null(partition), or_null(timestamp),
            NULL if headers is EMPTY else <PyObject*>headers,
        )

    @cython.binding(False)
    def enqueue_nowait(
        self, topic, value=None, key=None, partition=None, timestamp=None, headers=()
    ):
        """Append a record to its batch without waiting.

        It takes the arguments of `enqueue` and returns the same handle. It never yields to the
        event loop: no batch is sent until the caller awaits something.

        Raises:
            BufferFullError: buffer_memory is used up.
            RecordTooLargeError: The record is larger than max_request_size or buffer_memory.
            SerializationError: A serializer failed; its exception is the cause.
            TypeError, ValueError, ClientClosedError, IllegalStateError: As for `enqueue`.
        """
        if self.time() < self._nowait_until:
            delivery = try_append(self, topic, value, key, partition, timestamp, headers)
            if delivery is not None:
                return delivery
        return self._enqueue_nowait(topic, value, key, headers, partition, timestamp)


cdef object append_from_call(EnqueueCallObject* call):
    cdef RecordAppender appender = <RecordAppender>call.appender
    cdef OpenBatch batch
    if appender.time() >= appender._fast_until:
        return None
    if (
        call.topic == <PyObject*>appender.last_topic
        and call.key == NULL and call.partition == NULL and call.timestamp == NULL
        and call.headers == NULL and PyBytes_CheckExact(<object>call.value)
        and -1 <= appender._default_timestamp <= MAX_TIMESTAMP
    ):
        batch = appender.last_batches.sticky_batch
        if batch is None or not appender.last_batches.partitions:
            return None
        # The value is bytes and the batch is open, so this does not raise.
        return batch.put(appender._default_timestamp, None, <object>call.value, EMPTY)
    return try_append(
        appender, <object>call.topic, <object>call.value, or_none(call.key),
        or_none(call.partition), or_none(call.timestamp), or_empty(call.headers),
    )


cdef object enqueue_slowly(EnqueueCallObject* call):
    return (<object>call.appender)._enqueue(
        <object>call.topic, <object>call.value, or_none(call.key), or_empty(call.headers),
        or_none(call.partition), or_none(call.timestamp),
    )


cdef inline PyObject* or_null(object argument) noexcept:
    return NULL if argument is None else <PyObject*>argument


cdef inline object or_none(PyObject* argument):
    return None if argument == NULL else <object>argument


cdef inline object or_empty(PyObject* argument):
    return EMPTY if argument == NULL else <object>argument


cdef EnqueuePool* get_pool(PyObject* appender) noexcept:
    return &(<RecordAppender>appender).pool


enqueue_append = append_from_call
enqueue_coroutine = enqueue_slowly
enqueue_pool = get_pool
(<object>(<PyTypeObject*>RecordAppender).tp_dict)["enqueue"] = enqueue_method(
    <PyTypeObject*>RecordAppender, RecordAppender.__dict__["enqueue"]
)
PyType_Modified(<PyTypeObject*>RecordAppender)


cdef object try_append(
    RecordAppender appender, object topic, object value, object key, object partition,
    object timestamp, object headers,
):
    """Append a record; return None if the slow path must append it or raise its error."""
    try:
        return append_to_topic(appender, topic, value, key, partition, timestamp, headers)
    except Exception:
        return None  # nothing was appended: the slow path raises a more precise error


cdef object append_to_topic(
    RecordAppender appender, object topic, object value, object key, object partition,
    object timestamp, object headers,
):
    cdef int64_t stamp = appender._default_timestamp
    cdef OpenBatch batch
    if topic is not appender.last_topic:
        batches = appender.open.get(topic)
        if batches is None:
            return None
        appender.last_topic = topic
        appender.last_batches = <TopicOpenBatches>batches
    batch = appender.last_batches.find_batch(key, partition)
    if batch is None:
        return None
    if timestamp is not None or stamp < -1 or stamp > MAX_TIMESTAMP:
        stamp = batch.validate_timestamp(stamp if timestamp is None else timestamp)
    return batch.put(stamp, key, value, headers)


# -- reading --------------------------------------------------------------------------------------


cdef struct Cursor:
    const uint8_t* at
    const uint8_t* end


cdef struct Row:
    int64_t offset
    int64_t timestamp
    const uint8_t* key
    const uint8_t* value
    const uint8_t* headers   # after their count
    const uint8_t* end
    Py_ssize_t key_size      # -1 is null
    Py_ssize_t value_size
    int32_t header_count
    int32_t timestamp_type


cdef struct Limits:
    int64_t base_offset
    int64_t last_delta
    int64_t base_timestamp
    int64_t max_timestamp
    int64_t count
    int32_t timestamp_type


cdef inline Py_ssize_t remaining(Cursor* cursor) noexcept nogil:
    return cursor.end - cursor.at


cdef inline int read_varint(Cursor* cursor, int bits, int64_t* value) noexcept nogil:
    # Most varints have one byte or two.
    cdef int64_t raw
    if remaining(cursor) >= 2:
        raw = cursor.at[0]
        if raw < 0x80:
            cursor.at += 1
            value[0] = (raw >> 1) ^ -(raw & 1)
            return VALID
        if cursor.at[1] < 0x80:
            raw = (raw & 0x7F) | <int64_t>cursor.at[1] << 7
            cursor.at += 2
            value[0] = (raw >> 1) ^ -(raw & 1)
            return VALID
    return read_long_varint(cursor, bits, value)


cdef int read_long_varint(Cursor* cursor, int bits, int64_t* value) noexcept nogil:
    cdef uint64_t raw = 0
    cdef int shift = 0
    cdef uint8_t byte
    cdef const uint8_t* at = cursor.at
    while True:
        if at >= cursor.end:
            return TRUNCATED
        byte = at[0]
        at += 1
        if shift + 7 > bits and byte >> (bits - shift):
            return VARINT
        raw |= <uint64_t>(byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    cursor.at = at
    value[0] = <int64_t>((raw >> 1) ^ (~(raw & 1) + 1))
    return VALID


cdef inline int read_field(
    Cursor* cursor, int fault, const uint8_t** data, Py_ssize_t* size
) noexcept nogil:
    cdef int64_t length
    cdef int problem = read_varint(cursor, 32, &length)
    if problem:
        return problem
    if length < -1 or length > remaining(cursor):
        return fault
    data[0] = cursor.at
    size[0] = length
    if length > 0:
        cursor.at += length
    return VALID


cdef inline int read_header(
    Cursor* cursor, const uint8_t** name, Py_ssize_t* name_size,
    const uint8_t** value, Py_ssize_t* value_size,
) noexcept nogil:
    cdef int problem = read_field(cursor, HEADER, name, name_size)
    if problem:
        return problem
    if name_size[0] < 0:
        return HEADER
    return read_field(cursor, HEADER, value, value_size)


cdef int skip_headers(Cursor* cursor, int64_t count) noexcept nogil:
    cdef const uint8_t* data
    cdef Py_ssize_t size
    cdef int problem
    while count:
        problem = read_header(cursor, &data, &size, &data, &size)
        if problem:
            return problem
        count -= 1
    return VALID


cdef int read_row(
    Cursor* section, Limits* limits, int64_t previous_delta, Row* row
) noexcept nogil:
    cdef Cursor cursor
    cdef int64_t number, time_delta, delta
    cdef int problem = read_varint(section, 32, &number)
    if problem:
        return problem
    if number < 0 or number > remaining(section):
        return LENGTH
    if number == 0:
        return TRUNCATED
    cursor.at = section.at + 1  # no attributes are defined
    cursor.end = section.at + number
    section.at = cursor.end
    problem = read_varint(&cursor, 64, &time_delta)
    if problem:
        return problem
    problem = read_varint(&cursor, 32, &delta)
    if problem:
        return problem
    if delta <= previous_delta or delta > limits.last_delta:
        return OFFSET_DELTA
    row.offset = limits.base_offset + delta
    row.timestamp_type = limits.timestamp_type
    row.timestamp = limits.max_timestamp
    if limits.timestamp_type == 0:
        if time_delta > 0 and limits.base_timestamp > MAX_INT64 - time_delta:
            return TIMESTAMP
        if time_delta < 0 and limits.base_timestamp < -MAX_INT64 - 1 - time_delta:
            return TIMESTAMP
        row.timestamp = limits.base_timestamp + time_delta
    problem = read_field(&cursor, FIELD, &row.key, &row.key_size)
    if problem:
        return problem
    problem = read_field(&cursor, FIELD, &row.value, &row.value_size)
    if problem:
        return problem
    problem = read_varint(&cursor, 32, &number)
    if problem:
        return problem
    if number < 0 or number * 2 > remaining(&cursor):  # a header is at least two lengths
        return HEADER_COUNT
    row.header_count = <int32_t>number
    row.headers = cursor.at
    row.end = cursor.end
    problem = skip_headers(&cursor, number)
    if problem:
        return problem
    return RECORD_LEFTOVER if cursor.at != cursor.end else VALID


cdef int open_section(object section, Py_ssize_t size, Limits* limits) except -1:
    _, limits.count, limits.base_offset, limits.last_delta, limits.base_timestamp, \
        limits.max_timestamp, limits.timestamp_type = section
    if limits.base_offset < 0 or limits.last_delta < 0:
        return OFFSETS
    if limits.last_delta >= MAX_INT64 - limits.base_offset:
        return OFFSETS
    # The first comparison keeps the multiplication from overflowing.
    if limits.count < 0 or limits.count > size or limits.count * MIN_RECORD_SIZE > size:
        return COUNT
    return VALID


cdef inline object to_field(const uint8_t* data, Py_ssize_t size):
    return None if size < 0 else PyBytes_FromStringAndSize(<const char*>data, size)


cdef enum:
    CACHED_HEADERS = 8  # by their position in the record; a power of two


cdef inline void set_attribute(PyObject** attribute, object value) noexcept:
    Py_INCREF(value)
    attribute[0] = <PyObject*>value


# A header as it lies in the section.
cdef struct RawHeader:
    const uint8_t* at
    const uint8_t* name
    Py_ssize_t size
    Py_ssize_t name_size


@cython.final
cdef class RecordReader:
    """Reads the records of a section whose offset is `start` or higher, some at a time.

    Bytes in a header's name that are not UTF-8 become U+FFFD, as in Java's consumer: one malformed
    header must not block a partition. Owned by one thread; refers to the section's bytes. Raises
    CorruptRecordError if the section contradicts its batch header.
    """

    # Objects that a record shares with the one before are made once: mostly the timestamp, the
    # names of the headers, and some whole headers. The bytes in the section are compared.
    cdef object topic
    cdef object partition
    cdef object epoch
    cdef object timestamp
    cdef object timestamp_type
    cdef int64_t last_timestamp
    cdef list last_headers
    cdef dict short_names
    cdef RawHeader raw_headers[CACHED_HEADERS]
    # The section, whose buffer is held only during a call: the garbage collector could not break
    # a cycle through an exported buffer.
    cdef object data
    cdef Py_ssize_t size
    cdef Py_ssize_t at
    cdef Limits limits
    cdef int64_t first
    cdef int64_t delta
    cdef int64_t remaining_records

    def __init__(self, section, topic, partition, leader_epoch=-1, start=0):
        cdef int problem
        if self.last_headers is not None:
            raise TypeError("a reader reads one section")
        self.topic = topic
        self.partition = partition
        self.epoch = None if leader_epoch < 0 else leader_epoch
        self.last_headers = [None] * CACHED_HEADERS
        self.first = start
        self.delta = -1
        self.data = section[0]
        self.size = memoryview(self.data).nbytes
        problem = open_section(section, self.size, &self.limits)
        if problem:
            raise self.corruption(problem)
        self.remaining_records = self.limits.count

    def __reduce__(self):
        raise copy_error(self)

    @property
    def done(self):
        """True if the section was read to its end without an error."""
        return self.remaining_records == 0 and self.at == self.size

    def read(self, count, size=0x7FFF_FFFF_FFFF_FFFF):
        """Read the next `count` records and return those at offset `start` or higher.

        Fewer are read at the section's end, or once `size` bytes of it were read. Raises
        CorruptRecordError, on every call, where the next record cannot be read; the error carries
        that record's offset, and all records before it have been returned.
        """
        cdef list records = []
        cdef int problem = self.read_into(records, count, size)
        if problem and not records:
            raise self.corruption(problem)
        return records

    cdef object corruption(self, int problem):
        offset = self.limits.base_offset + self.delta + 1
        return corrupt_record_error(problem, self.topic, self.partition, offset)

    cdef int read_into(self, list records, int64_t count, int64_t size) except -1:
        cdef Py_buffer data
        PyObject_GetBuffer(self.data, &data, PyBUF_SIMPLE)
        try:
            self.size = data.len
            if self.at > data.len:  # the owner of the section has changed it
                return TRUNCATED
            memset(self.raw_headers, 0, sizeof(self.raw_headers))
            return self.read_rows(records, count, size, <const uint8_t*>data.buf)
        finally:
            PyBuffer_Release(&data)

    cdef int read_rows(
        self, list records, int64_t count, int64_t size, const uint8_t* begin
    ) except -1:
        cdef Cursor cursor
        cdef Row row
        cdef int problem
        cdef Py_ssize_t first = self.at
        cursor.at = begin + self.at
        cursor.end = begin + self.size
        while self.remaining_records:
            if count <= 0 or self.at - first >= size:
                return VALID
            problem = read_row(&cursor, &self.limits, self.delta, &row)
            if problem:
                return problem
            self.at = cursor.at - begin
            count -= 1
            self.remaining_records -= 1
            self.delta = row.offset - self.limits.base_offset
            if row.offset >= self.first:
                records.append(self.record(&row))
        return SECTION_LEFTOVER if self.at != self.size else VALID

    cdef Record record(self, Row* row):
        cdef object offset = row.offset
        cdef object key = to_field(row.key, row.key_size)
        cdef object value = to_field(row.value, row.value_size)
        cdef object headers = self.headers(row) if row.header_count else EMPTY
        if self.timestamp is None or row.timestamp != self.last_timestamp:
            self.timestamp = row.timestamp
            self.timestamp_type = row.timestamp_type
            self.last_timestamp = row.timestamp
        # Record.__new__ would first set all attributes to None. The garbage collector does not
        # track the record: its attributes are bytes, text and numbers, which form no cycles.
        cdef PyObject* made = _PyObject_GC_New(<PyTypeObject*>Record)
        cdef PyObject** attributes = <PyObject**>(<char*>made + RECORD_ATTRIBUTES)
        set_attribute(&attributes[0], self.topic)
        set_attribute(&attributes[1], self.partition)
        set_attribute(&attributes[2], offset)
        set_attribute(&attributes[3], self.timestamp)
        set_attribute(&attributes[4], self.timestamp_type)
        set_attribute(&attributes[5], key)
        set_attribute(&attributes[6], value)
        set_attribute(&attributes[7], headers)
        set_attribute(&attributes[8], self.epoch)
        record = <Record>made
        Py_DECREF(record)  # the reference from _PyObject_GC_New; the variable has its own
        return record

    cdef tuple headers(self, Row* row):
        cdef Cursor cursor
        cdef int32_t index
        cdef tuple headers = PyTuple_New(row.header_count)
        cursor.at = row.headers
        cursor.end = row.end
        for index in range(row.header_count):
            header = self.header(&cursor, index & (CACHED_HEADERS - 1), row.offset)
            Py_INCREF(header)
            PyTuple_SET_ITEM(headers, index, header)
        PyObject_GC_UnTrack(headers)
        return headers

    cdef object header_name(self, const uint8_t* data, Py_ssize_t size):
        name = PyUnicode_DecodeUTF8(<const char*>data, size, "replace")
        # A name of one byte that is not UTF-8 becomes a string of 76 bytes. There are few such
        # short names; sharing them keeps a batch of nothing else within its memory limit.
        if 0 < size <= 2 and (data[0] | data[size - 1]) & 0x80:
            if self.short_names is None:
                self.short_names = {}
            return self.short_names.setdefault(name, name)
        return name

    cdef inline object header(self, Cursor* cursor, int slot, int64_t offset):
        cdef RawHeader* last = &self.raw_headers[slot]
        cdef RawHeader new
        cdef const uint8_t* value = NULL
        cdef Py_ssize_t value_size = 0
        cdef int problem
        new.at = cursor.at
        problem = read_header(cursor, &new.name, &new.name_size, &value, &value_size)
        if problem:  # the owner of the section has changed it since it was validated
            raise corrupt_record_error(problem, self.topic, self.partition, offset)
        new.size = cursor.at - new.at
        if new.size == last.size and memcmp(new.at, last.at, new.size) == 0:
            return self.last_headers[slot]
        if last.size and new.name_size == last.name_size \
                and memcmp(new.name, last.name, new.name_size) == 0:
            name = (<tuple>self.last_headers[slot])[0]
        else:
            name = self.header_name(new.name, new.name_size)
        header = (name, to_field(value, value_size))
        PyObject_GC_UnTrack(header)
        self.last_headers[slot] = header
        last[0] = new
        return header


def parse_records(section, topic, partition, leader_epoch=-1, start=0):
    """Return all records of a section from offset `start` on; the whole section is validated.

    Raises CorruptRecordError with the offset of the first record that cannot be read.
    """
    cdef RecordReader reader = RecordReader(section, topic, partition, leader_epoch, start)
    cdef list records = []
    cdef int problem = reader.read_into(records, MAX_INT64, MAX_INT64)
    if problem:
        raise reader.corruption(problem)
    return records


# -- one at a time --------------------------------------------------------------------------------


@cython.final
cdef class NextRecord:
    """Returns the next record each time it is awaited.

    `records` are the fetched records and `at` is the index of the next one. While `time()` is below
    `until` they are returned without a coroutine; otherwise the coroutine `more()` is awaited.
    """

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

    # It is its own iterator, so that a fetched record needs no coroutine.

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


# This slot returns a value without a StopIteration around it; Cython has no name for it.
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


# -- columns --------------------------------------------------------------------------------------


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
    """Return the records of several sections with `start` <= offset < `end`, as Arrow buffers.

    Raises as `parse_records`, and ValueError if a column would exceed 2 GiB.
    """
    # A copy: the caller's sequence may change meanwhile, or report a wrong length.
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


cdef object header_column(Rows rows, object topic, object partition):
    # Through objects: headers are rare, and their names must become valid UTF-8.
    cdef Py_ssize_t index, total = 0
    cdef object offsets = new_bytes((rows.count + 1) * sizeof(int32_t))
    cdef int32_t* ends = <int32_t*>PyBytes_AS_STRING(offsets)
    cdef object validity = new_bytes((rows.count + 7) // 8)
    cdef char* bits = PyBytes_AS_STRING(validity)
    cdef bint nullable = False
    cdef list names = []
    cdef list values = []
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
                if problem:  # the owner of the section has changed it since it was validated
                    raise corrupt_record_error(problem, topic, partition, rows.rows[index].offset)
                text = PyUnicode_DecodeUTF8(<const char*>name, name_size, "replace")
                names.append((<str>text).encode())
                values.append(to_field(value, value_size))
        else:
            nullable = True
        total = len(names)
        if total > MAX_INT32:
            raise ValueError("a column may not exceed 2 GiB")
        ends[index + 1] = <int32_t>total
    return HeaderColumn(
        validity if nullable else None, offsets, column_of_objects(names), column_of_objects(values)
    )


cdef object column_of_objects(list objects):
    cdef Py_ssize_t total = 0
    cdef bint nullable = False
    cdef BinaryColumnBuilder column
    for data in objects:
        if data is None:
            nullable = True
        else:
            total += PyBytes_GET_SIZE(data)
    column = BinaryColumnBuilder(len(objects), total, nullable)
    for data in objects:
        if data is None:
            column.put(NULL, -1)
        else:
            column.put(<const uint8_t*>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
    return column.finish()


# -- small functions ------------------------------------------------------------------------------


def encode_varint(value):
    """Encode a number as a zigzag varint of at most 64 bits; raise ValueError beyond int64."""
    cdef uint8_t out[10]
    cdef int64_t number
    try:
        number = PyNumber_Index(value)
    except OverflowError:
        raise ValueError(f"{value} does not fit into 64 bits") from None
    return PyBytes_FromStringAndSize(<char*>out, put_varint(out, zigzag(number)) - out)


def decode_varint(buffer, position=0, bits=32):
    """Return the zigzag varint of 32 or 64 bits at `position` and the position after it.

    Raises CorruptRecordError if it is truncated or does not fit.
    """
    cdef Py_buffer data
    cdef Cursor cursor
    cdef int64_t number
    cdef int problem = TRUNCATED
    PyObject_GetBuffer(buffer, &data, PyBUF_SIMPLE)
    try:
        if 0 <= position <= data.len:
            cursor.at = <const uint8_t*>data.buf + <Py_ssize_t>position
            cursor.end = <const uint8_t*>data.buf + data.len
            problem = read_varint(&cursor, bits, &number)
        if problem:
            raise corrupt_record_error(problem)
        return number, cursor.at - <const uint8_t*>data.buf
    finally:
        PyBuffer_Release(&data)


def record_size_bound(key, value, headers=()):
    """Return an upper bound, in bytes, of a batch with only this record, header included."""
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


def murmur2(key):
    """Return Java's 32-bit murmur2 hash of a key, signed; keyed partitioning uses it."""
    return murmur2_hash(key)


cdef int32_t murmur2_hash(object key) except? -1:
    cdef object data = to_bytes(key)
    cdef const uint8_t* at = <const uint8_t*>PyBytes_AS_STRING(data)
    cdef Py_ssize_t length = PyBytes_GET_SIZE(data)
    cdef const uint8_t* whole = at + (length & ~<Py_ssize_t>3)
    cdef uint32_t factor = 0x5BD1E995
    cdef uint32_t state = <uint32_t>0x9747B28C ^ <uint32_t>length
    cdef uint32_t word
    while at < whole:
        word = <uint32_t>at[0] | <uint32_t>at[1] << 8 | <uint32_t>at[2] << 16 | <uint32_t>at[3] << 24
        word *= factor
        word ^= word >> 24
        state = (state * factor) ^ (word * factor)
        at += 4
    if length & 3:
        word = at[0]
        if length & 3 > 1:
            word |= <uint32_t>at[1] << 8
        if length & 3 > 2:
            word |= <uint32_t>at[2] << 16
        state = (state ^ word) * factor
    state ^= state >> 13
    state *= factor
    state ^= state >> 15
    return <int32_t>state
