"""The streaming reader as Spark's driver calls it, on a cluster, without Spark's Java side."""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async import NewTopic, blocking
from kafka_async.client.client import services_of
from kafka_async.errors import (
    DataLossError,
    InvalidConfigurationError,
)
from kafka_async.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kafka_async.spark.clients import close_clients
from kafka_async.types import OffsetAndMetadata, TopicPartition
from tests.integration.helpers import create_topic_blocking, wait_until_known
from tests.integration.moving_cluster import chosen_backends
from tests.integration.stream_readers import (
    READ_LIMITS,
    closed_at_end,
    everything,
    offsets,
    produce,
    ranges,
    source,
    stored,
)
from tests.spark_versions import spark_version

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from kafka_async.consumer.delivery.partition_batch import PartitionBatch
    from kafka_async.spark.source.limited_stream_reader import LimitedStreamReader
    from kafka_async.testing.backends.base import Backend
    from kafka_async.testing.fixtures import ClusterHandle
    from tests.integration.moving_cluster import Moving

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(() < spark_version() < READ_LIMITS, reason="the reader is for Spark 4.2"),
]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Start clusters of Apache Kafka only; the replicas of an embedded partition share a log."""
    if "moving_cluster" in metafunc.fixturenames:
        names = [name for name in chosen_backends(metafunc) if name == "apache"]
        metafunc.parametrize("moving_cluster", names, indirect=True)


@contextmanager
def opened(cluster: ClusterHandle | Backend, **options: str) -> Generator[LimitedStreamReader]:
    """Open a reader as Spark 4.2 does; keywords are options, with underscores for dots."""
    from kafka_async.spark.source.limited_stream_reader import LimitedStreamReader

    with closed_at_end(LimitedStreamReader(source(cluster, options))) as reader:
        yield reader


def delete_records(cluster: ClusterHandle, topic: str, before: int) -> None:
    """Remove the records of partition 0 before an offset, as retention does."""
    from kafka_async import Leader

    partition = DeleteRecordsPartition(partition_index=0, offset=before)
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=topic, partitions=[partition])], timeout_ms=30_000
    )
    with blocking.Client(cluster.bootstrap_servers) as client:
        response = client.request(request, to=Leader(TopicPartition(topic, 0)))
    assert response.topics[0].partitions[0].error_code == 0


def create_again(cluster: ClusterHandle, topic: str, partitions: int = 1) -> None:
    from kafka_async.admin import NewTopic

    with blocking.Admin(cluster.bootstrap_servers) as admin:
        admin.delete_topics([topic])
        admin.create_topics([NewTopic(topic, partitions)])


def test_starts_at_the_offsets_of_the_options(kafka_cluster: ClusterHandle) -> None:
    topic = create_topic_blocking(kafka_cluster, partitions=2)
    produce(kafka_cluster, topic, 5, 3)
    by_time = json.dumps({topic: {"0": 1_002, "1": 1_000}})
    given = json.dumps({topic: {"0": 4, "1": -1}})
    late = {"startingTimestamp": "2000", "startingOffsetsByTimestampStrategy": "latest"}
    for options, first, second in (
        ({}, 5, 3),
        ({"startingOffsets": "earliest"}, 0, 0),
        ({"startingOffsets": given}, 4, 3),
        ({"startingTimestamp": "1001", "startingOffsets": "latest"}, 1, 1),
        ({"startingOffsetsByTimestamp": by_time}, 2, 0),
        (late, 5, 3),
    ):
        with opened(kafka_cluster, subscribe=topic, **options) as reader:
            start = offsets(reader.initialOffset())
        assert start == {topic: {"0": first, "1": second}}, options


def test_refuses_starting_offsets_that_name_no_record(kafka_cluster: ClusterHandle) -> None:
    topic = create_topic_blocking(kafka_cluster)
    produce(kafka_cluster, topic, 1)
    for options, message in (
        ({"startingTimestamp": "2000"}, f"{topic}-0 has no record at or after the timestamp 2000"),
        ({"startingOffsets": json.dumps({topic: {"7": 1}})}, f"{topic}-7, which is not read"),
        ({"startingOffsets": "{}"}, f"no offset for {topic}-0: name every partition"),
        (
            {"startingOffsetsByTimestamp": json.dumps({"x": {"0": 1}})},
            "startingOffsetsByTimestamp names x-0",
        ),
    ):
        with (
            opened(kafka_cluster, subscribe=topic, **options) as reader,
            pytest.raises(InvalidConfigurationError, match=message),
        ):
            reader.initialOffset()


def test_assigned_partition_that_does_not_exist_is_not_read(
    kafka_cluster: ClusterHandle, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("kafka_async.spark.source.cluster_offsets.METADATA_TIMEOUT", 0.1)
    topic = create_topic_blocking(kafka_cluster)
    with opened(kafka_cluster, assign=json.dumps({topic: [0, 5]})) as reader:
        assert offsets(reader.initialOffset()) == {topic: {"0": 0}}
    assert f"{topic}-5, which the option assign names, does not exist" in caplog.text


def test_limits_batches_by_offsets(kafka_cluster: ClusterHandle) -> None:
    topic = create_topic_blocking(kafka_cluster, partitions=2)
    produce(kafka_cluster, topic, 90, 10)
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "50", "minPartitions": "3"}
    with opened(kafka_cluster, subscribe=topic, **options) as reader:
        start = reader.initialOffset()
        end = reader.latestOffset(stored(start), reader.getDefaultReadLimit())
        assert offsets(end) == {topic: {"0": 45, "1": 5}}
        assert ranges(reader, start, end) == [(0, 0, 22), (0, 22, 45), (1, 0, 5)]
        assert reader.reportLatestOffset() == {topic: {"0": 90, "1": 10}}
        rest = reader.latestOffset(stored(end), everything())
        assert offsets(rest) == {topic: {"0": 90, "1": 10}}
        assert reader.latestOffset(stored(rest), reader.getDefaultReadLimit()) == rest


def test_limits_batches_by_bytes(kafka_cluster: ClusterHandle) -> None:
    topic = create_topic_blocking(kafka_cluster)
    produce(kafka_cluster, topic, 200, value=b"v" * 1_000)
    options = {"startingOffsets": "earliest", "maxBytesPerTrigger": "50000"}
    with opened(kafka_cluster, subscribe=topic, **options) as reader:
        start = reader.initialOffset()
        end = reader.latestOffset(stored(start), reader.getDefaultReadLimit())
    assert 40 <= end[topic]["0"] <= 50


def test_waits_for_rows_but_not_longer_than_the_delay(kafka_cluster: ClusterHandle) -> None:
    from kafka_async.spark.source.limited_stream_reader import LimitedStreamReader

    topic = create_topic_blocking(kafka_cluster)
    limits = {"minOffsetsPerTrigger": "10", "maxTriggerDelay": "60s"}
    options = source(kafka_cluster, {"subscribe": topic, **limits})
    now = [0.0]
    with closed_at_end(LimitedStreamReader(options, clock=lambda: now[0])) as reader:
        limit = reader.getDefaultReadLimit()
        start = reader.latestOffset(stored(reader.initialOffset()), limit)
        produce(kafka_cluster, topic, 5)
        assert reader.latestOffset(stored(start), limit) == start
        now[0] = 60.0
        assert reader.latestOffset(stored(start), limit)[topic] == {"0": 5}


def test_available_now_ends_at_the_offsets_of_its_start(kafka_cluster: ClusterHandle) -> None:
    topic = create_topic_blocking(kafka_cluster)
    produce(kafka_cluster, topic, 5)
    limits = {"minOffsetsPerTrigger": "4", "maxOffsetsPerTrigger": "4"}
    with opened(
        kafka_cluster, subscribePattern=f"{topic}|{topic}-2", startingOffsets="earliest", **limits
    ) as reader:
        reader.prepareForTriggerAvailableNow()
        start = reader.initialOffset()
        produce(kafka_cluster, topic, 5)
        with blocking.Admin(kafka_cluster.bootstrap_servers) as admin:
            admin.create_partitions({topic: 2})
        first = reader.latestOffset(stored(start), reader.getDefaultReadLimit())
        second = reader.latestOffset(stored(first), reader.getDefaultReadLimit())
        assert (offsets(first), offsets(second)) == ({topic: {"0": 4}}, {topic: {"0": 5}})
        assert reader.latestOffset(stored(second), reader.getDefaultReadLimit()) == second


def test_reads_new_partitions_and_topics_from_their_first_record(
    kafka_cluster: ClusterHandle,
) -> None:
    topic = create_topic_blocking(kafka_cluster, "old")
    other = kafka_cluster.topic("old-second")
    with opened(kafka_cluster, subscribePattern=f"{topic}|{other}") as reader:
        start = reader.initialOffset()
        assert offsets(start) == {topic: {"0": 0}}
        with blocking.Admin(kafka_cluster.bootstrap_servers) as admin:
            from kafka_async.admin import NewTopic

            admin.create_partitions({topic: 2})
            admin.create_topics([NewTopic(other)])
        for name, partitions in ((topic, 2), (other, 1)):
            asyncio.run(wait_until_known(kafka_cluster, name, partitions))
        produce(kafka_cluster, topic, 0, 4)
        produce(kafka_cluster, other, 2)
        end = reader.latestOffset(stored(start), everything())
        assert offsets(end) == {topic: {"0": 0, "1": 4}, other: {"0": 2}}
        parts: Any = reader.partitions(stored(start), stored(end))
        read = [(part.range.topic, part.range.partition, part.range.size) for part in parts]
        assert sorted(read) == sorted([(topic, 1, 4), (other, 0, 2)])


@pytest.mark.parametrize("change", ["created again", "deleted", "begins at offset 3"])
def test_data_loss_raises_or_is_skipped_with_a_warning(
    kafka_cluster: ClusterHandle, change: str, caplog: pytest.LogCaptureFixture
) -> None:
    topic = create_topic_blocking(kafka_cluster)
    produce(kafka_cluster, topic, 5)
    start_at = json.dumps({topic: {"0": 2}})
    with opened(kafka_cluster, subscribe=topic, startingOffsets=start_at) as reader:
        start = reader.initialOffset()
        if change == "begins at offset 3":
            delete_records(kafka_cluster, topic, before=3)
        elif change == "created again":
            create_again(kafka_cluster, topic)
            produce(kafka_cluster, topic, 4)
        else:
            with blocking.Admin(kafka_cluster.bootstrap_servers) as admin:
                admin.delete_topics([topic])
        with pytest.raises(DataLossError, match=change) as caught:
            reader.latestOffset(stored(start), everything())
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == (topic, 0, 2)
    rest = {"created again": (0, 0, 4), "begins at offset 3": (0, 3, 5)}
    with (
        opened(kafka_cluster, subscribe=topic, failOnDataLoss="false") as reader,
        caplog.at_level(logging.WARNING, "kafka_async.spark"),
    ):
        end = reader.latestOffset(stored(start), everything())
        assert ranges(reader, start, end) == ([rest[change]] if change in rest else [])
        assert change in caplog.text
        assert f"{topic}-0 at offset 2" in caplog.text
        assert reader.latestOffset(stored(end), everything()) == end


@pytest.mark.parametrize(
    ("count", "checkpoint"),
    [  # One partition is fewer than before, two are as many, three are more.
        (1, "ours, running"),
        (1, "ours, restarted"),
        (1, "Spark's, running"),
        (2, "ours, restarted"),
        (3, "Spark's, running"),
    ],
)
def test_topic_created_again_with_any_number_of_partitions_is_read_from_its_beginning(
    kafka_cluster: ClusterHandle, count: int, checkpoint: str, caplog: pytest.LogCaptureFixture
) -> None:
    topic = create_topic_blocking(kafka_cluster, partitions=2)
    produce(kafka_cluster, topic, 5, 5)
    options = {"subscribe": topic, "fetchOffset_numRetries": "1"}
    with ExitStack() as stack:
        strict = stack.enter_context(opened(kafka_cluster, **options))
        kept = stack.enter_context(opened(kafka_cluster, failOnDataLoss="false", **options))
        start = kept.initialOffset()
        assert strict.initialOffset() == start
        # The tasks' consumers, which later tasks use again, know the former topic.
        known: Any = kept.partitions({topic: {"0": 0, "1": 0}}, stored(start))
        assert sum(batch.num_rows for part in known for batch in kept.read(part)) == 10
        if checkpoint.startswith("Spark"):  # without topic ids; a batch finds nothing new
            start = offsets(start)
            for reader in (strict, kept):
                assert reader.latestOffset(stored(start), everything()) == start
        create_again(kafka_cluster, topic, partitions=count)
        produce(kafka_cluster, topic, *[5] * count)  # So the offsets alone show nothing.
        if checkpoint.endswith("restarted"):
            strict = stack.enter_context(opened(kafka_cluster, **options))
            kept = stack.enter_context(opened(kafka_cluster, failOnDataLoss="false", **options))
        with pytest.raises(DataLossError, match=f"{topic}-0 .*created again"):
            strict.latestOffset(stored(start), everything())
        with caplog.at_level(logging.WARNING, "kafka_async.spark"):
            end = kept.latestOffset(stored(start), everything())
            parts: Any = kept.partitions(stored(start), stored(end))
            rows = [batch.num_rows for part in parts for batch in kept.read(part)]
            assert rows == [5] * count
            assert kept.latestOffset(stored(end), everything()) == end
            assert ranges(kept, end, end) == []
        reasons = [
            row.message
            for row in caplog.records
            if row.name == "kafka_async.spark" or row.name.startswith("kafka_async.spark.")
        ]
        assert [row.partition(" at offset")[0] for row in reasons] == [f"{topic}-0", f"{topic}-1"]
        assert ("without this partition" in reasons[1]) == (count == 1)


def test_batch_of_an_earlier_run_is_checked_before_it_is_read(
    kafka_cluster: ClusterHandle,
) -> None:
    topic = create_topic_blocking(kafka_cluster)
    produce(kafka_cluster, topic, 5)
    with opened(kafka_cluster, subscribe=topic, startingOffsets="earliest") as reader:
        start = reader.initialOffset()
        end = reader.latestOffset(stored(start), everything())
    with opened(kafka_cluster, subscribe=topic) as reader:
        assert ranges(reader, start, end) == [(0, 0, 5)]
        delete_records(kafka_cluster, topic, before=3)
        with pytest.raises(DataLossError, match="begins at offset 3"):
            ranges(reader, start, end)


def test_truncation_is_detected_by_the_leader_epoch(kafka_cluster: ClusterHandle) -> None:
    control = kafka_cluster.control
    topic = create_topic_blocking(kafka_cluster, assignments={0: [1, 2, 3]})
    produce(kafka_cluster, topic, 5)
    with opened(kafka_cluster, subscribe=topic) as reader:
        before = reader.initialOffset()
        control.stop_broker(1)
        try:
            produce(kafka_cluster, topic, 5)
        finally:
            control.start_broker(1)
        # The position is valid: its epoch ends at offset 5, where the next epoch begins.
        assert offsets(reader.latestOffset(stored(before), everything())) == {topic: {"0": 10}}
        # At offset 8 of that epoch there was another record, which the new leader did not have.
        truncated: dict[str, Any] = {**stored(before), topic: {"0": 8}}
        with pytest.raises(DataLossError, match="from offset 5 on have been replaced") as caught:
            reader.latestOffset(truncated, everything())
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == (topic, 0, 8)


@pytest.mark.mainly_on("embedded", reason="the test of truncation moves a leader on both")
def test_outdated_metadata_do_not_look_like_a_truncation(
    kafka_cluster: ClusterHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A position has the epoch of the leader that returned its offset, not an older one."""
    from kafka_async.spark.source.cluster_offsets import ClusterOffsets, Partitions

    control = kafka_cluster.control
    topic = create_topic_blocking(kafka_cluster, assignments={0: [1, 2, 3]})
    produce(kafka_cluster, topic, 5)
    outdated = ClusterOffsets(source(kafka_cluster, {"subscribe": topic}))
    partitions = outdated.find_partitions()
    outdated.close()

    def find_partitions(self: ClusterOffsets, *, missing_allowed: bool) -> Partitions:
        return partitions

    with opened(kafka_cluster, subscribe=topic) as reader:
        start = reader.initialOffset()
        control.stop_broker(1)
        try:
            produce(kafka_cluster, topic, 5)
            with monkeypatch.context() as patch:
                patch.setattr(ClusterOffsets, "_partitions", find_partitions)
                end = reader.latestOffset(stored(start), everything())
        finally:
            control.start_broker(1)
        assert offsets(end) == {topic: {"0": 10}}
    with opened(kafka_cluster, subscribe=topic) as reader:
        assert ranges(reader, start, end) == [(0, 5, 10)]
        assert reader.latestOffset(stored(end), everything()) == end


