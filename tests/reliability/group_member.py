"""Runs one member of a group in a process, which another process starts, stops, freezes and kills.

Reads "start" and "stop" lines, and prints a JSON object per event. The end of the input ends it.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import TYPE_CHECKING, Any

from kafka_async import Consumer
from kafka_async.errors import CommitFailedError
from kafka_async.hooks import Committed, Hooks, PartitionsLost, PartitionsRevoked

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kafka_async.kernel import Record


def say(event: str, rows: object) -> None:
    """Print an event at once."""
    sys.stdout.write(json.dumps({"event": event, "at": time.monotonic(), "rows": rows}) + "\n")
    sys.stdout.flush()


def ranges(records: Sequence[Record]) -> Iterator[tuple[int, int, int]]:
    """Yield the partition, the first and the last offset of each run of records."""
    found: tuple[int, int, int] | None = None
    for record in records:
        if found is not None and (record.partition, record.offset) == (found[0], found[2] + 1):
            found = (found[0], found[1], record.offset)
            continue
        if found is not None:
            yield found
        found = (record.partition, record.offset, record.offset)
    if found is not None:
        yield found


class Member:
    """Polls a consumer in a task."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._servers = options.pop("servers")
        self._options = options
        self._task: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()

    def start(self) -> None:
        """Start a consumer."""
        if self._task is None:
            self._stopping.clear()
            self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Stop the consumer in order."""
        if self._task is not None:
            self._stopping.set()
            await self._task
            self._task = None
            say("stopped", [])

    async def _run(self) -> None:
        hooks = Hooks()
        hooks.listen(
            Committed, lambda it: say("committed", [(p.partition, o) for p, o in it.offsets])
        )
        hooks.listen(PartitionsLost, lambda it: say("lost", [p.partition for p in it.partitions]))
        hooks.listen(
            PartitionsRevoked, lambda it: say("revoked", [p.partition for p in it.partitions])
        )
        try:
            async with Consumer(self._servers, **self._options, hooks=hooks) as consumer:
                while not self._stopping.is_set():
                    if records := await consumer.poll(timeout=0.2):
                        say("returned", list(ranges(records)))
        except CommitFailedError as error:  # from `stop`: the group has expelled the member
            say("expelled", str(error))
        except Exception as error:  # noqa: BLE001  # the other process judges it
            say("failed", f"{type(error).__name__}: {error}")


async def main() -> None:
    """Obey the lines of the input."""
    member = Member(json.loads(sys.argv[1]))
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(lines), sys.stdin
    )
    async for line in lines:
        if line == b"start\n":
            member.start()
        else:
            await member.stop()
    await member.stop()


if __name__ == "__main__":
    asyncio.run(main())
