"""The configurations of groups in Apache Kafka 4.4.0: types, ranges, defaults, values. Pure.

The embedded cluster applies the configurations of share groups and consumer groups. The
configurations of streams groups and dead-letter queues are stored and described, without effect.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from kafka_async.embedded.groups.share_partition import SharePartitionConfig
from kafka_async.embedded.state.configs import (
    BROKER_CONFIGS,
    ConfigSource,
    ConfigType,
    Synonym,
    broker_synonyms,
    parse_value,
)
from kafka_async.errors import InvalidConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafka_async.embedded.settings import Settings

EARLIEST, LATEST = "earliest", "latest"
READ_COMMITTED: Final = "read_committed"
_BY_DURATION: Final = re.compile(
    r"by_duration:P(?:(\d+)D)?(?:T(?=\d)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d{1,9})?)S)?)?",
    re.IGNORECASE,
)
_UNITS: Final = (86_400, 3_600, 60, 1)
_NO_LIMIT: Final = 2**31 - 1


class GroupConfig(NamedTuple):
    """Describes a configuration of groups.

    The default is the broker's value of `broker_name`, or else `default`. Minimum and maximum are
    numbers or names of settings. Internal configurations are described only if set.
    """

    type: ConfigType
    default: str
    broker_name: str | None = None
    low: int | str = 0
    high: int = _NO_LIMIT
    internal: bool = False


def _int(broker_name: str, default: int, low: int | str, high: int, **more: bool) -> GroupConfig:
    return GroupConfig(ConfigType.INT, str(default), broker_name, low, high, **more)


def _protocol(
    kind: str, low_session: int | str, low_heartbeat: int | str
) -> dict[str, GroupConfig]:
    """Return the configurations common to consumer, share and streams groups."""
    return {
        f"{kind}.session.timeout.ms": _int(
            f"group.{kind}.session.timeout.ms", 45_000, low_session, 60_000
        ),
        f"{kind}.heartbeat.interval.ms": _int(
            f"group.{kind}.heartbeat.interval.ms", 5_000, low_heartbeat, 15_000
        ),
        f"{kind}.assignment.interval.ms": _int(
            f"group.{kind}.assignment.interval.ms", 1_000, 0, 15_000
        ),
        f"{kind}.assignor.offload.enable": GroupConfig(
            ConfigType.BOOLEAN, "true", f"group.{kind}.assignor.offload.enable", internal=True
        ),
    }


GROUP_CONFIGS: Final[Mapping[str, GroupConfig]] = {
    **_protocol(
        "consumer",
        "group_consumer_min_session_timeout_ms",
        "group_consumer_min_heartbeat_interval_ms",
    ),
    **_protocol(
        "share", "group_share_min_session_timeout_ms", "group_share_min_heartbeat_interval_ms"
    ),
    "share.record.lock.duration.ms": _int(
        "group.share.record.lock.duration.ms",
        30_000,
        "group_share_min_record_lock_duration_ms",
        60_000,
    ),
    "share.delivery.count.limit": _int("group.share.delivery.count.limit", 5, 2, 10),
    "share.partition.max.record.locks": _int(
        "group.share.partition.max.record.locks", 2_000, 100, 4_000
    ),
    "share.auto.offset.reset": GroupConfig(ConfigType.STRING, LATEST),
    "share.isolation.level": GroupConfig(ConfigType.STRING, "read_uncommitted"),
    "share.renew.acknowledge.enable": GroupConfig(ConfigType.BOOLEAN, "true"),
    **_protocol("streams", 45_000, 5_000),
    "streams.num.standby.replicas": _int("group.streams.num.standby.replicas", 0, 0, 2),
    "streams.initial.rebalance.delay.ms": _int(
        "group.streams.initial.rebalance.delay.ms", 3_000, 0, _NO_LIMIT
    ),
    "streams.task.offset.interval.ms": _int(
        "group.streams.task.offset.interval.ms", 60_000, 15_000, _NO_LIMIT, internal=True
    ),
    "streams.num.warmup.replicas": _int(
        "group.streams.num.warmup.replicas", 2, 0, 20, internal=True
    ),
    "streams.acceptable.recovery.lag": GroupConfig(
        ConfigType.LONG, "10000", "group.streams.acceptable.recovery.lag", internal=True
    ),
    "streams.rack.aware.assignment.tags": GroupConfig(
        ConfigType.LIST, "", "group.streams.rack.aware.assignment.tags"
    ),
    "streams.assignor.name": GroupConfig(ConfigType.STRING, "sticky", "group.streams.assignors"),
    "errors.deadletterqueue.topic.name": GroupConfig(ConfigType.STRING, ""),
    "errors.deadletterqueue.copy.record.enable": GroupConfig(ConfigType.BOOLEAN, "false"),
}
"""All configurations of groups."""

_CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    "share.isolation.level": ("read_uncommitted", READ_COMMITTED),
    "streams.assignor.name": ("sticky",),
}
_PROTOCOLS: Final = ("consumer", "share", "streams")


def duration_of(strategy: str) -> float | None:
    """Return the seconds of `by_duration:PnDTnHnMn.nS`, or None for other text."""
    match = _BY_DURATION.fullmatch(strategy)
    if match is None or not any(match.groups()):
        return None
    return sum(
        float(number) * unit for number, unit in zip(match.groups(), _UNITS, strict=True) if number
    )


class GroupConfigs:
    """Holds the configurations of all groups; a group does not have to exist."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._configs: dict[str, dict[str, str]] = {}

    # -- changes and descriptions -----------------------------------------------------------------

    def of(self, group_id: str) -> Mapping[str, str]:
        """Return the configurations that were set for a group."""
        return self._configs.get(group_id, {})

    def configure(self, group_id: str, configs: Mapping[str, str]) -> None:
        """Replace the configurations of a group after `check`."""
        self._configs[group_id] = dict(configs)

    def check(self, configs: Mapping[str, str]) -> None:
        """Raise InvalidConfigError unless a group may have these configurations."""
        for name in configs:
            if name not in GROUP_CONFIGS:
                raise InvalidConfigError(f"Unknown group config name: {name}")
        for name, text in configs.items():
            self._check_value(name, text)
        for kind in _PROTOCOLS:
            session, heartbeat = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
            given = session in configs or heartbeat in configs
            if given and self._number(configs, session) <= self._number(configs, heartbeat):
                raise InvalidConfigError(f"{session} must be greater than {heartbeat}")

    def synonyms(self, group_id: str, name: str) -> list[Synonym]:
        """Return the sources of a configuration's value, the effective one first."""
        return self._synonyms(self.of(group_id), name)

    def _synonyms(self, configs: Mapping[str, str], name: str) -> list[Synonym]:
        config, found = GROUP_CONFIGS[name], list[Synonym]()
        if name in configs:
            found.append(Synonym(name, configs[name], ConfigSource.GROUP))
        if config.broker_name in BROKER_CONFIGS:
            return [*found, *broker_synonyms(self._settings, config.broker_name)]
        default = Synonym(config.broker_name or name, config.default, ConfigSource.DEFAULT)
        return [*found, default]

    def _check_value(self, name: str, text: str) -> None:
        config = GROUP_CONFIGS[name]
        value = parse_value(name, config.type, text.strip())
        low = config.low
        if isinstance(low, str):
            low = int(getattr(self._settings, low))
        if config.type in (ConfigType.INT, ConfigType.LONG) and not low <= value <= max(
            config.high, low
        ):
            raise InvalidConfigError(
                f"{name} must be in the range {low} to {config.high} inclusive."
            )
        choices = _CHOICES.get(name)
        if choices is not None and value not in choices:
            raise InvalidConfigError(f"{name} must be one of: {', '.join(choices)}")
        is_reset = name == "share.auto.offset.reset" and value not in (EARLIEST, LATEST)
        if is_reset and duration_of(value) is None:
            raise InvalidConfigError(
                f"Invalid value `{value}` for configuration {name}. The value must be either "
                "'earliest', 'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'."
            )
        if config.type is ConfigType.LIST and len(value) < len(text.split(",")):
            raise InvalidConfigError(f"{name} must not contain duplicate tag keys.")
        if name == "errors.deadletterqueue.topic.name" and value.startswith("__"):
            raise InvalidConfigError(f"{name}: DLQ topic name must not start with '__'")

    # -- values -----------------------------------------------------------------------------------

    def _number(self, configs: Mapping[str, str], name: str) -> int:
        return int(self._synonyms(configs, name)[0].value)

    def _value(self, group_id: str, name: str) -> str:
        return self.synonyms(group_id, name)[0].value

    def milliseconds(self, group_id: str, name: str) -> int:
        """Return a group's time in milliseconds, or number."""
        return int(self._value(group_id, name))

    def seconds(self, group_id: str, name: str) -> float:
        """Return a group's time in seconds."""
        return self.milliseconds(group_id, name) / 1000

    def reads_committed(self, group_id: str) -> bool:
        """Return True if a share group only gets records of committed transactions."""
        return self._value(group_id, "share.isolation.level") == READ_COMMITTED

    def auto_offset_reset(self, group_id: str) -> str | float:
        """Return EARLIEST, LATEST, or the age in seconds of the first record of a share group."""
        strategy = self._value(group_id, "share.auto.offset.reset")
        duration = duration_of(strategy)
        return strategy if duration is None else duration

    def share_partition(self, group_id: str) -> SharePartitionConfig:
        """Return the configurations of a group's share partitions."""
        return SharePartitionConfig(
            self.seconds(group_id, "share.record.lock.duration.ms"),
            self.milliseconds(group_id, "share.delivery.count.limit"),
            self.milliseconds(group_id, "share.partition.max.record.locks"),
            self._value(group_id, "share.renew.acknowledge.enable").lower() == "true",
        )
