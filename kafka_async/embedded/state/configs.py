"""The configurations of topics and brokers in Apache Kafka 4.4.0: types, defaults, checks. Pure."""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from kafka_async.errors import InvalidConfigError

if TYPE_CHECKING:
    from kafka_async.embedded.settings import Settings

Check: TypeAlias = Callable[[Any], str | None]
"""Returns the reason for which a parsed value is not valid, else None."""


class ConfigType(enum.IntEnum):
    """Types of configurations, with their numbers in DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7


class ConfigSource(enum.IntEnum):
    """Sources of configurations, with their numbers in DescribeConfigs."""

    TOPIC = 1
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    GROUP = 8


class Synonym(NamedTuple):
    """A configuration that may provide the value of another, and its value."""

    name: str
    value: str
    source: ConfigSource


class TopicConfig(NamedTuple):
    """Describes a topic configuration; its default comes from the broker's `broker_name`."""

    type: ConfigType
    default: str
    broker_name: str | None
    check: Check | None = None


class BrokerConfig(NamedTuple):
    """Describes a broker configuration; `setting` is its attribute of `Settings`."""

    type: ConfigType
    default: str
    setting: str
    read_only: bool = True


def _at_least(low: int) -> Check:
    return lambda value: None if value >= low else f"Value must be at least {low}"


def _between(low: int, high: int) -> Check:
    def check(value: float) -> str | None:
        if value > high:
            return f"Value must be no more than {high}"
        return None if value >= low else f"Value must be at least {low}"

    return check


def _one_of(*choices: str) -> Check:
    message = f"String must be one of: {', '.join(choices)}"
    return lambda value: None if value in choices else message


def _gzip_level(level: int) -> str | None:
    return (
        None if level == -1 or 1 <= level <= 9 else "Value must be between 1 and 9 or equal to -1"
    )


_REPLICA: Final = re.compile(r"\d+:\d+")


def _replicas(items: list[str]) -> str | None:
    if items == ["*"] or all(map(_REPLICA.fullmatch, items)):
        return None
    return (
        "the value must be the literal '*' or a list of replicas in the following format: "
        "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
    )


_BOOLEAN, _STRING, _INT, _LONG = (
    ConfigType.BOOLEAN,
    ConfigType.STRING,
    ConfigType.INT,
    ConfigType.LONG,
)
_NEVER: Final = "9223372036854775807"
_DAY, _WEEK = "86400000", "604800000"

