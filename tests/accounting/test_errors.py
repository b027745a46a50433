"""Every rejected value raises a typed error that names the value, the rule and a remedy."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.errors import (
    InfeasibleError,
    InvalidInputError,
    PrivkdeError,
    UnlikeGuaranteesError,
    require_choice,
    require_integer,
    require_real,
)

NOT_NUMBERS = [True, False, None, "0.3", "", 1j, [0.3], (0.3,), b"1"]


@pytest.mark.parametrize("error", [InvalidInputError, InfeasibleError, UnlikeGuaranteesError])
def test_every_error_can_be_caught_as_one_and_as_a_value_error(error: type[Exception]) -> None:
    assert issubclass(error, PrivkdeError)
    assert issubclass(error, ValueError)


@given(st.floats(0.0, 1.0, exclude_min=True))
def test_a_real_inside_the_interval_is_returned(value: float) -> None:
    assert require_real("rho", value, low=0, high=1) == value


def test_a_whole_number_is_a_real() -> None:
    found = require_real("rho", 1, low=0, high=1)
    assert type(found) is float
    assert found == 1.0


def test_only_the_lower_end_may_be_open() -> None:
    assert require_real("rho", 0.0, low=0, high=1, low_open=False) == 0.0
    assert require_real("rho", 1.0, low=0, high=1) == 1.0
    with pytest.raises(InvalidInputError, match=r"rho=0\.0 is outside \(0, 1\]; choose"):
        require_real("rho", 0.0, low=0, high=1)


@pytest.mark.parametrize("value", NOT_NUMBERS)
def test_what_is_not_a_number_is_no_real(value: object) -> None:
    with pytest.raises(InvalidInputError, match="must be a number") as caught:
        require_real("rho", value, low=0, high=1, low_open=False)
    assert f"rho={value!r}" in str(caught.value)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -1e-300, -0.1, 1.0000000001, 2, -1])
def test_a_real_outside_the_interval_names_value_rule_and_remedy(value: float) -> None:
    with pytest.raises(InvalidInputError) as caught:
        require_real("rho", value, low=0, high=1, low_open=False)
    assert f"rho={value!r}" in str(caught.value)
    assert "[0, 1]" in str(caught.value)
    assert "choose" in str(caught.value)


def test_an_integer_too_large_for_a_float_is_outside_the_interval() -> None:
    with pytest.raises(InvalidInputError):
        require_real("rho", 10**400, low=0, high=1)


@given(st.integers(1, 10))
def test_an_integer_inside_the_interval_is_returned(value: int) -> None:
    assert require_integer("n_users", value, low=1, high=10) == value


@pytest.mark.parametrize("value", [*NOT_NUMBERS, 2.0, 2.5, math.nan, math.inf])
def test_what_is_not_whole_is_no_integer(value: object) -> None:
    with pytest.raises(InvalidInputError, match="must be a whole number") as caught:
        require_integer("n_users", value, low=1, high=10)
    assert f"n_users={value!r}" in str(caught.value)


@pytest.mark.parametrize("value", [0, -1, 11, 10**400])
def test_an_integer_outside_the_interval_names_value_rule_and_remedy(value: int) -> None:
    with pytest.raises(InvalidInputError, match=r"is outside \[1, 10\]; choose") as caught:
        require_integer("n_users", value, low=1, high=10)
    assert f"n_users={value!r}" in str(caught.value)


@pytest.mark.parametrize("choice", ["model", "local"])
def test_a_known_choice_is_returned(choice: str) -> None:
    assert require_choice("view", choice, ["model", "local"]) == choice


def test_a_misspelled_choice_suggests_the_nearest() -> None:
    with pytest.raises(InvalidInputError, match=r"view='modle' .*choose one of model, local\. Did you mean 'model'"):
        require_choice("view", "modle", ["model", "local"])


@pytest.mark.parametrize("value", [True, 3, "xyzzy", ""])
def test_an_unknown_choice_lists_the_options_without_a_wild_guess(value: object) -> None:
    with pytest.raises(InvalidInputError, match="choose one of model, local") as caught:
        require_choice("view", value, ["model", "local"])
    assert "Did you mean" not in str(caught.value)
    assert repr(value) in str(caught.value)


def test_choices_may_be_an_iterator() -> None:
    assert require_choice("view", "local", iter(["model", "local"])) == "local"
