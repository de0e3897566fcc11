"""`python -m benchmarks`, also `make bench`: the whole client beside its peers.

Whole runs on Apache Kafka are written to benchmarks/results/, parts and others to artifacts/.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks import machine, specials, topics, written
from benchmarks.cases import CASES, MAIN_ROUNDS, Case
from benchmarks.contenders import PEERS
from benchmarks.rounds import Ledger, measure, remains
from benchmarks.topics import WrongResultError
from kafka_async.testing.backends import BackendUnavailableError, create_backend

RESULTS = Path(__file__).parent / "results"
ARTIFACTS = Path("artifacts") / "benchmarks"


WARM_UP = 3_000
"""Thousands of records of each kind that a new broker takes before anything is measured."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse, measure, show, write; the exit code."""
    options = _parse(arguments)
    cases = [case for case in CASES.values() if _is_wanted(case, options)]
    apart = [name for name in specials.names() if _is_wanted_apart(name, options)]
    table = "bench_defaults" if options.defaults else "bench"
    table += "" if _is_whole(options) else "_part"
    context = machine.describe(options.backend)
    if options.scale != 1.0:
        context["records, times the usual"] = str(options.scale)
    ledger = Ledger(options.output / f"{table}.jsonl", context, resume=options.resume)
    away = absent(options.peers)
    failure = ""
    try:
        _measure_cases(cases, set(options.peers) - set(away), ledger, options)
        _measure_apart(apart, ledger, options)
    except WrongResultError as error:
        failure = f"wrong result: {error}"
    except BackendUnavailableError as error:
        failure = f"no broker: {error}; or --backend embedded"
    except KeyboardInterrupt:
        failure = "interrupted; --resume goes on from here"
    reasons = {PEERS[name].title: reason for name, reason in away.items()}
    everything = written.results(ledger, reasons, tuned=not options.defaults)
    whole = not failure and _is_whole(options)
    folder = RESULTS if whole else options.output
    written.write(everything, table, folder)
    sys.stdout.write(written.markdown(everything))
    sys.stderr.write(f"written: {folder / table}.md, .json and .png\n")
    failure = failure or ledger.complaint()
    if failure:
        sys.stderr.write(failure + "\n")
    return 1 if failure else 0


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


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--backend", type=_backend, default="apache", help="apache, apache-VERSION, embedded"
    )
    parser.add_argument(
        "--only",
        nargs="+",
        action="extend",
        metavar="CASE",
        choices=_names(),
        help=", ".join(_names()),
    )
    parser.add_argument(
        "--peers", type=_peers, default=list(PEERS), help="some of: " + ",".join(PEERS)
    )
    parser.add_argument(
        "--rounds", type=_rounds, default=MAIN_ROUNDS, help="at most so many a case"
    )
    parser.add_argument("--defaults", action="store_true", help="every option at its default")
    parser.add_argument("--scale", type=_scale, default=1.0, help="so many times the usual records")
    parser.add_argument("--resume", action="store_true", help="go on with what was measured before")
    parser.add_argument("--output", type=Path, default=ARTIFACTS, help="where runs and parts go")
    return parser.parse_args(arguments)


def _names() -> list[str]:
    return [*CASES, *specials.names()]


def _peers(text: str) -> list[str]:
    names = text.split(",")
    if unknown := [name for name in names if name not in PEERS]:
        raise argparse.ArgumentTypeError(
            f"there is no peer {unknown[0]}; there are {', '.join(PEERS)}"
        )
    return names


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
    return case.defaults or not options.defaults


def _is_wanted_apart(name: str, options: argparse.Namespace) -> bool:
    return name in options.only if options.only else not options.defaults


def _is_whole(options: argparse.Namespace) -> bool:
    everybody = set(options.peers) == set(PEERS)
    usual = options.backend == "apache" and options.scale == 1.0 and options.rounds >= 3
    return not options.only and everybody and usual


def _measure_cases(
    cases: list[Case], present: set[str], ledger: Ledger, options: argparse.Namespace
) -> None:
    wanted = {
        case.name: [each for each in case.contenders if each.peer in present] for case in cases
    }
    rounds = {case.name: min(options.rounds, case.rounds) for case in cases}
    left = [case for case in cases if remains(case, wanted[case.name], rounds[case.name], ledger)]
    if not left:
        return
    with create_backend(options.backend, {"brokers": 1}) as cluster:
        asyncio.run(topics.warm_up(cluster.bootstrap_servers, int(WARM_UP * options.scale) + 1))
        for case in left:
            measure(
                case,
                wanted[case.name],
                cluster.bootstrap_servers,
                rounds[case.name],
                ledger,
                tuned=not options.defaults,
                scale=options.scale,
            )


def _measure_apart(names: list[str], ledger: Ledger, options: argparse.Namespace) -> None:
    wanted = {name: specials.brokers(name) for name in names if name not in ledger.specials}
    for count in sorted(set(wanted.values())):
        group = [name for name, brokers in wanted.items() if brokers == count]
        if not count:
            _measure_group(group, ledger, options.rounds, None)
            continue
        with create_backend(options.backend, {"brokers": count}) as cluster:
            _measure_group(group, ledger, options.rounds, cluster.bootstrap_servers)


def _measure_group(names: list[str], ledger: Ledger, rounds: int, bootstrap: str | None) -> None:
    for name in names:
        result = specials.launch(name, rounds, bootstrap)
        sys.stderr.write(f"{name}: {result.get('error', 'done')}\n")
        ledger.add_special(name, result)


if __name__ == "__main__":
    sys.exit(main())
