"""`kafka-async demo`: its options, and how its end looks."""

from __future__ import annotations

import json
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kafka_async.cli import options, screen

if TYPE_CHECKING:
    from kafka_async.cli.demo.result import Result


def demo(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILES", help="None: Python's language reference."),
    ] = None,
    bootstrap: Annotated[
        str | None,
        typer.Option("--bootstrap", metavar="HOST:PORT", help="A real cluster; none: embedded."),
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Leave topics and group there.")] = False,
    spark: Annotated[bool, typer.Option(help="Aggregate in Spark (needs Java 17).")] = True,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the figures there.")
    ] = None,
    out: Annotated[
        Path, typer.Option(metavar="DIRECTORY", help="Where Spark's Parquet files go.")
    ] = Path("kafka-async-demo"),
    seed: Annotated[
        int | None, typer.Option(metavar="N", help="Chooses when and where the worker is killed.")
    ] = None,
    timeout: options.Timeout = options.PATIENCE,
) -> None:
    """Count the words of a text in transactions, kill a worker, and check the count."""
    from kafka_async.cli.demo.report import Report
    from kafka_async.cli.demo.result import Plan
    from kafka_async.cli.demo.run import Demo

    screen.check_readable(files or [])
    if keep and bootstrap is None:
        screen.fail("--keep needs --bootstrap: the embedded cluster ends with the demo")
    if json_file is not None:
        screen.check_writable(json_file)
    if spark:
        screen.check_writable(out, directory=True)
    chosen = secrets.randbelow(2**32) if seed is None else seed
    plan = Plan(files or [], bootstrap, out, keep, spark, chosen, timeout)

    async def main() -> Result:
        with Report() as report:
            return await Demo(plan, report).run()

    result = screen.run(main)
    if json_file is not None:
        json_file.write_text(json.dumps(result.as_dict(), indent=2) + "\n", "utf-8")
        result.wrote.append(json_file)
    Report.show(result, plan)
    if not result.comparison.equal:
        screen.fail(f"the counts differ; --seed {chosen} repeats the moment of the kill")
