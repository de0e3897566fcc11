"""CRC-32C, the checksum of record batches: the function, loaded when it is first needed. Pure."""

from __future__ import annotations

from functools import cache
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["checksum"]


@cache
def checksum() -> Callable[..., int]:
    """The function: of bytes, and of the checksum of those before them.

    It comes without the package around it, whose command needs argparse, email and more: that
    takes up to 60 ms and 3 MB.
    """
    package = find_spec("crc32c")
    places = None if package is None else package.submodule_search_locations
    found = PathFinder.find_spec("crc32c._crc32c", places)
    if found is None or found.loader is None:
        from crc32c import crc32c

        return crc32c
    extension = module_from_spec(found)
    found.loader.exec_module(extension)
    return extension.crc32c
