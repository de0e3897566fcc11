"""make fuzz-kernel: fuzz the compiled kernel, then replay the corpora for memory and for cost.

    python -m fuzz.kernel --seconds 600 --seed 7     every target, ten minutes in all
    python -m fuzz.kernel --targets batches --runs 10000000
    python -m fuzz.kernel --targets batches --replay FILE

The corpora stay in artifacts/fuzz/kernel, and the next run continues with them. The exit status is
1 if there is a finding, and 2 if this machine cannot build the instrumented kernel.
"""

from __future__ import annotations

import argparse
import datetime
import random
import sys
import time
from pathlib import Path

from fuzz.kernel.build import SOURCES, build
from fuzz.kernel.campaign import ROOT, SHARES, TARGETS, Campaign, Run
from fuzz.kernel.toolchain import ToolchainError, require_clang

DIRECTORY = ROOT / "artifacts" / "fuzz" / "kernel"


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
    campaign = Campaign(built, options.directory.resolve(), options.every, options.max_size)
    for target in options.targets:
        campaign.prepare(target)
    if options.replay is not None:
        (target,) = options.targets
        act = campaign.measure if options.measure else campaign.check
        return _report("replay", target, act(target, options.replay.resolve()))
    findings = 0
    if not options.only_replay:
        findings += _fuzz(campaign, options)
    for target in options.targets:
        findings += _report("AddressSanitizer", target, campaign.check(target))
    for target in options.targets:
        findings += _report("cost", target, campaign.measure(target))
    print(f"{findings} findings" if findings else "no findings")
    return 1 if findings else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="fuzz.kernel", description=(__doc__ or "")[:95])
    parser.add_argument("--seconds", type=int, default=60, help="of fuzzing, for all targets")
    parser.add_argument("--runs", type=int, default=0, help="of each target, instead of seconds")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1, 1 << 31))
    parser.add_argument("--targets", nargs="+", choices=TARGETS, default=list(TARGETS))
    parser.add_argument("--max-size", type=int, default=4096, help="of an input, in bytes")
    parser.add_argument(
        "--every", type=int, default=16, help="ask the pure kernel about every n-th input"
    )
    parser.add_argument("--directory", type=Path, default=DIRECTORY, help="of builds and corpora")
    parser.add_argument("--sources", type=Path, default=SOURCES, help="of another kernel")
    parser.add_argument("--only-replay", action="store_true", help="the corpora, without fuzzing")
    parser.add_argument("--replay", type=Path, help="one input, or a directory of them")
    parser.add_argument("--measure", action="store_true", help="with --replay: its cost")
    parser.add_argument("--functions", action="store_true", help="list what was not reached")
    return parser


def _fuzz(campaign: Campaign, options: argparse.Namespace) -> int:
    print(f"seed {options.seed}, {datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC")
    shares = sum(SHARES[target] for target in options.targets)
    findings = executions = 0
    for target in options.targets:
        seconds = max(1, options.seconds * SHARES[target] // shares)
        run = campaign.fuzz(target, seconds=seconds, runs=options.runs, seed=options.seed)
        kept = len(list(campaign.corpus(target).iterdir()))
        run.summary = (
            f"{run.executions:,} executions, {run.per_second:,} a second, "
            f"{run.edges} edges, {kept} inputs kept"
        )
        findings += _report("fuzz", target, run)
        executions += run.executions
    print(f"{executions:,} executions in all")
    if not findings:
        _report_coverage(campaign, options)
    return findings


def _report_coverage(campaign: Campaign, options: argparse.Namespace) -> None:
    functions = campaign.coverage(options.targets)
    reached, edges = (sum(counts[part] for counts in functions.values()) for part in (0, 1))
    share = reached / max(edges, 1)
    print(f"{reached} of {edges} edges of the kernel's functions ({share:.0%})")
    if options.functions:
        for name, (some, all_) in sorted(functions.items(), key=lambda row: row[1][0] - row[1][1]):
            print(f"  {some:4} of {all_:4}  {name}")


def _report(what: str, target: str, run: Run) -> int:
    print(f"{what:16} {target:9} {run.summary}", flush=True)
    for finding in run.findings:
        print(f"FINDING in {target} ({what}): {finding}", flush=True)
    return len(run.findings)


if __name__ == "__main__":
    sys.exit(main())
