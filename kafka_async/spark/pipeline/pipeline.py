"""Runs a pipeline: creates its views and one streaming query for each sink."""

from __future__ import annotations

import os
import sys
import threading
import time
import tomllib
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from kafka_async.errors import InvalidConfigurationError
from kafka_async.spark.pipeline.definition import (
    AVAILABLE_NOW,
    Definition,
    Sink,
    Source,
    Step,
    Watermark,
    define,
    parse,
)
from kafka_async.spark.pipeline.session import cause_of, create_session, spark_errors
from kafka_async.spark.pipeline.status import (
    PipelineStatus,
    QueryStatus,
    after_report,
    combined_state,
)
from kafka_async.spark.pipeline.status_file import read_status, write_status

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from kafka_async.spark.pipeline.definition import Function

FORMATS: Final = {"topic": "kafka_async", "parquet": "parquet", "console": "console"}
"""Spark's formats by kind of sink."""
REPORT_INTERVAL: Final = 0.5
"""Seconds between two checks of the queries' progress."""


class Pipeline:
    """Reads topics, transforms their rows in Spark, and writes them to sinks, each exactly once.

    Args:
        name: Name of the pipeline, and part of its sinks' ids: after a rename it is a new pipeline.
        sources: Topics, each a view.
        sinks: Destinations of views, each written by one streaming query.
        steps: Queries and functions, each a view computed from earlier views.
        master: Spark's master, such as "local[2]" or "spark://host:7077". Default: Spark's
            configuration, for example from spark-submit.
        checkpoint: Directory for Spark's progress, writable by driver and executors.
        trigger: Interval between batches, such as "5 seconds", or "available-now" to process the
            available records and end. Default: a batch as soon as there are records.
        kafka: Options for all sources and all sinks of kind "topic", such as
            `kafka.bootstrap.servers`.
        spark: Further configuration of the Spark session.
        directory: Directory searched for the steps' modules before `sys.path`. Default: only
            `sys.path`.

    Raises:
        InvalidConfigurationError: A value is missing, wrong or contradicts another.
    """

    def __init__(
        self,
        name: str,
        *,
        sources: Sequence[Source],
        sinks: Sequence[Sink],
        steps: Sequence[Step] = (),
        master: str | None = None,
        checkpoint: str | None = None,
        trigger: str | None = None,
        kafka: Mapping[str, str] | None = None,
        spark: Mapping[str, str] | None = None,
        directory: str | os.PathLike[str] | None = None,
    ) -> None:
        self.definition = define(
            Definition(
                name=name,
                sources=sources,
                sinks=sinks,
                steps=steps,
                master=master,
                checkpoint=checkpoint,
                trigger=trigger,
                kafka=kafka or {},
                spark=spark or {},
            )
        )
        self._directory = None if directory is None else Path(directory).absolute()
        self._stopping = threading.Event()

    @classmethod
    def from_toml(cls, path: str | os.PathLike[str]) -> Pipeline:
        """Return the pipeline of a TOML file.

        Functions of steps are imported from the file's directory, and otherwise from `sys.path`.

        Raises:
            InvalidConfigurationError: The file cannot be read, or a table or key is unknown,
                missing or has a wrong value.
        """
        try:
            with open(path, "rb") as file:
                document = tomllib.load(file)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise InvalidConfigurationError(f"{os.fspath(path)}: {reason}") from error
        try:
            arguments: dict[str, Any] = vars(parse(document))
            return cls(**arguments, directory=Path(path).parent)
        except InvalidConfigurationError as error:
            raise InvalidConfigurationError(
                f"{os.fspath(path)}: {error.message}", option=error.option
            ) from error

    def with_master(self, master: str) -> Pipeline:
        """Return this pipeline with another master."""
        return self._of(replace(self.definition, master=master))

    def with_trigger(self, trigger: str) -> Pipeline:
        """Return this pipeline with another trigger, such as "available-now"."""
        return self._of(replace(self.definition, trigger=trigger))

    def with_spark(self, options: Mapping[str, str]) -> Pipeline:
        """Return this pipeline with additional Spark options; its own have precedence."""
        return self._of(replace(self.definition, spark={**options, **self.definition.spark}))

    def on_cluster(self, servers: str, checkpoint: str) -> Pipeline:
        """Return this pipeline from its start on another cluster, without credentials."""
        return self._of(self.definition.on_cluster(servers, checkpoint))

    def _of(self, definition: Definition) -> Pipeline:
        arguments: dict[str, Any] = vars(definition)
        return type(self)(**arguments, directory=self._directory)

    # -- checks -----------------------------------------------------------------------------------

    def validate(self, spark: SparkSession | None = None) -> None:
        """Check the options, the functions and, with a Spark session, the queries and columns.

        Does not connect to a broker.

        Raises:
            InvalidConfigurationError: A check failed; the message includes the source, step or
                sink.
        """
        from kafka_async.spark.sink.sink_options import sink_options
        from kafka_async.spark.source.source_options import source_options

        definition = self.definition
        for source in definition.sources:
            with _at(f"[[source]] {source.name}"):
                source_options(definition.source_options(source), streaming=True)
        for sink in definition.sinks:
            if sink.kind == "topic":
                with _at(f"[[sink]] {sink.name}"):
                    sink_options(definition.sink_options(sink))
        for step in definition.steps:
            with _at(_place(step)):
                self._function(step)
        if spark is not None:
            self._views(spark.newSession())

    def _function(self, step: Step) -> Function | None:
        """Return the function of a step, or None for a query."""
        if not isinstance(step.python, str):
            return step.python
        module_name, _, name = step.python.partition(":")
        with _on_path(self._directory):
            try:
                module = import_module(module_name)
            except ImportError as error:
                raise InvalidConfigurationError(
                    f"python={step.python!r}: the module cannot be imported ({error})"
                ) from error
        function = getattr(module, name, None)
        if not callable(function):
            raise InvalidConfigurationError(
                f"python={step.python!r}: the module has no function {name}"
            )
        return cast("Function", function)

    # -- running ----------------------------------------------------------------------------------

    def run(
        self,
        spark: SparkSession | None = None,
        *,
        on_status: Callable[[PipelineStatus], None] | None = None,
    ) -> PipelineStatus:
        """Run until all queries have ended, `stop` is called or a query fails.

        Args:
            spark: Session to use. Default: a new session, which is stopped at the end.
            on_status: Called with the status about twice a second.

        Returns:
            The last status.

        Raises:
            InvalidConfigurationError: As `validate`.
            StreamingQueryException: A query failed (pyspark's error), and the others were stopped.
        """
        self.validate()
        self._stopping.clear()
        with ExitStack() as stack:
            session = spark or stack.enter_context(create_session(self.definition))
            return self._run(session.newSession(), on_status or _ignore)

    def stop(self) -> None:
        """Make `run` end soon; may be called from any thread or a signal handler.

        The next run repeats an interrupted batch.
        """
        self._stopping.set()

    def status(self) -> PipelineStatus | None:
        """Return the last status report of the pipeline on this machine, or None."""
        return read_status(self.definition.name)

    def _run(
        self, spark: SparkSession, on_status: Callable[[PipelineStatus], None]
    ) -> PipelineStatus:
        queries: list[StreamingQuery] = []
        statuses = [QueryStatus(sink.name) for sink in self.definition.sinks]
        started = time.time()

        def report() -> PipelineStatus:
            status = PipelineStatus(
                name=self.definition.name,
                state=combined_state(tuple(statuses)),
                process_id=os.getpid(),
                started=started,
                updated=time.time(),
                queries=tuple(statuses),
            )
            write_status(status)
            on_status(status)
            return status

        report()
        try:
            self._register(spark)
            self._send_modules(spark)
            views = self._views(spark)
            queries += [self._start(sink, views[sink.view]) for sink in self.definition.sinks]
            while True:
                statuses[:] = map(_status, statuses, queries)
                report()
                # The loop ends if a query has failed, `stop` was called, or all queries have ended
                # by themselves.
                failed = any(status.state == "failed" for status in statuses)
                if failed or self._stopping.is_set() or not any(q.isActive for q in queries):
                    break
                self._stopping.wait(REPORT_INTERVAL)
        except BaseException as error:
            statuses[:] = [
                replace(each, state="failed", error=cause_of(error)) for each in statuses
            ]
            report()
            raise
        finally:
            for query in queries:
                query.stop()
        statuses[:] = map(_status, statuses, queries)
        last = report()
        for query in queries:
            failure = query.exception()
            if failure is not None:
                raise failure
        return last

    @staticmethod
    def _register(spark: SparkSession) -> None:
        """Register the data source if executors get this package by `spark.submit.pyFiles`.

        Without registration Spark finds the data source too, but its reading and writing workers do
        not import from these files. Spark 4.0 refuses to register a data source that it has found.
        """
        registers = not spark.version.startswith("4.0.")
        if registers and spark.sparkContext.getConf().get("spark.submit.pyFiles"):
            from kafka_async.spark.source import KafkaDataSource

            spark.dataSource.register(KafkaDataSource)

    def _send_modules(self, spark: SparkSession) -> None:
        """Send the modules in the pipeline's directory to the workers, which run the functions."""
        for step in self.definition.steps:
            if isinstance(step.python, str) and self._directory is not None:
                self._function(step)
                file = getattr(sys.modules[step.python.partition(":")[0]], "__file__", None)
                if file is not None and Path(file).parent == self._directory:
                    spark.sparkContext.addPyFile(file)

    def _views(self, spark: SparkSession) -> dict[str, DataFrame]:
        """Create the views; Spark analyses them."""
        views: dict[str, DataFrame] = {}
        for source in self.definition.sources:
            with _at(f"[[source]] {source.name}"):
                reader = spark.readStream.format("kafka_async")
                rows = reader.options(**self.definition.source_options(source)).load()
                if source.json:
                    rows = _with_columns_of_json(rows, source.json)
                self._add_view(views, source.name, rows, source.watermark)
        for step in self.definition.steps:
            with _at(_place(step)):
                function = self._function(step)
                rows: object = (
                    cast("Any", spark).sql(step.sql) if function is None else function(dict(views))
                )
                self._add_view(views, step.name, rows, step.watermark)
        for sink in self.definition.sinks:
            if sink.kind == "topic":
                with _at(f"[[sink]] {sink.name}"):
                    self._check_columns(sink, views[sink.view])
        return views

    def _add_view(
        self,
        views: dict[str, DataFrame],
        name: str,
        rows: object,
        watermark: Watermark | None,
    ) -> None:
        from pyspark.sql import DataFrame

        if not isinstance(rows, DataFrame):
            raise InvalidConfigurationError(
                f"the function returned {type(rows).__name__}: return a DataFrame"
            )
        if watermark is not None:
            rows = rows.withWatermark(watermark.column, watermark.delay)
        rows.createOrReplaceTempView(name)
        views[name] = rows

    def _check_columns(self, sink: Sink, rows: DataFrame) -> None:
        from kafka_async.spark.sink.sink_options import sink_options
        from kafka_async.spark.sink.writer import check_columns

        options = sink_options(self.definition.sink_options(sink))
        check_columns(rows.schema, options)

    def _start(self, sink: Sink, rows: DataFrame) -> StreamingQuery:
        definition = self.definition
        options = definition.sink_options(sink)
        writer = rows.writeStream.queryName(f"{definition.name}.{sink.name}")
        writer = writer.outputMode(sink.mode)
        if sink.kind == "topic" and sink.mode == "update":
            # Python data sources support the mode "update" only for batches.
            writer = writer.foreachBatch(partial(_write_batch, options))
        else:
            writer = writer.format(FORMATS[sink.kind]).options(**options)
        if definition.checkpoint is not None:
            place = f"{definition.checkpoint.rstrip('/')}/{sink.name}"
            writer = writer.option("checkpointLocation", place)
        if definition.trigger == AVAILABLE_NOW:
            writer = writer.trigger(availableNow=True)
        elif definition.trigger is not None:
            writer = writer.trigger(processingTime=definition.trigger)
        return writer.start()


