"""Passwords and SCRAM credentials of the cluster's users. Pure."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final, TypeAlias

from kafka_async.secrets import Secret

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MIN_ITERATIONS: Final = 4_096
MAX_ITERATIONS: Final = 16_384
SALT_BYTES: Final = 24


class ScramMechanism(Enum):
    """SCRAM mechanisms, with their numbers in requests (KIP-554)."""

    SHA_256 = 1
    SHA_512 = 2

    @property
    def sasl_name(self) -> str:
        """The mechanism's name in SaslHandshake."""
        return f"SCRAM-SHA-{self.digest_name[3:]}"

    @property
    def digest_name(self) -> str:
        """The name of the hash function in hashlib."""
        return "sha256" if self is ScramMechanism.SHA_256 else "sha512"

    def hash(self, data: bytes) -> bytes:
        """Return the hash of `data`."""
        return hashlib.new(self.digest_name, data).digest()

    def hmac(self, key: bytes, message: bytes) -> bytes:
        """Return the HMAC of `message`."""
        return hmac.digest(key, message, self.digest_name)


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """A broker's stored data for a user's password and one mechanism."""

    iterations: int
    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)

    @classmethod
    def of_password(
        cls, mechanism: ScramMechanism, password: Secret, iterations: int = MIN_ITERATIONS
    ) -> ScramCredential:
        """Create a credential with a random salt."""
        salt = secrets.token_bytes(SALT_BYTES)
        return cls.of_salted_password(
            mechanism,
            salt,
            iterations,
            hashlib.pbkdf2_hmac(
                mechanism.digest_name, password.reveal().encode(), salt, iterations
            ),
        )

    @classmethod
    def of_salted_password(
        cls, mechanism: ScramMechanism, salt: bytes, iterations: int, salted_password: bytes
    ) -> ScramCredential:
        """Create a credential from a password that the client has salted."""
        client_key = mechanism.hmac(salted_password, b"Client Key")
        server_key = mechanism.hmac(salted_password, b"Server Key")
        return cls(iterations, salt, mechanism.hash(client_key), server_key)


def scram_credentials_of(password: Secret) -> dict[ScramMechanism, ScramCredential]:
    """Return the credentials of a password for all mechanisms."""
    return {
        mechanism: ScramCredential.of_password(mechanism, password) for mechanism in ScramMechanism
    }


UserAndMechanism: TypeAlias = tuple[str, ScramMechanism]


class Credentials:
    """Holds the passwords for PLAIN and the SCRAM credentials of all users.

    Args:
        users: Passwords by user name.
    """

    def __init__(self, users: Mapping[str, str | Secret]) -> None:
        self._passwords: dict[str, Secret] = {}
        self._scram: dict[UserAndMechanism, ScramCredential] = {}
        for name, password in users.items():
            self.set_password(name, password)

    def set_password(self, name: str, password: str | Secret | None) -> None:
        """Replace a user's password and SCRAM credentials; None removes the user."""
        if password is None:
            self._passwords.pop(name, None)
            for mechanism in ScramMechanism:
                self._scram.pop((name, mechanism), None)
            return
        secret = password if isinstance(password, Secret) else Secret(password)
        self._passwords[name] = secret
        for mechanism, credential in scram_credentials_of(secret).items():
            self._scram[name, mechanism] = credential

    def has_password(self, name: str, password: Secret) -> bool:
        """Return True if the user exists and has this password; compares in constant time."""
        expected = self._passwords.get(name)
        return expected is not None and expected == password

    def scram(self, name: str, mechanism: ScramMechanism) -> ScramCredential | None:
        """Return a user's SCRAM credential, or None."""
        return self._scram.get((name, mechanism))

    def scram_of(self, name: str) -> dict[ScramMechanism, ScramCredential]:
        """Return a user's SCRAM credentials by mechanism."""
        return {
            mechanism: credential
            for mechanism in ScramMechanism
            if (credential := self._scram.get((name, mechanism))) is not None
        }

    def scram_users(self) -> list[str]:
        """Return the names of all users with SCRAM credentials."""
        return list(dict.fromkeys(name for name, _ in self._scram))

    def alter_scram(
        self,
        deletions: Iterable[UserAndMechanism],
        upsertions: Mapping[UserAndMechanism, ScramCredential],
    ) -> None:
        """Delete, then replace SCRAM credentials; passwords for PLAIN remain."""
        for key in deletions:
            self._scram.pop(key, None)
        self._scram.update(upsertions)
