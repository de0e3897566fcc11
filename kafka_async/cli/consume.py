"""`kafka-async consume`: records as text or as JSON lines."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.text import Text

from kafka_async.cli import options, screen, waiting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.progress import Progress

    from kafka_async import Consumer, Record, TopicPartition


def consume(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    bootstrap: options.Bootstrap = options.SERVERS,
    offset: Annotated[
        str, typer.Option(help="Where to begin: beginning, end, or a number.")
    ] = "end",
    exit_at_end: Annotated[
        bool, typer.Option("--exit", help="Stop at the end that the topic has now.")
    ] = False,
    count: Annotated[
        int | None, typer.Option("--count", "-n", min=1, help="Stop after so many records.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="A JSON object a line, with key, offset and so on.")
    ] = False,
    read_committed: Annotated[
        bool, typer.Option(help="Leave out what transactions have not committed.")
    ] = True,
    timeout: options.Timeout = options.PATIENCE,
) -> None:
    """Print a topic's records."""
    from kafka_async import Consumer

    if offset not in ("beginning", "end") and not offset.isdecimal():
        screen.fail(f"--offset {offset}: write beginning, end or a number")
    isolation = _isolation(read_committed)

    async def main() -> int:
        async with Consumer(
            bootstrap,
            partitions=(),
            isolation_level=isolation,
            auto_offset_reset="earliest",
            **options.client_options(timeout),
        ) as consumer:
            partitions = await _seek(consumer, topic, offset)
            ends = await consumer.end_offsets(partitions) if exit_at_end else None
            return await _print_all(consumer, ends, count, as_json)

    printed = screen.run(main)
    screen.err.print(screen.plural(printed, "record"))


def _isolation(committed: bool) -> Literal["read_committed", "read_uncommitted"]:
    return "read_committed" if committed else "read_uncommitted"


async def _seek(consumer: Consumer, topic: str, offset: str) -> list[TopicPartition]:
    from kafka_async import TopicPartition

    partitions = [TopicPartition(topic, p) for p in await consumer.partitions_for(topic)]
    consumer.assign(partitions)
    if offset == "beginning":
        await consumer.seek_to_beginning(partitions)
    elif offset == "end":
        await consumer.seek_to_end(partitions)
    else:
        for partition in partitions:
            consumer.seek(partition, int(offset))
    return partitions


async def _print_all(
    consumer: Consumer, ends: dict[TopicPartition, int] | None, count: int | None, as_json: bool
) -> int:
    """Print until the ends are reached or `count` records are printed; how many there were."""
    from kafka_async import TopicPartition

    printed = 0
    console = screen.out if screen.out.is_terminal else screen.err
    with screen.progress(console, counted=False, bounded=ends is not None) as progress:
        left = None if ends is None else await _left(consumer, ends)
        task = progress.add_task("consuming", total=left)
        while left is None or left > 0:
            most = 500 if count is None else min(500, count - printed)
            records = await consumer.poll(max_records=most, timeout=0.5)
            if ends is not None:
                records = [
                    r for r in records if r.offset < ends[TopicPartition(r.topic, r.partition)]
                ]
                left = await _left(consumer, ends)
                progress.update(task, completed=(progress.tasks[0].total or 0) - left)
            await _show(records, as_json, progress)
            printed += len(records)
            progress.update(task, description=screen.plural(printed, "record"))
            if printed == count:
                break
    return printed


async def _left(consumer: Consumer, ends: dict[TopicPartition, int]) -> int:
    """How many offsets there are until the ends."""
    return sum([max(0, end - await consumer.position(tp)) for tp, end in ends.items()])


async def _show(records: Sequence[Record], as_json: bool, progress: Progress) -> None:
    """Print records: as they are into a file or a pipe, above the progress on a terminal."""
    if not records:
        return
    data = b"".join((_json_line(r) if as_json else r.value or b"") + b"\n" for r in records)
    if screen.out.is_terminal:
        text = data.decode("utf-8", "backslashreplace").removesuffix("\n")
        progress.console.print(Text(text), soft_wrap=True)
        return

    def write() -> None:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()

    await waiting.in_thread(write)  # a pipe that nobody empties must not stop the loop


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
    return json.dumps(row, ensure_ascii=False).encode("utf-8", "backslashreplace")


def _text(data: bytes | None) -> str | None:
    """Bytes as JSON can hold them; what is no UTF-8 shows as escapes."""
    return None if data is None else data.decode("utf-8", "backslashreplace")
