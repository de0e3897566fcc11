"""`kafka-async spark-sink`: shows and repairs Spark's exactly-once sinks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from kafka_async.cli import options, terminal
from kafka_async.cli.connection_options import ConnectionOptions
from kafka_async.cli.help import Command, Group

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kafka_async.spark.sink.sink_cluster import KafkaSinkCluster

T = TypeVar("T")

app = typer.Typer(
    help="Show and repair exactly-once sinks of Spark.", no_args_is_help=True, cls=Group
)

SinkId = Annotated[str, typer.Argument(metavar="SINK_ID", help="The sink's option sinkId.")]
LedgerTopic = Annotated[
    str, typer.Option(metavar="TOPIC", help="The sink's option ledgerTopic, if it has one.")
]
DEFAULT_LEDGER = "kafka-async-spark-ledger"


@app.command(cls=Command)
@options.connects
def show(
    sink_id: SinkId, connection: ConnectionOptions, ledger_topic: LedgerTopic = DEFAULT_LEDGER
) -> None:
    """Print each query's last committed epoch, and its open or torn epoch."""
    found = _run(connection, sink_id, ledger_topic, lambda cluster: cluster.read(everything=True))
    head = found.head
    for query, epoch in sorted(head.committed.items()):
        terminal.out.print(f"query {query}: committed up to epoch {epoch}", markup=False)
    for query in sorted(found.writes):
        terminal.out.print(f"{query}: committed", markup=False)
    if head.open is not None:
        terminal.out.print(
            f"query {head.open.query}: epoch {head.open.epoch} is being committed", markup=False
        )
    if head.torn is not None:
        terminal.out.print(
            f"query {head.torn.query}: epoch {head.torn.epoch} is torn", markup=False
        )
        for row in head.torn.partitions:
            terminal.out.print(f"  {row}", markup=False)
    if head.plan == 0:
        terminal.fail(f"{ledger_topic} has nothing of a sink {sink_id}")


@app.command(cls=Command)
@options.connects
def repair(
    sink_id: SinkId,
    connection: ConnectionOptions,
    ledger_topic: LedgerTopic = DEFAULT_LEDGER,
    resume: Annotated[
        bool, typer.Option("--resume", help="Write only the missing partitions again.")
    ] = False,
    skip: Annotated[
        bool, typer.Option("--skip", help="Accept that rows of the epoch are missing.")
    ] = False,
    repeat: Annotated[
        bool,
        typer.Option("--repeat", help="Write all rows again: some are then duplicates."),
    ] = False,
) -> None:
    """Choose how to repair a partially committed epoch."""
    from kafka_async.spark.sink.ledger import RepairAction

    chosen = {
        RepairAction.RESUME: resume,
        RepairAction.SKIP: skip,
        RepairAction.REPEAT: repeat,
    }
    actions = [action for action, wanted in chosen.items() if wanted]
    if len(actions) != 1:
        terminal.fail("choose one of --resume, --skip and --repeat")

    async def apply(cluster: KafkaSinkCluster) -> None:
        import time

        from kafka_async.spark.sink.sink_driver import SinkDriver

        await SinkDriver(cluster, sink_id, 0, time.monotonic).repair(actions[0])

    _run(connection, sink_id, ledger_topic, apply)
    terminal.err.print(f"repaired {sink_id}: start its query again", markup=False)


def _run(
    connection: ConnectionOptions,
    sink_id: str,
    ledger_topic: str,
    call: Callable[[KafkaSinkCluster], Awaitable[T]],
) -> T:
    """Connect and return the result of one call."""
    from kafka_async.config import ProducerConfig
    from kafka_async.spark.sink.sink_cluster import open_cluster

    async def main() -> T:
        config = connection.limited_config(ProducerConfig)
        async with open_cluster(config, sink_id, ledger_topic) as cluster:
            return await call(cluster)

    return terminal.run(main)
