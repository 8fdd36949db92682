"""Draws the plot: a bar per rival with its events per second, and minimum and maximum. Pure.

The module writes the SVG text itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from xml.sax.saxutils import escape

from cells import KAPPA
from figures import Figure, Spread

_WIDTH, _LEFT, _RIGHT, _TOP = 760, 110, 150, 56
_BAR, _ROW = 14, 46
_COLD, _WARM, _KAPPA = "#8a94a6", "#c9d0db", "#1f6feb"


def plot(title: str, footing: str, found: Sequence[Figure]) -> str:
    """Returns an SVG with the rivals that have figures.

    For each rival, the upper bar is the rate including the whole start, and the lower bar is the
    warm rate.
    """
    shown = [figure for figure in found if figure.cold is not None]
    most = max(
        (
            spread.most
            for figure in shown
            for spread in (figure.cold, figure.warm)
            if spread is not None
        ),
        default=1.0,
    )
    end = _round_up(most)
    height = _TOP + _ROW * len(shown) + 54
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
            f'viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif" font-size="12" role="img">'
        ),
        f"<title>{escape(title)}</title>",
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="12" y="22" font-size="14" font-weight="bold" fill="#111">{escape(title)}</text>',
        (
            '<text x="12" y="40" fill="#555">events a second, median of the rounds; dark: with '
            "all start-up, light: warm; lines: least to most</text>"
        ),
    ]
    for step in range(5):
        x = _x(end * step / 4, end)
        parts.append(
            f'<line x1="{x:.1f}" y1="{_TOP}" x2="{x:.1f}" y2="{height - 42}" stroke="#e3e6eb"/>'
        )
        parts.append(
            f'<text x="{x:.1f}" y="{height - 28}" text-anchor="middle" '
            f'fill="#555">{_short(end * step / 4)}</text>'
        )
    for place, figure in enumerate(shown):
        top = _TOP + _ROW * place + 6
        parts.append(
            f'<text x="{_LEFT - 8}" y="{top + 18}" text-anchor="end" '
            f'fill="#111">{escape(figure.rival)}</text>'
        )
        parts += _bar(
            figure.cold, top, end, _KAPPA if figure.rival == KAPPA else _COLD, opacity=1.0
        )
        parts += _bar(
            figure.warm,
            top + _BAR + 2,
            end,
            _KAPPA if figure.rival == KAPPA else _WARM,
            opacity=0.45 if figure.rival == KAPPA else 1.0,
        )
    parts += [
        f'<text x="12" y="{height - 8}" font-size="10" fill="#555">{escape(footing)}</text>',
        "</svg>",
        "",
    ]
    return "\n".join(parts)


def _bar(spread: Spread | None, top: int, end: float, color: str, *, opacity: float) -> list[str]:
    if spread is None:
        return []
    middle, least, most = (_x(value, end) for value in (spread.median, spread.least, spread.most))
    y = top + _BAR / 2
    return [
        (
            f'<rect x="{_LEFT}" y="{top}" width="{middle - _LEFT:.1f}" height="{_BAR}" '
            f'fill="{color}" fill-opacity="{opacity}"/>'
        ),
        f'<line x1="{least:.1f}" y1="{y}" x2="{most:.1f}" y2="{y}" stroke="#111"/>',
        (
            f'<text x="{max(middle, most) + 6:.1f}" y="{top + 11}" '
            f'fill="#111">{_short(spread.median)}</text>'
        ),
    ]


def _x(value: float, end: float) -> float:
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * value / end


def _round_up(value: float) -> float:
    """Returns the smallest number >= `value` that is 1, 2, 4 or 8 times a power of ten."""
    power = 10 ** math.floor(math.log10(value))
    return float(next(step * power for step in (1, 2, 4, 8, 10) if step * power >= value))


def _short(value: float) -> str:
    if value >= 1e6:
        return f"{value / 1e6:.2f}M"
    return f"{value / 1e3:.0f}k" if value >= 1e3 else f"{value:.0f}"
