"""Decoding: the k best terms of each class against a full sort, ties included, in bounded memory."""

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from accounting import InvalidInputError
from privkde.kernels import KernelChoice
from privkde.learning.decoding import Term, decode_classes
from privkde.protocol.model import FeatureSums
from privkde.storage import user_blocks as blocks
from tests.privkde.unplanned import SEED

DIM = 2
USERS = 4
IDENTITY = KernelChoice(name="inner-product", dim=DIM).build(SEED)
Vector = tuple[int, int]

# Identity features, sums that are multiples of 4 for 4 users, and terms that are multiples of 1/4: the scores
# Σ_j (F_j/4)·v_j are computed without rounding in single precision, so equal scores are exactly equal.
quarters = st.tuples(st.integers(-2, 2), st.integers(-2, 2))
sums = st.lists(st.tuples(st.integers(-3, 3), st.integers(-3, 3)), min_size=1, max_size=4)


def feature_sums(groups: Sequence[Vector]) -> FeatureSums:
    return FeatureSums(family=IDENTITY, sums=USERS * np.array(groups, np.float64), n_users=(USERS,) * len(groups))


def brute_force(
    groups: Sequence[Vector], vocabulary: Sequence[Vector], k: int, contrast: bool
) -> list[list[tuple[int, Fraction]]]:
    """Indices and scores from a sort of everything, in fractions."""
    scores = [[Fraction(a * v + b * w, 4) for a, b in groups] for v, w in vocabulary]
    if contrast:
        scores = [[one - sum(row, Fraction(0)) / len(row) for one in row] for row in scores]
    return [
        [(i, scores[i][c]) for i in sorted(range(len(scores)), key=lambda i: (-scores[i][c], i))[:k]]
        for c in range(len(groups))
    ]


def decoded(
    groups: Sequence[Vector], vocabulary: Sequence[Vector], k: int, contrast: bool = False
) -> list[list[tuple[int, float]]]:
    vectors = np.array(vocabulary, np.float64).reshape(-1, DIM) / 4.0
    words = [f"word {i}" for i in range(len(vocabulary))]
    found = decode_classes(feature_sums(groups), vectors, words, k=k, contrast=contrast)
    return [[(int(term.word.removeprefix("word ")), term.score) for term in terms] for terms in found]


@pytest.fixture(params=[1, 3, 4096])
def small_blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    defaults = FeatureSums.density_blocks.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "rows", request.param)
    monkeypatch.setattr(blocks, "MOST_ROWS", max(1, request.param - 1))


@pytest.mark.usefixtures("small_blocks")
@given(groups=sums, vocabulary=st.lists(quarters, max_size=12), k=st.integers(1, 15))
@example(groups=[(1, 0)], vocabulary=[(1, 0)] * 12, k=5)
@example(groups=[(0, 0), (1, 1)], vocabulary=[(i % 2, i % 3) for i in range(12)], k=12)
def test_decoding_equals_a_full_sort(groups: list[Vector], vocabulary: list[Vector], k: int) -> None:
    """Terms of 25 kinds, scores of few values: nearly all examples have ties, within and across blocks."""
    expected = brute_force(groups, vocabulary, k, contrast=False)
    assert decoded(groups, vocabulary, k) == [[(i, float(score)) for i, score in terms] for terms in expected]


@pytest.mark.usefixtures("small_blocks")
@given(
    groups=st.lists(st.tuples(st.integers(-3, 3), st.integers(-3, 3)), min_size=2, max_size=2)
    | st.lists(st.tuples(st.integers(-3, 3), st.integers(-3, 3)), min_size=4, max_size=4),
    vocabulary=st.lists(quarters, max_size=12),
    k=st.integers(1, 15),
)
def test_contrast_is_what_sets_a_class_apart(groups: list[Vector], vocabulary: list[Vector], k: int) -> None:
    """Two or four groups, so that the mean over them is not rounded either."""
    expected = brute_force(groups, vocabulary, k, contrast=True)
    found = decoded(groups, vocabulary, k, contrast=True)
    assert found == [[(i, float(score)) for i, score in terms] for terms in expected]


def test_contrast_ranks_differently_where_all_classes_like_a_term() -> None:
    groups, vocabulary = [(3, 1), (3, -1)], [(2, 0), (0, 1), (0, -1)]
    assert [terms[0][0] for terms in decoded(groups, vocabulary, 1)] == [0, 0]
    assert [terms[0][0] for terms in decoded(groups, vocabulary, 1, contrast=True)] == [1, 2]


