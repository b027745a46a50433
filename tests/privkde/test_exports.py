"""What `from privkde import …` gives, and what `import privkde` does not load."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import privkde


def test_every_public_name_is_there_and_is_listed() -> None:
    namespace: dict[str, object] = {}
    exec("from privkde import *", namespace)
    assert set(privkde.__all__) <= set(namespace)
    assert set(privkde.__all__) <= set(dir(privkde))
    for name in privkde.__all__:
        assert getattr(privkde, name).__name__ == name


def test_editors_see_what_is_loaded() -> None:
    """The imports for type checkers name the modules that a name is loaded from."""
    source = ast.parse(Path(privkde.__file__).read_text(encoding="utf-8"))
    typed = {
        alias.name: node.module.removeprefix("privkde.")
        for node in ast.walk(source)
        if isinstance(node, ast.ImportFrom) and node.module is not None and node.module.startswith("privkde.")
        for alias in node.names
    }
    assert typed == privkde._MODULES
    assert sorted(typed) == sorted(privkde.__all__)


def test_a_misspelled_name_is_an_error() -> None:
    with pytest.raises(AttributeError, match="PrivateKD'"):
        privkde.PrivateKD  # noqa: B018


def test_importing_the_package_loads_nothing_heavy() -> None:
    heavy = "{'numpy', 'scipy', 'sklearn', 'accounting'} & set(sys.modules)"
    command = f"import sys, privkde; dir(privkde); print({heavy} or 'light')"
    out = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=True)
    assert out.stdout == "light\n"
