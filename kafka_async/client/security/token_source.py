"""Caches the token of one client and replaces it before it expires.

A provider is called when a connection needs a token and there is none that is valid, and in the
background before the token expires, at the times of Java's client (sasl.login.refresh.*). All
connections share one call. If no new token can be obtained, the old one is used until it expires.

A token without a known expiry is not cached: each authentication calls the provider.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import math
import random
import sys
from copy import copy
from typing import TYPE_CHECKING, Final, cast

from kafka_async.client.security.token_errors import TokenTimeoutError
from kafka_async.config import seconds
from kafka_async.config.spelling import spell
from kafka_async.errors import (
    ClientClosedError,
    KafkaConnectionError,
    KafkaError,
    SaslAuthenticationError,
)
from kafka_async.foundation.backoff import Backoff
from kafka_async.types import Token

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from kafka_async.config import ClientConfig, TokenProvider
    from kafka_async.foundation.clock import Clock
    from kafka_async.foundation.supervisor import SupervisedTask, Supervisor

logger = logging.getLogger("kafka_async.cluster")

WINDOW_FACTOR: Final = 0.8
"""Part of a token's lifetime after which it is refreshed (sasl.login.refresh.window.factor)."""
WINDOW_JITTER: Final = 0.05
"""Maximum random addition to WINDOW_FACTOR (sasl.login.refresh.window.jitter)."""
MIN_PERIOD: Final = 60.0
"""Minimum seconds between refreshes (sasl.login.refresh.min.period.seconds)."""
BUFFER: Final = 300.0
"""Seconds before a token's expiry at which it is refreshed (sasl.login.refresh.buffer.seconds)."""
MIN_REFRESH_INTERVAL: Final = 1.0
"""Seconds between two refreshes, so that tokens with a short lifetime do not keep the loop busy."""
REFRESH_RETRY_DELAY: Final = 10.0
"""Seconds before the next call after a failed refresh in the background, as in Java, and after a
provider has not returned in time."""
RETRY_BACKOFF: Final = 0.1
RETRY_BACKOFF_MAX: Final = 10.0
"""Bounds of the seconds without calls of the provider after it has failed (sasl.login.retry.*)."""
_GRACE: Final = 1.0
"""Seconds that a cancelled provider has to end before its callers stop waiting for it."""
_MAX_SECONDS: Final = 1e11
"""Greater expiry times are milliseconds by mistake; in seconds this is the year 5138."""


def refresh_at(now: float, expires_at: float, fraction: float) -> float:
    """Return the time at which to refresh a token that was fetched `now`.

    Args:
        now: Seconds since the epoch.
        expires_at: End of the token's lifetime, in seconds since the epoch.
        fraction: Part of the lifetime after which to refresh, if the minimum period and the buffer
            before the end allow it; they do not count for a lifetime shorter than both together.
    """
    proposed = now + (expires_at - now) * fraction
    if now + MIN_PERIOD + BUFFER > expires_at:
        return proposed
    return min(max(proposed, now + MIN_PERIOD), expires_at - BUFFER)


