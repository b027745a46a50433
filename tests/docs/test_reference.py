"""What the reference and the notation are made of: names that exist, in the words of the code."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from guide import notation
from guide.notation import BITSUM, KERNEL, OURS, PEOPLE, PRIVACY, found, linked, meaning, members, symbols
from guide.pages import PageError
from guide.reference import answers, commands, endpoints, exported, requests, require_modules

PACKAGE = "tiny_package"
SHAPES = '''"""Shapes."""

import enum
from dataclasses import dataclass


class Color(enum.Enum):
    """Paints."""

    RED = "red|warm"
    """Like fire. Seen from afar."""
    BLUE = "blue"
    """RGB value 3; Like the sea."""


@dataclass
class Square:
    """Four equal sides.

    And four corners.
    """

    side: float
    """Length of
    a side."""
    hidden: int
    filled: bool = False


def area(square: Square) -> float:
    return square.side**2
'''


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A package with the modules `shapes` and `inner.deep`."""
    inner = tmp_path / PACKAGE / "inner"
    inner.mkdir(parents=True)
    exports = f"from {PACKAGE}.shapes import Color, Square\n\nRED = Color.RED\n__all__ = ['Square', 'Color', 'RED']\n"
    (inner.parent / "__init__.py").write_text(exports)
    (inner.parent / "shapes.py").write_text(SHAPES)
    (inner / "__init__.py").touch()
    (inner / "deep.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    yield PACKAGE
    notation._package.cache_clear()
    for name in [one for one in sys.modules if one.partition(".")[0] == PACKAGE]:
        del sys.modules[name]


class TestNotation:
    def test_found(self, package: str) -> None:
        assert found(f"{package}.shapes") is sys.modules[f"{package}.shapes"]
        assert found(f"{package}.shapes.Square").__name__ == "Square"
        assert found(f"{package}.shapes.Square.filled") is False
        assert found(f"{package}.shapes.Square.side") is None  # a field without default

    @pytest.mark.parametrize("name", ["none", "shapes.Circle", "shapes.Square.radius", "shapes.Square.side.unit"])
    def test_what_does_not_exist_ends_the_build(self, package: str, name: str) -> None:
        with pytest.raises(PageError, match="does not exist"):
            found(f"{package}.{name}")

    def test_no_such_package(self) -> None:
        with pytest.raises(PageError, match=r"'no_such_package\.name' does not exist"):
            found("no_such_package.name")

    def test_meaning_is_the_first_sentence(self, package: str) -> None:
        assert meaning(f"{package}.shapes.Square") == "four equal sides"
        assert meaning(f"{package}.shapes.Square.side") == "length of a side"
        assert meaning(f"{package}.shapes.Color.RED") == "like fire"
        assert meaning(f"{package}.shapes.Color.BLUE") == "RGB value 3;"
        assert meaning(f"{package}.shapes.Square.hidden") == ""

    def test_links_lead_to_what_the_reference_shows(self, package: str) -> None:
        square = f"{package}.shapes.Square"
        assert f'<autoref identifier="{square}.side">' in linked(f"{square}.side")
        assert f'<autoref identifier="{square}">' in linked(f"{square}.hidden")
        assert "Square.<wbr>side</code>" in linked(f"{square}.side", short=True)
        assert package not in linked(f"{square}.side", short=True).partition(">")[2]

    def test_symbols(self, package: str, capsys: pytest.CaptureFixture[str]) -> None:
        symbols([("a", f"{package}.shapes.Square.side"), ("A", f"{package}.shapes.area", "a²")])
        first, second = capsys.readouterr().out.strip().split("\n")[2:]
        assert first.startswith("| a | <autoref")
        assert first.endswith(" | length of a side |")
        assert second.endswith(" | a² |")

    @pytest.mark.parametrize("name", ["shapes.Square.hidden", "shapes.area"])
    def test_symbols_without_words_end_the_build(self, package: str, name: str) -> None:
        with pytest.raises(PageError, match=rf"nothing is said of 'h': '{package}\.{name}' has no docstring"):
            symbols([("h", f"{package}.{name}")])

    def test_members(self, package: str, capsys: pytest.CaptureFixture[str]) -> None:
        members(f"{package}.shapes.Color")
        header, _, red, blue = capsys.readouterr().out.strip().split("\n")
        assert header == "| value | in the code | meaning |"
        assert r">red\|warm</code>" in red
        assert red.endswith(" | like fire |")
        assert "Color.<wbr>BLUE</code>" in blue

    def test_the_code_has_words_for_every_symbol_but_two(self) -> None:
        listed: list[tuple[str, ...]] = [*PEOPLE, *PRIVACY, *KERNEL, *BITSUM, *OURS]
        assert [letter for letter, _, *words in listed if words] == ["δ′", "t_i"]  # an argument, and one of many
        assert all(meaning(name) for _, name, *_ in listed)


class TestModules:
    @pytest.fixture
    def page(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setattr("guide.reference.DOCS", tmp_path)
        return tmp_path / "page.md"

    def test_all_are_there(self, package: str, page: Path) -> None:
        page.write_text(f"# Modules\n\n::: {package}.shapes\n")
        require_modules(package, "page.md", internal=[f"{package}.inner.*"])
        page.write_text(f"::: {package}.shapes\n\n::: {package}.inner.deep\n")
        require_modules(package, "page.md", internal=[f"{package}.inner"])

    def test_a_missing_module_ends_the_build(self, package: str, page: Path) -> None:
        page.write_text(f"::: {package}.shapes\n")
        with pytest.raises(PageError, match=rf"page\.md: missing \['{package}\.inner\.deep'\], unknown \[\]"):
            require_modules(package, "page.md", internal=[f"{package}.inner"])

    def test_an_unknown_module_ends_the_build(self, package: str, page: Path) -> None:
        page.write_text(f"::: {package}.shapes\n\n::: {package}.gone\n")
        with pytest.raises(PageError, match=rf"missing \[\], unknown \['{package}\.gone'\]"):
            require_modules(package, "page.md", internal=[f"{package}.inner.*"])

    def test_exported(self, package: str, capsys: pytest.CaptureFixture[str]) -> None:
        exported(package)
        rows = capsys.readouterr().out.strip().split("\n")[2:]
        assert [row.partition("[`")[2].partition("`]")[0] for row in rows] == ["Color", "RED", "Square"]
        assert f'| <span id="{package}.RED"></span>[`RED`](#{package}.shapes.Color) |' in rows[1]
        assert rows[2].endswith(f"[`Square`](#{package}.shapes.Square) | Four equal sides. |")


class TestCommands:
    @pytest.fixture
    def shown(self, capsys: pytest.CaptureFixture[str]) -> list[str]:
        parser = argparse.ArgumentParser(prog="tool")
        below = parser.add_subparsers()
        run = below.add_parser("run", help="run it")
        run.add_argument("--times", type=int, default=3, help="how often")
        run.add_argument("--users", type=int, required=True, help="how many, for %(prog)s")
        run.add_argument("--fast", action="store_true", help="in a hurry")
        run.add_argument("--how", choices=["a", "b"], help="a|b")
        run.add_argument("--error", help="largest error (default: none)")
        run.add_argument("--secret", help=argparse.SUPPRESS)
        either = run.add_mutually_exclusive_group(required=True)
        either.add_argument("--this", metavar="FILE|DIR", help="this")
        run.add_argument("file", nargs="+", help="what to read")
        more = below.add_parser("more", help="More of it.").add_subparsers()
        more.add_parser("deep", description="Deep down.")
        commands(parser)
        return capsys.readouterr().out.split("\n")

    def test_every_command_has_a_heading_and_words(self, shown: list[str]) -> None:
        assert [line for line in shown if line.startswith("#")] == ["## tool run", "## tool more", "### tool more deep"]
        assert "Run it." in shown
        assert "More of it." in shown
        assert "Deep down." in shown
        assert shown.count("|:---|:---|:---|") == 2  # words only, even where there are no options

    def test_options_and_their_defaults(self, shown: list[str]) -> None:
        start = shown.index("| option | meaning | default |")
        assert shown[start + 2 : start + 10] == [
            "| `FILE …` | what to read | required |",
            "| `--times TIMES` | how often | 3 |",
            "| `--users USERS` | how many, for tool run | required |",
            "| `--fast` | in a hurry | off |",
            "| `--how a or b` | a\\|b | — |",
            "| `--error ERROR` | largest error | none |",
            "| `--this FILE or DIR` | this | one of these is required |",
            "",
        ]


class TestOpenApi:
    @pytest.fixture
    def document(self) -> dict[str, Any]:
        schema = {"$ref": "#/components/schemas/Question"}
        body = {"content": {"application/json": {"schema": schema, "examples": {"small": {"value": {"size": 2}}}}}}
        reply = {"schema": {"type": "array", "items": {"$ref": "#/components/schemas/Plan"}}}
        ask = {
            "tags": ["asking"],
            "summary": "Ask",
            "description": "Answers at once.",
            "parameters": [{"in": "header", "name": "idempotency-key"}, {"in": "path", "name": "id"}],
            "requestBody": body,
            "responses": {"201": {"content": {"application/json": reply}}, "404": {}, "422": {}},
        }
        text = {"application/json": {"schema": {"type": "string"}}}
        look = ask | {"tags": ["other"], "summary": "Look", "responses": {"200": {"content": text}}}
        size = {"type": "integer", "minimum": 1, "maximum": 10_000, "description": "how large"}
        rate = {"type": "number", "exclusiveMinimum": 0, "maximum": 1, "default": 0.5}
        kind = {"anyOf": [{"enum": ["a", "b"]}, {"type": "null"}], "description": "which", "x-unset": "a"}
        question = {
            "additionalProperties": False,
            "properties": {"size": size, "rate": rate, "kind": kind},
            "required": ["size"],
        }
        inner = {"type": "object", "properties": {"deep": {"type": "string"}}}
        answer = {"properties": {"one": inner, "many": {"type": "array", "items": inner}, "flat": {"type": "string"}}}
        schemas = {"Question": question, "Answer": answer, "Plan": {"properties": {}}}
        return {"paths": {"/v1/ask/{id}": {"post": ask, "get": look}}, "components": {"schemas": schemas}}

    def test_endpoints(self, document: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
        endpoints(document, "asking")
        assert [line for line in capsys.readouterr().out.split("\n") if line] == [
            "### POST /v1/ask/{id}",
            "**Ask.** Answers at once.",
            "- header: `Idempotency-Key`",
            "- request: [Question](#question)",
            "- answer: 201, list of [Plan](plans.md)",
            "- problems: 404, 422",
            "```json",
            '{"size": 2}',
            "```",
        ]

    def test_requests(self, document: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
        requests(document)
        assert [line for line in capsys.readouterr().out.split("\n") if line] == [
            "### Question",
            "| member | type | default | meaning |",
            "|:---|:---|:---|:---|",
            "| `size` | whole number, 1 to 10,000 | required | how large |",
            "| `rate` | number, above 0 to 1 | `0.5` |  |",
            '| `kind` | `"a"`, `"b"` | a | which |',
        ]

    def test_answers(self, document: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
        answers(document)
        rows = capsys.readouterr().out.strip().split("\n")[2:]
        assert rows == ['| <span id="answer"></span>Answer | `one`, `many`, `flat` |']
