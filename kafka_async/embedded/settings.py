"""What an embedded cluster can be told, under the names of a broker's own configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypedDict

from kafka_async.errors import InvalidConfigurationError


class SettingOptions(TypedDict, total=False):
    """Keyword arguments of `EmbeddedCluster`; see `Settings`."""

    cluster_id: str
    advertised_hosts: Mapping[int, str]
    auto_create_topics: bool
    default_partitions: int
    default_replication_factor: int | None
    transaction_version: int
    group_version: int
    message_max_bytes: int
    min_insync_replicas: int
    socket_request_max_bytes: int
    transaction_max_timeout_ms: int
    transactional_id_expiration_ms: int
    producer_id_expiration_ms: int
    group_initial_rebalance_delay_ms: int
    group_min_session_timeout_ms: int
    group_max_session_timeout_ms: int
    group_max_size: int
    offset_metadata_max_bytes: int
    offsets_topic_num_partitions: int
    transaction_state_log_num_partitions: int
    log_retention_check_interval_ms: int
    coordinator_load_time_ms: int
    transaction_marker_delay_ms: int
    api_versions: Mapping[int, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Settings:
    """How the brokers behave. Times are milliseconds, sizes bytes; defaults are Apache Kafka's
    except `group_initial_rebalance_delay_ms` (3000 there: nobody wants to wait for it in a test).

    `default_replication_factor` None means as many as there are brokers, at most three.
    `transaction_version` and `group_version` are the finalized features (0: not finalized).
    `coordinator_load_time_ms` is how long a coordinator answers COORDINATOR_LOAD_IN_PROGRESS
    after it has moved, `transaction_marker_delay_ms` how long after EndTxn's answer the markers
    are written. `api_versions` narrows what the brokers offer, by API key: `{1: (4, 11)}` is a
    broker whose Fetch ends at version 11, and `{68: (0, -1)}` one that has no such API.
    `advertised_hosts` are the hosts by which brokers name themselves and others in responses, by
    broker id, where that is not 127.0.0.1 (Kafka's `advertised.listeners`); all listen there.
    """

    cluster_id: str = "kafka-async-embedded0"
    advertised_hosts: Mapping[int, str] = field(default_factory=dict[int, str])
    auto_create_topics: bool = True
    default_partitions: int = 1
    default_replication_factor: int | None = None
    transaction_version: int = 2
    group_version: int = 0
    message_max_bytes: int = 1_048_588
    min_insync_replicas: int = 1
    socket_request_max_bytes: int = 104_857_600
    transaction_max_timeout_ms: int = 900_000
    transactional_id_expiration_ms: int = 604_800_000
    producer_id_expiration_ms: int = 86_400_000
    group_initial_rebalance_delay_ms: int = 0
    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_max_size: int = 2_147_483_647
    offset_metadata_max_bytes: int = 4_096
    offsets_topic_num_partitions: int = 50
    transaction_state_log_num_partitions: int = 50
    log_retention_check_interval_ms: int = 300_000
    coordinator_load_time_ms: int = 0
    transaction_marker_delay_ms: int = 0
    api_versions: Mapping[int, tuple[int, int]] = field(default_factory=dict[int, tuple[int, int]])

    def __post_init__(self) -> None:
        for name, low in _LOWEST.items():
            value = getattr(self, name)
            if value is not None and value < low:
                raise InvalidConfigurationError(f"{name} must be at least {low}, not {value}")

    def version_limits(self) -> dict[int, tuple[int, int]]:
        """`api_versions`, and what clients must not use without transactions v2 (KIP-890)."""
        return {**({} if self.transaction_version >= 2 else _TRANSACTIONS_V1), **self.api_versions}

    def replication_factor(self, brokers: int) -> int:
        """How many replicas a topic gets that does not say."""
        return self.default_replication_factor or min(brokers, 3)


_TRANSACTIONS_V1 = {0: (0, 11), 26: (0, 4), 28: (0, 4)}
"""Produce, EndTxn and TxnOffsetCommit of brokers before transactions v2."""

_LOWEST = {
    "default_partitions": 1,
    "default_replication_factor": 1,
    "transaction_version": 0,
    "group_version": 0,
    "message_max_bytes": 1,
    "min_insync_replicas": 1,
    "socket_request_max_bytes": 1024,
    "transaction_max_timeout_ms": 1,
    "group_initial_rebalance_delay_ms": 0,
    "group_min_session_timeout_ms": 1,
    "group_max_session_timeout_ms": 1,
    "group_max_size": 1,
    "offsets_topic_num_partitions": 1,
    "transaction_state_log_num_partitions": 1,
    "log_retention_check_interval_ms": 1,
    "coordinator_load_time_ms": 0,
    "transaction_marker_delay_ms": 0,
}
