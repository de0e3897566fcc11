"""`kafka-async produce`: sends lines of files or standard input as records."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kafka_async.cli import background_io, options, terminal
from kafka_async.cli.connection_options import ConnectionOptions
from kafka_async.cli.quota_usage import Quota, in_progress, print_usage
from kafka_async.errors import RecordTooLargeError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from kafka_async import Producer


@options.connects
def produce(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    connection: ConnectionOptions,
    files: Annotated[
        list[Path] | None, typer.Argument(metavar="FILES", help="Default: standard input.")
    ] = None,
    key_separator: Annotated[
        str | None, typer.Option(metavar="TEXT", help="The text before it is the key.")
    ] = None,
    compression: Annotated[
        str | None,
        typer.Option(metavar="CODEC", help="none, gzip, snappy, lz4 or zstd. Default: none."),
    ] = None,
    quota: Quota = False,
) -> None:
    """Produce each line as a record."""
    from kafka_async import Producer
    from kafka_async.config import ProducerConfig

    terminal.check_readable(files or [])
    if key_separator == "":
        terminal.fail("--key-separator is empty: give the text that ends a key")
    separator = None if key_separator is None else key_separator.encode()
    codec = {} if compression is None else {"compression_type": compression}

    async def main() -> int:
        config = connection.limited_config(ProducerConfig, **codec)
        async with Producer(config=config) as producer:
            if quota:
                await producer.client.quota_usage()
            sent = await _produce(producer, topic, files or [], separator, quota=quota)
            if quota:
                print_usage(producer.statistics().quota_usage_percent)
            return sent

    sent = terminal.run(main)
    terminal.err.print(
        f"{terminal.plural(sent, 'record')} produced to {topic}", markup=False, soft_wrap=True
    )


async def _produce(
    producer: Producer, topic: str, files: list[Path], separator: bytes | None, *, quota: bool
) -> int:
    """Send every line and display the usage of `quota`; return the number of lines."""
    sent = done = 0
    size = sum(file.stat().st_size for file in files) or None
    typed = not files and sys.stdin.isatty()  # A progress bar would overwrite typed input.
    with terminal.progress(counted=False, bounded=bool(size), silent=typed) as progress:
        task = progress.add_task(f"producing to {topic}", total=size)
        async for lines in _lines(files, producer.config.max_request_size):
            for line in lines:
                sent += 1
                done += len(line) + 1
                key, value = _split(line, separator)
                try:
                    await producer.enqueue(topic, value, key=key)
                except RecordTooLargeError as error:
                    terminal.fail(f"line {sent:,}: {error}")
            usage = in_progress(producer.statistics().quota_usage_percent) if quota else ""
            description = f"{terminal.plural(sent, 'record')} to {topic}{usage}"
            progress.update(task, completed=done, description=description)
        await producer.flush()
    return sent


def _split(line: bytes, separator: bytes | None) -> tuple[bytes | None, bytes]:
    if separator is None:
        return None, line
    key, found, value = line.partition(separator)
    return (key, value) if found else (None, line)


async def _lines(files: list[Path], max_bytes: int) -> AsyncGenerator[list[bytes]]:
    """Yield the lines of the files, or of standard input."""
    for file in files or [None]:
        with ExitStack() as stack:
            stream = sys.stdin if file is None else stack.enter_context(file.open("rb"))
            try:
                async for lines in background_io.read_lines(stream.fileno(), max_bytes):
                    yield lines
            except ValueError as error:
                terminal.fail(f"{file or 'standard input'}: {error}, the maximum size of a record")
