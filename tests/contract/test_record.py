"""The embedded cluster responds to every request of the contract as Apache Kafka did."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, Final

import pytest

from kafka_async.embedded.handlers.routes import routes_by_api_key
from kafka_async.protocol import api
from tests.contract.compare import differences, play, read_record
from tests.contract.model import SendRequest
from tests.contract.runner import error_codes
from tests.contract.scenarios import SCENARIOS

RECORD: Final = read_record()
MIN_REQUESTS, MIN_REQUESTS_PER_API, MIN_ERRORS_PER_API = 300, 5, 2


@pytest.mark.parametrize("number", range(len(SCENARIOS)), ids=[it.name for it in SCENARIOS])
def test_embedded_cluster_responds_as_kafka(number: int) -> None:
    found = json.loads(json.dumps(play(number).results))
    assert differences(RECORD[SCENARIOS[number].name], found) == []


def test_list_covers_every_supported_api() -> None:
    requests, errors = Counter[str](), Counter[str]()
    for scenario in SCENARIOS:
        for number, step in enumerate(scenario.steps, 1):
            if isinstance(step, SendRequest) and not step.setup:
                requests[step.api] += 1
                response = RECORD[scenario.name][f"{number} {step.api} v{step.version}"]
                errors[step.api] += bool(error_codes(response) - {0})
    supported = {api.lookup(key).name for key in routes_by_api_key({})}
    assert {name for name in supported if requests[name] < MIN_REQUESTS_PER_API} == set()
    assert {name for name in supported if errors[name] < MIN_ERRORS_PER_API} == set()
    assert requests.total() >= MIN_REQUESTS


def test_list_covers_every_supported_version() -> None:
    requested = {
        (step.api, step.version)
        for scenario in SCENARIOS
        for step in scenario.steps
        if isinstance(step, SendRequest)
    }
    missing = [
        (api.lookup(key).name, version)
        for key, route in routes_by_api_key({}).items()
        for version in range(route.lowest, route.highest + 1)
        if (api.lookup(key).name, version) not in requested
    ]
    assert missing == []


def test_record_is_of_these_requests() -> None:
    names = {it.name for it in SCENARIOS}
    assert len(names) == len(SCENARIOS)
    assert set(RECORD) == names
    for scenario in SCENARIOS:
        titles = {
            f"{number} {step.api} v{step.version}"
            for number, step in enumerate(scenario.steps, 1)
            if isinstance(step, SendRequest)
        }
        assert set(RECORD[scenario.name]) == titles


CHANGES: Final[list[tuple[dict[str, Any], str]]] = [
    ({"error_code": 6}, "/1/error_code"),
    ({"error_code": 3, "leader_id": 1}, "/1/leader_id"),
    ({}, "/1/error_code"),
    ({"error_code": 3, "rows": [{}]}, "/1/rows"),
]


@pytest.mark.parametrize(("changed", "path"), CHANGES)
def test_comparison_names_what_differs(changed: Any, path: str) -> None:
    [found] = differences({"1": {"error_code": 3}}, {"1": changed})
    assert found.startswith(f"{path}: Kafka ")


def test_comparison_accepts_the_same() -> None:
    response = {"1": {"error_code": 3, "rows": [{"index": 1}]}}
    assert differences(response, json.loads(json.dumps(response))) == []
