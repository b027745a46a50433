"""What the service answers: the shape of every document, declared once. FastAPI describes them in /openapi.json."""

from __future__ import annotations

from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict  # pydantic needs this one before Python 3.12

from accounting import Contract, Guarantee, PlanRequest
from accounting.accuracy.baselines import Baseline
from accounting.accuracy.density_error import PredictedError


class Instance(TypedDict):
    """One bitsum instance."""

    epsilon_0: float
    delta_0: float
    parameters: dict[str, float]


class Ladder(TypedDict):
    """What is composed, and the ε that each rung proves; null where it does not apply."""

    instances_per_user: int
    ladder: dict[str, float | None]


class Error(TypedDict):
    """Errors of a plan."""

    bitsum_rmse: float
    sup_rmse_bound: float | None
    predicted_rmse: float
    parts: PredictedError


class Communication(TypedDict):
    """What a user sends."""

    messages_per_user: float
    bits_per_user: float


class Plan(TypedDict):
    """Everything that was decided and why."""

    schema: Literal["privkde.plan/1"]
    request: PlanRequest
    accountant: str
    bitsum: str
    guarantees: list[Guarantee]
    instance: Instance
    composition: Ladder
    error: Error
    communication: Communication
    baselines: list[Baseline]
    contracts: list[Contract]
    reasons: list[str]


class Outcome(TypedDict):
    """One way to meet a request; null where there is none, and `refusal` says why."""

    name: str
    request: PlanRequest
    bitsum: str | None
    parameters: dict[str, float] | None
    bound: float
    bitsum_rmse: float | None
    noise: float | None
    predicted_rmse: float | None
    parts: PredictedError | None
    messages_per_user: float | None
    refusal: str | None


class Estimate(Outcome):
    """An outcome without the last proof."""

    schema: Literal["privkde.estimate/1"]


class Comparison(TypedDict):
    """The same request met in several ways."""

    schema: Literal["privkde.comparison/1"]
    rungs: list[Outcome]
    bitsums: list[Outcome]
    labels: list[Outcome]


class Risk(TypedDict):
    """What the best attack achieves against a record, its vector or its label."""

    of: str
    false_positive_rate: float
    true_positive_rate: float


class Profile(TypedDict):
    """Points (ε, δ) by rung, the promised ones, and what they mean for an attacker."""

    schema: Literal["privkde.profile/1"]
    curves: dict[str, list[tuple[float, float]]]
    promised: list[tuple[float, float]]
    risk: list[Risk]


class Claim(TypedDict):
    """What a plan claims: ε of a whole record, its parts, and δ."""

    epsilon: float
    features_epsilon: float
    label_epsilon: float
    delta: float


class Proved(TypedDict):
    """Bounds that are proved; `upper_epsilon` null where none is.

    Where labels are separate, all but `epsilon` speak of the features.
    """

    holds: bool
    epsilon: float | None
    upper_epsilon: float | None
    covered_epsilon: float
    lower_epsilon: float
    upper_curve: list[tuple[float, float]]
    lower_curve: list[tuple[float, float]]


class MovedBits(TypedDict):
    """Bits that replacing one record moves."""

    bits: int
    half: bool
    equal: bool


class Moved(TypedDict):
    """What replacing one record moves, counted again."""

    instances: int
    squared_shift: float | None
    largest_shift: float
    unit_ball: bool
    covered: MovedBits
    attained: MovedBits


class Certificate(TypedDict):
    """What a plan costs at most and at least, proved in ball arithmetic; `witness` says where theorems were used."""

    schema: Literal["privkde.certificate/1"]
    plan_sha256: str
    claim: Claim
    proved: Proved
    neighbors: Moved
    witness: dict[str, Any] | None
    notes: list[str]
    versions: dict[str, str]
    made: str


class Costs(TypedDict):
    """ε of releases together by each way to compose them, null where it proves nothing; `epsilon` is the least.

    `delta_at_budget` is δ at the budget's ε; null if there is none.
    """

    basic: float | None
    advanced: float | None
    pld: float | None
    renyi: float | None
    adaptive: float | None
    epsilon: float | None
    delta_at_budget: float | None


