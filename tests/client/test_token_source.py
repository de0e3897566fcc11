"""Tests of the cache of tokens: refreshes, failures, bounds; on virtual time."""

from __future__ import annotations

import asyncio
import logging
import random
import sys
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from kafka_async.client.security.token_source import TokenSource, refresh_at, token_source
from kafka_async.config import ClientConfig
from kafka_async.errors import (
    ClientClosedError,
    KafkaConnectionError,
    KafkaError,
    SaslAuthenticationError,
)
from kafka_async.foundation.clock import LoopClock
from kafka_async.foundation.supervisor import Supervisor
from kafka_async.secrets import Secret
from kafka_async.types import Token

if TYPE_CHECKING:
    from kafka_async.client.security.sasl.mechanism import Tokens

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]

HOUR = 3600.0
TIMEOUT = 30.0


class Provider:
    """Returns numbered tokens that are valid for `lifetime` seconds, and counts calls."""

    def __init__(self, clock: LoopClock, lifetime: float | None = HOUR) -> None:
        self.clock = clock
        self.lifetime = lifetime
        self.calls: list[float] = []
        self.called = asyncio.Event()
        self.delay = 0.0
        self.error: BaseException | None = None

    async def __call__(self) -> Token:
        self.calls.append(self.clock.monotonic())
        self.called.set()
        value = f"token-{len(self.calls)}"
        await asyncio.sleep(self.delay)
        if self.error is not None:
            raise self.error
        lifetime = self.lifetime
        return Token(value, None if lifetime is None else self.clock.wall() + lifetime)


@pytest_asyncio.fixture
async def supervisor() -> AsyncIterator[Supervisor]:
    started = Supervisor("test")
    await started.start()
    yield started
    await started.stop()


@pytest.fixture
def provider(supervisor: Supervisor) -> Provider:
    return Provider(LoopClock(supervisor.loop))


NewSource = Callable[[Callable[[], Awaitable[Token]]], TokenSource]


@pytest.fixture
def new_source(supervisor: Supervisor) -> NewSource:
    def new(provider: Callable[[], Awaitable[Token]]) -> TokenSource:
        return TokenSource(
            provider,
            purpose="sasl_token_provider",
            supervisor=supervisor,
            clock=LoopClock(supervisor.loop),
            timeout=TIMEOUT,
            rng=random.Random(1),
        )

    return new


async def value_of(source: TokenSource) -> str:
    return (await source.token()).value.reveal()


# --- Refresh times -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lifetime", "fraction", "expected"),
    [
        (3600, 0.8, 2880),
        (3600, 0.85, 3060),
        (1000, 0.85, 700),  # the buffer of 300 s before the end
        (7200, 0.005, 60),  # the minimum period of 60 s
        (360, 0.8, 60),  # the buffer counts more than the period; here both fit exactly
        (359, 0.8, 287.2),  # neither fits
        (10, 0.8, 8),
    ],
)
async def test_refresh_times_are_those_of_java(
    lifetime: float, fraction: float, expected: float
) -> None:
    assert refresh_at(1e9, 1e9 + lifetime, fraction) - 1e9 == pytest.approx(expected)


# --- The cache -----------------------------------------------------------------------------------


async def test_satisfies_the_interface_of_mechanisms(
    new_source: NewSource, provider: Provider
) -> None:
    tokens: Tokens = new_source(provider)
    assert tokens.purpose == "sasl_token_provider"


async def test_calls_the_provider_once_for_simultaneous_connections(
    new_source: NewSource, provider: Provider
) -> None:
    provider.delay = 1
    source = new_source(provider)
    values = await asyncio.gather(*(value_of(source) for _ in range(5)))
    assert values == ["token-1"] * 5
    assert await value_of(source) == "token-1"
    assert len(provider.calls) == 1


