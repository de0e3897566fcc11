"""OAUTHBEARER: a bearer token with SASL extensions (RFC 7628, KIP-255, KIP-342). Pure.

The token comes from the client's `TokenSource`. A broker that rejects it sends a JSON object with
the reason; the client responds with one byte 0x01, and the broker then ends the exchange with an
error.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import urlsplit

from kafka_async.client.security.sasl.mechanism import Await
from kafka_async.config.spelling import if_objects, option_error, spell
from kafka_async.errors import InvalidConfigurationError, KafkaError, SaslAuthenticationError
from kafka_async.secrets import HIDDEN, SecretBytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafka_async.client.security.sasl.mechanism import Exchange, SaslContext
    from kafka_async.config import ClientConfig
    from kafka_async.types import Token

_SEPARATOR: Final = "\x01"
_ACKNOWLEDGEMENT: Final = SecretBytes(b"\x01")
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")
"""Characters of a bearer token (RFC 6750). Kafka's brokers allow fewer, other brokers all."""
_EXTENSION_NAME: Final = re.compile(r"[A-Za-z]+")
_EXTENSION_VALUE: Final = re.compile(r"[\x21-\x7e \t\r\n]+")
_RESERVED: Final = "auth"
_MAX_SHOWN: Final = 200
"""Characters of a broker's text in an error message."""
_REASONS: Final = ("status", "scope", "openid-configuration")


class OAuthBearer:
    """Authenticates by a token of `sasl_token_provider` or of the token endpoint."""

    name = "OAUTHBEARER"
    needs_tls = True

    def check(self, config: ClientConfig) -> None:
        """Raise InvalidConfigurationError without an origin of tokens, or for wrong extensions."""
        if config.sasl_oauthbearer_token_endpoint_url is not None:
            _check_endpoint(config, config.sasl_oauthbearer_token_endpoint_url)
        elif config.sasl_token_provider is None:
            provider = spell("sasl_token_provider")
            provider = if_objects(
                f"pass {provider}, a coroutine function that returns a Token, or "
            )
            raise InvalidConfigurationError(
                f"{spell('sasl_mechanism', 'OAUTHBEARER')} needs a token: {provider}give "
                f"{spell(_ENDPOINT)}",
                option=_ENDPOINT,
            )
        problem = extensions_problem(config.sasl_oauthbearer_extensions or {})
        if problem is not None:
            raise option_error("sasl_oauthbearer_extensions", f": {problem}")

    def authenticate(self, context: SaslContext) -> Exchange:
        """Send the current token; report the broker's reason if it rejects the token."""
        tokens = context.tokens
        if tokens is None:
            raise InvalidConfigurationError(f"{self.name} needs the client's tokens")
        token = cast("Token", (yield Await(tokens.token, tokens.purpose)))
        # Not the broker's text itself: a broker that repeats the token must not show it.
        reason = _reason((yield initial_response(token, tokens.purpose)), token)
        if not reason:
            return
        tokens.reject(token)
        error = SaslAuthenticationError(
            f"{context.host}:{context.port} rejected the token of {tokens.purpose}: {reason}. "
            "Check the token's issuer, audience, scope and expiry, and the clocks of both sides"
        )
        # The broker ends the exchange only after this message, with an error too.
        try:
            yield _ACKNOWLEDGEMENT
        except KafkaError as ended:
            raise error from ended
        raise error


_ENDPOINT: Final = "sasl_oauthbearer_token_endpoint_url"
_CLIENT_CREDENTIALS: Final = (
    "sasl_oauthbearer_client_credentials_client_id",
    "sasl_oauthbearer_client_credentials_client_secret",
)
_PRIVATE_KEY: Final = "sasl_oauthbearer_assertion_private_key_file"
_CLAIMS: Final = ("sasl_oauthbearer_assertion_claim_iss", "sasl_oauthbearer_assertion_claim_aud")
_OF_SIGNING: Final = (
    "sasl_oauthbearer_assertion_template_file",
    _PRIVATE_KEY,
    "sasl_oauthbearer_assertion_private_key_passphrase",
    *_CLAIMS,
    "sasl_oauthbearer_assertion_claim_sub",
)
"""Options of assertions that the client signs itself."""


