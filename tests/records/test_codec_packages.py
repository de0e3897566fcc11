"""Codec packages are imported when they are first needed, by several threads at once perhaps."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.util
import sys
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING

from kafka_async.records import compression
from kafka_async.records.compression import Codec, compress

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

    import pytest

NAME = "cramjam"


class SlowLoader(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Loads something like cramjam, and stops half-way until it may go on."""

    def __init__(self) -> None:
        self.begun, self.may_go_on = threading.Event(), threading.Event()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return importlib.util.spec_from_loader(NAME, self) if fullname == NAME else None

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        self.begun.set()
        assert self.may_go_on.wait(10)
        module.__dict__["snappy"] = SimpleNamespace(compress_raw=bytes)


def test_a_package_that_another_thread_is_importing_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    importlib.import_module(NAME)  # to be put back in the end
    loader = SlowLoader()
    monkeypatch.setattr(sys, "meta_path", [loader, *sys.meta_path])
    monkeypatch.setattr(compression, "_LOADED", {})
    monkeypatch.delitem(sys.modules, NAME)
    done: list[bytes] = []

    def use() -> None:
        done.append(compress(Codec.snappy, b"value"))

    first, second = threading.Thread(target=use), threading.Thread(target=use)
    first.start()
    assert loader.begun.wait(10)
    second.start()
    second.join(0.1)  # long enough to take what is half made, if it did not wait
    loader.may_go_on.set()
    first.join()
    second.join()
    assert [data.endswith(b"value") for data in done] == [True, True]
