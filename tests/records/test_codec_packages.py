"""Tests of importing codec packages on first use, by several threads at a time."""

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
    """Loads a replacement of cramjam, and pauses while its module is incomplete."""

    def __init__(self) -> None:
        self.started, self.may_continue = threading.Event(), threading.Event()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return importlib.util.spec_from_loader(NAME, self) if fullname == NAME else None

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        self.started.set()
        assert self.may_continue.wait(10)
        module.__dict__["snappy"] = SimpleNamespace(compress_raw=bytes)


def test_waits_for_package_imported_by_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    importlib.import_module(NAME)  # monkeypatch restores it
    loader = SlowLoader()
    monkeypatch.setattr(sys, "meta_path", [loader, *sys.meta_path])
    monkeypatch.setattr(compression, "_LOADED", {})
    monkeypatch.delitem(sys.modules, NAME)
    done: list[bytes] = []

    def use() -> None:
        done.append(compress(Codec.snappy, b"value"))

    first, second = threading.Thread(target=use), threading.Thread(target=use)
    first.start()
    assert loader.started.wait(10)
    second.start()
    second.join(0.1)  # long enough to use the incomplete module, if it did not wait
    loader.may_continue.set()
    first.join()
    second.join()
    assert [data.endswith(b"value") for data in done] == [True, True]
