"""Measures the first use of a codec in a new process: `python -m benchmarks.wire.first_use JSON`.

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
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


@dataclass(frozen=True)
class FirstUse:
    """Times in milliseconds, medians of the processes: loading modules, and the first use."""

    case: str
    client: str
    load: float
    use: float
    use_low: float
    use_high: float


def measure(
    codec: tuple[str, str, str, int], modules: Sequence[str], frame: bytes, processes: int
) -> FirstUse:
    """Measure in new processes how the arguments of `codecs.codec` decode and encode a frame."""
    client, _, message, version = codec
    task = json.dumps({"codec": codec, "modules": modules, "frame": frame.hex()})
    runs = [_run(task) for _ in range(processes)]
    uses = [each["use"] for each in runs]
    load = statistics.median(each["load"] for each in runs)
    case = f"{message} v{version}"
    return FirstUse(case, client, load, statistics.median(uses), min(uses), max(uses))


def sweep(kernel: str, processes: int) -> dict[str, float]:
    """Return the milliseconds to make each codec with a kernel, the best of several processes."""
    runs = [_run("sweep", KAFKA_ASYNC_KERNEL=kernel) for _ in range(processes)]
    return {codec: min(each[codec] for each in runs) for codec in runs[0]}


def _run(argument: str, **environment: str) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.wire.first_use", argument]
    variables = os.environ | environment
    return json.loads(subprocess.check_output(command, env=variables, timeout=300))


# -- in the new process ---------------------------------------------------------------------------


def _first_use(task: dict[str, Any]) -> dict[str, float]:
    frame = bytes.fromhex(task["frame"])
    loaded = _milliseconds(lambda: list(map(importlib.import_module, task["modules"])))
    from benchmarks.wire import codecs

    def use() -> None:
        codec = codecs.codec(*task["codec"])
        if bytes(codec.encode(codec.decode(frame))) != frame:
            raise ValueError(f"other bytes than ours: {task['codec']}")

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


def _milliseconds(work: Callable[[], object]) -> float:
    gc.freeze()  # collections during the work cost only objects that it makes
    began = time.process_time()
    work()
    return (time.process_time() - began) * 1e3


if __name__ == "__main__":
    (argument,) = sys.argv[1:]
    print(json.dumps(_every_codec() if argument == "sweep" else _first_use(json.loads(argument))))
