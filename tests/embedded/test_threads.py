"""A cluster in a separate thread, controlled from other threads."""

from __future__ import annotations

import threading

import pytest

from kafka_async.embedded import run_in_thread
from kafka_async.errors import ClientClosedError, InvalidConfigurationError, TopicExistsError
from kafka_async.types import TopicPartition


def test_control_methods_block_until_done() -> None:
    with run_in_thread(2, default_partitions=2) as cluster:
        assert len(cluster.bootstrap_servers.split(",")) == 2
        topic = cluster.create_topic("t")
        assert len(topic.partitions) == 2
        with pytest.raises(TopicExistsError):
            cluster.create_topic("t")
        cluster.add_partitions("t", 3)
        assert len(topic.partitions) == 3
        assert cluster.move_leader(TopicPartition("t", 0)) == topic.partitions[0].leader == 2
        cluster.stop_broker(2)
        assert topic.partitions[0].leader == 1
        cluster.start_broker(2)
        assert cluster.disconnect() == 0
        cluster.delete_topic("t")
        assert cluster.failures == []


def test_thread_ends_with_block() -> None:
    before = set(threading.enumerate())
    with run_in_thread() as cluster:
        assert set(threading.enumerate()) - before
    assert set(threading.enumerate()) == before
    with pytest.raises(ClientClosedError):
        cluster.create_topic("t")


def test_exception_in_block_ends_thread() -> None:
    before = set(threading.enumerate())

    def fail() -> None:
        with run_in_thread():
            raise RuntimeError("boom")

    with pytest.raises(RuntimeError, match="boom"):
        fail()
    assert set(threading.enumerate()) == before


def test_start_error_is_raised_in_calling_thread() -> None:
    with run_in_thread() as cluster:
        port = int(cluster.bootstrap_servers.split(":")[1])
        with pytest.raises(OSError, match=str(port)), run_in_thread(ports=[port]):
            pytest.fail("two clusters on one port")
    with pytest.raises(InvalidConfigurationError), run_in_thread(0):
        pytest.fail("a cluster without brokers")


def test_faults_work_from_other_thread() -> None:
    with run_in_thread() as cluster:
        fault = cluster.faults.add(api="Metadata", hang=True)
        with pytest.raises(TimeoutError):
            fault.wait_blocking(timeout=0.01)
        fault.remove()
        assert fault.hits == 0
