"""Filter for read_committed: drops the batches of aborted transactions (KIP-98). Pure.

The response to a read_committed fetch has the batches up to the last stable offset and a list of
aborted transactions: producer ids with their first offsets, in any order. The transactional batches
of such a producer are dropped from that offset up to its abort marker.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kafka_async.records.batch import BatchView


class AbortedRange(NamedTuple):
    """An aborted transaction, from `first_offset` to its producer's abort marker."""

    first_offset: int
    producer_id: int


def all_batches(batches: Iterable[BatchView]) -> Iterator[tuple[BatchView, bool]]:
    """Yield each batch and whether it has records to return; control batches have none."""
    for batch in batches:
        yield batch, not batch.is_control


def committed_batches(
    batches: Iterable[BatchView], aborted: Iterable[AbortedRange]
) -> Iterator[tuple[BatchView, bool]]:
    """Yield each batch and whether it has records to return; aborted and control batches have none.

    Raises:
        CorruptRecordError: A control record cannot be decoded.
    """
    pending = list(aborted)
    heapq.heapify(pending)
    aborting = set[int]()
    for batch in batches:
        while pending and pending[0].first_offset <= batch.last_offset:
            aborting.add(heapq.heappop(pending).producer_id)
        if batch.is_control:
            if batch.producer_id in aborting and batch.control().kind == "abort":
                aborting.remove(batch.producer_id)
            yield batch, False
        else:
            yield batch, not (batch.is_transactional and batch.producer_id in aborting)
