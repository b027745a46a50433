"""Hypothesis strategies shared by the tests: parameters, laws, guarantees, contracts, messages."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from fractions import Fraction
from functools import wraps
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st

from accounting.contract import Contract, Evidence, EvidenceKind
from accounting.guarantee import Adjacency, Guarantee, View
from accounting.numerics.profile import Pair
from privkde.protocol.messages import WireFormat
from tests.privkde.packets import Listed
from verification.exact.rational_twins import ExactPair, Law

Test = Callable[..., None]


def searched(cases: Callable[[Test], Test], *, examples: int, study: int) -> Callable[[Test], Test]:
    """A property for `cases`, a `given`: so many examples by default, and `study` of them in a slow copy."""

    def decorate(test: Test) -> Test:
        def with_examples(number: int) -> Test:
            @wraps(test)
            def body(*arguments: Any, **named: Any) -> None:
                test(*arguments, **named)

            return cases(settings(max_examples=number, deadline=None)(body))

        copies = {number: with_examples(number) for number in (examples, study)}

        @pytest.mark.parametrize("examples", [examples, pytest.param(study, marks=pytest.mark.slow)])
        @wraps(test, updated=())
        def run(examples: int, **fixtures: Any) -> None:
            copies[examples](**fixtures)

        signature = inspect.signature(copies[examples])
        chosen = inspect.Parameter("examples", inspect.Parameter.KEYWORD_ONLY)
        setattr(run, "__signature__", signature.replace(parameters=[*signature.parameters.values(), chosen]))  # noqa: B010
        tried: Test = run
        return tried

    return decorate


def flip_probabilities(low: float = 0.01, high: float = 0.49) -> st.SearchStrategy[float]:
    """Flip probabilities of randomized response, away from 0 (no privacy) and 1/2 (no information)."""
    return st.floats(low, high)


def dyadic_flip_probabilities() -> st.SearchStrategy[Fraction]:
    """Flip probabilities i/64 in (0, 1/2): floats hold p and 1 − p exactly, so both twins mean the same p."""
    return st.integers(1, 31).map(lambda i: Fraction(i, 64))


def user_counts(high: int, low: int = 1) -> st.SearchStrategy[int]:
    """Numbers of users."""
    return st.integers(low, high)


def epsilons(high: float = 5.0, low: float = 0.0) -> st.SearchStrategy[float]:
    """Values of ε ≥ 0."""
    return st.floats(low, high)


def deltas(low_exponent: float = -15.0, high_exponent: float = -0.5) -> st.SearchStrategy[float]:
    """Values of δ, uniform in the exponent."""
    return st.floats(low_exponent, high_exponent).map(lambda exponent: 10.0**exponent)


@st.composite
def _laws(draw: st.DrawFn, n_outcomes: int, least: int) -> Law:
    weights = draw(
        st.lists(st.integers(least, 60), min_size=n_outcomes, max_size=n_outcomes).filter(lambda w: sum(w) > 0)
    )
    return tuple(Fraction(weight, sum(weights)) for weight in weights)


@st.composite
def exact_pairs(draw: st.DrawFn, most_outcomes: int = 8, infinite_losses: bool = True) -> ExactPair:
    """Two random laws on 2 to `most_outcomes` outcomes; zeros, and so losses of ±∞, only if asked for."""
    n_outcomes = draw(st.integers(2, most_outcomes))
    least = 0 if infinite_losses else 1
    return ExactPair(upper=draw(_laws(n_outcomes, least)), lower=draw(_laws(n_outcomes, least)))


def rounded(pair: ExactPair) -> Pair:
    """The same pair in floating point, as `accounting` wants it."""
    return Pair(
        upper=np.array([float(mass) for mass in pair.upper]),
        lower=np.array([float(mass) for mass in pair.lower]),
    )


def guarantees(adjacency: Adjacency | None = None, view: View | None = None) -> st.SearchStrategy[Guarantee]:
    """Valid guarantees, of one adjacency and view or of any; pure and empty ones included."""
    return st.builds(
        Guarantee,
        epsilon=st.one_of(st.just(0.0), st.integers(0, 5), epsilons(1e3)),
        delta=st.one_of(st.just(0.0), st.just(1.0), deltas(-300.0, 0.0)),
        adjacency=st.sampled_from(Adjacency) if adjacency is None else st.just(adjacency),
        view=st.sampled_from(View) if view is None else st.just(view),
    )


_words = st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "S")) | st.just(" "), min_size=1, max_size=20)
_texts = st.lists(_words, max_size=3).map(tuple)
_numbers = st.one_of(st.integers(-(2**60), 2**60), st.floats(allow_nan=False, allow_infinity=False), _words)


def _contracts_with(parts: st.SearchStrategy[tuple[Contract, ...]]) -> st.SearchStrategy[Contract]:
    return st.builds(
        Contract,
        component=_words,
        guarantees=st.lists(guarantees(), max_size=3).map(tuple),
        evidence=st.builds(Evidence, kind=st.sampled_from(EvidenceKind), method=_words, source=_words),
        checked=_texts,
        assumed=_texts,
        parameters=st.dictionaries(_words, _numbers, max_size=3),
        parts=parts,
    )


def contracts() -> st.SearchStrategy[Contract]:
    """Contracts, with parts that have parts."""
    return st.recursive(
        _contracts_with(st.just(())),
        lambda inner: _contracts_with(st.lists(inner, max_size=3).map(tuple)),
        max_leaves=6,
    )


def wire_formats() -> st.SearchStrategy[WireFormat]:
    """Sparse ones of all widths of a message from 1 to 18 bits, at and around the powers of two; and dense ones."""
    edges = st.builds(lambda power, move: max(1, 2**power + move), st.integers(0, 17), st.integers(-1, 1))
    sparse = st.builds(
        WireFormat,
        collection=st.binary(min_size=32, max_size=32),
        n_instances=st.one_of(edges, st.integers(1, 70_000)),
        content_bits=st.integers(0, 1),
        most_messages=st.integers(50, 1000),
    )
    dense = st.builds(
        lambda collection, n_instances: WireFormat(
            collection=collection, n_instances=n_instances, content_bits=1, most_messages=n_instances, dense=True
        ),
        st.binary(min_size=32, max_size=32),
        st.integers(1, 40),
    )
    return st.one_of(sparse, dense)


def messages(wire: WireFormat, most: int = 40) -> st.SearchStrategy[Listed]:
    """Messages of this format: without content all of them ones, dense one of each user in each instance."""
    marks = {"packet_id": st.binary(min_size=16, max_size=16), "secret": st.booleans()}
    if wire.dense:
        ones = st.lists(st.integers(0, 9), min_size=wire.n_instances, max_size=wire.n_instances)
        return st.builds(
            lambda n_users, counts, **marked: Listed.of(
                [(i, int(user < count)) for i, count in enumerate(counts) for user in range(n_users)], n_users, **marked
            ),
            st.integers(1, 9),
            ones,
            **marks,
        )
    instances = st.one_of(st.integers(0, wire.n_instances - 1), st.just(wire.n_instances - 1))
    single = st.tuples(instances, st.integers(0, 1) if wire.content_bits else st.just(1))
    users = st.one_of(st.integers(1, 3), st.integers(1, 10**9))
    return st.builds(Listed.of, st.lists(single, max_size=most), users, **marks)
