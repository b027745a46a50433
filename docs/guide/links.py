"""Follow every link of the built guide; refuse what a page would load from elsewhere, and pages that are too large."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADING = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}
"""Attributes whose address a browser fetches by itself."""
LARGEST = 3_000_000
"""Bytes of a page; a larger one holds a figure with far more points than anybody sees."""
HARMLESS = ("canonical", "alternate", "next", "prev")


@dataclass
class Found(HTMLParser):
    """What one page points to and what can be pointed to on it."""

    links: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)
    names: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note addresses and names of an element."""
        values = {name: value or "" for name, value in attrs}
        self.names.update(values[name] for name in ("id", "name") if name in values)
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if tag in LOADING and LOADING[tag] in values and values.get("rel") not in HARMLESS:
            self.loaded.append(values[LOADING[tag]])


def broken(site: Path) -> Iterator[str]:
    """A line for everything that is wrong with the links of a built site."""
    pages = {path.resolve(): _read(path) for path in sorted(site.rglob("*.html")) if path.name != "404.html"}
    for path, found in pages.items():
        where = path.relative_to(site.resolve())
        if path.stat().st_size > LARGEST:
            yield f"{where} has more than {LARGEST:,} bytes"
        for address in found.loaded:
            if urlsplit(address).netloc:
                yield f"{where} loads {address} from elsewhere"
        for address in (*found.links, *found.loaded):
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            if not target.is_file():
                yield f"{where} points to {address}, which does not exist"
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].names:
                yield f"{where} points to {address}, and there is no such place on that page"


def _read(path: Path) -> Found:
    found = Found()
    found.feed(path.read_text(encoding="utf-8"))
    return found
