"""What a plan's certificate says, and where its checker is found: a package to the right, by an entry point."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Protocol, cast

from accounting.errors import InvalidInputError, PrivkdeError

if TYPE_CHECKING:
    from accounting.plan import Plan

ENTRY_POINTS = "accounting.checkers"
"""The group of entry points; a checker has three: `certify`, `recheck` and `read`."""


class NoCheckerError(PrivkdeError):
    """No package is installed that can prove a plan, or more than one."""


class Proof(Protocol):
    """What a certificate says of a plan."""

    @property
    def plan_sha256(self) -> str:
        """The plan that it is for."""

    @property
    def headline(self) -> str:
        """The result in one sentence."""

    @property
    def proves(self) -> bool:
        """Whether what the plan promises is proved."""

    @property
    def refutes(self) -> bool:
        """Whether what the plan claims is false."""

    @property
    def proved_epsilon(self) -> float | None:
        """A bound on ε of a whole record; None if nothing is proved."""

    def to_json(self) -> dict[str, Any]:
        """The document."""

    def dumps(self) -> str:
        """The document as text."""


def certify(plan: Plan) -> Proof:
    """What the plan's parameters cost, proved by the installed checker; raises `NoCheckerError` without one."""
    return cast(Proof, _checker("certify")(plan))


def read_proof(document: Any) -> Proof:
    """The certificate in a document, as it says of itself; raises `InvalidInputError` on anything else."""
    return cast(Proof, _checker("read")(document))


def disproved(plan: Plan, proof: Proof) -> list[str]:
    """What of a certificate cannot be proved again for this plan, in sentences; nothing if all can."""
    return cast("list[str]", _checker("recheck")(plan, proof))


def require_proof(proof: Proof, plan_sha256: str) -> Proof:
    """Return a certificate that says of itself that it proves the plan with this hash, or raise."""
    if proof.plan_sha256 != plan_sha256:
        raise InvalidInputError(
            f"the certificate is for plan {proof.plan_sha256[:12]}…, and not for {plan_sha256[:12]}…; make one for it"
            " with `privkde verify PLAN --output FILE`."
        )
    if not proof.proves:
        raise InvalidInputError(f"the certificate proves nothing ({proof.headline}); plan again.")
    return proof


def _checker(name: str) -> Any:
    found = entry_points(group=ENTRY_POINTS, name=name)
    if len(found) != 1:
        raise NoCheckerError(
            f"{len(found)} packages can {name} a certificate, and there must be one; install privkde whole, with"
            " verification."
        )
    return next(iter(found)).load()
