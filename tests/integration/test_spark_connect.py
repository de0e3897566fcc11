"""Spark Connect: batches, streams, `foreachBatch`, jobs of an orchestrator, and TLS with SASL."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

import pytest

from tests.cli.programs import Program
from tests.integration.helpers import create_topic_blocking
from tests.integration.secure_cluster import ADMIN, USERS
from tests.integration.spark_connect_program import ROWS, Task
from tests.programs import python_path

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.integration.secure_cluster import SecureCluster

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

TIMEOUT = 120
"""Seconds."""


def fast_python(directory: Path) -> Path:
    """Write a program that runs Python without the path that Spark gives it.

    That path begins with a zip file, from which pyspark is compiled anew by each process. The one
    for `foreachBatch` must not take longer than 10 s.
    """
    program = directory / "python"
    python = f'PYTHONPATH="{python_path()}" exec "{sys.executable}" "$@"'
    program.write_text(f"#!/bin/sh\n{python}\n", "utf-8")
    program.chmod(0o755)
    return program


@pytest.fixture(scope="module")
def connect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    """Start a program with a session of Spark Connect, which serves the tests of all backends."""
    directory = tmp_path_factory.mktemp("connect")
    log = directory / "log"
    with (
        log.open("wb") as errors,
        Program(
            module="tests.integration.spark_connect_program",
            environment={
                "SPARK_LOCAL_IP": "127.0.0.1",
                "PYSPARK_PYTHON": str(fast_python(directory)),
            },
            stdin=subprocess.PIPE,
            stderr=errors.fileno(),
        ) as program,
    ):
        yield program
        status, _, _ = program.end(within=TIMEOUT)
        assert status == 0, log.read_text("utf-8", "replace")
        assert program.left() == []


@pytest.mark.one_backend("apache")
def test_reads_writes_and_streams_through_connect(
    secure_cluster: SecureCluster, connect: Program, tmp_path: Path
) -> None:
    cluster = secure_cluster.handle
    topic, copy, batches = (
        create_topic_blocking(cluster, name, partitions=2)
        for name in ("numbers", "copies", "batches")
    )
    password = tmp_path / "password"
    password.touch(0o600)
    password.write_text(USERS[ADMIN])
    secure = {
        "kafka.bootstrap.servers": secure_cluster.servers("SASL_SSL"),
        "security_protocol": "SASL_SSL",
        "ssl_cafile": secure_cluster.certificates.cafile,
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_username": ADMIN,
        "sasl_password_file": str(password),
    }
    task = Task(cluster.bootstrap_servers, secure, topic, copy, batches, str(tmp_path))
    connect.write(f"{json.dumps(asdict(task))}\n".encode())
    assert json.loads(connect.read_line()) == {
        "session": "pyspark.sql.connect.session",
        "rows": ROWS,
        "job": [ROWS, True],
        "failures": ["None", "None"],
    }
    records = asyncio.run(cluster.read(topic))
    places = sorted(f"{record.partition}:{record.offset}" for record in records)
    for written in (copy, batches):
        values = [(record.value or b"").decode() for record in asyncio.run(cluster.read(written))]
        assert sorted(values) == places, written
