"""SASL PLAIN: the user name and the password in one message (RFC 4616). Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_async.client.security.sasl.credentials import check_username_and_password
from kafka_async.config.spelling import spell
from kafka_async.errors import InvalidConfigurationError
from kafka_async.secrets import SecretBytes

if TYPE_CHECKING:
    from kafka_async.client.security.sasl.mechanism import Exchange, SaslContext
    from kafka_async.config import ClientConfig


class Plain:
    """Sends the user name and the password as they are."""

    name = "PLAIN"
    needs_tls = True

    def check(self, config: ClientConfig) -> None:
        """Raise InvalidConfigurationError if the user name or the password is missing."""
        if config.sasl_delegation_token:
            raise InvalidConfigurationError(
                f"{spell('sasl_delegation_token', True)} needs SCRAM: brokers do not take "
                f"delegation tokens by PLAIN; set {spell('sasl_mechanism', 'SCRAM-SHA-256')}",
                option="sasl_mechanism",
            )
        check_username_and_password(self.name, config.sasl_username, config.sasl_password)

    def authenticate(self, context: SaslContext) -> Exchange:
        """Send one message; the broker's response has no content."""
        check_username_and_password(self.name, context.username, context.password)
        assert context.password is not None
        yield SecretBytes(
            b"\0".join((b"", f"{context.username}".encode(), context.password.reveal().encode()))
        )
