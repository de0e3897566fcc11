"""Builds a well-formed request of every API in every version from the protocol's schema.

A request changes only resources of its test, only validates, or names resources that do not exist.
A response with an error code is enough; most requests are chosen to succeed, since their responses
have more fields with contents.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kafka_async.protocol.spec import Array, Struct
from tests.raw_connection import batch

if TYPE_CHECKING:
    from kafka_async.protocol.message import Request
    from kafka_async.protocol.registry import Api

Fields = dict[str, Any]

UNKNOWN_ID = 4711
"""The id of a broker, controller, producer or voter that does not exist."""
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


DEFAULTS = {
    *("Produce.transactional_id", "InitProducerId.producer_id", "InitProducerId.producer_epoch"),
    *("WriteTxnMarkers.producer_epoch", "Metadata.topic_id", "DeleteTopics.topic_id"),
    *("CreateTopics.configs", "assignments", "acknowledgement_batches", "components", "cursor"),
    *("forgotten_topics_data", "renewers", "upsertions", "user_endpoint", "global_stores"),
    *("state_changelog_topics", "repartition_source_topics", "copartition_groups"),
    *("task_offsets", "task_end_offsets"),
}
"""Fields, of one API or of all, that requests leave at their default."""


def values_of(at: Resources) -> Fields:
    """Return the values of fields, by "API.field" or by field; other scalars keep their default."""
    missing = f"{at.topic}-missing"
    configs = [
        {"resource_type": kind, "resource_name": name, "configuration_keys": None}
        for kind, name in ((TOPIC, at.topic), (BROKER, str(at.broker_id)))
    ]
    rows: list[tuple[object, str]] = [
        (at.topic, "name topic topic_name resource_name resource_name_filter"),
        (at.topic_id, "topic_id"),
        ([at.topic], "source_topics subscribed_topic_names"),
        (at.group, "group_id key"),
        ([at.group], "coordinator_keys"),
        (at.consumer_group, "ConsumerGroupHeartbeat.group_id"),
        ([at.consumer_group], "ConsumerGroupDescribe.group_ids"),
        (at.share_group, "ShareGroupHeartbeat.group_id ShareFetch.group_id"),
        (at.share_group, "DescribeShareGroupOffsets.group_id AlterShareGroupOffsets.group_id"),
        (at.share_group, "DeleteShareGroupOffsets.group_id"),
        ([at.share_group], "ShareGroupDescribe.group_ids"),
        (at.streams_group, "StreamsGroupHeartbeat.group_id"),
        ([at.streams_group], "StreamsGroupDescribe.group_ids"),
        (at.transactional_id, "transactional_id"),
        ([at.transactional_id], "transactional_ids"),
        (at.producer_id, "producer_id"),
        (at.producer_epoch, "producer_epoch"),
        (missing, "CreateTopics.name DeleteTopics.name OffsetDelete.name AlterReplicaLogDirs.name"),
        (missing, "ShareAcknowledge.group_id StreamsGroupTopologyDescriptionUpdate.group_id"),
        ([missing], "topic_names groups_names"),
        ([missing, *at.joined], "DescribeGroups.groups"),
        (str(uuid.uuid4()), "ConsumerGroupHeartbeat.member_id ShareGroupHeartbeat.member_id"),
        (str(uuid.uuid4()), "ShareFetch.member_id ShareAcknowledge.member_id"),
        (str(uuid.uuid4()), "StreamsGroupHeartbeat.member_id"),
        ("unknown", "StreamsGroupTopologyDescriptionUpdate.member_id entity_name"),
        ("unknown", "Heartbeat.member_id SyncGroup.member_id LeaveGroup.member_id"),
        ("unknown", "DescribeUserScramCredentials.name AlterUserScramCredentials.name"),
        (uuid.uuid4(), "voter_directory_id PushTelemetry.client_instance_id"),
        (UNKNOWN_ID, "broker_id controller_id voter_id WriteTxnMarkers.producer_id"),
        (batch(b"value", timestamp=int(time.time() * 1000)), "records"),
        (5_000, "timeout_ms"),
        (6_000, "session_timeout_ms rebalance_timeout_ms"),
        (60_000, "transaction_timeout_ms"),
        (1 << 20, "max_bytes partition_max_bytes"),
        (True, "validate_only verify_only committed include_synonyms include_documentation"),
        (True, "include_topic_authorized_operations include_cluster_authorized_operations"),
        (False, "Metadata.allow_auto_topic_creation"),
        (-1, "acks session_epoch timestamp max_lifetime_ms ListOffsets.replica_id"),
        (0, "OffsetForLeaderEpoch.leader_epoch"),
        (1, "committed_offset operation permission_type delivery_count node_type"),
        (1, "max_version_level renew_period_ms expiry_time_period_ms"),
        (1, "CreateTopics.num_partitions CreateTopics.replication_factor"),
        (1, "AlterUserScramCredentials.mechanism ShareAcknowledge.share_session_epoch"),
        (2, "delivery_state CreatePartitions.count"),
        (3, "resource_pattern_type pattern_type_filter"),
        (3, "CreateAcls.operation CreateAcls.permission_type"),
        (9, "port"),
        (10, "max_records batch_size response_partition_limit"),
        (TOPIC, "resource_type resource_type_filter"),
        ([0], "partitions partition_indexes"),
        ([{"acknowledge_types": [1]}], "ShareAcknowledge.acknowledgement_batches"),
        (configs, "DescribeConfigs.resources"),
        ((), "StreamsGroupHeartbeat.active_tasks StreamsGroupHeartbeat.standby_tasks"),
        ((), "StreamsGroupHeartbeat.warmup_tasks StreamsGroupHeartbeat.client_tags"),
        ((), "ConsumerGroupHeartbeat.topic_partitions"),
        (None, "replicas DescribeLogDirs.topics ListPartitionReassignments.topics"),
        (None, "DescribeDelegationToken.owners CreatePartitions.assignments"),
        (None, "InitProducerId.transactional_id"),
        ("0", "subtopology_id"),
        ("1000", "value"),
        (1000.0, "AlterClientQuotas.value"),
        (b"m", "metadata"),
        (b"h", "hmac"),
        (b"\0user\0password", "auth_bytes"),
    ]
    texts = {
        "m": "committed_metadata",
        "a": "client_software_name",
        "1": "client_software_version",
        "p": "process_id",
        "*": "host",
        "127.0.0.1": "AddRaftVoter.host",
        "/nowhere": "path",
        "user": "entity_type",
        "User:unknown": "principal",
        "PLAIN": "SaslHandshake.mechanism",
        "consumer": "JoinGroup.protocol_type",
        "range": "JoinGroup.name",
        "retention.ms": "AlterConfigs.name IncrementalAlterConfigs.name",
        "producer_byte_rate": "AlterClientQuotas.key",
        "no.such.feature": "feature",
        "another": "AddRaftVoter.cluster_id RemoveRaftVoter.cluster_id",
        "CONTROLLER": "AddRaftVoter.name",
        "source": "StreamsGroupTopologyDescriptionUpdate.name",
        "__cluster_metadata": "DescribeQuorum.topic_name",
    }
    return {name: value for value, names in [*rows, *texts.items()] for name in names.split()}


def request_of(known: Api, version: int, at: Resources) -> Request[Any]:
    """Return a request of an API in a version, with one element in each array of structures."""
    values = values_of(at)
    if known.name == "JoinGroup":  # A second member would wait for the first one to rejoin.
        at.joined.append(next(at.groups))
        values["JoinGroup.group_id"] = at.joined[-1]

    if known.name == "Metadata" and version >= 4:  # Older versions create topics.
        values["Metadata.topics"] = [{"name": at.topic}, {"name": f"{at.topic}-missing"}]

    def fields_of(kind: type[Struct]) -> Fields:
        fields: Fields = {}
        for row in kind.SPEC.untagged_fields(version):
            own, name = f"{known.name}.{row.name}", row.name.removeprefix("v3_and_below_")
            element = row.type.element if isinstance(row.type, Array) else row.type
            if own in values:
                fields[row.name] = values[own]
            elif own in DEFAULTS or name in DEFAULTS:
                continue
            elif isinstance(element, type):
                inner = fields_of(element)
                fields[row.name] = [inner] if isinstance(row.type, Array) else inner
            elif name in values:
                fields[row.name] = values[name]
        return fields

    return known.request.from_dict(fields_of(known.request))
