"""Kernel families as facts: what the accountant needs to know of an LSQ family (the paper's Definition 2.1).

A family draws pairs (f, g) of maps into [−R, R]^Q with at most S non-zero coordinates and
|E[f(x)·g(y)] − k(x, y)| ≤ β; the protocol uses I independent draws.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from accounting.composition.rung import Touched
from accounting.errors import InvalidInputError, require_choice, require_integer, require_real
from accounting.feature_ball import LARGEST_RADIUS, LEAST_RADIUS, FeatureBall
from accounting.guarantee import Adjacency
from accounting.record_vector import TRANSFORM_ERROR, RecordVector
from accounting.registry import Registry

MOST_REPETITIONS = 10**6
MOST_DIMENSIONS = 10**6
DEFAULT_BIAS = 0.05
LEAST_BIAS, LARGEST_BIAS = 1e-4, 0.5
LEAST_BOUND, LARGEST_BOUND = 1e-3, 1.0
NORM_SLACK = 1.0001
"""Clients hold norms to 1 in single precision, up to this. Source: docs/proofs/geometric.md, "Single precision"."""
LEAST_ROTATED = 32
"""Fewest dimensions in which rotating and clipping is chosen by itself."""
WEIGHT_STEPS = 2**20
MOST_SINGULAR = 4096
"""Side of the largest matrix whose singular value is computed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelFacts:
    """(Q, R, S, β) and I of one family, with data-free bounds on the three parts of the error.

    For n users and bitsum error E, per query y of norm at most 1:
    variance ≤ feature/I + rounding/(n I) + privacy·E²/(n² I), on top of the bias β.
    Source: docs/proofs/error.md.
    """

    name: str
    dim: int
    n_repetitions: int
    """Repetitions that the family uses: one for identity features."""
    n_coordinates: int
    """Coordinates of one f_i(x)."""
    bound: float
    """Largest absolute value of a coordinate."""
    sparsity: int
    """Largest number of non-zero coordinates of one f_i(x)."""
    bias: float
    """Largest distance of E[f(x)·g(y)] from the kernel; a prediction where R < 1."""
    clipping_bias: float = 0.0
    """What clipping to [−R, R] adds to it: without bits nothing has to be clipped."""
    largest_clipping: float = 0.0
    """Bound on what clipping takes away for any x and y."""
    feature: float
    rounding: float
    privacy: float
    replaced_norm: float
    """sup ‖f(x) − f(x')‖₂ over one repetition: the ℓ₂ sensitivity of the central baseline.

    Where all features are held in a ball (`ball`), the supremum over all I repetitions, divided by √I.
    """
    squared_shift: float | None = None
    """Bound on Σ t² over all instances, where t is how far replacing x moves a bit's probability."""
    largest_shift: float = 1.0
    """Largest single t."""
    shift_condition: str = ""
    """What else a client looks at so that squared shifts keep to their bound, as the end of a sentence."""
    ball: FeatureBall | None = None
    """Where clients hold their features, if a domain was declared (`radius`)."""
    coordinates_compose: bool = False
    """Whether the published calibration composes coordinates of a repetition as it composes repetitions."""
    linear: bool = False
    """Whether f is odd, f(−x) = −f(x): then zero is halfway between f(x) and something that x may be replaced by."""
    unit_ball: bool = False
    """Whether every user's f(x)/R over all instances has norm at most 1."""
    n_releases: int = 1
    """How often the same people take part; all other facts are those of one release."""
    joint_classes: int | None = None
    """Number of classes, if one collection holds instances for each of them and for their sizes (`joint`)."""
    size_weight: float = 1.0
    """With joint classes: a user's bit for the size of its class is one with probability (1 + w)/2, else (1 − w)/2."""
    record: RecordVector | None = None
    """With joint classes: the vector of a whole record, if it is rotated as one; then instances are its coordinates."""

    @property
    def touched(self) -> Touched:
        """The instances of all releases that change law when one person's records are replaced."""
        return self.touched_once.repeated(self.n_releases)

    @property
    def touched_once(self) -> Touched:
        """min(2S, Q)·I instances of one release change law when one user's x is replaced.

        Every user sends a bit in every instance; a zero coordinate is a fair coin whatever x is. So only
        coordinates where f(x) or f(x') is non-zero count: at most 2S per repetition, and at most Q. With joint
        classes, S·I of either class if the class changes, and two sizes; all, if the whole record is one vector.
        """
        joint = self.joint_classes is not None and self.record is None
        return Touched(
            groups=2 * self.sparsity * self.n_repetitions + 2 if joint else self.n_repetitions,
            per_group=1 if joint else min(2 * self.sparsity, self.n_coordinates),
            squared_shift=self.squared_shift,
            largest_shift=self.largest_shift,
            unit_ball=self.unit_ball,
        )

    @property
    def adjacency(self) -> Adjacency:
        """What is replaced: a user's features or, with joint classes, its whole record."""
        return Adjacency.FEATURES if self.joint_classes is None else Adjacency.RECORD

    @property
    def largest_bias(self) -> float:
        """Bound on |E[f(x)·g(y)] − k(x, y)| for all x and y; clipping may take away all but R, however unlikely."""
        return self.bias - self.clipping_bias + self.largest_clipping

    def joint(self, n_classes: int) -> KernelFacts:
        """One collection for (x, c): the block of c holds f(x), those of other classes zeros, and a bit per class c.

        If c stays, Σ t² ≤ Δ² as before. If it changes, one block moves to zero and one away from it (t ≤ ½), and two
        sizes by w: the weight keeps this at most Δ² as well, where it can. Everybody rounds in every block.
        Source: docs/proofs/geometric.md, "Joint labels".
        """
        if self.largest_shift < 0.5:
            raise InvalidInputError(f"largest_shift={self.largest_shift!r} < ½: joint labels move bits to fair coins.")
        same, n_bits = self.touched_once.shift_budget, self.sparsity * self.n_repetitions
        apart = same / 2.0 if self.linear else n_bits / 2.0
        weight = min(self.largest_shift, math.sqrt((same - apart) / 2.0)) if same > apart else self.largest_shift
        weight = max(weight, 0.5)  # less would save less than ½ of Δ²
        weight = math.floor(weight * WEIGHT_STEPS) / WEIGHT_STEPS  # a number that single precision holds exactly
        shift = max(same, apart + 2.0 * weight**2)
        i, others = self.n_repetitions, (n_classes - 1) * self.privacy / 4.0  # who rounds zeros adds R²‖g‖²
        return dataclasses.replace(
            self,
            joint_classes=n_classes,
            size_weight=weight,
            squared_shift=shift,
            unit_ball=False,
            coordinates_compose=False,
            rounding=self.rounding + others + n_classes * i * (1.0 / weight**2 - 1.0) / 4.0,
            privacy=self.privacy + i / weight**2,
            replaced_norm=max(self.replaced_norm, 2.0 * self.bound * math.sqrt(shift / i)),
        )

    def size_deviation(self, n_users: int, bitsum_variance: float) -> float:
        """Joint classes: standard deviation of an estimated size, by rounding and the noise of the bitsum."""
        if self.record is not None:
            noise = self.record.noise_deviation(self.bound, n_users, bitsum_variance)
            return noise / math.sqrt(self.record.size_weight)
        return math.sqrt(n_users * (1.0 - self.size_weight**2) / 4.0 + bitsum_variance) / self.size_weight

    @property
    def paper_touched(self) -> Touched:
        """How the published calibration groups them: identity features compose over the d coordinates."""
        if not self.coordinates_compose:
            return self.touched
        return Touched(groups=self.n_coordinates, per_group=1).repeated(self.n_releases)

    @property
    def n_instances(self) -> int:
        """All I·Q instances, in each of which every user sends messages; with blocks I·Q + 1 for each joint class."""
        per_class, blocks = self.n_repetitions * self.n_coordinates, self.joint_classes if self.record is None else None
        return per_class if blocks is None else (per_class + 1) * blocks


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """A family by name: what it is, what it takes and what follows from that."""

    name: str
    summary: str
    """The kernel and its features, in one line."""
    build: Callable[[str, int, int, float, float], KernelFacts]
    """Facts from name, dimensions, repetitions, bias β and bound R; a family ignores what it does not take."""
    takes_repetitions: bool = True
    takes_bias: bool = False
    takes_bound: bool = False
    takes_radius: bool = False
    """Whether features can be held in a ball where the norm of records is declared."""
    takes_bandwidth: bool = True
    takes_projection: bool = False
    needs_unit_norm: bool = True
    """Whether records and queries must have norm at most 1."""
    planned_bound: Callable[[int, float], float] | None = None
    """The R of least error from dimensions and users, if R may be chosen and shifts are what noise has to hide."""

    def largest_norm(self, radius: float | None, bandwidth: float) -> float | None:
        """The largest norm of a record; None if there is no limit. Queries have none but `needs_unit_norm`."""
        if radius is not None:
            return radius * bandwidth
        return 1.0 if self.needs_unit_norm else None

    def facts(
        self,
        *,
        dim: int,
        repetitions: int | None = None,
        bias: float | None = None,
        bound: float | None = None,
        radius: float | None = None,
    ) -> KernelFacts:
        """With these options; `repetitions` defaults to `dim`, as in the paper's experiments, `bound` to 1."""
        require_integer("dim", dim, low=1, high=MOST_DIMENSIONS)
        if not self.takes_repetitions and repetitions not in (None, 1):
            raise InvalidInputError(
                f"repetitions={repetitions!r} with kernel {self.name!r}: its features use exactly one repetition;"
                " leave repetitions out, or choose 'inner-product-signs'."
            )
        if bias is not None and not self.takes_bias:
            raise InvalidInputError(
                f"bias={bias!r} with kernel {self.name!r}: this family is unbiased; leave bias out."
            )
        if bound is not None and not self.takes_bound:
            raise InvalidInputError(
                f"bound={bound!r} with kernel {self.name!r}: only 'inner-product' takes one; leave it out."
            )
        if radius is not None:
            if not self.takes_radius:
                raise InvalidInputError(
                    f"radius={radius!r} with kernel {self.name!r}: only 'gaussian' takes one; leave it out."
                )
            require_real("radius", radius, low=LEAST_RADIUS, high=LARGEST_RADIUS, low_open=False)
        rounds = dim if repetitions is None else repetitions
        require_integer("repetitions", rounds, low=1, high=MOST_REPETITIONS)
        beta = DEFAULT_BIAS if bias is None else bias
        require_real("bias", beta, low=LEAST_BIAS, high=LARGEST_BIAS, low_open=False)
        scale = LARGEST_BOUND if bound is None else bound
        require_real("bound", scale, low=LEAST_BOUND, high=LARGEST_BOUND, low_open=False)
        built = self.build(self.name, dim, rounds, float(beta), float(scale))
        return built if radius is None else _held(built, FeatureBall(n_features=rounds, radius=float(radius)))


