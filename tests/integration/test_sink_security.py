"""The permissions that the exactly-once sink of Spark needs, without Spark."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

import pytest

from kafka_async import Admin, Producer
from kafka_async.admin import AclBinding, AclOperation, AclPatternType, AclResourceType
from kafka_async.config import ProducerConfig
from kafka_async.errors import (
    AuthorizationError,
    TopicAuthorizationError,
    TransactionalIdAuthorizationError,
)
from kafka_async.spark.sink.ledger import transactional_id
from kafka_async.spark.sink.sink_cluster import open_cluster
from kafka_async.spark.sink.sink_driver import SinkDriver
from tests.integration.helpers import create_topic, read_values
from tests.integration.secure_cluster import ALICE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kafka_async import PreparedTransaction
    from tests.integration.secure_cluster import SecureCluster

    T = TypeVar("T")

pytestmark = pytest.mark.asyncio

TIMEOUT_MS = 60_000
LEDGER_OPERATIONS = (
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.CREATE,
)


async def once_allowed(
    call: Callable[[], Awaitable[T]], missing: type[AuthorizationError] = AuthorizationError
) -> T:
    """Repeat a call until a permission is there: brokers learn of it a moment later."""
    async with asyncio.timeout(30):
        while True:
            try:
                return await call()
            except missing:
                await asyncio.sleep(0.05)


async def test_needs_the_permissions_that_the_page_names(secure_cluster: SecureCluster) -> None:
    handle = secure_cluster.handle
    output = await create_topic(handle, "output")
    ledger = handle.topic("ledger")
    sink = handle.transactional_id("sink")
    options = secure_cluster.options("SASL_PLAINTEXT", "SCRAM-SHA-256", user=ALICE)

    def acl(
        kind: AclResourceType, name: str, operation: AclOperation, pattern: AclPatternType
    ) -> AclBinding:
        return AclBinding(kind, name, f"User:{ALICE}", operation, pattern_type=pattern)

    async def write(plan: int) -> PreparedTransaction:
        name = transactional_id(sink, plan, 0, 0)
        async with (
            Producer(
                **options, transactional_id=name, transaction_timeout_ms=TIMEOUT_MS
            ) as producer,
            producer.transaction() as txn,
        ):
            await txn.enqueue(output, b"v")
            prepared = await txn.prepare()
        assert prepared is not None
        return prepared

    literal, prefixed = AclPatternType.LITERAL, AclPatternType.PREFIXED
    ids, topics = AclResourceType.TRANSACTIONAL_ID, AclResourceType.TOPIC
    async with (
        Admin(handle.bootstrap_servers) as admin,
        open_cluster(ProducerConfig(**options), sink, ledger) as requests,
    ):
        with pytest.raises(TransactionalIdAuthorizationError, match=f"transactional id {sink}:"):
            await requests.check(TIMEOUT_MS)
        await admin.create_acls([acl(ids, f"{sink}:", AclOperation.WRITE, prefixed)])
        with pytest.raises(TopicAuthorizationError, match=ledger):
            await once_allowed(
                lambda: requests.check(TIMEOUT_MS), TransactionalIdAuthorizationError
            )
        await admin.create_acls([acl(topics, ledger, each, literal) for each in LEDGER_OPERATIONS])
        await once_allowed(lambda: requests.check(TIMEOUT_MS))
        driver = SinkDriver(requests, sink, TIMEOUT_MS / 1000, asyncio.get_running_loop().time)
        plan = await once_allowed(lambda: driver.plan("a"))
        with pytest.raises(TopicAuthorizationError, match=output):
            await write(plan.number)
        await driver.give_up(plan)
        await admin.create_acls([acl(topics, output, AclOperation.WRITE, literal)])
        plan = await driver.plan("a")
        prepared = await once_allowed(lambda: write(plan.number))
        await driver.commit(plan, "q", 0, {0: prepared})
    assert await read_values(handle, output) == [b"v"]
