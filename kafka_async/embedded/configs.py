"""The topic settings that the embedded cluster knows, their defaults, and what is legal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafka_async.embedded.settings import Settings

TOPIC_DEFAULTS: Final[dict[str, str]] = {
    "cleanup.policy": "delete",
    "compression.type": "producer",
    "delete.retention.ms": "86400000",
    "max.compaction.lag.ms": "9223372036854775807",
    "message.timestamp.after.max.ms": "3600000",
    "message.timestamp.before.max.ms": "9223372036854775807",
    "min.compaction.lag.ms": "0",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
    "segment.bytes": "1073741824",
    "segment.ms": "604800000",
    "unclean.leader.election.enable": "false",
}
"""Settings that are kept and described but change nothing."""

OBEYED: Final = ("max.message.bytes", "message.timestamp.type", "min.insync.replicas")
"""Settings that the log and Produce follow."""

INTEGERS: Final = frozenset(
    name for name, value in TOPIC_DEFAULTS.items() if value.lstrip("-").isdigit()
) | {"max.message.bytes", "min.insync.replicas"}

CHOICES: Final[dict[str, frozenset[str]]] = {
    "compression.type": frozenset({"producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"}),
    "message.timestamp.type": frozenset({"CreateTime", "LogAppendTime"}),
    "unclean.leader.election.enable": frozenset({"true", "false"}),
}
LISTS: Final[dict[str, frozenset[str]]] = {"cleanup.policy": frozenset({"delete", "compact"})}


_BOOLEAN, _STRING, _INT, _LONG, _LIST = 1, 2, 3, 5, 7
_BOOLEANS: Final = frozenset({"unclean.leader.election.enable", "auto.create.topics.enable"})
_LONGS: Final = INTEGERS - {"max.message.bytes", "min.insync.replicas", "segment.bytes"}


def config_type(name: str) -> int:
    """What kind of value a setting has, as DescribeConfigs numbers them."""
    if name in _BOOLEANS:
        return _BOOLEAN
    if name in LISTS:
        return _LIST
    if name in _LONGS:
        return _LONG
    return _INT if name in INTEGERS else _STRING


def topic_defaults(settings: Settings) -> dict[str, str]:
    """What a topic has that was created without settings."""
    return {
        **TOPIC_DEFAULTS,
        "max.message.bytes": str(settings.message_max_bytes),
        "message.timestamp.type": "CreateTime",
        "min.insync.replicas": str(settings.min_insync_replicas),
    }


def problem(name: str, value: str) -> str | None:
    """What is wrong with a topic setting, in words; None if nothing is."""
    if name not in TOPIC_DEFAULTS and name not in OBEYED:
        return f"Unknown topic config name: {name}"
    if name in INTEGERS and not value.lstrip("-").isdigit():
        return f"Invalid value {value} for configuration {name}: not a number"
    if name in CHOICES and value not in CHOICES[name]:
        return f"Invalid value {value} for configuration {name}: one of {sorted(CHOICES[name])}"
    if name in LISTS and not LISTS[name].issuperset(value.split(",")):
        return f"Invalid value {value} for configuration {name}: some of {sorted(LISTS[name])}"
    return None


def problems(configs: Mapping[str, str]) -> str | None:
    """The first problem of several settings."""
    return next((text for item in configs.items() if (text := problem(*item))), None)


def broker_configs(settings: Settings, broker_id: str) -> dict[str, str]:
    """What a broker says of itself; an empty id asks for the cluster's defaults."""
    values = {
        "auto.create.topics.enable": str(settings.auto_create_topics).lower(),
        "group.initial.rebalance.delay.ms": str(settings.group_initial_rebalance_delay_ms),
        "group.max.session.timeout.ms": str(settings.group_max_session_timeout_ms),
        "group.min.session.timeout.ms": str(settings.group_min_session_timeout_ms),
        "message.max.bytes": str(settings.message_max_bytes),
        "min.insync.replicas": str(settings.min_insync_replicas),
        "num.partitions": str(settings.default_partitions),
        "transaction.max.timeout.ms": str(settings.transaction_max_timeout_ms),
    }
    return {**values, "node.id": broker_id} if broker_id else values
