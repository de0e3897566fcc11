"""Two counted paths with one additional dictionary access per record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_async.kernel import OpenBatch
from tools.instructions.paths import LARGE, ROOM, TIME, TOPIC, VALUE, path, writing

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafka_async.producer.producer import Producer

COUNTS = {TOPIC: 0}


def append(count: int) -> Callable[[], object]:
    append_record = OpenBatch(None, ROOM).append

    def run() -> None:
        for _ in range(count):
            append_record(TIME, None, VALUE, ())
            _ = COUNTS[TOPIC]

    return run


async def enqueue(producer: Producer, count: int) -> None:
    call = producer.enqueue
    for _ in range(count):
        await call(TOPIC, VALUE)
        _ = COUNTS[TOPIC]


PATHS = (
    path("append", append),
    writing("enqueue", enqueue, linger_ms=1000, batch_size=LARGE),
)