async def test_refreshes_in_the_background_before_the_token_expires(
    new_source: NewSource, provider: Provider
) -> None:
    source = new_source(provider)
    await source.token()
    await asyncio.sleep(5 * HOUR)
    assert len(provider.calls) == 7
    gaps = [
        after - before for before, after in zip(provider.calls, provider.calls[1:], strict=False)
    ]
    assert all(0.8 * HOUR <= gap <= 0.85 * HOUR for gap in gaps)
    assert len(set(gaps)) > 1
    assert await value_of(source) == "token-7"


async def test_calls_nothing_before_the_first_connection(
    new_source: NewSource, provider: Provider
) -> None:
    new_source(provider)
    await asyncio.sleep(HOUR)
    assert provider.calls == []


async def test_does_not_cache_a_token_whose_expiry_is_unknown(
    new_source: NewSource, provider: Provider
) -> None:
    provider.lifetime = None
    source = new_source(provider)
    assert [await value_of(source) for _ in range(3)] == ["token-1", "token-2", "token-3"]
    await asyncio.sleep(HOUR)
    assert len(provider.calls) == 3


async def test_a_slow_refresh_does_not_delay_connections(
    new_source: NewSource, provider: Provider
) -> None:
    source = new_source(provider)
    await source.token()
    provider.delay = TIMEOUT - 1
    provider.called.clear()
    await provider.called.wait()
    async with asyncio.timeout(0.1):
        assert await value_of(source) == "token-1"


async def test_a_cancelled_caller_does_not_cancel_the_call_of_others(
    new_source: NewSource, provider: Provider
) -> None:
    provider.delay = 1
    source = new_source(provider)
    first = asyncio.create_task(value_of(source))
    second = asyncio.create_task(value_of(source))
    await asyncio.sleep(0.5)
    first.cancel()
    assert await second == "token-1"
    assert first.cancelled()


async def test_replaces_a_rejected_token_at_most_once_per_minute(
    new_source: NewSource, provider: Provider
) -> None:
    source = new_source(provider)
    token = await source.token()
    source.reject(token)
    assert await value_of(source) == "token-1"
    await asyncio.sleep(60)
    source.reject(token)
    assert await value_of(source) == "token-2"
    source.reject(token)
    assert await value_of(source) == "token-2"


async def test_refreshes_again_after_a_rejection(new_source: NewSource, provider: Provider) -> None:
    source = new_source(provider)
    token = await source.token()
    await asyncio.sleep(60)
    source.reject(token)
    await source.token()
    await asyncio.sleep(0.86 * HOUR)
    assert await value_of(source) == "token-3"


async def test_refreshes_a_shorter_token_after_a_rejection_before_it_expires(
    new_source: NewSource, provider: Provider
) -> None:
    source = new_source(provider)
    token = await source.token()
    await asyncio.sleep(60)
    provider.lifetime = 100
    source.reject(token)
    await source.token()
    await asyncio.sleep(90)
    assert len(provider.calls) == 3


# --- Failures ------------------------------------------------------------------------------------


async def test_keeps_the_old_token_while_the_provider_fails(
    new_source: NewSource, provider: Provider, caplog: pytest.LogCaptureFixture
) -> None:
    source = new_source(provider)
    await source.token()
    provider.error = ValueError("planted-secret")
    await asyncio.sleep(0.9 * HOUR)
    assert await value_of(source) == "token-1"
    retries = provider.calls[1:]
    assert retries[1] - retries[0] == pytest.approx(10)
    assert "raised ValueError" in caplog.text
    assert "stays in use and is valid for" in caplog.text
    assert "planted-secret" not in caplog.text
    provider.error = None
    await asyncio.sleep(10)
    assert await value_of(source) == f"token-{len(provider.calls)}"


async def test_raises_when_the_token_has_expired_and_the_provider_fails(
    new_source: NewSource, provider: Provider
) -> None:
    source = new_source(provider)
    await source.token()
    provider.error = ValueError("planted-secret")
    await asyncio.sleep(1.1 * HOUR)
    with pytest.raises(SaslAuthenticationError, match="raised ValueError") as raised:
        await source.token()
    assert "planted-secret" not in str(raised.value)


