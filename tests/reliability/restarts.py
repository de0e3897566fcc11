"""Restarts the brokers of a cluster one by one, under consumers that must not notice it.

    python -m tests.reliability.restarts [--restarts 10] [--seed N] [--backend NAME]

Also `make reliability-restarts`. A rolling restart stops each of three brokers in order and starts
it again; the seed determines the order and the pauses. Meanwhile a producer writes, and four
consumers read, each in a group of one member: with an eager and with a cooperative assignor, in the
consumer protocol, and as a static member. No group may rebalance, no call may raise an error, and
each consumer must get each record once and in order. The result of a whole run on Apache Kafka is
written to benchmarks/results/, that of any other run to artifacts/reliability/.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from kafka_async import Admin, Client, Consumer, NewTopic, Producer
from kafka_async.errors import KafkaError
from kafka_async.testing.backends import BackendUnavailableError, BrokerControl, create_backend
from tests.programs import ROOT
from tests.recording_listener import RecordingListener

if TYPE_CHECKING:
    from kafka_async.foundation.clock import Dialer

BROKERS: Final = (1, 2, 3)
RESTARTS: Final = 10
"""Rolling restarts of a whole run."""
PARTITIONS: Final = 6
TOPIC: Final = "reliability-restarts"
SESSION_MS: Final = 30_000
MAX_AWAY_SECONDS: Final = 10.0
"""Time within which a broker has to be back."""
MAX_DOWN_SECONDS, MAX_PAUSE_SECONDS = 2.0, 5.0
"""Limits of the time between the stop and the start of a broker, and until the next stop."""
PRODUCE_INTERVAL: Final = 0.05
"""Seconds between two records."""
LIMIT_SECONDS: Final = 120.0
"""Limit for assignments at the start, for replicas to catch up, and for the last records."""
KINDS: Final[Mapping[str, Mapping[str, Any]]] = {
    "eager": {"partition_assignment_strategy": ["range"], "session_timeout_ms": SESSION_MS},
    "cooperative": {
        "partition_assignment_strategy": ["cooperative-sticky"],
        "session_timeout_ms": SESSION_MS,
    },
    "consumer": {"group_protocol": "consumer"},
    "static": {"group_instance_id": "restarts-1", "session_timeout_ms": SESSION_MS},
}
"""Options of the four consumers; brokers have the session of the consumer protocol."""
BROKER_PROPERTIES: Final = {
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.heartbeat.interval.ms": "3000",
}
RESULTS: Final = ROOT / "benchmarks" / "results"
ARTIFACTS: Final = Path("artifacts") / "reliability"
NAME: Final = "reliability_restarts.json"


@dataclass(frozen=True)
class BrokerRestart:
    """Describes the restart of one broker.

    Attributes:
        restart: Number of the rolling restart, from 1.
        broker: Id of the broker.
        down: Seconds between its stop and its start.
        pause: Seconds until the next stop, once all replicas are in sync.
    """

    restart: int
    broker: int
    down: float
    pause: float


def schedule(seed: int, restarts: int) -> list[BrokerRestart]:
    """Return the restarts of brokers that a seed determines."""
    chosen = random.Random(seed)
    return [
        BrokerRestart(
            number,
            broker,
            round(chosen.uniform(0, MAX_DOWN_SECONDS), 1),
            round(chosen.uniform(0, MAX_PAUSE_SECONDS), 1),
        )
        for number in range(1, restarts + 1)
        for broker in chosen.sample(BROKERS, len(BROKERS))
    ]


@dataclass
class Observations:
    """Records what the application of one group has seen.

    Attributes:
        generations: Generation or epoch at the start, and after each restart of a broker.
        member_ids: Member ids, likewise.
        changes: Calls of the rebalance listener after the first assignment.
        errors: Errors that calls have raised.
        offsets: Offsets of the returned records by partition.
    """

    generations: list[int] = field(default_factory=list[int])
    member_ids: list[str] = field(default_factory=list[str])
    changes: list[str] = field(default_factory=list[str])
    errors: list[str] = field(default_factory=list[str])
    offsets: dict[int, list[int]] = field(default_factory=dict[int, list[int]])


def faults_of(seen: Observations, written: Mapping[int, int]) -> list[str]:
    """Return what a group must not have seen; `written` has the number of records by partition."""
    faults = [f"error: {error}" for error in seen.errors]
    if len(set(seen.generations)) != 1:
        faults.append(f"the generation has changed: {seen.generations}")
    if len(set(seen.member_ids)) != 1:
        faults.append(f"the member id has changed: {seen.member_ids}")
    faults += [f"the assignment has changed: {change}" for change in seen.changes]
    for partition, count in written.items():
        if seen.offsets.get(partition, []) != list(range(count)):
            faults.append(f"partition {partition}: not each of {count} records once and in order")
    return faults


class RestartableCluster(Protocol):
    """A cluster whose brokers can be restarted."""

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` of every broker, separated by commas."""
        ...

    async def stop_broker(self, broker_id: int) -> None:
        """Shut a broker down in order."""
        ...

    async def start_broker(self, broker_id: int) -> None:
        """Start a broker and wait until it is ready."""
        ...


