"""One thing that is published about people: its promise, and what else is known of its cost.

Source: docs/proofs/releases.md.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from accounting.errors import (
    InvalidInputError,
    PrivkdeError,
    UnlikeGuaranteesError,
    require_integer,
    require_real,
)
from accounting.guarantee import Adjacency, Guarantee, View, compose_basic
from accounting.mechanisms import LabelResponse
from accounting.plan import Plan
from accounting.releases.cut_curve import CutCurve
from accounting.releases.exchange import Sensitivity, event_costs
from accounting.releases.plan_curves import cut_curves, implied_curve, label_curve, promised_curve
from accounting.releases.profile_points import LARGEST_EPSILON, Profile

if TYPE_CHECKING:
    from accounting.releases.exchange import DpEvent

SCHEMA = "privkde.release/1"
MOST_TIMES = 100_000
ROUNDING = 1.0 + 1e-6
"""By how much a profile may exceed its own guarantee: points are rounded up on the way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of a release with randomness of its own: its profile and, where they are known, cut curves."""

    profile: Profile
    curves: tuple[CutCurve, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {"profile": self.profile.to_json(), "curves": [curve.to_json() for curve in self.curves]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """One thing that was or will be published about the same people, or a schedule: the same thing `times` times.

    `guarantee` is the promise of one time. `parts` have independent randomness (features and label); they compose.
    `collections` is how often users take part in all: a plan may itself be for several releases.
    """

    name: str
    guarantee: Guarantee
    parts: tuple[Part, ...]
    times: int = 1
    collections: int = 0
    """0: as many as `times`."""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not 1 <= len(self.name) <= 200 or not self.name.isprintable():
            raise InvalidInputError(f"name={self.name!r} of a release must be 1 to 200 printable characters.")
        if not self.parts:
            raise InvalidInputError(f"release {self.name!r} has no parts; give at least one.")
        for part in self.parts:
            known = part.profile.delta(min(self.guarantee.epsilon, LARGEST_EPSILON))
            if known > self.guarantee.delta * ROUNDING and known > 0.0:
                raise InvalidInputError(
                    f"release {self.name!r} promises ({self.guarantee.epsilon:g}, {self.guarantee.delta:g}), and its"
                    f" profile has δ={known:.3g} at that ε; state a guarantee that the profile keeps."
                )
        require_integer("times", self.times, low=1, high=MOST_TIMES)
        require_integer("collections", self.collections, low=0, high=MOST_TIMES**2)
        object.__setattr__(self, "collections", self.collections or self.times)
        if self.collections % self.times:
            raise InvalidInputError(
                f"collections={self.collections} of a release that is made {self.times} times; give a multiple of it."
            )

    @staticmethod
    def of_guarantee(name: str, guarantee: Guarantee, *, times: int = 1) -> Release:
        """A release of which only (ε, δ) is known."""
        require_real("epsilon", guarantee.epsilon, low=0.0, high=LARGEST_EPSILON, low_open=False)
        profile = Profile.below(implied_curve(guarantee.epsilon, guarantee.delta))
        return Release(name=name, guarantee=guarantee, parts=(Part(profile=profile),), times=times)

    @staticmethod
    def of_plan(name: str, plan: Plan, *, view: View = View.COMMUNICATION, times: int = 1) -> Release:
        """A collection by this plan, for replacing a user's whole record; the plan is verified first.

        Without classes the record is x itself. With separate labels each class runs a protocol for its own size, which
        is known only when labels are reported: the sizes' profiles share no more than (ε, δ). So only what (ε, δ) and
        the label's response imply is charged. Source: docs/proofs/releases.md, section 3.
        """
        plan.verify()
        if view is View.LOCAL:
            raise UnlikeGuaranteesError("a plan's profile is that of all shuffled messages; charge another view.")
        (whole,) = [g for g in plan.guarantees if g.view is view and g.adjacency is _whole_record(plan)]
        return Release(
            name=name,
            guarantee=whole.restated(adjacency=Adjacency.RECORD),
            parts=plan_parts(plan),
            times=times,
            collections=times * plan.request.releases,
        )

    @staticmethod
    def of_separate_labels(name: str, features: Guarantee, label: LabelResponse, *, releases: int = 1) -> Release:
        """A collection with separate labels, known before anybody reports one; `features` is each class's promise.

        Costs what `of_plan` charges for the forecast. Source: docs/proofs/composition.md, Proposition 5.
        """
        reported = Guarantee(
            epsilon=releases * label.label_epsilon, delta=0.0, adjacency=Adjacency.RECORD, view=features.view
        )
        return Release(
            name=name,
            guarantee=compose_basic([features.restated(adjacency=Adjacency.RECORD), reported]),
            parts=_labeled_parts(features.epsilon, features.delta, label, releases),
            collections=releases,
        )

    @staticmethod
    def of_event(
        name: str,
        event: DpEvent,
        *,
        sensitivity: Sensitivity | str,
        delta: float,
        view: View = View.MODEL,
        times: int = 1,
    ) -> Release:
        """A mechanism of another tool, stated as an event of dp-accounting, for replacing one record.

        `sensitivity` says what the event's noise is measured against: "add-or-remove-one" or "replace-one". It has no
        default, because dp-accounting's accountants do not agree on what a multiplier means for replacing a record.
        `delta` chooses the point of the profile that the release's guarantee states; costs come from the whole
        profile. A trusted analyzer's result is protected in the model view only.

        Gaussian, Laplace and discrete Laplace events, and randomized response, are exact. Poisson-sampled Gaussian
        events are exact for contributions of norm 1 at most. Compositions of them are counted and composed here. Other
        events are refused with `InvalidInputError`. Source: docs/proofs/releases.md, section 6.
        """
        profile, curves = event_costs(event, sensitivity)
        epsilon = profile.epsilon(require_real("delta", delta, low=0.0, high=1.0, low_open=False))
        if not math.isfinite(epsilon):
            raise InvalidInputError(f"{event} promises nothing at delta={delta:g}; choose a larger delta.")
        guarantee = Guarantee(epsilon=epsilon, delta=delta, adjacency=Adjacency.RECORD, view=view)
        return Release(name=name, guarantee=guarantee, parts=(Part(profile=profile, curves=curves),), times=times)

    def repeated(self, times: int) -> Release:
        """A schedule: this release so many times."""
        require_integer("times", times, low=1, high=MOST_TIMES)
        return dataclasses.replace(self, times=times * self.times, collections=times * self.collections)

    def dumps(self) -> str:
        """The document as text, for `privkde budget charge --release`."""
        return json.dumps(self.to_json(), allow_nan=False, ensure_ascii=False) + "\n"

    def to_json(self) -> dict[str, Any]:
        """The `privkde.release/1` document."""
        return {
            "schema": SCHEMA,
            "name": self.name,
            "guarantee": self.guarantee.to_json(),
            "parts": [part.to_json() for part in self.parts],
            "times": self.times,
            "collections": self.collections,
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Release:
        """Inverse of `to_json`; also reads documents of version 0.2, which list `profiles`. Refuses anything else."""
        schema = data.get("schema", SCHEMA) if isinstance(data, Mapping) else type(data).__name__
        if schema != SCHEMA:
            raise InvalidInputError(f"schema={schema!r} is not {SCHEMA!r}; write the document with `Release.dumps`.")
        try:
            guarantee = Guarantee.from_json(data["guarantee"])
            return Release(
                name=data["name"],
                guarantee=guarantee,
                parts=tuple(map(_part, data["parts"])) if "parts" in data else _parts_of_0_2(data, guarantee),
                times=data.get("times", 1),
                collections=data.get("collections", 0),
            )
        except PrivkdeError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InvalidInputError(f"release document is malformed near {error}; write it again.") from error


def _part(data: Mapping[str, Any]) -> Part:
    return Part(
        profile=Profile.from_json(data["profile"]),
        curves=tuple(
            CutCurve(cut=curve["cut"], points=tuple((float(order), float(rho)) for order, rho in curve["points"]))
            for curve in data.get("curves", ())
        ),
    )


def _parts_of_0_2(data: Mapping[str, Any], guarantee: Guarantee) -> tuple[Part, ...]:
    """Documents of 0.2 list profiles. If there are two, of features and label, the first was that of a forecast size.

    Then only what the guarantee implies is known. Source: docs/proofs/releases.md, section 3.
    """
    profiles = [Profile.from_json(points) for points in data["profiles"]]
    if len(profiles) > 1:
        profiles = [Profile.below(implied_curve(guarantee.epsilon, guarantee.delta))]
    return tuple(Part(profile=profile) for profile in profiles)


def plan_parts(plan: Plan) -> tuple[Part, ...]:
    """What a plan's collections cost, part by part."""
    label = plan.request.label_response()
    if label is None:
        return (Part(profile=Profile.below(promised_curve(plan)), curves=cut_curves(plan)),)
    delta = plan.protocol().promised_delta(float(plan.request.delta))
    return _labeled_parts(plan.request.kde_epsilon, delta, label, plan.request.releases)


def _labeled_parts(epsilon: float, delta: float, label: LabelResponse, releases: int) -> tuple[Part, ...]:
    """Separate labels: all that (ε, δ) implies, and the label's response, which a schedule repeats each time."""
    curves = [implied_curve(epsilon, delta)] + [label_curve(label)] * releases
    return tuple(Part(profile=Profile.below(curve)) for curve in curves)


def _whole_record(plan: Plan) -> Adjacency:
    return Adjacency.FEATURES if plan.request.classes is None else Adjacency.RECORD
