"""Requests of users with and without ACLs, and the error codes that Kafka returns to them."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from kafka_async.admin import (
    AclBinding,
    AclOperation,
    AclPatternType,
    AclPermission,
    AclResourceType,
)
from kafka_async.protocol import api
from kafka_async.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kafka_async.protocol.registry import Api
from kafka_async.protocol.spec import Struct
from tests.raw_connection import batch

if TYPE_CHECKING:
    from kafka_async.protocol.message import Request

Fields: TypeAlias = dict[str, Any]
Op: TypeAlias = AclOperation
CLUSTER_NAME: Final = "kafka-cluster"
UNKNOWN_ID: Final = uuid.UUID(int=4711)
CODE_FIELDS: Final = ("error_code", "partition_error_code", "topic_config_error_code")


@dataclass(frozen=True)
class Names:
    """Holds the resources of a test.

    Attributes:
        user: The principal that sends requests, without ACLs at first.
        topic: An existing topic of one partition.
        other: Another one, on which the user gets no permission.
        missing: A topic that does not exist.
        group: A group with a committed offset of `topic` and of `other`.
        txn: A transactional id that no producer has used.
        topic_id: The id of `topic`.
        other_id: The id of `other`.
    """

    user: str
    topic: str
    other: str
    missing: str
    group: str
    txn: str
    topic_id: uuid.UUID
    other_id: uuid.UUID


Result: TypeAlias = "Callable[[Names, Any], list[Any]]"
Grant: TypeAlias = "Callable[[Names], AclBinding]"
Expected: TypeAlias = "Sequence[Any] | Callable[[Names], Sequence[Any]]"


@dataclass(frozen=True)
class Phase:
    """Gives the user more ACLs, and says what the responses are then."""

    expected: Expected
    grants: Sequence[Grant] = ()


@dataclass(frozen=True)
class Case:
    """Sends one request as a user whose ACLs grow from phase to phase.

    Attributes:
        name: Name of the test.
        request: Returns the request.
        version: Version of the request.
        phases: What is expected; the first one has no ACLs, unless it says so.
        result: What a response is compared by; default: all error codes in order.
        needs: API key and version that brokers with the resource type of the request have; others
            respond INVALID_REQUEST. Default: API and version of the request; brokers without them
            close the connection.
    """

    name: str
    request: Callable[[Names], Request[Any]]
    version: int
    phases: Sequence[Phase]
    result: Result
    needs: tuple[int, int] | None = None

    def is_supported(self, versions: Mapping[int, range], names: Names) -> bool:
        """Return True if a broker that advertises these versions, by API key, has the request."""
        key, version = self.needs or (self.request(names).API_KEY, self.version)
        return version in versions.get(key, ())


def codes_at(version: int) -> Result:
    """Return the error codes in a response of a version; elements are in the order of `Names`."""

    def codes(names: Names, value: Any) -> list[Any]:
        if isinstance(value, Struct):
            fields = [
                (spec.name, getattr(value, spec.name))
                for spec in value.SPEC.fields
                if spec.versions.contains(version)
            ]
            found = [field for name, field in fields if name in CODE_FIELDS]
            return found + [
                code
                for name, field in fields
                if name not in CODE_FIELDS
                for code in codes(names, field)
            ]
        if isinstance(value, list | tuple):
            elements = sorted(cast("Sequence[Any]", value), key=lambda it: position(names, it))
            return [code for element in elements for code in codes(names, element)]
        return []

    return codes


def position(names: Names, element: Any) -> int:
    """Return the position of the resource that an element of a response names."""
    order = (names.topic, names.topic_id, names.other, names.other_id, names.missing, names.group)
    for field in ("name", "topic", "topic_id", "group_id", "resource_name"):
        if getattr(element, field, None) in order:
            return order.index(getattr(element, field))
    return len(order)


def request(name: str, **fields: Any) -> Callable[[Names], Request[Any]]:
    """Return a request whose fields name attributes of `Names` as "<topic>"."""

    def build(names: Names) -> Request[Any]:
        found = api.lookup(name)
        assert isinstance(found, Api)
        return found.request.from_dict(filled(fields, names))

    return build


def filled(value: Any, names: Names) -> Any:
    """Return a value with the names of the test in it."""
    if isinstance(value, dict):
        rows = cast("dict[str, Any]", value)
        return {key: filled(element, names) for key, element in rows.items()}
    if isinstance(value, list):
        return [filled(element, names) for element in cast("list[Any]", value)]
    if isinstance(value, str) and value.startswith("<"):
        return getattr(names, value[1:-1])
    return value


def allow(
    operation: AclOperation,
    name: str = "<topic>",
    kind: AclResourceType = AclResourceType.TOPIC,
    *,
    permission: AclPermission = AclPermission.ALLOW,
    host: str = "*",
    principal: str | None = None,
    prefix: int | None = None,
) -> Grant:
    """Return an ACL for the user; with `prefix`, for names with these first characters."""

    def build(names: Names) -> AclBinding:
        resource = cast("str", filled(name, names))
        pattern = AclPatternType.LITERAL if prefix is None else AclPatternType.PREFIXED
        return AclBinding(
            kind,
            resource[:prefix],
            principal or f"User:{names.user}",
            operation,
            permission,
            host,
            pattern,
        )

    return build


def group(operation: AclOperation) -> Grant:
    """Return an ACL that allows an operation on the group."""
    return allow(operation, "<group>", AclResourceType.GROUP)


def txn(operation: AclOperation) -> Grant:
    """Return an ACL that allows an operation on the transactional id."""
    return allow(operation, "<txn>", AclResourceType.TRANSACTIONAL_ID)


def cluster(operation: AclOperation) -> Grant:
    """Return an ACL that allows an operation on the cluster."""
    return allow(operation, CLUSTER_NAME, AclResourceType.CLUSTER)


def bits(*operations: AclOperation) -> int:
    """Return operations as the bits of a field `authorized_operations`."""
    return sum(1 << operation for operation in operations)


def case(
    name: str,
    version: int,
    build: Callable[[Names], Request[Any]],
    denied: Expected,
    *phases: Phase,
    result: Result | None = None,
    needs: tuple[int, int] | None = None,
) -> Case:
    """Return a case: what is expected without ACLs, then what is in later phases."""
    return Case(name, build, version, [Phase(denied), *phases], result or codes_at(version), needs)


def then(expected: Expected, *grants: Grant) -> Phase:
    """Return a phase with more ACLs."""
    return Phase(expected, grants)


# -- requests -------------------------------------------------------------------------------------

BOTH: Final = ("<topic>", "<other>")


def produce(names: Names, *, transactional: bool = False, by_id: bool = False) -> Request[Any]:
    """Return a Produce request for both topics."""
    kind: Fields = {"producer_id": 4711, "epoch": 0, "sequence": 0} if transactional else {}
    rows = [
        {
            **({"topic_id": topic_id} if by_id else {"name": name}),
            "partition_data": [
                {"index": 0, "records": batch(b"v", transactional=transactional, **kind)}
            ],
        }
        for name, topic_id in (
            (names.topic, names.topic_id),
            (names.other, names.other_id),
        )
    ]
    fields: Fields = {"acks": -1, "timeout_ms": 10_000, "topic_data": rows}
    if transactional:
        fields["transactional_id"] = names.txn
    return request("Produce", **fields)(names)


def fetch(*, by_id: bool = False) -> Callable[[Names], Request[Any]]:
    """Return a Fetch request for both topics; by id, for an unknown id too."""
    partition = {"partition": 0, "partition_max_bytes": 1 << 20}
    keys: list[Fields] = [{"topic": name} for name in BOTH]
    if by_id:
        keys = [{"topic_id": id_} for id_ in ("<topic_id>", "<other_id>", UNKNOWN_ID)]
    topics = [{**key, "partitions": [partition]} for key in keys]
    return request("Fetch", max_bytes=1 << 20, session_epoch=-1, topics=topics)


def topics_of(array: str = "partitions", **partition: Any) -> list[Fields]:
    """Return both topics, each with one partition."""
    return [{"name": name, array: [partition] if partition else [0]} for name in BOTH]


def metadata(*names: str, auto: bool = False, **fields: Any) -> Callable[[Names], Request[Any]]:
    """Return a Metadata request for topics by name."""
    rows = [{"name": name} for name in names]
    return request("Metadata", topics=rows, allow_auto_topic_creation=auto, **fields)


def known(names: Names, found: Sequence[Any]) -> list[Any]:
    """Return those of some names that belong to the test, sorted."""
    mine = {names.topic, names.other, names.missing, names.group, names.txn}
    return sorted(name for name in found if name in mine)


def topic_names(names: Names, response: Any) -> list[Any]:
    """Return the test's topics in a response."""
    return known(names, [topic.name for topic in response.topics])


