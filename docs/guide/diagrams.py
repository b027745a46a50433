"""Diagrams of the guide: people, parties and messages, in one look and in the page's own colors."""

from __future__ import annotations

from html import escape
from typing import Literal

from privkde.display.figures import BLUE, GRAY, GREEN, INK, ORANGE, PURPLE

COLORS = {"blue": BLUE, "orange": ORANGE, "green": GREEN, "purple": PURPLE, "gray": GRAY, "ink": INK}
Anchor = Literal["start", "middle", "end"]


class Drawing:
    """A picture of this size, drawn from the upper left corner; one unit is one pixel of a wide page."""

    def __init__(self, width: float, height: float) -> None:
        self._size = (width, height)
        self._parts: list[str] = []

    def text(
        self, x: float, y: float, words: str, *, size: float = 14, anchor: Anchor = "middle", bold: bool = False
    ) -> None:
        """One or more lines, the middle of the first at y."""
        weight = ' font-weight="600"' if bold else ""
        for number, line in enumerate(words.split("\n")):
            place = f'x="{x}" y="{y + number * 1.3 * size:.1f}" text-anchor="{anchor}" dominant-baseline="central"'
            self._parts.append(f'<text {place} font-size="{size}"{weight} fill="{INK}">{escape(line)}</text>')

    def box(
        self, x: float, y: float, width: float, height: float, words: str, *, color: str = "gray", dashed: bool = False
    ) -> None:
        """A party or a step; the first line of its words is bold."""
        line = f'stroke="{COLORS[color]}" stroke-width="2"' + (' stroke-dasharray="6 4"' if dashed else "")
        place = f'x="{x}" y="{y}" width="{width}" height="{height}" rx="8"'
        self._parts.append(f'<rect {place} {line} fill="{COLORS[color]}" fill-opacity="0.12"/>')
        title, *rest = words.split("\n")
        top = y + height / 2 - 9 * len(rest)
        self.text(x + width / 2, top, title, bold=True)
        if rest:
            self.text(x + width / 2, top + 20, "\n".join(rest), size=12.5)

    def arrow(
        self,
        start: tuple[float, float],
        end: tuple[float, float],
        words: str = "",
        *,
        color: str = "ink",
        dashed: bool = False,
        above: float = 12,
    ) -> None:
        """An arrow with words over its middle."""
        (x, y), (to_x, to_y) = start, end
        length = max(1.0, ((to_x - x) ** 2 + (to_y - y) ** 2) ** 0.5)
        along, across = (to_x - x) / length, (to_y - y) / length
        tip = [
            (to_x, to_y),
            (to_x - 10 * along + 5 * across, to_y - 10 * across - 5 * along),
            (to_x - 10 * along - 5 * across, to_y - 10 * across + 5 * along),
        ]
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        ends = f'x1="{x}" y1="{y}" x2="{to_x - 8 * along:.1f}" y2="{to_y - 8 * across:.1f}"'
        self._parts.append(f'<line {ends} stroke="{COLORS[color]}" stroke-width="2"{dash}/>')
        points = " ".join(f"{a:.1f},{b:.1f}" for a, b in tip)
        self._parts.append(f'<polygon points="{points}" fill="{COLORS[color]}"/>')
        if words:
            self.text((x + to_x) / 2, (y + to_y) / 2 - above, words, size=12.5)

    def person(self, x: float, y: float, words: str = "", *, color: str = "blue") -> None:
        """A user, the middle of the head at (x, y)."""
        self._parts.append(f'<circle cx="{x}" cy="{y}" r="9" fill="{COLORS[color]}"/>')
        body = f"M {x - 16} {y + 32} a 16 19 0 0 1 32 0 z"
        self._parts.append(f'<path d="{body}" fill="{COLORS[color]}"/>')
        if words:
            self.text(x, y + 46, words, size=12.5)

    def message(self, x: float, y: float, content: str, *, color: str = "green") -> None:
        """A message as a small square around (x, y) with a letter or two in it."""
        place = f'x="{x - 12}" y="{y - 12}" width="24" height="24" rx="4"'
        self._parts.append(f'<rect {place} fill="{COLORS[color]}" fill-opacity="0.2" stroke="{COLORS[color]}"/>')
        self.text(x, y, content, size=13)

    def svg(self) -> str:
        """The picture as text, for `guide.writing.figure`."""
        width, height = self._size
        return f'<svg viewBox="0 0 {width} {height}" font-family="inherit">\n' + "\n".join(self._parts) + "\n</svg>"
