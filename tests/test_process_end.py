"""The end of a process: records of clients are delivered, or an error on stderr counts them.

Each test runs a program that writes a dot for each record that a producer has accepted.
"""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async import blocking
from kafka_async.admin import OffsetSpec
from kafka_async.embedded import run_in_thread
from kafka_async.types import TopicPartition
from tests.programs import ROOT, python_path

if TYPE_CHECKING:
    from kafka_async.embedded import BlockingCluster

pytestmark = pytest.mark.one_kernel

DEADLINE = 60.0
"""Seconds after which a program counts as hung."""

topics = (f"topic-{number}" for number in itertools.count())


def some(cases: Iterable[str], *quick: str) -> list[Any]:
    """Return parameters of which only a few run in `make test`; each is a program."""
    return [case if case in quick else pytest.param(case, marks=pytest.mark.slow) for case in cases]


@pytest.fixture(scope="module")
def cluster() -> Iterator[BlockingCluster]:
    with run_in_thread(1) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def admin(cluster: BlockingCluster) -> Iterator[blocking.Admin]:
    with blocking.Admin(cluster.bootstrap_servers) as admin:
        yield admin


@pytest.fixture
def topic(cluster: BlockingCluster) -> str:
    name = next(topics)
    cluster.create_topic(name)
    return name


@pytest.fixture
def loop() -> str:
    """Return the event loop of the stage: `make test` uses uvloop, `make test-slow` asyncio."""
    return os.environ.get("KAFKA_ASYNC_TEST_LOOP", "uvloop")


@dataclass(frozen=True)
class Ended:
    """A program that has ended: how, and how many records it has accepted, delivered and lost."""

    status: int
    accepted: int
    delivered: int
    lost: int
    errors: str


class Programs:
    """Runs programs with the addresses of the cluster and the name of a topic."""

    def __init__(
        self, admin: blocking.Admin, servers: str, topic: str, loop: str, path: Path
    ) -> None:
        self.admin = admin
        self._path = path
        self.servers = servers
        self.topic = topic
        self.loop = loop

    def run(self, *parts: str) -> Ended:
        """Run a program and return how it ended."""
        text = "import sys\n"
        if self.loop == "asyncio":
            text += 'sys.modules["uvloop"] = None\n'
        self._path.write_text(text + "\n".join(parts))
        done = subprocess.run(
            [
                sys.executable,
                "-W",
                "ignore:This process:DeprecationWarning",
                self._path,
                self.servers,
                self.topic,
            ],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": python_path()},
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            check=False,
        )
        assert done.stdout.strip(".") == ""
        lost = re.findall(r"(\d+) records? (?:was|were) not delivered", done.stderr)
        ended = Ended(
            done.returncode,
            done.stdout.count("."),
            self.delivered(),
            sum(map(int, lost)),
            done.stderr,
        )
        assert ended.delivered + ended.lost >= ended.accepted, ended
        return ended

    def delivered(self) -> int:
        """Return the number of records in the topic; those of open transactions count."""
        partition = TopicPartition(self.topic, 0)
        return self.admin.list_offsets({partition: OffsetSpec.LATEST})[partition].offset


@pytest.fixture
def programs(
    admin: blocking.Admin, cluster: BlockingCluster, topic: str, loop: str, tmp_path: Path
) -> Programs:
    path = tmp_path / "program.py"
    return Programs(admin, cluster.bootstrap_servers, topic, loop, path)


# -- blocking producers ---------------------------------------------------------------------------

BLOCKING = """
import atexit, logging, os, signal, threading
from kafka_async import blocking

servers, topic = sys.argv[1:]

class Producers:
    # Large batches, which threads compress, and which linger until flush or stop.
    def __init__(self, **options):
        self.all = [
            blocking.Producer(
                servers, client_id=codec, compression_type=codec, linger_ms=60_000,
                batch_size=1_000_000, **options,
            )
            for codec in ("none", "gzip", "lz4", "zstd")
        ]
    def __getattr__(self, name):
        return lambda: [getattr(producer, name)() for producer in self.all]
    def accept(self, count):
        for _ in range(count):
            for producer in self.all:
                producer.enqueue(topic, b"0123456789" * 5_000)
                os.write(1, b".")

producers = Producers()
start, stop, flush, accept = producers.start, producers.stop, producers.flush, producers.accept
"""

