"""Pieces of a page: tables, figures inside the text, scans as PNG files written out in their own address."""

from __future__ import annotations

import base64
import re
import struct
import zlib
from collections.abc import Sequence
from html import escape

import numpy as np

from privkde.demo.data import WHITEST, Images
from privkde.figures import INK

SIGNATURE = b"\x89PNG\r\n\x1a\n"
DEPTH, GRAY = 8, 0


def table(header: Sequence[str], rows: Sequence[Sequence[str]], *, marked: int | None = None) -> str:
    """A table; the row number `marked` stands out."""
    head = "".join(f"<th>{escape(one)}</th>" for one in header)
    lines = []
    for number, row in enumerate(rows):
        cells = "".join(f"<td>{escape(one)}</td>" for one in row)
        lines.append(f'<tr class="own">{cells}</tr>' if number == marked else f"<tr>{cells}</tr>")
    return f"<table><tr>{head}</tr>\n" + "\n".join(lines) + "</table>"


def picture(image: Images, description: str) -> str:
    """A scan."""
    return f'<img class="scan" width="8" height="8" src="{address(image)}" alt="{escape(description)}">'


def inline_figure(svg: str, name: str, description: str) -> str:
    """A figure of `privkde.figures` as part of a page: transparent, in the page's ink, with names of its own.

    An HTML page knows SVG's namespaces, so their addresses go, and with them every address in the file.
    """
    body = svg[svg.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    root, rest = body.split(">", 1)
    root = re.sub(r'\s(xmlns(:\w+)?|width|height|version)="[^"]*"', "", root)
    rest = re.sub(r'\b(id="|href="#|url\(#)', rf"\g<1>{name}-", rest)
    rest = rest.replace("fill: #ffffff", "fill: none", 1).replace(INK, "currentColor")
    return f'{root} role="img" aria-label="{escape(description)}">{rest}'


def png(image: Images) -> bytes:
    """A gray picture, pixels from 0 (black) to `WHITEST`."""
    pixels = np.rint(np.clip(image, 0.0, WHITEST) * (255.0 / WHITEST)).astype(np.uint8)
    height, width = pixels.shape
    header = struct.pack(">IIBBBBB", width, height, DEPTH, GRAY, 0, 0, 0)
    lines = b"".join(b"\0" + row.tobytes() for row in pixels)
    return SIGNATURE + _chunk(b"IHDR", header) + _chunk(b"IDAT", zlib.compress(lines, 9)) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def address(image: Images) -> str:
    """The picture as a `data:` address."""
    return "data:image/png;base64," + base64.b64encode(png(image)).decode("ascii")
