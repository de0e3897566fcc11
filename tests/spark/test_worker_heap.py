"""Tests of the memory that Spark's Python processes keep from one task to the next."""

from __future__ import annotations

import gc
import itertools
import platform
import resource
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest

from kafka_async.spark import worker_heap
from tests.programs import output_of


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the calls that change the process; none is made."""
    made: list[str] = []

    def noting(name: str) -> Callable[[], None]:
        return lambda: made.append(name)

    monkeypatch.setattr(worker_heap, "_uses", itertools.count(1))
    monkeypatch.setattr(gc, "freeze", noting("freeze"))
    monkeypatch.setattr(worker_heap, "keep_freed_memory", noting("keep"))
    for name in worker_heap.TUNING_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    return made


def run_as(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process look like `python -m NAME`."""
    main = ModuleType("__main__")
    main.__spec__ = ModuleSpec(name, None)
    monkeypatch.setitem(sys.modules, "__main__", main)


def test_second_use_of_a_worker_freezes_its_heap_once(
    calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run_as("pyspark.daemon", monkeypatch)
    worker_heap.note_use()
    assert calls == []
    for _ in range(3):
        worker_heap.note_use()
    assert calls == ["freeze", "keep"]


@pytest.mark.parametrize("name", worker_heap.TUNING_VARIABLES)
def test_sizes_that_the_user_has_chosen_are_kept(
    name: str, calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run_as("pyspark.daemon", monkeypatch)
    monkeypatch.setenv(name, "1")
    worker_heap.note_use()
    worker_heap.note_use()
    assert calls == ["freeze"]


@pytest.mark.parametrize("name", ["pyspark.worker", "pytest.__main__"])
def test_other_processes_are_not_changed(
    name: str, calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run_as(name, monkeypatch)
    for _ in range(3):
        worker_heap.note_use()
    monkeypatch.setitem(sys.modules, "__main__", ModuleType("__main__"))  # a script has no spec
    monkeypatch.setattr(worker_heap, "_uses", itertools.count(1))
    for _ in range(3):
        worker_heap.note_use()
    assert calls == []


# Fills 32 MiB and frees them again and again, and counts the pages that the system provides.
PROGRAM = """
import resource
import sys
from kafka_async.spark.worker_heap import keep_freed_memory

if not keep_freed_memory():
    sys.exit("no glibc")

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    blocks = [bytearray(b"x") * 2**22 for _ in range(8)]
    del blocks
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

print(sum([faults() for _ in range(10)][1:]))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have no mallopt")
def test_freed_memory_is_used_again_without_page_faults() -> None:
    pages = 9 * 2**25 // resource.getpagesize()
    assert int(output_of("-c", PROGRAM)) < pages // 10
