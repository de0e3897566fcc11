"""The Apache backend: brokers end with their owner, and move to ports that are free."""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kafka_async.testing.backends import ApacheBackend, BackendUnavailableError, apache
from kafka_async.testing.backends.jars import cache_directory, jar_directory
from kafka_async.testing.backends.jvm import find_java
from kafka_async.testing.backends.nodes import free_ports
from kafka_async.testing.backends.probe import broker_ids
from kafka_async.testing.backends.runs import processes_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.conftest import CannotRun

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


@pytest.fixture(autouse=True)
def java_and_jars(cannot_run: CannotRun) -> None:
    try:
        find_java()
        jar_directory("4.4.0")
    except BackendUnavailableError as error:
        cannot_run("apache", error)


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


def test_moves_to_other_ports_if_one_was_taken_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    with ApacheBackend() as cluster, socket.create_server(("127.0.0.1", 0)) as other:
        former = cluster.bootstrap_servers
        cluster.kill_broker(1)
        taken = other.getsockname()[1]
        chosen = [[taken]]

        def ports(count: int, *, exclude: Sequence[int]) -> list[int]:
            return chosen.pop() if chosen else free_ports(count, exclude=exclude)

        monkeypatch.setattr(apache, "free_ports", ports)
        cluster.start_at_new_ports()
        assert chosen == []
        assert cluster.bootstrap_servers not in (former, f"127.0.0.1:{taken}")
        assert broker_ids(cluster.bootstrap_servers, timeout=5) == {1}


def records() -> set[Path]:
    return set((cache_directory() / "runs").glob("*.json"))
