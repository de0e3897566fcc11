"""The readiness check of a cluster, which accepts only complete responses in Kafka's protocol."""

from __future__ import annotations

import pytest

from kafka_async.testing.backends.nodes import free_ports
from kafka_async.testing.backends.probe import broker_ids, wait_until_ready
from tests.testing.fakes import metadata_of, server


def test_returns_the_broker_ids_of_the_metadata() -> None:
    with server(metadata_of(1, 3)) as address:
        assert broker_ids(address, timeout=5) == {1, 3}


def test_an_http_server_is_not_ready() -> None:
    with (
        server(lambda _: b"HTTP/1.1 400 Bad Request\r\n\r\n") as address,
        pytest.raises(OSError, match="does not speak Kafka's protocol"),
    ):
        broker_ids(address, timeout=5)


def test_a_truncated_response_raises() -> None:
    with (
        server(lambda request: metadata_of(1)(request)[:-3]) as address,
        pytest.raises(ConnectionError, match="closed"),
    ):
        broker_ids(address, timeout=5)


def test_waits_until_every_server_has_all_brokers_in_its_metadata() -> None:
    responses = iter([metadata_of(1), metadata_of(1, 2), metadata_of(1), metadata_of(1, 2)])
    with server(lambda request: next(responses)(request)) as address:
        wait_until_ready([address, address], brokers=2, timeout=30)
    assert next(responses, None) is None


def test_timeout_error_names_the_brokers_in_the_metadata() -> None:
    message = r"has only the brokers \[1\] in its metadata"
    with (
        server(metadata_of(1)) as address,
        pytest.raises(TimeoutError, match=f"{address} {message}"),
    ):
        wait_until_ready([address], brokers=3, timeout=0)


def test_timeout_error_names_a_server_that_does_not_respond() -> None:
    (port,) = free_ports(1)
    with pytest.raises(TimeoutError, match=rf"127.0.0.1:{port} does not respond"):
        wait_until_ready([f"127.0.0.1:{port}"], brokers=1, timeout=0)


def test_stops_waiting_when_the_check_raises() -> None:
    class ExitedError(Exception):
        pass

    def check() -> None:
        raise ExitedError

    with pytest.raises(ExitedError):
        wait_until_ready(["127.0.0.1:1"], brokers=1, timeout=60, check=check)
