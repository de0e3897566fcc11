"""Leader elections and single writers on virtual time."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async.app import LeaderElection, SingleWriter
from kafka_async.errors import (
    ApplicationRecoverableError,
    IllegalStateError,
    InvalidConfigurationError,
    LeadershipLostError,
    TransactionAbortableError,
    TransactionalIdAuthorizationError,
)
from kafka_async.protocol.messages.init_producer_id import InitProducerIdRequest
from kafka_async.types import TopicPartition
from tests.app.conftest import silence

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kafka_async.app.lead import Lead
    from kafka_async.client.client import Client
    from tests.embedded_client import InMemory

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]

SESSION = 6.0
HEARTBEAT = 1.0
OPTIONS: dict[str, Any] = {"session_timeout_ms": 6000, "heartbeat_interval_ms": 1000}


def election(client: Client, **options: Any) -> LeaderElection:
    return LeaderElection(client, group_id="g", **OPTIONS | options)


def writer(client: Client, **options: Any) -> SingleWriter:
    return SingleWriter(client, name="w", **OPTIONS | options)


class Candidate:
    """Runs for the lead in a task, and holds it until it is told to end."""

    def __init__(self, lead: LeaderElection | SingleWriter) -> None:
        self.lead = lead
        self.leads = asyncio.Event()
        self.ended = asyncio.Event()
        self.may_end = asyncio.Event()
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        async with self.lead:
            self.leads.set()
            try:
                await self.may_end.wait()
            finally:
                self.ended.set()

    async def end(self) -> None:
        self.may_end.set()
        await self.task


async def hold(lead: Lead, body: Callable[[Lead], Awaitable[None]]) -> None:
    async with lead:
        await body(lead)


def remove_member(memory: InMemory) -> None:
    memory.cluster.faults.add(api="Heartbeat", error="UNKNOWN_MEMBER_ID")


def silence_member(memory: InMemory, client_id: str) -> None:
    """Do not respond to a client's group requests any more."""
    for api in ("Heartbeat", "JoinGroup", "LeaveGroup"):
        memory.cluster.faults.add(
            api=api, when=lambda context, _: context.client_id == client_id, hang=True, count=None
        )


async def leading(candidate: Candidate, timeout: float = 60) -> None:
    async with asyncio.timeout(timeout):
        await candidate.leads.wait()


# -- leader election ------------------------------------------------------------------------------


async def test_one_candidate_leads_and_hands_over_at_the_end(client: Client) -> None:
    loop = asyncio.get_running_loop()
    first = Candidate(election(client))
    await leading(first)
    second = Candidate(election(client))
    await asyncio.sleep(100)
    assert not second.leads.is_set()
    ended_at = loop.time()
    await first.end()
    await leading(second)
    assert loop.time() - ended_at <= HEARTBEAT + 0.1
    assert second.lead.fencing_token > first.lead.fencing_token
    await second.end()


async def test_holder_keeps_lead_while_candidates_come_and_go(client: Client) -> None:
    first = Candidate(election(client))
    await leading(first)
    for _ in range(3):
        other = Candidate(election(client))
        await asyncio.sleep(10)
        other.task.cancel()
        await asyncio.wait({other.task})
        assert not other.leads.is_set()
    assert not first.ended.is_set()
    await first.end()


async def test_fencing_token_grows_although_group_was_deleted(
    memory: InMemory, client: Client
) -> None:
    tokens: list[int] = []
    async with memory.admin() as admin:
        for _ in range(5):
            async with election(client) as lead:
                tokens.append(lead.fencing_token)
            await admin.delete_groups(["g"])
    assert tokens == sorted(set(tokens))


