"""Options of clients, producers and consumers: frozen dataclasses, validated when they are created.

Names are Kafka's in snake_case and keep Kafka's units (`_ms`, bytes). The code counts in seconds;
only `seconds()` converts. Each field carries its documentation and its bounds, which validation,
`from_properties` and the generated page docs/configuration.md read.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import inspect
import logging
import math
import operator
import os
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, Protocol, TypedDict, TypeVar, cast

from kafka_async.errors import InvalidConfigurationError
from kafka_async.foundation.arguments import PLAIN_FUNCTION, is_async
from kafka_async.java_security import (
    TLS_VERSIONS,
    is_reference,
    read_security_properties,
    refuse_reference,
)
from kafka_async.option_names import names_as_written, with_underscores
from kafka_async.secrets import HIDDEN, Secret
from kafka_async.types import Headers, Token

if TYPE_CHECKING:
    import ssl
    from typing import Self

    from typing_extensions import Unpack


class SerializerObject(Protocol):
    """Serializes keys or values, as the objects of `kafka_async.serde` do."""

    @property
    def serialize(self) -> Callable[..., bytes | str | None]:
        """Function of (value) or (topic, headers, value)."""
        ...


class DeserializerObject(Protocol):
    """Deserializes keys or values, as the objects of `kafka_async.serde` do."""

    @property
    def deserialize(self) -> Callable[..., Any]:
        """Function of (data) or (topic, headers, data)."""
        ...


Serializer = (
    Callable[[Any], "bytes | str | None"]
    | Callable[[str, Headers, Any], "bytes | str | None"]
    | SerializerObject
)
Deserializer = (
    Callable[[Any], Any] | Callable[[str, Headers, "bytes | None"], Any] | DeserializerObject
)
Partitioner = Callable[[str, "bytes | None", int], int]
TokenProvider = Callable[[], Awaitable[Token]]
SecretSource = Secret | Callable[[], str | Secret]
Compression = Literal["none", "gzip", "snappy", "lz4", "zstd"]

logger = logging.getLogger("kafka_async.config")

MAX_INT32 = 2**31 - 1
MAX_INT64 = 2**63 - 1
SECURITY_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
SASL_MECHANISMS: Final = (
    "PLAIN",
    "SCRAM-SHA-256",
    "SCRAM-SHA-512",
    "OAUTHBEARER",
    "GSSAPI",
    "AWS_MSK_IAM",
)
MECHANISMS_WITHOUT_PASSWORD: Final = ("OAUTHBEARER", "GSSAPI", "AWS_MSK_IAM")
_CALLABLE = "a function in place of Java's class"
_LOOP_WATCHDOG = (
    "Log a warning with the stack of what blocks the event loop, if it has not run for half of "
    "session_timeout_ms; recommended in production."
)
_LEVELS: Final = {"gzip": (-1, 9), "lz4": (0, 17), "zstd": (-131_072, 22)}
"""Lowest and highest `compression_level` of the codecs that have levels (KIP-390)."""
_JAVA_ASSIGNORS: Final = {
    "org.apache.kafka.clients.consumer.RangeAssignor": "range",
    "org.apache.kafka.clients.consumer.CooperativeStickyAssignor": "cooperative-sticky",
    "org.apache.kafka.clients.consumer.RoundRobinAssignor": "roundrobin",
    "org.apache.kafka.clients.consumer.StickyAssignor": "sticky",
}


def option(
    default: Any,
    doc: str,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: Sequence[object] | None = None,
    java: object = None,
    why: str = "",
) -> Any:
    """Return a dataclass field with the documentation and bounds of an option.

    Args:
        default: The default.
        doc: The effect of the option.
        low: The lowest value allowed.
        high: The highest value allowed.
        choices: The values allowed.
        java: The default of Java's client, where it has the option with another default.
        why: The reason for differing from Java's client.
    """
    facts = {"doc": doc, "low": low, "high": high, "choices": choices, "java": java, "why": why}
    return field(default=default, metadata=facts)


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


class ProducerOptions(ClientOptions, total=False):
    """Names the keyword arguments of a producer; see `ProducerConfig`."""

    acks: Literal[0, 1, -1, "all"]
    linger_ms: float
    batch_size: int
    buffer_memory: int
    max_block_ms: float
    delivery_timeout_ms: float
    max_in_flight_requests_per_connection: int
    max_request_size: int
    compression_type: Compression
    compression_level: int | None
    enable_idempotence: bool
    transactional_id: str | None
    transaction_timeout_ms: int
    partitioner: Partitioner | None
    partitioner_adaptive_partitioning_enable: bool
    partitioner_availability_timeout_ms: float
    metadata_max_idle_ms: float
    interceptors: Sequence[Any]
    key_serializer: Serializer | None
    value_serializer: Serializer | None


class ReaderOptions(ClientOptions, total=False):
    """Names the keyword arguments that consumers and share consumers have; see `ReaderConfig`."""

    group_id: str | None
    loop_watchdog: bool
    max_poll_interval_ms: int
    max_poll_records: int
    fetch_min_bytes: int
    fetch_max_wait_ms: int
    fetch_max_bytes: int
    key_deserializer: Deserializer | None
    value_deserializer: Deserializer | None


class ConsumerOptions(ReaderOptions, total=False):
    """Names the keyword arguments of a consumer; see `ConsumerConfig`."""

    group_instance_id: str | None
    group_protocol: Literal["classic", "consumer", "auto"]
    group_remote_assignor: str | None
    auto_offset_reset: str
    auto_offset_reset_new_partitions: Literal["earliest", "latest"]
    enable_auto_commit: bool
    auto_commit_interval_ms: float
    isolation_level: Literal["read_uncommitted", "read_committed"]
    session_timeout_ms: int
    heartbeat_interval_ms: int
    partition_assignment_strategy: Sequence[Any]
    interceptors: Sequence[Any]
    rebalance_min_interval_ms: int
    rewind_check_interval_ms: int
    rebalance_listener_timeout_ms: int
    max_partition_fetch_bytes: int
    fetch_buffer_memory: int
    allow_auto_create_topics: bool


class ShareConsumerOptions(ReaderOptions, total=False):
    """Names the keyword arguments of a share consumer; see `ShareConsumerConfig`."""

    share_acknowledgement_mode: Literal["implicit", "explicit"]
    share_acquire_mode: Literal["batch_optimized", "record_limit"]


class GroupMemberOptions(ClientOptions, total=False):
    """Names the keyword arguments of a group member; see `GroupMemberConfig`."""

    group_instance_id: str | None
    session_timeout_ms: int
    heartbeat_interval_ms: int
    rebalance_timeout_ms: int
    loop_watchdog: bool


@dataclass(frozen=True, init=False)
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

    bootstrap_servers: tuple[str, ...] = option((), "Brokers to connect to first, as host:port.")
    client_id: str = option(
        "kafka-async",
        "Name of the client in quotas, logs and metrics.",
        java="",
        why="brokers' logs show which library it is",
    )
    security_protocol: str = option(
        "PLAINTEXT", "Protocol of the connections to brokers.", choices=SECURITY_PROTOCOLS
    )
    ssl_context: Any = option(
        None,
        "An ssl.SSLContext, in place of the other ssl_* options.",
        why="Python's own object for TLS",
    )
    ssl_cafile: str | None = option(
        None,
        "Certificate authorities to trust: a file's path, or PEM text; None: the system's.",
    )
    ssl_certfile: str | None = option(
        None, "The client's certificate chain (mTLS): a file's path, or PEM text."
    )
    ssl_keyfile: Secret | None = option(
        None, "The private key of ssl_certfile: a file's path, or PEM text."
    )
    ssl_password: SecretSource | None = option(
        None, "Password of the private key, or a function that returns it."
    )
    ssl_check_hostname: bool = option(
        True, "Check that the broker's certificate is valid for the host name connected to."
    )
    ssl_enabled_protocols: tuple[str, ...] = option(
        TLS_VERSIONS, "Versions of TLS to use; older versions are never used."
    )
    sasl_mechanism: Any = option(
        None,
        "Mechanism of SASL: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, GSSAPI, AWS_MSK_IAM, "
        "or an object with the methods of "
        "kafka_async.client.security.sasl.mechanism.SaslMechanism.",
        java="GSSAPI",
        why="SASL without a mechanism is reported, not guessed",
    )
    sasl_username: str | None = option(None, "User name for PLAIN and SCRAM.")
    sasl_password: Secret | None = option(None, "Password for PLAIN and SCRAM; it is never shown.")
    sasl_allow_plaintext: bool = option(
        False,
        "Allow PLAIN, SCRAM and OAUTHBEARER over SASL_PLAINTEXT, which shows the credentials, or "
        "what an attacker can guess them from, to every reader of the network.",
        why="Java sends passwords over plaintext without a warning",
    )
    sasl_delegation_token: bool = option(
        False, "sasl_username and sasl_password are a delegation token's id and HMAC (KIP-48)."
    )
    sasl_token_provider: TokenProvider | None = option(
        None,
        "Coroutine function that returns a Token for OAUTHBEARER.",
        why="a function in place of Java's callback handler class",
    )
    sasl_oauthbearer_token_endpoint_url: str | None = option(
        None, "The https URL that issues tokens for client credentials (KIP-768)."
    )
    sasl_oauthbearer_client_credentials_client_id: str | None = option(
        None, "Client id at the token endpoint (KIP-1139)."
    )
    sasl_oauthbearer_client_credentials_client_secret: Secret | None = option(
        None, "Client secret at the token endpoint (KIP-1139); it is never shown."
    )
    sasl_oauthbearer_scope: str | None = option(None, "Scope to request at the token endpoint.")
    sasl_oauthbearer_extensions: Mapping[str, str] | None = option(
        None,
        "SASL extensions to send with a token from the endpoint, by name (KIP-342).",
        why="Java reads them from sasl.jaas.config",
    )
    sasl_oauthbearer_jwt_retriever: str = option(
        "client_credentials",
        "Grant to request tokens with: client credentials, or a signed assertion (JWT bearer, "
        "RFC 7523).",
        choices=("client_credentials", "jwt_bearer"),
        why="the grants by name, in place of Java's class sasl.oauthbearer.jwt.retriever.class",
    )
    sasl_oauthbearer_assertion_file: str | None = option(
        None,
        "File of a ready-made assertion, read again for each token; it takes the place of all "
        "other options of assertions (KIP-1139).",
    )
    sasl_oauthbearer_assertion_template_file: str | None = option(
        None,
        "JSON file with `header` and `payload` of the assertion, read again for each token "
        "(KIP-1139).",
    )
    sasl_oauthbearer_assertion_private_key_file: str | None = option(
        None, "PEM file of the private key that signs the assertion (KIP-1139)."
    )
    sasl_oauthbearer_assertion_private_key_passphrase: Secret | None = option(
        None, "Passphrase of the assertion's private key (KIP-1139); it is never shown."
    )
    sasl_oauthbearer_assertion_algorithm: str = option(
        "RS256", "Algorithm that signs the assertion (KIP-1139).", choices=("RS256", "ES256")
    )
    sasl_oauthbearer_assertion_claim_iss: str | None = option(
        None, "Issuer (iss) that the assertion names (KIP-1139)."
    )
    sasl_oauthbearer_assertion_claim_sub: str | None = option(
        None, "Subject (sub) that the assertion names (KIP-1139)."
    )
    sasl_oauthbearer_assertion_claim_aud: str | None = option(
        None, "Audience (aud) that the assertion names (KIP-1139)."
    )
    sasl_oauthbearer_assertion_claim_exp_seconds: int = option(
        300, "Seconds for which an assertion is valid (KIP-1139).", low=0, high=86_400
    )
    sasl_kerberos_service_name: str = option(
        "kafka",
        "Service name of the brokers' Kerberos principals, for GSSAPI.",
        java="",
        why="nearly every cluster has this name; Java requires it",
    )
    sasl_kerberos_principal: str | None = option(
        None,
        "Kerberos principal of this client; None: the default of the credential cache.",
        why="Java reads it from sasl.jaas.config",
    )
    sasl_kerberos_keytab: str | None = option(
        None,
        "Path of the keytab with the principal's key; None: the credential cache, as of kinit.",
        why="Java reads it from sasl.jaas.config",
    )
    client_rack: str = option(
        "", "Rack of this client, to fetch from the closest replica (KIP-392)."
    )
    request_timeout_ms: float = option(30_000, "Maximum time to wait for a response.", low=1)
    default_api_timeout_ms: float = option(
        60_000, "Maximum time of a call that is given no timeout, retries included.", low=1
    )
    close_timeout_ms: float = option(
        30_000,
        "Maximum time for an orderly close: flush, commit, leave the group and disconnect.",
        low=0,
        why="Java passes it to close(); 30 s is its default there",
    )
    retry_backoff_ms: float = option(100, "Wait before the first retry (KIP-580).", low=0)
    retry_backoff_max_ms: float = option(
        1_000, "Maximum wait before a retry; the wait doubles with each retry.", low=0
    )
    reconnect_backoff_ms: float = option(
        50, "Wait before reconnecting to a broker after the first failure.", low=0
    )
    reconnect_backoff_max_ms: float = option(
        1_000,
        "Maximum wait before reconnecting to a broker; the wait doubles with each failure.",
        low=0,
    )
    socket_connection_setup_timeout_ms: float = option(
        10_000, "Maximum time to open a connection at the first attempt (KIP-601).", low=1
    )
    socket_connection_setup_timeout_max_ms: float = option(
        30_000,
        "Maximum time to open a connection after failures; the time-out doubles with each.",
        low=1,
    )
    connections_max_idle_ms: float = option(
        540_000,
        "Time without requests after which a connection is closed, at least 1; negative: never.",
    )
    metadata_max_age_ms: float = option(
        300_000, "Time after which metadata is refreshed even without errors.", low=1
    )
    bootstrap_refused_timeout_ms: float = option(
        4_000,
        "Time for which every bootstrap server has to refuse connections, or its name has to be "
        "unknown, before start raises BootstrapError; each is tried at least three times. The "
        "token endpoint of OAUTHBEARER has the same time.",
        low=0,
        why="a wrong address is reported early; raise it where brokers start later than clients",
    )
    metadata_recovery_strategy: str = option(
        "rebootstrap",
        'With "rebootstrap" the client returns to bootstrap_servers when no known broker responds '
        "(KIP-899), or when another broker or cluster responds at a broker's address (KIP-1242). "
        'With "none" it retries the known brokers, and brokers do not check that a connection '
        "has reached the right one.",
        choices=("rebootstrap", "none"),
    )
    metadata_recovery_rebootstrap_trigger_ms: float = option(
        300_000, "Time without metadata after which the client rebootstraps (KIP-1102).", low=0
    )
    metadata_cluster_check_enable: bool = option(
        True,
        "Name the expected cluster and broker in each connection to a known broker, so that "
        "another broker that responds there requires a rebootstrap (KIP-1242). Brokers before "
        'Kafka 4.4 do not check it, and with metadata_recovery_strategy="none" it has no effect.',
    )
    receive_buffer_memory: int = option(
        128 * 2**20,
        "Maximum bytes of responses being received, over all connections.",
        low=2**20,
        high=MAX_INT64,
        why="the bound on memory does not grow with the number of brokers",
    )
    allowed_broker_hosts: tuple[str, ...] | None = option(
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
            raise InvalidConfigurationError(
                "bootstrap_servers is given twice, by position and by name: give it once"
            )
        given = {"bootstrap_servers": servers, **options}
        for name in given:
            if name not in rows:
                names = set(rows)
                raise _unknown_option(name, names)
        self._complete(given)
        for name, row in rows.items():
            value = _normal(row, given.get(name, row.default))
            _check(row, value)
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
            raise InvalidConfigurationError(
                f"connections_max_idle_ms={self.connections_max_idle_ms!r} must be at least 1, or "
                "negative so that idle connections are never closed"
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
                `properties`; one that sets another option (docs/configuration.md) may have that
                option's name.
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
                raise InvalidConfigurationError(f"{key} is given twice, under two spellings")
            if is_reference(value):
                refuse_reference(str(key))
            given[name], written[name] = value, str(key)
        with names_as_written(written):
            read_security_properties(given)
            cls._read_java(given)
            rows = {row.name: row for row in dataclasses.fields(cls)}
            options: dict[str, Any] = {}
            for name, value in given.items():
                if name not in rows:
                    raise _unknown_option(name, set(rows), java="." in written.get(name, ""))
                options[name] = _from_text(rows[name], value)
            return cls(**options)

    @classmethod
    def _read_java(cls, given: dict[str, object]) -> None:
        """Replace Java's properties that have another form here, in place."""

    @classmethod
    def _complete(cls, options: dict[str, object]) -> None:
        """Set options whose default depends on another option, in place."""


