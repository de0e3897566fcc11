"""The targets by name. Importing this module loads the kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from fuzz.kernel import batches, messages, sections, values, writing

if TYPE_CHECKING:
    from fuzz.kernel.twins import Twins


class Target(NamedTuple):
    """A way to use the kernel with an input."""

    check: Callable[[Twins, bytes], None]
    """With everything that must hold; raises what did not."""
    prepare: Callable[[bytes], Any]
    """What the kernel is given for an input: the harness's own work."""
    run: Callable[[Any, Any], int]
    """The kernel's work alone, to be measured; gives the bytes that it was about."""


TARGETS: Final = {
    "sections": Target(sections.check, sections.prepare, sections.run),
    "batches": Target(batches.check, batches.prepare, batches.run),
    "writing": Target(writing.check, writing.prepare, writing.run),
    "messages": Target(messages.check, messages.prepare, messages.run),
    "values": Target(values.check, values.prepare, values.run),
}
