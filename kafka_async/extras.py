"""Messages for packages of an optional extra that are not installed."""

from __future__ import annotations


def missing_extra(purpose: str, extra: str) -> str:
    """Return the message that `purpose` needs an extra, and the command that installs it."""
    return f"{purpose} needs the extra {extra}: {install_command(extra)}"


def install_command(extra: str) -> str:
    """Return the command that installs an extra."""
    return f"pip install 'kafka-async[{extra}]' (in a checkout: pip install '.[{extra}]')"
