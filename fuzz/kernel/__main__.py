"""make fuzz-kernel: fuzz the compiled kernel, then replay the corpora for memory and for cost.

    python -m fuzz.kernel --seconds 600 --seed 7     every target, ten minutes in all
    python -m fuzz.kernel --targets batches --runs 10000000
    python -m fuzz.kernel --targets batches --replay FILE

The corpora stay in artifacts/fuzz/kernel, and the next run continues with them. The exit status is
1 if there is a finding, and 2 if this machine cannot build the instrumented kernel.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

from fuzz import runner
from fuzz.kernel.build import SOURCES, Build, build
from fuzz.kernel.toolchain import ToolchainError, require_clang
from fuzz.target import KERNEL_NAMES

FOLDER: Final = runner.FOLDER / "kernel"
SHARES: Final = {"sections": 3, "batches": 4, "writing": 2, "responses": 2, "values": 1}
"""Shares of the time; targets that read bytes from the network get most."""
MAX_LENGTH: Final = 4096
"""Maximum bytes of an input."""

_SANITIZED: Final = {
    # CPython leaks memory at exit, and its allocator would hide errors of the kernel.
    "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1:strict_string_checks=1",
    "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
    "PYTHONMALLOC": "malloc",
}


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    options = _parser().parse_args(arguments)
    started = time.monotonic()
    try:
        clang = require_clang()
        built = build(clang, options.directory / "build", options.sources)
    except ToolchainError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"built with {clang.version} in {time.monotonic() - started:.1f} s", flush=True)
    try:
        act = _replay_file if options.replay else _fuzz
        findings = act(built, options)
    except runner.FuzzerFailed as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{findings} findings" if findings else "no findings")
    return 1 if findings else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="fuzz.kernel", description=(__doc__ or "")[:95])
    parser.add_argument("--seconds", type=int, default=60, help="of fuzzing, for all targets")
    parser.add_argument("--runs", type=int, default=0, help="of each target, instead of seconds")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1, 1 << 31))
    parser.add_argument("--targets", nargs="+", choices=KERNEL_NAMES, default=list(KERNEL_NAMES))
    parser.add_argument("--directory", type=Path, default=FOLDER, help="of builds and corpora")
    parser.add_argument("--sources", type=Path, default=SOURCES, help="of another kernel")
    parser.add_argument("--replay", type=Path, help="one input, or a directory of them")
    parser.add_argument("--functions", action="store_true", help="list what was not reached")
    return parser


def _fuzz(built: Build, options: argparse.Namespace) -> int:
    """Fuzz every target, then replay its corpus; return the number of findings."""
    folder = options.directory.resolve()
    engine = runner.Engine(
        ("fuzz.kernel.worker", str(built.engine)),
        {"FUZZ_KERNEL": str(built.coverage)},
        replay="fuzz.kernel --targets {} --replay",
        max_length=MAX_LENGTH,
    )
    print(f"seed {options.seed}", flush=True)
    shares = sum(SHARES[target] for target in options.targets)
    findings = 0
    for target in options.targets:
        seconds = 0 if options.runs else max(1, options.seconds * SHARES[target] // shares)
        made = runner.fuzz(
            target,
            seconds=seconds,
            runs=options.runs,
            seed=options.seed,
            folder=folder,
            engine=engine,
        )
        runner.replay(made, "AddressSanitizer", _sanitized(built), folder, "--check")
        runner.replay(made, "cost", {"KAFKA_ASYNC_KERNEL": "c"}, folder)
        print(made.summary())
        for what, result in made.replays.items():
            print(f"{what:16} {target:9} {_described(result)}", flush=True)
        findings += made.report()
    if not findings:
        _report_coverage(built, folder, options)
    return findings


def _sanitized(built: Build) -> dict[str, str]:
    preload = {"LD_PRELOAD": str(built.clang.sanitizer)}
    return {**_SANITIZED, **preload, "FUZZ_KERNEL": str(built.memory)}


def _described(result: dict[str, Any]) -> str:
    inputs = f"{result['inputs']} inputs"
    if not result.get("cpu_ms_input"):
        return inputs
    return (
        f"{inputs}, at most {result['cpu_ms']} ms of CPU for 64 KiB "
        f"and memory {result['memory_factor']} times the input"
    )


def _replay_file(built: Build, options: argparse.Namespace) -> int:
    (target,) = options.targets
    findings = 0
    for environment, check in ((_sanitized(built), ["--check"]), ({"KAFKA_ASYNC_KERNEL": "c"}, [])):
        result = runner.measure(target, [str(options.replay.resolve())], environment, *check)
        for finding in result["findings"]:
            print(f"finding in {target}: {finding['file']}: {finding['what']}")
        findings += len(result["findings"])
    return findings


def _report_coverage(built: Build, folder: Path, options: argparse.Namespace) -> None:
    """Print the reached edges and all edges of the kernel's functions, over all corpora."""
    pairs = [
        f"{target}={folder / kind / target}"
        for target in options.targets
        for kind in ("corpus", "seeds")
    ]
    command = [sys.executable, "-m", "fuzz.kernel.coverage", str(built.engine), *pairs]
    environment = runner.environment_with({"FUZZ_KERNEL": str(built.coverage)})
    output = subprocess.run(
        command, cwd=runner.ROOT, env=environment, capture_output=True, text=True, check=True
    ).stdout
    functions: dict[str, list[int]] = json.loads(output.splitlines()[-1])
    reached, edges = (sum(counts[part] for counts in functions.values()) for part in (0, 1))
    print(f"{reached} of {edges} edges of the kernel's functions ({reached / max(edges, 1):.0%})")
    if options.functions:
        for name, (some, all_) in sorted(functions.items(), key=lambda row: row[1][0] - row[1][1]):
            print(f"  {some:4} of {all_:4}  {name}")


if __name__ == "__main__":
    sys.exit(main())