def test_read_committed_ends_before_open_transactions(kafka_cluster: ClusterHandle) -> None:
    topic = create_topic_blocking(kafka_cluster)
    produce(kafka_cluster, topic, 2)
    committed = {"subscribe": topic, "kafka_isolation_level": "read_committed"}
    with blocking.Producer(
        kafka_cluster.bootstrap_servers, transactional_id=kafka_cluster.transactional_id()
    ) as producer:
        transaction = producer.begin()
        transaction.send(topic, b"open")
        with opened(kafka_cluster, **committed) as reader:
            assert offsets(reader.initialOffset()) == {topic: {"0": 2}}
        with opened(kafka_cluster, subscribe=topic) as reader:
            uncommitted = reader.initialOffset()
            assert offsets(uncommitted) == {topic: {"0": 3}}
        # A query that goes on with read_committed has lost nothing, and waits.
        with opened(kafka_cluster, **committed) as reader:
            assert reader.latestOffset(stored(uncommitted), everything()) == uncommitted
        transaction.commit()


def test_progress_is_committed_when_the_next_batch_is_due(kafka_cluster: ClusterHandle) -> None:
    topic = create_topic_blocking(kafka_cluster)
    produce(kafka_cluster, topic, 5)
    group = kafka_cluster.group()
    tp = TopicPartition(topic, 0)
    options = {"subscribe": topic, "startingOffsets": "earliest", "commitGroupId": group}
    with (
        opened(kafka_cluster, **options) as reader,
        blocking.Admin(kafka_cluster.bootstrap_servers) as admin,
    ):
        start = reader.initialOffset()
        end = reader.latestOffset(stored(start), everything())
        assert admin.list_group_offsets(group)[tp].offset == 0
        reader.latestOffset(stored(end), everything())
        committed = admin.list_group_offsets(group)[tp]
    assert committed == OffsetAndMetadata(5, committed.leader_epoch)


