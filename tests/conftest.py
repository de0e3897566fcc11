"""Event loop and seed of all tests, and checks for tasks and threads that a test leaves behind."""

from __future__ import annotations

import asyncio
import functools
import gc
import importlib.util
import os
import random
import signal
import sys
import threading
from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Generator,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, NoReturn

import pytest
import pytest_asyncio
from blockbuster import BlockBuster
from hypothesis import HealthCheck, settings

from kafka_async.testing.backends.apache import JAVA_OPTIONS
from kafka_async.testing.backends.base import BackendUnavailableError, ClusterOptions
from kafka_async.testing.backends.jvm import find_java
from kafka_async.testing.clock import VirtualClockEventLoop
from kafka_async.testing.environment import in_ci
from tests.request_checks import REFUSED
from tools.run_tests import ONE_KERNEL

pytest_plugins = ["kafka_async_pytest"]

ROOT = Path(__file__).parent
INTEGRATION = ROOT / "integration"
FOREIGN = ("contract", "foreign_clients", "kafka_tools", "kerberos")
"""Beginnings of the names of integration tests with other projects' clients, tools and servers, or
with raw requests."""
SECURITY = {
    "acl",
    "kerberos",
    "oidc",
    "permissions",
    "sasl",
    "secrets",
    "secure",
    "security",
    "tls",
}
"""Words in the names of files with tests of security."""
MESSAGES_ONLY = {"", "admin", "app", "client", "contract", "embedded", "group", "lifecycle"}
"""Directories (the empty one is tests) of code that uses the kernel for protocol messages only.

tests/protocol compares the messages of both kernels. So these tests run on one, except those that
run on the event loop in use, which are for both loops.
"""
MAIN_BACKENDS = {"embedded", "apache"}
"""Backends of `make test`; the older brokers of `make test-matrix` are others."""
CLUSTERS = ("kafka_cluster", "secure_cluster", "moving_cluster", "two_clusters")
"""Fixtures with a backend as their parameter."""
SEED = int(os.environ.get("KAFKA_ASYNC_TEST_SEED") or random.SystemRandom().randrange(2**32))


def new_uvloop() -> asyncio.AbstractEventLoop:
    import uvloop

    return uvloop.new_event_loop()


def new_eager_loop() -> asyncio.AbstractEventLoop:
    """Return an event loop whose tasks begin when they are created; Python 3.12 and newer."""
    loop = asyncio.SelectorEventLoop()
    loop.set_task_factory(getattr(asyncio, "eager_task_factory"))  # noqa: B009
    return loop


LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.SelectorEventLoop,
    "uvloop": new_uvloop,
    "eager": new_eager_loop,
}
LOOP = os.environ.get("KAFKA_ASYNC_TEST_LOOP") or "asyncio"


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    if item.get_closest_marker("virtual_clock"):
        return {"virtual": VirtualClockEventLoop}
    return {LOOP: LOOPS[LOOP]}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark tests by directory and file, and those that do not depend on the kernel in use.

    Tests marked `one_backend` are left out on the other backends.
    """
    backends = str(config.getoption("--kafka-backend")).split(",")
    left_out = [item for item in items if runs_elsewhere(item, backends)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in {*left_out}]
    for item in items:
        for mark in marks_of(item.path):
            item.add_marker(mark)
        if "kernel" in getattr(item, "fixturenames", ()) or uses_messages_only(item):
            item.add_marker("one_kernel")
        if (mark := item.get_closest_marker("mainly_on")) and is_left_to_slow(
            mark.args[0], backends_of(item)
        ):
            item.add_marker("slow")


def backends_of(item: pytest.Item) -> Collection[str]:
    """Return the backend of a test; all chosen ones if it has no cluster."""
    parameters: Mapping[str, str] = getattr(getattr(item, "callspec", None), "params", {})
    own = [parameters[name] for name in CLUSTERS if name in parameters]
    return own or str(item.config.getoption("--kafka-backend")).split(",")


def is_left_to_slow(main: str, backends: Collection[str]) -> bool:
    """Return True if `make test` runs a test on its main backend, which is not one of these.

    Older brokers, which are none of `make test`, run it too.
    """
    assert main in MAIN_BACKENDS, main
    return main not in backends and not MAIN_BACKENDS.isdisjoint(backends)


def runs_elsewhere(item: pytest.Item, backends: Sequence[str]) -> bool:
    """Return True if a test is marked for another one of the backends than its own."""
    mark = item.get_closest_marker("one_backend")
    call = getattr(item, "callspec", None)
    if mark is None or call is None or mark.args[0] not in backends:
        return False
    return any(call.params.get(name, mark.args[0]) != mark.args[0] for name in CLUSTERS)


def uses_messages_only(item: pytest.Item) -> bool:
    """Return True if a test depends neither on the kernel nor on the event loop in use."""
    on_loop = item.get_closest_marker("asyncio") and not item.get_closest_marker("virtual_clock")
    return directory_of(item.path) in MESSAGES_ONLY and not on_loop


@functools.cache
def directory_of(path: Path) -> str:
    """Return the name of the directory below tests with a file; empty for a file elsewhere."""
    *directories, _ = path.relative_to(ROOT).parts if path.is_relative_to(ROOT) else ("",)
    return directories[0] if directories else ""


@functools.cache
def marks_of(path: Path) -> list[str]:
    """Return the marks of all tests of a file."""
    directory = directory_of(path)
    marks = {
        "one_kernel": directory in ONE_KERNEL,
        "integration": directory == INTEGRATION.name,
        "foreign": directory == "contract"
        or (directory == INTEGRATION.name and path.stem.removeprefix("test_").startswith(FOREIGN)),
        "security": not SECURITY.isdisjoint(path.stem.split("_")),
    }
    return [mark for mark, given in marks.items() if given]


def pytest_collection_finish() -> None:
    """Exempt what exists before the first test from garbage collection.

    It is half a million objects, which every full collection of a test would visit.
    """
    exempt_from_collection()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Exempt what the tests of a file have left, such as their reports, too."""
    if nextitem is not None and nextitem.path != item.path:
        exempt_from_collection()


def exempt_from_collection() -> None:
    gc.collect()
    gc.freeze()


class StrictSniffio:
    """Stands in for sniffio, without which anyio permits more: it finds a running event loop too.

    So anyio refuses to make objects in callbacks of the event loop in every test, as it does where
    sniffio is installed.
    """

    AsyncLibraryNotFoundError = LookupError
    current_async_library_cvar: ContextVar[str | None] = ContextVar("library", default=None)

    @classmethod
    def current_async_library(cls) -> str:
        """Return the library that anyio has set, or asyncio in a task."""
        name = cls.current_async_library_cvar.get()
        if name is not None:
            return name
        try:
            task = asyncio.current_task()
        except RuntimeError as error:
            raise cls.AsyncLibraryNotFoundError from error
        if task is None:
            raise cls.AsyncLibraryNotFoundError
        return "asyncio"


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Give Hypothesis the run's seed, unless the command line has one, and no time limits.

    A shell makes its background processes and their children ignore Ctrl-C. The commands that tests
    interrupt must not inherit that. Drivers of Spark start with half the CPU time if their JVMs
    optimize little.
    """
    for name in ("SPARK_LAUNCHER_OPTS", "SPARK_SUBMIT_OPTS"):
        os.environ.setdefault(name, " ".join(JAVA_OPTIONS))
    pytest.MonkeyPatch().setattr("anyio._core._eventloop.sniffio", StrictSniffio)
    settings.register_profile(
        "untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
    settings.load_profile("untimed")
    if config.getoption("hypothesis_seed", None) is None:
        config.option.hypothesis_seed = str(SEED)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_report_header(config: pytest.Config) -> str:
    hash_seed = os.environ.get("PYTHONHASHSEED", "random")
    return f"kafka_async: kernel {kernel()}, loop {LOOP}, seed {SEED}, hash seed {hash_seed}"


def kernel() -> str:
    try:
        from kafka_async.kernel import IMPLEMENTATION
    except ModuleNotFoundError:
        return os.environ.get("KAFKA_ASYNC_KERNEL", "none")
    return IMPLEMENTATION


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the command that repeats each failure with the same random numbers."""
    failed = [*terminalreporter.getreports("failed"), *terminalreporter.getreports("error")]
    names = list(dict.fromkeys(report.nodeid for report in failed))[:10]
    if not names:
        return
    given = [f"{name}={os.environ[name]}" for name in REPLAYED if name in os.environ]
    variables = " ".join([f"KAFKA_ASYNC_TEST_SEED={SEED}", *given])
    terminalreporter.section("to replay")
    for name in names:
        terminalreporter.write_line(f"{variables} {sys.executable} -m pytest '{name}'")


