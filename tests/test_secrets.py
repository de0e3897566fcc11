"""Planted secrets are searched in all that the package shows: reprs, errors, logs and events."""

from __future__ import annotations

import ast
import asyncio
import copy
import dataclasses
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from kafka_async import Admin, Client, Consumer, Producer, blocking
from kafka_async.admin import UserScramCredentialUpsertion
from kafka_async.config import ClientConfig, ConsumerConfig, ProducerConfig
from kafka_async.errors import InvalidConfigurationError
from kafka_async.secrets import Secret, SecretBytes
from kafka_async.types import Token
from tests.planted_secrets import (
    CLIENT_SECRET,
    KEY_PASSWORD,
    KEY_PEM,
    NEW_PASSWORD,
    PACKAGE,
    PASSPHRASE,
    PASSWORD,
    SECRETS,
    TOKEN,
    secrets_in,
    text_of,
)

SERVERS: Final = "localhost:9092"
CONFIGS: Final[list[Callable[..., Any]]] = [ClientConfig, ProducerConfig, ConsumerConfig]
CLIENTS: Final[list[Callable[..., Any]]] = [
    *(Client, Producer, Consumer, Admin),
    *(blocking.Client, blocking.Producer, blocking.Consumer, blocking.Admin),
]


def scram() -> dict[str, Any]:
    return {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_username": "alice",
        "sasl_password": PASSWORD,
        "ssl_certfile": "client.pem",
        "ssl_keyfile": KEY_PEM,
        "ssl_password": KEY_PASSWORD,
    }


def oauth() -> dict[str, Any]:
    return {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauthbearer_token_endpoint_url": "https://issuer.example/token",
        "sasl_oauthbearer_client_credentials_client_id": "client",
        "sasl_oauthbearer_client_credentials_client_secret": CLIENT_SECRET,
        "sasl_oauthbearer_assertion_private_key_passphrase": PASSPHRASE,
    }


@pytest.fixture(scope="module", autouse=True)
def event_loop_thread() -> None:
    """Start the thread of the blocking clients, which remains until the end of the process."""
    blocking.run(asyncio.sleep, 0)


def name_of(value: object) -> str:
    module = getattr(value, "__module__", "")
    return f"{'blocking.' if 'blocking' in module else ''}{getattr(value, '__name__', value)}"


# --- The search itself ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", SECRETS)
@pytest.mark.parametrize("before", ["", "a", "ab", '{"password": "'])
def test_search_finds_each_secret_plain_and_in_base64(name: str, before: str) -> None:
    import base64

    text = f"{before}{SECRETS[name]}, and more"
    assert secrets_in(text) == {name}
    assert secrets_in(base64.b64encode(text.encode())) == {name}
    assert secrets_in(before + SECRETS[name][:-1]) == set()


def test_search_finds_the_variables_of_the_package() -> None:
    from kafka_async.config import seconds

    with pytest.raises(TypeError) as caught:
        seconds([PASSWORD])  # type: ignore[arg-type]
    assert secrets_in(text_of(caught.value)) == {"password"}


# --- Configuration -------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [*CONFIGS, *CLIENTS], ids=name_of)
@pytest.mark.parametrize("options", [scram, oauth], ids=name_of)
def test_configurations_and_clients_show_no_secret(
    make: Callable[..., Any], options: Callable[[], dict[str, Any]]
) -> None:
    made = make(SERVERS, **options())
    assert secrets_in(repr(made) + str(made) + f"{made}") == set()
    config = made if isinstance(made, ClientConfig) else getattr(made, "asynchronous", made).config
    assert secrets_in(repr(config)) == set()
    assert secrets_in(repr(dataclasses.asdict(config))) == set()
    assert secrets_in(repr(vars(config))) == set()
    assert config == copy.deepcopy(config)
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(config)


