"""Run all pages at once, each in a process of its own, and remember what they gave."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from importlib.metadata import distributions
from pathlib import Path

from guide.execution import COLUMNS
from guide.pages import PageError, has_code

ROOT = Path(__file__).parents[2]
MEMORY = ROOT / ".cache" / "guide"
CALLED = ("accounting", "privkde", "verification", "benchmarks", "docs/guide")
READ = ("Makefile", "pyproject.toml", "docs/**/*.json", "docs/proofs/*.md")
"""What a page's results depend on, besides its own text, the names of all pages and the installed packages."""
SETTINGS = {
    "COLUMNS": str(COLUMNS),
    "MPLBACKEND": "Agg",
    "NO_COLOR": "1",
    "PYTHONHASHSEED": "0",
    "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "docs")]),
    "TERM": "dumb",
}


class Pages:
    """Pages that run in the background from the moment they are known."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        """Take texts by name (their path below docs/)."""
        self._pool = ThreadPoolExecutor(max_workers=os.cpu_count() or 1)
        state = _state()
        self._running: dict[str, Future[str]] = {
            name: self._pool.submit(_finished, name, text, state) for name, text in texts.items() if has_code(text)
        }
        self._pool.shutdown(wait=False)

    def text(self, name: str, text: str) -> str:
        """The page as it is after its code ran."""
        return self._running[name].result() if name in self._running else text

    def failures(self) -> list[str]:
        """What went wrong on any page, after all have run."""
        return [str(error) for one in self._running.values() if (error := one.exception()) is not None]


def _finished(name: str, text: str, state: str) -> str:
    known = MEMORY / hashlib.sha256(f"{state}\n{name}\n{text}".encode()).hexdigest()
    if known.is_file():
        return known.read_text(encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "guide.execution"],
        input=text,
        capture_output=True,
        text=True,
        env=os.environ | SETTINGS,
        check=False,
    )
    if done.returncode:
        raise PageError(f"{name}, {done.stdout}\n{done.stderr}" if done.stdout else f"{name}: {done.stderr}")
    MEMORY.mkdir(parents=True, exist_ok=True)
    written = known.with_suffix(".new")
    written.write_text(done.stdout, encoding="utf-8")
    written.replace(known)
    return done.stdout


def _state() -> str:
    """A digest of everything that pages may call or read."""
    digest = hashlib.sha256(sys.version.encode())
    for one in sorted(f"{one.name} {one.version}" for one in distributions()):
        digest.update(one.encode())
    called = [path for folder in CALLED for path in sorted((ROOT / folder).rglob("*")) if path.suffix != ".pyc"]
    digest.update("\n".join(sorted(path.name for path in (ROOT / "docs").rglob("*.md"))).encode())
    for path in [*called, *(path for pattern in READ for path in sorted(ROOT.glob(pattern)))]:
        if path.is_file():
            digest.update(str(path.relative_to(ROOT)).encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()
