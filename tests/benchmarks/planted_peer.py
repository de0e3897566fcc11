"""A peer that fails on purpose in the way that KAFKA_ASYNC_PLANTED names."""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import replace

from benchmarks.peers import kafka_async_consume, kafka_async_peer
from benchmarks.peers.task import Figures, Task, main

PLANTED = os.environ["KAFKA_ASYNC_PLANTED"]


async def produce(task: Task) -> Figures:
    if PLANTED == "crashes":
        sys.exit("it broke")
    if PLANTED == "hangs":
        await asyncio.sleep(600)
    if PLANTED == "loses a record":
        task = replace(task, records=task.records - 1)
    if PLANTED == "invents values":
        task = replace(task, compression="lz4")  # these values differ
    return replace(await kafka_async_peer.produce(task), records=task.records)


async def consume(task: Task) -> Figures:
    figures = await kafka_async_consume.consume(task)
    if PLANTED == "reads too few":
        return replace(figures, records=figures.records - 1)
    if PLANTED == "reads other values" and figures.checksum is not None:
        return replace(figures, checksum=figures.checksum + 1)
    return figures


if __name__ == "__main__":
    main({"produce": produce, "consume": consume})
