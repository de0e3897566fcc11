"""Keeps the memory of Spark's Python processes, so that tasks do not collect and request it again.

The daemon that runs tasks, plans reads and commits writes keeps its processes, and collects all
garbage after each use. With pyspark, pyarrow and this package a process has 45,000 objects that are
never garbage, so a collection takes 10 to 20 ms of CPU time, and the next task waits for it.

A task needs some buffers of megabytes for each response of a broker. At first the C library returns
such memory to the system when it is freed, and each page costs a fault when it is used again.
"""

from __future__ import annotations

import gc
import os
import sys
from itertools import count
from typing import Any, Final

DAEMON: Final = "pyspark.daemon"
LARGE_BLOCK_BYTES: Final = 32 * 2**20
"""Size of blocks that the C library requests from the system one by one."""
KEPT_BYTES: Final = 64 * 2**20
"""Freed bytes that the C library keeps."""
M_TRIM_THRESHOLD: Final = -1
M_MMAP_THRESHOLD: Final = -3
TUNING_VARIABLES: Final = ("GLIBC_TUNABLES", "MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_")
"""Environment variables with which a user chooses these sizes."""
_uses = count(1)


def note_use() -> None:
    """Count a use of this process by Spark; at the second one, let the process keep its memory.

    The first use has imported what later ones need, and Spark has collected its garbage. From then
    on collections skip the objects that exist; these are freed as before, unless they become parts
    of cycles, such as those of a client that is closed later. Does nothing outside of the
    processes that Spark's daemon keeps.
    """
    if next(_uses) == 2 and _main_module() == DAEMON:
        gc.freeze()
        if not any(name in os.environ for name in TUNING_VARIABLES):
            keep_freed_memory()


def keep_freed_memory() -> bool:
    """Set the sizes that glibc itself reaches once a block of 32 MiB is freed.

    Returns False without glibc, and changes nothing.
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
