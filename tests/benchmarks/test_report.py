"""Medians of rounds are compared, targets are met or not, and the page leaves nothing out."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from benchmarks import chart, written
from benchmarks.contenders import JAVA, OURS, PLAIN, RAW
from benchmarks.peers.task import Figures
from benchmarks.report import Row, Spread, rows
from benchmarks.rounds import CHECK, Ledger, Run
from benchmarks.special import results as special
from benchmarks.targets import Figure, Outcome, Target, Wanted, is_met, outcomes
from benchmarks.written import Results, markdown, results

CASE = "produce-100"


def runs(peer: str, seconds: list[float], *, way: str = "enqueue", case: str = CASE) -> list[Run]:
    return [
        Run(case, peer, way, number, Figures(each, each / 2, 8_000, settings={"linger_ms": 5}))
        for number, each in enumerate(seconds, 1)
    ]


def trips(peer: str, p50: list[float]) -> list[Run]:
    return [
        Run("round-trip", peer, "", number, Figures(1.0, 0.1, 100, latency_us=latency))
        for number, each in enumerate(p50, 1)
        for latency in ({"p50": each, "p99": each * 2, "p99.9": each * 3},)
    ]


def test_a_ratio_is_ours_over_theirs_median_by_median() -> None:
    ours, theirs = rows([*runs("aiokafka", [4.0, 8.0, 8.0]), *runs(OURS, [1.0, 2.0, 4.0])])
    assert ours.rate == Spread(4_000, 2_000, 8_000)
    assert (ours.ratio, theirs.ratio) == (1.0, 4.0)
    assert theirs.cpu_us == Spread(500, 250, 500)
    assert (theirs.rounds, theirs.records) == (3, 8_000)


def test_a_limit_is_the_raw_socket_of_the_same_case() -> None:
    both = [*runs(OURS, [2.0]), *runs(RAW, [1.0], way="send_batch")]
    assert [row.of_limit for row in rows(both)] == [0.5, 1.0]
    assert [row.of_limit for row in rows(runs(OURS, [2.0]))] == [None]


def test_of_latencies_more_is_worse() -> None:
    ours, theirs = rows([*trips(OURS, [100.0, 120.0, 500.0]), *trips("aiokafka", [240.0])])
    assert ours.latency["p50"] == Spread(120.0, 100.0, 500.0)
    assert theirs.ratio == 2.0


def test_checks_and_failures_are_no_figures() -> None:
    check = Run("consume-100", OURS, "poll", CHECK, Figures(9.0, 9.0, 8_000, checksum=1))
    failed = Run("consume-100", OURS, "poll", 2, error="it broke")
    [row] = rows([check, *runs(OURS, [2.0], way="poll", case="consume-100"), failed])
    assert row.rate == Spread(4_000, 4_000, 4_000)


@pytest.mark.parametrize(
    ("wanted", "limit", "just", "no_more"),
    [
        (Wanted.TIMES, 1.2, 120.0, 119.0),
        (Wanted.LESS, 1.0, 99.0, 100.0),
        (Wanted.ABOVE, 60.0, 160.0, 161.0),
    ],
)
def test_a_target_is_met_up_to_its_limit(
    wanted: Wanted, limit: float, just: float, no_more: float
) -> None:
    target = Target("a case", CASE, "enqueue", ("aiokafka",), Figure.RATE, wanted, limit)
    assert is_met(target, just, 100.0)
    assert not is_met(target, no_more, 100.0)


def find(reached: list[Outcome], what: str, against: str) -> Outcome:
    [found] = [one for one in reached if (one.what, one.against) == (what, against)]
    return found


def test_targets_are_met_not_met_or_open() -> None:
    measured = [*runs(OURS, [1.0]), *runs("aiokafka", [8.0]), *runs("confluent", [1.9])]
    reached = outcomes(rows(measured), {})
    enqueue = "produce 100 B, enqueue"
    assert find(reached, enqueue, "aiokafka").met is True
    assert find(reached, enqueue, "confluent-kafka").met is False
    assert find(reached, enqueue, "confluent-kafka").reached == "1.90x"
    assert find(reached, enqueue, "confluent-kafka, callbacks").met is None
    assert find(reached, enqueue, "Java tool").met is None
    assert find(reached, enqueue, "Java tool").reached == "not measured"


def test_the_best_peer_is_the_one_that_counts() -> None:
    case = "consume-100"
    seconds = {OURS: 1.0, "aiokafka": 9.0, "confluent": 3.0, "kafka_python": 20.0, JAVA: 0.1}
    measured = [
        run for peer, each in seconds.items() for run in runs(peer, [each], way="poll", case=case)
    ]
    poll = [one for one in outcomes(rows(measured), {}) if one.what == "consume 100 B, poll"]
    assert [(one.against, one.reached, one.met) for one in poll] == [
        ("confluent-kafka", "3.00x", True),
        ("Java tool", "0.10x", False),
    ]


def test_latency_targets_are_differences_to_the_raw_socket() -> None:
    measured = [*trips(OURS, [110.0]), *trips(RAW, [40.0]), *trips("aiokafka", [150.0])]
    what = "round trip, back to back"
    trip = {one.against: one for one in outcomes(rows(measured), {}) if one.what == what}
    assert trip["raw socket (the limit)"].reached == "+70 us"
    assert trip["raw socket (the limit)"].met is False
    assert trip["aiokafka"].met is True


def test_plain_python_is_held_against_kafka_python_in_each_case_of_both() -> None:
    case = "produce-1k-keyed-lz4"
    measured = [*runs(PLAIN, [2.0], case=case), *runs("kafka_python", [1.0], case=case)]
    outcome = find(outcomes(rows(measured), {}), f"plain Python, {case}", "kafka-python")
    assert (outcome.reached, outcome.met) == ("0.50x", False)


IDLE = special.Result(
    "idle",
    "idle, 3 brokers",
    "theirs over ours",
    [special.Row("kafka_async", 0.01, 0.01, 0.02, "%", 1.0, what="producer")],
    [special.Goal("a producer", 0.01, 0.02, "%")],
).plain()


@pytest.fixture
def everything(tmp_path: Path) -> Results:
    context = {"cores": "2", "system": "Debian", "broker": "Apache Kafka 4.4.0", "Python": "3.11.7"}
    ledger = Ledger(tmp_path / "runs.jsonl", context, resume=False)
    for run in [
        *runs(OURS, [1.0, 2.0]),
        *runs("aiokafka", [8.0]),
        *runs("confluent", [1.9]),
        *runs(RAW, [0.5], way="send_batch"),
        *trips(OURS, [110.0]),
        Run(CASE, "kafka_python", "enqueue", 1, error="exit code 1: it\nbroke"),
    ]:
        ledger.add(run)
    ledger.add_special("idle", IDLE)
    ledger.add_special("memory", {"case": "memory", "error": "it took longer than 300 s"})
    return results(ledger, {"Java tool": "install Java 17 or newer"}, tuned=True)


def test_the_page_names_who_is_missing_and_who_failed(everything: Results) -> None:
    page = markdown(everything)
    assert "- Java tool: install Java 17 or newer\n" in page
    assert "- kafka-python enqueue in produce 100 B: exit code 1: it broke\n" in page
    assert "- memory: it took longer than 300 s\n" in page


def test_the_page_says_of_each_target_whether_it_is_met(everything: Results) -> None:
    lines = [line for line in markdown(everything).splitlines() if "| produce 100 B, enq" in line]
    assert [line.split(" | ")[-1] for line in lines] == [
        "open |",
        "open |",
        "not met |",
        "not met |",
    ]
    assert "| idle, 3 brokers | a producer |  |  | 0.01 % | at most 0.02 % | met |" in (
        markdown(everything)
    )


def test_the_page_has_a_line_a_contender_and_the_options_once(everything: Results) -> None:
    page = markdown(everything)
    assert (
        "| kafka_async | enqueue | 6,000 | 4,000 - 8,000 | 1.00 | 38% | 93.75 | 0 | 8,000 x 2 |"
    ) in page
    assert "| kafka_async | 110 | 220 | 330 | 110 - 110 | 1.00 |" in page
    assert "- kafka_async: linger_ms=5 (produce-100)\n" in page
    assert "2 cores, Debian, broker Apache Kafka 4.4.0, Python 3.11.7." in page


def test_targets_are_about_tuned_clients_only(everything: Results, tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "runs.jsonl", dict(everything.context), resume=True)
    page = markdown(results(ledger, {}, tuned=False))
    assert "What was to be reached" not in page
    assert "at its defaults" in page


def test_results_are_written_as_data_as_a_page_and_as_a_picture(
    everything: Results, tmp_path: Path
) -> None:
    written.write(everything, "bench", tmp_path / "results")
    document = json.loads((tmp_path / "results" / "bench.json").read_text())
    assert document["rows"][0]["rate"] == {"median": 6_000, "low": 4_000, "high": 8_000}
    assert (tmp_path / "results" / "bench.md").read_text() == markdown(everything)
    picture = (tmp_path / "results" / "bench.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    width, height = struct.unpack(">II", picture[16:24])
    assert 1_200 <= width <= 1_600
    assert 300 <= height <= 1_600
    assert len(picture) > 20_000


def test_nothing_to_draw_is_no_picture(tmp_path: Path) -> None:
    unseen: list[Row] = rows(runs(OURS, [1.0], case="produce-100-zstd"))
    assert unseen
    assert not chart.draw(unseen, "a machine", tmp_path / "bench.png")
    assert not (tmp_path / "bench.png").exists()
