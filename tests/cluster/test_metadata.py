"""Snapshots: what an answer changes, what it must not, and what is forgotten."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from kafka_async.cluster.metadata import NO_ID, ClusterMetadata, LeaderAndEpoch, LeaderHint
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


def answer(*topics: MetadataResponseTopic) -> MetadataResponse:
    return MetadataResponse(brokers=BROKERS, cluster_id="c", controller_id=2, topics=topics)


def decoded(*topics: MetadataResponseTopic) -> MetadataResponse:
    """An answer as it comes from the wire."""
    return MetadataResponse.decode(answer(*topics).encode(12), 12)


def known(leader: int = 1, epoch: int = 5) -> ClusterMetadata:
    return ClusterMetadata().merged(answer(topic(partition(leader, epoch))))


def test_an_answer_that_says_nothing_new_leaves_topics_and_brokers_the_same_objects() -> None:
    before = known()
    after = before.merged(answer(topic(partition(1, 5)), topic(partition(2, 1), name="u")))
    assert after.topics["t"] is before.topics["t"]
    assert after.changed(before, ["t", "u"]) == ["u"]
    assert after.version == before.version + 1


@pytest.mark.parametrize(
    "news",
    [
        topic(partition(2, 5)),
        topic(partition(1, 6)),
        topic(partition(1, 5), partition(1, 5, 1)),
        topic(partition(1, 5), topic_id=OTHER_ID),
        topic(code=5),
    ],
    ids=["leader", "epoch", "partitions", "id", "error"],
)
def test_news_of_a_topic_make_it_another_object(news: MetadataResponseTopic) -> None:
    before = known()
    assert before.merged(answer(news)).changed(before, ["t"]) == ["t"]


@pytest.mark.parametrize("what", ["replica_nodes", "isr_nodes", "offline_replicas", "error_code"])
def test_news_of_a_partition_are_taken_in(what: str) -> None:
    row = partition(1, 5)
    setattr(row, what, 9 if what == "error_code" else (7, 8))
    after = known().merged(answer(topic(row)))
    found = after.topics["t"].partitions[0]
    assert found.error_code == row.error_code
    assert found.isr == tuple(row.isr_nodes)
    assert found.replicas == tuple(row.replica_nodes)
    assert found.offline_replicas == tuple(row.offline_replicas)
    assert after.changed(known(), ["t"]) == ["t"]


def test_a_partition_of_which_nothing_is_new_stays_the_same_object() -> None:
    before = ClusterMetadata().merged(decoded(topic(partition(1, 5), partition(2, 5, 1))))
    after = before.merged(decoded(topic(partition(1, 5), partition(2, 6, 1))))
    old, new = before.topics["t"].partitions, after.topics["t"].partitions
    assert new[0] is old[0]
    assert new[1].leader_epoch == 6


def test_a_broker_that_moves_makes_every_topic_look_new() -> None:
    before = known()
    assert before.with_broker(Node(1, "elsewhere", 1)).changed(before, ["t"]) == ["t"]


def test_an_answer_becomes_a_snapshot() -> None:
    cluster = known()
    assert cluster.brokers == {1: Node(1, "a", 1), 2: Node(2, "b", 2, "r")}
    assert (cluster.cluster_id, cluster.controller_id, cluster.version) == ("c", 2, 1)
    assert cluster.partitions("t") == 1
    assert cluster.leader(P0) == LeaderAndEpoch(1, 5)
    assert cluster.replicas(P0) == (1, 2)
    assert cluster.topic_name(ID) == "t"
    assert cluster.topic_id("t") == ID


def test_what_was_not_asked_for_is_unknown() -> None:
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
def test_a_leader_epoch_never_goes_back(epoch: int, expected: tuple[int, int]) -> None:
    # Epoch -1 is a cluster too old to tell epochs: there is nothing to compare with.
    assert known().merged(answer(topic(partition(2, epoch)))).leader(P0) == expected


def test_a_topic_made_anew_starts_with_its_own_epochs() -> None:
    cluster = known().merged(answer(topic(partition(2, 0), topic_id=OTHER_ID)))
    assert cluster.leader(P0) == (2, 0)
    assert cluster.topic_name(OTHER_ID) == "t"
    assert cluster.topic_name(ID) is None


@pytest.mark.parametrize("before", [ID, NO_ID])
@pytest.mark.parametrize("after", [ID, NO_ID])
def test_an_id_that_is_not_told_says_nothing_about_the_topic(before: UUID, after: UUID) -> None:
    cluster = ClusterMetadata().merged(answer(topic(partition(1, 5), topic_id=before)))
    cluster = cluster.merged(answer(topic(partition(2, 4), topic_id=after)))
    assert cluster.leader(P0) == (1, 5)
    assert cluster.topic_name(NO_ID) is None


def test_a_partition_without_leader_or_with_one_of_unknown_address_has_none() -> None:
    cluster = known().merged(answer(topic(partition(-1, 6), partition(9, 0, index=1))))
    assert cluster.leader(P0) is None
    assert cluster.leader_epoch(P0) == 6
    assert cluster.leader(TopicPartition("t", 1)) is None


def test_an_answer_about_some_topics_leaves_the_others_alone() -> None:
    cluster = known().merged(answer(topic(partition(2, 0), name="u", topic_id=OTHER_ID)))
    assert sorted(cluster.topics) == ["t", "u"]


def test_topics_that_nobody_wants_any_more_are_dropped() -> None:
    rows = answer(topic(partition(2, 0), name="u", topic_id=OTHER_ID))
    failed = known().merged(answer(topic(name="bad", topic_id=NO_ID, code=3)))
    cluster = failed.merged(rows).without({"t", "bad"})
    assert sorted(cluster.topics) == ["u"]
    assert cluster.topic_name(ID) is None
    assert cluster.errors == {}


def test_of_an_answer_about_all_topics_those_that_it_lacks_are_gone() -> None:
    cluster = known().merged(answer(topic(partition(1, 0), name="u")), whole=True)
    assert sorted(cluster.topics) == ["u"]


def test_a_topic_that_fails_is_no_topic() -> None:
    cluster = known().merged(answer(topic(name="t", topic_id=NO_ID, code=3)))
    assert cluster.topic("t") is None
    error = cluster.error("t")
    assert isinstance(error, UnknownTopicOrPartitionError)
    assert error.topic == "t"


def test_a_topic_that_recovers_has_no_error() -> None:
    cluster = known().merged(answer(topic(code=5)))
    assert isinstance(cluster.error("t"), LeaderNotAvailableError)
    cluster = cluster.merged(answer(topic(partition(1, 0))))
    assert cluster.error("t") is None
    assert cluster.leader(P0) == (1, 0)


def test_a_topic_asked_for_by_id_is_told_without_its_name_when_it_is_gone() -> None:
    cluster = known().merged(answer(topic(name=None, code=100)))
    assert list(cluster.errors) == ["t"]
    assert known().merged(answer(topic(name=None, topic_id=OTHER_ID, code=100))).errors == {}


def test_what_an_answer_leaves_out_of_the_cluster_stays_or_is_unknown() -> None:
    response = answer()
    response.cluster_id, response.controller_id = None, -1
    cluster = known().merged(response)
    assert cluster.cluster_id == "c"
    assert cluster.controller_id is None


# -- hints ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("leader", "epoch", "expected"),
    [(2, 6, (2, 6)), (2, 5, (1, 5)), (2, 4, (1, 5)), (-1, 9, (1, 5)), (2, -1, (1, 5))],
)
def test_only_a_newer_leader_is_believed(
    leader: int, epoch: int, expected: tuple[int, int]
) -> None:
    assert known().with_leaders([LeaderHint(P0, leader, epoch)]).leader(P0) == expected


def test_a_hint_may_name_a_broker_that_is_new() -> None:
    cluster = known().with_leaders([LeaderHint(P0, 3, 6, Node(3, "c", 3))])
    assert cluster.leader(P0) == (3, 6)
    assert cluster.brokers[3].host == "c"
    assert cluster.version == known().version + 1


def test_a_hint_at_something_unknown_changes_nothing() -> None:
    cluster = known()
    assert cluster.with_leaders([LeaderHint(TopicPartition("u", 0), 2, 9)]) is cluster
    assert cluster.with_leaders([LeaderHint(TopicPartition("t", 7), 2, 9)]) is cluster
    assert cluster.with_broker(cluster.brokers[1]) is cluster


def test_a_broker_may_be_learnt_elsewhere() -> None:
    assert known().with_broker(Node(3, "c", 3)).brokers[3] == Node(3, "c", 3)


def test_a_snapshot_never_changes() -> None:
    cluster = known()
    copied = replace(cluster)
    cluster.with_leaders([LeaderHint(P0, 2, 9)])
    cluster.merged(answer(topic(partition(2, 9))))
    cluster.rebootstrapped()
    assert cluster == copied


def test_the_leaders_of_a_topic_are_those_of_its_partitions_by_number() -> None:
    rows = [partition(2, 5, index=3), partition(1, 5), partition(9, 5, index=1)]
    cluster = known().merged(answer(topic(*rows)))
    assert cluster.leaders("t") == (1, None, None)  # broker 9 has no address
    single = [cluster.leader(TopicPartition("t", number)) for number in range(3)]
    assert [None if row is None else row.leader_id for row in single] == [1, None, None]
    assert cluster.leaders("u") == ()


# -- rebootstrap ----------------------------------------------------------------------------------


def test_a_rebootstrap_forgets_brokers_and_epochs_but_no_partition_count() -> None:
    cluster = known().rebootstrapped()
    assert cluster.brokers == {}
    assert cluster.controller_id is None
    assert cluster.partitions("t") == 1
    assert cluster.leader(P0) is None
    assert cluster.merged(answer(topic(partition(2, 0)))).leader(P0) == (2, 0)