def group_ids(names: Names, response: Any) -> list[Any]:
    """Return the test's groups in a response."""
    return known(names, [row.group_id for row in response.groups])


def committed(names: Names, response: Any) -> list[Any]:
    """Return the topics of the first group in an OffsetFetch response."""
    return known(names, [topic.name for topic in response.groups[0].topics])


def operations_of_cluster(names: Names, response: Any) -> list[Any]:
    """Return the operations on the cluster that a response has."""
    return [response.cluster_authorized_operations]


def config(kind: int, name: str) -> Fields:
    """Return a resource of DescribeConfigs."""
    return {
        "resource_type": kind,
        "resource_name": name,
        "configuration_keys": ["cleanup.policy"],
    }


def change(kind: int, name: str, value: str | None = "1") -> Fields:
    """Return a resource of IncrementalAlterConfigs."""
    row = {"name": "retention.ms", "value": value, "config_operation": 0}
    return {"resource_type": kind, "resource_name": name, "configs": [row]}


def create_topics(*names: str) -> Callable[[Names], Request[Any]]:
    """Return a CreateTopics request that only validates."""
    rows = [{"name": name, "num_partitions": 1, "replication_factor": 1} for name in names]
    return request("CreateTopics", topics=rows, timeout_ms=10_000, validate_only=True)


