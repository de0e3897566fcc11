"""The command `kafka-async`: one module per subcommand, each a thin layer over the public API."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; without typer and rich, exit with the command to install them."""
    try:
        from kafka_async.cli.app import app
    except KeyboardInterrupt:
        sys.exit(130)
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich"):
            raise
        from kafka_async.foundation.arguments import missing_extra

        sys.exit(missing_extra("the command kafka-async", "cli"))
    app()
