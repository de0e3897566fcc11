"""Defective responses to every API that a client sends: a retry or a typed error.

Never a wrong result, never a hang, never an error that is not Kafka's.
"""

from __future__ import annotations

import ast
import asyncio
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

import kafka_async
from kafka_async.errors import KafkaError, TaskDiedError
from kafka_async.protocol.api import APIS, lookup
from tests.brokers.defects import Defect, defects_of
from tests.brokers.scenarios import SCENARIOS, Stage, homes_of_defects, result_of, sent_in
from tests.embedded_client import now

if TYPE_CHECKING:
    from collections.abc import Iterable

PER_SECOND: Final = 25
"""Requests that a scenario may send per second: fetches of two brokers wait 100 ms each."""
BURST: Final = 200
"""Requests that a scenario may send in addition, at once."""
CLIENT_CODE: Final = Path(kafka_async.__file__).parent
NOT_CLIENTS: Final = {"embedded", "protocol", "kernel"}

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock, pytest.mark.one_kernel]

UNASKED: Final = {
    "ConsumerGroupHeartbeat assignment": "the coordinator assigns the partitions",
    "ConsumerGroupHeartbeat assignment.topic_partitions": "the coordinator assigns the partitions",
    "ShareGroupHeartbeat assignment": "the coordinator assigns the partitions",
    "ShareGroupHeartbeat assignment.topic_partitions": "the coordinator assigns the partitions",
    "ConsumerGroupDescribe groups.members": "only the coordinator knows who is a member",
    "ConsumerGroupDescribe groups.members.assignment.topic_partitions": (
        "the coordinator assigns the partitions"
    ),
    "ShareGroupDescribe groups.members": "only the coordinator knows who is a member",
    "ShareGroupDescribe groups.members.assignment.topic_partitions": (
        "the coordinator assigns the partitions"
    ),
    "DescribeTransactions transaction_states.topics": "only the coordinator knows the partitions",
    "DescribeGroups groups.members": "only the coordinator knows who is a member",
    "JoinGroup members": "only the coordinator knows who is a member",
    "Fetch responses.partitions.aborted_transactions": "only the broker knows what was aborted",
    "DescribeConfigs results.configs": "the request names no options",
    "DescribeConfigs results.configs.value": "null is the value of a sensitive option",
    "DescribeCluster brokers": "the request names no brokers",
    "ListGroups groups": "the request names no groups",
    "ListTransactions transaction_states": "the request names no transactional ids",
    "DescribeAcls resources": "the request is a filter",
    "DescribeAcls resources.acls": "the request is a filter",
    "DeleteAcls filter_results": "the results are in the order of the filters",
    "DeleteAcls filter_results.matching_acls": "the request is a filter",
    "DescribeClientQuotas entries": "the request is a filter",
    "DescribeClientQuotas entries.entity": "the request is a filter",
    "DescribeClientQuotas entries.entity.entity_name": "null is the name of the default",
    "DescribeClientQuotas entries.values": "the request is a filter",
    "DescribeDelegationToken tokens": "the request is a filter",
    "DescribeDelegationToken tokens.renewers": "the request is a filter",
    "DescribeUserScramCredentials results.credential_infos": "the request names no mechanisms",
}
"""Parts of responses in which a client cannot miss a row, because the request does not name it."""


ARRAYS_WITHOUT_PLACE: Final = {
    "AddPartitionsToTxn results_by_topic_v3_and_below.results_by_partition": (
        "the worst error of all rows counts, in any order"
    ),
    "DescribeConfigs results.configs.synonyms": "the client does not request synonyms",
    "DescribeShareGroupOffsets groups": "the client requests one group",
    "Fetch node_endpoints": "a map by id, as brokers of Metadata; two leaders cannot move to two",
    "LeaveGroup members": "a member leaves alone",
    "OffsetFetch groups": "the client requests one group",
    "OffsetForLeaderEpoch topics.partitions": "one partition of each leader has moved",
    "Produce node_endpoints": "a map by id, as brokers of Metadata; two leaders cannot move to two",
    "Produce responses.partition_responses.record_errors": "only a rejected batch has them",
    "ShareAcknowledge node_endpoints": "no leader moves during an acknowledgement",
    "ShareAcknowledge responses": "one partition of each leader has records",
    "ShareAcknowledge responses.partitions": "one partition of each leader has records",
    "ShareFetch node_endpoints": "no leader moves during a share fetch",
    "ShareFetch responses.partitions.acquired_records": "the records are contiguous",
}
"""Arrays with fewer rows than a defect needs, in all scenarios."""
NULL_ALREADY: Final = {
    "error_message": "there is no error",
    "rack": "the brokers have no racks",
    "rack_id": "the members have no racks",
    "instance_id": "the members are not static",
    "documentation": "the client does not request it",
    "value": "the client does not request synonyms",
}
"""Fields that are null in all scenarios, by the end of their names."""


