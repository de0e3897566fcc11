"""Requests tokens from the token endpoint of an OpenID Connect issuer (KIP-768, KIP-1139).

The grants are client credentials, and a signed assertion (JWT bearer, RFC 7523) of
`assertion.py`. It needs the extra `oidc`: httpx sends the requests.

Credentials are sent only to the configured URL, by https; no redirect is followed. The issuer's
certificate is checked with the system's certificate authorities and those of `ssl_cafile`,
regardless of `ssl_check_hostname` and `ssl_context`; the client's own certificate is not presented.
httpx reads the usual environment variables for proxies, such as HTTPS_PROXY. If the variable
KAFKA_ASYNC_OAUTHBEARER_ALLOWED_URLS is set, the URL must be in its comma-separated list; this is
for programs that let others choose options.

The size of a response and the time for it are bounded. Errors contain nothing of a response but its
field `error`.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import math
import os
import re
import socket
import ssl
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from kafka_async.client.security.assertion import assertion_of
from kafka_async.client.security.tls import load_authorities
from kafka_async.client.security.token_errors import TokenEndpointUnreachableError
from kafka_async.config.spelling import spell, spell_given
from kafka_async.errors import (
    InvalidConfigurationError,
    KafkaConnectionError,
    KafkaError,
    SaslAuthenticationError,
)
from kafka_async.foundation.arguments import missing_extra
from kafka_async.foundation.backoff import Backoff
from kafka_async.secrets import Secret
from kafka_async.types import Token

if TYPE_CHECKING:
    import httpx

    from kafka_async.config import ClientConfig
    from kafka_async.foundation.clock import Clock
    from kafka_async.foundation.supervisor import Offload

logger = logging.getLogger("kafka_async.cluster")

ALLOWED_URLS: Final = "KAFKA_ASYNC_OAUTHBEARER_ALLOWED_URLS"
MAX_RESPONSE_SIZE: Final = 256 * 1024
"""Bytes of the largest response that is read."""
ATTEMPT_TIMEOUT: Final = 8.0
"""Seconds for one request, from the connection to the last byte of the response."""
RETRY_FOR: Final = 5.0
"""Seconds after the first request in which a request that failed is retried."""
RETRY_BACKOFF: Final = 0.1
RETRY_BACKOFF_MAX: Final = 10.0
"""Seconds between retries (sasl.login.retry.backoff.ms and sasl.login.retry.backoff.max.ms)."""
JWT_BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_UNKNOWN_NAME: Final = frozenset(
    getattr(socket, name) for name in ("EAI_NONAME", "EAI_NODATA") if hasattr(socket, name)
)
"""Codes for a name that the DNS does not have; EAI_AGAIN means a DNS that does not respond."""
# Timeouts, rate limits and server errors, except "not implemented" and "HTTP version not
# supported".
_RETRIABLE: Final = frozenset({408, 425, 429, *range(500, 600)} - {501, 505})
# Longer lifetimes are not believed: the token's own claim decides then.
_MAX_LIFETIME: Final = 1e9
# The characters that RFC 6749 needs for its error codes; anything else may be an injection.
_ERROR_FIELD: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")


class _Response(NamedTuple):
    status: int
    encoding: str
    body: Secret
    """The text of the response, which contains the token."""
    complete: bool


class TokenEndpoint:
    """Returns a new token at each call; a `TokenSource` calls it when a token is needed.

    Args:
        config: The client's options, checked by `OAuthBearer.check`.
        offload: Runs imports, reads files and signs in a thread.
        clock: Clock by which tokens expire.
        transport: Replaces the connections of httpx, for tests.
    """

    def __init__(
        self,
        config: ClientConfig,
        offload: Offload,
        clock: Clock,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._config = config
        self._url = config.sasl_oauthbearer_token_endpoint_url or ""
        self._offload = offload
        self._clock = clock
        self._transport = transport
        self._warned = False

    async def __call__(self) -> Token:
        """Request a token; retry while the network or the issuer fails, for RETRY_FOR seconds.

        The first failure that is retried is logged, only once until a token is issued.

        Raises:
            SaslAuthenticationError: The issuer refused the request, its certificate is not
                trusted, its response has no token, the environment does not allow the URL, or the
                extra `oidc` is not installed.
            TokenEndpointUnreachableError: No process listens at the issuer's address, or its
                name cannot be resolved; a name that does not exist is not retried.
            KafkaConnectionError: The issuer could not be reached or failed; a later call may
                succeed.
        """
        _check_allowed(self._url)
        backoff = Backoff(RETRY_BACKOFF, RETRY_BACKOFF_MAX)
        deadline = self._clock.monotonic() + RETRY_FOR
        # Ends with a token, with an error that is not retriable, or when the next attempt would
        # come after RETRY_FOR. `TokenSource` retries after that.
        while True:
            # An error is returned and raised here: exceptions of httpx, whose frames hold the
            # credentials, are not its context.
            outcome = await self._attempt()
            if isinstance(outcome, Token):
                self._warned = False
                return outcome
            delay = backoff.next()
            if not _is_retriable(outcome) or self._clock.monotonic() + delay > deadline:
                raise outcome
            if not self._warned:
                self._warned = True
                logger.warning("no token yet: %s; the client retries", outcome.message)
            await asyncio.sleep(delay)

    async def _attempt(self) -> Token | KafkaError:
        """Send one request."""
        # Read before the request: the token's lifetime begins at the issuer, at the latest at the
        # response.
        now = self._clock.wall()
        try:
            async with asyncio.timeout(ATTEMPT_TIMEOUT):
                context = await self._offload(_prepare, self._config.ssl_cafile)
                form = await self._form(now)
                response = await self._post(context, form)
        except ImportError:
            return SaslAuthenticationError(
                missing_extra("sasl_oauthbearer_token_endpoint_url", "oidc")
            )
        except KafkaError as error:
            return error.with_traceback(None)
        except TimeoutError:
            return KafkaConnectionError(
                f"{self._url} has not responded within {ATTEMPT_TIMEOUT:g} s"
            )
        except Exception as error:  # noqa: BLE001  # nothing of httpx may be shown, see __call__
            return self._failure(error)
        return self._outcome(response, form.secret, now)

    async def _form(self, now: float) -> _Form:
        """Return the fields of the request."""
        config = self._config
        scope = (
            {}
            if config.sasl_oauthbearer_scope is None
            else {"scope": config.sasl_oauthbearer_scope}
        )
        if config.sasl_oauthbearer_jwt_retriever == "jwt_bearer":
            assertion = await self._offload(assertion_of, config, now)
            return _Form({"grant_type": JWT_BEARER, **scope}, None, assertion)
        client_id = config.sasl_oauthbearer_client_credentials_client_id or ""
        secret = config.sasl_oauthbearer_client_credentials_client_secret or Secret("")
        return _Form({"grant_type": "client_credentials", **scope}, client_id, secret)

    async def _post(self, context: ssl.SSLContext, form: _Form) -> _Response:
        import httpx

        async with (
            httpx.AsyncClient(
                verify=context,
                transport=self._transport,
                timeout=ATTEMPT_TIMEOUT,
                follow_redirects=False,
                headers={"Accept": "application/json", "Accept-Encoding": "identity"},
            ) as client,
            client.stream("POST", self._url, data=form.fields(), auth=form.auth()) as response,
        ):
            # Raw chunks, since a compressed response could expand beyond the limit.
            body = bytearray()
            async for chunk in response.aiter_raw():
                body += chunk
                # Leaving the block closes the connection.
                if len(body) > MAX_RESPONSE_SIZE:
                    break
            return _Response(
                response.status_code,
                response.headers.get("Content-Encoding", "identity"),
                Secret(body[:MAX_RESPONSE_SIZE].decode("utf-8", "replace")),
                len(body) <= MAX_RESPONSE_SIZE,
            )

    # -- outcomes ---------------------------------------------------------------------------------

    def _failure(self, error: Exception) -> KafkaError:
        """Return the error for a request without a response."""
        import httpx

        untrusted = _tls_error(error)
        if untrusted is not None:
            return SaslAuthenticationError(
                f"{self._url}: no TLS connection ({untrusted}): check that the URL and the "
                f"issuer's certificate are right, and that {spell('ssl_cafile')} or the system has "
                "its certificate authority"
            )
        name = type(error).__name__
        if isinstance(error, httpx.TransportError):
            # The texts of httpx may repeat bytes of the response.
            unreachable = _connect_error(error)
            if isinstance(unreachable, ConnectionRefusedError):
                return TokenEndpointUnreachableError(
                    f"{self._url}: connection refused: check the URL and the issuer"
                )
            if unreachable is not None:
                failure = TokenEndpointUnreachableError(
                    f"{self._url}: its name cannot be resolved ({unreachable.strerror}): check the "
                    "URL and the DNS"
                )
                failure.permanent = unreachable.errno in _UNKNOWN_NAME
                return failure
            cause = f"it does not answer as a web server does ({name})"
            if isinstance(error, httpx.ConnectError | httpx.TimeoutException):
                cause = f"it cannot be reached ({name})"
            return KafkaConnectionError(f"{self._url}: {cause}: check the URL and the issuer")
        return SaslAuthenticationError(
            f"{self._url}: the request for a token failed with {name}: check the proxy in the "
            "environment, and the options sasl_oauthbearer_*"
        )

    def _outcome(self, response: _Response, secret: Secret, now: float) -> Token | KafkaError:
        """Return the token of a response, or the error for it."""
        status = response.status
        if 300 <= status < 400:
            return SaslAuthenticationError(
                f"{self._url} redirects (HTTP {status}), which is not followed, so that "
                "credentials are sent to no other host: set "
                f"{spell('sasl_oauthbearer_token_endpoint_url')} to the new URL"
            )
        if not response.complete:
            return SaslAuthenticationError(
                f"{self._url} sent more than {MAX_RESPONSE_SIZE} bytes (HTTP {status}): check that "
                "it is a token endpoint"
            )
        fields = _json_object(response)
        if 200 <= status < 300:
            return self._token(fields, now)
        named = _error_field(fields, secret)
        if status in _RETRIABLE:
            return KafkaConnectionError(f"{self._url} failed with HTTP {status}{named}")
        return SaslAuthenticationError(
            f"{self._url} refused to issue a token: HTTP {status}{named}. Check the client's id "
            "and credentials, the scope, and the permissions of the client at the issuer"
        )

    def _token(self, fields: dict[str, Any], now: float) -> Token | KafkaError:
        # Only fields that are needed are read; other fields may be of any form.
        problem = ""
        if not isinstance(fields.get("access_token"), str) or not fields["access_token"]:
            problem = "no access_token"
        elif str(fields.get("token_type", "bearer")).lower() != "bearer":
            problem = "a token_type that is not Bearer"
        if problem:
            return SaslAuthenticationError(
                f"{self._url} sent a response with {problem}: check that it is a token endpoint, "
                "and that it issues bearer tokens"
            )
        # Some issuers send no lifetime, or a text.
        lifetime = _number(fields.get("expires_in"))
        if lifetime is None or lifetime > _MAX_LIFETIME:
            expires_at = _number(_claims(fields["access_token"]).get("exp"))
        else:
            expires_at = now + lifetime
        return Token(fields["access_token"], expires_at, self._config.sasl_oauthbearer_extensions)


class _Form(NamedTuple):
    """The fields of a request, and its secret: the client's (if it has an id), or an assertion."""

    public: dict[str, str]
    client_id: str | None
    secret: Secret

    def fields(self) -> dict[str, str]:
        """Return all fields; the result is only for the expression that sends it."""
        if self.client_id is not None:
            return self.public
        return {**self.public, "assertion": self.secret.reveal()}

    def auth(self) -> httpx.BasicAuth | None:
        """Return the header with the client's id and secret (client_secret_basic), as Java does."""
        import httpx

        if self.client_id is None:
            return None
        return httpx.BasicAuth(self.client_id, self.secret.reveal())


