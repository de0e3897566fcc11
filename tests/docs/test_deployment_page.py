"""The times, exit status and loggers of the deployment page agree with the code."""

from __future__ import annotations

import asyncio
import configparser
import re
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from kafka_async.config import ClientConfig, seconds
from kafka_async.consumer.consumer import ERROR_CLOSE_TIMEOUT as CANCELLED_CONSUMER
from kafka_async.embedded import EmbeddedCluster
from tests.docs.markdown_blocks import ROOT, blocks_of

PAGE = ROOT / "docs" / "deployment.md"


def block(language: str) -> str:
    """Return the page's only block of a language."""
    (found,) = (block.body for block in blocks_of(PAGE) if block.language == language)
    return found


def pod() -> dict[str, Any]:
    return yaml.safe_load(block("yaml"))["spec"]["template"]["spec"]


def seconds_for_requests(command: list[str]) -> float:
    return float(command[command.index("--timeout-graceful-shutdown") + 1])


def longest_stop() -> float:
    """Return the sum of the times for open requests, the cancelled consumer and the producer."""
    close = seconds(ClientConfig(bootstrap_servers=("a:1",)).close_timeout_ms)
    return seconds_for_requests(pod()["containers"][0]["command"]) + CANCELLED_CONSUMER + close


def test_grace_period_of_the_pod_covers_the_longest_stop() -> None:
    assert f"{longest_stop():g} s" in PAGE.read_text("utf-8")
    assert pod()["terminationGracePeriodSeconds"] > longest_stop()


def test_startup_probe_allows_for_the_longest_start() -> None:
    probe = pod()["containers"][0]["startupProbe"]
    longest = seconds(ClientConfig(bootstrap_servers=("a:1",)).default_api_timeout_ms)
    assert probe["periodSeconds"] * probe["failureThreshold"] > longest


def test_systemd_unit_allows_for_the_time_and_exit_status_of_a_stop() -> None:
    unit = configparser.ConfigParser()
    unit.read_string(block("ini"))
    close = seconds(ClientConfig(bootstrap_servers=("a:1",)).close_timeout_ms)
    assert float(unit["Service"]["TimeoutStopSec"]) > close
    assert int(unit["Service"]["SuccessExitStatus"]) == 128 + signal.SIGTERM


def test_loggers_of_the_page_exist_in_the_package() -> None:
    table = PAGE.read_text("utf-8").partition("## Logs")[2]
    named = set(re.findall(r"^\| `(kafka_async\.\w+)`", table, re.MULTILINE))
    pattern = re.compile(r'getLogger\("(kafka_async\.\w+)"\)')
    package = Path(ROOT / "kafka_async")
    used = {name for path in package.rglob("*.py") for name in pattern.findall(path.read_text())}
    assert named
    assert named <= used


@asynccontextmanager
async def service(servers: str) -> AsyncGenerator[tuple[dict[str, Any], httpx.AsyncClient]]:
    """Start the page's service; yield the names of its module, and an HTTP client for it."""
    first = next(block for block in blocks_of(PAGE) if block.language == "python")
    names: dict[str, Any] = {"__name__": "service"}
    exec(first.program(servers), names)
    app = names["app"]
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://service") as http,
    ):
        yield names, http


async def until_status(http: httpx.AsyncClient, path: str, status: int) -> None:
    async with asyncio.timeout(60):
        while (await http.get(path)).status_code != status:  # noqa: ASYNC110  # as a probe polls
            await asyncio.sleep(0.02)


@pytest.mark.asyncio
async def test_probes_of_the_page_distinguish_an_outage_from_a_failed_client() -> None:
    async with EmbeddedCluster() as cluster, service(cluster.bootstrap_servers) as (names, http):
        assert (await http.post("/pages", content=b"/home")).status_code == 200
        await until_status(http, "/ready", 200)
        await cluster.stop_broker(1)
        await until_status(http, "/ready", 503)
        assert (await http.get("/alive")).status_code == 200
        await cluster.start_broker(1)
        await until_status(http, "/ready", 200)
        assert (await http.get("/alive")).status_code == 200
        names["counts"] = None  # a bug: the task raises at the next record
        assert (await http.post("/pages", content=b"/home")).status_code == 200
        await asyncio.wait([names["app"].state.task], timeout=60)
        response = await http.get("/alive")
        assert response.status_code == 503
        found = response.json()
        assert found["consumer"] == "closed"
        assert re.match("(TypeError|AttributeError)", found["error"])
