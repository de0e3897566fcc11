"""Hints for calls and arguments of aiokafka, kafka-python and confluent-kafka.

A method name of these clients raises AttributeError that names the call to use instead. Each is a
descriptor of the class, since `__getattr__` would slow down every other attribute of the client.

An argument that a method does not have raises TypeError that names the argument to use. Methods
accept such arguments as `**unknown: Never`, which type checkers reject and which costs an empty
dict per call. `enqueue` and `enqueue_nowait` do not: an empty dict costs a tenth of the call. They
raise Python's own TypeError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NoReturn

from kafka_async.errors import InvalidConfigurationError


class ForeignName:
    """Raises AttributeError with a hint when a method name of another client is looked up."""

    def __init__(self, name: str, hint: str) -> None:
        self._name = name
        self._hint = hint

    def __get__(self, instance: object, owner: type) -> NoReturn:
        """Raise AttributeError with the call to use instead."""
        raise AttributeError(
            f"{owner.__name__} has no {self._name}: {self._hint}", name=self._name, obj=instance
        )


PRODUCER: Final[Mapping[str, str]] = {
    "send_and_wait": "await producer.send(...) waits for the acknowledgement",
    "send_offsets_to_transaction": "await transaction.commit_offsets(consumer)",
    "produce": "await producer.enqueue(...), or producer.enqueue_nowait(...), which does not wait",
    "produce_batch": "await producer.send_many(topic, values), or send_batch(partition, batch)",
    "create_batch": "records are batched by themselves; RecordBatch.build(records) builds one",
    "poll": "there is nothing to poll: await a delivery, or await producer.flush()",
    "close": "await producer.stop(), or `async with`",
    "begin_transaction": "`async with producer.transaction() as txn`, or await producer.begin()",
    "commit_transaction": "await transaction.commit(); the end of `async with` does it",
    "abort_transaction": "await transaction.abort(); an exception in `async with` does it",
    "list_topics": "await Admin(...).list_topics()",
    "metrics": "producer.statistics()",
    "cluster_id": "await Admin(...).describe_cluster() has it",
}
CONSUMER: Final[Mapping[str, str]] = {
    "getone": "await anext(stream) of stream = aiter(consumer), or `async for`",
    "getmany": "await consumer.poll(timeout=1.0, max_records=500); poll_batches gives partitions",
    "consume": "await consumer.poll(timeout=1.0, max_records=500)",
    "close": "await consumer.stop(), or `async with`",
    "last_stable": "consumer.last_stable_offset(partition)",
    "highwater": "consumer.high_watermark(partition)",
    "get_watermark_offsets": "consumer.high_watermark(partition), or await beginning_offsets(...)",
    "partitions_for_topic": "await consumer.partitions_for(topic)",
    "list_topics": "await consumer.topics(), or await Admin(...).list_topics()",
    "incremental_assign": "consumer.assign(partitions), with all partitions to read",
    "incremental_unassign": "consumer.assign(partitions), with the remaining partitions",
    "unassign": "consumer.assign([])",
    "store_offsets": "with auto-commit, a record counts as done when the next one is requested",
    "consumer_group_metadata": "consumer.group_metadata()",
    "metrics": "consumer.statistics()",
    "last_poll_timestamp": "consumer.health().last_poll_s, in seconds before now",
    "memberid": "consumer.group_metadata() has member_id",
    "cluster_id": "await Admin(...).describe_cluster() has it",
}
ADMIN: Final[Mapping[str, str]] = {
    "close": "await admin.stop(), or `async with`",
    "poll": "there is nothing to poll: the calls are awaited",
    "list_consumer_groups": "await admin.list_groups()",
    "describe_consumer_groups": "await admin.describe_groups(group_ids)",
    "delete_consumer_groups": "await admin.delete_groups(group_ids)",
    "list_consumer_group_offsets": "await admin.list_group_offsets(group_id)",
}
KEYWORDS: Final[Mapping[str, tuple[str, str]]] = {
    "timeout_ms": ("timeout", "timeout, in seconds"),
    "timeout_s": ("timeout", "timeout, in seconds"),
    "request_timeout": ("timeout", "timeout, in seconds"),
    "request_timeout_ms": ("timeout", "timeout, in seconds"),
    "operation_timeout": ("timeout", "timeout, in seconds"),
    "max_messages": ("max_records", "max_records"),
    "max_poll_records": ("max_records", "max_records"),
    "num_messages": ("max_records", "max_records"),
    "timestamp_ms": ("timestamp", "timestamp, in milliseconds"),
    "callback": ("value", "await, or add_done_callback of the delivery that enqueue returns"),
    "on_delivery": ("value", "await, or add_done_callback of the delivery that enqueue returns"),
    "data": ("value", "value"),
    "message": ("value", "value"),
    "msg": ("value", "value"),
    "payload": ("value", "value"),
    "on_assign": ("listener", "listener, or consumer.on_assigned(callback)"),
    "on_lost": ("listener", "listener, or consumer.on_lost(callback)"),
    "on_revoke": ("listener", "listener, or consumer.on_revoked(callback)"),
    "asynchronous": ("what", "await in place of it"),
    "offsets": ("what", "what"),
    "group_ids": ("group_id", "group_id, one group per call"),
    "topics": ("names", "names"),
}
"""By argument of other clients: the argument that replaces it here, and the hint.

