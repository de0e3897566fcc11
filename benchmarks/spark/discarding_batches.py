"""A data source that fetches a topic, discards it, and yields ready-made batches instead.

No Python source that reads a topic can be much faster: a blocking socket receives each byte once,
records are not parsed, and the broker sends the next response while Spark takes these rows. Offsets
are not looked up, so the topic must begin at 0, and the cluster must have one broker.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from benchmarks.peers.raw_socket_peer import Reading, Wire
from benchmarks.spark.ready_batches import ReadyBatches, ReadyReader, ready_batch, ready_rows
from kafka_async.spark.source.source_options import MAX_PARTITION_FETCH_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql.datasource import DataSourceReader


class DiscardingBatches(ReadyBatches):
    """Yields rows as ReadyBatches does, after receiving as many records of a topic."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return "discarding_batches"

    def reader(self, schema: object) -> DataSourceReader:
        """Return the reader."""
        return _Reader(self.options)


class _Reader(ReadyReader):
    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        self._bootstrap, self._topic = options["bootstrap"], options["topic"]

    def rows(self, number: int, count: int) -> Iterator[pa.RecordBatch]:
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
