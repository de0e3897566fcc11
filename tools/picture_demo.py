"""Runs the demo and draws its final screen as docs/images/demo.svg, for the documentation.

    python tools/picture_demo.py [--no-spark]

The picture shows a real run on this machine.
"""

from __future__ import annotations

import argparse
import contextlib
import secrets
import sys
import tempfile
from pathlib import Path
from typing import Final

from kafka_async import run
from kafka_async.cli import terminal
from kafka_async.cli.connection_options import ConnectionOptions
from kafka_async.cli.demo.report import Report
from kafka_async.cli.demo.result import DemoOptions, Result
from kafka_async.cli.demo.run import Demo
from tools.generated_page import DOCS
from tools.svg_screen import recording_console, svg

PICTURE: Final = DOCS / "images" / "demo.svg"
WIDTH: Final = 84


def main() -> int:
    """Run the demo and write the picture; return the exit status."""
    parser = argparse.ArgumentParser(description="Draws the demo's end screen.")
    parser.add_argument("--no-spark", action="store_true", help="without the Spark part")
    with_spark = not parser.parse_args().no_spark
    out = Path("kafka-async-demo")
    plan = DemoOptions(
        [], ConnectionOptions({}, 30), out, False, with_spark, secrets.randbelow(2**32)
    )
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        result = run(demo(plan))
        files = result.written_files
        result.written_files = [path.resolve().relative_to(Path.cwd()) for path in files]
    if not result.comparison.equal or (with_spark and result.spark != "run"):
        print(f"no picture: equal {result.comparison.equal}, Spark {result.spark}", file=sys.stderr)
        return 1
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(draw(result, plan), "utf-8")
    return 0


async def demo(plan: DemoOptions) -> Result:
    """Run the demo on an embedded cluster, with its usual output on standard error."""
    with Report() as report:
        return await Demo(plan, report).run()


def draw(result: Result, plan: DemoOptions) -> str:
    """Return the final screen as SVG."""
    console = recording_console(WIDTH)
    terminal.out = console
    Report.print_summary(result, plan)
    return svg(console, title="make demo", name=PICTURE.stem)


if __name__ == "__main__":
    sys.exit(main())
