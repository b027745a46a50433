"""The demonstration from the promise to the page, told step by step."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.markup import escape

from privkde.accuracy import Accuracy, measured
from privkde.decoding import Term, decode_classes
from privkde.demo import collecting
from privkde.demo.comparing import METHODS, accuracy_of, baselines, groups_of
from privkde.demo.data import DigitData, simulate
from privkde.demo.outcome import Outcome
from privkde.demo.settings import DemoSettings
from privkde.demo.writing import draw_figures, write_data, write_report
from privkde.estimators import PrivateKDEClassifier
from privkde.figures import require_matplotlib
from privkde.files import require_replaceable, whole_folder
from privkde.model import DensityModel
from privkde.randomness import PrivateRandomness, private_randomness
from privkde.rounds import Collection
from privkde.tables import accuracy_table, terms_table

TERMS_PER_CLASS = 3
OWN_FILES = ("index.html", "summary.json", "model", "public.npz", "plan*.json", "*.svg")

Reported = NDArray[np.int64]


class Story:
    """Chapters on standard output; progress bars, if somebody watches, on standard error."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.timings: dict[str, float] = {}
        self.shown = sys.stderr.isatty()

    @contextmanager
    def chapter(self, name: str) -> Iterator[None]:
        """One stage, timed."""
        started = time.perf_counter()
        self.console.print(f"\n[bold]{len(self.timings) + 1}. {name}[/bold]", highlight=False)
        yield
        self.timings[name] = time.perf_counter() - started

    def tell(self, text: str) -> None:
        """One sentence."""
        self.console.print(text, highlight=False)


def run_demo(settings: DemoSettings, output: Path, *, console: Console | None = None) -> Outcome:
    """Run everything and write the folder `output`, whole or not at all."""
    require_matplotlib()
    require_replaceable(output.resolve(), OWN_FILES)
    story = Story(console or Console())
    randomness = private_randomness(settings.insecure_seed)
    with whole_folder(output, OWN_FILES) as folder:
        outcome = _told(settings, randomness, folder, story)
        with story.chapter("Figures"):
            draw_figures(outcome, folder)
        write_data(outcome, folder)
        write_report(outcome, folder)
    if not outcome.model.private:
        story.tell("[bold]Not private[/bold]: the private draws came from --insecure-seed.")
    story.tell(f"Open [bold]{escape(str(output / 'index.html'))}[/bold] in a browser.")
    return outcome


def _told(settings: DemoSettings, randomness: PrivateRandomness, folder: Path, story: Story) -> Outcome:
    data = _simulated(settings, story)
    collection, reported = _enrolled(settings, data, randomness, story)
    _collected(collection, data, reported, randomness, story)
    classifier, predicted = _tested(collection, data, randomness, folder, story)
    paper, accuracies = _compared(settings, data, classifier.model_, reported, randomness=randomness, story=story)
    return Outcome(
        settings=settings,
        data=data,
        model=classifier.model_,
        reported_counts=tuple(collection.enrolled.tolist()),
        paper_plans=paper.plans,
        predicted=predicted,
        accuracies=accuracies,
        decoded=_decoded(classifier.model_, data, story),
        timings=story.timings,
    )


def _simulated(settings: DemoSettings, story: Story) -> DigitData:
    with story.chapter("Data"):
        data = simulate(settings)
        story.tell(f"{len(data.users):,} simulated users, each with one scan of a handwritten digit.")
        story.tell(f"Held out: {len(data.test)} real scans to test on and {len(data.gallery)} as public pictures.")
    return data


def _enrolled(
    settings: DemoSettings, data: DigitData, randomness: PrivateRandomness, story: Story
) -> tuple[Collection, Reported]:
    with story.chapter("Promise and enrollment"):
        dim = data.users.images[0].size
        collection = collecting.opened(settings, dim, randomness.public_seed())
        story.tell(
            f"Promised: scans ({settings.epsilon:g}, {settings.delta:g})-DP, labels {settings.label_epsilon:g}-DP."
        )
        reported = collecting.report_labels(collection, data.users, randomness.stream.child("labels"))
        collection.enroll_labels(reported)
        counts = ", ".join(f"{label}: {n:,}" for label, n in enumerate(collection.enrolled.tolist()))
        story.tell(f"Every user reported a randomized label. Reported counts: {counts}.")
    return collection, reported


def _collected(
    collection: Collection, data: DigitData, reported: Reported, randomness: PrivateRandomness, story: Story
) -> None:
    with story.chapter("Plan"):
        announcements = collecting.plan(collection, shown=story.shown)
        flips = [one.plan.parameters["flip_probability"] for one in announcements]
        story.tell(f"One plan for each class: bits flip with probability {min(flips):.3f} to {max(flips):.3f}.")
    with story.chapter("Collection"):
        groups = groups_of(reported, len(announcements))
        stream = randomness.stream.child("shuffled")
        collecting.gather(collection, announcements, data.users.vectors(), groups, stream=stream, shown=story.shown)
        story.tell(f"Every user sent {announcements[0].n_instances:,} one-bit messages through the shuffler.")


def _tested(
    collection: Collection, data: DigitData, randomness: PrivateRandomness, folder: Path, story: Story
) -> tuple[PrivateKDEClassifier, NDArray[np.int64]]:
    """Publish, and from here on use only what the file holds."""
    with story.chapter("Publication and test"):
        collection.publish(private=randomness.secret).save(folder / "model")
        classifier = PrivateKDEClassifier.load(folder / "model")
        predicted = classifier.predict(data.test.vectors())
        story.tell(f"Accuracy on the held-out scans: {measured(predicted, data.test.labels)}.")
    return classifier, predicted


def _compared(
    settings: DemoSettings,
    data: DigitData,
    model: DensityModel,
    reported: Reported,
    *,
    randomness: PrivateRandomness,
    story: Story,
) -> tuple[DensityModel, dict[str, Accuracy]]:
    """The published calibration runs the whole protocol again, with the same labels and the same random features."""
    with story.chapter("Comparison"):
        rows, groups, first = data.users.vectors(), groups_of(reported, settings.n_classes), model.announcements[0]
        again = collecting.opened(settings, rows.shape[1], first.public_seed, accountant="paper")
        again.enroll_labels(reported)
        stream = randomness.stream.child("paper")
        announcements = collecting.plan(again, shown=story.shown)
        collecting.gather(again, announcements, rows, groups, stream=stream, shown=story.shown)
        paper = again.publish(private=randomness.secret)
        queries = data.test.vectors()
        found = baselines(
            data, rows, first.family(), model.plans, groups, stream=randomness.stream.child("baselines")
        ) | {
            "paper": accuracy_of(paper.densities(queries), data),
            "shuffled": accuracy_of(model.densities(queries), data),
        }
        accuracies = {one.name: found[one.name] for one in METHODS}
        story.console.print(accuracy_table({one.title: accuracies[one.name] for one in METHODS}))
    return paper, accuracies


def _decoded(model: DensityModel, data: DigitData, story: Story) -> tuple[tuple[Term, ...], ...]:
    """By contrast: false labels mix all classes into each, and the difference to their mean largely takes that out."""
    with story.chapter("Decoding"):
        sums, gallery = model.feature_sums(), data.gallery
        decoded = decode_classes(sums, gallery.vectors(), gallery.names(), k=TERMS_PER_CLASS, contrast=True)
        story.console.print(terms_table(list(zip(model.labels, decoded, strict=True)), contrast=True))
    return tuple(tuple(terms) for terms in decoded)
