"""Limits of the work that one event loop iteration does.

While an event loop runs one piece of work, the application's tasks wait. Work that grows with the
data is therefore cut into pieces: the rest is done in a later iteration or in a thread. Limits are
counts where the cost of an item is known, since reading the clock costs more than a record, and
seconds otherwise. They aim at one millisecond for background work and five milliseconds for loops
of the application.

Lower limits cost throughput: an iteration of the event loop takes 1.4 us, and passing work to a
thread 100 to 200 us. The compiled kernel has one more limit, in `kernel/record_appender.pxi`, and
each codec has one in `producer/buffer/batch_compressor.py`.
"""

from __future__ import annotations

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB

# Loops of the application: enqueue, poll, async for.

YIELD_INTERVAL: Final = 0.001
"""Seconds after which a caller that enqueues in a loop yields to the event loop once."""
MAX_RECORDS_PER_CLOCK_CHECK: Final = 1_000
"""Records appended without checking the clock."""
MAX_ROWS_PER_CHECK: Final = 4_000
"""Rows of Arrow columns checked at a time: 0.1 ms, or 5 ms without the compiled kernel."""
MAX_LOOP_SECONDS: Final = 0.005
"""Maximum seconds for which polls and iteration hold the event loop."""
MAX_PARSE_SECONDS: Final = MAX_LOOP_SECONDS / 2
"""Seconds for which one poll may parse records; the rest is left to the application."""
RECORDS_PER_CHUNK: Final = 500
"""Records of a batch that are parsed at a time."""
BYTES_PER_CHUNK: Final = MIB
"""Bytes of a batch that are parsed at a time."""

# The producer.

MAX_ITEMS_PER_ITERATION: Final = 128
"""Batches, partitions or records handled per event loop iteration, where there may be thousands: a
fraction of a millisecond.
"""
MAX_BYTES_PER_ITERATION: Final = 8 * MIB
"""Bytes sent to one broker per event loop iteration; their CRC takes about 0.4 ms."""
MAX_TOPICS_PER_ITERATION: Final = 32
"""Topics whose metadata is applied per event loop iteration: half a millisecond."""
MAX_WAKEUPS_PER_ITERATION: Final = 250
"""Tasks that one outcome wakes per event loop iteration; their first steps take about 1 ms."""
MAX_IN_LOOP_BYTES_HIGH_LEVEL: Final = 4 * KIB
"""Size of batches that the event loop compresses at higher levels of a codec, which take up to a
hundred times as long; larger ones go to a thread.
"""
IN_LOOP_BUDGET_FACTOR: Final = 2
"""Bytes compressed per event loop iteration, as a multiple of the largest batch."""
MAX_BYTES_PER_JOB: Final = 512 * KIB
"""Bytes that a thread compresses before it hands over the result."""
MAX_FAILURES_PER_ITERATION: Final = 1_000
"""Failed batches checked per event loop iteration: less than a millisecond."""

# The consumer.

MAX_SCAN_SECONDS: Final = 0.0025
"""Seconds for which batches are searched in a response before other tasks run."""
BATCHES_PER_TIME_CHECK: Final = 100
"""Batches searched between two checks of the clock."""
MAX_BATCHES_SCANNED: Final = 256
"""Batches examined for decompression without a pause: each takes some microseconds."""
DECOMPRESSED_BYTES_PER_CALL: Final = MIB
"""Decompressed bytes per call of a thread, and the maximum of one batch."""
MIN_DECOMPRESSED_BYTES_PER_CALL: Final = DECOMPRESSED_BYTES_PER_CALL // 8
"""Decompressed bytes below which a thread costs more than it saves."""
THREAD_DECODE_BYTES: Final = 16 * KIB
"""Bytes of all members' subscriptions above which a thread decodes them: about 1 ms."""
THREAD_ASSIGN_SIZE: Final = 256
"""Partitions plus members above which a thread computes the assignment: 2 to 3 ms."""

# Connections and metadata.

MAX_BYTES_PER_WRITE: Final = MIB
"""Bytes passed to the transport in one call; larger buffers are passed in pieces."""
OFFLOAD_DECODE_BYTES: Final = 64 * KIB
"""Bytes of a frame above which decoding may take milliseconds."""
MAX_TOPICS_PER_REQUEST: Final = 125
"""Topics per Metadata request: decoding a response then takes about a millisecond."""
MAX_PARTITIONS_MERGED_IN_LOOP: Final = 1000
"""Partitions of a response merged in the event loop (1 ms); larger responses use a thread."""
