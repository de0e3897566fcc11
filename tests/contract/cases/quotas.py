"""DescribeClientQuotas and AlterClientQuotas (KIP-546)."""

from __future__ import annotations

from typing import Any, Final

from tests.contract.model import Fields, Name, T, request, scenario, send, topic

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
]
