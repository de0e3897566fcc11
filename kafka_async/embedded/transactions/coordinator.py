"""The transaction coordinator: transactional ids, their time-outs, the markers that end them.

Its state belongs to the cluster, as if it were on disk; which broker may speak for an id is a
question of placement.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafka_async.embedded.codes import Code
from kafka_async.embedded.groups.offsets import offsets_partition
from kafka_async.embedded.partition import NO_LEADER
from kafka_async.embedded.topics import OFFSETS_TOPIC
from kafka_async.embedded.transactions.entry import ProducerIdAndEpoch, TransactionEntry
from kafka_async.embedded.transactions.state import TransactionState
from kafka_async.types import TopicPartition

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable, Iterator

    from kafka_async.embedded.cluster import EmbeddedCluster

ADDS_PARTITIONS: Final = 12
"""The Produce version from which on writing to a partition adds it to the transaction (KIP-890)."""
KNOWS_ABORTABLE: Final = 11
"""The Produce version from which on clients understand TRANSACTION_ABORTABLE."""

_ENDING: Final = (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)


def offsets_of(group_id: str) -> TopicPartition:
    """The partition that a transaction lists when it commits a group's offsets."""
    return TopicPartition(OFFSETS_TOPIC, offsets_partition(group_id))


class TransactionCoordinator:
    """All transactional ids of the cluster."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        settings = cluster.settings
        self._cluster = cluster
        self._bumps = settings.transaction_version >= 2
        self._marker_delay = settings.transaction_marker_delay_ms / 1000
        self._load_time = settings.coordinator_load_time_ms / 1000
        self._entries: dict[str, TransactionEntry] = {}
        self._brokers: dict[str, int | None] = {}
        self._ready: dict[str, float] = {}
        self._time_outs: dict[str, asyncio.TimerHandle] = {}

    # -- placement -----------------------------------------------------------------------------

    def route(self, broker_id: int, transactional_id: str) -> Code:
        """Whether this broker may answer for this transactional id now."""
        if not transactional_id:
            return Code.INVALID_REQUEST
        if self._cluster.coordinator_for(transactional_id) != broker_id:
            return Code.NOT_COORDINATOR
        if self._cluster.loop.time() < self._ready.get(transactional_id, 0.0):
            return Code.COORDINATOR_LOAD_IN_PROGRESS
        return Code.NONE

    def placement_changed(self) -> None:
        """Brokers came or went: ids move, and markers that found no leader may find one."""
        ready = self._cluster.loop.time() + self._load_time
        for transactional_id, entry in self._entries.items():
            broker_id = self._cluster.coordinator_for(transactional_id)
            if broker_id != self._brokers[transactional_id]:
                self._brokers[transactional_id] = broker_id
                self._ready[transactional_id] = ready
            if entry.state in _ENDING:
                self._mark(entry)

    def close(self) -> None:
        """The cluster stops; its timers go with it."""
        self._time_outs.clear()

    # -- requests ------------------------------------------------------------------------------

    def initialize(
        self, transactional_id: str, timeout_ms: int, expected: ProducerIdAndEpoch | None
    ) -> tuple[Code, ProducerIdAndEpoch]:
        """InitProducerId with a transactional id."""
        if not 0 < timeout_ms <= self._cluster.settings.transaction_max_timeout_ms:
            return Code.INVALID_TRANSACTION_TIMEOUT, ProducerIdAndEpoch()
        entry = self.find(transactional_id) or self._create(transactional_id, timeout_ms)
        code = entry.initialize(expected, timeout_ms, self._now(), self._cluster.next_producer_id)
        if entry.state is TransactionState.PREPARE_EPOCH_FENCE:
            self._fence(entry)
        return code, entry.identity if code is Code.NONE else ProducerIdAndEpoch()

    def add(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Iterable[TopicPartition],
    ) -> Code:
        """Add partitions to a transaction."""
        entry = self.find(transactional_id)
        if entry is None:
            return Code.INVALID_PRODUCER_ID_MAPPING
        begins = entry.state is not TransactionState.ONGOING
        code = entry.add(producer, partitions, self._now())
        if begins and entry.state is TransactionState.ONGOING:
            self._time_outs[entry.id] = self._cluster.call_later(
                entry.timeout_ms / 1000, self._fence, entry
            )
        return code

    def verify(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partition: TopicPartition
    ) -> Code:
        """Whether a partition is in a transaction."""
        entry = self.find(transactional_id)
        if entry is None:
            return Code.INVALID_PRODUCER_ID_MAPPING
        return entry.verify(producer, partition)

    def end(
        self, transactional_id: str, producer: ProducerIdAndEpoch, *, commit: bool, bumps: bool
    ) -> tuple[Code, ProducerIdAndEpoch]:
        """EndTxn; the markers are written after the answer."""
        entry = self.find(transactional_id)
        if entry is None:
            return Code.INVALID_PRODUCER_ID_MAPPING, ProducerIdAndEpoch()
        resting = entry.state not in _ENDING
        code = entry.end(
            producer, self._now(), self._cluster.next_producer_id, commit=commit, bumps=bumps
        )
        if resting and entry.state in _ENDING:
            self._finish(entry)
        return code, entry.identity if code is Code.NONE else ProducerIdAndEpoch()

    # -- writes that belong to a transaction -----------------------------------------------------

    def check_produce(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partition: TopicPartition,
        version: int,
    ) -> Code:
        """Return the error code that refuses a transactional batch; NONE if it may be written.

        From Produce v12 on the partition is added to the transaction; before, it must be in it.
        """
        if not transactional_id:
            return Code.INVALID_REQUEST
        adds = version >= ADDS_PARTITIONS
        producer = ProducerIdAndEpoch(producer_id, producer_epoch)
        code = self.admit(
            transactional_id, producer, partition, adds=adds, abortable=version >= KNOWS_ABORTABLE
        )
        if code is Code.CONCURRENT_TRANSACTIONS and not adds:
            # Older clients would not ask again after the true reason.
            return Code.NOT_ENOUGH_REPLICAS
        return code

    def admit(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partition: TopicPartition,
        *,
        adds: bool,
        abortable: bool,
    ) -> Code:
        """Add or verify a partition that is about to be written to, as its leader asks (KIP-890).

        `abortable`: whether the client understands TRANSACTION_ABORTABLE.
        """
        if adds:
            code = self.add(transactional_id, producer, (partition,))
        else:
            code = self.verify(transactional_id, producer, partition)
        if code is Code.PRODUCER_FENCED:
            return Code.INVALID_PRODUCER_EPOCH
        if code is Code.TRANSACTION_ABORTABLE and not abortable:
            return Code.INVALID_TXN_STATE
        return code

    # -- transactional ids ---------------------------------------------------------------------

    def find(self, transactional_id: str) -> TransactionEntry | None:
        """A transactional id, None if there is no such, or if it has expired."""
        entry = self._entries.get(transactional_id)
        expiration = self._cluster.settings.transactional_id_expiration_ms
        if entry is not None and entry.expired(self._now(), expiration):
            del self._entries[transactional_id], self._brokers[transactional_id]
            self._ready.pop(transactional_id, None)
            return None
        return entry

    def at(self, broker_id: int) -> Iterator[TransactionEntry]:
        """The transactional ids that a broker coordinates."""
        for transactional_id in tuple(self._entries):
            entry = self.find(transactional_id)
            if entry is not None and self._cluster.coordinator_for(transactional_id) == broker_id:
                yield entry

    def _create(self, transactional_id: str, timeout_ms: int) -> TransactionEntry:
        entry = TransactionEntry(transactional_id, self._cluster.next_producer_id(), timeout_ms)
        self._entries[transactional_id] = entry
        self._brokers[transactional_id] = self._cluster.coordinator_for(transactional_id)
        return entry

    # -- ending --------------------------------------------------------------------------------

    def _fence(self, entry: TransactionEntry) -> None:
        """A time-out, or a producer that takes over: the transaction is aborted."""
        code = entry.fence(self._now(), self._cluster.next_producer_id, bumps=self._bumps)
        if code is Code.NONE:
            self._finish(entry)

    def _finish(self, entry: TransactionEntry) -> None:
        timer = self._time_outs.pop(entry.id, None)
        if timer is not None:
            timer.cancel()
        self._cluster.call_later(self._marker_delay, self._mark, entry)

    def _mark(self, entry: TransactionEntry) -> None:
        """Write the markers; those of partitions without a leader wait until there is one."""
        if entry.state not in _ENDING:
            return
        committed = entry.state is TransactionState.PREPARE_COMMIT
        for tp in sorted(entry.partitions):
            if self._mark_partition(entry, tp, committed=committed):
                entry.partitions.discard(tp)
        if not entry.partitions:
            entry.complete(self._now())

    def _mark_partition(
        self, entry: TransactionEntry, tp: TopicPartition, *, committed: bool
    ) -> bool:
        if tp.topic == OFFSETS_TOPIC:
            self._cluster.groups.offsets.end(entry.producer_id, tp.partition, committed=committed)
            return True
        partition = self._cluster.topics.partition(tp)
        if partition is not None and partition.leader == NO_LEADER:
            return False
        self._cluster.write_txn_marker(
            tp,
            "commit" if committed else "abort",
            producer_id=entry.producer_id,
            producer_epoch=entry.epoch,
        )
        return True

    def _now(self) -> int:
        return self._cluster.now_ms()
