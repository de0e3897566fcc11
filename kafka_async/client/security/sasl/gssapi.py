"""GSSAPI: Kerberos 5, without a security layer (RFC 4752), as Kafka uses it. Pure.

It needs the extra `gssapi` (python-gssapi), which uses the system's Kerberos library. Its functions
talk to the key distribution center, so they run in a thread. Configure the realm in krb5.conf; the
library's environment variables, such as KRB5_CONFIG and KRB5CCNAME, apply.

Without `sasl_kerberos_keytab`, tickets come from the credential cache: run `kinit`, and renew its
ticket outside this client. With a keytab, the client requests and renews its own ticket, in a cache
in memory. As in Java, the broker's principal is sasl_kerberos_service_name/host, where host is the
name by which the client connects to the broker.
"""

from __future__ import annotations

import uuid
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, cast

from kafka_async.client.security.sasl.mechanism import Compute
from kafka_async.config.spelling import option_error, spell
from kafka_async.errors import (
    KafkaConnectionError,
    KafkaError,
    SaslAuthenticationError,
)
from kafka_async.foundation.arguments import missing_extra
from kafka_async.secrets import SecretBytes

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafka_async.client.security.sasl.mechanism import Exchange, SaslContext
    from kafka_async.config import ClientConfig

MAX_STEPS: Final = 8
"""Most messages of a broker before its context is established; Kerberos needs one."""
NO_LAYER: Final = 1
"""Bit of the security layer "none" in the broker's offer."""
_OFFER_SIZE: Final = 4
_KERBEROS_ERRORS: Final = -1765328384
"""First Kerberos error among the minor status codes of GSSAPI."""
_RETRIABLE: Final = {
    21: "the client's key is not valid yet",
    33: "the ticket is not valid yet",
    34: "the broker took the request for a replay",
    156: "no key distribution center could be reached",
}
"""Kerberos errors that may pass, as in Java's client; the last one is the library's."""
_PURPOSE: Final = "Kerberos (is its key distribution center reachable?)"
_LIBRARY: Final = (
    "; it also needs the Kerberos library (Debian: apt-get install libkrb5-dev gcc python3-dev)"
)


class Gssapi:
    """Authenticates by a Kerberos ticket; client and broker authenticate each other."""

    name = "GSSAPI"
    # Tickets are encrypted, and no password is sent.
    needs_tls = False

    def __init__(self) -> None:
        # One cache per client, so that clients with other keytabs do not mix their tickets.
        self._cache = f"MEMORY:kafka-async-{uuid.uuid4().hex}"

    def check(self, config: ClientConfig) -> None:
        """Raise InvalidConfigurationError for an invalid service name."""
        service = config.sasl_kerberos_service_name
        if not service or not service.isprintable() or set(service) & set("@/ "):
            raise option_error(
                "sasl_kerberos_service_name",
                ' must be the first part of the brokers\' principals, as "kafka" of '
                "kafka/broker1.example.com@EXAMPLE.COM",
                value=f"{service!r:.60}",
            )

    def authenticate(self, context: SaslContext) -> Exchange:
        """Establish a security context with the broker, and agree on no security layer."""
        session = cast("_Session", (yield Compute(_Session, (context, self._cache), _PURPOSE)))
        message = cast("SecretBytes", (yield Compute(session.step, (None,), _PURPOSE)))
        steps = 0
        # Ends with an established context, an error, or too many messages: a faulty broker could
        # otherwise go on until the timeout.
        while not session.complete:
            if steps == MAX_STEPS:
                raise session.failure(f"the broker demands more than {MAX_STEPS} messages")
            steps += 1
            response = cast("bytes", (yield message))
            message = cast("SecretBytes", (yield Compute(session.step, (response,), _PURPOSE)))
        offer = cast("bytes", (yield message))
        response = cast(
            "bytes", (yield (yield Compute(session.choose_no_layer, (offer,), _PURPOSE)))
        )
        if response:
            raise session.failure("the broker sent a message after the end of the exchange")


