"""libFuzzer as a Python module, built by build.py."""

from collections.abc import Callable, Sequence

def run(arguments: Sequence[str], target: Callable[[bytes], None]) -> int: ...
