"""Zigzag varints of 32 and 64 bits."""


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


cdef struct Cursor:
    const uint8_t* at
    const uint8_t* end


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
