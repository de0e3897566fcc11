"""Secure listeners, users and the authorizer of test clusters, and their server.properties."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol, runtime_checkable

SCRAM_MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
ALLOWED_URLS: Final = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
_LOGIN_MODULES: Final = {
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "OAUTHBEARER": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
}
_VALIDATOR: Final = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenIssuer:
    """The issuer of the signed tokens that a listener accepts (KIP-768).

    Attributes:
        issuer: The claim `iss` of its tokens.
        audience: The claim `aud` of its tokens.
        jwks_url: URL of its public keys (JSON Web Key Set), https or file, for Apache Kafka.
        validate: Returns a token's principal name and expiry time (seconds since the epoch, or
            None); raises if the token is not valid. For the embedded cluster.
    """

    issuer: str
    audience: str
    jwks_url: str
    validate: Callable[[str], tuple[str, float | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SecureListener:
    """Describes a listener of every broker in addition to its plaintext listener.

    Attributes:
        security_protocol: The protocol of its connections.
        certificate: PEM text of the broker's private key (PKCS #8) and certificate chain.
        client_ca: PEM text of the authorities for client certificates.
        client_auth: Determines if clients need a certificate (mTLS).
        ssl_principal_mapping_rules: Rules that map subjects of client certificates to principal
            names (KIP-371); if empty, the name is the subject.
        sasl_mechanisms: The mechanisms that clients may use.
        max_reauth_ms: Maximum session lifetime in milliseconds (KIP-368); 0 for unlimited.
        token_issuer: The issuer of OAUTHBEARER tokens; None accepts unsecured tokens.
    """

    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
    certificate: str = field(default="", repr=False)
    client_ca: str = field(default="", repr=False)
    client_auth: Literal["none", "requested", "required"] = "none"
    ssl_principal_mapping_rules: str = ""
    sasl_mechanisms: Sequence[str] = ()
    max_reauth_ms: int = 0
    token_issuer: TokenIssuer | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSecurity:
    """Describes the secure listeners of a cluster, its users and its authorizer.

    The plaintext listener remains for the brokers and the test's own setup; its principal
    User:ANONYMOUS is a super user. All other principals need ACLs.

    Attributes:
        listeners: The listeners by name; a name only has capitals, digits and underscores.
        users: Passwords by user name, for PLAIN and SCRAM.
        super_users: Principals that need no ACLs, such as "User:admin".
        delegation_token_key: Key for the HMACs of delegation tokens (KIP-48); empty for no tokens.
    """

    listeners: Mapping[str, SecureListener]
    users: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    super_users: Sequence[str] = ()
    delegation_token_key: str = field(default="", repr=False)


@runtime_checkable
class SecureListeners(Protocol):
    """Returns the addresses of a cluster's listeners."""

    def bootstrap_servers_of(self, listener: str) -> str:
        """Return `host:port` of a listener of every broker, separated by commas."""
        ...


def security_settings(security: ClusterSecurity) -> dict[str, str]:
    """Return the settings of listeners and authorizer shared by all nodes."""
    protocols = {name: one.security_protocol for name, one in security.listeners.items()}
    settings = {
        "listener.security.protocol.map": ",".join(
            f"{name}:{protocol}"
            for name, protocol in {
                "PLAINTEXT": "PLAINTEXT",
                "CONTROLLER": "PLAINTEXT",
                **protocols,
            }.items()
        ),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": ";".join(("User:ANONYMOUS", *security.super_users)),
    }
    if security.delegation_token_key:
        settings["delegation.token.secret.key"] = security.delegation_token_key
    for name, listener in security.listeners.items():
        prefix = f"listener.name.{name.lower()}."
        rows = _listener_settings(listener, security.users)
        settings |= {prefix + key: value for key, value in rows.items()}
    return settings


def address_settings(ports: Mapping[str, int], controller: str) -> dict[str, str]:
    """Return the address settings of a node, from its client ports by listener."""
    listeners = [f"{name}://127.0.0.1:{port}" for name, port in ports.items()]
    return {
        "listeners": ",".join((*listeners, f"CONTROLLER://{controller}")),
        "advertised.listeners": ",".join(listeners),
    }


def scram_arguments(users: Mapping[str, str]) -> list[str]:
    """Return the options for formatting the storage that create SCRAM users."""
    return [
        f"--add-scram={mechanism}=[name={name},password={password}]"
        for name, password in users.items()
        for mechanism in SCRAM_MECHANISMS
    ]


def allowed_urls_option(security: ClusterSecurity) -> list[str]:
    """Return the JVM option that allows a broker to read the keys of token issuers."""
    issuers = [listener.token_issuer for listener in security.listeners.values()]
    urls = ",".join(issuer.jwks_url for issuer in issuers if issuer is not None)
    return [f"-D{ALLOWED_URLS}={urls}"] if urls else []


def _listener_settings(listener: SecureListener, users: Mapping[str, str]) -> dict[str, str]:
    settings = {"num.network.threads": "1"}
    if listener.security_protocol in ("SSL", "SASL_SSL"):
        key, chain = split_key(listener.certificate)
        settings |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": key,
            "ssl.keystore.certificate.chain": chain,
            "ssl.client.auth": listener.client_auth,
        }
        if listener.client_ca:
            settings |= {
                "ssl.truststore.type": "PEM",
                "ssl.truststore.certificates": listener.client_ca,
            }
    if listener.ssl_principal_mapping_rules:
        settings["ssl.principal.mapping.rules"] = listener.ssl_principal_mapping_rules
    if listener.sasl_mechanisms:
        settings["sasl.enabled.mechanisms"] = ",".join(listener.sasl_mechanisms)
    if listener.max_reauth_ms:
        settings["connections.max.reauth.ms"] = str(listener.max_reauth_ms)
    for mechanism in listener.sasl_mechanisms:
        login = f"{mechanism.lower()}.sasl.jaas.config"
        settings[login] = _jaas_config(mechanism, listener, users)
    if listener.token_issuer is not None:
        settings |= {
            "oauthbearer.sasl.server.callback.handler.class": _VALIDATOR,
            "sasl.oauthbearer.jwks.endpoint.url": listener.token_issuer.jwks_url,
            "sasl.oauthbearer.expected.issuer": listener.token_issuer.issuer,
            "sasl.oauthbearer.expected.audience": listener.token_issuer.audience,
        }
    return settings


def _jaas_config(mechanism: str, listener: SecureListener, users: Mapping[str, str]) -> str:
    if mechanism == "PLAIN":
        rows = [f"user_{name}={_quoted(password)}" for name, password in users.items()]
        module = "org.apache.kafka.common.security.plain.PlainLoginModule"
        return " ".join((module, "required", *rows)) + ";"
    unsecured = mechanism == "OAUTHBEARER" and listener.token_issuer is None
    claim = ' unsecuredLoginStringClaim_sub="broker"' if unsecured else ""
    return f"{_LOGIN_MODULES[mechanism]} required{claim};"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def split_key(pem: str) -> tuple[str, str]:
    """Split PEM text into its private key and its certificates."""
    end = "-----END PRIVATE KEY-----\n"
    start = pem.index("-----BEGIN PRIVATE KEY-----")
    key, separator, rest = pem[start:].partition(end)
    return key + separator, pem[:start] + rest
