"""One release: of a plan, of a guarantee, as a document."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from accounting import InvalidInputError, Plan, UnlikeGuaranteesError, View
from accounting.numerics.losses import DominatingLoss, Repeated
from accounting.numerics.profile import LossGrid, ProfileTable, symmetric_table
from accounting.planning import plan as make_plan
from accounting.releases.composing import spent
from accounting.releases.plan_curves import label_curve, promised_curve
from accounting.releases.profile_points import Profile
from accounting.releases.release import Part, Release
from accounting.request import ONE_PART
from tests.accounting.releases.known_releases import SMALL, plain, product, promise, worst_pair
from tests.plans import plan_for


@cache
def released(plan: Plan) -> Release:
    """Once for each plan."""
    return Release.of_plan("a", plan)


def test_a_plan_alone_costs_what_it_promises_and_ten_cost_far_less_than_ten_times() -> None:
    release = released(plan_for(**SMALL))
    assert release.guarantee == promise(1.0, 1e-6)
    assert spent([release], 1e-6).epsilon <= 1.0
    assert spent([release], 1e-6).pld == pytest.approx(1.0, rel=2e-3)
    ten = spent([release] * 10, 1e-5)
    assert ten.pld < 0.4 * ten.basic
    assert ten.basic == pytest.approx(10.0)


GEOMETRIC: dict[str, Any] = {"kernel": "inner-product", "repetitions": None, "accountant": "geometric", "bound": 1.0}


@pytest.mark.parametrize(
    ("more", "epsilon"),
    [
        ({"classes": 2, "epsilon": 3.0, "label_epsilon": 2.0, "bitsum": "poisson"}, 3.0),
        pytest.param({"classes": 2, "epsilon": 3.0, "label_epsilon": 2.0}, 3.0, marks=pytest.mark.slow),
        (GEOMETRIC | {"users": 500}, 1.0),
        pytest.param(GEOMETRIC, 1.0, marks=pytest.mark.slow),
        ({"bitsum": "pure", "delta": 0.0, "accountant": "basic", "users": 200, "allow_useless": True}, 1.0),
        ({"accountant": "advanced", "bitsum": "poisson"}, 1.0),
        pytest.param({"accountant": "advanced"}, 1.0, marks=pytest.mark.slow),
    ],
)
def test_every_kind_of_plan_can_be_charged(more: dict[str, Any], epsilon: float) -> None:
    plan = plan_for(**(SMALL | more))
    release = released(plan)
    assert release.guarantee == promise(epsilon, plan.request.delta)
    assert spent([release], max(plan.request.delta, 1e-9)).epsilon <= epsilon
    assert Release.from_json(release.to_json()) == release


FEW: dict[str, Any] = {
    "users": 2000, "dim": 2, "repetitions": 1, "classes": 2, "label_epsilon": 3.0, "epsilon": 7.0, "delta": 1e-6,
    "accountant": "pld",
}  # fmt: skip


def test_separate_labels_are_charged_for_the_class_sizes_that_come() -> None:
    """A regression: ten collections, everybody but the target in one class at one point, cost more than was charged.

    The target's class has few users, and its protocol is calibrated for them: of the forecast's profile it shares only
    the promised point. The exact law of the small class and the label, ten times, refutes the old charge.
    """
    plan = plan_for(**FEW)
    label = plan.request.label_response()
    assert label is not None
    alone = {"classes": None, **ONE_PART, "epsilon": plan.request.kde_epsilon}
    small = make_plan(replace(plan.request, users=95, allow_useless=True, **alone))
    whole = product([small.protocol().pairs()[0], label.pair()])
    grid = LossGrid.for_pair(whole, n_compositions=10, negligible=1e-20)
    loss = DominatingLoss.from_table(symmetric_table([ProfileTable.of_pair(whole, grid)]))
    truth = Repeated([(loss, 10)])
    curves = (promised_curve(plan), label_curve(label))
    forecast = replace(Release.of_plan("a", plan), parts=tuple(Part(profile=Profile.below(curve)) for curve in curves))
    wrong, right = (spent([release] * 10, 1e-5).epsilon for release in (forecast, Release.of_plan("a", plan)))
    assert truth.delta(wrong) > 100.0 * 1e-5  # what was charged before
    assert truth.delta(right) <= 1e-5


@pytest.mark.parametrize("delta", [1e-3, 1e-5])
def test_features_and_label_together(delta: float) -> None:
    """What (ε, δ) and the label's response imply: never below the product of their worst pairs, within 2 %."""
    request = SMALL | {"dim": 1, "repetitions": 1, "classes": 2, "epsilon": 2.0, "label_epsilon": 1.0, "users": 400}
    plan = plan_for(**request)
    label = plan.request.label_response()
    assert label is not None
    whole = product([worst_pair(1.0, 1e-6), label.pair()])
    together = spent([Release.of_plan("a", plan)], delta).pld
    assert whole.hockey_stick(together) <= delta * (1.0 + 1e-6)
    assert whole.hockey_stick(0.98 * together) > delta


def test_profiles_of_plans_fall_to_a_negligible_rest() -> None:
    (part,) = released(plan_for(**SMALL)).parts
    profile = part.profile
    assert profile.points[-1][1] < 1e-4 * 1e-6
    assert len(profile.points) > 100


@pytest.mark.parametrize("users", [500, pytest.param(2000, marks=pytest.mark.slow)])
def test_geometric_plans_carry_curves_and_fall_far_below_their_delta(users: int) -> None:
    (part,) = released(plan_for(**(SMALL | GEOMETRIC | {"users": users}))).parts
    assert part.profile.points[-1][1] < 1e-4 * 1e-6
    assert min(curve.cut for curve in part.curves) < 1e-4 * 1e-6
    assert len(part.curves) > 4


def test_an_altered_plan_cannot_be_charged() -> None:
    document = plan_for(**SMALL).to_json()
    document["instance"]["parameters"]["flip_probability"] *= 0.9
    with pytest.raises(InvalidInputError, match="altered"):
        Release.of_plan("a", type(plan_for(**SMALL)).from_json(document))


def test_the_local_view_is_not_charged() -> None:
    with pytest.raises(UnlikeGuaranteesError, match="view"):
        Release.of_plan("a", plan_for(**SMALL), view=View.LOCAL)


def test_documents_of_version_0_2_are_read() -> None:
    """They listed profiles, without curves and times."""
    release = plain(0.5, 1e-8)
    (part,) = release.parts
    old = {"name": "plain", "guarantee": release.guarantee.to_json(), "profiles": [part.profile.to_json()]}
    assert Release.from_json(old) == release
    labeled = old | {
        "profiles": [[[0.0, 1e-9], [0.1, 0.0]], [[0.0, 0.1], [0.4, 0.0]]]
    }  # of a forecast size, of a label
    assert Release.from_json(labeled) == release


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"name": "a"},
        {"name": "a", "guarantee": {}, "profiles": [[[0, 1, 2]]]},
        {"name": "a", "guarantee": plain(1.0).guarantee.to_json(), "parts": [{"profile": [[0, 0.1]], "curves": [3]}]},
        plain(1.0).to_json() | {"schema": "privkde.release/2"},
        plain(5.0).to_json() | {"guarantee": plain(0.001).guarantee.to_json()},
        plain(1.0).to_json()
        | {"parts": [{"profile": [[0, 0.1], [1, 0]], "curves": [{"cut": 0, "points": [[math.inf, 5]]}]}]},
        plain(1.0).to_json() | {"times": 0},
        plain(1.0).to_json() | {"times": True},
    ],
)
def test_bad_documents(document: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError):
        Release.from_json(document)
