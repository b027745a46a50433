"""The files of a study: a report in Markdown, its tables for programs, its figures, and the document of all numbers."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from benchmarks.paper import figures, tables
from benchmarks.paper.results import DataResults, Results
from benchmarks.paper.settings import KERNELS, label_name
from privkde.storage.files import write_text

SHOWN_EPSILONS = 3
"""Rows of ε in a table by label: few, as in the paper."""


def write(results: Results, folder: Path) -> list[Path]:
    """Write everything into a folder that is there; each file whole or not at all."""
    written = [folder / name for name in ("results.json", "cells.csv", "report.md")]
    write_text(written[0], results.text())
    write_text(written[1], _csv(tables.lines(results)))
    pictures = dict(_pictures(results))
    for name, draw in pictures.items():
        draw(folder / name)
        written.append(folder / name)
    write_text(written[2], report(results, list(pictures)))
    return written


def _pictures(results: Results) -> Iterator[tuple[str, Callable[[Path], None]]]:
    """Figures by file name."""
    label = results.settings.main_label_epsilon
    for preset in results.settings.presets:
        for shown in results.settings.label_epsilons:
            name = "inf" if shown is None else f"{shown:g}"
            yield f"accuracy-{preset}-{name}.svg", partial(figures.plot_accuracy, results, preset, shown)
        yield f"local-{preset}.svg", partial(figures.plot_local, results, preset, label)
    if len(results.settings.presets) > 1:
        for kernel in KERNELS:
            yield f"presets-{kernel}.svg", partial(figures.plot_presets, results, kernel, label)
    yield "communication.svg", partial(figures.plot_communication, results, label)
    yield "density-error.svg", partial(figures.plot_density_error, results)


def _csv(table: tables.Table) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([table[0], *table[1]])
    return text.getvalue()


def shown_epsilons(results: Results) -> list[float]:
    """A few of the ε: those nearest to the paper's 2, 4.5 and 7, without repeating one."""
    epsilons = results.settings.epsilons
    return sorted({min(epsilons, key=lambda epsilon: abs(epsilon - wanted)) for wanted in (2.0, 4.5, 7.0)})[
        :SHOWN_EPSILONS
    ]


def report(results: Results, pictures: list[str]) -> str:
    """All tables and figures as one page."""
    about = "".join(f"- {name}: {_words(value)}\n" for name, value in results.about.items())
    settings = results.settings
    parts = [
        "# Reproduction\n",
        f"{about}- (ε, {settings.delta:g})-DP for features, mean ± standard deviation over {settings.seeds} seed(s)\n"
        "- seeded study: NOT PRIVATE\n",
        *(f"![{name.removesuffix('.svg')}]({name})\n" for name in pictures),
    ]
    for data in results.data:
        parts += [f"## {data.name}\n", *_sections(results, data)]
    return "\n".join(parts)


def _words(value: object) -> str:
    return ", ".join(f"{name} {entry}" for name, entry in value.items()) if isinstance(value, dict) else str(value)


def _sections(results: Results, data: DataResults) -> Iterator[str]:
    settings, label = results.settings, results.settings.main_label_epsilon
    yield f"### Accuracy in % at ε_lbl = {label_name(label)}\n"
    yield tables.markdown(tables.accuracy_by_epsilon(settings, data, label)) + "\n"
    for preset in settings.presets:
        yield f"### Effect of ε_lbl on accuracy in %, {preset}\n"
        yield tables.markdown(tables.accuracy_by_label(settings, data, preset, shown_epsilons(results))) + "\n"
    yield "### Messages per user\n"
    yield tables.markdown(tables.communication(settings, data, label)) + "\n"
    yield f"### Error of the Gaussian density over {min(settings.queries, data.facts['test_items'])} queries\n"
    yield tables.markdown(tables.density_error(settings, data)) + "\n"
    for preset in settings.presets:
        decoded = tables.decoding(settings, data, preset)
        if decoded is not None:
            yield f"### Class decoding at ε = {settings.decoded_epsilon:g}, {preset}\n"
            yield tables.markdown(decoded) + "\n"
