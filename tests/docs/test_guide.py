"""What builds the guide: code runs, failures end the build, formulas and links are what they seem."""

from __future__ import annotations

from pathlib import Path

import pytest
from guide.building import Pages
from guide.diagrams import Drawing
from guide.execution import run_page
from guide.formulas import render
from guide.links import broken
from guide.pages import Block, PageError, Prose, has_code, split
from guide.writing import figure, in_words, table

PYTHON, HIDDEN, CONSOLE, END = "```python\n", "```python hide\n", "```console\n", "\n```\n"


class TestPages:
    def test_prose_and_blocks_in_order(self) -> None:
        first, block, last = split(f"one\n{PYTHON}x = 1{END}two")
        assert isinstance(first, Prose)
        assert isinstance(block, Block)
        assert isinstance(last, Prose)
        assert (first.text, block.code, last.text) == ("one", "x = 1", "two")
        assert (first.line, block.line, last.line) == (1, 2, 5)

    def test_indented_blocks_keep_their_place(self) -> None:
        text = "!!! note\n\n    ```python\n    for i in range(2):\n        print(i)\n    ```\n"
        assert "    ```python\n    for i in range(2):\n        print(i)\n    ```\n" in run_page(text).replace(
            "``` ", "```"
        )
        assert "\n    0\n    1\n" in run_page(text)

    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            (f"```json\n{{}}{END}", "does not run"),
            (f"```python shown\nx = 1{END}", "no option 'shown'"),
            (f"{PYTHON}x = 1", "never closed"),
            ("So:\n\n    privkde plan\n", "indented code"),
        ],
    )
    def test_what_is_no_page(self, text: str, reason: str) -> None:
        with pytest.raises(PageError, match=reason):
            split(text)

    def test_indented_lines_that_belong_to_a_list(self) -> None:
        assert len(split("- one\n\n    more of it\n\nTerm\n:   meaning\n\n    more\n")) == 1

    def test_has_code(self) -> None:
        assert has_code("a {{ value }} in prose")
        assert has_code(f"{CONSOLE}$ true{END}")
        assert not has_code("a set {{1}} and \n```text\nwords\n```\n")


