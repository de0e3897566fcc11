"""Compares the client with other clients: `python -m benchmarks`, also `make bench`.

Writes complete runs on Apache Kafka to benchmarks/results/, and all other runs to artifacts/.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import groupby
from pathlib import Path
from typing import Any

from benchmarks import child_processes, machine, result_files, special_cases, topics
from benchmarks.cases import (
    ALL_CASES,
    CASES,
    FEW_ROUNDS,
    MAIN_ROUNDS,
    PYTHON_CASES,
    Case,
    Contender,
)
from benchmarks.clients import JAVA, PEERS
from benchmarks.progress import Progress, Step
from benchmarks.rounds import RunLog, measure, remaining
from benchmarks.topics import WrongResultError
from kafka_async.testing.backends import BackendUnavailableError, create_backend

RESULTS = Path(__file__).parent / "results"
ARTIFACTS = Path("artifacts") / "benchmarks"

WARM_UP = 3_000
"""Thousands of records of each kind that a new broker receives before the first measurement."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the arguments, measure, print and write the results; return the exit status."""
    options = parse(arguments)
    table_of_cases = PYTHON_CASES if options.pythons else CASES
    cases = [case for case in table_of_cases.values() if _is_selected(case, options)]
    names = [name for name in special_cases.names() if _is_special_selected(name, options)]
    special = sorted(names, key=special_cases.brokers)
    table = _table(options)
    missing = absent(options.peers)
    context = {
        **machine.describe(options.backend, pythons=options.pythons),
        "date": date.today().isoformat(),
    }
    if options.scale != 1.0:
        context["records, times the usual"] = str(options.scale)
    run_log = RunLog(options.output / f"{table}.jsonl", context, resume=options.resume)
    plan = _plan(cases, special, set(options.peers) - set(missing), run_log, options)
    failure = ""
    try:
        _measure_cases(cases, plan, run_log, options)
        _measure_special(special, plan, run_log, options)
    except WrongResultError as error:
        failure = f"wrong result: {error}"
    except BackendUnavailableError as error:
        failure = f"no broker: {error}; or --backend embedded"
    except KeyboardInterrupt:
        failure = "interrupted; use --resume to continue"
    reasons = {PEERS[name].title: reason for name, reason in missing.items()}
    selected = [case.name for case in cases] + special if options.only else None
    report = result_files.collect(
        run_log, reasons, tuned=not options.defaults, pythons=options.pythons, selected=selected
    )
    complete = not failure and _is_complete(options)
    folder = RESULTS if complete else options.output
    result_files.write(report, table, folder)
    sys.stdout.write(result_files.markdown(report))
    sys.stderr.write(f"written: {folder / table}.md and .json\n")
    failure = failure or run_log.failure()
    if failure:
        sys.stderr.write(failure + "\n")
    return 1 if failure else 0


def _table(options: argparse.Namespace) -> str:
    """Return the name of the result files, without a suffix."""
    name = "bench"
    if options.pythons:
        name = "bench_pythons"
    elif options.defaults:
        name = "bench_defaults"
    return name if _is_complete(options) else f"{name}_part"


def absent(peers: Sequence[str]) -> dict[str, str]:
    """Prepare the peers for their first run; return the reasons of those that cannot run."""
    reasons: dict[str, str] = {}
    for name in peers:
        try:
            reason = PEERS[name].missing()
            if reason is None:
                PEERS[name].prepare()
        except BackendUnavailableError as error:
            reason = str(error)
        if reason is not None:
            reasons[name] = reason
    return reasons


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--backend", type=_backend, default="apache", help="apache, apache-VERSION, embedded"
    )
    parser.add_argument(
        "--only",
        nargs="+",
        action=_NamesAction,
        choices=_names(),
        metavar="CASE",
        help=_one_of(_names()),
    )
    parser.add_argument(
        "--peers",
        nargs="+",
        action=_NamesAction,
        choices=PEERS,
        metavar="PEER",
        help=_one_of(PEERS),
    )
    parser.add_argument(
        "--rounds",
        type=_rounds,
        help=f"maximum rounds per case (default: {MAIN_ROUNDS}, with --defaults {FEW_ROUNDS})",
    )
    tables = parser.add_mutually_exclusive_group()
    tables.add_argument(
        "--defaults", action="store_true", help="clients with their default options"
    )
    tables.add_argument("--pythons", action="store_true", help="compare Python versions")
    parser.add_argument(
        "--scale", type=_scale, default=1.0, help="factor for the number of records"
    )
    parser.add_argument("--resume", action="store_true", help="continue an interrupted run")
    parser.add_argument(
        "--output",
        type=Path,
        default=ARTIFACTS,
        help="folder for runs in progress and partial results",
    )
    options = parser.parse_args(arguments)
    options.peers = options.peers or _peers(options)
    options.rounds = options.rounds or (FEW_ROUNDS if options.defaults else MAIN_ROUNDS)
    return options


