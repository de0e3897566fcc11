"""Client options of a Spark data source, picklable and without visible secrets.

Spark shows a data source's options in query plans and its event log, and redacts only values whose
names look like secrets. Secrets are therefore better passed as the name of an environment variable
or a file, which the connecting process reads.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from kafka_async.config import ClientConfig, hide_secret, hide_secrets
from kafka_async.config.secret_files import read_secret
from kafka_async.config.spelling import (
    PropertyNames,
    option_error,
    options_written_as,
    spell,
    spell_given,
    with_underscores,
)
from kafka_async.errors import InvalidConfigurationError
from kafka_async.secrets import Secret

if TYPE_CHECKING:
    from kafka_async.config import ConsumerConfig, ProducerConfig

ConfigT = TypeVar("ConfigT", bound="ConsumerConfig | ProducerConfig")

PREFIX: Final = "kafka."
"""Prefix of the names of client options."""
VARIABLE_PREFIX: Final = "KAFKA_"
"""Prefix of environment variables that options may refer to: others must not reach brokers."""
JAAS: Final = "sasl_jaas_config"
_JAVA_SECRETS: Final = frozenset({JAAS, "ssl_keystore_key", "ssl_key_password"})
_SHOWN_BY_SPARK: Final = frozenset(
    {
        "ssl_keyfile",
        "ssl_keystore_key",
        "sasl_oauthbearer_assertion_private_key_passphrase",
    }
)
"""Secrets that spark.redaction.regex (secret, password, token, access key) does not match."""
_OPTIONS: Final = frozenset(row.name for row in fields(ClientConfig))
_CONNECTION: Final = re.compile("security_protocol|ssl_.+|sasl_.+")


def option_name(key: str) -> str | None:
    """Return the client option, with underscores, that a data source option sets, or None.

    Connection options need no prefix "kafka."; letter case does not count.
    """
    low = key.lower()
    name = with_underscores(low.removeprefix(PREFIX))
    return name if low.startswith(PREFIX) or _CONNECTION.fullmatch(name) else None


class Properties(Generic[ConfigT]):
    """Holds the client options of a reader or writer, which Spark pickles to its workers.

    Args:
        role: The class of the configuration.
        options: Options by name with underscores. NAME_env and NAME_file refer to an environment
            variable or a file with the secret NAME.

    Raises:
        InvalidConfigurationError: An option is unknown, invalid, or a secret that Spark would show.
    """

    def __init__(self, role: type[ConfigT], options: Mapping[str, object]) -> None:
        options = hide_secrets(options)
        self._role = role
        self._references = {
            name: str(_revealed(value)) for name, value in options.items() if _reference(name)
        }
        self._options = {
            name: value for name, value in options.items() if name not in self._references
        }
        for name in self._options:
            _check_hidden_by_spark(name, self._options)
        for name in self._references:
            _check_reference(name, self._references, self._options)
        # Secrets may exist only in the workers, so check the other options without them.
        secrets = {_secret_of(name): Secret("secret") for name in self._references}
        if JAAS not in secrets:
            role.from_properties({**self._options, **secrets})

    def config(self, **options: object) -> ConfigT:
        """Return the configuration, with secrets read from environment variables and files.

        Args:
            **options: More options, by name with underscores.

        Raises:
            InvalidConfigurationError: An environment variable or a file contains no secret.
        """
        secrets = {_secret_of(name): _read(name, place) for name, place in self._references.items()}
        writing = PropertyNames({}, prefix=PREFIX, takes_objects=False)
        with options_written_as(writing, by_default=True):
            return self._role.from_properties({**self._options, **secrets, **options})

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(sorted({**self._options, **self._references}))})"

    def __reduce__(self) -> tuple[Any, ...]:
        options = {name: _revealed(value) for name, value in self._options.items()}
        return Properties, (self._role, {**options, **self._references})


def _revealed(value: object) -> object:
    return value.reveal() if isinstance(value, Secret) else value


def _reference(name: str) -> bool:
    """Return whether an option refers to an environment variable or a file with a secret."""
    secret = _secret_of(name)
    if secret == name or name in _OPTIONS:  # such as sasl_oauthbearer_assertion_file
        return False
    return secret in _JAVA_SECRETS or isinstance(hide_secret(secret, ""), Secret)


def _secret_of(name: str) -> str:
    return name.removesuffix("_env").removesuffix("_file")


def _check_reference(
    name: str, references: Mapping[str, str], options: Mapping[str, object]
) -> None:
    secret = _secret_of(name)
    others = {*references, *options} - {name}
    given = [each for each in (secret, f"{secret}_env", f"{secret}_file") if each in others]
    if given:
        raise option_error(name, f" and {spell(given[0])} are the same: give one")
    if name.endswith("_env") and not references[name].startswith(VARIABLE_PREFIX):
        raise option_error(
            name,
            f" must name an environment variable that begins with {VARIABLE_PREFIX}, so that "
            "options cannot send any other variable to a broker",
        )


def _check_hidden_by_spark(name: str, options: Mapping[str, object]) -> None:
    """Raise for a secret that Spark would show in query plans and its event log."""
    value = options[name]
    if name not in _SHOWN_BY_SPARK or not isinstance(value, Secret):
        return
    if name == "ssl_keyfile" and "-----BEGIN" not in value.reveal():
        return  # A file's path.
    raise InvalidConfigurationError(
        f"Spark shows the option {spell(name)} in query plans and its event log: give "
        f"{spell(f'{name}_env')}, the name of an environment variable of the workers, or "
        f"{spell(f'{name}_file')}",
        option=name,
    )


def _read(name: str, place: str) -> Secret:
    """Return the secret of NAME_env or NAME_file."""
    if name.endswith("_file"):
        return read_secret(Path(place), regular=True)
    secret = Secret(os.environ.get(place, ""))
    if not secret:
        raise InvalidConfigurationError(
            f"{spell_given(name, place)}: there is no such environment variable in this process: "
            f"set it for the driver and the workers, as with spark.executorEnv.{place}",
            option=name,
        )
    return secret
