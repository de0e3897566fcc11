"""Draws the rates of a producer and a consumer with a quota as SVG."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

WIDTH: Final = 760
HEIGHT: Final = 300
LEFT: Final = 60
BOTTOM: Final = 40
TOP: Final = 30
COLOURS: Final = ("#0b5fa5", "#e69f00")
FONT: Final = 'font-family="sans-serif" font-size="12"'


def draw(title: str, rates: Mapping[str, Mapping[int, int]], quota: int, seconds: int) -> str:
    """Return a chart of bytes per second by name, smoothed over eleven seconds, with the quota."""
    limit = 1.5 * quota

    def x(second: float) -> float:
        return LEFT + second * (WIDTH - LEFT - 20) / seconds

    def y(rate: float) -> float:
        return HEIGHT - BOTTOM - min(rate, limit) * (HEIGHT - BOTTOM - TOP) / limit

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
        f"<title>{title}</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="18" {FONT}>{title}</text>',
    ]
    for step in range(4):
        rate = quota * step / 2
        parts.append(
            f'<text x="{LEFT - 8}" y="{y(rate) + 4:.1f}" text-anchor="end" {FONT}>'
            f"{rate / 1e6:.1f}</text>"
        )
    parts += [
        f'<text x="{x(second):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle" {FONT}>'
        f"{second} s</text>"
        for second in range(0, seconds + 1, 10)
    ]
    parts.append(
        f'<line x1="{x(0)}" x2="{x(seconds):.1f}" y1="{y(quota):.1f}" y2="{y(quota):.1f}" '
        'stroke="#c1440e" stroke-dasharray="6 4"/>'
    )
    parts.append(f'<text x="{x(seconds) - 40:.1f}" y="{y(quota) - 6:.1f}" {FONT}>quota</text>')
    for index, (name, rate_by_second) in enumerate(rates.items()):
        points = " ".join(
            f"{x(second):.1f},{y(smoothed(rate_by_second, second)):.1f}"
            for second in range(seconds)
        )
        colour = COLOURS[index]
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>'
        )
        parts.append(
            f'<text x="{LEFT + 10 + 130 * index}" y="{HEIGHT - 6}" fill="{colour}" {FONT}>'
            f"{name}</text>"
        )
    return "\n".join([*parts, "</svg>", ""])


def smoothed(rates: Mapping[int, int], second: int) -> float:
    """Return the mean of the last eleven seconds, or of those since the start."""
    window = range(max(0, second - 10), second + 1)
    return sum(rates.get(each, 0) for each in window) / len(window)
