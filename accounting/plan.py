"""A plan: what was decided and why, as a frozen record that can be saved, loaded, verified and explained."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import reprlib
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from accounting import explaining
from accounting.accuracy.baselines import Baseline, baselines
from accounting.accuracy.density_error import PredictedError, sup_error_bound
from accounting.choosing import prediction
from accounting.classifier_model import DENSITY
from accounting.composed_contracts import classifier_contract, kde_contract
from accounting.composition import LADDER, Rung
from accounting.contract import Contract
from accounting.errors import (
    InfeasibleError,
    InvalidInputError,
    PrivkdeError,
    require_choice,
    require_integer,
    require_quantity,
    require_text,
)
from accounting.guarantee import Guarantee
from accounting.kernels import KernelFacts
from accounting.mechanisms import BITSUMS, BitsumProtocol, rebuild
from accounting.mechanisms.bitsum_protocol import message_bits
from accounting.request import JOINT, PlanRequest

if TYPE_CHECKING:
    from accounting.checking import Proof
    from accounting.numerics.losses import PrivacyLossDistribution
    from accounting.releases.profile_points import Profile

SCHEMA = "privkde.plan/1"
LAST_DIGITS = 1e-6
"""Relative difference between two machines' numbers that is no alteration."""
COMPARISONS = {"composition": 0.1, "baselines": 0.1}
"""The same for what a plan is compared with, by part of the document: later versions have tighter bounds for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything that was decided and why; `to_json` is the `privkde.plan/1` document."""

    request: PlanRequest
    accountant: str
    bitsum: str
    guarantees: tuple[Guarantee, ...]
    epsilon_0: float
    """ε of one bitsum instance: a point of its exact profile."""
    delta_0: float
    """δ of one bitsum instance at ε₀."""
    parameters: Mapping[str, float | int] = field(hash=False)
    instances_per_user: int
    ladder: Mapping[str, float | None] = field(hash=False)
    bitsum_rmse: float
    sup_rmse_bound: float | None
    """None for joint labels, of which Theorem 3.2 does not speak."""
    error: PredictedError
    messages_per_user: float
    """In one release, and so are the errors; what is promised and composed is for all releases."""
    bits_per_user: float
    baselines: tuple[Baseline, ...]
    contract: Contract
    reasons: tuple[str, ...]

    def __post_init__(self) -> None:
        """Every value is of its kind and finite; whether the numbers are right is for `verify`."""
        require_choice("accountant", self.accountant, LADDER)
        require_choice("bitsum", self.bitsum, BITSUMS)
        for name in ("epsilon_0", "delta_0", "bitsum_rmse", "messages_per_user", "bits_per_user"):
            require_quantity(name, getattr(self, name))
        if self.sup_rmse_bound is not None:
            require_quantity("sup_rmse_bound", self.sup_rmse_bound)
        require_integer("instances_per_user", self.instances_per_user, low=1, high=sys.maxsize)
        for name, value in self.parameters.items():
            require_quantity(require_text("name of a parameter", name), value)
        for name, epsilon in self.ladder.items():
            require_choice("name of a rung", name, LADDER)
            if epsilon is not None:
                require_quantity(name, epsilon)
        for reason in self.reasons:
            require_text("reason", reason)

    def to_json(self) -> dict[str, Any]:
        """The `privkde.plan/1` document."""
        return {
            "schema": SCHEMA,
            "request": self.request.to_json(),
            "accountant": self.accountant,
            "bitsum": self.bitsum,
            "guarantees": [g.to_json() for g in self.guarantees],
            "instance": {
                "epsilon_0": self.epsilon_0,
                "delta_0": self.delta_0,
                "parameters": dict(self.parameters),
            },
            "composition": {"instances_per_user": self.instances_per_user, "ladder": dict(self.ladder)},
            "error": {
                "bitsum_rmse": self.bitsum_rmse,
                "sup_rmse_bound": self.sup_rmse_bound,
                "predicted_rmse": self.error.total,
                "parts": dataclasses.asdict(self.error),
            },
            "communication": {
                "messages_per_user": self.messages_per_user,
                "bits_per_user": self.bits_per_user,
            },
            "baselines": [b.to_json() for b in self.baselines],
            "contracts": [self.contract.to_json()],
            "reasons": list(self.reasons),
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Plan:
        """Inverse of `to_json`; raises `InvalidInputError` on anything else."""
        if not isinstance(data, Mapping) or data.get("schema") != SCHEMA:
            schema = data.get("schema") if isinstance(data, Mapping) else type(data).__name__
            raise InvalidInputError(f"schema={schema!r} is not {SCHEMA!r}; load a file written by `privkde plan`.")
        try:
            data = {**data, "request": _of_today(data["request"])}
            instance, composition, error = data["instance"], data["composition"], data["error"]
            plan = Plan(
                request=PlanRequest(**data["request"]),
                accountant=data["accountant"],
                bitsum=data["bitsum"],
                guarantees=tuple(Guarantee.from_json(g) for g in data["guarantees"]),
                epsilon_0=instance["epsilon_0"],
                delta_0=instance["delta_0"],
                parameters=dict(instance["parameters"]),
                instances_per_user=composition["instances_per_user"],
                ladder=dict(composition["ladder"]),
                bitsum_rmse=error["bitsum_rmse"],
                sup_rmse_bound=error["sup_rmse_bound"],
                error=PredictedError(**error["parts"]),
                messages_per_user=data["communication"]["messages_per_user"],
                bits_per_user=data["communication"]["bits_per_user"],
                baselines=tuple(Baseline.from_json(b) for b in data["baselines"]),
                contract=Contract.from_json(data["contracts"][0]),
                reasons=tuple(data["reasons"]),
            )
            agrees = bool(plan.guarantees) and _agrees(data, plan.to_json())
        except PrivkdeError:
            raise
        except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
            message = f"plan document is incomplete or malformed near {error}; write it again."
            raise InvalidInputError(message) from error
        if not agrees:
            raise InvalidInputError("plan document holds more or other than its plan; write it again.")
        return plan

    def protocol(self) -> BitsumProtocol:
        """The bitsum protocol with the planned parameters."""
        return rebuild(self.bitsum, self.request.counted_users, self.parameters)

    @property
    def profile(self) -> Profile:
        """The whole profile that is promised for replacing a record (features and label), in the communication view.

        Its `delta`, `epsilon`, `true_positive_rate`, `tradeoff` and `for_group` speak for other ε and δ, attackers and
        groups. Computed when it is first used; the plan is verified first.
        """
        from accounting.releases.composing import profile_of  # it needs plans

        return profile_of(self)

    def epsilon_of_one_release(self) -> float | None:
        """ε of one of the plan's releases by itself, at the plan's δ; None if its accountant proves nothing of it."""
        rung, protocol = LADDER[self.accountant], self.protocol()
        facts = dataclasses.replace(self.request.facts(), n_releases=1)
        return _achieved(rung, protocol, facts, protocol.promised_delta(self.request.delta), used=True)

    def to_pld(self, step: float = 1e-4) -> PrivacyLossDistribution:
        """The profile for dp-accounting, where it composes with others of the same step. See `Profile.to_pld`."""
        return self.profile.to_pld(step)

    def verify(self) -> None:
        """Raise `InvalidInputError` unless the accountant proves the promise for the parameters, now.

        All other numbers must follow from request, accountant and parameters, too: up to `LAST_DIGITS`, and those that
        a plan is compared with, its ladder and baselines, up to `COMPARISONS`. Reasons are words, and are not checked.
        For a plan from somewhere else, such as a file or the announcement of a collection.
        """
        rung, protocol = LADDER[require_choice("accountant", self.accountant, LADDER)], self.protocol()
        rung.require_covered(type(protocol))
        epsilon, delta = self.request.kde_epsilon, protocol.promised_delta(self.request.delta)
        touched = self.request.facts().touched.total
        if self.instances_per_user != touched:  # before the accountant works for as many
            raise InvalidInputError(
                f"plan.composition.instances_per_user is {self.instances_per_user} and should be {touched}; the plan"
                " was altered: plan again."
            )
        if rung.excess(protocol, rung.touched(self.request.facts()), epsilon, delta, certified=True) > 0.0:
            raise InvalidInputError(
                f"the plan's parameters do not keep ε={epsilon:g}, δ={delta:g} by its accountant {self.accountant!r};"
                " it was altered or damaged: plan again."
            )
        honest = self.recomputed()
        if self.contract != honest.contract or self.guarantees != honest.guarantees:
            raise InvalidInputError("the plan's contract is not that of its parameters; it was altered: plan again.")
        if self.accountant not in self.ladder:  # a rung that is newer than the plan may be missing, but not its own
            raise InvalidInputError(f"the ladder lacks {self.accountant!r}, the plan's accountant; plan again.")
        said, follows = self.to_json(), honest.to_json()
        follows["composition"]["ladder"] = {name: follows["composition"]["ladder"][name] for name in self.ladder}
        for part, value in said.items():
            for difference in differences(value, follows[part], COMPARISONS.get(part, LAST_DIGITS), f"plan.{part}"):
                raise InvalidInputError(f"{difference}; the plan was altered: plan again.")

    def certified(self) -> Proof:
        """A certificate of what the parameters cost, proved in ball arithmetic by a checker with laws of its own.

        It may say that the promise is not proved, or false. Its document is `privkde.certificate/1`. Takes seconds.
        """
        from accounting.checking import certify  # it looks at what is installed

        return certify(self)

    def recomputed(self) -> Plan:
        """The plan that follows from this one's request, accountant and parameters: what all its numbers should be.

        Documents of up to 0.2.0 say how many bits a user sends if all messages name their instance, and their contracts
        may have former words for the same evidence; so does then this.
        """
        rung, law = LADDER[require_choice("accountant", self.accountant, LADDER)], self.protocol()
        plan = assemble(self.request, law, rung, self.reasons)
        former = plan.contract.rephrased(rung.former_words)
        plan = dataclasses.replace(plan, contract=former) if self.contract == former else plan
        bits = message_bits(self.request.facts().n_instances, law.content_bits, in_order=False)
        named = plan.messages_per_user * bits
        return dataclasses.replace(plan, bits_per_user=named) if self.bits_per_user == named else plan

    def sha256(self) -> str:
        """Names the plan by its document: with sorted names and no spaces, in UTF-8."""
        text = json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return hashlib.sha256(text.encode("utf-8")).hexdigest()

    def dumps(self) -> str:
        """The document as text."""
        return json.dumps(self.to_json(), indent=2, allow_nan=False, ensure_ascii=False) + "\n"

    def explain(self) -> str:
        """The plan in words and formulas."""
        return explaining.explain(self)


def differences(said: Any, follows: Any, tolerance: float, where: str = "plan") -> Iterator[str]:
    """Where a document differs from what follows, numbers by more than a relative tolerance."""
    if isinstance(said, dict) and isinstance(follows, dict) and said.keys() == follows.keys():
        for name in said:
            yield from differences(said[name], follows[name], tolerance, f"{where}.{name}")
    elif isinstance(said, list) and isinstance(follows, list) and len(said) == len(follows):
        for i, pair in enumerate(zip(said, follows, strict=True)):
            yield from differences(*pair, tolerance, f"{where}[{i}]")
    elif said != follows:
        numbers = isinstance(said, float) and isinstance(follows, float)
        if not (numbers and math.isclose(said, follows, rel_tol=tolerance)):
            yield f"{where} is {reprlib.repr(said)} and should be {reprlib.repr(follows)}"


def _of_today(request: Mapping[str, Any]) -> Mapping[str, Any]:
    """The request of an old document in today's words: ε was that of the features, and each class had a block."""
    if request.get("classes") is None or request.keys() & {"features_epsilon", "padded"}:
        return request
    if request.get("labels") == JOINT:
        return {**request, "model": DENSITY, "padded": 0}
    features, label = request["epsilon"], request["label_epsilon"]
    total = math.fsum([features, math.fsum([label] * request.get("releases", 1))])
    return {**request, "epsilon": total, "features_epsilon": features}


def _agrees(said: Any, document: Any) -> bool:
    """Whether a document is part of another; names that have a default may be missing."""
    if isinstance(said, Mapping) and isinstance(document, Mapping):
        return said.keys() <= document.keys() and all(_agrees(said[name], document[name]) for name in said)
    if isinstance(said, list) and isinstance(document, list):
        return len(said) == len(document) and all(map(_agrees, said, document))
    return bool(said == document)


def assemble(request: PlanRequest, protocol: BitsumProtocol, rung: Rung, reasons: tuple[str, ...]) -> Plan:
    """The plan that follows from a request, a calibrated protocol and the rung that proves it."""
    facts = request.facts()
    n = request.users_per_protocol
    share = request.users_per_density / n
    epsilon, delta = request.kde_epsilon, protocol.promised_delta(request.delta)
    epsilon_0, delta_0 = instance_point_of(request, protocol, rung)
    ladder = {name: _achieved(other, protocol, facts, delta, used=other is rung) for name, other in LADDER.items()}
    contract = contract_of(request, protocol, rung, instance_point=(epsilon_0, delta_0))
    messages = facts.n_instances * protocol.messages_per_user()
    return Plan(
        request=request,
        accountant=rung.name,
        bitsum=protocol.name,
        guarantees=contract.guarantees,
        epsilon_0=epsilon_0,
        delta_0=delta_0,
        parameters=protocol.parameters(),
        instances_per_user=facts.touched.total,
        ladder=ladder,
        bitsum_rmse=protocol.rmse(n),
        sup_rmse_bound=None if request.joint else sup_error_bound(facts, n, protocol.rmse(n)),
        error=prediction(request, protocol),
        messages_per_user=messages,
        bits_per_user=messages * protocol.message_bits(facts.n_instances),
        baselines=() if delta == 0.0 else baselines(facts, n, epsilon=epsilon, delta=delta, share=share),
        contract=contract,
        reasons=reasons,
    )


def instance_point_of(request: PlanRequest, protocol: BitsumProtocol, rung: Rung) -> tuple[float, float]:
    """(ε₀, δ₀) of one instance; no promise where it has none."""
    touched, delta = rung.touched(request.facts()), protocol.promised_delta(request.delta)
    point = rung.instance_point(protocol, touched, request.kde_epsilon, delta)
    return point if math.isfinite(point[0]) else (0.0, 1.0)


def contract_of(
    request: PlanRequest, protocol: BitsumProtocol, rung: Rung, *, instance_point: tuple[float, float]
) -> Contract:
    """What the request promises with these parameters, and one instance by itself."""
    kde = kde_contract(
        request.facts(),
        protocol,
        rung,
        epsilon=request.kde_epsilon,
        delta=protocol.promised_delta(request.delta),
        instance_point=instance_point,
        n_colluders=request.n_colluders,
    )
    label = request.label_response()
    return kde if label is None else classifier_contract([kde], label, request.releases)


def _achieved(rung: Rung, protocol: BitsumProtocol, facts: KernelFacts, delta: float, *, used: bool) -> float | None:
    """ε that a rung proves for a protocol; None where it does not apply or proves nothing."""
    shifts_unknown = rung.uses_shifts and facts.touched.shift_budget >= facts.touched.total
    if not rung.covers(type(protocol)) or (shifts_unknown and not used):
        return None
    try:
        epsilon = rung.achieved_epsilon(protocol, rung.touched(facts), delta)
    except InfeasibleError:
        return None
    return epsilon if epsilon is not None and math.isfinite(epsilon) else None
