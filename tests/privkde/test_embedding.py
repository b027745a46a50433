"""Vectors of texts: in the unit ball, the same whatever is beside them; offline."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from fractions import Fraction
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from accounting import InvalidInputError
from privkde import embedding
from privkde.embedding import (
    DTYPES,
    FULL_PASS,
    TOKENS_AT_ONCE,
    embed_texts,
    load_encoder,
    rounded_inward,
    token_counts,
)
from tests.privkde.encoders import DIM, WordEncoder

WORDS = ["river", "stone", "market", "window", "garden", "copper", "lantern", "bridge", "paper", "winter"]


def sentences(count: int, longest: int, seed: int = 3) -> list[str]:
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, rng.integers(1, longest + 1))) for _ in range(count)]


def squared_norm(vector: NDArray[np.floating]) -> Fraction:
    """Exact: every float is a fraction."""
    return sum((Fraction(float(entry)) ** 2 for entry in vector), Fraction(0))


class TestRounding:
    @given(
        st.sampled_from(DTYPES),
        arrays(np.float32, (1, 6), elements=st.floats(-100, 100, width=32)).filter(lambda x: np.abs(x).max() > 1e-3),
    )
    def test_no_vector_leaves_the_unit_ball(self, dtype: str, vectors: NDArray[np.float32]) -> None:
        rounded = rounded_inward(vectors, dtype)
        assert rounded.dtype == dtype
        assert squared_norm(rounded[0]) <= 1
        unit = vectors.astype(np.float64) / np.linalg.norm(vectors.astype(np.float64))
        smallest = float(np.finfo(dtype).smallest_subnormal)
        assert np.all(np.abs(rounded - unit) <= np.finfo(dtype).eps * np.abs(unit) + smallest)

    @pytest.mark.parametrize("dtype", DTYPES)
    def test_rounding_to_nearest_would_leave_it(self, dtype: str) -> None:
        """The negative control: among vectors as long as the model's, many would be outside."""
        drawn = np.random.default_rng(1).normal(size=(40, 384))
        nearest = (drawn / np.linalg.norm(drawn, axis=1, keepdims=True)).astype(dtype)
        assert sum(squared_norm(one) > 1 for one in nearest) >= 5
        assert all(squared_norm(one) <= 1 for one in rounded_inward(drawn, dtype))

    @pytest.mark.parametrize("entry", [0.0, np.nan, np.inf])
    def test_no_direction(self, entry: float) -> None:
        with pytest.raises(InvalidInputError, match="zero or not finite"):
            rounded_inward(np.array([[1.0, 2.0], [entry, 0.0]]), "float32")


@pytest.fixture
def encoder(monkeypatch: pytest.MonkeyPatch) -> WordEncoder:
    stand_in = WordEncoder(max_tokens=12)
    monkeypatch.setattr(embedding, "load_encoder", lambda model, max_tokens: stand_in)
    return stand_in


