"""Results as rows: in the paper's layout for people, one line for each cell for programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks.paper.results import DataResults, Results, Spread
from benchmarks.paper.settings import BASELINES, BITSUMS, KERNELS, Settings, label_name
from benchmarks.paper.unit import EVERYBODY, Cell

NOTHING = "—"
"""No noise: the method has no parameters for the promise, or the accountant cannot tabulate them."""
KERNEL_NAMES = {"gaussian": "Gaussian", "inner-product": "IP"}
METHOD_NAMES = {"rr": "RR", "3nb": "3NB", "pure": "Pure", "central": "central", "local": "local", "none": "no privacy"}
PRESET_NAMES = {"": NOTHING, "paper": "paper", "tight": "tight"}

Table = tuple[list[str], list[list[str]]]
"""Headings and rows."""


def percent(spread: Spread | None) -> str:
    """An accuracy with its standard deviation, as the paper prints it.

    >>> percent(Spread(0.8512, 0.0043)), percent(None)
    ('85.1 ± 0.4', '—')
    """
    if spread is None:
        return NOTHING
    deviation = "" if spread.deviation != spread.deviation else f" ± {100 * spread.deviation:.1f}"
    return f"{100 * spread.mean:.1f}{deviation}"


def accuracy_by_epsilon(settings: Settings, data: DataResults, label_epsilon: float | None) -> Table:
    """Kernel, method and preset against ε, for one way of reporting labels: the numbers of the paper's main figure."""
    head = ["kernel", "bitsum", "calibration", *(f"ε = {epsilon:g}" for epsilon in settings.epsilons)]
    rows = []
    for kernel in KERNELS:
        for preset, method in _methods(settings):
            cells = [
                Cell(method=method, preset=preset, epsilon=None if method == "none" else epsilon,
                     label_epsilon=label_epsilon)
                for epsilon in settings.epsilons
            ]  # fmt: skip
            shown = [percent(data.accuracy(kernel, cell)) for cell in cells]
            rows.append([KERNEL_NAMES[kernel], METHOD_NAMES[method], PRESET_NAMES[preset], *shown])
    return head, rows


def accuracy_by_label(settings: Settings, data: DataResults, preset: str, epsilons: Sequence[float]) -> Table:
    """Kernel, protocol and ε against the ε of the labels: the paper's appendix tables."""
    head = ["kernel", "bitsum", "ε", *(f"ε_lbl = {label_name(epsilon)}" for epsilon in settings.label_epsilons)]
    rows = []
    for kernel in KERNELS:
        for bitsum in BITSUMS[:2]:
            for epsilon in epsilons:
                shown = [
                    percent(
                        data.accuracy(
                            kernel, Cell(method=bitsum, preset=preset, epsilon=epsilon, label_epsilon=label_epsilon)
                        )
                    )
                    for label_epsilon in settings.label_epsilons
                ]
                rows.append([KERNEL_NAMES[kernel], METHOD_NAMES[bitsum], f"{epsilon:g}", *shown])
    return head, rows


def communication(settings: Settings, data: DataResults, label_epsilon: float | None) -> Table:
    """Messages of one user on average, as counted; with the Gaussian kernel."""
    head = ["bitsum", "calibration", *(f"ε = {epsilon:g}" for epsilon in settings.epsilons)]
    rows = []
    for preset in settings.presets:
        for bitsum in BITSUMS:
            shown = []
            for epsilon in settings.epsilons:
                cell = Cell(method=bitsum, preset=preset, epsilon=epsilon, label_epsilon=label_epsilon)
                messages = data.value(KERNELS[0], cell, "messages")
                shown.append(NOTHING if messages is None else f"{messages:,.0f}")
            rows.append([METHOD_NAMES[bitsum], preset, *shown])
    return head, rows


def density_error(settings: Settings, data: DataResults) -> Table:
    """Root-mean-square error of the Gaussian density of all users over the queries."""
    head = ["method", "calibration", *(f"ε = {epsilon:g}" for epsilon in settings.epsilons)]
    rows = []
    for preset, method in _methods(settings):
        shown = []
        for epsilon in settings.epsilons:
            cell = Cell(method=method, preset=preset, epsilon=None if method == "none" else epsilon,
                        label_epsilon=EVERYBODY)  # fmt: skip
            spread = data.error(KERNELS[0], cell)
            shown.append(NOTHING if spread is None else f"{spread.mean:.2g}")
        rows.append([METHOD_NAMES[method], PRESET_NAMES[preset], *shown])
    return head, rows


def decoding(settings: Settings, data: DataResults, preset: str) -> Table | None:
    """The terms that name each class, for the seed 0; None if there was no vocabulary."""
    head = ["class", "bitsum", "Gaussian", "IP"]
    rows = []
    for number, name in enumerate(data.facts["class_names"]):
        for method in (*BITSUMS, "none"):
            cell = Cell(
                method=method,
                preset="" if method == "none" else preset,
                epsilon=None if method == "none" else settings.decoded_epsilon,
                label_epsilon=settings.main_label_epsilon,
            )
            terms = [data.value(kernel, cell, "terms") for kernel in KERNELS]
            rows.append(
                [name, METHOD_NAMES[method], *(", ".join(words[number]) if words else NOTHING for words in terms)]
            )
    return None if all(row[2:] == [NOTHING, NOTHING] for row in rows) else (head, rows)


def _methods(settings: Settings) -> Iterator[tuple[str, str]]:
    """Preset and method of every line: protocols, then baselines."""
    for preset in settings.presets:
        for bitsum in BITSUMS:
            yield preset, bitsum
    for baseline in BASELINES:
        yield "", baseline


def lines(results: Results) -> Table:
    """Every cell by itself: for programs."""
    head = ["data", "kernel", "preset", "method", "epsilon", "label_epsilon", "accuracy", "accuracy_std", "error",
            "error_std", "messages_per_user", "bitsum_rmse", "rung", "refused"]  # fmt: skip
    rows = []
    for data in results.data:
        for kernel, cells in data.kernels.items():
            for key, measured in cells.items():
                preset, method, epsilon, label_epsilon = key.split(" ")
                correct = [count / data.facts["test_items"] for count in measured.get("correct", [])]
                rows.append([
                    data.name, kernel, preset, method, epsilon, label_epsilon,
                    *_two(correct), *_two(measured.get("error")),
                    *(str(measured.get(name, "")) for name in ("messages", "rmse", "rung", "refused")),
                ])  # fmt: skip
    return head, rows


def _two(values: Sequence[float] | None) -> tuple[str, str]:
    if not values:
        return "", ""
    spread = Spread.of(values)
    return f"{spread.mean:.6g}", f"{spread.deviation:.3g}"


def markdown(table: Table) -> str:
    """As a Markdown table.

    >>> print(markdown((["a", "b"], [["1", "2"]])))
    | a | b |
    |---|---|
    | 1 | 2 |
    """
    head, *rows = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in (table[0], *table[1])]
    return "\n".join([head, "|" + "---|" * len(table[0]), *rows])
