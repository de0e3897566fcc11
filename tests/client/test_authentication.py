"""Tests of authentication by SASL: errors, providers, sessions, changed credentials."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async.client.client import Client, services_of
from kafka_async.client.connection.broker_connection import BrokerConnection, ConnectionKind
from kafka_async.client.connection.connection_authentication import (
    EARLIEST_REAUTHENTICATION,
    LATEST_REAUTHENTICATION,
)
from kafka_async.client.metadata.request_router import AnyBroker
from kafka_async.client.security.sasl.aws_msk_iam import MskIamTokens
from kafka_async.client.security.sasl.mechanism import Await, Compute, Exchange, SaslContext
from kafka_async.errors import (
    BootstrapError,
    EncodeError,
    IllegalSaslStateError,
    InvalidConfigurationError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    NotCoordinatorError,
    SaslAuthenticationError,
    UnsupportedSaslMechanismError,
)
from kafka_async.foundation.supervisor import Supervisor
from kafka_async.hooks import Authenticated, AuthenticationFailed, ClientEvent, Disconnected
from kafka_async.protocol.header import encode_response
from kafka_async.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kafka_async.protocol.messages.produce import ProduceRequest
from kafka_async.protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from kafka_async.protocol.messages.sasl_handshake import SaslHandshakeResponse
from kafka_async.secrets import SecretBytes
from kafka_async.types import Token
from tests.client.scripted import METADATA, Peer, always
from tests.client.secure_world import (
    FAILED,
    ILLEGAL_STATE,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    SecureWorld,
)
from tests.embedded_client import now, settle, until

if TYPE_CHECKING:
    from kafka_async.config import ClientConfig
    from kafka_async.protocol.header import RequestHeader

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]

HEARTBEAT = HeartbeatRequest.API_KEY


def heartbeat(number: int = 0) -> HeartbeatRequest:
    return HeartbeatRequest(group_id="g", generation_id=number)


def connection_of(
    client: Client, kind: ConnectionKind = ConnectionKind.GENERAL
) -> BrokerConnection:
    """Return a connection to broker 1, which the test owns unless it is shared."""
    brokers = services_of(client).brokers
    if kind is ConnectionKind.GENERAL:
        return brokers.general(1)
    if kind is ConnectionKind.SLOW:
        return brokers.slow(1)
    return brokers.connection(1, kind, client)


async def start_error(client: Client) -> tuple[KafkaError, float]:
    """Return the error of `start`, and the seconds until it was raised."""
    began = now()
    with pytest.raises(KafkaError) as raised:
        await client.start()
    return raised.value, now() - began


# -- the first authentication ---------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_authenticates_before_the_first_request(mechanism: str) -> None:
    world = SecureWorld()
    async with world.client(sasl_mechanism=mechanism):
        apis = world.apis
    messages = 1 if mechanism == "PLAIN" else 2
    assert apis[:2] == [18, SASL_HANDSHAKE]
    assert apis[2:] == [SASL_AUTHENTICATE] * messages + [METADATA]
    assert world.broker.violations == []


async def test_wrong_password_ends_start_at_once_without_a_retry() -> None:
    world = SecureWorld()
    error, elapsed = await start_error(world.client(sasl_password="guess"))
    assert isinstance(error, SaslAuthenticationError)
    assert "b1:9092" in error.message
    assert "Invalid username or password" in error.message
    assert "check sasl_username and sasl_password" in error.message
    assert "guess" not in error.message
    assert elapsed < 2
    assert world.attempts == 1


async def test_wrong_password_by_scram_ends_start_at_once() -> None:
    world = SecureWorld()
    client = world.client(sasl_mechanism="SCRAM-SHA-256", sasl_password="guess")
    error, elapsed = await start_error(client)
    assert isinstance(error, SaslAuthenticationError)
    assert "has credentials for SCRAM-SHA-256" in error.message
    assert elapsed < 2


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
@pytest.mark.parametrize("option", ["sasl_username", "sasl_password"])
async def test_rejection_names_credentials_with_spaces_around_them(
    mechanism: str, option: str
) -> None:
    padded = {"sasl_username": "alice ", "sasl_password": "wonderland\n"}
    options = {"sasl_mechanism": mechanism, option: padded[option]}
    error, _ = await start_error(SecureWorld().client(**options))
    assert isinstance(error, SaslAuthenticationError)
    assert f"; {option} begins or ends with a space or a line break" in error.message
    assert "wonderland" not in error.message


async def test_rejection_of_a_delegation_token_advises_about_the_token() -> None:
    options = {"sasl_password": "guess", "sasl_delegation_token": True}
    error, _ = await start_error(SecureWorld().client(sasl_mechanism="SCRAM-SHA-256", **options))
    assert isinstance(error, SaslAuthenticationError)
    assert "check the token's id (sasl_username) and HMAC (sasl_password)" in error.message


async def test_unsupported_mechanism_names_those_that_the_broker_offers() -> None:
    world = SecureWorld()
    world.mechanisms = ["SCRAM-SHA-512", "OAUTHBEARER"]
    error, elapsed = await start_error(world.client())
    assert isinstance(error, UnsupportedSaslMechanismError)
    assert 'sasl_mechanism="PLAIN"' in error.message
    assert "SCRAM-SHA-512, OAUTHBEARER" in error.message
    assert elapsed < 2


async def test_listener_without_authentication_is_reported() -> None:
    world = SecureWorld()
    world.broker.handlers[SASL_HANDSHAKE] = always(SaslHandshakeResponse(error_code=ILLEGAL_STATE))
    error, elapsed = await start_error(world.client())
    assert isinstance(error, IllegalSaslStateError)
    assert "security_protocol" in error.message
    assert elapsed < 2


async def test_broker_that_always_closes_at_the_authentication_is_reported() -> None:
    world = SecureWorld()

    def close(peer: Peer, header: RequestHeader, request: object) -> None:
        peer.transport.close()

    world.broker.handlers[SASL_AUTHENTICATE] = close
    error, elapsed = await start_error(world.client())
    assert isinstance(error, SaslAuthenticationError)
    assert "closed the connection during the authentication" in error.message
    assert elapsed < 2


async def test_broker_that_closes_once_at_the_authentication_is_tried_again() -> None:
    world = SecureWorld()

    def close(peer: Peer, header: RequestHeader, request: object) -> None:
        del world.broker.handlers[SASL_AUTHENTICATE]
        peer.transport.close()

    world.broker.handlers[SASL_AUTHENTICATE] = close
    async with world.client():
        assert world.broker.connections == 1


async def test_broker_that_does_not_answer_the_authentication_is_given_up() -> None:
    world = SecureWorld()
    world.broker.held.add(SASL_AUTHENTICATE)
    events: list[AuthenticationFailed] = []
    client = world.client(default_api_timeout_ms=15_000, socket_connection_setup_timeout_ms=4_000)
    client.hooks.listen(AuthenticationFailed, events.append)
    error, _ = await start_error(client)
    assert isinstance(error, BootstrapError)
    assert "does not answer the authentication" in error.message
    assert events[0].seconds <= 4.0 * 1.2  # the jitter of the time-out


async def test_password_that_a_broker_repeats_is_not_shown() -> None:
    world = SecureWorld()
    world.broker.handlers[SASL_AUTHENTICATE] = always(
        SaslAuthenticateResponse(error_code=FAILED, error_message="no: wonderland" + "x" * 10_000)
    )
    error, _ = await start_error(world.client())
    assert isinstance(error, SaslAuthenticationError)
    assert "wonderland" not in str(error)
    assert "no: ***" in error.message
    assert len(error.message) < 1000


async def token_provider() -> Token:
    return Token("planted.token.value")


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ({"sasl_mechanism": "OAUTHBEARER", "sasl_token_provider": token_provider}, "issuer"),
        ({"sasl_mechanism": "AWS_MSK_IAM"}, "by AWS_MSK_IAM.*kafka-cluster:Connect"),
    ],
)
async def test_rejected_token_is_not_shown_and_the_advice_is_that_of_the_mechanism(
    options: dict[str, Any], advice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def call(self: object) -> Token:
        return await token_provider()

    monkeypatch.setattr(MskIamTokens, "__call__", call)
    world = SecureWorld()
    world.broker.handlers[SASL_HANDSHAKE] = always(SaslHandshakeResponse())
    world.broker.handlers[SASL_AUTHENTICATE] = always(
        SaslAuthenticateResponse(error_code=FAILED, error_message="no: planted.token.value")
    )
    client = world.client(sasl_username=None, sasl_password=None, **options)
    error, _ = await start_error(client)
    assert isinstance(error, SaslAuthenticationError)
    assert "planted" not in str(error)
    assert "no: ***" in error.message
    assert re.search(advice, error.message)


async def test_rejected_credentials_do_not_make_a_tight_loop() -> None:
    world = SecureWorld()
    async with world.client() as client:
        world.users["alice"] = "changed"
        for peer in world.broker.peers:
            peer.transport.abort()
        world.attempts = 0
        with pytest.raises(SaslAuthenticationError):
            await client.request(heartbeat(), to=AnyBroker())
        began = now()
        await asyncio.sleep(60)
        # reconnect_backoff_max_ms is 1 s, less 20 % of jitter.
        assert world.attempts <= (now() - began) / 0.8 + 5
        world.users["alice"] = "wonderland"
        await asyncio.sleep(2)
        await client.request(heartbeat(), to=AnyBroker())
    assert world.broker.violations == []


async def test_call_fails_at_once_with_rejected_credentials_and_the_next_succeeds() -> None:
    world = SecureWorld()
    async with world.client() as client:
        world.users["alice"] = "changed"
        for peer in world.broker.peers:
            peer.transport.abort()
        began = now()
        with pytest.raises(SaslAuthenticationError):
            await client.request(heartbeat(), to=AnyBroker())
        assert now() - began < 2
        await client.set_sasl_credentials("alice", "changed")
        await client.request(heartbeat(), to=AnyBroker())
        assert now() - began < 5


# -- mechanisms of applications -------------------------------------------------------------------


class Custom:
    """A mechanism of an application: PLAIN with a password that `get` returns."""

    name = "PLAIN"
    needs_tls = False

    def __init__(self, get: Callable[[], Any], *, compute: bool = False) -> None:
        self._get = get
        self._compute = compute

    def check(self, config: ClientConfig) -> None:
        pass

    def authenticate(self, context: SaslContext) -> Exchange:
        step = Compute(self._get) if self._compute else Await(self._get, "password_provider")
        password: str = yield step
        yield SecretBytes(b"\0alice\0" + password.encode())


def client_with(world: SecureWorld, mechanism: object, **options: Any) -> Client:
    return world.client(sasl_mechanism=mechanism, sasl_username=None, sasl_password=None, **options)


async def test_mechanism_object_of_an_application_is_used() -> None:
    async def get() -> str:
        await asyncio.sleep(1)
        return "wonderland"

    world = SecureWorld()
    async with client_with(world, Custom(get)):
        assert world.broker.violations == []


async def test_function_of_a_mechanism_is_computed() -> None:
    world = SecureWorld()
    async with client_with(world, Custom(lambda: "wonderland", compute=True)):
        assert world.attempts == 1


@pytest.mark.parametrize(
    "raised", [ValueError("the secret"), TimeoutError("the secret"), OSError("the secret")]
)
@pytest.mark.parametrize("compute", [False, True])
async def test_exception_of_a_provider_becomes_an_authentication_error_without_its_text(
    raised: Exception, compute: bool
) -> None:
    def fail() -> str:
        raise raised

    async def fail_later() -> str:
        raise raised

    world = SecureWorld()
    client = client_with(world, Custom(fail if compute else fail_later, compute=compute))
    error, elapsed = await start_error(client)
    assert isinstance(error, SaslAuthenticationError)
    assert "secret" not in str(error)
    assert type(raised).__name__ in error.message
    assert compute or "password_provider" in error.message
    assert error.__cause__ is raised
    assert elapsed < 2


@pytest.mark.parametrize("error", [NotCoordinatorError, KafkaConnectionError])
async def test_retriable_error_of_a_provider_is_retried(error: type[KafkaError]) -> None:
    calls = 0

    async def get() -> str:
        nonlocal calls
        calls += 1
        if calls < 10:
            raise error("the vault is sealed")
        return "wonderland"

    async with client_with(SecureWorld(), Custom(get)):
        assert calls == 10


async def test_provider_that_hangs_is_bounded_and_named() -> None:
    cancelled = 0

    async def get() -> str:
        nonlocal cancelled
        try:
            await asyncio.sleep(1000)
        finally:
            cancelled += 1
        return ""

    world = SecureWorld()
    client = client_with(
        world,
        Custom(get),
        default_api_timeout_ms=10_000,
        socket_connection_setup_timeout_ms=3_000,
    )
    error, _ = await start_error(client)
    assert "password_provider did not return within" in error.message
    assert cancelled > 0


async def test_error_names_the_failure_of_a_provider_that_is_called_again() -> None:
    calls = 0

    async def provide() -> Token:
        nonlocal calls
        calls += 1
        await asyncio.sleep(7)
        raise ConnectionError("no route to the vault")

    world = SecureWorld()
    world.broker.handlers[SASL_HANDSHAKE] = always(SaslHandshakeResponse())
    client = world.client(
        sasl_mechanism="OAUTHBEARER",
        sasl_username=None,
        sasl_password=None,
        sasl_token_provider=provide,
        default_api_timeout_ms=10_000,
    )
    error, _ = await start_error(client)
    assert isinstance(error, BootstrapError)
    assert "sasl_token_provider raised ConnectionError" in error.message
    assert calls == 2


async def test_function_that_hangs_in_its_thread_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    async def hang(supervisor: Supervisor, function: Callable[[], str]) -> str:
        await asyncio.sleep(1000)
        return function()

    monkeypatch.setattr(Supervisor, "offload_credentials", hang)
    client = client_with(
        SecureWorld(),
        Custom(lambda: "wonderland", compute=True),
        default_api_timeout_ms=10_000,
        socket_connection_setup_timeout_ms=3_000,
    )
    error, _ = await start_error(client)
    assert "the computation of the SASL mechanism did not return within" in error.message


async def test_mechanism_that_raises_becomes_an_authentication_error() -> None:
    class Broken(Custom):
        def authenticate(self, context: SaslContext) -> Exchange:
            yield SecretBytes(b"\0alice\0wonderland")
            raise KeyError("the secret")

    error, elapsed = await start_error(client_with(SecureWorld(), Broken(str)))
    assert isinstance(error, SaslAuthenticationError)
    assert "KeyError" in error.message
    assert "secret" not in error.message
    assert elapsed < 2


async def test_mechanism_that_raises_before_its_first_step_does_not_end_the_client() -> None:
    class Broken(Custom):
        def authenticate(self, context: SaslContext) -> Exchange:
            raise KeyError("the secret")

    error, elapsed = await start_error(client_with(SecureWorld(), Broken(str)))
    assert isinstance(error, SaslAuthenticationError)
    assert "KeyError" in error.message
    assert elapsed < 2


async def test_mechanism_that_yields_something_else_becomes_an_authentication_error() -> None:
    class Broken(Custom):
        def authenticate(self, context: SaslContext) -> Any:
            yield b"\0alice\0wonderland"

    error, _ = await start_error(client_with(SecureWorld(), Broken(str)))
    assert isinstance(error, SaslAuthenticationError)
    assert "neither SecretBytes nor Compute nor Await" in error.message


@pytest.mark.parametrize("held", [18, SASL_HANDSHAKE, SASL_AUTHENTICATE])
async def test_start_cancelled_while_it_waits_for_the_broker_leaves_nothing_behind(
    held: int,
) -> None:
    world = SecureWorld()
    world.broker.held.add(held)
    starting = asyncio.create_task(world.client(sasl_mechanism="SCRAM-SHA-256").start())
    await until(lambda: held in world.apis)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    await settle()
    assert world.broker.connections == 0


async def test_start_cancelled_while_it_waits_for_a_provider_cancels_the_provider() -> None:
    entered, ended = asyncio.Event(), asyncio.Event()

    async def get() -> str:
        entered.set()
        try:
            await asyncio.sleep(1000)
        finally:
            ended.set()
        return ""

    world = SecureWorld()
    starting = asyncio.create_task(client_with(world, Custom(get)).start())
    await entered.wait()
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    await settle()
    assert ended.is_set()
    assert world.broker.connections == 0


# -- configuration --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"sasl_password": None}, "sasl_password"),
        ({"sasl_username": None}, "sasl_username"),
        ({"sasl_mechanism": None}, "sasl_mechanism"),
        ({"sasl_mechanism": "PLAIM"}, "PLAIN, SCRAM-SHA-256"),
        ({"sasl_mechanism": Custom}, "SaslMechanism"),
        ({"sasl_mechanism": object()}, "SaslMechanism"),
        ({"sasl_allow_plaintext": False}, "sasl_allow_plaintext=True"),
        ({"security_protocol": "PLAINTEXT"}, "does not authenticate"),
        ({"sasl_delegation_token": True}, "SCRAM"),
        ({"sasl_password": "a\0b"}, "NUL"),
        ({"sasl_username": "\ud800"}, "surrogate"),
    ],
)
async def test_wrong_options_are_reported_at_construction(
    options: dict[str, Any], text: str
) -> None:
    with pytest.raises(InvalidConfigurationError, match=text) as raised:
        SecureWorld().client(**options)
    assert "wonderland" not in str(raised.value)


async def test_scram_over_plaintext_needs_an_explicit_option_too() -> None:
    with pytest.raises(InvalidConfigurationError, match="sasl_allow_plaintext"):
        SecureWorld().client(sasl_mechanism="SCRAM-SHA-512", sasl_allow_plaintext=False)


async def test_credentials_cannot_be_set_without_sasl() -> None:
    world = SecureWorld()
    client = Client(world.servers, dialer=world.network)
    with pytest.raises(InvalidConfigurationError, match="does not authenticate"):
        await client.set_sasl_credentials("alice", "wonderland")


@pytest.mark.parametrize("password", ["", "a\0b", b"wonderland", None])
async def test_credentials_that_cannot_be_sent_are_refused_and_the_old_ones_kept(
    password: Any,
) -> None:
    world = SecureWorld()
    client = world.client()
    with pytest.raises(InvalidConfigurationError) as raised:
        await client.set_sasl_credentials("alice", password)
    assert "wonderland" not in str(raised.value)
    async with client:
        assert world.attempts == 1


# -- sessions -------------------------------------------------------------------------------------

KINDS = list(ConnectionKind)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.value)
async def test_authenticates_again_before_the_session_ends_even_if_idle(
    kind: ConnectionKind,
) -> None:
    world = SecureWorld()
    world.lifetime = 60.0
    async with world.client(connections_max_idle_ms=-1) as client:
        connection = connection_of(client, kind)
        await connection.connect(5)
        await asyncio.sleep(300)
        assert connection.connected
        times = world.broker.states[world.broker.peers[-1]].authenticated
        assert len(times) >= 5
        for earlier, later in itertools.pairwise(times):
            low, high = EARLIEST_REAUTHENTICATION * 60, LATEST_REAUTHENTICATION * 60
            assert low <= later - earlier <= high + 0.01
        await connection.send(heartbeat(), timeout=5)
        await connection.close()
    assert world.broker.violations == []


async def test_an_idle_connection_is_still_closed_although_it_authenticates_again() -> None:
    world = SecureWorld()
    world.lifetime = 60.0
    async with world.client(connections_max_idle_ms=200_000, metadata_max_age_ms=10**9):
        await asyncio.sleep(250)
        assert world.broker.connections == 0


async def test_session_without_a_limit_is_not_renewed() -> None:
    world = SecureWorld()
    async with world.client(connections_max_idle_ms=-1):
        await asyncio.sleep(80_000)
        for state in world.broker.states.values():
            assert len(state.authenticated) == 1


@pytest.mark.parametrize("lifetime", [0.001, 0.5, 1.0, 1.5])
async def test_short_sessions_are_renewed_at_most_once_per_second(lifetime: float) -> None:
    world = SecureWorld()
    world.lifetime = lifetime
    async with world.client(connections_max_idle_ms=-1) as client:
        connection = connection_of(client)
        world.attempts, began = 0, now()
        if lifetime >= 0.5:
            for _ in range(20):
                await connection.send(heartbeat(), timeout=5)
                await asyncio.sleep(0.3)
        else:
            await asyncio.sleep(6)
        assert world.attempts <= now() - began + 1
    assert world.broker.violations == []


# -- requests during an authentication ------------------------------------------------------------


class Renewal:
    """A connection with an owner, whose session of 10 s the broker does not renew until `resume`.

    Args:
        pause_at: API key of the first request that the broker does not read.
    """

    def __init__(self, pause_at: int = SASL_HANDSHAKE, **options: Any) -> None:
        self.world = SecureWorld()
        self.world.lifetime = 10.0
        self.broker = self.world.broker
        self.events: list[ClientEvent] = []
        self._pause_at = pause_at
        self._options = options

    async def __aenter__(self) -> Renewal:
        self.client = self.world.client(**self._options)
        await self.client.start()
        self.connection = connection_of(self.client, ConnectionKind.PRODUCE)
        await self.connection.connect(5)
        self.peer = self.broker.peers[-1]
        self.client.hooks.listen(ClientEvent, self.events.append)
        self.broker.pause_at = self._pause_at
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.connection.close()
        await self.client.stop()

    @property
    def apis(self) -> list[int]:
        """The API keys of the requests that the connection has sent, ApiVersions excluded."""
        return [header.api_key for header, _ in self.peer.seen][1:]

    @property
    def heartbeats(self) -> list[int]:
        """The numbers of the heartbeats that the connection has sent."""
        seen = [request for _, request in self.peer.seen]
        return [each.generation_id for each in seen if isinstance(each, HeartbeatRequest)]

    async def begun(self) -> None:
        """Wait until the connection has sent what the broker does not read."""
        count = self.apis.count(self._pause_at)
        await until(lambda: self.apis.count(self._pause_at) > count)

    def events_of(self, kind: type[ClientEvent]) -> list[Any]:
        return [each for each in self.events if isinstance(each, kind)]


@pytest.mark.parametrize("pause_at", [SASL_HANDSHAKE, SASL_AUTHENTICATE])
async def test_requests_submitted_while_it_authenticates_again_are_held_and_sent_in_order(
    pause_at: int,
) -> None:
    async with Renewal(pause_at) as renewal:
        await renewal.begun()
        received: list[object] = []
        futures = [renewal.connection.submit(heartbeat(n), timeout=5) for n in range(5)]
        renewal.connection.submit_with_callback(heartbeat(5), received.append, timeout=5)
        sending = asyncio.create_task(renewal.connection.send(heartbeat(6), timeout=5))
        await asyncio.sleep(0.5)
        assert renewal.heartbeats == []
        assert renewal.connection.in_flight == 1 + 7
        assert not any(future.done() for future in futures)
        renewal.broker.resume()
        await asyncio.gather(*futures, sending)
        assert renewal.heartbeats == list(range(7))
        assert renewal.apis[-7:] == [HEARTBEAT] * 7
        assert [type(each) for each in received] == [HeartbeatResponse]
        assert renewal.broker.violations == []


async def test_requests_in_flight_are_answered_before_the_authentication() -> None:
    async with Renewal(HEARTBEAT) as renewal:
        await asyncio.sleep(8.4)
        early = [renewal.connection.submit(heartbeat(n), timeout=5) for n in range(3)]
        await until(lambda: renewal.apis.count(SASL_HANDSHAKE) == 2)
        late = renewal.connection.submit(heartbeat(3), timeout=5)
        assert renewal.apis[-4:] == [HEARTBEAT] * 3 + [SASL_HANDSHAKE]
        assert not any(each.done() for each in early)
        renewal.broker.resume()
        await asyncio.gather(*early, late)
        assert renewal.apis[-3:] == [SASL_HANDSHAKE, SASL_AUTHENTICATE, HEARTBEAT]
        assert renewal.broker.violations == []


async def test_request_held_back_for_longer_than_the_session_delays_the_authentication() -> None:
    async with Renewal(HEARTBEAT) as renewal:
        await asyncio.sleep(8)
        slow = renewal.connection.submit(heartbeat(0), timeout=200)
        await asyncio.sleep(100)
        late = renewal.connection.submit(heartbeat(1), timeout=200)
        renewal.broker.resume()
        await asyncio.gather(slow, late)
        assert renewal.broker.violations == []
        assert renewal.peer.open


async def test_ordinary_request_is_never_sent_after_the_end_of_the_session() -> None:
    """The broker takes longer than the rest of the session to authenticate the connection."""
    async with Renewal(SASL_AUTHENTICATE) as renewal:
        await renewal.begun()
        held = renewal.connection.submit(heartbeat(), timeout=20)
        await asyncio.sleep(5)
        assert renewal.heartbeats == []
        renewal.broker.resume()
        await held
        assert renewal.broker.violations == []


async def test_held_request_times_out_at_its_own_deadline_and_is_never_sent() -> None:
    async with Renewal() as renewal:
        await renewal.begun()
        began = now()
        held = renewal.connection.submit(heartbeat(1), timeout=2)
        other = renewal.connection.submit(heartbeat(2), timeout=9)
        with pytest.raises(KafkaTimeoutError):
            await held
        assert now() - began == pytest.approx(2, abs=0.01)
        renewal.broker.resume()
        await other
        assert renewal.heartbeats == [2]


async def test_request_that_cannot_be_encoded_is_refused_at_once_while_requests_are_held() -> None:
    async with Renewal() as renewal:
        await renewal.begun()
        with pytest.raises(EncodeError):
            renewal.connection.submit(HeartbeatRequest(group_id=5), timeout=5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        renewal.broker.resume()
        await renewal.connection.submit(heartbeat(), timeout=5)


async def test_request_without_a_response_is_complete_when_it_is_written() -> None:
    async with Renewal() as renewal:
        await renewal.begun()
        held = renewal.connection.submit(ProduceRequest(acks=0, timeout_ms=1), timeout=5)
        await asyncio.sleep(0.5)
        assert not held.done()
        renewal.broker.resume()
        await held
        await settle()
        assert renewal.apis[-1] == ProduceRequest.API_KEY


async def test_cancelled_request_is_held_like_the_others() -> None:
    async with Renewal() as renewal:
        await renewal.begun()
        sending = asyncio.create_task(renewal.connection.send(heartbeat(1), timeout=5))
        await settle()
        sending.cancel()
        renewal.broker.resume()
        await renewal.connection.send(heartbeat(2), timeout=5)
        assert renewal.heartbeats == [1, 2]


async def test_rejected_credentials_close_the_connection_and_fail_its_requests_as_a_lost_one() -> (
    None
):
    async with Renewal() as renewal:
        await renewal.begun()
        held = renewal.connection.submit(heartbeat(1), timeout=5)
        renewal.world.users["alice"] = "changed"
        renewal.broker.resume()
        with pytest.raises(KafkaConnectionError, match="authenticating again has failed") as raised:
            await held
        assert isinstance(raised.value.__cause__, SaslAuthenticationError)
        assert not renewal.connection.connected
        (failed,) = [
            each for each in renewal.events_of(AuthenticationFailed) if each.kind == "produce"
        ]
        assert failed.reauthentication
        with pytest.raises(SaslAuthenticationError):
            await renewal.connection.send(heartbeat(2), timeout=5)
        assert renewal.heartbeats == []


async def test_lost_connection_fails_held_requests() -> None:
    async with Renewal() as renewal:
        await renewal.begun()
        held = renewal.connection.submit(heartbeat(1), timeout=5)
        renewal.peer.transport.abort()
        with pytest.raises(KafkaConnectionError):
            await held
        renewal.broker.resume()
        await renewal.connection.send(heartbeat(2), timeout=5)


async def test_response_in_the_wrong_order_closes_the_connection() -> None:
    async with Renewal(HEARTBEAT) as renewal:
        await asyncio.sleep(8.4)
        early = renewal.connection.submit(heartbeat(1), timeout=5)
        await until(lambda: renewal.apis[-1] == SASL_HANDSHAKE)
        held = renewal.connection.submit(heartbeat(2), timeout=5)
        header, _ = renewal.peer.seen[-1]
        response = SaslHandshakeResponse(mechanisms=["PLAIN"])
        renewal.peer.transport.write(
            b"".join(encode_response(response, header.api_version, header.correlation_id))
        )
        for future in (early, held):
            with pytest.raises(KafkaConnectionError):
                await future


async def test_broker_that_does_not_answer_when_authenticating_again_is_given_up() -> None:
    async with Renewal(SASL_AUTHENTICATE) as renewal:
        await renewal.begun()
        held = renewal.connection.submit(heartbeat(1), timeout=60)
        began = now()
        with pytest.raises(KafkaConnectionError):
            await held
        assert now() - began < 31


async def test_connection_closed_by_the_client_while_it_authenticates_again() -> None:
    async with Renewal() as renewal:
        await renewal.begun()
        held = renewal.connection.submit(heartbeat(1), timeout=5)
        await renewal.connection.close()
        with pytest.raises(KafkaError):
            await held
        await settle()
        assert not renewal.peer.open


async def test_client_stops_while_connections_authenticate_again() -> None:
    renewal = Renewal()
    async with renewal:
        await renewal.begun()
    await settle()
    assert renewal.broker.connections == 0


async def test_provider_is_cancelled_with_the_connection_that_authenticates_again() -> None:
    calls, cancelled = 0, asyncio.Event()

    async def get() -> str:
        nonlocal calls
        calls += 1
        if calls > 2:
            try:
                await asyncio.sleep(1000)
            finally:
                cancelled.set()
        return "wonderland"

    renewal = Renewal(sasl_mechanism=Custom(get), sasl_username=None, sasl_password=None)
    async with renewal:
        renewal.broker.pause_at = None
        await until(lambda: calls > 2)
        held = renewal.connection.submit(heartbeat(1), timeout=5)
        renewal.connection.disconnect(KafkaConnectionError("enough"))
        with pytest.raises(KafkaConnectionError, match="enough"):
            await held
    assert cancelled.is_set()


async def test_provider_that_hangs_when_authenticating_again_closes_the_connection() -> None:
    calls = 0

    async def get() -> str:
        nonlocal calls
        calls += 1
        if calls > 2:
            await asyncio.sleep(1000)
        return "wonderland"

    renewal = Renewal(
        sasl_mechanism=Custom(get),
        sasl_username=None,
        sasl_password=None,
        socket_connection_setup_timeout_ms=3_000,
    )
    async with renewal:
        renewal.broker.pause_at = None
        await until(lambda: calls > 2)
        await asyncio.sleep(2)
        if renewal.connection.connected:
            held = renewal.connection.submit(heartbeat(1), timeout=20)
            with pytest.raises(KafkaConnectionError, match="password_provider did not return"):
                await held
        assert renewal.broker.violations == []


# -- credentials set at run time ------------------------------------------------------------------


async def test_new_password_is_used_at_the_next_authentication_of_an_open_connection() -> None:
    async with Renewal() as renewal:
        renewal.broker.pause_at = None
        await renewal.client.set_sasl_credentials("alice", "changed")
        renewal.world.users["alice"] = "changed"
        await asyncio.sleep(30)
        await renewal.connection.send(heartbeat(), timeout=5)
        assert len(renewal.broker.states[renewal.peer].authenticated) >= 4
        assert renewal.events_of(AuthenticationFailed) == []


async def test_connection_with_another_user_is_replaced_after_its_last_response() -> None:
    async with Renewal(HEARTBEAT) as renewal:
        renewal.world.users["bob"] = "builder"
        await renewal.client.set_sasl_credentials("bob", "builder")
        await asyncio.sleep(8.4)
        early = renewal.connection.submit(heartbeat(1), timeout=5)
        await asyncio.sleep(1.2)
        held = renewal.connection.submit(heartbeat(2), timeout=5)
        await asyncio.sleep(1)
        assert renewal.connection.connected
        renewal.broker.resume()
        await early
        with pytest.raises(KafkaConnectionError, match="another user name"):
            await held
        await renewal.connection.send(heartbeat(3), timeout=5)
        assert renewal.heartbeats == [1]
        assert renewal.broker.states[renewal.broker.peers[-1]].user == "bob"
        assert renewal.broker.violations == []
        lost = [each for each in renewal.events_of(Disconnected) if each.kind == "produce"]
        assert [each.error for each in lost] == [None]


# -- events ---------------------------------------------------------------------------------------


async def test_emits_an_event_for_each_authentication_without_credentials() -> None:
    async with Renewal() as renewal:
        renewal.broker.pause_at = None
        await asyncio.sleep(9.6)
        found = [each for each in renewal.events_of(Authenticated) if each.kind == "produce"]
        assert len(found) == 1
        assert found[0].mechanism == "PLAIN"
        assert found[0].reauthentication
        assert found[0].session_lifetime == 10.0
        assert found[0].seconds < 1
        assert "wonderland" not in repr(renewal.events)
        assert "alice" not in repr(renewal.events)


async def test_emits_an_event_for_a_failed_authentication() -> None:
    world = SecureWorld()
    client = world.client(sasl_password="guess")
    events: list[AuthenticationFailed] = []
    client.hooks.listen(AuthenticationFailed, events.append)
    await start_error(client)
    assert isinstance(events[0].error, SaslAuthenticationError)
    assert events[0].mechanism == "PLAIN"
    assert not events[0].reauthentication
    assert "guess" not in repr(events)
