"""The application that holds all subcommands."""

from __future__ import annotations

from typing import Annotated

import typer

from kafka_async.cli import broker, consume, pipeline, produce, spark_sink, terminal, topics
from kafka_async.cli.demo import command as demo
from kafka_async.cli.help import Command, Group

app = typer.Typer(
    name="kafka-async",
    help="Kafka for asyncio: a demo, a cluster for development, and topics at hand.",
    no_args_is_help=True,
    add_completion=False,
    cls=Group,
    pretty_exceptions_enable=False,
)


def _print_version(requested: bool) -> None:
    if requested:
        from importlib.metadata import version

        from kafka_async.kernel import IMPLEMENTATION

        terminal.out.print(f"kafka-async {version('kafka-async')}, kernel {IMPLEMENTATION}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Kafka for asyncio: a demo, a cluster for development, and topics at hand."""


app.command("demo", cls=Command)(demo.demo)
app.command("broker", cls=Command)(broker.broker)
app.command("produce", cls=Command)(produce.produce)
app.command("consume", cls=Command)(consume.consume)
app.add_typer(topics.app, name="topics")
app.add_typer(pipeline.app, name="pipeline")
app.add_typer(spark_sink.app, name="spark-sink")