async def test_failover_takes_session_and_heartbeat_interval_at_most(
    memory: InMemory, client: Client
) -> None:
    loop = asyncio.get_running_loop()
    async with memory.client(client_id="first") as other:
        first = Candidate(election(other))
        await leading(first)
        second = Candidate(election(client))
        await asyncio.sleep(20.3)
        silenced_at = loop.time()
        silence(memory, "first")
        await leading(second)
        assert loop.time() - silenced_at <= SESSION + HEARTBEAT + 0.1
        assert first.ended.is_set(), "two leaders at once"
        with pytest.raises(LeadershipLostError, match="the session has ended"):
            await first.task
        assert second.lead.fencing_token > first.lead.fencing_token
        await second.end()


async def test_session_without_response_cancels_body(memory: InMemory, client: Client) -> None:
    loop = asyncio.get_running_loop()
    times: list[float] = []

    async def body(_: Lead) -> None:
        await asyncio.sleep(10.4)
        memory.hang()
        times.append(loop.time())
        try:
            await asyncio.sleep(1000)
        finally:
            times.append(loop.time())

    with pytest.raises(LeadershipLostError) as raised:
        await hold(election(client), body)
    assert isinstance(raised.value.__cause__, asyncio.CancelledError)
    assert isinstance(raised.value, ApplicationRecoverableError)
    assert SESSION - HEARTBEAT - 0.1 <= times[1] - times[0] <= SESSION
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_removed_member_loses_lead(memory: InMemory, client: Client) -> None:
    async def body(_: Lead) -> None:
        remove_member(memory)
        await asyncio.sleep(1000)

    with pytest.raises(LeadershipLostError, match="removed the member"):
        await hold(election(client), body)


async def test_lead_does_not_move_before_body_has_ended(memory: InMemory, client: Client) -> None:
    first, others = election(client), list[Candidate]()

    async def body(_: Lead) -> None:
        others.append(Candidate(election(client)))
        await asyncio.sleep(10)
        group = first._pool._member.group_metadata()  # pyright: ignore[reportPrivateUsage]
        memory.cluster.faults.add(
            api="Heartbeat",
            error="ILLEGAL_GENERATION",
            when=lambda _, request: request.member_id == group.member_id,
        )
        try:
            await asyncio.sleep(1000)
        finally:
            await asyncio.sleep(50)
            assert not others[0].leads.is_set()

    with pytest.raises(LeadershipLostError):
        await hold(first, body)
    await leading(others[0])
    await others[0].end()


async def test_body_that_ignores_cancellation_raises_at_its_end(
    memory: InMemory, client: Client
) -> None:
    async def body(_: Lead) -> None:
        remove_member(memory)
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(1000)

    with pytest.raises(LeadershipLostError) as raised:
        await hold(election(client), body)
    assert raised.value.__cause__ is None


async def test_error_of_body_is_raised_with_note(memory: InMemory, client: Client) -> None:
    async def replace_cancellation(_: Lead) -> None:
        remove_member(memory)
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            raise LookupError from None

    async def fail(_: Lead) -> None:
        raise LookupError

    with pytest.raises(LookupError) as raised:
        await hold(election(client), replace_cancellation)
    assert "has lost the lead" in raised.value.__notes__[0]
    with pytest.raises(LookupError) as raised:
        await hold(election(client), fail)
    assert not hasattr(raised.value, "__notes__")


async def test_outside_cancellation_is_not_replaced(client: Client) -> None:
    candidate = Candidate(election(client))
    await leading(candidate)
    candidate.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await candidate.task
    waiting = Candidate(election(client))
    await asyncio.sleep(0.5)
    waiting.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting.task


async def test_missing_permission_for_token_is_raised(
    memory: InMemory, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "kafka_async.app")
    memory.cluster.faults.add(
        api="InitProducerId", error="TRANSACTIONAL_ID_AUTHORIZATION_FAILED", count=1
    )
    with pytest.raises(TransactionalIdAuthorizationError):
        async with election(client):
            pass


async def test_token_is_requested_again_after_retriable_error(
    memory: InMemory, client: Client
) -> None:
    memory.cluster.faults.add(api="InitProducerId", error="COORDINATOR_LOAD_IN_PROGRESS", count=3)
    async with election(client) as lead:
        assert lead.fencing_token > 0
    assert len(memory.requests(InitProducerIdRequest)) == 4