def created(names: Names, response: Any) -> list[Any]:
    """Return code, configuration code, number of partitions and of configurations per topic."""
    return [
        (
            row.error_code,
            row.topic_config_error_code,
            row.num_partitions,
            row.replication_factor,
            bool(row.configs),
        )
        for row in response.topics
    ]


def deleted(names: Names, response: Any) -> list[Any]:
    """Return the name and the code of each topic of a DeleteTopics response."""
    return [(row.name, row.error_code) for row in response.responses]


TXN_TOPICS: Final = [{"name": name, "partitions": [0]} for name in BOTH]
ADD_TO_TXN: Final[Fields] = {
    "v3_and_below_transactional_id": "<txn>",
    "v3_and_below_producer_id": 4711,
    "v3_and_below_producer_epoch": 0,
}
OFFSET: Final[Fields] = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
FILTER: Final[Fields] = {
    "resource_type_filter": 1,
    "resource_name_filter": "<missing>",
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}
ACL: Final[Fields] = {
    "resource_type": 2,
    "resource_name": "<missing>",
    "resource_pattern_type": 3,
    "principal": "User:guest",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}
offset_commit: Final = request(
    "OffsetCommit",
    group_id="<group>",
    generation_id_or_member_epoch=-1,
    topics=topics_of(**OFFSET),
)
JOIN: Final[Fields] = {
    "group_id": "<group>",
    "session_timeout_ms": 10_000,
    "rebalance_timeout_ms": 10_000,
    "protocol_type": "consumer",
    "protocols": [{"name": "range", "metadata": b""}],
}
MEMBER: Final[Fields] = {"group_id": "<group>", "generation_id": 1, "member_id": "m"}
GROUP_CONFIGS: Final = ConsumerGroupHeartbeatRequest.API_KEY, 1
"""Version of an API that brokers with configurations of groups have: those since Kafka 4.0."""
DENY: Final = AclPermission.DENY
GROUP_TYPE: Final = AclResourceType.GROUP

# -- cases ----------------------------------------------------------------------------------------