HANDLER = """
class Handler(logging.Handler):
    def emit(self, record):
        if not record.name.startswith("kafka_async"):
            accept(1)
    def close(self):
        {close}
        super().close()

logging.getLogger().addHandler(Handler())
start()
for _ in range(5):
    logging.getLogger("application").warning("text")
"""

THREAD = """
begun = threading.Event()
def work():
    {work}
start()
thread = threading.Thread(target=work, daemon={daemon})
thread.start()
"""

RUNS_LONGER = THREAD.replace("{work}", "threading.main_thread().join(); {work}")

ENDS: dict[str, tuple[int, str]] = {
    "normal": (0, "start(); accept(5)"),
    "exception": (1, "start(); accept(5); raise ValueError"),
    "sys.exit": (3, "start(); accept(5); sys.exit(3)"),
    "sys.exit in a thread": (0, THREAD.format(work="accept(5); sys.exit(3)", daemon=False)),
    "thread that runs longer": (0, RUNS_LONGER.format(work="accept(5)", daemon=False)),
    "thread that stops": (0, RUNS_LONGER.format(work="accept(5); stop()", daemon=False)),
    "daemon thread": (
        0,
        THREAD.format(work="while True: accept(1); begun.set()", daemon=True) + "begun.wait()",
    ),
    "stop registered before": (0, "atexit.register(stop); start(); accept(5)"),
    "stop registered after": (0, "start(); atexit.register(stop); accept(5)"),
    "records registered before": (0, "atexit.register(accept, 3); start(); accept(2)"),
    "records registered after": (0, "start(); atexit.register(accept, 3); accept(2)"),
    "start registered after": (
        0,
        "start(); late = Producers()\n"
        "atexit.register(late.stop); atexit.register(late.accept, 5); atexit.register(late.start)",
    ),
    "logging handler": (0, HANDLER.format(close="pass")),
    "logging handler that flushes": (0, HANDLER.format(close="flush()")),
    "logging handler that stops": (0, HANDLER.format(close="stop()")),
    "SystemExit of a callback": (
        0,
        "start(); accept(5)\n"
        "async def leave(): sys.exit(3)\n"
        "try: blocking.run(leave)\n"
        "except SystemExit: pass",
    ),
}
"""The status and the text of programs that end in different ways."""


@pytest.mark.parametrize(
    "end",
    some(
        ENDS,
        *("normal", "exception", "thread that runs longer", "daemon thread"),
        *("stop registered before", "records registered before", "logging handler that stops"),
    ),
)
def test_blocking_producers_deliver_what_they_have_accepted(programs: Programs, end: str) -> None:
    status, text = ENDS[end]
    ended = programs.run(BLOCKING, text)
    assert ended.status == status, ended
    assert ended.accepted >= 4
    assert ended.delivered >= ended.accepted
    assert status == 1 or ended.errors == ""


DEBUG_HANDLER = """
class Handler(logging.Handler):
    def emit(self, record):
        try:
            accept(1)
        except Exception:
            self.handleError(record)

start()
logging.getLogger().addHandler(Handler())
logging.getLogger().setLevel(logging.DEBUG)
def work():
    for _ in range(20):
        logging.getLogger("application").warning("text")
threads = [threading.Thread(target=work) for _ in range(3)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""


def test_logging_handler_of_all_loggers_does_not_wait_for_itself(programs: Programs) -> None:
    ended = programs.run(BLOCKING, DEBUG_HANDLER)
    assert ended.status == 0, ended
    assert ended.accepted >= 4 * 59  # The first call may be refused.
    assert ended.errors.count("gets no records that the client's event loop logs") == 1, ended


@pytest.mark.parametrize("end", ["", "atexit.register(producers.all[0].stop)"])
def test_error_counts_what_brokers_do_not_acknowledge(
    programs: Programs, cluster: BlockingCluster, end: str
) -> None:
    held = cluster.faults.add(api="Produce", hang=True, count=None)
    options = "producers = Producers(close_timeout_ms=200); producers.start()"
    ended = programs.run(BLOCKING, options, end, "producers.accept(2)")
    held.remove()
    assert (ended.status, ended.accepted, ended.delivered, ended.lost) == (0, 8, 0, 8), ended


def test_error_counts_what_is_lost_after_ctrl_c_at_exit(
    programs: Programs, cluster: BlockingCluster
) -> None:
    held = cluster.faults.add(api="Produce", hang=True, count=None)
    ended = programs.run(
        BLOCKING,
        "from kafka_async.producer.unfinished import UnfinishedRecords",
        "finish = UnfinishedRecords.finish",
        "async def interrupted(self):",
        "    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)",
        "    await finish(self)",
        "UnfinishedRecords.finish = interrupted",
        "producer = producers.all[0]",
        "producer.start()",
        'producer.enqueue(topic, b"v")',
        'os.write(1, b".")',
    )
    held.remove()
    assert "KeyboardInterrupt" in ended.errors
    assert (ended.status, ended.delivered, ended.lost) == (0, 0, 1), ended


TRANSACTION = """
import atexit
import os
from kafka_async import blocking