def kernel_named(name: str) -> Kernel:
    """A registered kernel; raises `InvalidInputError` for any other name."""
    return KERNELS[require_choice("kernel", name, KERNELS)]


def _gaussian(name: str, dim: int, repetitions: int, _bias: float, _bound: float) -> KernelFacts:
    """exp(−‖x−y‖²) by random Fourier features f = g = √2 cos(√2 ω·x + φ)."""
    return KernelFacts(
        name=name, dim=dim, n_repetitions=repetitions, n_coordinates=1, bound=math.sqrt(2.0), sparsity=1,
        bias=0.0, feature=1.0, rounding=1.0, privacy=8.0, replaced_norm=2.0 * math.sqrt(2.0),
    )  # fmt: skip


def _held(facts: KernelFacts, ball: FeatureBall) -> KernelFacts:
    """The same kernel where clients hold their features in a ball, so that Σ t² ≤ Δ²."""
    shift = min(float(facts.n_repetitions), ball.squared_radius * NORM_SLACK**2)
    return dataclasses.replace(
        facts,
        ball=ball,
        largest_clipping=ball.largest_clipping,
        squared_shift=shift,
        replaced_norm=2.0 * facts.bound * math.sqrt(shift / facts.n_repetitions),
        shift_condition="; for that it holds features, whatever the vector and the maps, to a ball of squared radius Δ²"
        " around public centers",
    )


