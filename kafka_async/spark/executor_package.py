"""Packs this package and its dependencies for Spark executors on which it is not installed.

A `.tar.gz` file contains the installed files, with the compiled kernel, for executors with the same
Python version and platform. A `.zip` file contains only Python code, which runs anywhere and can be
imported directly from the file; it leaves out dependencies with compiled code.
"""

from __future__ import annotations

import re
import tarfile
import zipfile
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kafka_async.errors import InvalidConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator

DISTRIBUTION: Final = "kafka-async"
COMPILED: Final = (".so", ".pyd", ".dll", ".dylib")
ARCHIVE: Final = ".tar.gz"
ZIP: Final = ".zip"
_KEPT: Final = (".py", *COMPILED)
_REQUIREMENT: Final = re.compile(r"[A-Za-z0-9._-]+")


@dataclass(frozen=True)
class Package:
    """Names of the distributions that were packed and left out."""

    packed: tuple[str, ...]
    left_out: tuple[str, ...]


def write_package(file: Path) -> Package:
    """Write a package for `spark.archives` (`.tar.gz`) or `spark.submit.pyFiles` (`.zip`).

    Raises:
        InvalidConfigurationError: The file has another suffix.
    """
    archive = file.name.endswith(ARCHIVE)
    if not archive and file.suffix != ZIP:
        raise InvalidConfigurationError(
            f"{file}: name a file {ARCHIVE}, for spark.archives, or {ZIP}, for --py-files"
        )
    files = dict(_own_files(archive))
    packed, left_out = [DISTRIBUTION], list[str]()
    for each in _dependencies():
        its_files = {name: path for name, path in _files(each) if path.suffix in _KEPT}
        if archive or not any(path.suffix in COMPILED for path in its_files.values()):
            files |= its_files
            packed.append(each.name)
        else:
            left_out.append(each.name)
    if archive:
        with tarfile.open(file, "w:gz", compresslevel=6) as tar:
            for name, path in sorted(files.items()):
                tar.add(path, name)
    else:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as zipped:
            for name, path in sorted(files.items()):
                zipped.write(path, name)
    return Package(tuple(packed), tuple(sorted(left_out)))


def _own_files(compiled: bool) -> Iterator[tuple[str, Path]]:
    """Yield the files of this package, even if it is installed in editable mode."""
    directory = Path(__file__).parents[1]
    for path in directory.rglob("*"):
        if path.suffix == ".py" or (compiled and path.suffix in COMPILED):
            yield str(path.relative_to(directory.parent)), path
    finder = find_spec("pyspark_kafka_async")
    if finder is not None and finder.origin is not None:
        yield "pyspark_kafka_async.py", Path(finder.origin)


def _dependencies() -> list[Distribution]:
    """Return the distributions that this one requires, directly and indirectly."""
    found: dict[str, Distribution] = {}
    names = [DISTRIBUTION]
    while names:
        name = names.pop()
        try:
            each = distribution(name)
        except PackageNotFoundError:  # a requirement for other platforms or versions
            continue
        for requirement in each.requires or ():
            required = _REQUIREMENT.match(requirement)
            if required is not None and "extra ==" not in requirement:
                key = required[0].lower().replace("_", "-")
                if key not in found:
                    names.append(key)
        if name != DISTRIBUTION:
            found[name] = each
    return [found[name] for name in sorted(found)]


def _files(each: Distribution) -> Iterator[tuple[str, Path]]:
    """Yield the files of a distribution within its site-packages directory."""
    for file in each.files or ():
        if ".." not in file.parts:
            yield str(file), Path(str(each.locate_file(file)))
