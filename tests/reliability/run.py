"""Runs a streaming query from Kafka to Kafka, exactly once, while its processes are killed."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import re
import signal
import sys
import time
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

from kafka_async import Admin, Consumer, NewTopic, Producer, TopicPartition
from kafka_async.admin import OffsetSpec
from kafka_async.errors import KafkaError
from tests.reliability.end_txn_proxy import EndTxnProxy, Hold
from tests.reliability.fault_schedule import (
    BROKERS,
    DRIVER_KILLS,
    MAX_KILL_SECONDS,
    PARTITIONS,
    SECOND_DRIVERS,
    Fault,
    FaultKind,
    Goal,
    Kill,
    Round,
    rounds,
)
from tests.reliability.processes import Driver, executors, python_workers, signal_all
from tests.reliability.row_check import Verdict, check, ends_of_epoch
from tests.reliability.streaming_driver import DriverOptions

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from pathlib import Path

    from kafka_async.testing.backends.base import Backend, BrokerControl

INPUT: Final = "reliability-input"
OUTPUT: Final = "reliability-output"
SINK: Final = "reliability"
ROWS_PER_PAUSE: Final = 5
PAUSE: Final = 0.05
"""Seconds between writes of input records."""
LOCAL: Final = "local[2,4]"
FIRST_EPOCH_SECONDS: Final = 480.0
"""Limit for a driver's start and first epoch, on a machine that does much else."""
SECOND_DRIVER_SECONDS: Final = 120.0
"""Limit for the end of one of two drivers."""
OPEN_TRANSACTION_SECONDS: Final = 5.0
"""Time after the last epoch in which a transaction may be open."""
STANDBY: Final = 2
"""Local drivers that have started Spark and wait. One with executors would take all cores."""
MAX_STARTS: Final = 8
"""Starts of a driver per round, and at the end of a run."""
REPLACED: Final = ("ProducerFencedError", "CONCURRENT_STREAM_LOG_UPDATE")
"""Errors with which the earlier one of two drivers may end: the sink's, and the checkpoint's."""


SPARK_ERRORS: Final = ("PythonError", "PySparkRuntimeError", "SparkRuntimeError")
"""Errors in which Spark wraps others."""
MAX_NAME: Final = 100
MAX_TEXT: Final = 300


class ReliabilityError(Exception):
    """The run cannot continue, or found something other than a difference of rows."""


@dataclass
class Record:
    """Records the events of a run.

    Attributes:
        kills: Kills of processes.
        failures: Errors with which queries ended by themselves, and how often.
        fenced: Number of drivers that another one has replaced.
        faults: Number of faults by kind.
        events: Seconds since the start, and a text.
        rounds: Number of rounds.
        epochs: Number of epochs, as of the last comparison.
        verdicts: Last verdict of each cluster; a run that was interrupted continues on a new one.
    """

    kills: list[Kill] = field(default_factory=list[Kill])
    failures: dict[str, int] = field(default_factory=dict[str, int])
    fenced: int = 0
    faults: dict[str, int] = field(default_factory=dict[str, int])
    events: list[tuple[float, str]] = field(default_factory=list[tuple[float, str]])
    rounds: int = 0
    epochs: int = 0
    verdicts: list[str] = field(default_factory=list[str])
    started: float = field(default_factory=time.monotonic)

    def saved(self) -> dict[str, Any]:
        """Return the record for `continued`, as JSON has it."""
        values = asdict(self)
        del values["started"]
        return values | {"seconds": round(self.seconds, 1)}

    @classmethod
    def continued(cls, saved: dict[str, Any]) -> Record:
        """Return a record that continues one that was saved."""
        values = dict(saved)
        started = time.monotonic() - values.pop("seconds")
        kills = [Kill(**kill) for kill in values.pop("kills")]
        events = [(seconds, text) for seconds, text in values.pop("events")]
        return cls(kills=kills, events=events, started=started, **values)

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.started

    def say(self, text: str) -> None:
        """Record and print an event."""
        self.events.append((round(self.seconds, 1), text))
        sys.stdout.write(f"{self.seconds:7.1f} s  {text}\n")
        sys.stdout.flush()

    def add_failure(self, error: str) -> None:
        """Count an error of a query by the name of its class."""
        name = error_name(error)
        self.failures[name] = self.failures.get(name, 0) + 1

    def add_fault(self, kind: FaultKind) -> None:
        self.faults[kind.value] = self.faults.get(kind.value, 0) + 1


