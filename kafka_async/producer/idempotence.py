"""Assigns the sequences by which a broker writes each batch once, in order (KIP-98, KIP-360).

This module imports no asyncio. A batch gets its sequence when it is sent for the first time: the
producer id and epoch, and the next base sequence of its partition. It keeps the sequence
for every retry, so that a broker recognizes a batch that it has already written.

If a batch with a sequence fails for good, the broker refuses the partition's next batch as out of
order. Only that refusal proves that the failed batch is not in the log: if it was written after
all, the next one is accepted. So a partition's sequence is restarted only when its oldest remaining
batch is refused. The epoch is bumped, and once the partition has nothing in flight, its remaining
batches get new sequences from 0 of the new epoch. Other partitions keep their sequences until all
of their batches are done.

A broker accepts any sequence from a producer id for which it has no state. So no batch follows the
first one of a partition before that is written: otherwise the first might be refused and the next
one written.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["BatchSequence", "PartitionSequence", "ProducerIdAndEpoch", "Sequencer"]

# Epochs are 16-bit and sequences 31-bit numbers in the protocol; sequences start again at 0.
_MAX_EPOCH = 2**15 - 1
_MASK = 2**31 - 1


class ProducerIdAndEpoch(NamedTuple):
    """A producer id and its epoch, as returned by a broker."""

    producer_id: int
    epoch: int


class BatchSequence(NamedTuple):
    """Producer id, epoch and base sequence of one batch."""

    id_and_epoch: ProducerIdAndEpoch
    base_sequence: int

    def after(self, count: int) -> BatchSequence:
        """Return the sequence of the batch that follows one of `count` records."""
        if self.base_sequence < 0:
            return self
        return self._replace(base_sequence=(self.base_sequence + count) & _MASK)


NO_SEQUENCE = BatchSequence(ProducerIdAndEpoch(-1, -1), -1)
"""Sequence of the batches of a producer without idempotence."""


class PartitionSequence:
    """Sequence numbers of one partition.

    Attributes:
        id_and_epoch: Producer id and epoch of its current sequence, None before the first batch.
        written_producer_id: Producer id of the batch that was acknowledged last, or -1.
        next_sequence: Base sequence of the next batch.
        needs_reset: The sequence is restarted once no batch of the partition is in flight.
    """

    __slots__ = ("id_and_epoch", "needs_reset", "next_sequence", "written_producer_id")

    def __init__(self) -> None:
        self.id_and_epoch: ProducerIdAndEpoch | None = None
        self.written_producer_id = -1
        self.next_sequence = 0
        self.needs_reset = False

    @property
    def validated_by_broker(self) -> bool:
        """True if the leader refuses batches out of order, or none was sent."""
        # A leader without state for the producer id accepts any sequence; see the module's
        # docstring.
        return (
            self.id_and_epoch is None or self.id_and_epoch.producer_id == self.written_producer_id
        )

    def note_written(self, written: BatchSequence) -> None:
        """Note that the leader has written a batch with this sequence."""
        self.written_producer_id = written.id_and_epoch.producer_id


class Sequencer:
    """Assigns sequences to the batches of one producer.

    Attributes:
        enabled: False for a producer without idempotence, whose batches get NO_SEQUENCE.
        id_and_epoch: Producer id and epoch for new sequences, None while there is none.
        lost_batch: A batch with the current id and epoch has failed for good.
        has_assigned: A sequence was assigned since the last transaction began.
    """

    def __init__(self, *, enabled: bool) -> None:
        self.enabled = enabled
        self.id_and_epoch: ProducerIdAndEpoch | None = None
        self.lost_batch = False
        self.has_assigned = False

    def begin_transaction(self) -> None:
        """Forget that sequences were assigned."""
        self.has_assigned = False

    def set_id_and_epoch(self, id_and_epoch: ProducerIdAndEpoch) -> None:
        """Use a producer id and epoch for new sequences; each partition follows when it can."""
        self.id_and_epoch = id_and_epoch
        self.lost_batch = False

    def forget_id_and_epoch(self) -> None:
        """Drop the producer id: the cluster that has assigned it is no longer used."""
        self.id_and_epoch = None
        self.lost_batch = False

    def assign_sequence(
        self, sequence: PartitionSequence, count: int, *, unresolved: bool
    ) -> BatchSequence:
        """Return the sequence of a partition's next batch, and advance `sequence` by its records.

        `unresolved` is True if earlier batches of the partition are in flight or to be retried.
        """
        if not self.enabled:
            return NO_SEQUENCE
        id_and_epoch = self.id_and_epoch
        self.has_assigned = True
        assert id_and_epoch is not None, "a producer id is required to send batches"
        # The earlier batches still use the old id and epoch, and would be fenced by a newer epoch.
        if sequence.id_and_epoch != id_and_epoch and not unresolved:
            sequence.id_and_epoch, sequence.next_sequence = id_and_epoch, 0
        assert sequence.id_and_epoch is not None
        assigned = BatchSequence(sequence.id_and_epoch, sequence.next_sequence)
        sequence.next_sequence = (sequence.next_sequence + count) & _MASK
        return assigned

    def note_lost(self, lost: BatchSequence | None) -> None:
        """Note that a batch with this sequence failed for good, which may leave a gap."""
        # Only a sequence of the current epoch leaves a gap; each new epoch starts from 0.
        if lost is not None and lost.id_and_epoch == self.id_and_epoch:
            self.lost_batch = True

    def bump_epoch(self, sequence: PartitionSequence) -> None:
        """Bump the epoch because the oldest batch of a partition was out of order.

        After the last epoch of a producer id, `id_and_epoch` becomes None and a new id is needed.
        """
        if sequence.needs_reset:
            # Several batches of the partition may be refused for the same gap.
            return
        sequence.needs_reset = True
        id_and_epoch = self.id_and_epoch
        if id_and_epoch is None or sequence.id_and_epoch != id_and_epoch:
            return  # already bumped for another partition
        # The last epoch is used up: a new producer id starts from epoch 0 (KIP-360).
        if id_and_epoch.epoch >= _MAX_EPOCH:
            self.id_and_epoch = None
        else:
            self.id_and_epoch = id_and_epoch._replace(epoch=id_and_epoch.epoch + 1)

    def reset(self, sequence: PartitionSequence) -> None:
        """Restart a sequence once no batch of its partition is in flight or has a sequence."""
        sequence.needs_reset = False
        sequence.id_and_epoch = None
