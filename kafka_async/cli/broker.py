"""`kafka-async broker`: runs the embedded cluster in the foreground, for any Kafka client."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Annotated

import typer

from kafka_async.cli import terminal


def broker(
    port: Annotated[
        int, typer.Option(min=0, max=65535, metavar="PORT", help="First port; 0: free ports.")
    ] = 9092,
    brokers: Annotated[
        int, typer.Option(min=1, max=16, metavar="N", help="Number of brokers.")
    ] = 1,
    racks: Annotated[
        str,
        typer.Option(
            metavar="RACKS",
            help="Racks of the brokers, separated by commas; consumers then fetch from the closest "
            "replica.",
        ),
    ] = "",
    security_protocol: Annotated[
        str, typer.Option(help="PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.", metavar="PROTOCOL")
    ] = "PLAINTEXT",
    users_file: Annotated[
        Path | None,
        typer.Option(
            help="Users for SASL: a line name:password for each, readable by you only.",
            metavar="FILE",
        ),
    ] = None,
    ssl_certfile: Annotated[
        Path | None,
        typer.Option(help="The broker's certificate, and its key, as PEM.", metavar="FILE"),
    ] = None,
    ssl_keyfile: Annotated[
        Path | None,
        typer.Option(help="The broker's key, if it has a separate file.", metavar="FILE"),
    ] = None,
    ssl_cafile: Annotated[
        Path | None,
        typer.Option(
            help="Authorities of client certificates, which are then required.", metavar="FILE"
        ),
    ] = None,
    profile: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Brokers whose versions to offer, such as kafka-2.8, event-hubs or redpanda.",
        ),
    ] = "",
) -> None:
    """Run an embedded Kafka cluster for development and tests, until Ctrl-C.

    Data is kept in memory and lost at exit. This is not a production broker.
    """
    from kafka_async.embedded import EmbeddedCluster
    from kafka_async.embedded.__main__ import ports_from, rack_settings, serve
    from kafka_async.embedded.security.options import SecurityOptions
    from kafka_async.errors import InvalidConfigurationError

    if port + brokers - 1 > 65535:
        terminal.fail(f"{brokers} ports from {port} on exceed 65535: choose a smaller --port")

    security = SecurityOptions(security_protocol, users_file, ssl_certfile, ssl_keyfile, ssl_cafile)

    def announce(servers: str) -> None:
        count = terminal.plural(brokers, "broker")
        terminal.err.print(f"an embedded cluster of {count} is listening; Ctrl-C stops it")
        terminal.out.print(servers, markup=False)

    async def main() -> None:
        try:
            cluster = EmbeddedCluster(
                brokers,
                ports=ports_from(port, brokers),
                listeners=security.listeners(),
                users=security.users(),
                profile=profile or None,
                **rack_settings(racks, brokers),
            )
            await serve(cluster, announce)
        except InvalidConfigurationError as error:
            terminal.fail(error.message)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            ports = f"{port}" if brokers == 1 else f"{port} to {port + brokers - 1}"
            terminal.fail(f"port {ports}: in use by another program: choose another --port, or 0")

    terminal.run(main)