def _prepare(cafile: str | None) -> ssl.SSLContext:
    """Import what requests need, and return the TLS context; for a thread."""
    import httpx  # noqa: F401  # pyright: ignore[reportUnusedImport]

    context = ssl.create_default_context()
    if cafile is not None:
        try:
            load_authorities(context, cafile)
        except InvalidConfigurationError as error:
            raise SaslAuthenticationError(error.message, option=error.option) from None
    return context


def _check_allowed(url: str) -> None:
    """Raise SaslAuthenticationError unless the environment allows the URL."""
    allowed = os.environ.get(ALLOWED_URLS)
    if allowed is not None and url not in [entry.strip() for entry in allowed.split(",")]:
        given = spell_given("sasl_oauthbearer_token_endpoint_url", f"{url!r:.200}")
        raise SaslAuthenticationError(
            f"{given} is not listed in the environment variable {ALLOWED_URLS}: add it there, or "
            "use a URL that is listed"
        )


def _tls_error(error: BaseException) -> str | None:
    """Return the reason if a TLS handshake caused an error; None for other causes."""
    found: BaseException | None = error
    # Bounded, since causes may form a cycle.
    for _ in range(10):
        if isinstance(found, ssl.SSLCertVerificationError):
            return found.verify_message
        if isinstance(found, ssl.SSLError):
            return found.reason or type(found).__name__
        if found is None:
            return None
        found = found.__cause__ or found.__context__
    return None


