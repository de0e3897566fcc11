"""The hot path in plain Python: the specification of the compiled kernel in `_ckernel.pyx`.

Each part of the kernel is a pair of files: plain Python in `.py`, compiled code in `.pxi`.

Writing: `OpenBatch` appends records to the records section of a batch and returns a `Delivery` for
each; `TopicOpenBatches` finds the batch; `RecordAppender` finds the topic. `RecordColumns` are the
fields of records in Arrow's layout, from which `TopicOpenBatches` appends. Reading: `RecordReader`
returns the `Record` objects of a section some at a time, `parse_records` all at once, and
`parse_columns` the buffers of Arrow arrays; `NextRecord` returns records one by one.

A record on the wire (attributes is one byte, the other integers are zigzag varints):

    length  attributes  timestamp-delta  offset-delta  key  value  header-count  headers...

A key or value is a length (-1 for null) and bytes; a header is a non-null name and a value.
"""

from __future__ import annotations

from typing import Final

from kafka_async.kernel.columns import parse_columns as parse_columns
from kafka_async.kernel.key_hash import murmur2 as murmur2
from kafka_async.kernel.next_record import NextRecord as NextRecord
from kafka_async.kernel.next_record import RecordIterator as RecordIterator
from kafka_async.kernel.open_batch import OpenBatch as OpenBatch
from kafka_async.kernel.open_batch import TopicOpenBatches as TopicOpenBatches
from kafka_async.kernel.record_appender import RecordAppender as RecordAppender
from kafka_async.kernel.record_columns import RecordColumns as RecordColumns
from kafka_async.kernel.record_encoder import record_size_bound as record_size_bound
from kafka_async.kernel.record_reader import RecordReader as RecordReader
from kafka_async.kernel.record_reader import parse_records as parse_records
from kafka_async.kernel.values import Delivery as Delivery
from kafka_async.kernel.values import Record as Record

IMPLEMENTATION: Final = "python"
