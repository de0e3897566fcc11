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
    # Memory that a message may allocate, in bytes; see `protocol/memory_cost.py`.
    MEMORY_FACTOR = 64
    MEMORY_ALLOWANCE = 14 * 1024
    MAX_MEMORY = 192 * 1024 * 1024
    ARRAY_COST = 88
    TAGS_COST = 48
    TAG_COST = 140
    MIN_PART_SIZE = 4096  # bytes; a bytes field of this size is passed on instead of copied
    INITIAL_BUFFER_SIZE = 512


class FallbackRequired(ValueError):
    """Only the generated codec handles this message or value."""


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

include "message_layout.pxi"
include "message_decoder.pxi"
include "message_encoder.pxi"
