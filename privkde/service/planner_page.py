"""The planner page and the API page: files of this package and of Swagger UI's, and nothing from anywhere else."""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files

from fastapi import APIRouter, Response

router = APIRouter(include_in_schema=False)

OWN = ("privkde.service", "page")
SWAGGER = ("fastapi_swagger", "resources")
"""A package that holds the files of Swagger UI; only they are used."""
HTML, CSS, SCRIPT = "text/html; charset=utf-8", "text/css; charset=utf-8", "text/javascript; charset=utf-8"
FILES = {
    "": (OWN, "index.html", HTML),
    "style.css": (OWN, "style.css", CSS),
    "planner.js": (OWN, "planner.js", SCRIPT),
    "charts.js": (OWN, "charts.js", SCRIPT),
    "results.js": (OWN, "results.js", SCRIPT),
    "words.js": (OWN, "words.js", SCRIPT),
    "icon.svg": (OWN, "icon.svg", "image/svg+xml"),
    "docs": (OWN, "api.html", HTML),
    "api.js": (OWN, "api.js", SCRIPT),
    "docs/swagger-ui.css": (SWAGGER, "swagger-ui.css", CSS),
    "docs/swagger-ui-bundle.js": (SWAGGER, "swagger-ui-bundle.js", SCRIPT),
}


@lru_cache
def _content(folder: tuple[str, str], name: str) -> bytes:
    return files(folder[0]).joinpath(folder[1], name).read_bytes()


def _add(path: str, folder: tuple[str, str], name: str, media: str) -> None:
    @router.api_route(f"/{path}", methods=["GET", "HEAD"], name=f"page {name}")
    async def served() -> Response:
        return Response(_content(folder, name), media_type=media, headers={"Cache-Control": "no-cache"})


for _path, (_folder, _name, _media) in FILES.items():
    _add(_path, _folder, _name, _media)
