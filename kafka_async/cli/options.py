"""Options that subcommands share, and the decorator that adds them to a command."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from kafka_async.cli import terminal
from kafka_async.cli.connection_options import DEFAULT_BOOTSTRAP, ConnectionOptions
from kafka_async.cli.credentials import (
    CLIENT_SECRET,
    SASL_PASSWORD,
    SSL_PASSWORD,
    password_from_file,
    password_from_keyring,
    properties_from_file,
    secrets_from_environment,
)
from kafka_async.config.spelling import with_underscores

DEFAULT_TIMEOUT: Final = 15.0
"""Seconds."""
_PANEL: Final = "Connection"

Timeout = Annotated[
    float,
    typer.Option(
        min=1,
        metavar="SECONDS",
        help="Maximum time to wait for the cluster.",
        rich_help_panel=_PANEL,
    ),
]


def _refused(name: str, ways: str) -> Any:
    """Return a hidden option that fails with the safe `ways` to pass a secret."""

    def refuse(value: str | None) -> None:
        if value is not None:
            terminal.fail(
                f"{name} is not taken as an argument, which other users of this machine can read: "
                f"use {ways} or --command-config FILE, and change the secret if it was real"
            )

    return typer.Option(name, hidden=True, is_eager=True, callback=refuse)


_SaslPassword = Annotated[
    str | None,
    _refused(
        "--sasl-password",
        f"{SASL_PASSWORD}, --sasl-password-file FILE, --sasl-password-keyring SERVICE",
    ),
]
_SslPassword = Annotated[str | None, _refused("--ssl-password", SSL_PASSWORD)]
_ClientSecret = Annotated[
    str | None, _refused("--sasl-oauthbearer-client-credentials-client-secret", CLIENT_SECRET)
]


def _option(*names: str, metavar: str, help: str) -> Any:
    return typer.Option(*names, metavar=metavar, help=help, rich_help_panel=_PANEL)


def _bootstrap(default: str) -> Any:
    """Return the type of the option --bootstrap."""
    option = typer.Option(
        "--bootstrap",
        metavar="HOST:PORT",
        help="A broker of the cluster.",
        show_default=default,
        rich_help_panel=_PANEL,
    )
    return Annotated[str | None, option]


def _connection(  # noqa: PLR0913  # the options of the command line
    bootstrap: str | None = None,
    timeout: Timeout = DEFAULT_TIMEOUT,
    command_config: Annotated[
        Path | None,
        _option("--command-config", metavar="FILE", help="Java properties of the client."),
    ] = None,
    security_protocol: Annotated[
        str | None,
        _option(
            "--security-protocol",
            metavar="NAME",
            help="PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.",
        ),
    ] = None,
    ssl_cafile: Annotated[
        Path | None,
        _option("--ssl-cafile", metavar="FILE", help="Certificate authorities to trust (PEM)."),
    ] = None,
    ssl_certfile: Annotated[
        Path | None,
        _option("--ssl-certfile", metavar="FILE", help="The client's certificate (PEM)."),
    ] = None,
    ssl_keyfile: Annotated[
        Path | None,
        _option("--ssl-keyfile", metavar="FILE", help="The certificate's private key (PEM)."),
    ] = None,
    sasl_mechanism: Annotated[
        str | None,
        _option("--sasl-mechanism", metavar="NAME", help="PLAIN, SCRAM-SHA-512 and so on."),
    ] = None,
    sasl_username: Annotated[
        str | None, _option("--sasl-username", metavar="NAME", help="User name.")
    ] = None,
    sasl_password_file: Annotated[
        Path | None,
        _option("--sasl-password-file", metavar="FILE", help="File that holds the password."),
    ] = None,
    sasl_password_keyring: Annotated[
        str | None,
        _option(
            "--sasl-password-keyring",
            metavar="SERVICE",
            help="Name of the service in the keyring that holds the password.",
        ),
    ] = None,
    sasl_allow_plaintext: Annotated[
        bool | None,
        typer.Option(
            "--sasl-allow-plaintext",
            help="Allow credentials on SASL_PLAINTEXT, where others can read them.",
            rich_help_panel=_PANEL,
        ),
    ] = None,
    sasl_password: _SaslPassword = None,
    ssl_password: _SslPassword = None,
    client_secret: _ClientSecret = None,
) -> ConnectionOptions:
    """Combine a command's options, its properties file and the environment, in this precedence."""
    for option, file in (
        ("--ssl-cafile", ssl_cafile),
        ("--ssl-certfile", ssl_certfile),
        ("--ssl-keyfile", ssl_keyfile),
    ):
        if file is not None:
            _check_file(option, file)
    from_file = {} if command_config is None else properties_from_file(command_config)
    properties = {with_underscores(key): value for key, value in from_file.items()}
    written = {with_underscores(key): key for key in from_file}
    given = {
        "bootstrap_servers": bootstrap,
        "security_protocol": security_protocol,
        "ssl_cafile": ssl_cafile,
        "ssl_certfile": ssl_certfile,
        "ssl_keyfile": ssl_keyfile,
        "sasl_mechanism": sasl_mechanism,
        "sasl_username": sasl_username,
        "sasl_allow_plaintext": sasl_allow_plaintext,
    }
    for name, value in given.items():
        if value is not None:
            properties[name] = str(value) if isinstance(value, Path) else value
            written.pop(name, None)
    if sasl_password_file is not None and sasl_password_keyring is not None:
        terminal.fail("give --sasl-password-file or --sasl-password-keyring, not both")
    if sasl_password_file is not None:
        properties["sasl_password"] = password_from_file(sasl_password_file)
        written.pop("sasl_password", None)
    if sasl_password_keyring is not None:
        username = properties.get("sasl_username")
        properties["sasl_password"] = password_from_keyring(sasl_password_keyring, username)
        written.pop("sasl_password", None)
    return ConnectionOptions(
        {**secrets_from_environment(properties), **properties}, timeout, written
    )


def _check_file(option: str, file: Path) -> None:
    if "-----BEGIN" in str(file):
        terminal.fail(f"{option} takes a file's path, not the text of a certificate or key")
    terminal.check_readable([file])


_SHARED: Final = inspect.signature(_connection, eval_str=True).parameters


def connects(
    function: Callable[..., None], *, default: str = DEFAULT_BOOTSTRAP
) -> Callable[..., None]:
    """Replace a command's parameter `connection` with the shared options.

    `default` is the cluster used without --bootstrap, for the help text.
    """
    shared_parameters = [
        parameter.replace(annotation=_bootstrap(default)) if name == "bootstrap" else parameter
        for name, parameter in _SHARED.items()
    ]
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(function, eval_str=True).parameters.values():
        shared = parameter.name == "connection"
        parameters.extend(shared_parameters if shared else [parameter])

    @functools.wraps(function)
    def command(**arguments: Any) -> None:
        shared = {name: arguments.pop(name) for name in _SHARED}
        function(connection=_connection(**shared), **arguments)

    vars(command)["__signature__"] = inspect.Signature(parameters)
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command
