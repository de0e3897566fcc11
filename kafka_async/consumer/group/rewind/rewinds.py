"""Rewinds partitions of a running group: `Consumer.rewind`, its requests and replies.

Holds the requests that this member has sent and the replies that it owes. Both are repeated in each
JoinGroup until they have arrived, so a failed rebalance only delays them.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from typing import TYPE_CHECKING, Final

from kafka_async.consumer.group.rewind.rewind_messages import RewindMessage
from kafka_async.consumer.offsets import EARLIEST, LATEST
from kafka_async.errors import (
    CommitFailedError,
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    RebalanceInProgressError,
)
from kafka_async.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection

    from kafka_async.consumer.positions.offset_lookup import OffsetLookup

    Offsets = dict[TopicPartition, int]
    Seek = Callable[[Offsets, Callable[[Offsets], Awaitable[Offsets]]], Awaitable[Offsets]]

MAX_APPLIED_REQUESTS: Final = 100
"""Requests whose replies are kept, in case a member repeats them."""
logger = logging.getLogger("kafka_async.consumer")


class Rewinds:
    """Sends and applies rewinds of one member.

    Args:
        lookup: Finds the ends of the logs.
        commit: Commits for the group, without waiting for a rebalance.
        rejoin: Rebalances the group, for a reason.
        timeout: Seconds for which an owner looks up offsets.
    """

    def __init__(
        self,
        lookup: OffsetLookup,
        commit: Callable[[dict[TopicPartition, OffsetAndMetadata]], Awaitable[None]],
        rejoin: Callable[[str], None],
        timeout: float,
    ) -> None:
        # Passed in.
        self._lookup = lookup
        self._commit = commit
        self._rejoin = rejoin
        self._timeout = timeout
        # Requests of this member, by name: those that wait, those in the last JoinGroup, and
        # replies to them.
        self._requests: dict[str, tuple[Offsets, asyncio.Future[Offsets]]] = {}
        self._sent = frozenset[str]()
        self._found: dict[str, Offsets] = {}  # replies to the requests of this member
        # Requests that this member has applied, by name, and what it has to send for them.
        self._applied: dict[str, Offsets] = {}
        self._outgoing = RewindMessage()  # replies and refusals for other members

    async def rewind(self, offsets: Offsets, timeout: float) -> Offsets:
        """Rewind partitions, and return the offsets that their owners have committed."""
        name = uuid.uuid4().hex
        future: asyncio.Future[Offsets] = asyncio.get_running_loop().create_future()
        self._requests[name] = offsets, future
        self._rejoin("a member rewinds partitions")
        try:
            async with asyncio.timeout(timeout):
                return await future
        except TimeoutError:
            # Owners that have replied by now are not named.
            missing = sorted(offsets.keys() - self._found.get(name, {}).keys())
            raise KafkaTimeoutError(
                f"the owners of {', '.join(map(str, missing))} have not responded within "
                f"{timeout:g} s; they may rewind them yet"
            ) from None
        finally:
            del self._requests[name]
            self._found.pop(name, None)

    async def rewind_at_once(self, offsets: Offsets, timeout: float, seek: Seek) -> Offsets | None:
        """Rewind partitions of this member; return None if a rebalance has begun."""
        try:
            async with asyncio.timeout(timeout):
                return await seek(offsets, self.commit_nearest)
        # The new owner may be another member, so the request goes through the group.
        except (RebalanceInProgressError, CommitFailedError):
            return None
        except TimeoutError as error:
            raise KafkaTimeoutError(f"the rewind was not committed within {timeout:g} s") from error
        except KafkaError as error:
            raise IllegalStateError(
                f"the rewind was refused: {type(error).__name__}: {error}"
            ) from error

    def outgoing(self) -> bytes:
        """Return the requests and replies to send with the next JoinGroup."""
        # If the leader cannot pass them on, exactly these requests are refused.
        self._sent = frozenset(self._requests)
        requests = {name: offsets for name, (offsets, _) in self._requests.items()}
        outgoing = self._outgoing
        return RewindMessage(requests, outgoing.replies, outgoing.refusals).encode()

    async def on_message(
        self,
        data: bytes | None,
        assigned: Collection[TopicPartition],
        seek: Seek,
    ) -> None:
        """Apply a message from the leader, or None if the leader sends no such messages.

        `seek` calls the given function to commit while the consumer returns no records, then seeks
        to the offsets that this function returns.
        """
        if data is None:
            self._refuse_all("the leader of the group is a member of another client")
            return
        message = RewindMessage.decode(data)
        # First, so that replies that have arrived are not sent again.
        self._forget_sent(message)
        for name, wanted in message.requests.items():
            if name in message.refusals:  # repeated until the member has the refusal
                continue
            # A reply may come from a former owner.
            applied = self._applied.get(name, {}).keys() | message.replies.get(name, {}).keys()
            mine = {p: wanted[p] for p in wanted if p in assigned and p not in applied}
            if mine:
                await self._apply(name, mine, seek)
        self._complete(message)
        # Replies travel with the next JoinGroup.
        if self._outgoing:
            self._rejoin("a member has rewound partitions")

    async def _apply(
        self,
        name: str,
        wanted: Offsets,
        seek: Seek,
    ) -> None:
        try:
            # Refused requests are reported, not raised: the rebalance itself has succeeded.
            actual = await seek(wanted, self.commit_nearest)
        except KafkaError as error:
            logger.warning("rewinding %s: %s", ", ".join(map(str, wanted)), error)
            refusal = f"an owner could not rewind: {type(error).__name__}: {error}"
            self._outgoing.refusals[name] = refusal
            return
        logger.info("rewound by a member of the group: %s", actual)
        self._applied.setdefault(name, {}).update(actual)
        while len(self._applied) > MAX_APPLIED_REQUESTS:
            del self._applied[next(iter(self._applied))]
        if name in self._requests:
            self._found.setdefault(name, {}).update(actual)
        else:
            self._outgoing.replies.setdefault(name, {}).update(actual)

    async def commit_nearest(self, wanted: Offsets) -> Offsets:
        """Commit the offsets, or the nearest ones that the logs have."""
        # The end depends on isolation_level (KIP-98).
        first = await self._lookup.find_offsets(dict.fromkeys(wanted, EARLIEST), self._timeout)
        end = await self._lookup.find_offsets(dict.fromkeys(wanted, LATEST), self._timeout)
        actual = {p: min(max(wanted[p], first[p].offset), end[p].offset) for p in wanted}
        await self._commit({p: OffsetAndMetadata(offset) for p, offset in actual.items()})
        return actual

    def _forget_sent(self, message: RewindMessage) -> None:
        """Stop sending the replies that the leader has passed on."""
        for name, offsets in list(self._outgoing.replies.items()):
            if offsets.items() <= message.replies.get(name, {}).items():
                del self._outgoing.replies[name]
        for name in message.refusals:
            self._outgoing.refusals.pop(name, None)

    def _complete(self, message: RewindMessage) -> None:
        for name, (wanted, future) in self._requests.items():
            found = self._found.setdefault(name, {})
            found.update(message.replies.get(name, {}))
            # A refusal by any owner ends the request.
            reason = message.refusals.get(name) or self._outgoing.refusals.pop(name, None)
            if future.done():
                continue
            if reason is not None:
                future.set_exception(IllegalStateError(f"the rewind was refused: {reason}"))
            elif found.keys() >= wanted.keys():
                future.set_result({p: found[p] for p in wanted})

    def _refuse_all(self, reason: str) -> None:
        self._complete(RewindMessage(refusals=dict.fromkeys(self._sent, reason)))
