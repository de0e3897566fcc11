"""Classic groups whose coordinator or leader fails at a step of a rebalance, on real brokers too.

The steps are those of `tests/consumer/test_group_failures.py`, which has more checks on the
embedded cluster in virtual time. Here each member has a client whose connections a proxy holds at
the step. Two further steps are the look-up of the coordinator and a heartbeat.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from kafka_async import Client, Consumer, GroupMember
from kafka_async.client.client import services_of
from kafka_async.client.metadata.coordinator_lookup import CoordinatorKind
from kafka_async.client.metadata.request_router import Controller
from kafka_async.errors import (
    ElectionNotNeededError,
    PreferredLeaderNotAvailableError,
    raise_for,
)
from kafka_async.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
)
from kafka_async.protocol.messages.elect_leaders import ElectLeadersRequest
from kafka_async.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafka_async.protocol.messages.heartbeat import HeartbeatRequest
from kafka_async.protocol.messages.join_group import JoinGroupRequest
from kafka_async.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kafka_async.protocol.messages.sync_group import SyncGroupRequest
from kafka_async.testing.backends.embedded import EmbeddedBackend
from tests.embedded_client import until
from tests.integration.broker_proxy import Hold, Proxies
from tests.integration.helpers import create_topic, poll_until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence

    from kafka_async.group.group_member import Member, MemberAssignment
    from kafka_async.testing.fixtures import ClusterHandle

pytestmark = [pytest.mark.asyncio, pytest.mark.slow]

LIMIT = 120.0
"""Seconds."""
LONG_SESSION, MEDIUM_SESSION, SHORT_SESSION = 120.0, 6.0, 2.0
"""Seconds. The coordinator notices the end of a leader when its session has ended."""
PAIR, NEW = ("first", "second"), "new"
ALL = (*PAIR, NEW)
FIND, HEARTBEAT = FindCoordinatorRequest.API_KEY, HeartbeatRequest.API_KEY
JOIN, SYNC = JoinGroupRequest.API_KEY, SyncGroupRequest.API_KEY


RETRIED_ELECTIONS = (0, ElectionNotNeededError.code, PreferredLeaderNotAvailableError.code)
"""Error codes of elections that were held, or that a follower may win once it is in sync."""


class Progress(Enum):
    """The progress of a request when a coordinator or a leader fails."""

    NOT_SENT = "the proxy has it"
    SENT = "the broker has it; its response does not reach the client"
    HANDLED = "the proxy has its response"


Step: TypeAlias = "Mapping[str, tuple[int, Progress]]"
"""API key and progress of a request of the leader, the follower and the new member."""
OTHERS_SYNC: Step = dict.fromkeys(("follower", NEW), (SYNC, Progress.SENT))

FOUND: Step = {NEW: (FIND, Progress.HANDLED)}
JOINING: Step = {"leader": (JOIN, Progress.SENT), "follower": (JOIN, Progress.NOT_SENT)}
FORMED: Step = {"leader": (SYNC, Progress.NOT_SENT), "follower": (JOIN, Progress.HANDLED)}
SYNCING: Step = {"leader": (SYNC, Progress.NOT_SENT), **OTHERS_SYNC}
STORED: Step = dict.fromkeys(("follower", NEW), (SYNC, Progress.HANDLED))


class Group:
    """A classic group of two members, "first" and "second", which "new" may join.

    Each assignment is the names of all members. A member whose iteration raises fails the test.

    Attributes:
        members: The members that have not been killed, by name.
        leader: Name of the member that has assigned last.
    """

    def __init__(self, servers: str, group_id: str, session: float, stack: AsyncExitStack) -> None:
        self.members: dict[str, GroupMember] = {}
        self.leader = ""
        self._servers = servers
        self._group_id = group_id
        self._options: dict[str, Any] = {
            "session_timeout_ms": int(session * 1000),
            "heartbeat_interval_ms": 200,
        }
        self._session = session
        self._stack = stack
        self._proxies: dict[str, Proxies] = {}
        self._assignments: dict[str, list[MemberAssignment]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._held: list[tuple[Progress, Hold]] = []
        self._port = -1

    async def start(self, name: str) -> None:
        proxies = self._proxies.setdefault(name, Proxies())
        await self._stack.enter_async_context(proxies)
        client = await self._stack.enter_async_context(Client(self._servers, dialer=proxies))

        def assign(members: Sequence[Member]) -> Mapping[str, bytes]:
            self.leader = name
            names = b",".join(sorted(member.metadata for member in members))
            return {member.member_id: names for member in members}

        self.members[name] = member = GroupMember(
            client,
            group_id=self._group_id,
            protocol_type="names",
            protocols={"v0": assign},
            state=name.encode(),
            **self._options,
        )
        await member.start()
        self._assignments[name] = []
        self._tasks[name] = asyncio.create_task(self._iterate(name))

    async def _iterate(self, name: str) -> None:
        async for assignment in self.members[name]:
            self._assignments[name].append(assignment)

    async def until(self, reached: Callable[[], bool]) -> None:
        """Wait for a condition; raise the error of a member whose iteration has ended."""

        def reached_or_ended() -> bool:
            return reached() or any(task.done() for task in self._tasks.values())

        async with asyncio.timeout(LIMIT):
            await until(reached_or_ended)
        for task in self._tasks.values():
            if task.done():
                task.result()

    async def until_assigned(self, names: Collection[str], *members: str) -> None:
        """Wait until these names are the last assignment of members, by default of all.

        The assignments are those of one generation.
        """
        rows = [self._assignments[name] for name in members or self.members]
        data = _data(names)

        def assigned() -> bool:
            last = {(each[-1].data, each[-1].generation) for each in rows if each}
            return all(rows) and len(last) == 1 and {it for it, _ in last} == {data}

        await self.until(assigned)

    def has_had(self, names: Collection[str]) -> bool:
        """Return whether these names were the assignment of all members in one generation."""
        data = _data(names)
        found = [
            {row.generation for row in self._assignments[name] if row.data == data}
            for name in self.members
        ]
        return bool(found[0].intersection(*found[1:]))

    def generations(self) -> set[int]:
        return {member.group_metadata().generation_id for member in self.members.values()}

    @property
    def losses(self) -> list[str]:
        """Names of the members that were told that their assignment is lost."""
        return [name for name, rows in self._assignments.items() if any(it.lost for it in rows)]

    async def coordinator(self) -> int:
        """Return the id of the coordinator, whose requests `hold` holds."""
        services = services_of(self.members["first"].client)
        broker = await services.coordinators.find(
            CoordinatorKind.GROUP, self._group_id, timeout=LIMIT
        )
        self._port = services.metadata.snapshot.brokers[broker].port
        return broker

    def hold(self, step: Step) -> None:
        """Hold the next requests of the step, or their responses."""
        [follower] = set(PAIR) - {self.leader}
        names = {"leader": self.leader, "follower": follower, NEW: NEW}
        for role, (api_key, progress) in step.items():
            port = None if api_key == FIND else self._port
            responses = progress is not Progress.NOT_SENT
            proxies = self._proxies.setdefault(names[role], Proxies())
            proxies.hold = Hold(api_key, port, responses=responses)
            self._held.append((progress, proxies.hold))

    async def until_reached(self) -> None:
        """Wait until the held requests have made the progress of their step."""
        for progress, hold in self._held:
            event = hold.sent if progress is Progress.SENT else hold.reached
            async with asyncio.timeout(LIMIT):
                await event.wait()

    async def disconnect_coordinator(self) -> None:
        """Close all connections to the coordinator for good."""
        for proxies in self._proxies.values():
            await proxies.fail(self._port)

    def release(self) -> None:
        for _, hold in self._held:
            hold.released.set()
        for proxies in self._proxies.values():
            proxies.hold = None

    async def until_heartbeats(self) -> None:
        """Wait until the coordinator has accepted a request that each member sends from now on."""
        end = asyncio.get_running_loop().time() + self._session
        await self.until(
            lambda: all((it.session_ends_at or 0.0) > end for it in self.members.values())
        )

    async def kill(self, name: str) -> None:
        """End a member without LeaveGroup; what the proxies hold of it is not sent."""
        await self._end(name)
        await self.members.pop(name)._tear_down(None)  # pyright: ignore[reportPrivateUsage]
        await self._proxies.pop(name).disconnect()

    async def stop(self) -> None:
        for name, member in self.members.items():
            await self._end(name)
            await member.stop()

    async def _end(self, name: str) -> None:
        task = self._tasks.pop(name)
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()


def _data(names: Collection[str]) -> bytes:
    """Return the data of an assignment of these names."""
    return ",".join(sorted(names)).encode()


@asynccontextmanager
async def pair(
    cluster: ClusterHandle, session: float, group_id: str | None = None
) -> AsyncGenerator[Group]:
    """Start the first two members."""
    async with AsyncExitStack() as stack:
        group = Group(cluster.bootstrap_servers, group_id or cluster.group(), session, stack)
        try:
            for name in PAIR:
                await group.start(name)
                await group.until_assigned(list(group.members))
            yield group
        finally:
            group.release()
            await group.stop()


# -- the coordinator fails ------------------------------------------------------------------------


async def lead(client: Client, replicas: Mapping[int, Sequence[int]]) -> None:
    """Make the first replica of partitions of `__consumer_offsets` their leader."""
    rows = [
        {"partition_index": index, "replicas": list(brokers)} for index, brokers in replicas.items()
    ]
    topic = "__consumer_offsets"
    moves = {"timeout_ms": 20_000, "topics": [{"name": topic, "partitions": rows}]}
    moved = await client.request(
        AlterPartitionReassignmentsRequest.from_dict(moves), to=Controller()
    )
    raise_for(moved.error_code, moved.error_message)
    for response in moved.responses:
        for row in response.partitions:
            raise_for(row.error_code, f"{response.name}-{row.partition_index}: {row.error_message}")
    election = {"topic": topic, "partitions": list(replicas)}
    async with asyncio.timeout(LIMIT):
        while True:
            elected = await client.request(
                ElectLeadersRequest.from_dict(
                    {"timeout_ms": 20_000, "topic_partitions": [election]}
                ),
                to=Controller(),
            )
            raise_for(elected.error_code)
            for result in elected.replica_election_results:
                for row in result.partition_result:
                    if row.error_code not in RETRIED_ELECTIONS:
                        place = f"{result.topic}-{row.partition_id}"
                        raise_for(row.error_code, f"{place}: {row.error_message}")
            leaders = {index: leader for index, (leader, _) in (await offsets(client)).items()}
            if all(leaders[index] == brokers[0] for index, brokers in replicas.items()):
                break
            await asyncio.sleep(0.1)


async def offsets(client: Client) -> dict[int, tuple[int, Sequence[int]]]:
    """Return leader and replicas of each partition of `__consumer_offsets`."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name="__consumer_offsets")])
    [topic] = (await client.request(request, to=Controller())).topics
    return {it.partition_index: (it.leader_id, it.replica_nodes) for it in topic.partitions}


