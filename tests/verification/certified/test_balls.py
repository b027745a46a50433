"""Balls: ends as doubles and integers, products of full length, sums."""

from __future__ import annotations

from fractions import Fraction

import pytest
from flint import arb
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import searched
from tests.verification.certified.enclosures import ends, holds
from verification.certified.balls import ONE, ZERO, above, below, convolved, exact, total, whole_below

FRACTIONS = st.fractions(-4, 4, max_denominator=1000)


def ball(number: Fraction) -> arb:
    return exact(number.numerator) / number.denominator


@searched(given(FRACTIONS), examples=50, study=1000)
def test_doubles_on_either_side(number: Fraction) -> None:
    assert Fraction(below(ball(number))) < number < Fraction(above(ball(number)))
    assert above(ball(number)) - below(ball(number)) < 1e-14


@pytest.mark.parametrize("number", [Fraction(7, 2), Fraction(-7, 2), Fraction(3), Fraction(2**80 + 1), Fraction(0)])
def test_the_largest_integer_that_is_certain(number: Fraction) -> None:
    assert whole_below(ball(number)) == number.numerator // number.denominator
    assert whole_below(ball(number) + arb(0, 1e-30)) == -((-number - Fraction(1e-30)).__ceil__()) - (number % 1 == 0)


def test_a_double_is_the_rational_that_it_is() -> None:
    assert ends(exact(0.1)) == (Fraction(0.1), Fraction(0.1))


@searched(
    given(st.lists(FRACTIONS, min_size=1, max_size=5), st.lists(FRACTIONS, min_size=1, max_size=5)),
    examples=50,
    study=1000,
)
def test_products_have_all_their_coefficients(first: list[Fraction], second: list[Fraction]) -> None:
    product = convolved([ball(x) for x in first], [ball(x) for x in second])
    truth = [Fraction(0)] * (len(first) + len(second) - 1)
    for i, x in enumerate(first):
        for j, y in enumerate(second):
            truth[i + j] += x * y
    assert len(product) == len(truth)
    assert all(holds(value, number) for value, number in zip(product, truth, strict=True))


def test_vanishing_ends_keep_their_places() -> None:
    assert convolved([ONE, ZERO, ZERO], [ZERO, ONE, ZERO]) == [ZERO, ONE, ZERO, ZERO, ZERO]


def test_a_sum_contains_the_sum() -> None:
    numbers = [Fraction(1, n) for n in range(1, 40)]
    assert holds(total([ball(x) for x in numbers]), sum(numbers, Fraction(0)))
    assert total([]) == ZERO