async def test_a_provider_that_raises_cancelled_error_is_reported_like_another_error(
    new_source: NewSource,
) -> None:
    async def provide() -> Token:
        raise asyncio.CancelledError

    with pytest.raises(SaslAuthenticationError, match="raised CancelledError"):
        await new_source(provide).token()


@pytest.mark.parametrize("asynchronous", [True, False])
async def test_a_provider_that_exits_is_reported_and_ends_no_task(
    new_source: NewSource, asynchronous: bool
) -> None:
    async def provide() -> Token:
        sys.exit("planted-secret")

    def exit_at_once() -> Awaitable[Token]:
        sys.exit("planted-secret")

    source = new_source(provide if asynchronous else exit_at_once)
    with pytest.raises(SaslAuthenticationError, match="raised SystemExit") as raised:
        await source.token()
    assert "planted-secret" not in str(raised.value)


async def test_the_error_of_a_provider_names_its_type_and_has_it_as_cause(
    new_source: NewSource, provider: Provider, caplog: pytest.LogCaptureFixture
) -> None:
    provider.error = ZeroDivisionError()
    with pytest.raises(
        SaslAuthenticationError, match="sasl_token_provider raised ZeroDivisionError"
    ) as raised:
        await new_source(provider).token()
    assert raised.value.__cause__ is provider.error
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "cannot be authenticated" in caplog.text


@pytest.mark.parametrize("error", [ConnectionResetError("x"), TimeoutError("x")])
async def test_a_failure_of_the_network_is_retriable(
    new_source: NewSource, provider: Provider, error: OSError
) -> None:
    provider.error = error
    with pytest.raises(KafkaConnectionError, match=f"raised {type(error).__name__}"):
        await new_source(provider).token()


@pytest.mark.parametrize("error", [SaslAuthenticationError("why"), KafkaConnectionError("why")])
async def test_errors_of_kafka_keep_their_class_and_message(
    new_source: NewSource, provider: Provider, error: KafkaError
) -> None:
    provider.error = error
    with pytest.raises(type(error), match="why"):
        await new_source(provider).token()


async def test_a_provider_that_hangs_is_cancelled_and_reported(
    new_source: NewSource, provider: Provider, supervisor: Supervisor
) -> None:
    provider.delay = 10 * HOUR
    source, started = new_source(provider), supervisor.loop.time()
    results = await asyncio.gather(source.token(), source.token(), return_exceptions=True)
    assert supervisor.loop.time() - started == pytest.approx(TIMEOUT)
    for result in results:
        assert isinstance(result, KafkaConnectionError)
        assert "did not return within 30 s" in str(result)
    assert len(provider.calls) == 1


async def test_a_provider_that_ignores_cancellation_does_not_hold_its_callers(
    new_source: NewSource, supervisor: Supervisor
) -> None:
    release = asyncio.Event()
    calls = 0

    async def stubborn() -> Token:
        nonlocal calls
        calls += 1
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        return Token("late")

    source, started = new_source(stubborn), supervisor.loop.time()
    with pytest.raises(KafkaConnectionError, match="ignores its cancellation"):
        await source.token()
    assert supervisor.loop.time() - started <= TIMEOUT + 1
    with pytest.raises(KafkaConnectionError, match="has not returned"):
        await source.token()
    assert calls == 1
    release.set()


async def test_a_provider_that_hung_is_called_again_after_ten_seconds(
    new_source: NewSource, provider: Provider, supervisor: Supervisor
) -> None:
    provider.delay = 10 * HOUR
    source = new_source(provider)
    with pytest.raises(KafkaConnectionError, match="did not return within 30 s"):
        await source.token()
    failed_at, provider.delay = supervisor.loop.time(), 0.0
    while len(provider.calls) == 1:
        try:
            await source.token()
        except KafkaConnectionError:
            await asyncio.sleep(0.05)
    assert provider.calls[1] - failed_at == pytest.approx(10, abs=0.1)


