"""A driver process for tests that kill it: copies offsets as events, slowly.

python -m tests.integration.orchestrator_driver SERVERS NAME TARGET CONTROL LEDGER DEAD_LETTERS
"""

from __future__ import annotations

import asyncio
import random
import sys

from kafka_async import run
from kafka_async.spark.orchestrator import JobContext, Orchestrator, PoisonRecordError

POISON_EVERY = 997
"""Offsets that are multiples of this number cannot be processed."""


async def main(
    servers: str, name: str, target: str, control: str, ledger: str, dead_letters: str
) -> None:
    orchestrator = Orchestrator(
        servers,
        None,
        name=name,
        control_topic=control,
        ledger_topic=ledger,
        dead_letter_topic=dead_letters,
    )

    @orchestrator.job
    def copy(context: JobContext) -> int:  # pyright: ignore[reportUnusedFunction]
        context.wait_for_stop(random.random() * 0.3)
        count = 0
        for part in context.ranges:
            for offset in range(part.start, part.end):
                if offset % POISON_EVERY == POISON_EVERY - 1:
                    raise PoisonRecordError(f"offset {offset}")
                context.emit(target, b"%d:%d" % (part.partition, offset))
                count += 1
        return count

    async with orchestrator:
        await asyncio.Event().wait()


if __name__ == "__main__":
    run(main(*sys.argv[1:]))
