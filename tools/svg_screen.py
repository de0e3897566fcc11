"""Draws what a command shows on a terminal as SVG."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.terminal_theme import MONOKAI

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import RenderableType

# The picture must not load a web font; it uses a font of the viewer instead.
FONT_FACE: Final = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


def recording_console(width: int) -> Console:
    """Return a console that records what is printed."""
    return Console(
        record=True, width=width, file=io.StringIO(), force_terminal=True, highlight=False
    )


def svg(console: Console, *, title: str, name: str) -> str:
    """Return what a console has recorded as SVG."""
    picture = console.export_svg(title=title, theme=MONOKAI, unique_id=name)
    return FONT_FACE.sub("", picture).replace("Fira Code, monospace", "monospace")


def write_svg(path: Path, shown: RenderableType, *, title: str, width: int) -> None:
    """Write one renderable as a picture."""
    console = recording_console(width)
    console.print(shown)
    path.parent.mkdir(exist_ok=True)
    path.write_text(svg(console, title=title, name=path.stem), "utf-8")