FAULTS: Final[dict[str, Callable[[], dict[str, Any]]]] = {
    "unknown option": lambda: {**scram(), "nonsense": 1},
    "unknown option of Java": lambda: {**scram(), "sasl.jaas.config": PASSWORD},
    "misspelled secret": lambda: {"sasl_pasword": PASSWORD},
    "secret of another client": lambda: {"sasl_plain_password": PASSWORD},
    "secret as bytes": lambda: {**scram(), "sasl_password": PASSWORD.encode()},
    "secret in a list": lambda: {**scram(), "sasl_password": [PASSWORD]},
    "key as bytes": lambda: {**scram(), "ssl_keyfile": KEY_PEM.encode()},
    "wrong type of another option": lambda: {**scram(), "client_rack": 1},
    "wrong value of another option": lambda: {**scram(), "request_timeout_ms": 0},
    "contradiction": lambda: {**scram(), "retry_backoff_ms": 9e9},
    "unknown protocol": lambda: {**scram(), "security_protocol": "TLS"},
    "protocol without SASL": lambda: {**oauth(), "security_protocol": "TLS"},
    "unknown mechanism": lambda: {**scram(), "sasl_mechanism": 7, "nonsense": 1},
    "two servers": lambda: {**oauth(), "bootstrap_servers": "a:1"},
    "servers without a port": lambda: {**oauth(), "client_id": None},
}


@pytest.mark.parametrize("make", [*CONFIGS, *CLIENTS], ids=name_of)
@pytest.mark.parametrize("fault", FAULTS)
def test_errors_of_options_show_no_secret(make: Callable[..., Any], fault: str) -> None:
    with pytest.raises((InvalidConfigurationError, TypeError)) as caught:
        make(SERVERS, **FAULTS[fault]())
    assert secrets_in(text_of(caught.value)) == set()


@pytest.mark.parametrize("make", CONFIGS, ids=name_of)
@pytest.mark.parametrize("fault", FAULTS)
def test_errors_of_properties_show_no_secret(make: Any, fault: str) -> None:
    properties = {name.replace("_", "."): value for name, value in FAULTS[fault]().items()}
    properties["bootstrap.servers"] = "localhost"  # A fault of each: it has no port.
    with pytest.raises((InvalidConfigurationError, TypeError)) as caught:
        make.from_properties(properties)
    assert secrets_in(text_of(caught.value)) == set()


JAAS: Final = "org.apache.kafka.common.security.{} required "
JAVA: Final = {
    "password": {
        "sasl.jaas.config": JAAS.format("plain.PlainLoginModule") + f'password="{PASSWORD}"'
    },
    "malformed JAAS": {"sasl.jaas.config": f'password="{PASSWORD}'},
    "module of another name": {"sasl.jaas.config": JAAS.format("X") + f"password={PASSWORD};"},
    "token": {"sasl.jaas.config": JAAS.format("scram.ScramLoginModule") + f"password={TOKEN}"},
    "key": {"ssl.keystore.key": KEY_PEM, "ssl.key.password": KEY_PASSWORD},
    "keystore": {"ssl.keystore.password": KEY_PASSWORD, "ssl.truststore.password": PASSWORD},
    "expansion": {"sasl.jaas.config": f"${{file:/etc/passwd:{PASSWORD}}}"},
}


@pytest.mark.parametrize("make", CONFIGS, ids=name_of)
@pytest.mark.parametrize("properties", JAVA)
def test_errors_of_javas_properties_show_no_secret(make: Any, properties: str) -> None:
    given = {"bootstrap.servers": "localhost", "sasl.mechanism": "PLAIN", **JAVA[properties]}
    with pytest.raises(InvalidConfigurationError) as caught:
        make.from_properties(given)
    assert secrets_in(text_of(caught.value)) == set()


@pytest.mark.parametrize("make", CLIENTS, ids=name_of)
def test_properties_given_by_position_are_refused_without_their_secrets(
    make: Callable[..., Any],
) -> None:
    with pytest.raises(InvalidConfigurationError) as caught:
        make({"bootstrap.servers": SERVERS, "sasl.password": PASSWORD})
    assert secrets_in(text_of(caught.value)) == set()


@pytest.mark.parametrize(
    "make",
    [
        lambda: Secret(PASSWORD),
        lambda: SecretBytes(PASSWORD.encode()),
        lambda: Token(TOKEN, 1.0, {"a": "b"}),
        lambda: UserScramCredentialUpsertion("alice", "SCRAM-SHA-256", NEW_PASSWORD),
    ],
)
def test_values_show_no_secret(make: Callable[[], Any]) -> None:
    made = make()
    assert secrets_in(repr(made) + str(made) + f"{made}" + f"{[made]}") == set()
    with pytest.raises(TypeError):
        pickle.dumps(made)


