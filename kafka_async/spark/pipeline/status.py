"""Status of a pipeline, from the progress reports of its queries. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Literal, cast

State = Literal["starting", "running", "stopped", "failed", "ended"]
"""State of a query or pipeline; "ended" if the process ended without a report."""
ACTIVE: Final = ("starting", "running")


@dataclass(frozen=True)
class QueryStatus:
    """Holds the figures of a sink's query after its last batch.

    Attributes:
        name: Name of the sink.
        state: State of the query.
        batch: Number of the last batch; None before the first one.
        rows: Rows read since the start of the pipeline.
        rows_per_second: Rows read per second in the last batch.
        batch_seconds: Duration of the last batch.
        lag: Unread records of all sources that report their latest offsets.
        state_rows: Rows in the state of aggregations and joins.
        state_bytes: Memory used by that state.
        error: Error that ended the query.
        reported: Time of Spark's last report, in ISO 8601.
    """

    name: str
    state: State = "starting"
    batch: int | None = None
    rows: int = 0
    rows_per_second: float | None = None
    batch_seconds: float | None = None
    lag: int | None = None
    state_rows: int = 0
    state_bytes: int = 0
    error: str | None = None
    reported: str = ""


@dataclass(frozen=True)
class PipelineStatus:
    """Holds the status of a pipeline.

    Attributes:
        name: Name of the pipeline.
        state: "failed" if a query has failed.
        process_id: Process that runs, or ran, the pipeline.
        started: Time of the start, in seconds since the epoch.
        updated: Time of the last report.
        queries: The queries, in the order of the sinks.
    """

    name: str
    state: State
    process_id: int
    started: float
    updated: float
    queries: tuple[QueryStatus, ...] = ()

    @property
    def error(self) -> str | None:
        """Error of the first failed query."""
        return next((query.error for query in self.queries if query.error), None)

    def to_json(self) -> str:
        """Return the status as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> PipelineStatus:
        """Parse a status from JSON; raise ValueError for other text."""
        try:
            row = json.loads(text)
            queries = tuple(QueryStatus(**query) for query in row.pop("queries"))
            return cls(**row, queries=queries)
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"this is not the status of a pipeline: {error}") from error


def after_report(before: QueryStatus, progress: Mapping[str, Any]) -> QueryStatus:
    """Return the status after a report of Spark, a `StreamingQueryProgress` as JSON.

    A report that is not newer than the last one changes nothing.
    """
    reported = str(progress.get("timestamp", ""))
    if reported <= before.reported:
        return before
    operators = cast("list[Mapping[str, Any]]", progress.get("stateOperators") or [])
    duration = cast("Mapping[str, Any]", progress.get("durationMs") or {}).get("triggerExecution")
    return replace(
        before,
        reported=reported,
        batch=int(progress["batchId"]),
        rows=before.rows + int(progress.get("numInputRows", 0)),
        rows_per_second=_number(progress.get("processedRowsPerSecond")),
        batch_seconds=None if duration is None else float(duration) / 1000,
        lag=_lag(cast("list[Mapping[str, Any]]", progress.get("sources") or [])),
        state_rows=sum(int(row.get("numRowsTotal", 0)) for row in operators),
        state_bytes=sum(int(row.get("memoryUsedBytes", 0)) for row in operators),
    )


def combined_state(queries: tuple[QueryStatus, ...]) -> State:
    """Return the state of a pipeline with these queries."""
    states = {query.state for query in queries}
    for state in ("failed", "starting", "running"):
        if state in states:
            return cast("State", state)
    return "stopped"


def _number(value: object) -> float | None:
    """Return a rate; Spark reports NaN or infinity for a batch without duration."""
    if not isinstance(value, int | float) or value != value or abs(value) == float("inf"):
        return None
    return float(value)


def _lag(sources: list[Mapping[str, Any]]) -> int | None:
    """Return the number of offsets between the end of the last batch and the latest offsets."""
    total: int | None = None
    for source in sources:
        end, latest = _offsets(source.get("endOffset")), _offsets(source.get("latestOffset"))
        if end and latest:
            behind = (max(0, offset - end.get(key, 0)) for key, offset in latest.items())
            total = (total or 0) + sum(behind)
    return total


def _offsets(value: object) -> dict[tuple[str, str], int]:
    """Return offsets by topic and partition, of the JSON `{"topic": {"0": 23}}`."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return {}
    if not isinstance(value, dict):
        return {}
    topics = cast("dict[str, object]", value)
    return {
        (topic, partition): offset
        for topic, partitions in topics.items()
        if isinstance(partitions, dict)
        for partition, offset in cast("dict[str, object]", partitions).items()
        if isinstance(offset, int) and partition.isdecimal()
    }