servers, topic = sys.argv[1:]
producer = blocking.Producer(servers, transactional_id=topic, linger_ms=60_000)

def begin():
    producer.start()
    transaction = producer.begin()
    for _ in range(5):
        transaction.enqueue(topic, b"v")
        os.write(1, b".")
    return transaction
"""


@pytest.mark.parametrize(
    ("end", "open_at_exit"),
    [
        ("begin()", True),
        ("begin().commit()", False),
        ("atexit.register(producer.stop); begin()", True),
        ("transaction = begin(); atexit.register(transaction.commit)", False),
    ],
)
def test_error_names_a_transaction_that_was_not_committed(
    programs: Programs, end: str, *, open_at_exit: bool
) -> None:
    ended = programs.run(TRANSACTION, end)
    assert ended.status == 0
    assert ("a transaction was not committed (5 delivered)" in ended.errors) == open_at_exit


# -- consumers ------------------------------------------------------------------------------------

CONSUMER = """
import atexit, os, threading
from kafka_async import blocking

servers, topic = sys.argv[1:]
with blocking.Producer(servers) as producer:
    producer.send_many(topic, [b"v"] * 9)
    producer.flush()
consumer = blocking.Consumer(
    servers, topics=[topic], group_id=topic, auto_offset_reset="earliest"
)

def poll():
    consumer.start()
    for _ in range(5):
        assert len(consumer.poll(timeout=60, max_records=1)) == 1
"""


@pytest.mark.parametrize(
    ("end", "committed"),
    [
        ("poll()", 0),
        ("atexit.register(consumer.stop); poll()", 4),
        ("poll(); atexit.register(consumer.stop)", 4),
        ("atexit.register(consumer.commit); poll()", 5),
        (THREAD.format(work="poll(); begun.set(); list(consumer)", daemon=True)
            .replace("start()", "", 1) + "begun.wait()", 0),
    ],
)  # fmt: skip
def test_consumer_ends_with_the_process(programs: Programs, end: str, committed: int) -> None:
    ended = programs.run(CONSUMER, end)
    assert (ended.status, ended.errors) == (0, "")
    offsets = programs.admin.list_group_offsets(programs.topic)
    assert sum(each.offset for each in offsets.values()) == committed


# -- asyncio producers ----------------------------------------------------------------------------

ASYNCIO = """
import asyncio, os, signal, threading
import kafka_async
from kafka_async import Producer
from kafka_async.errors import KafkaError

servers, topic = sys.argv[1:]

def new(client=servers):
    return Producer(client, linger_ms=60_000)

async def accept(producer):
    for _ in range(5):
        await producer.enqueue(topic, b"v")
        os.write(1, b".")

async def main(client=servers):
    producer = new(client)
    await producer.start()
    await accept(producer)
    return producer