@pytest.mark.parametrize(
    "arguments", [("alice\0", NEW_PASSWORD), ("alice", NEW_PASSWORD.encode()), (7, NEW_PASSWORD)]
)
@pytest.mark.parametrize("options", [dict, scram, oauth], ids=name_of)
@pytest.mark.asyncio
async def test_errors_of_new_credentials_show_no_secret(
    arguments: tuple[Any, ...],
    options: Callable[[], dict[str, Any]],
) -> None:
    client = Client(SERVERS, **options())
    with pytest.raises(InvalidConfigurationError) as caught:
        await client.set_sasl_credentials(*arguments)
    assert secrets_in(text_of(caught.value)) == set()


def test_errors_of_new_credentials_of_blocking_clients_show_no_secret() -> None:
    with pytest.raises(InvalidConfigurationError) as caught:
        blocking.Client(SERVERS).set_sasl_credentials("alice", NEW_PASSWORD)
    assert secrets_in(text_of(caught.value)) == set()


# --- Code that is never run from configuration ---------------------------------------------------

FORBIDDEN_MODULES: Final = {
    "pickle",
    "marshal",
    "shelve",
    "dill",
    "cloudpickle",
    "yaml",
    "jsonpickle",
}
FORBIDDEN_CALLS: Final = {
    *("eval", "exec", "compile", "__import__", "import_module", "expandvars"),
    *("locate", "exec_module", "run_path", "run_module", "execfile", "Template"),
}
REASONS: Final = {
    ("__init__.py", "import_module"): "names of a constant table of the package's public names",
    (
        "client/security/sasl/__init__.py",
        "import_module",
    ): "modules of a constant table of mechanisms",
    ("kernel/__init__.py", "import_module"): "one of the two kernels",
    ("producer/producer.py", "import_module"): "messages of a constant table",
    ("protocol/compiler.py", "compile"): "text made from the protocol's schema",
    ("protocol/compiler.py", "exec"): "text made from the protocol's schema",
    ("protocol/registry.py", "import_module"): "messages of a generated table",
    ("records/checksum.py", "exec_module"): "the compiled module of the package crc32c",
    ("records/compression.py", "import_module"): "codecs of a constant table",
    ("spark/pipeline/pipeline.py", "import_module"): "a pipeline's file, which is a program: its "
    "steps name functions, and the options of its clients none",
}
"""Calls that run code by name, by file, and the reason for which no configuration of a client, and
nothing that is received, chooses the name."""


def calls_of_forbidden_code(source: str) -> Iterator[str]:
    """Yield calls that load or run code by name, and imports of modules that do."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name.split(".")[0] in FORBIDDEN_MODULES)
        elif isinstance(node, ast.ImportFrom) and node.module:
            if node.module.split(".")[0] in FORBIDDEN_MODULES:
                yield node.module
        elif isinstance(node, ast.Call):
            function = node.func
            name = getattr(function, "id", getattr(function, "attr", ""))
            owner = getattr(getattr(function, "value", None), "id", "")
            constant = bool(node.args) and isinstance(node.args[0], ast.Constant)
            if (
                name in FORBIDDEN_CALLS
                and owner != "re"
                and not (name == "import_module" and constant)
            ):
                yield name


def test_package_runs_no_code_that_configuration_names() -> None:
    found = {
        (str(path.relative_to(PACKAGE)), call)
        for path in Path(PACKAGE).rglob("*.py")
        for call in calls_of_forbidden_code(path.read_text())
    }
    assert found == set(REASONS)


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import pickle", ["pickle"]),
        ("from yaml.loader import x", ["yaml.loader"]),
        ("import_module(name)", ["import_module"]),
        ("importlib.import_module(f'a.{b}')", ["import_module"]),
        ("import_module('a')", []),
        ("eval('1')", ["eval"]),
        ("re.compile(x)", []),
        ("os.path.expandvars(x)", ["expandvars"]),
    ],
)
def test_scan_finds_calls_that_run_code_by_name(source: str, found: list[str]) -> None:
    assert list(calls_of_forbidden_code(source)) == found