TOPIC_CONFIGS: Final[dict[str, TopicConfig]] = {
    "cleanup.policy": TopicConfig(
        ConfigType.LIST, "delete", "log.cleanup.policy", _one_of("compact", "delete")
    ),
    "compression.gzip.level": TopicConfig(_INT, "-1", "compression.gzip.level", _gzip_level),
    "compression.lz4.level": TopicConfig(_INT, "9", "compression.lz4.level", _between(1, 17)),
    "compression.type": TopicConfig(
        _STRING,
        "producer",
        "compression.type",
        _one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
    ),
    "compression.zstd.level": TopicConfig(
        _INT, "3", "compression.zstd.level", _between(-131072, 22)
    ),
    "delete.retention.ms": TopicConfig(
        _LONG, _DAY, "log.cleaner.delete.retention.ms", _at_least(0)
    ),
    "errors.deadletterqueue.group.enable": TopicConfig(_BOOLEAN, "false", None),
    "file.delete.delay.ms": TopicConfig(
        _LONG, "60000", "log.segment.delete.delay.ms", _at_least(0)
    ),
    "flush.messages": TopicConfig(_LONG, _NEVER, "log.flush.interval.messages", _at_least(1)),
    "flush.ms": TopicConfig(_LONG, _NEVER, None, _at_least(0)),
    "follower.replication.throttled.replicas": TopicConfig(ConfigType.LIST, "", None, _replicas),
    "index.interval.bytes": TopicConfig(_INT, "4096", "log.index.interval.bytes", _at_least(0)),
    "leader.replication.throttled.replicas": TopicConfig(ConfigType.LIST, "", None, _replicas),
    "local.retention.bytes": TopicConfig(_LONG, "-2", "log.local.retention.bytes", _at_least(-2)),
    "local.retention.ms": TopicConfig(_LONG, "-2", "log.local.retention.ms", _at_least(-2)),
    "max.compaction.lag.ms": TopicConfig(
        _LONG, _NEVER, "log.cleaner.max.compaction.lag.ms", _at_least(1)
    ),
    "max.decompressed.message.bytes": TopicConfig(
        _INT, "2147483639", "max.decompressed.message.bytes", _at_least(1)
    ),
    "max.message.bytes": TopicConfig(_INT, "1048588", "message.max.bytes", _at_least(0)),
    "message.timestamp.after.max.ms": TopicConfig(
        _LONG, "3600000", "log.message.timestamp.after.max.ms", _at_least(0)
    ),
    "message.timestamp.before.max.ms": TopicConfig(
        _LONG, _NEVER, "log.message.timestamp.before.max.ms", _at_least(0)
    ),
    "message.timestamp.type": TopicConfig(
        _STRING, "CreateTime", "log.message.timestamp.type", _one_of("CreateTime", "LogAppendTime")
    ),
    "min.cleanable.dirty.ratio": TopicConfig(
        ConfigType.DOUBLE, "0.5", "log.cleaner.min.cleanable.ratio", _between(0, 1)
    ),
    "min.compaction.lag.ms": TopicConfig(
        _LONG, "0", "log.cleaner.min.compaction.lag.ms", _at_least(0)
    ),
    "min.insync.replicas": TopicConfig(_INT, "1", "min.insync.replicas", _at_least(1)),
    "preallocate": TopicConfig(_BOOLEAN, "false", "log.preallocate"),
    "remote.copy.lag.bytes": TopicConfig(_LONG, "-1", "log.remote.copy.lag.bytes", _at_least(-1)),
    "remote.copy.lag.ms": TopicConfig(_LONG, "0", "log.remote.copy.lag.ms", _at_least(-1)),
    "remote.log.copy.disable": TopicConfig(_BOOLEAN, "false", None),
    "remote.log.delete.on.disable": TopicConfig(_BOOLEAN, "false", None),
    "remote.storage.enable": TopicConfig(_BOOLEAN, "false", None),
    "retention.bytes": TopicConfig(_LONG, "-1", "log.retention.bytes"),
    "retention.ms": TopicConfig(_LONG, _WEEK, None, _at_least(-1)),
    "segment.bytes": TopicConfig(_INT, "1073741824", "log.segment.bytes", _at_least(1_048_576)),
    "segment.index.bytes": TopicConfig(_INT, "10485760", "log.index.size.max.bytes", _at_least(4)),
    "segment.jitter.ms": TopicConfig(_LONG, "0", None, _at_least(0)),
    "segment.ms": TopicConfig(_LONG, _WEEK, None, _at_least(1)),
    "unclean.leader.election.enable": TopicConfig(
        _BOOLEAN, "false", "unclean.leader.election.enable"
    ),
}
"""All topic configurations.

The log applies limits, retention, segment sizes and timestamp rules. Other configurations are
stored and described, without effect.
"""