class TokenSource:
    """Provides the current token to connections; implements `Tokens` of the mechanisms.

    Args:
        provider: Coroutine function that returns a `Token`.
        purpose: Name of the provider in messages, such as "sasl_token_provider".
        supervisor: Runs the calls.
        clock: Clock by which tokens expire.
        timeout: Maximum time of a call, in seconds.
        rng: Draws the refresh times; replaced in tests.
    """

    def __init__(
        self,
        provider: TokenProvider,
        *,
        purpose: str,
        supervisor: Supervisor,
        clock: Clock,
        timeout: float,
        rng: random.Random | None = None,
    ) -> None:
        # Passed in.
        self.purpose = purpose
        self._provider = provider
        self._supervisor = supervisor
        self._clock = clock
        self._timeout = timeout
        self._rng = rng or random.Random()
        # The present token, and when the background task replaces it.
        self._token: Token | None = None
        self._fetched_at = 0.0
        self._refresh_at = 0.0
        # The call that all connections share, and when they stop waiting for it.
        self._call: asyncio.Future[Token] | None = None
        self._call_until = 0.0
        self._refresher: SupervisedTask | None = None
        # After a failure: what is raised until the provider is called again.
        self._backoff = Backoff(RETRY_BACKOFF, RETRY_BACKOFF_MAX, rng=self._rng)
        self._failure: KafkaError | None = None
        self._retry_at = 0.0

    async def token(self) -> Token:
        """Return a token that has not expired, from the provider if none is cached.

        Raises:
            SaslAuthenticationError: The provider raised, or returned something else than a valid
                token.
            KafkaConnectionError: The provider raised an OSError, the issuer failed, or, as
                TokenTimeoutError, the provider did not return in time, or, as
                TokenEndpointUnreachableError, the issuer could not be connected to. A later call
                may succeed.
            ClientClosedError: The client was closed.
        """
        token = self._token
        if token is not None and self._seconds_left(token) > 0:
            return token
        # Many connections may need a token at the same time; each failure is a call that all share.
        if self._failure is not None and self._supervisor.loop.time() < self._retry_at:
            raise copy(self._failure) from self._failure.__cause__
        return await self._fetch()

    @property
    def failure(self) -> KafkaError | None:
        """Error of the last call of the provider, or None if it succeeded or none was made."""
        return self._failure

    def reject(self, token: Token) -> None:
        """Forget a token that the broker has rejected, unless it is newer than MIN_PERIOD."""
        # A new token would probably be rejected too, and calling for each connection would overload
        # the issuer.
        if token is self._token and self._clock.wall() - self._fetched_at >= MIN_PERIOD:
            self._token = None

    def _seconds_left(self, token: Token) -> float:
        return 0.0 if token.expires_at is None else token.expires_at - self._clock.wall()

    # -- calls of the provider --------------------------------------------------------------------

    async def _fetch(self) -> Token:
        """Wait for the call in progress, or for a new one."""
        loop = self._supervisor.loop
        if self._call is None:
            call: asyncio.Future[Token] = loop.create_future()
            self._supervisor.spawn(self._run_call, call, name="token provider")
            self._call, self._call_until = call, loop.time() + self._timeout + _GRACE
        call = self._call
        # Not `await call`: a caller that is cancelled leaves the call to the others.
        await asyncio.wait([call], timeout=max(0.0, self._call_until - loop.time()))
        if not call.done():
            raise TokenTimeoutError(
                f"{self.purpose} has not returned within {self._timeout:g} s, and ignores its "
                "cancellation: it must not catch asyncio.CancelledError"
            )
        error = call.exception()
        if error is None:
            return call.result()
        # A copy for each caller: a raised error gets a traceback.
        raise copy(error) from error.__cause__

    async def _run_call(self, call: asyncio.Future[Token]) -> None:
        """Call the provider and complete `call`."""
        failure: KafkaError = ClientClosedError(f"{self._supervisor.name} was closed")
        try:
            token = await self._call_provider()
        except KafkaError as error:
            failure = error
            self._on_failure(error)
        else:
            self._on_token(token)
            call.set_result(token)
        finally:
            self._call = None
            if not call.done():
                call.set_exception(failure)
                call.exception()  # retrieved, since not every failure has a waiting caller

    async def _call_provider(self) -> Token:
        """Return a valid token; raise KafkaError for everything else."""
        limit = asyncio.timeout(self._timeout)
        try:
            async with limit:
                awaitable = _awaitable_or_kind(self._provider())
                if isinstance(awaitable, str):
                    raise SaslAuthenticationError(
                        f"{self.purpose} is not a coroutine function: it returned {awaitable}. "
                        "Define it with `async def`"
                    )
                token = _token_or_kind(await awaitable)
        except KafkaError:
            raise
        except OSError as error:
            # A TimeoutError is an OSError: it may come from the limit above.
            if limit.expired():
                limit_name = spell("socket_connection_setup_timeout_max_ms")
                raise TokenTimeoutError(
                    f"{self.purpose} did not return within {self._timeout:g} s ({limit_name}), so "
                    "there is no token: check what it waits for"
                ) from error
            raise KafkaConnectionError(
                f"{self.purpose} raised {type(error).__name__}, so there is no token: the next "
                "connection tries again"
            ) from error
        except (Exception, SystemExit, asyncio.CancelledError) as error:
            # SystemExit would leave the event loop at once, with all tasks of the application.
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and task and task.cancelling():
                raise  # the client is closed; otherwise the provider has raised it
            raise SaslAuthenticationError(
                f"{self.purpose} raised {type(error).__name__}, so there is no token: see the "
                "cause of this error. Let it raise an OSError for failures that a retry may solve"
            ) from error
        if isinstance(token, str):
            raise SaslAuthenticationError(
                f"{self.purpose} returned {token}, not a Token: return "
                "kafka_async.Token(value, expires_at)"
            )
        self._check(token)
        return token

    def _check(self, token: Token) -> None:
        """Raise SaslAuthenticationError unless a token is well-formed and valid now."""
        # Types are checked since the provider is code of the application.
        if not isinstance(cast("object", token.value.reveal()), str):
            raise SaslAuthenticationError(
                f"{self.purpose} returned a token whose value is {_kind(token.value.reveal())}: "
                "it is a str or a Secret"
            )
        expires_at = cast("object", token.expires_at)
        if expires_at is None:
            return
        if isinstance(expires_at, bool) or not isinstance(expires_at, int | float):
            raise SaslAuthenticationError(
                f"{self.purpose} returned a token whose expires_at is {_kind(expires_at)}: it is a "
                "number, the seconds since the epoch"
            )
        if not math.isfinite(expires_at) or expires_at > _MAX_SECONDS:
            raise SaslAuthenticationError(
                f"{self.purpose} returned a token with expires_at={expires_at:g}: it is in seconds "
                "since the epoch, not in milliseconds"
            )
        left = expires_at - self._clock.wall()
        if left <= 0:
            raise SaslAuthenticationError(
                f"{self.purpose} returned a token that expired {-left:.0f} s ago: return a new "
                "one, and check the clocks of this host and of the token's issuer"
            )

    # -- results ----------------------------------------------------------------------------------

    def _on_token(self, token: Token) -> None:
        self._backoff.reset()
        self._failure = None
        if token.expires_at is None:
            self._token = None
            return
        self._token = token
        self._fetched_at = now = self._clock.wall()
        fraction = WINDOW_FACTOR + WINDOW_JITTER * self._rng.random()
        self._refresh_at = refresh_at(now, token.expires_at, fraction)
        if not self._supervisor.running:  # the client was closed when the provider returned
            return
        if self._refresher is not None:
            self._refresher.cancel()  # it may sleep until the refresh time of an earlier token
        self._refresher = self._supervisor.spawn(self._refresh, name="token refresh")

    def _on_failure(self, error: KafkaError) -> None:
        self._failure = error
        delay = self._backoff.next()
        # Calling it again soon would probably block again.
        if isinstance(error, TokenTimeoutError):
            delay = max(delay, REFRESH_RETRY_DELAY)
        self._retry_at = self._supervisor.loop.time() + delay
        left = 0.0 if self._token is None else self._seconds_left(self._token)
        if left > 0:
            effect = f"the current token stays in use and is valid for {left:.0f} s more"
        else:
            effect = "connections cannot be authenticated until it returns one"
        # The provider's own message is left to the traceback: it may contain a secret.
        logger.warning("no new token: %s; %s", error.message, effect)

    async def _refresh(self) -> None:
        """Replace the token whenever it is due, until no token expires."""
        while self._token is not None:
            earliest = max(self._refresh_at, self._fetched_at + MIN_REFRESH_INTERVAL)
            delay = earliest - self._clock.wall()
            if delay > 0:
                await asyncio.sleep(delay)
                continue  # the token may have been replaced during the wait
            try:
                await self._fetch()
            except KafkaError:  # already logged
                await asyncio.sleep(REFRESH_RETRY_DELAY)