class Run:
    """Runs rounds of faults on a cluster.

    Args:
        backend: A running cluster with three brokers.
        spark_master: URL of a standalone cluster of Spark.
        directory: Directory of the checkpoint and the drivers' logs.
        seed: Seed of the faults.
        record: Record to continue, without the rounds that it has.
    """

    def __init__(
        self,
        backend: Backend,
        spark_master: str,
        directory: Path,
        seed: int,
        record: Record | None = None,
    ) -> None:
        self.record = record or Record()
        self._earlier_epochs = self.record.epochs
        self._earlier_verdicts = self.record.verdicts.copy()
        self._servers = backend.bootstrap_servers
        self._control: BrokerControl = backend  # pyright: ignore[reportAttributeAccessIssue]
        self._spark_master = spark_master
        self._directory = directory
        self._standby: dict[str, list[Driver]] = {LOCAL: [], spark_master: []}
        self._rounds = rounds(seed, self.record.rounds)
        self._rows = itertools.count()
        self._rng = random.Random(seed)
        self._proxy = EndTxnProxy()
        self._brokers = asyncio.Lock()
        self._background: set[asyncio.Task[None]] = set()

    async def run(
        self, goal: Goal, deadline: float, part: float, save: Callable[[], None]
    ) -> Verdict:
        """Run rounds until the goal is reached, and compare the rows after each part.

        Args:
            goal: What the run needs.
            deadline: Seconds after which no further round starts.
            part: Seconds after which the input is read to its end and compared with the output.
            save: Called after each comparison that leaves something to do.

        Raises:
            ReliabilityError: The goal was missed, a driver did not start, two drivers ran side by
                side, or a transaction stayed open.
        """
        await self._proxy.start(int(each.rpartition(":")[2]) for each in self._servers.split(","))
        async with Admin(self._servers) as admin:
            await admin.create_topics([NewTopic(INPUT, PARTITIONS), NewTopic(OUTPUT, PARTITIONS)])
        record = self.record
        try:
            while True:
                missing = await self._run_part(goal, min(deadline, record.seconds + part))
                verdict = await self._compare()
                record.epochs = self.epochs
                record.verdicts = [*self._earlier_verdicts, str(verdict)]
                if not verdict.is_exact or not missing or record.seconds > deadline:
                    break
                save()
        finally:
            for task in self._background:
                task.cancel()
            for driver in itertools.chain(*self._standby.values()):
                await driver.kill()
            await self._proxy.stop()
        if missing and verdict.is_exact:
            raise ReliabilityError(f"{verdict}; the run was too short: {', '.join(missing)}")
        return verdict

    async def _run_part(self, goal: Goal, deadline: float) -> list[str]:
        """Run rounds until the goal or the deadline; return what the goal lacks."""
        record = self.record
        async with self._producing():
            while missing := goal.missing(record.seconds, record.kills, self.epochs):
                if record.seconds > deadline:
                    break
                round_ = next(self._rounds)
                record.say(f"round {record.rounds + 1}: {round_}")
                await self._run_round(round_)
                record.rounds += 1
        return missing

    async def _compare(self) -> Verdict:
        await asyncio.gather(*self._background)
        await self._read_to_the_end()
        await self._check_open_transactions()
        verdict = check(await self._input(), await self._output(), self._ends())
        self.record.say(str(verdict))
        return verdict

    @property
    def epochs(self) -> int:
        """Number of committed epochs, those on the clusters of earlier parts included."""
        return self._earlier_epochs + len(self._ends())

    # -- rounds -----------------------------------------------------------------------------------

    async def _run_round(self, round_: Round) -> None:
        master = self._spark_master if round_.has_executors else LOCAL
        driver = await self._start(master)
        begun = time.monotonic()
        for fault in round_.faults:
            await asyncio.sleep(max(0.0, begun + fault.at - time.monotonic()))
            if not driver.is_running:
                await self._note_failure(driver)
                driver = await self._start(master)
                begun = time.monotonic()
                await asyncio.sleep(fault.at)
            self.record.add_fault(fault.kind)
            if fault.kind in SECOND_DRIVERS:
                driver = await self._run_second_driver(driver, master, fault)
                begun = time.monotonic()
            elif fault.kind in DRIVER_KILLS:
                await self._kill(driver, fault, begun)
            else:
                await self._inject(driver, fault, begun)

    async def _start(self, master: str) -> Driver:
        """Start a driver and wait for its first epoch; it is started again if its query fails."""
        for _ in range(MAX_STARTS):
            driver = await self._take(master)
            try:
                async with asyncio.timeout(FIRST_EPOCH_SECONDS):
                    await driver.begin()
                    await driver.first_epoch()
            except TimeoutError:
                await driver.kill()
                raise ReliabilityError("a driver has no epoch") from None
            if driver.is_running:
                self.record.say(f"driver {driver.pid}: first epoch")
                return driver
            await self._note_failure(driver)
        raise ReliabilityError(f"{MAX_STARTS} drivers in a row have failed")

    async def _take(self, master: str) -> Driver:
        """Return a driver whose Spark was started before, and start those that come next."""
        ready = self._standby[master]
        while len(ready) < (STANDBY + 1 if master == LOCAL else 1):
            ready.append(await self._start_process(master))
        return ready.pop(0)

    async def _start_process(self, master: str) -> Driver:
        sink = {
            "kafka.bootstrap.servers": self._servers,
            "kafka.request.timeout.ms": "10000",
            "topic": OUTPUT,
            "exactlyOnce": "true",
            "sinkId": SINK,
            "checkpointLocation": str(self._directory / "checkpoint"),
            "proxies": json.dumps(self._proxy.ports),
        }
        options = DriverOptions(master, self._servers, INPUT, sink)
        return await Driver.start(options, self._directory / "drivers.log")

    async def _note_failure(self, driver: Driver) -> None:
        await driver.ended()
        error = driver.error or "the process ended without an error"
        self.record.add_failure(error)
        self.record.say(f"driver {driver.pid} failed: {error_text(error)}")
        if "TornEpochError" in error:
            raise ReliabilityError(f"an epoch is torn: {error}")

    async def _kill(self, driver: Driver, fault: Fault, begun: float) -> None:
        in_commit, hold = False, None
        if fault.kind is FaultKind.KILL_DRIVER_IN_COMMIT:
            hold = self._proxy.hold(fault.number)
            left = begun + MAX_KILL_SECONDS - 0.5 - time.monotonic()
            try:
                async with asyncio.timeout(left):
                    await hold.held.wait()
                in_commit = True
            except TimeoutError:
                pass
            hold.stop()
        if driver.is_running:
            where = " between the decision and its last EndTxn" if in_commit else ""
            self._note_kill(f"driver {driver.pid}{where}", begun, in_commit=in_commit)
        await driver.kill()
        if hold is not None:
            self._in_background(self._release(hold, fault.seconds))

    def _note_kill(self, what: str, begun: float, *, in_commit: bool = False) -> None:
        seconds = time.monotonic() - begun
        self.record.kills.append(Kill(what.partition(" ")[0], seconds, in_commit))
        self.record.say(f"kill {what}, {seconds:.1f} s after the first epoch; {self.epochs} epochs")

    async def _release(self, hold: Hold, seconds: float) -> None:
        await asyncio.sleep(seconds)
        hold.release()

    # -- other faults -----------------------------------------------------------------------------

    async def _inject(self, driver: Driver, fault: Fault, begun: float) -> None:
        if fault.kind is FaultKind.KILL_BROKER:
            self._in_background(self._kill_broker(fault, begun))
        elif fault.kind is FaultKind.ROLL_BROKERS:
            self._in_background(self._roll_brokers())
        elif fault.kind is FaultKind.DELAY_END_TXN:
            self._in_background(self._release(self._proxy.hold(fault.number), fault.seconds))
        else:
            find = executors if fault.kind is FaultKind.KILL_EXECUTOR else _workers_of(driver)
            for _ in range(100):
                if found := find():
                    pid = self._rng.choice(found)
                    signal_all([pid], signal.SIGKILL)
                    what = fault.kind.value.removeprefix("kill ").partition(" ")[2]
                    self._note_kill(f"{what} {pid}", begun)
                    return
                await asyncio.sleep(0.1)
            self.record.say(f"{fault.kind.value}: there is none")

    async def _kill_broker(self, fault: Fault, begun: float) -> None:
        async with self._brokers:
            await asyncio.to_thread(self._control.kill_broker, fault.number)
            self._note_kill(f"broker {fault.number}", begun)
            await asyncio.sleep(fault.seconds)
            await self._start_broker(fault.number)
            self.record.say(f"broker {fault.number} is back")

    async def _start_broker(self, number: int) -> None:
        for attempt in range(MAX_STARTS):
            try:
                return await asyncio.to_thread(self._control.start_broker, number)
            except TimeoutError as error:  # The machine is busy: the broker is still starting.
                self.record.say(f"broker {number} is not ready after {attempt + 1} waits: {error}")
        raise ReliabilityError(f"broker {number} does not start")

    async def _roll_brokers(self) -> None:
        async with self._brokers:
            for number in range(1, BROKERS + 1):
                await asyncio.to_thread(self._control.stop_broker, number)
                await self._start_broker(number)
            self.record.say("all brokers were restarted")

    async def _run_second_driver(self, first: Driver, master: str, fault: Fault) -> Driver:
        """Start a second driver with the checkpoint of the first, and return the one that wins."""
        frozen: list[int] = []
        if fault.kind is FaultKind.SECOND_DRIVER_WHILE_FROZEN:
            frozen = first.freeze()
        try:
            second = await self._start(master)
        finally:
            signal_all(frozen, signal.SIGCONT)
        drivers = {asyncio.create_task(each.ended()): each for each in (first, second)}
        done, pending = await asyncio.wait(
            drivers, timeout=SECOND_DRIVER_SECONDS, return_when=asyncio.FIRST_COMPLETED
        )
        for task in pending:
            task.cancel()
        if not done:
            raise ReliabilityError("two drivers of one sink run side by side")
        for loser in [drivers[task] for task in done]:
            name = error_name(loser.error)
            which = "earlier" if loser is first else "later"
            self.record.say(f"the {which} driver {loser.pid} ended: {name}")
            if not any(error in loser.error for error in REPLACED):
                await self._note_failure(loser)
            elif "ProducerFencedError" in loser.error:
                self.record.fenced += 1
        running = [each for each in (second, first) if each.is_running]
        return running[0] if running else await self._start(master)

    def _in_background(self, call: Any) -> None:
        task = asyncio.create_task(call)
        self._background.add(task)

    # -- the end ----------------------------------------------------------------------------------

    async def _read_to_the_end(self) -> None:
        self.record.say("reading the rest of the input")
        for _ in range(MAX_STARTS):
            driver = await self._take(LOCAL)
            await driver.begin(finish=True)
            await driver.ended()
            if driver.is_done:
                return
            await self._note_failure(driver)
        raise ReliabilityError(f"{MAX_STARTS} drivers in a row have failed")

    async def _check_open_transactions(self) -> None:
        ended = time.monotonic()
        async with Admin(self._servers) as admin:
            while found := await admin.list_transactions(states=["Ongoing"], pattern=f"{SINK}:.*"):
                if time.monotonic() - ended > OPEN_TRANSACTION_SECONDS:
                    raise ReliabilityError(f"transactions are open: {', '.join(sorted(found))}")
                await asyncio.sleep(0.1)

    def _ends(self) -> list[dict[int, int]]:
        """Return the offsets at which each committed epoch ends."""
        checkpoint = self._directory / "checkpoint"
        committed = {path.name for path in checkpoint.glob("commits/[0-9]*")}
        offsets = sorted(checkpoint.glob("offsets/[0-9]*"), key=lambda path: int(path.name))
        return [
            ends_of_epoch(path.read_text(), INPUT) for path in offsets if path.name in committed
        ]

    async def _input(self) -> dict[tuple[int, int], bytes]:
        return {
            (partition, offset): value
            for partition, offset, value in await read_all(self._servers, INPUT)
        }

    async def _output(self) -> list[bytes]:
        return [value for _, _, value in await read_all(self._servers, OUTPUT)]

    @asynccontextmanager
    async def _producing(self) -> AsyncGenerator[None]:
        """Write input records all the time; those that the brokers refuse are no input."""
        stopped = asyncio.Event()

        async def produce() -> None:
            async with Producer(self._servers, linger_ms=50) as producer:
                for number in self._rows:
                    if stopped.is_set():
                        return
                    try:
                        await producer.enqueue(
                            INPUT, b"row %d" % number, partition=number % PARTITIONS
                        )
                    except KafkaError as error:
                        self.record.say(f"input: {error}")
                    if number % ROWS_PER_PAUSE == 0:
                        await asyncio.sleep(PAUSE)

        task = asyncio.create_task(produce())
        try:
            yield
        finally:
            stopped.set()
            await asyncio.gather(task, return_exceptions=True)


