"""Requests as data: scenarios, steps, and placeholders for values that only a run knows."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final, TypeAlias, overload

Fields: TypeAlias = dict[str, Any]
Topics: TypeAlias = Mapping[str, Mapping[str, Any]]

MAIN_BROKER: Final = 1
"""The default leader of topics and coordinator of groups."""
BROKERS: Final = 3


@dataclass(frozen=True)
class Name:
    """Stands for the name of a topic, group or transactional id of this scenario only.

    Attributes:
        kind: `topic`, `group` or `txn`.
        key: the scenario's own name for it.
        on_other_broker: True if a broker other than `MAIN_BROKER` coordinates it.
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


T: Final = topic()
GROUP: Final = group()
TXN: Final = txn()
"""The names of scenarios with one topic, group or transactional id."""
BY_NAME: Final[Fields] = {"name": T}


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
    """Stands for a consumer's metadata, subscribed to a topic of the scenario.

    Attributes:
        owned: partitions of the topic that the member reports; from version 1 on.
    """

    key: str = "t"
    owned: tuple[int, ...] = ()
    version: int = 0


@dataclass(frozen=True)
class Assignment:
    """Stands for the assignment of partitions of a topic of the scenario."""

    partitions: tuple[int, ...]
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
        connection: connections are opened per broker and name, and per client id.
        client_id: the client id of the connection; None is one without quotas.
        later: do not wait for the response; an `AwaitResponse` step or the scenario's end does.
        retry: error codes after which the request is sent again.
        until: send the request again until it gets this error code.
        passing: send the request again while its response contains this text.
        awaiting: send the request again until its response contains this text.
        own: keep only elements of the response that the scenario's own names identify.
        silent: no response is expected; its absence is checked with a request after it.
        setup: compared but not counted.
        cut: bytes removed from the end of the request.
    """

    api: str
    version: int
    fields: Fields = field(default_factory=dict[str, Any])
    label: str = ""
    broker: int = MAIN_BROKER
    connection: str = ""
    client_id: Name | None = None
    later: bool = False
    retry: tuple[int, ...] = ()
    until: int | None = None
    passing: str | None = None
    awaiting: str = ""
    own: bool = False
    silent: bool = False
    setup: bool = False
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
    topics: Topics

    @property
    def has_server_assignors(self) -> bool:
        """True if the coordinator of groups must know the topics when the scenario starts."""
        heartbeats = ("ConsumerGroupHeartbeat", "ShareGroupHeartbeat")
        return any(isinstance(step, SendRequest) and step.api in heartbeats for step in self.steps)


def scenario(name: str, topics: Topics, *steps: Step | Sequence[Step]) -> Scenario:
    """Return a scenario; a sequence of steps is one step after the other."""
    flat = [step for given in steps for step in (given if isinstance(given, Sequence) else [given])]
    return Scenario(name, flat, topics)


_OPTIONS: Final = {one.name for one in fields(SendRequest)} - {"api", "version", "fields"}


@overload
def send(api: str, versions: int, **given: Any) -> SendRequest: ...
@overload
def send(api: str, versions: Iterable[int], **given: Any) -> list[SendRequest]: ...
def send(api: str, versions: int | Iterable[int], **given: Any) -> SendRequest | list[SendRequest]:
    """Return the step that sends a request, or a step for each version.

    Args:
        api: name of the API.
        versions: one version or several.
        given: attributes of `SendRequest`, and fields of the request.
    """
    options = {name: given.pop(name) for name in _OPTIONS & given.keys()}
    if isinstance(versions, int):
        return SendRequest(api, versions, given, **options)
    return [SendRequest(api, version, given, **options) for version in versions]


class Request:
    """Builds the steps of one API, whose fields a function returns.

    A step's arguments are the versions, the function's arguments, and those of `send`, whose fields
    replace the function's.
    """

    def __init__(self, api: str, fields: Callable[..., Fields]) -> None:
        self.api = api
        self.fields = fields
        self._parameters = inspect.signature(fields).parameters.keys()

    @overload
    def __call__(self, versions: int, *arguments: Any, **given: Any) -> SendRequest: ...
    @overload
    def __call__(
        self, versions: Iterable[int], *arguments: Any, **given: Any
    ) -> list[SendRequest]: ...
    def __call__(
        self, versions: int | Iterable[int], *arguments: Any, **given: Any
    ) -> SendRequest | list[SendRequest]:
        named = {name: given.pop(name) for name in self._parameters & given.keys()}
        return send(self.api, versions, **self.fields(*arguments, **named) | given)


def request(api: str) -> Callable[[Callable[..., Fields]], Request]:
    """Make a function that returns the fields of a request build the steps that send it."""
    return lambda fields: Request(api, fields)


TOPIC: Final[Topics] = {"t": {}}
"""One topic, `t`, of one partition."""