BROKER_CONFIGS: Final[dict[str, BrokerConfig]] = {
    "auto.create.topics.enable": BrokerConfig(_BOOLEAN, "true", "auto_create_topics"),
    "group.consumer.assignment.interval.ms": BrokerConfig(
        _INT, "1000", "group_consumer_assignment_interval_ms", read_only=False
    ),
    "group.consumer.heartbeat.interval.ms": BrokerConfig(
        _INT, "5000", "group_consumer_heartbeat_interval_ms"
    ),
    "group.consumer.max.size": BrokerConfig(_INT, "2147483647", "group_consumer_max_size"),
    "group.consumer.migration.policy": BrokerConfig(
        _STRING, "bidirectional", "group_consumer_migration_policy"
    ),
    "group.consumer.session.timeout.ms": BrokerConfig(
        _INT, "45000", "group_consumer_session_timeout_ms"
    ),
    "group.share.assignment.interval.ms": BrokerConfig(
        _INT, "1000", "group_share_assignment_interval_ms", read_only=False
    ),
    "group.share.delivery.count.limit": BrokerConfig(_INT, "5", "group_share_delivery_count_limit"),
    "group.share.heartbeat.interval.ms": BrokerConfig(
        _INT, "5000", "group_share_heartbeat_interval_ms"
    ),
    "group.share.max.share.sessions": BrokerConfig(_INT, "2000", "group_share_max_share_sessions"),
    "group.share.max.size": BrokerConfig(_INT, "200", "group_share_max_size"),
    "group.share.partition.max.record.locks": BrokerConfig(
        _INT, "2000", "group_share_partition_max_record_locks"
    ),
    "group.share.record.lock.duration.ms": BrokerConfig(
        _INT, "30000", "group_share_record_lock_duration_ms"
    ),
    "group.share.session.timeout.ms": BrokerConfig(_INT, "45000", "group_share_session_timeout_ms"),
    "group.initial.rebalance.delay.ms": BrokerConfig(
        _INT, "3000", "group_initial_rebalance_delay_ms"
    ),
    "group.max.session.timeout.ms": BrokerConfig(_INT, "1800000", "group_max_session_timeout_ms"),
    "group.max.size": BrokerConfig(_INT, "2147483647", "group_max_size"),
    "group.min.session.timeout.ms": BrokerConfig(_INT, "6000", "group_min_session_timeout_ms"),
    "log.retention.check.interval.ms": BrokerConfig(
        _LONG, "300000", "log_retention_check_interval_ms"
    ),
    "message.max.bytes": BrokerConfig(_INT, "1048588", "message_max_bytes", read_only=False),
    "min.insync.replicas": BrokerConfig(_INT, "1", "min_insync_replicas", read_only=False),
    "num.partitions": BrokerConfig(_INT, "1", "default_partitions"),
    "offset.metadata.max.bytes": BrokerConfig(_INT, "4096", "offset_metadata_max_bytes"),
    "offsets.topic.num.partitions": BrokerConfig(_INT, "50", "offsets_topic_num_partitions"),
    "producer.id.expiration.ms": BrokerConfig(
        _INT, "86400000", "producer_id_expiration_ms", read_only=False
    ),
    "socket.request.max.bytes": BrokerConfig(_INT, "104857600", "socket_request_max_bytes"),
    "transaction.max.timeout.ms": BrokerConfig(_INT, "900000", "transaction_max_timeout_ms"),
    "transaction.state.log.num.partitions": BrokerConfig(
        _INT, "50", "transaction_state_log_num_partitions"
    ),
    "transactional.id.expiration.ms": BrokerConfig(
        _INT, "604800000", "transactional_id_expiration_ms"
    ),
}
"""The broker configurations in `Settings`; Apache Kafka has about 350."""

_FROM_SETTINGS: Final = ("message.max.bytes", "min.insync.replicas")
"""Broker configurations that are defaults of topic configurations."""

_BITS: Final = {_INT: 31, _LONG: 63}
_INTEGER: Final = re.compile(r"[+-]?[0-9]+")


def is_list(name: str) -> bool:
    """Return True if a topic configuration is a list."""
    return name in TOPIC_CONFIGS and TOPIC_CONFIGS[name].type is ConfigType.LIST


