"""Tests of programs and of installations in the environments of `make test-environments`."""

from __future__ import annotations

import os

IGNORED = {"newest": [], "installed": ["test_frameworks.py", "test_programs.py"]}
"""Files that do not run in an environment; in others, and in the checkout, none does."""

collect_ignore_glob = IGNORED.get(os.environ.get("KAFKA_ASYNC_ENVIRONMENT", ""), ["test_*.py"])
