"""`python -m benchmarks`, also `make bench`: the whole client beside its peers.

Whole runs on Apache Kafka are written to benchmarks/results/, parts and others to artifacts/.
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

from benchmarks import children, machine, specials, topics, written
from benchmarks.cases import (
    ALL_CASES,
    CASES,
    FEW_ROUNDS,
    MAIN_ROUNDS,
    PYTHON_CASES,
    Case,
    Contender,
)
from benchmarks.contenders import JAVA, PEERS
from benchmarks.progress import Progress, Step
from benchmarks.rounds import Ledger, measure, remaining
from benchmarks.topics import WrongResultError
from kafka_async.testing.backends import BackendUnavailableError, create_backend

RESULTS = Path(__file__).parent / "results"
ARTIFACTS = Path("artifacts") / "benchmarks"


WARM_UP = 3_000
"""Thousands of records of each kind that a new broker takes before anything is measured."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse, measure, show, write; the exit code."""
    options = parse(arguments)
    table_of_cases = PYTHON_CASES if options.pythons else CASES
    cases = [case for case in table_of_cases.values() if _is_wanted(case, options)]
    wanted = [name for name in specials.names() if _is_wanted_apart(name, options)]
    apart = sorted(wanted, key=specials.brokers)
    table = _table(options)
    away = absent(options.peers)
    context = {
        **machine.describe(options.backend, pythons=options.pythons),
        "date": date.today().isoformat(),
    }
    if options.scale != 1.0:
        context["records, times the usual"] = str(options.scale)
    ledger = Ledger(options.output / f"{table}.jsonl", context, resume=options.resume)
    plan = _plan(cases, apart, set(options.peers) - set(away), ledger, options)
    failure = ""
    try:
        _measure_cases(cases, plan, ledger, options)
        _measure_apart(apart, plan, ledger, options)
    except WrongResultError as error:
        failure = f"wrong result: {error}"
    except BackendUnavailableError as error:
        failure = f"no broker: {error}; or --backend embedded"
    except KeyboardInterrupt:
        failure = "interrupted; --resume goes on from here"
    reasons = {PEERS[name].title: reason for name, reason in away.items()}
    asked = [case.name for case in cases] + apart if options.only else None
    everything = written.results(
        ledger, reasons, tuned=not options.defaults, pythons=options.pythons, wanted=asked
    )
    whole = not failure and _is_whole(options)
    folder = RESULTS if whole else options.output
    written.write(everything, table, folder)
    sys.stdout.write(written.markdown(everything))
    sys.stderr.write(f"written: {folder / table}.md and .json\n")
    failure = failure or ledger.complaint()
    if failure:
        sys.stderr.write(failure + "\n")
    return 1 if failure else 0


def _table(options: argparse.Namespace) -> str:
    """Return the name of the files."""
    name = "bench"
    if options.pythons:
        name = "bench_pythons"
    elif options.defaults:
        name = "bench_defaults"
    return name if _is_whole(options) else f"{name}_part"


def absent(peers: Sequence[str]) -> dict[str, str]:
    """The peers that can't take part, and why; the others are ready for their first run."""
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
        "--only", nargs="+", action=_Chosen, choices=_names(), metavar="CASE", help=_some(_names())
    )
    parser.add_argument(
        "--peers", nargs="+", action=_Chosen, choices=PEERS, metavar="PEER", help=_some(PEERS)
    )
    parser.add_argument(
        "--rounds",
        type=_rounds,
        help=f"at most so many a case: {MAIN_ROUNDS}, with --defaults {FEW_ROUNDS}",
    )
    tables = parser.add_mutually_exclusive_group()
    tables.add_argument("--defaults", action="store_true", help="every option at its default")
    tables.add_argument(
        "--pythons", action="store_true", help="several versions of Python beside each other"
    )
    parser.add_argument("--scale", type=_scale, default=1.0, help="so many times the usual records")
    parser.add_argument("--resume", action="store_true", help="go on with what was measured before")
    parser.add_argument("--output", type=Path, default=ARTIFACTS, help="where runs and parts go")
    options = parser.parse_args(arguments)
    options.peers = options.peers or _peers(options)
    options.rounds = options.rounds or (FEW_ROUNDS if options.defaults else MAIN_ROUNDS)
    return options


