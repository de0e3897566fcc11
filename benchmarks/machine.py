"""Describes the machine and the versions of all programs of a run."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.clients import OURS, PEERS, PYTHONS, on_python
from benchmarks.processes import ROOT
from kafka_async.testing.backends import create_backend

if TYPE_CHECKING:
    from collections.abc import Mapping

MEASURED: Final = ("kafka_async", "benchmarks/*.py", "benchmarks/peers", "benchmarks/special")
"""Paths that a result depends on."""


def describe(backend: str, *, pythons: bool = False) -> dict[str, str]:
    """Return the properties that identify the machine and the versions."""
    versions = [_version(version) for version in PYTHONS] if pythons else []
    found = {
        "revision": revision(),
        "broker": create_backend(backend).name.replace("apache", "Apache Kafka"),
        "cores": str(os.cpu_count()),
        "CPU": _processor(),
        "system": _system(),
        "Python": ", ".join(versions) or platform.python_version(),
        "uvloop": _uvloop(),
    }
    for peer in PEERS.values():
        of_another = any(peer.title.startswith(f"{title} ") for title in found)
        if not peer.python and not of_another and not peer.missing() and peer.version():
            found[peer.title] = peer.version()
    return found


def sentence(context: Mapping[str, str]) -> str:
    """Return the description as a sentence."""
    first = {"date", "cores", "system"}
    rest = [f"{name} {value}" for name, value in context.items() if name not in first]
    date = [context["date"]] if "date" in context else []
    return ", ".join([*date, f"{context['cores']} cores", context["system"], *rest]) + "."


def _output(*command: str) -> str:
    """Return the output of a program, empty if it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()


def _git(*arguments: str) -> str:
    return _output("git", "-C", str(ROOT), *arguments)


def revision() -> str:
    """Return the commit of this checkout, which all runs of a result must have in common."""
    commit = _git("rev-parse", "--short", "HEAD")
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", *MEASURED)
    return f"{commit} with changes" if changed else commit or "unknown"


def _version(version: str) -> str:
    """Return the full version of Python in the environment of a version."""
    printed = _output(PEERS[on_python(OURS, version)].interpreter, "-V")
    return printed.split()[-1] if printed else f"{version} (missing)"


def _uvloop() -> str:
    try:
        return importlib.metadata.version("uvloop")
    except importlib.metadata.PackageNotFoundError:
        return "not installed (asyncio's own loop)"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _system() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except OSError:
        return platform.platform()
