"""The planner page: files of this package, and nothing from anywhere else."""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files

from fastapi import APIRouter, Response

router = APIRouter(include_in_schema=False)

FILES = {
    "": ("index.html", "text/html; charset=utf-8"),
    "style.css": ("style.css", "text/css; charset=utf-8"),
    "planner.js": ("planner.js", "text/javascript; charset=utf-8"),
    "charts.js": ("charts.js", "text/javascript; charset=utf-8"),
    "results.js": ("results.js", "text/javascript; charset=utf-8"),
    "words.js": ("words.js", "text/javascript; charset=utf-8"),
    "icon.svg": ("icon.svg", "image/svg+xml"),
}


@lru_cache
def _content(name: str) -> bytes:
    return files("privkde.service").joinpath("page", name).read_bytes()


def _add(path: str, name: str, media: str) -> None:
    @router.api_route(f"/{path}", methods=["GET", "HEAD"], name=f"page {name}")
    async def served() -> Response:
        return Response(_content(name), media_type=media, headers={"Cache-Control": "no-cache"})


for _path, (_name, _media) in FILES.items():
    _add(_path, _name, _media)
