"""DescribeClientQuotas and AlterClientQuotas (KIP-546), and requests over a quota."""

from __future__ import annotations

from typing import Any, Final

from tests.contract.cases.admin import NEW, create, drop, grow, metadata, remove, row, versions
from tests.contract.model import (
    GROUP,
    Fields,
    Name,
    T,
    TopicId,
    request,
    scenario,
    send,
    topic,
)

OTHER: Final = topic("u")
USER, CLIENT, IP = "user", "client-id", "ip"
EXACT, DEFAULT, ANY = 0, 1, 2
PRODUCE, FETCH = "producer_byte_rate", "consumer_byte_rate"


@request("DescribeClientQuotas")
def describe(*components: Fields, strict: bool = False) -> Fields:
    """Return a DescribeClientQuotas request with a filter."""
    return {"components": list(components), "strict": strict}


@request("AlterClientQuotas")
def alter(*entries: Fields, validate_only: bool = False) -> Fields:
    """Return an AlterClientQuotas request."""
    return {"entries": list(entries), "validate_only": validate_only}


def component(kind: str, match: Name | str | None = T, match_type: int = EXACT) -> Fields:
    """Return a component of a filter."""
    return {"entity_type": kind, "match_type": match_type, "match": match}


def entry(entity: dict[str, Name | str | None], **values: float | None) -> Fields:
    """Return an alteration of an entity; None removes a quota."""
    return {
        "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()],
        "ops": [
            {"key": key, "value": value or 0.0, "remove": value is None}
            for key, value in values.items()
        ],
    }


def bad(entity: dict[str, Name | str | None], **values: float | None) -> Any:
    """Return an alteration that a broker refuses."""
    return alter(1, entry(entity, **(values or {PRODUCE: 1000.0})))


LIMITED: Final = topic("limited")
"""The client id that has a quota."""
THROTTLED: Final = "<throttled>"
QUOTA_EXCEEDED: Final = 89


def limited(connection: str, **given: Any) -> Any:
    """Return the options of a request of `LIMITED`.

    A broker mutes the connection after a throttled response, so each request has its own.
    """
    return {"client_id": LIMITED, "connection": connection, **given}


