"""`plan_budget`: from a request to parameters, guarantees, errors, messages and contracts.

A plan is a frozen record: it can be saved, loaded, compared, explained, and it names its evidence.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from accounting import explaining
from accounting.baselines import Baseline, baselines
from accounting.choosing import Progress, choose, prediction, silent
from accounting.comparing import label_advice
from accounting.composition import LADDER, Rung, Touched
from accounting.contract import Contract
from accounting.contracts import classifier_contract, kde_contract
from accounting.error import BitsumError, PredictedError, sup_error_bound
from accounting.errors import InfeasibleError, InvalidInputError, PrivkdeError, require_choice
from accounting.guarantee import Guarantee
from accounting.kernels import KernelFacts
from accounting.mechanisms import BitsumProtocol, Pure, rebuild
from accounting.request import PlanRequest, read_request

SCHEMA = "privkde.plan/1"


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
    bits_per_user: float
    baselines: tuple[Baseline, ...]
    contract: Contract
    reasons: tuple[str, ...]

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
            found = data.get("schema") if isinstance(data, Mapping) else type(data).__name__
            raise InvalidInputError(f"schema={found!r} is not {SCHEMA!r}; load a file written by `privkde plan`.")
        try:
            instance, composition, error = data["instance"], data["composition"], data["error"]
            found = Plan(
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
        except PrivkdeError:
            raise
        except (KeyError, TypeError, IndexError, ValueError, AttributeError, RecursionError) as error:
            raise InvalidInputError(f"plan document is incomplete or malformed near {error}; write it anew.") from error
        if not found.guarantees or not _agrees(data, found.to_json()):
            raise InvalidInputError("plan document holds more or other than its plan; write it anew.")
        return found

    def protocol(self) -> BitsumProtocol:
        """The bitsum protocol with the planned parameters."""
        return rebuild(self.bitsum, self.request.counted_users, self.parameters)

    def verify(self) -> None:
        """Raise `InvalidInputError` unless the plan's accountant proves its promise for its parameters, now.

        For a plan that came from somewhere else: a file, or whoever runs a collection that one is asked to join.
        """
        _verify(self)

    def recomputed(self) -> Plan:
        """The plan that follows from this one's request, accountant and parameters: what all its numbers should be."""
        rung = LADDER[require_choice("accountant", self.accountant, LADDER)]
        return _assemble(self.request, self.protocol(), rung, self.reasons)

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


def plan_budget(progress: Progress | None = None, **request: Any) -> Plan:
    """Plan the noise for a request (see `PlanRequest` for its names).

    Returns the plan of least noise that the chosen accountant can prove, or raises a `PrivkdeError`.
    """
    asked = read_request(request)
    found = plan(asked, progress=progress)
    advice = label_advice(asked, progress)
    return found if advice is None else dataclasses.replace(found, reasons=(*found.reasons, advice))


def plan(request: PlanRequest, *, progress: Progress | None = None) -> Plan:
    """`plan_budget` for a request object, without advice on labels. The plan's request names the bound R it chose."""
    say = progress or silent
    request = dataclasses.replace(request, bound=request.rounding_bound)
    protocol, rung, reasons = choose(request, say)
    say(f"ladder at these parameters ({protocol.name})")
    return _assemble(request, protocol, rung, reasons)


def _agrees(said: Any, document: Any) -> bool:
    """Whether a document says nothing but what another says; names that have a default may be missing."""
    if isinstance(said, Mapping) and isinstance(document, Mapping):
        return said.keys() <= document.keys() and all(_agrees(said[name], document[name]) for name in said)
    if isinstance(said, list) and isinstance(document, list):
        return len(said) == len(document) and all(map(_agrees, said, document))
    return bool(said == document)


def _verify(asked: Plan) -> None:
    request = asked.request
    rung, protocol = LADDER[require_choice("accountant", asked.accountant, LADDER)], asked.protocol()
    delta = _delta(request, protocol)
    if rung.excess(protocol, _touched(request, rung), float(request.epsilon), delta, certified=True) > 0.0:
        raise InvalidInputError(
            f"the plan's parameters do not keep ε={request.epsilon:g}, δ={delta:g} by its accountant"
            f" {asked.accountant!r}; it was altered or damaged: plan anew."
        )
    honest = _contract(request, protocol, rung)
    if asked.contract != honest or asked.guarantees != honest.guarantees:
        raise InvalidInputError("the plan's contract is not that of its parameters; it was altered: plan anew.")


def _assemble(request: PlanRequest, protocol: BitsumProtocol, rung: Rung, reasons: tuple[str, ...]) -> Plan:
    facts = request.facts()
    n = request.users_per_protocol
    share = request.users_per_density / n
    epsilon, delta = float(request.epsilon), _delta(request, protocol)
    epsilon_0, delta_0 = _instance_point(request, protocol, rung)
    ladder = {name: _finite(_achieved(one, protocol, facts, delta, used=one is rung)) for name, one in LADDER.items()}
    contract = _contract(request, protocol, rung)
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
        sup_rmse_bound=None if request.joint else sup_error_bound(facts, n, BitsumError(value=protocol.rmse(n))),
        error=prediction(request, protocol),
        messages_per_user=messages,
        bits_per_user=messages * facts.message_bits(protocol.content_bits),
        baselines=() if delta == 0.0 else baselines(facts, n, epsilon=epsilon, delta=delta, share=share),
        contract=contract,
        reasons=reasons,
    )


def _delta(request: PlanRequest, protocol: BitsumProtocol) -> float:
    """The δ that is promised: Pure spends none, whatever was allowed."""
    return 0.0 if protocol.name == Pure.name else float(request.delta)


def _touched(request: PlanRequest, rung: Rung) -> Touched:
    """The instances that the rung composes."""
    facts = request.facts()
    return facts.paper_touched if rung.name == "paper" else facts.touched


def _instance_point(request: PlanRequest, protocol: BitsumProtocol, rung: Rung) -> tuple[float, float]:
    """(ε₀, δ₀) of one instance; no promise where it has none."""
    point = rung.instance_point(protocol, _touched(request, rung), float(request.epsilon), _delta(request, protocol))
    return point if math.isfinite(point[0]) else (0.0, 1.0)


def _contract(request: PlanRequest, protocol: BitsumProtocol, rung: Rung) -> Contract:
    """What the request promises with these parameters."""
    kde = kde_contract(
        request.facts(),
        protocol,
        rung,
        epsilon=float(request.epsilon),
        delta=_delta(request, protocol),
        instance_point=_instance_point(request, protocol, rung),
    )
    label = request.label_response()
    return kde if label is None else classifier_contract([kde], label)


def _achieved(rung: Rung, protocol: BitsumProtocol, facts: KernelFacts, delta: float, *, used: bool) -> float | None:
    """ε that a rung proves for a protocol, None where it does not apply."""
    if protocol.name == Pure.name and rung.name not in ("basic", "paper"):
        return None
    if rung.name == "geometric" and not used and facts.touched.shift_budget >= facts.touched.total:
        return None  # nothing is known of the shifts: it would be `pld` with a looser conversion
    touched = facts.paper_touched if rung.name == "paper" else facts.touched
    try:
        return rung.achieved_epsilon(protocol, touched, delta)
    except InfeasibleError:
        return None


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
