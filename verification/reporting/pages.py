"""Pages that need nothing but themselves: Jinja2 templates that escape every value, and figures inside the text."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from privkde.display.figures import INK


def render_page(package: str, name: str, /, **values: Any) -> str:
    """The template `name` from the folder `templates` of a package. A value that is missing is an error."""
    return _environment(package).get_template(name).render(values)


def inline_figure(svg: str, name: str, description: str) -> Markup:
    """A figure of `privkde.display.figures` as part of a page: transparent, in the page's ink, with names of its own.

    An HTML page knows SVG's namespaces, so their addresses go, and with them every address in the file.
    """
    body = svg[svg.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    root, rest = body.split(">", 1)
    root = re.sub(r'\s(xmlns(:\w+)?|width|height|version)="[^"]*"', "", root)
    rest = re.sub(r'\b(id="|href="#|url\(#)', rf"\g<1>{name}-", rest)
    rest = rest.replace("fill: #ffffff", "fill: none", 1).replace(INK, "currentColor")
    return Markup(f'{root} role="img" aria-label="{escape(description)}">{rest}')


@cache
def _environment(package: str) -> Environment:
    environment = Environment(
        loader=PackageLoader(package, "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.policies["json.dumps_kwargs"] = {}  # members in the order in which they are given, not sorted
    return environment
