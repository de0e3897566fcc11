"""Retention by size and time: deletes segments, advances the log start offset."""

from __future__ import annotations

import asyncio
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kafka_async.embedded.settings import Settings
from kafka_async.embedded.state.configs import effective_configs
from kafka_async.embedded.state.log import PartitionLog
from kafka_async.protocol.messages.create_topics import CreateTopicsRequest
from kafka_async.protocol.messages.fetch import FetchRequest
from kafka_async.protocol.messages.list_offsets import ListOffsetsRequest
from kafka_async.protocol.messages.produce import ProduceRequest
from tests.raw_connection import RawConnection, batch

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from tests.embedded.conftest import StartHarness

SEGMENT = 1 << 20
VALUE = bytes(100_000)
BATCHES_PER_SEGMENT = SEGMENT // len(VALUE)


def log_with(**configs: str) -> PartitionLog:
    named = {name.replace("_", "."): value for name, value in configs.items()}
    log = PartitionLog()
    log.configure(effective_configs(Settings(), {"segment.bytes": str(SEGMENT), **named}))
    return log


def fill(log: PartitionLog, batches: int, timestamp: int = 0) -> None:
    for _ in range(batches):
        log.append(batch(VALUE, timestamp=timestamp), timestamp)


def test_keeps_retention_bytes_plus_two_segments() -> None:
    log = log_with(retention_bytes=str(3 * SEGMENT))
    for _ in range(20 * BATCHES_PER_SEGMENT):
        fill(log, 1)
        assert log.allocated_bytes <= 5 * SEGMENT
    assert 3 * SEGMENT <= log.size < 5 * SEGMENT
    assert log.end_offset - log.start_offset < 5 * BATCHES_PER_SEGMENT
    first = log.read(log.start_offset, 1).records
    assert int.from_bytes(first[:8]) == log.start_offset


def test_keeps_one_segment_with_small_limit() -> None:
    log = log_with(retention_bytes="1")
    fill(log, 50 * BATCHES_PER_SEGMENT)
    assert SEGMENT <= log.size < 3 * SEGMENT
    small = log_with(retention_bytes="1")
    fill(small, BATCHES_PER_SEGMENT - 1)
    assert small.start_offset == 0


@pytest.mark.parametrize("policy", ["", "compact"])
def test_keeps_all_segments_without_delete_policy(policy: str) -> None:
    log = log_with(retention_bytes="1", retention_ms="1", cleanup_policy=policy)
    fill(log, 5 * BATCHES_PER_SEGMENT)
    assert not log.delete_old_segments(10**12)
    assert log.start_offset == 0


def test_deletes_segments_older_than_retention_ms() -> None:
    log = log_with(retention_ms="1000")
    fill(log, 2 * BATCHES_PER_SEGMENT, timestamp=5_000)
    fill(log, 2 * BATCHES_PER_SEGMENT, timestamp=6_000)
    assert not log.delete_old_segments(6_000)
    assert log.delete_old_segments(6_001)
    assert BATCHES_PER_SEGMENT <= log.start_offset <= 2 * BATCHES_PER_SEGMENT
    assert log.delete_old_segments(7_001)
    assert log.start_offset == log.end_offset == 4 * BATCHES_PER_SEGMENT
    assert log.allocated_bytes == 0
    fill(log, 1, timestamp=7_001)
    assert log.read(log.start_offset, 1).records.nbytes > len(VALUE)


def test_rolls_segment_after_segment_ms() -> None:
    log = log_with(retention_ms="1000", segment_ms="500")
    for time in range(0, 10_000, 100):
        log.append(batch(b"x", timestamp=time), time)
        log.delete_old_segments(time)
    assert 8_000 < log.start_offset * 100 < 9_000


def test_last_stable_offset_is_at_least_log_start_offset() -> None:
    log = log_with(retention_bytes=str(SEGMENT))
    log.append(batch(VALUE, producer_id=1, epoch=0, sequence=0, transactional=True), 0)
    fill(log, 5 * BATCHES_PER_SEGMENT)
    assert log.last_stable_offset == log.start_offset > 0


@pytest.mark.asyncio
@pytest.mark.virtual_clock
async def test_retention_uses_cluster_clock_at_intervals(start_harness: StartHarness) -> None:
    harness = await start_harness(log_retention_check_interval_ms=60_000)
    await harness.cluster.create_topic("t", 1, configs={"retention.ms": "90000"})
    partition = harness.partition()
    now = harness.cluster.scheduler.now_ms()
    partition.log.append(batch(b"x", timestamp=now), now)
    await asyncio.sleep(119)
    assert partition.log.start_offset == 0
    await asyncio.sleep(2)
    assert partition.log.start_offset == 1
    connection = await harness.connect()
    request = ListOffsetsRequest.from_dict(
        {
            "replica_id": -1,
            "topics": [{"name": "t", "partitions": [{"partition_index": 0, "timestamp": -2}]}],
        }
    )
    [found] = (await connection.call(request, 7)).topics[0].partitions
    assert found.offset == 1


# -- the memory of the process --------------------------------------------------------------------

WRITTEN = 2 << 30
PEAK_LIMIT = 150 << 20


def peak_memory(pid: int) -> int:
    """Return the most bytes that a process has had in memory."""
    status = Path("/proc", str(pid), "status").read_text()
    row = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(row.split()[1]) * 1024


@pytest.mark.slow
@pytest.mark.asyncio
@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak memory from /proc")
async def test_memory_stays_bounded_with_retention_bytes() -> None:
    async with broker_process() as broker:
        await check_memory_of(broker)


@asynccontextmanager
async def broker_process() -> AsyncGenerator[asyncio.subprocess.Process]:
    """Run a broker in a process, which ends with its standard input."""
    broker = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "kafka_async.embedded", "--port", "0", "--while-stdin"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield broker
    finally:
        await broker.communicate(b"")  # None would leave the standard input open


async def check_memory_of(broker: asyncio.subprocess.Process) -> None:
    assert broker.stdout is not None
    host, _, port = (await broker.stdout.readline()).decode().strip().rpartition(":")
    stream = await RawConnection.dial(host, int(port))
    configs = [{"name": "retention.bytes", "value": "50000000"}]
    topic = {"name": "t", "num_partitions": 1, "replication_factor": 1, "configs": configs}
    records = batch(bytes(1_000_000))
    data = [{"name": "t", "partition_data": [{"index": 0, "records": records}]}]
    produce = ProduceRequest.from_dict({"acks": -1, "timeout_ms": 1_000, "topic_data": data})
    await stream.call(CreateTopicsRequest.from_dict({"topics": [topic]}), 5)
    count = WRITTEN // len(records) + 1
    for offset in range(count):
        [row] = (await stream.call(produce, 9)).responses[0].partition_responses
        assert (row.error_code, row.base_offset) == (0, offset)
    part = {"partition": 0, "fetch_offset": count - 50, "partition_max_bytes": 1 << 20}
    fetch = FetchRequest.from_dict(
        {"max_wait_ms": 0, "min_bytes": 0, "topics": [{"topic": "t", "partitions": [part]}]}
    )
    [kept] = (await stream.call(fetch, 12)).responses[0].partitions
    assert kept.error_code == 0
    assert len(kept.records or b"") == len(records)
    assert count - 60 < kept.log_start_offset <= count - 50
    assert peak_memory(broker.pid) < PEAK_LIMIT
    await stream.close()
