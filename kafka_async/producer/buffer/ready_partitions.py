"""Decides which partitions can send now and when others will be able to. Nothing here waits.

Each broker has an ordered set of the partitions that have a batch ready for it. A partition is
taken from the front, gives one batch, and goes to the back, so that a busy one does not starve
others. A partition that cannot send is in no set; the event that it needs adds it again: a timer, a
new leader or a response.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, Final

from kafka_async.producer.buffer.partition_queue import BatchState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafka_async.producer.buffer.partition_queue import PartitionQueue, ProducerBatch

__all__ = ["ReadyPartitions"]

MIN_PRUNE_SIZE: Final = 256
"""Size of the heap of deadlines below which finished batches are not removed from it."""


class ReadyPartitions:
    """Tracks ready partitions, back-offs, linger times and delivery deadlines of one producer."""

    def __init__(self) -> None:
        # Transactions before v2: partitions are added to each transaction before their first batch.
        # Numbers, since a partition keeps the mark of an older one.
        self._transaction_count = 0
        self._required_transaction = 0  # 0: partitions need not be added
        self._partitions_to_add: dict[PartitionQueue, None] = {}
        self._partitions_in_add: set[PartitionQueue] = set()
        # Partitions by broker: with a batch to send, and with one that a request may take along.
        self._ready: dict[int, OrderedDict[PartitionQueue, None]] = {}
        self._piggyback_queues: dict[int, dict[PartitionQueue, None]] = {}
        # Heaps by time. The number breaks ties, since batches cannot be compared. Entries are not
        # removed when they become obsolete, but skipped when they are due.
        self._lingering: list[tuple[float, int, ProducerBatch]] = []
        self._backoffs: list[tuple[float, int, PartitionQueue]] = []
        self._deadlines: list[tuple[float, int, ProducerBatch]] = []
        self._tie_breaker = 0
        self._prune_at = MIN_PRUNE_SIZE

    # -- brokers ----------------------------------------------------------------------------------

    def nodes(self) -> list[int]:
        """Return the brokers that may have ready partitions."""
        return [node for node, queues in self._ready.items() if queues]

    @property
    def has_work(self) -> bool:
        """True if a run of the send loop would find batches to send or a new time to run again."""
        return bool(self._partitions_to_add or self._backoffs) or any(self._ready.values())

    def has_ready(self, node: int) -> bool:
        """Return True if a broker may have ready partitions."""
        return bool(self._ready.get(node))

    def add_if_ready(self, queue: PartitionQueue, now: float) -> None:
        """Add a partition to its leader's set if it can send now.

        Otherwise note what it needs, see `is_sendable`, and note an open batch that a request to
        the leader may carry before it is due.
        """
        # Without a leader, `update_leaders` calls this again.
        leader = queue.leader
        if leader is None or not (queue.queued or queue.open_batch is not None):
            return
        if self.is_sendable(queue, now):
            ready = self._ready.get(leader)
            if ready is None:
                ready = self._ready[leader] = OrderedDict()
            ready[queue] = None
        elif queue.piggyback_batch is not None:
            # It waits for nothing but time, so a request of another partition may carry it.
            self._piggyback_queues.setdefault(leader, {})[queue] = None

    def has_piggyback_batches(self, node: int) -> bool:
        """Return True if `piggyback_batches` has partitions to check."""
        return bool(self._piggyback_queues.get(node))

    def piggyback_batches(self, node: int, limit: int) -> Iterator[ProducerBatch]:
        """Remove and yield open batches for a request, from up to `limit` partitions."""
        queues = self._piggyback_queues.get(node)
        if not queues:
            return
        for queue in list(islice(queues, limit)):
            # Removed even if it does not qualify any more: whatever changed it adds it again.
            del queues[queue]
            batch = queue.piggyback_batch
            if batch is not None and queue.leader == node:
                yield batch

    def pop_partitions(self, node: int) -> Iterator[PartitionQueue]:
        """Remove and yield the partitions of a broker's set, each at most once."""
        ready = self._ready.get(node)
        # The number at the start: partitions that are added while these are drained come next time.
        for _ in range(len(ready) if ready else 0):
            if not ready:
                return
            yield ready.popitem(last=False)[0]

    def move_to_back(self, node: int) -> None:
        """Move a broker behind the others."""
        self._ready[node] = self._ready.pop(node)

    def put_back(self, queue: PartitionQueue, node: int) -> None:
        """Put a partition back at the front: its batch did not fit into the request."""
        ready = self._ready[node]
        ready[queue] = None
        ready.move_to_end(queue, last=False)

    def is_sendable(self, queue: PartitionQueue, now: float) -> bool:
        """Return True if a partition's next batch may be sent to its leader now.

        If only the back-off prevents it, set the timer for its end. If the partition must be added
        to the transaction first, note it for `take_partitions_to_add`.
        """
        # From the cheapest and most frequent reason to the rarest. Each has an event that adds the
        # partition again, or sets up one.
        if queue.leader is None or not queue.is_due(now):
            return False
        if queue.in_flight and not queue.may_send_to(queue.leader):
            return False
        if queue.not_before > now:
            self._set_timer(queue)
            return False
        if self._required_transaction and queue.added_to_transaction != self._required_transaction:
            # A request that adds it is in flight; its response makes the partition ready.
            if queue not in self._partitions_in_add:
                self._partitions_to_add[queue] = None
            return False
        return True

    def _set_timer(self, queue: PartitionQueue) -> None:
        # One entry per time, however often the partition is checked.
        if queue.timer != queue.not_before:
            queue.timer = queue.not_before
            self._tie_breaker += 1
            heapq.heappush(self._backoffs, (queue.timer, self._tie_breaker, queue))

    # -- transactions -----------------------------------------------------------------------------

    def begin_transaction(self, *, must_add_partitions: bool) -> None:
        """Begin a transaction; a partition may have to be added to it before it is sendable."""
        self._transaction_count += 1
        self._required_transaction = self._transaction_count if must_add_partitions else 0
        self._partitions_to_add = {}
        self._partitions_in_add = set()

    def end_transaction(self) -> None:
        """Require no partitions to be added."""
        self._required_transaction = 0
        self._partitions_to_add = {}
        self._partitions_in_add = set()

    def take_partitions_to_add(self) -> list[PartitionQueue]:
        """Return the partitions that must be added and have batches.

        Each is returned once.
        """
        noted, self._partitions_to_add = self._partitions_to_add, {}
        # The batches of some may have failed since.
        queues = [queue for queue in noted if queue.queued or queue.open_batch is not None]
        self._partitions_in_add.update(queues)
        return queues

    def mark_added(self, queue: PartitionQueue, now: float) -> None:
        """Make a partition ready that was added to the transaction."""
        self._partitions_in_add.discard(queue)
        queue.added_to_transaction = self._required_transaction
        self.add_if_ready(queue, now)

    # -- time -------------------------------------------------------------------------------------

    def linger(self, batch: ProducerBatch) -> None:
        """Let an open batch wait for more records until its `linger_until`."""
        self._tie_breaker += 1
        heapq.heappush(self._lingering, (batch.linger_until, self._tie_breaker, batch))
        queue = batch.queue
        if queue.leader is not None and queue.piggyback_batch is not None:
            self._piggyback_queues.setdefault(queue.leader, {})[queue] = None

    def track_deadline(self, batch: ProducerBatch) -> None:
        """Watch a batch's deadline."""
        deadlines, done = self._deadlines, BatchState.DONE
        # Amortized: the heap must double before it is rebuilt again.
        if len(deadlines) > self._prune_at:
            # Entries of finished batches stay in the heap behind an older batch.
            deadlines[:] = [entry for entry in deadlines if entry[2].state is not done]
            heapq.heapify(deadlines)
            self._prune_at = 2 * len(deadlines) + MIN_PRUNE_SIZE
        self._tie_breaker += 1
        heapq.heappush(deadlines, (batch.deadline, self._tie_breaker, batch))

    def prune_deadlines(self) -> None:
        """Remove deadlines of finished batches, a few at a time."""
        deadlines, done = self._deadlines, BatchState.DONE
        # Two per finished batch, so that the heap shrinks.
        for _ in range(2):
            if deadlines and deadlines[0][2].state is done:
                heapq.heappop(deadlines)

    @property
    def has_lingering(self) -> bool:
        """True if a batch may be lingering."""
        return bool(self._lingering)

    def pop_lingered(self, now: float) -> Iterator[ProducerBatch]:
        """Remove and yield batches whose linger time is over at `now`; inf for all."""
        while self._lingering and self._lingering[0][0] <= now:
            batch = heapq.heappop(self._lingering)[2]
            # Sent or failed before its linger time was over.
            if batch.state is BatchState.OPEN:
                yield batch

    def end_backoffs(self, now: float) -> Iterator[PartitionQueue]:
        """Add the partitions whose back-off is over, and yield them."""
        while self._backoffs and self._backoffs[0][0] <= now:
            queue = heapq.heappop(self._backoffs)[2]
            queue.timer = 0.0
            self.add_if_ready(queue, now)
            yield queue

    def pop_expired(self, now: float) -> Iterator[ProducerBatch]:
        """Remove and yield batches whose deadline has passed and that are not in flight.

        A batch in flight is completed by its response or by the end of its connection: until then
        it may or may not be written, and the transport may still hold its bytes (CVE-2026-35554).
        """
        while self._deadlines and self._deadlines[0][0] <= now:
            batch = heapq.heappop(self._deadlines)[2]
            if batch.state is BatchState.DONE:
                continue
            # The deadline has been extended since, when its partition became known.
            if batch.deadline > now:
                self.track_deadline(batch)
            # In flight: dropped from the heap; `retry` checks the deadline.
            elif batch.state is not BatchState.IN_FLIGHT:
                yield batch

    def next_due(self) -> float:
        """Return the time at which something is due unless anything else happens; inf if never."""
        due, lingering = inf, self._lingering
        while lingering and lingering[0][2].state is not BatchState.OPEN:
            heapq.heappop(lingering)  # sent before its linger time was over
        if lingering:
            due = lingering[0][0]
        if self._backoffs and self._backoffs[0][0] < due:
            due = self._backoffs[0][0]
        if self._deadlines and self._deadlines[0][0] < due:
            due = self._deadlines[0][0]
        return due
