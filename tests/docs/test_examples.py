"""Every Python example of README.md and docs/ runs, against an embedded cluster.

The blocks of a page run in order on one cluster, as a reader would run them. Blocks that do not run
are marked as `text` or `sh`, so that none is left out by mistake.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import kafka_async
from kafka_async.embedded import run_in_thread
from tests.docs.markdown_blocks import NOT_RUN, PAGES, ROOT, Block, blocks_of
from tests.rows import row

DEADLINE = 60.0
"""Seconds for one example."""
SPARK_DEADLINE = 300.0
"""Seconds for the examples of a page with Spark, which starts a JVM and Python workers."""
RUN_FILES = """
import runpy, sys
for file in sys.argv[1:]:
    runpy.run_path(file, run_name="__main__")
    print(end="\\0")
"""

WITH_SECURE_CLUSTER = {"security.md"}
"""Pages whose examples need secure listeners: see test_security_recipes.py."""

COLUMNS = 96
"""Characters of a code line that fit beside both sidebars of the site."""

OUTPUT = "Output"
"""Title of a block that shows what the example before it prints."""

SCOPE = "asyncio_default_fixture_loop_scope=function"  # pytest-asyncio warns without it.
PYTEST = ["-m", "pytest", "-q", "-p", "no:anyio", "-o", SCOPE]

TEST_OF_CONFTEST = """
import asyncio
import pytest


@pytest.mark.asyncio
async def test_loop_runs():
    await asyncio.sleep(0)


def test_cluster_starts(kafka_cluster):
    assert kafka_cluster.bootstrap_servers
