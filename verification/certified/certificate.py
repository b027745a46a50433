"""A plan's certificate: what its parameters cost at most and at least, proved in ball arithmetic, as a document.

`certify(plan)` makes one; `recheck(plan, certificate)` proves every number of one again, at the witness that it names.
"""

from __future__ import annotations

import datetime
import itertools
import json
import math
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from typing import Any

import flint
from flint import ctx

import privkde
from accounting import Contract, InvalidInputError, Plan, PrivkdeError
from accounting.composition import LADDER
from accounting.errors import require_integer, require_quantity, require_text
from accounting.guarantee import Adjacency, Guarantee, View
from accounting.plan import LAST_DIGITS, contract_of, differences, instance_point_of
from verification.certified.balls import NotCertifiedError, above, below, exact
from verification.certified.checker import Lower, Upper, bits_for, tail_for, upper
from verification.certified.neighbors import Moves, Neighbors, contracts, neighbors
from verification.certified.witness import Witness
from verification.twins import mechanism_twin

SCHEMA = "privkde.certificate/1"
DIGITS = 8
"""Decimal digits of the numbers in a certificate: rounded so that they are proved with room to spare."""
SHARES = (0.5, 0.75, 1.0, 1.25)
"""Where the curves have points: multiples of the claimed ε."""
MOST_INSTANCES = 2**63 - 1
LONGEST_TEXT = 100
"""Characters of a version or a time."""
LARGEST_EPSILON = 700.0
"""Larger ones are not certified: e^ε is not a double."""
NOT_COVERED = "promises about local views and single bits are not covered"

