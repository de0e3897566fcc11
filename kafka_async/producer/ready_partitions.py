"""What is due, when, and for which broker: pure.

Each broker has a set of the partitions that have something for it. The set rotates: a partition is
taken from the front, gives one batch, and goes to the back, so a busy one never starves another.
Partitions that have to wait are in no set; what they wait for brings them back: a timer, a leader,
an answer.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, Final

from kafka_async.producer.producer_batch import BatchState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafka_async.producer.partition_queue import PartitionQueue
    from kafka_async.producer.producer_batch import ProducerBatch

__all__ = ["Schedule"]

LITTLE: Final = 256
"""Entries that are not worth a look whether they are of batches that are done."""


class Schedule:
    """Ready sets, back-off timers, lingering batches and deadlines of one producer.

    `admission` is the transaction that a partition must be admitted to before it is sent, 0 if it
    need not be; those that wait for that are in `unadmitted`.
    """

    def __init__(self) -> None:
        self.admission = 0
        self.unadmitted: dict[PartitionQueue, None] = {}
        self._ready: dict[int, OrderedDict[PartitionQueue, None]] = {}
        self._companions: dict[int, dict[PartitionQueue, None]] = {}
        self._lingering: list[tuple[float, int, ProducerBatch]] = []
        self._timers: list[tuple[float, int, PartitionQueue]] = []
        self._expiry: list[tuple[float, int, ProducerBatch]] = []
        self._ticket = 0
        self._much = LITTLE

    # -- brokers ----------------------------------------------------------------------------------

    def nodes(self) -> list[int]:
        """Brokers for which something may be ready."""
        return [node for node, queues in self._ready.items() if queues]

    @property
    def busy(self) -> bool:
        """Whether a look round would find something to do, or a new time to look again."""
        return bool(self.unadmitted or self._timers) or any(self._ready.values())

    def holds(self, node: int) -> bool:
        """Whether something may be ready for a broker."""
        return bool(self._ready.get(node))

    def offer(self, queue: PartitionQueue, now: float) -> None:
        """Put a partition where its broker finds it, if it has anything to send now."""
        leader = queue.leader
        if leader is None or not (queue.waiting or queue.open is not None):
            return
        if self.sendable(queue, now):
            ready = self._ready.get(leader)
            if ready is None:
                ready = self._ready[leader] = OrderedDict()
            ready[queue] = None
        elif queue.companion is not None:
            self._companions.setdefault(leader, {})[queue] = None

    def has_companions(self, node: int) -> bool:
        """Return whether `companions` has partitions to look at."""
        return bool(self._companions.get(node))

    def companions(self, node: int, most: int) -> Iterator[ProducerBatch]:
        """Take out open batches that a request to a broker may take along.

        At most `most` partitions are looked at.
        """
        among = self._companions.get(node)
        if not among:
            return
        for queue in list(islice(among, most)):
            del among[queue]
            batch = queue.companion
            if batch is not None and queue.leader == node:
                yield batch

    def rotate(self, node: int) -> Iterator[PartitionQueue]:
        """The partitions of a broker's set, each taken out and visited at most once."""
        ready = self._ready.get(node)
        for _ in range(len(ready) if ready else 0):
            if not ready:
                return
            yield ready.popitem(last=False)[0]

    def served(self, node: int) -> None:
        """A broker has had its turn: the others come first."""
        self._ready[node] = self._ready.pop(node)

    def put_back(self, queue: PartitionQueue, node: int) -> None:
        """It is this partition's turn still: there was no room for its batch."""
        ready = self._ready[node]
        ready[queue] = None
        ready.move_to_end(queue, last=False)

    def sendable(self, queue: PartitionQueue, now: float) -> bool:
        """Whether a partition's next batch may go to its leader now."""
        if queue.leader is None or not queue.due(now):
            return False
        if queue.on_wire and not queue.free_to_send(queue.leader):
            return False
        if queue.not_before > now:
            self._set_timer(queue)
            return False
        if self.admission and queue.admitted != self.admission:
            self.unadmitted[queue] = None
            return False
        return True

    def _set_timer(self, queue: PartitionQueue) -> None:
        if queue.timer != queue.not_before:
            queue.timer = queue.not_before
            self._ticket += 1
            heapq.heappush(self._timers, (queue.timer, self._ticket, queue))

    # -- time -------------------------------------------------------------------------------------

    def linger(self, batch: ProducerBatch) -> None:
        """Let an open batch wait for more records until its `due`."""
        self._ticket += 1
        heapq.heappush(self._lingering, (batch.due, self._ticket, batch))
        queue = batch.queue
        if queue.leader is not None and queue.companion is not None:
            self._companions.setdefault(queue.leader, {})[queue] = None

    def watch(self, batch: ProducerBatch) -> None:
        """Keep an eye on a batch's deadline."""
        expiry, done = self._expiry, BatchState.DONE
        if len(expiry) > self._much:
            # An old batch that stays keeps those behind it that are done.
            expiry[:] = [entry for entry in expiry if entry[2].state is not done]
            heapq.heapify(expiry)
            self._much = 2 * len(expiry) + LITTLE
        self._ticket += 1
        heapq.heappush(expiry, (batch.deadline, self._ticket, batch))

    def unwatch(self) -> None:
        """A batch is done: forget some of those that are, so that none is kept for long."""
        expiry, done = self._expiry, BatchState.DONE
        for _ in range(2):
            if expiry and expiry[0][2].state is done:
                heapq.heappop(expiry)

    @property
    def lingers(self) -> bool:
        """Whether some batch may wait for company still."""
        return bool(self._lingering)

    def lingered(self, now: float) -> Iterator[ProducerBatch]:
        """Batches that have waited long enough by `now`, inf for all, those due first before."""
        while self._lingering and self._lingering[0][0] <= now:
            batch = heapq.heappop(self._lingering)[2]
            if batch.state is BatchState.OPEN:
                yield batch

    def wake(self, now: float) -> Iterator[PartitionQueue]:
        """Offer the partitions whose back-off is over."""
        while self._timers and self._timers[0][0] <= now:
            queue = heapq.heappop(self._timers)[2]
            queue.timer = 0.0
            self.offer(queue, now)
            yield queue

    def expired(self, now: float) -> Iterator[ProducerBatch]:
        """Batches whose time has run out, less those on the wire.

        What is on the wire is decided by its answer, or by the end of its connection: until then
        nobody knows whether it is written, and its bytes are the transport's (CVE-2026-35554).
        """
        while self._expiry and self._expiry[0][0] <= now:
            batch = heapq.heappop(self._expiry)[2]
            if batch.state is BatchState.DONE:
                continue
            if batch.deadline > now:
                self.watch(batch)
            elif batch.state is not BatchState.ON_WIRE:
                yield batch

    def next_due(self) -> float:
        """When something is due next, if nothing happens before; inf if nothing is."""
        due, lingering = inf, self._lingering
        while lingering and lingering[0][2].state is not BatchState.OPEN:
            heapq.heappop(lingering)  # it was sent before its time
        if lingering:
            due = lingering[0][0]
        if self._timers and self._timers[0][0] < due:
            due = self._timers[0][0]
        if self._expiry and self._expiry[0][0] < due:
            due = self._expiry[0][0]
        return due
