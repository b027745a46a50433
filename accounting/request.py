"""What a plan must keep: one validated record, each of whose fields is declared here and nowhere else."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any

from accounting.classifier_model import DENSITY, DISCRIMINANT, MEAN, MODELS, ModelChoice, chosen_model
from accounting.composition import LADDER
from accounting.errors import InfeasibleError, InvalidInputError, require_integer
from accounting.feature_ball import LARGEST_RADIUS, LEAST_RADIUS
from accounting.fields import Rule, check_fields, read, stated
from accounting.kernels import (
    DEFAULT_BIAS,
    KERNELS,
    LARGEST_BIAS,
    LARGEST_BOUND,
    LEAST_BIAS,
    LEAST_BOUND,
    MOST_DIMENSIONS,
    MOST_REPETITIONS,
    KernelFacts,
    kernel_named,
    record_facts,
)
from accounting.mechanisms import BITSUMS, BitsumProtocol, GaussianMechanism, LabelResponse, Pure, bitsums_for
from accounting.mechanisms.label_response import LARGEST_LABEL_EPSILON, MOST_CLASSES
from accounting.mechanisms.three_negative_binomial import LARGEST_SHAPE
from accounting.record_vector import LARGEST_WEIGHT, RecordVector
from accounting.registry import AUTO, or_auto

MOST_USERS = 10**9
LONGEST_SCHEDULE = 10_000
"""Most releases of one plan: more than one an hour for a year."""
LARGEST_EPSILON = 100.0
LARGEST_DELTA = 0.5
LEAST_DELTA = 1e-300
"""The least positive δ: shares of a smaller one are no floating-point numbers, or vanish."""
ACCOUNTANTS = or_auto(LADDER)
BITSUM_CHOICES = or_auto(BITSUMS)
MODEL_CHOICES = (AUTO, *MODELS)
MOST_MESSAGES = 400_000
"""Default limit on the messages of a user for one classifier: 50 kB in packets that list one bit for each instance."""
SEPARATE, JOINT = LABELS = ("separate", "joint")
"""How labels are protected: by a randomized response of their own, or together with the features."""
LABEL_CHOICES = (AUTO, *LABELS)
LABEL_SHARES = (0.5, 0.75, 0.9)
"""Shares of ε that the planner tries for separate labels."""
ONE_PART: Mapping[str, Any] = {"label_epsilon": None, "features_epsilon": None}
"""ε is not divided."""
ALL_THERE: Mapping[str, Any] = {"min_users": None, "dropout": 0.0, "colluders": 0.0}
"""What a request says of who is there if everybody takes part and is honest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """What a plan must keep and how; the command line and the HTTP service use the same names."""

    users: Annotated[int, Rule("number of users that take part", 2, MOST_USERS)]
    dim: Annotated[int, Rule("dimension of the users' vectors", 1, MOST_DIMENSIONS)]
    kernel: Annotated[
        str, Rule("kernel family (auto: inner-product for joint labels, else gaussian)", choices=or_auto(KERNELS))
    ] = AUTO
    repetitions: Annotated[
        int | None,
        Rule(
            "independent repetitions I of the feature map; inner-product has exactly one",
            1,
            MOST_REPETITIONS,
            unset="dim",
        ),
    ] = None
    bitsum: Annotated[str, Rule("bitsum protocol", choices=BITSUM_CHOICES)] = "rr"
    epsilon: Annotated[
        float,
        Rule("ε that is promised for a whole record: features and label, if any", 0, LARGEST_EPSILON, above_low=True),
    ]
    delta: Annotated[float, Rule("final δ; 0 for pure and auto only", 0, LARGEST_DELTA)]
    releases: Annotated[
        int,
        Rule(
            "how often the same people take part, with new noise each time; epsilon and delta are for all together",
            1,
            LONGEST_SCHEDULE,
            optional=True,
        ),
    ] = 1
    accountant: Annotated[str, Rule("rung of the ladder", choices=ACCOUNTANTS)] = "auto"
    min_users: Annotated[
        int | None,
        Rule(
            "users that must at least take part (separate labels: in each class); noise counts on them",
            2,
            MOST_USERS,
            unset="all",
        ),
    ] = None
    dropout: Annotated[
        float,
        Rule(
            "users that may stay away: a share below 1 or a number (separate labels: of each class); instead of"
            " min_users",
            0,
            MOST_USERS - 2,
            share=True,
            optional=True,
        ),
    ] = 0.0
    colluders: Annotated[
        float,
        Rule(
            "users that may take part and tell what they sent, or add no noise: a share below 1 of users or a number"
            " (separate labels: of each class); instead of min_users",
            0,
            MOST_USERS - 2,
            share=True,
            optional=True,
        ),
    ] = 0.0
    classes: Annotated[
        int | None,
        Rule(
            "number of classes, at most half of users; separate labels: each runs its own protocol with an"
            " even share of the users",
            2,
            MOST_CLASSES,
            unset="none",
        ),
    ] = None
    label_epsilon: Annotated[
        float | None,
        Rule(
            "separate labels: part of epsilon for the label's randomized response, in each release",
            0,
            LARGEST_LABEL_EPSILON,
            above_low=True,
            unset="planned, or what features_epsilon leaves",
        ),
    ] = None
    features_epsilon: Annotated[
        float | None,
        Rule(
            "separate labels: part of epsilon for the features",
            0,
            LARGEST_EPSILON,
            above_low=True,
            unset="the rest",
            optional=True,
        ),
    ] = None
    labels: Annotated[
        str,
        Rule(
            "how labels are protected: by one collection with the features, or by a response of their own (auto:"
            " joint, unless a part of epsilon is given for labels or features)",
            choices=LABEL_CHOICES,
        ),
    ] = AUTO
    bias: Annotated[
        float | None,
        Rule("bias β of the laplacian and exponential families", LEAST_BIAS, LARGEST_BIAS, unset=f"{DEFAULT_BIAS:g}"),
    ] = None
    bound: Annotated[
        float | None,
        Rule(
            "inner-product only: bound R of the rounding, after a rotation if below 1",
            LEAST_BOUND,
            LARGEST_BOUND,
            unset="planned by geometric and auto if δ > 0, else 1",
        ),
    ] = None
    radius: Annotated[
        float | None,
        Rule(
            "gaussian only: largest norm of a user's vector in bandwidths; features are held in a ball for it",
            LEAST_RADIUS,
            LARGEST_RADIUS,
            unset="none: any vector, and every bit may flip",
            optional=True,
        ),
    ] = None
    model: Annotated[
        str,
        Rule(
            "joint labels: how classes are ranked (auto: the best that messages and noise allow)",
            choices=MODEL_CHOICES,
            optional=True,
        ),
    ] = AUTO
    moment_weight: Annotated[
        float | None,
        Rule(
            "discriminant only: weight β² of the second moments",
            0,
            LARGEST_WEIGHT,
            unset="planned",
            optional=True,
        ),
    ] = None
    padded: Annotated[
        int | None,
        Rule(
            "joint labels: coordinates of a record's rotated vector, zeros included; 0: a block for each class",
            0,
            10**7,
            unset="planned",
            optional=True,
        ),
    ] = None
    max_messages: Annotated[
        float | None,
        Rule(
            "joint labels: most coordinates of a record's rotated vector, one message each",
            0,
            1e15,
            above_low=True,
            unset=f"{MOST_MESSAGES:,.0f}",
            optional=True,
        ),
    ] = None
    noise_shape: Annotated[
        int | None,
        Rule(
            "3nb only: shape k of the noise (1 = the paper's protocol)",
            1,
            LARGEST_SHAPE,
            unset="that of least noise; among equals, of fewest messages",
        ),
    ] = None
    excess_error: Annotated[
        float | None,
        Rule(
            "3nb, negative-binomial, pure: extra noise accepted for fewer messages",
            0,
            10,
            above_low=True,
            unset=f"{BitsumProtocol.default_excess:g}; pure: {Pure.default_excess:g}",
        ),
    ] = None
    allow_useless: Annotated[bool, Rule("plan even if the noise drowns every density")] = False

    def __post_init__(self) -> None:
        check_fields(self)
        if self.classes is not None and self.users < 2 * self.classes:
            raise InvalidInputError(
                f"users={self.users} is fewer than two per class for classes={self.classes}; reduce classes."
            )
        self._fill_in()
        self._check_labels()
        self._check_model()
        self._check_who_is_there()
        if 0.0 < self.delta < LEAST_DELTA:
            raise InvalidInputError(
                f"delta={self.delta!r} is positive and below {LEAST_DELTA:g}; choose a larger one, or 0."
            )
        if self.delta == 0.0 and self._law is not None and self._law.spends_delta:
            keeping = " or ".join(repr(name) for name in bitsums_for(0.0))
            raise InvalidInputError(
                f"delta=0 with bitsum {self.bitsum!r}: only {keeping} keeps delta = 0;"
                f" give a positive delta or choose {keeping}."
            )
        if (self.noise_shape or 1) > 1 and (self._law is None or not self._law.takes_noise_shape):
            shaped = " or ".join(repr(name) for name, law in BITSUMS.items() if law.takes_noise_shape)
            raise InvalidInputError(f"noise_shape={self.noise_shape} belongs to bitsum {shaped}; leave it out.")
        _ = self.facts().touched  # refuses more instances than can be composed

    def _fill_in(self) -> None:
        """Name what `auto` stands for where no accounting is needed: labels, kernel, and the parts of ε."""
        parts_given = (self.label_epsilon, self.features_epsilon) != (None, None)
        if self.labels == AUTO:
            object.__setattr__(self, "labels", SEPARATE if self.classes is None or parts_given else JOINT)
        if self._law is not None and not self._law.takes_noise_shape and self.noise_shape is None:
            object.__setattr__(self, "noise_shape", 1)
        if self.kernel == AUTO:
            object.__setattr__(self, "kernel", "inner-product" if self.joint else "gaussian")
        if self.separate and self.label_epsilon is None:
            planned = self.features_epsilon is None
            object.__setattr__(
                self, "label_epsilon", self._planned_label_epsilon() if planned else self._rest_for_labels()
            )

    def _planned_label_epsilon(self) -> float:
        """The label's part of ε with the least predicted error, of labels that are wrong and of noise."""
        shares = {share: share * self.epsilon / self.releases for share in LABEL_SHARES}

        def error(share: float) -> float:
            response = LabelResponse(n_classes=self.classes or 2, label_epsilon=shares[share])
            noise = GaussianMechanism.calibrate((1.0 - share) * self.epsilon, max(self.delta, 1e-12), 2.0)
            privacy = noise.standard_deviation / self.users_per_density
            return math.hypot(1.0 - response.keep_probability, privacy)

        return shares[min(shares, key=error)]

    def _rest_for_labels(self) -> float:
        """The largest ε of a label's response with which all parts add up to at most ε."""
        rest = (Fraction(self.epsilon) - Fraction(self.features_epsilon or 0.0)) / self.releases
        return _below(rest, lambda label: self._exceeded(self.kde_epsilon, label))

    def _check_who_is_there(self) -> None:
        if self.min_users is not None:
            require_integer("min_users", self.min_users, low=2, high=self.users_per_protocol)
            if self.dropout or self.colluders:
                raise InvalidInputError(
                    f"min_users={self.min_users} beside dropout={self.dropout:g} and colluders={self.colluders:g}:"
                    " both say how many honest users there are; give min_users, or the other two."
                )
        shares = sum(self._headcount(value, 1) for value in (self.dropout, self.colluders) if value < 1)
        if shares >= 1:
            raise InvalidInputError(
                f"dropout={self.dropout:g} and colluders={self.colluders:g} leave nobody to count on; reduce them."
            )
        if self.counted_users < 2:
            per = " per class" if self.n_protocols > 1 else ""
            raise InfeasibleError(
                f"of {self.users_per_protocol:,} users{per}, dropout={self.dropout:g} and colluders={self.colluders:g}"
                f" leave {max(0, self.counted_users)} to count on, and two are needed; invite more."
            )

    def _check_model(self) -> None:
        if self.model != AUTO and not self.joint:
            raise InvalidInputError(f"model={self.model!r} without joint labels; give classes and labels='joint'.")
        if self.model == DISCRIMINANT and (not self._rotates_records or self.padded == 0):
            raise InvalidInputError(
                "model='discriminant' needs one rotated vector for a record: kernel 'inner-product', delta > 0,"
                " accountant 'auto' or 'geometric', and no padded=0; change these, or choose another model."
            )
        planned = self.moment_weight is None and not self.padded
        named = self._rotates_records and bool(self.padded) and self.moment_weight is not None
        if not planned and not (
            named and self.model != AUTO and bool(self.moment_weight) == (self.model == DISCRIMINANT)
        ):
            raise InvalidInputError(
                f"padded={self.padded!r} and moment_weight={self.moment_weight!r} with model={self.model!r}: a plan"
                " names them together; leave them out."
            )

    def _check_labels(self) -> None:
        if self.labels == JOINT and self.classes is None:
            raise InvalidInputError("classes=None with labels='joint'; give the number of classes.")
        if not self.separate and (self.label_epsilon, self.features_epsilon) != (None, None):
            raise InvalidInputError(
                f"label_epsilon={self.label_epsilon!r} and features_epsilon={self.features_epsilon!r} belong to"
                " separate labels of some classes; leave them out, or give classes and labels='separate'."
            )
        if self.separate and not self._parts_fit():
            raise InvalidInputError(
                f"{self._parts_in_words()} epsilon={self.epsilon!r}, which is for features and label together; reduce"
                " what is given for a part, or raise epsilon."
            )

    @property
    def _law(self) -> type[BitsumProtocol] | None:
        """The bitsum protocol; None for `auto`."""
        return None if self.bitsum == AUTO else BITSUMS[self.bitsum]

    @property
    def joint(self) -> bool:
        """Whether one collection protects features and label together."""
        return self.labels == JOINT

    @property
    def separate(self) -> bool:
        """Whether labels have a randomized response of their own."""
        return self.classes is not None and not self.joint

    @property
    def kde_epsilon(self) -> float:
        """ε of the KDE protocols: all of it or, with separate labels, the features' part.

        If that is not given, it is the largest with which the parts add up to at most ε, exactly and as the contract
        adds them.
        """
        if self.features_epsilon is not None or not self.separate:
            return self.epsilon if self.features_epsilon is None else self.features_epsilon
        rest = Fraction(self.epsilon) - self._all_label_epsilon
        return _below(rest, lambda features: self._exceeded(features, self.label_epsilon or 0.0))

    @property
    def _all_label_epsilon(self) -> Fraction:
        """ε of the label's responses in all releases, exactly."""
        return self.releases * Fraction(self.label_epsilon or 0.0)

    def _exceeded(self, features: float, label: float) -> bool:
        """Whether these parts add up to more than ε as the contract adds them."""
        return math.fsum([features, math.fsum([label] * self.releases)]) > self.epsilon

    def _parts_fit(self) -> bool:
        parts = (self.kde_epsilon, float(self._all_label_epsilon))
        return min(parts) > 0.0 and math.fsum(parts) <= self.epsilon

    def _parts_in_words(self) -> str:
        """The parts of ε that were given and do not fit; a label's part that is not positive is what was left."""
        times = "" if self.releases == 1 else f" in each of {self.releases} releases"
        label = f"label_epsilon={self.label_epsilon!r}{times}" if (self.label_epsilon or 0.0) > 0.0 else ""
        features = "" if self.features_epsilon is None else f"features_epsilon={self.features_epsilon!r}"
        return f"{label} and {features} are more than" if label and features else f"{label}{features} leaves nothing of"

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
        """Honest users whose noise the guarantee counts on: n − ⌊dropouts + colluders⌋, or `min_users`.

        Rounding the sum and not its parts, one more user never lowers it.
        """
        if self.min_users is not None:
            return self.min_users
        n = self.users_per_protocol
        return n - math.floor(self._headcount(self.dropout, n) + self._headcount(self.colluders, n))

    @property
    def n_colluders(self) -> int:
        """Most users among those who take part whose noise does not count."""
        return math.floor(self._headcount(self.colluders, self.users_per_protocol))

    @property
    def least_packets(self) -> int:
        """Packets to wait for: so many hold those of the counted users, even if all colluders sent one."""
        return self.counted_users + self.n_colluders

    @staticmethod
    def _headcount(value: float, n_users: int) -> Fraction:
        """A share of so many users, exact in the decimals that it is printed as, or a number of users as it is."""
        return Fraction(repr(value)) * (n_users if value < 1 else 1)

    def facts(self) -> KernelFacts:
        """The kernel's facts."""
        record, bound = self.record, self.rounding_bound
        if record is not None and bound is not None:
            facts = record_facts(record, bound)
        else:
            facts = kernel_named(self.kernel).facts(
                dim=self.dim, repetitions=self.repetitions, bias=self.bias, bound=bound, radius=self.radius
            )
            if self.joint and self.classes is not None:
                facts = facts.joint(self.classes)
        return dataclasses.replace(facts, n_releases=self.releases)

    @property
    def record(self) -> RecordVector | None:
        """The vector of a whole record, where features and label are rotated together; None elsewhere."""
        if self.padded and self.classes is not None and self.moment_weight is not None:
            return RecordVector(
                dim=self.dim, n_classes=self.classes, moment_weight=self.moment_weight, padded=self.padded
            )
        choice = self.model_choice()
        return None if choice is None else choice.vector

    def model_choice(self) -> ModelChoice | None:
        """The planner's choice of a model and its vector; None where there is nothing to choose."""
        if self.classes is None or self.padded is not None or not self._rotates_records:
            return None
        return chosen_model(
            self.model,
            dim=self.dim,
            n_classes=self.classes,
            n_users=self.users,
            epsilon=self.epsilon,
            delta=self.delta,
            n_releases=self.releases,
            most_messages=self.max_messages or MOST_MESSAGES,
        )

    def decided(self) -> PlanRequest:
        """The same request with everything named that the planner chooses beside noise: R, the model and its vector."""
        values: dict[str, Any] = {"bound": self.rounding_bound}
        if self.separate:
            values["features_epsilon"] = self.kde_epsilon
        if self.joint:
            record, choice = self.record, self.model_choice()
            values["padded"] = 0 if record is None else record.padded
            values["moment_weight"] = None if record is None else record.moment_weight
            plain = MEAN if self.facts().linear else DENSITY
            values["model"] = choice.model if choice else plain if self.model == AUTO else self.model
        return dataclasses.replace(self, **values)

    @property
    def _rotates_records(self) -> bool:
        """Whether a record's vector can be rotated as one: the inner product of joint labels, counted by shifts."""
        return self.joint and kernel_named(self.kernel).planned_bound is not None and self._shifts_count

    @property
    def _shifts_count(self) -> bool:
        """Whether the accountant may count how far bits shift."""
        by_shifts = self.accountant == AUTO or LADDER[self.accountant].uses_shifts
        return by_shifts and self.delta > 0.0 and (self._law is None or self._law.spends_delta)

    @property
    def rounding_bound(self) -> float | None:
        """R of the features: as given, else the planner's choice where shifts may be used; None: the kernel's own."""
        choose = kernel_named(self.kernel).planned_bound
        if choose is None or self.bound is not None:
            return self.bound
        if not self._shifts_count:
            return None
        record = self.record
        if record is not None:
            return record.planned_bound
        return choose(self.dim, self.users_per_density**2 / self.users_per_protocol)

    def label_response(self) -> LabelResponse | None:
        """The label mechanism of each release, if labels are collected."""
        if self.classes is None or self.label_epsilon is None:  # joint labels have no mechanism of their own
            return None
        return LabelResponse(n_classes=self.classes, label_epsilon=float(self.label_epsilon))

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values."""
        return stated(self)


def _below(exact: Fraction, exceeded: Callable[[float], bool]) -> float:
    """The largest double that is at most `exact`; a step or two less where `exceeded`, which adds up in doubles."""
    rest = float(exact)
    for wrong in (lambda part: Fraction(part) > exact, exceeded, exceeded):
        if wrong(rest):
            rest = math.nextafter(rest, -math.inf)
    return rest


def read_request(values: Mapping[str, Any]) -> PlanRequest:
    """A request from named values; raises `InvalidInputError` for a name that is unknown or missing."""
    return read(PlanRequest, values)