REPLAYED = ("PYTHONHASHSEED", "KAFKA_ASYNC_KERNEL", "KAFKA_ASYNC_TEST_LOOP")


def is_unit(request: pytest.FixtureRequest) -> bool:
    return directory_of(request.path) not in {INTEGRATION.name, "environments"}


@pytest.fixture(scope="session")
def kafka_cluster_options() -> ClusterOptions:
    """Start three brokers, so that leaders can move and the quorum survives the loss of one.

    Each is in a rack of its id, which only consumers and members with a rack notice.
    Tests write records of any age, which the first retention check would delete 30 s after a start.
    The delay also keeps the files of deleted topics.
    """
    return {
        "brokers": 3,
        "racks": ["rack-1", "rack-2", "rack-3"],
        "properties": {"log.initial.task.delay.ms": "86400000"},
    }


CannotRun = Callable[[str, object], NoReturn]


@pytest.fixture(scope="session")
def cannot_run(record_testsuite_property: Callable[[str, object], None]) -> CannotRun:
    """Return a function that skips a test which lacks something, or fails it if CI=true."""

    def report(what: str, missing: object) -> NoReturn:
        record_testsuite_property("not_run", f"{what} ({missing})")
        (pytest.fail if in_ci() else pytest.skip)(f"not run: {what}: {missing}")

    return report


@pytest.fixture(scope="session")
def spark_installation(cannot_run: CannotRun) -> None:
    """Skip what needs Spark where there is none, or fail it if CI=true."""
    try:
        find_java()
    except BackendUnavailableError as error:
        cannot_run("spark", error)
    if not importlib.util.find_spec("pyspark"):
        cannot_run("spark", "make spark")


@pytest.fixture(autouse=True)
def spark_is_available(request: pytest.FixtureRequest) -> None:
    """Check the installation for every test that is marked as one of Spark."""
    if request.node.get_closest_marker("spark") is not None:
        request.getfixturevalue("spark_installation")


@pytest.fixture(autouse=True)
def seeded() -> int:
    """Start every test with the same random numbers, whichever test ran before it."""
    random.seed(SEED)
    return SEED


@pytest.fixture(autouse=True)
def requests_a_broker_accepts() -> Iterator[None]:
    """Fail a test whose test doubles received a request that every broker refuses."""
    REFUSED.clear()
    yield
    assert REFUSED == []


@pytest.fixture(autouse=True)
def no_threads_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a unit test that does not end the threads it started."""
    before = set(threading.enumerate())
    yield
    if not is_unit(request):
        return
    for thread in set(threading.enumerate()) - before:
        thread.join(timeout=2)
        assert not thread.is_alive(), f"the test left the thread {thread.name!r} running"


@functools.cache
def block_buster() -> BlockBuster:
    """Return the detector of calls that block an event loop; making it takes a millisecond."""
    return BlockBuster("kafka_async")


@contextmanager
def blocking_detected() -> Generator[None]:
    block_buster().activate()
    try:
        yield
    finally:
        block_buster().deactivate()


@pytest.fixture(autouse=True)
def watched(request: pytest.FixtureRequest, no_threads_left: None) -> Iterator[None]:
    """Fail an asynchronous test that leaves tasks behind, and a unit test that blocks its loop."""
    if request.node.get_closest_marker("asyncio") is None:
        yield
        return
    request.getfixturevalue("no_tasks_left")
    if not is_unit(request) or request.node.get_closest_marker("may_block"):
        yield
        return
    with blocking_detected():
        yield


@pytest_asyncio.fixture
async def no_tasks_left() -> AsyncIterator[None]:
    yield
    for _ in range(20):  # Cancelled tasks may need some event loop iterations to end.
        if not other_tasks():
            return
        await asyncio.sleep(0)
    left = [f"{task.get_name()}: {task.get_coro()}" for task in other_tasks()]
    pytest.fail(f"the test left tasks running: {left}")


def other_tasks() -> set[asyncio.Task[Any]]:
    return asyncio.all_tasks() - {asyncio.current_task()}  # pyright: ignore[reportReturnType]
