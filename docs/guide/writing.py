"""What pages are made of: numbers in words, tables, figures."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import count
from numbers import Integral, Real
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from markdown import markdown
from verification.reporting.pages import inline_figure

SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_figures = count(1)


def in_words(value: Any) -> str:
    """A value as prose shows it: 30,000; 0.0934; 6.5·10⁻¹⁰."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return str(value)
    if isinstance(value, Integral):
        return f"{int(value):,}".replace("-", "−")
    return _real(float(value))


def _real(value: float, digits: int = 3) -> str:
    if not math.isfinite(value) or value == 0.0:
        return {math.inf: "∞", -math.inf: "−∞"}.get(value, f"{value:g}")
    if 1e-4 <= abs(value) < 1e6:
        places = max(0, digits - 1 - math.floor(math.log10(abs(value))))
        text = f"{value:,.{places}f}"
        text = text.rstrip("0").rstrip(".") if "." in text else text
    else:
        mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
        factor = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
        power = "10" + str(int(exponent)).translate(SUPERSCRIPTS)
        text = power if factor == "1" else f"{factor}·{power}"
    return text.replace("-", "−")


def table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print a Markdown table; numbers as in prose, aligned to the right."""
    numeric = [
        any(isinstance(row[column], Real) for row in rows)
        and all(isinstance(row[column], Real) or row[column] in (None, "", "—") for row in rows)
        for column in range(len(header))
    ]
    print("\n| " + " | ".join(header) + " |")
    print("|" + "|".join("---:" if one else ":---" for one in numeric) + "|")
    for row in rows:
        print("| " + " | ".join("—" if one is None else in_words(one).replace("|", "\\|") for one in row) + " |")
    print()


def figure(draw: Callable[[Path], object] | str, *, alt: str, caption: str = "", wide: bool = False) -> None:
    """Print a figure: an SVG text, or what `draw(path)` writes as an SVG file, in the page's own colors."""
    if isinstance(draw, str):
        svg = draw
    else:
        with TemporaryDirectory() as folder:
            path = Path(folder) / "figure.svg"
            draw(path)
            svg = path.read_text(encoding="utf-8")
    drawn = str(inline_figure(svg, f"figure-{next(_figures)}", alt))
    drawn = "\n".join(line for line in drawn.splitlines() if line.strip())
    words = markdown(caption).removeprefix("<p>").removesuffix("</p>")
    below = f"<figcaption>{words}</figcaption>" if caption else ""
    kind = "drawn wide" if wide else "drawn"
    print(f'\n<figure class="{kind}">\n{drawn}\n{below}\n</figure>\n')