@dataclass(frozen=True, init=False)
class ProducerConfig(ClientConfig):
    """Holds the options of a producer; its arguments are like those of `ClientConfig`."""

    acks: Any = option(
        "all",
        "Replicas that must have written a record before it is acknowledged.",
        choices=(0, 1, -1, "all"),
    )
    linger_ms: float = option(
        5,
        "Maximum time to wait for more records before sending a batch. A batch with a delivery "
        "that a task awaits is sent as soon as its partition has no request in flight.",
        low=0,
    )
    batch_size: int = option(
        128 * 1024,
        "Maximum bytes of a batch before compression.",
        low=0,
        high=MAX_INT32,
        java=16_384,
        why="fewer, larger requests; memory is bounded by buffer_memory either way",
    )
    buffer_memory: int = option(
        32 * 2**20,
        "Maximum bytes of records that are not acknowledged yet.",
        low=1,
        high=MAX_INT64,
    )
    max_block_ms: float = option(
        60_000, "Maximum time that enqueue waits for memory, and a call for metadata.", low=0
    )
    delivery_timeout_ms: float = option(
        120_000, "Maximum time from enqueue to the outcome, retries included (KIP-91).", low=1
    )
    max_in_flight_requests_per_connection: int = option(
        5, "Maximum produce requests in flight on one connection.", low=1, high=1000
    )
    max_request_size: int = option(
        2**20, "Maximum bytes of a request, and of a record.", low=1, high=MAX_INT32
    )
    compression_type: str = option(
        "none", "Codec of record batches.", choices=("none", "gzip", "snappy", "lz4", "zstd")
    )
    compression_level: int | None = option(
        None,
        "Level of the codec; None: its default (KIP-390).",
        why="Java has an option for each codec",
    )
    enable_idempotence: bool = option(True, "Write each record exactly once and in order (KIP-98).")
    transactional_id: str | None = option(
        None, "Id of a transactional producer, which stays the same after a restart (KIP-98)."
    )
    transaction_timeout_ms: int = option(
        60_000,
        "Time after which the coordinator aborts an open transaction.",
        low=1,
        high=MAX_INT32,
    )
    partitioner: Partitioner | None = option(
        None,
        "Function of (topic, key, number of partitions) that returns the partition; None: murmur2 "
        "of the key, or sticky without a key.",
        why="a function in place of Java's partitioner.class",
    )
    partitioner_adaptive_partitioning_enable: bool = option(
        True,
        "Send fewer records without a key to partitions with long queues (KIP-794). Without effect "
        "with a partitioner.",
    )
    partitioner_availability_timeout_ms: float = option(
        0,
        "Time for which a broker may accept none of the batches that wait for it, before records "
        "without a key go to partitions of other brokers (KIP-794); 0: no limit. Without effect "
        "with a partitioner, and without partitioner_adaptive_partitioning_enable.",
        low=0,
    )
    metadata_max_idle_ms: float = option(
        300_000,
        "Time after its last record from which on the metadata of a topic is no longer refreshed "
        "(KIP-526); its next record fetches it again.",
        low=5_000,
    )
    interceptors: tuple[Any, ...] = option(
        (),
        "Objects of classes derived from kafka_async.producer.interceptors.ProducerInterceptor, "
        "which change records and learn their outcome (KIP-42).",
        why="objects in place of Java's interceptor.classes",
    )
    key_serializer: Serializer | None = option(
        None,
        "Function of (key) or (topic, headers, key) that returns bytes or str, or an object of "
        "kafka_async.serde.",
        why=f"{_CALLABLE}; without one, keys are bytes",
    )
    value_serializer: Serializer | None = option(
        None,
        "Function of (value) or (topic, headers, value) that returns bytes or str, or an object of "
        "kafka_async.serde.",
        why=f"{_CALLABLE}; without one, values are bytes",
    )

    def __init__(
        self, servers: str | Sequence[str] = (), /, **options: Unpack[ProducerOptions]
    ) -> None:
        servers, options = hide_secrets(servers), hide_secrets(options)
        self._set(servers, options)

    @classmethod
    def _read_java(cls, given: dict[str, object]) -> None:
        levels = {codec: given.pop(f"compression_{codec}_level", None) for codec in _LEVELS}
        codec = given.get("compression_type")
        level = levels.get(codec) if isinstance(codec, str) else None
        if level is not None:
            if "compression_level" in given:
                raise InvalidConfigurationError(
                    f"compression.{codec}.level and compression.level are the same: give one"
                )
            given["compression_level"] = level

    @classmethod
    def _complete(cls, options: dict[str, object]) -> None:
        """Turn idempotence off for acks of 0 and 1, unless it was set explicitly (KIP-679).

        With a transactional id it stays on, so that the error names acks and transactional_id.
        """
        if options.keys() & {"enable_idempotence", "transactional_id"}:
            return
        if (acks := options.get("acks")) in (0, 1) and _is_whole(acks):
            options["enable_idempotence"] = False
            logger.info(
                "idempotence is off, since acks=%d excludes it: set enable_idempotence=False to "
                'say so, or acks="all"',
                acks,
            )

    def _check_together(self) -> None:
        super()._check_together()
        low, high = _LEVELS.get(self.compression_type, (-MAX_INT32, MAX_INT32))
        if self.compression_level is not None and not low <= self.compression_level <= high:
            raise InvalidConfigurationError(
                f"compression_level={self.compression_level!r} must be from {low} to {high} for "
                f'compression_type="{self.compression_type}"'
            )
        if self.transactional_id is not None and not self.enable_idempotence:
            raise InvalidConfigurationError(
                "transactional_id needs enable_idempotence=True: leave enable_idempotence out"
            )
        if self.transactional_id is not None and self.acks not in ("all", -1):
            raise InvalidConfigurationError(
                f'acks={self.acks!r} contradicts transactional_id, which needs acks="all": leave '
                "acks out"
            )
        if self.enable_idempotence and self.acks not in ("all", -1):
            raise InvalidConfigurationError(
                f'acks={self.acks!r} contradicts enable_idempotence=True: take acks="all", '
                "or enable_idempotence=False"
            )
        if self.enable_idempotence and self.max_in_flight_requests_per_connection > 5:
            raise InvalidConfigurationError(
                "enable_idempotence=True allows at most "
                "max_in_flight_requests_per_connection=5, since brokers remember five batches: "
                "lower it, or enable_idempotence=False"
            )
        if self.delivery_timeout_ms < self.linger_ms + self.request_timeout_ms:
            raise InvalidConfigurationError(
                "delivery_timeout_ms must be at least linger_ms + request_timeout_ms"
            )