"""

ASYNCIO_ENDS: dict[str, tuple[int, str]] = {
    "main returns": (0, "producer = asyncio.run(main())"),
    "main forgets it": (0, "asyncio.run(main()) and None"),
    "kafka_async.run": (0, "producer = kafka_async.run(main())"),
    "exception": (
        1,
        "async def fails():\n    await main()\n    raise ValueError\nasyncio.run(fails())",
    ),
    "sys.exit": (
        3,
        "async def leaves():\n    await main()\n    sys.exit(3)\nasyncio.run(leaves())",
    ),
    "sys.exit in a callback": (
        3,
        "async def leaves():\n"
        "    await main()\n"
        "    asyncio.get_running_loop().call_soon(sys.exit, 3)\n"
        "    await asyncio.sleep(60)\n"
        "asyncio.run(leaves())",
    ),
    "SIGTERM": (
        143,
        "async def waits():\n"
        "    await main()\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    await asyncio.sleep(60)\n"
        "kafka_async.run(waits())",
    ),
    "shared client": (
        0,
        "async def shares():\n"
        "    client = kafka_async.Client(servers)\n"
        "    await client.start()\n"
        "    await main(client)\n"
        "asyncio.run(shares())",
    ),
    "another task": (
        0,
        "async def works(accepted):\n"
        "    async with new() as producer:\n"
        "        await accept(producer)\n"
        "        accepted.set()\n"
        "        await asyncio.sleep(60)\n"
        "async def starts():\n"
        "    accepted = asyncio.Event()\n"
        "    task = asyncio.create_task(works(accepted))\n"
        "    await accepted.wait()\n"
        "asyncio.run(starts())",
    ),
    "stop after all tasks were cancelled": (
        0,
        "async def cancels():\n"
        "    producer = await main()\n"
        "    for task in asyncio.all_tasks() - {asyncio.current_task()}:\n"
        "        task.cancel()\n"
        "    await asyncio.sleep(0)\n"
        "    try: await producer.stop()\n"
        "    except KafkaError: pass\n"
        "asyncio.run(cancels())",
    ),
    "loop closed": (
        0,
        "loop = asyncio.new_event_loop(); loop.run_until_complete(main()); loop.close()",
    ),
    "loop not closed": (
        0,
        "loop = asyncio.new_event_loop(); producer = loop.run_until_complete(main())",
    ),
    "daemon thread": (
        0,
        "begun = threading.Event()\n"
        "async def runs():\n"
        "    await main()\n"
        "    begun.set()\n"
        "    await asyncio.sleep(60)\n"
        "threading.Thread(target=asyncio.run, args=[runs()], daemon=True).start()\n"
        "begun.wait()",
    ),
    "thread that runs longer": (
        0,
        "async def stops():\n"
        "    threading.main_thread().join()\n"
        "    await (await main()).stop()\n"
        "threading.Thread(target=asyncio.run, args=[stops()]).start()",
    ),
}


@pytest.mark.parametrize(
    "end", some(ASYNCIO_ENDS, "main returns", "another task", "loop closed", "daemon thread")
)
def test_error_counts_records_that_asyncio_producers_lose(programs: Programs, end: str) -> None:
    status, text = ASYNCIO_ENDS[end]
    ended = programs.run(ASYNCIO, text)
    assert ended.status == status, ended
    assert (ended.accepted, ended.delivered + ended.lost) == (5, 5), ended


# -- signal handlers ------------------------------------------------------------------------------

SIGNAL = """
import os, signal, threading
from kafka_async import blocking

servers, topic = sys.argv[1:]
producer = blocking.Producer(servers, linger_ms=60_000)
other = blocking.Producer(servers, linger_ms=60_000)

def accept(producer):
    producer.enqueue(topic, b"v")
    os.write(1, b".")

def interrupt(client, name):
    # The signal arrives in the middle of the call, which then continues.
    original = getattr(client.asynchronous, name)
    async def interrupted(*args, **keywords):
        delattr(client.asynchronous, name)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGTERM)
        return await original(*args, **keywords)
    setattr(client.asynchronous, name, interrupted)
