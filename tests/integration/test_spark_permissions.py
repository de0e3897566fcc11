"""Errors of the data source for users without permissions."""

from __future__ import annotations

import itertools
import re
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async import blocking
from kafka_async.admin import AclBinding, AclOperation, AclResourceType, OffsetSpec
from kafka_async.errors import DeliveryError, TopicAuthorizationError
from kafka_async.types import TopicPartition
from tests.integration.helpers import create_topic_blocking
from tests.integration.secure_cluster import ALICE, USERS
from tests.integration.stream_readers import closed_at_end

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.integration.secure_cluster import SecureCluster

pytestmark = pytest.mark.spark

TIMEOUT = 30.0


def options_of(cluster: SecureCluster) -> dict[str, str]:
    """Return the options of a user without permissions."""
    return {
        "kafka.bootstrap.servers": cluster.servers("SASL_PLAINTEXT"),
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "SCRAM-SHA-256",
        "sasl_username": ALICE,
        "sasl_password": USERS[ALICE],
        "sasl_allow_plaintext": "true",
    }


def allow(
    cluster: SecureCluster,
    name: str,
    operation: AclOperation,
    kind: AclResourceType = AclResourceType.TOPIC,
) -> None:
    with blocking.Admin(cluster.handle.bootstrap_servers) as admin:
        admin.create_acls([AclBinding(kind, name, f"User:{ALICE}", operation)])


def once_allowed(call: Callable[[], Any]) -> Any:
    """Return what a call returns, as soon as the brokers have applied new permissions."""
    end = time.monotonic() + TIMEOUT
    while True:
        try:
            return call()
        except TopicAuthorizationError:
            if time.monotonic() > end:
                raise
            threading.Event().wait(0.05)


def test_reader_without_permission_names_the_topic(secure_cluster: SecureCluster) -> None:
    from kafka_async.spark.source.limited_stream_reader import LimitedStreamReader
    from kafka_async.spark.source.reader import BatchReader
    from kafka_async.spark.source.source_options import source_options

    topic = create_topic_blocking(secure_cluster.handle)
    with blocking.Producer(secure_cluster.handle.bootstrap_servers) as producer:
        producer.send(topic, b"v")
    given = {**options_of(secure_cluster), "subscribe": topic}
    batch = BatchReader(source_options(given))
    stream = LimitedStreamReader(source_options(given, streaming=True))
    try:
        for plan in (batch.partitions, stream.initialOffset):
            with pytest.raises(TopicAuthorizationError, match=topic) as caught:
                plan()
            assert caught.value.topic == topic
    finally:
        stream.stop()
    # A user who may describe the topic can plan the read, and its task fails.
    allow(secure_cluster, topic, AclOperation.DESCRIBE)
    (part,) = once_allowed(batch.partitions)
    with pytest.raises(TopicAuthorizationError, match=topic):
        list(batch.read(part))


def test_writer_without_permission_names_the_topic(secure_cluster: SecureCluster) -> None:
    import pyarrow as pa

    from kafka_async.spark.sink.sink_options import sink_options
    from kafka_async.spark.sink.writer import ArrowWriter
    from kafka_async.spark.source.reader import BatchReader
    from kafka_async.spark.source.source_options import source_options

    topic = create_topic_blocking(secure_cluster.handle)
    allow(secure_cluster, topic, AclOperation.DESCRIBE)
    options = options_of(secure_cluster)
    once_allowed(BatchReader(source_options({**options, "subscribe": topic})).partitions)
    # A producer id needs another permission, whose lack would be the first error.
    options |= {"kafka.enable.idempotence": "false", "topic": topic}
    writer = ArrowWriter(sink_options(options))
    rows: Any = pa.RecordBatch.from_pydict({"value": pa.array([b"v"], pa.binary())})
    with pytest.raises(DeliveryError, match=f"{topic}-0: the principal lacks WRITE"):
        writer.write(iter([rows]))
    with blocking.Admin(secure_cluster.handle.bootstrap_servers) as admin:
        tp = TopicPartition(topic, 0)
        assert admin.list_offsets({tp: OffsetSpec.LATEST})[tp].offset == 0


def test_progress_without_permission_is_a_warning_that_names_the_group(
    secure_cluster: SecureCluster, caplog: pytest.LogCaptureFixture
) -> None:
    from kafka_async.spark.source.source_options import source_options
    from kafka_async.spark.source.stream_reader import StreamReaderWithoutLimits

    topic, group = create_topic_blocking(secure_cluster.handle), secure_cluster.handle.group()
    given = {**options_of(secure_cluster), "subscribe": topic, "commitGroupId": group}
    offsets = itertools.count()

    def warning_of_commit() -> str:
        """Commit the end of another batch, as Spark does."""
        caplog.clear()
        reader.commit({topic: {"0": next(offsets)}})
        return "\n".join(caplog.messages)

    def wait_for(expected: str) -> None:
        end = time.monotonic() + TIMEOUT
        while not re.fullmatch(expected, found := warning_of_commit()):
            assert time.monotonic() < end, found
            threading.Event().wait(0.05)

    with closed_at_end(StreamReaderWithoutLimits(source_options(given, streaming=True))) as reader:
        lacks = f"the offsets of .* to group {group}: .* lacks {{}} on the group {group}: add .*"
        assert re.fullmatch(lacks.format("DESCRIBE"), warning_of_commit())
        allow(secure_cluster, group, AclOperation.DESCRIBE, AclResourceType.GROUP)
        wait_for(lacks.format("READ"))
        allow(secure_cluster, topic, AclOperation.READ)
        allow(secure_cluster, group, AclOperation.READ, AclResourceType.GROUP)
        wait_for("")
    with blocking.Admin(secure_cluster.handle.bootstrap_servers) as admin:
        committed = admin.list_group_offsets(group)[TopicPartition(topic, 0)].offset
    assert committed == next(offsets) - 1