class ThreadedControl:
    """Controls the brokers of a backend, whose calls block, from an event loop."""

    def __init__(self, servers: str, control: BrokerControl) -> None:
        self.bootstrap_servers = servers
        self._control = control

    async def stop_broker(self, broker_id: int) -> None:
        """Shut a broker down in order."""
        await asyncio.to_thread(self._control.stop_broker, broker_id)

    async def start_broker(self, broker_id: int) -> None:
        """Start a broker and wait until it is ready."""
        await asyncio.to_thread(self._control.start_broker, broker_id)


class GroupReader:
    """Reads the topic as the only member of a group, and commits what it has read."""

    def __init__(self, kind: str, servers: str, dialer: Dialer | None) -> None:
        self.seen = Observations()
        self._listener = RecordingListener()
        options: dict[str, Any] = {
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "client_id": f"restarts-{kind}",
            **KINDS[kind],
        }
        self.consumer = Consumer(
            servers,
            topics=[TOPIC],
            group_id=f"restarts-{kind}",
            listener=self._listener,
            dialer=dialer,
            **options,
        )

    async def run(self) -> None:
        """Read until the task is cancelled."""
        while True:
            try:
                records = await self.consumer.poll(timeout=1.0)
                for record in records:
                    self.seen.offsets.setdefault(record.partition, []).append(record.offset)
                if records:
                    await self.consumer.commit()
            except KafkaError as error:
                self.seen.errors.append(repr(error))

    def note(self) -> None:
        """Record the generation, the member id, and changes of the assignment."""
        identity = self.consumer.group_metadata()
        self.seen.generations.append(identity.generation_id)
        self.seen.member_ids.append(identity.member_id)
        self.seen.changes = [f"{name} {which}" for name, which in self._listener.lines[1:]]

    def has_read(self, written: Mapping[int, int]) -> bool:
        """Return True if as many records were returned as were written."""
        return all(len(self.seen.offsets.get(p, ())) >= n for p, n in written.items())


@dataclass
class Result:
    """Holds the result of a run.

    Attributes:
        written: Number of records by partition.
        groups: Observations by kind of consumer.
        away: Seconds that each restart of a broker took.
        producer_errors: Errors of the producer.
    """

    written: dict[int, int] = field(default_factory=dict[int, int])
    groups: dict[str, Observations] = field(default_factory=dict[str, Observations])
    away: list[float] = field(default_factory=list[float])
    producer_errors: list[str] = field(default_factory=list[str])

    def faults(self) -> list[str]:
        """Return everything that must not have happened."""
        return [
            *(f"producer: {error}" for error in self.producer_errors),
            *(
                f"{kind}: {fault}"
                for kind, seen in self.groups.items()
                for fault in faults_of(seen, self.written)
            ),
        ]


async def produce(producer: Producer, result: Result, interval: float, end: asyncio.Event) -> None:
    """Write records to all partitions in turn until the end."""
    number = 0
    while not end.is_set():
        partition = number % PARTITIONS
        try:
            await producer.send(TOPIC, b"%d" % number, partition=partition)
        except KafkaError as error:
            result.producer_errors.append(repr(error))
        result.written[partition] = result.written.get(partition, 0) + 1
        number += 1
        await asyncio.sleep(interval)


async def wait_until(condition: Callable[[], bool], name: str) -> None:
    """Wait until a condition holds; raise TimeoutError with the name if it does not in time."""
    try:
        async with asyncio.timeout(LIMIT_SECONDS):
            while not condition():  # noqa: ASYNC110
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise TimeoutError(f"{name}: not within {LIMIT_SECONDS:g} s") from None


async def wait_until_in_sync(admin: Admin) -> None:
    """Wait until all replicas of the topic and of the offsets are in sync."""
    async with asyncio.timeout(LIMIT_SECONDS):
        while True:
            topics = await admin.describe_topics([TOPIC, "__consumer_offsets"])
            rows = [row for topic in topics.values() for row in topic.partitions]
            if all(len(row.in_sync) == len(row.replicas) for row in rows):
                return
            await asyncio.sleep(0.2)