class TestTexts:
    def test_the_slow_twin(self, encoder: WordEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
        """One text at a time, in order, however the fast path sorts and cuts."""
        monkeypatch.setattr(embedding, "TEXTS_AT_ONCE", 32)
        monkeypatch.setattr(embedding, "TOKENS_AT_ONCE", 40)
        texts = sentences(100, 20)
        done: list[int] = []
        vectors = embed_texts(iter(texts), progress=done.append)
        expected = np.concatenate([rounded_inward(encoder.vector(text)[None], "float32") for text in texts])
        assert np.array_equal(vectors, expected)
        assert sum(done) == 100
        cut = token_counts(texts, encoder) > 12
        assert cut.tolist() == [len(text.split()) > 10 for text in texts]
        assert cut.any()

    def test_a_pass_has_one_length_and_is_neither_small_nor_large(self, encoder: WordEncoder) -> None:
        embed_texts(sentences(4000, 8))
        passes = [texts for texts in encoder.passes if texts != ["dimension"]]
        assert len(passes) > 8
        for texts in passes:
            counts = token_counts(texts, encoder)
            assert len(set(counts)) == 1
            assert FULL_PASS <= sum(counts) <= TOKENS_AT_ONCE

    def test_unknown_digits(self) -> None:
        with pytest.raises(InvalidInputError, match="dtype='float64'"):
            embed_texts(["words"], dtype="float64")

    @pytest.mark.usefixtures("encoder")
    def test_no_texts(self) -> None:
        assert embed_texts([]).shape == (0, DIM)

    @pytest.mark.usefixtures("encoder")
    def test_cleaned_texts_are_equal(self) -> None:
        first, second = embed_texts([" river\\stone ", "river\n\tstone"])
        assert np.array_equal(first, second)

    @pytest.mark.parametrize("bad", ["", " \n", None, 3, 3.0])
    def test_bad_texts_are_named_by_number(self, bad: str) -> None:
        with pytest.raises(InvalidInputError, match=r"item 1 of texts .* empty or not a string"):
            embed_texts(["river", bad])

    def test_one_string_is_not_a_list(self) -> None:
        with pytest.raises(InvalidInputError, match="single string"):
            embed_texts("river")


class TestLoading:
    @pytest.mark.parametrize("missing", ["sentence_transformers", "torch", embedding.MODEL_PACKAGE])
    def test_without_the_extra(self, monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
        monkeypatch.setattr(embedding, "find_spec", lambda name: None if name == missing else find_spec(name))
        with pytest.raises(InvalidInputError, match=r"pip install 'privkde\[text\]'"):
            load_encoder(None, 95)

    @pytest.mark.extras
    def test_a_name_is_no_folder(self, tmp_path: Path) -> None:
        for model in (Path("sentence-transformers/all-mpnet-base-v2"), tmp_path):
            with pytest.raises(InvalidInputError, match=r"no modules\.json in it.*not downloaded"):
                load_encoder(model)

    def test_importing_the_module_loads_no_model(self) -> None:
        code = "import sys, privkde.embedding; print('torch' in sys.modules or 'transformers' in sys.modules)"
        shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert shown.stdout == "False\n"


@pytest.fixture(scope="module")
def offline() -> Iterator[list[str]]:
    """The model, loaded and used while no socket can be made; holds what was tried."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # tests run side by side: threads that wait for each other would only burn time
    tried: list[str] = []

    def refuse(*arguments: object, **options: object) -> None:
        tried.append("socket")
        raise OSError("this test has no network")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", refuse)
        patch.setattr(socket, "create_connection", refuse)
        patch.setattr(socket, "getaddrinfo", refuse)
        load_encoder()
        yield tried
    torch.set_num_threads(threads)


@pytest.mark.extras
@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch", "ignore::DeprecationWarning:importlib")
@pytest.mark.usefixtures("offline")
class TestModel:
    """all-MiniLM-L6-v2, loaded once."""

    def test_nothing_is_asked_of_the_network(self, offline: list[str]) -> None:
        with pytest.raises(OSError, match="no network"):
            socket.create_connection(("127.0.0.1", 9))
        assert offline.pop() == "socket"  # the trap works
        embed_texts(["river"])
        assert offline == []

    def test_near_in_meaning_is_near(self) -> None:
        """Each pair says one thing in different words; every other sentence is further away, by far."""
        pairs = [
            ("The striker scored two goals in the final.", "A forward netted twice in the championship match."),
            ("Fry the onions in butter until golden.", "Brown the onions in a pan with some butter."),
            ("Heavy rain and thunder are expected tonight.", "A storm with strong showers will come this evening."),
            ("The central bank raised interest rates.", "Borrowing costs went up after the bank's decision."),
        ]
        vectors = embed_texts([text for pair in pairs for text in pair])
        near = vectors @ vectors.T
        own = [near[2 * i, 2 * i + 1] for i in range(len(pairs))]
        others = [near[i, j] for i in range(8) for j in range(8) if i // 2 != j // 2]
        assert min(own) > max(others) + 0.1

    def test_case_does_not_matter(self) -> None:
        small, large = embed_texts(["the river market", "The RIVER Market"])
        assert np.array_equal(small, large)

    @pytest.mark.parametrize("dtype", DTYPES)
    def test_norms(self, dtype: str) -> None:
        vectors = embed_texts(sentences(8, 20), dtype=dtype)
        assert vectors.dtype == dtype
        for vector in vectors:
            assert (1 - 1.5 * np.finfo(dtype).eps) ** 2 < squared_norm(vector) <= 1

    def test_a_vector_does_not_depend_on_what_is_beside_it(self) -> None:
        """To the last bit: alone, in another order, among others of its length or of other lengths."""
        texts = [*sentences(12, 6), *sentences(4, 40, seed=4), "on", "a"]
        together = embed_texts(texts)
        order = np.random.default_rng(9).permutation(len(texts))
        assert np.array_equal(embed_texts([texts[i] for i in order]), together[order])
        for number in (0, 1, 2, 13, 16, 17):
            assert np.array_equal(embed_texts([texts[number]])[0], together[number])
            assert np.array_equal(embed_texts([texts[number]] * 3)[2], together[number])

    def test_a_vector_does_not_depend_on_the_number_of_threads(self) -> None:
        import torch

        texts = [*sentences(6, 6), *sentences(2, 40, seed=4)]
        alone = embed_texts(texts)
        torch.set_num_threads(2)
        try:
            assert torch.get_num_threads() == 2
            assert np.array_equal(embed_texts(texts), alone)
        finally:
            torch.set_num_threads(1)

    def test_padding_would_change_it(self) -> None:
        """The negative control, and the model's own way as a twin: equal but for the last bits."""
        texts = sentences(12, 30)
        padded = load_encoder().encode(texts, show_progress_bar=False).astype(np.float64)
        padded /= np.linalg.norm(padded, axis=1, keepdims=True)
        ours = embed_texts(texts)
        assert np.abs(padded - ours).max() < 1e-6
        assert not np.array_equal(rounded_inward(padded, "float32"), ours)

    def test_only_the_first_tokens_count(self) -> None:
        """94 words of one token each, and the two special tokens, are 96."""
        start = " ".join(WORDS * 10)
        words = start.split()
        exact, more, fewer = embed_texts(
            [" ".join(words[:94]), " ".join(words[:94]) + " volcano", " ".join(words[:93])]
        )
        assert np.array_equal(exact, more)
        assert not np.array_equal(exact, fewer)
        cut = token_counts([" ".join(words[:94]), " ".join(words[:95])], load_encoder()) > 96
        assert cut.tolist() == [False, True]

    def test_longer_texts_on_demand(self) -> None:
        text = " ".join(WORDS * 12)
        vectors = [embed_texts([text], max_tokens=count)[0] for count in (5, 96, 200)]
        assert not any(np.array_equal(*both) for both in pairwise(vectors))
        for count in (4, 257):
            with pytest.raises(InvalidInputError, match=f"max_tokens={count}"):
                embed_texts([text], max_tokens=count)


def test_a_packaged_model_that_was_altered_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing of the package runs before that, not even its first line."""
    (tmp_path / "model" / "1_Pooling").mkdir(parents=True)
    (tmp_path / "__init__.py").write_text("raise AssertionError('it ran')", encoding="utf-8")
    weights = tmp_path / "model" / "1_Pooling" / "weights"
    weights.write_bytes(b"published")
    monkeypatch.syspath_prepend(str(tmp_path.parent))
    monkeypatch.setattr(embedding, "MODEL_PACKAGE", tmp_path.name)
    monkeypatch.setattr(embedding, "MODEL_SHA256", embedding.model_sha256(tmp_path / "model"))
    assert embedding._packaged_model() == tmp_path / "model"
    weights.write_bytes(b"publishes")
    with pytest.raises(InvalidInputError, match="altered or is another version"):
        embedding._packaged_model()
    weights.write_bytes(b"published")
    weights.rename(tmp_path / "model" / "weights")
    with pytest.raises(InvalidInputError, match="altered or is another version"):
        embedding._packaged_model()