Curve = tuple[tuple[float, float], ...]
"""Points (ε, δ)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """Bounds on ε at `delta`, proved for the parameters of one plan.

    *What the accountant covers* (`neighbors.covered`) costs at most `upper_epsilon` and at least `covered_epsilon`.
    *The promise to people* is a supremum over records: at most `upper_epsilon`, and at least `lower_epsilon`, which two
    records cost. With separate labels, bounds and curves from above speak of the features: a whole record costs at most
    `label_epsilon` more.
    """

    plan_sha256: str
    claimed_epsilon: float
    """ε that the plan claims for the features or, with joint labels, for the whole record."""
    label_epsilon: float
    """ε of all reports of the label, which adds up; 0 without separate labels."""
    total_epsilon: float
    """ε that the plan claims for a whole record."""
    delta: float
    upper_epsilon: float | None
    """None: nothing is proved."""
    covered_epsilon: float
    lower_epsilon: float
    upper_curve: Curve
    """Points (ε, δ) that hold for all records, or with separate labels for all features."""
    lower_curve: Curve
    """Points (ε, δ) that two records attain."""
    neighbors: Mapping[str, Any]
    """What replacing one record moves, counted again from the kernel."""
    witness: Witness | None
    """Where the theorems were evaluated; None for promises without δ, which need no choice."""
    notes: tuple[str, ...]
    versions: Mapping[str, str]
    made: str
    """When, in UTC."""

    @property
    def proved_epsilon(self) -> float | None:
        """A bound on ε of a whole record, labels included, rounded up; None if nothing is proved."""
        if self.upper_epsilon is None:
            return None
        total = Fraction(self.upper_epsilon) + Fraction(self.label_epsilon)
        nearest = float(total)
        return nearest if Fraction(nearest) >= total else math.nextafter(nearest, math.inf)

    @property
    def proves(self) -> bool:
        """Whether the plan's promise is proved."""
        proved = self.proved_epsilon
        return proved is not None and self.upper_epsilon is not None and (
            self.upper_epsilon <= self.claimed_epsilon and proved <= self.total_epsilon
        )  # fmt: skip

    @property
    def refutes(self) -> bool:
        """Whether what the plan claims for the bits that its accountant covers is false."""
        return max(self.covered_epsilon, self.lower_epsilon) > self.claimed_epsilon

    @property
    def headline(self) -> str:
        """The result in one sentence."""
        if self.refutes:
            return f"refuted: the bits that the accountant covers cost at least ε = {_all(self.covered_epsilon)}"
        if self.proved_epsilon is None:
            *_, reason = ("no upper bound was found", *(note for note in self.notes if note != NOT_COVERED))
            return f"not proved: {reason}"
        known = f"ε ≤ {_all(_rounded_up(self.proved_epsilon))} at δ = {_all(self.delta)}, in ball arithmetic"
        claimed = "" if self.proves else f", and the plan claims {_all(self.total_epsilon)}"
        return f"{'' if self.proves else 'not '}proved: {known}{claimed}"

    def moves(self, which: str) -> str:
        """The bits that are `covered` or `attained`, in words."""
        return str(Moves(**self.neighbors[which]))

    def to_json(self) -> dict[str, Any]:
        """The `privkde.certificate/1` document."""
        return {
            "schema": SCHEMA,
            "plan_sha256": self.plan_sha256,
            "claim": {
                "epsilon": self.total_epsilon,
                "features_epsilon": self.claimed_epsilon,
                "label_epsilon": self.label_epsilon,
                "delta": self.delta,
            },
            "proved": {
                "holds": self.proves,
                "epsilon": self.proved_epsilon,
                "upper_epsilon": self.upper_epsilon,
                "covered_epsilon": self.covered_epsilon,
                "lower_epsilon": self.lower_epsilon,
                "upper_curve": [list(point) for point in self.upper_curve],
                "lower_curve": [list(point) for point in self.lower_curve],
            },
            "neighbors": dict(self.neighbors),
            "witness": None if self.witness is None else self.witness.to_json(),
            "notes": list(self.notes),
            "versions": dict(self.versions),
            "made": self.made,
        }

    @staticmethod
    def from_json(data: Any) -> Certificate:
        """Inverse of `to_json`; raises `InvalidInputError` on anything else."""
        if not isinstance(data, Mapping) or data.get("schema") != SCHEMA:
            schema = data.get("schema") if isinstance(data, Mapping) else type(data).__name__
            raise InvalidInputError(f"schema={schema!r} is not {SCHEMA!r}; load a file written by `privkde plan`.")
        try:
            claim, proved = data["claim"], data["proved"]
            found = Certificate(
                plan_sha256=require_text("plan_sha256", data["plan_sha256"]),
                claimed_epsilon=require_quantity("claim.features_epsilon", claim["features_epsilon"]),
                label_epsilon=require_quantity("claim.label_epsilon", claim["label_epsilon"]),
                total_epsilon=require_quantity("claim.epsilon", claim["epsilon"]),
                delta=require_quantity("claim.delta", claim["delta"]),
                upper_epsilon=_quantity_or_none("proved.upper_epsilon", proved["upper_epsilon"]),
                covered_epsilon=require_quantity("proved.covered_epsilon", proved["covered_epsilon"]),
                lower_epsilon=require_quantity("proved.lower_epsilon", proved["lower_epsilon"]),
                upper_curve=_curve("proved.upper_curve", proved["upper_curve"]),
                lower_curve=_curve("proved.lower_curve", proved["lower_curve"]),
                neighbors=_moved(data["neighbors"]),
                witness=None if data["witness"] is None else Witness.from_json(data["witness"]),
                notes=tuple(require_text("note", note) for note in data["notes"]),
                versions={name: _short_text(f"versions.{name}", data["versions"][name]) for name in _versions()},
                made=_short_text("made", data["made"]),
            )
            agrees = found.to_json() == data
        except PrivkdeError:
            raise
        except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError) as error:
            message = f"certificate is incomplete or malformed near {type(error).__name__}; make it again."
            raise InvalidInputError(message) from error
        if not agrees:
            raise InvalidInputError("certificate holds more or other than what it says; make it again.")
        return found

    def dumps(self) -> str:
        """The document as text."""
        return json.dumps(self.to_json(), indent=2, allow_nan=False, ensure_ascii=False) + "\n"


