"""The package for executors of Spark: its files, and what its ending says about them."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import kafka_async
from kafka_async.errors import InvalidConfigurationError
from kafka_async.spark.executor_package import write_package
from tests.cli.conftest import call

COMPILED = ("cramjam", "crc32c", "lz4", "zstandard")


def test_archive_has_the_installed_files_of_the_package_and_its_dependencies(
    tmp_path: Path,
) -> None:
    file = tmp_path / "packages.tar.gz"
    package = write_package(file)
    assert {"kafka-async", "anyio", *COMPILED} <= set(package.packed)
    assert package.left_out == ()
    with tarfile.open(file) as archive:
        names = archive.getnames()
    assert {"kafka_async/producer/producer.py", "pyspark_kafka_async.py"} <= set(names)
    assert {"anyio/__init__.py", "crc32c/__init__.py"} <= set(names)
    kernels = [
        path.name for path in Path(kafka_async.__file__).parent.rglob("*") if path.suffix == ".so"
    ]
    assert {Path(name).name for name in names} >= set(kernels)
    assert not [name for name in names if name.startswith(("/", "..", "pyspark/", "pyarrow/"))]
    assert not [name for name in names if "__pycache__" in name]


def test_python_imports_the_zip_which_has_no_compiled_code(tmp_path: Path) -> None:
    file = tmp_path / "packages.zip"
    package = write_package(file)
    assert {"kafka-async", "anyio", "idna", "typing_extensions"} <= set(package.packed)
    assert package.left_out == COMPILED
    with zipfile.ZipFile(file) as zipped:
        assert all(name.endswith(".py") for name in zipped.namelist())
    # The module for Spark is only found: importing it needs pyspark.
    code = (
        "import importlib.util, kafka_async.kernel as k; print(k.IMPLEMENTATION, k.__file__,"
        " importlib.util.find_spec('pyspark_kafka_async').origin)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(file)},
        cwd="/",
        capture_output=True,
        text=True,
        check=True,
    )
    implementation, kernel, source = ended.stdout.split()
    assert implementation == "python"
    assert kernel.startswith(f"{file}/kafka_async/kernel/")
    assert source == f"{file}/pyspark_kafka_async.py"


def test_command_names_what_executors_need(tmp_path: Path) -> None:
    file = tmp_path / "packages.zip"
    ended = call("pipeline", "package", str(file))
    assert ended.status == 0
    assert f"{file} has kafka-async, anyio" in ended.err
    assert f"which have compiled code: {', '.join(COMPILED)}" in ended.err


@pytest.mark.parametrize("name", ["packages", "packages.tar", "packages.whl"])
def test_refuses_other_endings(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidConfigurationError, match=r"name a file \.tar\.gz"):
        write_package(tmp_path / name)
    assert ".zip, for --py-files" in call("pipeline", "package", str(tmp_path / name)).error