@dataclass(frozen=True, init=False)
class ReaderConfig(ClientConfig):
    """Holds the options that consumers and share consumers have."""

    group_id: str | None = option(
        None, "Group to join; None: no group, no commits. A share consumer needs one."
    )
    loop_watchdog: bool = option(
        False, _LOOP_WATCHDOG, why="Java sends heartbeats from a thread, which nothing blocks"
    )
    max_poll_interval_ms: int = option(
        300_000,
        "Time without a poll after which the member leaves the group.",
        low=1,
        high=MAX_INT32,
    )
    max_poll_records: int = option(
        500, "Maximum records that one poll returns.", low=1, high=MAX_INT32
    )
    fetch_min_bytes: int = option(
        1, "Minimum bytes a broker collects before it answers a fetch.", low=0, high=MAX_INT32
    )
    fetch_max_wait_ms: int = option(
        500, "Maximum time a broker waits for fetch_min_bytes.", low=0, high=MAX_INT32
    )
    fetch_max_bytes: int = option(
        50 * 2**20, "Maximum bytes of a fetch response.", low=1, high=100 * 2**20
    )
    key_deserializer: Deserializer | None = option(
        None,
        "Function of (bytes) or (topic, headers, bytes) that returns the key, or an object of "
        "kafka_async.serde.",
        why=f"{_CALLABLE}; without one, keys are bytes",
    )
    value_deserializer: Deserializer | None = option(
        None,
        "Function of (bytes) or (topic, headers, bytes) that returns the value, or an object of "
        "kafka_async.serde.",
        why=f"{_CALLABLE}; without one, values are bytes",
    )

    def _check_together(self) -> None:
        super()._check_together()
        if self.group_id == "":
            raise InvalidConfigurationError(
                "group_id is empty: name the group, or leave the option out for a consumer without "
                "a group"
            )