The hint is given for calls that have the replacing argument.
"""


def unknown_keyword(
    method: Callable[..., object], unknown: Mapping[str, object], options: Iterable[str] = ()
) -> TypeError:
    """Return the error for arguments that a method, or a class, does not have.

    Args:
        method: A client's method, or a class.
        unknown: The arguments.
        options: Names that it accepts besides its named parameters.
    """
    import difflib  # Imported here since only wrong calls need these modules.
    import inspect

    known = [
        name
        for name, row in inspect.signature(method).parameters.items()
        if row.kind not in (row.VAR_POSITIONAL, row.VAR_KEYWORD)
    ]
    known += options
    given = next(iter(unknown))
    owner = type(getattr(method, "__self__", None)).__name__
    call = method.__name__ if isinstance(method, type) else f"{owner}.{method.__name__}"
    applies_to, hint = KEYWORDS.get(given, ("", ""))
    if applies_to in known:
        hint = f": use {hint}"
    elif near := difflib.get_close_matches(given, known, 1):
        hint = f": did you mean {near[0]}?"
    elif known:
        hint = f"; its arguments are {', '.join(known)}"
    else:
        hint = "; it takes none"
    return TypeError(f"{call} has no argument {given}{hint}")


def add_foreign_names(client: type, names: Mapping[str, str]) -> None:
    """Make a client class raise a hint for each method name of other clients."""
    for name, hint in names.items():
        if name in dir(client):
            raise TypeError(f"{client.__name__} has {name}")
        setattr(client, name, ForeignName(name, hint))


def check_construction(
    client: type, args: tuple[object, ...], options: Mapping[str, object]
) -> None:
    """Raise for positional arguments in the form of other clients.

    The first is the bootstrap servers, or None.

    Raises:
        InvalidConfigurationError: The options are given as a dict.
        TypeError: There are other positional arguments than the bootstrap servers.
    """
    name, first = client.__name__, args[0]
    reads = ', topics=["orders"]' if name in ("Consumer", "ShareConsumer") else ""
    right = f'{name}("localhost:9092"{reads}, ...)'
    if isinstance(first, Mapping):
        raise InvalidConfigurationError(
            f"{name} takes options by name, not as a dict: write {right} or "
            f"{name}(**options), pass config=, or give a dict of Kafka's own names to "
            f"{name}.from_properties(properties)"
        )
    if len(args) > 1 or (first is not None and "bootstrap_servers" in options):
        what = "topics" if reads else "anything else"
        raise TypeError(f"{name} takes bootstrap servers first, and {what} by name: {right}")
