"""m-ary randomized response on the label: its law by enumeration, its purity, the expected class sizes."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.errors import InvalidInputError
from accounting.guarantee import Adjacency, View
from accounting.mechanisms.label_response import LabelResponse
from tests.strategies import epsilons
from verification.exact.rational_twins import ExactPair, Law

LABELS = range(2, 11)
ODDS = [Fraction(3, 2), Fraction(3), Fraction(20)]
"""Rational e^{ε_lbl}: the whole law is then rational."""


def response(n_classes: int, odds: Fraction | float) -> LabelResponse:
    return LabelResponse(n_classes=n_classes, label_epsilon=math.log(odds))


def report_law(label: int, n_classes: int, odds: Fraction) -> Law:
    """From the definition: keep with probability e^ε/(e^ε − 1 + m), else one of the others uniformly."""
    keep = odds / (odds - 1 + n_classes)
    return tuple(keep if report == label else (1 - keep) / (n_classes - 1) for report in range(n_classes))


def true_pair(n_classes: int, odds: Fraction, one: int = 0, other: int = 1) -> ExactPair:
    return ExactPair(upper=report_law(one, n_classes, odds), lower=report_law(other, n_classes, odds))


@pytest.mark.parametrize("n_classes", LABELS)
@pytest.mark.parametrize("odds", ODDS)
def test_the_law_is_the_enumerated_one(n_classes: int, odds: Fraction) -> None:
    law = response(n_classes, odds)
    exact = report_law(0, n_classes, odds)
    assert law.keep_probability == pytest.approx(float(exact[0]), rel=1e-14)
    assert law.other_probability == pytest.approx(float(exact[1]), rel=1e-14)
    pair = law.pair()
    assert pair.missing == 0.0
    assert pair.upper == pytest.approx([float(exact[0]), float(exact[1]), float(sum(exact[2:]))], rel=1e-14)
    assert pair.lower == pytest.approx([float(exact[1]), float(exact[0]), float(sum(exact[2:]))], rel=1e-14)
    assert float(np.sum(pair.upper)) == pytest.approx(1.0, rel=1e-15)


@pytest.mark.parametrize("n_classes", LABELS)
@pytest.mark.parametrize("odds", ODDS)
def test_every_pair_of_labels_has_the_same_profile_and_no_more(n_classes: int, odds: Fraction) -> None:
    """All ordered pairs of labels, at γ around e^{ε_lbl}: δ from the definition, and δ = 0 from ε_lbl on."""
    law = response(n_classes, odds)
    for share in (Fraction(0), Fraction(1, 3), Fraction(9, 10)):
        gamma = 1 + share * (odds - 1)
        found = {
            true_pair(n_classes, odds, one, other).hockey_stick(gamma)
            for one, other in itertools.permutations(range(n_classes), 2)
        }
        (exact,) = found
        assert exact > 0
        assert float(exact) <= law.delta(math.log(gamma)) <= float(exact) * (1 + 1e-7)
    assert true_pair(n_classes, odds).hockey_stick(odds) == 0
    assert true_pair(n_classes, odds).hockey_stick(odds * Fraction(999, 1000)) > 0


@given(st.integers(2, 1000), epsilons(20.0, 1e-3))
def test_pure_at_label_epsilon_and_not_before(n_classes: int, epsilon: float) -> None:
    law = LabelResponse(n_classes=n_classes, label_epsilon=epsilon)
    assert law.delta(epsilon) == 0.0
    assert law.delta(2 * epsilon) == 0.0
    assert law.delta(epsilon * 0.999) > 0.0
    assert law.keep_probability / law.other_probability == pytest.approx(math.exp(epsilon), rel=1e-13)
    assert law.keep_probability + (n_classes - 1) * law.other_probability == pytest.approx(1.0, rel=1e-13)


@given(st.integers(2, 50), epsilons(5.0, 0.01), epsilons(5.0), epsilons(5.0))
def test_delta_decreases(n_classes: int, label_epsilon: float, one: float, other: float) -> None:
    law = LabelResponse(n_classes=n_classes, label_epsilon=label_epsilon)
    low, high = sorted((one, other))
    assert law.delta(high) <= law.delta(low)


def test_more_classes_hide_the_label_better_at_the_same_epsilon() -> None:
    found = [response(n_classes, 3).delta(0.5) for n_classes in LABELS]
    assert found == sorted(found, reverse=True)
    assert found[-1] < 0.5 * found[0]


@pytest.mark.parametrize("n_classes", [2, 3, 4])
def test_expected_class_size_by_listing_all_reports(n_classes: int) -> None:
    """Five users, every vector of reports with its probability."""
    odds, labels = Fraction(3), [0, 0, 1, 0, n_classes - 1]
    law = response(n_classes, odds)
    rows = [report_law(label, n_classes, odds) for label in labels]
    expected = [Fraction(0)] * n_classes
    for reports in itertools.product(range(n_classes), repeat=len(labels)):
        probability = math.prod(row[report] for row, report in zip(rows, reports, strict=True))
        for c in range(n_classes):
            expected[c] += probability * reports.count(c)
    assert sum(expected) == len(labels)
    for c in range(n_classes):
        assert law.expected_class_size(labels.count(c), len(labels)) == pytest.approx(float(expected[c]), rel=1e-14)
    assert float(expected[0]) != labels.count(0)


@given(st.integers(2, 20), epsilons(8.0, 0.01), st.integers(0, 10**6))
def test_expected_class_sizes_add_up(n_classes: int, epsilon: float, spare: int) -> None:
    law = LabelResponse(n_classes=n_classes, label_epsilon=epsilon)
    sizes = [spare, *([10] * (n_classes - 1))]
    found = sum(law.expected_class_size(size, sum(sizes)) for size in sizes)
    assert found == pytest.approx(sum(sizes), rel=1e-12)


def test_the_contract_holds_in_every_view_for_a_change_of_the_label() -> None:
    contract = response(4, 3).contract()
    assert {g.view for g in contract.guarantees} == {View.LOCAL, View.COMMUNICATION, View.MODEL}
    assert all((g.adjacency, g.delta) == (Adjacency.LABEL, 0.0) for g in contract.guarantees)
    assert all(g.epsilon == math.log(3) for g in contract.guarantees)
    assert contract.parameters == {"classes": 4, "keep_probability": pytest.approx(0.5)}


@pytest.mark.parametrize(
    ("n_classes", "epsilon", "name"),
    [
        *((bad, 1.0, "classes=") for bad in (1, 0, True, 2.0)),
        *((2, bad, "label_epsilon=") for bad in (0.0, -1.0, math.inf, math.nan, True, None)),
    ],
)
def test_parameters_outside_the_law_are_rejected(n_classes: object, epsilon: object, name: str) -> None:
    with pytest.raises(InvalidInputError, match=name):
        LabelResponse(n_classes=n_classes, label_epsilon=epsilon)  # type: ignore[arg-type]
