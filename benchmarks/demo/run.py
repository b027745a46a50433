"""The demonstration from the promise to the page, step by step."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.markup import escape

from benchmarks.demo.data import DemoSettings, DigitData, simulate
from benchmarks.demo.figures import accuracy_table, plot_accuracies, plot_confusion, plot_pictures
from benchmarks.demo.page import render
from benchmarks.demo.summary import METHODS, Outcome, summary_text
from benchmarks.local_baseline import local_sums
from privkde.display.figures import plot_profile, require_matplotlib
from privkde.display.tables import terms_table
from privkde.draws.randomness import ByteStream, private_randomness
from privkde.learning.baselines import central_sums, exact_densities
from privkde.learning.decoding import decode_classes
from privkde.learning.estimators import PrivateKDEClassifier
from privkde.learning.scoring import Accuracy, measured
from privkde.protocol.label_round import randomize_labels
from privkde.protocol.model import DensityModel, FeatureSums
from privkde.storage.datasets import write_arrays
from privkde.storage.files import require_replaceable, whole_folder

TERMS_PER_CLASS = 3
FIRST_SCANS = 12
MOST_MISTAKES = 8
OWN_FILES = ("index.html", "summary.json", "model", "public.npz", "plan*.json", "*.svg")


class Story:
    """Chapters on standard output, each timed."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.timings: dict[str, float] = {}

    @contextmanager
    def chapter(self, name: str) -> Iterator[None]:
        """One stage."""
        started = time.perf_counter()
        self.tell(f"\n[bold]{len(self.timings) + 1}. {name}[/bold]")
        yield
        self.timings[name] = time.perf_counter() - started

    def tell(self, text: str) -> None:
        """One sentence."""
        self.console.print(text, highlight=False)


def run_demo(settings: DemoSettings, output: Path, *, console: Console | None = None) -> Outcome:
    """Run everything and write the folder `output`, whole or not at all."""
    require_matplotlib()
    require_replaceable(output.resolve(), OWN_FILES)
    randomness = private_randomness(settings.insecure_seed)
    story = Story(console or Console())
    with whole_folder(output, OWN_FILES) as folder:
        outcome = _outcome(settings, randomness, folder, story)
        with story.chapter("Figures"):
            _draw_figures(outcome, folder)
        _write_public_files(outcome, folder)
        (folder / "index.html").write_text(render(outcome, folder), encoding="utf-8")
        files = sorted([*(path.name for path in folder.iterdir()), "summary.json"])
        (folder / "summary.json").write_text(summary_text(outcome, files), encoding="utf-8")
    if not outcome.model.private:
        story.tell("[bold]Not private[/bold]: the private draws came from --insecure-seed.")
    story.tell(f"Open [bold]{escape(str(output / 'index.html'))}[/bold] in a browser.")
    return outcome


def _outcome(settings: DemoSettings, randomness: ByteStream, folder: Path, story: Story) -> Outcome:
    """Every stage up to the figures; after the collection only what the saved model holds is used."""
    with story.chapter("Data"):
        data = simulate(settings)
        story.tell(f"{len(data.users):,} simulated users, each with one scan of a handwritten digit.")
        story.tell(f"Held out: {len(data.test)} real scans to test on and {len(data.gallery)} as public pictures.")
    with story.chapter("Collection"):
        story.tell(
            f"Promised: scans ({settings.epsilon:g}, {settings.delta:g})-DP, labels {settings.label_epsilon:g}-DP."
        )
        _fitted(settings, data).save(folder / "model")
        classifier = PrivateKDEClassifier.load(folder / "model")
        model = classifier.model_
        _tell_collection(model, story)
    with story.chapter("Test"):
        predicted = classifier.predict(data.test.vectors())
        story.tell(f"Accuracy on the held-out scans: {measured(predicted, data.test.labels)}.")
    with story.chapter("Comparison"):
        paper = _fitted(settings, data, accountant="paper", public_seed=model.announcements[0].public_seed).model_
        accuracies = _compared(data, model, paper, randomness)
        story.console.print(accuracy_table({method.title: accuracies[method.name] for method in METHODS}))
    with story.chapter("Decoding"):  # by contrast: false labels mix all classes into each, in the same way
        gallery = data.gallery
        decoded = decode_classes(
            model.feature_sums(), gallery.vectors(), gallery.names(), k=TERMS_PER_CLASS, contrast=True
        )
        story.console.print(terms_table(list(zip(model.labels, decoded, strict=True)), contrast=True))
    return Outcome(
        settings=settings,
        data=data,
        model=model,
        paper_plans=paper.plans,
        predicted=predicted,
        accuracies=accuracies,
        decoded=decoded,
        timings=story.timings,
    )