@dataclass(frozen=True, init=False)
class ConsumerConfig(ReaderConfig):
    """Holds the options of a consumer; its arguments are like those of `ClientConfig`."""

    group_instance_id: str | None = option(None, "Id of a static member (KIP-345).")
    group_protocol: str = option(
        "classic",
        'Protocol of the group: with "consumer" the coordinator computes the assignment (KIP-848); '
        '"auto" takes "consumer" for a group without members or of that protocol, if the brokers '
        "have it and no option of the classic protocol only is given.",
        choices=("classic", "consumer", "auto"),
    )
    group_remote_assignor: str | None = option(
        None,
        'Assignor of the coordinator ("uniform" or "range") with group_protocol="consumer"; None: '
        "the coordinator's default.",
    )
    auto_offset_reset: str = option(
        "latest",
        "Position to start from without a committed offset, and after one that is out of range; "
        '"none" raises, and "by_duration:PT1H" starts at the records of the last hour (KIP-1106).',
        choices=("earliest", "latest", "none", "by_duration:PnDTnHnMn.nS"),
    )
    auto_offset_reset_new_partitions: str = option(
        "earliest",
        "Position to start from in a partition that was added to a topic, if auto_offset_reset is "
        '"latest".',
        choices=("earliest", "latest"),
        java="latest",
        why="records written before the consumer discovers the partition are not skipped",
    )
    enable_auto_commit: bool = option(
        True, "Commit the offsets of returned records periodically, and before partitions move."
    )
    auto_commit_interval_ms: float = option(5_000, "Time between automatic commits.", low=1)
    isolation_level: str = option(
        "read_uncommitted",
        'With "read_committed", records of open and aborted transactions are not returned.',
        choices=("read_uncommitted", "read_committed"),
    )
    session_timeout_ms: int = option(
        45_000,
        "Time without heartbeats after which the coordinator removes the member.",
        low=1,
        high=MAX_INT32,
    )
    heartbeat_interval_ms: int = option(
        3_000, "Time between heartbeats to the coordinator.", low=1, high=MAX_INT32
    )
    interceptors: tuple[Any, ...] = option(
        (),
        "Objects of classes derived from kafka_async.consumer.interceptors.ConsumerInterceptor, "
        "which change or drop records and learn which offsets were committed (KIP-42).",
        why="objects in place of Java's interceptor.classes",
    )
    partition_assignment_strategy: tuple[Any, ...] = option(
        ("range", "cooperative-sticky"),
        "Assignors, the preferred first: names, classes or objects.",
    )
    rebalance_min_interval_ms: int = option(
        0,
        "Minimum time between a rebalance and one that the leader starts for changed topics.",
        low=0,
        high=MAX_INT32,
    )
    rewind_check_interval_ms: int = option(
        0,
        "Interval at which a member of the consumer protocol checks whether another member rewinds "
        'its partitions; 0: it does not check. Refused with group_protocol="classic", which '
        "needs no such interval.",
        low=0,
        high=MAX_INT32,
        why="it costs one more request to a coordinator for each interval and member",
    )
    rebalance_listener_timeout_ms: int = option(
        60_000,
        "Maximum time for a callback of a rebalance listener; it is cancelled then, and the "
        "rebalance continues.",
        low=1,
        high=MAX_INT32,
        why="a callback that never ends would stop the consumer",
    )
    max_partition_fetch_bytes: int = option(
        2**20, "Maximum bytes of one partition in a fetch response.", low=1, high=MAX_INT32
    )
    fetch_buffer_memory: int = option(
        64 * 2**20,
        "Bytes fetched and not returned yet at which fetching pauses.",
        low=1,
        high=MAX_INT64,
        why="Java's bound grows with the number of brokers",
    )
    allow_auto_create_topics: bool = option(
        True, "Allow subscribing to create a topic, if the cluster allows it."
    )

    _classic_only_options: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self, servers: str | Sequence[str] = (), /, **options: Unpack[ConsumerOptions]
    ) -> None:
        servers, options = hide_secrets(servers), hide_secrets(options)
        self._set(servers, options)

    @classmethod
    def _read_java(cls, given: dict[str, object]) -> None:
        assignors = given.get("partition_assignment_strategy")
        if isinstance(assignors, str):
            given["partition_assignment_strategy"] = tuple(
                _JAVA_ASSIGNORS.get(name, name) for name in _split(assignors)
            )

    def _check_together(self) -> None:
        super()._check_together()
        _check_heartbeat_interval(self)
        _check_instance_id(self)
        if self.group_instance_id is not None and self.group_id is None:
            raise InvalidConfigurationError("group_instance_id needs a group_id")
        if self.group_protocol == "classic" and self.group_remote_assignor is not None:
            raise InvalidConfigurationError(
                'group_remote_assignor needs group_protocol="consumer": members of the classic '
                "protocol assign partitions themselves, by partition_assignment_strategy"
            )
        if self.group_protocol == "classic" and self.rewind_check_interval_ms:
            raise InvalidConfigurationError(
                'rewind_check_interval_ms needs group_protocol="consumer" or "auto": members of '
                "the classic protocol learn of rewinds without it"
            )

    @property
    def classic_only_options(self) -> tuple[str, ...]:
        """Names of the options given that only members of the classic group protocol have."""
        return self._classic_only_options

    def _check_given(self, given: Collection[str]) -> None:
        classic_only = tuple(name for name in _CLASSIC_OPTIONS if name in given)
        object.__setattr__(self, "_classic_only_options", classic_only)
        if not classic_only or self.group_protocol == "classic":
            return
        name = classic_only[0]
        if self.group_protocol == "consumer":
            raise InvalidConfigurationError(
                f'{name} is not for group_protocol="consumer": {_CLASSIC_OPTIONS[name]}'
            )
        if self.group_remote_assignor is not None:
            raise InvalidConfigurationError(
                f"{name} and group_remote_assignor exclude each other: the first is for the "
                'classic group protocol only, the second for group_protocol="consumer" only'
            )


@dataclass(frozen=True, init=False)
class ShareConsumerConfig(ReaderConfig):
    """Holds the options of a share consumer; its arguments are like those of `ClientConfig`."""

    share_acknowledgement_mode: str = option(
        "implicit",
        'With "implicit", the next poll accepts the records of the last one; with "explicit", the '
        "application acknowledges each record (KIP-932).",
        choices=("implicit", "explicit"),
    )
    share_acquire_mode: str = option(
        "batch_optimized",
        'With "batch_optimized", brokers acquire whole batches, which may have more records than a '
        'poll returns; with "record_limit", never more than that (KIP-1206).',
        choices=("batch_optimized", "record_limit"),
    )

    def __init__(
        self, servers: str | Sequence[str] = (), /, **options: Unpack[ShareConsumerOptions]
    ) -> None:
        servers, options = hide_secrets(servers), hide_secrets(options)
        self._set(servers, options)


@dataclass(frozen=True, init=False)
class GroupMemberConfig(ClientConfig):
    """Holds the options of a group member; its arguments are like those of `ClientConfig`."""

    group_instance_id: str | None = option(None, "Id of a static member (KIP-345).")
    session_timeout_ms: int = option(
        10_000,
        "Time without heartbeats after which the coordinator removes the member.",
        low=1,
        high=MAX_INT32,
    )
    heartbeat_interval_ms: int = option(
        3_000, "Time between heartbeats to the coordinator.", low=1, high=MAX_INT32
    )
    rebalance_timeout_ms: int = option(
        60_000,
        "Maximum time the coordinator waits for the members to join again in a rebalance.",
        low=1,
        high=MAX_INT32,
    )
    loop_watchdog: bool = option(
        False, _LOOP_WATCHDOG, why="Java sends heartbeats from a thread, which nothing blocks"
    )

    def __init__(
        self, servers: str | Sequence[str] = (), /, **options: Unpack[GroupMemberOptions]
    ) -> None:
        servers, options = hide_secrets(servers), hide_secrets(options)
        self._set(servers, options)

    def _check_together(self) -> None:
        super()._check_together()
        _check_heartbeat_interval(self)
        _check_instance_id(self)


