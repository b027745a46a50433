"""Which protocol, with which parameters, proved by which rung."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass

from accounting.accuracy.density_error import PredictedError, predicted_error
from accounting.classifier_model import DENSITY
from accounting.composition import LADDER, Rung, Target
from accounting.errors import InfeasibleError, PrivkdeError
from accounting.mechanisms import BITSUMS, BitsumProtocol, bitsums_for
from accounting.numerics.calibration import turning_point
from accounting.registry import AUTO
from accounting.request import MOST_USERS, PlanRequest

EQUAL = 1.01
"""Predicted errors within this factor of the least are equal."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Contender:
    """A protocol that `auto` may take, calibrated without the supremum over the others' data."""

    request: PlanRequest
    protocol: BitsumProtocol
    error: PredictedError

    @staticmethod
    def of(request: PlanRequest, law: type[BitsumProtocol], say: Progress) -> _Contender:
        """Calibrate one law for a request."""
        shape = request.noise_shape if law.takes_noise_shape else None
        variant = dataclasses.replace(request, bitsum=law.name, noise_shape=shape, allow_useless=True)
        protocol, _, _ = _calibrate(variant, law, say, certified=False)
        return _Contender(request=variant, protocol=protocol, error=prediction(variant, protocol))

    @property
    def without_noise(self) -> float:
        """The error that is left whatever protocol is taken."""
        return dataclasses.replace(self.error, privacy=0.0).total

    @property
    def of_this_shape(self) -> PlanRequest:
        """The request with the shape that was found, so that others are not tried again."""
        shape = self.protocol.parameters().get("noise_shape")
        return self.request if shape is None else dataclasses.replace(self.request, noise_shape=int(shape))

    @property
    def order_among_equals(self) -> tuple[bool, float]:
        """One message each before anything else, since others need at least half a message; then fewest messages.

        It makes packets of one length, and who lies changes a sum by one message.
        """
        return not self.protocol.one_message_each, self.protocol.messages_per_user()

    def summary(self) -> str:
        """What it costs, and what can be done to it."""
        protocol, most = self.protocol, self.protocol.most_messages(self.request.facts().n_instances)
        name, shape = protocol.name, protocol.parameters().get("noise_shape", 1)
        label = name if shape == 1 else f"{name} with noise_shape {shape}"
        liar = f"packets differ in length, and one may hold {most:,} messages about one sum"
        if protocol.one_message_each:
            liar = "packets of one length, in which a user who lies has one message about a sum"
        return (
            f"{label}: predicted error {self.error.total:.4g}, of which privacy {self.error.privacy:.4g};"
            f" {protocol.messages_per_user():.4g} messages per instance; {liar}"
        )


def _best_bitsum(request: PlanRequest, say: Progress, *, certified: bool) -> Choice:
    """The bitsum of least predicted error, all its parts counted; of those within 1 % see `order_among_equals`."""
    laws = sorted(bitsums_for(request.delta).values(), key=lambda law: not law.one_message_each)
    contenders: list[_Contender] = []
    notes: list[str] = []
    for tried, law in enumerate(laws, start=1):
        try:
            contender = _Contender.of(request, law, say)
        except PrivkdeError as error:
            notes.append(f"{law.name}: not possible ({error})")
            continue
        contenders.append(contender)
        notes.append(contender.summary())
        left = [other.name for other in laws[tried:]]
        if left and law.one_message_each and contender.error.total <= EQUAL * contender.without_noise:
            notes.append(
                f"{', '.join(left)}: not calibrated; without any noise the error would be"
                f" {contender.without_noise:.4g}, and that is less than 1 % better"
            )
            break
    if not contenders:
        raise InfeasibleError("no bitsum protocol meets the request: " + "; ".join(notes))
    least = min(contender.error.total for contender in contenders)
    close = [contender for contender in contenders if contender.error.total <= EQUAL * least]
    best = min(close, key=lambda contender: contender.order_among_equals)
    law = type(best.protocol)
    protocol, rung, _ = _calibrate(best.of_this_shape, law, say, certified=certified)
    _refuse_useless(request, protocol)
    why = f"bitsum auto: {law.name} has the least predicted error"
    if len(close) > 1 or len(contenders) < len(laws):
        merit = "one message in each sum, whatever a user does" if law.one_message_each else "the fewest messages"
        why += f", within 1 %, and among those {merit}"
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
