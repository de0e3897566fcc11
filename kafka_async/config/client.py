"""Options that every client takes."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict

from kafka_async.config.addresses import SERVERS
from kafka_async.config.hidden import hide_secrets
from kafka_async.config.java_security import (
    TLS_VERSIONS,
    is_reference,
    read_security_properties,
    refuse_reference,
)
from kafka_async.config.options import (
    ANY,
    FLAG,
    MAPPING,
    MAX_INT64,
    NUMBER,
    SECRET,
    SECRET_SOURCE,
    TEXT,
    TEXTS,
    TOKEN_PROVIDER,
    WHOLE,
    checked,
    configuration,
    option,
    value_of_text,
)
from kafka_async.config.security import (
    SASL_MECHANISMS,
    SECURITY_PROTOCOLS,
    check_mechanism,
    check_ssl_context,
    check_token_provider,
)
from kafka_async.config.spelling import (
    PropertyNames,
    option_error,
    options_written_as,
    spell,
    with_underscores,
)
from kafka_async.config.unknown import unknown_option
from kafka_async.errors import InvalidConfigurationError

if TYPE_CHECKING:
    import ssl
    from typing import Self

    from typing_extensions import Unpack

    from kafka_async.config.option_types import SecretSource, TokenProvider
    from kafka_async.secrets import Secret


class ClientOptions(TypedDict, total=False):
    """Names the keyword arguments of every client; see `ClientConfig`."""

    bootstrap_servers: str | Sequence[str]
    client_id: str
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
    ssl_context: ssl.SSLContext | None
    ssl_cafile: str | os.PathLike[str] | None
    ssl_certfile: str | os.PathLike[str] | None
    ssl_keyfile: str | os.PathLike[str] | Secret | None
    ssl_password: str | Secret | Callable[[], str | Secret] | None
    ssl_check_hostname: bool
    ssl_enabled_protocols: str | Sequence[str]
    sasl_mechanism: str | object | None
    sasl_username: str | None
    sasl_password: str | Secret | None
    sasl_allow_plaintext: bool
    sasl_delegation_token: bool
    sasl_token_provider: TokenProvider | None
    sasl_oauthbearer_token_endpoint_url: str | None
    sasl_oauthbearer_client_credentials_client_id: str | None
    sasl_oauthbearer_client_credentials_client_secret: str | Secret | None
    sasl_oauthbearer_scope: str | None
    sasl_oauthbearer_extensions: Mapping[str, str] | None
    sasl_oauthbearer_jwt_retriever: Literal["client_credentials", "jwt_bearer"]
    sasl_oauthbearer_assertion_file: str | os.PathLike[str] | None
    sasl_oauthbearer_assertion_template_file: str | os.PathLike[str] | None
    sasl_oauthbearer_assertion_private_key_file: str | os.PathLike[str] | None
    sasl_oauthbearer_assertion_private_key_passphrase: str | Secret | None
    sasl_oauthbearer_assertion_algorithm: Literal["RS256", "ES256"]
    sasl_oauthbearer_assertion_claim_iss: str | None
    sasl_oauthbearer_assertion_claim_sub: str | None
    sasl_oauthbearer_assertion_claim_aud: str | None
    sasl_oauthbearer_assertion_claim_exp_seconds: int
    sasl_kerberos_service_name: str
    sasl_kerberos_principal: str | None
    sasl_kerberos_keytab: str | os.PathLike[str] | None
    client_rack: str
    request_timeout_ms: float
    default_api_timeout_ms: float
    close_timeout_ms: float
    retry_backoff_ms: float
    retry_backoff_max_ms: float
    reconnect_backoff_ms: float
    reconnect_backoff_max_ms: float
    socket_connection_setup_timeout_ms: float
    socket_connection_setup_timeout_max_ms: float
    connections_max_idle_ms: float
    metadata_max_age_ms: float
    bootstrap_refused_timeout_ms: float
    metadata_recovery_strategy: Literal["rebootstrap", "none"]
    metadata_recovery_rebootstrap_trigger_ms: float
    metadata_cluster_check_enable: bool
    receive_buffer_memory: int
    allowed_broker_hosts: Sequence[str] | None


@configuration()
class ClientConfig:
    """Holds the options that every client takes.

    Args:
        servers: Addresses of brokers, as "host:port,host:port" or a sequence; may also be given
            as `bootstrap_servers`.
        **options: The other options, by name.

    Raises:
        InvalidConfigurationError: An option does not exist, has a wrong type or value, or
            contradicts another.
    """

    bootstrap_servers: tuple[str, ...] = option(
        SERVERS, (), "Brokers to connect to first, as host:port."
    )
    client_id: str = option(
        TEXT,
        "kafka-async",
        "Name of the client in quotas, logs and metrics.",
        java="",
        why="brokers' logs show which library it is",
    )
    security_protocol: str = option(
        TEXT, "PLAINTEXT", "Protocol of the connections to brokers.", choices=SECURITY_PROTOCOLS
    )
    ssl_context: Any = option(
        ANY,
        None,
        "An ssl.SSLContext, in place of the other ssl_* options.",
        check=check_ssl_context,
        why="Python's own object for TLS",
    )
    ssl_cafile: str | None = option(
        TEXT,
        None,
        "Certificate authorities to trust: a file's path, or PEM text; None: the system's.",
    )
    ssl_certfile: str | None = option(
        TEXT, None, "The client's certificate chain (mTLS): a file's path, or PEM text."
    )
    ssl_keyfile: Secret | None = option(
        SECRET, None, "The private key of ssl_certfile: a file's path, or PEM text."
    )
    ssl_password: SecretSource | None = option(
        SECRET_SOURCE, None, "Password of the private key, or a function that returns it."
    )
    ssl_check_hostname: bool = option(
        FLAG, True, "Check that the broker's certificate is valid for the host name connected to."
    )
    ssl_enabled_protocols: tuple[str, ...] = option(
        TEXTS, TLS_VERSIONS, "Versions of TLS to use; older versions are never used."
    )
    sasl_mechanism: Any = option(
        ANY,
        None,
        "Mechanism of SASL: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, GSSAPI, AWS_MSK_IAM, "
        "or an object with the methods of "
        "kafka_async.client.security.sasl.mechanism.SaslMechanism.",
        check=check_mechanism,
        java="GSSAPI",
        why="SASL without a mechanism is reported, not guessed",
    )
    sasl_username: str | None = option(TEXT, None, "User name for PLAIN and SCRAM.")
    sasl_password: Secret | None = option(
        SECRET, None, "Password for PLAIN and SCRAM; it is never shown."
    )
    sasl_allow_plaintext: bool = option(
        FLAG,
        False,
        "Allow PLAIN, SCRAM and OAUTHBEARER over SASL_PLAINTEXT, which shows the credentials, or "
        "what an attacker can guess them from, to every reader of the network.",
        why="Java sends passwords over plaintext without a warning",
    )
    sasl_delegation_token: bool = option(
        FLAG,
        False,
        "sasl_username and sasl_password are a delegation token's id and HMAC (KIP-48).",
    )
    sasl_token_provider: TokenProvider | None = option(
        TOKEN_PROVIDER,
        None,
        "Coroutine function that returns a Token for OAUTHBEARER.",
        check=check_token_provider,
        why="a function in place of Java's callback handler class",
    )
    sasl_oauthbearer_token_endpoint_url: str | None = option(
        TEXT, None, "The https URL that issues tokens for client credentials (KIP-768)."
    )
    sasl_oauthbearer_client_credentials_client_id: str | None = option(
        TEXT, None, "Client id at the token endpoint (KIP-1139)."
    )
    sasl_oauthbearer_client_credentials_client_secret: Secret | None = option(
        SECRET, None, "Client secret at the token endpoint (KIP-1139); it is never shown."
    )
    sasl_oauthbearer_scope: str | None = option(
        TEXT, None, "Scope to request at the token endpoint."
    )
    sasl_oauthbearer_extensions: Mapping[str, str] | None = option(
        MAPPING,
        None,
        "SASL extensions to send with a token from the endpoint, by name (KIP-342).",
        why="Java reads them from sasl.jaas.config",
    )
    sasl_oauthbearer_jwt_retriever: str = option(
        TEXT,
        "client_credentials",
        "Grant to request tokens with: client credentials, or a signed assertion (JWT bearer, "
        "RFC 7523).",
        choices=("client_credentials", "jwt_bearer"),
        why="the grants by name, in place of Java's class sasl.oauthbearer.jwt.retriever.class",
    )
    sasl_oauthbearer_assertion_file: str | None = option(
        TEXT,
        None,
        "File of a ready-made assertion, read again for each token; it takes the place of all "
        "other options of assertions (KIP-1139).",
    )
    sasl_oauthbearer_assertion_template_file: str | None = option(
        TEXT,
        None,
        "JSON file with `header` and `payload` of the assertion, read again for each token "
        "(KIP-1139).",
    )
    sasl_oauthbearer_assertion_private_key_file: str | None = option(
        TEXT, None, "PEM file of the private key that signs the assertion (KIP-1139)."
    )
    sasl_oauthbearer_assertion_private_key_passphrase: Secret | None = option(
        SECRET, None, "Passphrase of the assertion's private key (KIP-1139); it is never shown."
    )
    sasl_oauthbearer_assertion_algorithm: str = option(
        TEXT, "RS256", "Algorithm that signs the assertion (KIP-1139).", choices=("RS256", "ES256")
    )
    sasl_oauthbearer_assertion_claim_iss: str | None = option(
        TEXT, None, "Issuer (iss) that the assertion names (KIP-1139)."
    )
    sasl_oauthbearer_assertion_claim_sub: str | None = option(
        TEXT, None, "Subject (sub) that the assertion names (KIP-1139)."
    )
    sasl_oauthbearer_assertion_claim_aud: str | None = option(
        TEXT, None, "Audience (aud) that the assertion names (KIP-1139)."
    )
    sasl_oauthbearer_assertion_claim_exp_seconds: int = option(
        WHOLE, 300, "Seconds for which an assertion is valid (KIP-1139).", low=0, high=86_400
    )
    sasl_kerberos_service_name: str = option(
        TEXT,
        "kafka",
        "Service name of the brokers' Kerberos principals, for GSSAPI.",
        java="",
        why="nearly every cluster has this name; Java requires it",
    )
    sasl_kerberos_principal: str | None = option(
        TEXT,
        None,
        "Kerberos principal of this client; None: the default of the credential cache.",
        why="Java reads it from sasl.jaas.config",
    )
    sasl_kerberos_keytab: str | None = option(
        TEXT,
        None,
        "Path of the keytab with the principal's key; None: the credential cache, as of kinit.",
        why="Java reads it from sasl.jaas.config",
    )
    client_rack: str = option(
        TEXT, "", "Rack of this client, to fetch from the closest replica (KIP-392)."
    )
    request_timeout_ms: float = option(
        NUMBER, 30_000, "Maximum time to wait for a response.", low=1
    )
    default_api_timeout_ms: float = option(
        NUMBER, 60_000, "Maximum time of a call that is given no timeout, retries included.", low=1
    )
    close_timeout_ms: float = option(
        NUMBER,
        30_000,
        "Maximum time for an orderly close: flush, commit, leave the group and disconnect.",
        low=0,
        why="Java passes it to close(); 30 s is its default there",
    )
    retry_backoff_ms: float = option(NUMBER, 100, "Wait before the first retry (KIP-580).", low=0)
    retry_backoff_max_ms: float = option(
        NUMBER, 1_000, "Maximum wait before a retry; the wait doubles with each retry.", low=0
    )
    reconnect_backoff_ms: float = option(
        NUMBER, 50, "Wait before reconnecting to a broker after the first failure.", low=0
    )
    reconnect_backoff_max_ms: float = option(
        NUMBER,
        1_000,
        "Maximum wait before reconnecting to a broker; the wait doubles with each failure.",
        low=0,
    )
    socket_connection_setup_timeout_ms: float = option(
        NUMBER, 10_000, "Maximum time to open a connection at the first attempt (KIP-601).", low=1
    )
    socket_connection_setup_timeout_max_ms: float = option(
        NUMBER,
        30_000,
        "Maximum time to open a connection after failures; the time-out doubles with each.",
        low=1,
    )
    connections_max_idle_ms: float = option(
        NUMBER,
        540_000,
        "Time without requests after which a connection is closed, at least 1; negative: never.",
    )
    metadata_max_age_ms: float = option(
        NUMBER, 300_000, "Time after which metadata is refreshed even without errors.", low=1
    )
    bootstrap_refused_timeout_ms: float = option(
        NUMBER,
        4_000,
        "Time for which every bootstrap server has to refuse connections, or its name has to be "
        "unknown, before start raises BootstrapError; each is tried at least three times. The "
        "token endpoint of OAUTHBEARER has the same time.",
        low=0,
        why="a wrong address is reported early; raise it where brokers start later than clients",
    )
    metadata_recovery_strategy: str = option(
        TEXT,
        "rebootstrap",
        'With "rebootstrap" the client returns to bootstrap_servers when no known broker responds '
        "(KIP-899), or when another broker or cluster responds at a broker's address (KIP-1242). "
        'With "none" it retries the known brokers, and brokers do not check that a connection '
        "has reached the right one.",
        choices=("rebootstrap", "none"),
    )
    metadata_recovery_rebootstrap_trigger_ms: float = option(
        NUMBER,
        300_000,
        "Time without metadata after which the client rebootstraps (KIP-1102).",
        low=0,
    )
    metadata_cluster_check_enable: bool = option(
        FLAG,
        True,
        "Name the expected cluster and broker in each connection to a known broker, so that "
        "another broker that responds there requires a rebootstrap (KIP-1242). Brokers before "
        'Kafka 4.4 do not check it, and with metadata_recovery_strategy="none" it has no effect.',
    )
    receive_buffer_memory: int = option(
        WHOLE,
        128 * 2**20,
        "Maximum bytes of responses being received, over all connections.",
        low=2**20,
        high=MAX_INT64,
        why="the bound on memory does not grow with the number of brokers",
    )
    allowed_broker_hosts: tuple[str, ...] | None = option(
        TEXTS,
        None,
        "Host name patterns (* and ?) of the brokers in metadata to connect to; None: any.",
        why="a broker must not be able to direct a client, and its credentials, to any host",
    )

    def __init__(
        self, servers: str | Sequence[str] = (), /, **options: Unpack[ClientOptions]
    ) -> None:
        servers, options = hide_secrets(servers), hide_secrets(options)
        self._set(servers, options)

    def _set(self, servers: object, options: Mapping[str, object]) -> None:
        """Check all options and store them."""
        rows = {row.name: row for row in dataclasses.fields(self)}
        if isinstance(servers, Mapping):
            name = type(self).__name__
            raise InvalidConfigurationError(
                f"{name} takes options by name, not as a dict: write {name}(**options), or give a "
                f"dict of Kafka's own names to {name}.from_properties(properties)"
            )
        if servers != () and "bootstrap_servers" in options:
            raise option_error(
                "bootstrap_servers", " is given twice, by position and by name: give it once"
            )
        given = {"bootstrap_servers": servers, **options}
        for name in given:
            if name not in rows:
                names = set(rows)
                raise unknown_option(name, names)
        self._complete(given)
        for name, row in rows.items():
            value = checked(row, given.get(name, row.default))
            object.__setattr__(self, name, value)  # The dataclass is frozen.
        self._check_together()
        self._check_given(given)

    def _check_given(self, given: Collection[str]) -> None:
        """Raise for options that must not be given with others, even with their default."""

    def _check_together(self) -> None:
        """Raise for options that contradict each other."""
        _at_most(self, "retry_backoff_ms", "retry_backoff_max_ms")
        _at_most(self, "reconnect_backoff_ms", "reconnect_backoff_max_ms")
        if 0 <= self.connections_max_idle_ms < 1:
            raise option_error(
                "connections_max_idle_ms",
                " must be at least 1, or negative so that idle connections are never closed",
                value=repr(self.connections_max_idle_ms),
            )
        _check_security(self)

    @classmethod
    def from_properties(cls, properties: Mapping[str, object]) -> Self:
        """Create a configuration from Java's property names.

        Args:
            properties: Values by option name with dots in place of underscores, as
                {"linger.ms": 5}. A str is converted to the option's type. docs/configuration.md
                lists the properties with another meaning.

        Raises:
            InvalidConfigurationError: A property is unknown or not supported, has a wrong type or
                value, or contradicts another. The message names it as it is written in
                `properties`, and other options with dots. For a property that sets another option
                (docs/configuration.md) it may have that option's name.
        """
        if not isinstance(properties, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidConfigurationError(
                "from_properties takes a dict of Java's names, not "
                f"{type(properties).__name__}: pass keyword options to the client's constructor"
            )
        properties = hide_secrets(properties)
        given: dict[str, object] = {}
        written: dict[str, str] = {}
        for key, value in properties.items():
            name = with_underscores(str(key))
            if name in given:
                raise InvalidConfigurationError(
                    f"{key} is given twice, under two spellings", option=name
                )
            given[name], written[name] = value, str(key)
        with options_written_as(PropertyNames(written), by_default=True):
            for name, value in given.items():
                if is_reference(value):
                    refuse_reference(name)
            read_security_properties(given)
            cls._read_java(given)
            rows = {row.name: row for row in dataclasses.fields(cls)}
            options: dict[str, Any] = {}
            for name, value in given.items():
                if name not in rows:
                    raise unknown_option(name, set(rows))
                options[name] = value_of_text(rows[name], value)
            return cls(**options)

    @classmethod
    def _read_java(cls, given: dict[str, object]) -> None:
        """Replace Java's properties that have another form here, in place."""

    @classmethod
    def _complete(cls, options: dict[str, object]) -> None:
        """Set options whose default depends on another option, in place."""