TOPIC_CASES: Final = [
    case("produce", 9, produce, [29, 29], then([0, 29], allow(Op.WRITE))),
    case(
        "produce_by_id",
        13,
        lambda names: produce(names, by_id=True),
        [29, 29],
        then([0, 29], allow(Op.WRITE)),
    ),
    case(
        "produce_transactional",
        9,
        lambda names: produce(names, transactional=True),
        [53, 53],
        then([53, 53], allow(Op.WRITE)),
    ),
    case("fetch", 12, fetch(), [0, 29, 29], then([0, 0, 29], allow(Op.READ))),
    case(
        "fetch_by_id",
        13,
        fetch(by_id=True),
        [0, 29, 29, 100],
        then([0, 0, 29, 100], allow(Op.READ)),
    ),
    case(
        "list_offsets",
        7,
        request(
            "ListOffsets",
            replica_id=-1,
            topics=topics_of(partition_index=0, timestamp=-1),
        ),
        [29, 29],
        then([0, 29], allow(Op.DESCRIBE)),
    ),
    case(
        "offset_for_leader_epoch",
        4,
        request(
            "OffsetForLeaderEpoch",
            replica_id=-1,
            topics=[
                {"topic": name, "partitions": [{"partition": 0, "leader_epoch": 0}]}
                for name in BOTH
            ],
        ),
        [29, 29],
        then([0, 29], allow(Op.DESCRIBE)),
        then([0, 0], cluster(Op.CLUSTER_ACTION)),
    ),
    case(
        "delete_records",
        2,
        request("DeleteRecords", timeout_ms=10_000, topics=topics_of(partition_index=0, offset=0)),
        [29, 29],
        then([0, 29], allow(Op.DELETE)),
    ),
    case(
        "describe_producers",
        0,
        request(
            "DescribeProducers",
            topics=[
                *topics_of("partition_indexes"),
                {"name": "no/name", "partition_indexes": [0]},
            ],
        ),
        [29, 29, 17],
        then([0, 29, 17], allow(Op.READ)),
    ),
    case(
        "create_partitions",
        3,
        request(
            "CreatePartitions",
            topics=[{"name": name, "count": 2, "assignments": None} for name in BOTH],
            timeout_ms=10_000,
            validate_only=True,
        ),
        [29, 29],
        then([0, 29], allow(Op.ALTER)),
    ),
]

METADATA_CASES: Final = [
    case(
        "metadata_of_names",
        12,
        metadata("<topic>", "<missing>"),
        [29, 29],
        then([0, 0, 29], allow(Op.DESCRIBE)),
        then([0, 0, 3], allow(Op.DESCRIBE, "<missing>")),
    ),
    case(
        "metadata_of_ids",
        12,
        request(
            "Metadata",
            topics=[{"topic_id": "<topic_id>", "name": None}],
            allow_auto_topic_creation=False,
        ),
        [(None, 29)],
        then(lambda names: [(names.topic, 0)], allow(Op.DESCRIBE)),
        result=lambda names, response: [(row.name, row.error_code) for row in response.topics],
    ),
    case(
        "metadata_of_all_topics",
        12,
        request("Metadata", topics=None),
        [],
        then(lambda names: [names.topic], allow(Op.DESCRIBE)),
        result=topic_names,
    ),
    *[
        case(
            f"{operation.name.lower()}_implies_describe",
            9,
            metadata("<topic>"),
            [29],
            then([0, 0], allow(operation)),
        )
        for operation in (Op.READ, Op.WRITE, Op.DELETE, Op.ALTER, Op.ALL)
    ],
    *[
        case(
            f"{operation.name.lower()}_does_not_imply_describe",
            9,
            metadata("<topic>"),
            [29],
            then([29], allow(operation), allow(Op.READ, "<other>")),
        )
        for operation in (Op.CREATE, Op.DESCRIBE_CONFIGS, Op.ALTER_CONFIGS)
    ],
    case(
        "automatic_creation_needs_create",
        9,
        metadata("<missing>", auto=True),
        [29],
        then([29], allow(Op.DESCRIBE, "<missing>")),
        then([0, 0], allow(Op.CREATE, "<missing>")),
    ),
    case(
        "automatic_creation_with_create_on_the_cluster",
        9,
        metadata("<missing>", auto=True),
        [29],
        then([0, 0], cluster(Op.CREATE), allow(Op.DESCRIBE, "<missing>")),
    ),
    case(
        "authorized_operations_of_topics",
        9,
        metadata("<topic>", include_topic_authorized_operations=True),
        [-(1 << 31)],
        then(
            [bits(Op.READ, Op.DESCRIBE, Op.DESCRIBE_CONFIGS, Op.ALTER_CONFIGS)],
            allow(Op.READ),
            allow(Op.ALTER_CONFIGS),
        ),
        result=lambda names, response: [row.topic_authorized_operations for row in response.topics],
    ),
    case(
        "authorized_operations_of_the_cluster_in_metadata",
        9,
        metadata("<topic>", include_cluster_authorized_operations=True),
        [0],
        then([0], cluster(Op.CREATE)),
        then([bits(Op.CREATE, Op.DESCRIBE)], cluster(Op.DESCRIBE)),
        result=operations_of_cluster,
    ),
    case(
        "authorized_operations_of_the_cluster",
        1,
        request("DescribeCluster", endpoint_type=1, include_cluster_authorized_operations=True),
        [0],
        then(
            [bits(Op.ALTER, Op.DESCRIBE, Op.IDEMPOTENT_WRITE)],
            cluster(Op.ALTER),
            cluster(Op.IDEMPOTENT_WRITE),
        ),
        result=operations_of_cluster,
    ),
    case(
        "describe_topic_partitions",
        0,
        request(
            "DescribeTopicPartitions",
            topics=[{"name": name} for name in BOTH],
            response_partition_limit=9,
        ),
        lambda names: sorted([(names.topic, 29), (names.other, 29)]),
        then(lambda names: sorted([(names.topic, 0), (names.other, 29)]), allow(Op.DESCRIBE)),
        result=lambda names, response: sorted(
            (row.name, row.error_code) for row in response.topics
        ),
    ),
    case(
        "describe_partitions_of_all_topics",
        0,
        request("DescribeTopicPartitions", topics=[], response_partition_limit=2_000),
        [],
        then(lambda names: [names.topic], allow(Op.DESCRIBE)),
        result=topic_names,
    ),
    case(
        "find_coordinator_of_group",
        4,
        request("FindCoordinator", key_type=0, coordinator_keys=["<group>"]),
        [30],
        then([0], group(Op.DESCRIBE)),
    ),
    case(
        "find_coordinator_of_transactional_id",
        3,
        request("FindCoordinator", key_type=1, key="<txn>"),
        [53],
        then([0], txn(Op.WRITE)),
    ),
]

