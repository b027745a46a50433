"""What the files at the top say: paths that exist, one version, one paper."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path, PurePosixPath

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PAGES = ("CONTRIBUTING.md", "README.md", "SECURITY.md", "tests/README.md")
FOLDERS = "accounting|privkde|verification|tests|docs|benchmarks|\\.ci"
PATH = re.compile(rf"(?<![\w./-])(?:{FOLDERS})/[\w./<>*-]*")
FILE = re.compile(r"(?<![\w/.<>*-])[\w-]+\.(?:py|md|toml|yml|cff|json)\b")


def tracked() -> set[str]:
    """Files that git tracks or would track, and their folders."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listing = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    files = [PurePosixPath(name) for name in listing.split("\0") if name and (ROOT / name).exists()]
    return {str(path) for file in files for path in (file, *file.parents)}


def missing(text: str, known: set[str]) -> set[str]:
    """Paths that the text names and nobody has. Of `folder/<name>.py` only the folder must exist."""
    paths = {path.rstrip("./") for path in PATH.findall(text)}
    definite = {re.sub(r"/[^/]*[<*].*", "", path) for path in paths}
    names = {PurePosixPath(path).name for path in known}
    return (definite - known) | {name for name in FILE.findall(text) if name not in names}


@pytest.mark.parametrize("page", PAGES)
def test_paths_exist(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    examples = {"plan.json", "certificate.json", "report.json"}  # files that a reader makes
    assert len(PATH.findall(text)) > 0, "nothing was checked"
    assert missing(text, tracked()) - examples == set()


def test_a_path_that_is_gone_is_seen() -> None:
    known = {"docs", "docs/start.md", "privkde", "privkde/cli", "tests", "mkdocs.yml"}
    text = "`docs/start.md`, docs/gone.md, `tests/test_<law>.py`, tests/no/test_<law>.py, privkde/cli/, a.py."
    assert missing(text, known) == {"docs/gone.md", "tests/no", "a.py"}


def test_one_version() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    version, date = re.findall(r"^## \[(\d[\w.]*)\] - ([\d-]+)$", changes, re.MULTILINE)[0]
    assert PROJECT["version"] == cited["version"] == version
    assert str(cited["date-released"]) == date
    assert cited["license"] == PROJECT["license"]


def test_one_paper() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    (paper,) = cited["references"]
    assert paper["title"] in " ".join((ROOT / "docs" / "index.md").read_text(encoding="utf-8").split())
    assert paper["url"] == PROJECT["urls"]["Paper"]


def test_nothing_on_a_screen_is_proved_by_an_accountant() -> None:
    """Its numbers are double precision; "proved" stands for ball arithmetic, and "not proved" may stand beside it."""
    screens = [path for end in ("py", "js", "html") for path in (ROOT / "privkde").rglob(f"*.{end}")]
    assert len(screens) > 50
    assert [path.name for path in screens if re.search(r"proved by \W", path.read_text(encoding="utf-8"))] == []
