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


NO_ROWS: Final = {
    "ConsumerGroupDescribe groups.members",
    "ConsumerGroupDescribe groups.members.assignment.topic_partitions",
    "ConsumerGroupDescribe groups.members.target_assignment.topic_partitions",
    "DescribeConfigs results.configs.synonyms",
    "DescribeTransactions transaction_states.topics",
    "Produce node_endpoints",
    "Produce responses.partition_responses.record_errors",
    "ShareAcknowledge node_endpoints",
    "ShareFetch node_endpoints",
    "ShareGroupDescribe groups.members",
    "ShareGroupDescribe groups.members.assignment.topic_partitions",
}
"""Arrays that are empty in the scenario: no defect of theirs has a place."""
ONE_ROW: Final = {
    "AlterClientQuotas entries.entity",
    "ConsumerGroupDescribe groups",
    "CreatePartitions results",
    "DeleteGroups results",
    "DeleteShareGroupOffsets responses",
    "DescribeGroups groups",
    "DescribeGroups groups.members",
    "DescribeShareGroupOffsets groups",
    "Fetch node_endpoints",
    "Fetch responses.partitions",
    "FindCoordinator coordinators",
    "IncrementalAlterConfigs responses",
    "LeaveGroup members",
    "ListOffsets topics.partitions",
    "Metadata topics",
    "OffsetFetch groups",
    "OffsetForLeaderEpoch topics",
    "OffsetForLeaderEpoch topics.partitions",
    "Produce responses",
    "Produce responses.partition_responses",
    "ShareAcknowledge responses",
    "ShareAcknowledge responses.partitions",
    "ShareFetch responses",
    "ShareFetch responses.partitions",
    "ShareFetch responses.partitions.acquired_records",
    "ShareGroupDescribe groups",
    "TxnOffsetCommit topics",
}
"""Arrays of one row at most in the scenario: they cannot be reversed."""
NULL_ALREADY: Final = {
    "AlterClientQuotas entries.error_message",
    "AlterShareGroupOffsets error_message",
    "AlterShareGroupOffsets responses.partitions.error_message",
    "AlterUserScramCredentials results.error_message",
    "ConsumerGroupDescribe groups.members.instance_id",
    "ConsumerGroupDescribe groups.members.rack_id",
    "ConsumerGroupDescribe groups.members.subscribed_topic_regex",
    "ConsumerGroupHeartbeat error_message",
    "CreateAcls results.error_message",
    "CreatePartitions results.error_message",
    "CreateTopics topics.error_message",
    "DeleteAcls filter_results.error_message",
    "DeleteAcls filter_results.matching_acls.error_message",
    "DeleteGroups results.error_message",
    "DeleteShareGroupOffsets error_message",
    "DeleteShareGroupOffsets responses.error_message",
    "DeleteTopics responses.error_message",
    "DescribeAcls error_message",
    "DescribeCluster brokers.rack",
    "DescribeCluster error_message",
    "DescribeConfigs results.configs.documentation",
    "DescribeConfigs results.configs.synonyms.value",
    "DescribeGroups groups.error_message",
    "DescribeShareGroupOffsets groups.error_message",
    "DescribeShareGroupOffsets groups.topics.partitions.error_message",
    "Fetch node_endpoints.rack",
    "IncrementalAlterConfigs responses.error_message",
    "JoinGroup members.group_instance_id",
    "LeaveGroup members.group_instance_id",
    "Metadata brokers.rack",
    "Produce node_endpoints.rack",
    "Produce responses.partition_responses.error_message",
    "Produce responses.partition_responses.record_errors.batch_index_error_message",
    "ShareAcknowledge error_message",
    "ShareAcknowledge node_endpoints.rack",
    "ShareAcknowledge responses.partitions.error_message",
    "ShareFetch error_message",
    "ShareFetch node_endpoints.rack",
    "ShareFetch responses.partitions.acknowledge_error_message",
    "ShareFetch responses.partitions.error_message",
    "ShareGroupDescribe groups.error_message",
    "ShareGroupDescribe groups.members.rack_id",
    "ShareGroupHeartbeat error_message",
}
"""Fields that are null in the scenario already: without errors, racks and instance ids."""


def is_placed(key: int, defect: Defect) -> bool:
    """Return False if no response of the scenario that checks an API has a place for the defect."""
    part = f"{lookup(key).name} {'.'.join(defect.path)}"
    if defect.kind == "null":
        return part not in NULL_ALREADY
    return part not in NO_ROWS and (defect.kind != "reverse" or part not in ONE_ROW)


def is_asked(key: int, defect: Defect) -> bool:
    return f"{lookup(key).name} {'.'.join(defect.path)}" not in UNASKED


async def problem(scenario: str, key: int, defect: Defect) -> str | None:
    """Run a scenario with a defect in one response to an API; return what is wrong.

    None: no response of the scenario has a place for the defect.
    """
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
    if not applied:
        return None
    refused = isinstance(result, KafkaError) and not isinstance(result, TaskDiedError)
    return "" if result == expected or refused else repr(result)


async def check(scenario: str, keys: Iterable[int]) -> set[tuple[int, Defect]]:
    """Check each defect of the responses to these APIs; return those that had no place."""
    _, sent = await sent_in(scenario)
    found = {
        (key, defect): await problem(scenario, key, defect)
        for key in keys
        for defect in defects_of(lookup(key).response, sent[key])
        if is_asked(key, defect)
    }
    problems = {f"{lookup(key).name}: {defect}": text for (key, defect), text in found.items()}
    assert {name: text for name, text in problems.items() if text} == {}
    return {case for case, text in found.items() if text is None}


@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_one_defective_response_changes_no_result(scenario: str) -> None:
    _, sent = await sent_in(scenario)
    keys = [key for key in sent if await home_of(key) == scenario]
    unplaced = await check(scenario, keys)
    assert unplaced == {
        (key, defect)
        for key in keys
        for defect in defects_of(lookup(key).response, sent[key])
        if is_asked(key, defect) and not is_placed(key, defect)
    }


@pytest.mark.slow
@pytest.mark.parametrize("scenario", [*SCENARIOS][::3])  # each takes as long as all above
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
