"""`python -m benchmarks.embed` as a person or a script uses it, with an encoder that loads no model."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import privkde.cli
from benchmarks.embed.__main__ import main
from privkde import embedding
from privkde.embedding import rounded_inward
from privkde.storage.datasets import StoredRows, read_array, read_vectors
from tests.privkde.cli import test_command_line
from tests.privkde.encoders import DIM, WordEncoder

SECRET = "xylophone"
REQUIRE_TEXT_EXTRA = embedding.require_text_extra
TEXTS = {
    "sport": ["goal match", "coach goal league", "match medal"],
    "cooking": ["oven soup", "butter soup oven", "onion"],
}


@pytest.fixture(autouse=True)
def encoder(monkeypatch: pytest.MonkeyPatch) -> WordEncoder:
    fake = WordEncoder()
    monkeypatch.setattr(embedding, "load_encoder", lambda model, max_tokens: fake)
    monkeypatch.setattr(embedding, "require_text_extra", lambda: None)
    return fake


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Six rows, the last of each class for testing."""
    rows = [
        f"{label},{text},{'test' if number == 2 else 'train'}\n"
        for label, texts in TEXTS.items()
        for number, text in enumerate(texts)
    ]
    path = tmp_path / "texts.csv"
    path.write_text("topic,body,use\n" + "".join(rows), encoding="utf-8")
    return path


NAMES = ["--text", "body", "--label", "topic"]


def embed(source: Path, *extra: str | Path) -> dict[str, NDArray[Any]]:
    output = source.with_name("data.npz")
    assert main([str(source), "-o", str(output), *(str(one) for one in extra)]) == 0
    with np.load(output, allow_pickle=False) as stored:
        return dict(stored)


