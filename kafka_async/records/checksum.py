"""Loads the function for CRC-32C, the checksum of record batches, when it is first needed. Pure."""

from __future__ import annotations

from functools import cache
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["load_crc32c"]


@cache
def load_crc32c() -> Callable[..., int]:
    """Return the CRC-32C function: of bytes, and optionally the checksum of preceding bytes.

    Only the extension module is loaded: its package imports argparse, email and more for a command,
    which takes up to 60 ms and 3 MB.
    """
    package = find_spec("crc32c")
    locations = None if package is None else package.submodule_search_locations
    spec = PathFinder.find_spec("crc32c._crc32c", locations)
    if spec is None or spec.loader is None:
        from crc32c import crc32c

        return crc32c
    extension = module_from_spec(spec)
    spec.loader.exec_module(extension)
    return extension.crc32c