SCENARIOS: Final = [
    scenario(
        "client-quotas",
        {},
        describe(range(2), component(USER)),
        alter(
            range(2),
            entry({USER: T}, producer_byte_rate=1000.0, consumer_byte_rate=2000.0),
            entry({USER: T, CLIENT: T}, request_percentage=12.5, controller_mutation_rate=0.5),
            entry({CLIENT: OTHER}, producer_byte_rate=3000.0),
        ),
        # A broker responds from metadata, which it gets after the controller has responded.
        describe(1, component(CLIENT, OTHER), awaiting="3000"),
        describe(1, component(USER)),
        describe(1, component(USER), strict=True),
        describe(1, component(USER), component(CLIENT)),
        describe(1, component(USER), component(CLIENT, None, ANY), strict=True),
        describe(1, component(USER), component(CLIENT, None, DEFAULT)),
        describe(1, component(USER, "no such user")),
        alter(1, entry({USER: T}, producer_byte_rate=4000.0), validate_only=True),
        alter(1, entry({USER: T}, producer_byte_rate=5000.0, consumer_byte_rate=None)),
        describe(1, component(USER), awaiting="5000", strict=True),
        alter(1, entry({USER: T}, unknown_key=None)),
        alter(1, entry({USER: T}), entry({USER: T}, producer_byte_rate=6000.0)),
        alter(
            1,
            entry({USER: T}, producer_byte_rate=None),
            entry({USER: T, CLIENT: T}, request_percentage=None, controller_mutation_rate=None),
            entry({CLIENT: OTHER}, producer_byte_rate=None),
        ),
        describe(1, component(CLIENT, OTHER), passing="values"),
        describe(1, component(USER)),
        alter(1),
    ),
    scenario(
        "client-quotas-of-defaults-and-addresses",
        {},
        alter(
            1,
            entry({USER: T, CLIENT: None}, consumer_byte_rate=1000.0),
            entry({IP: "10.9.8.7"}, connection_creation_rate=7.0),
        ),
        describe(1, component(IP, "10.9.8.7"), awaiting="connection_creation_rate"),
        describe(1, component(USER), component(CLIENT, None, DEFAULT)),
        describe(1, component(IP, "10.9.8.6")),
        alter(
            1,
            entry({USER: T, CLIENT: None}, consumer_byte_rate=None),
            entry({IP: "10.9.8.7"}, connection_creation_rate=None),
        ),
        describe(1, component(IP, "10.9.8.7"), passing="connection_creation_rate"),
    ),
    scenario(
        "client-quotas-that-are-not-valid",
        {},
        bad({}),
        bad({"group": T}),
        bad({USER: ""}),
        bad({USER: T, IP: "10.9.8.7"}),
        bad({IP: "10.9.8.7"}),
        bad({IP: "not an address"}, connection_creation_rate=1.0),
        bad({USER: T}, unknown_key=1.0),
        bad({USER: T}, connection_creation_rate=1.0),
        bad({USER: T}, producer_byte_rate=0.0),
        bad({USER: T}, producer_byte_rate=-1.0),
        bad({USER: T}, producer_byte_rate=1.5),
        bad({USER: T}, producer_byte_rate=1e20),
        bad({USER: T}, request_percentage=float("inf")),
        bad({IP: "10.9.8.7"}, connection_creation_rate=1e10),
        alter(1, entry({USER: T}, producer_byte_rate=1.5), entry({USER: ""})),
        alter(1, cut=2),
        send("AlterClientQuotas", 99),
        describe(1, component("")),
        describe(1, component("group")),
        describe(1, component(USER), component(USER)),
        describe(1, component(USER), component(IP)),
        describe(1, component(USER, None)),
        describe(1, component(USER, T, DEFAULT)),
        describe(1, component(USER, T, ANY)),
        describe(1, component(USER, None, 3)),
        describe(1, component(USER, None, ANY), component(CLIENT, T), strict=True),
        describe(1, cut=2),
        send("DescribeClientQuotas", 99),
        describe(1, component(USER)),
    ),
    scenario(
        "controller-mutation-quota",
        {"t": {}, "second": {}},
        alter(
            1,
            entry({CLIENT: LIMITED}, controller_mutation_rate=0.01),
            entry({CLIENT: OTHER}, controller_mutation_rate=0.01),
        ),
        # The tokens of 10 partitions return after 1,000 s. The controller knows of the quota
        # some time after the response.
        create(6, NEW, 10, dry=True, until=QUOTA_EXCEEDED, **limited("1")),
        create(7, **limited("2")),
        create(6, dry=True, **limited("3")),
        create(7, T, **limited("4")),
        create(7, dry=True, **limited("5")),
        create(5, **limited("6")),
        create(7, **limited("7")),
        create(7, topic("free"), dry=True),
        grow(3, 2, **limited("8")),
        grow(3, 2, dry=True, **limited("9")),
        grow(3, 1, **limited("10")),
        grow(3, 2, name=topic("none"), **limited("11")),
        grow(2, 2, **limited("12")),
        drop(5, T, **limited("13")),
        drop(5, topic("none"), **limited("14")),
        remove(6, {"name": T}, **limited("15")),
        remove(6, {"name": None, "topic_id": TopicId()}, **limited("18")),
        remove(6, {"name": T}, {"name": topic("second")}, {"name": topic("none")}, **limited("19")),
        send(
            "CreateTopics",
            7,
            topics=[row("a"), row("b")],
            timeout_ms=30_000,
            **limited("20"),
        ),
        drop(4, T, NEW, **limited("16")),
        # The first topic of a request exceeds the quota of another client, the second is refused.
        send(
            "CreateTopics",
            6,
            topics=[row("a"), row("b")],
            timeout_ms=30_000,
            validate_only=True,
            until=QUOTA_EXCEEDED,
            client_id=OTHER,
        ),
        alter(
            1,
            entry({CLIENT: LIMITED}, controller_mutation_rate=None),
            entry({CLIENT: OTHER}, controller_mutation_rate=None),
        ),
        drop(5, topic("second")),
    ),
    scenario(
        "request-percentage-quota",
        {},
        metadata(9, **limited("1")),
        alter(1, entry({CLIENT: LIMITED}, request_percentage=1e-6)),
        metadata(9, awaiting=THROTTLED, **limited("2")),
        metadata(5, **limited("3")),
        versions(4, own=True, **limited("4")),
        send("FindCoordinator", 4, key_type=0, coordinator_keys=[GROUP], **limited("5")),
        send("Heartbeat", 4, group_id=GROUP, member_id="m", **limited("6")),
        create(7, NEW, 0, dry=True, **limited("7")),
        metadata(9),
        metadata(9, client_id=OTHER),
        alter(1, entry({CLIENT: LIMITED}, request_percentage=None)),
        metadata(9, passing=THROTTLED, **limited("8")),
    ),
]
