"""Everything that a demonstration found out, and `summary.json`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

import privkde
from accounting import Adjacency, Contract, Guarantee, Plan, View
from privkde.accuracy import Accuracy
from privkde.decoding import Term
from privkde.demo.comparing import METHODS
from privkde.demo.data import DATA_SEED, DigitData, Images
from privkde.demo.settings import DemoSettings
from privkde.model import DensityModel

SCHEMA = "privkde.demo/1"
SOURCE = 'UCI "Optical Recognition of Handwritten Digits" (1,797 scans of 8×8 pixels), as shipped with scikit-learn'


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture of the gallery with its name, and whether it shows the class that it was found for."""

    image: Images
    name: str
    right: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Results; `model` is what the saved file holds, and predictions come from it."""

    settings: DemoSettings
    data: DigitData
    model: DensityModel = field(repr=False)
    reported_counts: tuple[int, ...]
    paper_plans: tuple[Plan, ...] = field(repr=False)
    predicted: NDArray[np.int64]
    accuracies: Mapping[str, Accuracy]
    """By the names of `METHODS`, in their order."""
    decoded: tuple[tuple[Term, ...], ...]
    timings: Mapping[str, float]
    """Seconds of each stage, up to the drawing of the page."""

    @property
    def contract(self) -> Contract:
        """What secret randomness promises: of a seeded run, what it would promise."""
        return self.model.contract if self.model.private else self.model.contract.parts[0]

    def promise(self, adjacency: Adjacency, view: View = View.COMMUNICATION) -> Guarantee:
        """One of the contract's guarantees."""
        return next(g for g in self.contract.guarantees if g.adjacency is adjacency and g.view is view)

    def confusion(self) -> NDArray[np.int64]:
        """Test scans by written digit (rows) and predicted digit (columns)."""
        counts = np.zeros((self.settings.n_classes,) * 2, np.int64)
        np.add.at(counts, (self.data.test.labels, self.predicted), 1)
        return counts

    def pictures(self) -> list[list[Picture]]:
        """The gallery's pictures that stand for each class, best first."""
        gallery = self.data.gallery
        position = {name: number for number, name in enumerate(gallery.names())}
        return [
            [
                Picture(gallery.images[at], term.word, bool(gallery.labels[at] == number))
                for term, at in ((term, position[term.word]) for term in terms)
            ]
            for number, terms in enumerate(self.decoded)
        ]


def summary(outcome: Outcome, files: list[str]) -> dict[str, Any]:
    """The `privkde.demo/1` document."""
    settings, data, model = outcome.settings, outcome.data, outcome.model
    return {
        "schema": SCHEMA,
        "version": privkde.__version__,
        "private": model.private,
        "seeds": {
            "insecure_seed": settings.insecure_seed,
            "public_seed": model.announcements[0].public_seed,
            "data_seed": DATA_SEED,
        },
        "data": {
            "source": SOURCE,
            "simulated_users": len(data.users),
            "source_scans": data.n_sources,
            "test_scans": len(data.test),
            "gallery_scans": len(data.gallery),
            "dim": model.plans[0].request.dim,
            "classes": settings.n_classes,
        },
        "promises": [g.to_json() for g in outcome.contract.guarantees],
        "kernel": {"name": "gaussian", "bandwidth": settings.bandwidth, "repetitions": settings.repetitions},
        "accuracies": {name: one.value for name, one in outcome.accuracies.items()},
        "methods": [
            {"name": one.name, "title": one.title, "protects": one.protects, **outcome.accuracies[one.name].to_json()}
            for one in METHODS
        ],
        "classes": [_class_summary(outcome, number) for number in range(settings.n_classes)],
        "confusion": outcome.confusion().tolist(),
        "timings": dict(outcome.timings),
        "files": files,
    }


def _class_summary(outcome: Outcome, number: int) -> dict[str, Any]:
    return {
        "class": outcome.model.labels[number],
        "reported_users": outcome.reported_counts[number],
        "plan": _plan_summary(outcome.model.plans[number]),
        "published_calibration": _plan_summary(outcome.paper_plans[number]),
        "terms": [{"word": term.word, "score": term.score} for term in outcome.decoded[number]],
    }


def _plan_summary(plan: Plan) -> dict[str, Any]:
    return {
        "accountant": plan.accountant,
        "flip_probability": plan.parameters["flip_probability"],
        "bitsum_rmse": plan.bitsum_rmse,
        "predicted_rmse": plan.error.total,
        "messages_per_user": plan.messages_per_user,
        "epsilon_proved_by_pld": plan.ladder["pld"],
    }
