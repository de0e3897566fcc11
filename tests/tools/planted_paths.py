"""Two counted paths with one additional dictionary access per record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_async.kernel import OpenBatch
from tools.instructions.client_paths import LARGE, TOPIC, writing
from tools.instructions.kernel_paths import ROOM, TIME, VALUE, path

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
