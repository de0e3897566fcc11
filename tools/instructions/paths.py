"""All paths with a budget: the kernel's functions, messages, producer and consumer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tools.instructions.client_paths import CLIENT_PATHS
from tools.instructions.kernel_paths import KERNEL_PATHS

if TYPE_CHECKING:
    from tools.instructions.path import Path

PATHS: tuple[Path, ...] = (*KERNEL_PATHS, *CLIENT_PATHS)
