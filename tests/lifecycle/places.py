"""Brings clients into their rebalances, listeners, handlers and callbacks, and calls from there."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafka_async import hooks
from kafka_async.consumer.interceptors import ConsumerInterceptor
from kafka_async.errors import KafkaError
from kafka_async.producer.interceptors import ProducerInterceptor
from tests.embedded_client import InMemory
from tests.lifecycle.calls import PARTITION, begun, make, outcome_of, result_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Sequence

PROTOCOLS: Final[dict[str, dict[str, Any]]] = {
    "eager": {},
    "cooperative": {"partition_assignment_strategy": ["cooperative-sticky"]},
    "consumer": {"group_protocol": "consumer"},
}
"""Options of a consumer for each way in which its group assigns partitions."""
LISTENERS: Final = ("on_assigned", "on_revoked", "on_lost")
HEARTBEATS: Final = {"consumer": "ConsumerGroupHeartbeat"}
"""The API by which a member learns that it has been removed."""
WAIT: Final = 20.0
"""Seconds after which a call counts as one that waits; shorter than a listener's timeout."""
JOINED: Final = 10.0
"""Seconds in which a member joins its group."""


class Place(NamedTuple):
    """Describes from where calls are made."""

    client: str
    state: str
    name: str

    @property
    def column(self) -> str:
        """The column of the table: without an eager assignor a rebalance takes no partitions."""
        keeps = self.state == "rebalancing" and self.name in ("cooperative", "consumer")
        return "running" if keeps else self.state

    def __str__(self) -> str:
        return "-".join(self).replace(" ", "_")


class Caller:
    """Makes calls of a client in the first handler or callback that runs once `client` is set."""

    def __init__(self, methods: Sequence[str]) -> None:
        self._methods = methods
        self._begun = False
        self._done = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self.client: Any = None
        self.found: dict[str, str] = {}

    async def handle(self, *_: object) -> None:
        """Make the calls, one after the other."""
        if self._begins():
            for method in self._methods:
                self.found[method] = await outcome_of(self.client, method, WAIT)
            self._done.set()

    def callback(self, *_: object) -> None:
        """Make the calls; await those of coroutine functions in a task."""
        if self._begins():
            calls = {method: begun(self.client, method) for method in self._methods}
            task = asyncio.get_running_loop().create_task(self._await(calls))
            self._tasks.add(task)

    def _begins(self) -> bool:
        first = self.client is not None and not self._begun
        self._begun |= first
        return first

    async def _await(self, calls: dict[str, Callable[[], Any]]) -> None:
        for method, call in calls.items():
            self.found[method] = await result_of(self.client, method, call, WAIT)
        self._done.set()

    async def calls_in(self, trigger: Awaitable[object]) -> dict[str, str]:
        """Return what the calls do, once `trigger` has run the handler or callback."""
        task = asyncio.ensure_future(trigger)
        try:
            await self._done.wait()
        finally:
            task.cancel()
            await asyncio.wait({task})
        return self.found


def places() -> Iterator[Place]:
    """Yield all places."""
    for protocol in PROTOCOLS:
        yield Place("Consumer", "rebalancing", protocol)
        for listener in LISTENERS:
            yield Place("Consumer", "listener", f"{listener} {protocol}")
    for client in ("ShareConsumer", "GroupMember", "WorkerPool"):
        yield Place(client, "rebalancing", "group")
    for state, names in (("handler", HANDLERS), ("callback", CALLBACKS)):
        for client, name in names:
            yield Place(client, state, name)


ALONE: Final = frozenset(
    [
        *("assign", "partition_streams", "process", "purge", "rejoin", "rewind"),
        *("start", "stop", "subscribe", "unsubscribe"),
    ]
)
"""Methods that change the state, so that each needs a new client."""


async def outcomes_in(place: Place, methods: Iterable[str]) -> dict[str, str]:
    """Return what each method does in a place."""
    names = list(methods)
    groups = [[name for name in names if name not in ALONE]]
    groups += [[name] for name in names if name in ALONE]
    found: dict[str, str] = {}
    for group in groups:
        async with InMemory() as cluster:
            await cluster.cluster.create_topic("t", 2)
            async with cluster.producer() as producer:
                await producer.send("t", b"v", partition=0)
            found |= await calls_in(place, group, cluster)
    return found


