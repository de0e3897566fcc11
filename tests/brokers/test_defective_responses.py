"""Defective responses to every API that a client sends: a retry or a typed error.

Never a wrong result, never a hang, never an error that is not Kafka's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from kafka_async.errors import KafkaError, TaskDiedError
from kafka_async.protocol.api import lookup
from tests.brokers.defects import Defect, defects_of
from tests.brokers.scenarios import SCENARIOS, Stage, home_of, result_of, sent_in

if TYPE_CHECKING:
    from collections.abc import Iterable

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock, pytest.mark.one_kernel]

UNASKED: Final = {
    "ConsumerGroupHeartbeat assignment": "the coordinator assigns the partitions",
    "ConsumerGroupHeartbeat assignment.topic_partitions": "the coordinator assigns the partitions",
    "ShareGroupHeartbeat assignment": "the coordinator assigns the partitions",
    "ShareGroupHeartbeat assignment.topic_partitions": "the coordinator assigns the partitions",
    "JoinGroup members": "only the coordinator knows who is a member",
    "Fetch responses.partitions.aborted_transactions": "only the broker knows what was aborted",
    "DescribeConfigs results.configs": "the request names no options",
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
    "DescribeUserScramCredentials results.credential_infos": "the request names no mechanisms",
}
"""Parts of responses in which a client cannot miss a row, because the request does not name it."""


def is_asked(key: int, defect: Defect) -> bool:
    return f"{lookup(key).name} {'.'.join(defect.path)}" not in UNASKED


async def problem(scenario: str, key: int, defect: Defect) -> str:
    """Run a scenario with a defect in one response to an API; return what is wrong."""
    expected, _ = await sent_in(scenario)
    applied = False

    def change(response: Any) -> None:
        nonlocal applied
        applied = applied or defect.apply(response)

    def prepare(stage: Stage) -> None:
        stage.cluster.faults.add(api=key, change=change, count=None)

    try:
        result = await result_of(scenario, prepare)
    except Exception as error:  # noqa: BLE001  # reported with its defect
        result = error
    refused = isinstance(result, KafkaError) and not isinstance(result, TaskDiedError)
    return "" if result == expected or refused else repr(result)


async def check(scenario: str, keys: Iterable[int]) -> None:
    _, sent = await sent_in(scenario)
    problems = {
        f"{lookup(key).name}: {defect}": found
        for key in keys
        for defect in defects_of(lookup(key).response, sent[key])
        if is_asked(key, defect) and (found := await problem(scenario, key, defect))
    }
    assert problems == {}


@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_one_defective_response_changes_no_result(scenario: str) -> None:
    _, sent = await sent_in(scenario)
    await check(scenario, [key for key in sent if await home_of(key) == scenario])


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_one_defective_response_of_every_api_changes_no_result(scenario: str) -> None:
    _, sent = await sent_in(scenario)
    await check(scenario, sent)


async def test_every_part_without_a_question_exists() -> None:
    parts = {
        f"{lookup(key).name} {'.'.join(defect.path)}"
        for scenario in SCENARIOS
        for key, version in (await sent_in(scenario))[1].items()
        for defect in defects_of(lookup(key).response, version)
    }
    assert parts >= UNASKED.keys()
