"""`kafka-async pipeline`: runs a Spark pipeline from a file, checks it, and shows its status."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
import time
from contextlib import ExitStack, contextmanager, redirect_stderr
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich import box
from rich.console import Group
from rich.live import Live
from rich.markup import escape
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from kafka_async.cli import terminal
from kafka_async.cli.help import Command
from kafka_async.cli.help import Group as CommandGroup
from kafka_async.errors import InvalidConfigurationError, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from kafka_async.spark.pipeline import Pipeline, PipelineStatus, QueryStatus

app = typer.Typer(
    help="Run, check and watch a pipeline of Spark.", no_args_is_help=True, cls=CommandGroup
)

LOCAL_MASTER: Final = "local[2]"
LOCAL_PARTITIONS: Final = 4
LOCAL_SPARK: Final = {"spark.sql.shuffle.partitions": "2", "spark.ui.enabled": "false"}
"""Spark's default of 200 shuffle partitions is slow on a few cores."""
WATCH_INTERVAL: Final = 1.0
"""Seconds between two reads of the status of a pipeline in another process."""
STANDARD_ERROR: Final = 2
"""File descriptor, which Spark's process inherits."""
_COLORS: Final = {"failed": "red", "ended": "red", "running": "green", "starting": "yellow"}

File = Annotated[Path, typer.Argument(metavar="FILE", help="The pipeline, in TOML.")]


@app.command(cls=Command)
def run(
    file: File,
    master: Annotated[
        str | None, typer.Option(metavar="URL", help="Spark's master, in place of the file's.")
    ] = None,
    local: Annotated[
        bool,
        typer.Option(
            "--local",
            help="Run on an embedded cluster and a local Spark, with a temporary checkpoint.",
        ),
    ] = False,
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            metavar="TOPIC=FILE",
            help="With --local: write the lines of a file to a topic first; repeatable.",
        ),
    ] = None,
) -> None:
    """Run a pipeline until it ends, fails or is interrupted by Ctrl-C."""
    pipeline = _pipeline(file)
    lines = _lines(inputs or (), local=local)
    _require_spark()
    with ExitStack() as stack:
        if local:
            pipeline = stack.enter_context(_local(pipeline, master or LOCAL_MASTER, lines))
        elif master is not None:
            pipeline = pipeline.with_master(master)
        status = _run(file, pipeline)
    terminal.err.print(_summary(status), markup=False)


@app.command(cls=Command)
def validate(
    file: File,
    no_spark: Annotated[
        bool,
        typer.Option("--no-spark", help="Check neither the queries nor the columns, at once."),
    ] = False,
) -> None:
    """Check a pipeline's options, queries and columns, without connecting to a broker."""
    pipeline = _pipeline(file)
    with _errors(file):
        if no_spark:
            pipeline.validate()
        else:
            from kafka_async.spark.pipeline.session import create_session

            _require_spark()
            with create_session(pipeline.definition, master=LOCAL_MASTER) as spark:
                pipeline.validate(spark)
    terminal.err.print(f"{file}: no errors", markup=False, soft_wrap=True)


@app.command(cls=Command)
def package(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The file to write: .tar.gz or .zip.")
    ],
) -> None:
    """Pack kafka_async for executors on which it is not installed.

    A .tar.gz file is for spark.archives and contains the compiled kernel. A .zip file is for
    --py-files and contains only Python code.
    """
    from kafka_async.spark.executor_package import write_package

    terminal.check_writable(file)
    with _errors():
        packed = write_package(file)
    terminal.err.print(f"{file} has {', '.join(packed.packed)}", markup=False, soft_wrap=True)
    if packed.left_out:
        terminal.err.print(
            f"executors need these, which have compiled code: {', '.join(packed.left_out)}",
            markup=False,
            soft_wrap=True,
        )


