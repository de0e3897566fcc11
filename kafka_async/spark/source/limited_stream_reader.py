"""Reads topics in a streaming query on Spark 4.2 and newer, which limits batches by ReadLimit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from kafka_async.spark.source.stream_offset import StreamOffset, read_stream_offset
from kafka_async.spark.source.stream_reader import KafkaStreamReader

if TYPE_CHECKING:
    from kafka_async.spark.source.stream_offset import OffsetJson


class LimitedStreamReader(KafkaStreamReader, SupportsTriggerAvailableNow):
    """Reads streams with limits and the trigger availableNow, and reports the latest offsets."""

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit that the options set.

        Spark cannot combine kinds of limits. This limit only marks the read as limited, and
        `latestOffset` applies all limiting options.
        """
        options = self._options
        if options.max_rows_per_trigger is not None:
            return ReadMaxRows(options.max_rows_per_trigger)
        if options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(options.max_bytes_per_trigger)
        if options.min_rows_per_trigger is not None:
            return ReadMinRows(options.min_rows_per_trigger)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, object], limit: ReadLimit) -> OffsetJson:
        """Return the end of the next micro-batch.

        Raises:
            DataLossError: Records from `start` on are gone, and failOnDataLoss is on.
        """
        position = read_stream_offset(start)
        self._commit_progress(position)
        limited = not isinstance(limit, ReadAllAvailable)
        return self._next_offset(position, limited=limited).to_json()

    def reportLatestOffset(self) -> OffsetJson | None:
        """Return the latest known offsets, from which Spark's progress shows the lag."""
        if self._planned is None or not self._planned[1].latest:
            return None
        return StreamOffset(dict(self._planned[1].latest)).to_json()

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the end offsets of the query."""
        self._target = self._cluster().latest_position().offsets
