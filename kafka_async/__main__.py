"""`python -m kafka_async` is the command `kafka-async`."""

from __future__ import annotations

from kafka_async.cli import main

if __name__ == "__main__":
    main()