@asynccontextmanager
async def killed(cluster: ClusterHandle, broker: int) -> AsyncGenerator[None]:
    """Kill a broker, and start it at the end."""
    await asyncio.to_thread(cluster.control.kill_broker, broker)
    try:
        yield
    finally:
        await asyncio.to_thread(cluster.control.start_broker, broker)


@asynccontextmanager
async def coordinated_by_others(cluster: ClusterHandle, broker: int) -> AsyncGenerator[None]:
    """Move the groups of a broker to other coordinators, and back at the end.

    Apache Kafka does so by another leader of their partitions of `__consumer_offsets`, since a
    restart of a broker takes 20 s. The next coordinator loads the groups as after a crash.
    """
    if isinstance(cluster.cluster, EmbeddedBackend):
        async with killed(cluster, broker):
            yield
        return
    async with Client(cluster.bootstrap_servers) as client:
        own = {
            index: replicas
            for index, (leader, replicas) in (await offsets(client)).items()
            if leader == broker
        }
        await lead(
            client,
            {index: sorted(replicas, key=broker.__eq__) for index, replicas in own.items()},
        )
        try:
            yield
        finally:
            await lead(client, own)


@asynccontextmanager
async def failing_coordinator(
    cluster: ClusterHandle, step: Step, *, rebalance: bool = True
) -> AsyncGenerator[Group]:
    """Let the coordinator fail at a step; yield while others coordinate its groups.

    Args:
        cluster: The cluster.
        step: The progress of the members' requests at that time.
        rebalance: The group rebalances, since "new" joins.
    """
    async with pair(cluster, LONG_SESSION) as group:
        broker = await group.coordinator()
        group.hold(step)
        if rebalance:
            await group.start(NEW)
        await group.until_reached()
        await group.disconnect_coordinator()
        async with coordinated_by_others(cluster, broker):
            group.release()
            yield group
            await group.until_heartbeats()
            assert group.losses == []