"""


def python_blocks(page: Path) -> list[Block]:
    return [block for block in blocks_of(page) if block.language == "python"]


def runs_spark(block: Block) -> bool:
    """Return True if an example starts Spark, which logs to standard error."""
    return "pyspark" in block.body or "import Pipeline" in block.body


def page_parameters() -> list[object]:
    """Return README.md for every run, and the other pages for the slow suite."""
    parameters: list[object] = []
    for page in PAGES:
        blocks = [] if page.name in WITH_SECURE_CLUSTER else python_blocks(page)
        marks = [] if page.name == "README.md" else [pytest.mark.slow]
        if any(map(runs_spark, blocks)):
            marks.append(pytest.mark.spark)
        if blocks:
            parameters.append(pytest.param(page, id=page.name, marks=marks))
    return parameters


def test_every_block_has_a_known_language() -> None:
    for page in PAGES:
        with row(page):
            unknown = [
                block.place
                for block in blocks_of(page)
                if block.language != "python" and block.language not in NOT_RUN
            ]
            assert not unknown, f"blocks that are neither python nor one of {sorted(NOT_RUN)}"
            assert page.read_text("utf-8").count("\n```") == 2 * len(list(blocks_of(page)))


def test_code_fits_the_width_of_the_site() -> None:
    """Checks them, since longer lines are cut off on a wide screen; drawings scroll."""
    for page in PAGES:
        with row(page):
            for block in blocks_of(page):
                if block.language != "text":
                    assert max(map(len, block.body.splitlines()), default=0) <= COLUMNS, block.place


def imports_from_modules(source: str) -> set[str]:
    """Return names of `kafka_async.__all__` that a program imports from a module of the package."""
    return {
        name.name
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kafka_async.")
        for name in node.names
        if name.name in kafka_async.__all__
    }


def test_example_imports_public_names_from_the_package() -> None:
    for page in PAGES:
        with row(page):
            for block in python_blocks(page):
                assert imports_from_modules(block.body) == set(), block.place


def test_program_imports_public_names_from_the_package() -> None:
    for program in sorted((ROOT / "examples").rglob("*.py")):
        with row(program):
            assert imports_from_modules(program.read_text("utf-8")) == set()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", page_parameters())
def test_examples_of_a_page_run(page: Path, tmp_path: Path) -> None:
    with run_in_thread(brokers=3) as cluster:
        output = ""
        with_spark = [*filter(runs_spark, python_blocks(page))]
        outputs = run_spark(with_spark, cluster.bootstrap_servers, tmp_path)
        for block in blocks_of(page):
            if block in with_spark:
                output = outputs.pop(0)
            elif block.language == "python":
                output = run_block(block, cluster.bootstrap_servers, tmp_path)
            elif block.title == OUTPUT:
                assert output == block.body, block.place
        assert not cluster.failures


def run_block(block: Block, bootstrap: str, where: Path) -> str:
    """Run one example, which must end by itself and print no warning; return its output."""
    file = write_block(block, bootstrap, where)
    if block.kind == "conftest":
        file.with_name("test_conftest.py").write_text(TEST_OF_CONFTEST, "utf-8")
    arguments = [block.name] if block.kind == "script" else PYTEST
    result = run_python(arguments, file.parent, DEADLINE, block.place)
    assert not result.stderr, f"{block.place}\n{result.stdout}\n{result.stderr}"
    return result.stdout


def run_spark(blocks: list[Block], bootstrap: str, where: Path) -> list[str]:
    """Run the examples with Spark in one process, because each JVM takes many seconds to start.

    They share a folder too: paths of Spark are relative to that in which its JVM has started.
    """
    if not blocks:
        return []
    files = [str(write_block(block, bootstrap, where)) for block in blocks]
    place = f"one of {', '.join(block.place for block in blocks)}"
    result = run_python(["-c", RUN_FILES, *files], where, SPARK_DEADLINE, place)
    return result.stdout.split("\0")[:-1]


def write_block(block: Block, bootstrap: str, where: Path) -> Path:
    """Write an example to its file in a new folder; return the path."""
    file = where / f"line{block.line}" / block.name
    file.parent.mkdir()
    file.write_text(block.program(bootstrap), "utf-8")
    return file


def run_python(
    arguments: list[str], folder: Path, deadline: float, place: str
) -> subprocess.CompletedProcess[str]:
    """Run Python, which must succeed within a deadline in seconds."""
    try:
        result = subprocess.run(
            [sys.executable, "-W", "error", *arguments],
            cwd=folder,
            env=environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=deadline,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        pytest.fail(f"{place} does not end in {deadline:g} s; it printed {error.stdout!r}")
    assert result.returncode == 0, f"{place}\n{result.stdout}\n{result.stderr}"
    return result


def environment() -> dict[str, str]:
    """Return the environment in which examples import this checkout, not an installed one."""
    path = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    variables = {"PYTHONPATH": os.pathsep.join(path), "PYSPARK_PYTHON": sys.executable}
    return {**os.environ, **variables}


def test_runs_examples_with_the_package_of_this_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Puts another checkout first into the path."""
    other = tmp_path / "other"
    for name in ("kafka_async/__init__.py", "kafka_async_pytest.py"):
        (other / name).parent.mkdir(parents=True, exist_ok=True)
        (other / name).write_text("raise ImportError('another checkout')\n")
    monkeypatch.setenv("PYTHONPATH", str(other))
    body = f"import kafka_async\nassert kafka_async.__file__.startswith({str(ROOT)!r})\n"
    run_block(Block(PAGES[0], 1, "python", "", body), "nowhere:1", tmp_path)
    test = f"def test_it():\n    {body.replace(chr(10), chr(10) + '    ')}"
    run_block(Block(PAGES[0], 2, "python", "test_it.py", test), "nowhere:1", tmp_path)


def test_every_output_follows_an_example() -> None:
    for page in PAGES:
        with row(page):
            previous = ""
            for block in blocks_of(page):
                assert block.title != OUTPUT or previous == "python", block.place
                previous = block.language


def test_finds_a_failing_block(tmp_path: Path) -> None:
    script = Block(PAGES[0], 1, "python", "", "1 / 0\n")
    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        run_block(script, "nowhere:1", tmp_path)
    test = Block(PAGES[0], 2, "python", "test_it.py", "def test_it():\n    assert 0\n")
    with pytest.raises(AssertionError, match="1 failed"):
        run_block(test, "nowhere:1", tmp_path)


def test_every_example_of_the_embedded_page_that_prints_shows_its_output() -> None:
    (page,) = [page for page in PAGES if page.name == "embedded.md"]
    blocks = list(blocks_of(page))
    for block, following in zip(blocks, [*blocks[1:], blocks[0]], strict=True):
        if block.language == "python" and "print(" in block.body:
            assert following.title == OUTPUT, block.place
