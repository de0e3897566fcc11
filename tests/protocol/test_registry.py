"""Lookup of APIs, version negotiation and lazy imports."""

from __future__ import annotations

import pytest

from kafka_async.errors import UnsupportedVersionError
from kafka_async.protocol import api
from kafka_async.protocol.messages.end_txn_marker import EndTxnMarker
from kafka_async.protocol.messages.fetch import FetchRequest, FetchResponse
from kafka_async.protocol.spec import VersionRange
from tests.test_shape import loaded_by

FETCH, INIT_PRODUCER_ID, LEADER_AND_ISR = 1, 22, 4


@pytest.mark.parametrize("name", [1, "Fetch", "FetchRequest", "FetchResponse"])
def test_finds_api_by_key_and_by_name(name: int | str) -> None:
    found = api.lookup(name)
    assert found is api.lookup(FETCH)


def test_api_has_versions_messages_and_listeners() -> None:
    fetch = api.lookup(FETCH)
    assert (fetch.key, fetch.name, fetch.versions) == (1, "Fetch", (4, 18))
    assert (fetch.request, fetch.response) == (FetchRequest, FetchResponse)
    assert fetch.listeners == ("broker", "controller")
    assert [version for version in (11, 12) if fetch.is_flexible(version)] == [12]
    assert not api.lookup(17).is_flexible(1)
    assert repr(fetch) == "<Api 1 Fetch 4-18>"


def test_finds_message_without_key_by_name() -> None:
    assert api.lookup("EndTxnMarker") is EndTxnMarker


@pytest.mark.parametrize("name", [-1, 95, "fetch", "Nothing", ""])
def test_refuses_unknown_key_or_name(name: int | str) -> None:
    with pytest.raises(UnsupportedVersionError, match=repr(name)):
        api.lookup(name)


def test_table_has_every_key() -> None:
    assert [each.key for each in api.APIS] == list(range(95))
    assert {each.name for each in api.APIS if each.removed} == {
        "LeaderAndIsr",
        "StopReplica",
        "UpdateMetadata",
        "ControlledShutdown",
    }


def test_message_classes_match_table() -> None:
    for each in api.APIS:
        if each.removed:
            continue
        last = each.versions.max if each.unstable is None else each.unstable
        for message in (each.request, each.response):
            assert each.key == message.API_KEY
            assert VersionRange(each.versions.min, last) == message.VERSIONS
            assert each.flexible_from == message.FLEXIBLE_FROM
        assert each.request().RESPONSE is each.response


def test_removed_api_has_no_messages() -> None:
    removed = api.lookup(LEADER_AND_ISR)
    assert removed.removed
    assert removed.versions.empty
    for side in ("request", "response"):
        with pytest.raises(UnsupportedVersionError, match="LeaderAndIsr was removed"):
            getattr(removed, side)


# -- negotiation (KIP-35) -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [((0, 11), 11), ((4, 18), 18), ((12, 99), 18), ((0, 4), 4), ((18, 18), 18)],
)
def test_negotiates_highest_common_version(offered: tuple[int, int], chosen: int) -> None:
    assert api.lookup(FETCH).negotiate(VersionRange(*offered)) == chosen


@pytest.mark.parametrize("offered", [(0, 3), (19, 25), (0, -1)])
def test_error_without_common_version_has_both_ranges(offered: tuple[int, int]) -> None:
    theirs = VersionRange(*offered)
    with pytest.raises(UnsupportedVersionError, match=f"Fetch: we know 4-18, .* offers {theirs}"):
        api.lookup(FETCH).negotiate(theirs)


def test_refuses_api_that_broker_does_not_offer() -> None:
    with pytest.raises(UnsupportedVersionError, match=r"does not offer Fetch \(we know 4-18\)"):
        api.lookup(FETCH).negotiate(None)
    with pytest.raises(UnsupportedVersionError, match="LeaderAndIsr: we know none"):
        api.lookup(LEADER_AND_ISR).negotiate(VersionRange(0, 7))


def test_unreleased_version_is_not_negotiated() -> None:
    found = api.lookup(INIT_PRODUCER_ID)
    offered = VersionRange(0, 6)
    assert (found.versions, found.unstable) == ((0, 5), 6)
    assert found.negotiate(offered) == 5


def test_version_range_contains_intersects_and_formats() -> None:
    assert str(VersionRange(3, 3)) == "3"
    assert str(VersionRange(3, 4)) == "3-4"
    assert str(VersionRange(4, 3)) == "none"
    assert [version for version in range(6) if VersionRange(2, 4).contains(version)] == [2, 3, 4]
    assert VersionRange(0, 5).intersection(VersionRange(3, 9)) == (3, 5)
    assert VersionRange(0, 2).intersection(VersionRange(3, 9)).empty


# -- imports --------------------------------------------------------------------------------------


def test_importing_table_loads_no_message_and_no_compiler() -> None:
    loaded = loaded_by("import kafka_async.protocol.api")
    assert not {name for name in loaded if name.startswith("kafka_async.protocol.messages")}
    assert "kafka_async.protocol.compiler" not in loaded


def test_api_loads_only_its_own_messages() -> None:
    loaded = loaded_by("from kafka_async.protocol import api; api.lookup('Fetch').request")
    assert {name for name in loaded if name.startswith("kafka_async.protocol.messages.")} == {
        "kafka_async.protocol.messages.fetch"
    }
