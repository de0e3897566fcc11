"""A data source that fetches a topic, discards it, and yields ready-made batches instead.

No Python source that reads a topic can be much faster: a blocking socket receives each byte once,
records are not parsed, and the broker sends the next response while Spark takes these rows. Offsets
are not looked up, so the topic must begin at 0, and the cluster must have one broker.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceReader, InputPartition

from benchmarks.peers.raw_socket_peer import Reading, Wire
from benchmarks.spark.ready_batches import ReadyBatches, ready_batch, ready_rows
from kafka_async.spark.source_options import MAX_PARTITION_FETCH_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

OPTIONS: Final = ("records", "size", "partitions")


class DiscardingBatches(ReadyBatches):
    """Yields rows as ReadyBatches does, after receiving as many records of a topic."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return "discarding_batches"

    def reader(self, schema: object) -> DataSourceReader:
        """Return the reader."""
        numbers = [int(self.options[name]) for name in OPTIONS]
        return _Reader(self.options["bootstrap"], self.options["topic"], *numbers)


class _Reader(DataSourceReader):
    def __init__(
        self, bootstrap: str, topic: str, records: int, size: int, partitions: int
    ) -> None:
        self._bootstrap, self._topic = bootstrap, topic
        self._records, self._size, self._partitions = records, size, partitions

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(number) for number in range(self._partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        number = int(partition.value)
        count = len(range(number, self._records, self._partitions))
        batch = ready_batch(self._size, number)
        wire = _connect(self._bootstrap)
        reading = Reading(self._topic, {number: 0}, partition_bytes=MAX_PARTITION_FETCH_BYTES)
        wire.send(reading.request())
        done = 0
        while done < count:
            reading.advance(wire.receive())
            if reading.count < count:
                wire.send(reading.request())
            yield from ready_rows(batch, min(reading.count, count) - done)
            done = reading.count


@lru_cache
def _connect(bootstrap: str) -> Wire:
    """Return the connection that the tasks of this process use one after another."""
    return Wire(bootstrap)