def requests_in_client_code() -> set[str]:
    """Return the names of the APIs whose request a module of the clients names."""
    names = {
        node.id if isinstance(node, ast.Name) else node.attr
        for path in CLIENT_CODE.rglob("*.py")
        if path.relative_to(CLIENT_CODE).parts[0] not in NOT_CLIENTS
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Name | ast.Attribute)
    }
    return {api.name for api in APIS if f"{api.name}Request" in names}


def part_of(key: int, defect: Defect) -> str:
    return f"{lookup(key).name} {'.'.join(defect.path)}"


def is_explained(key: int, defect: Defect) -> bool:
    """Return True if there is a reason why no response has a place for the defect."""
    if defect.kind == "null":
        return any(defect.path[-1].endswith(name) for name in NULL_ALREADY)
    return part_of(key, defect) in ARRAYS_WITHOUT_PLACE


def is_asked(key: int, defect: Defect) -> bool:
    return part_of(key, defect) not in UNASKED


async def problem(
    scenario: str, key: int, defect: Defect, *, everywhere: bool = False
) -> str | None:
    """Run a scenario with a defect in one response to an API; return what is wrong.

    With `everywhere` all places of all responses have it. None: no response of the scenario has a
    place for the defect.
    """
    expected, _ = await sent_in(scenario)
    applied = False
    started = now()
    sent = 0

    def change(response: Any) -> None:
        nonlocal applied
        if everywhere or not applied:
            applied = defect.apply(response, everywhere=everywhere) or applied

    def count(_context: Any, _request: Any) -> bool:
        nonlocal sent
        sent += 1
        if sent > BURST + PER_SECOND * (now() - started):
            running.cancel()
        return False

    def prepare(stage: Stage) -> None:
        stage.cluster.faults.add(when=count, count=None)
        stage.cluster.faults.add(api=key, change=change, count=None)

    running = asyncio.create_task(result_of(scenario, prepare))
    try:
        result = await running
    except asyncio.CancelledError:
        return f"{sent} requests in {now() - started} s: a busy loop"
    except Exception as error:  # noqa: BLE001  # reported with its defect
        result = error
    if not applied:
        return None
    refused = isinstance(result, KafkaError) and not isinstance(result, TaskDiedError)
    return "" if result == expected or refused else repr(result)


async def check(
    scenario: str, cases: Iterable[tuple[int, Defect]], *, everywhere: bool = False
) -> None:
    problems = {
        f"{lookup(key).name}: {defect}": await problem(scenario, key, defect, everywhere=everywhere)
        for key, defect in cases
        if is_asked(key, defect)
    }
    assert {name: text for name, text in problems.items() if text} == {}


def some_of_each_part(cases: Iterable[tuple[int, Defect]]) -> list[tuple[int, Defect]]:
    """Return two defects of each part of a response: rows dropped, and another kind in turn."""
    chosen: list[tuple[int, Defect]] = []
    for number, (_, of_part) in enumerate(groupby(cases, key=lambda it: (it[0], it[1].path))):
        dropped, *others = sorted(of_part, key=lambda it: not it[1].kind.startswith("drop"))
        chosen.append(dropped)
        if others:
            chosen.append(others[number % len(others)])
    return chosen


@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_one_defective_response_changes_no_result(scenario: str) -> None:
    await check(scenario, some_of_each_part((await homes_of_defects())[scenario]))


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_each_defect_of_one_response_changes_no_result(scenario: str) -> None:
    await check(scenario, (await homes_of_defects())[scenario])


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_a_defect_of_all_responses_ends_with_an_error_and_without_a_busy_loop(
    scenario: str,
) -> None:
    await check(scenario, (await homes_of_defects())[scenario], everywhere=True)


@pytest.mark.slow
@pytest.mark.parametrize("scenario", [*SCENARIOS][::6])  # each takes as long as all above
async def test_one_defective_response_of_every_api_changes_no_result(scenario: str) -> None:
    _, sent = await sent_in(scenario)
    every = ((key, each) for key in sent for each in defects_of(lookup(key).response, sent[key]))
    await check(scenario, every)


async def test_every_defect_without_a_place_has_a_reason() -> None:
    unplaced = [case for case in (await homes_of_defects())[""] if is_asked(*case)]
    assert [case for case in unplaced if not is_explained(*case)] == []
    assert {part_of(*case) for case in unplaced} >= ARRAYS_WITHOUT_PLACE.keys()


async def test_a_scenario_sends_every_request_that_client_code_names() -> None:
    sent = {key for scenario in SCENARIOS for key in (await sent_in(scenario))[1]}
    assert {lookup(key).name for key in sent} == requests_in_client_code()


async def test_every_part_without_a_question_exists() -> None:
    parts = {
        part_of(key, defect)
        for scenario in SCENARIOS
        for key, version in (await sent_in(scenario))[1].items()
        for defect in defects_of(lookup(key).response, version)
    }
    assert parts >= UNASKED.keys()