@pytest.mark.parametrize(
    "step",
    [
        pytest.param(FOUND, id="found-by-a-new-member"),
        pytest.param(JOINING, id="before-all-have-joined"),
        pytest.param(FORMED, id="before-all-know-of-the-generation"),
        pytest.param(SYNCING, id="before-the-leader-has-synchronized"),
    ],
)
async def test_rebalance_is_completed_by_the_next_coordinator_if_one_fails(
    kafka_cluster: ClusterHandle, step: Step
) -> None:
    async with failing_coordinator(kafka_cluster, step) as group:
        await group.until_assigned(ALL)


async def test_members_get_stored_assignment_from_the_next_coordinator_in_the_same_generation(
    kafka_cluster: ClusterHandle,
) -> None:
    async with failing_coordinator(kafka_cluster, STORED) as group:
        await group.until_assigned(ALL, group.leader)
        generation = group.members[group.leader].group_metadata().generation_id
        await group.until_assigned(ALL)
        await group.until_heartbeats()
        assert group.generations() == {generation}


async def test_generation_continues_if_its_coordinator_fails_before_it_gets_a_heartbeat(
    kafka_cluster: ClusterHandle,
) -> None:
    step = {"leader": (HEARTBEAT, Progress.NOT_SENT)}
    async with failing_coordinator(kafka_cluster, step, rebalance=False) as group:
        generations = group.generations()
        assert len(generations) == 1
        await group.until_heartbeats()
        assert group.generations() == generations


