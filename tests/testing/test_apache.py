"""The Apache backend: control of single brokers, and the end of brokers with their owner."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from pathlib import Path

import pytest

from kafka_async.testing.backends import ApacheBackend, BackendUnavailableError
from kafka_async.testing.backends.jars import cache_directory, jar_directory
from kafka_async.testing.backends.jvm import find_java
from kafka_async.testing.backends.probe import broker_ids
from kafka_async.testing.backends.runs import processes_of
from kafka_async.testing.environment import in_ci

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


@pytest.fixture(autouse=True)
def java_and_jars() -> None:
    try:
        find_java()
        jar_directory("4.4.0")
    except BackendUnavailableError as error:
        (pytest.fail if in_ci() else pytest.skip)(str(error))


def test_stops_pauses_and_starts_single_brokers() -> None:
    with ApacheBackend(brokers=3) as cluster:
        servers = cluster.bootstrap_servers.split(",")
        assert [broker_ids(one, timeout=5) for one in servers] == [{1, 2, 3}] * 3
        cluster.stop_broker(2)
        with pytest.raises(OSError):  # noqa: PT011  # Refused or reset, depending on the system.
            broker_ids(servers[1], timeout=5)
        cluster.start_broker(2)
        assert broker_ids(servers[1], timeout=5) == {1, 2, 3}
        cluster.pause_broker(3)
        with pytest.raises(TimeoutError):
            broker_ids(servers[2], timeout=0.5)
        cluster.resume_broker(3)
        assert 3 in broker_ids(servers[2], timeout=30)
        cluster.kill_broker(1)
        cluster.start_broker(1)
        assert cluster.bootstrap_servers.split(",") == servers


OWNER = """
import sys
from kafka_async.testing.backends import ApacheBackend
cluster = ApacheBackend()
cluster.start()
print(cluster.bootstrap_servers, flush=True)
sys.stdin.read()
"""


def test_brokers_end_when_their_owner_is_killed() -> None:
    before = records()
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout is not None
    assert broker_ids(owner.stdout.readline(), timeout=5) == {1}
    (record,) = [one for one in records() - before if f'"pid": {owner.pid},' in one.read_text()]
    (broker,) = processes_of(record.stem)
    watched = os.pidfd_open(broker)
    owner.kill()
    owner.communicate()
    assert select.select([watched], [], [], 60)[0], "the broker still runs"
    os.close(watched)


def records() -> set[Path]:
    return set((cache_directory() / "runs").glob("*.json"))
