"""`kafka-async demo`: options and exit status of the demo."""

from __future__ import annotations

import json
import secrets
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kafka_async.cli import options, terminal
from kafka_async.cli.connection_options import ConnectionOptions

if TYPE_CHECKING:
    from kafka_async.cli.demo.result import Result


@partial(options.connects, default="three embedded brokers")
def demo(
    connection: ConnectionOptions,
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILES", help="Default: Python's language reference."),
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Do not delete topics and group.")] = False,
    spark: Annotated[bool, typer.Option(help="Sum the counts in Spark (needs Java 17).")] = True,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the figures to a file.")
    ] = None,
    out: Annotated[
        Path,
        typer.Option(metavar="DIRECTORY", help="Directory of the pipeline and of Spark's log."),
    ] = Path("kafka-async-demo"),
    seed: Annotated[
        int | None, typer.Option(metavar="N", help="Chooses when and where the worker is killed.")
    ] = None,
) -> None:
    """Count words in transactions, kill a worker, sum the counts in Spark, and check the totals."""
    from kafka_async.cli.demo.report import Report
    from kafka_async.cli.demo.result import DemoOptions
    from kafka_async.cli.demo.run import Demo

    terminal.check_readable(files or [])
    if connection.bootstrap is None and connection.properties:
        terminal.fail("the options of a secure connection need --bootstrap, or bootstrap.servers")
    if keep and connection.bootstrap is None:
        terminal.fail("--keep needs --bootstrap: the embedded cluster ends with the demo")
    if json_file is not None:
        terminal.check_writable(json_file)
    if spark:
        terminal.check_writable(out, directory=True)
    used_seed = secrets.randbelow(2**32) if seed is None else seed
    plan = DemoOptions(files or [], connection, out, keep, spark, used_seed)

    async def main() -> Result:
        with Report() as report:
            return await Demo(plan, report).run()

    result = terminal.run(main)
    if json_file is not None:
        json_file.write_text(json.dumps(result.as_dict(), indent=2) + "\n", "utf-8")
        result.written_files.append(json_file)
    Report.print_summary(result, plan)
    if not result.comparison.equal:
        terminal.fail(f"the counts differ; --seed {used_seed} repeats the moment of the kill")
