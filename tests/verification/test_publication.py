"""What can be told from a published model alone."""

from __future__ import annotations

import dataclasses
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

from accounting import InvalidInputError
from privkde import PrivateKDE, PrivateKDEClassifier
from privkde.protocol.model import DensityModel
from tests.plans import plan_for
from verification.publication import check_model
from verification.verdicts import QUICK, Finding, Subject

REQUEST: dict[str, Any] = {"users": 400, "dim": 4, "repetitions": 4, "epsilon": 1.0, "delta": 1e-6, "accountant": "pld"}
ROWS = np.random.default_rng(0).normal(size=(400, 4)) / 10.0
LABELED: dict[str, Any] = {"repetitions": 4, "epsilon": 7.0, "delta": 1e-4, "accountant": "pld", "label_epsilon": 3.0}


def published(bitsum: str = "rr", **options: Any) -> DensityModel:
    return PrivateKDE(**options).fit(ROWS, plan=plan_for(**REQUEST, bitsum=bitsum)).model_


def tried(model: DensityModel | None, **request: Any) -> Finding:
    return check_model.run(Subject(plan=plan_for(**(REQUEST | request)), model=model), QUICK, 0)


def refusal(found: Finding) -> str:
    assert found.witness is not None
    return found.witness.found


@lru_cache(maxsize=1)
def classified() -> DensityModel:
    return PrivateKDEClassifier(**LABELED, classes=[0, 1]).fit(ROWS, np.arange(400) % 2).model_


@pytest.mark.parametrize("bitsum", ["rr", "3nb", "poisson", "negative-binomial"])
def test_an_honest_model(bitsum: str) -> None:
    assert not tried(published(bitsum), bitsum=bitsum).refuted


def test_an_honest_classifier() -> None:
    plan = plan_for(users=400, dim=4, classes=2, **LABELED)
    assert not check_model.run(Subject(plan=plan, model=classified()), QUICK, 0).refuted


def test_a_model_of_a_weaker_label_promise() -> None:
    plan = plan_for(users=400, dim=4, classes=2, **(LABELED | {"label_epsilon": 1.0}))
    assert "replace-one-label" in refusal(check_model.run(Subject(plan=plan, model=classified()), QUICK, 0))


def test_a_seeded_model() -> None:
    assert "came from a seed" in refusal(tried(published(insecure_seed=1)))


@pytest.mark.parametrize("bitsum", ["rr", "3nb", "poisson", "negative-binomial"])
def test_sums_that_no_counts_give(bitsum: str) -> None:
    model = published(bitsum)
    altered = dataclasses.replace(model, sums=model.sums + 0.1)
    assert "4 of 4 sums" in refusal(tried(altered, bitsum=bitsum))


def test_more_messages_than_users() -> None:
    model = published()
    flip = float(model.plans[0].parameters["flip_probability"])
    step = 2.0 * np.sqrt(2.0) / (1.0 - 2.0 * flip)
    far = model.sums.copy()
    far[0, 0] += 400.0 * step
    assert "1 of 4 sums" in refusal(tried(dataclasses.replace(model, sums=far)))


def test_parameters_other_than_the_plan() -> None:
    model = published()
    (announcement,) = model.announcements
    parameters = {"flip_probability": 0.9 * float(announcement.plan.parameters["flip_probability"])}
    plan = dataclasses.replace(announcement.plan, parameters=parameters)
    altered = dataclasses.replace(model, announcements=(dataclasses.replace(announcement, plan=plan),))
    said = refusal(tried(altered))
    assert "not the plan's" in said
    assert "do not keep" in said


def test_without_a_model_there_is_nothing_to_check() -> None:
    with pytest.raises(InvalidInputError, match="--model"):
        tried(None)
