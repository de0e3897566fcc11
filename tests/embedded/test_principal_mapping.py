"""Rules that map subjects of certificates to principals; a part of `make conformance` too."""

from __future__ import annotations

import pytest

from kafka_async.embedded import EmbeddedCluster, Listener
from kafka_async.embedded.security.principal_mapping import MAX_SUBJECT_LENGTH, PrincipalMapping
from kafka_async.errors import InvalidConfigurationError
from tests.embedded.test_tls import client_context, connect, principal_of, server_context
from tests.integration.certificates import Certificates

pytestmark = [pytest.mark.asyncio, pytest.mark.may_block]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


SUBJECT = "CN=Alice,OU=Ops,O=Example"


# SslPrincipalMapper has returned these names too.
@pytest.mark.parametrize(
    ("rules", "name"),
    [
        ("DEFAULT", SUBJECT),
        ("RULE:^CN=(.*?),.*$/$1/", "Alice"),
        ("RULE:^CN=(.*?),.*$/$1/L", "alice"),
        ("RULE:^CN=(.*?),OU=(.*?),.*$/$1@$2/U", "ALICE@OPS"),
        ("RULE:CN=(.*?)/$1/", "Alice,OU=Ops,O=Example"),
        ("RULE:^OU=.*$/other/, RULE:^CN=(A)(.*?),.*$/$2$1/ ,DEFAULT", "liceA"),
        ("RULE:^OU=.*$/other/", None),
        ("RULE:^(CN)=.*$/$12/", "CN2"),
        ("RULE:^(CN)=.*$/\\$1 $9 a\\/b/", "$1 $9 a/b"),
        (" ,, DEFAULT ,", SUBJECT),
    ],
)
async def test_first_matching_rule_gives_the_name(rules: str, name: str | None) -> None:
    assert PrincipalMapping(rules).name_of(SUBJECT) == name


@pytest.mark.parametrize(
    ("rules", "reason"),
    [
        ("", "has no rule"),
        (" , ", "has no rule"),
        ("name", '"name" is no rule'),
        ("DEFAULTS", '"S" is no rule'),
        ("RULE:a/b/X", '"X" is no rule'),
        ("RULE:a", "lacks a slash"),
        ("RULE:a/b", "lacks a slash"),
        ("RULE:(/b/", "no regular expression"),
        ("RULE:a/$x/", "without the number of a group"),
        ("RULE:a/$/", "without the number of a group"),
        ("RULE:a/$1/", "the pattern has none"),
    ],
)
async def test_invalid_rules_are_rejected(rules: str, reason: str) -> None:
    with pytest.raises(InvalidConfigurationError, match=f"ssl_principal_mapping_rules: .*{reason}"):
        PrincipalMapping(rules)


async def test_long_subject_has_no_name() -> None:
    mapping = PrincipalMapping("DEFAULT")
    assert mapping.name_of("x" * MAX_SUBJECT_LENGTH) is not None
    assert mapping.name_of("x" * (MAX_SUBJECT_LENGTH + 1)) is None


async def test_listener_without_tls_has_no_rules() -> None:
    with pytest.raises(InvalidConfigurationError, match="remove ssl_principal_mapping_rules"):
        Listener(security_protocol="SASL_PLAINTEXT", ssl_principal_mapping_rules="DEFAULT")


async def test_rules_of_a_listener_are_checked(certificates: Certificates) -> None:
    with pytest.raises(InvalidConfigurationError, match="has no rule"):
        Listener(
            security_protocol="SSL",
            ssl_context=server_context(certificates),
            ssl_principal_mapping_rules="",
        )


@pytest.mark.parametrize(
    ("rules", "mapped"), [("RULE:^CN=(.*?),.*$/$1/", True), ("RULE:x/y/", False)]
)
async def test_listener_maps_certificates(
    certificates: Certificates, rules: str, mapped: bool
) -> None:
    listener = Listener(
        security_protocol="SSL",
        ssl_context=server_context(certificates),
        client_auth="required",
        ssl_principal_mapping_rules=rules,
    )
    async with EmbeddedCluster(listeners={"SSL": listener}) as cluster:
        connection = await connect(cluster, client_context(certificates, certificates.client))
        if mapped:
            assert await principal_of(cluster, connection) == "User:tls-client"
        else:
            with pytest.raises(ConnectionResetError):
                await principal_of(cluster, connection)
        await connection.close()
        assert cluster.failures == []