async def test_groups_at_each_step_continue_if_their_coordinator_is_killed(
    kafka_cluster: ClusterHandle,
) -> None:
    """Kills the broker, which the other tests only make unreachable on Apache Kafka."""
    steps = (JOINING, FORMED, SYNCING, STORED)
    async with AsyncExitStack() as stack:
        broker, ids = await groups_of_one_coordinator(kafka_cluster, len(steps))
        groups = [
            await stack.enter_async_context(pair(kafka_cluster, LONG_SESSION, group_id))
            for group_id in ids
        ]
        for group, step in zip(groups, steps, strict=True):
            assert await group.coordinator() == broker
            group.hold(step)
            await group.start(NEW)
            await group.until_reached()
        async with killed(kafka_cluster, broker):
            for group in groups:
                group.release()
            for group in groups:
                await group.until_assigned(ALL)
                await group.until_heartbeats()
                assert group.losses == []


async def test_partitions_of_last_new_member_have_an_owner_if_the_coordinator_fails_as_it_leaves(
    kafka_cluster: ClusterHandle,
) -> None:
    """The next coordinator does not know that the member of the classic protocol must rejoin."""
    servers, group_id = kafka_cluster.bootstrap_servers, kafka_cluster.group()
    topic = await create_topic(kafka_cluster, partitions=2)
    options: dict[str, Any] = {"topics": [topic], "group_id": group_id}
    async with (
        Proxies() as proxies,
        Client(servers, dialer=proxies) as client,
        Consumer(client, **options, heartbeat_interval_ms=200) as stays,
    ):
        async with Consumer(servers, **options, group_protocol="consumer") as leaves:
            members = (stays, leaves)

            def balanced() -> bool:
                generations = {member.group_metadata().generation_id for member in members}
                owned = [len(member.assignment()) for member in members]
                return len(generations) == 1 and owned == [1, 1]

            await poll_until(stays.assignment, stays)
            await poll_until(balanced, *members)
            services = services_of(client)
            broker = await services.coordinators.find(
                CoordinatorKind.GROUP, group_id, timeout=LIMIT
            )
            proxies.hold = hold = Hold(HEARTBEAT, None)
            async with asyncio.timeout(LIMIT):
                await hold.reached.wait()
        await proxies.fail(services.metadata.snapshot.brokers[broker].port)
        async with coordinated_by_others(kafka_cluster, broker):
            proxies.hold = None
            hold.released.set()
            await poll_until(lambda: len(stays.assignment()) == 2, stays)
            await stays.stop()  # Later the group is coordinated by the broker it cannot reach.