def test_progress_is_committed_to_the_new_coordinator(kafka_cluster: ClusterHandle) -> None:
    topic, group = create_topic_blocking(kafka_cluster), kafka_cluster.group()
    with (
        opened(kafka_cluster, subscribe=topic, commitGroupId=group) as reader,
        blocking.Admin(kafka_cluster.bootstrap_servers) as admin,
    ):
        start = reader.initialOffset()
        fault = kafka_cluster.faults.add(api="OffsetCommit", error="NOT_COORDINATOR", count=2)
        reader.latestOffset(stored(start), everything())
        assert fault.exhausted
        assert admin.list_group_offsets(group)[TopicPartition(topic, 0)].offset == 0


def test_progress_that_cannot_be_committed_is_a_warning(
    kafka_cluster: ClusterHandle, caplog: pytest.LogCaptureFixture
) -> None:
    topic = create_topic_blocking(kafka_cluster)
    group = kafka_cluster.group()
    with (
        blocking.Consumer(kafka_cluster.bootstrap_servers, group_id=group) as member,
        opened(kafka_cluster, subscribe=topic, commitGroupId=group) as reader,
    ):
        member.subscribe([topic])
        while not member.assignment():
            member.poll(timeout=0.1)
        start = reader.initialOffset()
        assert reader.latestOffset(stored(start), everything()) == start
    assert f"cannot be committed to group {group}" in caplog.text


