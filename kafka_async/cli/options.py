"""Options that commands share, and what they mean for a client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

if TYPE_CHECKING:
    from kafka_async.config import ClientOptions, ProducerOptions

SERVERS: Final = "localhost:9092"
PATIENCE: Final = 15.0

Bootstrap = Annotated[
    str, typer.Option("--bootstrap", metavar="HOST:PORT", help="A broker of the cluster.")
]
Timeout = Annotated[
    float, typer.Option(min=1, metavar="SECONDS", help="How long to wait for the cluster.")
]


def client_options(timeout: float) -> ClientOptions:
    """What a client is given so that a command gives up after `timeout` seconds."""
    most = 1000 * timeout
    return {
        "default_api_timeout_ms": most,
        "request_timeout_ms": min(30_000, most / 2),
        "socket_connection_setup_timeout_ms": min(10_000, most / 2),
        "socket_connection_setup_timeout_max_ms": min(30_000, most / 2),
    }


def producer_options(timeout: float) -> ProducerOptions:
    """The same for a producer: metadata and each delivery within `timeout` seconds."""
    most = 1000 * timeout
    return {**client_options(timeout), "max_block_ms": most, "delivery_timeout_ms": most}
