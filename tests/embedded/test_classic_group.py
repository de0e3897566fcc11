"""The state machine of a classic group, without an event loop: time is an argument."""

from __future__ import annotations

import enum
import itertools
from collections.abc import Mapping
from typing import Any

import pytest

from kafka_async.embedded.error_codes import ErrorCode
from kafka_async.embedded.groups import classic_group_state
from kafka_async.embedded.groups.classic_group import ClassicGroup, GroupConfig
from kafka_async.embedded.groups.classic_group_state import ClassicGroupState
from kafka_async.embedded.groups.members import (
    GroupProtocol,
    JoinRequest,
    JoinResult,
    SyncRequest,
    SyncResult,
)
from kafka_async.embedded.transactions import transaction_state
from kafka_async.group.consumer_protocol import encode_assignor_error

RANGE = GroupProtocol("range", b"r")
STICKY = GroupProtocol("sticky", b"s")


class Driver:
    """Drives a group with a fake clock; `responses` holds the responses by request id."""

    def __init__(self, **limits: Any) -> None:
        ids = itertools.count(1)
        self.now = 0.0
        self.group = ClassicGroup(
            "g", GroupConfig(**limits), lambda prefix: f"{prefix}-{next(ids)}"
        )
        self.responses: dict[int, JoinResult | SyncResult] = {}
        self._request_ids = itertools.count(1)

    def join(self, member_id: str = "", **fields: Any) -> int:
        request: dict[str, Any] = {
            "client_id": "c",
            "session_timeout": 10.0,
            "rebalance_timeout": 60.0,
            "protocol_type": "consumer",
            "protocols": (RANGE,),
            "requires_known_member_id": False,
            **fields,
        }
        request_id = next(self._request_ids)
        self.group.join(JoinRequest(member_id=member_id, **request), request_id, self.now)
        self._collect_responses()
        return request_id

    def sync(self, member_id: str, generation: int, **fields: Any) -> int:
        request_id = next(self._request_ids)
        self.group.sync(
            SyncRequest(member_id=member_id, generation=generation, **fields), request_id, self.now
        )
        self._collect_responses()
        return request_id

    def heartbeat(self, member_id: str, generation: int) -> ErrorCode:
        return self.group.heartbeat(member_id, None, generation, self.now)

    def leave(self, member_id: str, instance_id: str | None = None) -> ErrorCode:
        code = self.group.leave(member_id, instance_id, self.now)
        self._collect_responses()
        return code

    def pass_time(self, seconds: float) -> None:
        """Advance the clock and handle the deadlines on the way."""
        end = self.now + seconds
        while self.group.deadline <= end:
            self.now = max(self.now, self.group.deadline)
            self.group.expire(self.now)
            self._collect_responses()
        self.now = end

    def pass_time_with_heartbeats(self, *members: str) -> None:
        """Advance the clock by a minute; these members keep their sessions in generation 1."""
        for _ in range(12):
            self.pass_time(5)
            for member in members:
                self.heartbeat(member, 1)

    def codes(self, member: str) -> set[ErrorCode]:
        """Return the error codes of all requests of a member in generation 1, except JoinGroup."""
        return {
            self.synced(self.sync(member, 1)).code,
            self.heartbeat(member, 1),
            self.leave(member),
            self.group.validate_offset_commit(member, None, 1, self.now),
        }

    def reload(self, load_time: float = 0.0) -> None:
        self.group.reload(self.now, load_time)
        self._collect_responses()

    def joined(self, request_id: int) -> JoinResult:
        result = self.responses[request_id]
        assert isinstance(result, JoinResult)
        return result

    def synced(self, request_id: int) -> SyncResult:
        result = self.responses[request_id]
        assert isinstance(result, SyncResult)
        return result

    def stable(self, count: int, **fields: Any) -> list[str]:
        """Return the ids of this many members of a stable group; the first is the leader."""
        request_ids = [self.join(**fields) for _ in range(count)]
        self.pass_time(0)
        members = [self.joined(request_id).member_id for request_id in request_ids]
        return self.synchronize(members)

    def synchronize(self, members: list[str]) -> list[str]:
        assignments = {member: member.encode() for member in members}
        for member in members:
            leads = member == self.group.members.leader
            self.sync(member, self.group.generation, assignments=assignments if leads else {})
        assert self.group.state is ClassicGroupState.STABLE
        return members

    def _collect_responses(self) -> None:
        for request_id, result in self.group.pop_responses():
            assert request_id not in self.responses, "two responses"
            self.responses[request_id] = result


