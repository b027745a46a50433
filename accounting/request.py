"""What a plan is asked for: one validated record whose names are those of the command line."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from accounting.composition import LADDER, Geometric
from accounting.errors import InvalidInputError, require_choice, require_integer, require_real
from accounting.kernels import KERNELS, MOST_DIMENSIONS, KernelFacts, chosen_bound, kernel_facts
from accounting.mechanisms import BITSUMS, LabelResponse, Pure
from accounting.mechanisms.three_negative_binomial import LARGEST_SHAPE

MOST_USERS = 10**9
LARGEST_EPSILON = 100.0
LARGEST_DELTA = 0.5
ACCOUNTANTS = (*LADDER, "auto")
BITSUM_CHOICES = (*BITSUMS, "auto")
LABELS = ("separate", "joint")
"""How labels are protected: by a randomized response of their own, or together with the features."""


DESCRIPTIONS = {
    "users": "number of users that take part",
    "dim": "dimension of the users' vectors",
    "kernel": f"kernel family: {', '.join(KERNELS)}",
    "repetitions": "independent repetitions I of the feature map (default: dim)",
    "bitsum": f"bitsum protocol: {', '.join(BITSUM_CHOICES)}",
    "epsilon": "final ε of the features (joint labels: of features and label)",
    "delta": "final δ",
    "accountant": f"rung of the ladder: {', '.join(ACCOUNTANTS)}",
    "min_users": "users that must at least take part (separate labels: in each class); noise counts on them",
    "classes": "number of classes; separate labels: each runs its own protocol with an even share of the users",
    "label_epsilon": "separate labels: ε of the label's randomized response",
    "labels": f"how labels are protected: {' or '.join(LABELS)}; joint: epsilon protects features and label",
    "bias": "bias β of the laplacian and exponential families",
    "bound": "inner-product only: bound R of the rounding, after a rotation if below 1 (default: planned)",
    "noise_shape": "3nb only: shape k of the noise (1 = the paper's protocol)",
    "excess_error": "3nb, negative-binomial, pure: extra noise accepted for fewer messages",
    "allow_useless": "plan even if the noise drowns every density",
}
"""What each name of a request means, for the command line and the HTTP service."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """What is asked for; names are those of the command line."""

    users: int
    dim: int
    kernel: str = "gaussian"
    repetitions: int | None = None
    bitsum: str = "rr"
    epsilon: float
    delta: float
    accountant: str = "auto"
    min_users: int | None = None
    classes: int | None = None
    label_epsilon: float | None = None
    labels: str = "separate"
    bias: float | None = None
    bound: float | None = None
    noise_shape: int = 1
    excess_error: float | None = None
    allow_useless: bool = False

    def __post_init__(self) -> None:
        require_integer("users", self.users, low=2, high=MOST_USERS)
        require_integer("dim", self.dim, low=1, high=MOST_DIMENSIONS)
        require_choice("bitsum", self.bitsum, BITSUM_CHOICES)
        require_choice("accountant", self.accountant, ACCOUNTANTS)
        require_real("epsilon", self.epsilon, low=0.0, high=LARGEST_EPSILON)
        require_real("delta", self.delta, low=0.0, high=LARGEST_DELTA, low_open=False)
        require_integer("noise_shape", self.noise_shape, low=1, high=LARGEST_SHAPE)
        if self.excess_error is not None:
            require_real("excess_error", self.excess_error, low=0.0, high=10.0)
        if not isinstance(self.allow_useless, bool):
            raise InvalidInputError(f"allow_useless={self.allow_useless!r} must be true or false.")
        self._check_labels()
        if self.min_users is not None:
            require_integer("min_users", self.min_users, low=2, high=self.users_per_protocol)
        if self.delta == 0.0 and self.bitsum not in (Pure.name, "auto"):
            raise InvalidInputError(
                f"delta=0 with bitsum {self.bitsum!r}: only 'pure' keeps delta = 0;"
                " give a positive delta or choose 'pure'."
            )
        if self.noise_shape > 1 and self.bitsum != "3nb":
            raise InvalidInputError(f"noise_shape={self.noise_shape} belongs to bitsum '3nb'; leave it out.")
        self.facts()
        self._write_reals()

    def _write_reals(self) -> None:
        """Keep 2 as 2.0, so that equal requests have equal documents."""
        for name in ("epsilon", "delta", "label_epsilon", "bias", "bound", "excess_error"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, float(value))

    def _check_labels(self) -> None:
        require_choice("labels", self.labels, LABELS)
        if self.joint and self.classes is None:
            raise InvalidInputError("classes=None with labels='joint'; say how many classes there are.")
        if self.joint and self.label_epsilon is not None:
            raise InvalidInputError(
                f"label_epsilon={self.label_epsilon!r} with labels='joint': epsilon protects the label, too;"
                " leave label_epsilon out."
            )
        if not self.joint and (self.classes is None) != (self.label_epsilon is None):
            raise InvalidInputError("classes and label_epsilon belong together; give both or neither.")
        if self.label_epsilon is not None:
            require_real("label_epsilon", self.label_epsilon, low=0.0, high=LARGEST_EPSILON)
        if self.classes is not None:
            LabelResponse(n_classes=self.classes, label_epsilon=self.label_epsilon or 1.0)
            if self.users < 2 * self.classes:
                raise InvalidInputError(
                    f"users={self.users} is fewer than two per class for classes={self.classes}; reduce classes."
                )

    @property
    def joint(self) -> bool:
        """Whether one collection protects features and label together."""
        return self.labels == "joint"

    @property
    def n_protocols(self) -> int:
        """KDE protocols that run side by side: one, or one for each class."""
        return 1 if self.classes is None or self.joint else self.classes

    @property
    def users_per_protocol(self) -> int:
        """Users that run one KDE protocol: all of them, or an even share of a class."""
        return self.users // self.n_protocols

    @property
    def users_per_density(self) -> int:
        """Users whose density is estimated: all of them, or an even share of a class."""
        return self.users // (self.classes or 1)

    @property
    def counted_users(self) -> int:
        """Users whose noise the guarantee counts on."""
        return self.users_per_protocol if self.min_users is None else self.min_users

    def facts(self) -> KernelFacts:
        """The kernel's facts."""
        facts = kernel_facts(
            self.kernel, dim=self.dim, repetitions=self.repetitions, bias=self.bias, bound=self.rounding_bound
        )
        return facts.joint(self.classes) if self.joint and self.classes is not None else facts

    @property
    def rounding_bound(self) -> float | None:
        """R of identity features: as asked; else the planner's choice where `geometric` is used, 1 for other rungs."""
        if self.kernel != "inner-product" or self.bound is not None:
            return self.bound
        if self.accountant in (Geometric.name, "auto") and self.delta > 0.0 and self.bitsum != Pure.name:
            return chosen_bound(self.dim, self.users_per_density**2 / self.users_per_protocol)
        return None

    def label_response(self) -> LabelResponse | None:
        """The label mechanism, if labels are collected."""
        if self.classes is None or self.label_epsilon is None:  # joint labels have no mechanism of their own
            return None
        return LabelResponse(n_classes=self.classes, label_epsilon=float(self.label_epsilon))

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values."""
        return dataclasses.asdict(self)


def read_request(values: Mapping[str, Any]) -> PlanRequest:
    """A request from named values; raises `InvalidInputError` for a name that is unknown or missing."""
    fields = {field.name: field for field in dataclasses.fields(PlanRequest)}
    for name in values:
        require_choice("name of a request", name, fields)
    for name, field in fields.items():
        if field.default is dataclasses.MISSING and name not in values:
            raise InvalidInputError(f"{name} is missing; give it: {DESCRIPTIONS[name]}.")
    return PlanRequest(**values)