def test_task_reads_its_range(kafka_cluster: ClusterHandle) -> None:
    topic = create_topic_blocking(kafka_cluster)
    produce(kafka_cluster, topic, 5)
    with opened(kafka_cluster, subscribe=topic, startingOffsets="earliest") as reader:
        start = reader.initialOffset()
        end = reader.latestOffset(stored(start), everything())
        (part,) = reader.partitions(stored(start), stored(end))
        assert [rows.num_rows for rows in reader.read(part)] == [5]
        # Retention may remove records between planning and reading.
        delete_records(kafka_cluster, topic, before=3)
        with pytest.raises(DataLossError, match="now begins at offset 3"):
            list(reader.read(part))
    with opened(kafka_cluster, subscribe=topic, failOnDataLoss="false") as reader:
        (rows,) = reader.read(part)
    assert rows.column("offset").to_pylist() == [3, 4]


@pytest.mark.parametrize("streaming", [False, True])
def test_task_does_not_read_a_topic_that_was_created_again(
    kafka_cluster: ClusterHandle, caplog: pytest.LogCaptureFixture, streaming: bool
) -> None:
    """Checks the topic's id, by which a task notices another cluster too."""
    from kafka_async.spark.source.reader import BatchReader

    topic = create_topic_blocking(kafka_cluster, partitions=1)
    produce(kafka_cluster, topic, 2)

    def planned(fail_on_data_loss: str) -> Callable[[], list[Any]]:
        """Plan a read; return a function that runs its task."""
        options = {"subscribe": topic, "startingOffsets": "earliest"}
        options["failOnDataLoss"] = fail_on_data_loss
        if not streaming:
            batch = BatchReader(source(kafka_cluster, options))
            (part,) = batch.partitions()
            return lambda: list(batch.read(part))
        with opened(kafka_cluster, **options) as reader:
            start = reader.initialOffset()
            end = reader.latestOffset(stored(start), everything())
            (part,) = reader.partitions(stored(start), stored(end))
        return lambda: list(reader.read(part))

    strict, lenient = planned("true"), planned("false")
    create_again(kafka_cluster, topic)
    produce(kafka_cluster, topic, 3)
    with pytest.raises(DataLossError, match="the topic has another id") as caught:
        strict()
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == (topic, 0, 0)
    assert lenient() == []
    assert f"{topic}-0 at offset 0: the topic has another id" in caplog.text


