"""The environments of `make test-environments`: lower bounds, variants, and their tests."""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path
from subprocess import CalledProcessError
from typing import Any

import pytest

from tests.programs import ROOT
from tools import environments
from tools.environments import Environment


def test_lowest_versions_pin_every_dependency_of_the_tested_extras(tmp_path: Path) -> None:
    pyproject = tmp_path / "pyproject.toml"
    extras = "\n".join(f'{name} = ["{name}-package>=2.1"]' for name in environments.EXTRAS)
    pyproject.write_text(
        '[project]\ndependencies = ["anyio>=4.5", "lz4>=4.3; sys_platform != \'win32\'"]\n'
        f'[project.optional-dependencies]\nspark = ["pyspark>=4.0"]\n{extras}\n'
    )
    assert environments.lowest_versions(pyproject) == [
        "anyio==4.5",
        "lz4==4.3; sys_platform != 'win32'",
        *(f"{name}-package==2.1" for name in environments.EXTRAS),
    ]
    assert all("==" in each for each in environments.lowest_versions())


def test_variants_run_files_that_exist_in_environments_that_are_made() -> None:
    made = environments.environments()
    assert {each.environment for each in environments.VARIANTS} == made.keys()
    paths = [path for each in environments.VARIANTS for path in each.tests]
    assert [path for path in paths if not (ROOT / path).exists()] == []
    assert len({each.name for each in environments.VARIANTS}) == len(environments.VARIANTS)


@pytest.mark.parametrize(
    ("minors", "chosen"), [([11, 12, 13], 12), ([11], 11), ([11, 13, 14], 13), ([14], 14)]
)
def test_takes_the_closest_version_of_python(minors: list[int], chosen: int) -> None:
    pythons = {f"3.{minor}": f"python3.{minor}" for minor in minors}
    wanted = Environment("any", [], 12)
    assert environments.interpreter(wanted, pythons) == f"python3.{chosen}"


def test_environment_is_made_again_only_if_its_packages_change(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    calls: list[str] = []
    monkeypatch.setattr(environments, "ROOT", tmp_path)

    def note(*command: object) -> None:
        calls.append(str(command[2]))

    monkeypatch.setattr(environments, "call", note)
    (tmp_path / ".venv-env-any").mkdir()
    for packages, count in ((["a==1"], 2), (["a==1"], 2), (["a==2"], 4)):
        assert environments.make(Environment("any", packages, 11), "python", Future())
        assert len(calls) == count, packages


@pytest.mark.parametrize(
    ("kernel", "variables"),
    [("c", {"KAFKA_ASYNC_KERNEL": "c"}), ("python", {"CC": "false", "CXX": "false"})],
)
def test_wheel_is_built_with_the_kernel_of_its_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kernel: Any, variables: dict[str, str]
) -> None:
    monkeypatch.setattr(environments, "ROOT", tmp_path)
    built: list[dict[str, str]] = []

    def build(*command: object, **variables: str) -> None:
        if "wheel" in command:
            built.append(variables)
            dist = tmp_path / ".venv-env-any" / "dist"
            dist.mkdir(parents=True)
            (dist / "any.whl").touch()

    monkeypatch.setattr(environments, "call", build)
    for name in ("tests", "tools", ".venv-env-any/path with spaces/lib"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "pyproject.toml").touch()
    environment = Environment("any", [], 11, wheel=kernel)
    environments.install_wheel(environment, tmp_path / "any.tar.gz")
    assert built == [variables]
    assert environment.variables["PATH"] == str(environment.folder / "bin")


def test_environment_that_cannot_be_made_is_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*command: str) -> None:
        raise CalledProcessError(1, command, "no such", " package")

    monkeypatch.setattr(environments, "ROOT", tmp_path)
    monkeypatch.setattr(environments, "call", fail)
    assert not environments.make(Environment("any", [], 11), "python", Future())
    assert "no such package" in capsys.readouterr().out
