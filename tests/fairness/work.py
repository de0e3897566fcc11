"""Counts the work of each event loop iteration, so that fairness is asserted without a clock.

A `Meter` counts what happens in the loop's thread between two iterations: calls of Python and
built-in functions (by a profile hook), records that the kernel appends or parses, and bytes that
are checksummed, compressed or decompressed. A loop over all of a large cluster, a batch that is
parsed as a whole or a burst of requests exceeds one of the limits on every machine alike.

The client slices some work by time. Under a meter the loop's time also advances with the work that
was counted, at a fixed price, so that those slices end after the same work however fast the machine
is; a slower machine only makes them shorter.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, astuple, dataclass
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, Self

from kafka_async import kernel
from kafka_async.producer import runtime, sender
from kafka_async.producer.writer import RecordWriter
from kafka_async.records import batch, compression

if TYPE_CHECKING:
    import pytest
    from typing_extensions import Buffer

    from kafka_async.kernel import Delivery
    from kafka_async.records.compression import Codec, Decompressed

CALL, RECORD = 1e-7, 3e-7
"""Seconds by which the loop's time advances for each call, and for each record in the kernel."""
MIB = 1 << 20


@dataclass
class Work:
    """Work of one event loop iteration."""

    calls: int = 0
    records: int = 0
    checksummed: int = 0
    compressed: int = 0
    decompressed: int = 0

    def exceeds(self, limit: Work) -> dict[str, int]:
        """Return the counts that are above their limits."""
        limits = asdict(limit)
        return {name: count for name, count in asdict(self).items() if count > limits[name]}

    def highest(self, other: Work) -> Work:
        """Return the higher of each count."""
        pairs = zip(astuple(self), astuple(other), strict=True)
        return Work(*(max(pair) for pair in pairs))


LIMIT = Work(
    calls=40_000, records=12_500, checksummed=24 * MIB, compressed=MIB // 2, decompressed=MIB
)
"""Maximum work of one iteration: each takes a few milliseconds at most."""


class Meter:
    """Counts the work of each event loop iteration in `async with meter:`; `peak` is the maximum.

    `busiest` counts the functions called in the iteration with the most calls.
    """

    def __init__(self) -> None:
        self.now = Work()
        self.peak = Work()
        self.iterations = 0
        self.busiest: Mapping[CodeType, int] = {}
        self._by_function = defaultdict[CodeType, int](int)
        self._spent = 0.0
        self._thread = threading.get_ident()
        self._measuring = False

    @property
    def counting(self) -> bool:
        """True while work of the calling thread counts."""
        return self._measuring and threading.get_ident() == self._thread

    def spent(self) -> float:
        """Return the seconds by which the work that was counted has advanced the loop's time."""
        return self._spent + self.now.calls * CALL + self.now.records * RECORD

    def spend(self, seconds: float) -> None:
        """Advance the loop's time by an application's own work."""
        self._spent += seconds

    async def __aenter__(self) -> Self:
        self._pulse = asyncio.ensure_future(self._beat())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        self._measuring = True
        self.now, self.peak, self.iterations = Work(), Work(), 0
        sys.setprofile(self._count_call)
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.sleep(0)  # so that the last iteration counts
        sys.setprofile(None)
        self._measuring = False
        self._pulse.cancel()
        await asyncio.wait({self._pulse})

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(0)
            work, self.now = self.now, Work()
            functions, self._by_function = self._by_function, defaultdict[CodeType, int](int)
            self._spent += work.calls * CALL + work.records * RECORD
            if work.calls > self.peak.calls:
                self.busiest = functions
            self.peak = self.peak.highest(work)
            self.iterations += 1

    def _count_call(self, frame: FrameType, event: str, argument: object) -> None:
        if event == "call" or event == "c_call":
            self.now.calls += 1
            self._by_function[frame.f_code] += 1


def check(meter: Meter, limit: Work = LIMIT) -> None:
    """Fail if an iteration did more than the limit allows."""
    assert meter.iterations > 1
    too_much = meter.peak.exceeds(limit)
    callers = sorted(meter.busiest.items(), key=lambda pair: -pair[1])[:12]
    names = [f"{count} {code.co_qualname}" for code, count in callers]
    assert not too_much, f"an event loop iteration did {too_much}; {limit}; calls: {names}"


