"""Programs in other people's environments: web servers, notebooks, forks, green threads."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.programs import ROOT, python_path

if TYPE_CHECKING:
    from kafka_async.testing.fixtures import ClusterHandle

GREEN_THREADS = """
import sys
if sys.argv[1] == "gevent":
    from gevent import monkey
    monkey.patch_all()
else:
    import eventlet
    eventlet.monkey_patch()
if sys.argv[2] == "blocking":
    from kafka_async.blocking import Producer
    with Producer(sys.argv[3]):
        pass
else:
    import asyncio
    from kafka_async import Producer
    async def main():
        async with Producer(sys.argv[3]):
            pass
    asyncio.run(main())
"""
FORK = """
import multiprocessing, sys
from kafka_async.blocking import Producer
from kafka_async.errors import IllegalStateError
SERVERS = sys.argv[1]

def child(used):
    try:
        used.send("forked", b"of the parent")
    except IllegalStateError as error:
        assert "cannot be used in its fork" in str(error), error
    else:
        raise AssertionError("used after the fork")
    with Producer(SERVERS) as own:
        own.send("forked", b"of the child")

if __name__ == "__main__":
    with Producer(SERVERS) as producer:
        producer.send("forked", b"before")
        process = multiprocessing.get_context("fork").Process(target=child, args=(producer,))
        process.start()
        process.join(60)
        assert process.exitcode == 0, process.exitcode
        print(producer.send("forked", b"after").offset)
"""
CELLS = [
    "from kafka_async import Consumer, Producer, blocking",
    "producer = Producer({servers!r})\nawait producer.start()",
    "print((await producer.send('cells', b'1')).offset)",
    "consumer = Consumer({servers!r}, topics=['cells'], auto_offset_reset='earliest')\n"
    "async with consumer:\n    print((await anext(consumer)).value)",
    "with blocking.Producer({servers!r}) as other:\n    print(other.send('cells', b'2').offset)",
    "await producer.stop()",
]


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": python_path()},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("library", ["gevent", "eventlet"])
@pytest.mark.parametrize("client", ["blocking", "asyncio"])
def test_green_threads_are_refused_with_one_error(library: str, client: str) -> None:
    done = run(GREEN_THREADS, library, client, "127.0.0.1:1")
    assert done.returncode == 1
    assert f"IllegalStateError: {library} has replaced modules" in done.stderr


def test_forked_process_makes_its_own_client_after_the_parent_has_used_one(
    kafka_cluster: ClusterHandle,
) -> None:
    done = run(FORK, kafka_cluster.bootstrap_servers)
    assert (done.returncode, done.stdout) == (0, "2\n"), done.stderr


def test_cells_of_a_notebook_share_a_client(kafka_cluster: ClusterHandle) -> None:
    from jupyter_client.manager import start_new_kernel

    manager, client = start_new_kernel(kernel_name="python3", env={**os.environ})
    try:
        outputs: list[str] = []
        for cell in CELLS:
            shown: list[dict[str, Any]] = []
            client.execute_interactive(
                cell.format(servers=kafka_cluster.bootstrap_servers),
                timeout=60,
                output_hook=lambda message, shown=shown: shown.append(message["content"]),
            )
            assert not [content for content in shown if "traceback" in content], shown
            outputs += [each["text"] for each in shown if each.get("name") == "stdout"]
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    assert "".join(outputs).split() == ["0", "b'1'", "1"]


@contextmanager
def served(log: Path, *command: str, **variables: str) -> Iterator[str]:
    """Run a web server on a free port; yield its URL."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    arguments = [each.format(port=port) for each in command]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", *arguments],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": python_path(), **variables},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
        try:
            deadline = time.monotonic() + 60
            while True:
                assert process.poll() is None, log.read_text()
                try:
                    socket.create_connection(("127.0.0.1", port), 1).close()
                    break
                except OSError:
                    assert time.monotonic() < deadline, log.read_text()
                    time.sleep(0.1)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                pytest.fail(f"the server did not end: {log.read_text()}")


def post(url: str) -> str:
    with urllib.request.urlopen(urllib.request.Request(url, method="POST"), timeout=60) as response:
        assert response.status == 200
        return response.read().decode()


UVICORN = ["uvicorn", "tests.environments.web_app:app", "--port", "{port}"]
GUNICORN = [
    *("gunicorn", "tests.environments.web_app:app", "--bind", "127.0.0.1:{port}", "--preload"),
    *("--workers", "2", "--worker-class", "uvicorn_worker.UvicornWorker"),
]


@pytest.mark.parametrize(
    "command",
    [[*UVICORN, "--loop", "asyncio"], [*UVICORN, "--loop", "uvloop"], GUNICORN],
    ids=["uvicorn-asyncio", "uvicorn-uvloop", "gunicorn-preload"],
)
def test_web_server_sends_records_and_ends_without_an_error(
    kafka_cluster: ClusterHandle, tmp_path: Path, command: list[str]
) -> None:
    log, servers = tmp_path / "log", kafka_cluster.bootstrap_servers
    variables = {"SERVERS": servers, "USED_BEFORE_FORK": "1" if "gunicorn" in command else ""}
    with served(log, *command, **variables) as url:
        values = [f"{way}-{number}" for number in range(5) for way in ("send", "background")]
        for value in [*values, "blocking-0", "blocking-1"]:
            post(f"{url}/{value.partition('-')[0]}?value={value}")

    async def read() -> list[str]:
        rows = await kafka_cluster.read("web")
        return [bytes(row.value or b"").decode() for row in rows]

    read_back = asyncio.run(read())
    expected = {*values, "blocking-0", "blocking-1"}
    assert expected <= set(read_back)
    text = log.read_text()
    assert not re.search(r"Traceback|ERROR|never stopped|never awaited", text), text
