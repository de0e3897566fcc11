"""Runs the command `kafka-async` as `python -m kafka_async`."""

from __future__ import annotations

from kafka_async.cli import main

if __name__ == "__main__":
    main()