async def test_failures_are_not_retried_before_a_back_off(
    new_source: NewSource, provider: Provider, supervisor: Supervisor
) -> None:
    provider.error = ValueError()
    source = new_source(provider)
    end = supervisor.loop.time() + 60
    while supervisor.loop.time() < end:
        with pytest.raises(SaslAuthenticationError, match="raised ValueError"):
            await source.token()
        await asyncio.sleep(0.05)
    assert 10 <= len(provider.calls) <= 16
    provider.error = None
    await asyncio.sleep(12)
    await source.token()


async def returns_text() -> object:
    return "planted-secret"


async def returns_none() -> object:
    return None


def is_not_a_coroutine() -> object:
    return Token("planted-secret")


async def returns_expired() -> object:
    return Token("t", 1_000_000_000.0)


async def returns_milliseconds() -> object:
    return Token("t", 4e12)


async def returns_nan() -> object:
    return Token("t", float("nan"))


async def returns_text_as_time() -> object:
    return Token("t", "2030-01-01")  # pyright: ignore[reportArgumentType]


async def returns_no_text_as_value() -> object:
    return Token(Secret(b"planted-secret"))  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        (returns_text, "returned a str, not a Token"),
        (returns_none, "returned None, not a Token"),
        (is_not_a_coroutine, "async def"),
        (returns_expired, "expired .* ago"),
        (returns_milliseconds, "not in milliseconds"),
        (returns_nan, "in seconds since the epoch"),
        (returns_text_as_time, "expires_at is a str"),
        (returns_no_text_as_value, "value is a bytes"),
    ],
)
async def test_wrong_results_raise_a_clear_error(
    new_source: NewSource, wrong: Callable[[], Awaitable[Token]], match: str
) -> None:
    with pytest.raises(SaslAuthenticationError, match=match) as raised:
        await new_source(wrong).token()
    shown = traceback.TracebackException.from_exception(raised.value, capture_locals=True)
    product = [str(frame.locals) for frame in shown.stack if "/kafka_async/" in frame.filename]
    assert len(product) >= 2
    assert "planted-secret" not in f"{raised.value}{product}"


# --- Closing -------------------------------------------------------------------------------------


async def test_closing_when_the_provider_returns_is_no_failure(
    new_source: NewSource, supervisor: Supervisor
) -> None:
    released = asyncio.get_running_loop().create_future()
    expires_at = LoopClock(supervisor.loop).wall() + HOUR

    async def provide() -> Token:
        await released
        return Token("token", expires_at)

    call = asyncio.create_task(new_source(provide).token())
    await asyncio.sleep(1)
    released.set_result(None)
    await supervisor.stop()
    await asyncio.wait([call])
    assert supervisor.failure is None


async def test_closing_ends_calls_and_the_refresh(
    new_source: NewSource, provider: Provider, supervisor: Supervisor
) -> None:
    source = new_source(provider)
    await source.token()
    provider.lifetime, provider.delay = None, 20
    other = new_source(provider)
    waiting = asyncio.create_task(other.token())
    await asyncio.sleep(1)
    await supervisor.stop()
    with pytest.raises(ClientClosedError):
        await waiting
    await asyncio.sleep(2 * HOUR)
    assert len(provider.calls) == 2


async def test_options_select_the_provider(supervisor: Supervisor, provider: Provider) -> None:
    clock = LoopClock(supervisor.loop)
    assert token_source(ClientConfig("localhost:9092"), supervisor, clock) is None
    config = ClientConfig(
        "localhost:9092",
        security_protocol="SASL_SSL",
        sasl_mechanism="OAUTHBEARER",
        sasl_token_provider=provider,
    )
    source = token_source(config, supervisor, clock)
    assert source is not None
    assert await value_of(source) == "token-1"