GROUP_CASES: Final = [
    case(
        "offset_commit",
        9,
        offset_commit,
        [30, 30],
        then([30, 30], allow(Op.READ)),
        then([0, 29], group(Op.READ)),
    ),
    case(
        "offset_fetch",
        9,
        request(
            "OffsetFetch",
            groups=[
                {
                    "group_id": "<group>",
                    "topics": [{"name": name, "partition_indexes": [0]} for name in BOTH],
                }
            ],
        ),
        [30],
        then([0, 29, 29], group(Op.DESCRIBE)),
        then([0, 0, 29], allow(Op.DESCRIBE)),
    ),
    case(
        "offset_fetch_of_one_group",
        7,
        request(
            "OffsetFetch",
            group_id="<group>",
            topics=[{"name": name, "partition_indexes": [0]} for name in BOTH],
        ),
        [30],
        then([0, 29, 29], group(Op.READ)),
        then([0, 0, 29], allow(Op.READ)),
    ),
    case(
        "offset_fetch_of_all_topics",
        9,
        request("OffsetFetch", groups=[{"group_id": "<group>", "topics": None}]),
        [],
        then([], group(Op.DESCRIBE)),
        then(lambda names: [names.topic], allow(Op.DESCRIBE)),
        result=committed,
    ),
    case("join_group", 9, request("JoinGroup", **JOIN), [30], then([79], group(Op.READ))),
    case(
        "sync_group",
        5,
        request("SyncGroup", **MEMBER, protocol_type="consumer", protocol_name="range"),
        [30],
        then([25], group(Op.READ)),
    ),
    case(
        "sync_group_without_protocol",
        5,
        request("SyncGroup", **MEMBER, protocol_type=None, protocol_name=None),
        [23],
    ),
    case(
        "consumer_group_heartbeat",
        1,
        request(
            "ConsumerGroupHeartbeat",
            group_id="<group>",
            member_id="m",
            member_epoch=0,
            rebalance_timeout_ms=30_000,
            subscribed_topic_names=["<topic>"],
            topic_partitions=[],
        ),
        [30],
        then([29], group(Op.READ)),
        then([0], allow(Op.DESCRIBE)),
    ),
    case(
        "consumer_group_describe",
        1,
        request("ConsumerGroupDescribe", group_ids=["<group>"], include_authorized_operations=True),
        [30],
        then([69], group(Op.DESCRIBE)),
    ),
    case("heartbeat", 4, request("Heartbeat", **MEMBER), [30], then([25], group(Op.READ))),
    case(
        "leave_group",
        5,
        request("LeaveGroup", group_id="<group>", members=[{"member_id": "m"}]),
        [30],
        then([0, 25], group(Op.READ)),
    ),
    case(
        "describe_groups",
        5,
        request(
            "DescribeGroups", groups=["<group>", "<missing>"], include_authorized_operations=True
        ),
        lambda names: [(names.group, 30, -(1 << 31)), (names.missing, 30, -(1 << 31))],
        then(
            lambda names: [
                (names.missing, 30, -(1 << 31)),
                (names.group, 0, bits(Op.DESCRIBE, Op.DELETE)),
            ],
            group(Op.DESCRIBE),
            group(Op.DELETE),
        ),
        result=lambda names, response: [
            (row.group_id, row.error_code, row.authorized_operations) for row in response.groups
        ],
    ),
    case(
        "list_groups",
        4,
        request("ListGroups"),
        [],
        then(lambda names: [names.group], group(Op.DESCRIBE)),
        result=group_ids,
    ),
    case(
        "list_groups_with_describe_on_the_cluster",
        4,
        request("ListGroups"),
        [],
        then(lambda names: [names.group], cluster(Op.DESCRIBE)),
        result=group_ids,
    ),
    case(
        "delete_groups",
        2,
        request("DeleteGroups", groups_names=["<missing>", "<other>"]),
        [30, 30],
        then([30, 69], allow(Op.DELETE, "<missing>", GROUP_TYPE)),
    ),
    case(
        "offset_delete",
        0,
        request("OffsetDelete", group_id="<group>", topics=topics_of(partition_index=0)),
        [30],
        then([0, 29, 29], group(Op.DELETE)),
        then([0, 0, 29], allow(Op.READ)),
    ),
]


