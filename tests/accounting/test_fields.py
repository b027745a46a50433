"""One declaration of every field: signatures, docstrings and checks follow from it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import MISSING, dataclass
from typing import Annotated, Any, get_type_hints

import pytest

from accounting import InvalidInputError, PlanRequest, plan_budget, solve
from accounting.fields import Record, Rule, fields_of, read
from accounting.request import read_request
from accounting.solving import SolveRequest

SMALL = {"users": 2_000, "dim": 16, "epsilon": 1.0, "delta": 1e-6}
DECLARED: list[Any] = [(plan_budget, PlanRequest), (solve, SolveRequest)]


def described_arguments(function: Callable[..., Any]) -> dict[str, str]:
    """The `Args:` section of a docstring: name and description."""
    section = re.split(r"\n\n", inspect.cleandoc(function.__doc__ or "").split("Args:\n")[1])[0]
    entries = re.split(r"\n(?! {5})", inspect.cleandoc(section).replace("\n    ", "\n     "))
    return {name: " ".join(text.split()) for name, _, text in (entry.partition(": ") for entry in entries)}


@pytest.mark.parametrize(("function", "record"), DECLARED)
def test_signatures_are_the_declaration(function: Callable[..., Any], record: type) -> None:
    parameters = dict(inspect.signature(function).parameters)
    assert parameters.pop("progress").default is None
    hints = get_type_hints(function)
    written = {name: (hints[name], parameter.default) for name, parameter in parameters.items()}
    declared = {
        name: (field.annotation, inspect.Parameter.empty if field.default is MISSING else field.default)
        for name, field in fields_of(record).items()
    }
    assert list(written.items()) == list(declared.items())


@pytest.mark.parametrize(("function", "record"), DECLARED)
def test_docstrings_are_the_declaration(function: Callable[..., Any], record: type) -> None:
    """`solve` describes what `plan_budget` does not take, or takes for something else."""
    described = described_arguments(function)
    assert described.pop("progress")
    declared = {name: field.rule.description for name, field in fields_of(record).items()}
    elsewhere = described_arguments(plan_budget) if function is solve else {}
    assert described == {name: text for name, text in declared.items() if elsewhere.get(name) != text}


@pytest.mark.parametrize("record", [PlanRequest, SolveRequest])
def test_every_number_has_a_range_and_every_missing_default_has_words(record: type) -> None:
    for field in fields_of(record).values():
        if field.kind in (int, float):
            assert field.rule.low is not None
            assert field.rule.high is not None
            assert field.rule.low < field.rule.high
        assert field.default_in_words or field.required


@pytest.mark.parametrize("name", [name for name, field in fields_of(PlanRequest).items() if field.kind in (int, float)])
def test_values_outside_a_declared_range_are_refused_by_name(name: str) -> None:
    rule = fields_of(PlanRequest)[name].rule
    assert rule.low is not None
    assert rule.high is not None
    for value in (rule.low - 1, rule.high + 1, *([rule.low] if rule.above_low else []), True, "2"):
        with pytest.raises(InvalidInputError, match=f"^{name}="):
            read_request({**SMALL, name: value})


CONTEXT: dict[str, dict[str, Any]] = {
    "delta": {"bitsum": "auto"}, "min_users": {"users": 10**9}, "dropout": {"users": 10**9},
    "colluders": {"users": 10**9}, "classes": {"users": 10**9, "label_epsilon": 0.5},
    "features_epsilon": {"classes": 2}, "label_epsilon": {"classes": 2}, "bias": {"kernel": "laplacian"},
    "bound": {"kernel": "inner-product"}, "noise_shape": {"bitsum": "3nb"},
    "moment_weight": {"classes": 2, "model": "mean", "padded": 100}, "padded": {"classes": 2},
}  # fmt: skip
"""What else a request needs so that a field may have any value of its range."""
AT_THE_TOP: dict[str, dict[str, Any]] = {
    "moment_weight": {"model": "discriminant", "padded": 1_000},
    "padded": {"model": "mean", "moment_weight": 0.0},
}
"""What it needs beside or instead of that for the largest value."""
PARTS = {"label_epsilon", "features_epsilon"}
"""Parts of ε leave something for the other part."""


@pytest.mark.parametrize("name", [name for name, field in fields_of(PlanRequest).items() if field.kind in (int, float)])
def test_the_ends_of_a_declared_range_are_taken(name: str) -> None:
    rule = fields_of(PlanRequest)[name].rule
    assert rule.high is not None
    low = 1e-9 if rule.above_low else rule.low
    high = rule.high - 1e-9 if name in PARTS else rule.high
    for value, more in ((low, {}), (high, AT_THE_TOP.get(name, {}))):
        total = {"epsilon": 100.0} if name in PARTS else {}
        asked = {**SMALL, **total, **CONTEXT.get(name, {}), **more, name: value}
        assert getattr(read_request(asked), name) == value


def test_choices_are_suggested_and_missing_or_unknown_names_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="Did you mean 'gaussian'"):
        read_request({**SMALL, "kernel": "gausian"})
    with pytest.raises(InvalidInputError, match=r"name of a request='colour'.*users"):
        read_request({**SMALL, "colour": "blue"})
    with pytest.raises(InvalidInputError, match="dim is missing; give it: dimension"):
        read_request({name: value for name, value in SMALL.items() if name != "dim"})
    assert read_request({**SMALL, "classes": None, "kernel": None}) == PlanRequest(**SMALL)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner(Record):
    """Part of another record."""

    size: Annotated[int, Rule("how much", 1, 9)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outer(Record):
    """A record of records."""

    title: Annotated[str, Rule("what it is called")] = "none"
    items: Annotated[tuple[Inner, ...], Rule("some parts")] = ()
    first: Annotated[Inner | None, Rule("a part", unset="none")] = None
    extra: Annotated[dict[str, Any] | None, Rule("anything else", unset="none")] = None


def test_records_hold_records() -> None:
    outer = read(Outer, {"items": [{"size": 2}, {"size": 3}], "first": {"size": 1}, "extra": {"a": 1}})
    assert outer == Outer(items=(Inner(size=2), Inner(size=3)), first=Inner(size=1), extra={"a": 1})


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"items": {"size": 1}}, "items=.* must be a list: some parts"),
        ({"items": [1]}, "items=1 must be an object with size"),
        ({"items": [{"size": 0}]}, "size=0 is outside"),
        ({"items": [{}]}, "size is missing"),
        ({"first": {"sise": 1}}, "name of a first='sise'.*Did you mean 'size'"),
        ({"title": 3}, "title=3 must be a text"),
        ({"extra": []}, "extra=.* must be an object"),
    ],
)
def test_parts_are_checked_by_their_own_rules(values: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        read(Outer, values)
