"""Types of the compiled kernel: those of the kernel in plain Python."""

from typing import Final

from kafka_async.kernel._pykernel import OpenBatch as OpenBatch
from kafka_async.kernel._pykernel import RecordAppender as RecordAppender
from kafka_async.kernel._pykernel import RecordReader as RecordReader
from kafka_async.kernel._pykernel import TopicOpenBatches as TopicOpenBatches
from kafka_async.kernel._pykernel import decode_varint as decode_varint
from kafka_async.kernel._pykernel import encode_varint as encode_varint
from kafka_async.kernel._pykernel import murmur2 as murmur2
from kafka_async.kernel._pykernel import parse_columns as parse_columns
from kafka_async.kernel._pykernel import parse_records as parse_records
from kafka_async.kernel._pykernel import record_size_bound as record_size_bound
from kafka_async.kernel._pystream import NextRecord as NextRecord
from kafka_async.kernel._pystream import RecordIterator as RecordIterator
from kafka_async.kernel._pyvalues import Delivery as Delivery
from kafka_async.kernel._pyvalues import Record as Record

IMPLEMENTATION: Final = "c"
