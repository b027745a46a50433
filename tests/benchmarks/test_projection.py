"""Measured distortion of one projection, against its definition."""

import itertools
import math

import numpy as np
import pytest

from accounting.errors import InvalidInputError
from benchmarks.projection import measured_distortion
from privkde.kernels import public_draws as draws
from privkde.kernels.projection import FastProjection, distortion_bound
from tests.privkde.kernels.test_projection import matrix, stream


def test_all_rows_keep_every_distance() -> None:
    projection = FastProjection(33, 33, stream())
    assert measured_distortion(projection, stream("pairs"), pairs=50).distance_max < 1e-5


def test_measured_distortion_is_what_it_says() -> None:
    projection = FastProjection(30, 10, stream())
    found = measured_distortion(projection, stream("pairs"), bandwidth=0.8, pairs=200)
    z = draws.normals(stream("pairs").child("directions"), 200 * 30).reshape(200, 30)
    distances = 2.0 * (1.0 - draws.uniforms(stream("pairs").child("distances"), 200))
    z *= (distances / np.linalg.norm(z, axis=1))[:, None]
    after, before = np.sum((z @ matrix(projection).T) ** 2, axis=1), distances**2
    ratio, change = after / before - 1, np.exp(-after / 0.64) - np.exp(-before / 0.64)
    assert found.pairs == 200
    assert found.distance_rms == pytest.approx(float(np.sqrt(np.mean(ratio**2))), rel=1e-4)
    assert found.distance_max == pytest.approx(float(np.max(np.abs(ratio))), rel=1e-4)
    assert found.kernel_rms == pytest.approx(float(np.sqrt(np.mean(change**2))), rel=1e-4)
    assert found.kernel_max == pytest.approx(float(np.max(np.abs(change))), rel=1e-4)
    assert found.bound == distortion_bound(30, 10) == pytest.approx(math.sqrt(5 * 20 / (10 * 29)))
    assert 0 < found.kernel_rms <= found.distance_rms


def test_wider_projections_distort_less() -> None:
    widths = (8, 32, 128, 512)
    measured = [measured_distortion(FastProjection(768, m, stream(m)), stream("pairs"), pairs=300) for m in widths]
    for narrow, wide in itertools.pairwise(measured):
        assert wide.distance_rms < narrow.distance_rms
        assert wide.kernel_rms < narrow.kernel_rms
        assert wide.bound < narrow.bound


def test_measuring_refuses_nonsense() -> None:
    projection = FastProjection(3, 2, stream())
    with pytest.raises(InvalidInputError, match="pairs=0"):
        measured_distortion(projection, stream(), pairs=0)
    with pytest.raises(InvalidInputError, match="bandwidth=0"):
        measured_distortion(projection, stream(), bandwidth=0)
