# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False, embedsignature=True, freethreading_compatible=True
# cython: auto_pickle=False, embedsignature.format=clinic
"""The compiled kernel: the same functions, classes, bytes and errors as `_pykernel`.

`_pykernel` is the specification and explains the formats; each part that is included below has a
module of the same name in plain Python. For memory safety, bytes are read through a `Cursor`: two
pointers, and each function that advances it first compares the size with what is left. Functions
return a corruption as a number, which becomes the shared exception at the top.

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
from kafka_async.kernel.shared import BinaryColumn, Columns, HeaderColumn, RowFault, \
    abbreviate, arrow_layout_error, copy_error, corrupt_record_error

IMPLEMENTATION = "c"

cdef extern from "Python.h":
    void PyObject_GC_UnTrack(object)
    const char* PyUnicode_AsUTF8AndSize(object, Py_ssize_t*) except NULL
    object PyUnicode_FromObject(object)

cdef tuple EMPTY = ()
cdef int64_t MAX_INT64 = 0x7FFF_FFFF_FFFF_FFFF
cdef int64_t MAX_TIMESTAMP = 0x7FFF_FFFF_FFFF_FFFE
cdef int64_t MAX_INT32 = 0x7FFF_FFFF

# The same numbers as shared.Corruption.
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

include "values.pxi"
include "varints.pxi"
include "key_hash.pxi"
include "record_encoder.pxi"
include "record_columns.pxi"
include "open_batch.pxi"
include "record_appender.pxi"
include "record_reader.pxi"
include "columns.pxi"
include "next_record.pxi"
