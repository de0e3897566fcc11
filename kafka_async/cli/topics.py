"""`kafka-async topics`: creates, lists, describes and deletes topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from rich import box
from rich.table import Table

from kafka_async.cli import options, terminal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kafka_async.admin import Admin

T = TypeVar("T")

app = typer.Typer(help="Create, list, describe and delete topics.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The topic.")]


@app.command()
def create(
    name: Name,
    bootstrap: options.Bootstrap = options.DEFAULT_BOOTSTRAP,
    partitions: Annotated[int, typer.Option(min=1, help="Number of partitions.")] = 1,
    replication_factor: Annotated[
        int, typer.Option(min=-1, help="Replicas of each; -1: the cluster's default.")
    ] = -1,
    config: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="A topic option; repeatable.")
    ] = None,
    timeout: options.Timeout = options.DEFAULT_TIMEOUT,
) -> None:
    """Create a topic."""
    from kafka_async.admin import NewTopic

    configs = dict(_key_and_value(text) for text in config or ())
    topic = NewTopic(name, partitions, replication_factor, configs)
    _run(bootstrap, timeout, lambda admin: admin.create_topics([topic]))
    count = terminal.plural(partitions, "partition")
    terminal.err.print(f"created {name} with {count}", markup=False)


@app.command("list")
def list_(
    bootstrap: options.Bootstrap = options.DEFAULT_BOOTSTRAP,
    timeout: options.Timeout = options.DEFAULT_TIMEOUT,
) -> None:
    """Print the names of all topics, one per line."""
    for name in sorted(_run(bootstrap, timeout, lambda admin: admin.list_topics())):
        terminal.out.print(name, markup=False)


@app.command()
def describe(
    name: Name,
    bootstrap: options.Bootstrap = options.DEFAULT_BOOTSTRAP,
    timeout: options.Timeout = options.DEFAULT_TIMEOUT,
) -> None:
    """Print each partition's leader, replicas and in-sync replicas."""
    topic = _run(bootstrap, timeout, lambda admin: admin.describe_topics([name]))[name]
    box_style = box.SIMPLE if terminal.unicode(terminal.out) else box.ASCII
    table = Table("partition", "leader", "replicas", "in sync", title=name, box=box_style)
    for row in topic.partitions:
        replicas, in_sync = (" ".join(map(str, ids)) for ids in (row.replicas, row.in_sync))
        table.add_row(str(row.partition), str(row.leader), replicas, in_sync)
    terminal.out.print(table)


@app.command()
def delete(
    name: Name,
    bootstrap: options.Bootstrap = options.DEFAULT_BOOTSTRAP,
    timeout: options.Timeout = options.DEFAULT_TIMEOUT,
) -> None:
    """Delete a topic and all its records."""
    _run(bootstrap, timeout, lambda admin: admin.delete_topics([name]))
    terminal.err.print(f"deleted {name}", markup=False)


def _run(bootstrap: str, timeout: float, call: Callable[[Admin], Awaitable[T]]) -> T:
    """Connect and return the result of one call."""
    from kafka_async.admin import Admin

    async def main() -> T:
        async with Admin(bootstrap, **options.client_options(timeout)) as admin:
            return await call(admin)

    return terminal.run(main)


def _key_and_value(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        terminal.fail(f'--config {text}: write KEY=VALUE, as "retention.ms=60000"')
    return key, value
