"""Makes the environments of `make test-environments`, and names the tests that run in them.

    lowest      the lowest declared version of every dependency, also of the extras
    newest      newest versions, sniffio, trio, web frameworks, notebooks and green threads, and a
                wheel with the compiled kernel
    installed   a wheel that was built without a compiler, with the kernel in plain Python

The first runs the checkout. The others have a wheel built from the sdist, in a read-only path with
spaces; they run a copy of the tests, and no compiler is on their PATH. An environment is a folder
`.venv-env-NAME` beside its stamp, and is made again when its packages or the interpreter change.
The wheels are built each time.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from tools.generated_page import ROOT
from tools.pythons import find_pythons

CORE = [
    "tests/test_supervisor.py",
    "tests/test_awaited_callables.py",
    "tests/test_blocking.py",
    "tests/admin/test_admin.py",
    "tests/consumer/test_partition_streams.py",
    "tests/integration/test_fixture.py",
    "tests/producer/test_enqueue.py",
    "tests/producer/test_producer.py",
    "tests/records/test_compression.py",
]
"""Files of about 200 quick tests of all clients, run in each environment."""
PROGRAMS = "tests/environments"
"""Tests of programs: web servers, notebooks, frameworks, forks, green threads."""
INSTALLATION = f"{PROGRAMS}/test_installation.py"
"""Tests of an installed wheel, run in `PROGRAMS` too."""
TOOLS = [
    "blockbuster",
    "hypothesis",
    "pytest",
    "pytest-asyncio",
    "pytest-timeout",
    "pyarrow",
    "trustme",
]
"""Packages that the tests need."""
FRAMEWORKS = [
    *("sniffio", "trio", "uvloop", "typer", "rich", "pydantic", "httpx"),
    *("fastapi", "starlette", "uvicorn", "uvicorn-worker", "gunicorn", "apscheduler<4"),
    *("ipykernel", "gevent", "eventlet"),
]
EXTRAS = ("uvloop", "cli", "keyring", "pydantic", "oidc", "msk")
"""Extras whose lowest versions are tested: all but Spark, Kerberos and testing."""
NO_COMPILER = {"CC": "false", "CXX": "false"}
"""Variables with which a wheel is built as on a machine without a compiler."""
IGNORE_ASSERTIONS = ["-W", "ignore:assertions not in test modules:pytest.PytestConfigWarning"]
"""Options for Python's -O, with which pytest warns of assertions outside test modules."""


@dataclass(frozen=True)
class Environment:
    """An environment.

    Attributes:
        name: Part of its folder's name.
        packages: Packages that are installed.
        minor: The minor version of Python that it prefers.
        wheel: The kernel in the wheel that is installed; None: the checkout is tested.
    """

    name: str
    packages: Sequence[str]
    minor: int
    wheel: Literal["c", "python"] | None = None

    @property
    def folder(self) -> Path:
        """Folder of the environment."""
        return ROOT / f".venv-env-{self.name}" / ("path with spaces" if self.wheel else "venv")

    @property
    def checkout(self) -> Path:
        """Folder in which its tests run: a copy without the package if it is installed."""
        return self.folder.parent / "check out" if self.wheel else ROOT

    @property
    def python(self) -> Path:
        """Interpreter of the environment."""
        return self.folder / "bin" / "python"

    @property
    def variables(self) -> dict[str, str]:
        """Environment variables of its tests: a wheel needs neither the checkout nor a compiler."""
        return {"PATH": str(self.python.parent), "PYTHONPATH": ""} if self.wheel else {}


@dataclass(frozen=True)
class Variant:
    """A run of the core tests: where, and what differs from a usual run."""

    name: str
    environment: str
    flags: Sequence[str] = ()
    tests: Sequence[str] = tuple(CORE)
    options: Sequence[str] = ()
    loop: str = "asyncio"
    variables: Mapping[str, str] = field(default_factory=dict[str, str])


VARIANTS = [
    Variant("lowest", "lowest"),
    Variant("optimized", "lowest", ["-O"], options=[*IGNORE_ASSERTIONS], loop="uvloop"),
    Variant("sniffio-uvloop", "newest", loop="uvloop"),
    Variant("programs", "newest", tests=[PROGRAMS]),
    Variant("anyio-plugin", "newest", options=["-p", "anyio"]),
    Variant("dev-mode", "newest", flags=["-X", "dev", "-W", "error"]),
    Variant("asyncio-debug", "newest", variables={"PYTHONASYNCIODEBUG": "1"}),
    Variant("eager-tasks", "newest", loop="eager"),
    Variant("installed", "installed", tests=[*CORE, INSTALLATION]),
]


