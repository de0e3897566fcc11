"""What compresses a producer's batches: small ones in the event loop, large ones in threads.

The way to a thread and back costs 0.1 to 0.2 ms of CPU time: caches, and Python's lock, twice. What
is compressed in not much more is compressed where it is, a little in each turn of the loop; the
rest goes to a thread, as many batches at once as there are by then.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Final

from kafka_async.errors import KafkaError
from kafka_async.producer.accumulator import A_TURN
from kafka_async.records.compression import Codec, compress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kafka_async.config import ProducerConfig
    from kafka_async.producer.accumulator import Accumulator
    from kafka_async.producer.producer_batch import ProducerBatch
    from kafka_async.records.batch import RecordBatch
    from kafka_async.supervisor import Supervisor

__all__ = ["Compressing"]

KIB: Final = 1024
COMPRESSED_IN_LOOP: Final = {
    Codec.none: 0,
    Codec.gzip: 16 * KIB,
    Codec.snappy: 128 * KIB,
    Codec.lz4: 256 * KIB,
    Codec.zstd: 128 * KIB,
}
"""Bytes that take a codec 0.2 to 0.4 ms at its default level: larger batches go to a thread."""
USUAL_LEVELS: Final = {Codec.gzip: 6, Codec.lz4: 2, Codec.zstd: 3}
"""The highest levels that are about as fast as the default ones."""
COMPRESSED_IN_LOOP_ABOVE: Final = 4 * KIB
"""The same for levels above those, which take up to a hundred times as long."""
IN_A_TURN: Final = 2
"""So many times that is compressed in one turn of the event loop, and what goes beyond it."""
WORKERS: Final = 2
"""Threads that compress at the same time."""
IN_ONE_GO: Final = 512 * KIB
"""Bytes after which a thread hands over what it has compressed."""


class Compressing:
    """Has batches compressed, in order within a partition. Owned by the sender.

    `fail(batch, error)` is called with a batch that cannot be compressed, `wake()` when there is
    more to do in the loop's next turn.
    """

    def __init__(
        self,
        config: ProducerConfig,
        accumulator: Accumulator,
        supervisor: Supervisor,
        *,
        now: Callable[[], float],
        wake: Callable[[], None],
        fail: Callable[[ProducerBatch, KafkaError, float], None],
    ) -> None:
        self._accumulator = accumulator
        self._supervisor = supervisor
        self._now = now
        self._wake = wake
        self._fail = fail
        self._codec = Codec[config.compression_type]
        self._level = config.compression_level
        self._in_loop = compressed_in_loop(self._codec, self._level)
        self._waiting: deque[tuple[ProducerBatch, RecordBatch]] = deque()
        self._workers = 0

    def look_round(self) -> None:
        """Compress what is small, as much as fits a turn, and give a thread what is large."""
        left = IN_A_TURN * self._in_loop
        for batch in islice(self._batches(), A_TURN):
            contents = batch.sealed
            size = len(contents.payload)
            if size > self._in_loop:
                self._waiting.append((batch, contents))
            else:
                self._finish(batch, contents, self._packed(contents))
                left -= size
                if left <= 0:
                    break
        if self._accumulator.compressible:
            self._wake()
        if self._waiting and self._workers < min(WORKERS, len(self._waiting)):
            self._workers += 1
            self._supervisor.spawn(self._work, name="compression")

    def _batches(self) -> Iterator[ProducerBatch]:
        """What is to be compressed now, and what may be once that is done."""
        while self._accumulator.compressible:
            yield from self._accumulator.to_compress()

    async def _work(self) -> None:
        """Have a thread compress what waits, until nothing does."""
        try:
            while self._waiting:
                some = self._some()
                packed = await self._supervisor.offload(
                    self._all_packed, [contents for _, contents in some]
                )
                for (batch, contents), result in zip(some, packed, strict=True):
                    self._finish(batch, contents, result)
                self._wake()
        finally:
            self._workers -= 1

    def _some(self) -> list[tuple[ProducerBatch, RecordBatch]]:
        """The next batches for one thread."""
        some = [self._waiting.popleft()]
        size = len(some[0][1].payload)
        while self._waiting and size + len(self._waiting[0][1].payload) <= IN_ONE_GO:
            some.append(self._waiting.popleft())
            size += len(some[-1][1].payload)
        return some

    def _all_packed(self, all_contents: Sequence[RecordBatch]) -> list[RecordBatch | KafkaError]:
        return [self._packed(contents) for contents in all_contents]

    def _packed(self, contents: RecordBatch) -> RecordBatch | KafkaError:
        try:
            payload = compress(self._codec, contents.payload, self._level)
        except KafkaError as error:
            return error
        return replace(contents, payload=payload, codec=self._codec)

    def _finish(
        self, batch: ProducerBatch, contents: RecordBatch, packed: RecordBatch | KafkaError
    ) -> None:
        failed = isinstance(packed, KafkaError)
        self._accumulator.compressed(batch, None if failed else packed, self._now())
        if failed and batch.contents is contents:  # else it has failed or was split meanwhile
            self._fail(batch, packed, self._now())


def compressed_in_loop(codec: Codec, level: int | None) -> int:
    """Bytes up to which a batch is compressed in the event loop."""
    above = level is not None and level > USUAL_LEVELS.get(codec, 0)
    return (
        min(COMPRESSED_IN_LOOP[codec], COMPRESSED_IN_LOOP_ABOVE)
        if above
        else COMPRESSED_IN_LOOP[codec]
    )
