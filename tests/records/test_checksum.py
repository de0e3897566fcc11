"""The checksum's function: where it comes from, and what comes with it."""

from __future__ import annotations

import struct
import subprocess
import sys
from typing import TYPE_CHECKING

import crc32c

from kafka_async.records import checksum as checksum_module
from kafka_async.records.batch import RecordBatch
from kafka_async.types import ProducerRecord

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


def test_the_checksum_is_loaded_without_what_its_package_has_for_a_command() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True
    )
    frame, loaded = done.stdout.splitlines()
    expected = RecordBatch.build([ProducerRecord("t", b"v")], timestamp=7).frame()
    assert bytes.fromhex(frame) == expected
    assert struct.unpack_from(">I", expected, 17) == (crc32c.crc32c(expected[21:]),)
    assert {"argparse", "email", "importlib.metadata", "crc32c"}.isdisjoint(loaded.split())


def test_the_checksum_is_its_packages_where_that_is_laid_out_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def nothing(*_: object) -> None:
        return None

    monkeypatch.setattr(checksum_module.PathFinder, "find_spec", nothing)
    assert checksum_module.checksum.__wrapped__() is crc32c.crc32c
