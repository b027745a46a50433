"""The files of a demonstration, besides the model: plans, public data, figures, page and summary."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from privkde.demo.comparing import METHODS
from privkde.demo.outcome import Outcome, summary
from privkde.demo.page import render
from privkde.figures import plot_accuracies, plot_confusion, plot_gallery, plot_profile


def write_data(outcome: Outcome, folder: Path) -> None:
    """Plans, and the public data that the model can be asked about."""
    for label, plan in zip(outcome.model.labels, outcome.model.plans, strict=True):
        (folder / f"plan-{label}.json").write_text(plan.dumps(), encoding="utf-8")
    test, gallery = outcome.data.test, outcome.data.gallery
    np.savez(
        folder / "public.npz",
        allow_pickle=False,
        X_test=test.vectors(),
        y_test=test.labels,
        X=gallery.vectors(),
        words=np.array(gallery.names()),
    )


def write_report(outcome: Outcome, folder: Path) -> None:
    """The page, from the figures in the folder, and the summary."""
    (folder / "index.html").write_text(render(outcome, folder), encoding="utf-8")
    files = sorted([*(path.name for path in folder.iterdir()), "summary.json"])
    text = json.dumps(summary(outcome, files), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    (folder / "summary.json").write_text(text, encoding="utf-8")


def draw_figures(outcome: Outcome, folder: Path) -> None:
    """All figures, as SVG files."""
    labels = [str(label) for label in outcome.model.labels]
    plot_accuracies(
        {one.title: outcome.accuracies[one.name] for one in METHODS},
        folder / "accuracy.svg",
        highlighted=next(one.title for one in METHODS if one.name == "shuffled"),
        chance=1.0 / len(labels),
    )
    plot_confusion(outcome.confusion(), labels, folder / "confusion.svg")
    chosen = {
        label: [(one.image, one.right) for one in pictures]
        for label, pictures in zip(labels, outcome.pictures(), strict=True)
    }
    plot_gallery(chosen, folder / "gallery.svg")
    plot_profile(outcome.model.plans[0], folder / "profile.svg")
