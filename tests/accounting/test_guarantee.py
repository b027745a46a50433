"""A guarantee is (ε, δ) with its adjacency and view; unlike ones never meet."""

import itertools
import json
import math
from dataclasses import FrozenInstanceError
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from accounting.errors import InvalidInputError, UnlikeGuaranteesError
from accounting.guarantee import Adjacency, Guarantee, View, compose_basic
from tests.strategies import guarantees

RECORD = {"adjacency": Adjacency.RECORD, "view": View.MODEL}
like = guarantees(Adjacency.RECORD, View.MODEL)


def guarantee(epsilon: Any, delta: Any, **where: Any) -> Guarantee:
    return Guarantee(epsilon=epsilon, delta=delta, **(RECORD | where))


@given(guarantees())
def test_json_round_trip(one: Guarantee) -> None:
    text = json.dumps(one.to_json(), allow_nan=False)
    assert Guarantee.from_json(json.loads(text)) == one


def test_json_holds_plain_values_and_the_kinds_are_restored() -> None:
    data = guarantee(1, 0).to_json()
    assert data == {"epsilon": 1.0, "delta": 0.0, "adjacency": "replace-one", "view": "model"}
    assert {type(value) for value in data.values()} == {float, str}
    restored = Guarantee.from_json(data)
    assert restored.adjacency is Adjacency.RECORD
    assert restored.view is View.MODEL


@pytest.mark.parametrize("value", [True, False, math.nan, math.inf, -math.inf, -1e-9, "1", None, 1j])
def test_an_epsilon_that_is_no_number_from_zero_up_is_rejected(value: object) -> None:
    with pytest.raises(InvalidInputError, match="epsilon="):
        guarantee(value, 0.1)


@pytest.mark.parametrize("value", [True, False, math.nan, math.inf, -1e-300, 1.0 + 1e-9, "0", None])
def test_a_delta_that_is_no_probability_is_rejected(value: object) -> None:
    with pytest.raises(InvalidInputError, match="delta="):
        guarantee(1.0, value)


@pytest.mark.parametrize("value", ["add-one", "", None, True, View.MODEL])
def test_an_unknown_adjacency_is_rejected(value: object) -> None:
    with pytest.raises(InvalidInputError, match="adjacency="):
        guarantee(1.0, 0.0, adjacency=value)


def test_an_unknown_view_is_rejected() -> None:
    with pytest.raises(InvalidInputError, match="view='comunication' is unknown; choose one of communication, "):
        guarantee(1.0, 0.0, view="comunication")


def test_the_hint_for_a_misspelled_view_can_be_pasted_back() -> None:
    with pytest.raises(InvalidInputError, match="Did you mean 'communication'"):
        guarantee(1.0, 0.0, view="comunication")


def test_a_guarantee_cannot_be_edited() -> None:
    one = guarantee(1.0, 0.0)
    with pytest.raises(FrozenInstanceError):
        one.epsilon = 0.5  # type: ignore[misc]


@given(guarantees(), guarantees())
@example(guarantee(1, 0), guarantee(1, 0, view=View.LOCAL))
@example(guarantee(1, 0), guarantee(1, 0, adjacency=Adjacency.LABEL))
def test_unlike_guarantees_never_meet(one: Guarantee, other: Guarantee) -> None:
    assume((one.adjacency, one.view) != (other.adjacency, other.view))
    with pytest.raises(UnlikeGuaranteesError) as caught:
        one.implies(other)
    assert str(one.view) in str(caught.value)
    assert str(other.adjacency) in str(caught.value)
    with pytest.raises(UnlikeGuaranteesError):
        compose_basic([one, other])


@given(like, like, like)
def test_implies_is_a_partial_order(a: Guarantee, b: Guarantee, c: Guarantee) -> None:
    assert a.implies(a)
    if a.implies(b) and b.implies(a):
        assert a == b
    for x, y, z in itertools.permutations((a, b, c)):
        if x.implies(y) and y.implies(z):
            assert x.implies(z)


