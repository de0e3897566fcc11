# cython: language_level=3
"""libFuzzer as a Python module: its loop calls a Python function with each input.

If it is loaded with RTLD_GLOBAL before an instrumented extension, the extension's counters and
comparisons report to it.
"""

from cpython.mem cimport PyMem_Malloc
from libc.stdint cimport uint8_t
from libc.stdlib cimport abort

import sys
import traceback

ctypedef int (*OneInput)(const uint8_t* data, size_t size) noexcept nogil

cdef extern from *:
    """
    #ifdef __cplusplus
    extern "C"
    #endif
    int LLVMFuzzerRunDriver(int *argc, char ***argv,
                            int (*one_input)(const uint8_t *data, size_t size));
    """
    int LLVMFuzzerRunDriver(int* argc, char*** argv, OneInput one_input) nogil

cdef object _target = None


cdef int one_input(const uint8_t* data, size_t size) noexcept with gil:
    try:
        _target(<bytes>data[:size])
    except BaseException:
        # libFuzzer treats the signal as a crash: it saves the input and ends the process.
        traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        abort()
    return 0


def run(arguments, target):
    """Fuzz `target`, a function of bytes, with libFuzzer's arguments; end the process.

    Any exception that `target` raises is a finding.
    """
    global _target
    cdef int count = len(arguments) + 1
    cdef list kept = [b"kernel", *[argument.encode() for argument in arguments]]
    cdef char** words = <char**>PyMem_Malloc((count + 1) * sizeof(char*))
    cdef int index
    if words == NULL:
        raise MemoryError
    for index in range(count):
        words[index] = kept[index]
    words[count] = NULL
    _target = target
    return LLVMFuzzerRunDriver(&count, &words, <OneInput>one_input)
