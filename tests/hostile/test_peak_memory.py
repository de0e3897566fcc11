"""Peak memory of a process that reads the largest batch of the smallest records."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kafka_async.kernel import IMPLEMENTATION, OpenBatch
from kafka_async.records.batch import compress_batch
from kafka_async.records.compression import Codec
from tests.programs import output_of

pytestmark = pytest.mark.slow

MIB = 1024 * 1024
PARTS = 127
READ = """
import pathlib, re, sys
from kafka_async.consumer.buffer.completed_fetch import CompletedFetch
from kafka_async.consumer.buffer.fetch_buffer import FetchBuffer
from kafka_async.consumer.delivery.partition_batch import PartitionBatch
from kafka_async.records.batch import iter_batches
from kafka_async.types import TopicPartition

place, most = TopicPartition("t", 0), int(sys.argv[3])
data = memoryview(pathlib.Path(sys.argv[1]).read_bytes())
if sys.argv[2] == "records":
    records = PartitionBatch(place, list(iter_batches(data)), 0, 1).records()
    count = sum(1 for _, record in zip(range(most), records))
else:
    buffer, fetched = FetchBuffer(place), CompletedFetch(place, data, 0, None)
    while not fetched.find_batches(100):
        pass
    buffer.clear(0)
    buffer.add(fetched)
    count = 0
    while count < most and (taken := buffer.take_records(500, lambda: False)):
        count += len(taken)
# Not ru_maxrss, which starts with the memory of the parent process.
peak = re.search(r"VmHWM:\\s+(\\d+) kB", pathlib.Path("/proc/self/status").read_text())
print(count, int(peak[1]) // 1024)
"""


@pytest.fixture(scope="module")
def tiny_records(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """Write a batch that decompresses to 127 MiB of records without key or value."""
    section = OpenBatch(None, PARTS * MIB)
    while section.append(1_000, None, None, ()) is not None:
        pass
    path = tmp_path_factory.mktemp("batch") / "tiny"
    path.write_bytes(compress_batch(section, Codec.zstd).frame())
    return path, section.count


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak from /proc")
@pytest.mark.parametrize("way", ["records", "poll"])
def test_reads_128_mib_of_tiny_records_below_400_mib(
    tiny_records: tuple[Path, int], way: str
) -> None:
    path, count = tiny_records
    # The Python kernel would take minutes for all; the first records show parsing ahead too.
    most = count if IMPLEMENTATION == "c" else count // 50
    read, mib = map(int, output_of("-c", READ, path, way, str(most)).split())
    assert read == most
    assert mib < 400
