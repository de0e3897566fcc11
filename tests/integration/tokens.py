"""Tokens for OAUTHBEARER: unsecured ones, and those of an issuer with an RSA key."""

from __future__ import annotations

import base64
import json
import time
from typing import TYPE_CHECKING, Any

from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.hashes import SHA256

from kafka_async.types import Token

if TYPE_CHECKING:
    from collections.abc import Mapping

LIFETIME = 3600.0
"""Seconds."""
KEY_ID = "test-key"


def encoded(data: bytes) -> str:
    """Encode bytes in Base64 for URLs without padding."""
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def decoded(text: str) -> bytes:
    """Decode Base64 for URLs without padding."""
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def unsecured_token(subject: str, lifetime: float = LIFETIME) -> Token:
    """Return a token without a signature, which Kafka accepts from anyone by default."""
    now = time.time()
    # Kafka rejects a token of the future, and rounds its own time down to milliseconds.
    claims = {"sub": subject, "iat": now - 1, "exp": now + lifetime}
    parts = [encoded(json.dumps(part).encode()) for part in ({"alg": "none"}, claims)]
    return Token(".".join([*parts, ""]), now + lifetime)


class Issuer:
    """Signs tokens by RS256; `keys` is its JSON Web Key Set."""

    def __init__(self, name: str, audience: str) -> None:
        self.name = name
        self.audience = audience
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        numbers = self._key.public_key().public_numbers()
        row = {"kty": "RSA", "kid": KEY_ID, "alg": "RS256", "use": "sig"}
        row |= {"n": encoded_number(numbers.n), "e": encoded_number(numbers.e)}
        self.keys = {"keys": [row]}

    def issue(self, subject: str, lifetime: float = LIFETIME, **claims: object) -> str:
        """Return a signed token; `claims` replace the default ones."""
        now = int(time.time())
        header = {"alg": "RS256", "typ": "JWT", "kid": KEY_ID}
        default = {"iss": self.name, "aud": self.audience, "sub": subject}
        body = {**default, "iat": now, "exp": now + int(lifetime), **claims}
        signed = ".".join(encoded(json.dumps(part).encode()) for part in (header, body))
        signature = self._key.sign(signed.encode(), padding.PKCS1v15(), SHA256())
        return f"{signed}.{encoded(signature)}"

    def verify(self, token: str) -> tuple[str, float]:
        """Return the name and the expiry of a token, or raise for one that is not valid."""
        signed, _, signature = token.rpartition(".")
        self._key.public_key().verify(
            decoded(signature), signed.encode(), padding.PKCS1v15(), SHA256()
        )
        claims: Mapping[str, Any] = json.loads(decoded(signed.split(".")[1]))
        if (claims["iss"], claims["aud"]) != (self.name, self.audience):
            raise ValueError("the token is of another issuer, or for another audience")
        if claims["exp"] < time.time():
            raise ValueError("the token has expired")
        return str(claims["sub"]), float(claims["exp"])


def encoded_number(number: int) -> str:
    """Encode a number as JSON Web Keys hold them."""
    return encoded(number.to_bytes((number.bit_length() + 7) // 8))