async def calls_in(place: Place, methods: Sequence[str], cluster: InMemory) -> dict[str, str]:
    """Return what calls of a new client do in a place."""
    caller = Caller(methods)
    async with AsyncExitStack() as stack:
        if place.state == "rebalancing":
            client = await stack.enter_async_context(rebalancing(place, cluster))
            return {method: await outcome_of(client, method) for method in methods}
        if place.state == "listener":
            return await _in_listener(place, caller, cluster, stack)
        run = (HANDLERS if place.state == "handler" else CALLBACKS)[place.client, place.name]
        return await run(place.client, caller, cluster, stack)


# -- rebalances ------------------------------------------------------------------------------------


@asynccontextmanager
async def rebalancing(place: Place, cluster: InMemory) -> AsyncGenerator[Any]:
    """Return a member whose group waits for its next request in a rebalance."""
    options = {"client_id": "first", **PROTOCOLS.get(place.name, {})}
    async with stopped_at_the_end(make(place.client, cluster, **options)) as client:
        await client.start()
        await asyncio.sleep(JOINED)

        def holds(context: Any, request: Any) -> bool:
            if context.client_id != "first":
                return False
            acknowledges = getattr(request, "topic_partitions", None) is not None
            name = type(request).__name__
            return name in ("JoinGroupRequest", "ShareGroupHeartbeatRequest") or (
                name == "ConsumerGroupHeartbeatRequest" and acknowledges
            )

        fault = cluster.cluster.faults.add(when=holds, hang=True, count=None)
        options["client_id"] = "second"
        async with stopped_at_the_end(make(place.client, cluster, **options)) as other:
            await other.start()
            await fault.wait()
            await asyncio.sleep(1)
            yield client
            fault.remove()


@asynccontextmanager
async def stopped_at_the_end(client: Any) -> AsyncGenerator[Any]:
    """Stop a client, which may fail."""
    try:
        yield client
    finally:
        with suppress(KafkaError):
            await client.stop()


async def _in_listener(
    place: Place, caller: Caller, cluster: InMemory, stack: AsyncExitStack
) -> dict[str, str]:
    listener, protocol = place.name.split()
    options = PROTOCOLS[protocol]
    client = await stack.enter_async_context(
        stopped_at_the_end(make("Consumer", cluster, client_id="first", **options))
    )
    getattr(client, listener)(caller.handle)
    if listener == "on_assigned":
        caller.client = client
        return await caller.calls_in(client.start())
    await client.start()
    await asyncio.sleep(JOINED)
    caller.client = client
    if listener == "on_lost":
        api = HEARTBEATS.get(protocol, "Heartbeat")
        cluster.cluster.faults.add(api=api, error="UNKNOWN_MEMBER_ID")
        return await caller.calls_in(asyncio.sleep(0))
    other = await stack.enter_async_context(
        stopped_at_the_end(make("Consumer", cluster, client_id="second", **options))
    )
    return await caller.calls_in(other.start())


# -- handlers and callbacks ------------------------------------------------------------------------


class Intercepting(ConsumerInterceptor, ProducerInterceptor):
    """Calls back in one of the methods of an interceptor."""

    def __init__(self, caller: Caller, method: str) -> None:
        self._caller = caller
        self._method = method

    def _called(self, method: str) -> None:
        if method == self._method:
            self._caller.callback()

    def on_send(self, record: Any) -> Any:
        self._called("on_send")
        return record

    def on_acknowledgement(self, record: Any, metadata: Any, error: Any) -> None:
        self._called("on_acknowledgement")

    def on_records(self, records: Any) -> Any:
        self._called("on_records")
        return records

    def on_commit(self, offsets: Any) -> None:
        self._called("on_commit")


async def _started(client: Any, caller: Caller, stack: AsyncExitStack) -> Any:
    await stack.enter_async_context(stopped_at_the_end(client))
    await client.start()
    await asyncio.sleep(JOINED)
    caller.client = client
    return client


async def _process(name: str, caller: Caller, cluster: InMemory, stack: AsyncExitStack) -> Any:
    client = await _started(make(name, cluster), caller, stack)
    return await caller.calls_in(client.process(caller.handle, concurrency=1))


async def _stream(name: str, caller: Caller, cluster: InMemory, stack: AsyncExitStack) -> Any:
    client = await _started(make(name, cluster), caller, stack)

    async def work(stream: Any) -> None:
        async for _ in stream:
            await caller.handle()

    async def run() -> None:
        async with client.partition_streams() as streams:
            async for stream in streams:
                stream.start_soon(work, stream)

    return await caller.calls_in(run())


