"""Schedule and verdict of a run with a group, and a short run."""

from __future__ import annotations

import pytest

from tests.programs import run_python
from tests.reliability.group_check import ActionKind, Progress, Returned, check, schedule
from tests.reliability.groups import MemberProcess

pytestmark = pytest.mark.one_kernel

SENT = {0: [1.0, 1.0, 1.0, 2.0], 1: [1.0]}
ALL = [Returned(1.5, 0, 0, 2), Returned(2.5, 0, 3, 3), Returned(3.0, 1, 0, 0)]


def test_seed_determines_the_schedule() -> None:
    actions = schedule(7, 60.0, 12)
    assert actions == schedule(7, 60.0, 12)
    assert actions != schedule(8, 60.0, 12)
    orderly = [it for it in actions if it.kind in (ActionKind.STOP, ActionKind.START)]
    assert [it.at for it in orderly] == [number / 2 for number in range(1, 120)]
    faults = [it for it in actions if it not in orderly]
    assert [it.at for it in faults] == [5.0, 15.0, 25.0, 35.0, 45.0, 55.0]


def test_schedule_acts_on_members_that_can() -> None:
    started = set(range(12))
    for action in schedule(7, 600.0, 12):
        if action.kind is ActionKind.START:
            assert action.member not in started
            started.add(action.member)
        else:
            assert action.member in started
        if action.kind is ActionKind.STOP:
            started.remove(action.member)
        assert len(started) >= 6


def test_run_without_faults_passes() -> None:
    verdict = check(SENT, ALL, 0, 2.0)
    assert verdict.passed
    assert str(verdict) == (
        "5 records, 0 lost, 0 out of order, 0 duplicates (0.00%; 0 were in flight), longest wait "
        "2.0 s of at most 2 s"
    )


@pytest.mark.parametrize(
    ("returned", "limit", "what"),
    [
        (ALL[:2], 2.0, "1 lost"),
        ([ALL[1], ALL[0], ALL[2]], 2.0, "0 out of order"),
        ([ALL[0], Returned(1.4, 0, 3, 3), ALL[2]], 2.0, "1 out of order"),
        ([*ALL, Returned(3.5, 0, 2, 3)], 2.0, "2 duplicates"),
        (ALL, 1.9, "longest wait 2.0 s"),
    ],
)
def test_verdict_names_what_is_wrong(returned: list[Returned], limit: float, what: str) -> None:
    verdict = check(SENT, returned, 0, limit)
    assert what in str(verdict)
    assert verdict.passed == what.startswith("0")


def test_duplicates_may_be_as_many_as_were_in_flight_but_few() -> None:
    sent = {0: [1.0] * 100}
    again = [Returned(1.0, 0, 0, 99), Returned(1.0, 0, 97, 99)]
    assert check(sent, again, 3, 2.0).passed
    assert not check(sent, again, 2, 2.0).passed
    many = [Returned(1.0, 0, 0, 99), Returned(1.0, 0, 90, 99)]
    assert not check(sent, many, 100, 2.0).passed


def test_records_in_flight_are_those_after_the_committed_offset() -> None:
    progress = Progress()
    progress.on_returned(Returned(1.0, 0, 5, 9))
    progress.on_returned(Returned(1.0, 1, 0, 1))
    progress.on_committed(0, 8)
    assert progress.on_gone(1) == 2
    assert progress.on_gone(1) == 0
    assert progress.on_killed() == 2
    assert progress.on_killed() == 0


@pytest.mark.asyncio
async def test_only_a_frozen_member_may_be_expelled() -> None:
    member = MemberProcess(0, {})
    member.on_event("returned", 1.0, [[3, 0, 4]])
    member.on_event("expelled", 2.0, "of a member that was not frozen")
    assert member.failures == ["of a member that was not frozen"]
    assert member.in_flight == 0
    await member.freeze(0.0)
    member.on_event("revoked", 3.0, [3])
    member.on_event("expelled", 3.0, "of a frozen member")
    member.on_event("stopped", 3.0, [])
    member.on_event("expelled", 4.0, "after it was stopped")
    assert member.failures == ["of a member that was not frozen", "after it was stopped"]
    assert member.in_flight == 5


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_short_run_loses_no_record_and_keeps_the_order(seeded: int) -> None:
    words = "--seconds", "12", "--records", "3000", "--members", "4", "--partitions", "8"
    done = run_python(
        *("-m", "tests.reliability.groups", "--backend", "embedded", "--seed", str(seeded)), *words
    )
    assert "3000 records, 0 lost, 0 out of order" in done.stdout, done.stderr
