"""Requests as data: scenarios, steps, and placeholders for values that only a run knows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

Fields: TypeAlias = dict[str, Any]

MAIN_BROKER: Final = 1
"""The default leader of topics and coordinator of groups."""
BROKERS: Final = 3


@dataclass(frozen=True)
class Name:
    """Stands for the name of a topic, group or transactional id of this scenario only.

    Attributes:
        kind: `topic`, `group` or `txn`.
        key: the scenario's own name for it.
        away: True if a broker other than `MAIN_BROKER` coordinates it.
    """

    kind: str
    key: str
    on_other_broker: bool = False


def topic(key: str = "t") -> Name:
    """Return the placeholder of a topic's name."""
    return Name("topic", key)


def group(key: str = "g", *, on_other_broker: bool = False) -> Name:
    """Return the placeholder of a group's id."""
    return Name("group", key, on_other_broker)


def txn(key: str = "x", *, on_other_broker: bool = False) -> Name:
    """Return the placeholder of a transactional id."""
    return Name("txn", key, on_other_broker)


@dataclass(frozen=True)
class TopicId:
    """Stands for the id of a topic of the scenario."""

    key: str = "t"


@dataclass(frozen=True)
class Reply:
    """Stands for a value of an earlier response: the step's label, then attributes and indexes."""

    label: str
    path: tuple[str | int, ...]
    plus: int = 0


def reply(label: str, *path: str | int, plus: int = 0) -> Reply:
    """Return the placeholder of a value of an earlier response."""
    return Reply(label, path, plus)


@dataclass(frozen=True)
class Batch:
    """Stands for the bytes of a record batch.

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
    """Stands for a concatenation of byte values."""

    parts: tuple[Any, ...]


@dataclass(frozen=True)
class Subscription:
    """Stands for a consumer's metadata, subscribed to a topic of the scenario."""

    key: str = "t"


@dataclass(frozen=True)
class SendRequest:
    """Sends a request.

    Attributes:
        api: name of the API.
        version: version of the request.
        fields: fields of the request; placeholders are resolved before sending.
        label: name by which `reply` and `AwaitResponse` refer to it.
        broker: id of the broker that gets it.
        connection: connections are opened per broker and name.
        later: do not wait for the response; an `AwaitResponse` step or the scenario's end does.
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
    broker: int = MAIN_BROKER
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
class AwaitResponse:
    """Waits for the response to a request sent with `later`."""

    label: str


@dataclass(frozen=True)
class CloseConnection:
    """Closes a connection."""

    connection: str
    broker: int = MAIN_BROKER


Step: TypeAlias = SendRequest | AwaitResponse | CloseConnection


@dataclass(frozen=True)
class Scenario:
    """Holds steps that run in order, with topics and names that no other scenario has.

    `topics` maps keys to settings: `partitions` (default 1), `leader` (default `MAIN_BROKER`),
    `replicas`, `configs`.
    """

    name: str
    steps: Sequence[Step]
    topics: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])

    @property
    def requests(self) -> list[SendRequest]:
        """The requests that count as cases."""
        return [step for step in self.steps if isinstance(step, SendRequest) and not step.setup]


TOPIC: Final[Mapping[str, Mapping[str, Any]]] = {"t": {}}
"""One topic, `t`, of one partition."""
