"""OAUTHBEARER (RFC 7628, KIP-255) at the broker: unsecured tokens, or an application's check."""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, cast

from kafka_async.embedded.security.exchange import Authenticated, Rejected
from kafka_async.embedded.security.scram import SASL_NAME
from kafka_async.secrets import Secret

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafka_async.embedded.security.exchange import Exchange

_PAIRS: Final = r"(?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*"
_CLIENT_FIRST: Final = re.compile(
    rf"n,(?:a=(?P<authorization_id>{SASL_NAME}))?,\x01(?P<pairs>{_PAIRS})\x01"
)
_AUTH: Final = re.compile(r"(?P<scheme>[A-Za-z0-9_]+) +(?P<token>[-_~+/.A-Za-z0-9]+=*)")
_ACKNOWLEDGE_ERROR: Final = b"\x01"

ValidateToken: TypeAlias = Callable[[str], "tuple[str, float | None]"]
"""Returns a token's principal name and expiry time in seconds since the epoch, or raises."""


class TokenError(NamedTuple):
    """The broker's reason for rejecting a token, for the client."""

    status: str
    scope: str | None = None

    def to_json(self) -> str:
        """Return the text of the broker's message."""
        scope = "" if self.scope is None else f', "scope":"{self.scope}"'
        return f'{{"status":"{self.status}"{scope}}}'


INVALID_TOKEN: Final = TokenError("invalid_token")


class ValidToken(NamedTuple):
    """The parts of a valid token that a broker uses."""

    principal_name: str
    expires_at_ms: int | None


@dataclass(frozen=True, slots=True)
class UnsecuredTokens:
    """Accepts tokens without a signature, as Kafka's brokers do without a configured validator.

    The rules follow Kafka's OAuthBearerUnsecuredValidatorCallbackHandler: the header's `alg` is
    "none", the claim `exp` is a number in the future, and `iat`, if present, is a number in the
    past and before `exp`.

    Attributes:
        principal_claim: Claim with the principal's name.
        scope_claim: Claim with the scope: a text, or a list of texts.
        required_scope: Texts that the scope must contain.
        allowable_clock_skew_ms: Tolerance of the times, in milliseconds.
    """

    principal_claim: str = "sub"
    scope_claim: str = "scope"
    required_scope: Sequence[str] = ()
    allowable_clock_skew_ms: int = 0

    def validate(self, token: Secret, now_ms: int) -> ValidToken | TokenError:
        """Return the principal of a token, or the reason for rejecting it. Never raises."""
        claims = _claims(token)
        if claims is None:
            return INVALID_TOKEN
        name, expiry, issued = (claims.get(key) for key in (self.principal_claim, "exp", "iat"))
        scope = _scope(claims.get(self.scope_claim))
        if (
            not isinstance(name, str)
            or not name.strip()
            or not _is_number(expiry)
            or scope is None
            or ("iat" in claims and not _is_number(issued))
        ):
            return INVALID_TOKEN
        expires_at = float(cast("float", expiry))
        issued_at = -math.inf if "iat" not in claims else float(cast("float", issued))
        if (
            issued_at * 1000 > now_ms + self.allowable_clock_skew_ms
            or now_ms - self.allowable_clock_skew_ms >= expires_at * 1000
            or expires_at <= issued_at
        ):
            return INVALID_TOKEN
        if not scope.issuperset(self.required_scope):
            return TokenError("insufficient_scope", f"[{', '.join(self.required_scope)}]")
        return ValidToken(name, round(min(expires_at * 1000, _MAX_TIMESTAMP)))


_MAX_TIMESTAMP: Final = float(2**62)


def validated_by(function: ValidateToken, token: Secret) -> ValidToken | TokenError:
    """Return the result of an application's function; an exception means an invalid token."""
    try:
        name, expires_at = function(token.reveal())
    except Exception:  # noqa: BLE001  # the function raises what its libraries raise
        return INVALID_TOKEN
    return ValidToken(name, None if expires_at is None else round(expires_at * 1000))


def oauthbearer(validator: UnsecuredTokens | ValidateToken, now_ms: Callable[[], int]) -> Exchange:
    """Check a token; all SASL extensions are accepted.

    As RFC 7628 requires, the broker sends the reason of a failure as a challenge, and the exchange
    fails after the client has acknowledged it.
    """
    message = yield b""
    error: TokenError | None = None
    while True:
        if error is not None and message.reveal() == _ACKNOWLEDGE_ERROR:
            return Rejected(error.to_json())
        # After a failure, any other message counts as a new token, as in Kafka.
        first = _CLIENT_FIRST.fullmatch(message.reveal().decode("utf-8", "replace"))
        token = None if first is None else _token(first["pairs"])
        if first is None or token is None:
            return Rejected()
        result = (
            validator.validate(token, now_ms())
            if isinstance(validator, UnsecuredTokens)
            else validated_by(validator, token)
        )
        if isinstance(result, ValidToken):
            break
        error = result
        message = yield error.to_json().encode()
    name = first["authorization_id"]
    if name is not None and name != result.principal_name:
        return Rejected(
            f"Authentication failed: Client requested an authorization id ({name}) that is "
            f"different from the token's principal name ({result.principal_name})"
        )
    return Authenticated(result.principal_name, expires_at_ms=result.expires_at_ms)


def _token(pairs: str) -> Secret | None:
    """Return the token among the key-value pairs of the client's message."""
    values = dict(pair.split("=", 1) for pair in pairs.split("\x01") if pair)
    found = _AUTH.fullmatch(values.get("auth", ""))
    if found is None or found["scheme"].lower() != "bearer":
        return None
    return Secret(found["token"])


def _claims(token: Secret) -> dict[str, Any] | None:
    """Return the claims of an unsecured token, or None if it is malformed or signed."""
    parts = [Secret(part) for part in token.reveal().split(".")]
    if len(parts) != len(("header", "claims", "signature")) or parts[2]:
        return None
    header, claims = _json_object(parts[0]), _json_object(parts[1])
    if header is None or claims is None or header.get("alg") != "none":
        return None
    return claims


def _json_object(part: Secret) -> dict[str, Any] | None:
    padding = -len(part.reveal()) % 4 * "="
    try:
        found = json.loads(base64.urlsafe_b64decode(part.reveal() + padding))
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", found) if isinstance(found, dict) else None


def _is_number(value: object) -> bool:
    """Return True for a finite number other than a bool."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def _scope(value: object) -> set[str] | None:
    """Return the texts of a scope, or None if it has the wrong type."""
    if value is None:
        return set()
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, list):
        return None
    return {str(text).strip() for text in cast("list[object]", values) if str(text).strip()}
