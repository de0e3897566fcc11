"""Fetches from followers, and the replica that a leader names to consumers (KIP-392)."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import pytest

from kafka_async.embedded import EmbeddedCluster, ErrorCode
from kafka_async.embedded.settings import RACK_AWARE_REPLICA_SELECTOR, SettingOptions
from kafka_async.errors import InvalidConfigurationError
from tests.contract.cases.log import fetch
from tests.contract.model import send
from tests.embedded.harness import Session, running_harness, running_session
from tests.embedded.test_fetch import LONG, TP, partitions, session, values, write
from tests.raw_connection import batch

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]

RACKED: Final[SettingOptions] = {
    "racks": {1: "a", 2: "b", 3: "b", 4: "c"},
    "replica_selector_class": RACK_AWARE_REPLICA_SELECTOR,
}


async def preferred(it: Session, rack: str, version: int = 12, offset: int = 0, **row: Any) -> int:
    """Return the replica to which the leader sends a consumer; -1 if it returned records itself."""
    step = fetch(version, offset, by_id=version >= 13, rack_id=rack, row=row)
    data = (await partitions(it, step))[0]
    assert data.error_code == ErrorCode.NONE
    assert (data.high_watermark, data.last_stable_offset) == (1, 1)
    assert bool(data.records) == (data.preferred_read_replica == -1 and offset == 0)
    return data.preferred_read_replica


@asynccontextmanager
async def racked_session(*replicas: int) -> AsyncGenerator[Session]:
    """Run brokers in racks, with one record in a partition of topic `t` that broker 1 leads."""
    async with running_harness(4, topic=False, **RACKED) as harness:
        await harness.cluster.create_topic("t", assignments={0: replicas})
        it = Session(harness)
        write(it, batch(b"v"))
        yield it


@pytest.mark.parametrize("version", [11, 12, 13, 18])
async def test_leader_names_in_sync_replica_in_the_rack_of_the_consumer(version: int) -> None:
    async with racked_session(1, 2, 3) as it:
        assert await preferred(it, "b", version) == 3
        it.partition().isr = (1, 2)
        assert await preferred(it, "b", version) == 2
        it.partition().isr = (1,)
        assert await preferred(it, "b", version) == -1


@pytest.mark.parametrize("rack", ["", "a", "c", "d"])
async def test_leader_serves_consumers_without_replica_in_their_rack(rack: str) -> None:
    async with racked_session(1, 2, 3) as it:
        assert await preferred(it, rack) == -1


async def test_leader_serves_consumers_in_its_rack_although_a_follower_is_there() -> None:
    async with racked_session(2, 3, 1) as it:
        it.broker = 2
        assert await preferred(it, "b") == -1
        assert await preferred(it, "a") == 1


async def test_leader_names_a_replica_to_consumers_at_the_end_of_the_log_at_once() -> None:
    async with racked_session(1, 2) as it:
        found = await partitions(it, fetch(12, 1, rack_id="b", **LONG))
        assert found[0].preferred_read_replica == 2
        assert asyncio.get_running_loop().time() == 0


async def test_leader_names_no_replica_for_an_offset_that_replicas_do_not_have() -> None:
    async with racked_session(1, 2) as it:
        assert await it.code(fetch(12, 2, rack_id="b")) is ErrorCode.OFFSET_OUT_OF_RANGE


async def test_leader_checks_the_epoch_before_it_names_a_replica() -> None:
    async with racked_session(1, 2) as it:
        for epoch, code in ((0, None), (1, ErrorCode.UNKNOWN_LEADER_EPOCH)):
            step = fetch(12, rack_id="b", row={"current_leader_epoch": epoch})
            assert await it.code(step) is (code or ErrorCode.NONE)


async def test_session_returns_the_named_replica_again() -> None:
    async with racked_session(1, 2) as it:
        opened = await partitions(it, fetch(12, session=(0, 0), rack_id="b", label="s"))
        assert opened[0].preferred_read_replica == 2
        again = fetch(12, session=session(1), topics=[], rack_id="b")
        assert (await partitions(it, again))[0].preferred_read_replica == 2


async def test_leader_names_no_replica_without_selector() -> None:
    async with running_session(2, racks={1: "a", 2: "b"}) as it:
        write(it, batch(b"v"))
        assert await preferred(it, "b") == -1


@pytest.mark.parametrize("version", [4, 10])
async def test_versions_before_11_are_served_by_the_leader_only(version: int) -> None:
    async with racked_session(1, 2) as it:
        assert await preferred(it, "b", version) == -1
        it.broker = 2
        assert await it.code(fetch(version)) is ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize(("version", "state"), [(12, {"replica_id": 2}), (18, None)])
async def test_replicas_fetch_from_the_leader_only(version: int, state: Any) -> None:
    async with racked_session(1, 2) as it:
        fields = state or {"replica_state": {"replica_id": 2}}
        step = fetch(version, by_id=version >= 13, rack_id="b", **fields)
        assert (await partitions(it, step))[0].preferred_read_replica == -1
        it.broker = 2
        assert await it.code(step) is ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_follower_serves_consumers() -> None:
    async with racked_session(1, 2) as it:
        it.broker = 2
        for version in (11, 12):
            found = await partitions(it, fetch(version, rack_id="b"))
            assert values(found[0]) == [b"v"]
            assert found[0].preferred_read_replica == -1
        assert await it.code(fetch(12, 2)) is ErrorCode.OFFSET_OUT_OF_RANGE
        it.broker = 3
        assert await it.code(fetch(12, rack_id="b")) is ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_follower_wakes_waiting_consumers() -> None:
    async with racked_session(1, 2) as it:
        it.broker = 2
        loop = asyncio.get_running_loop()
        loop.call_later(3, write, it, batch(b"late"))
        assert values((await partitions(it, fetch(12, 1, **LONG)))[0]) == [b"late"]
        assert loop.time() == pytest.approx(3)


async def test_follower_checks_the_leader_epoch() -> None:
    async with racked_session(1, 2) as it:
        await it.embedded.move_leader(TP, 2)
        await it.embedded.move_leader(TP, 1)
        it.broker = 2
        for epoch, code in (
            (1, ErrorCode.FENCED_LEADER_EPOCH),
            (2, ErrorCode.NONE),
            (3, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ):
            assert await it.code(fetch(12, row={"current_leader_epoch": epoch})) is code


async def test_replicas_of_new_topics_are_spread_over_racks() -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: "b", 5: "c"}
    async with running_harness(5, topic=False, racks=racks) as it:
        topic = await it.cluster.create_topic("spread", 5, 2)
        for partition in topic.partitions:
            assert len({racks[replica] for replica in partition.replicas}) == 2


async def test_responses_name_the_racks_of_brokers() -> None:
    async with racked_session(1, 2) as it:
        for step in (send("Metadata", 12, topics=[]), send("DescribeCluster", 1)):
            response = await it.ask(step)
            assert [each.rack for each in response.brokers] == ["a", "b", "b", "c"]


async def test_racks_of_unknown_brokers_and_unknown_selectors_are_refused() -> None:
    with pytest.raises(InvalidConfigurationError, match=r"do not exist: \{3\}"):
        EmbeddedCluster(2, racks={1: "a", 3: "b"})
    with pytest.raises(InvalidConfigurationError, match="RackAwareReplicaSelector"):
        EmbeddedCluster(replica_selector_class="org.example.Selector")
