"""Options of consumers and share consumers."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from kafka_async.config.client import ClientConfig, ClientOptions
from kafka_async.config.hidden import hide_secrets
from kafka_async.config.membership import (
    LOOP_WATCHDOG,
    check_heartbeat_interval,
    check_instance_id,
)
from kafka_async.config.options import (
    DESERIALIZER,
    FLAG,
    MAX_INT32,
    MAX_INT64,
    NUMBER,
    OBJECTS,
    TEXT,
    WHOLE,
    configuration,
    option,
    split,
)
from kafka_async.config.spelling import option_error, spell

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from kafka_async.config.option_types import Deserializer

_JAVA_ASSIGNORS: Final = {
    "org.apache.kafka.clients.consumer.RangeAssignor": "range",
    "org.apache.kafka.clients.consumer.CooperativeStickyAssignor": "cooperative-sticky",
    "org.apache.kafka.clients.consumer.RoundRobinAssignor": "roundrobin",
    "org.apache.kafka.clients.consumer.StickyAssignor": "sticky",
}

_CLASSIC_OPTIONS: Final = {
    "session_timeout_ms": "the group has it, as consumer.session.timeout.ms",
    "heartbeat_interval_ms": "the group has it, as consumer.heartbeat.interval.ms",
    "partition_assignment_strategy": "the coordinator assigns, by {}",
}
"""Options of the classic protocol only, and what replaces each in the consumer protocol."""


BY_DURATION: Final = "by_duration:"
_DURATION: Final = re.compile(
    r"(?P<sign>[-+]?)P(?:(?P<days>[-+]?\d+)D)?"
    r"(?P<time>T(?:(?P<hours>[-+]?\d+)H)?(?:(?P<minutes>[-+]?\d+)M)?"
    r"(?:(?P<seconds>[-+]?\d+(?:[.,]\d{0,9})?)S)?)?",
    re.IGNORECASE | re.ASCII,
)
_DURATION_UNITS: Final = {"days": 86_400, "hours": 3_600, "minutes": 60, "seconds": 1}


def reset_duration(policy: str) -> float | None:
    """Return the seconds of a reset policy such as "by_duration:P1DT2H" (KIP-1106).

    None for another policy. Raises InvalidConfigurationError for a duration that Java's
    `Duration.parse` does not accept, or that is negative.
    """
    if not policy.startswith(BY_DURATION):
        return None
    found = _DURATION.fullmatch(policy.removeprefix(BY_DURATION))
    if found is None or found["time"] == "T" or not any(found.group(*_DURATION_UNITS)):
        raise option_error(
            "auto_offset_reset",
            " has no duration of the form PnDTnHnMn.nS, as in by_duration:PT1H or "
            "by_duration:P1DT12H",
            value=f"{policy!r:.100}",
        )
    total = sum(
        float((found[unit] or "0").replace(",", ".")) * length
        for unit, length in _DURATION_UNITS.items()
    )
    if found["sign"] == "-":
        total = -total
    if total < 0:
        raise option_error(
            "auto_offset_reset",
            " has a negative duration, and records of the future cannot be read",
            value=f"{policy!r:.100}",
        )
    return total


def _is_duration(policy: object) -> bool:
    return isinstance(policy, str) and reset_duration(policy) is not None


class ReaderOptions(ClientOptions, total=False):
    """Names the keyword arguments that consumers and share consumers have; see `ReaderConfig`."""

    group_id: str | None
    loop_watchdog: bool
    max_poll_interval_ms: int
    max_poll_records: int
    fetch_min_bytes: int
    fetch_max_wait_ms: int
    fetch_max_bytes: int
    key_deserializer: Deserializer | None
    value_deserializer: Deserializer | None


class ConsumerOptions(ReaderOptions, total=False):
    """Names the keyword arguments of a consumer; see `ConsumerConfig`."""

    group_instance_id: str | None
    group_protocol: Literal["classic", "consumer", "auto"]
    group_remote_assignor: str | None
    auto_offset_reset: str
    auto_offset_reset_new_partitions: Literal["earliest", "latest"]
    enable_auto_commit: bool
    auto_commit_interval_ms: float
    isolation_level: Literal["read_uncommitted", "read_committed"]
    session_timeout_ms: int
    heartbeat_interval_ms: int
    partition_assignment_strategy: Sequence[Any]
    interceptors: Sequence[Any]
    rebalance_min_interval_ms: int
    rewind_check_interval_ms: int
    rebalance_listener_timeout_ms: int
    max_partition_fetch_bytes: int
    fetch_buffer_memory: int
    allow_auto_create_topics: bool


class ShareConsumerOptions(ReaderOptions, total=False):
    """Names the keyword arguments of a share consumer; see `ShareConsumerConfig`."""

    share_acknowledgement_mode: Literal["implicit", "explicit"]
    share_acquire_mode: Literal["batch_optimized", "record_limit"]


@configuration()
class ReaderConfig(ClientConfig):
    """Holds the options that consumers and share consumers have."""

    group_id: str | None = option(
        TEXT, None, "Group to join; None: no group, no commits. A share consumer needs one."
    )
    loop_watchdog: bool = option(
        FLAG, False, LOOP_WATCHDOG, why="Java sends heartbeats from a thread, which nothing blocks"
    )
    max_poll_interval_ms: int = option(
        WHOLE,
        300_000,
        "Time without a poll after which the member leaves the group.",
        low=1,
        high=MAX_INT32,
    )
    max_poll_records: int = option(
        WHOLE, 500, "Maximum records that one poll returns.", low=1, high=MAX_INT32
    )
    fetch_min_bytes: int = option(
        WHOLE,
        1,
        "Minimum bytes a broker collects before it answers a fetch.",
        low=0,
        high=MAX_INT32,
    )
    fetch_max_wait_ms: int = option(
        WHOLE, 500, "Maximum time a broker waits for fetch_min_bytes.", low=0, high=MAX_INT32
    )
    fetch_max_bytes: int = option(
        WHOLE, 50 * 2**20, "Maximum bytes of a fetch response.", low=1, high=100 * 2**20
    )
    key_deserializer: Deserializer | None = option(
        DESERIALIZER,
        None,
        "Function of (bytes) or (topic, headers, bytes) that returns the key, or an object of "
        "kafka_async.serde.",
        why="a function in place of Java's class; without one, keys are bytes",
    )
    value_deserializer: Deserializer | None = option(
        DESERIALIZER,
        None,
        "Function of (bytes) or (topic, headers, bytes) that returns the value, or an object of "
        "kafka_async.serde.",
        why="a function in place of Java's class; without one, values are bytes",
    )

    def _check_together(self) -> None:
        super()._check_together()
        if self.group_id == "":
            raise option_error(
                "group_id",
                " is empty: name the group, or leave the option out for a consumer without a group",
            )


@configuration("consumer")
class ConsumerConfig(ReaderConfig):
    """Holds the options of a consumer; its arguments are like those of `ClientConfig`."""

    group_instance_id: str | None = option(TEXT, None, "Id of a static member (KIP-345).")
    group_protocol: str = option(
        TEXT,
        "classic",
        'Protocol of the group: with "consumer" the coordinator computes the assignment (KIP-848); '
        '"auto" takes "consumer" for a group without members or of that protocol, if the brokers '
        "have it and no option of the classic protocol only is given.",
        choices=("classic", "consumer", "auto"),
    )
    group_remote_assignor: str | None = option(
        TEXT,
        None,
        'Assignor of the coordinator ("uniform" or "range") with group_protocol="consumer"; None: '
        "the coordinator's default.",
    )
    auto_offset_reset: str = option(
        TEXT,
        "latest",
        "Position to start from without a committed offset, and after one that is out of range; "
        '"none" raises, and "by_duration:PT1H" starts at the records of the last hour (KIP-1106).',
        choices=("earliest", "latest", "none", "by_duration:PnDTnHnMn.nS"),
        check=_is_duration,
    )
    auto_offset_reset_new_partitions: str = option(
        TEXT,
        "earliest",
        "Position to start from in a partition that was added to a topic, if auto_offset_reset is "
        '"latest".',
        choices=("earliest", "latest"),
        java="latest",
        why="records written before the consumer discovers the partition are not skipped",
    )
    enable_auto_commit: bool = option(
        FLAG,
        True,
        "Commit the offsets of returned records periodically, and before partitions move.",
    )
    auto_commit_interval_ms: float = option(NUMBER, 5_000, "Time between automatic commits.", low=1)
    isolation_level: str = option(
        TEXT,
        "read_uncommitted",
        'With "read_committed", records of open and aborted transactions are not returned.',
        choices=("read_uncommitted", "read_committed"),
    )
    session_timeout_ms: int = option(
        WHOLE,
        45_000,
        "Time without heartbeats after which the coordinator removes the member.",
        low=1,
        high=MAX_INT32,
    )
    heartbeat_interval_ms: int = option(
        WHOLE, 3_000, "Time between heartbeats to the coordinator.", low=1, high=MAX_INT32
    )
    interceptors: tuple[Any, ...] = option(
        OBJECTS,
        (),
        "Objects of classes derived from kafka_async.consumer.interceptors.ConsumerInterceptor, "
        "which change or drop records and learn which offsets were committed (KIP-42).",
        why="objects in place of Java's interceptor.classes",
    )
    partition_assignment_strategy: tuple[Any, ...] = option(
        OBJECTS,
        ("range", "cooperative-sticky"),
        "Assignors, the preferred first: names, classes or objects.",
    )
    rebalance_min_interval_ms: int = option(
        WHOLE,
        0,
        "Minimum time between a rebalance and one that the leader starts for changed topics.",
        low=0,
        high=MAX_INT32,
    )
    rewind_check_interval_ms: int = option(
        WHOLE,
        0,
        "Interval at which a member of the consumer protocol checks whether another member rewinds "
        'its partitions; 0: it does not check. Refused with group_protocol="classic", which '
        "needs no such interval.",
        low=0,
        high=MAX_INT32,
        why="it costs one more request to a coordinator for each interval and member",
    )
    rebalance_listener_timeout_ms: int = option(
        WHOLE,
        60_000,
        "Maximum time for a callback of a rebalance listener; it is cancelled then, and the "
        "rebalance continues.",
        low=1,
        high=MAX_INT32,
        why="a callback that never ends would stop the consumer",
    )
    max_partition_fetch_bytes: int = option(
        WHOLE, 2**20, "Maximum bytes of one partition in a fetch response.", low=1, high=MAX_INT32
    )
    fetch_buffer_memory: int = option(
        WHOLE,
        64 * 2**20,
        "Bytes fetched and not returned yet at which fetching pauses.",
        low=1,
        high=MAX_INT64,
        why="Java's bound grows with the number of brokers",
    )
    allow_auto_create_topics: bool = option(
        FLAG, True, "Allow subscribing to create a topic, if the cluster allows it."
    )

    _classic_only_options: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self, servers: str | Sequence[str] = (), /, **options: Unpack[ConsumerOptions]
    ) -> None:
        servers, options = hide_secrets(servers), hide_secrets(options)
        self._set(servers, options)

    @classmethod
    def _read_java(cls, given: dict[str, object]) -> None:
        assignors = given.get("partition_assignment_strategy")
        if isinstance(assignors, str):
            given["partition_assignment_strategy"] = tuple(
                _JAVA_ASSIGNORS.get(name, name) for name in split(assignors)
            )

    def _check_together(self) -> None:
        super()._check_together()
        check_heartbeat_interval(self)
        check_instance_id(self)
        if self.group_instance_id is not None and self.group_id is None:
            raise option_error("group_instance_id", f" needs a {spell('group_id')}")
        if self.group_protocol == "classic" and self.group_remote_assignor is not None:
            raise option_error(
                "group_remote_assignor",
                f" needs {spell('group_protocol', 'consumer')}: members of the classic protocol "
                f"assign partitions themselves, by {spell('partition_assignment_strategy')}",
            )
        if self.group_protocol == "classic" and self.rewind_check_interval_ms:
            raise option_error(
                "rewind_check_interval_ms",
                f" needs {spell('group_protocol', 'consumer', 'auto')}: members of the classic "
                "protocol learn of rewinds without it",
            )

    @property
    def classic_only_options(self) -> tuple[str, ...]:
        """Names of the options given that only members of the classic group protocol have."""
        return self._classic_only_options

    def _check_given(self, given: Collection[str]) -> None:
        classic_only = tuple(name for name in _CLASSIC_OPTIONS if name in given)
        object.__setattr__(self, "_classic_only_options", classic_only)
        if not classic_only or self.group_protocol == "classic":
            return
        name = classic_only[0]
        if self.group_protocol == "consumer":
            replacement = _CLASSIC_OPTIONS[name].format(spell("group_remote_assignor"))
            raise option_error(
                name, f" is not for {spell('group_protocol', 'consumer')}: {replacement}"
            )
        if self.group_remote_assignor is not None:
            raise option_error(
                name,
                f" and {spell('group_remote_assignor')} exclude each other: the first is for the "
                "classic group protocol only, the second for "
                f"{spell('group_protocol', 'consumer')} only",
            )


@configuration("share consumer")
class ShareConsumerConfig(ReaderConfig):
    """Holds the options of a share consumer; its arguments are like those of `ClientConfig`."""

    share_acknowledgement_mode: str = option(
        TEXT,
        "implicit",
        'With "implicit", the next poll accepts the records of the last one; with "explicit", the '
        "application acknowledges each record (KIP-932).",
        choices=("implicit", "explicit"),
    )
    share_acquire_mode: str = option(
        TEXT,
        "batch_optimized",
        'With "batch_optimized", brokers acquire whole batches, which may have more records than a '
        'poll returns; with "record_limit", never more than that (KIP-1206).',
        choices=("batch_optimized", "record_limit"),
    )

    def __init__(
        self, servers: str | Sequence[str] = (), /, **options: Unpack[ShareConsumerOptions]
    ) -> None:
        servers, options = hide_secrets(servers), hide_secrets(options)
        self._set(servers, options)
