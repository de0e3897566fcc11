"""Tests of throttle times."""

from __future__ import annotations

import pytest

from kafka_async.cluster.throttle import CLIENT_WAITS_FROM, Throttle
from kafka_async.protocol.api import APIS

PRODUCE, SHARE_FETCH = 0, 78


def test_no_delay_without_throttle_time() -> None:
    throttle = Throttle()
    assert throttle.delay(0.0) == 0.0
    assert throttle.record(PRODUCE, 12, 0, 5.0) == 0.0
    assert throttle.delay(5.0) == 0.0


def test_throttle_time_mutes_the_connection() -> None:
    throttle = Throttle()
    assert throttle.record(PRODUCE, 12, 1500, 10.0) == 1.5
    assert throttle.muted_until == 11.5
    assert [throttle.delay(now) for now in (10.0, 11.0, 11.5, 12.0)] == [1.5, 0.5, 0.0, 0.0]


def test_later_response_extends_and_never_shortens_the_wait() -> None:
    throttle = Throttle()
    throttle.record(PRODUCE, 12, 1000, 10.0)
    throttle.record(PRODUCE, 12, 10, 10.1)
    assert throttle.muted_until == 11.0
    throttle.record(PRODUCE, 12, 2000, 10.1)
    assert throttle.muted_until == 12.1


@pytest.mark.parametrize(("version", "waits"), [(5, False), (6, True), (12, True)])
def test_ignores_throttle_time_before_kip_219(version: int, waits: bool) -> None:
    throttle = Throttle()
    assert (throttle.record(PRODUCE, version, 1000, 0.0) > 0) is waits


def test_waits_for_every_version_of_an_api_newer_than_kip_219() -> None:
    assert Throttle().record(SHARE_FETCH, 1, 1000, 0.0) == 1.0


def test_table_names_versions_that_exist() -> None:
    ranges = {api.key: api.versions for api in APIS}
    for key, version in CLIENT_WAITS_FROM.items():
        assert version <= ranges[key].max
