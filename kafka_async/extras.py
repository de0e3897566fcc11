"""Messages for packages of an optional extra that are not installed."""

from __future__ import annotations


def missing_extra(purpose: str, extra: str) -> str:
    """Return the message that `purpose` needs an extra, with the command to install it.

    The command is for a checkout: on PyPI, the name belongs to another project.
    """
    return (
        f"{purpose} needs the extra {extra}: pip install '.[{extra}]' in a checkout of kafka_async"
    )
