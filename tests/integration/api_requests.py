"""The fields of a well-formed request of every API.

A request changes only resources of its test, only validates, or names resources that do not exist.
A response with an error code is enough; most requests are chosen to succeed, since their responses
have more fields with contents.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tests.embedded.raw_connection import batch

Fields: TypeAlias = dict[str, Any]

UNKNOWN_ID = 4711
"""The id of a broker, controller or voter that does not exist."""
TIMEOUT = 5_000
TOPIC, BROKER = 2, 4
"""Resource types."""


@dataclass
class Resources:
    """Holds the resources that requests refer to; one broker leads and coordinates all of them."""

    broker_id: int
    topic: str
    topic_id: uuid.UUID
    groups: Iterator[str]
    """Ids of unused groups."""
    group: str
    """A group without members that commits offsets."""
    consumer_group: str
    share_group: str
    streams_group: str
    transactional_id: str
    producer_id: int
    producer_epoch: int
    joined: list[str] = field(default_factory=list[str])
    """The groups that JoinGroup has created."""

    @property
    def missing(self) -> str:
        """Name of a topic or group that does not exist."""
        return f"{self.topic}-missing"

    @property
    def partitions(self) -> list[int]:
        return [0]


def _batch() -> bytes:
    return batch(b"value", timestamp=int(time.time() * 1000))


def _produce(at: Resources, version: int) -> Fields:
    data = {"index": 0, "records": _batch()}
    topic = {"name": at.topic, "topic_id": at.topic_id, "partition_data": [data]}
    return {"acks": -1, "timeout_ms": TIMEOUT, "topic_data": [topic]}


def _fetch(at: Resources, version: int) -> Fields:
    partition = {"partition": 0, "partition_max_bytes": 1 << 20}
    topic = {"topic": at.topic, "topic_id": at.topic_id, "partitions": [partition]}
    return {"max_bytes": 1 << 20, "session_epoch": -1, "topics": [topic]}


def _list_offsets(at: Resources, version: int) -> Fields:
    rows = [{"partition_index": 0, "timestamp": -1}]
    return {"replica_id": -1, "topics": [{"name": at.topic, "partitions": rows}]}


def _metadata(at: Resources, version: int) -> Fields:
    if version < 4:  # These versions would create the missing topic.
        return {"topics": [{"name": at.topic}]}
    return {
        "topics": [{"name": at.topic}, {"name": at.missing}],
        "allow_auto_topic_creation": False,
        "include_topic_authorized_operations": version >= 8,
    }


def _offset_commit(at: Resources, version: int) -> Fields:
    rows = [{"partition_index": 0, "committed_offset": 1, "committed_metadata": "m"}]
    topic = {"name": at.topic, "topic_id": at.topic_id, "partitions": rows}
    return {"group_id": at.group, "topics": [topic]}


def _offset_fetch(at: Resources, version: int) -> Fields:
    topic = {"name": at.topic, "partition_indexes": at.partitions}
    if version < 8:
        return {"group_id": at.group, "topics": [topic]}
    return {"groups": [{"group_id": at.group, "topics": [{**topic, "topic_id": at.topic_id}]}]}


def _find_coordinator(at: Resources, version: int) -> Fields:
    return {"key": at.group} if version < 4 else {"coordinator_keys": [at.group]}


def _join_group(at: Resources, version: int) -> Fields:
    """Join a new group each time, since a second member would wait for the first to rejoin."""
    at.joined.append(next(at.groups))
    return {
        "group_id": at.joined[-1],
        "session_timeout_ms": 6_000,
        "rebalance_timeout_ms": 6_000,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"m"}],
    }


def _leave_group(at: Resources, version: int) -> Fields:
    member = {"member_id": "unknown"}
    return {"group_id": at.group, **(member if version < 3 else {"members": [member]})}


def _create_topics(at: Resources, version: int) -> Fields:
    topic = {"name": at.missing, "num_partitions": 1, "replication_factor": 1}
    return {"topics": [topic], "timeout_ms": TIMEOUT, "validate_only": True}


def _delete_topics(at: Resources, version: int) -> Fields:
    named = {"topic_names": [at.missing]} if version < 6 else {"topics": [{"name": at.missing}]}
    return {**named, "timeout_ms": TIMEOUT}


def _delete_records(at: Resources, version: int) -> Fields:
    rows = [{"partition_index": 0, "offset": 0}]
    return {"topics": [{"name": at.topic, "partitions": rows}], "timeout_ms": TIMEOUT}


def _offset_for_leader_epoch(at: Resources, version: int) -> Fields:
    rows = [{"partition": 0, "leader_epoch": 0}]
    return {"topics": [{"topic": at.topic, "partitions": rows}]}


def _transaction(at: Resources) -> Fields:
    return {
        "transactional_id": at.transactional_id,
        "producer_id": at.producer_id,
        "producer_epoch": at.producer_epoch,
    }


def _add_partitions_to_txn(at: Resources, version: int) -> Fields:
    topics = [{"name": at.topic, "partitions": at.partitions}]
    if version < 4:
        return {
            **{f"v3_and_below_{name}": value for name, value in _transaction(at).items()},
            "v3_and_below_topics": topics,
        }
    return {"transactions": [{**_transaction(at), "verify_only": True, "topics": topics}]}


def _add_offsets_to_txn(at: Resources, version: int) -> Fields:
    return {**_transaction(at), "group_id": at.group}


def _end_txn(at: Resources, version: int) -> Fields:
    return {**_transaction(at), "committed": True}


def _write_txn_markers(at: Resources, version: int) -> Fields:
    topics = [{"name": at.topic, "partition_indexes": at.partitions}]
    return {"markers": [{"producer_id": UNKNOWN_ID, "producer_epoch": 0, "topics": topics}]}


def _txn_offset_commit(at: Resources, version: int) -> Fields:
    rows = [{"partition_index": 0, "committed_offset": 1, "committed_metadata": "m"}]
    topic = {"name": at.topic, "topic_id": at.topic_id, "partitions": rows}
    return {**_transaction(at), "group_id": at.group, "topics": [topic]}


def _acl_filter(at: Resources, version: int) -> Fields:
    return {
        "resource_type_filter": TOPIC,
        "resource_name_filter": at.topic,
        "pattern_type_filter": 3,
        "operation": 1,
        "permission_type": 1,
    }


def _create_acls(at: Resources, version: int) -> Fields:
    entry = {
        "resource_type": TOPIC,
        "resource_name": at.topic,
        "resource_pattern_type": 3,
        "principal": "User:unknown",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    }
    return {"creations": [entry]}


def _describe_configs(at: Resources, version: int) -> Fields:
    resources = [
        {"resource_type": TOPIC, "resource_name": at.topic, "configuration_keys": None},
        {"resource_type": BROKER, "resource_name": str(at.broker_id), "configuration_keys": None},
    ]
    flags = {"include_documentation": version >= 3, "include_synonyms": True}
    return {"resources": resources, **flags}


def _alter_configs(at: Resources, version: int) -> Fields:
    config = {"name": "retention.ms", "value": "1000"}
    resource = {"resource_type": TOPIC, "resource_name": at.topic, "configs": [config]}
    return {"resources": [resource], "validate_only": True}


def _alter_replica_log_dirs(at: Resources, version: int) -> Fields:
    topic = {"name": at.missing, "partitions": at.partitions}
    return {"dirs": [{"path": "/nowhere", "topics": [topic]}]}


def _create_partitions(at: Resources, version: int) -> Fields:
    topic = {"name": at.topic, "count": 2, "assignments": None}
    return {"topics": [topic], "timeout_ms": TIMEOUT, "validate_only": True}


def _elect_leaders(at: Resources, version: int) -> Fields:
    rows = [{"topic": at.topic, "partitions": at.partitions}]
    return {"topic_partitions": rows, "timeout_ms": TIMEOUT}


def _alter_partition_reassignments(at: Resources, version: int) -> Fields:
    """Cancel a reassignment that does not exist."""
    rows = [{"partition_index": 0, "replicas": None}]
    return {"topics": [{"name": at.topic, "partitions": rows}], "timeout_ms": TIMEOUT}


def _offset_delete(at: Resources, version: int) -> Fields:
    rows = [{"partition_index": 0}]
    return {"group_id": at.group, "topics": [{"name": at.missing, "partitions": rows}]}


def _alter_client_quotas(at: Resources, version: int) -> Fields:
    entity = [{"entity_type": "user", "entity_name": "unknown"}]
    ops = [{"key": "producer_byte_rate", "value": 1000.0, "remove": False}]
    return {"entries": [{"entity": entity, "ops": ops}], "validate_only": True}


def _describe_quorum(at: Resources, version: int) -> Fields:
    rows = [{"partition_index": 0}]
    return {"topics": [{"topic_name": "__cluster_metadata", "partitions": rows}]}


def _update_features(at: Resources, version: int) -> Fields:
    update = {"feature": "no.such.feature", "max_version_level": 1}
    flag = {"validate_only": True} if version else {}
    return {"feature_updates": [update], "timeout_ms": TIMEOUT, **flag}


def _describe_producers(at: Resources, version: int) -> Fields:
    return {"topics": [{"name": at.topic, "partition_indexes": at.partitions}]}


def _consumer_group_heartbeat(at: Resources, version: int) -> Fields:
    return {
        "group_id": at.consumer_group,
        "member_id": str(uuid.uuid4()),
        "rebalance_timeout_ms": 6_000,
        "subscribed_topic_names": [at.topic],
        "topic_partitions": [],
    }


def _share_group_heartbeat(at: Resources, version: int) -> Fields:
    names = {"subscribed_topic_names": [at.topic]}
    return {"group_id": at.share_group, "member_id": str(uuid.uuid4()), **names}


def _share_fetch(at: Resources, version: int) -> Fields:
    partition = {"partition_index": 0}
    return {
        "group_id": at.share_group,
        "member_id": str(uuid.uuid4()),
        "max_records": 10,
        "batch_size": 10,
        "topics": [{"topic_id": at.topic_id, "partitions": [partition]}],
    }


def _share_acknowledge(at: Resources, version: int) -> Fields:
    batches = [{"first_offset": 0, "last_offset": 0, "acknowledge_types": [1]}]
    rows = [{"partition_index": 0, "acknowledgement_batches": batches}]
    return {
        "group_id": at.missing,
        "member_id": str(uuid.uuid4()),
        "share_session_epoch": 1,
        "topics": [{"topic_id": at.topic_id, "partitions": rows}],
    }


def _voter(at: Resources, version: int) -> Fields:
    return {"cluster_id": "another", "voter_id": UNKNOWN_ID, "voter_directory_id": uuid.uuid4()}


def _add_raft_voter(at: Resources, version: int) -> Fields:
    listener = {"name": "CONTROLLER", "host": "127.0.0.1", "port": 9}
    return {**_voter(at, version), "listeners": [listener], "timeout_ms": TIMEOUT}


def _share_state(at: Resources, version: int, **fields: Any) -> Fields:
    """Name the state of a share group, which its coordinator keeps for partition leaders."""
    rows = [{"partition": 0, **fields}]
    return {"group_id": at.group, "topics": [{"topic_id": at.topic_id, "partitions": rows}]}


def _write_share_group_state(at: Resources, version: int) -> Fields:
    delivered = {"first_offset": 0, "last_offset": 0, "delivery_state": 2, "delivery_count": 1}
    return _share_state(at, version, start_offset=0, state_batches=[delivered])


def _streams_group_heartbeat(at: Resources, version: int) -> Fields:
    empty: list[Any] = []
    topology = {"epoch": 0, "subtopologies": [{"subtopology_id": "0", "source_topics": [at.topic]}]}
    return {
        "group_id": at.streams_group,
        "member_id": str(uuid.uuid4()),
        "process_id": "p",
        "rebalance_timeout_ms": 6_000,
        "topology": topology,
        "active_tasks": empty,
        "standby_tasks": empty,
        "warmup_tasks": empty,
        "client_tags": empty,
    }


def _streams_topology(at: Resources, version: int) -> Fields:
    node = {"name": "source", "node_type": 1, "source_topics": [at.topic]}
    parts = [{"subtopology_id": "0", "nodes": [node]}]
    return {
        "group_id": at.missing,
        "member_id": "unknown",
        "topology_description": {"subtopologies": parts},
    }


def _describe_share_group_offsets(at: Resources, version: int) -> Fields:
    rows = [{"topic_name": at.topic, "partitions": at.partitions}]
    return {"groups": [{"group_id": at.share_group, "topics": rows}]}


def _alter_share_group_offsets(at: Resources, version: int) -> Fields:
    rows = [{"partition_index": 0, "start_offset": 0}]
    return {"group_id": at.share_group, "topics": [{"topic_name": at.topic, "partitions": rows}]}


REQUESTS: dict[str, Callable[[Resources, int], Fields]] = {
    "Produce": _produce,
    "Fetch": _fetch,
    "ListOffsets": _list_offsets,
    "Metadata": _metadata,
    "OffsetCommit": _offset_commit,
    "OffsetFetch": _offset_fetch,
    "FindCoordinator": _find_coordinator,
    "JoinGroup": _join_group,
    "Heartbeat": lambda at, _: {"group_id": at.group, "member_id": "unknown"},
    "LeaveGroup": _leave_group,
    "SyncGroup": lambda at, _: {"group_id": at.group, "member_id": "unknown"},
    "DescribeGroups": lambda at, _: {"groups": [at.missing, *at.joined]},
    "ListGroups": lambda _, __: {},
    "SaslHandshake": lambda _, __: {"mechanism": "PLAIN"},
    "ApiVersions": lambda _, __: {"client_software_name": "a", "client_software_version": "1"},
    "CreateTopics": _create_topics,
    "DeleteTopics": _delete_topics,
    "DeleteRecords": _delete_records,
    "InitProducerId": lambda _, __: {"transactional_id": None, "transaction_timeout_ms": 60_000},
    "OffsetForLeaderEpoch": _offset_for_leader_epoch,
    "AddPartitionsToTxn": _add_partitions_to_txn,
    "AddOffsetsToTxn": _add_offsets_to_txn,
    "EndTxn": _end_txn,
    "WriteTxnMarkers": _write_txn_markers,
    "TxnOffsetCommit": _txn_offset_commit,
    "DescribeAcls": _acl_filter,
    "CreateAcls": _create_acls,
    "DeleteAcls": lambda at, version: {"filters": [_acl_filter(at, version)]},
    "DescribeConfigs": _describe_configs,
    "AlterConfigs": _alter_configs,
    "AlterReplicaLogDirs": _alter_replica_log_dirs,
    "DescribeLogDirs": lambda _, __: {"topics": None},
    "SaslAuthenticate": lambda _, __: {"auth_bytes": b"\0user\0password"},
    "CreatePartitions": _create_partitions,
    "CreateDelegationToken": lambda _, __: {"max_lifetime_ms": -1},
    "RenewDelegationToken": lambda _, __: {"hmac": b"h", "renew_period_ms": 1},
    "ExpireDelegationToken": lambda _, __: {"hmac": b"h", "expiry_time_period_ms": 1},
    "DescribeDelegationToken": lambda _, __: {"owners": None},
    "DeleteGroups": lambda at, _: {"groups_names": [at.missing]},
    "ElectLeaders": _elect_leaders,
    "IncrementalAlterConfigs": _alter_configs,
    "AlterPartitionReassignments": _alter_partition_reassignments,
    "ListPartitionReassignments": lambda _, __: {"topics": None, "timeout_ms": TIMEOUT},
    "OffsetDelete": _offset_delete,
    "DescribeClientQuotas": lambda _, __: {"strict": False},
    "AlterClientQuotas": _alter_client_quotas,
    "DescribeUserScramCredentials": lambda _, __: {"users": [{"name": "unknown"}]},
    "AlterUserScramCredentials": lambda _, __: {"deletions": [{"name": "unknown", "mechanism": 1}]},
    "DescribeQuorum": _describe_quorum,
    "UpdateFeatures": _update_features,
    "DescribeCluster": lambda _, __: {"include_cluster_authorized_operations": True},
    "DescribeProducers": _describe_producers,
    "UnregisterBroker": lambda _, __: {"broker_id": UNKNOWN_ID},
    "DescribeTransactions": lambda at, _: {"transactional_ids": [at.transactional_id]},
    "ListTransactions": lambda _, __: {},
    "ConsumerGroupHeartbeat": _consumer_group_heartbeat,
    "ConsumerGroupDescribe": lambda at, _: {"group_ids": [at.consumer_group]},
    "GetTelemetrySubscriptions": lambda _, __: {},
    "PushTelemetry": lambda _, __: {"client_instance_id": uuid.uuid4()},
    "ListConfigResources": lambda _, __: {},
    "DescribeTopicPartitions": lambda at, _: {
        "topics": [{"name": at.topic}],
        "response_partition_limit": 10,
    },
    "ShareGroupHeartbeat": _share_group_heartbeat,
    "ShareGroupDescribe": lambda at, _: {"group_ids": [at.share_group]},
    "ShareFetch": _share_fetch,
    "ShareAcknowledge": _share_acknowledge,
    "AddRaftVoter": _add_raft_voter,
    "RemoveRaftVoter": _voter,
    "InitializeShareGroupState": _share_state,
    "ReadShareGroupState": _share_state,
    "WriteShareGroupState": _write_share_group_state,
    "DeleteShareGroupState": _share_state,
    "ReadShareGroupStateSummary": _share_state,
    "StreamsGroupHeartbeat": _streams_group_heartbeat,
    "StreamsGroupDescribe": lambda at, _: {"group_ids": [at.streams_group]},
    "DescribeShareGroupOffsets": _describe_share_group_offsets,
    "AlterShareGroupOffsets": _alter_share_group_offsets,
    "DeleteShareGroupOffsets": lambda at, _: {
        "group_id": at.share_group,
        "topics": [{"topic_name": at.topic}],
    },
    "StreamsGroupTopologyDescriptionUpdate": _streams_topology,
    "UnregisterController": lambda _, __: {"controller_id": UNKNOWN_ID},
}
"""Functions that return fields, by API; every API that a broker advertises has one."""