async def _protocol(name: str, caller: Caller, cluster: InMemory, stack: AsyncExitStack) -> Any:
    async def assign(_: object) -> dict[str, bytes]:
        await caller.handle()
        return {}

    client = await _started(make(name, cluster, protocols={"p": assign}), caller, stack)
    client.rejoin("to call the function")
    return await caller.calls_in(asyncio.sleep(0))


async def _worker(name: str, caller: Caller, cluster: InMemory, stack: AsyncExitStack) -> Any:
    caller.client = make(name, cluster, worker=caller.handle)
    await stack.enter_async_context(stopped_at_the_end(caller.client))
    return await caller.calls_in(caller.client.start())


async def _send(client: Any) -> None:
    if client.config.transactional_id is None:
        await client.send("t", b"v")
    else:
        async with client.transaction() as txn:
            await txn.send("t", b"v")


def _intercepted(method: str, use: Callable[[Any], Awaitable[object]]) -> Any:
    async def run(name: str, caller: Caller, cluster: InMemory, stack: AsyncExitStack) -> Any:
        interceptor = Intercepting(caller, method)
        client = await _started(make(name, cluster, interceptors=[interceptor]), caller, stack)
        return await caller.calls_in(use(client))

    return run


def _hooked(event: Any, use: Callable[[Any], Awaitable[object]]) -> Any:
    async def run(name: str, caller: Caller, cluster: InMemory, stack: AsyncExitStack) -> Any:
        client = await _started(make(name, cluster), caller, stack)
        owner = client if hasattr(client, "hooks") else client.client
        owner.hooks.listen(event, caller.callback)
        return await caller.calls_in(use(client))

    return run


async def _delivery(name: str, caller: Caller, cluster: InMemory, stack: AsyncExitStack) -> Any:
    client = await _started(make(name, cluster), caller, stack)

    async def send() -> None:
        delivery = await client.enqueue("t", b"v")
        delivery.add_done_callback(caller.callback)
        await delivery

    return await caller.calls_in(send())


async def _acknowledged(name: str, caller: Caller, cluster: InMemory, stack: AsyncExitStack) -> Any:
    client = await _started(make(name, cluster), caller, stack)
    client.on_acknowledged(caller.callback)

    async def share() -> None:
        await client.poll(timeout=1)
        async with cluster.producer() as producer:
            await producer.send("t", b"v", partition=0)
        for record in await client.poll(timeout=20):
            client.acknowledge(record)
        await client.commit()

    return await caller.calls_in(share())


async def _wait(_: object) -> None:
    """Wait for a heartbeat."""


HANDLERS: Final[dict[tuple[str, str], Any]] = {
    ("Consumer", "process"): _process,
    ("Consumer", "partition_streams"): _stream,
    ("GroupMember", "protocol"): _protocol,
    ("WorkerPool", "worker"): _worker,
}
CALLBACKS: Final[dict[tuple[str, str], Any]] = {
    ("Client", "hook"): _hooked(hooks.RequestSent, lambda c: c.quota_usage()),
    ("Admin", "hook"): _hooked(hooks.RequestSent, lambda c: c.list_topics()),
    ("Producer", "on_send"): _intercepted("on_send", _send),
    ("Producer", "on_acknowledgement"): _intercepted("on_acknowledgement", _send),
    ("Producer", "delivery"): _delivery,
    ("Producer", "hook"): _hooked(hooks.BatchAcknowledged, _send),
    ("Transactional producer", "on_send"): _intercepted("on_send", _send),
    ("Transactional producer", "hook"): _hooked(hooks.BatchAcknowledged, _send),
    ("Consumer", "on_records"): _intercepted("on_records", lambda c: c.poll()),
    ("Consumer", "on_commit"): _intercepted("on_commit", lambda c: c.commit({PARTITION: 0})),
    ("Consumer", "hook"): _hooked(hooks.RequestSent, lambda c: c.topics()),
    ("ShareConsumer", "on_acknowledged"): _acknowledged,
    ("ShareConsumer", "hook"): _hooked(hooks.RequestSent, _wait),
    ("GroupMember", "hook"): _hooked(hooks.RequestSent, _wait),
    ("WorkerPool", "hook"): _hooked(hooks.RequestSent, _wait),
}
