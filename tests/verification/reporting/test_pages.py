"""Pages: values are escaped, markup is not, a missing value is an error, and figures bring no address with them."""

from __future__ import annotations

import pytest
from jinja2 import UndefinedError

from privkde.display.figures import INK
from verification.reporting.pages import inline_figure, render_page

SVG = (
    '<?xml version="1.0"?>\n<svg xmlns="http://www.w3.org/2000/svg"'
    ' width="10pt" height="5pt" viewBox="0 0 10 5" version="1.1">'
    "<metadata>http://example.org</metadata>"
    '<g id="line"><path style="fill: #ffffff"/><path style="fill: #ffffff"/>'
    '<use href="#line" clip-path="url(#line)"/></g>'
    f'<text style="fill: {INK}">x</text></svg>'
)


def test_values_are_escaped_and_markup_is_not() -> None:
    figure = inline_figure(SVG, "profile", 'what is "drawn"')
    page = render_page(__package__, "page.html", title='"><script>', text="<b>{{ title }}</b>", figure=figure)
    assert "<script>" not in page
    assert "&lt;b&gt;{{ title }}&lt;/b&gt;" in page
    assert str(figure) in page


def test_a_missing_value_is_an_error() -> None:
    with pytest.raises(UndefinedError, match="figure"):
        render_page(__package__, "page.html", title="", text="")


def test_a_figure_is_part_of_the_page() -> None:
    figure = inline_figure(SVG, "profile", 'what is "drawn"')
    assert figure.startswith('<svg viewBox="0 0 10 5" role="img" aria-label="what is &#34;drawn&#34;">')
    assert "http" not in figure
    for name in ('id="profile-line"', 'href="#profile-line"', "url(#profile-line)"):
        assert name in figure
    assert figure.count("fill: #ffffff") == 1, "the background alone is transparent"
    assert INK not in figure
