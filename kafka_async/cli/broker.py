"""`kafka-async broker`: the embedded cluster in the foreground, for any client in any language."""

from __future__ import annotations

import errno
from typing import Annotated

import typer

from kafka_async.cli import screen


def broker(
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="First port; 0 takes free ones.")
    ] = 9092,
    brokers: Annotated[int, typer.Option(min=1, max=16, help="How many brokers.")] = 1,
) -> None:
    """Run an embedded Kafka cluster for development and tests, until Ctrl-C.

    It keeps everything in memory and forgets it at the end. It is no production broker.
    """
    from kafka_async.embedded import EmbeddedCluster
    from kafka_async.embedded.__main__ import ports_from, serve

    if port + brokers - 1 > 65535:
        screen.fail(f"{brokers} ports from {port} on go beyond 65535: take a smaller --port")

    def announce(servers: str) -> None:
        count = screen.plural(brokers, "broker")
        screen.err.print(f"an embedded cluster of {count} listens; Ctrl-C ends it")
        screen.out.print(servers, markup=False)

    async def main() -> None:
        try:
            await serve(EmbeddedCluster(brokers, ports=ports_from(port, brokers)), announce)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            ports = f"{port}" if brokers == 1 else f"{port} to {port + brokers - 1}"
            screen.fail(f"port {ports}: in use by another program: take another --port, or 0")

    screen.run(main)
