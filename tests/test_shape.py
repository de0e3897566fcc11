"""Rules of the code base: pure modules, light imports, a complete wheel."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import kafka_async
from tests.programs import ROOT, output_of
from tests.rows import row

PACKAGE = ROOT / "kafka_async"
# Modules that pure modules must not import, so that they cannot wait.
WAITING = {"asyncio", "anyio", "socket", "ssl", "time"}
PURE_PACKAGES = [
    "protocol",
    "records",
    "kernel",
    "embedded/state",
    "embedded/quotas",
    "foundation/arguments.py",
    "foundation/backoff.py",
    "foundation/fairness.py",
    "foundation/thread_reads.py",
    "types.py",
    "errors.py",
    "secrets.py",
    "config/jaas.py",
    "config/java_security.py",
    "client/security/sasl",
]
PURE_MODULES = [
    *(
        "client/metadata/metadata.py",
        "client/metadata/outage.py",
        "client/wire/in_flight_requests.py",
    ),
    *("producer/buffer/accumulator.py", "producer/idempotence.py"),
    *(
        "consumer/subscription.py",
        "consumer/fetch/fetch_session.py",
        "consumer/buffer/completed_fetch.py",
    ),
    *("consumer/share/acquired_records.py", "consumer/share/share_requests.py"),
    "consumer/offsets.py",
    "consumer/missing_topics.py",
    "group/member_states.py",
    *(
        f"embedded/groups/{name}.py"
        for name in ("group_configs", "share_group", "share_partition", "share_states")
    ),
    *(
        f"spark/orchestrator/{name}.py"
        for name in ("control", "errors", "job_ledger", "ranges", "triggers")
    ),
    *(
        f"embedded/security/{name}.py"
        for name in (
            *("credentials", "delegation_tokens", "exchange", "oauthbearer", "plain"),
            *("principal_mapping", "principals", "sasl_server_authenticator", "scram"),
        )
    ),
]


def label(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


# --- Pure modules --------------------------------------------------------------------------------


def pure_modules() -> list[Path]:
    places = [PACKAGE / name for name in PURE_PACKAGES]
    found = [
        path for place in places for path in (place.rglob("*.py") if place.is_dir() else [place])
    ]
    return sorted({*found, *(PACKAGE / name for name in PURE_MODULES)})


def imported(source: str) -> set[str]:
    """Return the top-level names that a module imports anywhere, except for type checking."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            node.body = []
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.partition(".")[0])
    return names


@pytest.mark.one_kernel
def test_pure_modules_import_nothing_that_waits() -> None:
    for path in pure_modules():
        with row(path):
            assert imported(path.read_text()) & WAITING == set()


def test_finds_imports_in_functions_but_not_for_type_checking() -> None:
    hidden = "def f():\n    from time import time\n"
    typing_only = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import ssl\n"
    assert imported(hidden + typing_only) == {"time", "typing"}


# --- Light imports -------------------------------------------------------------------------------

HEAVY = [
    *("kafka_async.protocol.messages", "kafka_async.embedded", "kafka_async.spark"),
    *("crc32c", "lz4", "zstandard", "cramjam", "anyio._backends", "uvloop", "trio"),
    *("httpx", "authlib", "gssapi", "botocore"),
    *("typer", "rich", "pyspark", "pyarrow", "pandas", "numpy", "pytest", "docker"),
]


def loaded_by(statement: str) -> set[str]:
    """Return the modules that a statement loads in a new interpreter."""
    script = f"{statement}\nimport sys\nprint('\\n'.join(sys.modules))"
    return set(output_of("-c", script).split())


def heavy(names: set[str]) -> set[str]:
    return {
        name for name in names for one in HEAVY if name == one or name.startswith(f"{one}.")
    } - {"kafka_async.protocol.messages"}


def test_importing_the_package_loads_no_other_module() -> None:
    loaded = loaded_by("import kafka_async")
    assert "kafka_async" in loaded
    assert heavy(loaded) == set()
    assert {name for name in loaded if name.startswith("kafka_async.")} == set()