_CLASSIC_OPTIONS: Final = {
    "session_timeout_ms": "the group has it, as consumer.session.timeout.ms",
    "heartbeat_interval_ms": "the group has it, as consumer.heartbeat.interval.ms",
    "partition_assignment_strategy": "the coordinator assigns, by group_remote_assignor",
}
"""Options of the classic protocol only, and what replaces each in the consumer protocol."""

ConfigT = TypeVar("ConfigT", bound=ClientConfig)
GivenT = TypeVar("GivenT")

_ROWS: Final = {
    row.name: row
    for role in (
        *(ClientConfig, GroupMemberConfig, ProducerConfig),
        *(ShareConsumerConfig, ConsumerConfig),
    )
    for row in dataclasses.fields(role)
}
_PUBLIC_IN_JAVA: Final = frozenset(
    {
        *(f"compression_{codec}_level" for codec in _LEVELS),
        "sasl_client_callback_handler_class",
        "sasl_kerberos_kinit_cmd",
        "sasl_kerberos_min_time_before_relogin",
        "sasl_kerberos_service_name",
        "sasl_kerberos_ticket_renew_jitter",
        "sasl_kerberos_ticket_renew_window_factor",
        "sasl_login_callback_handler_class",
        "sasl_login_class",
        "sasl_oauthbearer_client_id",
        "sasl_oauthbearer_jwks_endpoint_url",
        "sasl_oauthbearer_jwt_retriever_class",
        "sasl_oauthbearer_jwt_validator_class",
        "ssl_cipher_suites",
        "ssl_enabled_protocols",
        "ssl_endpoint_identification_algorithm",
        "ssl_engine_factory_class",
        "ssl_keymanager_algorithm",
        "ssl_keystore_certificate_chain",
        "ssl_keystore_location",
        "ssl_keystore_type",
        "ssl_protocol",
        "ssl_provider",
        "ssl_secure_random_implementation",
        "ssl_trustmanager_algorithm",
        "ssl_truststore_certificates",
        "ssl_truststore_location",
        "ssl_truststore_type",
    }
)
"""Properties of Java's client that are no options here and hold no secret."""
_PATHS: Final = frozenset(
    {
        "ssl_cafile",
        "ssl_certfile",
        "ssl_keyfile",
        "ssl_keystore_location",
        "ssl_truststore_location",
        "sasl_kerberos_keytab",
        "sasl_oauthbearer_assertion_file",
        "sasl_oauthbearer_assertion_private_key_file",
        "sasl_oauthbearer_assertion_template_file",
    }
)
"""Options and properties of Java's client that take the path of a file, also as os.PathLike."""
_PRIVATE_KEY: Final = "PRIVATE KEY-----"
"""A part of PEM texts with a private key, which may be given as an option that is not secret."""
_WRONG_TYPES: Final = frozenset({bytes, bytearray, int, float, list, tuple, dict, set, frozenset})


def hide_secrets(given: GivenT) -> GivenT:
    """Return options or properties with their secrets wrapped; return other values unchanged.

    Functions that are given options call this before they can raise, since a traceback may show
    their variables. The values of unknown names are wrapped too: a name may be misspelled.
    """
    if not isinstance(given, Mapping):
        return given
    options = cast("Mapping[object, object]", given)
    return cast("GivenT", {name: hide_secret(str(name), value) for name, value in options.items()})


def hide_secret(name: str, value: object) -> Any:
    """Return the value of an option or argument, wrapped if it is a secret."""
    name = with_underscores(name)
    row = _ROWS.get(name)
    if name in _PATHS and isinstance(value, os.PathLike):
        value = cast("object", os.fspath(value))  # pyright: ignore[reportUnknownArgumentType]
    if isinstance(value, str) and _PRIVATE_KEY in value:
        return Secret(value)
    if name in _PUBLIC_IN_JAVA or (row is not None and "Secret" not in str(row.type)):
        return value
    if isinstance(value, str):
        return Secret(value)
    # The error of a value of a wrong type shows the type, and must not have the value.
    return type(value)() if type(value) in _WRONG_TYPES else value


def resolve_config(
    role: type[ConfigT],
    servers: str | Sequence[str] | None,
    config: ConfigT | None,
    options: Mapping[str, Any],
    *,
    shared: ClientConfig | None = None,
) -> ConfigT:
    """Return the configuration that the arguments of a client's constructor give.

    Args:
        role: The class of the configuration.
        servers: Addresses of brokers.
        config: The configuration, instead of options.
        options: The options.
        shared: The configuration of a shared client, instead of servers.

    Raises:
        InvalidConfigurationError: As for `ClientConfig`; or there are options besides `config`,
            connection options besides a shared client, or a configuration in place of servers.
    """
    if isinstance(servers, ClientConfig):
        raise InvalidConfigurationError(
            f"give a configuration by name: config={role.__name__}(...)"
        )
    if config is not None:
        _check_config(role, servers, config, options, shared)
        return config
    if shared is not None:
        inherited = {
            row.name: getattr(shared, row.name) for row in dataclasses.fields(ClientConfig)
        }
        for name in options.keys() & inherited.keys():
            raise _belongs_to_shared_client(name)
        return role(**inherited, **options)
    return role(**options) if servers is None else role(servers, **options)


def _check_config(
    role: type[ConfigT],
    servers: str | Sequence[str] | None,
    config: ConfigT,
    options: Mapping[str, Any],
    shared: ClientConfig | None,
) -> None:
    """Raise for arguments that contradict `config`."""
    if not isinstance(config, role):
        if isinstance(cast("object", config), ClientConfig):
            raise InvalidConfigurationError(
                f"config must be a {role.__name__}, not a {type(config).__name__}"
            )
        raise InvalidConfigurationError(
            f"config={config!r:.100} must be a {role.__name__}: from_properties takes Java's names"
        )
    for name in options:
        raise InvalidConfigurationError(
            f"{name} is given besides config=: put it into the configuration, as "
            f"dataclasses.replace(config, {name}=...)"
        )
    if shared is not None:
        for row in dataclasses.fields(ClientConfig):
            if getattr(config, row.name) != getattr(shared, row.name):
                raise _belongs_to_shared_client(row.name)
    elif servers is not None and parse_servers(servers) != config.bootstrap_servers:
        raise InvalidConfigurationError(
            f"bootstrap_servers={servers!r:.100} contradicts config=, which has "
            f"{','.join(config.bootstrap_servers)!r}: leave the servers out"
        )


def _belongs_to_shared_client(name: str) -> InvalidConfigurationError:
    return InvalidConfigurationError(
        f"{name} belongs to the shared Client: give it to the Client, not here"
    )


def seconds(milliseconds: float) -> float:
    """Convert an option's milliseconds to the seconds that the code counts in."""
    return milliseconds / 1000


def request_ms(duration: float) -> int:
    """Convert seconds to the milliseconds of a request, which are int32, and 24 days at most.

    Longer times, infinity included, become the longest one, and no time above 0 becomes 0, which
    brokers take for a request that must not wait.
    """
    if duration <= 0:
        return 0
    return max(1, round(min(duration * 1000, MAX_INT32)))


_SERVER = re.compile(r"(?:PLAINTEXT://)?(\[[^\]]+\]|[^\s:/\[\]]+):(\d{1,5})")


def parse_servers(servers: str | Sequence[str]) -> tuple[str, ...]:
    """Return checked "host:port" texts of "a:9092, b:9092" or of a sequence of such texts."""
    found = tuple(
        server for entry in _entries("bootstrap_servers", servers) for server in _split(entry)
    )
    if not found:
        raise InvalidConfigurationError(
            'bootstrap_servers is empty: name at least one broker, as "localhost:9092"'
        )
    return tuple("{}:{}".format(*split_server(server)) for server in found)


def split_server(server: str) -> tuple[str, int]:
    """Split "host:port", "[::1]:port" or "PLAINTEXT://host:port"; raise for anything else."""
    match = _SERVER.fullmatch(server)
    if match is None and "://" in server:
        raise InvalidConfigurationError(
            f'"{server}" in bootstrap_servers names a protocol, which an address does not choose: '
            f"write host:port, and {_protocol_advice(server)}"
        )
    if match is None or not 0 < int(match[2]) < 65536:
        raise InvalidConfigurationError(
            f'"{server}" in bootstrap_servers is no address: write host:port, as "localhost:9092"'
        )
    return match[1], int(match[2])


