"""Broker profiles: supported versions and features, to test clients with such brokers.

Sources: the message definitions in the kafka-clients jars of Kafka 2.8.2, 3.9.1 and 4.0.0 to 4.4.0;
franz-go's table of versions by release (github.com/twmb/franz-go, package kversion) for Kafka 2.1;
the handlers of Redpanda 24.3; responses of Azure Event Hubs to ApiVersions
(github.com/oliveigah/klife/issues/13 and twmb/franz-go/issues/1312; for the rest,
Azure/azure-event-hubs-for-kafka/issues/69 and 209); and the page "Protocol and Feature Support" of
WarpStream, which lists APIs without their versions. A profile changes versions and features, but
not the behaviour of the embedded brokers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias, TypedDict

from kafka_async.errors import InvalidConfigurationError

Versions: TypeAlias = "Mapping[int, tuple[int, int]]"

ANY: Final = (0, 32_767)
"""All versions that the embedded cluster supports."""


@dataclass(frozen=True, slots=True)
class Profile:
    """Describes brokers.

    Attributes:
        versions: Lowest and highest version by API key; other APIs are not supported.
        transaction_version: Finalized level of the feature `transaction.version`.
        group_version: Finalized level of the feature `group.version`.
        share_version: Finalized level of the feature `share.version`.
    """

    versions: Versions
    transaction_version: int = 0
    group_version: int = 0
    share_version: int = 0


def _up_to(*rows: tuple[int, int]) -> Versions:
    """Return ranges from version 0 by API key."""
    return {key: (0, highest) for key, highest in rows}


_KAFKA_2_1: Final = _up_to(
    *((0, 7), (1, 10), (2, 4), (3, 7), (8, 6), (9, 5), (10, 2), (11, 3), (12, 2), (13, 2)),
    *((14, 2), (15, 2), (16, 2), (17, 1), (18, 2), (19, 3), (20, 3), (21, 1), (22, 1), (23, 2)),
    *((24, 1), (25, 1), (26, 1), (28, 2), (29, 1), (30, 1), (31, 1), (32, 2), (36, 0), (37, 1)),
    *((38, 1), (39, 1), (40, 1), (41, 1), (42, 1)),
)
_KAFKA_2_8: Final = _up_to(
    *((0, 9), (1, 12), (2, 6), (3, 11), (8, 8), (9, 7), (10, 3), (11, 7), (12, 4), (13, 4)),
    *((14, 5), (15, 5), (16, 4), (17, 1), (18, 3), (19, 7), (20, 6), (21, 2), (22, 4), (23, 4)),
    *((24, 3), (25, 3), (26, 3), (28, 3), (29, 2), (30, 2), (31, 2), (32, 4), (36, 2), (37, 3)),
    *((38, 2), (39, 2), (40, 2), (41, 2), (42, 2), (44, 1), (47, 0), (48, 1), (49, 1), (50, 0)),
    *((51, 0), (60, 0), (61, 0)),
)
_KAFKA_3_9: Final = {
    **_KAFKA_2_8,
    **_up_to(
        *((0, 11), (1, 17), (2, 9), (3, 12), (8, 9), (9, 9), (10, 6), (11, 9), (13, 5), (16, 5)),
        *((18, 4), (22, 5), (24, 5), (25, 4), (26, 4), (28, 4), (29, 3), (30, 3), (31, 3)),
        *((38, 3), (41, 3), (60, 1), (65, 0), (66, 1), (68, 0), (69, 0), (75, 0)),
    ),
}
_KAFKA_4_0: Final = {
    **_KAFKA_3_9,
    0: (3, 12),
    1: (4, 17),
    2: (1, 10),
    3: (0, 13),
    8: (2, 9),
    9: (1, 9),
    11: (2, 9),
    15: (0, 6),
    19: (2, 7),
    20: (1, 6),
    23: (2, 4),
    26: (0, 5),
    28: (0, 5),
    29: (1, 3),
    30: (1, 3),
    31: (1, 3),
    32: (1, 4),
    38: (1, 3),
    39: (1, 2),
    40: (1, 2),
    41: (1, 3),
    60: (0, 2),
    68: (0, 1),
    69: (0, 1),
}
_KAFKA_4_1: Final = {
    **_KAFKA_4_0,
    0: (3, 13),
    1: (4, 18),
    11: (0, 9),
    66: (0, 2),
    76: (1, 1),
    77: (1, 1),
    78: (1, 1),
    79: (1, 1),
    90: (0, 0),
    91: (0, 0),
    92: (0, 0),
}
_KAFKA_4_2: Final = {
    **_KAFKA_4_1,
    2: (1, 11),
    8: (2, 10),
    9: (1, 10),
    78: (1, 2),
    79: (1, 2),
    90: (0, 1),
}
_KAFKA_4_4: Final = {**_KAFKA_4_2, 18: (0, 5), 28: (0, 6), 42: (0, 3)}

_EVENT_HUBS: Final = {
    **_up_to((0, 7), (2, 8), (3, 9), (8, 8), (9, 8), (10, 4), (11, 9), (12, 4), (13, 5), (14, 5)),
    **_up_to((15, 1), (16, 1), (17, 1), (18, 1), (19, 2), (20, 2), (22, 1), (23, 0), (32, 2)),
    **_up_to((36, 1), (37, 1), (42, 0)),
    1: (4, 6),
}
_REDPANDA: Final = {
    **_up_to((0, 7), (2, 4), (3, 8), (10, 3), (11, 6), (12, 4), (13, 4), (14, 4), (15, 5), (16, 4)),
    **_up_to((17, 1), (18, 3), (19, 6), (20, 5), (21, 2), (22, 3), (23, 4), (24, 3), (25, 1)),
    **_up_to((26, 3), (28, 3), (29, 2), (30, 2), (31, 2), (32, 4), (36, 2), (37, 3), (42, 2)),
    **_up_to((44, 1), (47, 0), (48, 1), (49, 1), (50, 0), (51, 0), (60, 0), (61, 0), (65, 0)),
    **_up_to((66, 0)),
    1: (4, 11),
    8: (1, 8),
    9: (1, 7),
}
_WARPSTREAM_APIS: Final = (
    *(0, 1, 2, 3, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 22, 24, 25, 26, 28, 29, 30, 31),
    *(32, 36, 37, 42, 47, 60, 65, 66),
)

PROFILES: Final[Mapping[str, Profile]] = {
    "kafka-2.1": Profile(_KAFKA_2_1),
    "kafka-2.8": Profile(_KAFKA_2_8),
    "kafka-3.9": Profile(_KAFKA_3_9),
    "kafka-4.0": Profile(_KAFKA_4_0, transaction_version=2, group_version=1),
    "kafka-4.1": Profile(_KAFKA_4_1, transaction_version=2, group_version=1),
    "kafka-4.2": Profile(_KAFKA_4_2, transaction_version=2, group_version=1, share_version=1),
    "kafka-4.3": Profile(_KAFKA_4_2, transaction_version=2, group_version=1, share_version=1),
    "kafka-4.4": Profile(_KAFKA_4_4, transaction_version=2, group_version=1, share_version=2),
    "event-hubs": Profile(_EVENT_HUBS),
    "redpanda": Profile(_REDPANDA),
    "warpstream": Profile(dict.fromkeys(_WARPSTREAM_APIS, ANY)),
}
"""Profiles by name; "kafka-" is followed by a release of Apache Kafka."""


class ProfileSettings(TypedDict):
    """Settings of the embedded cluster that a profile sets."""

    api_versions: Versions
    transaction_version: int
    group_version: int
    share_version: int


def profile_settings(name: str, apis: Iterable[int]) -> ProfileSettings:
    """Return the settings of a profile.

    Args:
        name: Name of the profile.
        apis: Keys of all APIs of the embedded cluster; the profile leaves some out.

    Raises:
        InvalidConfigurationError: The profile does not exist.
    """
    profile = PROFILES.get(name)
    if profile is None:
        raise InvalidConfigurationError(
            f"there is no profile {name!r:.60}; profiles are {', '.join(PROFILES)}"
        )
    return {
        "api_versions": {key: profile.versions.get(key, (0, -1)) for key in apis},
        "transaction_version": profile.transaction_version,
        "group_version": profile.group_version,
        "share_version": profile.share_version,
    }