"""

ACTIONS = {
    "enqueue": "accept(producer)",
    "send": 'producer.send(topic, b"v")',
    "flush": "producer.flush()",
    "stop": "producer.stop()",
    "another producer": "other.start(); accept(other); other.stop()",
    "new producer": "with blocking.Producer(servers) as new: accept(new)",
    "stop and sys.exit": "producer.stop(); sys.exit(7)",
    "exception": "raise KeyboardInterrupt",
}
CALLS = {
    "enqueue": "accept(producer)",
    "send": 'producer.send(topic, b"v")',
    "flush": "producer.flush()",
    "stop": "producer.stop()",
    "start": "producer.start()",
}


@pytest.mark.parametrize("action", some(ACTIONS, "stop", "exception"))
@pytest.mark.parametrize("call", some(CALLS, "flush", "stop"))
def test_signal_handler_calls_clients_in_the_middle_of_a_call(
    programs: Programs, call: str, action: str
) -> None:
    before = "" if call == "start" else "producer.start(); accept(producer)"
    ended = programs.run(
        SIGNAL,
        before,
        "def handle(*_):",
        f"    {ACTIONS[action]}",
        "signal.signal(signal.SIGTERM, handle)",
        f'interrupt(producer, "{call}")',
        CALLS[call],
    )
    if ended.status not in (0, 7):
        # An error of the interrupted call: the handler has stopped its producer, or not started it.
        reasons = "closed|not started|stopped while it started"
        assert re.search(rf"ClientClosedError: .*({reasons})|Interrupt", ended.errors), ended


SIGNALLED_CONSUMER = """
consumer = blocking.Consumer(
    servers, topics=[topic], group_id=topic, auto_offset_reset="earliest", fetch_max_wait_ms=10
)
with blocking.Producer(servers) as first:
    first.send_many(topic, [b"v"] * 9)
"""
CONSUMER_ACTIONS = {
    "poll": "consumer.poll(timeout=0.1)",
    "poll without a limit": "consumer.poll(timeout=None)",
    "commit": "consumer.commit()",
    "stop": "consumer.stop()",
    "unsubscribe": "consumer.unsubscribe()",
    "position": "[consumer.position(each) for each in consumer.assignment()]",
    "send": 'with producer: producer.send(topic, b"v")',
    "stop and sys.exit": "consumer.stop(); sys.exit(7)",
    "exception": "raise KeyboardInterrupt",
}
CONSUMER_CALLS = {
    "start": "consumer.start()",
    "poll": "assert consumer.poll(timeout=30)",
    "__anext__": "for record in consumer: break",
    "commit": "consumer.commit()",
    "rewind": "consumer.rewind({each: 0 for each in consumer.assignment()}, timeout=30)",
    "unsubscribe": "consumer.unsubscribe()",
    "stop": "consumer.stop()",
}
CONSUMER_PAIRS = {
    *(f"poll: {action}" for action in CONSUMER_ACTIONS),
    *(f"{call}: stop" for call in CONSUMER_CALLS),
}
"""Every action in the middle of a poll, and a stop in the middle of every call."""


@pytest.mark.parametrize(
    "pair",
    some(sorted(CONSUMER_PAIRS), "poll: poll without a limit", "poll: stop", "__anext__: stop"),
)
def test_signal_handler_calls_clients_in_the_middle_of_a_call_of_a_consumer(
    programs: Programs, pair: str
) -> None:
    call, action = pair.split(": ")
    if call in ("poll", "__anext__", "start"):
        before = "" if call == "start" else "consumer.start()"
    else:
        before = "consumer.start(); assert consumer.poll(timeout=30)"
    ended = programs.run(
        SIGNAL,
        SIGNALLED_CONSUMER,
        before,
        "def handle(*_):",
        f"    {CONSUMER_ACTIONS[action]}",
        "signal.signal(signal.SIGTERM, handle)",
        f'interrupt(consumer, "{call}")',
        CONSUMER_CALLS[call],
    )
    if ended.status not in (0, 7):
        # One error of the interrupted call, or of the handler's call.
        reasons = (
            "ClientClosedError: .*(closed|not started|stopped while it started)",
            "IllegalStateError: (another task waits|there is nothing to read)",
            "KeyboardInterrupt",
        )
        assert re.search("|".join(reasons), ended.errors), ended


STORM = """
called = []
def handle(*_):
    accept(producer)
    called.append(1)

producer.start()
signal.signal(signal.SIGALRM, handle)
signal.setitimer(signal.ITIMER_REAL, 0.0007, 0.0007)
while len(called) < 500:
    accept(producer)
