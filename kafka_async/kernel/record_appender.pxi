"""Appends records to the open batches of their topics: the fast path of a producer."""

# Making, running and freeing a coroutine costs more than appending a record. So `enqueue` returns
# an awaitable that appends when it is awaited, and makes a coroutine only on the slow path. The
# awaitable is also its iterator, which ends with the record's handle. It is written in C: Cython
# cannot end an iterator with a value without a traceback, and its objects take twice as long to
# make and free. Python 3.12 and newer require a StopIteration for the value, and making one costs
# as much as an append: each appender keeps a freed call for reuse, and the call keeps its
# StopIteration.

cdef extern from "record_appender.h":
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
    EnqueueFunction fast_path
    EnqueueFunction slow_path
    EnqueuePool* (*enqueue_pool)(PyObject*) noexcept
    PyTypeObject* enqueue_type
    PyObject* PyType_FromSpec(PyType_Spec*) except NULL
    unsigned long PyThread_get_thread_ident() noexcept
    bint (*in_thread)(PyObject*) noexcept
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
    """Appends records to the open batches of their topics: the fast path of a producer."""

    cdef public double _fast_until
    cdef public double _nowait_until
    cdef public int64_t _default_timestamp
    cdef readonly object _now
    cdef bint monotonic  # `_now` is time.monotonic, so C can read the clock
    cdef double last_time  # seconds, the last reading of the clock
    cdef int64_t last_tick  # of the system's timer at that reading
    cdef int calls  # that may still use the last reading
    cdef unsigned long thread  # of the event loop
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
        """Set the clock, a function that returns seconds, and the thread."""
        self._now = now
        self.thread = PyThread_get_thread_ident()
        self.monotonic = now is MONOTONIC
        self.calls = 0

    cdef inline double time(self) except? -1:
        # A call takes 200 ns: 30 ns to read the clock, 5 ns to read the tick counter. Read the
        # clock only in the first call of each tick and in every sixteenth call.
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
        """Return the open batches of a topic, or None if the topic was not added."""
        return self.open.get(topic)

    @cython.binding(False)
    def enqueue(self, topic, value=None, key=None, partition=None, timestamp=None, headers=()):
        """Append a record to its batch; wait up to max_block_ms while buffer_memory is full.

        Await the call at once: it appends when it is awaited, and a call that is never awaited
        appends nothing and warns (RuntimeWarning). It is an awaitable, not a coroutine: for a task
        use `asyncio.ensure_future(producer.enqueue(...))`. Called in a loop, it yields to the event
        loop about once per millisecond, so that batches are sent. If it is cancelled while it waits
        or yields, nothing is appended.

        Args:
            topic: Topic name.
            value: Bytes, or the object that `value_serializer` takes. None is a tombstone.
            key: Bytes, or the object that `key_serializer` takes.
            partition: Partition number; by default the key's partition, or without a key, a
                partition that changes after about batch_size bytes (KIP-794).
            timestamp: Milliseconds since the epoch; by default the client's clock.
            headers: (name, value) pairs; a value is bytes or None.

        Returns:
            A handle: await it for the `RecordMetadata`. It may be dropped: `flush()` raises the
            failures of records that nothing awaited.

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
        if PyThread_get_thread_ident() != self.thread:
            self._check_thread("enqueue")
        return enqueue_call_with(
            &self.pool, self, topic, value, or_null(key), or_null(partition), or_null(timestamp),
            NULL if headers is EMPTY else <PyObject*>headers,
        )

    @cython.binding(False)
    def enqueue_nowait(
        self, topic, value=None, key=None, partition=None, timestamp=None, headers=()
    ):
        """Append a record to its batch without waiting.

        Takes the arguments of `enqueue` and returns the same handle. It never yields to the event
        loop: no batch is sent until the caller awaits something else.

        Raises:
            BufferFullError: buffer_memory is used up.
            RecordTooLargeError: The record is larger than max_request_size or buffer_memory.
            SerializationError: A serializer failed; its exception is the cause.
            TypeError, ValueError, ClientClosedError, IllegalStateError: As for `enqueue`.
        """
        if PyThread_get_thread_ident() != self.thread:
            self._check_thread("enqueue_nowait")
        if self.time() < self._nowait_until:
            delivery = try_append(self, topic, value, key, partition, timestamp, headers)
            if delivery is not None:
                return delivery
        return self._enqueue_nowait(topic, value, key, headers, partition, timestamp)


cdef object append_on_fast_path(EnqueueCallObject* call):
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


cdef object start_slow_path(EnqueueCallObject* call):
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


cdef bint runs_in_thread(PyObject* appender) noexcept:
    return PyThread_get_thread_ident() == (<RecordAppender>appender).thread


fast_path = append_on_fast_path
slow_path = start_slow_path
enqueue_pool = get_pool
in_thread = runs_in_thread
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
        return None  # no record was appended: the slow path raises a more precise error


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
