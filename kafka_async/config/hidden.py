"""Wraps the secrets in options and properties before an error can show them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final, TypeVar, cast

from kafka_async.config.options import OPTIONS, PRIVATE_KEY
from kafka_async.config.spelling import with_underscores
from kafka_async.secrets import Secret

GivenT = TypeVar("GivenT")

_PUBLIC_IN_JAVA: Final = frozenset(
    {
        *("compression_gzip_level", "compression_lz4_level", "compression_zstd_level"),
        "sasl_client_callback_handler_class",
        "sasl_kerberos_kinit_cmd",
        "sasl_kerberos_min_time_before_relogin",
        "sasl_kerberos_service_name",
        "sasl_kerberos_ticket_renew_jitter",
        "sasl_kerberos_ticket_renew_window_factor",
        "sasl_login_callback_handler_class",
        "sasl_login_class",
        "sasl_oauthbearer_client_id",
        "sasl_oauthbearer_jwks_endpoint_url",
        "sasl_oauthbearer_jwt_retriever_class",
        "sasl_oauthbearer_jwt_validator_class",
        "ssl_cipher_suites",
        "ssl_enabled_protocols",
        "ssl_endpoint_identification_algorithm",
        "ssl_engine_factory_class",
        "ssl_keymanager_algorithm",
        "ssl_keystore_certificate_chain",
        "ssl_keystore_location",
        "ssl_keystore_type",
        "ssl_protocol",
        "ssl_provider",
        "ssl_secure_random_implementation",
        "ssl_trustmanager_algorithm",
        "ssl_truststore_certificates",
        "ssl_truststore_location",
        "ssl_truststore_type",
    }
)
"""Properties of Java's client that are no options here and hold no secret."""
_PATHS: Final = frozenset(
    {
        "ssl_cafile",
        "ssl_certfile",
        "ssl_keyfile",
        "ssl_keystore_location",
        "ssl_truststore_location",
        "sasl_kerberos_keytab",
        "sasl_oauthbearer_assertion_file",
        "sasl_oauthbearer_assertion_private_key_file",
        "sasl_oauthbearer_assertion_template_file",
    }
)
"""Options and properties of Java's client that take the path of a file, also as os.PathLike."""
_WRONG_TYPES: Final = frozenset({bytes, bytearray, int, float, list, tuple, dict, set, frozenset})


def hide_secrets(given: GivenT) -> GivenT:
    """Return options or properties with their secrets wrapped; return other values unchanged.

    Functions that are given options call this before they can raise, since a traceback may show
    their variables. The values of unknown names are wrapped too: a name may be misspelled.
    """
    if not isinstance(given, Mapping):
        return given
    options = cast("Mapping[object, object]", given)
    return cast("GivenT", {name: hide_secret(str(name), value) for name, value in options.items()})


def hide_secret(name: str, value: object) -> Any:
    """Return the value of an option or argument, wrapped if it is a secret."""
    name = with_underscores(name)
    row = OPTIONS.get(name)
    if name in _PATHS and isinstance(value, os.PathLike):
        value = cast("object", os.fspath(value))  # pyright: ignore[reportUnknownArgumentType]
    if isinstance(value, str) and PRIVATE_KEY in value:
        return Secret(value)
    if name in _PUBLIC_IN_JAVA or (row is not None and not row.metadata["kind"].secret):
        return value
    if isinstance(value, str):
        return Secret(value)
    # The error of a value of a wrong type shows the type, and must not have the value.
    return type(value)() if type(value) in _WRONG_TYPES else value
