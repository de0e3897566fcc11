"""Tests of programs in the environment `newest` of `make test-environments`."""

from __future__ import annotations

import os

collect_ignore_glob = [] if os.environ.get("KAFKA_ASYNC_ENVIRONMENT") == "newest" else ["test_*.py"]
