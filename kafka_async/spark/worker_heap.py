"""Keeps the memory of Spark's Python processes, so that tasks do not collect and request it again.

Spark's daemon keeps the processes that run tasks, plan reads and commit writes, and collects all
garbage after each use. With pyspark, pyarrow and this package, a process has 45,000 permanent
objects, so a collection takes 10 to 20 ms of CPU time, and the next task waits for it.

For each response of a broker, a task needs buffers of megabytes. By default, the C library returns
such freed memory to the system, and each page then costs a fault when it is used again.
"""

from __future__ import annotations

import gc
import os
import sys
from itertools import count
from typing import Any, Final

DAEMON: Final = "pyspark.daemon"
LARGE_BLOCK_BYTES: Final = 32 * 2**20
"""Size from which the C library requests blocks from the system one by one."""
KEPT_BYTES: Final = 64 * 2**20
"""Maximum freed bytes that the C library keeps."""
M_TRIM_THRESHOLD: Final = -1
M_MMAP_THRESHOLD: Final = -3
TUNING_VARIABLES: Final = ("GLIBC_TUNABLES", "MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_")
"""Environment variables by which a user sets these sizes."""
_uses = count(1)


def note_use() -> None:
    """Count a use of this process by Spark; at the second, let the process keep its memory.

    After the first use, all modules are imported, and Spark has collected the garbage. From then
    on, collections skip the existing objects. They are still freed by reference counts, but not as
    parts of cycles, such as a client that is closed later. Does nothing outside of the processes
    that Spark's daemon keeps.
    """
    if next(_uses) == 2 and _main_module() == DAEMON:
        gc.freeze()
        if not any(name in os.environ for name in TUNING_VARIABLES):
            keep_freed_memory()


def keep_freed_memory() -> bool:
    """Set the sizes that glibc reaches by itself once a block of 32 MiB is freed.

    Without glibc, return False and change nothing.
    """
    import ctypes

    library: Any = ctypes.CDLL(None)
    if not hasattr(library, "mallopt"):
        return False
    library.mallopt(M_MMAP_THRESHOLD, LARGE_BLOCK_BYTES)
    library.mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)
    return True


def _main_module() -> str:
    specification = getattr(sys.modules.get("__main__"), "__spec__", None)
    return getattr(specification, "name", "")
