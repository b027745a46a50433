"""Files of texts: what is read, what is refused, and that no refusal shows what somebody wrote."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from accounting import InvalidInputError
from privkde.texts import Survey, TextFile, TextPart, cleaned, known_classes

SECRET = "xylophone"
GOOD = [("first words", "a"), ("more, with a comma", "b"), ('a "quote"\nand a new line', "a")]


def written(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def refused(source: TextFile) -> str:
    """The message, in which the secret word never is; nor in what the error was raised from."""
    with pytest.raises(InvalidInputError) as caught:
        source.survey()
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None
    return str(caught.value)


def quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


@pytest.mark.parametrize("name", ["t.csv", "t.jsonl", "t.ndjson", "T.CSV"])
@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"])
def test_formats_hold_the_same_rows(tmp_path: Path, name: str, bom: bytes) -> None:
    if name.lower().endswith(".csv"):
        content = "label,text\r\n" + "".join(f"{label},{quoted(text)}\r\n\r\n" for text, label in GOOD)
    else:
        content = "\n\n".join(json.dumps({"text": text, "label": label}) for text, label in GOOD)
    source = TextFile(path=written(tmp_path / name, bom + content.encode()), label="label")
    survey = source.survey()
    assert list(source.texts()) == [cleaned(text) for text, _ in GOOD]
    assert survey.labels is not None
    assert survey.labels.tolist() == [label for _, label in GOOD]
    assert not survey.tested.any()


def test_plain_lines_and_other_column_names(tmp_path: Path) -> None:
    lines = TextFile(path=written(tmp_path / "w.txt", "goal\r\n two  words\nlast"))
    assert list(lines.texts()) == ["goal", "two words", "last"]
    numbers = written(
        tmp_path / "n.jsonl", '{"body": "x", "stars": 3, "use": "test"}\n{"body": "y", "stars": "4", "use": "train"}'
    )
    survey = TextFile(path=numbers, text="body", label="stars", split="use").survey()
    assert survey.labels is not None
    assert survey.labels.tolist() == ["3", "4"]
    assert survey.tested.tolist() == [True, False]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.csv", f"text,kind\n{SECRET},a\n", r"one of them 'label'; it has 2 fields, 0 of them"),
        ("t.csv", f"{SECRET},a\nwords,b\n", r"one of them 'text'; it has 2 fields"),
        ("t.csv", f"text,label,text\n{SECRET},a,b\n", r"2 of them 'text'"),
        ("t.csv", "", r"it has 0 fields"),
        ("t.csv", "text,label\n", r"has no rows"),
        ("t.csv", f"text,label\n{SECRET},a\n ,b\n", r"row 2 \(line 3\) .* empty text"),
        ("t.csv", f"text,label\n\n{SECRET},a\n\\,b\n", r"row 2 \(line 4\) .* empty text"),
        ("t.csv", f"text,label\nwords,a\n{SECRET},\n", r"row 2 \(line 3\) .* empty label"),
        ("t.csv", f"text,label\n{SECRET}, and more,a\n", r"row 1 \(line 2\) .* 3 fields and the first line 2; quote"),
        ("t.csv", f'text,label\nwords,a\n"{SECRET},b\n', r"row 2 \(line 3\) .* is no CSV \(unexpected end of data\)"),
        ("t.csv", b"text,label\nwords,a\n" + SECRET.encode() + b"\xff,b\n", r"line 3 .* is not UTF-8"),
        ("t.csv", (f"text,label\n{SECRET},b\n").encode("utf-16"), r"line 1 .* is not UTF-8"),
        ("t.csv", "text,label\n" + SECRET * 20_000 + ",a\n", r"row 1 \(line 2\) .* \(field larger than field limit"),
        ("t.jsonl", f'{{"text": "x", "label": "a"}}\n{{"text": "{SECRET}"\n', r"row 2 \(line 2\) .* no JSON object"),
        ("t.jsonl", f'["{SECRET}"]', r"row 1 \(line 1\) .* no JSON object"),
        ("t.jsonl", "[" * 100_000, r"row 1 \(line 1\) .* no JSON object"),
        ("t.jsonl", f'\n{{"label": "{SECRET}"}}', r"row 1 \(line 2\) .* has no text"),
        ("t.jsonl", f'{{"text": "{SECRET}", "label": null}}', r"row 1 \(line 1\) .* has no label, or one that is not"),
        ("t.jsonl", f'{{"text": "{SECRET}", "label": true}}', r"has no label, or one that is not a string"),
    ],
)  # fmt: skip
def test_bad_rows_are_named_and_not_shown(tmp_path: Path, name: str, content: str | bytes, message: str) -> None:
    found = refused(TextFile(path=written(tmp_path / name, content), label="label"))
    assert re.search(message, found), found


def test_a_blank_line_is_an_empty_text_only_where_lines_are_texts(tmp_path: Path) -> None:
    assert "line 2" in refused(TextFile(path=written(tmp_path / "w.txt", f"{SECRET}\n\nmore\n")))


def test_other_words_than_train_and_test(tmp_path: Path) -> None:
    path = written(tmp_path / "t.csv", f"text,use\nwords,train\n{SECRET},dev\n")
    assert "row 2 (line 3)" in refused(TextFile(path=path, split="use"))


@pytest.mark.parametrize("options", [{"label": "label"}, {"split": "use"}])
def test_plain_lines_have_no_columns(options: dict[str, str]) -> None:
    with pytest.raises(InvalidInputError, match="one text per line and no columns"):
        TextFile(path=Path("w.txt"), **options)


def test_unknown_ending() -> None:
    with pytest.raises(InvalidInputError, match=r"must end in one of \.csv, \.jsonl, \.ndjson, \.txt"):
        TextFile(path=Path("t.xlsx"))


def surveyed(labels: str, tested: str | None = None) -> Survey:
    """A survey of rows whose labels are single letters; a 1 means a row for testing."""
    marks = "0" * len(labels) if tested is None else tested
    return Survey(
        source=TextFile(path=Path("t.csv"), label="label"),
        labels=np.array(list(labels), dtype=np.str_),
        tested=np.array([mark == "1" for mark in marks]),
    )


class TestParts:
    @pytest.mark.parametrize(("share", "count"), [(0.2, 20), (0.004, 0), (0.996, 100), (1.0, 100)])
    def test_a_share_is_as_large_as_it_says(self, share: float, count: int) -> None:
        assert np.count_nonzero(surveyed("ab" * 50).with_test_share(share, 0).tested) == count

    def test_shares_depend_on_the_seed_alone(self) -> None:
        first, again, other = (surveyed("ab" * 50).with_test_share(0.3, seed).tested for seed in (1, 1, 2))
        assert np.array_equal(first, again)
        assert not np.array_equal(first, other)
        assert not np.array_equal(first, np.sort(first))  # drawn, not cut off

    @pytest.mark.parametrize("share", [0.0, -0.1, 1.1, float("nan")])
    def test_bad_shares(self, share: float) -> None:
        with pytest.raises(InvalidInputError, match="test_share"):
            surveyed("ab").with_test_share(share, 0)

    def test_bad_seed(self) -> None:
        with pytest.raises(InvalidInputError, match="seed=-1"):
            surveyed("ab").with_test_share(0.5, -1)

    def test_parts_keep_rows_and_labels_together(self) -> None:
        survey = surveyed("abcab", "01001")
        train, test = survey.part("train"), survey.part("test")
        assert (train.n_rows, test.n_rows) == (3, 2)
        assert train.labels is not None
        assert test.labels is not None
        assert (train.labels.tolist(), test.labels.tolist()) == (["a", "c", "a"], ["b", "b"])

    @pytest.mark.parametrize(("tested", "name"), [("00", "test"), ("11", "train")])
    def test_no_part_is_empty(self, tested: str, name: str) -> None:
        with pytest.raises(InvalidInputError, match=f"no row of 't.csv' is for {name}"):
            surveyed("ab", tested).part(name)

    def test_classes(self) -> None:
        def parts(labels: str, tested: str) -> tuple[TextPart, TextPart]:
            survey = surveyed(labels, tested)
            return survey.part("train"), survey.part("test")

        assert known_classes(*parts("babb", "0001")).tolist() == ["a", "b"]
        with pytest.raises(InvalidInputError, match="of one class"):
            known_classes(*parts("aab", "001"))
        with pytest.raises(
            InvalidInputError, match=r"row 4 of 't\.csv' is for testing and of a class .*\(1 such rows\)"
        ):
            known_classes(*parts("abac", "0011"))