def _fitted(settings: DemoSettings, data: DigitData, **options: Any) -> PrivateKDEClassifier:
    """A collection from all users. A useless plan is accepted: of the published calibration, that is the point."""
    classifier = PrivateKDEClassifier(
        classes=range(settings.n_classes),
        epsilon=settings.epsilon,
        delta=settings.delta,
        label_epsilon=settings.label_epsilon,
        repetitions=settings.repetitions,
        bandwidth=settings.bandwidth,
        insecure_seed=settings.insecure_seed,
        allow_useless=True,
        verbose=sys.stderr.isatty(),
        **options,
    )
    return classifier.fit(data.users.vectors(), data.users.labels)


def _tell_collection(model: DensityModel, story: Story) -> None:
    counts = ", ".join(f"{label}: {n:,}" for label, n in zip(model.labels, model.n_users, strict=True))
    flips = [plan.parameters["flip_probability"] for plan in model.plans]
    story.tell(f"Every user reported a randomized label. Reported counts: {counts}.")
    story.tell(f"One plan for each class: bits flip with probability {min(flips):.3f} to {max(flips):.3f}.")
    story.tell(f"Every user sent {model.announcements[0].n_instances:,} one-bit messages through the shuffler.")


def _compared(data: DigitData, model: DensityModel, paper: DensityModel, randomness: ByteStream) -> dict[str, Accuracy]:
    """The same task by other means; those that protect also randomize the labels, by the same law."""
    rows, queries, family = data.users.vectors(), data.test.vectors(), model.announcements[0].family()
    response = model.label_response()
    assert response is not None  # labels are separate
    reported = randomize_labels(data.users.labels, response, stream=randomness.child("labels"))
    true, noisy = (
        [np.flatnonzero(labels == number) for number in model.labels] for labels in (data.users.labels, reported)
    )
    stream = randomness.child("baselines")
    sums = [family.scaled_features(rows[group]).sum(axis=0, dtype=np.float64) for group in true]
    features = FeatureSums(
        family=family, sums=np.stack(sums) * family.facts.bound, n_users=tuple(len(group) for group in true)
    )
    densities = {
        "exact": exact_densities(family, rows, true, queries),
        "features": features.densities(queries),
        "central": central_sums(family, model.plans, rows, noisy, stream=stream).densities(queries),
        "shuffled": model.densities(queries),
        "paper": paper.densities(queries),
        "local": local_sums(family, model.plans, rows, noisy, stream=stream).densities(queries),
    }
    return {name: measured(np.argmax(scores, axis=1), data.test.labels) for name, scores in densities.items()}


def _draw_figures(outcome: Outcome, folder: Path) -> None:
    labels = [str(label) for label in outcome.model.labels]
    accuracies = {method.title: outcome.accuracies[method.name] for method in METHODS}
    own = next(method.title for method in METHODS if method.name == "shuffled")
    plot_accuracies(accuracies, folder / "accuracy.svg", highlighted=own, chance=1.0 / len(labels))
    plot_confusion(outcome.confusion(), labels, folder / "confusion.svg")
    plot_profile(outcome.model.plans[0], folder / "profile.svg")
    plot_pictures(outcome.gallery(), folder / "gallery.svg")
    plot_pictures(outcome.scans(np.arange(len(outcome.right))[:FIRST_SCANS]), folder / "scans.svg")
    if not outcome.right.all():
        plot_pictures(outcome.scans(np.flatnonzero(~outcome.right)[:MOST_MISTAKES]), folder / "mistakes.svg")


def _write_public_files(outcome: Outcome, folder: Path) -> None:
    """Plans, and the public data that the model can be asked about."""
    for label, plan in zip(outcome.model.labels, outcome.model.plans, strict=True):
        (folder / f"plan-{label}.json").write_text(plan.dumps(), encoding="utf-8")
    test, gallery = outcome.data.test, outcome.data.gallery
    public: dict[str, NDArray[Any]] = {
        "X_test": test.vectors(),
        "y_test": test.labels,
        "X": gallery.vectors(),
        "words": np.array(gallery.names()),
    }
    write_arrays(folder / "public.npz", public)