def _at_most(config: ClientConfig, name: str, limit: str) -> None:
    if getattr(config, name) > getattr(config, limit):
        raise option_error(name, f" must not be above {spell(limit)}")


def _check_security(config: ClientConfig) -> None:
    """Raise for options of TLS and SASL that contradict each other."""
    protocol = config.security_protocol
    tls, sasl = protocol.endswith("SSL"), protocol.startswith("SASL_")
    given = [
        row.name
        for row in dataclasses.fields(ClientConfig)
        if row.name.startswith(("ssl_", "sasl_")) and getattr(config, row.name) != row.default
    ]
    of_tls = [name for name in given if name.startswith("ssl_")]
    if config.sasl_oauthbearer_token_endpoint_url is not None and "ssl_cafile" in of_tls:
        of_tls.remove("ssl_cafile")  # which is for the issuer of tokens too
    of_sasl = [name for name in given if name.startswith("sasl_")]
    if of_tls and not tls:
        wanted = "SASL_SSL" if sasl or of_sasl else "SSL"
        raise option_error(
            of_tls[0],
            f" is given but {spell('security_protocol')} is {protocol}, which does not use TLS: "
            f"set {spell('security_protocol', wanted)}",
        )
    if of_sasl and not sasl:
        raise option_error(
            of_sasl[0],
            f" is given but {spell('security_protocol')} is {protocol}, which does not "
            f"authenticate by SASL: set {spell('security_protocol', 'SASL_SSL')}, or "
            "SASL_PLAINTEXT for listeners without TLS",
        )
    if sasl and config.sasl_mechanism is None:
        raise InvalidConfigurationError(
            f"{spell('security_protocol', protocol)} needs {spell('sasl_mechanism')}: name the one "
            f"that the brokers offer, of {', '.join(SASL_MECHANISMS)}",
            option="sasl_mechanism",
        )
    if config.ssl_context is not None and len(of_tls) > 1:
        other = next(name for name in of_tls if name != "ssl_context")
        raise option_error(
            other,
            f" is given besides {spell('ssl_context')}, which takes its place: load certificates "
            f"and keys into the context, or leave {spell('ssl_context')} out",
        )
    if config.ssl_certfile is None:
        for name in ("ssl_keyfile", "ssl_password"):
            if name in of_tls:
                raise option_error(
                    name,
                    f" is given without {spell('ssl_certfile')}: give the client's certificate "
                    f"too, or leave {spell(name)} out",
                )
    for version in config.ssl_enabled_protocols:
        if version not in TLS_VERSIONS:
            raise option_error(
                "ssl_enabled_protocols",
                f" has {version!r:.40}: only {' and '.join(TLS_VERSIONS)} are used, since older "
                "versions are broken",
            )
    _check_unused(config, of_sasl)


