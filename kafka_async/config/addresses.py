"""Addresses of brokers, as `bootstrap_servers` has them. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, cast

from kafka_async.config.options import TEXTS, entries, split
from kafka_async.config.spelling import option_error, spell
from kafka_async.errors import InvalidConfigurationError

_SERVER: Final = re.compile(r"(?:PLAINTEXT://)?(\[[^\]]+\]|[^\s:/\[\]]+):(\d{1,5})")


def parse_servers(servers: str | Sequence[str]) -> tuple[str, ...]:
    """Return checked "host:port" texts of "a:9092, b:9092" or of a sequence of such texts."""
    found = tuple(
        server for entry in entries("bootstrap_servers", servers) for server in split(entry)
    )
    if not found:
        raise option_error(
            "bootstrap_servers", ' is empty: name at least one broker, as "localhost:9092"'
        )
    return tuple("{}:{}".format(*split_server(server)) for server in found)


def split_server(server: str) -> tuple[str, int]:
    """Split "host:port", "[::1]:port" or "PLAINTEXT://host:port"; raise for anything else."""
    match = _SERVER.fullmatch(server)
    if match is None and "://" in server:
        raise InvalidConfigurationError(
            f'"{server}" in {spell("bootstrap_servers")} names a protocol, which an address does '
            f"not choose: write host:port, and {_protocol_advice(server)}",
            option="bootstrap_servers",
        )
    if match is None or not 0 < int(match[2]) < 65536:
        raise InvalidConfigurationError(
            f'"{server}" in {spell("bootstrap_servers")} is no address: write host:port, as '
            '"localhost:9092"',
            option="bootstrap_servers",
        )
    return match[1], int(match[2])


def _stored(row: object, value: object) -> object:
    return parse_servers(cast("Any", value))


SERVERS: Final = TEXTS._replace(stored=_stored)
"""The kind of `bootstrap_servers`."""


def _protocol_advice(server: str) -> str:
    named = server.partition("://")[0].upper()
    if named in ("SASL_SSL", "SASL_PLAINTEXT"):
        return spell("security_protocol", named)
    return f"{spell('security_protocol', 'SSL')} for TLS, or SASL_SSL for TLS with SASL"
