"""First use of a codec, in a process of its own: `python -m benchmarks.wire_first_use JSON`.

A client's modules are loaded, which is one figure; then its codec decodes a small frame and encodes
what came out, which is the other. A client that makes its codecs on first use pays for it there.
With `sweep` in the place of the task, this project's codecs are made one after the other, every one
of every message and version, and the milliseconds each took are printed. All times are CPU time: a
first use cannot be repeated, so whoever else wants the processor must not count.
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
    """One client's codec of one message.

    Attributes:
        client: whose it is.
        modules: what has to be loaded for it.
        api: the module of the message's API.
        message: the message's class, as Kafka calls it.
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
    """Milliseconds, medians of the processes: loading modules, and using both codecs once."""

    case: str
    client: str
    load: float
    use: float
    use_low: float
    use_high: float


def measure(case: str, task: Task, processes: int) -> FirstUse:
    """Run the task in that many fresh processes."""
    runs = [_run(json.dumps(asdict(task))) for _ in range(processes)]
    uses = [each["use"] for each in runs]
    load = statistics.median(each["load"] for each in runs)
    return FirstUse(case, task.client, load, statistics.median(uses), min(uses), max(uses))


def sweep(kernel: str, processes: int) -> dict[str, float]:
    """Milliseconds that making each codec took on a kernel, the best of that many processes."""
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


# -- in the process -------------------------------------------------------------------------------


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
    gc.freeze()  # the work pays for collecting what it makes itself, not for what was there
    began = time.process_time()
    work()
    return (time.process_time() - began) * 1e3


def main(arguments: Sequence[str]) -> None:
    """Do what the command line says and print one JSON object."""
    (what,) = arguments
    result = _every_codec() if what == "sweep" else _first_use(json.loads(what))
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
