"""Principals of client certificates: rules that map subjects to names (KIP-371)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kafka_async.admin import Admin
from kafka_async.errors import SslAuthenticationError, UnsupportedByAuthenticationError

if TYPE_CHECKING:
    from tests.integration.certificates import Certificate
    from tests.integration.secure_cluster import SecureCluster

pytestmark = [pytest.mark.asyncio, pytest.mark.any_broker]


def mapped(secure_cluster: SecureCluster, certificate: Certificate | None) -> dict[str, Any]:
    """Return the options of a client at the listener MAPPED."""
    if certificate is None:
        return secure_cluster.options("MAPPED")
    return secure_cluster.options(
        "MAPPED", ssl_certfile=certificate.chain, ssl_keyfile=certificate.key
    )


async def test_rules_map_the_subject_of_a_certificate(secure_cluster: SecureCluster) -> None:
    options = mapped(secure_cluster, secure_cluster.certificates.client)
    async with Admin(**options) as admin:
        [token] = await admin.create_delegation_tokens()
    assert token.owner == "User:TLS-CLIENT@MAPPED"


async def test_subject_that_matches_no_rule_has_no_connection(
    secure_cluster: SecureCluster,
) -> None:
    # A certificate of a broker has no common name.
    options = mapped(secure_cluster, secure_cluster.certificates.broker)
    with pytest.raises(SslAuthenticationError, match="refuses the client certificate"):
        await Admin(**options).start()


async def test_client_without_a_certificate_needs_no_rule(secure_cluster: SecureCluster) -> None:
    async with Admin(**mapped(secure_cluster, None)) as admin:
        # The broker knows the client as User:ANONYMOUS, which may have no token.
        with pytest.raises(UnsupportedByAuthenticationError):
            await admin.create_delegation_tokens()
