"""Pages of the guide as programs: nothing on them is imported or named for no use."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from guide.building import ROOT
from guide.pages import VALUE, Block, split

DOCS = ROOT / "docs"
PAGES = sorted(page for page in DOCS.rglob("*.md") if page.parent != DOCS / "guide")
RULES = "F401,F841"
"""Unused imports, unused names. Imports may be repeated: a reader sees only the blocks that are not hidden."""


def program(text: str) -> str:
    """The page's Python as the body of one function (only there names can be unused), on the lines of the page."""
    lines = [""] * (text.count("\n") + 1)
    lines[0] = "def page():"
    for piece in split(text):
        if not isinstance(piece, Block):
            for number, line in enumerate(piece.text.split("\n"), start=piece.line):
                for value in VALUE.finditer(line):
                    lines[number - 1] += f" ({value['expression']});"
        elif piece.language == "python":
            for number, line in enumerate(piece.code.split("\n"), start=piece.line):
                lines[number] = f" {line}"
    return "\n".join(lines) + "\n pass\n"


def unused(text: str, name: str = "page.md") -> list[str]:
    """What ruff finds, one line each."""
    command = [
        sys.executable,
        "-m",
        "ruff",
        "check",
        "--isolated",
        "--no-cache",
        "--output-format",
        "concise",
        "--quiet",
    ]
    found = subprocess.run(
        [*command, "--select", RULES, "--stdin-filename", f"{name}.py", "-"],
        input=program(text),
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    assert found.returncode in (0, 1), found.stderr
    return found.stdout.splitlines()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(DOCS).as_posix())
def test_nothing_is_unused(page: Path) -> None:
    assert unused(page.read_text(encoding="utf-8"), page.stem) == []


@pytest.mark.parametrize(
    ("text", "rule", "line"),
    [
        ("# A\n\n```python hide\nimport math\n```\n", "F401", 4),
        ("# A\n\n```python\nx = 1\n```\n\nSee x.\n", "F841", 4),
    ],
)
def test_what_is_unused_is_found(text: str, rule: str, line: int) -> None:
    (found,) = unused(text)
    assert f":{line}:" in found
    assert f" {rule} " in found


def test_values_are_uses() -> None:
    assert unused("# A\n\n```python\nimport math\nx = 1\n```\n\n{{ math.pi | .2f }} and {{ x }}\n") == []


def test_a_page_without_code_is_fine() -> None:
    assert unused("# A\n") == []
