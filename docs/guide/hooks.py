"""Where mkdocs meets what builds the guide."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # mkdocs takes it away again after loading this file

from mkdocs.exceptions import PluginError
from mkdocs.utils.meta import get_data

from guide.building import Pages
from guide.formulas import render
from guide.links import broken
from guide.pages import PageError

_running: list[Pages] = []


def on_files(files: Any, *, config: Any) -> None:
    """Start the code of every page; with GUIDE_PAGES, a list of names, of these only."""
    chosen = os.environ.get("GUIDE_PAGES", "").split()
    pages = [one for one in files.documentation_pages() if not chosen or one.src_uri in chosen]
    _running[:] = [Pages({one.src_uri: get_data(one.content_string)[0] for one in pages})]


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
    """The page with what its code gave; if a page fails, the failures of all pages end the build."""
    try:
        return _running[0].text(page.file.src_uri, markdown)
    except PageError:
        raise PluginError("\n".join(_running[0].failures())) from None


def on_page_content(html: str, *, page: Any, config: Any, files: Any) -> str:
    """Formulas as MathML."""
    try:
        return render(html)
    except PageError as error:
        raise PluginError(f"{page.file.src_uri}: {error}") from None


def on_post_build(*, config: Any) -> None:
    """Follow all links, unless only some pages ran."""
    wrong = [] if "GUIDE_PAGES" in os.environ else list(broken(Path(config.site_dir)))
    if wrong:
        raise PluginError("\n".join(wrong))
