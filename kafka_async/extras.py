"""Messages for packages of an optional extra that are not installed."""

from __future__ import annotations


def missing_extra(purpose: str, extra: str) -> str:
    """Return the message that `purpose` needs an extra, and the command that installs it.

    The command is that of a checkout: on the package index the name belongs to another project.
    """
    return (
        f"{purpose} needs the extra {extra}: pip install '.[{extra}]' in a checkout of kafka_async"
    )
