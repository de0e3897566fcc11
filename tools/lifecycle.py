"""Table of every public method of every client: its effect in each state of the client.

docs/lifecycle.md shows the table, and tests/lifecycle calls every method in every state.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from kafka_async import Admin, Client, Consumer, GroupMember, Producer, ShareConsumer
from kafka_async.app import WorkerPool

Row: TypeAlias = Mapping[str, str]

STATES: Final[Mapping[str, str]] = {
    "new": "before `start()`",
    "starting": "`start()` runs, and waits for a response",
    "connecting": "`start()` runs, and no broker accepts a connection",
    "running": "after `start()`",
    "rebalancing": "running, and its group rebalances; an eager assignor revoked its partitions",
    "listener": "running, and called in `on_assigned`, `on_revoked` or `on_lost`",
    "handler": "running, and called in a function for which it waits: a handler of `process`, a "
    "task of `partition_streams`, the function of a protocol, a worker",
    "callback": "running, and called in a plain function that it calls: an interceptor, a hook, a "
    "callback of deliveries or acknowledgements; a transactional producer is in a transaction",
    "stopping": "`stop()` runs, and waits for no callback or handler",
    "stopped": "after `stop()`, or after a `start()` that failed",
    "failed": "a task of the client has died",
    "elsewhere": "running, and called in another event loop, for example in another thread",
    "thread": "running, and called in a thread without an event loop",
    "fork": "running, and called in a process forked from the client's",
}
"""The columns of the table."""
LIKE: Final[Mapping[str, str]] = {
    **dict.fromkeys(("rebalancing", "listener", "handler", "callback"), "running"),
    "connecting": "starting",
    "thread": "elsewhere",
}
"""Columns that repeat another column's cells, except for the cells in `DIFFERENT`."""
CLIENTS_IN: Final[Mapping[str, Sequence[str]]] = {
    "rebalancing": ("Consumer", "ShareConsumer", "GroupMember", "WorkerPool"),
    "listener": ("Consumer",),
    "handler": ("Consumer", "GroupMember", "WorkerPool"),
}
"""The clients that have a column; all have the others."""
WORDS: Final[Mapping[str, str]] = {
    "works": "does what its documentation says, or raises an error of its arguments or of a broker",
    "waits": "is allowed, and waits: for the start, for records, or for the end of the client",
    "ends": "ends the iteration",
    "not started": "raises `ClientClosedError`: the client was not started",
    "closed": "raises `ClientClosedError`: the client is closed",
    "started before": "raises `IllegalStateError`: make a new client",
    "failure": "raises the error that ended the client",
    "not now": "raises `IllegalStateError` or `TransactionStateError`, with the remedy",
    "other loop": "raises `IllegalStateError`: the client belongs to another event loop",
    "other process": "raises `IllegalStateError`: the client belongs to another process",
}
"""The cells of the table."""

_STATES: Final = [state for state in STATES if state not in LIKE]

READ: Final[Row] = dict.fromkeys(_STATES, "works")
CALL: Final[Row] = {
    "new": "not started",
    "starting": "not started",
    "running": "works",
    "stopping": "closed",
    "stopped": "closed",
    "failed": "failure",
    "elsewhere": "other loop",
    "fork": "other process",
}
WAIT: Final[Row] = {**CALL, "running": "waits"}
START: Final[Row] = {**dict.fromkeys(_STATES, "started before"), "new": "works"}
IN_ITS_LOOP: Final[Row] = {**READ, "elsewhere": "other loop", "fork": "other process"}
SUBSCRIBE: Final[Row] = {**CALL, "new": "works", "starting": "works"}
ASSIGNED: Final[Row] = {
    **dict.fromkeys(_STATES, "not now"),
    **dict.fromkeys(("running", "elsewhere", "fork"), "works"),
}
"""Reads what is known of a partition, while it is assigned."""
REQUEST: Final[Row] = {**CALL, "starting": "waits"}
TRANSACTION: Final[Row] = {**CALL, "running": "not now"}
BY_TRANSACTION: Final[Row] = {
    **CALL,
    **dict.fromkeys(("running", "failed", "elsewhere", "fork"), "not now"),
}
"""Calls that a transactional producer has on its transactions only."""
RELOAD: Final[Row] = {**CALL, "starting": "works"}
RELOAD_OF_OWNER: Final[Row] = {**RELOAD, "failed": "works"}
"""The client, which a dead task of its producer or consumer leaves running, reloads them."""
POOL_WAIT: Final[Row] = {
    **READ,
    **dict.fromkeys(("new", "starting"), "not started"),
    "running": "waits",
    "failed": "failure",
    "elsewhere": "other loop",
    "fork": "other process",
}

PRODUCER_SENDS: Final = [
    "enqueue",
    "enqueue_nowait",
    "send",
    "send_arrow",
    "send_batch",
    "send_many",
    "send_records",
]
PRODUCER: Final[Mapping[str, Row]] = {
    **dict.fromkeys(["flush", "purge"], CALL),
    **dict.fromkeys(["health", "statistics"], READ),
    "start": START,
    "stop": IN_ITS_LOOP,
}
TRANSACTIONS: Final = ["begin", "init_transactions", "transaction"]

