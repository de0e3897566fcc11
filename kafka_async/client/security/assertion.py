"""Assertions of a client for the token endpoint (JWT bearer, RFC 7523, KIP-1139).

An assertion is read from a file, or signed with a private key by Authlib, of the extra `oidc`. The
files are read for each assertion, so a replaced file is used for the next token. They are regular
files of at most 64 KiB; errors contain the option, not the path or the content.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from kafka_async.config.secret_files import MAX_SECRET_BYTES, read_file
from kafka_async.config.spelling import spell
from kafka_async.errors import InvalidConfigurationError, SaslAuthenticationError
from kafka_async.secrets import Secret

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafka_async.config import ClientConfig
    from kafka_async.secrets import SecretBytes

NOT_BEFORE: Final = 60
"""Seconds by which an assertion's validity begins early, for clocks that differ."""
_FILE: Final = "sasl_oauthbearer_assertion_file"
_TEMPLATE: Final = "sasl_oauthbearer_assertion_template_file"
_KEY: Final = "sasl_oauthbearer_assertion_private_key_file"
_JWT: Final = re.compile(rb"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")


def assertion_of(config: ClientConfig, now: float) -> Secret:
    """Return an assertion, read from a file or signed at `now` (seconds since the epoch).

    It reads files and signs, so it is for a thread.

    Raises:
        SaslAuthenticationError: A file cannot be used; the message has the option and the cause.
        ImportError: The extra `oidc` is not installed.
    """
    if config.sasl_oauthbearer_assertion_file is not None:
        return _ready_made(config.sasl_oauthbearer_assertion_file)
    return _signed(config, now)


def _ready_made(path: str) -> Secret:
    data = _read(_FILE, path)
    if not _JWT.fullmatch(data.reveal().strip()):
        raise SaslAuthenticationError(
            f"{_FILE} has no assertion: write a signed JWT in its compact form, three parts with "
            "dots between them (RFC 7515)"
        )
    return Secret(data.reveal().strip().decode())


def _signed(config: ClientConfig, now: float) -> Secret:
    """Return an assertion signed with the private key of the options."""
    from authlib.oauth2 import rfc7523
    from joserfc.jwk import ECKey, RSAKey

    sign: Callable[..., object] = getattr(rfc7523, "private_key_jwt_sign")  # noqa: B009  # untyped
    algorithm = config.sasl_oauthbearer_assertion_algorithm
    passphrase = config.sasl_oauthbearer_assertion_private_key_passphrase
    kind = ECKey if algorithm.startswith("ES") else RSAKey
    header, payload = _template(config.sasl_oauthbearer_assertion_template_file)
    # The template is the more specific of the two.
    claims = {**_claims_of_options(config), **payload}
    missing = [name for name in ("iss", "aud") if not claims.get(name)]
    if missing:
        raise SaslAuthenticationError(
            f"{spell(_TEMPLATE)} has no {' and no '.join(missing)} in its payload: add it there, "
            f"or set {spell(f'sasl_oauthbearer_assertion_claim_{missing[0]}')}"
        )
    # RFC 7523: the subject of a client's own assertion is the client.
    claims.setdefault("sub", claims["iss"])
    content = _read(_KEY, config.sasl_oauthbearer_assertion_private_key_file or "")
    failure = ""
    try:
        key = kind.import_key(
            content.reveal(), password=None if passphrase is None else passphrase.reveal()
        )
        signed = sign(
            key,
            claims["iss"],
            claims["aud"],
            alg=algorithm,
            header={**header, "typ": "JWT"},
            claims={
                **claims,
                "iat": int(now),
                "nbf": int(now) - NOT_BEFORE,
                "exp": int(now) + config.sasl_oauthbearer_assertion_claim_exp_seconds,
            },
        )
        return Secret(str(signed))
    except Exception as error:  # noqa: BLE001  # its frames hold the key
        failure = type(error).__name__
    # Outside the `except`: as a context, the exception would show the key.
    names = f", and {spell(_TEMPLATE)} for names in its header that JOSE lacks" if header else ""
    raise SaslAuthenticationError(
        f"{spell(_KEY)} cannot sign an assertion with {algorithm} ({failure}). It is the path of a "
        "PEM file with a private key for "
        f"{spell('sasl_oauthbearer_assertion_algorithm')}; check its passphrase{names}"
    )


def _claims_of_options(config: ClientConfig) -> dict[str, Any]:
    claims = {
        "iss": config.sasl_oauthbearer_assertion_claim_iss,
        "sub": config.sasl_oauthbearer_assertion_claim_sub,
        "aud": config.sasl_oauthbearer_assertion_claim_aud,
    }
    return {name: value for name, value in claims.items() if value is not None}


def _template(path: str | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the header and the payload of the template, or empty dicts."""
    if path is None:
        return {}, {}
    data = _read(_TEMPLATE, path)
    try:
        content = json.loads(data.reveal())
    except (ValueError, RecursionError):
        content = None
    template = cast("dict[str, Any]", content) if isinstance(content, dict) else {}
    parts = [template.get(name, {}) for name in ("header", "payload")]
    unknown = template.keys() - {"header", "payload"}
    if not template or unknown or not all(isinstance(part, dict) for part in parts):
        raise SaslAuthenticationError(
            f'{spell(_TEMPLATE)} is no template: write a JSON object with "header" or '
            '"payload" or both, each of which is an object'
        )
    return parts[0], parts[1]


def _read(option: str, path: str) -> SecretBytes:
    failure = ""
    try:
        return read_file(
            Path(path), private=False, regular=True, max_bytes=MAX_SECRET_BYTES, name=spell(option)
        )
    except InvalidConfigurationError as error:
        failure = error.message
    # Outside the `except`, as above.
    raise SaslAuthenticationError(failure)
