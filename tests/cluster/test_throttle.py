"""How long a lane holds requests back."""

from __future__ import annotations

import pytest

from kafka_async.cluster.throttle import CLIENT_WAITS_FROM, Throttle
from kafka_async.protocol.api import APIS

PRODUCE, SHARE_FETCH = 0, 78


def test_a_lane_is_free_until_a_broker_says_otherwise() -> None:
    connection = Throttle()
    assert connection.delay(0.0) == 0.0
    assert connection.answered(PRODUCE, 12, 0, 5.0) == 0.0
    assert connection.delay(5.0) == 0.0


def test_an_answer_opens_a_window() -> None:
    connection = Throttle()
    assert connection.answered(PRODUCE, 12, 1500, 10.0) == 1.5
    assert connection.until == 11.5
    assert [connection.delay(now) for now in (10.0, 11.0, 11.5, 12.0)] == [1.5, 0.5, 0.0, 0.0]


def test_a_later_answer_lengthens_the_window_and_never_shortens_it() -> None:
    connection = Throttle()
    connection.answered(PRODUCE, 12, 1000, 10.0)
    connection.answered(PRODUCE, 12, 10, 10.1)
    assert connection.until == 11.0
    connection.answered(PRODUCE, 12, 2000, 10.1)
    assert connection.until == 12.1


@pytest.mark.parametrize(("version", "waits"), [(5, False), (6, True), (12, True)])
def test_a_broker_from_before_kip_219_has_waited_itself(version: int, waits: bool) -> None:
    connection = Throttle()
    assert (connection.answered(PRODUCE, version, 1000, 0.0) > 0) is waits


def test_an_api_younger_than_the_kip_always_makes_the_client_wait() -> None:
    assert Throttle().answered(SHARE_FETCH, 1, 1000, 0.0) == 1.0


def test_the_table_names_versions_that_exist() -> None:
    ranges = {api.key: api.versions for api in APIS}
    for key, version in CLIENT_WAITS_FROM.items():
        assert version <= ranges[key].max
