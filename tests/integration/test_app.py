"""Groups of workers, leaders and writers on real clusters, and their examples under kill -9."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async import Admin, Client, GroupMember
from kafka_async.app import LeaderElection, SingleWriter, WorkerPool
from kafka_async.errors import InconsistentGroupProtocolError
from tests.integration.helpers import create_topic, find_group, read_values
from tests.programs import ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kafka_async.group.group_member import Member, MemberAssignment
    from kafka_async.testing.fixtures import ClusterHandle

pytestmark = pytest.mark.asyncio

TIMEOUTS: dict[str, Any] = {"session_timeout_ms": 6000, "heartbeat_interval_ms": 100}
LIMIT = 30.0
SESSION = 6.0
HEARTBEAT = 1.0
"""The time-outs of the examples, in seconds."""


def list_states(members: Sequence[Member]) -> Mapping[str, bytes]:
    states = b",".join(sorted(member.metadata for member in members))
    return {member.member_id: states for member in members}


async def next_data(member: GroupMember, data: bytes) -> MemberAssignment:
    async with asyncio.timeout(LIMIT):
        while (assignment := await anext(member)).data != data:
            pass
    return assignment


async def test_members_of_any_protocol_type_share_their_states(
    kafka_cluster: ClusterHandle,
) -> None:
    servers, group = kafka_cluster.bootstrap_servers, kafka_cluster.group()

    def member(state: bytes, **options: Any) -> GroupMember:
        given: dict[str, Any] = {
            "protocol_type": "jobs",
            "protocols": {"v1": list_states, "v0": list_states},
            **TIMEOUTS,
        }
        return GroupMember(servers, group_id=group, state=state, **given | options)

    async with member(b"a") as first:
        assert (await next_data(first, b"a")).protocol == "v1"
        async with member(b"b", protocols={"v0": list_states}) as second:
            rows = [await next_data(each, b"a,b") for each in (first, second)]
            assert [row.protocol for row in rows] == ["v0", "v0"]
            assert rows[0].generation == rows[1].generation
            async with Admin(servers) as admin:
                described = await find_group(partial(admin.describe_groups, [group]), group)
            assert (described.protocol_type, len(described.members)) == ("jobs", 2)
        await next_data(first, b"a")
        async with member(b"c", protocol_type="other") as stranger:
            cause = f"group {group} has another protocol type than 'other'"
            with pytest.raises(InconsistentGroupProtocolError, match=cause):
                await next_data(stranger, b"c")


async def test_resources_move_between_pools(kafka_cluster: ClusterHandle) -> None:
    group, running = kafka_cluster.group(), dict[str, int]()
    changed = asyncio.Condition()

    async def until(counts: list[int]) -> None:
        async with asyncio.timeout(LIMIT), changed:
            await changed.wait_for(
                lambda: sorted(list(running.values()).count(n) for n in (1, 2)) == counts
            )

    async def note() -> None:
        async with changed:
            changed.notify_all()

    def pool(client: Client, number: int) -> WorkerPool:
        async def worker(resource: str) -> None:
            assert resource not in running, f"two workers of {resource}"
            running[resource] = number
            await note()
            try:
                await asyncio.Event().wait()
            finally:
                del running[resource]

        return WorkerPool(
            client, group_id=group, resources=["a", "b", "c", "d"], worker=worker, **TIMEOUTS
        )

    async with Client(kafka_cluster.bootstrap_servers) as client, pool(client, 1):
        await until([0, 4])
        async with pool(client, 2):
            await until([2, 2])
        await until([0, 4])
    assert running == {}


async def test_leaders_follow_each_other_with_growing_tokens(kafka_cluster: ClusterHandle) -> None:
    group, tokens = kafka_cluster.group(), list[int]()
    leading = 0

    async def lead(client: Client) -> None:
        nonlocal leading
        async with LeaderElection(client, group_id=group, **TIMEOUTS) as election:
            leading += 1
            assert leading == 1
            tokens.append(election.fencing_token)
            await asyncio.sleep(0)
            leading -= 1

    async with asyncio.timeout(LIMIT), Client(kafka_cluster.bootstrap_servers) as client:
        await asyncio.gather(*(lead(client) for _ in range(3)))
    assert tokens == sorted(set(tokens))
    assert len(tokens) == 3


async def test_writers_follow_each_other(kafka_cluster: ClusterHandle) -> None:
    name, topic = kafka_cluster.transactional_id(), await create_topic(kafka_cluster, "entries")
    servers, tokens = kafka_cluster.bootstrap_servers, list[int]()
    for value in (b"1", b"2"):
        async with (
            asyncio.timeout(LIMIT),
            SingleWriter(servers, name=name, **TIMEOUTS) as writer,
            writer.producer.transaction() as txn,
        ):
            tokens.append(writer.fencing_token)
            await txn.enqueue(topic, value)
    assert await read_values(kafka_cluster, topic) == [b"1", b"2"]
    assert tokens[0] < tokens[1]


# -- the examples, in processes -------------------------------------------------------------------


class Program:
    """Runs an example in a process, and reads its output."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, name: str, *arguments: str) -> Program:
        return cls(
            await asyncio.create_subprocess_exec(
                *(sys.executable, str(ROOT / "examples" / name), *arguments),
                stdout=asyncio.subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
            )
        )

    async def read(self, start: str) -> str:
        """Return the next line with this start, without the start."""
        assert self._process.stdout is not None
        async with asyncio.timeout(60):
            while not (line := (await self._process.stdout.readline()).decode()).startswith(start):
                assert line, "the program has ended"
        return line.removeprefix(start).strip()

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    async def stop(self) -> None:
        """Let the program end in order, without an open transaction."""
        self.signal(signal.SIGTERM)
        async with asyncio.timeout(LIMIT):
            await self._process.communicate()

    async def end(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
        await self._process.communicate()


async def joined(cluster: ClusterHandle, group: str, count: int) -> None:
    """Wait until a group is stable with this number of members."""
    async with asyncio.timeout(60), Admin(cluster.bootstrap_servers) as admin:
        while True:
            found = await find_group(partial(admin.describe_groups, [group]), group)
            if (found.state, len(found.members)) == ("Stable", count):
                return


@pytest.fixture
def failover_limit() -> float:
    return SESSION + HEARTBEAT + 2.0


@pytest.mark.slow
@pytest.mark.one_backend("apache")
async def test_example_of_group_members_divides_units(kafka_cluster: ClusterHandle) -> None:
    arguments = ("group_member.py", kafka_cluster.bootstrap_servers, kafka_cluster.group())
    first = await Program.start(*arguments, "3")
    second: Program | None = None
    try:
        assert await first.read("share ") == "100"
        second = await Program.start(*arguments, "1")
        assert await second.read("share ") == "25"
        assert await first.read("share ") == "75"
    finally:
        for program in filter(None, (first, second)):
            await program.end()


@pytest.mark.slow
@pytest.mark.one_backend("embedded")
async def test_leader_is_replaced_after_kill_and_fenced_after_freeze(
    kafka_cluster: ClusterHandle, failover_limit: float
) -> None:
    arguments = ("leader_election.py", kafka_cluster.bootstrap_servers, kafka_cluster.group())
    start = "leading with token "
    programs = [await Program.start(*arguments)]
    try:
        tokens = [int(await programs[0].read(start))]
        programs += [await Program.start(*arguments), await Program.start(*arguments)]
        followers = {asyncio.create_task(each.read(start)): each for each in programs[1:]}
        await joined(kafka_cluster, arguments[2], 3)
        killed_at = time.monotonic()
        programs[0].signal(signal.SIGKILL)
        done, others = await asyncio.wait(followers, return_when=asyncio.FIRST_COMPLETED)
        assert time.monotonic() - killed_at <= failover_limit
        (next_leader,) = done
        tokens.append(int(next_leader.result()))
        frozen_at = time.monotonic()
        followers[next_leader].signal(signal.SIGSTOP)
        (last,) = others
        tokens.append(int(await last))
        assert time.monotonic() - frozen_at <= failover_limit
        followers[next_leader].signal(signal.SIGCONT)
        assert "has lost the lead" in await followers[next_leader].read("LeaderElection")
    finally:
        for program in programs:
            await program.end()
    assert tokens == sorted(set(tokens))


@pytest.mark.slow
@pytest.mark.one_backend("embedded")
async def test_resources_of_killed_process_move(
    kafka_cluster: ClusterHandle, failover_limit: float
) -> None:
    arguments = ("worker_pool.py", kafka_cluster.bootstrap_servers, kafka_cluster.group(), "a", "b")
    first = await Program.start(*arguments)
    second: Program | None = None
    try:
        assert {await first.read("started ") for _ in range(2)} == {"a", "b"}
        second = await Program.start(*arguments)
        moved = await second.read("started ")
        assert await first.read("stopped ") == moved
        killed_at = time.monotonic()
        second.signal(signal.SIGKILL)
        assert await first.read("started ") == moved
        assert time.monotonic() - killed_at <= failover_limit
    finally:
        for program in filter(None, (first, second)):
            await program.end()


@pytest.mark.slow
@pytest.mark.one_backend("apache")
async def test_killed_and_frozen_writers_leave_complete_sequence(
    kafka_cluster: ClusterHandle, failover_limit: float
) -> None:
    topic = await create_topic(kafka_cluster, "numbers")
    name = kafka_cluster.transactional_id()
    arguments = ("single_writer.py", kafka_cluster.bootstrap_servers, name, topic)
    start = "writing with token "
    programs = [await Program.start(*arguments)]
    try:
        tokens = [int(await programs[0].read(start))]
        for number in (signal.SIGKILL, signal.SIGSTOP):
            programs.append(await Program.start(*arguments))
            await joined(kafka_cluster, f"single-writer-{name}", 2)
            signalled_at = time.monotonic()
            programs[-2].signal(number)
            tokens.append(int(await programs[-1].read(start)))
            assert time.monotonic() - signalled_at <= failover_limit
        programs[1].signal(signal.SIGCONT)
        await programs[1].read("")  # It reports that it was replaced.
        before = len(await kafka_cluster.read(topic))
        async with asyncio.timeout(LIMIT):
            while len(await kafka_cluster.read(topic)) <= before:
                pass
        await asyncio.gather(*(program.stop() for program in programs[1:]))
    finally:
        for program in programs:
            await program.end()
    assert tokens == sorted(set(tokens))
    numbers = [int(value or b"0") for value in await read_values(kafka_cluster, topic)]
    assert len(numbers) > len(tokens)
    assert numbers == list(range(1, len(numbers) + 1))