def _quantity_or_none(name: str, value: Any) -> float | None:
    return None if value is None else float(require_quantity(name, value))


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise InvalidInputError(f"{name}={value!r} must be true or false; make it again.")
    return value


def _short_text(name: str, value: Any) -> str:
    if len(text := require_text(name, value)) > LONGEST_TEXT:
        raise InvalidInputError(f"{name} has {len(text):,} characters, more than {LONGEST_TEXT}; make it again.")
    return text


def _versions() -> dict[str, str]:
    """Of what makes a certificate."""
    return {
        "privkde": privkde.__version__,
        "python-flint": flint.__version__,
        "FLINT": flint.__FLINT_VERSION__,
        "Python": platform.python_version(),
    }


def _curve(name: str, points: Any) -> Curve:
    if len(points) > len(SHARES):
        raise InvalidInputError(
            f"{name} has {len(points)} points, more than {len(SHARES)}; make the certificate again."
        )
    return tuple((require_quantity(name, epsilon), require_quantity(name, delta)) for epsilon, delta in points)


def _moved(data: Mapping[str, Any]) -> dict[str, Any]:
    """What `_described` wrote; other members are found when the whole document is compared."""
    moves = {
        which: {
            "bits": require_integer(f"neighbors.{which}.bits", data[which]["bits"], low=0, high=MOST_INSTANCES),
            "half": _flag(f"neighbors.{which}.half", data[which]["half"]),
            "equal": _flag(f"neighbors.{which}.equal", data[which]["equal"]),
        }
        for which in ("covered", "attained")
    }
    return {
        "instances": require_integer("neighbors.instances", data["instances"], low=1, high=MOST_INSTANCES),
        "squared_shift": _quantity_or_none("neighbors.squared_shift", data["squared_shift"]),
        "largest_shift": require_quantity("neighbors.largest_shift", data["largest_shift"]),
        "unit_ball": _flag("neighbors.unit_ball", data["unit_ball"]),
        **moves,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Claim:
    """What a plan promises against everybody who sees all messages, and so against who sees less."""

    features: float
    label: float
    total: float
    delta: float

    @staticmethod
    def of(plan: Plan) -> _Claim:
        """What its request asks for; no promise of the document may say more."""
        request = plan.request
        spends, labels = mechanism_twin(plan).spends_delta, [request.label_epsilon or 0.0] * request.releases
        if spends and not request.delta:
            raise InvalidInputError(
                f"bitsum={plan.bitsum!r} keeps no promise with delta=0; plan 'pure', or a larger delta."
            )
        label, features = sum(map(Fraction, labels)), request.kde_epsilon
        return _Claim(
            features=features,
            label=float(label) if Fraction(float(label)) >= label else math.nextafter(float(label), math.inf),
            total=min(request.epsilon, math.fsum([features, math.fsum(labels)])) if label else features,
            delta=float(request.delta) if spends else 0.0,
        )

    def contradictions(self, plan: Plan) -> Iterator[str]:
        """What of a plan's document is not what was planned: nothing is proved of such a document.

        Its contract must be the one that follows from request and parameters, and no promise stronger than the request
        asks for. The label's response is taken at the ε that the request names.
        """
        request = plan.request
        yield from _misstated(plan)
        yield from mechanism_twin(plan).unfounded(plan.parameters)
        labels = math.fsum([request.label_epsilon or 0.0] * request.releases)
        asked = {Adjacency.RECORD: (self.total, self.delta), Adjacency.FEATURES: (self.features, self.delta)}
        asked[Adjacency.LABEL] = (labels, 0.0) if labels else asked[Adjacency.RECORD]
        for promise in itertools.chain(*_told(plan.guarantees, plan.contract)):
            if promise.is_empty or _is_narrow(promise):
                continue
            epsilon, delta = asked[promise.adjacency]
            if promise.epsilon < epsilon or promise.delta < delta:
                yield (
                    f"the plan promises ε = {promise.epsilon:.8g} at δ = {promise.delta:g} for {promise.adjacency}, and"
                    f" its request asks for {epsilon:.8g} at {delta:g}"
                )


def _misstated(plan: Plan) -> Iterator[str]:
    """Where the plan says something else than what follows from its request, parameters and rung; but for promises."""
    asked = plan.request.bitsum
    try:
        LADDER[plan.accountant].require_covered(type(plan.protocol()))
        honest = _honest(plan)
    except PrivkdeError as error:
        yield str(error)
        return
    said = {"bitsum": plan.bitsum, "instances_per_user": plan.instances_per_user, "contract": _words(plan.contract)}
    touched, bitsum = plan.request.facts().touched.total, plan.bitsum if asked == "auto" else asked
    follows = {"bitsum": bitsum, "instances_per_user": touched, "contract": _words(honest)}
    yield from differences(said, follows, 0.0)


def _honest(plan: Plan, instance_point: tuple[float, float] = (0.0, 1.0)) -> Contract:
    """The contract that accounting writes for this request, these parameters and this rung."""
    return contract_of(plan.request, plan.protocol(), LADDER[plan.accountant], instance_point=instance_point)


def _overstated(plan: Plan) -> Iterator[str]:
    """Promises about local views and single bits that are stronger than what accounting says of these parameters.

    They are not proved here, but nothing is proved of a document that makes up its own.
    """
    honest = _honest(plan, instance_point_of(plan.request, plan.protocol(), LADDER[plan.accountant]))
    for said, made in zip(_told(plan.guarantees, plan.contract), _told(honest.guarantees, honest), strict=True):
        for promise in filter(_is_narrow, said):
            weaker = replace(promise, epsilon=promise.epsilon * (1.0 + LAST_DIGITS))
            if not any(_alike(one, promise) and one.implies(weaker) for one in made):
                yield f"the plan promises {promise}, and its parameters do not"


def _alike(one: Guarantee, other: Guarantee) -> bool:
    return (one.adjacency, one.view) == (other.adjacency, other.view)


def _is_narrow(promise: Guarantee) -> bool:
    """Whether a promise speaks of a local view or a single bit; empty ones say nothing."""
    return not promise.is_empty and (promise.view is View.LOCAL or promise.adjacency is Adjacency.BIT)


def _reach(plan: Plan) -> Neighbors:
    """What replacing a record moves, by the R, γ and Δ² that the parties use, whatever the document's contract says.

    Where accounting refuses the parameters, of which nothing is proved, those of the document are all there is.
    """
    with suppress(PrivkdeError):
        plan = replace(plan, contract=_honest(plan))
    return neighbors(plan)


def _words(contract: Contract) -> list[dict[str, Any]]:
    """A contract and its parts, without what they promise."""
    return [replace(part, guarantees=(), parts=()).to_json() for part in contracts(contract)]


def _told(promises: tuple[Guarantee, ...], contract: Contract) -> list[tuple[Guarantee, ...]]:
    """A plan's promises, and those of each part of its contract."""
    return [promises, *(part.guarantees for part in contracts(contract))]


def _notes(plan: Plan, found: Iterable[str], wrong: Iterable[str]) -> tuple[str, ...]:
    narrow = any(map(_is_narrow, itertools.chain(*_told(plan.guarantees, plan.contract))))
    return (*([NOT_COVERED] if narrow else []), *found, *wrong)


@dataclass(frozen=True, slots=True)
class _Checked:
    """The bounds of a plan as functions: what a certificate records points of."""

    claim: _Claim
    reach: Neighbors
    upper: Upper | None
    """None: nothing is proved, for the reason in `notes`."""
    covered: Lower
    attained: Lower
    notes: tuple[str, ...]

    @staticmethod
    def of(plan: Plan, claim: _Claim, reach: Neighbors, witness: Witness | None) -> _Checked:
        """For a plan that spends δ."""
        notes: tuple[str, ...] = ()
        found: Upper | None = None
        try:
            found = upper(plan, reach, claim.delta, witness)
        except NotCertifiedError as error:
            notes = (str(error),)
        twin, covered = mechanism_twin(plan), Lower(())
        tail = witness.tail if witness is not None else tail_for(claim.delta, reach.instances)
        try:
            covered = Lower.of(twin, tail, reach.covered)
            attained = covered if reach.attained == reach.covered else Lower.of(twin, tail, reach.attained)
        except NotCertifiedError as error:
            return _Checked(claim, reach, found, covered, Lower(()), (str(error),))
        return _Checked(claim, reach, found, covered, attained, notes)


def certify(plan: Plan) -> Certificate:
    """What the plan's parameters cost, proved. Deterministic; nothing is sampled."""
    claim = _Claim.of(plan)
    with ctx.workprec(bits_for(claim.delta, claim.features)):
        reach = _reach(plan)
        if claim.delta == 0.0:
            return _without_delta(plan, claim, reach)
        checked = _Checked.of(plan, claim, reach, None)
        delta, points = claim.delta, [share * claim.features for share in SHARES]
        top = checked.upper.epsilon(delta, claim.features) if checked.upper is not None else math.inf
        proved = top <= LARGEST_EPSILON
        upper_curve = (
            tuple((e, min(1.0, _rounded_up(above(checked.upper.delta(e))))) for e in points)
            if checked.upper is not None and proved
            else ()
        )
        return _certificate(
            plan, claim, reach,
            upper_epsilon=_rounded_up(top) if proved else None,
            covered_epsilon=_rounded_down(checked.covered.epsilon(delta)),
            lower_epsilon=_rounded_down(checked.attained.epsilon(delta)),
            upper_curve=upper_curve,
            lower_curve=tuple((e, _rounded_down(max(0.0, below(checked.attained.delta(e))))) for e in points),
            witness=None if checked.upper is None else checked.upper.witness,
            notes=checked.notes,
        )  # fmt: skip


def _without_delta(plan: Plan, claim: _Claim, reach: Neighbors) -> Certificate:
    """Losses add up. The bounds are exact for who knows the others' silences, so nothing follows about people."""
    bounds = mechanism_twin(plan).loss_bounds()
    top = None if bounds.upper is None else above(reach.added(exact(bounds.upper)))
    flips = bounds.upper is not None and reach.squared_shift is None
    if flips and Fraction(bounds.upper or 0.0) * reach.instances <= Fraction(claim.features):
        top = claim.features  # ε/k of each of k instances, exactly
    return _certificate(
        plan, claim, reach,
        upper_epsilon=top,
        covered_epsilon=max(0.0, _rounded_down(below(reach.added(exact(bounds.lower))))),
        lower_epsilon=0.0,
        upper_curve=() if top is None else ((top, 0.0),),
        lower_curve=((0.0, 0.0),),
        witness=None,
        notes=(
            *bounds.notes,
            "covered: for an adversary who knows which of the others were silent, as the proof assumes; no lower bound"
            " on what others learn of people is certified",
        ),
    )  # fmt: skip


def _certificate(plan: Plan, claim: _Claim, reach: Neighbors, *, notes: tuple[str, ...], **numbers: Any) -> Certificate:
    wrong = list(claim.contradictions(plan))
    if wrong:
        numbers |= {"upper_epsilon": None, "upper_curve": ()}
    made = Certificate(
        plan_sha256=plan.sha256(),
        claimed_epsilon=claim.features,
        label_epsilon=claim.label,
        total_epsilon=claim.total,
        delta=claim.delta,
        neighbors=_described(reach),
        notes=_notes(plan, notes, wrong),
        versions=_versions(),
        made=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        **numbers,
    )
    if made.proves and (more := list(_overstated(plan))):
        return replace(made, upper_epsilon=None, upper_curve=(), notes=(*made.notes, *more))
    return made


def _described(reach: Neighbors) -> dict[str, Any]:
    """As plain JSON values; Δ² is rounded up."""
    moves: Callable[[Moves], dict[str, Any]] = asdict
    return {
        "instances": reach.instances,
        "squared_shift": None if reach.squared_shift is None else above(reach.squared_shift),
        "largest_shift": reach.largest_shift,
        "unit_ball": reach.unit_ball,
        "covered": moves(reach.covered),
        "attained": moves(reach.attained),
    }


def recheck(plan: Plan, certificate: Certificate) -> list[str]:
    """What of a certificate is not proved by recomputing it for this plan, sentence by sentence; nothing if all is."""
    if certificate.plan_sha256 != plan.sha256():
        return ["the certificate is for another plan, or the plan was altered"]
    claim = _Claim.of(plan)
    with ctx.workprec(bits_for(claim.delta, claim.features)):
        return list(_unproved(plan, claim, certificate))


def _unproved(plan: Plan, claim: _Claim, certificate: Certificate) -> Iterator[str]:
    said = certificate.claimed_epsilon, certificate.label_epsilon, certificate.total_epsilon, certificate.delta
    if said != (claim.features, claim.label, claim.total, claim.delta):
        yield "the certificate's claim is not the plan's"
        return
    yield from (wrong := list(claim.contradictions(plan)))
    if certificate.witness is not None and certificate.witness.bits != ctx.prec:
        yield f"the witness has {certificate.witness.bits} bits, and the checker works with {ctx.prec} for this claim"
        return
    reach = _reach(plan)
    if dict(certificate.neighbors) != _described(reach):
        yield "what one record can move is not what the certificate says"
        return
    if claim.delta == 0.0:
        again = _without_delta(plan, claim, reach)
        notes = again.notes
        if replace(again, made=certificate.made, versions=certificate.versions, notes=certificate.notes) != certificate:
            yield "the losses of one instance are not those of the certificate"
    else:
        checked = _Checked.of(plan, claim, reach, certificate.witness)
        notes = _notes(plan, checked.notes, wrong)
        yield from (false := list(_disproved(checked, certificate)))
        if certificate.proves and not wrong and not false:
            yield from _overstated(plan)
    if certificate.proves and notes != certificate.notes:
        yield "the notes are not what the checker says"
    if not certificate.proves:
        yield certificate.headline


def _disproved(checked: _Checked, certificate: Certificate) -> Iterator[str]:
    """Numbers of a certificate that its witness does not prove."""
    delta, top = exact(certificate.delta), certificate.upper_epsilon
    if top is not None:
        if checked.upper is None or not checked.upper.delta(top) <= delta:
            yield f"ε ≤ {top:.8g} does not follow at the certificate's witness"
        for epsilon, limit in certificate.upper_curve:
            follows = checked.upper is not None and checked.upper.delta(epsilon) <= exact(limit)
            if limit < 1.0 and not follows:
                yield f"δ({epsilon:.8g}) ≤ {limit:.8g} does not follow at the certificate's witness"
    for epsilon, bound in (
        (certificate.covered_epsilon, checked.covered),
        (certificate.lower_epsilon, checked.attained),
    ):
        if epsilon > 0.0 and not bound.delta(epsilon) >= delta:
            yield f"ε ≥ {epsilon:.8g} does not follow"
    for epsilon, limit in certificate.lower_curve:
        if limit > 0.0 and not checked.attained.delta(epsilon) >= exact(limit):
            yield f"δ({epsilon:.8g}) ≥ {limit:.8g} does not follow"


def _all(value: float) -> str:
    """A number with all its digits."""
    return repr(value).removesuffix(".0")


def _rounded_up(value: float) -> float:
    """To so many decimal digits, upwards."""
    nearest = float(f"{value:.{DIGITS}g}")
    return nearest if nearest >= value else float(f"{value * (1.0 + 10.0 ** (1 - DIGITS)):.{DIGITS}g}")


def _rounded_down(value: float) -> float:
    """To so many decimal digits, downwards."""
    nearest = float(f"{value:.{DIGITS}g}")
    return nearest if nearest <= value else float(f"{value * (1.0 - 10.0 ** (1 - DIGITS)):.{DIGITS}g}")
