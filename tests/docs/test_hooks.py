"""A small site built by mkdocs: what goes wrong on a page ends the build and says where."""

from __future__ import annotations

import json
import warnings
from contextlib import chdir
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from mkdocs.__main__ import cli

HOOKS = Path(__file__).parents[2] / "docs" / "guide" / "hooks.py"
WORDS = "# Home\n\nwords\n"
OTHER = "# Other\n\nwords\n"


def build(folder: Path, pages: dict[str, str]) -> Result:
    """Build a site of these pages, of which only the first is in the navigation."""
    (folder / "docs").mkdir()
    for name, text in pages.items():
        (folder / "docs" / name).write_text(text, encoding="utf-8")
    settings = {
        "site_name": "tiny",
        "theme": {"name": "mkdocs", "highlightjs": False},  # which that theme would load from elsewhere
        "plugins": [],
        "hooks": [str(HOOKS)],
        "strict": True,
        "validation": {"nav": {"omitted_files": "warn"}},
        "nav": [next(iter(pages))],
    }
    (folder / "mkdocs.yml").write_text(json.dumps(settings), encoding="utf-8")
    env = {"GUIDE_PAGES": None}
    with chdir(folder), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # those of mkdocs, which are not the guide's
        return CliRunner(env=env).invoke(cli, ["build", "--strict"])


def test_a_page_shows_what_its_code_gives(tmp_path: Path) -> None:
    done = build(tmp_path, {"index.md": "# Home\n\n```python\n6 * 7\n```\n\nHalf of it is {{ 42 // 2 }}.\n"})
    assert done.exit_code == 0, done.output
    shown = (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    assert "6 * 7" in shown
    assert ">42\n</code>" in shown
    assert "Half of it is 21." in shown


@pytest.mark.parametrize(
    ("pages", "reasons"),
    [
        pytest.param(
            {"index.md": "# Home\n\n```python\nassert 1 > 2\n```\n"},
            ["index.md, line 3: ", "AssertionError"],
            id="failing block",
        ),
        pytest.param(
            {"index.md": WORDS, "other.md": OTHER}, ["not included in the", "other.md"], id="page outside nav"
        ),
        pytest.param(
            {"index.md": '# Home\n\nsee <a href="none.html">there</a>\n'},
            ["index.html points to none.html, which does not exist"],
            id="broken link",
        ),
        pytest.param(
            {"index.md": '# Home\n\n<script src="https://example.org/x.js"></script>\n'},
            ["index.html loads https://example.org/x.js from elsewhere"],
            id="external script",
        ),
    ],
)
def test_what_is_wrong_ends_the_build(tmp_path: Path, pages: dict[str, str], reasons: list[str]) -> None:
    done = build(tmp_path, pages)
    assert done.exit_code != 0
    assert all(reason in done.output for reason in reasons), done.output
