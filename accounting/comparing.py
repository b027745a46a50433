"""The same request met in several ways, side by side: by every rung, kernel or model, for each way with labels."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

from accounting.accuracy.density_error import PredictedError
from accounting.choosing import Progress, choose, prediction, silent
from accounting.classifier_model import MODELS
from accounting.composition import LADDER, PrivacyLossComposition
from accounting.errors import InvalidInputError, PrivkdeError
from accounting.kernels import KERNELS
from accounting.mechanisms import BITSUMS, BitsumProtocol, bitsums_for
from accounting.registry import AUTO
from accounting.request import JOINT, LABEL_SHARES, ONE_PART, SEPARATE, PlanRequest

_PLANNED_BOUND = f"{PrivacyLossComposition.name}, planned R"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One way to meet a request: the calibrated protocol, or why there is none."""

    name: str
    request: PlanRequest
    protocol: BitsumProtocol | None
    refusal: str = ""

    @staticmethod
    def of(
        name: str, request: PlanRequest, say: Progress, *, certified: bool = True, decide: bool = False, **changes: Any
    ) -> Outcome:
        """Calibrate the request with these changes; a change may be refused, such as a total beyond the largest ε.

        With `decide`, the outcome's request names what the planner chooses beside noise.
        """
        try:
            request = dataclasses.replace(request, **changes)
            request = request.decided() if decide else request
            return Outcome(name=name, request=request, protocol=choose(request, say, certified=certified)[0])
        except PrivkdeError as error:
            return Outcome(name=name, request=request, protocol=None, refusal=str(error))

    @property
    def bitsum_rmse(self) -> float | None:
        """RMSE of one sum of bits."""
        return None if self.protocol is None else self.protocol.rmse(self.request.users_per_protocol)

    @property
    def noise(self) -> float:
        """2R·RMSE: noise of a sum of features, comparable between bounds R; infinite if there is no protocol."""
        return math.inf if self.bitsum_rmse is None else 2.0 * self.request.facts().bound * self.bitsum_rmse

    @property
    def error(self) -> PredictedError | None:
        """Predicted error of a density."""
        return None if self.protocol is None else prediction(self.request, self.protocol)

    @property
    def total_error(self) -> float:
        """The same as one number; infinite if there is no protocol."""
        return math.inf if self.error is None else self.error.total

    @property
    def messages_per_user(self) -> float | None:
        """Expected messages of one user in all instances."""
        n_instances = self.request.facts().n_instances
        return None if self.protocol is None else n_instances * self.protocol.messages_per_user()

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values; null where there is no protocol."""
        known = self.protocol is not None
        return {
            "name": self.name,
            "request": self.request.to_json(),
            "bitsum": None if self.protocol is None else self.protocol.name,
            "parameters": None if self.protocol is None else self.protocol.parameters(),
            "bound": self.request.facts().bound,
            "bitsum_rmse": self.bitsum_rmse,
            "noise": self.noise if known else None,
            "predicted_rmse": self.total_error if known else None,
            "parts": None if self.error is None else dataclasses.asdict(self.error),
            "messages_per_user": self.messages_per_user,
            "refusal": self.refusal or None,
        }


def compare_rungs(
    request: PlanRequest, progress: Progress | None = None, *, certified: bool = True, only: str | None = None
) -> list[Outcome]:
    """The request calibrated by every rung, or by one `only`; a rung that cannot is listed with its reason.

    Rungs that do not use shifts have R = 1 unless a bound is given; `pld` is also shown with the planner's R. Not
    certified, noise is up to about 0.1 % less: to compare, not to use.
    """
    return [
        Outcome.of(name, variant, progress or silent, certified=certified)
        for name, variant in rung_variants(request).items()
        if only in (None, name)
    ]


def rung_names() -> list[str]:
    """All names that `compare_rungs` may list, in its order."""
    again = {PrivacyLossComposition.name: [_PLANNED_BOUND]}
    return [one for name in LADDER for one in (name, *again.get(name, []))]


def rung_variants(request: PlanRequest) -> dict[str, PlanRequest]:
    """What `compare_rungs` calibrates, by name."""
    chosen = dataclasses.replace(request, accountant=AUTO)
    planned = chosen.rounding_bound if chosen.record is None else None
    variants = {}
    laws = [BITSUMS[request.bitsum]] if request.bitsum != AUTO else list(bitsums_for(request.delta).values())
    for name, rung in LADDER.items():
        if all(law.spends_delta and not rung.covers(law) for law in laws):
            continue  # it is for laws without δ
        variant = dataclasses.replace(request, accountant=name)
        variants[name] = variant
        if name == PrivacyLossComposition.name and planned not in (None, variant.rounding_bound):
            variants[_PLANNED_BOUND] = dataclasses.replace(variant, bound=planned)
    return variants


def compare_bitsums(
    request: PlanRequest, progress: Progress | None = None, *, only: str | None = None
) -> list[Outcome]:
    """The request calibrated for every bitsum protocol, or for one `only`, by its accountant; not certified."""
    outcomes = []
    for name, law in BITSUMS.items():
        if only not in (None, name):
            continue
        shape = request.noise_shape if law.takes_noise_shape else None
        changes: dict[str, Any] = {"bitsum": name, "allow_useless": True, "noise_shape": shape}
        outcomes.append(Outcome.of(name, request, progress or silent, certified=False, **changes))
    return outcomes


def compare_kernels(request: PlanRequest, progress: Progress | None = None) -> list[Outcome]:
    """The request for a density with each kernel, and what each takes left to the planner if only others take it.

    Predicted errors of different kernels measure different things. Not certified: to compare, not to use.
    """
    if request.classes is not None:
        raise InvalidInputError(f"classes={request.classes}: kernels are compared for densities; leave classes out.")
    outcomes = []
    for name, kernel in KERNELS.items():
        changes: dict[str, Any] = {
            "kernel": name,
            "repetitions": request.repetitions if kernel.takes_repetitions else None,
            "bias": request.bias if kernel.takes_bias else None,
            "bound": request.bound if kernel.takes_bound else None,
            "allow_useless": True,
        }
        outcomes.append(Outcome.of(name, request, progress or silent, certified=False, **changes))
    return outcomes


def compare_models(request: PlanRequest, progress: Progress | None = None) -> list[Outcome]:
    """Joint labels: the request with each model; one that takes too many messages is listed with its reason.

    Nothing where there is no choice. Not certified: to compare, not to use.
    """
    if not request.joint or request.record is None:
        return []
    free: dict[str, Any] = {"padded": None, "moment_weight": None, "bound": None, "allow_useless": True}
    return [
        Outcome.of(model, request, progress or silent, certified=False, **free, model=model, decide=True)
        for model in MODELS
    ]


def compare_labels(
    request: PlanRequest, progress: Progress | None = None, *, planned: BitsumProtocol | None = None
) -> list[Outcome]:
    """The request as it is, and the other way to protect labels for the same total ε and δ; nothing without classes.

    Of several ways to split ε between features and label the best is shown. Not certified: to compare, not to use.
    A protocol that was `planned` for the request stands for itself, if it is the one that would be compared.
    """
    if request.classes is None:
        return []
    say = progress or silent
    base = dataclasses.replace(request, allow_useless=True)
    if base.bitsum == AUTO:  # labels are compared, not bitsums
        base = dataclasses.replace(base, bitsum=next(iter(bitsums_for(request.delta))))
    if planned is not None and planned.name == base.bitsum:
        given = Outcome(name=request.labels, request=base, protocol=planned)
    else:
        given = Outcome.of(request.labels, base, say, certified=False)
    others = [
        Outcome.of(changes["labels"], base, say, certified=False, **changes)
        for changes in _other_labels(request, request.classes)
    ]
    return [given, min(others, key=lambda outcome: outcome.total_error)]


def _other_labels(request: PlanRequest, n_classes: int) -> list[dict[str, Any]]:
    """What to change for the other way to protect labels; numbers are per class with separate labels only."""
    if request.separate:
        return [{"labels": JOINT, **ONE_PART, **_headcounts(request, n_classes)}]
    parts = [share * float(request.epsilon) / request.releases for share in LABEL_SHARES]
    fewer = {
        "model": AUTO,
        "padded": None,
        "moment_weight": None,
        "bound": None,
        **_headcounts(request, 1.0 / n_classes),
    }
    return [{"labels": SEPARATE, "label_epsilon": label, **fewer} for label in parts]


def _headcounts(request: PlanRequest, scale: float) -> dict[str, Any]:
    """Numbers of users for all or for one class instead of the other; shares stay what they are."""
    counted = None if request.min_users is None else max(2, math.floor(request.min_users * scale))
    numbers = {name: getattr(request, name) for name in ("dropout", "colluders")}
    scaled = {name: value if value < 1 else float(math.ceil(value * scale)) for name, value in numbers.items()}
    return {"min_users": counted, **scaled}


def label_advice(
    request: PlanRequest, progress: Progress | None = None, *, planned: BitsumProtocol | None = None
) -> str | None:
    """Which way to protect labels is predicted to serve a class's density better; None without classes."""
    outcomes = compare_labels(request, progress, planned=planned)
    if not outcomes:
        return None
    best = min(outcomes, key=lambda outcome: outcome.total_error)
    errors = "; ".join(_predicted(outcome) for outcome in outcomes)
    return f"labels: '{best.name}' has the smaller predicted error for the same total ε ({errors})"


def _predicted(outcome: Outcome) -> str:
    """How ε is split, and the predicted error."""
    request, error = outcome.request, "not possible" if outcome.error is None else f"{outcome.error.total:.3g}"
    if request.label_epsilon is None:
        return f"joint ε = {request.epsilon:g}: {error}"
    times = "" if request.releases == 1 else f"{request.releases}·"
    return f"separate ε = {request.kde_epsilon:g} + {times}{request.label_epsilon:g}: {error}"