def lowest_versions(pyproject: Path = ROOT / "pyproject.toml") -> list[str]:
    """Return the declared dependencies, each pinned to its lower bound."""
    project = tomllib.loads(pyproject.read_text("utf-8"))["project"]
    declared = [*project["dependencies"]]
    declared += [each for name in EXTRAS for each in project["optional-dependencies"][name]]
    return [re.sub(r">=([\w.]+)", r"==\1", each) for each in declared]


def environments() -> dict[str, Environment]:
    """Return the environments by name."""
    return {
        each.name: each
        for each in (
            Environment("lowest", [*lowest_versions(), *TOOLS], 11),
            Environment("newest", [*dependencies(), *FRAMEWORKS, *TOOLS], 12, wheel="c"),
            Environment("installed", TOOLS, 13, wheel="python"),
        )
    }


def dependencies() -> list[str]:
    """Return the declared dependencies."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return [*project["dependencies"]]


def make_all() -> dict[str, Environment]:
    """Make all environments at the same time; return those that were made."""
    pythons = {f"3.{sys.version_info.minor}": sys.executable, **find_pythons()}
    made = list(environments().values())
    with ThreadPoolExecutor(len(made) + 1) as pool:
        sdist = pool.submit(build_sdist)
        chosen = [interpreter(each, pythons) for each in made]
        results = pool.map(make, made, chosen, [sdist] * len(made))
        return {each.name: each for each, done in zip(made, results, strict=True) if done}


def supports(environment: Environment, variant: Variant) -> bool:
    """Return False for eager tasks on Python 3.11, which has none."""
    command = [environment.python, "-c", "import asyncio; asyncio.eager_task_factory"]
    return (
        variant.loop != "eager"
        or not subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode
    )


def interpreter(environment: Environment, pythons: Mapping[str, str]) -> str:
    """Return the interpreter of the preferred version, or the closest one."""
    minors = {int(version.partition(".")[2]): path for version, path in pythons.items()}
    return minors[min(minors, key=lambda minor: (abs(minor - environment.minor), -minor))]


def make(environment: Environment, python: str, sdist: Future[Path]) -> bool:
    """Make an environment unless its stamp is current; return False if that fails.

    A wheel is built from `sdist`, and installed in any case.
    """
    folder = environment.folder
    stamp = folder.with_name("stamp")
    wanted = "\n".join([python, *environment.packages])
    current = stamp.is_file() and stamp.read_text("utf-8") == wanted
    try:
        if not current:
            print(f"making {folder.relative_to(ROOT)}", flush=True)
            make_writable(folder)
            call(python, "-m", "venv", "--clear", folder)
            pip(environment, *environment.packages)
            stamp.write_text(wanted, "utf-8")
        if environment.wheel:
            install_wheel(environment, sdist.result())
    except subprocess.CalledProcessError as error:
        print(f"{environment.name}: {error}\n{error.stdout}{error.stderr}", flush=True)
        return False
    return True


def build_sdist() -> Path:
    """Build the source distribution of the checkout; return its path."""
    dist = ROOT / ".venv-env-sdist"
    shutil.rmtree(dist, ignore_errors=True)
    call(sys.executable, "-m", "build", "--sdist", "--outdir", dist, ROOT)
    (sdist,) = dist.glob("*.tar.gz")
    return sdist


def install_wheel(environment: Environment, sdist: Path) -> None:
    """Install a wheel that is built from the sdist, and copy the tests."""
    make_writable(environment.folder)
    dist, checkout = environment.folder.parent / "dist", environment.checkout
    for folder in (dist, checkout):
        shutil.rmtree(folder, ignore_errors=True)
    build = (environment.python, "-m", "pip", "wheel", "-q", "--no-deps", "--no-cache-dir")
    kernel = {"KAFKA_ASYNC_KERNEL": "c"} if environment.wheel == "c" else NO_COMPILER
    call(*build, "--wheel-dir", dist, sdist, **kernel)
    (wheel,) = dist.glob("*.whl")
    pip(environment, "--force-reinstall", "--no-deps", wheel)
    pip(environment, f"{wheel}[cli,uvloop]")
    for name in ("tests", "tools"):
        shutil.copytree(ROOT / name, checkout / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", checkout)
    packages = environment.folder / "lib"
    subprocess.run(["chmod", "-R", "a-w", packages], check=True)


def make_writable(folder: Path) -> None:
    """Permit changes of a folder that was made read-only."""
    if folder.exists():
        subprocess.run(["chmod", "-R", "u+w", folder], check=True)


def pip(environment: Environment, *arguments: str | Path) -> None:
    """Install packages into an environment."""
    quiet = ("-q", "--disable-pip-version-check")
    call(environment.python, "-m", "pip", "install", *quiet, *arguments)


def call(*command: str | Path, **variables: str) -> None:
    """Run a command outside the checkout's environment; its output is shown if it fails."""
    inherited = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run(
        [*map(str, command)],
        env={**inherited, **variables},
        capture_output=True,
        text=True,
        check=True,
    )
