"""ACLs, SCRAM credentials and delegation tokens: arguments and results of the admin client.

Separate from the modules that send requests, so that importing them loads no messages.
"""

from __future__ import annotations

import base64
import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from kafka_async.config import hide_secret
from kafka_async.secrets import Secret, SecretBytes

if TYPE_CHECKING:
    from typing import Literal

DEFAULT_ITERATIONS: Final = 8192
"""Iterations of the hash function for a new SCRAM credential."""


class _AclEnum(enum.IntEnum):
    """Base of the ACL enums; values of newer brokers become `UNKNOWN`."""

    @classmethod
    def _missing_(cls, value: object) -> _AclEnum | None:
        return cls["UNKNOWN"] if isinstance(value, int) else None


class AclResourceType(_AclEnum):
    """Types of resources that ACLs protect. `ANY` is for filters."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class AclPatternType(_AclEnum):
    """Meanings of an ACL's resource name (KIP-290).

    Attributes:
        LITERAL: The resource with exactly this name; "*" is every resource.
        PREFIXED: Every resource whose name begins with the given name.
        MATCH: In filters: every ACL that applies to the named resource, whether literal, prefixed
            or "*".
        ANY: In filters: LITERAL and PREFIXED, with exactly this name.
    """

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(_AclEnum):
    """Operations that ACLs allow or deny; `ALL` is every operation, `ANY` is for filters.

    READ, WRITE, DELETE and ALTER imply DESCRIBE, and ALTER_CONFIGS implies DESCRIBE_CONFIGS, when
    they are allowed.
    """

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class AclPermission(_AclEnum):
    """Effects of an ACL. A DENY has precedence over every ALLOW; `ANY` is for filters."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


class AclBinding(NamedTuple):
    """An ACL and the resources that it applies to.

    Attributes:
        resource_type: Type of the resources.
        resource_name: Their name or prefix, see `pattern_type`. The cluster is "kafka-cluster".
        principal: The principal, such as "User:alice"; "User:*" is every principal.
        operation: The operation.
        permission: ALLOW or DENY.
        host: Address of the client, such as "10.0.0.7"; "*" is every host.
        pattern_type: LITERAL or PREFIXED.
    """

    resource_type: AclResourceType
    resource_name: str
    principal: str
    operation: AclOperation
    permission: AclPermission = AclPermission.ALLOW
    host: str = "*"
    pattern_type: AclPatternType = AclPatternType.LITERAL

    def __str__(self) -> str:
        return (
            f"{self.permission.name} {self.principal} {self.operation.name} on "
            f"{self.pattern_type.name} {self.resource_type.name} {self.resource_name} "
            f"from host {self.host}"
        )


class AclFilter(NamedTuple):
    """Selects ACLs; the defaults select all.

    Attributes:
        resource_type: Type of the resources.
        resource_name: Name or prefix, see `pattern_type`; None for any.
        principal: The principal, such as "User:alice"; None for any.
        operation: The operation; ALL selects ACLs of the operation ALL only.
        permission: The permission.
        host: Address of the client; None for any.
        pattern_type: How `resource_name` is compared, see `AclPatternType`.
    """

    resource_type: AclResourceType = AclResourceType.ANY
    resource_name: str | None = None
    principal: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: AclPermission = AclPermission.ANY
    host: str | None = None
    pattern_type: AclPatternType = AclPatternType.ANY


class ScramMechanism(enum.StrEnum):
    """SCRAM mechanisms that Kafka supports, by their SASL names."""

    UNKNOWN = "UNKNOWN"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"


class ScramCredential(NamedTuple):
    """A user's SCRAM credential without its secrets, which brokers do not return."""

    mechanism: ScramMechanism
    iterations: int


@dataclass(frozen=True, slots=True, init=False)
class UserScramCredentialUpsertion:
    """Sets a user's password for a SCRAM mechanism (KIP-554).

    Attributes:
        user: Name of the user.
        mechanism: "SCRAM-SHA-256" or "SCRAM-SHA-512".
        password: The password; a str is wrapped into a `Secret`. It is not sent: brokers get a
            salted hash.
        iterations: Iterations of the hash function; Kafka accepts 4,096 to 16,384.
        salt: The salt. Default: random bytes.
    """

    user: str
    mechanism: ScramMechanism
    password: Secret
    iterations: int
    salt: SecretBytes | None

    def __init__(
        self,
        user: str,
        mechanism: ScramMechanism | Literal["SCRAM-SHA-256", "SCRAM-SHA-512"],
        password: Secret | str,
        iterations: int = DEFAULT_ITERATIONS,
        salt: SecretBytes | bytes | None = None,
    ) -> None:
        # Wrap the password and set all attributes before anything can raise: tracebacks may show
        # variables.
        password = hide_secret("password", password)
        object.__setattr__(self, "user", user)
        object.__setattr__(self, "mechanism", mechanism)
        object.__setattr__(self, "password", password)
        object.__setattr__(self, "iterations", iterations)
        object.__setattr__(self, "salt", None)
        object.__setattr__(self, "mechanism", ScramMechanism(mechanism))
        object.__setattr__(self, "password", _secret(password, "password"))
        object.__setattr__(self, "salt", None if salt is None else _secret_bytes(salt, "salt"))


@dataclass(frozen=True, slots=True, init=False)
class UserScramCredentialDeletion:
    """Deletes a user's credential of a SCRAM mechanism (KIP-554).

    Attributes:
        user: Name of the user.
        mechanism: "SCRAM-SHA-256" or "SCRAM-SHA-512".
    """

    user: str
    mechanism: ScramMechanism

    def __init__(
        self, user: str, mechanism: ScramMechanism | Literal["SCRAM-SHA-256", "SCRAM-SHA-512"]
    ) -> None:
        object.__setattr__(self, "user", user)
        object.__setattr__(self, "mechanism", ScramMechanism(mechanism))


class DelegationToken(NamedTuple):
    """A delegation token (KIP-48). Timestamps are milliseconds since the epoch.

    A client authenticates with `sasl_username=token.token_id`, `sasl_password=token.password` and
    `sasl_delegation_token=True`.

    Attributes:
        token_id: Id of the token.
        hmac: The token's secret.
        owner: Principal of a client that authenticates with the token, such as "User:alice".
        requester: Principal that created the token (KIP-373); the owner on older brokers.
        renewers: Further principals that may renew it, apart from owner and requester.
        issue_timestamp: Time of its creation.
        expiry_timestamp: Time at which it expires unless renewed.
        max_timestamp: Time after which it cannot be renewed.
    """

    token_id: str
    hmac: SecretBytes
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_timestamp: int
    expiry_timestamp: int
    max_timestamp: int

    @property
    def password(self) -> Secret:
        """The token's HMAC in Base64, which is the `sasl_password`."""
        return Secret(base64.b64encode(self.hmac.reveal()).decode())


ScramAlteration: TypeAlias = "UserScramCredentialUpsertion | UserScramCredentialDeletion"
"""A change to one user's credential for one mechanism."""


def _secret(value: object, name: str) -> Secret:
    """Return the value as a Secret; an error does not show it."""
    if isinstance(value, Secret):
        return value
    if isinstance(value, str):
        return Secret(value)
    raise TypeError(f"{name} must be str or Secret, not {type(value).__name__}")


def _secret_bytes(value: object, name: str) -> SecretBytes:
    """Return the value as SecretBytes; an error does not show it."""
    if isinstance(value, SecretBytes):
        return value
    if isinstance(value, bytes):
        return SecretBytes(value)
    raise TypeError(f"{name} must be bytes, not {type(value).__name__}")
