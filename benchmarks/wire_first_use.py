"""Measures the first use of a codec in a new process: `python -m benchmarks.wire_first_use JSON`.

Measures the time to load a client's modules, and the time of its codec to decode a small frame and
encode the result. The latter includes making the codec, if the client does that on first use. With
`sweep` instead of the task, makes all codecs of this project, and prints the milliseconds of each.
All times are CPU times, because a first use cannot be repeated and other processes must not count.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

_MODULE = "benchmarks.wire_first_use"


@dataclass(frozen=True)
class Task:
    """Codec of a client for a message.

    Attributes:
        client: the name of the client.
        modules: the modules to load.
        api: the module of the message's API.
        message: Kafka's name of the message.
        version: the version.
        frame: a small message in hexadecimal.
    """

    client: str
    modules: tuple[str, ...]
    api: str
    message: str
    version: int
    frame: str


@dataclass(frozen=True)
class FirstUse:
    """Times in milliseconds, medians of the processes: loading modules, and the first use."""

    case: str
    client: str
    load: float
    use: float
    use_low: float
    use_high: float


def measure(case: str, task: Task, processes: int) -> FirstUse:
    """Run the task in several new processes."""
    runs = [_run(json.dumps(asdict(task))) for _ in range(processes)]
    uses = [each["use"] for each in runs]
    load = statistics.median(each["load"] for each in runs)
    return FirstUse(case, task.client, load, statistics.median(uses), min(uses), max(uses))


def sweep(kernel: str, processes: int) -> dict[str, float]:
    """Return the milliseconds to make each codec with a kernel, the best of several processes."""
    runs = [_run("sweep", KAFKA_ASYNC_KERNEL=kernel) for _ in range(processes)]
    return {codec: min(each[codec] for each in runs) for codec in runs[0]}


def _run(argument: str, **environment: str) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-m", _MODULE, argument],
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        check=True,
        timeout=300,
    )
    return json.loads(done.stdout)


# -- in the new process ---------------------------------------------------------------------------


def _first_use(task: dict[str, Any]) -> dict[str, float]:
    frame = bytes.fromhex(task["frame"])
    loaded = _milliseconds(lambda: list(map(importlib.import_module, task["modules"])))
    from benchmarks import wire_codecs

    def use() -> None:
        codec = wire_codecs.codec(task["client"], task["api"], task["message"], task["version"])
        if bytes(codec.encode(codec.decode(frame))) != frame:
            raise ValueError(f"{task['client']} wrote {task['message']} differently")

    return {"load": loaded, "use": _milliseconds(use)}


def _every_codec() -> dict[str, float]:
    from kafka_async.protocol import api, compiler

    spent: dict[str, float] = {}
    for each in api.APIS:
        for message in () if each.removed else (each.request, each.response):
            for version in range(message.VERSIONS.min, message.VERSIONS.max + 1):
                for make in (compiler.decoder, compiler.encoder):
                    name = f"{make.__name__} of {message.__name__} v{version}"
                    spent[name] = _milliseconds(lambda: make(message, version))  # noqa: B023
    return spent


def _milliseconds(work: Any) -> float:
    gc.freeze()  # collections during the work cost only objects that it makes
    began = time.process_time()
    work()
    return (time.process_time() - began) * 1e3


def main(arguments: Sequence[str]) -> None:
    """Run the task of the command line, and print one JSON object."""
    (task,) = arguments
    result = _every_codec() if task == "sweep" else _first_use(json.loads(task))
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
