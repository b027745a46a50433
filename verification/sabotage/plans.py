"""The plans that saboteurs are tried on: small, one of each kind. The honest system is tried on all of them."""

from __future__ import annotations

from accounting import PlanRequest

RESPONSE = PlanRequest(users=2_000, dim=4, repetitions=16, bitsum="rr", accountant="pld", epsilon=1.0, delta=1e-5)
CORRELATED = PlanRequest(users=500, dim=4, repetitions=4, bitsum="3nb", accountant="pld", epsilon=2.0, delta=1e-4)
SINGLE = PlanRequest(users=500, dim=4, repetitions=2, bitsum="poisson", accountant="pld", epsilon=4.0, delta=1e-3)
NEGATIVE_BINOMIAL = PlanRequest(
    users=500, dim=4, repetitions=2, bitsum="negative-binomial", accountant="pld", epsilon=2.0, delta=1e-4
)
PURE = PlanRequest(users=50, dim=4, repetitions=2, bitsum="pure", accountant="basic", epsilon=2.0, delta=0.0)
PURE_BALL = PlanRequest(
    users=50, dim=9, kernel="inner-product", bound=1.0, bitsum="pure", accountant="shifts", epsilon=2.0, delta=0.0
)
LABELED = PlanRequest(
    users=6_000, dim=4, repetitions=4, classes=3, label_epsilon=2.0, accountant="pld", epsilon=3.0, delta=1e-5
)
FEW = PlanRequest(
    users=2_000, dim=2, repetitions=1, classes=2, label_epsilon=3.0, accountant="pld", epsilon=7.0, delta=1e-6
)
HASHED = PlanRequest(
    users=2_000, dim=2, repetitions=4, kernel="laplacian", bias=0.25, accountant="pld", epsilon=1.0, delta=1e-5
)
BALL = PlanRequest(users=2_000, dim=256, repetitions=64, radius=0.5, accountant="geometric", epsilon=1.0, delta=1e-5)
INNER = PlanRequest(
    users=2_000, dim=8, kernel="inner-product", bound=1.0, accountant="geometric", epsilon=1.0, delta=1e-5
)
JOINT = PlanRequest(
    users=2_000, dim=4, kernel="inner-product", bound=1.0, classes=2, labels="joint", padded=0,
    accountant="geometric", epsilon=1.0, delta=1e-5,
)  # fmt: skip
RECORD = PlanRequest(
    users=2_000, dim=4, classes=2, model="discriminant", moment_weight=0.5, padded=256, accountant="geometric",
    epsilon=4.0, delta=1e-5,
)  # fmt: skip

HONEST_PLANS: dict[str, PlanRequest] = {
    "rr": RESPONSE,
    "3nb": CORRELATED,
    "poisson": SINGLE,
    "negative-binomial": NEGATIVE_BINOMIAL,
    "pure": PURE,
    "pure, small shifts": PURE_BALL,
    "labels": LABELED,
    "few instances": FEW,
    "hashed": HASHED,
    "inner-product": INNER,
    "features in a ball": BALL,
    "joint labels": JOINT,
    "rotated records": RECORD,
}
"""By what they stand for."""
