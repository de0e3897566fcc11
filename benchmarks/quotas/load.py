"""Loads of a producer and a consumer with quotas, measured per second of the event loop's clock."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from kafka_async.admin import Admin, NewTopic, QuotaEntity
from kafka_async.consumer.consumer import Consumer
from kafka_async.hooks import BatchAcknowledged, Hooks
from kafka_async.producer.producer import Producer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kafka_async.foundation.clock import Dialer

QUOTA: Final = 1_000_000
"""Bytes per second."""
WINDOW: Final = 11.0
"""Seconds until the samples of a quota are full."""
MEASURED: Final = 30.0
"""Seconds that are measured after that."""
PERIODS: Final = 33.0
"""Seconds of three bursts of a client at full speed, which come every eleven seconds."""
LOAD: Final = 1.25
"""Load of the producer as a multiple of the quota."""
MAX_DELAY: Final = 0.1
"""Seconds by which the producer may be late and catch up; not after a throttle time."""
VALUE: Final = b"v" * 10_000
FETCH_SIZE: Final = 100_000
"""Bytes of a fetch from a partition."""
TOPIC: Final = "quota-load"
PRODUCER_ID: Final = "quota-producer"
CONSUMER_ID: Final = "quota-consumer"


class Meter:
    """Counts bytes per second since its creation."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._start = self._loop.time()
        self.seconds: Counter[int] = Counter()

    def add(self, size: int) -> None:
        """Count bytes now."""
        self.seconds[int(self._loop.time() - self._start)] += size

    def rate(self, duration: float = MEASURED) -> float:
        """Return the bytes per second after the window was filled, over a time in seconds."""
        first = int(WINDOW)
        measured = range(first, first + int(duration))
        return sum(self.seconds[second] for second in measured) / duration


def rate_of(progress: Sequence[tuple[float, int]], duration: float = MEASURED) -> float:
    """Return the records per second of another client after the window was filled.

    Args:
        progress: Seconds since the start, and the number of all records until then.
        duration: The time that is measured, in seconds.
    """
    counts = [
        max((count for at, count in progress if at <= end), default=0)
        for end in (WINDOW, WINDOW + duration)
    ]
    return (counts[1] - counts[0]) / duration


async def set_quotas(servers: str, quota: int, **options: Any) -> None:
    """Create the topic, and limit the producer and the consumer by their client ids."""
    entries: Mapping[QuotaEntity, Mapping[str, float | None]] = {
        QuotaEntity(client_id=PRODUCER_ID): {"producer_byte_rate": quota},
        QuotaEntity(client_id=CONSUMER_ID): {"consumer_byte_rate": quota},
    }
    async with Admin(servers, **options) as admin:
        await admin.create_topics([NewTopic(TOPIC, partitions=1, replication_factor=1)])
        await admin.alter_client_quotas(entries)


async def produce(
    servers: str, dialer: Dialer | None = None, *, load: float | None = LOAD
) -> Meter:
    """Produce more than the quota; count the requests' batches when acknowledged.

    `load` is a multiple of the quota; None is as fast as the producer can.
    """
    hooks = Hooks()
    options: dict[str, Any] = {"batch_size": 50_000, "buffer_memory": 1_000_000}
    async with Producer(
        servers, client_id=PRODUCER_ID, hooks=hooks, dialer=dialer, acks=1,
        enable_idempotence=False, **options
    ) as producer:  # fmt: skip
        meter = Meter()
        size = len(VALUE) + 10
        hooks.listen(BatchAcknowledged, lambda event: meter.add(event.records * size))
        sending = asyncio.ensure_future(_send(producer, load))
        await asyncio.sleep(WINDOW + (MEASURED if load else PERIODS))
        sending.cancel()
        await asyncio.wait({sending})
    return meter


async def _send(producer: Producer, load: float | None) -> None:
    """Send a multiple of the quota, or as fast as possible.

    A broker allows ten seconds' quota at once, so the latter comes in bursts every eleven seconds,
    of which 30 s may have three or only two.
    """
    while load is None:
        await producer.enqueue(TOPIC, VALUE)
    loop = asyncio.get_running_loop()
    due = loop.time()
    while True:
        await producer.enqueue(TOPIC, VALUE)
        due = max(due, loop.time() - MAX_DELAY) + len(VALUE) / (load * QUOTA)
        await asyncio.sleep(max(0.0, due - loop.time()))


async def fill(servers: str, size: int, dialer: Dialer | None = None) -> None:
    """Write the records that `consume` reads, without a quota."""
    async with Producer(servers, dialer=dialer, batch_size=50_000) as producer:
        for _ in range(size // len(VALUE)):
            await producer.enqueue(TOPIC, VALUE)
        await producer.flush()


async def consume(servers: str, dialer: Dialer | None = None) -> Meter:
    """Consume as fast as the quota allows; count the values' bytes when they are returned."""
    async with Consumer(
        servers,
        topics=[TOPIC],
        group_id="quota-load",
        auto_offset_reset="earliest",
        client_id=CONSUMER_ID,
        max_partition_fetch_bytes=FETCH_SIZE,
        dialer=dialer,
    ) as consumer:
        await consumer.poll(timeout=30.0)
        meter = Meter()
        async with asyncio.timeout(WINDOW + MEASURED + 60.0):
            loop = asyncio.get_running_loop()
            end = loop.time() + WINDOW + MEASURED
            while (left := end - loop.time()) > 0:
                records = await consumer.poll(max_records=10, timeout=left)
                meter.add(sum(len(record.value or b"") + 10 for record in records))
    return meter
