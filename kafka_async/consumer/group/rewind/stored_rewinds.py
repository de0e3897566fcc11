"""Rewinds partitions of a running group of the consumer protocol: `Consumer.rewind`.

A member that rewinds writes a request for each partition into the store (`rewind_store.py`), and
reads the store until the owners have replied. The members read the rows of their partitions
regularly. An owner applies a request in the membership task, so never during a revocation or
assignment. A reply that cannot be written is written after the next read.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import defaultdict
from typing import TYPE_CHECKING, Final

from kafka_async.consumer.group.rewind.rewind_store import RewindRow
from kafka_async.errors import (
    GroupIdNotFoundError,
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    RetriableError,
)
from kafka_async.group.consumer_group_heartbeat import REWINDING_MEMBER_PREFIX
from kafka_async.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from kafka_async.consumer.group.rewind.rewind_store import Reply, RewindStore
    from kafka_async.consumer.group.rewind.rewinds import Rewinds, Seek
    from kafka_async.consumer.subscription import Subscription
    from kafka_async.protocol.messages.consumer_group_describe import Assignment

    Offsets = dict[TopicPartition, int]

MAX_APPLIED: Final = 1000
"""Partitions whose replies are kept, in case one could not be written."""
logger = logging.getLogger("kafka_async.consumer")


class StoredRewinds:
    """Sends and applies rewinds of one member of a group of the consumer protocol.

    Args:
        store: The rewinds of the group.
        rewinds: Commits the offsets of a rewind.
        subscription: The partitions of this member.
        rejoin: Rebalances the group, for a reason.
        is_stable: Returns True while the member has its assignment and no rebalance is in progress.
        interval: Seconds between reads of the store; 0: only partitions of this member can be
            rewound, and only by it.
        wall: Returns the seconds since the epoch.
    """

    def __init__(
        self,
        store: RewindStore,
        rewinds: Rewinds,
        subscription: Subscription,
        rejoin: Callable[[str], None],
        is_stable: Callable[[], bool],
        interval: float,
        wall: Callable[[], float],
    ) -> None:
        # Passed in.
        self._store = store
        self._rewinds = rewinds
        self._subscription = subscription
        self._rejoin = rejoin
        self._is_stable = is_stable
        self._interval = interval
        self._wall = wall
        # Requests to apply: found in the store, or from this member itself.
        self._due = False
        self._own: dict[str, tuple[Offsets, asyncio.Future[Offsets]]] = {}
        # Replies, kept until they are certainly written.
        self._applied: dict[tuple[str, TopicPartition], Reply] = {}
        self._warned = ""

    # -- sending ----------------------------------------------------------------------------------

    async def rewind(self, offsets: Offsets, timeout: float) -> Offsets:
        """Rewind partitions, and return the offsets that their owners have committed."""
        request, expires_at = uuid.uuid4().hex, self._wall() + timeout
        found: Offsets = {}
        last_error: KafkaError | None = None
        checked = False
        try:
            # Ends when all owners have replied, with a refusal, or at the timeout. Partitions may
            # change their owner in between, so they are divided anew in each pass.
            async with asyncio.timeout(timeout):
                while missing := {p: offsets[p] for p in offsets.keys() - found.keys()}:
                    owned = self._subscription.owned
                    own = {p: offset for p, offset in missing.items() if p in owned}
                    others = {p: offset for p, offset in missing.items() if p not in owned}
                    try:
                        # Once per call, since describing the group is a request.
                        if others and not checked:
                            await self._check_members(others)
                            checked = True
                        if own:
                            found |= await self._rewind_own(request, own)
                        if others:
                            found |= await self._exchange(request, others, expires_at)
                    except RetriableError as error:
                        last_error = error
                    except GroupIdNotFoundError as error:
                        if self._is_stable():
                            raise
                        last_error = error  # this member has not joined yet
                    if len(found) < len(offsets):
                        await asyncio.sleep(self._interval or 1.0)
        except TimeoutError:
            missing = sorted(offsets.keys() - found.keys())
            raise KafkaTimeoutError(
                f"the owners of {', '.join(map(str, missing))} have not responded within "
                f"{timeout:g} s; they may rewind them yet"
            ) from last_error
        return {partition: found[partition] for partition in offsets}

    async def _check_members(self, partitions: Collection[TopicPartition]) -> None:
        """Raise IllegalStateError if a member applies no rewinds or a partition has no owner."""
        if not self._interval:
            raise IllegalStateError(
                f"{', '.join(map(str, sorted(partitions)))}: other members of a group of the "
                "consumer protocol apply a rewind only if all members were started with "
                "rewind_check_interval_ms, such as 1000"
            )
        group = await self._store.describe_group()
        others = sorted(
            member.member_id
            for member in group.members
            if not member.member_id.startswith(REWINDING_MEMBER_PREFIX)
        )
        if others:
            raise IllegalStateError(
                f"the rewind was refused: the members {', '.join(others)} do not apply rewinds: "
                "start them with rewind_check_interval_ms; if they are of another client, stop the "
                "group's members and alter its offsets instead"
            )
        assigned = frozenset[TopicPartition]().union(
            *(_partitions(m.assignment) | _partitions(m.target_assignment) for m in group.members)
        )
        missing = sorted(p for p in partitions if p not in assigned)
        # In other states the partition may still be about to be assigned.
        if missing and group.group_state == "Stable":
            raise IllegalStateError(
                "the rewind was refused: no member subscribes to " + ", ".join(map(str, missing))
            )

    async def _rewind_own(self, request: str, wanted: Offsets) -> Offsets:
        """Rewind partitions of this member in the membership task."""
        future: asyncio.Future[Offsets] = asyncio.get_running_loop().create_future()
        self._own[request] = wanted, future
        self._rejoin("the consumer rewinds its partitions")
        try:
            return await future
        finally:
            self._own.pop(request, None)

    async def _exchange(self, request: str, wanted: Offsets, expires_at: float) -> Offsets:
        """Return the replies so far; write the request where no other one is pending."""
        rows, now = await self._store.read(wanted), self._wall()
        found: Offsets = {}
        requests: dict[TopicPartition, RewindRow] = {}
        for partition, offset in wanted.items():
            row = rows.get(partition, RewindRow(offset))
            reply = row.replies.get(request)
            if isinstance(reply, str):
                raise IllegalStateError(f"the rewind was refused: {reply}")
            if reply is not None:
                found[partition] = reply
            # One request per partition at a time; this one is written in a later pass.
            elif not row.is_pending(now):
                requests[partition] = RewindRow(offset, request, expires_at, row.replies)
        if requests:
            await self._store.write(requests)
        return found

    # -- applying ---------------------------------------------------------------------------------

    async def run(self) -> None:
        """Read the store regularly, and have requests applied."""
        while True:
            await asyncio.sleep(self._interval)
            owned = self._subscription.owned
            # During a rebalance the owner may change.
            if not owned or not self._is_stable():
                continue
            try:
                rows = await self._store.read(owned)
            except KafkaError as error:
                self._warn(error)
                continue
            now = self._wall()
            if any(row.is_pending(now) for row in rows.values()):
                self._due = True
                # The rejoin runs `apply` in the membership task.
                self._rejoin("a member rewinds partitions")

    async def apply(self, owned: frozenset[TopicPartition], seek: Seek) -> None:
        """Apply requests for the partitions of this member; called by the membership task.

        See `Rewinds.on_message` for `seek`.
        """
        # A copy, since requests may come in while this waits.
        for request, (wanted, future) in list(self._own.items()):
            mine = {p: offset for p, offset in wanted.items() if p in owned}
            replies = await self._seek(mine, seek) if mine else {}
            self._own.pop(request, None)
            refusal = next((each for each in replies.values() if isinstance(each, str)), None)
            if future.done():
                continue
            if refusal is not None:
                future.set_exception(IllegalStateError(f"the rewind was refused: {refusal}"))
            else:
                future.set_result({p: int(offset) for p, offset in replies.items()})
        if self._due:
            self._due = False
            try:
                await self._apply_stored(owned, seek)
            except KafkaError as error:
                self._warn(error)

    async def _apply_stored(self, owned: frozenset[TopicPartition], seek: Seek) -> None:
        rows, now = await self._store.read(owned), self._wall()
        pending = {p: row for p, row in rows.items() if row.is_pending(now)}
        requests: defaultdict[str, Offsets] = defaultdict(dict)
        for partition, row in pending.items():
            # Applied before; only its reply was not written.
            if (row.request, partition) not in self._applied:
                requests[row.request][partition] = row.offset
        for request, wanted in requests.items():
            for partition, reply in (await self._seek(wanted, seek)).items():
                self._applied[request, partition] = reply
        if pending:
            await self._store.write(
                {
                    partition: row.replied(row.request, self._applied[row.request, partition])
                    for partition, row in pending.items()
                }
            )
        while len(self._applied) > MAX_APPLIED:
            del self._applied[next(iter(self._applied))]

    async def _seek(self, wanted: Offsets, seek: Seek) -> dict[TopicPartition, Reply]:
        try:
            actual = await seek(wanted, self._rewinds.commit_nearest)
        except KafkaError as error:
            logger.warning("rewinding %s: %s", ", ".join(map(str, wanted)), error)
            text = f"an owner could not rewind: {type(error).__name__}: {error}"
            return dict.fromkeys(wanted, text)
        logger.info("rewound by a member of the group: %s", actual)
        return dict(actual)

    def _warn(self, error: KafkaError) -> None:
        """Log a failed read or write of the store, unless the last one failed in the same way."""
        if self._warned != error.name:
            self._warned = error.name
            logger.warning("looking for rewinds of the group: %s", error)


def _partitions(assignment: Assignment | None) -> frozenset[TopicPartition]:
    return frozenset(
        TopicPartition(topic.topic_name, number)
        for topic in (() if assignment is None else assignment.topic_partitions)
        for number in topic.partitions
    )
