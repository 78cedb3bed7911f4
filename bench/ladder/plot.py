"""Line plots as SVG, a few panels beside one another."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 420, 300
_LEFT, _TOP, _RIGHT, _BOTTOM = 56, 34, 12, 44
_LINE = 18
_COLOURS = (
    "#1b6ca8",
    "#d1495b",
    "#7a9e3f",
    "#e0a030",
    "#7b5ea7",
    "#4f4f4f",
    "#2a9d8f",
    "#b5651d",
    "#9aa5b1",
    "#c77dff",
    "#3a5a40",
    "#000000",
    "#f28482",
)


@dataclass(frozen=True, slots=True)
class Line:
    """One curve; lines of the same name have the same colour in every panel."""

    name: str
    points: Sequence[tuple[float, float]]
    marked: bool = False
    """Drawn as one large dot: the choice among the curves."""


@dataclass(frozen=True, slots=True)
class Panel:
    """Axes with lines. Points outside `x_most` and `y_most` are left out."""

    title: str
    x_label: str
    y_label: str
    x_most: float
    y_most: float
    lines: Sequence[Line]


def draw(panels: Sequence[Panel], columns: int = 2) -> str:
    """Return the SVG text."""
    names = list(dict.fromkeys(line.name for panel in panels for line in panel.lines))
    colours = {name: _COLOURS[i % len(_COLOURS)] for i, name in enumerate(names)}
    rows = -(-len(panels) // columns)
    legend_rows = -(-len(names) // 4)
    width, height = WIDTH * columns, HEIGHT * rows + legend_rows * _LINE + 10
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}"'
        f' height="{height}" font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for i, panel in enumerate(panels):
        parts.append(f'<g transform="translate({i % columns * WIDTH},{i // columns * HEIGHT})">')
        parts.extend(_panel(panel, colours))
        parts.append("</g>")
    for i, name in enumerate(names):
        x, y = 20 + i % 4 * (width - 20) // 4, HEIGHT * rows + _LINE * (i // 4) + 12
        parts.append(f'<rect x="{x}" y="{y - 8}" width="16" height="4" fill="{colours[name]}"/>')
        parts.append(f'<text x="{x + 22}" y="{y - 2}">{escape(name)}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _panel(panel: Panel, colours: dict[str, str]) -> list[str]:
    across, down = WIDTH - _LEFT - _RIGHT, HEIGHT - _TOP - _BOTTOM

    def place(x: float, y: float) -> tuple[float, float]:
        return _LEFT + x / panel.x_most * across, _TOP + (1 - y / panel.y_most) * down

    parts = [
        f'<text x="{WIDTH / 2}" y="20" text-anchor="middle" font-weight="bold">{escape(panel.title)}</text>'
    ]
    for i in range(6):
        x, y = place(panel.x_most * i / 5, panel.y_most * i / 5)
        parts.append(f'<line x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#e4e4e4"/>')
        parts.append(
            f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{panel.y_most * i / 5:g}</text>'
        )
        tick = f"{panel.x_most * i / 5:g}"
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT - _BOTTOM + 16}" text-anchor="middle">{tick}</text>')
    middle = _LEFT + across / 2
    parts.append(f'<text x="{middle}" y="{HEIGHT - 10}" text-anchor="middle">{escape(panel.x_label)}</text>')
    parts.append(
        f'<text transform="translate(14,{_TOP + down / 2}) rotate(-90)" text-anchor="middle">'
        f"{escape(panel.y_label)}</text>"
    )
    for line in panel.lines:
        inside = [place(x, y) for x, y in line.points if 0 <= x <= panel.x_most and 0 <= y <= panel.y_most]
        if len(inside) > 1:
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in inside)
            parts.append(
                f'<polyline points="{path}" fill="none" stroke="{colours[line.name]}" stroke-width="1.6"/>'
            )
        radius = 6 if line.marked else 2.4
        parts.extend(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" fill="{colours[line.name]}"/>' for x, y in inside
        )
    return parts
