"""A peer that fails on purpose in the way that KAFKA_ASYNC_PLANTED names, and given runs."""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import replace

from benchmarks.clients import Peer
from benchmarks.peers.kafka_async_peer import KafkaAsyncPeer
from benchmarks.peers.task import Figures, Task, main
from benchmarks.runs import Run

CASE = "produce-100"


def planted(what: str) -> Peer:
    """Return the peer that fails in a way."""
    environment = {"KAFKA_ASYNC_PLANTED": what}
    speeds = {"enqueue": 100.0, "poll": 100.0}
    return Peer("planted", "Planted", __name__, speeds=speeds, environment=environment)


def runs(peer: str, seconds: list[float], *, way: str = "enqueue", case: str = CASE) -> list[Run]:
    return [
        Run(case, peer, way, number, Figures(each, each / 2, 8_000, settings={"linger_ms": 5}))
        for number, each in enumerate(seconds, 1)
    ]


def trips(peer: str, p50: list[float], operations: int = 100) -> list[Run]:
    return [
        Run("round-trip", peer, "", number, Figures(1.0, 0.1, operations, latency_us=latency))
        for number, each in enumerate(p50, 1)
        for latency in ({"p50": each, "p99": each * 2, "p99.9": each * 3},)
    ]


class PlantedPeer(KafkaAsyncPeer):
    """Peer that fails."""

    what = os.environ.get("KAFKA_ASYNC_PLANTED", "")

    async def produce(self, task: Task) -> Figures:
        if self.what == "crashes":
            sys.exit("it broke")
        if self.what == "hangs":
            await asyncio.sleep(600)
        sent = task
        if self.what == "loses a record":
            sent = replace(task, records=task.records - 1)
        if self.what == "invents values":
            sent = replace(task, compression="lz4")  # these values differ
        return replace(await super().produce(sent), records=task.records)

    async def consume(self, task: Task) -> Figures:
        figures = await super().consume(task)
        if self.what == "reads too few":
            return replace(figures, records=figures.records - 1)
        if self.what == "reads other values" and figures.checksum is not None:
            return replace(figures, checksum=figures.checksum + 1)
        return figures


if __name__ == "__main__":
    main(PlantedPeer())