def _inner_product(name: str, dim: int, _repetitions: int, _bias: float, bound: float) -> KernelFacts:
    """x·y with identity features, one repetition; for R < 1 after a public rotation, clipped to [−R, R].

    ‖f(x) − f(x')‖ ≤ 2 and t_j = |f_j(x) − f_j(x')|/(2R), so Σ t_j² ≤ 1/R².
    """
    return KernelFacts(
        name=name, dim=dim, n_repetitions=1, n_coordinates=dim, bound=bound, sparsity=dim,
        bias=clipping_bias(dim, bound), clipping_bias=clipping_bias(dim, bound), largest_clipping=1.0 - bound,
        feature=0.0, rounding=bound**2, privacy=4.0 * bound**2, replaced_norm=2.0, coordinates_compose=True,
        squared_shift=(NORM_SLACK / bound) ** 2, linear=True, unit_ball=bound >= 1.0,
    )  # fmt: skip


def record_facts(record: RecordVector, bound: float) -> KernelFacts:
    """x·y of each class, from one rotated and clipped vector v(x, c) for the whole record.

    Σ t² ≤ sup‖v − v'‖²/(4R²). A class sum is off by the rounding of all users and by the noise, and its size by 1/γ
    times as much. Clipping takes the same share off sums and sizes, so hardly any off the density.
    Source: docs/proofs/moments.md.
    """
    spread = 1.0 + 1.0 / record.size_weight
    return KernelFacts(
        name="inner-product", dim=record.dim, n_repetitions=1, n_coordinates=record.padded, bound=bound,
        sparsity=record.padded, bias=0.0, largest_clipping=1.0, feature=0.0,
        rounding=record.n_classes * spread * bound**2, privacy=4.0 * spread * bound**2,
        replaced_norm=math.sqrt(record.squared_distance),
        squared_shift=record.squared_distance * (NORM_SLACK / (2.0 * bound)) ** 2,
        joint_classes=record.n_classes, size_weight=math.sqrt(record.size_weight), record=record,
        shift_condition="; the cosine transform that it computes in single precision is off by at most"
        f" {TRANSFORM_ERROR:g} of a vector's length, of which it checks that lengths stay as they are",
    )  # fmt: skip


