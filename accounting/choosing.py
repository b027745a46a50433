"""Which protocol, with which parameters, proved by which rung."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

from accounting.accuracy.density_error import PredictedError, predicted_error
from accounting.classifier_model import DENSITY
from accounting.composition import LADDER, Rung, Target
from accounting.errors import InfeasibleError, PrivkdeError
from accounting.mechanisms import BITSUMS, BitsumProtocol, bitsums_for
from accounting.numerics.calibration import turning_point
from accounting.registry import AUTO
from accounting.request import MOST_USERS, PlanRequest

USELESS_ERROR = 1.0
"""A density estimate whose error reaches the largest kernel value says nothing."""

Progress = Callable[[str], None]
Choice = tuple[BitsumProtocol, Rung, tuple[str, ...]]
"""The protocol, the rung that proves it, and why they were chosen."""


def silent(_: str) -> None:
    """Progress that is not shown."""


def choose(request: PlanRequest, say: Progress = silent, *, certified: bool = True) -> Choice:
    """The protocol, the rung that proves it, and why they were chosen."""
    if request.bitsum != AUTO:
        return _calibrate(request, BITSUMS[request.bitsum], say, certified=certified)
    return _best_bitsum(request, say, certified=certified)


def _best_bitsum(request: PlanRequest, say: Progress, *, certified: bool) -> Choice:
    """The bitsum of least predicted privacy error; ties within 1 % go to the fewest messages."""
    variants = [(law, shape) for law in bitsums_for(request.delta).values() for shape in law.auto_noise_shapes]
    possible: list[tuple[float, BitsumProtocol, Rung, str]] = []
    notes: list[str] = []
    for law, shape in variants:
        variant = dataclasses.replace(request, bitsum=law.name, noise_shape=shape, allow_useless=True)
        label = law.name if shape == 1 else f"{law.name} with noise_shape {shape}"
        try:
            protocol, rung, _ = _calibrate(variant, law, say, certified=certified)
        except PrivkdeError as error:
            notes.append(f"{label}: not possible ({error})")
            continue
        error_parts = prediction(variant, protocol)
        possible.append((error_parts.privacy, protocol, rung, label))
        notes.append(
            f"{label}: predicted error {error_parts.total:.4g}, of which privacy {error_parts.privacy:.4g};"
            f" {protocol.messages_per_user():.4g} messages per instance"
        )
    if not possible:
        raise InfeasibleError("no bitsum protocol meets the request: " + "; ".join(notes))
    least = min(privacy for privacy, *_ in possible)
    close = [variant for variant in possible if variant[0] <= 1.01 * least]
    _, protocol, rung, label = min(close, key=lambda variant: variant[1].messages_per_user())
    _refuse_useless(request, protocol)
    why = f"bitsum auto: {label} has the least predicted error due to privacy"
    if len(close) > 1:
        why += ", within 1 %, and the fewest messages among those"
    if protocol.local_guarantee().is_empty:
        notes.append(f"{protocol.name} protects nothing if the shuffler colludes")
    return protocol, rung, (why, *notes)


def _calibrate(request: PlanRequest, law: type[BitsumProtocol], say: Progress, *, certified: bool) -> Choice:
    failures: dict[str, InfeasibleError] = {}
    for rungs in _rungs(request, law):
        designs: list[tuple[BitsumProtocol, Rung]] = []
        for rung in rungs:
            say(f"calibrating {law.name} with {rung.name}")
            target = Target(
                rung=rung,
                touched=rung.touched(request.facts()),
                epsilon=request.kde_epsilon,
                delta=float(request.delta),
                noise_shape=request.noise_shape,
                excess_error=request.excess_error,
            )
            try:
                designs.append((target.design(law, request.counted_users, certified=certified), rung))
            except InfeasibleError as error:
                failures[rung.name] = error
        if designs:
            protocol, rung = min(designs, key=lambda design: design[0].rmse())
            _refuse_useless(request, protocol)
            refused = (f"accountant {name}: not possible ({error})" for name, error in failures.items())
            return protocol, rung, (_why(request, rung, designs), *refused)
    raise next(iter(failures.values()))


def _why(request: PlanRequest, rung: Rung, designs: list[tuple[BitsumProtocol, Rung]]) -> str:
    """What the rung does and, if there was a choice, what the others would have needed."""
    text = f"accountant {rung.name}: {rung.reason(rung.touched(request.facts()))}"
    others = [f"{other.name} RMSE {protocol.rmse():.4g}" for protocol, other in designs if other is not rung]
    return f"{text}; least noise of those tried ({', '.join(others)})" if others else text


def _rungs(request: PlanRequest, law: type[BitsumProtocol]) -> list[list[Rung]]:
    """Rungs to try; of the first group in which any works, the one of least noise wins.

    `pld` composes the exact losses of bits that may flip completely, so no other rung that assumes this needs less
    noise; those serve where its grid is refused. `geometric` comes in where shifts are small.
    """
    if request.accountant != AUTO:
        return [[LADDER[request.accountant]]]
    touched = request.facts().touched
    groups: dict[int, list[Rung]] = {}
    for rung in LADDER.values():
        group = rung.group_for(touched)
        if group is not None and rung.covers(law):
            groups.setdefault(group, []).append(rung)
    return [groups[group] for group in sorted(groups)]


def prediction(request: PlanRequest, protocol: BitsumProtocol) -> PredictedError:
    """Error of a density: of all users, or of a class with an even share of them."""
    label = request.label_response()
    return predicted_error(
        request.facts(),
        request.users_per_density,
        protocol.rmse(request.users_per_protocol),
        mislabeled=0.0 if label is None else 1.0 - label.keep_probability,
    )


def noise_of_a_class_mean(request: PlanRequest, protocol: BitsumProtocol) -> float | None:
    """Predicted norm of the noise of a class mean, for an even share of the users; vectors have norm 1.

    None where no means are collected: without joint labels that are rotated as one vector, or for densities.
    """
    record, n = request.record, request.users
    if record is None or request.model == DENSITY:
        return None
    deviation = record.noise_deviation(request.facts().bound, n, protocol.variance(n))
    return record.noise_of_mean(deviation, request.users_per_density)


def smallest_class(request: PlanRequest, protocol: BitsumProtocol) -> int | None:
    """Separate labels: users (to 5 %) from which on a class that reports them has a plan of this protocol.

    None if an even share of the users is not enough.
    """
    even = request.users_per_protocol
    low = max(2, request.min_users or 0)
    _, smallest = turning_point(_is_useful(request, type(protocol)), low, even, whole=True, growth=4.0, precision=0.05)
    return None if smallest is None else round(smallest)


def _refuse_useless(request: PlanRequest, protocol: BitsumProtocol) -> None:
    """A plan whose privacy error alone reaches the largest kernel value is refused, naming the smallest n."""
    privacy = prediction(request, protocol).privacy
    if request.allow_useless or privacy < USELESS_ERROR:
        return
    record = request.record
    if record is None or request.model == DENSITY:
        what = f"the privacy error would be {privacy:.3g}, above the largest kernel value"
    else:
        what = f"along any direction the noise of a class would be about {privacy:.3g}, and vectors have norm 1"
    n: int | None = math.ceil(request.users_per_protocol * privacy / USELESS_ERROR) + 1
    if protocol.noise_depends_on_users:
        n = _smallest_useful_users(request, type(protocol))
    where = f"the smallest feasible n is about {n:,}" if n else f"no n up to {MOST_USERS:,} is enough"
    per = " per class" if request.n_protocols > 1 else ""
    raise InfeasibleError(
        f"with {request.users_per_protocol:,} users{per} no {protocol.name} parameters meet ε={request.kde_epsilon:g},"
        f" δ={request.delta:g} usefully: {what};"
        f" {where}{per}; or {protocol.remedy}."
    )


def _smallest_useful_users(request: PlanRequest, law: type[BitsumProtocol]) -> int | None:
    """Smallest n (to 1 %) at which the same request has a useful plan; None if there is none."""
    useful = _is_useful(dataclasses.replace(request, min_users=None, allow_useless=False), law)
    low, most = request.users_per_protocol, MOST_USERS // request.n_protocols
    _, smallest = turning_point(useful, low, most, whole=True, growth=4.0, precision=0.01)
    return None if smallest is None else round(smallest)


def _is_useful(request: PlanRequest, law: type[BitsumProtocol]) -> Callable[[float], bool]:
    """Whether the same request has a plan for so many users (of each class), useful unless it may be useless."""

    def useful(n: float) -> bool:
        try:
            other = dataclasses.replace(
                request, users=round(n) * request.n_protocols, bitsum=law.name, allow_useless=True
            )
            protocol, _, _ = _calibrate(other, law, silent, certified=False)
        except PrivkdeError:
            return False
        return request.allow_useless or prediction(other, protocol).privacy < USELESS_ERROR

    return useful
