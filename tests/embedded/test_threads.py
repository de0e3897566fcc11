"""The cluster in a thread of its own, controlled and asked from others."""

from __future__ import annotations

import threading

import pytest

from kafka_async.embedded import run_in_thread
from kafka_async.errors import ClientClosedError, InvalidConfigurationError, TopicExistsError
from kafka_async.types import TopicPartition


def test_control_calls_block_until_they_are_done() -> None:
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


def test_the_thread_ends_with_the_block() -> None:
    before = set(threading.enumerate())
    with run_in_thread() as cluster:
        assert set(threading.enumerate()) - before
    assert set(threading.enumerate()) == before
    with pytest.raises(ClientClosedError):
        cluster.create_topic("t")


def test_an_exception_in_the_block_ends_the_thread_too() -> None:
    before = set(threading.enumerate())

    def fail() -> None:
        with run_in_thread():
            raise RuntimeError("boom")

    with pytest.raises(RuntimeError, match="boom"):
        fail()
    assert set(threading.enumerate()) == before


def test_what_goes_wrong_at_the_start_is_raised_here() -> None:
    with run_in_thread() as cluster:
        port = int(cluster.bootstrap_servers.split(":")[1])
        with pytest.raises(OSError, match=str(port)), run_in_thread(ports=[port]):
            pytest.fail("two clusters on one port")
    with pytest.raises(InvalidConfigurationError), run_in_thread(0):
        pytest.fail("a cluster without brokers")


def test_faults_are_added_and_waited_for_from_here() -> None:
    with run_in_thread() as cluster:
        fault = cluster.faults.add(api="Metadata", hang=True)
        with pytest.raises(TimeoutError):
            fault.wait_blocking(timeout=0.01)
        fault.remove()
        assert fault.hits == 0