def test_importing_the_clients_loads_no_heavy_module() -> None:
    names = "from kafka_async import Admin, Client, Consumer, Producer, TopicPartition"
    assert heavy(loaded_by(names)) == set()


def test_importing_the_pytest_plugin_loads_nothing_of_the_package() -> None:
    loaded = loaded_by("import kafka_async_pytest")
    assert {name for name in loaded if name.partition(".")[0] == "kafka_async"} == set()


def test_heavy_modules_are_found() -> None:
    loaded = loaded_by("import lz4.frame, kafka_async.protocol.messages.metadata")
    assert {"lz4.frame", "kafka_async.protocol.messages.metadata"} <= heavy(loaded)


@pytest.mark.parametrize("name", kafka_async.__all__)
def test_every_public_name_resolves(name: str) -> None:
    assert getattr(kafka_async, name) is not None
    assert name in dir(kafka_async)


def test_unknown_name_raises_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        _ = kafka_async.Nothing


@pytest.mark.parametrize(
    ("name", "ours"), [("AIOKafkaProducer", "Producer"), ("KafkaConsumer", "Consumer")]
)
def test_class_of_another_client_raises_with_the_one_to_use(name: str, ours: str) -> None:
    with pytest.raises(AttributeError, match=f"has no {name}: use {ours}; .*migration"):
        getattr(kafka_async, name)
    assert name not in dir(kafka_async)


# --- The wheel -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """Build the wheel from a copy of this tree, without the compiled kernel to save time."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    built = shutil.ignore_patterns("__pycache__", "*.c", "*.so", "*.html")
    shutil.copytree(PACKAGE, source / PACKAGE.name, ignore=built)
    for name in ("kafka_async_pytest.py", "pyspark_kafka_async.py", *PACKAGING):
        shutil.copy(ROOT / name, source)
    stale = source / "build" / "lib" / "kafka_async" / "stale.py"
    stale.parent.mkdir(parents=True)
    stale.write_text("")
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", target, source],
        env={**os.environ, "KAFKA_ASYNC_KERNEL": "python"},
        capture_output=True,
        check=True,
    )
    (path,) = target.glob("*.whl")
    return zipfile.ZipFile(path)


PACKAGING = ("pyproject.toml", "setup.py", "README.md", "LICENSE")


@pytest.mark.slow
def test_wheel_contains_the_package_and_the_plugins(wheel: zipfile.ZipFile) -> None:
    names = set(wheel.namelist())
    wanted = {str(path.relative_to(ROOT)) for path in PACKAGE.rglob("*.py")}
    assert wanted <= names
    assert {"kafka_async/py.typed", "kafka_async_pytest.py", "pyspark_kafka_async.py"} <= names
    parts = ("_ckernel.pyi", "_ckernel.pyx", "record_appender.pxi", "record_appender.h")
    assert {f"kafka_async/kernel/{part}" for part in parts} <= names


@pytest.mark.slow
def test_wheel_contains_no_module_of_a_stale_build_directory(wheel: zipfile.ZipFile) -> None:
    assert "kafka_async/stale.py" not in wheel.namelist()


@pytest.mark.slow
def test_wheel_contains_no_other_files(wheel: zipfile.ZipFile) -> None:
    tops = {name.partition("/")[0] for name in wheel.namelist()}
    (metadata,) = {name for name in tops if name.endswith(".dist-info")}
    assert tops == {"kafka_async", "kafka_async_pytest.py", "pyspark_kafka_async.py", metadata}


@pytest.mark.slow
def test_wheel_has_the_version_of_the_package(wheel: zipfile.ZipFile) -> None:
    (path,) = [name for name in wheel.namelist() if name.endswith("/METADATA")]
    assert f"\nVersion: {kafka_async.__version__}\n" in wheel.read(path).decode()


@pytest.mark.slow
def test_wheel_declares_the_pytest_plugin_and_the_command(wheel: zipfile.ZipFile) -> None:
    (path,) = [name for name in wheel.namelist() if name.endswith("entry_points.txt")]
    text = wheel.read(path).decode()
    assert "[pytest11]\nkafka_async_pytest = kafka_async_pytest" in text
    assert "[console_scripts]\nkafka-async = kafka_async.cli:main" in text
