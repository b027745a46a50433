"""Simulated users that each hold one scan of a handwritten digit.

The scans are real: 1,797 of them, 8×8 pixels with 17 shades, from the UCI data set "Optical Recognition of Handwritten
Digits", which ships with scikit-learn. The users are not: each gets one of the scans that are not held out, slightly
turned, scaled and moved.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage
from sklearn.datasets import load_digits

from accounting import InvalidInputError
from accounting.errors import require_integer
from privkde.draws.randomness import ByteStream, public_stream
from privkde.draws.sampling import integers_below, permutation
from privkde.kernels.public_draws import uniforms

DATA_SEED = "70726976206b6465206469676974732e"
"""Public and the same in every run, so that runs differ by the protocol's randomness only."""
MIDDLE_GRAY = 8.0
"""Pixels go from 0 to 16. Subtracted from each: a constant that is known without looking at anybody's data."""
LARGEST_CHANGES = {"turns": 0.2, "scalings": 0.1, "down": 0.5, "right": 0.5}
"""In radians, as a share, and in pixels."""
NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")

Images = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoSettings:
    """The defaults teach: privacy costs a few points of accuracy here, and doing it otherwise costs nearly all.

    (`epsilon`, `delta`) is the total for a scan and its digit. `repetitions` and `bandwidth` are those of the Gaussian
    densities of the paper's protocol, for comparison. `n_classes` keeps the digits below it only; tests use that to be
    quick.
    """

    n_users: int = 20_000
    n_classes: int = 10
    n_test: int = 500
    n_gallery: int = 300
    epsilon: float = 1.0
    delta: float = 1e-6
    repetitions: int = 256
    bandwidth: float = 0.45
    insecure_seed: int | None = None


@dataclass(frozen=True, slots=True)
class Scans:
    """Pictures of digits; `numbers` says which scans of the data set they are, or were made from."""

    images: Images
    labels: NDArray[np.int64]
    numbers: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.images)

    def vectors(self) -> NDArray[np.float32]:
        """One unit vector for each scan: pixels minus middle gray, divided by their norm."""
        centered = self.images.reshape(len(self.images), -1) - MIDDLE_GRAY
        return np.asarray(centered / np.linalg.norm(centered, axis=1, keepdims=True), dtype=np.float32)

    def names(self) -> list[str]:
        """A word for each scan, such as "seven (scan 1203)"."""
        return [f"{NAMES[label]} (scan {number})" for label, number in zip(self.labels, self.numbers, strict=True)]

    def chosen(self, index: NDArray[np.int64]) -> Scans:
        """These scans only."""
        return Scans(self.images[index], self.labels[index], self.numbers[index])


@dataclass(frozen=True, slots=True, kw_only=True)
class DigitData:
    """Users (simulated), and two sets of real scans that nobody's scan was made from: a test set and a gallery."""

    users: Scans
    test: Scans
    gallery: Scans
    n_sources: int


def simulate(settings: DemoSettings) -> DigitData:
    """Split the scans and give every user one; always the same for the same settings."""
    stream = public_stream(DATA_SEED)
    stored = load_digits()
    everything = Scans(stored.images, stored.target.astype(np.int64), np.arange(len(stored.target)))
    require_integer("n_classes", settings.n_classes, low=2, high=len(NAMES))
    wanted = everything.chosen(np.flatnonzero(everything.labels < settings.n_classes))
    shuffled = wanted.chosen(permutation(len(wanted), stream.child("split")))
    held_out = settings.n_test + settings.n_gallery
    if held_out >= len(shuffled):
        raise InvalidInputError(f"{held_out} scans are to be held out and there are {len(shuffled)}; hold out fewer.")
    order = np.arange(len(shuffled))
    sources = shuffled.chosen(order[held_out:])
    return DigitData(
        users=_users(sources, settings.n_users, stream),
        test=shuffled.chosen(order[: settings.n_test]),
        gallery=shuffled.chosen(order[settings.n_test : held_out]),
        n_sources=len(sources),
    )


def _users(sources: Scans, n_users: int, stream: ByteStream) -> Scans:
    drawn = sources.chosen(integers_below(len(sources), n_users, stream.child("scans")))
    changes = [most * (2.0 * uniforms(stream.child(name), n_users) - 1.0) for name, most in LARGEST_CHANGES.items()]
    moved = [
        _moved(image, turn, 1.0 + scaling, np.array([down, right]))
        for image, turn, scaling, down, right in zip(drawn.images, *changes, strict=True)
    ]
    return Scans(np.stack(moved), drawn.labels, drawn.numbers)


def _moved(image: Images, turn: float, scale: float, shift: NDArray[np.float64]) -> Images:
    """The picture turned and scaled about its middle, then moved; what comes in from outside is black."""
    cosine, sine = math.cos(turn) / scale, math.sin(turn) / scale
    back = np.array([[cosine, -sine], [sine, cosine]])
    middle = (np.array(image.shape) - 1.0) / 2.0
    return np.asarray(ndimage.affine_transform(image, back, offset=middle - back @ (middle + shift), order=1))
