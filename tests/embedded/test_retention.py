"""Retention by bytes and time: whole segments go, the log start offset advances."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kafka_async.embedded.configs import effective_configs
from kafka_async.embedded.log import PartitionLog
from kafka_async.embedded.settings import Settings
from kafka_async.protocol.messages.create_topics import CreateTopicsRequest
from kafka_async.protocol.messages.fetch import FetchRequest
from kafka_async.protocol.messages.list_offsets import ListOffsetsRequest
from kafka_async.protocol.messages.produce import ProduceRequest
from kafka_async.types import TopicPartition
from tests.embedded.wire import batch
from tests.integration.raw_wire import RawCluster

if TYPE_CHECKING:
    from tests.embedded.conftest import StartStage

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


def test_keeps_retention_bytes_and_at_most_two_segments_more() -> None:
    log = log_with(retention_bytes=str(3 * SEGMENT))
    for _ in range(20 * BATCHES_PER_SEGMENT):
        fill(log, 1)
        assert log.allocated <= 5 * SEGMENT
    assert 3 * SEGMENT <= log.size < 5 * SEGMENT
    assert log.end_offset - log.start_offset < 5 * BATCHES_PER_SEGMENT
    first = log.read(log.start_offset, 1).records
    assert int.from_bytes(first[:8]) == log.start_offset


def test_keeps_a_whole_segment_however_small_the_limit() -> None:
    log = log_with(retention_bytes="1")
    fill(log, 50 * BATCHES_PER_SEGMENT)
    assert SEGMENT <= log.size < 3 * SEGMENT
    small = log_with(retention_bytes="1")
    fill(small, BATCHES_PER_SEGMENT - 1)
    assert small.start_offset == 0


@pytest.mark.parametrize("policy", ["", "compact"])
def test_keeps_everything_without_the_policy_delete(policy: str) -> None:
    log = log_with(retention_bytes="1", retention_ms="1", cleanup_policy=policy)
    fill(log, 5 * BATCHES_PER_SEGMENT)
    assert not log.retain(10**12)
    assert log.start_offset == 0


def test_deletes_segments_whose_newest_record_is_too_old() -> None:
    log = log_with(retention_ms="1000")
    fill(log, 2 * BATCHES_PER_SEGMENT, timestamp=5_000)
    fill(log, 2 * BATCHES_PER_SEGMENT, timestamp=6_000)
    assert not log.retain(6_000)
    assert log.retain(6_001)
    assert BATCHES_PER_SEGMENT <= log.start_offset <= 2 * BATCHES_PER_SEGMENT
    assert log.retain(7_001)
    assert log.start_offset == log.end_offset == 4 * BATCHES_PER_SEGMENT
    assert log.allocated == 0
    fill(log, 1, timestamp=7_001)
    assert log.read(log.start_offset, 1).records.nbytes > len(VALUE)


def test_begins_a_segment_after_segment_ms() -> None:
    log = log_with(retention_ms="1000", segment_ms="500")
    for time in range(0, 10_000, 100):
        log.append(batch(b"x", timestamp=time), time)
        log.retain(time)
    assert 8_000 < log.start_offset * 100 < 9_000


def test_a_transaction_without_its_first_records_is_stable_from_the_start_on() -> None:
    log = log_with(retention_bytes=str(SEGMENT))
    log.append(batch(VALUE, producer_id=1, epoch=0, sequence=0, transactional=True), 0)
    fill(log, 5 * BATCHES_PER_SEGMENT)
    assert log.stable_offset == log.start_offset > 0


@pytest.mark.asyncio
@pytest.mark.virtual_clock
async def test_time_is_the_clusters_and_checked_at_intervals(start_stage: StartStage) -> None:
    stage = await start_stage(log_retention_check_interval_ms=60_000)
    await stage.cluster.create_topic("t", 1, configs={"retention.ms": "90000"})
    partition = stage.cluster.topics.partition(TopicPartition("t", 0))
    assert partition is not None
    partition.log.append(batch(b"x", timestamp=stage.cluster.now_ms()), stage.cluster.now_ms())
    await asyncio.sleep(119)
    assert partition.log.start_offset == 0
    await asyncio.sleep(2)
    assert partition.log.start_offset == 1
    peer = await stage.peer()
    request = ListOffsetsRequest.from_dict(
        {
            "replica_id": -1,
            "topics": [{"name": "t", "partitions": [{"partition_index": 0, "timestamp": -2}]}],
        }
    )
    [found] = (await peer.ask(request, 7)).topics[0].partitions
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
@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak memory from /proc")
def test_2_gib_written_to_a_topic_of_50_mb_stay_below_150_mib() -> None:
    broker = subprocess.Popen(
        [sys.executable, "-m", "kafka_async.embedded", "--port", "0", "--while-stdin"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert broker.stdin is not None
    assert broker.stdout is not None
    with broker, broker.stdin:
        cluster = RawCluster(broker.stdout.readline().decode().strip())
        configs = [{"name": "retention.bytes", "value": "50000000"}]
        topic = {"name": "t", "num_partitions": 1, "replication_factor": 1, "configs": configs}
        records = batch(bytes(1_000_000))
        data = [{"name": "t", "partition_data": [{"index": 0, "records": records}]}]
        produce = ProduceRequest.from_dict({"acks": -1, "timeout_ms": 1_000, "topic_data": data})
        stream = cluster.any
        stream.call(CreateTopicsRequest.from_dict({"topics": [topic]}), 5)
        count = WRITTEN // len(records) + 1
        for offset in range(count):
            [row] = stream.call(produce, 9).responses[0].partition_responses
            assert (row.error_code, row.base_offset) == (0, offset)
        part = {"partition": 0, "fetch_offset": count - 50, "partition_max_bytes": 1 << 20}
        fetch = FetchRequest.from_dict(
            {"max_wait_ms": 0, "min_bytes": 0, "topics": [{"topic": "t", "partitions": [part]}]}
        )
        [kept] = stream.call(fetch, 12).responses[0].partitions
        assert kept.error_code == 0
        assert len(kept.records or b"") == len(records)
        assert count - 60 < kept.log_start_offset <= count - 50
        assert peak_memory(broker.pid) < PEAK_LIMIT
        cluster.close()
