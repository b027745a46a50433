"""What a law guarantees: exact laws, contracts, composition and budget planning."""

from accounting.contract import Contract, Evidence, EvidenceKind
from accounting.errors import InfeasibleError, InvalidInputError, PrivkdeError, UnlikeGuaranteesError
from accounting.guarantee import Adjacency, Guarantee, View
from accounting.plan import Plan
from accounting.planning import plan_budget
from accounting.releases.release import Release
from accounting.request import PlanRequest
from accounting.solving import solve

__all__ = [
    "Adjacency",
    "Contract",
    "Evidence",
    "EvidenceKind",
    "Guarantee",
    "InfeasibleError",
    "InvalidInputError",
    "Plan",
    "PlanRequest",
    "PrivkdeError",
    "Release",
    "UnlikeGuaranteesError",
    "View",
    "plan_budget",
    "solve",
]