# -- joining --------------------------------------------------------------------------------------


def test_unused_member_id_expires() -> None:
    driver = Driver()
    driver.join(requires_known_member_id=True)
    driver.pass_time(10)
    assert driver.joined(driver.join("c-1")).code is ErrorCode.UNKNOWN_MEMBER_ID


def test_rebalance_waits_for_member_with_pending_join() -> None:
    driver = Driver()
    [member] = driver.stable(1)
    driver.join(requires_known_member_id=True)
    request_id = driver.join(member)
    assert request_id not in driver.responses
    driver.pass_time(10)
    assert driver.joined(request_id).generation == 2


def test_initial_delay_restarts_when_member_joins() -> None:
    driver = Driver(initial_delay=3.0)
    first = driver.join()
    driver.pass_time(2)
    second = driver.join()
    driver.pass_time(2)
    assert first not in driver.responses  # restarted by the second member
    driver.pass_time(2)
    assert driver.joined(first).generation == driver.joined(second).generation == 1
    assert len(driver.joined(first).members) == 2


def test_initial_delay_is_limited_by_rebalance_timeout() -> None:
    driver = Driver(initial_delay=3.0)
    request_ids: list[int] = []
    for _ in range(4):
        request_ids.append(driver.join(rebalance_timeout=7.0))
        driver.pass_time(2)
    assert driver.joined(request_ids[0]).generation == 1


def test_member_without_rejoin_is_removed_after_rebalance_timeout() -> None:
    driver = Driver()
    slow, quick = driver.stable(2, session_timeout=300.0, rebalance_timeout=60.0)
    driver.pass_time(1)
    request_id = driver.join(quick, protocols=(STICKY, RANGE))
    driver.pass_time(59)
    assert request_id not in driver.responses
    driver.pass_time(1)
    assert driver.joined(request_id).generation == 2
    assert driver.joined(request_id).leader == quick
    assert driver.heartbeat(slow, 1) is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("protocols", "chosen"),
    [
        ([(RANGE,), (RANGE, STICKY)], "range"),
        ([(STICKY, RANGE), (RANGE,), (STICKY, RANGE)], "range"),
        ([(RANGE, STICKY), (STICKY, RANGE), (STICKY, RANGE)], "sticky"),
        ([(STICKY, RANGE), (RANGE, STICKY)], "sticky"),
    ],
)
def test_selects_common_protocol_that_most_members_prefer(
    protocols: list[tuple[GroupProtocol, ...]], chosen: str
) -> None:
    driver = Driver()
    request_ids = [driver.join(protocols=offered) for offered in protocols]
    driver.pass_time(0)
    assert {driver.joined(request_id).protocol for request_id in request_ids} == {chosen}


def test_full_group_rejects_new_member() -> None:
    driver = Driver(max_size=2)
    driver.stable(2)
    assert driver.joined(driver.join()).code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert driver.group.state is ClassicGroupState.STABLE


def test_unchanged_follower_rejoins_current_generation() -> None:
    driver = Driver()
    leader, follower = driver.stable(2)
    result = driver.joined(driver.join(follower))
    assert (result.generation, result.members) == (1, ())
    assert driver.group.state is ClassicGroupState.STABLE
    driver.join(leader)  # the reason may be new partitions
    assert driver.group.state is ClassicGroupState.PREPARING_REBALANCE


@pytest.mark.parametrize("table", [classic_group_state.TABLE, transaction_state.TABLE])
def test_state_table_has_every_event_and_state(
    table: Mapping[enum.Enum, Mapping[enum.Enum, object]],
) -> None:
    events = type(next(iter(table)))
    states = type(next(iter(next(iter(table.values())))))
    assert set(table) == set(events)
    assert all(set(row) == set(states) for row in table.values())


# -- synchronizing --------------------------------------------------------------------------------


def joined_pair(driver: Driver) -> tuple[str, str]:
    request_ids = [driver.join(), driver.join()]
    driver.pass_time(0)
    leader, follower = (driver.joined(request_id).member_id for request_id in request_ids)
    return leader, follower


