"""Whether a cluster serves: the probe believes only complete answers in Kafka's protocol."""

from __future__ import annotations

import pytest

from kafka_async.testing.backends.nodes import free_ports
from kafka_async.testing.backends.probe import broker_ids, wait_until_ready
from tests.testing.fakes import knows, server


def test_the_ids_of_the_living_brokers() -> None:
    with server(knows(1, 3)) as address:
        assert broker_ids(address, timeout=5) == {1, 3}


def test_a_server_of_http_is_no_broker() -> None:
    with (
        server(lambda _: b"HTTP/1.1 400 Bad Request\r\n\r\n") as address,
        pytest.raises(OSError, match="does not speak Kafka's protocol"),
    ):
        broker_ids(address, timeout=5)


def test_an_answer_that_is_cut_short_is_none() -> None:
    with (
        server(lambda asked: knows(1)(asked)[:-3]) as address,
        pytest.raises(ConnectionError, match="closed"),
    ):
        broker_ids(address, timeout=5)


def test_it_waits_until_every_server_knows_enough_brokers() -> None:
    states = iter([knows(1), knows(1, 2), knows(1), knows(1, 2)])
    with server(lambda asked: next(states)(asked)) as address:
        wait_until_ready([address, address], brokers=2, timeout=30)
    assert next(states, None) is None


def test_it_gives_up_and_says_how_far_it_came() -> None:
    with (
        server(knows(1)) as address,
        pytest.raises(TimeoutError, match=rf"{address} knows only of the brokers \[1\]"),
    ):
        wait_until_ready([address], brokers=3, timeout=0)


def test_nobody_there() -> None:
    (port,) = free_ports(1)
    with pytest.raises(TimeoutError, match=rf"127.0.0.1:{port} does not answer"):
        wait_until_ready([f"127.0.0.1:{port}"], brokers=1, timeout=0)


def test_it_stops_waiting_when_the_caller_knows_better() -> None:
    class ExitedError(Exception):
        pass

    def check() -> None:
        raise ExitedError

    with pytest.raises(ExitedError):
        wait_until_ready(["127.0.0.1:1"], brokers=1, timeout=60, check=check)
