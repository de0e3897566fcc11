"""Every number of the public API is used with its meaning, or refused at once.

The options and arguments are read from the annotations of the code, so that a new one is tested as
soon as it exists: an argument without a call in `CALLS` fails the test of completeness.
"""

from __future__ import annotations

import asyncio
import dataclasses
import math
import re
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from random import Random
from typing import Any, Final

import pytest

from kafka_async.admin import NewTopic
from kafka_async.config import (
    ClientConfig,
    ConsumerConfig,
    GroupMemberConfig,
    ProducerConfig,
    ShareConsumerConfig,
    request_ms,
)
from kafka_async.errors import (
    InvalidConfigurationError,
    InvalidSessionTimeoutError,
    KafkaError,
    KafkaTimeoutError,
    RecordTooLargeError,
)
from kafka_async.foundation.arguments import milliseconds
from kafka_async.hooks import Connected
from kafka_async.types import TopicPartition
from tests.conftest import SEED
from tests.embedded_client import InMemory

np: Any = pytest.importorskip("numpy")

T = "t"
TP = TopicPartition(T, 0)
LOCAL = datetime(2024, 1, 2)  # a naive one

VALUES: Final[Mapping[str, Any]] = {
    "zero": 0,
    "negative": -1,
    "negative float": -0.5,
    "denormal": 5e-324,
    "tiny": 1e-9,
    "half": 0.5,
    "one": 1,
    "below 2**31": 2**31 - 1,
    "2**31": 2**31,
    "below 2**63": 2**63 - 1,
    "2**63": 2**63,
    "float 2**63": float(2**63),
    "no float": 10**400,
    "infinity": math.inf,
    "-infinity": -math.inf,
    "nan": math.nan,
    "bool": True,
    "decimal": Decimal("1.5"),
    "fraction": Fraction(3, 2),
    "int64": np.int64(1),
    "int8": np.int8(100),
    "float64": np.float64(1.5),
    "float32": np.float32(1.5),
    "numpy bool": np.bool_(True),
    "timedelta64": np.timedelta64(1, "s"),
    "datetime64": np.datetime64("2024-01-02"),
    "timedelta": timedelta(seconds=1),
    "naive": LOCAL,
    "aware": LOCAL.replace(tzinfo=UTC),
    "text": "1",
    "list": [1],
}
NO_NUMBERS: Final = {
    *("bool", "decimal", "fraction", "float32", "numpy bool", "timedelta64", "datetime64"),
    *("timedelta", "text", "list"),
}
"""Objects that are no number in any option or argument."""
CONFIGS: Final = (ClientConfig, ProducerConfig, ConsumerConfig, ShareConsumerConfig)


# -- options --------------------------------------------------------------------------------------


def numeric_options(config: type[Any]) -> list[str]:
    rows = dataclasses.fields(config)
    return [row.name for row in rows if re.match(r"(int|float)\b", str(row.type))]


def accepted(config: type[Any], name: str, value: Any) -> Any:
    """Return the configuration with an option, or None if the option is refused by name."""
    needed = {"group_protocol": "consumer"} if name == "rewind_check_interval_ms" else {}
    try:
        return config("localhost:9092", **{name: value}, **needed)
    except InvalidConfigurationError as error:
        assert name in str(error)  # noqa: PT017  # the other outcome is to be accepted
        return None


@pytest.mark.parametrize("config", [*CONFIGS, GroupMemberConfig])
def test_numeric_options_accept_numbers_in_their_bounds_only(config: type[Any]) -> None:
    for name in numeric_options(config):
        default = getattr(config("localhost:9092"), name)
        for label, value in VALUES.items():
            made = accepted(config, name, value)
            if label in NO_NUMBERS | {"nan", "naive", "aware"}:
                assert made is None, (name, label)
            elif made is not None:
                stored = getattr(made, name)
                assert type(stored) in (int, float, np.float64), (name, label)
                assert stored == value or math.isinf(stored), (name, label)
        assert accepted(config, name, default) is not None


def extremes(config: type[Any]) -> Iterator[tuple[str, Any]]:
    """Yield each numeric option with the lowest and the highest number that it accepts."""
    numbers = [value for value in VALUES.values() if type(value) in (int, float)]
    for name in numeric_options(config):
        found = [value for value in numbers if accepted(config, name, value) is not None]
        if found:  # Others need options besides, as a SASL mechanism.
            smallest = min((value for value in found if value > 0), default=0)
            yield from {(name, min(found)), (name, max(found)), (name, smallest)}


ROLES: Final = {"producer": ProducerConfig, "consumer": ConsumerConfig}
"""All numeric options of share consumers are options of consumers too."""
EXTREMES: Final = [
    pytest.param(role, name, value, id=f"{role}-{name}={value}")
    for role, config in ROLES.items()
    for name, value in extremes(config)
    if role == "producer" or name not in numeric_options(ClientConfig)
]
TOO_LOW_OR_HIGH: Final[Mapping[tuple[str, float], type[KafkaError]]] = {
    ("buffer_memory", 1): RecordTooLargeError,
    ("max_request_size", 1): RecordTooLargeError,
    ("max_block_ms", 0): KafkaTimeoutError,
    ("max_block_ms", 5e-324): KafkaTimeoutError,
    ("session_timeout_ms", 2**31 - 1): InvalidSessionTimeoutError,
}
"""Numbers with which no record can be sent, or that brokers refuse."""