_EVERY_MECHANISM: Final = ("sasl_mechanism", "sasl_allow_plaintext")
_MECHANISM_OPTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "PLAIN": ("sasl_username", "sasl_password", "sasl_delegation_token"),
    "SCRAM-SHA-256": ("sasl_username", "sasl_password", "sasl_delegation_token"),
    "SCRAM-SHA-512": ("sasl_username", "sasl_password", "sasl_delegation_token"),
    "OAUTHBEARER": ("sasl_token_provider", "sasl_oauthbearer_"),
    "GSSAPI": ("sasl_kerberos_",),
    "AWS_MSK_IAM": (),
}
"""By mechanism: its options, or how they begin. An object as sasl_mechanism may use any."""


def _check_unused(config: ClientConfig, given: Iterable[str]) -> None:
    """Raise for an option that the mechanism does not use."""
    mechanism = config.sasl_mechanism
    used = _MECHANISM_OPTIONS.get(mechanism) if isinstance(mechanism, str) else None
    for name in given:
        if used is not None and not name.startswith((*_EVERY_MECHANISM, *used)):
            origin = ""
            if mechanism == "AWS_MSK_IAM":
                origin = ", since the credentials are those of the AWS environment"
            raise option_error(
                name,
                f" is given but {spell('sasl_mechanism', mechanism)} does not use it{origin}: "
                f"leave it out, or change {spell('sasl_mechanism')}",
            )