SHARE_TOPICS: Final = [
    {"topic_id": id_, "partitions": [{"partition_index": 0}]}
    for id_ in ("<topic_id>", "<other_id>")
]
SHARE_GROUP_CASES: Final = [
    case(
        "share_group_heartbeat",
        1,
        request(
            "ShareGroupHeartbeat",
            group_id="<missing>",
            member_id="m",
            member_epoch=0,
            subscribed_topic_names=["<topic>"],
        ),
        [30],
        then([29], allow(Op.READ, "<missing>", GROUP_TYPE)),
        then([0], allow(Op.DESCRIBE)),
    ),
    case(
        "share_group_describe",
        1,
        request("ShareGroupDescribe", group_ids=["<group>"], include_authorized_operations=True),
        [30],
        then([69], group(Op.DESCRIBE)),
    ),
    case(
        "share_fetch",
        1,
        request(
            "ShareFetch",
            group_id="<missing>",
            member_id="m",
            share_session_epoch=0,
            max_bytes=1 << 20,
            max_records=1,
            topics=SHARE_TOPICS,
        ),
        [30],
        then([0, 29, 29], allow(Op.READ, "<missing>", GROUP_TYPE)),
        then([0, -1, 29], allow(Op.READ)),
    ),
    case(
        "share_acknowledge",
        1,
        request(
            "ShareAcknowledge",
            group_id="<missing>",
            member_id="m",
            share_session_epoch=1,
            topics=SHARE_TOPICS,
        ),
        [30],
        then([122], allow(Op.READ, "<missing>", GROUP_TYPE)),
    ),
    case(
        "describe_share_group_offsets",
        1,
        request(
            "DescribeShareGroupOffsets",
            groups=[
                {
                    "group_id": "<missing>",
                    "topics": [{"topic_name": name, "partitions": [0]} for name in BOTH],
                }
            ],
        ),
        [30],
        then([0, 29, 29], allow(Op.DESCRIBE, "<missing>", GROUP_TYPE)),
        then([0, 0, 29], allow(Op.DESCRIBE)),
    ),
    case(
        "alter_share_group_offsets",
        0,
        request(
            "AlterShareGroupOffsets",
            group_id="<missing>",
            topics=[{"topic_name": name, "partitions": [{"start_offset": 0}]} for name in BOTH],
        ),
        [30],
        then([0, 29, 29], allow(Op.READ, "<missing>", GROUP_TYPE)),
        then([0, 0, 29], allow(Op.READ)),
    ),
    case(
        "delete_share_group_offsets",
        0,
        request(
            "DeleteShareGroupOffsets", group_id="<missing>", topics=[{"topic_name": "<topic>"}]
        ),
        [30],
        then([69], allow(Op.DELETE, "<missing>", GROUP_TYPE)),
    ),
    case(
        "alter_configurations_of_a_group",
        1,
        request(
            "IncrementalAlterConfigs",
            resources=[
                {
                    "resource_type": 32,
                    "resource_name": "<missing>",
                    "configs": [{"name": "share.auto.offset.reset", "value": "earliest"}],
                }
            ],
        ),
        [30],
        then([0], allow(Op.ALTER_CONFIGS, "<missing>", GROUP_TYPE)),
        needs=GROUP_CONFIGS,
    ),
    case(
        "describe_configurations_of_a_group",
        4,
        request("DescribeConfigs", resources=[{"resource_type": 32, "resource_name": "<missing>"}]),
        [30],
        then([0], allow(Op.DESCRIBE_CONFIGS, "<missing>", GROUP_TYPE)),
        needs=GROUP_CONFIGS,
    ),
]


