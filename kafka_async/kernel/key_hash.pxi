"""The hash that partitions keyed records."""


def murmur2(key):
    """Return the signed 32-bit murmur2 hash of a key, as in Java's default partitioner."""
    return murmur2_hash(key)


cdef inline int32_t murmur2_hash(object key) except? -1:
    cdef object data = to_bytes(key)
    return murmur2_bytes(<const uint8_t*>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))


cdef int32_t murmur2_bytes(const uint8_t* at, Py_ssize_t length) noexcept nogil:
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
