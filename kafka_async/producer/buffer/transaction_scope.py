"""The current transaction, as far as the records of a producer are part of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafka_async.producer.buffer.partition_queue import PartitionQueue
    from kafka_async.types import TopicPartition


class TransactionScope:
    """Decides what becomes of a transaction's batches; it has none in other producers.

    Attributes:
        is_transactional: True once a transaction has begun.
        abort_error: First error that allows only an abort. Nothing is sent or retried while it is
            set.
        aborting: True while the transaction is aborted: `flush` does not raise what fails then.
        written_count: Number of records that the last transaction has written.
    """

    __slots__ = (
        *("_add_partitions", "_translate_error", "_written_offsets"),
        *("abort_error", "aborting", "is_transactional", "written_count"),
    )

    def __init__(self) -> None:
        self.is_transactional = False
        self.abort_error: Exception | None = None
        self.aborting = False
        self.written_count = 0
        self._translate_error: Callable[[Exception], Exception] = _unchanged
        # None with transactions v2, where brokers add the partitions (KIP-890).
        self._add_partitions: Callable[[list[PartitionQueue]], None] | None = None
        self._written_offsets: dict[TopicPartition, tuple[int, int]] = {}

    def begin(
        self,
        translate_error: Callable[[Exception], Exception],
        add_partitions: Callable[[list[PartitionQueue]], None] | None,
    ) -> None:
        """Begin a transaction; see `Accumulator.begin_transaction`."""
        self.is_transactional = True
        self.written_count = 0
        self._written_offsets = {}
        self._translate_error = translate_error
        self._add_partitions = add_partitions

    # -- partitions -------------------------------------------------------------------------------

    @property
    def is_v2(self) -> bool:
        """True if brokers add partitions to the transaction themselves (KIP-890).

        Also True for a producer without transactions.
        """
        return self._add_partitions is None

    def add_partitions(self, queues: list[PartitionQueue]) -> None:
        """Have partitions added to the transaction."""
        if self._add_partitions is not None and queues:
            self._add_partitions(queues)

    # -- errors -----------------------------------------------------------------------------------

    def fail(self, error: Exception) -> bool:
        """Allow only an abort from now on; return False if an earlier error has done so.

        The first error is the cause: later ones may be its consequences.
        """
        if self.abort_error is not None:
            return False
        self.abort_error = error
        return True

    def begin_abort(self, error: Exception) -> Exception:
        """Abort; return the error of what is dropped."""
        self.aborting = True
        self.abort_error = self.abort_error or error
        return self.abort_error

    def end_abort(self) -> None:
        """Send and retry batches again."""
        self.abort_error = None
        self.aborting = False

    def translated(self, error: Exception) -> Exception:
        """Return the error that a caller of the transaction gets; `abort_error` is one already."""
        return error if error is self.abort_error else self._translate_error(error)

    # -- written records --------------------------------------------------------------------------

    def note_written(self, partition: TopicPartition, base_offset: int, count: int) -> None:
        """Count the records of an acknowledged batch, unless their offset is unknown (-1).

        The offset is unknown for a duplicate of a batch that was written before.
        """
        if not self.is_transactional or base_offset < 0:
            return
        first, last = base_offset, base_offset + count - 1
        before = self._written_offsets.get(partition, (first, last))
        self._written_offsets[partition] = (min(first, before[0]), max(last, before[1]))
        self.written_count += count

    @property
    def written_offsets(self) -> dict[TopicPartition, tuple[int, int]]:
        """First and last known offset that the last transaction has written, by partition."""
        return dict(self._written_offsets)


def _unchanged(error: Exception) -> Exception:
    return error