def _write_batch(options: Mapping[str, str], rows: DataFrame, batch_id: int) -> None:
    """Write the rows of one batch; a repeated batch is written once."""
    write_id = {}
    if options.get("exactlyOnce", "").lower() == "true":
        query_id = rows.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        write_id = {"writeId": f"{query_id}/{batch_id}"}
    writer = rows.write.format("kafka_async").options(**options, **write_id)
    writer.mode("append").save()


def _status(before: QueryStatus, query: StreamingQuery) -> QueryStatus:
    status = before
    for progress in query.recentProgress:
        status = after_report(status, cast("Any", progress))
    failure = query.exception()
    if failure is not None:
        return replace(status, state="failed", error=cause_of(failure))
    if not query.isActive:
        return replace(status, state="stopped")
    return replace(status, state="starting" if status.batch is None else "running")


def _with_columns_of_json(rows: DataFrame, schema: str) -> DataFrame:
    """Replace the column value with the fields of its JSON."""
    from pyspark.sql.functions import col, from_json

    fields = from_json(col("value").cast("string"), schema).alias("value")
    others = [name for name in rows.columns if name != "value"]
    return rows.select(*others, fields).select(*others, "value.*")


def _place(step: Step) -> str:
    """Return a step's table, and its key unless the function's errors include it."""
    return f"[[step]] {step.name}" if step.sql is None else f"[[step]] {step.name} sql"


def _ignore(status: PipelineStatus) -> None:
    pass


@contextmanager
def _at(place: str) -> Generator[None]:
    """Prefix errors of the block with the source, step or sink."""
    try:
        yield
    except InvalidConfigurationError as error:
        raise InvalidConfigurationError(f"{place}: {error.message}", option=error.option) from error
    except spark_errors() as error:
        raise InvalidConfigurationError(f"{place}: {cause_of(error)}") from error


@contextmanager
def _on_path(directory: Path | None) -> Generator[None]:
    """Import modules from a directory within the block."""
    if directory is None:
        yield
        return
    sys.path.insert(0, str(directory))
    try:
        yield
    finally:
        sys.path.remove(str(directory))