def test_scores_are_densities() -> None:
    family = KernelChoice(name="gaussian", dim=DIM, repetitions=64).build(SEED)
    random = np.random.default_rng(1)
    estimated = FeatureSums(family=family, sums=random.normal(size=(2, 64)) * 30.0, n_users=(20, 30))
    vocabulary = random.normal(size=(50, DIM))
    densities = estimated.densities(vocabulary)
    for c, terms in enumerate(decode_classes(estimated, vocabulary, [str(i) for i in range(50)], k=50)):
        order = [int(term.word) for term in terms]
        assert sorted(order) == list(range(50))
        np.testing.assert_allclose([term.score for term in terms], densities[order, c], rtol=0, atol=1e-6)
        assert [term.score for term in terms] == sorted((term.score for term in terms), reverse=True)


def test_three_terms_unless_asked_otherwise() -> None:
    vocabulary = np.array([(1, 0), (2, 0), (0, 0), (-1, 0)]) / 4.0
    words = np.array(["one", "two", "none", "minus"])  # words may be an array, too
    (found,) = decode_classes(feature_sums([(1, 0)]), vocabulary, words)
    assert found == [Term("two", 0.5), Term("one", 0.25), Term("none", 0.0)]
    assert all(type(term.word) is str for term in found)


def test_words_and_vectors_must_match() -> None:
    for words in (["a"], ["a", "b", "c"], []):
        with pytest.raises(InvalidInputError, match=f"{len(words)} words for 2 vectors"):
            decode_classes(feature_sums([(1, 0)]), np.zeros((2, DIM)), words)


@pytest.mark.parametrize("k", [0, -1, 1001, 1.0, True, "3"])
def test_k_is_a_small_whole_number(k: object) -> None:
    with pytest.raises(InvalidInputError, match="k="):
        decode_classes(feature_sums([(1, 0)]), np.zeros((2, DIM)), ["a", "b"], k=k)  # type: ignore[arg-type]


class Endless:
    """400,000 terms that exist only while they are looked at."""

    def __init__(self) -> None:
        self.largest = self.asked = 0

    @property
    def shape(self) -> tuple[int, int]:
        return (400_000, DIM)

    def values(self, index: NDArray[np.intp]) -> NDArray[np.float64]:
        steps = np.stack([index * 7919 % 4001, index * 104_729 % 3989], axis=1)
        return (steps - 2000) / 4096.0

    def __getitem__(self, index: NDArray[np.intp], /) -> NDArray[np.floating]:
        self.largest = max(self.largest, len(index))
        self.asked += len(index)
        return self.values(index)


class Numbers(Sequence[str]):
    """As many words, made when asked for."""

    def __len__(self) -> int:
        return 400_000

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        return str(index)


def test_a_large_vocabulary_is_never_held_at_once() -> None:
    vocabulary = Endless()
    groups = [(1, 0), (-1, 1), (2, -3)]
    found = decode_classes(feature_sums(groups), vocabulary, Numbers(), k=20)
    assert vocabulary.asked == 400_000
    assert vocabulary.largest <= blocks.MOST_ROWS
    everything = vocabulary.values(np.arange(400_000)) * 4096.0
    for (a, b), terms in zip(groups, found, strict=True):
        scores = a * everything[:, 0] + b * everything[:, 1]  # whole numbers: exact
        order = np.lexsort((np.arange(400_000), -scores))[:20]
        assert [int(term.word) for term in terms] == order.tolist()
        assert [4096.0 * term.score for term in terms] == scores[order].tolist()


@pytest.mark.parametrize("count", [0, 1, 300, 9000])
def test_progress_is_told_of_every_term_once(count: int) -> None:
    """Over several blocks of queries, each worked on in pieces."""
    done: list[int] = []
    vectors = np.zeros((count, DIM))
    found = decode_classes(feature_sums([(1, 2), (3, 1)]), vectors, ["word"] * count, k=1, progress=done.append)
    assert sum(done) == count
    assert all(part > 0 for part in done)
    assert [len(terms) for terms in found] == [min(1, count)] * 2
    if count > blocks.MOST_ROWS:
        assert len(done) >= -(-count // blocks.MOST_ROWS)
