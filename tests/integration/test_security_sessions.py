"""Sessions that end, and credentials and certificates that are replaced, while clients run.

The listener REAUTH ends a session after three seconds unless the client authenticates again.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, TypeVar

import pytest

from kafka_async import Admin, Client, Consumer, Producer, TopicPartition
from kafka_async.admin import (
    AclBinding,
    AclFilter,
    AclOperation,
    AclResourceType,
    UserScramCredentialUpsertion,
)
from kafka_async.client.metadata.request_router import AnyBroker, Controller
from kafka_async.errors import (
    Category,
    GroupAuthorizationError,
    KafkaError,
    SaslAuthenticationError,
    TopicAuthorizationError,
)
from kafka_async.hooks import Authenticated, Hooks
from kafka_async.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kafka_async.protocol.messages.describe_cluster import DescribeClusterRequest
from tests.integration.helpers import create_topic, read_values
from tests.integration.secure_cluster import ALICE, MECHANISMS
from tests.recording_listener import RecordingListener

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from ssl import SSLContext

    from tests.integration.secure_cluster import SecureCluster

Call: TypeAlias = "Callable[[Clients, str], Awaitable[None]]"
P = TypeVar("P", bound=asyncio.BaseProtocol)

pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(180)]

SCRAM = "SCRAM-SHA-256"
BACKENDS = ("apache", "embedded", "apache", "embedded")
"""Backend of the long test of each mechanism."""
CONNECTION_KINDS = {"general", "slow", "produce", "fetch", "coordinator"}


class Watch:
    """Counts authentications of open connections, by the connection's kind."""

    def __init__(self) -> None:
        self.hooks = Hooks()
        self._counts = Counter[str]()
        self._changed = asyncio.Event()
        self.hooks.listen(Authenticated, self._on_authenticated)

    async def until_authenticated_again(self, kinds: set[str], count: int) -> None:
        """Wait until connections of each kind have authenticated that often from now on."""
        before = self._counts.copy()
        async with asyncio.timeout(60):
            while any(self._counts[kind] < before[kind] + count for kind in kinds):
                self._changed.clear()
                await self._changed.wait()

    def _on_authenticated(self, event: Authenticated) -> None:
        if event.reauthentication:
            self._counts[event.kind] += 1
            self._changed.set()


async def allow(cluster: SecureCluster, principal: str, topic: str) -> None:
    """Allow a principal everything on a topic, and on the group and transactional id of the test.

    No other names: the clusters are those of the whole session, and so are their permissions.
    """
    rows = [
        (AclResourceType.TOPIC, topic, AclOperation.ALL),
        (AclResourceType.GROUP, cluster.handle.group(), AclOperation.ALL),
        (AclResourceType.TRANSACTIONAL_ID, cluster.handle.transactional_id(), AclOperation.ALL),
    ]
    async with Admin(cluster.servers("PLAINTEXT")) as admin:
        await admin.create_acls(
            [AclBinding(kind, name, principal, operation) for kind, name, operation in rows]
        )


async def set_password(cluster: SecureCluster, user: str, password: str) -> None:
    """Create a user for SCRAM, or replace the user's password."""
    async with Admin(cluster.servers("PLAINTEXT")) as admin:
        await admin.alter_user_scram_credentials(
            [UserScramCredentialUpsertion(user, SCRAM, password, iterations=4096)]
        )


# -- sessions -------------------------------------------------------------------------------------


async def send_numbers(producer: Producer, topic: str, stop: asyncio.Event) -> list[bytes]:
    """Send numbers, some of them at a time, until `stop`; return them."""
    sent: list[bytes] = []
    while not stop.is_set():
        values = [b"%d" % (len(sent) + number) for number in range(10)]
        await producer.send_many(topic, values)
        sent += values
        await asyncio.sleep(0.005)
    return sent


async def send_transactions(producer: Producer, topic: str, stop: asyncio.Event) -> list[bytes]:
    """Commit numbers in transactions until `stop`; return them."""
    sent: list[bytes] = []
    while not stop.is_set():
        values = [b"%d" % (len(sent) + number) for number in range(5)]
        async with producer.transaction() as transaction:
            for value in values:
                await transaction.enqueue(topic, value)
        sent += values
    return sent


