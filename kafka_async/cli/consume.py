"""`kafka-async consume`: prints records as text or as JSON lines."""

from __future__ import annotations

import base64
import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from kafka_async.cli import background_io, options, terminal
from kafka_async.cli.connection_options import ConnectionOptions
from kafka_async.cli.quota_usage import Quota, in_progress, print_usage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.progress import Progress

    from kafka_async import Consumer, Record, TopicPartition


@options.connects
def consume(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    connection: ConnectionOptions,
    offset: Annotated[
        str, typer.Option(metavar="OFFSET", help="Start offset: beginning, end, or a number.")
    ] = "end",
    exit_at_end: Annotated[
        bool, typer.Option("--exit", help="Stop at the current end of the topic.")
    ] = False,
    count: Annotated[
        int | None,
        typer.Option(
            "--count", "-n", min=1, metavar="N", help="Stop after this number of records."
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON lines with key, offset and so on.")
    ] = False,
    read_committed: Annotated[
        bool, typer.Option(help="Skip records of transactions that are not committed.")
    ] = True,
    quota: Quota = False,
) -> None:
    """Print a topic's records."""
    from kafka_async import Consumer
    from kafka_async.config import ConsumerConfig

    if offset not in ("beginning", "end") and not offset.isdecimal():
        terminal.fail(f"--offset {offset}: write beginning, end or a number")

    async def main() -> int:
        config = connection.limited_config(
            ConsumerConfig,
            isolation_level="read_committed" if read_committed else "read_uncommitted",
            auto_offset_reset="earliest",
        )
        async with Consumer(config=config, partitions=()) as consumer:
            partitions = await _seek(consumer, topic, offset)
            ends = await consumer.end_offsets(partitions) if exit_at_end else None
            if quota:
                await consumer.client.quota_usage()
            printed = await _print_all(consumer, ends, count, as_json, quota=quota)
            if quota:
                print_usage(consumer.statistics().quota_usage_percent)
            return printed

    printed = terminal.run(main)
    terminal.err.print(terminal.plural(printed, "record"))


async def _seek(consumer: Consumer, topic: str, offset: str) -> list[TopicPartition]:
    from kafka_async import TopicPartition

    partitions = [TopicPartition(topic, p) for p in await consumer.partitions_for(topic)]
    if offset not in ("beginning", "end"):
        await _seek_to_offset(consumer, partitions, int(offset))
        return partitions
    consumer.assign(partitions)
    if offset == "beginning":
        await consumer.seek_to_beginning(partitions)
    else:
        await consumer.seek_to_end(partitions)
    return partitions


async def _seek_to_offset(
    consumer: Consumer, partitions: Sequence[TopicPartition], offset: int
) -> None:
    """Assign partitions at an offset; if it is out of range, at the nearer end."""
    begins = await consumer.beginning_offsets(partitions)
    ends = await consumer.end_offsets(partitions)
    first, end = min(begins.values()), max(ends.values())
    if not first <= offset <= end:
        what = "the topic" if len(partitions) > 1 else "the partition"
        readable = f"{what} has readable offsets {first} to {end}"
        terminal.fail(f"--offset {offset} is out of range: {readable}")
    consumer.assign(partitions)
    for partition in partitions:
        nearest = max(begins[partition], min(offset, ends[partition]))
        consumer.seek(partition, nearest)


async def _print_all(
    consumer: Consumer,
    ends: dict[TopicPartition, int] | None,
    count: int | None,
    as_json: bool,
    *,
    quota: bool,
) -> int:
    """Print until the ends are reached or `count` records are printed; return their number.

    With `quota`, the display includes the quota's usage.
    """
    from kafka_async import TopicPartition

    printed = 0
    console = terminal.out if terminal.out.is_terminal else terminal.err
    with terminal.progress(console, counted=False, bounded=ends is not None) as progress:
        remaining = None if ends is None else await _remaining(consumer, ends)
        task = progress.add_task("consuming", total=remaining)
        while remaining is None or remaining > 0:
            limit = 500 if count is None else min(500, count - printed)
            records = await consumer.poll(max_records=limit, timeout=0.5)
            if ends is not None:
                records = [
                    r for r in records if r.offset < ends[TopicPartition(r.topic, r.partition)]
                ]
                remaining = await _remaining(consumer, ends)
                progress.update(task, completed=(progress.tasks[0].total or 0) - remaining)
            await _print(records, as_json, progress)
            printed += len(records)
            usage = in_progress(consumer.statistics().quota_usage_percent) if quota else ""
            progress.update(task, description=terminal.plural(printed, "record") + usage)
            if printed == count:
                break
    return printed


async def _remaining(consumer: Consumer, ends: dict[TopicPartition, int]) -> int:
    """Return the number of offsets between the positions and the ends."""
    return sum([max(0, end - await consumer.position(tp)) for tp, end in ends.items()])


async def _print(records: Sequence[Record], as_json: bool, progress: Progress) -> None:
    """Print records: unchanged to a file or pipe, above the progress bar on a terminal."""
    if not records:
        return
    data = b"".join((_json_line(r) if as_json else r.value or b"") + b"\n" for r in records)
    if terminal.out.is_terminal:
        text = data.decode("utf-8", "backslashreplace").removesuffix("\n")
        progress.console.print(Text(text), soft_wrap=True)
        return

    def write() -> None:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()

    await background_io.run_in_thread(write)  # A full pipe must not block the event loop.


def _json_line(record: Record) -> bytes:
    row = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": _text(record.key),
        "value": _text(record.value),
        "headers": [[name, _text(value)] for name, value in record.headers],
    }
    return json.dumps(row, ensure_ascii=False).encode()


def _text(data: bytes | None) -> str | dict[str, str] | None:
    """Decode UTF-8; represent other bytes as an object with base64, which differs from any text."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}
