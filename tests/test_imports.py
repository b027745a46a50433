"""What a start loads: nothing heavy before it is needed. Counted in modules; `make bench` counts seconds."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = {"apache_beam", "fastapi", "matplotlib", "pandas", "pydantic", "sklearn", "sqlalchemy", "torch"}
WHEN_NEEDED = {"dp_accounting"}
"""What the accountant computes with, but not before somebody wants a number."""


def loaded(program: str) -> set[str]:
    """Top-level packages that a fresh interpreter holds after this program."""
    code = (
        f"{program}\nimport json, sys\nprint('\\n' + json.dumps(sorted({{n.partition('.')[0] for n in sys.modules}})))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize("flag", ["--version", "--help"])
def test_the_command_line_opens_without_an_accountant(flag: str) -> None:
    program = f"import contextlib\nfrom privkde.cli import main\nwith contextlib.suppress(SystemExit): main([{flag!r}])"
    packages = loaded(program)
    assert "privkde" in packages
    assert packages & {"numpy", "scipy", "accounting", "rich", *HEAVY, *WHEN_NEEDED} == set()


def test_the_accountant_loads_numbers_and_nothing_else() -> None:
    packages = loaded("import accounting")
    assert {"accounting", "numpy", "scipy"} <= packages
    assert packages & (HEAVY | {"rich", "privkde"}) == set()


def test_the_accountant_loads_slow_packages_when_it_computes() -> None:
    assert loaded("import accounting") & WHEN_NEEDED == set()


def test_what_is_loaded_is_seen() -> None:
    assert "mpmath" in loaded("import mpmath")
