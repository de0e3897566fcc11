"""The coordinator or the leader of a classic group fails at a step of a rebalance.

The steps are those of the design of client-side assignment:

1. All members send JoinGroup.
2. The coordinator has formed the generation; the members receive the responses.
3. All members send SyncGroup.
4. The coordinator has stored the assignments; the members receive the responses.

A group of two, "leader" and "follower", rebalances since "new" joins.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async.protocol.messages.join_group import JoinGroupRequest
from tests.embedded_client import until
from tests.recording_listener import RecordingListener

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from kafka_async.consumer.consumer import Consumer
    from kafka_async.embedded.faults import Fault
    from tests.consumer.conftest import Stage, StartStage

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock, pytest.mark.one_kernel]

PARTITIONS = 6
SESSION, HEARTBEAT = 10.0, 3.0
"""Seconds."""
NAMES = ("leader", "follower", "new")


def now() -> float:
    return asyncio.get_running_loop().time()


class Group:
    """Polls the members of group "g"; an error that a poll raises fails the test."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.coordinator = stage.coordinator("g")
        self.members: dict[str, Consumer] = {}
        self.listeners: dict[str, RecordingListener] = {}
        self._polling: dict[str, asyncio.Task[None]] = {}
        self._faults: list[Fault] = []

    async def start(self, name: str) -> None:
        listener = self.listeners[name] = RecordingListener()
        self.members[name] = consumer = self.stage.consumer(
            "t",
            client_id=name,
            listener=listener,
            session_timeout_ms=int(SESSION * 1000),
            heartbeat_interval_ms=int(HEARTBEAT * 1000),
        )
        await consumer.start()
        self._polling[name] = asyncio.ensure_future(self._poll(consumer))

    async def _poll(self, consumer: Consumer) -> None:
        while True:
            await consumer.poll(timeout=0.5)

    def fault(self, api: str, *names: str, **effect: Any) -> Fault:
        """Add a fault for all requests of an API that these members send to the coordinator."""
        fault = self.stage.cluster.faults.add(
            api=api,
            broker=self.coordinator,
            when=lambda context, _: context.client_id in names,
            count=None,
            **effect,
        )
        self._faults.append(fault)
        return fault

    def isolate(self, name: str, since: Fault) -> None:
        """Cut a member off, once a fault has applied to it."""
        fault = self.stage.cluster.faults.add(
            when=lambda context, _: context.client_id == name and since.hits > 0,
            disconnect="before",
            count=None,
        )
        self._faults.append(fault)

    def remove_faults(self) -> None:
        """Let all requests pass, also those that are held."""
        for fault in self._faults:
            fault.remove()

    async def until_owned(self, *names: str) -> None:
        """Wait until these members own all partitions, in equal numbers."""
        share = PARTITIONS // len(names)
        async with asyncio.timeout(200):
            while True:
                owned = [self.members[name].assignment() for name in names]
                different = len({partition for each in owned for partition in each})
                if all(len(it) == share for it in owned) and different == PARTITIONS:
                    break
                for task in self._polling.values():
                    if task.done():
                        task.result()
                await asyncio.sleep(0.1)

    def generations(self) -> dict[str, int]:
        return {name: it.group_metadata().generation_id for name, it in self.members.items()}

    async def fail_coordinator(self) -> float:
        """Stop the coordinator, and let requests that were held continue; return the time."""
        await self.stage.cluster.stop_broker(self.coordinator)
        self.remove_faults()
        return now()

    async def kill(self, name: str) -> float:
        """End a member without LeaveGroup; return the time."""
        await self._end(name)
        await self.members[name]._tear_down()  # pyright: ignore[reportPrivateUsage]
        del self.members[name]
        return now()

    async def stop(self) -> None:
        for name, member in self.members.items():
            await self._end(name)
            await member.stop()

    async def _end(self, name: str) -> None:
        polling = self._polling.pop(name)
        polling.cancel()
        await asyncio.wait({polling})
        assert polling.cancelled()

    def joined_at_next_coordinator(self) -> set[str]:
        """Return the names of the members that sent JoinGroup to another broker."""
        ids = {it.group_metadata().member_id: name for name, it in self.members.items()}
        return {
            ids[row.request.member_id]
            for row in self.stage.received
            if isinstance(row.request, JoinGroupRequest)
            and row.broker != self.coordinator
            and row.request.member_id in ids
        }


@asynccontextmanager
async def pair(stage: Stage) -> AsyncGenerator[Group]:
    """Start the leader and the follower."""
    await stage.topic("t", PARTITIONS)
    group = Group(stage)
    try:
        await group.start("leader")
        await group.until_owned("leader")
        await group.start("follower")
        await group.until_owned("leader", "follower")
        assert group.members["leader"].explain().leads
        yield group
    finally:
        group.remove_faults()
        await group.stop()


# -- the coordinator fails ------------------------------------------------------------------------


async def test_members_join_at_the_next_coordinator_if_one_fails_before_all_have_joined(
    start_stage: StartStage,
) -> None:
    async with pair(await start_stage(3)) as group:
        missing = group.fault("JoinGroup", "follower", hang=True)
        await group.start("new")
        await missing.wait()
        failed_at = await group.fail_coordinator()
        await group.until_owned(*NAMES)
        assert now() - failed_at < SESSION
        assert group.joined_at_next_coordinator() == set(NAMES)
        assert len(set(group.generations().values())) == 1


