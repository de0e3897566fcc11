"""The transaction coordinator: transactional ids, their timeouts, transaction markers.

The state belongs to the cluster, as if on disk; `Brokers.coordinator_for` selects the broker that
coordinates a transactional id.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

from kafka_async.embedded.error_codes import ErrorCode
from kafka_async.embedded.state.partition import NO_LEADER
from kafka_async.embedded.state.topics import OFFSETS_TOPIC
from kafka_async.embedded.transactions.transaction_metadata import (
    ProducerIdAndEpoch,
    TransactionMetadata,
)
from kafka_async.embedded.transactions.transaction_state import TransactionState

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable, Iterator

    from kafka_async.embedded.scheduler import Scheduler
    from kafka_async.embedded.settings import Settings
    from kafka_async.embedded.state.brokers import Brokers
    from kafka_async.embedded.state.offset_metadata_manager import OffsetMetadataManager
    from kafka_async.embedded.state.topics import TopicTable
    from kafka_async.types import TopicPartition

IMPLICIT_ADD_MIN_VERSION: Final = 12
"""First Produce version that adds the partition to the transaction (KIP-890)."""
TRANSACTION_ABORTABLE_MIN_VERSION: Final = 11
"""First Produce version with TRANSACTION_ABORTABLE."""

_PREPARED: Final = (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)


def fencing_error_code(code: ErrorCode, supports_fenced: bool) -> ErrorCode:
    """Return INVALID_PRODUCER_EPOCH for PRODUCER_FENCED to clients before KIP-588."""
    fenced = code is ErrorCode.PRODUCER_FENCED and not supports_fenced
    return ErrorCode.INVALID_PRODUCER_EPOCH if fenced else code


class TransactionCoordinator:
    """Coordinates all transactional ids of the cluster."""

    def __init__(
        self,
        settings: Settings,
        brokers: Brokers,
        scheduler: Scheduler,
        topics: TopicTable,
        offsets: OffsetMetadataManager,
    ) -> None:
        self._settings = settings
        self._brokers = brokers
        self._scheduler = scheduler
        self._topics = topics
        self._offsets = offsets
        self._producer_ids = itertools.count(1000)
        self._bumps_epoch = settings.transaction_version >= 2
        self._marker_delay = settings.transaction_marker_delay_ms / 1000
        self._load_time = settings.coordinator_load_time_ms / 1000
        # By transactional id: its metadata, the broker that coordinated it last, the time at which
        # that broker has loaded it, and the timer of its transaction.
        self._transactions: dict[str, TransactionMetadata] = {}
        self._coordinators: dict[str, int | None] = {}
        self._loaded_at: dict[str, float] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}

    # -- coordinators -----------------------------------------------------------------------------

    def check_coordinator(self, broker_id: int, transactional_id: str) -> ErrorCode:
        """Return NONE if this broker coordinates the transactional id and has loaded it."""
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
        if self._brokers.coordinator_for(transactional_id) != broker_id:
            return ErrorCode.NOT_COORDINATOR
        if self._scheduler.now() < self._loaded_at.get(transactional_id, 0.0):
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return ErrorCode.NONE

    def on_brokers_changed(self) -> None:
        """Load the ids of changed coordinators, and write markers that waited for a leader."""
        ready = self._scheduler.now() + self._load_time
        for transactional_id, metadata in self._transactions.items():
            broker_id = self._brokers.coordinator_for(transactional_id)
            if broker_id != self._coordinators[transactional_id]:
                self._coordinators[transactional_id] = broker_id
                self._loaded_at[transactional_id] = ready
            if metadata.state in _PREPARED:
                self._write_markers(metadata)

    def close(self) -> None:
        """Drop the timers; the cluster cancels them."""
        self._timers.clear()

    def next_producer_id(self) -> int:
        """Allocate a producer id."""
        return next(self._producer_ids)

    # -- requests ---------------------------------------------------------------------------------

    def init_producer_id(
        self, transactional_id: str, timeout_ms: int, expected: ProducerIdAndEpoch | None
    ) -> tuple[ErrorCode, ProducerIdAndEpoch]:
        """Handle InitProducerId with a transactional id."""
        if not 0 < timeout_ms <= self._settings.transaction_max_timeout_ms:
            return ErrorCode.INVALID_TRANSACTION_TIMEOUT, ProducerIdAndEpoch()
        metadata = self.get(transactional_id) or self._create_transaction(
            transactional_id, timeout_ms
        )
        code = metadata.init_producer_id(
            expected, timeout_ms, self._scheduler.now_ms(), self.next_producer_id
        )
        if metadata.state is TransactionState.PREPARE_EPOCH_FENCE:
            self._abort_and_fence(metadata)
        return code, metadata.producer if code is ErrorCode.NONE else ProducerIdAndEpoch()

    def add(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Iterable[TopicPartition],
    ) -> ErrorCode:
        """Add partitions to a transaction; start its timeout if it begins."""
        metadata = self.get(transactional_id)
        if metadata is None:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        was_ongoing = metadata.state is TransactionState.ONGOING
        code = metadata.add(producer, partitions, self._scheduler.now_ms())
        if not was_ongoing and metadata.state is TransactionState.ONGOING:
            self._timers[metadata.id] = self._scheduler.call_later(
                metadata.timeout_ms / 1000, self._abort_and_fence, metadata
            )
        return code

    def verify(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partition: TopicPartition
    ) -> ErrorCode:
        """Return NONE if a partition is in a transaction."""
        metadata = self.get(transactional_id)
        if metadata is None:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        return metadata.verify(producer, partition)

    def end(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        *,
        commit: bool,
        bumps_epoch: bool,
    ) -> tuple[ErrorCode, ProducerIdAndEpoch]:
        """Handle EndTxn; the markers are written after the response."""
        metadata = self.get(transactional_id)
        if metadata is None:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING, ProducerIdAndEpoch()
        was_prepared = metadata.state in _PREPARED
        code = metadata.end(
            producer,
            self._scheduler.now_ms(),
            self.next_producer_id,
            commit=commit,
            bumps_epoch=bumps_epoch,
        )
        if not was_prepared and metadata.state in _PREPARED:
            self._schedule_markers(metadata)
        return code, metadata.producer if code is ErrorCode.NONE else ProducerIdAndEpoch()

    # -- transactional writes ---------------------------------------------------------------------

    def check_produce(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partition: TopicPartition,
        version: int,
    ) -> ErrorCode:
        """Return NONE if a transactional batch may be written.

        From Produce version 12 on this adds the partition to the transaction (KIP-890); with
        earlier versions it must have been added.
        """
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
        implicit_add = version >= IMPLICIT_ADD_MIN_VERSION
        producer = ProducerIdAndEpoch(producer_id, producer_epoch)
        code = self.add_or_verify_partition(
            transactional_id,
            producer,
            partition,
            implicit_add=implicit_add,
            supports_abortable=version >= TRANSACTION_ABORTABLE_MIN_VERSION,
        )
        if code is ErrorCode.CONCURRENT_TRANSACTIONS and not implicit_add:
            # Older clients do not retry CONCURRENT_TRANSACTIONS.
            return ErrorCode.NOT_ENOUGH_REPLICAS
        return code

    def add_or_verify_partition(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partition: TopicPartition,
        *,
        implicit_add: bool,
        supports_abortable: bool,
    ) -> ErrorCode:
        """Add or verify a partition before a write to it, on behalf of its leader (KIP-890).

        `supports_abortable` is True if the client supports TRANSACTION_ABORTABLE.
        """
        if implicit_add:
            code = self.add(transactional_id, producer, (partition,))
        else:
            code = self.verify(transactional_id, producer, partition)
        if code is ErrorCode.PRODUCER_FENCED:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if code is ErrorCode.TRANSACTION_ABORTABLE and not supports_abortable:
            return ErrorCode.INVALID_TXN_STATE
        return code

    # -- transactional ids ------------------------------------------------------------------------

    def get(self, transactional_id: str) -> TransactionMetadata | None:
        """Return a transactional id's metadata; None if it does not exist or has expired."""
        metadata = self._transactions.get(transactional_id)
        expiration = self._settings.transactional_id_expiration_ms
        if metadata is not None and metadata.expire(self._scheduler.now_ms(), expiration):
            del self._transactions[transactional_id], self._coordinators[transactional_id]
            self._loaded_at.pop(transactional_id, None)
            return None
        return metadata

    def coordinated_by(self, broker_id: int) -> Iterator[TransactionMetadata]:
        """Yield the transactional ids that a broker coordinates."""
        for transactional_id in tuple(self._transactions):
            metadata = self.get(transactional_id)
            if (
                metadata is not None
                and self._brokers.coordinator_for(transactional_id) == broker_id
            ):
                yield metadata

    def _create_transaction(self, transactional_id: str, timeout_ms: int) -> TransactionMetadata:
        metadata = TransactionMetadata(transactional_id, self.next_producer_id(), timeout_ms)
        self._transactions[transactional_id] = metadata
        self._coordinators[transactional_id] = self._brokers.coordinator_for(transactional_id)
        return metadata

    # -- markers ----------------------------------------------------------------------------------

    def _abort_and_fence(self, metadata: TransactionMetadata) -> None:
        """Abort a transaction after its time-out, or after a newer producer took over."""
        code = metadata.fence(
            self._scheduler.now_ms(), self.next_producer_id, bumps_epoch=self._bumps_epoch
        )
        if code is ErrorCode.NONE:
            self._schedule_markers(metadata)

    def _schedule_markers(self, metadata: TransactionMetadata) -> None:
        timer = self._timers.pop(metadata.id, None)
        if timer is not None:
            timer.cancel()
        self._scheduler.call_later(self._marker_delay, self._write_markers, metadata)

    def _write_markers(self, metadata: TransactionMetadata) -> None:
        """Write the markers; partitions without a leader get them later."""
        if metadata.state not in _PREPARED:
            return
        committed = metadata.state is TransactionState.PREPARE_COMMIT
        for tp in sorted(metadata.partitions):
            if self._write_marker(metadata, tp, committed=committed):
                metadata.partitions.discard(tp)
        if not metadata.partitions:
            metadata.complete(self._scheduler.now_ms())

    def _write_marker(
        self, metadata: TransactionMetadata, tp: TopicPartition, *, committed: bool
    ) -> bool:
        if tp.topic == OFFSETS_TOPIC:
            self._offsets.end_transaction(metadata.producer_id, tp, committed=committed)
            return True
        partition = self._topics.partition(tp)
        if partition is None:
            return True
        if partition.leader == NO_LEADER:
            return False
        partition.append_end_txn_marker(
            "commit" if committed else "abort",
            producer_id=metadata.producer_id,
            producer_epoch=metadata.epoch,
            now=self._scheduler.now_ms(),
        )
        return True
