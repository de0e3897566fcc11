"""Compares the client with other clients: `python -m benchmarks`, also `make bench`.

Writes complete runs on Apache Kafka to benchmarks/results/, and all other runs to artifacts/.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import date
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks import machine, page, processes, results, tls, topics
from benchmarks.cases import ALL_CASES, CASES, FEW_ROUNDS, MAIN_ROUNDS, PYTHON_CASES, Case
from benchmarks.clients import JAVA, PEERS
from benchmarks.payload import WrongResultError
from benchmarks.progress import Progress, Step
from benchmarks.rounds import CaseRunner, remaining
from benchmarks.runs import RunLog
from benchmarks.special import SPECIAL, SpecialCase
from kafka_async.testing.backends import BackendUnavailableError, create_backend

if TYPE_CHECKING:
    from benchmarks.tls import TlsListener

RESULTS: Final = Path(__file__).parent / "results"
ARTIFACTS: Final = Path("artifacts") / "benchmarks"
WARM_UP: Final = 3_000
"""Thousands of records of each kind that a new broker receives before the first measurement."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the arguments, measure, print and write the results; return the exit status."""
    options = parse(arguments)
    missing = absent(options.peers)
    context = {
        **machine.describe(options.backend, pythons=options.pythons),
        "date": date.today().isoformat(),
    }
    if options.scale != 1.0:
        context["records, times the usual"] = str(options.scale)
    table = _table(options)
    run_log = RunLog(options.output / f"{table}.jsonl", context, resume=options.resume)
    failure = _measure(options, set(options.peers) - set(missing), run_log)
    selected = options.only or [case.name for case in CASES.values() if options.tls and case.tls]
    found = results.collect(
        run_log,
        {PEERS[name].title: reason for name, reason in missing.items()},
        tuned=not options.defaults,
        pythons=options.pythons,
        selected=selected or None,
    )
    folder = RESULTS if not failure and _is_complete(options) else options.output
    results.write(found, table, folder)
    print(page.markdown(found), end="")
    print(f"written: {folder / table}.md and .json", file=sys.stderr)
    failure = failure or run_log.failure()
    if failure:
        print(failure, file=sys.stderr)
    return 1 if failure else 0


def _measure(options: argparse.Namespace, present: Collection[str], run_log: RunLog) -> str:
    """Make all runs that are not in the log; return the reason if they ended early, else ""."""
    try:
        _Benchmark(options, present, run_log).run()
    except WrongResultError as error:
        return f"wrong result: {error}"
    except BackendUnavailableError as error:
        return f"no broker: {error}; or --backend embedded"
    except KeyboardInterrupt:
        return "interrupted; use --resume to continue"
    return ""


class _Benchmark:
    """Runs the selected cases, and then the selected special cases."""

    def __init__(
        self, options: argparse.Namespace, present: Collection[str], run_log: RunLog
    ) -> None:
        self._options = options
        self._run_log = run_log
        tuned = not options.defaults
        table = PYTHON_CASES if options.pythons else CASES
        cases = [case for case in table.values() if _is_selected(case, options)]
        self._contenders = {
            case: [each for each in case.contenders_of_table(tuned=tuned) if each.peer in present]
            for case in cases
        }
        steps = [
            step
            for case, contenders in self._contenders.items()
            for step in remaining(case, contenders, options.rounds, run_log)
        ]
        specials = [case for case in SPECIAL.values() if _is_special_selected(case, options)]
        pending = [case for case in specials if case.name not in run_log.specials]
        self._specials = sorted(pending, key=lambda case: case.brokers)
        steps += [Step(case.name, 0, case.seconds) for case in self._specials]
        self._progress = Progress(steps)

    def run(self) -> None:
        """Make the runs that are not in the log."""
        pending = [case for case in self._contenders if case.name in self._progress.cases]
        if plaintext := [case for case in pending if not case.tls]:
            with create_backend(self._options.backend, {"brokers": 1}) as cluster:
                self._run_cases(plaintext, cluster.bootstrap_servers)
        if encrypted := [case for case in pending if case.tls]:
            with tls.secure_cluster(self._options.backend) as secure:
                self._run_cases(encrypted, secure.bootstrap, secure.tls)
        for brokers, group in groupby(self._specials, lambda case: case.brokers):
            if brokers:
                with create_backend(self._options.backend, {"brokers": brokers}) as cluster:
                    self._run_specials(group, cluster.bootstrap_servers)
            else:
                self._run_specials(group, "")

    def _run_cases(
        self, cases: Sequence[Case], bootstrap: str, listener: TlsListener | None = None
    ) -> None:
        options = self._options
        asyncio.run(topics.warm_up(bootstrap, int(WARM_UP * options.scale) + 1, listener))
        for case in cases:
            runner = CaseRunner(
                case,
                bootstrap,
                self._run_log,
                self._progress,
                tuned=not options.defaults,
                scale=options.scale,
                tls=listener,
            )
            runner.run(self._contenders[case], options.rounds)

    def _run_specials(self, cases: Iterable[SpecialCase], bootstrap: str) -> None:
        for case in cases:
            print(self._progress.line(case.name), file=sys.stderr)
            result = case.run(bootstrap, self._options.rounds)
            print(f"{case.name}: {result.get('error', 'done')}", file=sys.stderr)
            self._run_log.add_special(case.name, result)


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