def _inner_product_signs(name: str, dim: int, repetitions: int, _bias: float, _bound: float) -> KernelFacts:
    """x·y with random signs f = g = σ·x.

    Σ t² ≤ σ_max²/d for the largest singular value of the I × d signs, which are drawn after the plan. Its size is
    known beforehand, √I + √d or less; with this margin a draw beyond the declared value is very unlikely, and no
    party takes it (`privkde.protocol.announcement`).
    """
    margin = 1.0 + min(dim, repetitions) ** (-1.0 / 3.0)
    declared = margin * NORM_SLACK**2 * (1.0 + math.sqrt(repetitions / dim)) ** 2
    return KernelFacts(
        name=name, dim=dim, n_repetitions=repetitions, n_coordinates=1, bound=math.sqrt(dim),
        sparsity=1, bias=0.0, feature=2.0, rounding=float(dim), privacy=4.0 * dim, replaced_norm=2.0 * math.sqrt(dim),
        squared_shift=declared if min(dim, repetitions) <= MOST_SINGULAR else None, linear=True,
        shift_condition="; it takes part only if the drawn signs keep the declared Δ², which it computes",
    )  # fmt: skip


def _hashed(name: str, dim: int, repetitions: int, bias: float, _bound: float) -> KernelFacts:
    """A kernel that is the collision probability of a hash, reduced to Q = ⌈1/β⌉ buckets; f, g one-hot.

    Replacing x moves two buckets per repetition, each between a certain one and a fair coin: t = ½ twice.
    """
    return KernelFacts(
        name=name, dim=dim, n_repetitions=repetitions, n_coordinates=math.ceil(1.0 / bias), bound=1.0, sparsity=1,
        bias=bias, feature=0.25, rounding=1.0, privacy=4.0, replaced_norm=math.sqrt(2.0),
        squared_shift=repetitions / 2.0, largest_shift=0.5,
    )  # fmt: skip


def clipping_bias(dim: int, bound: float) -> float:
    """How much of x·y clipping at R is expected to take away: 2Φ(−R√d), for x·y = 1.

    After a random rotation the coordinates of a unit vector are nearly N(0, 1/d), and E[(z − clip z)·z] = 2Φ(−R√d)/d
    each. A prediction, not a bound: privacy never depends on it. Source: docs/proofs/geometric.md.
    """
    return 0.0 if bound >= 1.0 else math.erfc(bound * math.sqrt(dim / 2.0))


def chosen_bound(dim: int, n_users: float) -> float:
    """The R ≤ 1 of least rounding and clipping error, R²/n + clipping_bias²; the privacy error hardly depends on R.

    R = 1 in few dimensions, where coordinates are far from normal and the bias is not what `clipping_bias` says.
    """
    if dim < LEAST_ROTATED:
        return 1.0

    def squared_error(bound: float) -> float:
        return bound**2 / n_users + clipping_bias(dim, bound) ** 2

    candidates = [min(1.0, deviations / math.sqrt(dim)) for deviations in np.arange(1.0, 6.0, 0.05).tolist()]
    best = min(candidates, key=squared_error)
    return best if squared_error(best) < squared_error(1.0) else 1.0


KERNELS: Registry[Kernel] = Registry()
"""Every kernel family by name."""
KERNELS.register(
    Kernel(
        name="gaussian",
        summary="exp(−‖x − y‖²/h²) by random Fourier features",
        build=_gaussian,
        takes_projection=True,
        takes_radius=True,
        needs_unit_norm=False,
    ),
    Kernel(
        name="inner-product",
        summary="x·y of the coordinates themselves, rotated and clipped where that pays",
        build=_inner_product,
        takes_repetitions=False,
        takes_bound=True,
        takes_bandwidth=False,
        planned_bound=chosen_bound,
    ),
    Kernel(
        name="inner-product-signs",
        summary="x·y by random signs",
        build=_inner_product_signs,
        takes_bandwidth=False,
    ),
    Kernel(
        name="laplacian",
        summary="exp(−‖x − y‖₁/h) by hashing",
        build=_hashed,
        takes_bias=True,
    ),
    Kernel(
        name="exponential",
        summary="exp(−‖x − y‖₂/h) by hashing",
        build=_hashed,
        takes_bias=True,
    ),
)
