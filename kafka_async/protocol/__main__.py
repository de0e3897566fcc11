"""Prints the generated codec of a message: `python -m kafka_async.protocol FetchResponse 16`."""

from __future__ import annotations

import sys

from kafka_async.errors import UnsupportedVersionError
from kafka_async.protocol import api
from kafka_async.protocol.compiler import source_of
from kafka_async.protocol.registry import Api

USAGE = "usage: python -m kafka_async.protocol MESSAGE VERSION    for example FetchResponse 16"


def main(arguments: list[str]) -> int:
    """Print the encoder and the decoder of a message in a version; return the exit status."""
    match arguments:
        case [name, version] if version.isdecimal():
            pass
        case _:
            print(USAGE, file=sys.stderr)  # noqa: T201
            return 2
    try:
        found = api.lookup(name)
        if isinstance(found, Api):
            found = found.response if name.endswith("Response") else found.request
        print(source_of(found, int(version)))  # noqa: T201
    except UnsupportedVersionError as error:
        print(error.message, file=sys.stderr)  # noqa: T201
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
