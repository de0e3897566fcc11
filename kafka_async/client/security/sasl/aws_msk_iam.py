"""AWS_MSK_IAM: Amazon MSK with IAM, by an OAUTHBEARER token that is a presigned URL. Pure.

Brokers of MSK offer OAUTHBEARER to clients other than Java's. The token is a URL signed with
Signature Version 4, in base64url without padding. It needs the extra `msk`: botocore finds the AWS
credentials as in every AWS program (environment, profiles, web identities, containers, instance
metadata) and renews them. The signing is done here, because botocore logs what it signs.

The region comes from the brokers' host names, or else from AWS_REGION, AWS_DEFAULT_REGION or the
AWS configuration.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import re
import threading
from base64 import urlsafe_b64encode
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast
from urllib.parse import quote

from kafka_async.client.security.sasl.oauthbearer import OAuthBearer
from kafka_async.config import split_server
from kafka_async.config.spelling import option_error, spell
from kafka_async.errors import (
    KafkaConnectionError,
    KafkaError,
    SaslAuthenticationError,
)
from kafka_async.foundation.arguments import missing_extra
from kafka_async.secrets import Secret
from kafka_async.types import Token

if TYPE_CHECKING:
    from collections.abc import Generator

    from kafka_async.config import ClientConfig
    from kafka_async.foundation.clock import Clock
    from kafka_async.foundation.supervisor import Offload

LIFETIME: Final = 900
"""Seconds for which a token is valid, as in Amazon's own signers."""
_ALGORITHM: Final = "AWS4-HMAC-SHA256"
_SERVICE: Final = "kafka-cluster"
_HOST: Final = re.compile(
    r"\.kafka(?:-serverless)?\.([a-z]{2}(?:-[a-z]+)+-\d)\.amazonaws\.com(?:\.cn)?$", re.IGNORECASE
)
_REGION: Final = re.compile(r"[a-z0-9-]{1,40}")
_REGION_VARIABLES: Final = ("AWS_REGION", "AWS_DEFAULT_REGION")
_EMPTY_HASH: Final = hashlib.sha256(b"").hexdigest()
_SHOWN_ERRORS: Final = ("ProfileNotFound", "PartialCredentialsError", "SSOError")
"""Errors of botocore whose text has no secret, and advises the user."""


class AwsMskIam(OAuthBearer):
    """Authenticates at Amazon MSK with the AWS credentials of this machine or program.

    On the wire it is OAUTHBEARER. A principal needs the permission kafka-cluster:Connect.
    """

    def check(self, config: ClientConfig) -> None:
        """Raise InvalidConfigurationError for another origin of tokens."""
        for name in ("sasl_token_provider", "sasl_oauthbearer_token_endpoint_url"):
            if getattr(config, name) is not None:
                raise option_error(
                    name,
                    f" is given, but tokens of {spell('sasl_mechanism', 'AWS_MSK_IAM')} come from "
                    "the AWS credentials: leave it out, or set "
                    f"{spell('sasl_mechanism', 'OAUTHBEARER')}",
                )


class AwsCredentials(NamedTuple):
    """AWS credentials; only temporary ones have a `session_token`."""

    access_key: str
    secret_key: Secret
    session_token: Secret | None = None


class MskIamTokens:
    """Returns a new token at each call; a `TokenSource` calls it.

    Args:
        config: The client's options.
        offload: Runs botocore in a thread.
        clock: Clock whose time is signed.
        user_agent: Name of the client in the token.
    """

    def __init__(
        self, config: ClientConfig, offload: Offload, clock: Clock, user_agent: str
    ) -> None:
        # From the brokers' names; if None, from the environment.
        self._region = region_of(config.bootstrap_servers)
        self._offload = offload
        self._clock = clock
        self._user_agent = user_agent
        # Created at the first token, in a thread: they read files. The chain renews credentials.
        self._session: Any = None
        self._chain: Any = None

    async def __call__(self) -> Token:
        """Return a token that is signed now.

        Raises:
            SaslAuthenticationError: There are no AWS credentials, no region, or the extra `msk` is
                not installed.
            KafkaConnectionError: The source of the credentials could not be reached.
        """
        # An error is returned by the thread and raised here, so that exceptions of botocore, whose
        # frames hold credentials, are not its context.
        found = await self._offload(self._load)
        if isinstance(found, KafkaError):
            raise found
        credentials, region = found
        return presigned_token(credentials, region, self._clock.wall(), self._user_agent)

    def _load(self) -> tuple[AwsCredentials, str] | KafkaError:
        """Return the credentials of botocore's chain, and the region."""
        try:
            session = self._new_session()
            with _without_debug_logs():
                if self._chain is None:
                    self._chain = session.get_credentials()
                frozen = None if self._chain is None else self._chain.get_frozen_credentials()
                region = self._region or _environment_region(session)
        except ImportError:
            return SaslAuthenticationError(
                missing_extra(spell("sasl_mechanism", "AWS_MSK_IAM"), "msk")
            )
        except Exception as error:  # noqa: BLE001  # nothing of botocore may be shown, see above
            return _failure(error)
        if frozen is None or not frozen.access_key or not frozen.secret_key:
            return SaslAuthenticationError(
                "there are no AWS credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or "
                "AWS_PROFILE, or give the machine or the container a role"
            )
        if not region or not _REGION.fullmatch(region):
            return SaslAuthenticationError(
                "the AWS region is unknown: the bootstrap servers' host names do not end in "
                ".amazonaws.com, so set AWS_REGION, as us-east-1"
            )
        token = None if not frozen.token else Secret(str(frozen.token))
        return AwsCredentials(frozen.access_key, Secret(str(frozen.secret_key)), token), region

    def _new_session(self) -> Any:
        if self._session is None:
            self._session = import_module("botocore.session").Session()
        return self._session