def _protocol_advice(server: str) -> str:
    named = server.partition("://")[0].upper()
    if named in ("SASL_SSL", "SASL_PLAINTEXT"):
        return f'security_protocol="{named}"'
    return 'security_protocol="SSL" for TLS, or "SASL_SSL" for TLS with SASL'


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _entries(name: str, value: object) -> tuple[str, ...]:
    """Return the texts of an option that takes a list, or one text with commas."""
    if isinstance(value, str):
        return tuple(_split(value))
    if isinstance(value, list | tuple | set | frozenset):
        entries = tuple(cast("Iterable[object]", value))
        if all(isinstance(entry, str) for entry in entries):
            return cast("tuple[str, ...]", entries)
    raise InvalidConfigurationError(
        f"{name}={value!r:.100} must be a list of str, or one str with commas between"
    )


_SECRET_TYPES: Final = frozenset({"Secret | None", "SecretSource | None"})


def _normal(row: dataclasses.Field[Any], value: object) -> object:
    """Return the value in the form that the field stores: lists become tuples, numbers int."""
    if row.name == "bootstrap_servers":
        return parse_servers(cast("Sequence[str]", value))
    if str(row.type) in _SECRET_TYPES and isinstance(value, str):
        return Secret(value)
    kind = str(row.type)
    if kind.removesuffix(" | None") in ("int", "float"):
        return _normal_number(value, kind)
    if not kind.startswith("tuple[") or (value is None and kind.endswith(" | None")):
        return value
    if kind == "tuple[Any, ...]" and isinstance(value, list | tuple):
        entries = tuple(cast("Iterable[object]", value))
    elif kind == "tuple[Any, ...]" and not isinstance(value, str):
        raise InvalidConfigurationError(
            f"{row.name}={value!r:.100} must be a list or a tuple: write {row.name}=[...]"
        )
    else:
        entries = _entries(row.name, value)
    if not entries and row.default != ():
        raise InvalidConfigurationError(f"{row.name} is empty: name at least one, or leave it out")
    return entries


def _normal_number(value: object, kind: str) -> object:
    """Return an int for an object with `__index__`, as numpy's integers; else the value.

    Milliseconds that no float has are infinity.
    """
    if isinstance(value, bool | float):
        return value
    try:
        number = operator.index(cast("Any", value))
    except TypeError:
        return value
    if kind == "float" and abs(number) > MAX_INT64:
        return math.inf if number > 0 else -math.inf
    return number


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return _is_whole(value) or (isinstance(value, float) and not math.isnan(value))


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


def _serializes(value: object) -> bool:
    return callable(value) or callable(getattr(value, "serialize", None))


def _deserializes(value: object) -> bool:
    return callable(value) or callable(getattr(value, "deserialize", None))


_KINDS: Final[Mapping[str, tuple[Callable[[object], bool], str]]] = {
    "bool": (_is_flag, "True or False"),
    "int": (_is_whole, "a whole number (int)"),
    "float": (_is_number, "a number"),
    "str": (_is_text, "a str"),
    "Serializer": (_serializes, "a function or an object of kafka_async.serde"),
    "Deserializer": (_deserializes, "a function or an object of kafka_async.serde"),
    "Mapping[str, str]": (lambda value: isinstance(value, Mapping), "a dict"),
    "Partitioner": (callable, "a function"),
    "TokenProvider": (callable, "a coroutine function"),
    "Secret": (lambda value: isinstance(value, Secret), "a str or a Secret"),
    "SecretSource": (
        lambda value: isinstance(value, Secret) or callable(value),
        "a str, a Secret or a function that returns one",
    ),
}
"""By annotation of an option: the check of its type, and the name of the type in messages."""


BY_DURATION: Final = "by_duration:"
_DURATION: Final = re.compile(
    r"(?P<sign>[-+]?)P(?:(?P<days>[-+]?\d+)D)?"
    r"(?P<time>T(?:(?P<hours>[-+]?\d+)H)?(?:(?P<minutes>[-+]?\d+)M)?"
    r"(?:(?P<seconds>[-+]?\d+(?:[.,]\d{0,9})?)S)?)?",
    re.IGNORECASE | re.ASCII,
)
_DURATION_UNITS: Final = {"days": 86_400, "hours": 3_600, "minutes": 60, "seconds": 1}


def _check(row: dataclasses.Field[Any], value: object) -> None:
    kind = str(row.type)
    if value is None and kind.endswith(" | None"):
        return
    if isinstance(value, Secret):
        _check_secret(row, value)
    choices, low, high = row.metadata["choices"], row.metadata["low"], row.metadata["high"]
    is_policy = row.name == "auto_offset_reset" and isinstance(value, str)
    if is_policy and reset_duration(str(value)) is not None:
        return
    if choices is not None and (type(value), value) not in [(type(one), one) for one in choices]:
        allowed = ", ".join(map(repr, choices))
        raise InvalidConfigurationError(
            f"{row.name}={value!r:.100} is not one of {allowed}{_nearest(value, choices)}"
        )
    accepts, words = _KINDS.get(kind.removesuffix(" | None"), (None, ""))
    if accepts is not None and not accepts(value):
        # A token may be given in place of its provider.
        hidden = kind.startswith(("Secret", "TokenProvider")) or _may_be_key(row.name, value)
        shown = HIDDEN if hidden else f"{value!r:.100}"
        raise InvalidConfigurationError(
            f"{row.name}={shown} must be {words}, not {type(value).__name__}"
        )
    if row.name == "partitioner" and is_async(value):
        raise InvalidConfigurationError(
            f"partitioner is async, and is called without waiting: {PLAIN_FUNCTION}"
        )
    if row.name == "ssl_context" and value is not None:
        _check_ssl_context(value)
    if row.name == "sasl_mechanism" and value is not None:
        _check_mechanism(value)
    if row.name == "sasl_token_provider" and value is not None:
        _check_token_provider(cast("Callable[..., object]", value))
    number = cast("float", value)
    if (low is not None and number < low) or (high is not None and number > high):
        bounds = f"at least {low}" if high is None else f"from {low} to {high}"
        raise InvalidConfigurationError(f"{row.name}={value!r} must be {bounds}")


def reset_duration(policy: str) -> float | None:
    """Return the seconds of a reset policy such as "by_duration:P1DT2H" (KIP-1106).

    None for another policy. Raises InvalidConfigurationError for a duration that Java's
    `Duration.parse` does not accept, or that is negative.
    """
    if not policy.startswith(BY_DURATION):
        return None
    found = _DURATION.fullmatch(policy.removeprefix(BY_DURATION))
    if found is None or found["time"] == "T" or not any(found.group(*_DURATION_UNITS)):
        raise InvalidConfigurationError(
            f"auto_offset_reset={policy!r:.100} has no duration of the form PnDTnHnMn.nS, as in "
            "by_duration:PT1H or by_duration:P1DT12H"
        )
    total = sum(
        float((found[unit] or "0").replace(",", ".")) * length
        for unit, length in _DURATION_UNITS.items()
    )
    if found["sign"] == "-":
        total = -total
    if total < 0:
        raise InvalidConfigurationError(
            f"auto_offset_reset={policy!r:.100} has a negative duration, and records of the future "
            "cannot be read"
        )
    return total


def _may_be_key(name: str, value: object) -> bool:
    """Return whether bytes, which no option takes, may be a private key."""
    given_as_file = isinstance(value, bytes) and name.startswith("ssl_")
    return given_as_file or (isinstance(value, bytes) and _PRIVATE_KEY.encode() in value)


def _check_secret(row: dataclasses.Field[Any], value: Secret) -> None:
    if "Secret" not in str(row.type) and _PRIVATE_KEY in value.reveal():
        advice = "leave it out, change the key if others have seen it, and give it as ssl_keyfile"
        if row.name in ("ssl_cafile", "ssl_certfile"):
            advice = f"give the key's text as ssl_keyfile, and only the certificates as {row.name}"
        elif row.name.startswith("sasl_oauthbearer_assertion_"):
            advice = (
                "it takes the path of a file, not the key's text: write the text to a file "
                "that only this user can read, and give its path"
            )
        raise InvalidConfigurationError(f"{row.name} contains a private key: {advice}")