async def read_numbers(consumer: Consumer, stop: asyncio.Event) -> list[bytes | None]:
    """Read and commit until `stop` and the end of the topic; return the values."""
    values: list[bytes | None] = []
    while True:
        records = await consumer.poll(timeout=0.2)
        values += [record.value for record in records]
        if records:
            await consumer.commit()
        elif stop.is_set():
            return values


async def describe_clusters(client: Client, stop: asyncio.Event) -> int:
    """Send requests that any broker serves until `stop`; return their number."""
    count = 0
    while not stop.is_set():
        await client.request(DescribeClusterRequest(), to=AnyBroker())
        count += 1
        await asyncio.sleep(0.01)
    return count


async def check_new_topics(client: Client, name: str, stop: asyncio.Event) -> None:
    """Send requests that may wait for the cluster until `stop`; they change nothing."""
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    while not stop.is_set():
        request = CreateTopicsRequest(topics=[topic], timeout_ms=10_000, validate_only=True)
        response = await client.request(request, to=Controller())
        assert [each.error_code for each in response.topics] == [0]
        await asyncio.sleep(0.05)


@pytest.mark.parametrize(
    ("mechanism", "sessions"),
    [
        pytest.param(SCRAM, 1),
        *[
            pytest.param(name, 4, marks=[pytest.mark.slow, pytest.mark.one_backend(backend)])
            for name, backend in zip(MECHANISMS, BACKENDS, strict=True)
        ],
    ],
)
async def test_no_record_is_lost_or_duplicated_while_all_connections_authenticate_again(
    secure_cluster: SecureCluster, mechanism: str, sessions: int
) -> None:
    # A broker that is busy for longer than the rest of a session closes the connection, so the
    # number of lost connections is checked on virtual time only, in tests/client.
    topic = await create_topic(secure_cluster.handle, "numbers")
    transactional = await create_topic(secure_cluster.handle, "transactions")
    options, watch, stop = secure_cluster.options("REAUTH", mechanism), Watch(), asyncio.Event()
    client = Client(**options, hooks=watch.hooks)
    async with (
        client,
        Producer(client, linger_ms=1) as producer,
        Producer(client, transactional_id=secure_cluster.handle.transactional_id()) as transactions,
        Consumer(
            client,
            topics=[topic],
            group_id=secure_cluster.handle.group(),
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        ) as consumer,
        asyncio.TaskGroup() as group,
    ):
        sending = group.create_task(send_numbers(producer, topic, stop))
        committing = group.create_task(send_transactions(transactions, transactional, stop))
        reading = group.create_task(read_numbers(consumer, stop))
        group.create_task(describe_clusters(client, stop))
        group.create_task(check_new_topics(client, secure_cluster.handle.topic(), stop))
        await watch.until_authenticated_again(CONNECTION_KINDS, sessions)
        stop.set()
    assert reading.result() == sending.result()
    assert await read_values(secure_cluster.handle, transactional) == committing.result()


# -- credentials ----------------------------------------------------------------------------------


class CountingDialer:
    """Opens TCP and TLS connections, and remembers when."""

    def __init__(self) -> None:
        self.times: list[float] = []

    async def dial(
        self,
        protocol_factory: Callable[[], P],
        host: str,
        port: int,
        *,
        ssl: SSLContext | None = None,
        server_hostname: str | None = None,
    ) -> tuple[asyncio.Transport, P]:
        loop = asyncio.get_running_loop()
        self.times.append(loop.time())
        name = (server_hostname or host) if ssl is not None else None
        return await loop.create_connection(
            protocol_factory, host, port, ssl=ssl, server_hostname=name
        )


async def test_a_client_goes_on_with_the_credentials_that_replace_its_own(
    secure_cluster: SecureCluster,
) -> None:
    user = secure_cluster.handle.group("user")
    topic = await create_topic(secure_cluster.handle)
    await set_password(secure_cluster, user, "first")
    await allow(secure_cluster, f"User:{user}", topic)
    watch = Watch()
    options = secure_cluster.options("REAUTH", SCRAM, sasl_username=user, sasl_password="first")
    client = Client(**options, hooks=watch.hooks)
    async with client, Producer(client) as producer:
        await producer.send(topic, b"before")
        await set_password(secure_cluster, user, "second")
        await client.set_sasl_credentials(user, "second")
        await watch.until_authenticated_again({"general", "produce"}, 1)
        await producer.send(topic, b"after")
    assert await read_values(secure_cluster.handle, topic) == [b"before", b"after"]


