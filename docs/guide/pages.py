"""A page as a sequence of prose and fenced blocks."""

from __future__ import annotations

import re
from dataclasses import dataclass

FENCE = re.compile(r"^(?P<indent> *)(?P<ticks>`{3,}|~{3,})(?P<language>[\w+-]*)(?P<rest>[^`]*)$")
OPENS = re.compile(r"(?:[-*+]|\d+[.)]|:|!!!|\?\?\?\+?|===|\[\^)")
"""Beginnings of lines that indented lines belong to: lists, definitions, admonitions, tabs, footnotes."""
RUNNABLE = ("python", "console")
UNRUN = ("text", "")
"""Fences that hold no code: a drawing in letters, a formula, a format. Every other language is refused."""
OPTIONS = {"python": ("hide", "raises"), "console": ("exit",)}
VALUE = re.compile(r"\{\{ (?P<expression>.+?)(?: \| (?P<format>[^|{}]+?))? \}\}")
"""A value in the prose: `{{ expression }}` or `{{ expression | format }}`."""


class PageError(Exception):
    """Something on a page that ends the build."""


@dataclass(frozen=True, slots=True)
class Prose:
    """Lines between blocks."""

    line: int
    text: str


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block; `options` are the words behind the language: `hide`, `raises=Name`, `exit=2`."""

    line: int
    indent: str
    language: str
    options: dict[str, str]
    code: str

    @property
    def fence(self) -> str:
        """As many backticks as the code needs."""
        longest = max((len(run) for run in re.findall(r"`{3,}", self.code)), default=2)
        return "`" * (longest + 1)


def split(text: str) -> list[Prose | Block]:
    """Prose and blocks of a page, in order."""
    pieces: list[Prose | Block] = []
    lines = text.split("\n")
    prose: list[str] = []
    number = 0
    while number < len(lines):
        opening = FENCE.match(lines[number])
        if opening is None:
            if _is_indented_code(lines, number):
                raise PageError(f"line {number + 1}: indented code does not run; put it into a fence.")
            prose.append(lines[number])
            number += 1
            continue
        end = _closing(lines, number, opening)
        pieces.append(Prose(line=number + 1 - len(prose), text="\n".join(prose)))
        pieces.append(_block(lines[number + 1 : end], number + 1, opening))
        prose, number = [], end + 1
    pieces.append(Prose(line=number + 1 - len(prose), text="\n".join(prose)))
    return pieces


def has_code(text: str) -> bool:
    """Whether something on the page has to run."""
    return any(
        piece.language in RUNNABLE if isinstance(piece, Block) else VALUE.search(piece.text) for piece in split(text)
    )


def _is_indented_code(lines: list[str], number: int) -> bool:
    """Whether Markdown takes a line for code because of its indent: after a blank line, and no part of a list."""
    if not lines[number].startswith("    ") or not lines[number].strip() or (number and lines[number - 1].strip()):
        return False
    above = next((line for line in reversed(lines[:number]) if line and not line.startswith(" ")), "")
    return not OPENS.match(above)


def _closing(lines: list[str], number: int, opening: re.Match[str]) -> int:
    ticks = opening["ticks"]
    for later in range(number + 1, len(lines)):
        stripped = lines[later].strip()
        if len(stripped) >= len(ticks) and set(stripped) == {ticks[0]}:
            return later
    raise PageError(f"line {number + 1}: the block is never closed; add {ticks}.")


def _block(body: list[str], line: int, opening: re.Match[str]) -> Block:
    indent, language = opening["indent"], opening["language"]
    if language not in (*RUNNABLE, *UNRUN):
        raise PageError(
            f"line {line}: a block of {language!r} does not run; make it python or console, or print it from one."
        )
    options = dict(_option(word) for word in opening["rest"].split())
    for name in options:
        if name not in OPTIONS.get(language, ()):
            raise PageError(f"line {line}: {language or 'text'} blocks have no option {name!r}.")
    code = "\n".join(one.removeprefix(indent) for one in body)
    return Block(line=line, indent=indent, language=language, options=options, code=code)


def _option(word: str) -> tuple[str, str]:
    name, _, value = word.partition("=")
    return name, value
