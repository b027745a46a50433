"""The rooms of the house: imports point left only, one file wraps dp_accounting, nothing is called utils."""

import ast
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("accounting", "privkde", "verification")  # each may import itself and those to its left
OUTSIDE = ("tests", "benchmarks")  # no package may import these
DP_ACCOUNTING_WRAPPER = PurePosixPath("accounting/losses.py")


def imported_roots(source: str) -> set[str]:
    """Top-level names imported anywhere in the source. A relative import cannot leave its own package."""
    roots = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            roots |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            assert node.module is not None
            roots.add(node.module.partition(".")[0])
    return roots


def violations(path: PurePosixPath, source: str) -> list[str]:
    """What is wrong with the module at this path, relative to the root of the repository."""
    forbidden = {*PACKAGES[PACKAGES.index(path.parts[0]) + 1 :], *OUTSIDE}
    if path != DP_ACCOUNTING_WRAPPER:
        forbidden.add("dp_accounting")
    found = [f"{path} imports {name}" for name in sorted(imported_roots(source) & forbidden)]
    if "utils" in path.with_suffix("").parts:
        found.append(f"{path} is named utils")
    return found


@pytest.mark.parametrize("package", PACKAGES)
def test_every_module_keeps_the_rules(package: str) -> None:
    modules = sorted((ROOT / package).rglob("*.py"))
    assert modules, f"no module found in {package}: nothing was checked"
    found = [
        violation
        for module in modules
        for violation in violations(
            PurePosixPath(module.relative_to(ROOT).as_posix()), module.read_text(encoding="utf-8")
        )
    ]
    assert found == []


@pytest.mark.parametrize(
    ("path", "source", "expected"),
    [
        ("accounting/made_up.py", "import privkde.cli", "imports privkde"),
        ("accounting/mechanisms/made_up.py", "import math, verification as v", "imports verification"),
        ("accounting/made_up.py", "def f():\n    from privkde.bitsum import rr", "imports privkde"),
        ("privkde/made_up.py", "from verification import verdict", "imports verification"),
        ("privkde/made_up.py", "if 1:\n    import dp_accounting.pld", "imports dp_accounting"),
        ("accounting/composition/pld.py", "from dp_accounting.pld import pld_pmf", "imports dp_accounting"),
        ("verification/profile.py", "import dp_accounting", "imports dp_accounting"),
        ("verification/made_up.py", "from tests.strategies import bits", "imports tests"),
        ("privkde/utils.py", "", "is named utils"),
        ("accounting/utils/__init__.py", "", "is named utils"),
    ],
)
def test_checker_detects_a_violation(path: str, source: str, expected: str) -> None:
    assert violations(PurePosixPath(path), source) == [f"{path} {expected}"]


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("verification/made_up.py", "import accounting\nfrom privkde import cli\nfrom . import verdict"),
        ("privkde/made_up.py", "from accounting.guarantee import Guarantee\nfrom .verification import x"),
        ("accounting/losses.py", "from dp_accounting.pld import pld_pmf"),
        ("accounting/made_up.py", "import numpy\nSOURCE = 'import privkde'"),
    ],
)
def test_checker_accepts_what_is_allowed(path: str, source: str) -> None:
    assert violations(PurePosixPath(path), source) == []
