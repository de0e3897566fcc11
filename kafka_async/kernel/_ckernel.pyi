"""Types of the compiled kernel, taken from the kernel in plain Python."""

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

IMPLEMENTATION: Final = "c"