def region_of(servers: tuple[str, ...]) -> str | None:
    """Return the region in the host names of MSK's brokers, or None for other names."""
    for server in servers:
        found = _HOST.search(split_server(server)[0])
        if found is not None:
            return found[1].lower()
    return None


def presigned_token(credentials: AwsCredentials, region: str, now: float, user_agent: str) -> Token:
    """Return a token for a region, signed at the time `now` (seconds since the epoch)."""
    # Signature Version 4: a hash of the canonical request is signed, and the request lists its
    # parameters in order. AWS documents the steps and the names.
    signed_at = int(now)
    time = datetime.fromtimestamp(signed_at, UTC).strftime("%Y%m%dT%H%M%SZ")
    scope = f"{time[:8]}/{region}/{_SERVICE}/aws4_request"
    host = f"kafka.{region}.amazonaws.com"
    query = _query(credentials, scope, time)
    request = "\n".join(
        ("GET", "/", "&".join(sorted(query.reveal().split("&"))), f"host:{host}", "", "host")
    )
    digest = hashlib.sha256(f"{request}\n{_EMPTY_HASH}".encode()).hexdigest()
    del request  # it has the session token
    text = "\n".join((_ALGORITHM, time, scope, digest))
    url = Secret(
        f"https://{host}/?{query.reveal()}"
        f"&X-Amz-Signature={_signature(credentials, scope, text)}&User-Agent={_encoded(user_agent)}"
    )
    return Token(
        urlsafe_b64encode(url.reveal().encode()).decode().rstrip("="), float(signed_at + LIFETIME)
    )


def _query(credentials: AwsCredentials, scope: str, time: str) -> Secret:
    """Return the parameters to sign, which include the session token."""
    fields = [
        ("Action", "kafka-cluster:Connect"),
        ("X-Amz-Algorithm", _ALGORITHM),
        ("X-Amz-Credential", f"{credentials.access_key}/{scope}"),
        ("X-Amz-Date", time),
        ("X-Amz-Expires", str(LIFETIME)),
        ("X-Amz-SignedHeaders", "host"),
    ]
    query = "&".join(f"{name}={_encoded(value)}" for name, value in fields)
    if credentials.session_token is None:
        return Secret(query)
    return Secret(f"{query}&X-Amz-Security-Token={_encoded(credentials.session_token.reveal())}")


def _signature(credentials: AwsCredentials, scope: str, text: str) -> str:
    """Return the signature of a text, with the key of its scope."""
    key = b"AWS4" + credentials.secret_key.reveal().encode("utf-8", "surrogatepass")
    # Derived for the date, the region and the service, so a leaked key is of little use.
    for part in (*scope.split("/"), text):
        key = hmac.digest(key, part.encode(), "sha256")
    return key.hex()


def _encoded(text: str) -> str:
    return quote(text, safe="-._~", errors="replace")


def _environment_region(session: Any) -> str | None:
    """Return the region of the environment, or of the AWS configuration."""
    for name in _REGION_VARIABLES:
        if os.environ.get(name):
            return os.environ[name]
    return cast("str | None", session.get_config_variable("region"))


def _failure(error: Exception) -> KafkaError:
    """Return the error for an exception of botocore."""
    exceptions, name = import_module("botocore.exceptions"), type(error).__name__
    text = ""
    if isinstance(error, tuple(getattr(exceptions, known) for known in _SHOWN_ERRORS)):
        text = f" ({error})"
    if isinstance(error, (exceptions.HTTPClientError, exceptions.ConnectionError)):
        return KafkaConnectionError(
            f"the source of the AWS credentials could not be reached ({name}): the next connection "
            "tries again"
        )
    return SaslAuthenticationError(
        f"botocore raised {name}{text} while it looked for AWS credentials: check the AWS_* "
        "variables and the profile with `aws sts get-caller-identity`"
    )


@contextmanager
def _without_debug_logs() -> Generator[None]:
    """Drop botocore's records below WARNING in this thread: they show responses with secrets."""
    thread = threading.get_ident()
    # Other threads may use botocore too, and their logs are kept.

    def shows(record: logging.LogRecord) -> bool:
        return record.levelno >= logging.WARNING or record.thread != thread

    names = [name for name in logging.root.manager.loggerDict if name.startswith("botocore")]
    loggers = [logging.getLogger(name) for name in names]
    for logger in loggers:
        logger.addFilter(shows)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(shows)
