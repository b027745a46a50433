"""Everything that a demonstration found out, and `summary.json`."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import privkde
from accounting import Adjacency, Contract, Guarantee, Plan, View
from accounting.mechanisms import LabelResponse
from benchmarks.demo.data import DATA_SEED, DemoSettings, DigitData
from benchmarks.demo.figures import Pictures
from privkde.learning.decoding import Term
from privkde.learning.scoring import LEVEL, Accuracy
from privkde.protocol.model import DensityModel

SCHEMA = "privkde.demo/2"
SOURCE = 'UCI "Optical Recognition of Handwritten Digits" (1,797 scans of 8×8 pixels), as shipped with scikit-learn'


class Method(NamedTuple):
    """A way to classify, and whether its users are protected."""

    name: str
    title: str
    protects: bool


METHODS = (
    Method("exact", "No privacy: the same discriminant", False),
    Method("central", "Central: a trusted analyzer adds Gaussian noise", True),
    Method("shuffled", "Shuffled: this library", True),
    Method("paper", "Shuffled: the paper's protocol and calibration", True),
    Method("local", "Local: no shuffler, every user alone", True),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Results; `model` is what the saved file holds, and predictions come from it."""

    settings: DemoSettings
    data: DigitData
    model: DensityModel = field(repr=False)
    paper: DensityModel = field(repr=False)
    """The paper's protocol and calibration, for the same total (ε, δ)."""
    predicted: NDArray[np.int64]
    accuracies: Mapping[str, Accuracy]
    """By the names of `METHODS`, in their order."""
    decoded: Sequence[Sequence[Term]]
    timings: Mapping[str, float]
    """Seconds of each stage, up to the drawing of the page."""

    @property
    def contract(self) -> Contract:
        """What secret randomness promises: of a seeded run, what it would promise."""
        return self.model.contract if self.model.private else self.model.contract.parts[0]

    def promise(self, view: View) -> Guarantee:
        """What is promised for scan and digit together."""
        return next(g for g in self.contract.guarantees if g.adjacency is Adjacency.RECORD and g.view is view)

    @property
    def label_response(self) -> LabelResponse:
        """By what law users of the paper's protocol report their digit."""
        response = self.paper.label_response()
        assert response is not None  # labels are separate
        return response

    def confusion(self) -> NDArray[np.int64]:
        """Test scans by written digit (rows) and predicted digit (columns)."""
        counts = np.zeros((self.settings.n_classes,) * 2, np.int64)
        np.add.at(counts, (self.data.test.labels, self.predicted), 1)
        return counts

    def gallery(self) -> Pictures:
        """The public pictures that stand for each class, best first, and whether they show that class."""
        gallery, names = self.data.gallery, self.data.gallery.names()
        rows = [[names.index(term.word) for term in terms] for terms in self.decoded]
        return [
            (str(label), [(gallery.images[row], bool(gallery.labels[row] == label)) for row in chosen])
            for label, chosen in zip(self.model.classes, rows, strict=True)
        ]

    def scans(self, rows: NDArray[np.intp]) -> Pictures:
        """These test scans, under what was read and, if that is wrong, what was written."""
        test, right = self.data.test, self.right
        titles = [
            f"{self.predicted[row]}" if right[row] else f"{self.predicted[row]} (is {test.labels[row]})" for row in rows
        ]
        return [(title, [(test.images[row], bool(right[row]))]) for title, row in zip(titles, rows, strict=True)]

    @property
    def right(self) -> NDArray[np.bool_]:
        """Which test scans were read right."""
        return np.equal(self.predicted, self.data.test.labels)


def summary_text(outcome: Outcome, files: list[str]) -> str:
    """The `privkde.demo/2` document."""
    settings, data, model = outcome.settings, outcome.data, outcome.model
    document = {
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
        "promises": [guarantee.to_json() for guarantee in outcome.contract.guarantees],
        "plan": _plan_summary(model.plans[0]),
        "paper": {
            "bandwidth": settings.bandwidth,
            "repetitions": settings.repetitions,
            "label_epsilon": outcome.label_response.label_epsilon,
            "plans": [_plan_summary(plan) for plan in outcome.paper.plans],
        },
        "accuracies": {name: accuracy.value for name, accuracy in outcome.accuracies.items()},
        "methods": [_method_summary(outcome, method) for method in METHODS],
        "classes": [
            {
                "class": label,
                "estimated_users": model.sizes()[label],
                "terms": [{"word": term.word, "score": term.score} for term in terms],
            }
            for label, terms in zip(model.classes, outcome.decoded, strict=True)
        ],
        "confusion": outcome.confusion().tolist(),
        "timings": dict(outcome.timings),
        "files": files,
    }
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _method_summary(outcome: Outcome, method: Method) -> dict[str, Any]:
    accuracy = outcome.accuracies[method.name]
    return {**method._asdict(), "accuracy": accuracy.value, **dataclasses.asdict(accuracy), "level": LEVEL}


def _plan_summary(plan: Plan) -> dict[str, Any]:
    return {
        "accountant": plan.accountant,
        "flip_probability": plan.parameters["flip_probability"],
        "bitsum_rmse": plan.bitsum_rmse,
        "predicted_rmse": plan.error.total,
        "messages_per_user": plan.messages_per_user,
        "ladder": dict(plan.ladder),
    }