def test_task_stops_if_its_topic_is_created_again_while_it_reads(
    kafka_cluster: ClusterHandle,
) -> None:
    """It fetches one record at a time, so the rest of its range comes from the new topic."""
    from kafka_async.spark.source.reader import BatchReader

    topic = create_topic_blocking(kafka_cluster, partitions=1)
    for _ in range(30):
        produce(kafka_cluster, topic, 1)
    options = {"subscribe": topic, "startingOffsets": "earliest"}
    options |= {"kafka.max.partition.fetch.bytes": "1", "kafka.fetch.max.bytes": "1"}
    batch = BatchReader(source(kafka_cluster, options))
    (part,) = batch.partitions()
    rows = batch.read(part)
    assert next(rows).column("offset").to_pylist() == [0]
    create_again(kafka_cluster, topic)
    produce(kafka_cluster, topic, 40)
    with pytest.raises(DataLossError, match="the topic has another id"):
        list(rows)


def test_task_reads_on_if_a_broker_does_not_know_its_topic_for_a_moment(
    kafka_cluster: ClusterHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The topic's id is missing, which is not the id of another topic."""
    from kafka_async.spark.source.reader import BatchReader

    topic = create_topic_blocking(kafka_cluster, partitions=1)
    produce(kafka_cluster, topic, 2)
    batch = BatchReader(
        source(kafka_cluster, {"subscribe": topic, "startingOffsets": "earliest"}),
    )
    (part,) = batch.partitions()
    faults, poll = kafka_cluster.faults, blocking.Consumer.poll_batches
    missing: list[bool] = []

    async def lose_topic(consumer: blocking.Consumer) -> None:
        metadata = services_of(consumer.asynchronous.client).metadata
        missing.append(topic not in (await metadata.refresh(topics=[topic])).topics)

    def poll_and_lose_topic(consumer: blocking.Consumer, timeout: float) -> list[PartitionBatch]:
        batches = poll(consumer, timeout=timeout)
        if batches:
            faults.add(api="Metadata", error="LEADER_NOT_AVAILABLE", count=2)
            blocking.run(lose_topic, consumer)
        return batches

    monkeypatch.setattr(blocking.Consumer, "poll_batches", poll_and_lose_topic)
    assert [rows.num_rows for rows in batch.read(part)] == [2]
    assert missing == [True]


@pytest.mark.slow
def test_records_lost_in_an_unclean_election_raise_or_are_skipped_with_a_warning(
    moving_cluster: Moving, caplog: pytest.LogCaptureFixture
) -> None:
    """Stops the only replica in sync, and starts the other one, which lacks the last records.

    The log of the new leader is longer than the position, so only the leader epoch tells.
    """
    cluster, topic, leader, follower = moving_cluster, "unclean", 2, 3
    configs = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
    with blocking.Admin(cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(topic, assignments={0: [leader, follower]}, configs=configs)])
    produce(cluster, topic, 5, value=b"on both")
    with opened(cluster, subscribe=topic, startingOffsets="earliest") as reader:
        start = reader.initialOffset()
        cluster.stop_broker(follower)
        produce(cluster, topic, 5, value=b"lost")
        position = reader.latestOffset(stored(start), everything())
        assert offsets(position) == {topic: {"0": 10}}
        cluster.stop_broker(leader)
        cluster.start_broker(follower)
        produce(cluster, topic, 8, value=b"of the new leader")
        with pytest.raises(DataLossError, match="from offset 5 on have been replaced") as caught:
            reader.latestOffset(stored(position), everything())
        assert (caught.value.topic, caught.value.partition, caught.value.offset) == (topic, 0, 10)
    with (
        opened(cluster, subscribe=topic, failOnDataLoss="false") as reader,
        caplog.at_level(logging.WARNING, "kafka_async.spark"),
    ):
        end = reader.latestOffset(stored(position), everything())
        assert offsets(end) == {topic: {"0": 13}}
        assert ranges(reader, position, end) == [(0, 5, 13)]
        warning = f"{topic}-0 at offset 10: the records from offset 5 on have been replaced"
        assert warning in caplog.text
        assert "is read from offset 5" in caplog.text
        parts: Any = reader.partitions(stored(position), stored(end))
        values: list[Any] = []
        for part in parts:
            for rows in reader.read(part):
                values += rows.column("value").to_pylist()
        close_clients()  # their cluster ends with this test
        assert values == [b"of the new leader"] * 8
        assert reader.latestOffset(stored(end), everything()) == end
