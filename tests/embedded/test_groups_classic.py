"""One classic group, driven by hand: requests in, answers out, time as a number."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest

from kafka_async.embedded.codes import Code
from kafka_async.embedded.groups.classic import ClassicGroup, GroupLimits
from kafka_async.embedded.groups.members import (
    GroupProtocol,
    JoinCall,
    JoinResult,
    SyncCall,
    SyncResult,
)
from kafka_async.embedded.groups.state import GroupState

RANGE = GroupProtocol("range", b"r")
STICKY = GroupProtocol("sticky", b"s")


class Driver:
    """A group and its clock. Requests are numbered; `answers` holds what each was answered."""

    def __init__(self, **limits: Any) -> None:
        ids = itertools.count(1)
        self.now = 0.0
        self.group = ClassicGroup(
            "g", GroupLimits(**limits), lambda prefix: f"{prefix}-{next(ids)}"
        )
        self.answers: dict[int, JoinResult | SyncResult] = {}
        self._tickets = itertools.count(1)

    def join(self, member_id: str = "", **fields: Any) -> int:
        call: dict[str, Any] = {
            "client_id": "c",
            "session_timeout": 10.0,
            "rebalance_timeout": 60.0,
            "protocol_type": "consumer",
            "protocols": (RANGE,),
            "must_know_id": False,
            **fields,
        }
        ticket = next(self._tickets)
        self.group.join(JoinCall(member_id=member_id, **call), ticket, self.now)
        self._collect()
        return ticket

    def sync(self, member_id: str, generation: int, **fields: Any) -> int:
        ticket = next(self._tickets)
        self.group.sync(
            SyncCall(member_id=member_id, generation=generation, **fields), ticket, self.now
        )
        self._collect()
        return ticket

    def heartbeat(self, member_id: str, generation: int) -> Code:
        return self.group.heartbeat(member_id, None, generation, self.now)

    def leave(self, member_id: str, instance_id: str | None = None) -> Code:
        code = self.group.leave(member_id, instance_id, self.now)
        self._collect()
        return code

    def pass_time(self, seconds: float) -> None:
        """Let time pass, and have done what becomes due meanwhile."""
        end = self.now + seconds
        while self.group.deadline <= end:
            self.now = max(self.now, self.group.deadline)
            self.group.expire(self.now)
            self._collect()
        self.now = end

    def move(self, load_time: float = 0.0) -> None:
        self.group.move(self.now, load_time)
        self._collect()

    def joined(self, ticket: int) -> JoinResult:
        answer = self.answers[ticket]
        assert isinstance(answer, JoinResult)
        return answer

    def synced(self, ticket: int) -> SyncResult:
        answer = self.answers[ticket]
        assert isinstance(answer, SyncResult)
        return answer

    def stable(self, count: int, **fields: Any) -> list[str]:
        """Bring this many members into a stable generation; the first one leads."""
        tickets = [self.join(**fields) for _ in range(count)]
        self.pass_time(0)
        members = [self.joined(ticket).member_id for ticket in tickets]
        return self.synchronize(members)

    def synchronize(self, members: list[str]) -> list[str]:
        assignments = {member: member.encode() for member in members}
        for member in members:
            leads = member == self.group.roster.leader
            self.sync(member, self.group.generation, assignments=assignments if leads else {})
        assert self.group.state is GroupState.STABLE
        return members

    def _collect(self) -> None:
        for ticket, result in self.group.answers():
            assert ticket not in self.answers, "answered twice"
            self.answers[ticket] = result


# -- joining --------------------------------------------------------------------------------------


def test_the_first_member_leads_generation_one() -> None:
    driver = Driver()
    ticket = driver.join()
    assert ticket not in driver.answers
    assert driver.group.state is GroupState.JOINING

    driver.pass_time(0)

    answer = driver.joined(ticket)
    assert (answer.code, answer.generation, answer.protocol) == (Code.NONE, 1, "range")
    assert answer.leader == answer.member_id == "c-1"
    assert [(it.member_id, it.metadata) for it in answer.members] == [("c-1", b"r")]
    assert driver.group.state is GroupState.AWAIT_SYNC


def test_only_the_leader_is_told_the_members() -> None:
    driver = Driver()
    first, second = driver.join(), driver.join()
    driver.pass_time(0)
    assert [it.member_id for it in driver.joined(first).members] == ["c-1", "c-2"]
    assert driver.joined(second).members == ()
    assert driver.joined(second).leader == "c-1"


def test_a_new_member_must_ask_again_with_its_id() -> None:  # KIP-394
    driver = Driver()
    answer = driver.joined(driver.join(must_know_id=True))
    assert (answer.code, answer.member_id) == (Code.MEMBER_ID_REQUIRED, "c-1")
    assert driver.group.state is GroupState.EMPTY

    ticket = driver.join("c-1", must_know_id=True)
    driver.pass_time(0)
    assert driver.joined(ticket).code is Code.NONE


def test_an_id_that_is_not_used_in_time_is_forgotten() -> None:
    driver = Driver()
    driver.join(must_know_id=True)
    driver.pass_time(10)
    assert driver.joined(driver.join("c-1")).code is Code.UNKNOWN_MEMBER_ID


def test_a_rebalance_waits_for_a_member_that_has_its_id_but_has_not_joined() -> None:
    driver = Driver()
    [member] = driver.stable(1)
    driver.join(must_know_id=True)
    ticket = driver.join(member)
    assert ticket not in driver.answers
    driver.pass_time(10)
    assert driver.joined(ticket).generation == 2


def test_the_initial_delay_gathers_members() -> None:
    driver = Driver(initial_delay=3.0)
    first = driver.join()
    driver.pass_time(2)
    second = driver.join()
    driver.pass_time(2)
    assert first not in driver.answers  # a member came: another three seconds
    driver.pass_time(2)
    assert driver.joined(first).generation == driver.joined(second).generation == 1
    assert len(driver.joined(first).members) == 2


def test_the_initial_delay_ends_with_the_rebalance_time_out() -> None:
    driver = Driver(initial_delay=3.0)
    tickets: list[int] = []
    for _ in range(4):
        tickets.append(driver.join(rebalance_timeout=7.0))
        driver.pass_time(2)
    assert driver.joined(tickets[0]).generation == 1


def test_a_join_while_stable_makes_the_others_join_again() -> None:
    driver = Driver()
    [old] = driver.stable(1)
    new = driver.join()
    assert driver.heartbeat(old, 1) is Code.REBALANCE_IN_PROGRESS
    again = driver.join(old)
    assert driver.joined(again).generation == driver.joined(new).generation == 2


def test_who_does_not_join_again_in_time_is_out() -> None:
    driver = Driver()
    slow, quick = driver.stable(2, session_timeout=300.0, rebalance_timeout=60.0)
    driver.pass_time(1)
    ticket = driver.join(quick, protocols=(STICKY, RANGE))
    driver.pass_time(59)
    assert ticket not in driver.answers
    driver.pass_time(1)
    assert driver.joined(ticket).generation == 2
    assert driver.joined(ticket).leader == quick
    assert driver.heartbeat(slow, 1) is Code.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("protocols", "chosen"),
    [
        ([(RANGE,), (RANGE, STICKY)], "range"),
        ([(STICKY, RANGE), (RANGE,), (STICKY, RANGE)], "range"),
        ([(RANGE, STICKY), (STICKY, RANGE), (STICKY, RANGE)], "sticky"),
        ([(STICKY, RANGE), (RANGE, STICKY)], "sticky"),
    ],
)
def test_the_protocol_is_one_that_all_speak_and_most_prefer(
    protocols: list[tuple[GroupProtocol, ...]], chosen: str
) -> None:
    driver = Driver()
    tickets = [driver.join(protocols=offered) for offered in protocols]
    driver.pass_time(0)
    assert {driver.joined(ticket).protocol for ticket in tickets} == {chosen}


@pytest.mark.parametrize(
    "fields",
    [
        {"protocols": (STICKY,)},
        {"protocols": ()},
        {"protocol_type": "connect"},
        {"protocol_type": ""},
    ],
)
def test_who_does_not_speak_with_the_others_is_rejected(fields: dict[str, Any]) -> None:
    driver = Driver()
    driver.stable(1)
    answer = driver.joined(driver.join(**fields))
    assert answer.code is Code.INCONSISTENT_GROUP_PROTOCOL
    assert driver.group.state is GroupState.STABLE


def test_a_rolling_upgrade_ends_with_the_new_protocol() -> None:
    driver = Driver()
    one, two = driver.stable(2)
    driver.join(one, protocols=(STICKY, RANGE))
    first = driver.join(two)
    assert driver.joined(first).protocol == "range"
    driver.synchronize([one, two])
    driver.join(two, protocols=(STICKY, RANGE))
    second = driver.join(one, protocols=(STICKY, RANGE))
    assert driver.joined(second).protocol == "sticky"


def test_a_group_takes_no_more_members_than_it_may() -> None:
    driver = Driver(max_size=2)
    driver.stable(2)
    assert driver.joined(driver.join()).code is Code.GROUP_MAX_SIZE_REACHED
    assert driver.group.state is GroupState.STABLE


def test_a_repeated_join_is_answered_with_the_generation_there_is() -> None:
    driver = Driver()
    leader, follower = driver.stable(2)
    answer = driver.joined(driver.join(follower))
    assert (answer.generation, answer.members) == (1, ())
    assert driver.group.state is GroupState.STABLE
    driver.join(leader)  # the leader may know of new partitions
    assert driver.group.state is GroupState.JOINING


def test_an_unknown_member_id_must_be_reset() -> None:
    driver = Driver()
    driver.stable(1)
    assert driver.joined(driver.join("nobody")).code is Code.UNKNOWN_MEMBER_ID


def test_a_second_join_of_a_waiting_member_takes_the_place_of_the_first() -> None:
    driver = Driver()
    one, two = driver.stable(2)
    first = driver.join(one)
    second = driver.join(one)
    assert first not in driver.answers
    assert second not in driver.answers
    driver.join(two)
    assert driver.joined(second).code is Code.NONE
    assert first not in driver.answers  # as in Kafka, whose client has given it up


# -- synchronizing --------------------------------------------------------------------------------


def joined_pair(driver: Driver) -> tuple[str, str]:
    tickets = [driver.join(), driver.join()]
    driver.pass_time(0)
    leader, follower = (driver.joined(ticket).member_id for ticket in tickets)
    return leader, follower


def test_a_follower_waits_for_the_leaders_assignment() -> None:
    driver = Driver()
    leader, follower = joined_pair(driver)
    waiting = driver.sync(follower, 1)
    assert waiting not in driver.answers
    led = driver.sync(leader, 1, assignments={leader: b"L", follower: b"F"})
    assert driver.synced(led).assignment == b"L"
    assert driver.synced(waiting).assignment == b"F"
    assert driver.synced(waiting).protocol == "range"


def test_a_follower_after_the_leader_is_answered_at_once() -> None:
    driver = Driver()
    leader, follower = joined_pair(driver)
    driver.sync(leader, 1, assignments={follower: b"F"})
    assert driver.synced(driver.sync(follower, 1)).assignment == b"F"


def test_who_gets_nothing_gets_an_empty_assignment() -> None:
    driver = Driver()
    leader, _ = joined_pair(driver)
    assert driver.synced(driver.sync(leader, 1)).assignment == b""


def test_a_leader_that_dies_makes_the_followers_join_again() -> None:
    driver = Driver()
    leader, follower = joined_pair(driver)
    driver.pass_time(6)
    waiting = driver.sync(follower, 1)
    driver.pass_time(4)  # the leader's session is over: it began when the join phase ended
    assert driver.synced(waiting).code is Code.REBALANCE_IN_PROGRESS
    again = driver.join(follower)
    assert driver.joined(again).leader == follower
    assert driver.heartbeat(leader, 1) is Code.UNKNOWN_MEMBER_ID


def test_who_never_asks_for_its_assignment_is_out_after_the_rebalance_time_out() -> None:
    driver = Driver()
    leader, follower = joined_pair(driver)
    driver.sync(leader, 1)
    for _ in range(12):
        driver.pass_time(5)
        driver.heartbeat(leader, 1)
        driver.heartbeat(follower, 1)
    assert [member.id for member in driver.group.roster] == [leader]
    assert driver.group.state is GroupState.JOINING


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"generation": 0}, Code.ILLEGAL_GENERATION),
        ({"generation": 2}, Code.ILLEGAL_GENERATION),
        ({"member_id": "nobody"}, Code.UNKNOWN_MEMBER_ID),
        ({"protocol": "sticky"}, Code.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": "connect"}, Code.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_a_sync_that_is_out_of_place_is_refused(fields: dict[str, Any], code: Code) -> None:
    driver = Driver()
    leader, _ = joined_pair(driver)
    call: dict[str, Any] = {"member_id": leader, "generation": 1, **fields}
    ticket = driver.sync(**call)
    assert driver.synced(ticket).code is code
    assert driver.group.state is GroupState.AWAIT_SYNC


def test_a_join_during_synchronization_begins_again() -> None:
    driver = Driver()
    leader, follower = joined_pair(driver)
    waiting = driver.sync(follower, 1)
    driver.join()
    assert driver.synced(waiting).code is Code.REBALANCE_IN_PROGRESS
    assert driver.synced(driver.sync(leader, 1)).code is Code.REBALANCE_IN_PROGRESS


# -- sessions and leaving -------------------------------------------------------------------------


def test_heartbeats_keep_a_session() -> None:
    driver = Driver()
    [member] = driver.stable(1)
    for _ in range(5):
        driver.pass_time(9.9)
        assert driver.heartbeat(member, 1) is Code.NONE
    driver.pass_time(10)
    assert driver.heartbeat(member, 1) is Code.UNKNOWN_MEMBER_ID
    assert driver.group.state is GroupState.EMPTY
    assert driver.group.generation == 2


def test_a_heartbeat_of_another_generation_is_refused() -> None:
    driver = Driver()
    [member] = driver.stable(1)
    assert driver.heartbeat(member, 0) is Code.ILLEGAL_GENERATION
    assert driver.heartbeat("nobody", 1) is Code.UNKNOWN_MEMBER_ID


def test_a_member_that_waits_for_the_others_does_not_expire() -> None:
    driver = Driver()
    one, two = driver.stable(2, session_timeout=10.0)
    waiting = driver.join(one)
    for _ in range(5):
        driver.pass_time(9)
        assert driver.heartbeat(two, 1) is Code.REBALANCE_IN_PROGRESS
    assert waiting not in driver.answers
    driver.join(two)
    assert driver.joined(waiting).generation == 2


def test_a_new_member_is_not_waited_for_without_end() -> None:
    driver = Driver()
    [old] = driver.stable(1, session_timeout=1000.0, rebalance_timeout=1000.0)
    ticket = driver.join(session_timeout=10.0)
    driver.pass_time(299)
    assert ticket not in driver.answers
    driver.pass_time(1)
    assert driver.joined(ticket).code is Code.UNKNOWN_MEMBER_ID
    assert driver.heartbeat(old, 1) is Code.REBALANCE_IN_PROGRESS


def test_leaving_rebalances_at_once() -> None:
    driver = Driver()
    one, two = driver.stable(2)
    assert driver.leave(one) is Code.NONE
    assert driver.heartbeat(two, 1) is Code.REBALANCE_IN_PROGRESS
    assert driver.joined(driver.join(two)).leader == two


def test_the_last_one_to_leave_empties_the_group() -> None:
    driver = Driver()
    [member] = driver.stable(1)
    assert driver.leave(member) is Code.NONE
    assert driver.group.state is GroupState.EMPTY
    assert driver.group.deadline == math.inf
    assert driver.leave(member) is Code.UNKNOWN_MEMBER_ID


def test_leaving_during_a_rebalance_lets_the_others_go_on() -> None:
    driver = Driver()
    one, two = driver.stable(2)
    waiting = driver.join(one)
    driver.leave(two)
    assert driver.joined(waiting).generation == 2


def test_leaving_before_having_joined() -> None:
    driver = Driver()
    driver.join(must_know_id=True)
    assert driver.leave("c-1") is Code.NONE
    assert driver.joined(driver.join("c-1")).code is Code.UNKNOWN_MEMBER_ID


# -- static members (KIP-345, KIP-814) ------------------------------------------------------------


def static_pair(driver: Driver, **fields: Any) -> tuple[str, str]:
    tickets = [driver.join(instance_id=name, **fields) for name in ("a", "b")]
    driver.pass_time(0)
    leader, follower = driver.synchronize([driver.joined(it).member_id for it in tickets])
    return leader, follower


def test_a_static_member_needs_no_second_request() -> None:
    driver = Driver()
    ticket = driver.join(instance_id="a", must_know_id=True)
    driver.pass_time(0)
    assert (driver.joined(ticket).code, driver.joined(ticket).member_id) == (Code.NONE, "a-1")


def test_a_static_follower_comes_back_without_a_rebalance() -> None:
    driver = Driver()
    leader, follower = static_pair(driver)
    answer = driver.joined(driver.join(instance_id="b"))
    assert (answer.generation, answer.leader, answer.skip_assignment) == (1, leader, False)
    assert answer.member_id not in {leader, follower}
    assert driver.group.state is GroupState.STABLE
    assert driver.synced(driver.sync(answer.member_id, 1)).assignment == follower.encode()


def test_a_static_leader_comes_back_and_leaves_the_assignment_alone() -> None:
    driver = Driver()
    leader, _ = static_pair(driver)
    answer = driver.joined(driver.join(instance_id="a"))
    assert answer.leader == answer.member_id
    assert answer.skip_assignment
    assert len(answer.members) == 2
    assert driver.synced(driver.sync(answer.member_id, 1)).assignment == leader.encode()


def test_a_static_leader_of_an_old_client_is_not_told_that_it_leads() -> None:
    driver = Driver()
    leader, _ = static_pair(driver)
    answer = driver.joined(driver.join(instance_id="a", may_skip_assignment=False))
    assert (answer.leader, answer.members, answer.skip_assignment) == (leader, (), False)


def test_the_one_that_was_replaced_is_fenced() -> None:
    driver = Driver()
    _, follower = static_pair(driver)
    driver.join(instance_id="b")
    assert driver.group.heartbeat(follower, "b", 1, driver.now) is Code.FENCED_INSTANCE_ID
    assert driver.joined(driver.join(follower, instance_id="b")).code is Code.FENCED_INSTANCE_ID
    assert driver.leave(follower, "b") is Code.FENCED_INSTANCE_ID


def test_a_name_that_the_group_does_not_know_is_no_member() -> None:
    driver = Driver()
    [member] = driver.stable(1)
    assert driver.group.heartbeat(member, "zz", 1, driver.now) is Code.UNKNOWN_MEMBER_ID
    assert driver.joined(driver.join(member, instance_id="zz")).code is Code.UNKNOWN_MEMBER_ID


def test_a_replaced_request_that_waits_is_fenced() -> None:
    driver = Driver()
    leader, follower = static_pair(driver)
    waiting = driver.join(leader, instance_id="a")
    driver.join(instance_id="a")
    assert driver.joined(waiting).code is Code.FENCED_INSTANCE_ID
    assert driver.group.state is GroupState.JOINING
    assert driver.heartbeat(follower, 1) is Code.REBALANCE_IN_PROGRESS


def test_a_static_member_with_another_protocol_rebalances() -> None:
    driver = Driver()
    tickets = [driver.join(instance_id=it, protocols=(RANGE, STICKY)) for it in ("a", "b")]
    driver.pass_time(0)
    driver.synchronize([driver.joined(it).member_id for it in tickets])
    driver.join(instance_id="b", protocols=(STICKY,))
    assert driver.group.state is GroupState.JOINING


def test_a_static_member_survives_a_rebalance_it_does_not_join() -> None:
    driver = Driver()
    leader, follower = static_pair(driver)
    ticket = driver.join(leader, instance_id="a")
    for _ in range(12):
        driver.pass_time(5)
        driver.heartbeat(follower, 1)
    assert driver.joined(ticket).generation == 2
    assert [it.instance_id for it in driver.joined(ticket).members] == ["a", "b"]


def test_static_members_that_are_all_away_are_waited_for_until_their_sessions_end() -> None:
    driver = Driver()
    static_pair(driver, session_timeout=100.0, rebalance_timeout=60.0)
    driver.join(instance_id="c")
    driver.leave("", "c")
    driver.pass_time(99)
    assert driver.group.state is GroupState.JOINING
    assert len(driver.group.roster) == 2
    driver.pass_time(1)
    assert driver.group.state is GroupState.EMPTY


def test_an_administrator_removes_a_static_member_by_name() -> None:
    driver = Driver()
    leader, _ = static_pair(driver)
    assert driver.leave("", "b") is Code.NONE
    assert [member.id for member in driver.group.roster] == [leader]
    assert driver.leave("", "b") is Code.UNKNOWN_MEMBER_ID


# -- commits --------------------------------------------------------------------------------------


def test_who_may_commit_in_which_state() -> None:
    driver = Driver()
    group = driver.group
    assert group.commit("", None, -1, 0) is Code.NONE  # from outside, to an empty group
    [member] = driver.stable(1)
    assert group.commit(member, None, 1, 0) is Code.NONE
    assert group.commit(member, None, 0, 0) is Code.ILLEGAL_GENERATION
    assert group.commit("nobody", None, 1, 0) is Code.UNKNOWN_MEMBER_ID
    assert group.commit("", None, -1, 0) is Code.UNKNOWN_MEMBER_ID
    driver.join()
    assert group.commit(member, None, 1, 0) is Code.NONE  # the last chance of a generation
    driver.join(member)
    assert group.commit(member, None, 2, 0) is Code.REBALANCE_IN_PROGRESS


def test_a_commit_keeps_the_session() -> None:
    driver = Driver()
    [member] = driver.stable(1)
    driver.pass_time(9)
    driver.group.commit(member, None, 1, driver.now)
    driver.pass_time(9)
    assert driver.heartbeat(member, 1) is Code.NONE


def test_a_transactional_commit_may_leave_out_the_member() -> None:  # KIP-447 came later
    driver = Driver()
    [member] = driver.stable(1)
    commit = driver.group.commit
    assert commit("", None, -1, 0, transactional=True) is Code.NONE
    assert commit(member, None, 0, 0, transactional=True) is Code.ILLEGAL_GENERATION
    assert commit("nobody", None, 1, 0, transactional=True) is Code.UNKNOWN_MEMBER_ID
    driver.join()
    driver.join(member)
    assert commit(member, None, 2, 0, transactional=True) is Code.NONE


# -- a coordinator that moves ---------------------------------------------------------------------


def test_a_stable_group_moves_whole() -> None:
    driver = Driver()
    [member] = driver.stable(1)
    driver.move()
    assert driver.group.state is GroupState.STABLE
    assert driver.heartbeat(member, 1) is Code.NONE
    assert driver.synced(driver.sync(member, 1)).assignment == member.encode()


def test_what_waits_fails_and_the_last_generation_counts() -> None:
    driver = Driver()
    one, two = driver.stable(2)
    waiting = driver.join(one)
    driver.move()
    assert driver.joined(waiting).code is Code.NOT_COORDINATOR
    assert driver.group.state is GroupState.STABLE
    assert driver.heartbeat(two, 1) is Code.NONE


def test_a_generation_that_was_not_synchronized_is_lost() -> None:
    driver = Driver()
    leader, follower = joined_pair(driver)
    waiting = driver.sync(follower, 1)
    driver.move()
    assert driver.synced(waiting).code is Code.NOT_COORDINATOR
    assert driver.group.state is GroupState.EMPTY
    assert driver.joined(driver.join(leader)).code is Code.UNKNOWN_MEMBER_ID


def test_while_it_is_loaded_everybody_is_told_to_wait() -> None:
    driver = Driver()
    [member] = driver.stable(1)
    driver.move(load_time=2.0)
    loading = Code.COORDINATOR_LOAD_IN_PROGRESS
    assert driver.group.state is GroupState.INITIALIZE
    assert driver.heartbeat(member, 1) is loading
    assert driver.joined(driver.join()).code is loading
    assert driver.synced(driver.sync(member, 1)).code is loading
    assert driver.leave(member) is loading
    assert driver.group.commit(member, None, 1, driver.now) is loading
    assert driver.group.delete() is loading
    driver.pass_time(2)
    assert driver.heartbeat(member, 1) is Code.NONE


# -- deleting -------------------------------------------------------------------------------------


def test_a_deleted_group_refuses_every_request() -> None:
    driver = Driver()
    [member] = driver.stable(1)
    assert driver.group.delete() is Code.NON_EMPTY_GROUP
    driver.leave(member)
    assert driver.group.delete() is Code.NONE
    assert driver.group.state is GroupState.DOWN
    gone = Code.COORDINATOR_NOT_AVAILABLE
    assert driver.joined(driver.join()).code is gone
    assert driver.synced(driver.sync(member, 1)).code is gone
    assert driver.heartbeat(member, 1) is gone
    assert driver.leave(member) is gone
    assert driver.group.commit(member, None, 1, driver.now) is gone
    assert driver.group.delete() is Code.GROUP_ID_NOT_FOUND


def test_a_group_without_members_knows_no_member() -> None:
    driver = Driver()
    [member] = driver.stable(1)
    driver.leave(member)
    assert driver.group.state is GroupState.EMPTY
    unknown = Code.UNKNOWN_MEMBER_ID
    assert driver.joined(driver.join(member)).code is unknown
    assert driver.synced(driver.sync(member, 1)).code is unknown
    assert driver.heartbeat(member, 1) is unknown
    assert driver.leave(member) is unknown
    assert driver.group.commit(member, None, 1, driver.now) is unknown
