"""The targets by name. Importing this module loads the kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from fuzz.kernel import batches, messages, sections, values, writing

if TYPE_CHECKING:
    from fuzz.kernel.kernel_pair import KernelPair


class Target(NamedTuple):
    """Describes a way to use the kernel with an input."""

    check: Callable[[KernelPair, bytes], None]
    """Runs an input on both kernels; raises Finding if a promise is broken."""
    prepare: Callable[[bytes], Any]
    """Returns the arguments for `run`: the harness's part of the work."""
    run: Callable[[Any, Any], int]
    """Runs the kernel without checks, for measurement; returns the bytes processed."""


TARGETS: Final = {
    "sections": Target(sections.check, sections.prepare, sections.run),
    "batches": Target(batches.check, batches.prepare, batches.run),
    "writing": Target(writing.check, writing.prepare, writing.run),
    "messages": Target(messages.check, messages.prepare, messages.run),
    "values": Target(values.check, values.prepare, values.run),
}
