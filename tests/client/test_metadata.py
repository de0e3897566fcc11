"""Tests of metadata snapshots."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from kafka_async.client.metadata.metadata import NO_ID, ClusterMetadata, LeaderAndEpoch, LeaderHint
from kafka_async.errors import LeaderNotAvailableError, UnknownTopicOrPartitionError
from kafka_async.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kafka_async.types import Node, TopicPartition

ID, OTHER_ID = UUID(int=1), UUID(int=2)
P0 = TopicPartition("t", 0)
BROKERS = [
    MetadataResponseBroker(node_id=1, host="a", port=1),
    MetadataResponseBroker(node_id=2, host="b", port=2, rack="r"),
]


def partition(leader: int, epoch: int, index: int = 0) -> MetadataResponsePartition:
    return MetadataResponsePartition(
        partition_index=index,
        leader_id=leader,
        leader_epoch=epoch,
        replica_nodes=[1, 2],
        isr_nodes=[1],
    )


def topic(
    *partitions: MetadataResponsePartition,
    name: str | None = "t",
    topic_id: UUID = ID,
    code: int = 0,
) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=name, topic_id=topic_id, partitions=partitions, error_code=code
    )


def response(*topics: MetadataResponseTopic) -> MetadataResponse:
    return MetadataResponse(brokers=BROKERS, cluster_id="c", controller_id=2, topics=topics)


def decoded(*topics: MetadataResponseTopic) -> MetadataResponse:
    """Return a response as it is decoded from bytes."""
    return MetadataResponse.decode(response(*topics).encode(12), 12)


def known(leader: int = 1, epoch: int = 5) -> ClusterMetadata:
    return ClusterMetadata().merged(response(topic(partition(leader, epoch))))


def test_unchanged_topics_and_brokers_stay_the_same_objects() -> None:
    before = known()
    after = before.merged(response(topic(partition(1, 5)), topic(partition(2, 1), name="u")))
    assert after.topics["t"] is before.topics["t"]
    assert after.changed(before, ["t", "u"]) == ["u"]
    assert after.version == before.version + 1


@pytest.mark.parametrize(
    "changed",
    [
        topic(partition(2, 5)),
        topic(partition(1, 6)),
        topic(partition(1, 5), partition(1, 5, 1)),
        topic(partition(1, 5), topic_id=OTHER_ID),
        topic(code=5),
    ],
    ids=["leader", "epoch", "partitions", "id", "error"],
)
def test_reports_changed_topic(changed: MetadataResponseTopic) -> None:
    before = known()
    assert before.merged(response(changed)).changed(before, ["t"]) == ["t"]


@pytest.mark.parametrize("what", ["replica_nodes", "isr_nodes", "offline_replicas", "error_code"])
def test_merges_changes_of_a_partition(what: str) -> None:
    row = partition(1, 5)
    setattr(row, what, 9 if what == "error_code" else (7, 8))
    after = known().merged(response(topic(row)))
    found = after.topics["t"].partitions[0]
    assert found.error_code == row.error_code
    assert found.isr == tuple(row.isr_nodes)
    assert found.replicas == tuple(row.replica_nodes)
    assert found.offline_replicas == tuple(row.offline_replicas)
    assert after.changed(known(), ["t"]) == ["t"]


def test_unchanged_partition_stays_the_same_object() -> None:
    before = ClusterMetadata().merged(decoded(topic(partition(1, 5), partition(2, 5, 1))))
    after = before.merged(decoded(topic(partition(1, 5), partition(2, 6, 1))))
    old, new = before.topics["t"].partitions, after.topics["t"].partitions
    assert new[0] is old[0]
    assert new[1].leader_epoch == 6


def test_moved_broker_changes_every_topic() -> None:
    before = known()
    assert before.with_broker(Node(1, "elsewhere", 1)).changed(before, ["t"]) == ["t"]


def test_snapshot_has_the_contents_of_the_response() -> None:
    cluster = known()
    assert cluster.brokers == {1: Node(1, "a", 1), 2: Node(2, "b", 2, "r")}
    assert (cluster.cluster_id, cluster.controller_id, cluster.version) == ("c", 2, 1)
    assert cluster.partitions("t") == 1
    assert cluster.leader(P0) == LeaderAndEpoch(1, 5)
    assert cluster.replicas(P0) == (1, 2)
    assert cluster.topic_name(ID) == "t"
    assert cluster.topic_id("t") == ID


def test_topics_that_were_not_requested_are_unknown() -> None:
    cluster = known()
    assert cluster.topic("other") is None
    assert cluster.partitions("other") is None
    assert cluster.leader(TopicPartition("t", 1)) is None
    assert cluster.leader_epoch(TopicPartition("other", 0)) == -1
    assert cluster.replicas(TopicPartition("other", 0)) == ()
    assert cluster.topic_id("other") == NO_ID
    assert cluster.topic_name(OTHER_ID) is None
    assert cluster.error("other") is None


@pytest.mark.parametrize(
    ("epoch", "expected"), [(4, (1, 5)), (5, (2, 5)), (6, (2, 6)), (-1, (2, -1))]
)
def test_leader_epoch_never_decreases(epoch: int, expected: tuple[int, int]) -> None:
    # A cluster too old for leader epochs reports -1: there is nothing to compare.
    assert known().merged(response(topic(partition(2, epoch)))).leader(P0) == expected


def test_recreated_topic_starts_with_new_epochs() -> None:
    cluster = known().merged(response(topic(partition(2, 0), topic_id=OTHER_ID)))
    assert cluster.leader(P0) == (2, 0)
    assert cluster.topic_name(OTHER_ID) == "t"
    assert cluster.topic_name(ID) is None


@pytest.mark.parametrize("all_topics", [False, True])
def test_lagging_broker_does_not_bring_the_former_topic_back(all_topics: bool) -> None:
    """Without a topic, the id that it had last may be its id again; an earlier one may not."""
    former, successor = topic(partition(1, 9)), topic(partition(2, 0), topic_id=OTHER_ID)
    unknown = response(topic(topic_id=NO_ID, code=3))
    cluster = known().merged(response(successor))
    cluster = cluster.merged(response(former), all_topics=all_topics)
    assert (cluster.topic_id("t"), cluster.leader(P0)) == (OTHER_ID, (2, 0))
    assert cluster.topic_name(OTHER_ID) == "t"
    cluster = cluster.merged(unknown).merged(response(former), all_topics=all_topics)
    assert cluster.topic("t") is None
    assert cluster.merged(response(successor)).topic_id("t") == OTHER_ID
    assert known().merged(unknown).merged(response(former)).leader(P0) == (1, 9)
    gone = known().merged(response(successor)).without({"t"})
    assert gone.merged(response(former)).topic_id("t") == ID


def test_leader_of_a_former_topic_is_not_applied() -> None:
    cluster = known().merged(response(topic(partition(2, 0), topic_id=OTHER_ID)))
    assert cluster.with_leaders([LeaderHint(P0, 1, 6, None, ID)]) is cluster
    assert cluster.with_leaders([LeaderHint(P0, 1, 1, None, OTHER_ID)]).leader(P0) == (1, 1)


@pytest.mark.parametrize("before", [ID, NO_ID])
@pytest.mark.parametrize("after", [ID, NO_ID])
def test_missing_topic_id_does_not_mean_a_new_topic(before: UUID, after: UUID) -> None:
    cluster = ClusterMetadata().merged(response(topic(partition(1, 5), topic_id=before)))
    cluster = cluster.merged(response(topic(partition(2, 4), topic_id=after)))
    assert cluster.leader(P0) == (1, 5)
    assert cluster.topic_name(NO_ID) is None


def test_leader_without_address_is_none() -> None:
    cluster = known().merged(response(topic(partition(-1, 6), partition(9, 0, index=1))))
    assert cluster.leader(P0) is None
    assert cluster.leader_epoch(P0) == 6
    assert cluster.leader(TopicPartition("t", 1)) is None


def test_response_about_some_topics_keeps_the_others() -> None:
    cluster = known().merged(response(topic(partition(2, 0), name="u", topic_id=OTHER_ID)))
    assert sorted(cluster.topics) == ["t", "u"]


def test_without_removes_topics_and_errors() -> None:
    rows = response(topic(partition(2, 0), name="u", topic_id=OTHER_ID))
    failed = known().merged(response(topic(name="bad", topic_id=NO_ID, code=3)))
    cluster = failed.merged(rows).without({"t", "bad"})
    assert sorted(cluster.topics) == ["u"]
    assert cluster.topic_name(ID) is None
    assert cluster.errors == {}


def test_response_about_all_topics_removes_missing_ones() -> None:
    cluster = known().merged(response(topic(partition(1, 0), name="u")), all_topics=True)
    assert sorted(cluster.topics) == ["u"]


def test_failed_topic_has_an_error_and_no_metadata() -> None:
    cluster = known().merged(response(topic(name="t", topic_id=NO_ID, code=3)))
    assert cluster.topic("t") is None
    error = cluster.error("t")
    assert isinstance(error, UnknownTopicOrPartitionError)
    assert error.topic == "t"


def test_recovered_topic_has_no_error() -> None:
    cluster = known().merged(response(topic(code=5)))
    assert isinstance(cluster.error("t"), LeaderNotAvailableError)
    cluster = cluster.merged(response(topic(partition(1, 0))))
    assert cluster.error("t") is None
    assert cluster.leader(P0) == (1, 0)


def test_error_without_topic_name_is_resolved_by_topic_id() -> None:
    cluster = known().merged(response(topic(name=None, code=100)))
    assert list(cluster.errors) == ["t"]
    assert known().merged(response(topic(name=None, topic_id=OTHER_ID, code=100))).errors == {}


def test_keeps_cluster_id_and_drops_controller_that_response_lacks() -> None:
    row = response()
    row.cluster_id, row.controller_id = None, -1
    cluster = known().merged(row)
    assert cluster.cluster_id == "c"
    assert cluster.controller_id is None


# -- leaders and brokers of other responses -------------------------------------------------------


@pytest.mark.parametrize(
    ("leader", "epoch", "expected"),
    [(2, 6, (2, 6)), (2, 5, (1, 5)), (2, 4, (1, 5)), (-1, 9, (1, 5)), (2, -1, (1, 5))],
)
def test_accepts_only_leader_with_newer_epoch(
    leader: int, epoch: int, expected: tuple[int, int]
) -> None:
    assert known().with_leaders([LeaderHint(P0, leader, epoch)]).leader(P0) == expected


def test_leader_may_be_a_new_broker() -> None:
    cluster = known().with_leaders([LeaderHint(P0, 3, 6, Node(3, "c", 3))])
    assert cluster.leader(P0) == (3, 6)
    assert cluster.brokers[3].host == "c"
    assert cluster.version == known().version + 1


def test_ignores_leader_of_unknown_partition() -> None:
    cluster = known()
    assert cluster.with_leaders([LeaderHint(TopicPartition("u", 0), 2, 9)]) is cluster
    assert cluster.with_leaders([LeaderHint(TopicPartition("t", 7), 2, 9)]) is cluster
    assert cluster.with_broker(cluster.brokers[1]) is cluster


def test_adds_broker_of_another_response() -> None:
    assert known().with_broker(Node(3, "c", 3)).brokers[3] == Node(3, "c", 3)


def test_snapshot_is_immutable() -> None:
    cluster = known()
    copied = replace(cluster)
    cluster.with_leaders([LeaderHint(P0, 2, 9)])
    cluster.merged(response(topic(partition(2, 9))))
    cluster.rebootstrapped()
    assert cluster == copied


def test_leaders_are_ordered_by_partition() -> None:
    rows = [partition(2, 5, index=2), partition(1, 5), partition(9, 5, index=1)]
    cluster = known().merged(response(topic(*rows)))
    assert cluster.leaders("t") == (1, None, 2)  # broker 9 has no address
    single = [cluster.leader(TopicPartition("t", number)) for number in range(3)]
    assert [None if row is None else row.leader_id for row in single] == [1, None, 2]
    assert cluster.leaders("u") == ()


def test_a_topic_whose_leader_has_no_address_lacks_a_leader() -> None:
    """A broker may learn that another one has stopped before it learns of the new leaders."""
    assert not known().lacks_leaders("t")
    assert known().merged(response(topic(partition(9, 6)))).lacks_leaders("t")


def test_a_topic_without_one_of_its_partitions_is_fetched_again() -> None:
    cluster = known().merged(response(topic(partition(1, 6), partition(2, 5, index=2))))
    assert cluster.topic("t") is None
    assert isinstance(cluster.error("t"), LeaderNotAvailableError)
    assert cluster.lacks_leaders("t")
    assert cluster.merged(response(topic(partition(1, 6)))).leaders("t") == (1,)


# -- rebootstrap ----------------------------------------------------------------------------------


def test_rebootstrap_drops_brokers_and_epochs_but_keeps_partition_counts() -> None:
    cluster = known().rebootstrapped()
    assert cluster.brokers == {}
    assert cluster.controller_id is None
    assert cluster.partitions("t") == 1
    assert cluster.leader(P0) is None
    assert cluster.merged(response(topic(partition(2, 0)))).leader(P0) == (2, 0)