signal.setitimer(signal.ITIMER_REAL, 0)
producer.stop()
"""


@pytest.mark.slow
def test_signal_handler_calls_clients_at_any_moment(programs: Programs) -> None:
    ended = programs.run(SIGNAL, STORM)
    assert (ended.status, ended.errors) == (0, "")


# -- other processes ------------------------------------------------------------------------------

FORK = """
import faulthandler, multiprocessing, os, threading
from kafka_async import blocking
from kafka_async.errors import ClientClosedError, IllegalStateError

servers, topic = sys.argv[1:]

def accept(producer):
    producer.send(topic, b"v")
    os.write(1, b".")

def use_new_producer():
    faulthandler.dump_traceback_later(20, exit=True)
    with blocking.Producer(servers) as new:
        accept(new)
    faulthandler.cancel_dump_traceback_later()

def leave_new_producer():
    producer = blocking.Producer(servers, linger_ms=60_000)
    producer.start()
    producer.enqueue(topic, b"v")
    os.write(1, b".")

def check_fork(work, *arguments):
    child = os.fork()
    if child == 0:
        work(*arguments)
        sys.exit()
    _, status = os.waitpid(child, 0)
    assert status == 0, status

def refuses(inherited):
    for call in (lambda: inherited.send(topic, b"v"), inherited.flush):
        try: call()
        except (IllegalStateError, ClientClosedError) as error:
            assert ("make a new one" in str(error)) or "closed" in str(error), error
        else: raise AssertionError
    use_new_producer()
    leave_new_producer()

def forks_again():
    use_new_producer()
    check_fork(use_new_producer)
    leave_new_producer()

producer = blocking.Producer(servers)
"""

FORKS: dict[str, str] = {
    "before the first call": "check_fork(use_new_producer); check_fork(leave_new_producer)",
    "before start": "check_fork(lambda: (producer.start(), accept(producer), producer.stop()))",
    "running": "producer.start(); accept(producer); check_fork(refuses, producer)\n"
        "accept(producer); producer.stop()",
    "stopped": "producer.start(); producer.stop(); check_fork(refuses, producer)",
    "in a child": "use_new_producer(); check_fork(forks_again)",
}  # fmt: skip


@pytest.mark.parametrize("state", some(FORKS, "before the first call", "running"))
def test_forked_child_delivers_with_new_clients(programs: Programs, state: str) -> None:
    ended = programs.run(FORK, FORKS[state])
    assert (ended.status, ended.errors) == (0, "")
    assert ended.accepted >= 1


SPAWN = """
if __name__ == "__main__":
    {before}
    process = multiprocessing.get_context("{method}").Process(target=leave_new_producer)
    process.start()
    process.join()
    assert process.exitcode == 0
"""


@pytest.mark.parametrize("before", ["pass", "use_new_producer()"])
@pytest.mark.parametrize("method", some(["fork", "spawn", "forkserver"], "fork"))
def test_process_of_multiprocessing_delivers_what_it_has_accepted(
    programs: Programs, method: str, before: str
) -> None:
    ended = programs.run(FORK, SPAWN.format(before=before, method=method))
    assert (ended.status, ended.errors) == (0, "")
    assert ended.accepted >= 1


FIRST_CALL = """
reached = threading.Event()
calls = 0

def count(frame, event, argument):
    # Lets the main thread fork at each STEP-th call of a function in the other threads.
    global calls
    calls += 1
    if calls % STEP == 0:
        reached.set()

def first_call():
    with blocking.Producer(servers) as first:
        accept(first)
    sys.setprofile(None)
    reached.set()

def child_works():
    threading.setprofile(None)
    use_new_producer()

threading.setprofile(count)
thread = threading.Thread(target=first_call)
thread.start()
children = []
while thread.is_alive():
    reached.wait()
    reached.clear()
    child = os.fork()
    if child == 0:
        child_works()
        sys.exit()
    children.append(child)
for child in children:
    _, status = os.waitpid(child, 0)
    assert status == 0, status
"""


@pytest.mark.slow
def test_child_forked_at_any_moment_of_another_threads_first_call_works(
    programs: Programs,
) -> None:
    ended = programs.run(FORK, FIRST_CALL.replace("STEP", "1500"))
    assert (ended.status, ended.errors) == (0, "")
    assert ended.accepted >= 3
