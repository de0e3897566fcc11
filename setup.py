"""Builds the compiled kernel where that is possible; everything else is in pyproject.toml.

Without Cython or a C compiler the install goes on with the kernel in plain Python and says so in
one line. KAFKA_ASYNC_KERNEL=c makes that an error (for wheels), KAFKA_ASYNC_KERNEL=python leaves
the compiled kernel out.
"""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

KERNEL = Path("kafka_async", "kernel")
MODULES = ("_ckernel", "_ccodec")
WANTED = os.environ.get("KAFKA_ASYNC_KERNEL", "")


class BuildKernel(build_ext):
    """Compile the kernel, or say in one line why not."""

    def build_extensions(self) -> None:
        try:
            super().build_extensions()
        except Exception as error:  # a missing compiler fails in many ways
            if WANTED == "c":
                raise
            self.extensions.clear()
            reason = textwrap.shorten(str(error) or type(error).__name__, 100, placeholder=" ...")
            sys.stderr.write(
                f"kafka-async: no compiled kernel, using the one in plain Python ({reason})\n"
            )


class BuildModules(build_py):
    """Build into an empty folder: a wheel would hold the modules of an older build too."""

    def run(self) -> None:
        if not self.editable_mode:
            shutil.rmtree(Path(self.build_lib) / "kafka_async", ignore_errors=True)
        super().run()


def kernel() -> list[Extension]:
    """Return the extensions to build: none for the kernel in plain Python."""
    if WANTED == "python":
        return []
    included = [str(path) for suffix in ("pxi", "h") for path in KERNEL.glob(f"*.{suffix}")]
    return [
        Extension(f"kafka_async.kernel.{name}", [str(KERNEL / f"{name}.pyx")], depends=included)
        for name in MODULES
    ]


setup(ext_modules=kernel(), cmdclass={"build_py": BuildModules, "build_ext": BuildKernel})
