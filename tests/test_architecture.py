"""The rooms of the house: imports point left only, two files wrap dp_accounting, nothing is called utils.

Names, too: no two modules share one unless they mean the same thing, and tests have the names of what they test.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("accounting", "privkde", "verification")  # each may import itself and those to its left
OUTSIDE = ("tests", "benchmarks")  # no package may import these
DP_ACCOUNTING_WRAPPERS = {
    "accounting/numerics/losses.py": "hands privacy losses over to it",
    "accounting/releases/exchange.py": "reads events, which are types of dp_accounting",
}
"""The files that may import dp_accounting, and why."""

A_LAW = "a law, and what draws from it"
SHARED_NAMES = {
    "baselines": "errors that are predicted, and the estimators that have them",
    "commands": "each package lists its own",
    "execution": "the protocols that are run, and the checks of how they ran",
    "kernels": "facts, and the maps that have them",
    "ledger": "a package, and the class that it is about",
    "pure": A_LAW,
    "randomized_response": A_LAW,
    "single_noise": A_LAW,
    "three_negative_binomial": A_LAW,
}
"""Names of more than one module or package, and why that confuses nobody."""

UNMIRRORED = {
    "privkde/cli/test_command_line.py": "every command, from outside",
    "privkde/test_exports.py": "what `from privkde import …` offers",
    "privkde/test_walk_of_a_record.py": "the walk of CONTRIBUTING.md, step by step",
}
"""Tests of no single module or package, and what they are about."""


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


def imported_by_name(source: str, packages: set[str]) -> set[str]:
    """Of these packages, those that a string names as `package.module`: imports in disguise. Prose has more words."""
    named = re.compile(rf"({'|'.join(sorted(packages))})(\.\w+)*(:\w+)?") if packages else re.compile("(?!)")
    texts = (node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant))
    return {text.partition(".")[0] for text in texts if isinstance(text, str) and "." in text and named.fullmatch(text)}


def violations(path: PurePosixPath, source: str) -> list[str]:
    """What is wrong with the module at this path, relative to the root of the repository."""
    forbidden = {*PACKAGES[PACKAGES.index(path.parts[0]) + 1 :], *OUTSIDE}
    disguised = imported_by_name(source, forbidden)
    if str(path) not in DP_ACCOUNTING_WRAPPERS:
        forbidden.add("dp_accounting")
    found = [f"{path} imports {name}" for name in sorted(imported_roots(source) & forbidden)]
    found += [f"{path} names a module of {name} in a string" for name in sorted(disguised)]
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
        ("privkde/made_up.py", "import_module('verification.auditing')", "names a module of verification in a string"),
        ("accounting/made_up.py", "HOME = 'privkde.cli:main'", "names a module of privkde in a string"),
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
        ("accounting/numerics/losses.py", "from dp_accounting.pld import pld_pmf"),
        ("accounting/releases/exchange.py", "from dp_accounting import dp_event"),
        ("accounting/made_up.py", "import numpy\nSOURCE = 'import privkde'"),
        ("verification/made_up.py", "import_module('privkde.cli')\nLIST = 'verification'"),
        ("privkde/made_up.py", "'Imports of verification. They point left.'"),
    ],
)
def test_checker_accepts_what_is_allowed(path: str, source: str) -> None:
    assert violations(PurePosixPath(path), source) == []


ROOMS = ("draws", "storage", "kernels", "bitsum", "protocol", "engines", "learning")
"""The path of a record through `privkde`; each room may import itself and those to its left."""


def imported_rooms(source: str) -> set[str]:
    """The rooms of `privkde` that the source imports."""
    modules = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            modules |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return {module.split(".")[1] for module in modules if module.startswith("privkde.")}


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_rooms_before_it(room: str) -> None:
    later = ROOMS[ROOMS.index(room) + 1 :]
    modules = sorted((ROOT / "privkde" / room).glob("*.py"))
    assert modules, f"no module found in {room}: nothing was checked"
    found = [(module.name, name) for module in modules for name in later if name in imported_rooms(module.read_text())]
    assert found == []


def test_an_import_of_a_later_room_is_seen() -> None:
    assert imported_rooms("from privkde import engines\nimport privkde.draws.laws") == {"engines", "draws"}
    assert imported_rooms("def f():\n    from privkde.learning.scoring import measured") == {"learning"}


# Cycles: whichever module is imported first, it can be -----------------------------------------------------------


def imported_at_once(body: list[ast.stmt]) -> Iterator[str]:
    """Names that importing a module imports, those of `from` twice: `from a import b` may mean a module `a.b`."""
    for node in body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield from (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))
        elif isinstance(node, ast.If) and "TYPE_CHECKING" not in ast.unparse(node.test):
            yield from imported_at_once([*node.body, *node.orelse])


def dependencies(sources: Mapping[str, str]) -> dict[str, set[str]]:
    """For each module those that it needs: what it imports and their packages, but not the packages that it is in."""
    needs: dict[str, set[str]] = {}
    for module, source in sources.items():
        names = [name.split(".") for name in imported_at_once(ast.parse(source).body)]
        loaded = {".".join(words[:end]) for words in names for end in range(1, len(words) + 1)}
        needs[module] = {name for name in loaded & set(sources) if not f"{module}.".startswith(f"{name}.")}
    return needs


def test_no_import_goes_round_in_a_circle() -> None:
    sources = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path.read_text("utf-8")
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
    }
    TopologicalSorter(dependencies(sources)).prepare()


def test_a_circle_is_seen() -> None:
    sources = {
        "a": "",
        "a.b": "from a.c import d",
        "a.c": "from e import f",
        "e": "from e.f import g",
        "e.f": "import a.b",
    }
    with pytest.raises(CycleError):
        TopologicalSorter(dependencies(sources)).prepare()
    TopologicalSorter(dependencies(sources | {"e.f": "def g():\n    import a.b"})).prepare()


# Names --------------------------------------------------------------------------------------------------------------


def homes() -> dict[str, list[str]]:
    """Where each name of a module or of a package within the three packages is used."""
    places: dict[str, list[str]] = defaultdict(list)
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            own = path.parent if path.name == "__init__.py" else path
            if not own.stem.startswith("_") and own != ROOT / package:
                places[own.stem].append(own.relative_to(ROOT).as_posix())
    return places


def test_a_name_means_one_thing() -> None:
    shared = {name: places for name, places in homes().items() if len(places) > 1}
    assert set(shared) == set(SHARED_NAMES), shared


def mirrored(path: PurePosixPath, exists: set[str]) -> bool:
    """Whether a test is named after what it tests.

    `a/b/test_c.py` tests the module or folder `a/b/c`, or the package `a/b` if its name is c. A further word says which
    side of it: `test_c_over_http.py`.
    """
    words, home = path.stem.removeprefix("test_").split("_"), path.parent
    names = {"_".join(words[:end]) for end in range(1, len(words) + 1)}
    return home.name in names or any({f"{home}/{name}.py", f"{home}/{name}"} & exists for name in names)


def test_tests_mirror_the_modules() -> None:
    exists = {path.relative_to(ROOT).as_posix() for package in PACKAGES for path in (ROOT / package).rglob("*")}
    tests = [
        PurePosixPath(path.relative_to(ROOT / "tests").as_posix())
        for package in PACKAGES
        for path in (ROOT / "tests" / package).rglob("test_*.py")
    ]
    assert len(tests) > 50, "nothing was checked"
    strangers = {str(path) for path in tests if not mirrored(path, exists)}
    assert strangers == set(UNMIRRORED)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("privkde/rooms/test_chairs.py", True),
        ("privkde/rooms/test_chairs_by_night.py", True),
        ("privkde/rooms/test_rooms.py", True),
        ("privkde/test_rooms.py", True),
        ("privkde/rooms/test_tables.py", False),
        ("privkde/test_chairs.py", False),
    ],
)
def test_a_test_that_mirrors_nothing_is_seen(path: str, expected: bool) -> None:
    assert mirrored(PurePosixPath(path), {"privkde/rooms", "privkde/rooms/chairs.py"}) is expected