class TestExecution:
    def test_blocks_share_names_and_show_what_they_print(self) -> None:
        page = run_page(f"{PYTHON}x = 20{END}{PYTHON}print('is')\nx + 1{END}")
        assert "x = 20" in page
        assert "is\n21\n" in page

    def test_hidden_code_prints_markdown(self) -> None:
        page = run_page(f"{HIDDEN}print('**bold**'){END}")
        assert "**bold**" in page
        assert "print" not in page

    def test_values_in_prose(self) -> None:
        text = f"{HIDDEN}n, p = 30_000, 0.25{END}{{{{ n }}}} users, {{{{ p | .0% }}}}, `{{{{ n // 7 }}}}`"
        assert run_page(text).strip() == "30,000 users, 25%, `4,285`"

    def test_a_value_that_looks_ahead_ends_the_build(self) -> None:
        with pytest.raises(PageError, match=r"(?s)line 2: .*NameError"):
            run_page(f"first\n{{{{ later }}}}\n{PYTHON}later = 1{END}")

    def test_a_value_that_is_not_closed_ends_the_build(self) -> None:
        with pytest.raises(PageError, match="not closed"):
            run_page("{{ 1 | .0%}}")

    def test_a_failing_block_ends_the_build_with_its_line(self) -> None:
        with pytest.raises(PageError, match=r"(?s)line 3: .*AssertionError"):
            run_page(f"words\n\n{HIDDEN}assert 1 > 2{END}")

    def test_expected_exceptions(self) -> None:
        page = run_page(f"```python raises=ZeroDivisionError\n1 / 0{END}")
        assert "ZeroDivisionError: division by zero" in page
        with pytest.raises(PageError, match="did not raise"):
            run_page(f"```python raises=ZeroDivisionError\n1 / 1{END}")
        with pytest.raises(PageError, match="raised TypeError"):
            run_page(f"```python raises=ZeroDivisionError\n1 / 'a'{END}")

    def test_commands_run_in_the_folder_of_the_page(self) -> None:
        page = run_page(f"{PYTHON}open('made.txt', 'w').close(){END}{CONSOLE}$ ls \\\n    -1\n$ echo two{END}")
        assert "$ ls \\\n    -1\nmade.txt\n$ echo two\ntwo\n" in page

    def test_commands_that_end_otherwise_end_the_build(self) -> None:
        assert "$ exit 3" in run_page(f"```console exit=3\n$ exit 3{END}")
        with pytest.raises(PageError, match="ended with 3"):
            run_page(f"{CONSOLE}$ exit 3{END}")
        with pytest.raises(PageError, match="ended with 1"):
            run_page(f"{CONSOLE}$ false | true{END}")
        with pytest.raises(PageError, match="starts a command"):
            run_page(f"{CONSOLE}$ true\npasted output{END}")

    def test_pages_run_in_processes_and_are_remembered(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("guide.building.MEMORY", tmp_path / "memory")
        text = f"{PYTHON}import secrets\nsecrets.token_hex(8){END}"
        once = Pages({"a.md": text}).text("a.md", text)
        assert once != text
        assert Pages({"a.md": text}).text("a.md", text) == once
        assert Pages({"b.md": text}).text("b.md", text) != once
        assert Pages({}).text("plain.md", "words") == "words"

    def test_a_failing_page_says_which(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("guide.building.MEMORY", tmp_path / "memory")
        text = f"{PYTHON}raise ValueError('no'){END}"
        with pytest.raises(PageError, match=r"(?s)wrong\.md, line 1: .*ValueError: no"):
            Pages({"wrong.md": text}).text("wrong.md", text)


class TestWriting:
    @pytest.mark.parametrize(
        ("value", "words"),
        [
            (30_000, "30,000"),
            (-3, "−3"),
            (61.9689, "62"),
            (61.94, "61.9"),
            (0.0933776, "0.0934"),
            (0.5, "0.5"),
            (3921.4, "3,921"),
            (999_999.7, "1,000,000"),
            (1e-6, "10⁻⁶"),
            (6.51e-10, "6.51·10⁻¹⁰"),
            (-2.5e9, "−2.5·10⁹"),
            (0.0, "0"),
            (float("inf"), "∞"),
            (True, "True"),
            ("word", "word"),
        ],
    )
    def test_in_words(self, value: object, words: str) -> None:
        assert in_words(value) == words

    def test_table(self, capsys: pytest.CaptureFixture[str]) -> None:
        table(["name", "value"], [["a|b", 0.25], ["c", None]])
        assert capsys.readouterr().out.strip().split("\n") == [
            "| name | value |",
            "|:---|---:|",
            "| a\\|b | 0.25 |",
            "| c | — |",
        ]

    def test_figures_take_the_ink_of_the_page(self, capsys: pytest.CaptureFixture[str]) -> None:
        drawing = Drawing(100, 50)
        drawing.box(0, 0, 50, 50, "Shuffler\nmixes <all>", color="orange")
        drawing.arrow((50, 25), (100, 25), "messages")
        drawing.person(20, 20, "user")
        drawing.message(80, 25, "1")
        figure(drawing.svg(), alt='a "picture"', caption="What *to* see")
        shown = capsys.readouterr().out
        assert 'role="img" aria-label="a &#34;picture&#34;"' in shown
        assert "<figcaption>What <em>to</em> see</figcaption>" in shown
        assert "currentColor" in shown
        assert "#1b1f24" not in shown
        assert "mixes &lt;all&gt;" in shown
        assert "\n\n" not in shown.strip()  # a blank line would end the HTML block


class TestFormulas:
    def test_inline_and_display(self) -> None:
        html = (
            '<p>if <span class="arithmatex">\\(a &lt; b\\)</span></p><div class="arithmatex">\\[\n\\sqrt{x}\n\\]</div>'
        )
        shown = render(html)
        assert "arithmatex" not in shown
        assert shown.count("<math") == 2
        assert '<div class="formula"><math xmlns="http://www.w3.org/1998/Math/MathML" display="block">' in shown
        assert "<msqrt>" in shown

    def test_looks(self) -> None:
        shown = render('<p><span class="arithmatex">\\(\\max(x\', a/b)\\)</span>, and</p>')
        assert "<mrow><mi>x</mi><mi>&#x02032;</mi></mrow>" in shown
        assert "<mi>max</mi>" in shown
        assert 'rspace="0.06em">&#x0002F;' in shown
        assert shown.startswith('<p><span class="in-line"><math')
        assert shown.endswith("</math>,</span> and</p>")

    @pytest.mark.parametrize("latex", [r"\nosuchthing{x}", r"\begin{aligned}a &amp;= b\end{aligned}"])
    def test_what_cannot_be_translated_ends_the_build(self, latex: str) -> None:
        with pytest.raises(PageError, match="cannot be translated"):
            render(f'<span class="arithmatex">\\({latex}\\)</span>')


class TestLinks:
    @pytest.mark.parametrize(
        ("html", "wrong"),
        [
            ('<a href="other.html#there">', []),
            ('<a href="other.html#nowhere">', ["no such place"]),
            ('<a href="none.html">', ["does not exist"]),
            ('<a href="#here" id="here">', []),
            ('<a href="#gone">', ["no such place"]),
            ('<a href="https://example.org/x">', []),
            ('<script src="https://example.org/x.js">', ["from elsewhere"]),
            ('<link rel="stylesheet" href="//example.org/x.css">', ["from elsewhere"]),
            ('<img src="none.png">', ["does not exist"]),
        ],
    )
    def test_broken(self, tmp_path: Path, html: str, wrong: list[str]) -> None:
        (tmp_path / "index.html").write_text(html)
        (tmp_path / "other.html").write_text('<h2 id="there">')
        found = list(broken(tmp_path))
        assert len(found) == len(wrong)
        assert all(reason in line for reason, line in zip(wrong, found, strict=True))

    def test_pages_that_are_too_large(self, tmp_path: Path) -> None:
        (tmp_path / "index.html").write_text("x" * 3_000_001)
        assert [line for line in broken(tmp_path) if "bytes" in line]