def parse(name: str, text: str) -> str:
    """Return a topic configuration's value as a broker describes it."""
    config = TOPIC_CONFIGS[name]
    value = parse_value(name, config.type, text.strip())
    if config.check is not None:
        for item in value if name == "cleanup.policy" else [value]:
            if (reason := config.check(item)) is not None:
                raise _invalid(name, item, reason)
    if name == "remote.storage.enable" and value:
        raise InvalidConfigError(
            "Tiered Storage functionality is disabled in the broker. Topic cannot be configured "
            "with remote log storage."
        )
    if config.type is ConfigType.LIST:
        return ",".join(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def parse_value(name: str, kind: ConfigType, text: str) -> Any:
    """Return a configuration's value in the type `kind`; raises InvalidConfigError."""
    if kind is ConfigType.BOOLEAN:
        if text.lower() not in ("true", "false"):
            raise _invalid(name, text, "Expected value to be either true or false")
        return text.lower() == "true"
    if kind is ConfigType.LIST:
        return list(dict.fromkeys(item.strip() for item in text.split(","))) if text else []
    if kind is ConfigType.DOUBLE:
        try:
            return float(text)
        except ValueError:
            raise _invalid(name, text, "Not a number of type DOUBLE") from None
    if kind in _BITS:
        value = int(text) if _INTEGER.fullmatch(text) else None
        if value is None or not -(1 << _BITS[kind]) <= value < 1 << _BITS[kind]:
            raise _invalid(name, text, f"Not a number of type {kind.name}")
        return value
    return text


def _invalid(name: str, value: Any, reason: str) -> InvalidConfigError:
    return InvalidConfigError(f"Invalid value {value} for configuration {name}: {reason}")


def check_configs(configs: Mapping[str, str]) -> None:
    """Raise InvalidConfigError unless a topic may have these configurations."""
    for name in configs:
        if name not in TOPIC_CONFIGS:
            raise InvalidConfigError(f"Unknown topic config name: {name}")
    parsed = {name: parse(name, text) for name, text in configs.items()}

    def lag(name: str) -> int:
        return int(parsed.get(name, TOPIC_CONFIGS[name].default))

    shortest, longest = lag("min.compaction.lag.ms"), lag("max.compaction.lag.ms")
    if shortest > longest:
        raise InvalidConfigError(
            f"conflict topic config setting min.compaction.lag.ms ({shortest}) > "
            f"max.compaction.lag.ms ({longest})"
        )


def synonyms(settings: Settings, name: str, own: Mapping[str, str]) -> list[Synonym]:
    """Return the sources of a topic configuration's value, the effective one first.

    `own` are the configurations of the topic. Some configurations have no source.
    """
    config = TOPIC_CONFIGS[name]
    found: list[Synonym] = []
    if name in own:
        found.append(Synonym(name, parse(name, own[name]), ConfigSource.TOPIC))
    if config.broker_name in _FROM_SETTINGS:
        found += broker_synonyms(settings, config.broker_name)
    elif config.broker_name is not None:
        found.append(Synonym(config.broker_name, config.default, ConfigSource.DEFAULT))
    return found


def broker_synonyms(settings: Settings, name: str) -> list[Synonym]:
    """Return the sources of a broker configuration's value, the effective one first."""
    config, value = BROKER_CONFIGS[name], broker_value(settings, name)
    found = [Synonym(name, config.default, ConfigSource.DEFAULT)]
    # Since eligible leader replicas (KIP-966), the minimum is a dynamic default for all brokers.
    dynamic = name == "min.insync.replicas"
    if dynamic or value != config.default:
        found.insert(0, Synonym(name, value, ConfigSource.STATIC_BROKER))
    if dynamic:
        found.insert(0, Synonym(name, value, ConfigSource.DYNAMIC_DEFAULT_BROKER))
    return found


def broker_value(settings: Settings, name: str) -> str:
    """Return a broker configuration's value."""
    value = getattr(settings, BROKER_CONFIGS[name].setting)
    return str(value).lower() if isinstance(value, bool) else str(value)


def effective_configs(settings: Settings, own: Mapping[str, str]) -> dict[str, str]:
    """Return all configurations of a topic as a broker describes them; `own` are the topic's."""
    return {
        name: origins[0].value if (origins := synonyms(settings, name, own)) else config.default
        for name, config in TOPIC_CONFIGS.items()
    }
