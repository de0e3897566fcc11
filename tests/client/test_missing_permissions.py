"""Missing ACLs: producers, consumers and admin clients raise an error that names the permission.

The errors are raised at once: no request is retried.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

import pytest

from kafka_async.admin import (
    AclBinding,
    AclFilter,
    AclOperation,
    AclResourceType,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
    UserScramCredentialDeletion,
)
from kafka_async.embedded import AclAuthorizer
from kafka_async.embedded.requests.context import ANONYMOUS
from kafka_async.embedded.state import acls
from kafka_async.embedded.state.acls import Acl, Operation, PatternType, Permission
from kafka_async.errors import (
    AuthorizationError,
    ClusterAuthorizationError,
    GroupAuthorizationError,
    TopicAuthorizationError,
    TransactionalIdAuthorizationError,
)
from kafka_async.types import TopicPartition
from tests.embedded_client import InMemory, now

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]

TP = TopicPartition("t", 0)
TOPIC, GROUP = acls.ResourceType.TOPIC, acls.ResourceType.GROUP
CLUSTER, TXN = acls.ResourceType.CLUSTER, acls.ResourceType.TRANSACTIONAL_ID
NAMES = {TOPIC: "t", GROUP: "g", CLUSTER: "kafka-cluster", TXN: "x"}
Grant = tuple[acls.ResourceType, Operation]
Op = Operation
MAX_SECONDS = 2.0


class Case(NamedTuple):
    """Names a call, the permissions that the principal has, and the expected error."""

    call: Callable[[InMemory], Awaitable[object]]
    grants: Sequence[Grant]
    error: type[AuthorizationError]
    message: str


async def send(memory: InMemory, **options: Any) -> None:
    async with memory.producer(**options) as producer:
        await producer.send("t", b"v")


async def send_without_idempotence(memory: InMemory) -> None:
    await send(memory, enable_idempotence=False)


async def send_in_transaction(memory: InMemory) -> None:
    async with memory.producer(transactional_id="x") as producer, producer.transaction() as txn:
        await txn.send("t", b"v")


async def commit_in_transaction(memory: InMemory) -> None:
    async with memory.producer(transactional_id="x") as producer, producer.transaction() as txn:
        await txn.commit_offsets({TP: 1}, "g")


async def poll_group(memory: InMemory) -> None:
    async with memory.consumer("t", group_id="g", auto_offset_reset="earliest") as consumer:
        await consumer.poll(timeout=30)


async def poll_partition(memory: InMemory) -> None:
    async with memory.consumer(auto_offset_reset="earliest") as consumer:
        consumer.assign([TP])
        await consumer.poll(timeout=30)


async def commit(memory: InMemory) -> None:
    async with memory.consumer(group_id="g", enable_auto_commit=False) as consumer:
        consumer.assign([TP])
        await consumer.commit({TP: 1})


async def committed(memory: InMemory) -> None:
    async with memory.consumer(group_id="g", enable_auto_commit=False) as consumer:
        await consumer.committed([TP])


def admin(call: Callable[[Any], Awaitable[object]]) -> Callable[[InMemory], Awaitable[object]]:
    async def run(memory: InMemory) -> None:
        async with memory.admin() as client:
            await call(client)

    return run


ACL = AclBinding(AclResourceType.TOPIC, "t", "User:a", AclOperation.READ)
TOPIC_CONFIG = ConfigResource(ResourceType.TOPIC, "t")
BROKER_CONFIG = ConfigResource(ResourceType.BROKER, "1")
SCRAM_DELETION = UserScramCredentialDeletion("alice", "SCRAM-SHA-256")
TopicError, GroupError = TopicAuthorizationError, GroupAuthorizationError
ClusterError, TxnError = ClusterAuthorizationError, TransactionalIdAuthorizationError
WRITE_T, READ_T, DESCRIBE_T = (TOPIC, Op.WRITE), (TOPIC, Op.READ), (TOPIC, Op.DESCRIBE)
READ_G, DESCRIBE_G, WRITE_X = (GROUP, Op.READ), (GROUP, Op.DESCRIBE), (TXN, Op.WRITE)

CASES = {
    "send": Case(send, [], TopicError, "t: the principal lacks DESCRIBE (or CREATE"),
    "send_idempotent": Case(
        send,
        [DESCRIBE_T],
        ClusterError,
        "the principal lacks WRITE on a topic, or IDEMPOTENT_WRITE on the cluster",
    ),
    "send_described": Case(
        send_without_idempotence,
        [DESCRIBE_T],
        TopicError,
        "t-0: the principal lacks WRITE on the topic",
    ),
    "begin": Case(send_in_transaction, [], TxnError, "lacks DESCRIBE on the transactional id x"),
    "begin_described": Case(
        send_in_transaction, [(TXN, Op.DESCRIBE)], TxnError, "lacks WRITE on the transactional id"
    ),
    "send_in_transaction": Case(
        send_in_transaction,
        [WRITE_X, DESCRIBE_T],
        TopicError,
        "t-0: the principal lacks WRITE on the topic",
    ),
    "commit_group_in_transaction": Case(
        commit_in_transaction, [WRITE_X, READ_T], GroupError, "lacks DESCRIBE on the group g"
    ),
    "commit_topic_in_transaction": Case(
        commit_in_transaction,
        [WRITE_X, READ_G],
        TopicError,
        "t-0: the principal lacks READ on the topic",
    ),
    "find_coordinator": Case(poll_group, [READ_T], GroupError, "lacks DESCRIBE on the group g"),
    "join": Case(poll_group, [READ_T, DESCRIBE_G], GroupError, "lacks READ on the group g"),
    "subscribe": Case(poll_group, [READ_G], TopicError, "t: the principal lacks DESCRIBE"),
    "fetch_in_group": Case(
        poll_group, [READ_G, DESCRIBE_T], TopicError, "t-0: the principal lacks READ on the topic"
    ),
    "assign": Case(poll_partition, [], TopicError, "t: the principal lacks DESCRIBE"),
    "fetch": Case(poll_partition, [DESCRIBE_T], TopicError, "t-0: the principal lacks READ"),
    "commit_group": Case(commit, [READ_T], GroupError, "lacks DESCRIBE on the group g"),
    "commit_described_group": Case(
        commit, [READ_T, DESCRIBE_G], GroupError, "lacks READ on the group g"
    ),
    "commit_topic": Case(
        commit,
        [READ_G, DESCRIBE_T],
        TopicError,
        "t-0: the principal lacks READ on the topic: add an ACL",
    ),
    "committed_group": Case(committed, [READ_T], GroupError, "lacks DESCRIBE on the group g"),
    "create_topics": Case(
        admin(lambda it: it.create_topics([NewTopic("t2", 1)])),
        [],
        TopicError,
        "t2: the principal lacks CREATE on the topic",
    ),
    "create_topics_waits": Case(
        admin(lambda it: it.create_topics([NewTopic("t2", 1)])),
        [(CLUSTER, Op.CREATE)],
        TopicError,
        "t2: the topic has been changed, but the principal lacks DESCRIBE on it",
    ),
    "delete_topics": Case(
        admin(lambda it: it.delete_topics(["t"])),
        [],
        TopicError,
        "t: the principal lacks DELETE on the topic",
    ),
    "delete_topics_waits": Case(
        admin(lambda it: it.delete_topics(["t"])),
        [(CLUSTER, Op.DELETE)],
        TopicError,
        "t: the topic has been changed, but the principal lacks DESCRIBE on it",
    ),
    "describe_topics": Case(
        admin(lambda it: it.describe_topics(["t"])),
        [],
        TopicError,
        "t: the principal lacks DESCRIBE on the topic",
    ),
    "create_partitions": Case(
        admin(lambda it: it.create_partitions({"t": 3})),
        [],
        TopicError,
        "t: the principal lacks ALTER on the topic",
    ),
    "describe_topic_configs": Case(
        admin(lambda it: it.describe_configs([TOPIC_CONFIG])),
        [],
        TopicError,
        "topic t: the principal lacks DESCRIBE_CONFIGS on the topic",
    ),
    "describe_broker_configs": Case(
        admin(lambda it: it.describe_configs([BROKER_CONFIG])),
        [],
        ClusterError,
        "broker 1: the principal lacks DESCRIBE_CONFIGS on the cluster",
    ),
    "describe_groups": Case(
        admin(lambda it: it.describe_groups(["g"])), [], GroupError, "lacks DESCRIBE on the group g"
    ),
    "delete_groups": Case(
        admin(lambda it: it.delete_groups(["g"])),
        [DESCRIBE_G],
        GroupError,
        "group g: the principal lacks DELETE on the group",
    ),
    "list_offsets": Case(
        admin(lambda it: it.list_offsets({TP: OffsetSpec.LATEST})),
        [],
        TopicError,
        "t: the principal lacks DESC",
    ),
    "list_group_offsets": Case(
        admin(lambda it: it.list_group_offsets("g", [TP])),
        [DESCRIBE_G],
        TopicError,
        "t-0: the principal lacks DESCRIBE on the topic",
    ),
    "alter_group_offsets": Case(
        admin(lambda it: it.alter_group_offsets("g", {TP: 1})),
        [READ_T, DESCRIBE_G],
        GroupError,
        "t-0: the principal lacks READ on the group g: add an ACL",
    ),
    "alter_group_offsets_topic": Case(
        admin(lambda it: it.alter_group_offsets("g", {TP: 1})),
        [READ_G, DESCRIBE_T],
        TopicError,
        "t-0: the principal lacks READ on the topic: add an ACL",
    ),
    "describe_acls": Case(
        admin(lambda it: it.describe_acls()), [], ClusterError, "lacks DESCRIBE on the cluster"
    ),
    "create_acls": Case(
        admin(lambda it: it.create_acls([ACL])),
        [],
        ClusterError,
        "ACL ALLOW User:a READ on LITERAL TOPIC t from host *: the principal lacks ALTER on the c",
    ),
    "delete_acls": Case(
        admin(lambda it: it.delete_acls([AclFilter()])),
        [],
        ClusterError,
        "the principal lacks ALTER on the cluster",
    ),
    "describe_user_scram_credentials": Case(
        admin(lambda it: it.describe_user_scram_credentials()),
        [],
        ClusterError,
        "the principal lacks DESCRIBE on the cluster",
    ),
    "alter_user_scram_credentials": Case(
        admin(lambda it: it.alter_user_scram_credentials([SCRAM_DELETION])),
        [],
        ClusterError,
        "user alice: the principal lacks ALTER on the cluster",
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
async def test_missing_permission_raises_at_once_and_is_named(case: Case) -> None:
    authorizer = AclAuthorizer()
    for kind, operation in case.grants:
        literal = PatternType.LITERAL
        authorizer.add(Acl(kind, NAMES[kind], literal, ANONYMOUS, "*", operation, Permission.ALLOW))
    async with InMemory(authorizer=authorizer) as memory:
        await memory.cluster.create_topic("t", 1)
        start = now()
        with pytest.raises(case.error) as caught:
            await case.call(memory)
        assert now() - start < MAX_SECONDS
        assert case.message in str(caught.value)
        assert "add an ACL that allows it" in str(caught.value)
        sent = Counter(type(row.request).__name__ for row in memory.received)
        del sent["ApiVersionsRequest"]  # one per connection
        assert max(sent.values()) <= 3, sent