class Composition(TypedDict):
    """What releases cost together; `epsilon` and `remaining` if the request had `epsilon`."""

    schema: Literal["privkde.composition/1"]
    composition: str
    delta: float
    spent_before: Costs
    spent_after: Costs
    requested: float | None
    epsilon: NotRequired[float]
    remaining: NotRequired[float]


class Budget(TypedDict):
    """What all releases about the same people may cost together."""

    schema: Literal["privkde.budget/1"]
    name: str
    epsilon: float
    delta: float
    adjacency: str
    view: str
    composition: str
    order: float | None
    created: str


class Budgets(TypedDict):
    """All budgets of a ledger."""

    schema: Literal["privkde.budgets/1"]
    budgets: list[Budget]


class Schedule(TypedDict):
    """A charge for several collections, and how many of them were used."""

    name: str
    key: str
    used: int
    times: int


class Standing(TypedDict):
    """What is spent of a budget and what is left."""

    budget: Budget
    spent: float
    remaining: float
    delta_spent: float | None
    delta_remaining: float | None
    odometer: float | None
    n_charges: int
    by_sums: bool
    cohorts: dict[str, float]
    schedules: list[Schedule]
    ladder: Costs


class Price(TypedDict):
    """What a release takes from the rule of an adaptive budget; a loss without a bound is null."""

    cut: float
    rho: float
    largest_loss: float | None


class KeptProof(TypedDict):
    """The certificate that was given with a charge, and its result in one sentence."""

    headline: str
    document: Certificate


class Charge(TypedDict):
    """A release that a budget has paid for."""

    schema: Literal["privkde.charge/1"]
    budget: str
    number: int
    key: str
    name: str
    guarantee: Guarantee
    times: int
    collections: int
    cohort: str | None
    plan_sha256: str | None
    price: Price | None
    spent_before: float
    spent_after: float
    delta_after: float | None
    created: str
    certificate: KeptProof | None


class Use(TypedDict):
    """One of the times of a schedule."""

    budget: str
    schedule: str
    number: int
    key: str
    created: str


class Uses(TypedDict):
    """The collections of schedules that were used."""

    schema: Literal["privkde.uses/1"]
    uses: list[Use]


class Charges(TypedDict):
    """All charges of a budget, the oldest first."""

    schema: Literal["privkde.charges/1"]
    charges: list[Charge]


class Quote(TypedDict):
    """What a release would cost; null for what is infinite."""

    budget: str
    fits: bool
    requested: float | None
    remaining: float
    difference: float | None
    spent_before: float
    spent_after: float | None
    delta_before: float | None
    delta_after: float | None
    ladder: Costs


class Kernel(TypedDict):
    """A kernel family and the fields of a request that it takes."""

    name: str
    description: str
    takes_repetitions: bool
    takes_bias: bool
    takes_bound: bool
    bits_touched_at_64_dimensions: int


class Kernels(TypedDict):
    """What a request may name as `kernel`."""

    schema: Literal["privkde.kernels/1"]
    kernels: list[Kernel]


class Bitsum(TypedDict):
    """A bitsum protocol."""

    name: str
    description: str


class Bitsums(TypedDict):
    """What a request may name as `bitsum`, `accountant` and `labels`."""

    schema: Literal["privkde.bitsums/1"]
    bitsums: list[Bitsum]
    accountants: list[str]
    labels: list[str]


class Health(TypedDict):
    """Whether there are processes to plan with."""

    status: Literal["ok", "restarting"]


class Version(TypedDict):
    """Which library answers."""

    name: str
    version: str


class Problem(TypedDict):
    """A problem document (RFC 9457); an exceeded budget also says by how much."""

    type: str
    title: str
    status: int
    detail: str
    requested: NotRequired[float | None]
    remaining: NotRequired[float | None]
    difference: NotRequired[float | None]