@app.command(cls=Command)
def status(
    file: File,
    watch: Annotated[
        bool, typer.Option("--watch", help="Show it again every second, until the end.")
    ] = False,
) -> None:
    """Show the last report of the process that runs a pipeline, on this machine."""
    from kafka_async.spark.pipeline.status import ACTIVE

    pipeline = _pipeline(file)

    def read() -> PipelineStatus:
        try:
            found = pipeline.status()
        except ValueError as error:
            terminal.fail(str(error))
        if found is None:
            name = pipeline.definition.name
            terminal.fail(f"the pipeline {name} has not been run on this machine by this user")
        return found

    found = read()
    if watch and found.state in ACTIVE:
        with Live(screen(found), console=terminal.out, auto_refresh=False) as live:
            while found.state in ACTIVE:
                time.sleep(WATCH_INTERVAL)
                found = read()
                live.update(screen(found), refresh=True)
    else:
        terminal.out.print(screen(found))
    if found.state in ("failed", "ended"):
        raise typer.Exit(1)


# -- running ---------------------------------------------------------------------------------------


def _pipeline(file: Path) -> Pipeline:
    from kafka_async.spark.pipeline import Pipeline

    with _errors():
        return Pipeline.from_toml(file)


def _require_spark() -> None:
    from kafka_async.cli.demo.spark import missing_requirement

    missing = missing_requirement()
    if missing is not None:
        terminal.fail(missing)


def _run(file: Path, pipeline: Pipeline) -> PipelineStatus:
    """Run a pipeline and show its progress; SIGINT and SIGTERM stop it."""
    shown = threading.Event()

    def stop(*_: object) -> None:
        if not shown.is_set():
            shown.set()
            terminal.err.print(
                "stopping; a batch that is interrupted is repeated at the next start"
            )
        pipeline.stop()

    from kafka_async.spark.pipeline.session import create_session

    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in numbers}
    try:
        with (
            _errors(file),
            status_display(pipeline) as show,
            create_session(pipeline.definition) as spark,
        ):
            for number in numbers:  # Creating the session has replaced the SIGINT handler.
                signal.signal(number, stop)
            return pipeline.run(spark, on_status=show)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def status_display(pipeline: Pipeline) -> Generator[Callable[[PipelineStatus], None]]:
    """Yield a function that shows a status: a table on a terminal, else a line per batch.

    Console sinks print rows on the terminal, which would break the table, so they disable it.
    """
    console_sink = any(sink.kind == "console" for sink in pipeline.definition.sinks)
    if terminal.err.is_terminal and not console_sink:
        with (
            log_file(pipeline) as log,
            Live(
                Spinner("dots" if terminal.unicode() else "line", "starting Spark"),
                console=terminal.err,
                transient=True,
            ) as live,
        ):
            yield lambda status: live.update(live_screen(status, log))
        return
    seen: dict[str, tuple[int | None, str]] = {}

    def show(status: PipelineStatus) -> None:
        for query in status.queries:
            if seen.get(query.name) != (query.batch, query.state):
                seen[query.name] = (query.batch, query.state)
                terminal.err.print(_line(query), markup=False)

    yield show


@contextmanager
def log_file(pipeline: Pipeline) -> Generator[Path]:
    """Redirect Spark's log to a file, since it would break the table; yield the file's path.

    Replaces the file descriptor and not only `sys.stderr`: Spark's process inherits the descriptor.
    """
    from kafka_async.spark.pipeline.status_file import status_path

    path = status_path(pipeline.definition.name).with_suffix(".log")
    path.parent.mkdir(parents=True, exist_ok=True)
    saved = os.dup(STANDARD_ERROR)
    with open(saved, "w", encoding=terminal.err.encoding, errors="backslashreplace") as shown:
        with path.open("wb") as log:
            os.dup2(log.fileno(), STANDARD_ERROR)
        try:
            with redirect_stderr(shown):
                yield path
        finally:
            os.dup2(saved, STANDARD_ERROR)


