"""What a reader of committed transactions may see of a fetched buffer (KIP-98). Pure.

A broker answers a read_committed fetch with the batches up to the last stable offset and the list
of transactions among them that were aborted: a producer and the first offset of its transaction.
Such a producer's transactional batches are dropped from that offset on, until its abort marker.
The list may come in any order.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kafka_async.records.batch import BatchView


class AbortedRange(NamedTuple):
    """An aborted transaction begins at `first_offset`; its producer's abort marker ends it."""

    first_offset: int
    producer_id: int


def everything(batches: Iterable[BatchView]) -> Iterator[tuple[BatchView, bool]]:
    """The batches, and whether records are handed out of them: all but the markers'."""
    for batch in batches:
        yield batch, not batch.is_control


def committed(
    batches: Iterable[BatchView], aborted: Iterable[AbortedRange]
) -> Iterator[tuple[BatchView, bool]]:
    """The batches, and whether records are handed out of them: neither markers' nor aborted ones'.

    Raises CorruptRecordError if a marker cannot be read.
    """
    ahead = list(aborted)
    heapq.heapify(ahead)
    aborting = set[int]()
    for batch in batches:
        while ahead and ahead[0].first_offset <= batch.last_offset:
            aborting.add(heapq.heappop(ahead).producer_id)
        if batch.is_control:
            if batch.producer_id in aborting and batch.control().kind == "abort":
                aborting.remove(batch.producer_id)
            yield batch, False
        else:
            yield batch, not (batch.is_transactional and batch.producer_id in aborting)
