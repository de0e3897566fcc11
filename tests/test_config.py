"""Options: Kafka's names, checked once, with one clear line for what is wrong."""

from __future__ import annotations

import dataclasses
import ssl
from typing import Any

import pytest

from kafka_async import config
from kafka_async.config import ClientConfig, ConsumerConfig, ProducerConfig
from kafka_async.errors import InvalidConfigurationError

ROLES = [
    (ClientConfig, config.ClientOptions),
    (ProducerConfig, config.ProducerOptions),
    (ConsumerConfig, config.ConsumerOptions),
]


@pytest.mark.parametrize(("role", "options"), ROLES)
def test_the_keyword_arguments_are_the_fields(role: type[Any], options: type[Any]) -> None:
    fields = {field.name for field in dataclasses.fields(role)} - {"bootstrap_servers"}
    assert options.__annotations__.keys() == fields


@pytest.mark.parametrize(("role", "_options"), ROLES)
def test_every_option_is_documented(role: type[Any], _options: type[Any]) -> None:
    assert all(field.metadata["doc"].endswith(".") for field in dataclasses.fields(role))


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"linger": 5}, ["linger", "linger_ms"]),
        ({"compression_type": "zip"}, ["compression_type", "'zstd'"]),
        ({"batch_size": -1}, ["batch_size", "at least 0"]),
        ({"batch_size": "large"}, ["batch_size", "not a number"]),
        ({"linger_ms": True}, ["linger_ms", "not a number"]),
        ({"acks": 1}, ["acks", "enable_idempotence"]),
        ({"max_in_flight_requests_per_connection": 6}, ["max_in_flight", "enable_idempotence"]),
        (
            {"transactional_id": "a", "enable_idempotence": False},
            ["transactional_id", "enable_idempotence"],
        ),
        ({"delivery_timeout_ms": 1000}, ["delivery_timeout_ms", "request_timeout_ms"]),
        ({"retry_backoff_ms": 5000}, ["retry_backoff_ms", "retry_backoff_max_ms"]),
        ({"ssl_context": ssl.create_default_context()}, ["ssl_context", "security_protocol"]),
    ],
)
def test_what_is_wrong_with_a_producer_is_said_at_once(
    options: dict[str, Any], names: list[str]
) -> None:
    with pytest.raises(InvalidConfigurationError) as raised:
        ProducerConfig.create("localhost:9092", **options)
    for name in names:
        assert name in str(raised.value)


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"heartbeat_interval_ms": 45_000}, ["heartbeat_interval_ms", "session_timeout_ms"]),
        ({"group_instance_id": "a"}, ["group_instance_id", "group_id"]),
        ({"partition_assignment_strategy": []}, ["partition_assignment_strategy"]),
        ({"fetch_max_bytes": 2**31}, ["fetch_max_bytes", "104857600"]),
    ],
)
def test_what_is_wrong_with_a_consumer_is_said_at_once(
    options: dict[str, Any], names: list[str]
) -> None:
    with pytest.raises(InvalidConfigurationError) as raised:
        ConsumerConfig.create("localhost:9092", **options)
    for name in names:
        assert name in str(raised.value)


def test_java_property_names_are_read_and_converted() -> None:
    read = ProducerConfig.from_properties(
        {
            "bootstrap.servers": "a:9092,b:9093",
            "linger.ms": "7",
            "enable.idempotence": "FALSE",
            "acks": "all",
            "compression.type": "lz4",
        }
    )
    assert read.bootstrap_servers == ("a:9092", "b:9093")
    assert (read.linger_ms, read.enable_idempotence, read.compression_type) == (7, False, "lz4")


@pytest.mark.parametrize(
    "properties",
    [
        {"bootstrap.servers": "a:1", "enable.idempotence": "maybe"},
        {"bootstrap.servers": "a:1", "linger.ms": "soon"},
        {"bootstrap.servers": "a:1", "lingering.ms": "5"},
        {"linger.ms": "5"},
    ],
)
def test_properties_that_make_no_sense_are_refused(properties: dict[str, object]) -> None:
    with pytest.raises(InvalidConfigurationError):
        ProducerConfig.from_properties(properties)


@pytest.mark.parametrize(
    ("servers", "expected"),
    [
        ("localhost:9092", ("localhost:9092",)),
        (" a:1 , b:2 ,", ("a:1", "b:2")),
        (["a:1", "b:2"], ("a:1", "b:2")),
        ("PLAINTEXT://broker:9092", ("broker:9092",)),
        ("[::1]:9092", ("[::1]:9092",)),
    ],
)
def test_bootstrap_servers_in_every_usual_form(servers: Any, expected: tuple[str, ...]) -> None:
    assert config.parse_servers(servers) == expected


@pytest.mark.parametrize("servers", ["", [], "localhost", "host:port", "a:0", "a:65536", "a b:1"])
def test_an_address_that_is_none_is_named(servers: Any) -> None:
    with pytest.raises(InvalidConfigurationError, match="localhost:9092"):
        config.parse_servers(servers)


def test_a_role_that_shares_a_client_takes_its_connection_options_from_it() -> None:
    client = ClientConfig.create("a:1", client_id="web", request_timeout_ms=5000)
    producer = ProducerConfig.shared(client, linger_ms=1)
    assert (producer.client_id, producer.request_timeout_ms, producer.linger_ms) == ("web", 5000, 1)
    with pytest.raises(InvalidConfigurationError, match="client_id belongs to the shared Client"):
        ProducerConfig.shared(client, client_id="mine")


def test_a_configuration_cannot_be_changed() -> None:
    made = ClientConfig.create("a:1")
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.client_id = "other"  # type: ignore[misc]  # that is the point
