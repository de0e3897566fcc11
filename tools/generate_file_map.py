"""Write docs/file-map.md: every file of the project with the first sentence of its docstring.

    python tools/generate_file_map.py [--check]

The packages stand in the order of the layers in pyproject.toml, from the top down.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections import defaultdict
from pathlib import Path, PurePosixPath
from typing import Final

from tools import generated_page
from tools.generated_page import ROOT

PACKAGE: Final = "kafka_async"
CODE: Final = {".py", ".pyx", ".pxi"}
MESSAGES: Final = "kafka_async/protocol/messages"
BESIDE_THE_PACKAGE: Final = ("fuzz", "benchmarks", "tools", "examples")
TESTS: Final = {
    "tests": "Of the modules directly in `kafka_async/`, and of the layout (`test_shape.py`).",
    "tests/benchmarks": "Of `benchmarks/`: cases, targets, verdicts and tables.",
    "tests/brokers": "Core scenarios on brokers with lower versions and with defective responses.",
    "tests/cli": "Of the command `kafka-async`.",
    "tests/conformance": "Messages compared with Kafka's own Java classes.",
    "tests/contract": "Raw requests whose responses must equal those of Apache Kafka.",
    "tests/contract/cases": "The raw requests, by subject.",
    "tests/docs": "Runs the examples of the pages, and compares generated pages with the code.",
    "tests/environments": "Programs in web servers, notebooks, frameworks and forked processes.",
    "tests/fairness": "Counts the work per event loop iteration.",
    "tests/fuzz": "Of `fuzz/`, and short fuzzing runs.",
    "tests/hostile": "Malformed and malicious responses.",
    "tests/integration": "Whole clients on the embedded cluster and on Apache Kafka.",
    "tests/kernel": "Of `kafka_async/kernel/`, on both kernels.",
    "tests/lifecycle": "Every method of every client in every state.",
    "tests/reliability": "Long runs with faults: `make reliability-spark`, `-restarts`.",
    "tests/reliability/transactions": "Transactional copies under kills (`-transactions`).",
    "tests/testing": "Of `kafka_async/testing/` and the pytest plugin.",
    "tests/tools": "Of `tools/`.",
}
"""Descriptions of the test directories that test more, or something else, than their package."""

OPENING: Final = """\
# File map

Every file, with the first sentence of its docstring. [Design](design.md) explains how they work
together. Packages stand in the order of the layers: imports point down this page only.
"""


def page() -> str:
    """Return the text of the page."""
    folders = tracked_code()
    sections = [
        generated_page.notice(Path(__file__).name, "the modules' docstrings"),
        OPENING.rstrip(),
    ]
    for name in [f"{PACKAGE}/{room}" for room in rooms_by_layer(folders)]:
        sections += [section(folder, folders[folder]) for folder in below(name, folders)]
    sections.append(section(PACKAGE, folders[PACKAGE]))
    outside = [path for path in folders["."] if path.name != "setup.py"]
    sections.append(section("Modules outside the package", outside))
    for name in BESIDE_THE_PACKAGE:
        sections += [section(folder, folders[folder]) for folder in below(name, folders)]
    sections.append(tests(folders))
    return "\n\n".join(sections) + "\n"


def tracked_code() -> dict[str, list[PurePosixPath]]:
    """Return the source files under version control by folder, without the generated messages."""
    folders: dict[str, list[PurePosixPath]] = defaultdict(list)
    for path in map(PurePosixPath, generated_page.tracked_files()):
        folder = str(path.parent)
        if path.suffix in CODE and not folder.startswith(MESSAGES) and (ROOT / path).exists():
            folders[folder].append(path)
    return folders


def rooms_by_layer(folders: dict[str, list[PurePosixPath]]) -> list[str]:
    """Return the packages of kafka_async, the highest layer first."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    [layers] = [contract["layers"] for contract in contracts if contract["id"] == "layers"]
    names = [name for layer in layers for name in re.findall(r"\w+", layer)]
    return [name for name in names if f"{PACKAGE}/{name}" in folders]


def below(name: str, folders: dict[str, list[PurePosixPath]]) -> list[str]:
    """Return a folder and the folders in it."""
    return [folder for folder in sorted(folders) if folder == name or folder.startswith(f"{name}/")]


def section(title: str, paths: list[PurePosixPath]) -> str:
    """Return the table of a folder's files, headed by the sentence of its `__init__.py`."""
    described = {path.name: sentence(path) for path in paths}
    package = described.pop("__init__.py", "")
    rows = [(f"`{name}`", text) for name, text in sorted(described.items())]
    heading = f"## {title}/" if "/" in title or title in BESIDE_THE_PACKAGE else f"## {title}"
    if title == "kafka_async/protocol":
        rows.append(
            ("`messages/`", "One module for each message, generated from Kafka's definitions.")
        )
    parts = [heading, package] if package else [heading]
    return "\n\n".join([*parts, generated_page.table(["File", "Content"], rows)] if rows else parts)


def tests(folders: dict[str, list[PurePosixPath]]) -> str:
    """Return the table of the test directories, and their modules that are not tests."""
    found = sorted(folder for folder in folders if folder.split("/")[0] == "tests")
    if gone := TESTS.keys() - folders.keys():
        sys.exit(f"TESTS in {Path(__file__).name} describes {', '.join(sorted(gone))}")
    rows = [(f"`{folder}/`", description(folder)) for folder in found]
    helpers = [
        (f"`{path}`", sentence(path))
        for folder in found
        for path in folders[folder]
        if not path.name.startswith("test_") and path.name != "__init__.py"
    ]
    return "\n\n".join(
        [
            "## Tests",
            generated_page.table(["Directory", "Tests"], rows),
            "What several tests share:",
            generated_page.table(["File", "Content"], helpers),
        ]
    )


def description(folder: str) -> str:
    """Return the description of a test directory."""
    package = folder.replace("tests", PACKAGE, 1)
    if folder not in TESTS and not (ROOT / package).is_dir():
        sys.exit(f"TESTS in {Path(__file__).name} has to describe {folder}")
    return TESTS.get(folder, f"Of `{package}/`.")


def sentence(path: PurePosixPath) -> str:
    """Return the first paragraph of a file's docstring, on one line."""
    source = (ROOT / path).read_text("utf-8")
    if path.suffix != ".py":
        docstring = re.search(r'"""(.*?)"""', source, re.DOTALL)
        text = "" if docstring is None else docstring[1]
    else:
        text = ast.get_docstring(ast.parse(source)) or ""
    return " ".join(text.partition("\n\n")[0].split())


if __name__ == "__main__":
    sys.exit(generated_page.main("file-map.md", page))
