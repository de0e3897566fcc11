"""`send_arrow` writes the same records as `send_records`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_async.testing.clock import run_virtual
from kafka_async.types import ProducerRecord
from tests.producer.arrow_rows import batch_of
from tests.producer.bench import Bench

pa: Any = pytest.importorskip("pyarrow")

TOPICS = {"clicks": [1, 1, 1], "views": [1]}


def written(bench: Bench) -> dict[tuple[str, int], list[tuple[Any, ...]]]:
    """Return the fields of all records by topic and partition."""
    return {
        (topic, partition): [
            (row.key, row.value, row.timestamp, tuple(row.headers))
            for row in bench.records(topic, partition)
        ]
        for topic, leaders in TOPICS.items()
        for partition in range(len(leaders))
    }


RECORD = st.builds(
    ProducerRecord,
    st.sampled_from(list(TOPICS)),
    st.none() | st.binary(max_size=300),
    st.none() | st.binary(max_size=9),
    partition=st.none() | st.just(0),
    timestamp=st.integers(0, 2**40),
    headers=st.lists(st.tuples(st.text(max_size=4), st.none() | st.binary(max_size=5)), max_size=2),
)


@given(st.lists(RECORD, min_size=1, max_size=60), st.sampled_from([0, 200, 4_000]), st.data())
def test_rows_become_the_same_records_as_by_send_records(
    records: list[ProducerRecord], batch_size: int, data: st.DataObject
) -> None:
    # Records without key and partition go to partitions chosen at random.
    records = [
        replace(row, topic="views") if row.key is None and row.partition is None else row
        for row in records
    ]
    split = data.draw(st.integers(0, len(records)))

    async def run(*, arrow: bool) -> Any:
        async with Bench(TOPICS, linger_ms=5, batch_size=batch_size) as bench:
            for topic in TOPICS:
                # Before the metadata is known, a record with a partition may overtake one without.
                await bench.producer.send(topic, b"first", partition=0, timestamp=0)
            if arrow:
                table = pa.Table.from_batches(
                    [batch_of(records[:split]), batch_of(records[split:])]
                )
                assert await bench.producer.send_arrow(table) == len(records)
            else:
                await bench.producer.send_records(records)
            await bench.producer.flush()
            return written(bench)

    assert run_virtual(run(arrow=True)) == run_virtual(run(arrow=False))