def test_expired_leader_starts_rebalance() -> None:
    driver = Driver()
    leader, follower = joined_pair(driver)
    driver.pass_time(6)
    waiting = driver.sync(follower, 1)
    driver.pass_time(4)  # ends the leader's session, which began at the end of the join phase
    assert driver.synced(waiting).code is ErrorCode.REBALANCE_IN_PROGRESS
    again = driver.join(follower)
    assert driver.joined(again).leader == follower
    assert driver.heartbeat(leader, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_sync_of_a_follower_is_answered_at_once_after_the_leaders_only() -> None:
    driver = Driver()
    request_ids = [driver.join() for _ in range(3)]
    driver.pass_time(0)
    leader, early, late = (driver.joined(it).member_id for it in request_ids)
    before = driver.sync(early, 1)
    assert before not in driver.responses
    driver.sync(leader, 1, assignments={each: each.encode() for each in (leader, early, late)})
    assert driver.synced(before).assignment == early.encode()
    assert driver.synced(driver.sync(late, 1)).assignment == late.encode()


def test_unchanged_follower_gets_its_generation_while_leader_assigns() -> None:
    driver = Driver()
    _, follower = joined_pair(driver)
    assert driver.joined(driver.join(follower)).generation == 1
    assert driver.group.state is ClassicGroupState.COMPLETING_REBALANCE


def test_changed_member_starts_rebalance_while_leader_assigns() -> None:
    driver = Driver()
    _, follower = joined_pair(driver)
    driver.join(follower, protocols=(STICKY, RANGE))
    assert driver.group.state is ClassicGroupState.PREPARING_REBALANCE


@pytest.mark.parametrize("protocols", [(RANGE,), (STICKY, RANGE), (STICKY,)])
def test_returned_static_member_starts_rebalance_while_leader_assigns(
    protocols: tuple[GroupProtocol, ...],
) -> None:
    driver = Driver()
    for name in ("a", "b"):
        driver.join(instance_id=name, protocols=(RANGE, STICKY))
    driver.pass_time(0)
    assert driver.group.state is ClassicGroupState.COMPLETING_REBALANCE
    driver.join(instance_id="b", protocols=protocols)
    assert driver.group.state is ClassicGroupState.PREPARING_REBALANCE


def test_assignment_is_kept_for_the_longest_session() -> None:
    """A member whose SyncGroup comes late gets it, as long as its session has not ended."""
    driver = Driver()
    requests = [driver.join(), driver.join(session_timeout=60.0, rebalance_timeout=60.0)]
    driver.pass_time(0)
    leader, late = (driver.joined(request).member_id for request in requests)
    driver.sync(leader, 1, assignments={leader: b"l", late: b"late"})
    for _ in range(11):
        driver.pass_time(5)
        assert driver.heartbeat(leader, 1) is ErrorCode.NONE
    assert driver.synced(driver.sync(late, 1)).assignment == b"late"


def test_member_that_dies_before_it_has_its_assignment_starts_a_rebalance() -> None:
    """Its session began when all had joined: it sends no request in this generation."""
    driver = Driver()
    leader, follower = joined_pair(driver)
    driver.sync(leader, 1, assignments={leader: b"l", follower: b"f"})
    driver.pass_time(9.9)
    assert driver.heartbeat(leader, 1) is ErrorCode.NONE
    driver.pass_time(0.1)
    assert driver.heartbeat(leader, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    again = driver.join(leader)
    assert [it.member_id for it in driver.joined(again).members] == [leader]


@pytest.mark.parametrize("at_random", [True, False])
def test_leader_of_each_generation_can_be_elected_at_random(at_random: bool) -> None:
    driver = Driver(random_leader=at_random)
    members = driver.stable(3)
    leaders: set[str | None] = set()
    for generation in range(2, 120):  # enough that none is left out by chance
        driver.group.rebalance(driver.now)
        for member in members:
            driver.join(member)
        assert driver.group.generation == generation
        leaders.add(driver.group.members.leader)
        driver.synchronize(members)
    assert leaders == (set(members) if at_random else {members[0]})


@pytest.mark.parametrize("forwards", [True, False])
def test_error_of_the_leaders_assignor_ends_the_generation_if_it_is_forwarded(
    forwards: bool,
) -> None:
    """Kafka's coordinator does not read assignments; the option is for tests of such an error."""
    driver = Driver(forward_assignor_errors=forwards)
    requests = [driver.join() for _ in range(3)]
    driver.pass_time(0)
    leader, early, late = (driver.joined(request).member_id for request in requests)
    waiting = driver.sync(early, 1)
    error = encode_assignor_error("the assignor has failed")
    sent = driver.sync(leader, 1, assignments={leader: b"", early: error, late: error})
    if not forwards:
        assert driver.synced(waiting).assignment == error
        assert driver.group.state is ClassicGroupState.STABLE
        return
    for request in (sent, waiting):
        assert driver.synced(request).code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert driver.synced(driver.sync(late, 1)).code is ErrorCode.REBALANCE_IN_PROGRESS
    assert driver.heartbeat(early, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    again = [driver.join(member) for member in (leader, early, late)]
    assert {driver.joined(request).generation for request in again} == {2}
    driver.synchronize([leader, early, late])


@pytest.mark.parametrize("assignment", [b"", b"\xff", b"\xff\xff", b"\x00\x00", b"not a consumer"])
def test_other_assignments_are_propagated_if_errors_are_forwarded(assignment: bytes) -> None:
    driver = Driver(forward_assignor_errors=True)
    request = driver.join()
    driver.pass_time(0)
    member = driver.joined(request).member_id
    assert driver.synced(driver.sync(member, 1, assignments={member: assignment})) == SyncResult(
        protocol_type="consumer", protocol="range", assignment=assignment
    )


def test_members_without_sync_are_removed_before_the_leader_assigns() -> None:
    driver = Driver()
    members = joined_pair(driver)
    driver.pass_time_with_heartbeats(*members)
    assert list(driver.group.members) == []
    assert driver.group.state is ClassicGroupState.EMPTY


def test_member_without_sync_is_removed_after_rebalance_timeout() -> None:
    driver = Driver()
    leader, follower = joined_pair(driver)
    driver.sync(leader, 1)
    driver.pass_time_with_heartbeats(leader, follower)
    assert [member.id for member in driver.group.members] == [leader]
    assert driver.group.state is ClassicGroupState.PREPARING_REBALANCE


# -- sessions and leaving -------------------------------------------------------------------------


def test_heartbeats_extend_session() -> None:
    driver = Driver()
    [member] = driver.stable(1)
    for _ in range(5):
        driver.pass_time(9.9)
        assert driver.heartbeat(member, 1) is ErrorCode.NONE
    driver.pass_time(10)
    assert driver.heartbeat(member, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.group.state is ClassicGroupState.EMPTY
    assert driver.group.generation == 2


def test_waiting_member_does_not_expire() -> None:
    driver = Driver()
    one, two = driver.stable(2, session_timeout=10.0)
    waiting = driver.join(one)
    for _ in range(5):
        driver.pass_time(9)
        assert driver.heartbeat(two, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert waiting not in driver.responses
    driver.join(two)
    assert driver.joined(waiting).generation == 2


def test_pending_join_of_new_member_times_out() -> None:
    driver = Driver()
    [old] = driver.stable(1, session_timeout=1000.0, rebalance_timeout=1000.0)
    request_id = driver.join(session_timeout=10.0)
    driver.pass_time(299)
    assert request_id not in driver.responses
    driver.pass_time(1)
    assert driver.joined(request_id).code is ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.heartbeat(old, 1) is ErrorCode.REBALANCE_IN_PROGRESS


# -- static members (KIP-345, KIP-814) ------------------------------------------------------------


def static_pair(driver: Driver, **fields: Any) -> tuple[str, str]:
    request_ids = [driver.join(instance_id=name, **fields) for name in ("a", "b")]
    driver.pass_time(0)
    leader, follower = driver.synchronize([driver.joined(it).member_id for it in request_ids])
    return leader, follower


def test_static_follower_rejoins_without_rebalance() -> None:
    driver = Driver()
    leader, follower = static_pair(driver)
    result = driver.joined(driver.join(instance_id="b"))
    assert (result.generation, result.leader, result.skip_assignment) == (1, leader, False)
    assert result.member_id not in {leader, follower}
    assert driver.group.state is ClassicGroupState.STABLE
    assert driver.synced(driver.sync(result.member_id, 1)).assignment == follower.encode()


def test_static_member_with_changed_protocol_starts_rebalance() -> None:
    driver = Driver()
    static_pair(driver, protocols=(RANGE, STICKY))
    driver.join(instance_id="b", protocols=(STICKY,))
    assert driver.group.state is ClassicGroupState.PREPARING_REBALANCE


def test_static_member_survives_rebalance_without_joining() -> None:
    driver = Driver()
    leader, follower = static_pair(driver)
    request_id = driver.join(leader, instance_id="a")
    driver.pass_time_with_heartbeats(follower)
    assert driver.joined(request_id).generation == 2
    assert [it.instance_id for it in driver.joined(request_id).members] == ["a", "b"]


def test_absent_static_members_are_kept_until_sessions_expire() -> None:
    driver = Driver()
    static_pair(driver, session_timeout=100.0, rebalance_timeout=60.0)
    driver.join(instance_id="c")
    driver.leave("", "c")
    driver.pass_time(99)
    assert driver.group.state is ClassicGroupState.PREPARING_REBALANCE
    assert len(driver.group.members) == 2
    driver.pass_time(1)
    assert driver.group.state is ClassicGroupState.EMPTY


# -- commits --------------------------------------------------------------------------------------


def test_commit_extends_session() -> None:
    driver = Driver()
    [member] = driver.stable(1)
    driver.pass_time(9)
    driver.group.validate_offset_commit(member, None, 1, driver.now)
    driver.pass_time(9)
    assert driver.heartbeat(member, 1) is ErrorCode.NONE


def test_transactional_commit_may_omit_member() -> None:  # before KIP-447
    driver = Driver()
    [member] = driver.stable(1)
    validate = driver.group.validate_offset_commit
    assert validate("", None, -1, 0, transactional=True) is ErrorCode.NONE
    assert validate(member, None, 0, 0, transactional=True) is ErrorCode.ILLEGAL_GENERATION
    assert validate("unknown", None, 1, 0, transactional=True) is ErrorCode.UNKNOWN_MEMBER_ID
    driver.join()
    driver.join(member)
    assert validate(member, None, 2, 0, transactional=True) is ErrorCode.NONE


# -- reload after a move --------------------------------------------------------------------------


def test_reload_fails_pending_requests_and_restores_generation() -> None:
    driver = Driver()
    one, two = driver.stable(2)
    waiting = driver.join(one)
    driver.reload()
    assert driver.joined(waiting).code is ErrorCode.NOT_COORDINATOR
    assert driver.group.state is ClassicGroupState.STABLE
    assert driver.heartbeat(two, 1) is ErrorCode.NONE


def test_reload_drops_members_that_are_not_persistent() -> None:
    driver = Driver(persistent_members=False)
    members = driver.stable(2)
    driver.reload()
    assert driver.group.state is ClassicGroupState.EMPTY
    for member in members:
        assert driver.heartbeat(member, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    driver.stable(2)


def test_reload_drops_generation_without_assignment() -> None:
    driver = Driver()
    leader, follower = joined_pair(driver)
    waiting = driver.sync(follower, 1)
    driver.reload()
    assert driver.synced(waiting).code is ErrorCode.NOT_COORDINATOR
    assert driver.group.state is ClassicGroupState.EMPTY
    assert driver.joined(driver.join(leader)).code is ErrorCode.UNKNOWN_MEMBER_ID


def test_loading_group_rejects_requests() -> None:
    driver = Driver()
    [member] = driver.stable(1)
    driver.reload(load_time=2.0)
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert driver.group.state is ClassicGroupState.LOADING
    assert driver.joined(driver.join()).code is loading
    assert driver.codes(member) == {loading}
    assert driver.group.delete() is loading
    driver.pass_time(2)
    assert driver.heartbeat(member, 1) is ErrorCode.NONE


# -- deleting -------------------------------------------------------------------------------------


def test_deleted_group_rejects_requests() -> None:
    driver = Driver()
    [member] = driver.stable(1)
    assert driver.group.delete() is ErrorCode.NON_EMPTY_GROUP
    driver.leave(member)
    assert driver.group.delete() is ErrorCode.NONE
    assert driver.group.state is ClassicGroupState.DEAD
    gone = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert driver.joined(driver.join()).code is gone
    assert driver.codes(member) == {gone}
    assert driver.group.delete() is ErrorCode.GROUP_ID_NOT_FOUND


def test_empty_group_rejects_members() -> None:
    driver = Driver()
    [member] = driver.stable(1)
    driver.leave(member)
    assert driver.group.state is ClassicGroupState.EMPTY
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.joined(driver.join(member)).code is unknown
    assert driver.codes(member) == {unknown}