_ROWS: Final[Mapping[str, Mapping[str, Row]]] = {
    "Client": {
        "health": READ,
        "reload_certificates": RELOAD,
        **dict.fromkeys(["quota_usage", "request", "submit"], REQUEST),
        "set_sasl_credentials": IN_ITS_LOOP,
        "start": START,
        "stop": IN_ITS_LOOP,
    },
    "Producer": {
        **PRODUCER,
        **dict.fromkeys(PRODUCER_SENDS, CALL),
        **dict.fromkeys(TRANSACTIONS, TRANSACTION),
    },
    "Transactional producer": {
        **PRODUCER,
        **dict.fromkeys(PRODUCER_SENDS, BY_TRANSACTION),
        **dict.fromkeys(TRANSACTIONS, CALL),
    },
    "Consumer": {
        **dict.fromkeys(
            [
                "assignment",
                "health",
                "paused",
                "statistics",
                "subscription",
                "on_assigned",
                "on_lost",
                "on_revoked",
            ],
            READ,
        ),
        **dict.fromkeys(["high_watermark", "last_stable_offset"], ASSIGNED),
        **dict.fromkeys(["assign", "subscribe"], SUBSCRIBE),
        **dict.fromkeys(
            ["__aiter__", "poll", "poll_batches", "partition_streams", "rewind", "unsubscribe"],
            CALL,
        ),
        **dict.fromkeys(["__anext__", "process"], WAIT),
        **dict.fromkeys(
            [
                "beginning_offsets",
                "commit",
                "committed",
                "end_offsets",
                "explain",
                "group_metadata",
                "offsets_for_times",
                "partitions_for",
                "pause",
                "position",
                "resume",
                "seek",
                "seek_to_beginning",
                "seek_to_committed",
                "seek_to_end",
                "seek_to_time",
                "topics",
            ],
            CALL,
        ),
        "start": START,
        "stop": IN_ITS_LOOP,
    },
    "ShareConsumer": {
        **dict.fromkeys(
            ["__aiter__", "assignment", "health", "on_acknowledged", "statistics", "subscription"],
            READ,
        ),
        "__anext__": {**WAIT, "stopping": "ends", "stopped": "ends"},
        "acknowledge": {**CALL, "running": "not now"},
        **dict.fromkeys(["commit", "poll"], CALL),
        "start": START,
        "stop": IN_ITS_LOOP,
    },
    "GroupMember": {
        **dict.fromkeys(["__aiter__", "group_metadata", "health"], READ),
        **dict.fromkeys(["__anext__", "rejoin"], CALL),
        "start": START,
        "stop": IN_ITS_LOOP,
    },
    "Admin": {
        "health": READ,
        "start": START,
        "stop": IN_ITS_LOOP,
        **dict.fromkeys(
            [
                "alter_client_quotas",
                "alter_configs",
                "alter_group_offsets",
                "alter_share_group_offsets",
                "alter_user_scram_credentials",
                "create_acls",
                "create_delegation_tokens",
                "create_partitions",
                "create_topics",
                "delete_acls",
                "delete_groups",
                "delete_share_group_offsets",
                "delete_topics",
                "describe_acls",
                "describe_client_quotas",
                "describe_cluster",
                "describe_configs",
                "describe_delegation_tokens",
                "describe_groups",
                "describe_share_groups",
                "describe_topics",
                "describe_transactions",
                "describe_user_scram_credentials",
                "end_transaction",
                "expire_delegation_tokens",
                "fence_producers",
                "list_group_offsets",
                "list_groups",
                "list_offsets",
                "list_share_group_offsets",
                "list_topics",
                "list_transactions",
                "renew_delegation_tokens",
                "resolve_client_quotas",
                "set_quota_enforcement",
            ],
            REQUEST,
        ),
    },
    "WorkerPool": {
        "health": READ,
        "start": START,
        "stop": {**IN_ITS_LOOP, "failed": "failure"},
        "wait": POOL_WAIT,
    },
}
DIFFERENT: Final[Mapping[str, Mapping[str, Sequence[str]]]] = {
    "Transactional producer": {"callback": TRANSACTIONS},
    "Consumer": {
        "rebalancing": ["high_watermark", "last_stable_offset", "position", "seek"],
        "listener": [
            *("__anext__", "partition_streams", "poll", "poll_batches", "process"),
            *("rewind", "stop", "unsubscribe"),
        ],
        "handler": [
            *("__anext__", "partition_streams", "poll", "poll_batches", "process"),
            *("rewind", "unsubscribe"),
        ],
    },
    "GroupMember": {"handler": ["__anext__", "stop"]},
}
"""By client and column: the methods that are refused there, "not now"."""


def _cell(client: str, method: str, row: Row, state: str) -> str:
    if method in DIFFERENT.get(client, {}).get(state, ()):
        return "not now"
    return row[LIKE.get(state, state)]


TABLE: Final[Mapping[str, Mapping[str, Row]]] = {
    client: {
        method: {
            state: _cell(client, method, row, state)
            for state in STATES
            if client in CLIENTS_IN.get(state, _ROWS)
        }
        for method, row in rows.items()
    }
    for client, rows in _ROWS.items()
}
"""The row of each method of each client."""

READS_ON: Final = frozenset(
    [
        "__aiter__",
        "__anext__",
        "assign",
        "partition_streams",
        "poll",
        "poll_batches",
        "process",
        "rewind",
        "subscribe",
        "unsubscribe",
    ]
)
"""Calls of a consumer that request further records: closed as soon as `stop()` is called."""

CLIENTS: Final[Mapping[str, type]] = {
    "Client": Client,
    "Producer": Producer,
    "Transactional producer": Producer,
    "Consumer": Consumer,
    "ShareConsumer": ShareConsumer,
    "GroupMember": GroupMember,
    "Admin": Admin,
    "WorkerPool": WorkerPool,
}


def methods_of(client: type) -> list[str]:
    """Return the names of a class's public methods, and of those that iterate."""
    return [name for name in dir(client) if _is_method(client, name)]


def _is_method(client: type, name: str) -> bool:
    member = inspect.getattr_static(client, name)
    if isinstance(member, property | classmethod) or not callable(member):
        return False
    return not name.startswith("_") or name in ("__aiter__", "__anext__")
