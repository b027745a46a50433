"""Run the code of a page and put what it prints behind it.

A page is one program. Its `python` blocks share one namespace and run from top to bottom in a folder of their own:

- a block is shown, and below it what it printed and the value of its last expression;
- `python hide` is not shown, and what it prints becomes part of the page as Markdown;
- `python raises=Name` must raise this exception, whose message is shown;
- `console` runs each `$ command` (`exit=2` if it must end so) and shows what it printed;
- `{{ expression }}` in the prose becomes its value, with `{{ expression | .2f }}` in that format.

Anything that goes wrong ends the build with the page, the line and the reason.
"""

from __future__ import annotations

import ast
import contextlib
import io
import os
import re
import subprocess
import sys
import tempfile
import textwrap
import traceback
from pathlib import Path
from typing import Any

from guide.pages import VALUE, Block, PageError, Prose, split
from guide.writing import in_words

COLUMNS = 84
"""What a block shows on a wide page without being scrolled."""
SECONDS = 600


class Program:
    """One page while it runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.names: dict[str, Any] = {"__name__": "__page__", "folder": folder}

    def run(self, text: str) -> str:
        """The page with everything in it that its code gives."""
        return "\n".join(self._piece(piece) for piece in split(text))

    def _piece(self, piece: Prose | Block) -> str:
        if isinstance(piece, Prose):
            shown = VALUE.sub(lambda found: self._value(found, piece), piece.text)
            if "{{ " in shown:
                raise PageError(f"line {piece.line} or below: a value is not closed by ` }}}}`.")
            return shown
        if piece.language == "python":
            return self._python(piece)
        if piece.language == "console":
            return self._console(piece)
        return _fenced(piece, piece.language, piece.code)

    def _value(self, found: re.Match[str], piece: Prose) -> str:
        line = piece.line + piece.text[: found.start()].count("\n")
        with _located(line):
            value = eval(found["expression"], self.names)
            return in_words(value) if found["format"] is None else format(value, found["format"])

    def _python(self, block: Block) -> str:
        printed = io.StringIO()
        expected = block.options.get("raises")
        with contextlib.redirect_stdout(printed):
            if expected is None:
                with _located(block.line):
                    self._execute(block)
            else:
                print(self._raised(block, expected))
        output = printed.getvalue().rstrip()
        if "hide" in block.options:
            return _indented(f"\n{output}\n", block.indent)
        shown = _fenced(block, "python", block.code)
        return shown + ("\n\n" + _fenced(block, "text", output, extra=" .output") if output else "")

    def _raised(self, block: Block, expected: str) -> str:
        try:
            self._execute(block)
        except Exception as error:
            if type(error).__name__ == expected:
                return textwrap.fill(f"{expected}: {error}", COLUMNS, break_long_words=False)
            raise PageError(f"line {block.line}: raised {type(error).__name__}, not {expected}: {error}") from error
        raise PageError(f"line {block.line}: did not raise {expected}.")

    def _execute(self, block: Block) -> None:
        """Run a block as at a prompt: the value of its last expression is printed."""
        where = f"<line {block.line}>"
        tree = ast.parse(block.code, where)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, where, "exec", dont_inherit=True), self.names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), where, "eval", dont_inherit=True), self.names)
            if value is not None:
                print(value if isinstance(value, str) else repr(value))

    def _console(self, block: Block) -> str:
        commands = re.findall(r"^\$ ((?:.*\\\n)*.*)$", block.code, flags=re.MULTILINE)
        if "\n".join(f"$ {one}" for one in commands) != block.code.strip():
            raise PageError(f"line {block.line}: every line of a console block starts a command with `$ `.")
        expected = int(block.options.get("exit", 0))
        shown = []
        for command in commands:
            done = subprocess.run(
                ["bash", "-c", f"set -o pipefail; {command}"],
                cwd=self.folder,
                env=os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=SECONDS,
                check=False,
            )
            if done.returncode != expected:
                raise PageError(f"line {block.line}: {command} ended with {done.returncode}:\n{done.stdout}")
            shown.append(f"$ {command}\n{_plain(done.stdout)}".rstrip())
        return _fenced(block, "console", "\n".join(shown))


@contextlib.contextmanager
def _located(line: int) -> Any:
    try:
        yield
    except PageError:
        raise
    except Exception as error:
        raise PageError(f"line {line}: {''.join(traceback.format_exception(error, limit=-3))}") from error


def _plain(text: str) -> str:
    """Without colors and blanks at the ends of lines."""
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    return "\n".join(line.rstrip() for line in text.split("\n")).rstrip()


def _fenced(block: Block, language: str, code: str, extra: str = "") -> str:
    head = f"{{ .{language}{extra} }}" if extra else language
    return _indented(f"{block.fence} {head}\n{code}\n{block.fence}", block.indent)


def _indented(text: str, indent: str) -> str:
    return "\n".join(indent + line if line else line for line in text.split("\n"))


def run_page(text: str) -> str:
    """Run a page in an empty folder."""
    with tempfile.TemporaryDirectory(prefix="page-") as name, contextlib.chdir(name):
        return Program(Path(name)).run(text)


def main() -> int:
    """Run the page on standard input; its text, or what went wrong, goes to standard output."""
    text = sys.stdin.read()
    answer = sys.stdout
    try:
        with contextlib.redirect_stdout(sys.stderr):
            result, code = run_page(text), 0
    except PageError as error:
        result, code = str(error), 1
    answer.write(result)
    return code


if __name__ == "__main__":
    sys.exit(main())
