"""SASL: one mechanism per file, each a generator without I/O; found here by its name."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from kafka_async.client.security.sasl.mechanism import SaslMechanism
from kafka_async.config.spelling import option_error, spell
from kafka_async.errors import InvalidConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafka_async.config import ClientConfig


class _Factory(NamedTuple):
    """Class of a mechanism; its module is imported when a client first uses it."""

    module: str
    type_name: str
    arguments: tuple[str, ...] = ()


_FACTORIES: Final[Mapping[str, _Factory]] = {
    "PLAIN": _Factory("plain", "Plain"),
    "SCRAM-SHA-256": _Factory("scram", "Scram", ("SHA-256",)),
    "SCRAM-SHA-512": _Factory("scram", "Scram", ("SHA-512",)),
    "OAUTHBEARER": _Factory("oauthbearer", "OAuthBearer"),
    "GSSAPI": _Factory("gssapi", "Gssapi"),
    "AWS_MSK_IAM": _Factory("aws_msk_iam", "AwsMskIam"),
}


def mechanism_for(config: ClientConfig) -> SaslMechanism | None:
    """Return the checked mechanism of the options, or None without SASL.

    Raises:
        InvalidConfigurationError: The mechanism is unknown, an option that it needs is missing, or
            it would send credentials over plaintext without `sasl_allow_plaintext`.
    """
    if config.security_protocol not in ("SASL_PLAINTEXT", "SASL_SSL"):
        return None
    mechanism = _mechanism(config)
    if (
        mechanism.needs_tls
        and config.security_protocol == "SASL_PLAINTEXT"
        and not config.sasl_allow_plaintext
    ):
        raise InvalidConfigurationError(
            f"{mechanism.name} over SASL_PLAINTEXT shows the credentials to readers of the "
            f"network: set {spell('security_protocol', 'SASL_SSL')}, or "
            f"{spell('sasl_allow_plaintext', True)} to accept it",
            option="security_protocol",
        )
    mechanism.check(config)
    return mechanism


def _mechanism(config: ClientConfig) -> SaslMechanism:
    named = config.sasl_mechanism
    if named is None:
        raise InvalidConfigurationError(
            f"{spell('security_protocol', config.security_protocol)} needs "
            f"{spell('sasl_mechanism')}: name the one that the brokers ask for, as "
            '"SCRAM-SHA-256"',
            option="sasl_mechanism",
        )
    if isinstance(named, str):
        factory = _FACTORIES.get(named)
        if factory is None:
            raise option_error(
                "sasl_mechanism",
                f" is not one of {', '.join(_FACTORIES)}",
                value=f"{named!r:.60}",
            )
        module: Any = import_module(f"{__name__}.{factory.module}")
        return cast("SaslMechanism", getattr(module, factory.type_name)(*factory.arguments))
    if isinstance(named, type) or not isinstance(named, SaslMechanism):
        raise option_error(
            "sasl_mechanism",
            f" must be one of {', '.join(_FACTORIES)}, or an object with the attributes of "
            f"kafka_async.client.security.sasl.mechanism.SaslMechanism, not {type(named).__name__}",
        )
    return named
