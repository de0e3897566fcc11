"""Calls every public method of every client, and classifies what comes of it."""

from __future__ import annotations

import asyncio
import inspect
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from kafka_async.admin.quota_values import QuotaEntity
from kafka_async.admin.security_values import (
    AclBinding,
    AclFilter,
    AclOperation,
    AclResourceType,
    ScramMechanism,
    UserScramCredentialDeletion,
)
from kafka_async.admin.values import ConfigResource, NewTopic, OffsetSpec, ResourceType
from kafka_async.app import WorkerPool
from kafka_async.client.metadata.request_router import AnyBroker
from kafka_async.consumer.share.share_consumer import ShareConsumer
from kafka_async.consumer.share.share_record import ShareRecord
from kafka_async.errors import (
    ApplicationRecoverableError,
    ClientClosedError,
    IllegalStateError,
    InvalidConfigurationError,
    KafkaError,
    TaskDiedError,
)
from kafka_async.group.group_member import GroupMember
from kafka_async.protocol.messages.metadata import MetadataRequest
from kafka_async.records.batch import RecordBatch
from kafka_async.secrets import SecretBytes
from kafka_async.types import PreparedTransaction, ProducerRecord, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.embedded_client import InMemory

TOPIC: Final = ConfigResource(ResourceType.TOPIC, "t")
PARTITION: Final = TopicPartition("t", 0)
WAIT: Final = 200.0
"""Seconds after which a call counts as one that waits; longer than every default timeout."""


async def handle(_: object) -> None:
    """Handle a record."""


async def work(_: str) -> None:
    """Work on a resource until it is taken away."""
    await asyncio.Event().wait()


def assign(_: object) -> dict[str, bytes]:
    """Assign nothing to the members of a group."""
    return {}


def callback(*_: object) -> None:
    """Take what a client reports."""


ARROW_ROWS: Final[Any] = pa.RecordBatch.from_pylist([{"value": b"v"}])


def _share_record() -> ShareRecord[Any, Any]:
    return ShareRecord("t", 0, 0, 0, 0, None, b"v", (), None, 1)


ARGUMENTS: Final[dict[str, Callable[[], tuple[tuple[Any, ...], dict[str, Any]]]]] = {
    "request": lambda: ((MetadataRequest(topics=None),), {"to": AnyBroker()}),
    "submit": lambda: ((MetadataRequest(topics=None),), {"to": AnyBroker()}),
    "set_sasl_credentials": lambda: (("u", "p"), {}),
    "enqueue": lambda: (("t", b"v"), {}),
    "enqueue_nowait": lambda: (("t", b"v"), {}),
    "send": lambda: (("t", b"v"), {}),
    "send_arrow": lambda: ((ARROW_ROWS,), {"topic": "t"}),
    "send_batch": lambda: ((PARTITION, RecordBatch.build([ProducerRecord("", b"v")])), {}),
    "send_many": lambda: (("t", [b"v"]), {}),
    "send_records": lambda: (([ProducerRecord("t", b"v")],), {}),
    "assign": lambda: (([PARTITION],), {}),
    "beginning_offsets": lambda: (([PARTITION],), {}),
    "end_offsets": lambda: (([PARTITION],), {}),
    "high_watermark": lambda: ((PARTITION,), {}),
    "last_stable_offset": lambda: ((PARTITION,), {}),
    "offsets_for_times": lambda: (({PARTITION: 0.0},), {}),
    "on_assigned": lambda: ((callback,), {}),
    "on_lost": lambda: ((callback,), {}),
    "on_revoked": lambda: ((callback,), {}),
    "on_acknowledged": lambda: ((callback,), {}),
    "partitions_for": lambda: (("t",), {}),
    "position": lambda: ((PARTITION,), {}),
    "process": lambda: ((handle,), {"concurrency": 1}),
    "rewind": lambda: (({PARTITION: 0},), {}),
    "seek": lambda: ((PARTITION, 0), {}),
    "seek_to_time": lambda: ((0.0,), {}),
    "subscribe": lambda: ((["t"],), {}),
    "acknowledge": lambda: ((_share_record(),), {}),
    "rejoin": lambda: (("a reason",), {}),
    "alter_client_quotas": lambda: (({QuotaEntity(user="u"): {"producer_byte_rate": 1.0}},), {}),
    "alter_group_offsets": lambda: (("none", {PARTITION: 0}), {}),
    "alter_share_group_offsets": lambda: (("none", {PARTITION: 0}), {}),
    "create_partitions": lambda: (({"t": 1},), {}),
    "delete_share_group_offsets": lambda: (("none", ["t"]), {}),
    "list_group_offsets": lambda: (("none",), {}),
    "list_share_group_offsets": lambda: (("none",), {}),
    "list_offsets": lambda: (({PARTITION: OffsetSpec.LATEST},), {}),
    "resolve_client_quotas": lambda: ((QuotaEntity(user="u"),), {}),
    "set_quota_enforcement": lambda: ((QuotaEntity(user="u"), True), {}),
    "end_transaction": lambda: ((PreparedTransaction("x", 0, 0),), {"commit": False}),
    "fence_producers": lambda: ((["x"],), {}),
    "alter_configs": lambda: (({TOPIC: {"retention.ms": "1000"}},), {}),
    "describe_configs": lambda: (([TOPIC],), {}),
    "create_topics": lambda: (([NewTopic("u")],), {}),
    "alter_user_scram_credentials": lambda: (
        ([UserScramCredentialDeletion("u", ScramMechanism.SCRAM_SHA_256)],),
        {},
    ),
    "create_acls": lambda: (
        ([AclBinding(AclResourceType.TOPIC, "t", "User:u", AclOperation.READ)],),
        {},
    ),
    "delete_acls": lambda: (([AclFilter()],), {}),
    "expire_delegation_tokens": lambda: (([SecretBytes(b"x")],), {}),
    "renew_delegation_tokens": lambda: (([SecretBytes(b"x")],), {}),
    "delete_groups": lambda: ((["none"],), {}),
    "delete_topics": lambda: ((["none"],), {}),
    "describe_groups": lambda: ((["none"],), {}),
    "describe_share_groups": lambda: ((["none"],), {}),
    "describe_topics": lambda: ((["t"],), {}),
    "describe_transactions": lambda: ((["x"],), {}),
}


