"""Tests of the admin client's calls about client quotas, on the embedded cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from kafka_async.admin import Admin, NewTopic, QuotaEntity, QuotaName, ResolvedQuota
from kafka_async.admin.quota_values import UNLIMITED
from kafka_async.client.client_quotas import precedence, resolve
from kafka_async.embedded.quotas.client_quotas import candidates
from kafka_async.errors import (
    ClusterAuthorizationError,
    KafkaTimeoutError,
    ThrottlingQuotaExceededError,
)
from kafka_async.protocol.messages.alter_client_quotas import AlterClientQuotasRequest
from kafka_async.protocol.messages.create_topics import CreateTopicsRequest
from tests.embedded_client import InMemory, now

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]

ALICE = QuotaEntity(user="alice")
BOTH = QuotaEntity(user="alice", client_id="app")


@pytest_asyncio.fixture
async def memory() -> AsyncIterator[InMemory]:
    async with InMemory(3) as running:
        yield running


@pytest_asyncio.fixture
async def admin(memory: InMemory) -> AsyncIterator[Admin]:
    async with memory.admin(client_id="app") as started:
        yield started


async def test_sets_changes_and_removes_quotas_of_all_entities(admin: Admin) -> None:
    entries = {
        ALICE: {"producer_byte_rate": 1000.0, "consumer_byte_rate": 2000.0},
        BOTH: {"request_percentage": 12.5},
        QuotaEntity(client_id="app"): {"controller_mutation_rate": 0.5},
        QuotaEntity(user=QuotaName.DEFAULT): {"producer_byte_rate": 1.0},
        QuotaEntity(client_id=QuotaName.DEFAULT): {"producer_byte_rate": 2.0},
        QuotaEntity(user="alice", client_id=QuotaName.DEFAULT): {"producer_byte_rate": 3.0},
        QuotaEntity(ip="10.0.0.1"): {"connection_creation_rate": 5.0},
        QuotaEntity(ip=QuotaName.DEFAULT): {"connection_creation_rate": 6.0},
    }
    await admin.alter_client_quotas(entries, validate_only=True)
    assert await admin.describe_client_quotas() == {}
    await admin.alter_client_quotas(entries)
    assert await admin.describe_client_quotas() == entries
    assert await admin.describe_client_quotas(ALICE, strict=True) == {ALICE: entries[ALICE]}
    found = await admin.describe_client_quotas(ALICE)
    assert {each.client_id for each in found} == {None, "app", QuotaName.DEFAULT}
    found = await admin.describe_client_quotas(QuotaEntity(ip=QuotaName.ANY))
    assert set(found) == {QuotaEntity(ip="10.0.0.1"), QuotaEntity(ip=QuotaName.DEFAULT)}
    await admin.alter_client_quotas({ALICE: {"producer_byte_rate": 7, "consumer_byte_rate": None}})
    assert await admin.describe_client_quotas(ALICE, strict=True) == {
        ALICE: {"producer_byte_rate": 7.0}
    }
    await admin.alter_client_quotas({each: dict.fromkeys(v) for each, v in entries.items()})
    assert await admin.describe_client_quotas() == {}


async def test_resolves_quotas_in_kafkas_precedence(admin: Admin) -> None:
    await admin.alter_client_quotas(
        {
            QuotaEntity(client_id="app"): {"producer_byte_rate": 1, "request_percentage": 10},
            QuotaEntity(user=QuotaName.DEFAULT): {"producer_byte_rate": 2},
            ALICE: {"consumer_byte_rate": 3},
            QuotaEntity(user="alice", client_id=QuotaName.DEFAULT): {"consumer_byte_rate": 4},
            QuotaEntity(user="bob"): {"producer_byte_rate": 5},
        }
    )
    assert await admin.resolve_client_quotas(BOTH) == {
        "consumer_byte_rate": ResolvedQuota(
            4.0, QuotaEntity(user="alice", client_id=QuotaName.DEFAULT)
        ),
        "producer_byte_rate": ResolvedQuota(2.0, QuotaEntity(user=QuotaName.DEFAULT)),
        "request_percentage": ResolvedQuota(10.0, QuotaEntity(client_id="app")),
    }
    found = await admin.resolve_client_quotas(QuotaEntity(client_id="other"))  # of ANONYMOUS
    assert found == {"producer_byte_rate": ResolvedQuota(2.0, QuotaEntity(user=QuotaName.DEFAULT))}


async def test_resolves_connection_rates_of_addresses(admin: Admin) -> None:
    default, one = QuotaEntity(ip=QuotaName.DEFAULT), QuotaEntity(ip="10.0.0.1")
    await admin.alter_client_quotas(
        {default: {"connection_creation_rate": 900}, one: {"connection_creation_rate": 7}}
    )
    key = "connection_creation_rate"
    assert await admin.resolve_client_quotas(one) == {key: ResolvedQuota(7.0, one)}
    other = QuotaEntity(ip="10.0.0.2")
    assert await admin.resolve_client_quotas(other) == {key: ResolvedQuota(900.0, default)}


async def test_precedence_is_that_of_the_cluster() -> None:
    assert precedence({"user": "u", "client-id": "c"}) == candidates("u", "c")
    assert resolve({}, {"user": "u"}) == {}


async def test_enforcement_is_switched_off_and_on(admin: Admin, memory: InMemory) -> None:
    values: dict[str, float | None] = {"producer_byte_rate": 1000.0, "request_percentage": 5.0}
    await admin.alter_client_quotas({BOTH: values})
    assert await admin.set_quota_enforcement(BOTH, False) == values
    assert await admin.describe_client_quotas(BOTH, strict=True) == {BOTH: dict(UNLIMITED)}
    assert await admin.set_quota_enforcement(BOTH, False) == values  # not the unreachable ones
    async with memory.admin() as other:
        assert await other.set_quota_enforcement(BOTH, False) == {}
    assert await admin.set_quota_enforcement(BOTH, True) == values
    assert await admin.describe_client_quotas(BOTH, strict=True) == {BOTH: values}
    assert await admin.set_quota_enforcement(BOTH, True) == values


@pytest.mark.parametrize("on", ["off", 0, None])
async def test_enforcement_takes_a_bool_only(admin: Admin, memory: InMemory, on: Any) -> None:
    memory.received.clear()
    with pytest.raises(TypeError, match=r"^on must be bool, not"):
        await admin.set_quota_enforcement(BOTH, on)
    assert not memory.received


async def test_enforcement_of_an_entity_without_quotas(admin: Admin) -> None:
    await admin.alter_client_quotas(
        {QuotaEntity(user=QuotaName.DEFAULT): {"request_percentage": 1}}
    )
    assert await admin.set_quota_enforcement(ALICE, False) == {}
    resolved = await admin.resolve_client_quotas(BOTH)
    assert resolved["request_percentage"] == ResolvedQuota(UNLIMITED["request_percentage"], ALICE)
    async with InMemory() as memory, memory.admin() as other:
        assert await other.set_quota_enforcement(ALICE, True) == {}
    assert await admin.set_quota_enforcement(ALICE, True) == {}
    assert list(await admin.describe_client_quotas()) == [QuotaEntity(user=QuotaName.DEFAULT)]


@pytest.mark.parametrize(
    ("entity", "values", "message"),
    [
        (QuotaEntity(), {}, "needs a user"),
        (QuotaEntity(user=""), {}, "the user of a QuotaEntity"),
        (QuotaEntity(user="u", ip="::1"), {}, "no user and no client_id"),
        (QuotaEntity(user=QuotaName.ANY), {}, "describe_client_quotas only"),
        (ALICE, {"speed": 1.0}, "no quota 'speed' of user alice"),
        (ALICE, {"connection_creation_rate": 1}, "no quota 'connection_creation_rate'"),
        (QuotaEntity(ip="::1"), {"producer_byte_rate": 1}, "no quota 'producer_byte_rate'"),
        (ALICE, {"producer_byte_rate": 0}, "greater than 0"),
        (ALICE, {"producer_byte_rate": float("inf")}, "greater than 0"),
        (ALICE, {"producer_byte_rate": 1.5}, "whole number"),
        (ALICE, {"producer_byte_rate": 1e20}, "whole number"),
        (ALICE, {"producer_byte_rate": True}, "must be a number"),
        (ALICE, {"producer_byte_rate": "1"}, "must be a number"),
        ("alice", {"producer_byte_rate": 1}, "QuotaEntity"),
        (ALICE, 5, "each value of entries"),
    ],
)
async def test_bad_arguments_raise_before_a_request(
    admin: Admin, memory: InMemory, entity: Any, values: Any, message: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        await admin.alter_client_quotas({entity: values})
    assert memory.requests(AlterClientQuotasRequest) == []


async def test_resolving_needs_the_names_of_one_client(admin: Admin) -> None:
    with pytest.raises(ValueError, match="the names of one client"):
        await admin.resolve_client_quotas(QuotaEntity(user=QuotaName.DEFAULT))


async def test_missing_permission_names_the_operation() -> None:
    async with InMemory(authorizer=True) as memory, memory.admin() as admin:
        with pytest.raises(ClusterAuthorizationError, match="DESCRIBE_CONFIGS"):
            await admin.describe_client_quotas()
        with pytest.raises(ClusterAuthorizationError, match="ALTER_CONFIGS"):
            await admin.alter_client_quotas({ALICE: {"producer_byte_rate": 1}})


# -- controller mutations (KIP-599) ---------------------------------------------------------------

LIMITED = {QuotaEntity(client_id="app"): {"controller_mutation_rate": 1.0}}
"""A burst of eleven partitions, then one per second."""


async def test_retries_after_the_throttle_time(admin: Admin, memory: InMemory) -> None:
    await admin.alter_client_quotas(LIMITED)
    await admin.create_topics([NewTopic("a", partitions=16)])
    start = now()
    await admin.create_topics([NewTopic("b")])
    assert now() - start == pytest.approx(5.0, abs=0.1)
    assert len(memory.requests(CreateTopicsRequest)) == 3  # the second one was retried once
    assert memory.cluster.throttle_log.violations() == []


async def test_raises_with_the_throttle_time_beyond_the_deadline(admin: Admin) -> None:
    await admin.alter_client_quotas(LIMITED)
    await admin.create_topics([NewTopic("a", partitions=41)])
    start = now()
    with pytest.raises(ThrottlingQuotaExceededError, match="Retry in 30 s") as raised:
        await admin.create_topics([NewTopic("b")], timeout=5.0)
    assert raised.value.throttle_time_ms == 30_000
    assert now() - start < 1.0


async def test_calls_after_the_error_wait_for_the_throttle_time(
    admin: Admin, memory: InMemory
) -> None:
    """Checks that requests which change topics are not sent, and that others do not wait."""
    await admin.alter_client_quotas(LIMITED)
    await admin.create_topics([NewTopic("a", partitions=41)])
    with pytest.raises(ThrottlingQuotaExceededError):
        await admin.create_topics([NewTopic("b")], timeout=5.0)
    start, sent = now(), len(memory.received)
    with pytest.raises(KafkaTimeoutError, match="throttle"):
        await admin.create_topics([NewTopic("b")], timeout=5.0)
    assert now() - start <= 5.0
    assert len(memory.received) == sent
    early = now()
    assert "b" not in await admin.list_topics()
    assert now() == early
    await admin.create_topics([NewTopic("b")])
    assert now() - start == pytest.approx(30.0, abs=0.1)
    assert memory.cluster.throttle_log.violations() == []


async def test_partitions_and_deletions_count(admin: Admin) -> None:
    await admin.create_topics([NewTopic("a", partitions=6), NewTopic("b")])
    await admin.alter_client_quotas(LIMITED)
    await admin.create_partitions({"a": 20})
    with pytest.raises(ThrottlingQuotaExceededError):
        await admin.delete_topics(["b"], timeout=1.0)