def _is_retriable(error: KafkaError) -> bool:
    if isinstance(error, TokenEndpointUnreachableError):
        return not error.permanent
    return isinstance(error, KafkaConnectionError)


def _connect_error(error: BaseException) -> ConnectionRefusedError | socket.gaierror | None:
    """Return the cause of an error if no connection was made; None for other causes."""
    # Breadth-first, through the groups in which anyio collects the attempts of several addresses.
    pending: list[BaseException | None] = [error]
    for _ in range(20):
        found = pending.pop(0) if pending else None
        if found is None:
            continue
        if isinstance(found, ConnectionRefusedError | socket.gaierror):
            return found
        if isinstance(found, BaseExceptionGroup):
            pending += cast("BaseExceptionGroup[BaseException]", found).exceptions
        pending += [found.__cause__, found.__context__]
    return None


def _json_object(response: _Response) -> dict[str, Any]:
    """Return the JSON object of a response, or an empty one if the response has another form."""
    if response.encoding.lower() != "identity":
        return {}
    try:
        content = json.loads(response.body.reveal())
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", content) if isinstance(content, dict) else {}


def _error_field(fields: dict[str, Any], secret: Secret) -> str:
    """Return the field `error` of a response for a message, unless it repeats the secret."""
    named = fields.get("error")
    if not isinstance(named, str) or not _ERROR_FIELD.fullmatch(named):
        return ""
    # An issuer may repeat the secret in its error.
    if secret and (secret.reveal() in named or named in secret.reveal()):
        return ""
    return f", error {named}"


def _number(value: object) -> float | None:
    """Return a positive finite number, even if given as text, or None."""
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,15}", value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 < value < 1e15 and math.isfinite(value) else None


def _claims(token: str) -> dict[str, Any]:
    """Return the claims of a token that is a JWT, without checking it, or an empty dict."""
    parts = token.split(".")
    if len(parts) != 3:
        return {}
    try:
        content = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", content) if isinstance(content, dict) else {}
