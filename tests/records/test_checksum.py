"""Tests of loading the checksum function."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import crc32c

from kafka_async.records import checksum as checksum_module
from kafka_async.records.batch import RecordBatch
from kafka_async.types import ProducerRecord
from tests.programs import output_of

if TYPE_CHECKING:
    import pytest

FRAME = "RecordBatch.build([ProducerRecord('t', b'v')], timestamp=7).frame()"
SCRIPT = f"""
import sys
from kafka_async.records.batch import RecordBatch
from kafka_async.types import ProducerRecord
print({FRAME}.hex())
print(*sys.modules)
"""


def test_loads_checksum_without_the_packages_command() -> None:
    frame, loaded = output_of("-c", SCRIPT).splitlines()
    expected = RecordBatch.build([ProducerRecord("t", b"v")], timestamp=7).frame()
    assert bytes.fromhex(frame) == expected
    assert struct.unpack_from(">I", expected, 17) == (crc32c.crc32c(expected[21:]),)
    assert {"argparse", "email", "importlib.metadata", "crc32c"}.isdisjoint(loaded.split())


def test_falls_back_to_the_package_without_extension_module(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def nothing(*_: object) -> None:
        return None

    monkeypatch.setattr(checksum_module.PathFinder, "find_spec", nothing)
    assert checksum_module.load_crc32c.__wrapped__() is crc32c.crc32c