def error_name(error: str) -> str:
    """Return the class of the last error of this package in a text of Spark, or its first words."""
    ours = re.findall(r"\b(?:kafka_async\.errors\.)?([A-Z]\w+Error):", error)
    ours = [name for name in ours if name not in SPARK_ERRORS]
    if ours:
        return ours[-1]
    cause = error.partition("terminated with exception: ")[2] or error
    return cause[:MAX_NAME]


def error_text(error: str) -> str:
    """Return the beginning of the text of the error that `error_name` returns."""
    return error[error.rfind(error_name(error)) :][:MAX_TEXT]


async def read_all(servers: str, topic: str) -> list[tuple[int, int, bytes]]:
    """Return partition, offset and value of all committed records, once no transaction is open."""
    partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    latest = dict.fromkeys(partitions, OffsetSpec.LATEST)
    async with Admin(servers) as admin, asyncio.timeout(60):
        while (ends := await admin.list_offsets(latest)) != await admin.list_offsets(  # noqa: ASYNC110
            latest, isolation_level="read_committed"
        ):
            await asyncio.sleep(0.1)
    found: list[tuple[int, int, bytes]] = []
    async with Consumer(
        servers,
        partitions=partitions,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    ) as consumer:
        for partition in partitions:
            while await consumer.position(partition) < ends[partition].offset:
                found += [
                    (record.partition, record.offset, record.value or b"")
                    for record in await consumer.poll(max_records=10_000, timeout=0.5)
                ]
    return found


def _workers_of(driver: Driver) -> Any:
    return lambda: python_workers(driver.pid)


def describe(record: Record, epochs: int) -> dict[str, Any]:
    """Return the figures of a run for its file."""
    counted = [kill for kill in record.kills if kill.counts]
    return {
        "seconds": round(record.seconds),
        "epochs": epochs,
        "kills": len(counted),
        "kills by process": Counter(kill.what for kill in counted),
        "kills in a commit": sum(kill.in_commit for kill in counted),
        "faults": record.faults,
        "fenced drivers": record.fenced,
        "failures": record.failures,
        "verdict": "; ".join(record.verdicts),
        "events": record.events,
    }