def refuse(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    return test_command_line.refuse(capsys, *arguments, command=main)


def expected(texts: list[str], encoder: WordEncoder, dtype: str = "float32") -> NDArray[Any]:
    return np.concatenate([rounded_inward(encoder.vector(text)[None], dtype) for text in texts])


def test_a_column_splits(table: Path, encoder: WordEncoder, capsys: pytest.CaptureFixture[str]) -> None:
    data = embed(table, *NAMES, "--split", "use")
    assert set(data) == {"X_train", "y_train", "X_test", "y_test", "class_names"}
    assert np.array_equal(data["X_train"], expected([t for one in TEXTS.values() for t in one[:2]], encoder))
    assert np.array_equal(data["X_test"], expected([one[2] for one in TEXTS.values()], encoder))
    assert data["y_train"].tolist() == ["sport", "sport", "cooking", "cooking"]
    assert data["y_test"].tolist() == ["sport", "cooking"]
    assert data["class_names"].tolist() == ["cooking", "sport"]
    shown = capsys.readouterr()
    assert "X_train: 4" in shown.out
    assert "2: cooking, sport" in shown.out
    assert not any(text in shown.out + shown.err for texts in TEXTS.values() for text in texts)


def test_a_share_is_drawn(table: Path) -> None:
    first, again, other = (
        embed(table, *NAMES, "--test-share", "0.34", *seed) for seed in ([], ["--seed", "0"], ["--seed", "9"])
    )
    assert first["X_test"].shape == (2, DIM)
    assert all(np.array_equal(first[name], again[name]) for name in first)
    assert not np.array_equal(first["X_test"], other["X_test"])
    every = np.concatenate([first["X_train"], first["X_test"]])
    assert np.array_equal(np.unique(every, axis=0), np.unique(embed(table, *NAMES)["X_train"], axis=0))


def test_another_file_is_for_testing(table: Path, encoder: WordEncoder) -> None:
    test = table.with_name("test.jsonl")
    test.write_text(json.dumps({"body": "goal soup", "topic": "cooking"}), encoding="utf-8")
    data = embed(table, *NAMES, "--test", test)
    assert np.array_equal(data["X_test"], expected(["goal soup"], encoder))
    assert (data["y_test"].tolist(), len(data["y_train"])) == (["cooking"], 6)


def test_without_labels(table: Path) -> None:
    assert set(embed(table, "--text", "body", "--unlabeled")) == {"X_train"}


def test_a_vocabulary(tmp_path: Path, encoder: WordEncoder) -> None:
    words = tmp_path / "words.txt"
    words.write_text("goal\nsoup\nice  cream\n", encoding="utf-8")
    data = embed(words, "--vocabulary")
    assert set(data) == {"X", "words"}
    assert data["words"].tolist() == ["goal", "soup", "ice cream"]
    assert np.array_equal(data["X"], expected(["goal", "soup", "ice cream"], encoder))


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_the_archive_can_be_mapped_and_is_the_same_each_time(table: Path, encoder: WordEncoder, dtype: str) -> None:
    data = embed(table, *NAMES, "--dtype", dtype)
    path = table.with_name("data.npz")
    first = path.read_bytes()
    rows = read_vectors(path, "X_train")
    assert isinstance(rows, StoredRows)
    assert rows.dtype == dtype
    assert np.array_equal(rows[np.arange(6)], data["X_train"])
    assert np.array_equal(data["X_train"], expected([t for one in TEXTS.values() for t in one], encoder, dtype))
    assert read_array(path, "y_train").tolist() == data["y_train"].tolist()
    with zipfile.ZipFile(path) as archive:
        assert {info.compress_type for info in archive.infolist()} == {zipfile.ZIP_STORED}
        assert archive.testzip() is None
    embed(table, *NAMES, "--dtype", dtype)
    assert path.read_bytes() == first


def test_cut_texts_are_counted(table: Path, encoder: WordEncoder, capsys: pytest.CaptureFixture[str]) -> None:
    encoder.max_seq_length = 4
    embed(table, *NAMES, "--max-tokens", "4")
    assert "2 texts after 4 tokens" in capsys.readouterr().out


def test_from_texts_to_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is written here is what `fit`, `predict` and `decode` read."""
    rng = np.random.default_rng(2)
    spoken = {"sport": ["goal", "match", "coach"], "cooking": ["oven", "soup", "onion"]}
    rows = [(label, " ".join(rng.choice(spoken[label], 3))) for label in spoken for _ in range(400)]
    source = tmp_path / "texts.csv"
    source.write_text("label,text\n" + "".join(f"{label},{text}\n" for label, text in rows), encoding="utf-8")
    words = tmp_path / "words.txt"
    words.write_text("\n".join(word for own in spoken.values() for word in own), encoding="utf-8")
    data, vocabulary, plan, model = (str(tmp_path / name) for name in ("d.npz", "v.npz", "p.json", "m.npz"))
    promise = [
        "--label-epsilon",
        "4",
        "--repetitions",
        "48",
        "--epsilon",
        "8",
        "--delta",
        "1e-5",
        "--accountant",
        "pld",
    ]
    assert main([str(source), "-o", data, "--test-share", "0.25"]) == 0
    assert main([str(words), "-o", vocabulary, "--vocabulary"]) == 0
    for arguments in (
        ["plan", "--users", "600", "--dim", str(DIM), "--classes", "2", *promise, "--output", plan],
        ["fit", data, "--plan", plan, "-o", model, "--classes", ",".join(spoken), "--insecure-seed", "1"],
        ["predict", model, data],
    ):
        assert privkde.cli.main(arguments) == 0
    assert "accuracy" in capsys.readouterr().out
    assert privkde.cli.main(["decode", model, vocabulary, "-k", "1", "--contrast", "--json"]) == 0
    named = {
        one["class"]: [term["word"] for term in one["terms"]] for one in json.loads(capsys.readouterr().out)["classes"]
    }
    assert set(named) == set(spoken)
    assert all(set(named[label]) <= set(spoken[label]) for label in spoken)


def test_importing_the_program_loads_no_model() -> None:
    code = "import sys, benchmarks.embed.__main__; print('torch' in sys.modules or 'transformers' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout == "False\n"


class TestRefusals:
    @pytest.mark.parametrize(
        ("extra", "message"),
        [
            (["--vocabulary", "--test-share", "0.5"], "a vocabulary has no test rows"),
            (["--seed", "3"], "--seed was given and nothing is drawn"),
            (["--split", "use", "--test-share", "0.5"], "not allowed with argument"),
            (["--unlabeled", "--label", "topic"], "not allowed with argument"),
            (["--test-share", "0.01", *NAMES], "no row of"),
            (["--test-share", "2", *NAMES], "test_share=2.0"),
            (["--text", "nowhere", "--label", "topic"], "line 2 of"),
            (["--text", "body"], "has no 'label'"),
            (["--text", "body", "--label", "topic", "--split", "topic"], "neither for train nor for test"),
            (["--text", "body", "--label", "use", "--dtype", "float8"], "invalid choice"),
            (["--text", "use", "--vocabulary"], "4 rows of"),
        ],
    )
    def test_options(
        self, table: Path, capsys: pytest.CaptureFixture[str], extra: list[str], message: str, encoder: WordEncoder
    ) -> None:
        output = table.with_name("data.npz")
        assert message in refuse(capsys, str(table), "-o", str(output), *extra)
        assert not output.exists()
        assert encoder.passes == []  # before any work was done

    @pytest.mark.parametrize("output", ["data.txt", "nowhere/data.npz"])
    def test_outputs(self, table: Path, capsys: pytest.CaptureFixture[str], output: str) -> None:
        refuse(capsys, str(table), "-o", str(table.parent / output), *NAMES)

    def test_bad_rows(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        path = tmp_path / "bad.csv"
        path.write_text(f"text,label\n{SECRET},a\n{SECRET},\n", encoding="utf-8")
        line = refuse(capsys, str(path), "-o", str(tmp_path / "data.npz"))
        assert "line 3 of" in line
        assert SECRET not in line

    def test_no_such_file(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert "No such file" in refuse(capsys, str(tmp_path / "t.csv"), "-o", str(tmp_path / "data.npz"))

    def test_without_the_extra(
        self, table: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(embedding, "require_text_extra", REQUIRE_TEXT_EXTRA)
        monkeypatch.setattr(embedding, "find_spec", lambda name: None)
        line = refuse(capsys, str(table), "-o", str(table.with_name("data.npz")), *NAMES)
        assert "pip install 'privkde[text]'" in line

    def test_classes(self, tmp_path: Path, capsys: pytest.CaptureFixture[str], encoder: WordEncoder) -> None:
        path, output = tmp_path / "t.csv", tmp_path / "data.npz"
        for rows, message in (
            (["goal,a,train", "oven,a,train", "soup,b,test"], "all training rows are of one class"),
            (["goal,a,train", "oven,b,train", "soup,c,test"], "1 rows for testing are of a class that no training row"),
        ):
            path.write_text("\n".join(["text,label,use", *rows]), encoding="utf-8")
            assert message in refuse(capsys, str(path), "-o", str(output), "--split", "use")
        assert encoder.passes == []

    def test_nothing_is_left_of_what_fails_half_way(
        self, table: Path, encoder: WordEncoder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        output = table.with_name("data.npz")
        output.write_bytes(b"what was there")
        monkeypatch.setattr(encoder, "encode", lambda texts, **options: np.zeros((len(texts), DIM)))
        assert "zero or not finite" in refuse(capsys, str(table), "-o", str(output), *NAMES)
        assert output.read_bytes() == b"what was there"
        assert sorted(path.name for path in table.parent.iterdir()) == ["data.npz", "texts.csv"]
