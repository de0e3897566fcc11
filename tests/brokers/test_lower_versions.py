"""Every lower maximum of every API that a client sends: the same result, or a named feature.

A broker that is older than the client, or not Kafka, supports lower versions, of one API and not of
another. A scenario must have the same result there, or raise UnsupportedVersionError.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from kafka_async.embedded.handlers.routes import ROUTES
from kafka_async.embedded.profiles import PROFILES
from kafka_async.errors import InvalidConfigurationError, UnsupportedVersionError
from kafka_async.protocol.api import lookup
from tests.brokers.scenarios import SCENARIOS, Stage, home_of, result_of, sent_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock, pytest.mark.one_kernel]

LEAVE_GROUP: Final = 13
API_VERSIONS: Final = 18
WITHOUT_API: Final = (0, -1)
KAFKA: Final = {name for name in PROFILES if name.startswith("kafka")}
KAFKA_4: Final = {name for name in KAFKA if name.startswith("kafka-4")}
EVERYWHERE: Final[dict[str, set[str]]] = {
    "produce": {*PROFILES},
    "read_assigned": {*PROFILES},
    "classic_group": {*PROFILES},
    "chosen_protocol": {*PROFILES},
    "static_group": {*PROFILES} - {"kafka-2.1"},
    "consumer_group": KAFKA_4,
    "share_group": {"kafka-4.2", "kafka-4.3", "kafka-4.4"},
    "transactions": {*KAFKA, "redpanda", "warpstream"} - {"kafka-2.1"},
    "admin_topics": {*KAFKA, "redpanda"} - {"kafka-2.1"},
    "admin_groups": {*KAFKA, "redpanda", "warpstream", "event-hubs"},
    "admin_security": KAFKA - {"kafka-2.1"},
}
"""Profiles on which a scenario has the same result."""
SUPPORTED: Final = {route.api_key: (route.lowest, route.highest) for route in ROUTES}
NOT_NEEDED: Final = {
    LEAVE_GROUP: "the members leave by their session timeout",
    API_VERSIONS: "brokers without it are older than Kafka 0.10",
}
"""APIs without which a scenario may have another result."""
OPTIONAL: Final = {8, 9, 10, 12, 24, 25, 26, 28, 68, 69}
"""APIs of a pair that a scenario need not send."""
PAIRS: Final[tuple[dict[int, tuple[int, int]], ...]] = (
    {3: (0, 9)},  # no topic ids, while Produce, Fetch, OffsetCommit and OffsetFetch may have them
    {3: (0, 9), 1: (4, 12)},
    {3: (0, 9), 0: (3, 12)},
    {3: (0, 9), 8: (0, 9)},
    {3: (0, 9), 9: (0, 9)},
    {3: (0, 9), 9: (0, 7), 10: (0, 3)},
    {10: (0, 3), 9: (0, 7)},  # one key per FindCoordinator, one group per OffsetFetch
    {0: (3, 11), 26: (0, 4), 28: (0, 4)},  # transactions v1 while transaction.version is 2
    {0: (3, 11), 28: (0, 3)},
    {24: WITHOUT_API, 25: WITHOUT_API},
    {11: (0, 4), 14: (0, 2), 12: (0, 2), 13: (0, 2), 8: (0, 6)},  # no static members
    {11: (0, 3), 14: (0, 1), 12: (0, 1), 13: (0, 1)},
    {68: WITHOUT_API, 69: WITHOUT_API},  # no consumer protocol
    {68: (0, 0), 69: (0, 0), 8: (0, 8), 9: (0, 8)},
)
"""Sets of versions where one request needs what another brings."""


def lower_maxima(key: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges of an API with each lower maximum, the empty one last."""
    ours, (lowest, highest) = lookup(key).versions, SUPPORTED[key]
    lowest = max(lowest, ours.min)
    yield from ((lowest, maximum) for maximum in range(min(highest, ours.max) - 1, lowest - 1, -1))
    yield WITHOUT_API


