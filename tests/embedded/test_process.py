"""The cluster as a process: output, signals, exit status."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import pytest

from kafka_async.embedded import EmbeddedCluster
from kafka_async.embedded.__main__ import ports_from, rack_settings
from kafka_async.embedded.settings import RACK_AWARE_REPLICA_SELECTOR
from kafka_async.errors import InvalidConfigurationError
from kafka_async.protocol.messages.metadata import MetadataRequest
from tests.embedded.sasl_client import log_in
from tests.raw_connection import RawConnection

pytestmark = [pytest.mark.asyncio, pytest.mark.may_block, pytest.mark.one_kernel]


async def launch(*arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "kafka_async.embedded",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_serves_until_signal(number: signal.Signals) -> None:
    process = await launch("--port", "0", "--brokers", "2")
    try:
        assert process.stdout is not None
        line = (await asyncio.wait_for(process.stdout.readline(), 20)).decode().strip()
        host, port = line.split(",")[1].split(":")
        connection = await RawConnection.dial(host, int(port))
        response = await connection.call(MetadataRequest(topics=[]), 12)
        assert ",".join(f"{row.host}:{row.port}" for row in response.brokers) == line
    finally:
        process.send_signal(number)
        out, err = await process.communicate()
    assert (process.returncode, out, err) == (0, b"", b"")
    await connection.closed.wait()


async def test_brokers_are_in_racks() -> None:
    process = await launch("--port", "0", "--brokers", "2", "--racks", "a,b")
    try:
        assert process.stdout is not None
        line = (await asyncio.wait_for(process.stdout.readline(), 20)).decode().strip()
        host, port = line.split(",")[0].split(":")
        connection = await RawConnection.dial(host, int(port))
        response = await connection.call(MetadataRequest(topics=[]), 12)
        assert [row.rack for row in response.brokers] == ["a", "b"]
        await connection.close()
    finally:
        process.send_signal(signal.SIGTERM)
        await process.communicate()


async def test_racks_are_settings_of_as_many_brokers() -> None:
    assert rack_settings("", 3) == {}
    assert rack_settings("a, b", 2) == {
        "racks": {1: "a", 2: "b"},
        "replica_selector_class": RACK_AWARE_REPLICA_SELECTOR,
    }
    for racks in ("a", "a,b,c", "a,"):
        with pytest.raises(InvalidConfigurationError, match="one rack for each of 2 brokers"):
            rack_settings(racks, 2)


async def test_port_in_use_is_reported_in_one_line() -> None:
    async with EmbeddedCluster() as cluster:
        process = await launch("--port", str(cluster.brokers[1].port))
        out, err = await process.communicate()
    assert process.returncode == 1
    assert out == b""
    assert err.startswith(b"cannot listen at port ")
    assert err.count(b"\n") == 1


@pytest.fixture
def users_file(tmp_path: Path) -> Path:
    file = tmp_path / "users"
    file.touch(mode=0o600)
    file.write_text("alice:pass:word\n\nbob:b\n")
    return file


async def test_users_authenticate_with_the_passwords_of_a_file(users_file: Path) -> None:
    process = await launch(
        "--port", "0", "--security-protocol", "SASL_PLAINTEXT", "--users-file", str(users_file)
    )
    try:
        assert process.stdout is not None
        line = (await asyncio.wait_for(process.stdout.readline(), 20)).decode().strip()
        host, port = line.split(":")
        connection = await RawConnection.dial(host, int(port))
        assert (await log_in(connection, "alice", "pass:word")).error_code == 0
        await connection.close()
    finally:
        process.send_signal(signal.SIGTERM)
        await process.communicate()


@pytest.mark.parametrize(
    ("protocol", "error"),
    [
        ("SASL_PLAINTEXT", b"SASL_PLAINTEXT needs --users-file FILE"),
        ("SSL", b"SSL needs --ssl-certfile FILE"),
        ("TLS", b"'TLS' is not a security protocol"),
    ],
)
async def test_missing_option_is_reported_in_one_line(protocol: str, error: bytes) -> None:
    process = await launch("--port", "0", "--security-protocol", protocol)
    out, err = await process.communicate()
    assert (process.returncode, out) == (1, b"")
    assert err.startswith(error)
    assert err.count(b"\n") == 1


async def test_ports_are_consecutive_or_free() -> None:
    assert ports_from(9092, 3) == [9092, 9093, 9094]
    assert ports_from(0, 2) == [0, 0]
