"""The linear classifier of pure noise; a rule that forgets its noise is among the saboteurs."""

from __future__ import annotations

import pytest

from tests.verification.subjects import subject
from verification.auditing import attempt
from verification.statistical.densities.rule_checks import ALLOWED, linear_rule
from verification.verdicts import CHECK_ALPHA, QUICK


@pytest.mark.parametrize("kind", ["record-mean", "record-weighty"])
def test_an_honest_rule_follows_the_sizes(kind: str) -> None:
    """By chance it is refuted with probability 1e-8."""
    found = attempt(linear_rule, subject(kind), QUICK, 2).finding
    assert found is not None
    assert not found.refuted
    assert found.alpha == CHECK_ALPHA
    assert 0.0 < found.numbers["mean"] < 0.75 * ALLOWED


def test_it_applies_to_rotated_records_only() -> None:
    assert [kind for kind in ("rr", "joint", "labels", "record") if linear_rule.applies(subject(kind))] == ["record"]
