"""Which protocol, with which parameters, proved by which rung."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

from accounting.composition import LADDER, Basic, Rung
from accounting.designs import Target, design
from accounting.error import PredictedError, predicted_error
from accounting.errors import InfeasibleError, PrivkdeError
from accounting.mechanisms import BITSUMS, BitsumProtocol, Pure, RandomizedResponse
from accounting.request import MOST_USERS, PlanRequest

USELESS_ERROR = 1.0
"""A density estimate whose error reaches the largest kernel value tells nothing."""

Progress = Callable[[str], None]


def silent(_: str) -> None:
    """Progress that nobody watches."""


def choose(
    request: PlanRequest, say: Progress = silent, *, certified: bool = True
) -> tuple[BitsumProtocol, Rung, tuple[str, ...]]:
    """The protocol, the rung that proves it, and why they were chosen."""
    if request.bitsum != "auto":
        return _calibrate(request, request.bitsum, say, certified=certified)
    return _best_bitsum(request, say, certified=certified)


def _best_bitsum(
    request: PlanRequest, say: Progress, *, certified: bool
) -> tuple[BitsumProtocol, Rung, tuple[str, ...]]:
    """The bitsum of least predicted privacy error; ties within 1 % go to the fewest messages."""
    names = [Pure.name] if request.delta == 0.0 else [name for name in BITSUMS if name != Pure.name]
    variants = [(name, shape) for name in names for shape in ((1, 4) if name == "3nb" else (1,))]
    found: list[tuple[float, BitsumProtocol, Rung, str]] = []
    notes: list[str] = []
    for name, shape in variants:
        asked = dataclasses.replace(request, bitsum=name, noise_shape=shape, allow_useless=True)
        label = name if shape == 1 else f"{name} with noise_shape {shape}"
        try:
            protocol, rung, _ = _calibrate(asked, name, say, certified=certified)
        except PrivkdeError as error:
            notes.append(f"{label}: not possible ({error})")
            continue
        error_parts = prediction(asked, protocol)
        found.append((error_parts.privacy, protocol, rung, label))
        notes.append(
            f"{label}: predicted error {error_parts.total:.4g}, of which privacy {error_parts.privacy:.4g};"
            f" {protocol.messages_per_user():.4g} messages per instance"
        )
    if not found:
        raise InfeasibleError("no bitsum protocol meets the request: " + "; ".join(notes))
    least = min(privacy for privacy, *_ in found)
    close = [one for one in found if one[0] <= 1.01 * least]
    _, protocol, rung, label = min(close, key=lambda one: one[1].messages_per_user())
    _refuse_useless(request, protocol)
    why = f"bitsum auto: {label} has the least predicted error due to privacy"
    if len(close) > 1:
        why += ", within 1 %, and the fewest messages among those"
    if protocol.local_guarantee().is_empty:
        notes.append(f"unlike rr, {protocol.name} protects nothing if the shuffler colludes")
    return protocol, rung, (why, *notes)


def _calibrate(
    request: PlanRequest, bitsum: str, say: Progress, *, certified: bool
) -> tuple[BitsumProtocol, Rung, tuple[str, ...]]:
    failures: dict[str, InfeasibleError] = {}
    for rungs in _rungs(request, bitsum):
        found: list[tuple[BitsumProtocol, Rung]] = []
        for rung in rungs:
            say(f"calibrating {bitsum} with {rung.name}")
            try:
                found.append((_designed(request, bitsum, rung, certified=certified), rung))
            except InfeasibleError as error:
                failures[rung.name] = error
        if found:
            protocol, rung = min(found, key=lambda one: one[0].rmse())
            _refuse_useless(request, protocol)
            refused = (f"accountant {name}: not possible ({error})" for name, error in failures.items())
            return protocol, rung, (_why(request, rung, found), *refused)
    raise next(iter(failures.values()))


def _why(request: PlanRequest, rung: Rung, found: list[tuple[BitsumProtocol, Rung]]) -> str:
    """What the rung does and, if there was a choice, what the others would have needed."""
    text = f"accountant {rung.name}: {rung.evidence.method}"
    if rung.name == "geometric":
        touched = request.facts().touched
        text += f"; here Δ² = {touched.shift_budget:.6g}, and {touched.total} if every bit could flip"
    others = [f"{other.name} RMSE {protocol.rmse():.4g}" for protocol, other in found if other is not rung]
    return f"{text}; least noise of those tried ({', '.join(others)})" if others else text


def _designed(request: PlanRequest, bitsum: str, rung: Rung, *, certified: bool) -> BitsumProtocol:
    facts = request.facts()
    touched = facts.paper_touched if rung.name == "paper" else facts.touched
    return design(
        bitsum,
        n_users=request.counted_users,
        target=Target(rung=rung, touched=touched, epsilon=float(request.epsilon), delta=float(request.delta)),
        noise_shape=request.noise_shape,
        excess_error=request.excess_error,
        certified=certified,
    )


def _rungs(request: PlanRequest, bitsum: str) -> list[list[Rung]]:
    """Rungs to try; of the first group in which any works, the one of least noise wins.

    `pld` composes the exact losses of bits that may flip completely, so no other rung that assumes this needs less
    noise; those serve where its grid is refused. `geometric` is tried where squared shifts add up to at most half the
    number of bits; where to less than an eighth, what its conversion loses cannot matter and `pld` is left out.
    """
    if request.accountant != "auto":
        return [[LADDER[request.accountant]]]
    if bitsum == Pure.name:
        return [[Basic()]]
    touched = request.facts().touched
    groups = [["pld"], ["advanced", "basic"]]
    if touched.shift_budget <= touched.total / 8.0:
        groups.insert(0, ["geometric"])
    elif touched.shift_budget <= touched.total / 2.0:
        groups[0].append("geometric")
    return [[LADDER[name] for name in group] for group in groups]


def prediction(request: PlanRequest, protocol: BitsumProtocol) -> PredictedError:
    """Error of a density: of all users, or of a class with an even share of them."""
    label = request.label_response()
    return predicted_error(
        request.facts(),
        request.users_per_density,
        protocol.rmse(request.users_per_protocol),
        mislabeled=0.0 if label is None else 1.0 - label.keep_probability,
    )


def _refuse_useless(request: PlanRequest, protocol: BitsumProtocol) -> None:
    """A plan whose privacy error alone reaches the largest kernel value is refused, naming the smallest n."""
    privacy = prediction(request, protocol).privacy
    if request.allow_useless or privacy < USELESS_ERROR:
        return
    if protocol.name == RandomizedResponse.name:
        n = _smallest_useful_users(request, protocol.name)
    else:  # the law of the noise does not depend on n, so the error falls as 1/n
        n = math.ceil(request.users_per_protocol * privacy / USELESS_ERROR) + 1
    where = f"the smallest feasible n is about {n:,}" if n else f"no n up to {MOST_USERS:,} is enough"
    per = " per class" if request.n_protocols > 1 else ""
    raise InfeasibleError(
        f"with {request.users_per_protocol:,} users{per} no {protocol.name} parameters meet ε={request.epsilon:g},"
        f" δ={request.delta:g} usefully: the privacy error would be {privacy:.3g}, above the largest kernel value;"
        f" {where}{per}; or raise epsilon{'' if protocol.name == '3nb' else ', or choose bitsum 3nb'}."
    )


def _smallest_useful_users(request: PlanRequest, bitsum: str) -> int | None:
    """Smallest n (to 1 %) at which the same request has a useful plan; None if there is none."""

    def useful(n: int) -> bool:
        users = n * request.n_protocols
        asked = dataclasses.replace(request, users=users, min_users=None, bitsum=bitsum, allow_useless=True)
        try:
            protocol, _, _ = _calibrate(asked, bitsum, silent, certified=False)
        except PrivkdeError:
            return False
        return prediction(asked, protocol).privacy < USELESS_ERROR

    low = request.users_per_protocol
    high = low
    most = MOST_USERS // request.n_protocols
    while not useful(high):
        if high >= most:
            return None
        low, high = high, min(most, 4 * high)
    while high > low + max(1, low // 100):
        middle = max(low + 1, math.isqrt(low * high))
        low, high = (low, middle) if useful(middle) else (middle, high)
    return high
