"""Checks of the options of TLS and SASL that are more than a type and bounds."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Final

from kafka_async.config.options import nearest
from kafka_async.config.spelling import option_error
from kafka_async.types import Token

SECURITY_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
SASL_MECHANISMS: Final = (
    "PLAIN",
    "SCRAM-SHA-256",
    "SCRAM-SHA-512",
    "OAUTHBEARER",
    "GSSAPI",
    "AWS_MSK_IAM",
)
MECHANISMS_WITHOUT_PASSWORD: Final = ("OAUTHBEARER", "GSSAPI", "AWS_MSK_IAM")


def check_mechanism(value: object) -> None:
    """Raise unless this is a mechanism's name or an object with the methods of SaslMechanism."""
    if isinstance(value, str):
        if value in SASL_MECHANISMS:
            return
        raise option_error(
            "sasl_mechanism",
            f" is not one of {', '.join(SASL_MECHANISMS)}{nearest(value, SASL_MECHANISMS)}",
            value=f"{value!r:.100}",
        )
    named = isinstance(getattr(value, "name", None), str)
    if isinstance(value, type) or not named or not callable(getattr(value, "authenticate", None)):
        raise option_error(
            "sasl_mechanism",
            f" must be one of {', '.join(SASL_MECHANISMS)}, or an object with the attributes of "
            "kafka_async.client.security.sasl.mechanism.SaslMechanism",
            value=f"{value!r:.100}",
        )


def check_token_provider(provider: Callable[..., object]) -> None:
    """Raise for a provider that certainly returns no awaitable, or that needs arguments.

    Whether another function without `async def` returns an awaitable is known at its first call.
    """
    function = provider
    while isinstance(function, functools.partial):
        function = function.func
    if not isinstance(function, type) and not inspect.isroutine(function):
        function = type(function).__call__
    returned = getattr(function, "__annotations__", {}).get("return")
    is_async = inspect.iscoroutinefunction(function)
    yields = inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)
    creates = isinstance(function, type) and not hasattr(function, "__await__")
    if yields or creates or (not is_async and returned in (Token, str, "Token", "str")):
        raise option_error(
            "sasl_token_provider",
            " is not a coroutine function: define it with `async def`, and return a "
            "kafka_async.Token",
        )
    try:
        inspect.signature(provider).bind()
    except TypeError:
        raise option_error(
            "sasl_token_provider",
            " is called without arguments, and has one without a default: bind it with "
            "functools.partial",
        ) from None
    except ValueError:
        return  # A callable of C has no signature.


def check_ssl_context(value: object) -> None:
    """Raise unless this is an SSLContext for clients."""
    import ssl  # Imported here since it is slow, and only an ssl_context needs it.

    if not isinstance(value, ssl.SSLContext):
        raise option_error(
            "ssl_context",
            " must be an ssl.SSLContext, as ssl.create_default_context()",
            value=f"{value!r:.100}",
        )
    if value.protocol == ssl.PROTOCOL_TLS_SERVER:
        raise option_error(
            "ssl_context",
            " is that of a server, which cannot connect: pass one that "
            "ssl.create_default_context() or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) creates",
        )