TRANSACTION_CASES: Final = [
    case(
        "init_producer_id_with_idempotent_write",
        4,
        request("InitProducerId", transactional_id=None),
        [31],
        then([0], cluster(Op.IDEMPOTENT_WRITE)),
    ),
    case(
        "init_producer_id_with_write_on_some_topic",
        4,
        request("InitProducerId", transactional_id=None),
        [31],
        then([31], allow(Op.READ), allow(Op.WRITE, "<missing>", permission=DENY)),
        then([0], allow(Op.WRITE, prefix=9)),
    ),
    case(
        "init_producer_id_with_transactional_id",
        4,
        request("InitProducerId", transactional_id="<txn>", transaction_timeout_ms=10_000),
        [53],
        then([53], allow(Op.WRITE)),
        then([0], txn(Op.WRITE)),
    ),
    case(
        "add_partitions_to_txn",
        3,
        request("AddPartitionsToTxn", **ADD_TO_TXN, v3_and_below_topics=TXN_TOPICS),
        [53, 53],
        then([29, 29], txn(Op.WRITE)),
        then([55, 29], allow(Op.WRITE)),
    ),
    case(
        "add_partitions_to_txn_by_brokers",
        4,
        request(
            "AddPartitionsToTxn",
            transactions=[
                {
                    "transactional_id": "<txn>",
                    "producer_id": 4711,
                    "producer_epoch": 0,
                    "topics": TXN_TOPICS,
                }
            ],
        ),
        [31],
        then([31], txn(Op.WRITE), allow(Op.WRITE)),
    ),
    case(
        "add_internal_partitions_to_txn",
        3,
        request(
            "AddPartitionsToTxn",
            **ADD_TO_TXN,
            v3_and_below_topics=[{"name": "__consumer_offsets", "partitions": [0]}],
        ),
        [53],
        then([29], txn(Op.WRITE), allow(Op.WRITE, "__consumer_offsets")),
    ),
    case(
        "add_offsets_to_txn",
        3,
        request(
            "AddOffsetsToTxn",
            transactional_id="<txn>",
            producer_id=4711,
            producer_epoch=0,
            group_id="<group>",
        ),
        [53],
        then([30], txn(Op.WRITE)),
        then([49], group(Op.READ)),
    ),
    case(
        "end_txn",
        3,
        request(
            "EndTxn",
            transactional_id="<txn>",
            producer_id=4711,
            producer_epoch=0,
            committed=False,
        ),
        [53],
        then([49], txn(Op.WRITE)),
    ),
    case(
        "txn_offset_commit",
        3,
        request(
            "TxnOffsetCommit",
            transactional_id="<txn>",
            group_id="<group>",
            producer_id=4711,
            producer_epoch=0,
            topics=topics_of(**OFFSET),
        ),
        [53, 53],
        then([53, 53], group(Op.READ)),
        then([29, 29], txn(Op.WRITE)),
    ),
    case(
        "describe_transactions",
        0,
        request("DescribeTransactions", transactional_ids=["<txn>"]),
        [53],
        then([105], txn(Op.DESCRIBE)),
    ),
]


