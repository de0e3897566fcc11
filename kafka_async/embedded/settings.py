"""Settings of the embedded cluster, most of them named as broker configurations of Apache Kafka."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypedDict

from kafka_async.errors import InvalidConfigurationError

RACK_AWARE_REPLICA_SELECTOR: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
"""Kafka's replica selector (KIP-392)."""


class SettingOptions(TypedDict, total=False):
    """Keyword arguments of `EmbeddedCluster`; see `Settings`."""

    cluster_id: str
    advertised_hosts: Mapping[int, str]
    racks: Mapping[int, str]
    replica_selector_class: str | None
    auto_create_topics: bool
    default_partitions: int
    default_replication_factor: int | None
    transaction_version: int
    group_version: int
    share_version: int
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
    group_forward_assignor_errors: bool
    group_random_leader: bool
    group_persistent_members: bool
    group_consumer_session_timeout_ms: int
    group_consumer_heartbeat_interval_ms: int
    group_consumer_assignment_interval_ms: int
    group_consumer_max_size: int
    group_consumer_migration_policy: str
    group_consumer_min_session_timeout_ms: int
    group_consumer_min_heartbeat_interval_ms: int
    group_share_session_timeout_ms: int
    group_share_heartbeat_interval_ms: int
    group_share_assignment_interval_ms: int
    group_share_max_size: int
    group_share_min_session_timeout_ms: int
    group_share_min_heartbeat_interval_ms: int
    group_share_record_lock_duration_ms: int
    group_share_min_record_lock_duration_ms: int
    group_share_delivery_count_limit: int
    group_share_partition_max_record_locks: int
    group_share_max_share_sessions: int
    offset_metadata_max_bytes: int
    offsets_topic_num_partitions: int
    transaction_state_log_num_partitions: int
    log_retention_check_interval_ms: int
    coordinator_load_time_ms: int
    transaction_marker_delay_ms: int
    connections_max_reauth_ms: int
    connection_failed_authentication_delay_ms: int
    sasl_server_max_receive_size: int
    delegation_token_auth_enabled: bool
    delegation_token_max_lifetime_ms: int
    delegation_token_expiry_time_ms: int
    delegation_token_expiry_check_interval_ms: int
    quota_window_num: int
    quota_window_size_seconds: int
    controller_quota_window_num: int
    controller_quota_window_size_seconds: int
    quota_formula: Literal["kafka", "seed"]
    quota_request_time_ms: float
    api_versions: Mapping[int, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Settings:
    """Configures the brokers.

    Times are milliseconds, sizes are bytes. Unless described below, a setting has the name, with
    underscores for dots, and the default of Apache Kafka's broker configuration.

    Attributes:
        cluster_id: Id of the cluster in responses.
        advertised_hosts: Hosts in responses by broker id, in place of 127.0.0.1 (Kafka's
            `advertised.listeners`). All brokers listen on 127.0.0.1.
        racks: Racks by broker id (Kafka's `broker.rack`). Default: brokers have no rack.
        replica_selector_class: RACK_AWARE_REPLICA_SELECTOR to let consumers fetch from an in-sync
            replica in their rack (KIP-392); None for the leader.
        auto_create_topics: Kafka's `auto.create.topics.enable`.
        default_partitions: Kafka's `num.partitions`.
        default_replication_factor: None for the number of brokers, at most three; 1 in Kafka.
        transaction_version: Finalized level of the feature `transaction.version`; 0 is not
            finalized.
        group_version: Finalized level of the feature `group.version`; 0 is not finalized, and
            groups only have the classic protocol (KIP-848).
        share_version: Finalized level of the feature `share.version`; 0 is not finalized, and there
            are no share groups (KIP-932).
        group_initial_rebalance_delay_ms: 3000 in Kafka, which would slow down tests.
        group_forward_assignor_errors: Respond with INCONSISTENT_GROUP_PROTOCOL to the SyncGroup
            requests that wait for an assignment, and rebalance, if the leader's assignment reports
            an error of its assignor. Kafka has no such setting: it forwards the assignment, whose
            user data contains the error.
        group_random_leader: Elect the leader of each generation of a classic group at random. Kafka
            has no such setting: the first member leads, and remains the leader if it joins again.
        group_persistent_members: Keep the last complete generation of classic groups when their
            coordinator moves, as Kafka does; otherwise their members have to join again.
        group_consumer_assignment_interval_ms: 1000 in Kafka, which would slow down tests.
        group_consumer_migration_policy: Conversions between classic and consumer groups while they
            have members (KIP-848): "upgrade", "downgrade", "bidirectional" or "disabled".
        group_share_assignment_interval_ms: 1000 in Kafka, which would slow down tests.
        coordinator_load_time_ms: Time for which a coordinator that has moved responds with
            COORDINATOR_LOAD_IN_PROGRESS.
        transaction_marker_delay_ms: Time between the response to EndTxn and the markers.
        delegation_token_auth_enabled: Issue delegation tokens (KIP-48), with HMACs of a random key.
            In Kafka, tokens are enabled by a key in the configuration.
        quota_formula: Formula for throttle times: "kafka", or "seed" for the formula of KIP-13's
            first version, `(bytes in the window - bound) / quota per second`, which also delays
            consumers before the read. Kafka has no such setting.
        quota_request_time_ms: Time that a broker's thread spends on each request, which counts for
            quotas of `request_percentage`. Kafka measures it.
        api_versions: Version ranges by API key that narrow the supported versions: `{1: (4, 11)}`
            imitates a broker without Fetch above version 11, `{68: (0, -1)}` a broker without that
            API.
    """

    cluster_id: str = "kafka-async-embedded0"
    advertised_hosts: Mapping[int, str] = field(default_factory=dict[int, str])
    racks: Mapping[int, str] = field(default_factory=dict[int, str])
    replica_selector_class: str | None = None
    auto_create_topics: bool = True
    default_partitions: int = 1
    default_replication_factor: int | None = None
    transaction_version: int = 2
    group_version: int = 1
    share_version: int = 2
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
    group_forward_assignor_errors: bool = False
    group_random_leader: bool = False
    group_persistent_members: bool = True
    group_consumer_session_timeout_ms: int = 45_000
    group_consumer_heartbeat_interval_ms: int = 5_000
    group_consumer_assignment_interval_ms: int = 0
    group_consumer_max_size: int = 2_147_483_647
    group_consumer_migration_policy: str = "bidirectional"
    group_consumer_min_session_timeout_ms: int = 45_000
    group_consumer_min_heartbeat_interval_ms: int = 5_000
    group_share_session_timeout_ms: int = 45_000
    group_share_heartbeat_interval_ms: int = 5_000
    group_share_assignment_interval_ms: int = 0
    group_share_max_size: int = 200
    group_share_min_session_timeout_ms: int = 45_000
    group_share_min_heartbeat_interval_ms: int = 5_000
    group_share_record_lock_duration_ms: int = 30_000
    group_share_min_record_lock_duration_ms: int = 15_000
    group_share_delivery_count_limit: int = 5
    group_share_partition_max_record_locks: int = 2_000
    group_share_max_share_sessions: int = 2_000
    offset_metadata_max_bytes: int = 4_096
    offsets_topic_num_partitions: int = 50
    transaction_state_log_num_partitions: int = 50
    log_retention_check_interval_ms: int = 300_000
    coordinator_load_time_ms: int = 0
    transaction_marker_delay_ms: int = 0
    connections_max_reauth_ms: int = 0
    connection_failed_authentication_delay_ms: int = 100
    sasl_server_max_receive_size: int = 524_288
    delegation_token_auth_enabled: bool = True
    delegation_token_max_lifetime_ms: int = 604_800_000
    delegation_token_expiry_time_ms: int = 86_400_000
    delegation_token_expiry_check_interval_ms: int = 3_600_000
    quota_window_num: int = 11
    quota_window_size_seconds: int = 1
    controller_quota_window_num: int = 11
    controller_quota_window_size_seconds: int = 1
    quota_formula: Literal["kafka", "seed"] = "kafka"
    quota_request_time_ms: float = 0.0
    api_versions: Mapping[int, tuple[int, int]] = field(default_factory=dict[int, tuple[int, int]])

    def __post_init__(self) -> None:
        if self.quota_formula not in ("kafka", "seed"):
            raise InvalidConfigurationError(
                f'quota_formula must be "kafka" or "seed", not {self.quota_formula!r}',
                option="quota_formula",
            )
        if self.replica_selector_class not in (None, RACK_AWARE_REPLICA_SELECTOR):
            raise InvalidConfigurationError(
                f"replica_selector_class must be None or {RACK_AWARE_REPLICA_SELECTOR!r}, not "
                f"{self.replica_selector_class!r}",
                option="replica_selector_class",
            )
        for name, low in _MINIMUMS.items():
            value = getattr(self, name)
            if value is not None and value < low:
                raise InvalidConfigurationError(
                    f"{name} must be at least {low}, not {value}", option=name
                )
        if self.group_consumer_migration_policy not in _MIGRATION_POLICIES:
            raise InvalidConfigurationError(
                f"group_consumer_migration_policy must be one of {_MIGRATION_POLICIES}, not "
                f"{self.group_consumer_migration_policy!r}",
                option="group_consumer_migration_policy",
            )

    def version_limits(self) -> dict[int, tuple[int, int]]:
        """Return `api_versions`, with the limits of brokers before transactions v2 (KIP-890)."""
        return {**({} if self.transaction_version >= 2 else _TRANSACTIONS_V1), **self.api_versions}

    def replication_factor(self, brokers: int) -> int:
        """Return the default replication factor for this number of brokers."""
        return self.default_replication_factor or min(brokers, 3)


_TRANSACTIONS_V1 = {0: (0, 11), 26: (0, 4), 28: (0, 4)}
"""Versions of Produce, EndTxn and TxnOffsetCommit before transactions v2."""

_MIGRATION_POLICIES = ("bidirectional", "downgrade", "upgrade", "disabled")

_MINIMUMS = {
    "default_partitions": 1,
    "default_replication_factor": 1,
    "transaction_version": 0,
    "group_version": 0,
    "share_version": 0,
    "message_max_bytes": 1,
    "min_insync_replicas": 1,
    "socket_request_max_bytes": 1024,
    "transaction_max_timeout_ms": 1,
    "group_initial_rebalance_delay_ms": 0,
    "group_min_session_timeout_ms": 1,
    "group_max_session_timeout_ms": 1,
    "group_max_size": 1,
    "group_consumer_session_timeout_ms": 1,
    "group_consumer_heartbeat_interval_ms": 1,
    "group_consumer_assignment_interval_ms": 0,
    "group_consumer_max_size": 1,
    "group_consumer_min_session_timeout_ms": 1,
    "group_consumer_min_heartbeat_interval_ms": 1,
    "group_share_session_timeout_ms": 1,
    "group_share_heartbeat_interval_ms": 1,
    "group_share_assignment_interval_ms": 0,
    "group_share_max_size": 1,
    "group_share_min_session_timeout_ms": 1,
    "group_share_min_heartbeat_interval_ms": 1,
    "group_share_record_lock_duration_ms": 1,
    "group_share_min_record_lock_duration_ms": 1,
    "group_share_delivery_count_limit": 1,
    "group_share_partition_max_record_locks": 1,
    "group_share_max_share_sessions": 1,
    "offsets_topic_num_partitions": 1,
    "transaction_state_log_num_partitions": 1,
    "log_retention_check_interval_ms": 1,
    "coordinator_load_time_ms": 0,
    "transaction_marker_delay_ms": 0,
    "connections_max_reauth_ms": 0,
    "connection_failed_authentication_delay_ms": 0,
    "sasl_server_max_receive_size": 0,
    "delegation_token_max_lifetime_ms": 1,
    "delegation_token_expiry_time_ms": 1,
    "delegation_token_expiry_check_interval_ms": 1,
    "quota_window_num": 2,
    "quota_window_size_seconds": 1,
    "controller_quota_window_num": 2,
    "controller_quota_window_size_seconds": 1,
    "quota_request_time_ms": 0,
}