class _Session:
    """One security context; its methods may take long, so they run in a thread.

    Attributes:
        complete: True if the context is established and the broker authenticated.
    """

    def __init__(self, context: SaslContext, cache: str) -> None:
        self.complete = False
        self._place = f"{context.host}:{context.port}"
        try:
            self._gssapi: Any = import_module("gssapi")
        except (ImportError, OSError) as error:
            install = missing_extra(spell("sasl_mechanism", "GSSAPI"), "gssapi")
            raise SaslAuthenticationError(install + _LIBRARY) from error
        self._context: Any = self._call(lambda: self._create(context, cache))

    def failure(self, problem: str) -> SaslAuthenticationError:
        """Return the error for a problem that no retry solves."""
        return SaslAuthenticationError(
            f"{self._place}: {problem}: check the ticket (klist) or the keytab, "
            f"{spell('sasl_kerberos_service_name')}, that the broker's host name is the one in its "
            "principal, the clocks, and krb5.conf"
        )

    def step(self, received: bytes | None) -> SecretBytes:
        """Return the next message for the broker; `received` is its last message, None at first."""
        message = self._call(lambda: self._context.step(received))
        if self._context.complete:
            mutual = self._gssapi.RequirementFlag.mutual_authentication
            if mutual not in self._context.actual_flags:
                raise self.failure("the broker did not prove its identity")
            self.complete = True
        return SecretBytes(message or b"")

    def choose_no_layer(self, offer: bytes) -> SecretBytes:
        """Return the choice of no security layer, if the broker's offer includes it."""
        offered = bytes(self._call(lambda: self._context.unwrap(offer).message))
        if len(offered) != _OFFER_SIZE:
            raise self.failure(f"the broker's security layers are {len(offered)} bytes, not 4")
        if not offered[0] & NO_LAYER:
            raise self.failure(
                "the broker demands a security layer of SASL, which Kafka does not have"
            )
        # The layer, a maximum size of 0, and no authorization identity: that of the ticket.
        choice = bytes((NO_LAYER, 0, 0, 0))
        return SecretBytes(self._call(lambda: self._context.wrap(choice, False).message))

    def _create(self, context: SaslContext, cache: str) -> object:
        gssapi, config = self._gssapi, context.config
        service = f"{config.sasl_kerberos_service_name}@{context.host}"
        flags = gssapi.RequirementFlag
        return gssapi.SecurityContext(
            name=gssapi.Name(service, gssapi.NameType.hostbased_service),
            mech=gssapi.MechType.kerberos,
            flags=(flags.mutual_authentication, flags.integrity, flags.out_of_sequence_detection),
            creds=self._credentials(config, cache),
            usage="initiate",
        )

    def _credentials(self, config: ClientConfig, cache: str) -> object:
        """Return the credentials that the options name, or None for the default ones."""
        gssapi, principal = self._gssapi, config.sasl_kerberos_principal
        if config.sasl_kerberos_keytab is None and principal is None:
            return None
        name = None
        if principal is not None:
            name = gssapi.Name(principal, gssapi.NameType.kerberos_principal)
        store = None
        if config.sasl_kerberos_keytab is not None:
            store = {"client_keytab": config.sasl_kerberos_keytab, "ccache": cache}
        return gssapi.Credentials(name=name, usage="initiate", store=store)

    def _call(self, function: Callable[[], Any]) -> Any:
        """Return a function's result; raise its error as one of this package."""
        try:
            return function()
        except Exception as error:
            if not isinstance(error, self._gssapi.exceptions.GSSError):
                raise
            raise self._error(error) from error

    def _error(self, error: Any) -> KafkaError:
        number = (int(error.min_code) - _KERBEROS_ERRORS) % 2**32
        reason = _RETRIABLE.get(number)
        if reason is not None:
            return KafkaConnectionError(f"{self._place}: {reason} ({_text(error)})")
        return self.failure(_text(error))


def _text(error: object) -> str:
    """Return Kerberos' message on one line."""
    return " ".join(str(error).split())[:300]