@contextmanager
def _local(pipeline: Pipeline, master: str, lines: dict[str, list[bytes]]) -> Generator[Pipeline]:
    """Yield the pipeline on an embedded cluster with its topics, and with a temporary directory."""
    from kafka_async import blocking
    from kafka_async.embedded.threads import run_in_thread

    definition = pipeline.definition
    topics = {topic for source in definition.sources for topic in source.topics}
    topics |= {sink.topic for sink in definition.sinks if sink.topic is not None}
    unknown = lines.keys() - topics
    if unknown:
        terminal.fail(
            f"--input {min(unknown)}: the pipeline reads no such topic: {', '.join(sorted(topics))}"
        )
    with (
        tempfile.TemporaryDirectory(prefix="kafka-async-pipeline-") as directory,
        run_in_thread(transaction_state_log_num_partitions=1) as cluster,
    ):
        servers = cluster.bootstrap_servers
        for topic in sorted(topics):
            cluster.create_topic(topic, LOCAL_PARTITIONS)
        if lines:
            with blocking.Producer(servers) as producer:
                for topic, values in lines.items():
                    producer.send_many(topic, values)
        terminal.err.print(f"an embedded cluster is listening at {servers}", markup=False)
        local = pipeline.on_cluster(servers, f"{directory}/checkpoint")
        yield local.with_master(master).with_spark(LOCAL_SPARK)


def _lines(inputs: Sequence[str], *, local: bool) -> dict[str, list[bytes]]:
    """Return the lines of the files of --input, by topic."""
    if inputs and not local:
        terminal.fail("--input needs --local: use kafka-async produce to write to a cluster")
    lines: dict[str, list[bytes]] = {}
    for text in inputs:
        topic, equals, name = text.partition("=")
        if not equals:
            terminal.fail(f"--input {text}: write TOPIC=FILE")
        terminal.check_readable([Path(name)])
        lines.setdefault(topic, []).extend(Path(name).read_bytes().splitlines())
    return lines


@contextmanager
def _errors(file: Path | None = None) -> Generator[None]:
    """Print one line for an error of the pipeline or Spark, and exit with status 1.

    A configuration error is prefixed with the file's name.
    """
    from kafka_async.spark.pipeline.session import cause_of, spark_errors

    try:
        yield
    except InvalidConfigurationError as error:
        terminal.fail(error.message if file is None else f"{file}: {error.message}")
    except (KafkaError, *spark_errors()) as error:
        terminal.fail(cause_of(error))


# -- display ---------------------------------------------------------------------------------------


def screen(status: PipelineStatus) -> Table:
    """Return a table with a row for each query."""
    color = _COLORS.get(status.state, "")
    state = f"[{color}]{status.state}[/]" if color else status.state
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(status.started))
    elapsed = timedelta(seconds=int(status.updated - status.started))
    table = Table(
        title=f"{escape(status.name)}: {state}, process {status.process_id}, "
        f"{elapsed} since {since}",
        caption=None if status.error is None else f"[red]{escape(status.error)}[/]",
        box=box.SIMPLE if terminal.unicode() else box.ASCII,
        padding=(0, 0, 0, 1),
    )
    # On a narrow terminal, wrap the name rather than cut off a figure.
    table.add_column("sink", overflow="fold")
    table.add_column("state", no_wrap=True)
    for heading in ("batch", "rows", "rows/s", "lag", "batch\ntime", "state\nrows", "state\nMB"):
        table.add_column(heading, justify="right", no_wrap=True)
    for query in status.queries:
        table.add_row(escape(query.name), query.state, *_figures(query))
    return table


def live_screen(status: PipelineStatus, log: Path) -> Group:
    """Return the screen for a pipeline that runs in this process."""
    return Group(screen(status), Text(f"Ctrl-C stops it; Spark's log: {log}", style="dim"))


def _figures(query: QueryStatus) -> list[str]:
    def shown(value: Any, form: str) -> str:
        return "-" if value is None else form.format(value)

    return [
        shown(query.batch, "{}"),
        f"{query.rows:,}",
        shown(query.rows_per_second, "{:,.0f}"),
        shown(query.lag, "{:,}"),
        shown(query.batch_seconds, "{:.2f} s"),
        f"{query.state_rows:,}",
        f"{query.state_bytes / 1_000_000:,.1f}",
    ]


def _line(query: QueryStatus) -> str:
    """Return a line for output that is not a terminal."""
    batch, rows, rate, lag, seconds, *_ = _figures(query)
    figures = f"batch {batch}, {rows} rows, {rate} rows/s, lag {lag}, {seconds}"
    return f"{query.name}: {query.state}" + ("" if query.batch is None else f", {figures}")


def _summary(status: PipelineStatus) -> str:
    counts = (f"{query.name} {query.rows:,}" for query in status.queries)
    return f"{status.name} has stopped; rows read: {', '.join(counts)}"
