"""Blocking API: the clients for scripts, Spark workers and the REPL.

The clients wrap the asyncio clients; their event loop runs in one background thread per process. A
forked child (a Spark worker) gets a new event loop. Ctrl-C during a call cancels the call and
leaves the client usable.

Every call except iteration over a consumer and `poll(timeout=None)` is bounded: by its `timeout` in
seconds, or else by the option in its documentation.
"""

from kafka_async.blocking.clients import (
    Admin,
    Client,
    Consumer,
    Producer,
    ShareConsumer,
    Transaction,
)
from kafka_async.blocking.portal import RequestHandle, run

__all__ = [
    "Admin",
    "Client",
    "Consumer",
    "Producer",
    "RequestHandle",
    "ShareConsumer",
    "Transaction",
    "run",
]