async def test_lead_that_was_lost_while_token_was_requested_is_not_held(
    memory: InMemory, client: Client
) -> None:
    hanging = memory.hang("InitProducerId")
    first = Candidate(election(client))
    await hanging.wait()
    silenced = memory.hang()
    await asyncio.sleep(3 * SESSION)
    hanging.remove()
    await asyncio.sleep(SESSION)
    assert not first.leads.is_set()
    silenced.remove()
    await leading(first, 200)
    await first.end()


async def test_bootstrap_servers_in_place_of_client(memory: InMemory) -> None:
    lead = LeaderElection(memory.cluster.bootstrap_servers, group_id="g")
    with pytest.raises(IllegalStateError, match="has not held the lead"):
        lead.fencing_token  # noqa: B018
    assert lead.health().state == "new"


# -- single writer --------------------------------------------------------------------------------


async def write(lead: SingleWriter, *values: bytes) -> None:
    async with lead.producer.transaction() as txn:
        for value in values:
            await txn.enqueue("t", value)


async def test_one_writer_writes_and_the_next_one_continues(
    memory: InMemory, client: Client
) -> None:
    await memory.cluster.create_topic("t", 1)
    async with writer(client) as first:
        await write(first, b"1", b"2")
        token = first.fencing_token
        producer = first.producer
    with pytest.raises(IllegalStateError, match="is not the writer"):
        first.producer  # noqa: B018
    assert producer.health().state == "closed"
    async with writer(client, linger_ms=0) as second:
        assert second.producer.config.linger_ms == 0
        await write(second, b"3")
        assert second.fencing_token > token
    assert memory.values("t") == [b"1", b"2", b"3"]


async def test_frozen_writer_is_fenced_and_its_transaction_aborted(
    memory: InMemory, client: Client
) -> None:
    await memory.cluster.create_topic("t", 1)
    async with memory.client(client_id="frozen") as other:

        async def freeze(_: Lead) -> None:
            """Continue after the session although this task was cancelled."""
            async with frozen.producer.transaction() as txn:
                await txn.enqueue("t", b"frozen")
                await frozen.producer.flush()
                silence_member(memory, "frozen")
                with suppress(asyncio.CancelledError):
                    await asyncio.sleep(1000)
                async with writer(client) as active:
                    await write(active, b"active")
                    assert active.fencing_token > frozen.fencing_token
                await txn.enqueue("t", b"late")
                with pytest.raises(TransactionAbortableError, match="INVALID_PRODUCER_EPOCH"):
                    await txn.commit()
                with pytest.raises(ApplicationRecoverableError, match="PRODUCER_FENCED"):
                    await txn.abort()

        frozen = writer(other)
        with pytest.raises(ApplicationRecoverableError) as raised:
            await hold(frozen, freeze)
        assert "has lost the lead" in str(raised.value) + "".join(raised.value.__notes__)
    async with memory.consumer(
        partitions=[TopicPartition("t", 0)],
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    ) as consumer:
        records = await consumer.poll(timeout=10)
    assert [record.value for record in records] == [b"active"]
    assert memory.values("t") == [b"frozen", b"active"]


async def test_options_are_those_of_producer_and_member(client: Client) -> None:
    with pytest.raises(InvalidConfigurationError, match="transactional_id is made from the name"):
        writer(client, transactional_id="t")
    with pytest.raises(InvalidConfigurationError, match="batch_size"):
        writer(client, batch_size=-1)
    with pytest.raises(InvalidConfigurationError, match="max_poll_records"):
        writer(client, max_poll_records=5)
    with pytest.raises(ValueError, match="name must not be empty"):
        SingleWriter(client, name="")
    with pytest.raises(ValueError, match="group_id must not be empty"):
        LeaderElection(client, group_id="")