def _nearest(value: object, choices: Sequence[object]) -> str:
    """Return a question for the choice that a value resembles; nothing if none does.

    Case and the separators "-" and "_" do not count.
    """
    if not isinstance(value, str):
        return ""
    names = {each.casefold().replace("_", "-"): each for each in choices if isinstance(each, str)}
    near = difflib.get_close_matches(value.strip().casefold().replace("_", "-"), names, 1, 0.8)
    return f": did you mean {names[near[0]]}?" if near else ""


def _check_mechanism(value: object) -> None:
    """Raise unless this is a mechanism's name or an object with the methods of SaslMechanism."""
    if isinstance(value, str):
        if value in SASL_MECHANISMS:
            return
        raise InvalidConfigurationError(
            f"sasl_mechanism={value!r:.100} is not one of {', '.join(SASL_MECHANISMS)}"
            f"{_nearest(value, SASL_MECHANISMS)}"
        )
    named = isinstance(getattr(value, "name", None), str)
    if isinstance(value, type) or not named or not callable(getattr(value, "authenticate", None)):
        raise InvalidConfigurationError(
            f"sasl_mechanism={value!r:.100} must be one of {', '.join(SASL_MECHANISMS)}, or an "
            "object with the attributes of kafka_async.client.security.sasl.mechanism.SaslMechanism"
        )


