"""The built guide in a real browser, opened from a disk: no page is too wide, nothing is loaded from elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

SITE = Path(__file__).resolve().parents[2] / "site"
PAGES = sorted(path.relative_to(SITE).as_posix() for path in SITE.rglob("*.html") if path.name != "404.html")

pytestmark = [
    pytest.mark.extras,
    pytest.mark.skipif(not (SITE / "start.html").is_file(), reason="the guide is not built; run `make docs`"),
]


def watched(page: Page) -> list[str]:
    """What goes wrong while pages are shown: errors of scripts, and requests that leave the disk or fail."""
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("requestfailed", lambda request: wrong.append(f"failed: {request.url}"))
    page.on("request", lambda request: None if request.url.startswith("file:") else wrong.append(request.url))
    return wrong


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_every_page_fits_and_loads_nothing_from_elsewhere(browser: Browser, width: int, scheme: str) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)  # type: ignore[arg-type]
    wrong = watched(page)
    for name in PAGES:
        page.goto((SITE / name).as_uri())
        if page.evaluate("document.documentElement.scrollWidth") > width:
            wrong.append(f"{name} is wider than {width} pixels")
        if page.locator("figure svg:not([aria-label])").count():
            wrong.append(f"{name} has a figure without a description")
    page.close()
    assert wrong == []


def test_search_works_from_a_disk(browser: Browser) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    wrong = watched(page)
    page.goto((SITE / "index.html").as_uri())
    page.keyboard.press("f")
    page.keyboard.type("hockey stick")
    page.wait_for_selector(".md-search-result__link")
    assert "glossary.html" in page.locator(".md-search-result__list").inner_html()
    page.close()
    assert wrong == []


def test_what_is_watched_is_found(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text('<script>nothing()</script><img src="none.png">')
    page = browser.new_page()
    wrong = watched(page)
    page.goto((tmp_path / "page.html").as_uri())
    page.close()
    assert any("nothing is not defined" in one for one in wrong)
    assert any(one.startswith("failed:") for one in wrong)
