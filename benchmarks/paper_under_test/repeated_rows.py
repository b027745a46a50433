"""Two tables of the appendix agree in every inner-product number, standard deviations included.

The numbers are transcribed from the tables "Effect of ε_lbl on accuracy": accuracy ± standard deviation in percent, for
ε_lbl = ∞, 7, 5, 3, 1 (columns) and RR, then 3NB, each at three ε (rows).
"""

from __future__ import annotations

Rows = tuple[str, ...]

INNER_PRODUCT: dict[str, Rows] = {
    "DBPedia-14": (
        "27.0±0.8 27.3±4.9 23.0±1.8 15.4±1.8 7.8±1.2",
        "50.5±3.5 51.3±1.6 46.2±3.1 30.0±2.8 10.7±2.0",
        "65.4±2.1 66.7±2.0 63.0±1.6 45.2±3.3 12.0±1.8",
        "92.7±0.1 92.8±0.2 92.5±0.2 91.0±0.4 58.9±1.4",
        "93.1±0.1 93.1±0.0 93.1±0.1 92.5±0.3 72.2±1.2",
        "93.1±0.2 93.1±0.2 93.1±0.1 92.6±0.2 72.9±1.7",
    ),
    "AG News": (
        "30.3±5.8 33.5±1.7 35.7±2.7 31.1±2.0 25.4±3.0",
        "45.5±3.7 41.4±6.1 42.2±7.6 43.6±4.6 28.9±6.0",
        "50.5±3.7 48.8±4.8 50.9±4.4 41.9±3.9 31.5±3.3",
        "84.9±0.1 84.9±0.3 85.0±0.5 84.1±0.8 73.9±1.5",
        "85.9±0.4 85.9±0.4 85.6±0.3 85.6±0.2 79.5±1.6",
        "86.2±0.2 86.1±0.2 85.9±0.3 85.9±0.3 79.9±1.4",
    ),
    "SST2": (
        "27.0±0.8 27.3±4.9 23.0±1.8 15.4±1.8 7.8±1.2",
        "50.5±3.5 51.3±1.6 46.2±3.1 30.0±2.8 10.7±2.0",
        "65.4±2.1 66.7±2.0 63.0±1.6 45.2±3.3 12.0±1.8",
        "92.7±0.1 92.8±0.2 92.5±0.2 91.0±0.4 58.9±1.4",
        "93.1±0.1 93.1±0.0 93.1±0.1 92.5±0.3 72.2±1.2",
        "93.1±0.2 93.1±0.2 93.1±0.1 92.6±0.2 72.9±1.7",
    ),
    "CIFAR-10": (
        "11.4±1.6 10.7±1.4 10.6±2.1 12.0±1.6 10.3±2.0",
        "11.1±2.6 9.1±2.0 10.6±1.9 9.3±1.3 10.0±1.8",
        "12.0±1.7 8.6±1.8 10.7±1.8 8.7±1.8 9.8±1.5",
        "18.8±3.3 19.6±0.9 17.9±3.8 13.8±4.2 12.3±3.0",
        "30.4±4.0 28.7±2.4 26.6±5.1 24.4±2.2 12.2±2.1",
        "36.8±7.8 37.1±5.9 37.8±2.8 25.3±3.6 13.2±3.8",
    ),
}
"""The rows of the kernel IP in the four tables."""


def cells(rows: Rows) -> list[str]:
    """All cells in reading order."""
    return [cell for row in rows for cell in row.split()]


def lines() -> list[str]:
    """Equal cells of every two tables, and the cells of SST2 that are below a coin toss."""
    text = []
    names = list(INNER_PRODUCT)
    for number, first in enumerate(names):
        for second in names[number + 1 :]:
            left, right = cells(INNER_PRODUCT[first]), cells(INNER_PRODUCT[second])
            equal = sum(a == b for a, b in zip(left, right, strict=True))
            text.append(f"{first} and {second}: {equal} of {len(left)} inner-product cells are equal")
    below = sum(float(cell.split("±")[0]) < 50.0 for cell in cells(INNER_PRODUCT["SST2"]))
    text.append(f"SST2 has two classes, and {below} of its 30 inner-product accuracies are below 50 %")
    return text