def _check_token_provider(provider: Callable[..., object]) -> None:
    """Raise for a provider that certainly returns no awaitable, or that needs arguments.

    Whether another function without `async def` returns an awaitable is known at its first call.
    """
    function = provider
    while isinstance(function, functools.partial):
        function = function.func
    if not isinstance(function, type) and not inspect.isroutine(function):
        function = type(function).__call__
    returned = getattr(function, "__annotations__", {}).get("return")
    is_async = inspect.iscoroutinefunction(function)
    yields = inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)
    creates = isinstance(function, type) and not hasattr(function, "__await__")
    if yields or creates or (not is_async and returned in (Token, str, "Token", "str")):
        raise InvalidConfigurationError(
            "sasl_token_provider is not a coroutine function: define it with `async def`, and "
            "return a kafka_async.Token"
        )
    try:
        inspect.signature(provider).bind()
    except TypeError:
        raise InvalidConfigurationError(
            "sasl_token_provider is called without arguments, and has one without a default: bind "
            "it with functools.partial"
        ) from None
    except ValueError:
        return  # A callable of C has no signature.


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
        raise InvalidConfigurationError(
            f'{of_tls[0]} is given but security_protocol is "{protocol}", which does not use TLS: '
            f'set it to "{"SASL_SSL" if sasl or of_sasl else "SSL"}"'
        )
    if of_sasl and not sasl:
        raise InvalidConfigurationError(
            f'{of_sasl[0]} is given but security_protocol is "{protocol}", which does not '
            'authenticate by SASL: set it to "SASL_SSL", or to "SASL_PLAINTEXT" for listeners '
            "without TLS"
        )
    if sasl and config.sasl_mechanism is None:
        raise InvalidConfigurationError(
            f'security_protocol="{protocol}" needs sasl_mechanism: name the one that the brokers '
            f"offer, of {', '.join(SASL_MECHANISMS)}"
        )
    if config.ssl_context is not None and len(of_tls) > 1:
        other = next(name for name in of_tls if name != "ssl_context")
        raise InvalidConfigurationError(
            f"{other} is given besides ssl_context, which takes its place: load certificates and "
            "keys into the context, or leave ssl_context out"
        )
    if config.ssl_certfile is None:
        for name in ("ssl_keyfile", "ssl_password"):
            if name in of_tls:
                raise InvalidConfigurationError(
                    f"{name} is given without ssl_certfile: give the client's certificate too, or "
                    f"leave {name} out"
                )
    for version in config.ssl_enabled_protocols:
        if version not in TLS_VERSIONS:
            raise InvalidConfigurationError(
                f"ssl_enabled_protocols has {version!r:.40}: only {' and '.join(TLS_VERSIONS)} are "
                "used, since older versions are broken"
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
            raise InvalidConfigurationError(
                f'{name} is given but sasl_mechanism="{mechanism}" does not use it{origin}: leave '
                "it out, or change sasl_mechanism"
            )


def _check_ssl_context(value: object) -> None:
    import ssl  # Imported here since it is slow, and only an ssl_context needs it.

    if not isinstance(value, ssl.SSLContext):
        raise InvalidConfigurationError(
            f"ssl_context={value!r:.100} must be an ssl.SSLContext, as ssl.create_default_context()"
        )
    if value.protocol == ssl.PROTOCOL_TLS_SERVER:
        raise InvalidConfigurationError(
            "ssl_context is that of a server, which cannot connect: pass one that "
            "ssl.create_default_context() or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) creates"
        )


def _check_instance_id(config: ConsumerConfig | GroupMemberConfig) -> None:
    if config.group_instance_id == "":
        raise InvalidConfigurationError(
            "group_instance_id is empty: name the static member, uniquely in its group, or leave "
            "the option out for a dynamic member"
        )


def _check_heartbeat_interval(config: ConsumerConfig | GroupMemberConfig) -> None:
    if config.heartbeat_interval_ms >= config.session_timeout_ms:
        raise InvalidConfigurationError(
            "heartbeat_interval_ms must be below session_timeout_ms (a third of it is usual)"
        )


def _at_most(config: ClientConfig, name: str, limit: str) -> None:
    if getattr(config, name) > getattr(config, limit):
        raise InvalidConfigurationError(f"{name} must not be above {limit}")


_RENAMED: Final[Mapping[str, str]] = {
    # librdkafka and confluent-kafka
    "auto_commit_enable": "enable_auto_commit",
    "batch_num_messages": "batch_size",
    "broker_list": "bootstrap_servers",
    "compression_codec": "compression_type",
    "fetch_message_max_bytes": "max_partition_fetch_bytes",
    "fetch_wait_max_ms": "fetch_max_wait_ms",
    "max_in_flight": "max_in_flight_requests_per_connection",
    "message_max_bytes": "max_request_size",
    "message_send_max_retries": "delivery_timeout_ms",
    "message_timeout_ms": "delivery_timeout_ms",
    "metadata_broker_list": "bootstrap_servers",
    "queue_buffering_max_kbytes": "buffer_memory",
    "queue_buffering_max_messages": "buffer_memory",
    "queue_buffering_max_ms": "linger_ms",
    "queued_max_messages_kbytes": "fetch_buffer_memory",
    "queued_min_messages": "fetch_buffer_memory",
    "receive_message_max_bytes": "receive_buffer_memory",
    "request_required_acks": "acks",
    "socket_timeout_ms": "request_timeout_ms",
    "enable_sasl_oauthbearer_unsecure_jwt": "sasl_token_provider",
    "enable_ssl_certificate_verification": "ssl_cafile",
    "https_ca_location": "ssl_cafile",
    "https_ca_pem": "ssl_cafile",
    "oauth_cb": "sasl_token_provider",
    "oauthbearer_token_refresh_cb": "sasl_token_provider",
    "sasl_mechanisms": "sasl_mechanism",
    "sasl_oauthbearer_client_id": "sasl_oauthbearer_client_credentials_client_id",
    "sasl_oauthbearer_client_secret": "sasl_oauthbearer_client_credentials_client_secret",
    "sasl_oauthbearer_config": "sasl_token_provider",
    "sasl_oauthbearer_grant_type": "sasl_oauthbearer_jwt_retriever",
    "sasl_oauthbearer_method": "sasl_oauthbearer_token_endpoint_url",
    "ssl_ca_location": "ssl_cafile",
    "ssl_ca_pem": "ssl_cafile",
    "ssl_certificate_location": "ssl_certfile",
    "ssl_certificate_pem": "ssl_certfile",
    "ssl_key_location": "ssl_keyfile",
    "ssl_key_pem": "ssl_keyfile",
    "topic_metadata_refresh_interval_ms": "metadata_max_age_ms",
    # aiokafka and kafka-python
    "auto_commit_interval": "auto_commit_interval_ms",
    "max_batch_size": "batch_size",
    "metadata_max_age": "metadata_max_age_ms",
    "rebalance_timeout_ms": "max_poll_interval_ms",
    "request_timeout": "request_timeout_ms",
    "sasl_kerberos_name": "sasl_kerberos_principal",
    "sasl_oauth_token_provider": "sasl_token_provider",
    "sasl_plain_password": "sasl_password",
    "sasl_plain_username": "sasl_username",
    "password": "sasl_password",
    "ssl_ciphers": "ssl_context",
    "ssl_crlfile": "ssl_context",
    "transaction_timeout": "transaction_timeout_ms",
    # Kafka
    "sasl_jaas_config": "sasl_username",
    "sasl_oauthbearer_jwt_retriever_class": "sasl_oauthbearer_jwt_retriever",
    "ssl_endpoint_identification_algorithm": "ssl_check_hostname",
    "ssl_key_password": "ssl_password",
    "ssl_keystore_certificate_chain": "ssl_certfile",
    "ssl_keystore_key": "ssl_keyfile",
    "ssl_keystore_location": "ssl_certfile",
    "ssl_keystore_password": "ssl_password",
    "ssl_protocol": "ssl_enabled_protocols",
    "ssl_truststore_certificates": "ssl_cafile",
    "ssl_truststore_location": "ssl_cafile",
    "interceptor_classes": "interceptors",
    "partitioner_class": "partitioner",
    "retries": "delivery_timeout_ms",
}
"""Options of other clients, and the option that replaces each here."""

_UNSUPPORTED: Final = frozenset(
    {
        "bootstrap_controllers",
        "bootstrap_resolve_timeout_ms",
        "buffer_memory_allocation_strategy",
        "client_dns_lookup",
        "config_providers",
        "enable_metrics_push",
        "metric_reporters",
        "metrics_num_samples",
        "metrics_recording_level",
        "metrics_sample_window_ms",
        "partitioner_ignore_keys",
        "partitioner_rack_aware",
        "receive_buffer_bytes",
        "security_providers",
        "send_buffer_bytes",
        "transaction_two_phase_commit_enable",
    }
)
"""Options of Kafka's clients that have no equivalent here yet, without `_UNSUPPORTED_PREFIXES`."""
_UNSUPPORTED_PREFIXES: Final = (
    "oauth",
    "sasl_client_",
    "sasl_kerberos_",
    "sasl_login_",
    "sasl_oauthbearer_",
)
"""Prefixes of many options of Kafka's clients and of librdkafka without an equivalent here."""

_UNNEEDED: Final[Mapping[str, str]] = {
    "api_version": "versions are negotiated with each broker",
    "api_version_auto_timeout_ms": "versions are negotiated with each broker",
    "api_version_request": "versions are negotiated with each broker",
    "check_crcs": "checksums are always checked",
    "consumer_timeout_ms": "give poll a timeout",
    "debug": "configure the logger kafka_async",
    "enable_auto_offset_store": "a record counts as done when the next one is requested",
    "enable_partition_eof": "compare the position with the end offset",
    "error_cb": "errors are raised by the calls they concern",
    "sasl_kerberos_domain_name": "it is the host name of each broker",
    "exclude_internal_topics": "subscriptions name their topics",
    "internal_throw_on_fetch_stable_offset_unsupported": "it is internal to Java's client",
    "log_level": "configure the logger kafka_async",
    "loop": "a client belongs to the event loop that it is started in",
    "on_delivery": "await the delivery, or give it a callback with add_done_callback",
    "dr_cb": "await the delivery, or give it a callback with add_done_callback",
    "rebalance_cb": "pass listener= to the consumer",
    "statistics_interval_ms": "call statistics() when you need them",
    "stats_cb": "call statistics() when you need them",
}
"""Options of other clients that are not needed here, and the reason."""


_SHARE_GROUP_OPTIONS: Final[Mapping[str, str]] = {
    "auto_offset_reset": "share.auto.offset.reset",
    "heartbeat_interval_ms": "share.heartbeat.interval.ms",
    "isolation_level": "share.isolation.level",
    "session_timeout_ms": "share.session.timeout.ms",
}
"""Options of a consumer that share groups have as configurations of the group (KIP-932)."""


def _option_of_share_group(name: str, names: set[str]) -> str | None:
    """Return the message for a consumer's option that a share group has instead; else None."""
    key = _SHARE_GROUP_OPTIONS.get(name.replace(".", "_"))
    if key is None or "share_acknowledgement_mode" not in names:
        return None
    return (
        f"there is no option {name} of a share consumer: the group has the configuration {key}, to "
        "be set by Admin.alter_configs with the resource ConfigResource(ResourceType.GROUP, "
        f'group_id) and {{"{key}": ...}}'
    )


def _java_name(name: str) -> str:
    return name.replace("_", ".")


def _unknown_option(name: str, names: set[str], *, java: bool = False) -> InvalidConfigurationError:
    if name in ("topic", "topics") and "max_poll_records" in names:
        meant = "" if name == "topics" else "did you mean topics? "
        return InvalidConfigurationError(
            f"there is no option {name}: {meant}The consumer takes topics=[...] as an argument"
        )
    return InvalidConfigurationError(
        _option_of_share_group(name, names) or _unknown(name, names, java=java)
    )


def _unknown(name: str, names: set[str], *, java: bool = False) -> str:
    """Return the message for an option that does not exist; `java` names options as Java does."""
    flat = with_underscores(name)
    spelled = _java_name if java else str
    if flat in names and flat != name:
        return (
            f"there is no keyword option {name}: write {flat}, or give a dict of Java's names to "
            "from_properties"
        )
    text = f"there is no option {name}"
    if flat in _UNNEEDED:
        return f"{text}, and no need for it: {_UNNEEDED[flat]}"
    near: list[str] = []
    if flat not in _RENAMED:
        foreign = flat.startswith(_UNSUPPORTED_PREFIXES)
        likeness = 0.9 if foreign else 0.75
        if flat.startswith(("ssl_", "sasl_", "oauth")):
            prefix = "ssl_" if flat.startswith("ssl_") else "sasl_"
            alike = [each for each in names if each.startswith(prefix)]
            near = difflib.get_close_matches(flat, alike, 1, likeness)
        if not near and (foreign or flat in _UNSUPPORTED):
            return f"{name} is not supported yet: leave it out"
    if near:
        return f"{text}: did you mean {spelled(near[0])}?"
    if flat not in _RENAMED and flat.startswith(("ssl_", "sasl_")):
        foreign_names = [each for each in _RENAMED if each.startswith(("ssl_", "sasl_"))]
        for meant in difflib.get_close_matches(flat, foreign_names, 1, 0.9):
            return f"{text}: did you mean {meant}? It is {_RENAMED[meant]} here"
    meant = _RENAMED.get(flat, "ssl_context" if flat.startswith("ssl_") else flat)
    if meant in names:
        return f"{text}: use {meant} (see docs/configuration.md)"
    for role, kind in (
        ("producer", ProducerConfig),
        ("consumer", ConsumerConfig),
        ("share consumer", ShareConsumerConfig),
    ):
        if meant in {row.name for row in dataclasses.fields(kind)}:
            return f"{text} here: {meant} is an option of a {role}"
    near = difflib.get_close_matches(flat, names, 1)
    hint = (
        f": did you mean {spelled(near[0])}?" if near else "; docs/configuration.md lists them all"
    )
    return f"{text}{hint}"


def _from_text(row: dataclasses.Field[Any], value: object) -> object:
    """Convert a property's text to its option's type; return any other value unchanged.

    Raises:
        InvalidConfigurationError: The option is a truth value or a number, and the text is not one.
    """
    if not isinstance(value, str):
        return value
    kind = str(row.type).removesuffix(" | None")
    for choice in row.metadata["choices"] or ():
        if value == str(choice):
            return choice
    if kind == "bool":
        if value.lower() not in ("true", "false"):
            raise _wrong_text(row, value, "true or false")
        return value.lower() == "true"
    if kind in ("int", "float"):
        try:
            return int(value) if re.fullmatch(r"-?\d+", value) else float(value)
        except ValueError:
            raise _wrong_text(row, value, "a number") from None
    return value


def _wrong_text(row: dataclasses.Field[Any], value: str, words: str) -> InvalidConfigurationError:
    return InvalidConfigurationError(f"{row.name}={value!r:.100} must be {words}")
