"""Sequence numbers: what lets a broker write each batch once, and in order (KIP-98, KIP-360). Pure.

A partition's batches form a chain: each is stamped with the producer's id and epoch and with the
sequence that its first record continues, when it is sent for the first time, and keeps that stamp
for every retry, so that a broker recognises what it has written already.

A chain breaks when a batch of it fails for good after it was stamped: the broker then refuses the
next one as out of order. That refusal is also the only safe sign that the lost batch is not in the
log; if it was written after all, its successor is accepted and nothing is broken. So a chain is
mended only when the oldest batch that is left is refused: the epoch is bumped, and once nothing of
the partition is under way, what is left is stamped anew, from sequence 0 of the new epoch.
Other partitions keep their old stamps until nothing of theirs is unresolved.

Of a producer id that it does not know yet, a broker takes any sequence. So nothing follows a
partition's first batch until that is written: else it might be refused and what follows it not.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Chain", "ProducerIdentity", "Sequencer", "Stamp"]

_MAX_EPOCH = 2**15 - 1
_MASK = 2**31 - 1


class ProducerIdentity(NamedTuple):
    """A producer id and its epoch, as a broker gave them."""

    producer_id: int
    epoch: int


class Stamp(NamedTuple):
    """What a batch carries: who sent it, and the sequence of its first record."""

    identity: ProducerIdentity
    sequence: int

    def after(self, count: int) -> Stamp:
        """The stamp of the batch that follows one of `count` records."""
        if self.sequence < 0:
            return self
        return self._replace(sequence=(self.sequence + count) & _MASK)


NO_STAMP = Stamp(ProducerIdentity(-1, -1), -1)
"""What batches of a producer without idempotence carry."""


class Chain:
    """The sequence numbers of one partition; `known` is the last producer id that wrote to it."""

    __slots__ = ("broken", "identity", "known", "next")

    def __init__(self) -> None:
        self.identity: ProducerIdentity | None = None
        self.known = -1
        self.next = 0
        self.broken = False

    @property
    def checked(self) -> bool:
        """Whether the broker refuses what does not continue the chain, or there is no chain."""
        return self.identity is None or self.identity.producer_id == self.known


class Sequencer:
    """Stamps batches. `enabled` False: the producer is not idempotent and every stamp is empty.

    `torn` says that a batch with a stamp of this identity was lost, `used` that there was a stamp
    since somebody set it to False.
    """

    def __init__(self, *, enabled: bool) -> None:
        self.enabled = enabled
        self.identity: ProducerIdentity | None = None
        self.torn = False
        self.used = False

    @property
    def ready(self) -> bool:
        """Whether batches can be stamped."""
        return not self.enabled or self.identity is not None

    def adopt(self, identity: ProducerIdentity) -> None:
        """Stamp with this identity from now on; each chain starts over when it can."""
        self.identity = identity
        self.torn = False

    def stamp(self, chain: Chain, count: int, *, unresolved: bool) -> Stamp:
        """The stamp of the next batch, of `count` records.

        `unresolved`: batches of the chain are still on their way, or wait to be sent again.
        """
        if not self.enabled:
            return NO_STAMP
        identity = self.identity
        self.used = True
        assert identity is not None, "nothing is stamped before there is an identity"
        if chain.identity != identity and not unresolved:
            chain.identity, chain.next = identity, 0
        assert chain.identity is not None
        stamp = Stamp(chain.identity, chain.next)
        chain.next = (chain.next + count) & _MASK
        return stamp

    def tear(self, stamp: Stamp | None) -> None:
        """A batch of this stamp failed for good: its chain may have a hole now."""
        if stamp is not None and stamp.identity == self.identity:
            self.torn = True

    def break_chain(self, chain: Chain) -> None:
        """The oldest batch of a chain was refused as out of order: bump the epoch, start over.

        When the epochs of a producer id are used up, `identity` becomes None: ask for a new one.
        """
        if chain.broken:
            return
        chain.broken = True
        identity = self.identity
        if identity is None or chain.identity != identity:
            return  # bumped already, for another partition
        if identity.epoch >= _MAX_EPOCH:
            self.identity = None
        else:
            self.identity = identity._replace(epoch=identity.epoch + 1)

    def mend(self, chain: Chain) -> None:
        """Nothing of a broken chain is under way, and what is left has lost its stamps."""
        chain.broken = False
        chain.identity = None