def problem(expected: object, result: object) -> str:
    """Return why a result is wrong; empty if it is the expected one or a missing version."""
    causes: list[Any] = [result]
    while isinstance(causes[-1], BaseException):
        causes.append(causes[-1].__cause__)
    refused = any(isinstance(each, UnsupportedVersionError) for each in causes)
    return "" if result == expected or refused else repr(result)


def ends(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the highest of the lower maxima, the lowest, and the range of a missing API."""
    highest, *others = ranges
    return [highest, *others[-2:]]


def lowest(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the lowest of the lower maxima, and the range of a missing API."""
    return [*ranges][-2:]


async def check_lower_maxima(
    scenario: str,
    keys: Iterable[int],
    choose: Callable[[Iterable[tuple[int, int]]], Iterable[tuple[int, int]]],
) -> None:
    expected, _ = await sent_in(scenario)
    problems: dict[str, str] = {}
    for key in keys:
        for versions in choose(lower_maxima(key)):
            if versions == WITHOUT_API and key in NOT_NEEDED:
                continue
            found = problem(expected, await result_of(scenario, api_versions={key: versions}))
            if found:
                problems[f"{lookup(key).name} {versions}"] = found
    assert problems == {}


@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_each_lower_maximum_has_the_same_result_or_names_what_is_missing(
    scenario: str,
) -> None:
    _, sent = await sent_in(scenario)
    keys = [key for key in sent if await home_of(key) == scenario]
    await check_lower_maxima(scenario, keys, ends)


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_each_version_of_every_api_has_the_same_result_or_names_what_is_missing(
    scenario: str,
) -> None:
    """Checks all versions of an API in its home, the lowest and its absence elsewhere."""
    _, sent = await sent_in(scenario)
    home = [key for key in sent if await home_of(key) == scenario]
    await check_lower_maxima(scenario, home, list)
    await check_lower_maxima(scenario, sent.keys() - home, lowest)


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_each_pair_has_the_same_result_or_names_what_is_missing(scenario: str) -> None:
    await check_pairs(scenario, PAIRS)


@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_some_pairs_have_the_same_result_or_name_what_is_missing(scenario: str) -> None:
    await check_pairs(scenario, PAIRS[list(SCENARIOS).index(scenario) % 3 :: 3])


async def check_pairs(scenario: str, pairs: Iterable[dict[int, tuple[int, int]]]) -> None:
    expected, sent = await sent_in(scenario)
    problems: dict[str, str] = {}
    for ranges in pairs:
        if sent.keys() >= ranges.keys() - OPTIONAL and (
            found := problem(expected, await result_of(scenario, api_versions=ranges))
        ):
            problems[str(ranges)] = found
    assert problems == {}


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_each_profile_has_the_same_result_or_names_what_is_missing(scenario: str) -> None:
    await check_profiles(scenario, PROFILES)


@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_half_of_the_profiles_have_the_same_result_or_name_what_is_missing(
    scenario: str,
) -> None:
    await check_profiles(scenario, [*PROFILES][list(SCENARIOS).index(scenario) % 2 :: 2])


async def check_profiles(scenario: str, profiles: Iterable[str]) -> None:
    expected, _ = await sent_in(scenario)
    results = {name: await result_of(scenario, profile=name) for name in profiles}
    problems = {name: found for name, each in results.items() if (found := problem(expected, each))}
    assert problems == {}
    same = {name for name, result in results.items() if result == expected}
    assert same >= EVERYWHERE.get(scenario, set()) & results.keys()


async def test_a_profile_that_does_not_exist_is_refused() -> None:
    with pytest.raises(InvalidConfigurationError, match=r"profiles are kafka-2\.1, kafka-2\.8"):
        Stage(profile="kafka-1.0")


async def test_settings_replace_those_of_a_profile() -> None:
    async with Stage(profile="kafka-4.0", group_version=0, api_versions={3: (0, 9)}) as stage:
        settings = stage.cluster.settings
        assert (settings.group_version, settings.transaction_version) == (0, 2)
        assert settings.api_versions[3] == (0, 9)
        assert settings.api_versions[0] == (3, 12)
