"""SASL, SCRAM credentials and delegation tokens, on a listener without authentication."""

from __future__ import annotations

from typing import Any, Final

from tests.contract.model import Fields, Name, T, request, scenario, send, topic

SHA_256, SHA_512 = 1, 2
OTHER: Final = topic("u")


@request("SaslHandshake")
def handshake(mechanism: str = "PLAIN") -> Fields:
    """Return a SaslHandshake request."""
    return {"mechanism": mechanism}


@request("SaslAuthenticate")
def authenticate(message: bytes = b"\0alice\0secret") -> Fields:
    """Return a SaslAuthenticate request."""
    return {"auth_bytes": message}


@request("DescribeUserScramCredentials")
def describe(*names: Name | str, users: Any = ()) -> Fields:
    """Return a DescribeUserScramCredentials request for users, or all."""
    return {"users": [{"name": name} for name in names] if names else users}


@request("AlterUserScramCredentials")
def alter(*upsertions: Fields, deletions: Any = ()) -> Fields:
    """Return an AlterUserScramCredentials request."""
    return {"upsertions": list(upsertions), "deletions": list(deletions)}


def upsertion(name: Name | str = T, mechanism: int = SHA_256, iterations: int = 4_096) -> Fields:
    """Return a new credential; a user of a scenario has the name of its topic."""
    return {
        "name": name,
        "mechanism": mechanism,
        "iterations": iterations,
        "salt": b"salt",
        "salted_password": b"p" * 32,
    }


def deletion(name: Name | str = T, mechanism: int = SHA_256) -> Fields:
    """Return the deletion of a credential."""
    return {"name": name, "mechanism": mechanism}


@request("CreateDelegationToken")
def create_token(**changes: Any) -> Fields:
    """Return a CreateDelegationToken request."""
    return {"max_lifetime_ms": -1, **changes}


@request("RenewDelegationToken")
def renew_token(hmac: bytes = b"hmac", period: int = -1) -> Fields:
    """Return a RenewDelegationToken request."""
    return {"hmac": hmac, "renew_period_ms": period}


@request("ExpireDelegationToken")
def expire_token(hmac: bytes = b"hmac", period: int = -1) -> Fields:
    """Return an ExpireDelegationToken request."""
    return {"hmac": hmac, "expiry_time_period_ms": period}


@request("DescribeDelegationToken")
def describe_tokens(owners: Any = None) -> Fields:
    """Return a DescribeDelegationToken request."""
    return {"owners": owners}


RENEWER: Final = {"principal_type": "User", "principal_name": "bob"}
OWNER: Final = {"owner_principal_type": "User", "owner_principal_name": "bob"}

SCENARIOS: Final = [
    scenario(
        "sasl-without-sasl-listener",
        {},
        handshake(range(2)),
        handshake(1, "UNKNOWN"),
        handshake(1, ""),
        handshake(1, cut=2),
        send("SaslHandshake", 99),
        authenticate(range(3)),
        authenticate(2, b""),
        authenticate(2, cut=2),
        send("SaslAuthenticate", 99),
    ),
    scenario(
        "scram-credentials",
        {},
        describe(0, T),
        alter(0, upsertion(), upsertion(OTHER, SHA_512, 16_384)),
        # A broker responds from metadata, which it gets after the controller has responded.
        describe(0, T, OTHER, awaiting="16384"),
        describe(0, T, T, OTHER),
        describe(0),
        describe(0, users=None),
        alter(0, upsertion(mechanism=SHA_512, iterations=5_000)),
        describe(0, T, awaiting="5000"),
        alter(0, upsertion(iterations=4_095), upsertion(OTHER, SHA_512, 16_385)),
        alter(0, upsertion(mechanism=0), upsertion(OTHER, 3)),
        alter(0, upsertion(""), deletions=[deletion("")]),
        alter(0, upsertion(), upsertion(mechanism=SHA_512)),
        alter(0, upsertion(), deletions=[deletion()]),
        alter(0, deletions=[deletion(), deletion()]),
        alter(0, upsertion(), deletions=[deletion(mechanism=3)]),
        alter(0, deletions=[deletion(OTHER, SHA_256), deletion(mechanism=3)]),
        alter(0, deletions=[deletion("no such user")]),
        alter(0),
        alter(0, cut=2),
        describe(0, T, OTHER),
        describe(0, cut=2),
        alter(0, deletions=[deletion(), deletion(OTHER, SHA_512)]),
        alter(0, deletions=[deletion(mechanism=SHA_512)]),
        describe(0, T, OTHER, passing="iterations"),
        describe(0),
    ),
    scenario(
        "tokens-without-authentication",
        {},
        create_token(range(1, 4)),
        create_token(2, renewers=[RENEWER]),
        create_token(3, **OWNER),
        create_token(3, cut=2),
        send("CreateDelegationToken", 99),
        renew_token(range(1, 3)),
        renew_token(2, b""),
        renew_token(2, b"hmac", 5_000),
        renew_token(2, cut=2),
        send("RenewDelegationToken", 99),
        expire_token(range(1, 3)),
        expire_token(2, b""),
        expire_token(2, b"hmac", 5_000),
        expire_token(2, cut=2),
        send("ExpireDelegationToken", 99),
        describe_tokens(range(1, 4)),
        describe_tokens(3, []),
        describe_tokens(3, [RENEWER]),
        describe_tokens(3, cut=2),
        send("DescribeDelegationToken", 99),
    ),
]
