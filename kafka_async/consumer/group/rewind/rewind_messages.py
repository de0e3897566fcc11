"""Messages with which members of a group rewind partitions that others own. Pure.

A member that rewinds puts a request into the user data of its subscription, and rejoins. The leader
passes all requests and replies on in the assignments. The owners of the partitions commit and seek,
put replies into their subscriptions, and rejoin, so that the leader passes these on.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kafka_async.errors import DecodeError
from kafka_async.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kafka_async.group.assignors.abc import MemberSubscription, TopicPartitions

Offsets = dict[TopicPartition, int]


@dataclass(slots=True)
class RewindMessage:
    """Content that a member sends to the leader, or the leader to all members, by request id.

    Attributes:
        requests: The offsets to rewind to.
        replies: The offsets that owners have committed.
        refusals: Reasons of refused requests.
    """

    requests: dict[str, Offsets] = field(default_factory=dict[str, Offsets])
    replies: dict[str, Offsets] = field(default_factory=dict[str, Offsets])
    refusals: dict[str, str] = field(default_factory=dict[str, str])

    def __bool__(self) -> bool:
        return bool(self.requests or self.replies or self.refusals)

    def encode(self) -> bytes:
        """Encode the message; an empty one as no bytes."""
        if not self:
            return b""
        content = {
            "requests": {name: _rows(offsets) for name, offsets in self.requests.items()},
            "replies": {name: _rows(offsets) for name, offsets in self.replies.items()},
            "refusals": self.refusals,
        }
        return json.dumps(content, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes) -> RewindMessage:
        """Decode a message. Raises DecodeError."""
        if not data:
            return cls()
        try:
            content: Any = json.loads(data)
            return cls(
                {str(name): _offsets(rows) for name, rows in content["requests"].items()},
                {str(name): _offsets(rows) for name, rows in content["replies"].items()},
                {str(name): str(text) for name, text in content["refusals"].items()},
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DecodeError(f"a rewind of the group cannot be read: {error!r}") from error


def merge_rewinds(
    topics: TopicPartitions, members: Mapping[str, MemberSubscription]
) -> RewindMessage:
    """Return the message for all members; requests that cannot succeed are refused."""
    merged = RewindMessage()
    for member in members.values():
        message = RewindMessage.decode(member.rewinds)
        merged.requests |= message.requests
        merged.refusals |= message.refusals
        # Owners reply one by one, so replies are merged by partition.
        for name, offsets in message.replies.items():
            merged.replies.setdefault(name, {}).update(offsets)
    for name, offsets in list(merged.requests.items()):
        reason = _refusal(offsets, topics, members)
        if reason is not None:
            del merged.requests[name]
            merged.refusals[name] = reason
    return merged


def _refusal(
    offsets: Iterable[TopicPartition],
    topics: TopicPartitions,
    members: Mapping[str, MemberSubscription],
) -> str | None:
    others = sorted(name for name, member in members.items() if not member.reads_errors)
    if others:
        return (
            f"the members {', '.join(others)} do not read rewinds, as members of other clients do "
            "not; stop the group's members and alter its offsets instead"
        )
    missing = sorted(p for p in offsets if p.partition >= topics.get(p.topic, 0))
    if missing:
        return f"no member subscribes to {', '.join(map(str, missing))}"
    return None


def _rows(offsets: Offsets) -> list[tuple[str, int, int]]:
    return [(topic, partition, offset) for (topic, partition), offset in offsets.items()]


def _offsets(rows: Any) -> Offsets:
    return {TopicPartition(str(topic), int(number)): int(offset) for topic, number, offset in rows}
