"""The configuration that the arguments of a client's constructor give."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, cast

from kafka_async.config.addresses import parse_servers
from kafka_async.config.client import ClientConfig
from kafka_async.config.spelling import option_error
from kafka_async.errors import InvalidConfigurationError

ConfigT = TypeVar("ConfigT", bound=ClientConfig)


def resolve_config(
    role: type[ConfigT],
    servers: str | Sequence[str] | None,
    config: ConfigT | None,
    options: Mapping[str, Any],
    *,
    shared: ClientConfig | None = None,
) -> ConfigT:
    """Return the configuration that the arguments of a client's constructor give.

    Args:
        role: The class of the configuration.
        servers: Addresses of brokers.
        config: The configuration, instead of options.
        options: The options.
        shared: The configuration of a shared client, instead of servers.

    Raises:
        InvalidConfigurationError: As for `ClientConfig`; or there are options besides `config`,
            connection options besides a shared client, or a configuration in place of servers.
    """
    if isinstance(servers, ClientConfig):
        raise InvalidConfigurationError(
            f"give a configuration by name: config={role.__name__}(...)"
        )
    if config is not None:
        _check_config(role, servers, config, options, shared)
        return config
    if shared is not None:
        inherited = {
            row.name: getattr(shared, row.name) for row in dataclasses.fields(ClientConfig)
        }
        for name in options.keys() & inherited.keys():
            raise _belongs_to_shared_client(name)
        return role(**inherited, **options)
    return role(**options) if servers is None else role(servers, **options)


def _check_config(
    role: type[ConfigT],
    servers: str | Sequence[str] | None,
    config: ConfigT,
    options: Mapping[str, Any],
    shared: ClientConfig | None,
) -> None:
    """Raise for arguments that contradict `config`."""
    if not isinstance(config, role):
        if isinstance(cast("object", config), ClientConfig):
            raise InvalidConfigurationError(
                f"config must be a {role.__name__}, not a {type(config).__name__}"
            )
        raise InvalidConfigurationError(
            f"config={config!r:.100} must be a {role.__name__}: from_properties takes Java's names"
        )
    for name in options:
        raise option_error(
            name,
            " is given besides config=: put it into the configuration, as "
            f"dataclasses.replace(config, {name}=...)",
        )
    if shared is not None:
        for row in dataclasses.fields(ClientConfig):
            if getattr(config, row.name) != getattr(shared, row.name):
                raise _belongs_to_shared_client(row.name)
    elif servers is not None and parse_servers(servers) != config.bootstrap_servers:
        raise option_error(
            "bootstrap_servers",
            f" contradicts config=, which has {','.join(config.bootstrap_servers)!r}: leave the "
            "servers out",
            value=f"{servers!r:.100}",
        )


def _belongs_to_shared_client(name: str) -> InvalidConfigurationError:
    return option_error(name, " belongs to the shared Client: give it to the Client, not here")