def token_source(config: ClientConfig, supervisor: Supervisor, clock: Clock) -> TokenSource | None:
    """Return the source of the client's tokens, or None if no option selects a provider."""
    origin = _origin(config, supervisor, clock)
    if origin is None:
        return None
    provider, purpose = origin
    timeout = seconds(config.socket_connection_setup_timeout_max_ms)
    return TokenSource(
        provider, purpose=purpose, supervisor=supervisor, clock=clock, timeout=timeout
    )


def _origin(
    config: ClientConfig, supervisor: Supervisor, clock: Clock
) -> tuple[TokenProvider, str] | None:
    """Return the provider that the options select, and its name in messages."""
    if config.sasl_mechanism == "AWS_MSK_IAM":
        from kafka_async.client.security.sasl.aws_msk_iam import MskIamTokens

        provider = MskIamTokens(config, supervisor.offload_credentials, clock, _user_agent())
        return provider, "AWS_MSK_IAM"
    if config.sasl_token_provider is not None:
        return config.sasl_token_provider, "sasl_token_provider"
    if config.sasl_oauthbearer_token_endpoint_url is not None:
        from kafka_async.client.security.oidc import TokenEndpoint

        endpoint = TokenEndpoint(config, supervisor.offload, clock)
        return endpoint, "sasl_oauthbearer_token_endpoint_url"
    return None


def _user_agent() -> str:
    return f"kafka-async/{getattr(sys.modules['kafka_async'], '__version__', 'unknown')}"


# A value that is not a token may still be a secret, so it must not be a variable of a frame that
# raises.


def _awaitable_or_kind(value: object) -> Awaitable[object] | str:
    return cast("Awaitable[object]", value) if inspect.isawaitable(value) else _kind(value)


def _token_or_kind(value: object) -> Token | str:
    return value if isinstance(value, Token) else _kind(value)


def _kind(value: object) -> str:
    """Return the name of a value's type with its article."""
    name = "None" if value is None else type(value).__name__
    return name if value is None else f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"