class Clients(NamedTuple):
    """Clients that share connections."""

    producer: Producer
    consumer: Consumer
    admin: Admin


async def send(clients: Clients, topic: str) -> None:
    await clients.producer.send(topic, b"value")


async def poll(clients: Clients, topic: str) -> None:
    await clients.consumer.poll(timeout=0.5)


async def commit(clients: Clients, topic: str) -> None:
    await clients.consumer.commit({TopicPartition(topic, 0): 0})


async def describe(clients: Clients, topic: str) -> None:
    await clients.admin.describe_topics([topic])


async def repeat_until_an_error(call: Call, clients: Clients, topic: str) -> None:
    async with asyncio.timeout(20):
        while True:
            await call(clients, topic)
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("call", [send, poll, commit, describe])
async def test_a_password_that_became_wrong_is_reported_and_can_be_replaced(
    secure_cluster: SecureCluster, call: Call
) -> None:
    user, topic = secure_cluster.handle.group("user"), await create_topic(secure_cluster.handle)
    await set_password(secure_cluster, user, "first")
    await allow(secure_cluster, f"User:{user}", topic)
    options = secure_cluster.options("REAUTH", SCRAM, sasl_username=user, sasl_password="first")
    client, handle = Client(**options), secure_cluster.handle
    async with (
        client,
        Producer(client) as producer,
        Consumer(client, topics=[topic], group_id=handle.group()) as consumer,
        Admin(client) as admin,
    ):
        clients = Clients(producer, consumer, admin)
        await consumer.poll(timeout=0.2)
        await call(clients, topic)
        await set_password(secure_cluster, user, "second")
        with pytest.raises(SaslAuthenticationError, match="sasl_password"):
            await repeat_until_an_error(call, clients, topic)
        await client.set_sasl_credentials(user, "second")
        async with asyncio.timeout(20):
            await call(clients, topic)


async def test_a_password_that_became_wrong_in_a_transaction_is_reported_and_it_can_be_aborted(
    secure_cluster: SecureCluster,
) -> None:
    handle = secure_cluster.handle
    user, topic = handle.group("user"), await create_topic(handle)
    await set_password(secure_cluster, user, "first")
    await allow(secure_cluster, f"User:{user}", topic)
    options = secure_cluster.options("REAUTH", SCRAM, sasl_username=user, sasl_password="first")
    async with Producer(**options, transactional_id=handle.transactional_id()) as producer:
        async with producer.transaction() as transaction:
            await transaction.send(topic, b"first")
        failing = await producer.begin()
        await failing.send(topic, b"aborted")
        await set_password(secure_cluster, user, "second")

        async def send_until_an_error() -> None:
            async with asyncio.timeout(30):
                while True:
                    await failing.send(topic, b"aborted")
                    await asyncio.sleep(0.01)

        with pytest.raises(SaslAuthenticationError, match="sasl_password") as raised:
            await send_until_an_error()
        assert raised.value.category is Category.INVALID_CONFIGURATION
        with pytest.raises(SaslAuthenticationError):
            await failing.commit()
        await producer.client.set_sasl_credentials(user, "second")
        async with asyncio.timeout(30):
            await failing.abort()
            async with producer.transaction() as transaction:
                await transaction.send(topic, b"second")
    async with Consumer(
        handle.bootstrap_servers,
        partitions=[TopicPartition(topic, 0)],
        isolation_level="read_committed",
        auto_offset_reset="earliest",
    ) as consumer:
        found: list[bytes | None] = []
        end = (await consumer.end_offsets([TopicPartition(topic, 0)]))[TopicPartition(topic, 0)]
        async with asyncio.timeout(30):
            while await consumer.position(TopicPartition(topic, 0)) < end:
                found += [record.value for record in await consumer.poll(timeout=0.2)]
    assert found == [b"first", b"second"]