# -- options --------------------------------------------------------------------------------------


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    names: dict[str, Any] = {"nargs": "+", "action": "extend", "default": []}
    add = parser.add_argument
    add("--backend", type=_backend, default="apache", help="apache, apache-VERSION, embedded")
    add("--only", metavar="CASE", help=f"some of: {', '.join(_CASE_NAMES)}", **names)
    add("--peers", metavar="PEER", help=f"some of: {', '.join(PEERS)}", **names)
    add(
        "--rounds",
        type=_number(int, 1, 1_000),
        help=f"maximum rounds per case (default: {MAIN_ROUNDS}, with --defaults {FEW_ROUNDS})",
    )
    tables = parser.add_mutually_exclusive_group()
    tables.add_argument("--defaults", action="store_true", help="clients with default options")
    tables.add_argument("--pythons", action="store_true", help="compare Python versions")
    tables.add_argument("--tls", action="store_true", help="the cases over TLS, as a table")
    add("--scale", type=_number(float, 0.000_1, 100), default=1.0, help="factor for the records")
    add("--resume", action="store_true", help="continue an interrupted run")
    add("--output", type=Path, default=ARTIFACTS, help="folder for partial runs and run logs")
    options = parser.parse_args(arguments)
    options.only = _names(parser, "--only", "case", options.only, _CASE_NAMES)
    options.peers = _names(parser, "--peers", "peer", options.peers, PEERS) or _peers(options)
    options.rounds = options.rounds or (FEW_ROUNDS if options.defaults else MAIN_ROUNDS)
    return options


_CASE_NAMES: Final = (*ALL_CASES, *SPECIAL)


def _names(
    parser: argparse.ArgumentParser,
    option: str,
    kind: str,
    values: Iterable[str],
    known: Collection[str],
) -> list[str]:
    """Return names that are separated by spaces or commas."""
    names = [name for value in values for name in value.split(",") if name]
    for name in names:
        if name not in known:
            parser.error(f"{option}: there is no {kind} {name}; there are {', '.join(known)}")
    return names


def _number(kind: Callable[[str], float], least: float, most: float) -> Callable[[str], float]:
    def parse_number(text: str) -> float:
        number = kind(text)
        if not least <= number <= most:
            raise argparse.ArgumentTypeError(f"it is between {least:g} and {most:,}, not {text}")
        return number

    return parse_number


def _backend(name: str) -> str:
    try:
        create_backend(name)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return name


def _table(options: argparse.Namespace) -> str:
    """Return the name of the result files, without a suffix."""
    kinds = {"_pythons": options.pythons, "_defaults": options.defaults, "_tls": options.tls}
    kind = next((kind for kind, chosen in kinds.items() if chosen), "")
    return f"bench{kind}{'' if _is_complete(options) else '_part'}"


def _peers(options: argparse.Namespace) -> list[str]:
    """Return the clients of the table; with `--pythons`, one per version and the Java tool."""
    return [
        peer.name
        for peer in PEERS.values()
        if bool(peer.python) == options.pythons or peer.name == JAVA
    ]


def _is_selected(case: Case, options: argparse.Namespace) -> bool:
    if options.only:
        return case.name in options.only
    if options.tls:
        return case.tls
    return case.defaults if options.defaults else case.tuned


def _is_special_selected(case: SpecialCase, options: argparse.Namespace) -> bool:
    if options.only:
        return case.name in options.only
    return not (options.defaults or options.pythons or options.tls)


def _is_complete(options: argparse.Namespace) -> bool:
    all_peers = set(options.peers) == set(_peers(options))
    usual = options.backend == "apache" and options.scale == 1.0 and options.rounds >= FEW_ROUNDS
    return not options.only and all_peers and usual


if __name__ == "__main__":
    processes.interrupt_on_signals()
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("interrupted")
