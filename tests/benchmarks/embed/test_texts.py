"""Files of texts, which no error shows, and the rows that are drawn for testing."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import ClassVar

import pytest

from accounting import InvalidInputError
from benchmarks.embed.texts import Row, draw_test_rows, read_texts

SECRET = "xylophone"
GOOD = [("first words", "a"), ("more, with a comma", "b"), ('a "quote"\nand a new line', "a")]


def written(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


class TestFiles:
    @pytest.mark.parametrize("name", ["t.csv", "t.jsonl", "t.ndjson", "T.CSV"])
    @pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"])
    def test_formats_hold_the_same_rows(self, tmp_path: Path, name: str, bom: bytes) -> None:
        if name.lower().endswith(".csv"):
            content = "label, text\r\n" + "".join(f"{label},{quoted(text)}\r\n\r\n" for text, label in GOOD)
        else:
            content = "\n\n".join(json.dumps({"text": text, "label": label}) for text, label in GOOD)
        rows = read_texts(written(tmp_path / name, bom + content.encode()), label="label")
        assert rows == [Row(" ".join(text.split()), label, "train") for text, label in GOOD]

    def test_plain_lines_and_other_column_names(self, tmp_path: Path) -> None:
        lines = read_texts(written(tmp_path / "w.txt", "goal\r\n two  words\nlast"))
        assert lines == [Row("goal", "", "train"), Row("two words", "", "train"), Row("last", "", "train")]
        numbers = written(
            tmp_path / "n.jsonl",
            '{"body": "x", "stars": 3, "use": "test"}\n{"body": "y", "stars": "4", "use": "train"}',
        )
        rows = read_texts(numbers, text="body", label="stars", split="use")
        assert rows == [Row("x", "3", "test"), Row("y", "4", "train")]

    @pytest.mark.parametrize(
        ("name", "content", "message"),
        [
            ("t.csv", f"text,kind\n{SECRET},a\n", r"line 2 .* has no 'label'.*--label"),
            ("t.csv", f"{SECRET},a\nwords,b\n", r"line 2 .* has no 'label'"),
            ("t.csv", f"text,label,text\n{SECRET},a,b\n", r"names a column twice"),
            ("t.csv", "", r"has no rows"),
            ("t.csv", "text,label\n", r"has no rows"),
            ("t.csv", f"text,label\n{SECRET},a\n ,b\n", r"line 3 .* has no 'text', or one that is empty"),
            ("t.csv", f"text,label\n\n{SECRET},a\n\\,b\n", r"line 4 .* has no 'text'"),
            ("t.csv", f"text,label\nwords,a\n{SECRET},\n", r"line 3 .* has no 'label'"),
            ("t.csv", f"text,label\nwords,a\n{SECRET}\n", r"line 3 .* has no 'label'"),
            ("t.csv", f"text,label\n{SECRET}, and more,a\n", r"line 2 .* more fields than the first line; quote"),
            ("t.csv", f'text,label\nwords,a\n"{SECRET},b\n', r"line 3 .* is not CSV \(unexpected end of data\)"),
            ("t.csv", b"text,label\nwords,a\n" + SECRET.encode() + b"\xff,b\n", r"line 3 .* is not UTF-8"),
            ("t.csv", (f"text,label\n{SECRET},b\n").encode("utf-16"), r"line 1 .* is not UTF-8"),
            ("t.csv", "text,label\n" + SECRET * 20_000 + ",a\n", r"line 2 .* \(field larger than field limit"),
            ("t.jsonl", f'{{"text": "x", "label": "a"}}\n{{"text": "{SECRET}"\n', r"line 2 .* not a JSON object"),
            ("t.jsonl", f'["{SECRET}"]', r"line 1 .* not a JSON object"),
            ("t.jsonl", "[" * 100_000, r"line 1 .* not a JSON object"),
            ("t.jsonl", f'\n{{"label": "{SECRET}"}}', r"line 2 .* has no 'text'"),
            ("t.jsonl", f'{{"text": "{SECRET}", "label": null}}', r"line 1 .* has no 'label', or one that is .* not"),
            ("t.jsonl", f'{{"text": "{SECRET}", "label": true}}', r"has no 'label', or one that is .* not a string"),
            ("t.txt", f"{SECRET}\n", r"line 1 .* has no 'label'.*--unlabeled"),
            ("t.xlsx", SECRET, r"must end in \.csv, \.jsonl, \.ndjson or \.txt"),
        ],
    )  # fmt: skip
    def test_bad_rows_are_named_and_not_shown(
        self, tmp_path: Path, name: str, content: str | bytes, message: str
    ) -> None:
        """Neither in the message nor in what the error was raised from."""
        with pytest.raises(InvalidInputError) as caught:
            read_texts(written(tmp_path / name, content), label="label")
        assert SECRET not in str(caught.value)
        assert caught.value.__cause__ is None
        assert re.search(message, str(caught.value)), str(caught.value)

    def test_a_blank_line_is_an_empty_text_only_where_lines_are_texts(self, tmp_path: Path) -> None:
        with pytest.raises(InvalidInputError, match="line 2"):
            read_texts(written(tmp_path / "w.txt", f"{SECRET}\n\nmore\n"))

    def test_other_words_than_train_and_test(self, tmp_path: Path) -> None:
        path = written(tmp_path / "t.csv", f"text,use\nwords,train\n{SECRET},dev\n")
        with pytest.raises(InvalidInputError, match=r"line 3 .* neither for train nor for test"):
            read_texts(path, split="use")


class TestShares:
    ROWS: ClassVar = [Row(str(number), "", "train") for number in range(100)]

    def drawn(self, share: float, seed: int) -> list[bool]:
        rows = draw_test_rows(self.ROWS, share, seed)
        assert [row.text for row in rows] == [row.text for row in self.ROWS]
        return [row.part == "test" for row in rows]

    @pytest.mark.parametrize(("share", "count"), [(0.2, 20), (0.004, 0), (0.996, 100), (1.0, 100)])
    def test_a_share_is_as_large_as_it_says(self, share: float, count: int) -> None:
        assert sum(self.drawn(share, 0)) == count

    def test_shares_depend_on_the_seed_alone(self) -> None:
        first, again, other = (self.drawn(0.3, seed) for seed in (1, 1, 2))
        assert first == again != other
        assert first != sorted(first)  # drawn, not cut off

    @pytest.mark.parametrize("share", [0.0, -0.1, 1.1, float("nan")])
    def test_bad_shares(self, share: float) -> None:
        with pytest.raises(InvalidInputError, match="test_share"):
            draw_test_rows(self.ROWS, share, 0)

    def test_bad_seed(self) -> None:
        with pytest.raises(InvalidInputError, match="seed=-1"):
            draw_test_rows(self.ROWS, 0.5, -1)
