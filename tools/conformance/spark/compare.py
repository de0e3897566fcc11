"""Runs a case with each connector in Spark, and describes the first difference."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kafka_async import NewTopic, blocking
from tools.sparks import run_to_end

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from tools.conformance.spark.cases import Batch, Options, Stream, StreamWrite, Write

CONNECTOR: Final = "kafka"
OURS: Final = "kafka_async"
OURS_ERROR: Final = "kafka_async.errors."
"""Begins the last error of a traceback of this package; the connector's own is the first."""
SHOWN: Final = 300
"""Characters of a value in a description."""
TARGET_PARTITIONS: Final = 3


@dataclass
class Outcome:
    """Holds the result of one connector.

    Attributes:
        rows: The rows, sorted.
        parts: Offsets of tasks or batches.
        error: First line of the error; None without one.
    """

    rows: list[Any] = field(default_factory=list[Any])
    parts: list[Any] = field(default_factory=list[Any])
    error: str | None = None


@dataclass(frozen=True)
class Comparison:
    """The result of a case: a summary, and the difference if there is one."""

    summary: str
    difference: str | None


class Runner:
    """Runs cases in a session.

    Args:
        session: A session with both connectors.
        servers: Addresses of brokers.
        directory: Directory for checkpoints and output.
    """

    def __init__(self, session: SparkSession, servers: str, directory: Path) -> None:
        self._session, self._servers, self._directory = session, servers, directory
        self._runs = 0

    def batch(self, case: Batch) -> Comparison:
        """Compare the rows of a batch read, and the offsets of its tasks."""
        return compare(
            *(_outcome(lambda name=name: self._read(name, case)) for name in (CONNECTOR, OURS)),
        )

    def stream(self, case: Stream) -> Comparison:
        """Compare the rows of streaming queries, and the offsets of their batches."""
        places = {name: self._place() for name in (CONNECTOR, OURS)}
        others = {CONNECTOR: OURS, OURS: CONNECTOR}
        outcomes: dict[str, Outcome] = {}
        for name, place in places.items():
            first = others[name] if case.other_format else name
            outcomes[name] = _outcome(
                lambda first=first, place=place: self._query(first, case.options, place)
            )
        if case.between is not None:
            case.between(self._servers)
            for name, place in places.items():
                outcomes[name] = _outcome(
                    lambda name=name, place=place: self._query(name, case.options, place)
                )
        return compare(outcomes[CONNECTOR], outcomes[OURS])

    def stream_write(self, case: StreamWrite) -> Comparison:
        """Compare the records that a streaming query writes, with the offsets of its batches."""
        return compare(
            *(_outcome(lambda name=name: self._streamed(name, case)) for name in (CONNECTOR, OURS)),
        )

    def write(self, case: Write) -> Comparison:
        """Compare the records that are written; timestamps differ."""
        return compare(
            *(_outcome(lambda name=name: self._written(name, case)) for name in (CONNECTOR, OURS)),
        )

    def _read(self, name: str, case: Batch) -> Outcome:
        frame = (
            self._session.read.format(name)
            .option("kafka.bootstrap.servers", self._servers)
            .options(**case.options)
            .load()
            .where(case.condition)
        )
        schema = frame.schema.simpleString()
        found = frame.selectExpr("*", "spark_partition_id() as task").collect()
        tasks: dict[int, list[tuple[str, int, int]]] = {}
        for row in found:
            tasks.setdefault(row["task"], []).append(
                (row["topic"], row["partition"], row["offset"])
            )
        parts = sorted((min(task), max(task), len(task)) for task in tasks.values())
        if case.tasks_differ:
            parts = []
        return Outcome(_sorted(found, len(frame.columns)), [schema, *parts])

    def _query(self, name: str, options: Options, place: Path) -> Outcome:
        output = place / "output"
        writer = self._stream(name, options).writeStream.format("parquet")
        batches = self._run(writer.option("path", str(output)), place)
        written = list(output.glob("*.parquet"))
        rows = self._session.read.parquet(str(output)).collect() if written else []
        return Outcome(_sorted(rows, len(rows[0]) if rows else 0), batches)

    def _streamed(self, name: str, case: StreamWrite) -> Outcome:
        from pyspark.sql.functions import expr

        topic, place = self._target()
        rows = self._stream(name, case.options)
        columns = list(map(expr, case.columns))
        rows = rows.groupBy(case.groups).agg(*columns) if case.groups else rows.select(*columns)
        options = {"kafka.bootstrap.servers": self._servers, "topic": topic}
        writer = rows.writeStream.format(name).options(**options).outputMode(case.output_mode)
        batches = self._run(writer, place)
        return Outcome(self._records_of(topic, rows.columns), batches)

    def _stream(self, name: str, options: Options) -> DataFrame:
        servers = {"kafka.bootstrap.servers": self._servers}
        return self._session.readStream.format(name).options(**servers, **options).load()

    def _run(self, writer: DataStreamWriter, place: Path) -> list[dict[str, dict[str, int]]]:
        """Run a query until it has read all that is there; return the offsets of its batches."""
        checkpoint = place / "checkpoint"
        writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
        run_to_end(writer)
        files = sorted((checkpoint / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
        return [_offsets(path.read_text("utf-8").splitlines()[-1]) for path in files]

    def _written(self, name: str, case: Write) -> Outcome:
        topic, _ = self._target()
        options = {"kafka.bootstrap.servers": self._servers, **case.options}
        if case.has_target_option:
            options["topic"] = topic
        session: Any = self._session  # The stubs lack types of the arguments of sql.
        rows = session.sql(case.rows.replace("{topic}", topic))
        rows.write.format(name).options(**options).mode("append").save()
        return Outcome(self._records_of(topic, rows.columns))

    def _records_of(self, topic: str, columns: Sequence[str]) -> list[tuple[Any, ...]]:
        """Return the records of a target; partitions only where the row or its key decides."""
        partition = "key is not null or " + ("true" if "partition" in columns else "false")
        found = (
            self._session.read.format(CONNECTOR)
            .option("kafka.bootstrap.servers", self._servers)
            .option("subscribe", topic)
            .option("includeHeaders", "true")
            .load()
            .selectExpr("key", "value", f"if({partition}, partition, null) as partition", "headers")
            .collect()
        )
        return _sorted(found, 4)

    def _target(self) -> tuple[str, Path]:
        """Create the target topic of a run; return its name, and a directory for the run."""
        place = self._place()
        topic = f"target-{place.name}"
        with blocking.Admin(self._servers) as admin:
            admin.create_topics([NewTopic(topic, TARGET_PARTITIONS)])
        return topic, place

    def _place(self) -> Path:
        self._runs += 1
        return self._directory / str(self._runs)


def compare(connector: Outcome, ours: Outcome) -> Comparison:
    """Compare two outcomes; both may be errors, whose messages need not be equal.

    Args:
        connector: Outcome of Spark's connector.
        ours: Outcome of this package.
    """
    if connector.error is not None and ours.error is not None:
        return Comparison(f"both refuse: {ours.error[:60]}", None)
    for name, outcome, other in (("connector", connector, "ours"), ("ours", ours, "connector")):
        if outcome.error is not None:
            text = f"{name} raises, {other} does not: {outcome.error[:SHOWN]}"
            return Comparison("", text)
    if connector.rows != ours.rows:
        return Comparison("", _first_difference("rows", connector.rows, ours.rows))
    if connector.parts != ours.parts:
        return Comparison("", _first_difference("offsets", connector.parts, ours.parts))
    return Comparison(f"{len(ours.rows)} rows, {len(ours.parts)} parts", None)


def _first_difference(what: str, connector: list[Any], ours: list[Any]) -> str:
    """Describe the first elements that only one side has."""
    left, right = (Counter(map(repr, each)) for each in (connector, ours))
    missing, added = list((left - right).elements()), list((right - left).elements())
    shown = [f"{what}: connector {len(connector)}, ours {len(ours)}"]
    shown += [f"only connector: {missing[0][:SHOWN]}"] if missing else []
    shown += [f"only ours: {added[0][:SHOWN]}"] if added else []
    return "; ".join(shown if missing or added else [*shown, "another order"])


def _outcome(run: Callable[[], Outcome]) -> Outcome:
    try:
        return run()
    except Exception as error:  # noqa: BLE001  # any refusal is a result
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        named = [line for line in lines if re.search(r"(Error|Exception): ", line)]
        return Outcome(error=(named or lines)[-1 if OURS_ERROR in str(error) else 0])


def _sorted(rows: list[Any], columns: int) -> list[tuple[Any, ...]]:
    plain = [tuple(_plain(row[at]) for at in range(columns)) for row in rows]
    return sorted(plain, key=repr)


def _plain(value: Any) -> Any:
    """Return a value that can be compared: bytes and tuples."""
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]  # pyright: ignore[reportUnknownVariableType]
    return value


def _offsets(text: str) -> dict[str, dict[str, int]]:
    """Return the offsets of a batch, without the topic ids and epochs that only ours has."""
    return {topic: offsets for topic, offsets in json.loads(text).items() if offsets}
