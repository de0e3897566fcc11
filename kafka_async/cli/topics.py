"""`kafka-async topics`: creates, lists, describes and deletes topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from rich import box
from rich.table import Table

from kafka_async.cli import options, terminal
from kafka_async.cli.connection_options import ConnectionOptions
from kafka_async.cli.help import Command, Group

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from kafka_async.admin import Admin, ConfigEntry, TopicDescription

T = TypeVar("T")

app = typer.Typer(help="Create, list, describe and delete topics.", no_args_is_help=True, cls=Group)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The topic.")]


@app.command(cls=Command)
@options.connects
def create(
    name: Name,
    connection: ConnectionOptions,
    partitions: Annotated[int, typer.Option(min=1, metavar="N", help="Number of partitions.")] = 1,
    replication_factor: Annotated[
        int, typer.Option(min=-1, metavar="N", help="Replicas of each; -1: the cluster's default.")
    ] = -1,
    config: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="A topic option; repeatable.")
    ] = None,
) -> None:
    """Create a topic."""
    from kafka_async.admin import NewTopic

    configs = dict(_key_and_value(text) for text in config or ())
    topic = NewTopic(name, partitions, replication_factor, configs)
    _run(connection, lambda admin: admin.create_topics([topic]))
    count = terminal.plural(partitions, "partition")
    terminal.err.print(f"created {name} with {count}", markup=False)


@app.command("list", cls=Command)
@options.connects
def list_(
    connection: ConnectionOptions,
) -> None:
    """Print the names of all topics, one per line."""
    for name in sorted(_run(connection, lambda admin: admin.list_topics())):
        terminal.out.print(name, markup=False)


@app.command(cls=Command)
@options.connects
def describe(
    name: Name,
    connection: ConnectionOptions,
) -> None:
    """Print each partition's leader, replicas and in-sync replicas, and the topic's configuration.

    The configuration contains the options set for the topic or its brokers, not the defaults.
    """
    topic, configs = _run(connection, lambda admin: _describe(admin, name))
    box_style = box.SIMPLE if terminal.unicode(terminal.out) else box.ASCII
    table = Table("partition", "leader", "replicas", "in sync", title=name, box=box_style)
    for row in topic.partitions:
        replicas, in_sync = (" ".join(map(str, ids)) for ids in (row.replicas, row.in_sync))
        table.add_row(str(row.partition), str(row.leader), replicas, in_sync)
    terminal.out.print(table)
    for key, entry in sorted(configs.items()):
        value = "(hidden)" if entry.sensitive else entry.value
        terminal.out.print(f"{key}={value}", markup=False)


async def _describe(admin: Admin, name: str) -> tuple[TopicDescription, Mapping[str, ConfigEntry]]:
    """Return a topic, and the options set for it or its brokers."""
    from kafka_async.admin import ConfigResource, ConfigSource, ResourceType
    from kafka_async.errors import TopicAuthorizationError

    topic = (await admin.describe_topics([name]))[name]
    resource = ConfigResource(ResourceType.TOPIC, name)
    try:
        entries = (await admin.describe_configs([resource]))[resource]
    except TopicAuthorizationError as error:
        terminal.err.print(f"no configuration: {error.message}", markup=False, soft_wrap=True)
        return topic, {}
    changed = {key: row for key, row in entries.items() if row.source is not ConfigSource.DEFAULT}
    return topic, changed


@app.command(cls=Command)
@options.connects
def delete(
    name: Name,
    connection: ConnectionOptions,
) -> None:
    """Delete a topic and all its records."""
    _run(connection, lambda admin: admin.delete_topics([name]))
    terminal.err.print(f"deleted {name}", markup=False)


def _run(connection: ConnectionOptions, call: Callable[[Admin], Awaitable[T]]) -> T:
    """Connect and return the result of one call."""
    from kafka_async.admin import Admin
    from kafka_async.config import ClientConfig

    async def main() -> T:
        async with Admin(config=connection.limited_config(ClientConfig)) as admin:
            return await call(admin)

    return terminal.run(main)


def _key_and_value(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        terminal.fail(f'--config {text}: write KEY=VALUE, as "retention.ms=60000"')
    return key, value