class Member:
    """Reads in a group without committing, so that a record is read again after a new join."""

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer
        self.values: list[bytes | None] = []
        self.listener = RecordingListener()

    async def poll(self) -> KafkaError | None:
        """Poll once; return the error that it raised."""
        try:
            self.values += [record.value for record in await self.consumer.poll(timeout=0.2)]
        except KafkaError as error:
            return error
        return None

    async def poll_until_an_error(self, kind: type[KafkaError]) -> None:
        """Poll until this error is raised."""
        async with asyncio.timeout(30):
            while (error := await self.poll()) is None:
                pass
        assert isinstance(error, kind)

    async def poll_until_read(self, count: int, kind: type[KafkaError]) -> None:
        """Poll until that many values were read; errors of earlier requests may still be raised."""
        async with asyncio.timeout(30):
            while len(self.values) < count:
                error = await self.poll()
                assert error is None or isinstance(error, kind)

    async def poll_until_heartbeat(self) -> None:
        """Poll until a heartbeat that is sent from now on has succeeded."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        async with asyncio.timeout(30):
            while True:
                assert await self.poll() is None
                age = self.consumer.health().last_heartbeat_s
                if age is not None and loop.time() - age > began:
                    return


async def check_that_a_member_continues(
    member: Member,
    producer: Producer,
    topic: str,
    kind: type[KafkaError],
    change: Callable[[], Awaitable[None]],
    correct: Callable[[], Awaitable[None]],
) -> None:
    """Check that a member keeps its identity and positions over an error."""
    member.consumer.subscribe([topic], listener=member.listener)
    await producer.send(topic, b"before")
    await member.poll_until_read(1, kind)
    identity = member.consumer.group_metadata()
    await change()
    await member.poll_until_an_error(kind)
    await producer.send(topic, b"meanwhile")
    await correct()
    await producer.send(topic, b"after")
    await member.poll_until_read(3, kind)
    await member.poll_until_heartbeat()
    assert member.values == [b"before", b"meanwhile", b"after"]
    assert member.consumer.group_metadata() == identity
    assert member.listener.lines == [("assigned", [0])]


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
async def test_a_group_member_continues_after_its_password_was_replaced(
    secure_cluster: SecureCluster, strategy: str
) -> None:
    handle = secure_cluster.handle
    user, topic = handle.group("user"), await create_topic(handle)
    await set_password(secure_cluster, user, "first")
    await allow(secure_cluster, f"User:{user}", topic)
    options = secure_cluster.options("REAUTH", SCRAM, sasl_username=user, sasl_password="first")
    async with (
        Producer(handle.bootstrap_servers) as producer,
        Consumer(
            **options,
            group_id=handle.group(),
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            partition_assignment_strategy=[strategy],
        ) as consumer,
    ):
        await check_that_a_member_continues(
            Member(consumer),
            producer,
            topic,
            SaslAuthenticationError,
            lambda: set_password(secure_cluster, user, "second"),
            lambda: consumer.client.set_sasl_credentials(user, "second"),
        )


async def test_a_group_member_continues_after_its_permission_was_granted_again(
    secure_cluster: SecureCluster,
) -> None:
    handle = secure_cluster.handle
    topic, group = await create_topic(handle), handle.group()
    right = AclBinding(AclResourceType.GROUP, group, f"User:{ALICE}", AclOperation.READ)
    options = secure_cluster.options("SASL_SSL", SCRAM, user=ALICE)
    async with (
        Admin(handle.bootstrap_servers) as admin,
        Producer(handle.bootstrap_servers) as producer,
        Consumer(
            **options, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False
        ) as consumer,
    ):

        async def grant() -> None:
            await admin.create_acls([right])

        async def revoke() -> None:
            await admin.delete_acls([AclFilter(AclResourceType.GROUP, group)])

        read = AclBinding(AclResourceType.TOPIC, topic, f"User:{ALICE}", AclOperation.READ)
        await admin.create_acls([read, right])
        await check_that_a_member_continues(
            Member(consumer), producer, topic, GroupAuthorizationError, revoke, grant
        )
        await revoke()


async def test_failed_authentications_keep_to_the_reconnect_backoff(
    secure_cluster: SecureCluster,
) -> None:
    user, topic = secure_cluster.handle.group("user"), secure_cluster.handle.topic()
    await set_password(secure_cluster, user, "first")
    dialer, backoff, attempts = CountingDialer(), 0.5, 8
    options = secure_cluster.options("SASL_SSL", SCRAM, sasl_username=user, sasl_password="first")
    client = Client(
        **options,
        dialer=dialer,
        reconnect_backoff_ms=1000 * backoff,
        reconnect_backoff_max_ms=1000 * backoff,
    )
    async with client, Producer(client) as producer:
        await set_password(secure_cluster, user, "second")
        connected = len(dialer.times)
        async with asyncio.timeout(60):
            while len(dialer.times) < connected + attempts:
                with pytest.raises(SaslAuthenticationError):
                    await producer.send(topic, b"value")
                await asyncio.sleep(0)
    # The first failure of each connection may be at the same time. A back-off is up to a fifth
    # shorter, at random.
    failed = dialer.times[connected + len(CONNECTION_KINDS) :]
    assert min(later - earlier for earlier, later in pairwise(failed)) >= backoff * 0.8


# -- certificates ---------------------------------------------------------------------------------


async def test_new_connections_have_the_certificate_that_was_reloaded(
    secure_cluster: SecureCluster,
) -> None:
    """Checks it by the principal of a new connection, which is the only one that may write."""
    certificates = secure_cluster.certificates
    topic = await create_topic(secure_cluster.handle)
    other = certificates.authority.issue("client.test", name=secure_cluster.handle.group("tls"))
    await allow(secure_cluster, f"User:{other.subject}", topic)
    names = [secure_cluster.handle.group(name) for name in ("certificate", "key")]
    files = [certificates.write(*row) for row in zip(names, certificates.client[:2], strict=True)]
    options = secure_cluster.options("MTLS", ssl_certfile=files[0], ssl_keyfile=files[1])
    async with Client(**options) as client:
        for name, text in zip(names, other[:2], strict=True):
            certificates.write(name, text)
        assert await client.reload_certificates()
        async with Producer(client) as producer:
            await producer.send(topic, b"value")
        for name in names:
            certificates.write(name, "not a certificate")
        assert not await client.reload_certificates()
        async with Consumer(client, auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            [record] = await consumer.poll(timeout=30)
    assert record.value == b"value"


# -- delegation tokens ----------------------------------------------------------------------------


async def until_described(admin: Admin, token_id: str, *, present: bool) -> None:
    """Wait until brokers have, or have no longer, a token: they learn of it after the response.

    The user may have tokens of other tests too.
    """
    found = not present
    async with asyncio.timeout(30):
        while found != present:
            await asyncio.sleep(0.01)
            tokens = await admin.describe_delegation_tokens()
            found = token_id in {token.token_id for token in tokens}


async def test_clients_with_a_delegation_token_have_the_rights_of_its_owner(
    secure_cluster: SecureCluster,
) -> None:
    topic = await create_topic(secure_cluster.handle)
    forbidden = await create_topic(secure_cluster.handle, "forbidden")
    await allow(secure_cluster, f"User:{ALICE}", topic)
    owner = Admin(**secure_cluster.options("SASL_SSL", SCRAM, user=ALICE))
    async with owner:
        [token] = await owner.create_delegation_tokens(max_lifetime_ms=3_600_000)
        assert token.owner == f"User:{ALICE}"
        await until_described(owner, token.token_id, present=True)
        options = secure_cluster.options(
            "SASL_SSL",
            SCRAM,
            sasl_username=token.token_id,
            sasl_password=token.password,
            sasl_delegation_token=True,
        )
        async with Producer(**options) as producer:
            await producer.send(topic, b"value")
            with pytest.raises(TopicAuthorizationError):
                await producer.send(forbidden, b"value")
        await owner.renew_delegation_tokens([token])
        await owner.expire_delegation_tokens([token])
        await until_described(owner, token.token_id, present=False)
    with pytest.raises(SaslAuthenticationError):
        await Client(**options).start()
    assert await read_values(secure_cluster.handle, topic) == [b"value"]
