"""The deployment page's times, exit status and loggers agree with the code."""

from __future__ import annotations

import configparser
import re
import signal
from pathlib import Path
from typing import Any

import yaml

from kafka_async.config import ClientConfig, seconds
from kafka_async.consumer.consumer import HURRY as CANCELLED_CONSUMER
from tests.docs.markdown_blocks import ROOT, blocks_of

PAGE = ROOT / "docs" / "deployment.md"


def block(language: str) -> str:
    """The page's only block of a language."""
    (found,) = (block.body for block in blocks_of(PAGE) if block.language == language)
    return found


def pod() -> dict[str, Any]:
    return yaml.safe_load(block("yaml"))["spec"]["template"]["spec"]


def seconds_for_requests(command: list[str]) -> float:
    return float(command[command.index("--timeout-graceful-shutdown") + 1])


def longest_stop() -> float:
    """Open requests, the cancelled consumer, and the producer, one after another."""
    close = seconds(ClientConfig(bootstrap_servers=("a:1",)).close_timeout_ms)
    return seconds_for_requests(pod()["containers"][0]["command"]) + CANCELLED_CONSUMER + close


def test_the_grace_period_of_the_pod_covers_the_longest_stop() -> None:
    assert f"{longest_stop():g} s" in PAGE.read_text("utf-8")
    assert pod()["terminationGracePeriodSeconds"] > longest_stop()


def test_the_startup_probe_allows_for_the_longest_start() -> None:
    probe = pod()["containers"][0]["startupProbe"]
    longest = seconds(ClientConfig(bootstrap_servers=("a:1",)).default_api_timeout_ms)
    assert probe["periodSeconds"] * probe["failureThreshold"] > longest


def test_the_systemd_unit_allows_for_a_stop_and_its_exit_status() -> None:
    unit = configparser.ConfigParser()
    unit.read_string(block("ini"))
    close = seconds(ClientConfig(bootstrap_servers=("a:1",)).close_timeout_ms)
    assert float(unit["Service"]["TimeoutStopSec"]) > close
    assert int(unit["Service"]["SuccessExitStatus"]) == 128 + signal.SIGTERM


def test_every_logger_of_the_page_is_one_of_the_package() -> None:
    table = PAGE.read_text("utf-8").partition("## Logs")[2]
    named = set(re.findall(r"^\| `(kafka_async\.\w+)`", table, re.MULTILINE))
    pattern = re.compile(r'getLogger\("(kafka_async\.\w+)"\)')
    package = Path(ROOT / "kafka_async")
    used = {name for path in package.rglob("*.py") for name in pattern.findall(path.read_text())}
    assert named
    assert named <= used
