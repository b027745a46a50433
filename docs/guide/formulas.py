"""Formulas become MathML while the guide is built: browsers show it without a script or a font from elsewhere."""

from __future__ import annotations

import re
from html import unescape

from latex2mathml.converter import convert

from guide.pages import PageError

_MARKED = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>([.,;:)]*)', flags=re.DOTALL)
_LOOKS = (
    (
        r"<msup>(<m[io]>[^<]*</m[io]>)<mi>(&#x02032;)</mi></msup>",
        r"<mrow>\1<mi>\2</mi></mrow>",
    ),  # a prime is raised twice
    (r"<mo>(&#x0002F;)</mo>", r'<mo lspace="0.06em" rspace="0.06em">\1</mo>'),
    (r"<mo>(min|max)</mo>(?=<mo[^>]*>&#x00028;)", r"<mi>\1</mi>"),
)
"""What the translation leaves ugly: elements, and what stands for them."""


def render(html: str) -> str:
    """A page's HTML with every formula that the Markdown extension `arithmatex` marked as MathML."""
    return _MARKED.sub(_formula, html)


def _formula(found: re.Match[str]) -> str:
    latex, display, punctuation = unescape(found[3]).strip(), found[2] == "[", found[4]
    drawn = str(convert(latex, display="block" if display else "inline"))
    if "\\" in drawn or "<mi>&</mi>" in drawn:
        raise PageError(f"the formula {latex!r} holds something that cannot be translated.")
    for element, better in _LOOKS:
        drawn = re.sub(element, better, drawn)
    if display:
        return f'<div class="formula">{drawn}</div>{punctuation}'
    return f'<span class="in-line">{drawn}{punctuation}</span>'
