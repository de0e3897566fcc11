"""Members of groups that are not consumer groups, on virtual time."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from kafka_async.errors import (
    ClientClosedError,
    IllegalStateError,
    InconsistentGroupProtocolError,
    InvalidConfigurationError,
)
from kafka_async.group.group_member import GroupMember, MemberAssignment
from kafka_async.protocol.messages.join_group import JoinGroupRequest
from kafka_async.protocol.messages.leave_group import LeaveGroupRequest
from tests.embedded_client import InMemory

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from kafka_async.client.client import Client
    from kafka_async.group.group_member import AssignFunction, Member

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]

SESSION = 6.0
HEARTBEAT = 1.0
OPTIONS: dict[str, Any] = {"session_timeout_ms": 6000, "heartbeat_interval_ms": 1000}


def list_states(members: Sequence[Member]) -> Mapping[str, bytes]:
    """Assign the sorted states of all members to each of them."""
    states = b",".join(sorted(member.metadata for member in members))
    return {member.member_id: states for member in members}


@pytest_asyncio.fixture
async def memory() -> AsyncIterator[InMemory]:
    async with InMemory() as memory:
        yield memory


@pytest_asyncio.fixture
async def client(memory: InMemory) -> AsyncIterator[Client]:
    async with memory.client() as client:
        yield client


def member(client: Client, state: Any = b"", **options: Any) -> GroupMember:
    given: dict[str, Any] = {
        "group_id": "g",
        "protocol_type": "jobs",
        "protocols": {"v0": list_states},
        **OPTIONS,
    }
    return GroupMember(client, state=state, **given | options)


async def next_of(member: GroupMember, timeout: float = 100) -> MemberAssignment:
    async with asyncio.timeout(timeout):
        return await anext(member)


async def next_data(member: GroupMember, data: bytes) -> MemberAssignment:
    """Return the next assignment with these data."""
    while (assignment := await next_of(member)).data != data:
        pass
    return assignment


async def kill(member: GroupMember) -> None:
    """End a member without LeaveGroup."""
    await member._tear_down(None)  # pyright: ignore[reportPrivateUsage]


# -- assignments ----------------------------------------------------------------------------------


async def test_leader_assigns_from_states_of_all_members(client: Client) -> None:
    async with member(client, b"a") as first, member(client, b"b") as second:
        assignments = [await next_data(each, b"a,b") for each in (first, second)]
        ids = {each.group_metadata().member_id for each in (first, second)}
    assert {row.member_id for row in assignments} == ids
    assert len({row.generation for row in assignments}) == 1
    assert [(row.protocol, row.lost) for row in assignments] == [("v0", False)] * 2


async def test_members_join_and_leave_while_iterating(client: Client) -> None:
    seen: list[bytes] = []
    async with member(client, b"a") as first:
        assert (await next_of(first)).data == b"a"
        async with member(client, b"b"):
            await next_data(first, b"a,b")
        async for assignment in first:
            seen.append(assignment.data)
            break
    assert seen == [b"a"]


async def test_coroutine_function_assigns_and_missing_members_get_empty_bytes(
    client: Client,
) -> None:
    async def assign(members: Sequence[Member]) -> Mapping[str, bytes]:
        await asyncio.sleep(1)
        return {}

    async with member(client, protocols={"v0": assign}) as only:
        assert (await next_of(only)).data == b""


async def test_group_chooses_protocol_that_all_members_support(client: Client) -> None:
    protocols: dict[str, AssignFunction] = {"v1": list_states, "v0": list_states}

    def state(protocol: str) -> bytes:
        return f"new state for {protocol}".encode()

    async with member(client, state, protocols=protocols) as new:
        assert (await next_of(new)).data == b"new state for v1"
        async with member(client, b"old") as old:
            both = await next_data(new, b"new state for v0,old")
            assert both.protocol == "v0"
            assert (await next_of(old)).data == both.data
        assert (await next_data(new, b"new state for v1")).protocol == "v1"


async def test_state_function_is_called_at_each_join(client: Client) -> None:
    states = iter([b"first", b"second"])

    def state(_: str) -> bytes:
        return next(states)

    async with member(client, state) as only:
        assert (await next_of(only)).data == b"first"
        only.rejoin("the state has changed")
        assert (await next_of(only)).data == b"second"


async def test_superseded_assignment_is_skipped(client: Client) -> None:
    async with member(client) as only:
        await asyncio.sleep(5)  # The coordinator waits 3 s for the first members.
        for _ in range(2):
            only.rejoin("again")
            await asyncio.sleep(1)
        assert (await next_of(only)).generation == 3


async def test_rejoin_sends_reason(memory: InMemory, client: Client) -> None:
    async with member(client) as only:
        await next_of(only)
        only.rejoin("a worker was added")
        await next_of(only)
    assert "a worker was added" in [row.reason for row in memory.requests(JoinGroupRequest)]


async def test_stop_leaves_group_so_that_others_continue_at_once(
    memory: InMemory, client: Client
) -> None:
    loop = asyncio.get_running_loop()
    async with member(client, b"a") as first:
        second = member(client, b"b")
        await second.start()
        await next_data(first, b"a,b")
        await second.stop()
        await second.stop()
        left_at = loop.time()
        await next_data(first, b"a")
        assert loop.time() - left_at <= HEARTBEAT + 0.1
    assert len(memory.requests(LeaveGroupRequest)) == 2


async def test_bootstrap_servers_in_place_of_client(memory: InMemory) -> None:
    async with GroupMember(
        memory.cluster.bootstrap_servers,
        group_id="g",
        protocol_type="jobs",
        protocols={"v0": list_states},
        state=b"a",
        dialer=memory.network,
    ) as only:
        assert (await next_of(only)).data == b"a"
    assert memory.connections() == 0


# -- the session ----------------------------------------------------------------------------------


async def test_failover_takes_session_and_heartbeat_interval_at_most(client: Client) -> None:
    loop = asyncio.get_running_loop()
    async with member(client, b"a") as first:
        second = member(client, b"b")
        await second.start()
        await next_data(first, b"a,b")
        died_at = loop.time()
        await kill(second)
        await next_data(first, b"a")
        assert SESSION - HEARTBEAT <= loop.time() - died_at <= SESSION + HEARTBEAT + 0.1


async def test_idle_member_keeps_its_membership(client: Client) -> None:
    async with member(client, rebalance_timeout_ms=2000) as only:
        first = await next_of(only)
        await asyncio.sleep(100 * SESSION)
        assert only.group_metadata().generation_id == first.generation
        assert only.health().last_heartbeat_s == pytest.approx(0, abs=HEARTBEAT)


async def test_assignment_is_lost_when_session_ends_without_response(
    memory: InMemory, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    loop = asyncio.get_running_loop()
    async with member(client) as only:
        held = await next_of(only)
        await asyncio.sleep(10.5)
        hanging = memory.hang()
        hung_at = loop.time()
        lost = await next_of(only)
        assert (lost.lost, lost.data, lost.generation) == (True, b"", -1)
        assert lost.member_id == held.member_id
        assert SESSION - HEARTBEAT - 0.1 <= loop.time() - hung_at <= SESSION
        assert only.session_ends_at is not None
        assert only.session_ends_at <= loop.time()
        hanging.remove()
        again = await next_of(only)
        assert not again.lost
        assert again.generation > held.generation
    assert "the coordinator has not responded for session_timeout_ms (6 s)" in caplog.text


async def test_session_is_over_before_coordinator_removes_member(
    memory: InMemory, client: Client
) -> None:
    async with memory.client() as other_client, member(other_client, b"b") as second:
        first = member(client, b"a")
        await first.start()
        await next_data(first, b"a,b")
        lost = asyncio.Event()

        async def note_loss() -> None:
            while not (await anext(first)).lost:
                pass
            lost.set()

        noting = asyncio.create_task(note_loss())
        await asyncio.sleep(3.3)
        group = first.group_metadata()
        memory.cluster.faults.add(
            when=lambda _, request: getattr(request, "member_id", "") == group.member_id,
            hang=True,
            count=None,
        )
        await next_data(second, b"b")
        assert lost.is_set()
        await noting
        await kill(first)


async def test_removed_member_reports_loss_and_joins_again(
    memory: InMemory, client: Client
) -> None:
    async with member(client) as only:
        held = await next_of(only)
        memory.cluster.faults.add(api="Heartbeat", error="UNKNOWN_MEMBER_ID")
        lost = await next_of(only)
        assert lost.lost
        again = await next_of(only)
        assert again.member_id != held.member_id


# -- errors ---------------------------------------------------------------------------------------


async def test_other_protocol_type_is_rejected(client: Client) -> None:
    async with member(client) as first:
        await next_of(first)
        async with member(client, protocol_type="other") as second:
            with pytest.raises(InconsistentGroupProtocolError, match="type than 'other', or its"):
                await next_of(second)
            assert "InconsistentGroupProtocolError" in (second.health().last_error or "")


async def test_member_without_common_protocol_is_rejected(client: Client) -> None:
    async with member(client) as first:
        await next_of(first)
        async with member(client, protocols={"v7": list_states}) as second:
            with pytest.raises(InconsistentGroupProtocolError, match="all support one of v7: use"):
                await next_of(second)


@pytest.mark.parametrize(
    ("result", "error", "message"),
    [
        pytest.param({"unknown": b""}, ValueError, "no member's id: 'unknown'", id="id"),
        pytest.param(lambda: [b""], TypeError, "must return bytes by member id", id="type"),
        pytest.param("own", TypeError, "must be bytes, not str", id="data"),
    ],
)
async def test_wrong_result_of_function_is_raised_and_next_iteration_joins_again(
    client: Client, result: Any, error: type[Exception], message: str
) -> None:
    wrong = [True]

    async def assign(members: Sequence[Member]) -> Any:
        if not wrong:
            return {}
        wrong.clear()
        if result == "own":
            return {members[0].member_id: "text"}
        return result() if callable(result) else result

    async with member(client, protocols={"v0": assign}) as only:
        with pytest.raises(error, match=message):
            await next_of(only)
        assert (await next_of(only)).data == b""


async def test_wrong_state_is_raised(client: Client) -> None:
    def state(_: str) -> str:
        return "text"

    async with member(client, state) as only:
        with pytest.raises(TypeError, match="the state must be bytes"):
            await next_of(only)


async def test_second_iteration_is_refused(client: Client) -> None:
    async with member(client) as only:
        await next_of(only)
        waiting = asyncio.create_task(next_of(only, 1000))
        await asyncio.sleep(0)
        with pytest.raises(IllegalStateError, match="only one task"):
            await next_of(only)
        waiting.cancel()
        await asyncio.wait({waiting})


async def test_stop_ends_waiting_iteration(client: Client) -> None:
    only = member(client)
    with pytest.raises(ClientClosedError, match="was not started"):
        await next_of(only)
    assert only.health().state == "new"
    await only.start()
    await next_of(only)
    assert only.health().state == "running"
    waiting = asyncio.create_task(next_of(only, 1000))
    await asyncio.sleep(0)
    await only.stop()
    with pytest.raises(ClientClosedError, match="is closed"):
        await waiting
    assert only.health().state == "closed"
    with pytest.raises(ClientClosedError):
        only.rejoin("closed")


async def test_stopped_shared_client_ends_iteration(
    memory: InMemory, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "kafka_async.supervisor")
    shared = memory.client()
    await shared.start()
    only = member(shared)
    await only.start()
    await next_of(only)
    waiting = asyncio.create_task(next_of(only, 1000))
    await asyncio.sleep(0)
    await shared.stop()
    with pytest.raises(IllegalStateError, match="was closed"):
        await waiting
    assert only.health().state == "failed"
    await only.stop()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"group_id": ""}, ValueError, "group_id must not be empty"),
        ({"protocol_type": 5}, TypeError, "protocol_type must be str"),
        ({"protocols": {}}, ValueError, "protocols must not be empty"),
        ({"protocols": [list_states]}, TypeError, "protocols must be functions by name, not list"),
        ({"protocols": {"v0": 5}}, TypeError, "the function of v0 must be callable"),
        ({"state": "text"}, TypeError, "state must be bytes"),
        (
            {"heartbeat_interval_ms": 6000},
            InvalidConfigurationError,
            "heartbeat_interval_ms must be below session_timeout_ms",
        ),
        ({"max_poll_records": 5}, InvalidConfigurationError, "max_poll_records"),
    ],
)
async def test_wrong_arguments_are_named(
    client: Client, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        member(client, **{"state": b""} | options)