async def test_generation_is_formed_again_if_its_coordinator_fails_before_all_know_of_it(
    start_stage: StartStage,
) -> None:
    """The leader, which was about to synchronize, joins again as the others do."""
    async with pair(await start_stage(3)) as group:
        group.fault("JoinGroup", "follower", applied=True, hang=True)
        syncing = group.fault("SyncGroup", *NAMES, hang=True)
        await group.start("new")
        await syncing.wait(2)  # of the others: the generation is complete
        failed_at = await group.fail_coordinator()
        await group.until_owned(*NAMES)
        assert now() - failed_at < SESSION
        assert group.joined_at_next_coordinator() == set(NAMES)
        assert len(set(group.generations().values())) == 1


async def test_group_synchronizes_again_if_its_coordinator_fails_before_the_leader_has(
    start_stage: StartStage,
) -> None:
    async with pair(await start_stage(3)) as group:
        leaders = group.fault("SyncGroup", "leader", hang=True)
        others = group.fault("SyncGroup", "follower", "new")
        await group.start("new")
        await leaders.wait()
        await others.wait(2)
        failed_at = await group.fail_coordinator()
        await group.until_owned(*NAMES)
        assert now() - failed_at < SESSION
        assert len(set(group.generations().values())) == 1


async def test_members_get_stored_assignment_from_the_next_coordinator_in_the_same_generation(
    start_stage: StartStage,
) -> None:
    """No member that has its assignment joins again."""
    async with pair(await start_stage(3)) as group:
        before = group.generations()["leader"]
        others = group.fault("SyncGroup", "follower", "new", applied=True, hang=True)
        await group.start("new")
        await others.wait(2)
        async with asyncio.timeout(30):
            await until(lambda: len(group.members["leader"].assignment()) == PARTITIONS // 3)
        failed_at = await group.fail_coordinator()
        await group.until_owned(*NAMES)
        assert now() - failed_at < SESSION
        assert "leader" not in group.joined_at_next_coordinator()
        assert set(group.generations().values()) == {before + 1}


async def test_members_join_again_if_the_next_coordinator_does_not_know_them(
    start_stage: StartStage,
) -> None:
    """The embedded cluster can keep the members of a group in memory only."""
    async with pair(await start_stage(3, group_persistent_members=False)) as group:
        failed_at = await group.fail_coordinator()
        async with asyncio.timeout(30):
            await until(lambda: group.joined_at_next_coordinator() == {"leader", "follower"})
        await group.until_owned("leader", "follower")
        assert now() - failed_at < SESSION
        assert len(set(group.generations().values())) == 1


# -- the leader fails -----------------------------------------------------------------------------


async def check_others_take_over(group: Group, failed_at: float) -> None:
    """Check that the other members own all partitions once the leader's session has ended."""
    await group.until_owned("follower", "new")
    assert now() - failed_at < SESSION + HEARTBEAT + 2
    assert group.members["follower"].explain().leads != group.members["new"].explain().leads


async def test_others_continue_if_the_leader_fails_before_it_joins(stage: Stage) -> None:
    async with pair(stage) as group:
        joining = group.fault("JoinGroup", "leader", disconnect="before")
        group.isolate("leader", joining)
        await group.start("new")
        await joining.wait()
        await check_others_take_over(group, await group.kill("leader"))


async def test_others_continue_if_the_leader_fails_before_it_knows_the_generation(
    stage: Stage,
) -> None:
    async with pair(stage) as group:
        joining = group.fault("JoinGroup", "leader", disconnect="after")
        syncing = group.fault("SyncGroup", "follower", "new")
        group.isolate("leader", syncing)
        await group.start("new")
        await joining.wait()
        await syncing.wait()  # the generation is complete
        await check_others_take_over(group, await group.kill("leader"))


async def test_others_continue_if_the_leader_fails_before_its_assignment_arrives(
    stage: Stage,
) -> None:
    async with pair(stage) as group:
        assigning = group.fault("SyncGroup", "leader", disconnect="before")
        waiting = group.fault("SyncGroup", "follower", "new")
        group.isolate("leader", assigning)
        await group.start("new")
        await assigning.wait()
        await waiting.wait(2)
        await check_others_take_over(group, await group.kill("leader"))


async def test_others_use_the_assignment_of_a_leader_that_fails_after_it_was_stored(
    stage: Stage,
) -> None:
    """They own their thirds until its session ends, then all."""
    async with pair(stage) as group:
        assigning = group.fault("SyncGroup", "leader", disconnect="after")
        group.isolate("leader", assigning)
        await group.start("new")
        await assigning.wait()
        failed_at = await group.kill("leader")
        thirds = [PARTITIONS // 3] * 2
        async with asyncio.timeout(HEARTBEAT):
            await until(lambda: [len(it.assignment()) for it in group.members.values()] == thirds)
        await check_others_take_over(group, failed_at)
    assert [kind for kind, _ in group.listeners["new"].lines][:2] == ["assigned", "revoked"]