STEP, SLICE = 0.0002, 0.005
MAX_STEPS = round(SLICE / STEP) + 1
"""Maximum steps before a timeout that is due fires."""


async def steps(meter: Meter, step: Callable[[], Awaitable[object]]) -> int:
    """Repeat a step under a timeout that is due; return the number of steps before it fires.

    Each step takes 0.2 ms of the loop's time, as an application takes its time for each record.
    """
    done = 0
    async with meter:
        try:
            async with asyncio.timeout(0):
                while done < 10 * MAX_STEPS:
                    await step()
                    done += 1
                    meter.spend(STEP)
        except TimeoutError:
            return done
    raise AssertionError(f"the timeout has not fired in {done} steps")


# -- counts other than calls ----------------------------------------------------------------------


class Instruments:
    """Patches the client until the test ends, so that a meter counts its bulk work."""

    def __init__(self, meter: Meter, patch: pytest.MonkeyPatch) -> None:
        self._meter, self._patch = meter, patch
        self._slice_by_work(asyncio.get_running_loop())
        self._count_bytes()
        self._count_records()

    def _slice_by_work(self, loop: asyncio.AbstractEventLoop) -> None:
        time, spent = loop.time, self._meter.spent

        def measured_time() -> float:
            return time() + spent()

        self._patch.setattr(loop, "time", measured_time)
        for module in (runtime, sender):
            self._patch.setattr(module, "time_function", _loop_time)

    def _count_bytes(self) -> None:
        meter, crc32c = self._meter, batch.load_crc32c()
        compress, decompress = compression.compress, compression.decompress

        def checksummed(data: Buffer, value: int = 0) -> int:
            if meter.counting:
                meter.now.checksummed += memoryview(data).nbytes
            return crc32c(data, value)

        def compressed(codec: Codec, data: Buffer, level: int | None = None) -> bytes:
            if meter.counting:
                meter.now.compressed += memoryview(data).nbytes
            return compress(codec, data, level)

        def decompressed(
            codec: Codec, data: Buffer, limit: int = compression.MAX_DECOMPRESSED_BYTES_PER_BATCH
        ) -> Decompressed:
            unpacked = decompress(codec, data, limit)
            if meter.counting:
                meter.now.decompressed += len(unpacked)
            return unpacked

        self._patch.setattr(batch, "load_crc32c", lambda: checksummed)
        self._patch.setattr(compression, "compress", compressed)
        self._patch.setattr(compression, "decompress", decompressed)

    def _count_records(self) -> None:
        meter: Meter = self._meter
        append_values: Callable[..., list[Delivery]] = getattr(RecordWriter, "_append_values")  # noqa: B009
        reader, parse_records, parse_columns = (
            kernel.RecordReader,
            kernel.parse_records,
            kernel.parse_columns,
        )

        def counted_run(*arguments: Any) -> list[Delivery]:
            deliveries = append_values(*arguments)
            meter.now.records += len(deliveries)
            return deliveries

        class CountedReader:
            def __init__(self, *arguments: Any) -> None:
                self._reader = reader(*arguments)

            @property
            def done(self) -> bool:
                return self._reader.done

            def read(self, count: int, size: int) -> list[Any]:
                records = self._reader.read(count, size)
                meter.now.records += len(records)
                return records

        def counted_records(*arguments: Any) -> list[Any]:
            records = parse_records(*arguments)
            meter.now.records += len(records)
            return records

        def counted_columns(*arguments: Any) -> Any:
            columns = parse_columns(*arguments)
            meter.now.records += columns.rows
            return columns

        self._patch.setattr(RecordWriter, "_append_values", counted_run)
        self._patch.setattr(kernel, "RecordReader", CountedReader)
        self._patch.setattr(kernel, "parse_records", counted_records)
        self._patch.setattr(kernel, "parse_columns", counted_columns)


def _loop_time(loop: asyncio.AbstractEventLoop) -> Callable[[], float]:
    return loop.time
