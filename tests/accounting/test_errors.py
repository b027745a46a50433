"""Every rejected value raises a typed error that names the value, the rule and a remedy."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.errors import (
    LONGEST_MESSAGE,
    InfeasibleError,
    InvalidInputError,
    PrivkdeError,
    UnlikeGuaranteesError,
    printable,
    require_choice,
    require_integer,
    require_quantity,
    require_real,
    require_text,
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


@pytest.mark.parametrize("text", ["\x1b[31mred", "two\nlines", "\x9b2J", "\u202eback", "\ud800", "\x00", "\u2028"])
def test_a_message_is_one_line_that_a_terminal_only_shows(text: str) -> None:
    message = str(InvalidInputError(f"before {text} after"))
    assert message.isprintable()
    assert message.startswith("before ")
    assert message.endswith(" after")
    message.encode("utf-8")


@given(st.text())
def test_printable_text_stays_and_everything_else_is_escaped(text: str) -> None:
    assert printable(text).isprintable()
    assert (printable(text) == text) is text.isprintable()


def test_a_long_message_keeps_its_beginning_and_its_remedy() -> None:
    with pytest.raises(InvalidInputError) as caught:
        require_choice("view", "x" * 10**6, ["model", "local"])
    assert len(str(caught.value)) < 1.1 * LONGEST_MESSAGE
    assert str(caught.value).startswith("view='xxx")
    assert str(caught.value).endswith("choose one of model, local.")


def test_an_integer_that_python_does_not_print_is_refused_like_others() -> None:
    with pytest.raises(InvalidInputError, match=r"n=<int> is outside \[1, 10\]"):
        require_integer("n", 10**5000, low=1, high=10)
    with pytest.raises(InvalidInputError, match=r"n=<int> is outside \(1, 10\]"):
        require_real("n", 10**5000, low=1, high=10)
    with pytest.raises(InvalidInputError, match="view=<int> is unknown"):
        require_choice("view", 10**5000, ["model"])


@pytest.mark.parametrize("value", [None, 1, b"x", ["x"], "a\nb", "\x1b[0m", "\ud800"])
def test_what_is_not_printable_text_is_no_text(value: object) -> None:
    assert require_text("name", "ein Name, § 1") == "ein Name, § 1"
    with pytest.raises(InvalidInputError, match="printable characters"):
        require_text("name", value)


@pytest.mark.parametrize("value", [True, None, "1", -1e-9, math.inf, math.nan, 10**400, [1]])
def test_what_is_infinite_or_negative_is_no_quantity(value: object) -> None:
    assert require_quantity("messages", 0) == 0.0
    with pytest.raises(InvalidInputError, match="messages="):
        require_quantity("messages", value)