def _peers(options: argparse.Namespace) -> list[str]:
    """Return the clients of a table: of `--pythons` those of each version, and the Java tool."""
    return [
        peer.name
        for peer in PEERS.values()
        if bool(peer.python) == options.pythons or peer.name == JAVA
    ]


class _Chosen(argparse.Action):
    """Names, with spaces or commas between them; the option may be given again."""

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
        """Add the names to those given before."""
        names = [name for value in values for name in value.split(",") if name]
        if unknown := [name for name in names if name not in self._known]:
            parser.error(
                f"{option_string}: there is no {str(self.metavar).lower()} {unknown[0]}; there are "
                + ", ".join(self._known)
            )
        before: list[str] = getattr(namespace, self.dest) or []
        setattr(namespace, self.dest, [*before, *names])


def _some(names: Iterable[str]) -> str:
    return "some of: " + ", ".join(names)


def _names() -> list[str]:
    return [*ALL_CASES, *specials.names()]


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


def _is_wanted(case: Case, options: argparse.Namespace) -> bool:
    if options.only:
        return case.name in options.only
    return case.defaults if options.defaults else case.tuned


def _is_wanted_apart(name: str, options: argparse.Namespace) -> bool:
    return name in options.only if options.only else not (options.defaults or options.pythons)


def _is_whole(options: argparse.Namespace) -> bool:
    all_peers = set(options.peers) == set(_peers(options))
    usual = options.backend == "apache" and options.scale == 1.0 and options.rounds >= 3
    return not options.only and all_peers and usual


@dataclass(frozen=True)
class _Plan:
    """Who takes part in each case, in how many rounds, and how far all that is."""

    contenders: Mapping[str, Sequence[Contender]]
    rounds: Mapping[str, int]
    progress: Progress


def _plan(
    cases: Sequence[Case],
    apart: Sequence[str],
    present: Collection[str],
    ledger: Ledger,
    options: argparse.Namespace,
) -> _Plan:
    tuned = not options.defaults
    contenders = {
        case.name: [each for each in case.taking_part(tuned=tuned) if each.peer in present]
        for case in cases
    }
    rounds = {case.name: min(options.rounds, case.rounds) for case in cases}
    steps = [
        step
        for case in cases
        for step in remaining(case, contenders[case.name], rounds[case.name], ledger)
    ]
    steps += [
        Step(name, 0, specials.SECONDS.get(name, specials.TIME_LIMIT))
        for name in apart
        if name not in ledger.specials
    ]
    return _Plan(contenders, rounds, Progress(steps))


def _measure_cases(
    cases: Sequence[Case], plan: _Plan, ledger: Ledger, options: argparse.Namespace
) -> None:
    left = [case for case in cases if case.name in plan.progress.cases]
    if not left:
        return
    with create_backend(options.backend, {"brokers": 1}) as cluster:
        asyncio.run(topics.warm_up(cluster.bootstrap_servers, int(WARM_UP * options.scale) + 1))
        for case in left:
            measure(
                case,
                plan.contenders[case.name],
                cluster.bootstrap_servers,
                plan.rounds[case.name],
                ledger,
                tuned=not options.defaults,
                scale=options.scale,
                progress=plan.progress,
            )


def _measure_apart(
    names: Sequence[str], plan: _Plan, ledger: Ledger, options: argparse.Namespace
) -> None:
    left = [name for name in names if name in plan.progress.cases]
    for count, group in groupby(left, specials.brokers):
        if not count:
            _measure_group(group, plan, ledger, options.rounds, None)
            continue
        with create_backend(options.backend, {"brokers": count}) as cluster:
            servers = cluster.bootstrap_servers
            _measure_group(group, plan, ledger, options.rounds, servers)


def _measure_group(
    names: Iterable[str], plan: _Plan, ledger: Ledger, rounds: int, bootstrap: str | None
) -> None:
    for name in names:
        sys.stderr.write(f"{plan.progress.line(name, 0)}\n")
        result = specials.launch(name, rounds, bootstrap)
        sys.stderr.write(f"{name}: {result.get('error', 'done')}\n")
        ledger.add_special(name, result)


if __name__ == "__main__":
    children.end_in_order()
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("interrupted")