def _peers(options: argparse.Namespace) -> list[str]:
    """Return the clients of the table: with `--pythons` those of each version and the Java tool."""
    return [
        peer.name
        for peer in PEERS.values()
        if bool(peer.python) == options.pythons or peer.name == JAVA
    ]


class _NamesAction(argparse.Action):
    """Option with names separated by spaces or commas, which may be repeated."""

    def __init__(self, *arguments: Any, choices: Iterable[str], **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._known = list(choices)

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        """Add names to those of earlier options."""
        names = [name for value in values for name in value.split(",") if name]
        if unknown := [name for name in names if name not in self._known]:
            parser.error(
                f"{option_string}: there is no {str(self.metavar).lower()} {unknown[0]}; there are "
                + ", ".join(self._known)
            )
        before: list[str] = getattr(namespace, self.dest) or []
        setattr(namespace, self.dest, [*before, *names])


def _one_of(names: Iterable[str]) -> str:
    return "some of: " + ", ".join(names)


def _names() -> list[str]:
    return [*ALL_CASES, *special_cases.names()]


def _backend(name: str) -> str:
    try:
        create_backend(name)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return name


def _rounds(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"there is at least 1 round, not {text}")
    return int(text)


def _scale(text: str) -> float:
    scale = float(text)
    if not 0 < scale <= 100:
        raise argparse.ArgumentTypeError(f"a scale is above 0 and at most 100, not {text}")
    return scale


def _is_selected(case: Case, options: argparse.Namespace) -> bool:
    if options.only:
        return case.name in options.only
    return case.defaults if options.defaults else case.tuned


def _is_special_selected(name: str, options: argparse.Namespace) -> bool:
    return name in options.only if options.only else not (options.defaults or options.pythons)


def _is_complete(options: argparse.Namespace) -> bool:
    all_peers = set(options.peers) == set(_peers(options))
    usual = options.backend == "apache" and options.scale == 1.0 and options.rounds >= 3
    return not options.only and all_peers and usual


@dataclass(frozen=True)
class _Plan:
    """Contenders and rounds of each case, and the progress."""

    contenders: Mapping[str, Sequence[Contender]]
    rounds: Mapping[str, int]
    progress: Progress


def _plan(
    cases: Sequence[Case],
    special: Sequence[str],
    present: Collection[str],
    run_log: RunLog,
    options: argparse.Namespace,
) -> _Plan:
    tuned = not options.defaults
    contenders = {
        case.name: [each for each in case.contenders_of_table(tuned=tuned) if each.peer in present]
        for case in cases
    }
    rounds = {case.name: min(options.rounds, case.rounds) for case in cases}
    steps = [
        step
        for case in cases
        for step in remaining(case, contenders[case.name], rounds[case.name], run_log)
    ]
    steps += [
        Step(name, 0, special_cases.SECONDS.get(name, special_cases.TIME_LIMIT))
        for name in special
        if name not in run_log.specials
    ]
    return _Plan(contenders, rounds, Progress(steps))


def _measure_cases(
    cases: Sequence[Case], plan: _Plan, run_log: RunLog, options: argparse.Namespace
) -> None:
    pending = [case for case in cases if case.name in plan.progress.cases]
    if not pending:
        return
    with create_backend(options.backend, {"brokers": 1}) as cluster:
        asyncio.run(topics.warm_up(cluster.bootstrap_servers, int(WARM_UP * options.scale) + 1))
        for case in pending:
            measure(
                case,
                plan.contenders[case.name],
                cluster.bootstrap_servers,
                plan.rounds[case.name],
                run_log,
                tuned=not options.defaults,
                scale=options.scale,
                progress=plan.progress,
            )


def _measure_special(
    names: Sequence[str], plan: _Plan, run_log: RunLog, options: argparse.Namespace
) -> None:
    pending = [name for name in names if name in plan.progress.cases]
    for count, group in groupby(pending, special_cases.brokers):
        if not count:
            _measure_group(group, plan, run_log, options.rounds, None)
            continue
        with create_backend(options.backend, {"brokers": count}) as cluster:
            servers = cluster.bootstrap_servers
            _measure_group(group, plan, run_log, options.rounds, servers)


def _measure_group(
    names: Iterable[str], plan: _Plan, run_log: RunLog, rounds: int, bootstrap: str | None
) -> None:
    for name in names:
        sys.stderr.write(f"{plan.progress.line(name, 0)}\n")
        result = special_cases.launch(name, rounds, bootstrap)
        sys.stderr.write(f"{name}: {result.get('error', 'done')}\n")
        run_log.add_special(name, result)


if __name__ == "__main__":
    child_processes.interrupt_on_signals()
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("interrupted")