async def round_trip(memory: InMemory, topic: str, role: str, **options: Any) -> None:
    """Write and read a record with a client that has these options."""
    await memory.cluster.create_topic(topic, 1)
    given: dict[str, dict[str, Any]] = {"producer": {}, "consumer": {}, role: options}
    if "rewind_check_interval_ms" in options:
        options["group_protocol"] = "consumer"
    async with memory.producer(**given["producer"]) as producer:
        await producer.send(topic, b"v")
    reading = {"group_id": "g", "auto_offset_reset": "earliest", **given["consumer"]}
    async with memory.consumer(topic, **reading) as reader:
        assert [record.value for record in await reader.poll(timeout=100)] == [b"v"]


@pytest.mark.asyncio
@pytest.mark.virtual_clock
@pytest.mark.parametrize(("role", "name", "value"), EXTREMES)
async def test_clients_work_with_the_lowest_and_highest_number_of_an_option(
    role: str, name: str, value: float
) -> None:
    error = TOO_LOW_OR_HIGH.get((name, value))
    with nullcontext() if error is None else pytest.raises(error):
        async with InMemory() as memory:
            await round_trip(memory, T, role, **{name: value})


@pytest.mark.asyncio
@pytest.mark.parametrize("limit", [math.inf, 2**63, 2**31])
async def test_times_without_a_limit_work_on_the_event_loop_in_use(limit: float) -> None:
    """Timers of asyncio and of uvloop convert times differently."""
    async with InMemory() as memory:
        for number, (role, config) in enumerate(ROLES.items()):
            rows = {row.name: str(row.type) for row in dataclasses.fields(config)}
            options = {name: limit for name, kind in rows.items() if kind == "float"}
            options |= {"linger_ms": 0} if role == "producer" else {}
            await round_trip(memory, f"{T}-{number}", role, **options)
        async with memory.admin() as admin:
            await admin.create_topics([NewTopic("new", 1)], timeout=limit)
            await asyncio.wait_for(admin.stop(timeout=limit), 60)


# -- times ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("when", "expected"),
    [
        (0, 0),
        (5e-324, 0),
        (1.0001, 1001),
        (1_700_000_000.001, 1_700_000_000_001),
        (1_700_000_000.0011, 1_700_000_000_002),
        (np.int64(5), 5000),
        (datetime(2024, 1, 2, tzinfo=UTC), 1_704_153_600_000),
        (datetime(2024, 1, 2, 0, 0, 0, 1, tzinfo=UTC), 1_704_153_600_001),
        (LOCAL, round(LOCAL.timestamp() * 1000)),
        (datetime.max.replace(tzinfo=UTC), 253_402_300_800_000),
    ],
)
def test_parts_of_a_millisecond_are_rounded_up(when: Any, expected: int) -> None:
    assert milliseconds(when) == expected


def test_every_millisecond_in_seconds_is_itself() -> None:
    random = Random(SEED)
    for ms in [random.randrange(100_000_000_000_000) for _ in range(10_000)]:
        assert milliseconds(ms / 1000) == ms


@pytest.mark.parametrize(
    "when",
    [
        datetime.min,
        datetime.min.replace(tzinfo=UTC),
        datetime.min.replace(tzinfo=timezone(timedelta(hours=1))),
        datetime.max.replace(tzinfo=timezone(timedelta(hours=-1))),
        datetime(1969, 12, 31, tzinfo=UTC),
    ],
)
def test_datetimes_before_1970_or_beyond_the_calendar_are_refused(when: datetime) -> None:
    with pytest.raises(ValueError, match=r"^when is "):
        milliseconds(when)


@pytest.mark.parametrize(
    ("duration", "expected"),
    [
        (0, 0),
        (-1, 0),
        (-math.inf, 0),
        (1e-9, 1),
        (0.0014, 1),
        (4.035, 4035),
        (2_147_483.647, 2**31 - 1),
        (2_147_483.648, 2**31 - 1),
        (1e300, 2**31 - 1),
        (math.inf, 2**31 - 1),
    ],
)
def test_times_of_requests_fit_in_int32(duration: float, expected: int) -> None:
    assert request_ms(duration) == expected


@pytest.mark.asyncio
@pytest.mark.virtual_clock
async def test_connection_is_used_before_its_idle_time_ends_it() -> None:
    loop: Any = asyncio.get_running_loop()
    async with InMemory() as memory:
        await memory.cluster.create_topic(T, 1)
        async with memory.producer(connections_max_idle_ms=1) as producer:
            # Tasks that wait for a connection run later than its first idle time ends.
            producer.client.hooks.listen(Connected, lambda _: loop.block(0.1))
            for _ in range(3):
                await asyncio.wait_for(producer.send(T, b"v"), 5)
                await asyncio.sleep(10)
            assert memory.attempts(1) <= 5
            assert memory.connections() == 0


def test_idle_time_of_zero_is_refused() -> None:
    with pytest.raises(InvalidConfigurationError, match="connections_max_idle_ms=0 must be at lea"):
        ClientConfig("localhost:9092", connections_max_idle_ms=0)