ADMIN_CASES: Final = [
    case(
        "create_topics",
        7,
        create_topics("<missing>"),
        [(29, 0, -1, -1, False)],
        then([(0, 29, -1, -1, False)], allow(Op.CREATE, "<missing>")),
        then([(0, 0, 1, 1, True)], allow(Op.DESCRIBE_CONFIGS, "<missing>")),
        result=created,
    ),
    case(
        "create_topics_with_create_on_the_cluster",
        7,
        create_topics("<missing>"),
        [(29, 0, -1, -1, False)],
        then([(0, 29, -1, -1, False)], cluster(Op.CREATE)),
        result=created,
    ),
    case(
        "delete_topics_by_name",
        5,
        request("DeleteTopics", topic_names=["<topic>"], timeout_ms=10_000),
        lambda names: [(names.topic, 29)],
        then(lambda names: [(names.topic, 29)], allow(Op.DESCRIBE)),
        then(lambda names: [(names.topic, 0)], allow(Op.DELETE)),
        result=deleted,
    ),
    case(
        "delete_a_missing_topic",
        5,
        request("DeleteTopics", topic_names=["<missing>"], timeout_ms=10_000),
        lambda names: [(names.missing, 29)],
        then(lambda names: [(names.missing, 3)], allow(Op.DESCRIBE, "<missing>")),
        result=deleted,
    ),
    case(
        "delete_topics_by_id",
        6,
        request(
            "DeleteTopics",
            topics=[{"name": None, "topic_id": "<topic_id>"}],
            timeout_ms=10_000,
        ),
        [(None, 29)],
        then(lambda names: [(names.topic, 29)], allow(Op.DESCRIBE)),
        then(lambda names: [(names.topic, 0)], cluster(Op.DELETE)),
        result=deleted,
    ),
    case(
        "describe_configs",
        4,
        request(
            "DescribeConfigs",
            resources=[config(2, "<topic>"), config(2, "<other>"), config(4, "1")],
        ),
        [29, 29, 31],
        then([0, 29, 0], allow(Op.ALTER_CONFIGS), cluster(Op.DESCRIBE_CONFIGS)),
    ),
    case(
        "incremental_alter_configs",
        1,
        request(
            "IncrementalAlterConfigs",
            resources=[change(2, "<topic>"), change(2, "<other>"), change(2, "<missing>", None)],
            validate_only=True,
        ),
        [29, 29, 42],
        then([0, 29, 42], allow(Op.ALTER_CONFIGS)),
    ),
    case(
        "describe_acls",
        3,
        request("DescribeAcls", **FILTER),
        [31],
        then([0], cluster(Op.DESCRIBE)),
    ),
    case(
        "create_acls",
        3,
        request("CreateAcls", creations=[ACL, {**ACL, "resource_type": 4}]),
        [31, 31],
        then([0, 42], cluster(Op.ALTER)),
    ),
    case(
        "delete_acls",
        3,
        request("DeleteAcls", filters=[FILTER, FILTER]),
        [31, 31],
        then([0, 0], cluster(Op.ALTER)),
    ),
    case(
        "describe_user_scram_credentials",
        0,
        request("DescribeUserScramCredentials", users=[{"name": "<missing>"}]),
        [31, 31],
        then([0, 91], cluster(Op.DESCRIBE)),
    ),
    case(
        "alter_user_scram_credentials",
        0,
        request(
            "AlterUserScramCredentials",
            deletions=[{"name": "<missing>", "mechanism": 1}],
        ),
        [31],
        then([91], cluster(Op.ALTER)),
    ),
]

ACL_CASES: Final = [
    case(
        "deny_has_precedence_over_allow",
        9,
        metadata("<topic>"),
        [29],
        then([0, 0], allow(Op.DESCRIBE)),
        then([29], allow(Op.DESCRIBE, permission=DENY)),
    ),
    case(
        "deny_of_read_leaves_describe",
        9,
        metadata("<topic>"),
        [29],
        then([0, 0], allow(Op.READ), allow(Op.READ, permission=DENY)),
        then([29], allow(Op.ALL, permission=DENY)),
    ),
    case(
        "prefixed_acl_is_for_all_names_with_the_prefix",
        9,
        metadata("<topic>"),
        [29],
        then([0, 0], allow(Op.READ, prefix=-1)),
    ),
    case(
        "acl_of_another_host_does_not_apply",
        9,
        metadata("<topic>"),
        [29],
        then([29], allow(Op.READ, host="10.9.8.7"), allow(Op.READ, "<other>")),
        then([0, 0], allow(Op.READ, host="127.0.0.1")),
    ),
    case(
        "acl_of_every_principal_applies",
        9,
        metadata("<topic>"),
        [29],
        then([0, 0], allow(Op.READ, principal="User:*")),
    ),
    case(
        "acl_of_another_type_of_principal_does_not_apply",
        9,
        metadata("<topic>"),
        [29],
        then([29], allow(Op.READ, principal="Group:*"), allow(Op.READ, "<topic>", GROUP_TYPE)),
    ),
]

CASES: Final = [
    *TOPIC_CASES,
    *METADATA_CASES,
    *GROUP_CASES,
    *SHARE_GROUP_CASES,
    *TRANSACTION_CASES,
    *ADMIN_CASES,
    *ACL_CASES,
]