def test_implies_needs_both_numbers_and_is_not_total() -> None:
    assert guarantee(1.0, 1e-6).implies(guarantee(1.0, 1e-5))
    assert guarantee(1.0, 1e-6).implies(guarantee(2.0, 1e-6))
    assert not guarantee(1.0, 1e-5).implies(guarantee(2.0, 1e-6))
    assert not guarantee(2.0, 1e-6).implies(guarantee(1.0, 1e-5))


@given(like)
def test_everything_implies_the_empty_promise_at_its_own_epsilon(one: Guarantee) -> None:
    empty = guarantee(one.epsilon, 1.0)
    assert empty.is_empty
    assert one.implies(empty)
    assert one.is_empty or not empty.implies(one)


def test_all_empty_promises_are_one() -> None:
    assert guarantee(5.0, 1.0) == guarantee(0.0, 1.0)
    assert guarantee(5.0, 1.0 - 1e-9) != guarantee(0.0, 1.0 - 1e-9)


def test_everything_implies_the_empty_promise() -> None:
    assert guarantee(5.0, 0.1).implies(guarantee(0.0, 1.0))


@given(guarantees(), guarantees())
def test_restating_changes_the_words_and_not_the_numbers(one: Guarantee, other: Guarantee) -> None:
    moved = one.restated(adjacency=other.adjacency, view=other.view)
    assert (moved.epsilon, moved.delta) == (one.epsilon, one.delta)
    assert (moved.adjacency, moved.view) == (other.adjacency, other.view)
    assert one.restated() == one


@given(like, like, like)
def test_basic_composition_adds_in_any_order(a: Guarantee, b: Guarantee, c: Guarantee) -> None:
    total = compose_basic([a, b, c])
    if not total.is_empty:
        assert total.epsilon == pytest.approx(a.epsilon + b.epsilon + c.epsilon, rel=1e-15, abs=0.0)
    assert total.delta == pytest.approx(min(1.0, a.delta + b.delta + c.delta), rel=1e-15, abs=0.0)
    assert (total.adjacency, total.view) == (a.adjacency, a.view)
    for order in itertools.permutations((a, b, c)):
        assert compose_basic(order) == total
    for one in (a, b, c):
        assert one.implies(total)
    assert compose_basic([a]) == a


def test_composing_nothing_names_the_problem() -> None:
    with pytest.raises(InvalidInputError):
        compose_basic([])


@given(guarantees())
def test_the_sentence_names_adjacency_and_view(one: Guarantee) -> None:
    sentence = str(one)
    assert str(one.adjacency) in sentence
    assert f"{one.view} view" in sentence
    assert ("no protection" in sentence) == one.is_empty
    assert one.is_empty or f"{one.epsilon:.6g}" in sentence


# Groups


@given(like)
def test_a_group_of_one_is_promised_the_same(one: Guarantee) -> None:
    assert one.for_group(1) == one


@given(st.floats(0.0, 3.0), st.floats(0.0, 1e-2), st.integers(2, 50))
def test_a_group_is_promised_what_its_steps_add_up_to(epsilon: float, delta: float, size: int) -> None:
    """One step after the other, in fractions' stead: δ_k = e^ε·δ_{k−1} + δ. Rounded up, by no more than 1e-9."""
    group, steps = guarantee(epsilon, delta).for_group(size), 0.0
    for _ in range(size):
        steps = math.exp(epsilon) * steps + delta
    if steps >= 1.0:
        assert group.is_empty
    else:
        assert size * epsilon <= group.epsilon <= size * epsilon * (1.0 + 1e-12)
        assert steps * (1.0 - 1e-13) <= group.delta <= steps * (1.0 + 1e-9)
        assert guarantee(epsilon, delta).implies(group)


def test_large_groups_with_large_epsilon() -> None:
    assert guarantee(5.0, 1e-300).for_group(1000).is_empty
    assert guarantee(5.0, 0.0).for_group(1000).epsilon == pytest.approx(5000.0)
    assert guarantee(0.0, 0.01).for_group(10).delta == pytest.approx(0.1)


@pytest.mark.parametrize("size", [0, -1, 1001, 2.0, True])
def test_a_group_has_a_size(size: Any) -> None:
    with pytest.raises(InvalidInputError, match="size="):
        guarantee(1.0, 0.0).for_group(size)
