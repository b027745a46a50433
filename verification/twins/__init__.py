"""Independent definitions of mechanisms and kernels: what the checks know of each of them, in one place.

A twin is registered by `TWINS["name of the law"] = ItsTwin`. A mechanism without one can still be audited: the checks
that need its definition are listed as not applicable, with this reason (`Check.needs`).
"""

from __future__ import annotations

from collections.abc import Collection

from accounting import Plan
from accounting.composition import LADDER
from accounting.mechanisms import BitsumProtocol
from verification.twins.bitsum_twins import (
    NegativeBinomialTwin,
    PoissonTwin,
    PureTwin,
    ResponseTwin,
    ThreeNegativeBinomialTwin,
)
from verification.twins.kernel_twins import GaussianTwin, HashedTwin, IdentityTwin, KernelTwin, SignsTwin
from verification.twins.mechanism_twin import MechanismTwin
from verification.verdicts import Subject

TWINS: dict[str, type[MechanismTwin]] = {
    twin.name: twin for twin in (ResponseTwin, ThreeNegativeBinomialTwin, PoissonTwin, NegativeBinomialTwin, PureTwin)
}
"""By the name of the law."""
KERNEL_TWINS: dict[str, KernelTwin] = {
    "gaussian": GaussianTwin(),
    "inner-product": IdentityTwin(),
    "inner-product-signs": SignsTwin(),
    "laplacian": HashedTwin(distance="cityblock"),
    "exponential": HashedTwin(distance="euclidean"),
}
"""By the name of the kernel."""


def mechanism_twin(source: Plan | BitsumProtocol) -> MechanismTwin:
    """The twin of a plan's mechanism, or of a law, with the same parameters."""
    if isinstance(source, Plan):
        return TWINS[source.bitsum].of(source.parameters, source.request.counted_users)
    return TWINS[source.name].of(source.parameters(), source.n_users)


def kernel_twin(plan: Plan) -> KernelTwin:
    """The twin of a plan's kernel."""
    return KERNEL_TWINS[plan.request.kernel].within(plan.request.radius)


def counts_shifts(plan: Plan) -> bool:
    """Whether the plan's rung covers all shifts t of bit probabilities with Σt² ≤ Δ², not only complete flips."""
    return LADDER[plan.accountant].uses_shifts


def many_messages(plan: Plan) -> bool:
    """Whether users are known to send thousands of messages."""
    return plan.bitsum in TWINS and TWINS[plan.bitsum].many_messages


def needs_mechanism_twin(subject: Subject) -> str:
    """What is missing for a check that uses the definition of the mechanism; empty if nothing is."""
    return _missing("mechanism", subject.plan.bitsum, TWINS)


def needs_kernel_twin(subject: Subject) -> str:
    """What is missing for a check that uses the definition of the kernel; empty if nothing is."""
    return _missing("kernel", subject.plan.request.kernel, KERNEL_TWINS)


def needs_twins(subject: Subject) -> str:
    """What is missing for a check that uses both definitions; empty if nothing is."""
    return needs_mechanism_twin(subject) or needs_kernel_twin(subject)


def _missing(kind: str, name: str, registered: Collection[str]) -> str:
    return "" if name in registered else f"the {kind} {name!r} has no twin in verification.twins"