async def run(
    cluster: RestartableCluster,
    steps: Sequence[BrokerRestart],
    say: Callable[[str], None],
    dialer: Dialer | None = None,
    interval: float = PRODUCE_INTERVAL,
) -> Result:
    """Restart the brokers while a record is written every `interval`; return what was observed."""
    now, servers, result = asyncio.get_running_loop().time, cluster.bootstrap_servers, Result()
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(Client(servers, dialer=dialer))
        admin = await stack.enter_async_context(Admin(client))
        await admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)])
        readers = {kind: GroupReader(kind, servers, dialer) for kind in KINDS}
        result.groups = {kind: reader.seen for kind, reader in readers.items()}
        for reader in readers.values():
            await stack.enter_async_context(reader.consumer)
        producer = await stack.enter_async_context(Producer(servers, dialer=dialer))
        tasks = [asyncio.create_task(reader.run()) for reader in readers.values()]
        end = asyncio.Event()
        producing = asyncio.create_task(produce(producer, result, interval, end))
        try:
            for kind, reader in readers.items():
                await wait_until(
                    lambda r=reader: bool(r.seen.offsets), f"the first record of {kind}"
                )
            await wait_until_in_sync(admin)
            for reader in readers.values():
                reader.note()
            started = now()
            for step in steps:
                stopped = now()
                await cluster.stop_broker(step.broker)
                await asyncio.sleep(step.down)
                await cluster.start_broker(step.broker)
                result.away.append(round(now() - stopped, 1))
                await wait_until_in_sync(admin)
                await asyncio.sleep(step.pause)
                for reader in readers.values():
                    reader.note()
                generations = {kind: it.seen.generations[-1] for kind, it in readers.items()}
                say(
                    f"{now() - started:7.1f} s  restart {step.restart}: broker {step.broker} back "
                    f"after {result.away[-1]} s; generations {generations}"
                )
            # A session without heartbeats would end now.
            await asyncio.sleep(SESSION_MS / 1000)
            end.set()
            await producing
            for kind, reader in readers.items():
                await wait_until(
                    lambda r=reader: r.has_read(result.written), f"last record of {kind}"
                )
            for reader in readers.values():
                reader.note()
        finally:
            for task in (producing, *tasks):
                task.cancel()
            await asyncio.wait([producing, *tasks])
    return result


def verdict(result: Result) -> list[str]:
    """Return the lines that describe a result."""
    lines = [
        f"{kind}: generation {seen.generations[0]} at the start, {seen.generations[-1]} at the "
        f"end, {sum(map(len, seen.offsets.values()))} records, {len(seen.errors)} errors"
        for kind, seen in result.groups.items()
    ]
    longest = max(result.away, default=0.0)
    lines.append(f"{len(result.away)} restarts of brokers; away for {longest} s at most")
    if longest > MAX_AWAY_SECONDS:
        lines.append(
            f"the machine was slow: a broker was away for more than {MAX_AWAY_SECONDS:g} s"
        )
    return lines + (result.faults() or ["no group has rebalanced, and no call has raised"])


def say(text: str) -> None:
    """Print a text at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print the verdict and write the result; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.reliability.restarts", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--restarts", type=int, default=RESTARTS, help="default: 10")
    parser.add_argument("--seed", type=int, help="seed of the schedule (default: random)")
    parser.add_argument("--backend", default="apache", help="apache (default) or embedded")
    options = parser.parse_args(arguments)
    seed = random.SystemRandom().randrange(2**32) if options.seed is None else options.seed
    command = f"python -m tests.reliability.restarts --restarts {options.restarts} --seed {seed}"
    command += f" --backend {options.backend}"
    say(f"{command}\nseed {seed}")
    steps = schedule(seed, options.restarts)
    for step in steps:
        say(
            f"restart {step.restart}: broker {step.broker}, down {step.down} s, then {step.pause} s"
        )
    try:
        with create_backend(
            options.backend, {"brokers": len(BROKERS), "properties": BROKER_PROPERTIES}
        ) as backend:
            assert isinstance(backend, BrokerControl)
            control = ThreadedControl(backend.bootstrap_servers, backend)
            result, name = asyncio.run(run(control, steps, say)), backend.name
    except BackendUnavailableError as error:
        say(str(error))
        return 1
    lines, faults = verdict(result), result.faults()
    whole = options.restarts >= RESTARTS and options.backend == "apache" and not faults
    folder = RESULTS if whole else ARTIFACTS
    folder.mkdir(parents=True, exist_ok=True)
    figures = {
        "command": command,
        "seed": seed,
        "backend": name,
        "date": date.today().isoformat(),
        "result": "unchanged" if not faults else "changed",
        "verdict": lines,
        "seconds away": result.away,
    }
    (folder / NAME).write_text(json.dumps(figures, indent=1) + "\n", "utf-8")
    for line in lines:
        say(line)
    say(f"result: {figures['result']} (seed {seed}); written: {folder / NAME}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