async def groups_of_one_coordinator(cluster: ClusterHandle, count: int) -> tuple[int, list[str]]:
    """Return a broker, and ids of groups that it coordinates."""
    ids: dict[int, list[str]] = {}
    async with Client(cluster.bootstrap_servers) as client:
        for number in range(100):
            group_id = cluster.group(f"group-{number}")
            broker = await services_of(client).coordinators.find(
                CoordinatorKind.GROUP, group_id, timeout=LIMIT
            )
            ids.setdefault(broker, []).append(group_id)
            if len(ids[broker]) == count:
                return broker, ids[broker]
    raise AssertionError("the groups have too many coordinators")


# -- the leader fails -----------------------------------------------------------------------------


async def check_others_take_over(
    cluster: ClusterHandle, step: Step, *, stored: bool = False
) -> None:
    """Kill the leader at a step, and check that another member leads the others.

    Args:
        cluster: The cluster.
        step: The progress of the members' requests at that time.
        stored: The coordinator has the leader's assignment, which the others use first.
    """
    async with pair(cluster, MEDIUM_SESSION if stored else SHORT_SESSION) as group:
        await group.coordinator()
        group.hold(step)
        await group.start(NEW)
        await group.until_reached()
        leader = group.leader
        await group.kill(leader)
        group.release()
        if stored:
            await group.until(lambda: group.has_had(ALL))
        await group.until_assigned(list(group.members))
        assert group.leader != leader


async def test_others_continue_if_the_leader_fails_before_it_joins(
    kafka_cluster: ClusterHandle,
) -> None:
    step = {"leader": (JOIN, Progress.NOT_SENT), "follower": (JOIN, Progress.SENT)}
    await check_others_take_over(kafka_cluster, step)


async def test_others_continue_if_the_leader_fails_before_it_knows_the_generation(
    kafka_cluster: ClusterHandle,
) -> None:
    step = {"leader": (JOIN, Progress.HANDLED), **OTHERS_SYNC}
    await check_others_take_over(kafka_cluster, step)


async def test_others_continue_if_the_leader_fails_before_its_assignment_arrives(
    kafka_cluster: ClusterHandle,
) -> None:
    step = {"leader": (SYNC, Progress.NOT_SENT), **OTHERS_SYNC}
    await check_others_take_over(kafka_cluster, step)


async def test_others_use_the_assignment_of_a_leader_that_fails_after_it_was_stored(
    kafka_cluster: ClusterHandle,
) -> None:
    step = {"leader": (SYNC, Progress.HANDLED)}
    await check_others_take_over(kafka_cluster, step, stored=True)
