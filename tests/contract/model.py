"""Requests as data: scenarios, steps, and placeholders for values that only a run knows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

Fields: TypeAlias = dict[str, Any]

HERE: Final = 1
"""The broker that leads every topic and coordinates every group of a scenario, unless told."""
BROKERS: Final = 3


@dataclass(frozen=True)
class Name:
    """Name of a topic, group or transactional id that no other scenario uses.

    Attributes:
        kind: `topic`, `group` or `txn`.
        key: the scenario's own name for it.
        away: another broker than `HERE` coordinates it.
    """

    kind: str
    key: str
    away: bool = False


def topic(key: str = "t") -> Name:
    """Return the placeholder of a topic's name."""
    return Name("topic", key)


def group(key: str = "g", *, away: bool = False) -> Name:
    """Return the placeholder of a group's id."""
    return Name("group", key, away)


def txn(key: str = "x", *, away: bool = False) -> Name:
    """Return the placeholder of a transactional id."""
    return Name("txn", key, away)


@dataclass(frozen=True)
class TopicId:
    """Id of a topic that the scenario created."""

    key: str = "t"


@dataclass(frozen=True)
class Reply:
    """A value of an earlier response: the step's label, then attributes and indexes."""

    label: str
    path: tuple[str | int, ...]
    plus: int = 0


def reply(label: str, *path: str | int, plus: int = 0) -> Reply:
    """Return the placeholder of a value of an earlier response."""
    return Reply(label, path, plus)


@dataclass(frozen=True)
class Batch:
    """Bytes of a record batch.

    Attributes:
        timestamp: milliseconds since the epoch; None is the time of the run.
        patches: bytes to overwrite, with their offsets.
        good_crc: the CRC covers the patches.
    """

    values: tuple[bytes, ...] = (b"v",)
    producer_id: int | Reply = -1
    epoch: int | Reply = -1
    sequence: int = -1
    transactional: bool = False
    timestamp: int | None = 1_000
    compression: str = "none"
    patches: tuple[tuple[int, bytes], ...] = ()
    good_crc: bool = True


@dataclass(frozen=True)
class Joined:
    """Concatenation of byte values."""

    parts: tuple[Any, ...]


@dataclass(frozen=True)
class Subscription:
    """A consumer's metadata, subscribed to a topic of the scenario."""

    key: str = "t"


@dataclass(frozen=True)
class Ask:
    """One request, and how its response is waited for.

    Attributes:
        api: name of the API.
        version: version of the request.
        fields: fields of the request; placeholders are resolved before sending.
        label: name by which `reply` and `Take` refer to it.
        broker: id of the broker that gets it.
        connection: connections are opened per broker and name.
        later: do not wait; a `Take` step or the scenario's end does.
        retry: error codes after which the request is sent again.
        until: send the request again until it gets this error code.
        passing: send the request again while its response contains this text.
        awaiting: send the request again until its response contains this text.
        own: keep only elements of the response that the scenario's own names identify.
        silent: no response is expected; its absence is checked with a request after it.
        setup: compared but not counted.
        tail: bytes appended to the request.
        cut: bytes removed from the end of the request.
    """

    api: str
    version: int
    fields: Fields = field(default_factory=dict[str, Any])
    label: str = ""
    broker: int = HERE
    connection: str = ""
    later: bool = False
    retry: tuple[int, ...] = ()
    until: int | None = None
    passing: str | None = None
    awaiting: str = ""
    own: bool = False
    silent: bool = False
    setup: bool = False
    tail: bytes = b""
    cut: int = 0


@dataclass(frozen=True)
class Take:
    """Wait for the response of a request that was sent with `later`."""

    label: str


@dataclass(frozen=True)
class Drop:
    """Close a connection."""

    connection: str
    broker: int = HERE


Step: TypeAlias = Ask | Take | Drop


@dataclass(frozen=True)
class Scenario:
    """Steps that run in order with topics and names that no other scenario has.

    `topics` maps keys to settings: `partitions` (default 1), `leader` (default `HERE`), `replicas`,
    `configs`.
    """

    name: str
    steps: Sequence[Step]
    topics: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])

    @property
    def requests(self) -> list[Ask]:
        """The requests that count as cases."""
        return [step for step in self.steps if isinstance(step, Ask) and not step.setup]


TOPIC: Final[Mapping[str, Mapping[str, Any]]] = {"t": {}}
"""One topic, `t`, of one partition."""
