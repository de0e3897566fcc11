"""Options that subcommands share, and the client options that follow from them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

if TYPE_CHECKING:
    from kafka_async.config import ClientOptions, ProducerOptions

DEFAULT_BOOTSTRAP: Final = "localhost:9092"
DEFAULT_TIMEOUT: Final = 15.0
"""Seconds."""

Bootstrap = Annotated[
    str, typer.Option("--bootstrap", metavar="HOST:PORT", help="A broker of the cluster.")
]
Timeout = Annotated[
    float, typer.Option(min=1, metavar="SECONDS", help="Maximum time to wait for the cluster.")
]


def client_options(timeout: float) -> ClientOptions:
    """Return client options with which a command gives up after `timeout` seconds."""
    timeout_ms = 1000 * timeout
    return {
        "default_api_timeout_ms": timeout_ms,
        "request_timeout_ms": min(30_000, timeout_ms / 2),
        "socket_connection_setup_timeout_ms": min(10_000, timeout_ms / 2),
        "socket_connection_setup_timeout_max_ms": min(30_000, timeout_ms / 2),
    }


def producer_options(timeout: float) -> ProducerOptions:
    """Return producer options that limit metadata and each delivery to `timeout` seconds."""
    timeout_ms = 1000 * timeout
    return {
        **client_options(timeout),
        "max_block_ms": timeout_ms,
        "delivery_timeout_ms": timeout_ms,
    }