def _needed(config: ClientConfig) -> tuple[str, ...]:
    """Return the options that the grant needs."""
    if config.sasl_oauthbearer_jwt_retriever == "client_credentials":
        return _CLIENT_CREDENTIALS
    if config.sasl_oauthbearer_assertion_file is not None:
        return ()
    # The claims may be in the template.
    templated = config.sasl_oauthbearer_assertion_template_file is not None
    return (_PRIVATE_KEY,) if templated else (_PRIVATE_KEY, *_CLAIMS)


def _check_endpoint(config: ClientConfig, url: str) -> None:
    """Raise InvalidConfigurationError for options with which no token can be requested."""
    if config.sasl_token_provider is not None:
        raise option_error(
            "sasl_token_provider",
            f" and {spell(_ENDPOINT)} are both given, but tokens have one origin: leave one out",
        )
    try:
        parts = urlsplit(url)
        valid = parts.scheme == "https" and bool(parts.hostname) and parts.port != 0
    except ValueError:
        parts, valid = urlsplit(""), False
    # The URL itself is not shown, because it may have a user name and a password.
    if not valid or not url.isprintable() or " " in url:
        raise option_error(
            _ENDPOINT,
            " must be an https URL, as https://issuer.example/oauth2/token: credentials are sent "
            "over TLS only",
        )
    if "@" in parts.netloc or parts.fragment:
        raise option_error(
            _ENDPOINT,
            " must not have a user name, a password or a fragment (#): use "
            f"{' and '.join(map(spell, _CLIENT_CREDENTIALS))}",
        )
    unused = [name for name in _OF_SIGNING if getattr(config, name) is not None]
    if config.sasl_oauthbearer_assertion_file is not None and unused:
        raise option_error(
            unused[0],
            f" is given besides {spell('sasl_oauthbearer_assertion_file')}, whose assertion is "
            "signed already: leave one out",
        )
    missing = [name for name in _needed(config) if not getattr(config, name)]
    if missing:
        raise InvalidConfigurationError(
            f"{spell(_ENDPOINT)} needs {' and '.join(map(spell, missing))} for the grant "
            f"{config.sasl_oauthbearer_jwt_retriever}",
            option=missing[0],
        )


def initial_response(token: Token, purpose: str) -> SecretBytes:
    """Return the client's first message; raise SaslAuthenticationError for an invalid token.

    `purpose` names the token's origin.
    """
    if not _TOKEN.fullmatch(token.value.reveal()):
        raise SaslAuthenticationError(
            f"{purpose} returned a token with characters that a bearer token cannot have (RFC "
            "6750), or an empty one: return the token alone, without quotes, spaces or line ends"
        )
    problem = extensions_problem(token.extensions)
    if problem is not None:
        raise SaslAuthenticationError(
            f"{purpose} returned a token with a wrong extension: {problem}"
        )
    extensions = [f"{name}={value}" for name, value in token.extensions.items()]
    return SecretBytes(
        _SEPARATOR.join(["n,,", f"auth=Bearer {token.value.reveal()}", *extensions, "", ""]).encode(
            "ascii"
        )
    )


def extensions_problem(extensions: Mapping[str, str]) -> str | None:
    """Return the reason why brokers would refuse SASL extensions, or None if they are valid."""
    for name, value in extensions.items():
        if name == _RESERVED:
            return 'the name "auth" is reserved for the token: rename the extension'
        if not _matches(_EXTENSION_NAME, name):
            return f"the name {name!r:.60} must consist of the letters A to Z and a to z"
        if not _matches(_EXTENSION_VALUE, value):
            return (
                f"the value of {name} must be a str of at least one character, all of them "
                "printable ASCII, spaces, tabs or line ends"
            )
    return None


def _matches(pattern: re.Pattern[str], text: object) -> bool:
    return isinstance(text, str) and pattern.fullmatch(text) is not None


def _reason(response: bytes, token: Token) -> str:
    """Return the reason in a broker's JSON, without the token; "" for an empty response."""
    if not response:
        return ""
    text = response.decode("utf-8", "replace")
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        content = None
    # Some brokers send plain text instead.
    if isinstance(content, dict):
        fields = cast("dict[str, Any]", content)
        found = [f"{name} {fields[name]!s}" for name in _REASONS if fields.get(name)]
        text = ", ".join(found) or text
    return repr(text.replace(token.value.reveal(), HIDDEN)[:_MAX_SHOWN])
