"""The wheel of an environment: it is what is in use, and needs neither checkout nor compiler."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import kafka_async
from kafka_async import kernel
from tools.environments import environments

COMPILERS = ("cc", "gcc", "g++", "c++", "clang", "cython")


def test_package_is_in_a_read_only_path_with_spaces_outside_the_checkout() -> None:
    package = Path(kafka_async.__file__).parent
    assert package.is_relative_to(sys.prefix)
    assert " " in str(package)
    assert not package.stat().st_mode & 0o222


def test_kernel_of_the_wheel_is_in_use_without_a_compiler() -> None:
    assert [name for name in COMPILERS if shutil.which(name)] == []
    assert "KAFKA_ASYNC_KERNEL" not in os.environ  # it would force one
    wheel = environments()[os.environ["KAFKA_ASYNC_ENVIRONMENT"]].wheel
    assert wheel == kernel.IMPLEMENTATION
    assert (kernel.compiled_codec() is not None) == (wheel == "c")