def make(name: str, cluster: InMemory, **options: Any) -> Any:
    """Return a new client of a class of the table, with further options."""
    servers = cluster.cluster.bootstrap_servers
    if name == "ShareConsumer":
        return ShareConsumer(
            servers,
            topics=["t"],
            group_id="s",
            dialer=cluster.network,
            share_acknowledgement_mode="explicit",
            **options,
        )
    if name == "GroupMember":
        given: dict[str, Any] = {"protocols": {"p": assign}, **options}
        return GroupMember(
            servers,
            group_id="m",
            protocol_type="t",
            dialer=cluster.network,
            **given,
        )
    if name == "WorkerPool":
        given = {"worker": work, **options}
        pool = WorkerPool(servers, group_id="w", resources=["a"], **given)
        pool.client._dialer = cluster.network  # pyright: ignore[reportPrivateUsage]
        return pool
    if name == "Consumer":
        return cluster.consumer("t", group_id="g", auto_offset_reset="earliest", **options)
    makers: dict[str, Callable[..., Any]] = {
        "Client": cluster.client,
        "Producer": cluster.producer,
        "Transactional producer": partial(cluster.producer, transactional_id="x"),
        "Admin": cluster.admin,
    }
    return makers[name](**options)


async def outcome_of(client: Any, method: str, wait: float = WAIT) -> str:
    """Return a word of the table for what a call does."""
    arguments, named = _arguments(client, method)
    return await result_of(
        client, method, lambda: getattr(client, method)(*arguments, **named), wait
    )


def begun(client: Any, method: str) -> Callable[[], Any]:
    """Make a call; return a function that returns or raises what the call did."""
    arguments, named = _arguments(client, method)
    try:
        result = getattr(client, method)(*arguments, **named)
    except Exception as raised:  # noqa: BLE001  # raised by the function
        error = raised

        def fail() -> Any:
            raise error

        return fail
    return lambda: result


def outcome_without_loop(client: Any, method: str) -> str:
    """Return the outcome of a call in a thread without an event loop, up to where it waits."""
    arguments, named = _arguments(client, method)
    try:
        result = getattr(client, method)(*arguments, **named)
        if result is not client and hasattr(result, "__aenter__"):
            result = result.__aenter__()
        if inspect.isawaitable(result):
            next(result.__await__())
            return "waits"
    except StopIteration:
        return "works"
    except Exception as error:  # noqa: BLE001  # `_word` raises it, or names it
        return _word(client, method, error)
    return "works"


def _word(client: Any, method: str, error: Exception) -> str:
    word = word_for(error)
    if word is None:
        error.add_note(f"{type(client).__name__}.{method}")
        raise error
    return word


async def result_of(client: Any, method: str, call: Callable[[], Any], wait: float) -> str:
    """Return a word of the table for what `call`, a call of a method, does."""
    try:
        async with asyncio.timeout(wait):
            result = call()
            if result is not client and hasattr(result, "__aenter__"):
                async with result:
                    pass
            elif inspect.isawaitable(result):
                await result
    except TimeoutError as error:
        return "works" if isinstance(error, KafkaError) else "waits"
    except StopAsyncIteration:
        return "ends"
    except Exception as error:  # noqa: BLE001  # `_word` raises it, or names it
        return _word(client, method, error)
    return "works"


def _arguments(client: Any, method: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if method in ARGUMENTS:
        return ARGUMENTS[method]()
    signature = inspect.signature(getattr(client, method))
    needed = [
        p
        for p in signature.parameters.values()
        if p.default is p.empty and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
    ]
    return tuple([] for _ in needed), {}


def word_for(error: BaseException) -> str | None:
    """Return the word of the table for an error; None for one that is not of the life cycle."""
    cause = error.__cause__
    if isinstance(error, ApplicationRecoverableError) and cause is not None:
        return word_for(cause)  # of a transactional call
    text = str(error)
    if isinstance(error, InvalidConfigurationError):
        return "works"  # no TLS, no SASL: the call was made
    if isinstance(error, TaskDiedError):
        return "failure"
    if isinstance(error, ClientClosedError):
        return "not started" if "not started" in text else "closed"
    if isinstance(error, IllegalStateError):
        if "belongs to the event loop" in text or "in a thread without an event loop" in text:
            return "other loop"
        if "in its fork" in text:
            return "other process"
        if "started before" in text:
            return "started before"
        return "not now"
    return "works" if isinstance(error, KafkaError) else None
