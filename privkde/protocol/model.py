"""What is published: sums for one density or for one density per class, and how to query them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accounting import Contract, InvalidInputError, Plan
from accounting.classifier_model import DENSITY, DISCRIMINANT, MEAN, MODELS, TELLING_DEVIATIONS
from accounting.composed_contracts import READ_OFF_CLASSES, classifier_contract, classifier_label, seeded_contract
from accounting.errors import require_choice, require_integer, require_members
from accounting.mechanisms import LabelResponse
from accounting.request import MOST_USERS
from privkde.kernels import LsqFamily
from privkde.protocol.announcement import Announcement, reading_plans
from privkde.protocol.basis import on_basis, require_announced, require_basis
from privkde.protocol.inputs import Rows, checked_vectors
from privkde.protocol.joint_labels import JointLayout
from privkde.protocol.linear_rule import LinearRule, Published
from privkde.protocol.record_vectors import RecordLayout
from privkde.storage.container import DamagedFileError, read_container, write_container
from privkde.storage.user_blocks import Progress, rows_per_block

SCHEMA, SCHEMA_1 = SCHEMAS = ("privkde.model/2", "privkde.model/1")
"""Models of the first schema have no rule, no basis and no names of columns."""
MEMBERS = ("schema", "announcements", "n_users", "contract", "private", "labels")
RULES = (DENSITY, MEAN)
"""How classes are ranked: by density, or by the distance to their means in feature space."""
LONGEST_NAME, MOST_NAME_BYTES = 256, 1 << 20
"""Characters of the name of a column, and bytes of all names: a document holds them."""
LARGEST_SUM = 1e30
"""Beyond it, densities would leave single precision."""

Floats = NDArray[np.float64]
Label = str | int | float | bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureSums:
    """Σ_u f_i(x_u)_j of several groups of users, exact or estimated, for one family: densities are products with g(y).

    K_c(y) = (1/(n_c I)) Σ_ij F_c,ij g_i(y)_j.
    """

    family: LsqFamily
    sums: Floats
    n_users: tuple[float, ...]
    basis: Floats | None = None
    """Columns on which queries are projected first, as the users' vectors were; None: they were not."""

    def weights(self) -> Floats:
        """F/(nI), one row for each group."""
        users = np.array(self.n_users, dtype=np.float64)[:, None]
        return self.sums / (users * self.family.facts.n_repetitions)

    def densities(self, y: Rows, *, progress: Progress | None = None) -> Floats:
        """K_c(y) for every query (rows) and every group (columns)."""
        blocks = self.density_blocks(y, progress=progress)
        return np.concatenate([np.zeros((0, len(self.sums))), *(block for _, block in blocks)])

    def density_blocks(
        self, y: Rows, *, rows: int | None = None, progress: Progress | None = None
    ) -> Iterator[tuple[int, Floats]]:
        """The same in blocks of queries, each with the number of its first row: bounded memory for any number.

        Queries are public, so one outside the kernel's domain is projected onto it. Nearly all work is one matrix
        product per block, which uses all cores by itself.
        """
        weights = self.weights().astype(np.float32).T
        step = rows_per_block(weights.shape[0]) if rows is None else rows
        for start, vectors in query_blocks(self.family, y, self.basis, rows=step, progress=progress):
            yield start, (self.family.query_features(vectors) @ weights).astype(np.float64)


def query_blocks(
    family: LsqFamily, y: Rows, basis: Floats | None, *, rows: int, progress: Progress | None = None
) -> Iterator[tuple[int, NDArray[np.float32]]]:
    """Queries in blocks, each with the number of its first row: projected on the basis, then to the kernel's domain."""
    require_queries(y, family.facts.dim if basis is None else len(basis))
    projected = on_basis(y, basis)
    for start in range(0, y.shape[0], rows):
        index = np.arange(start, min(start + rows, y.shape[0]))
        block = projected[start : start + rows] if isinstance(projected, np.ndarray) else projected[index]  # a view
        longest = family.largest_query
        yield start, checked_vectors(block, family.facts.dim, longest=longest, outside="project", numbers=index)
        if progress is not None:
            progress(len(index))


def require_queries(y: Rows, dim: int) -> None:
    """Refuse queries that are not vectors of this dimension, before maps for it are drawn."""
    if len(y.shape) != 2 or y.shape[1] != dim:
        raise InvalidInputError(f"queries of shape {tuple(y.shape)} were given; the model is for (queries, {dim}).")


@dataclass(frozen=True, slots=True, kw_only=True)
class DensityModel:
    """The published sums F̃ of one or more groups of users that share (f_i, g_i), with the contract that covers them.

    With separate labels every class is a group of its own; with joint labels one group holds all classes.
    Queries are post-processing: any number of them, at no further cost of privacy.
    """

    announcements: tuple[Announcement, ...]
    sums: Floats = field(repr=False)
    n_users: tuple[int, ...]
    contract: Contract = field(repr=False)
    private: bool
    """False if the private draws came from a seed that somebody may know."""
    labels: tuple[Label, ...] = ()
    """The class of each group or, with joint labels, the classes of the only group; empty for a single density."""
    rule: str = DENSITY
    """Separate labels: how classes are ranked. With joint labels the plan's model says it (`ranked_by`)."""
    basis: Floats | None = field(default=None, repr=False)
    """Orthonormal columns (d, r) on which vectors of the users were projected, as queries are; None: they were not."""
    feature_names: tuple[str, ...] = field(default=(), repr=False)
    """Names of the columns of data frames, which are public; empty if there were none."""

    def __post_init__(self) -> None:
        joint = self._joint_classes()
        needed = (1, joint) if joint is not None else (max(1, len(self.labels)), len(self.labels))
        if (len(self.announcements), len(self.labels)) != needed:
            raise InvalidInputError(
                f"{len(self.announcements)} groups and {len(self.labels)} labels were given; a model has one group and"
                " no label, one label for each group, or one group and the labels of a joint plan."
            )
        self._require_sums()
        require_choice("rule", self.rule, RULES)
        if self.rule != DENSITY and (not self.labels or joint is not None):
            raise InvalidInputError(f"rule={self.rule!r} belongs to separate labels; leave it out.")
        if self.basis is not None:
            require_basis(self.basis, self.plans[0].request.dim)
        for announcement in self.announcements:
            require_announced(self.basis, announcement.basis_sha256)
        require_feature_names(self.feature_names, self.dim)
        if len({(a.kernel_choice(), a.public_seed) for a in self.announcements}) > 1:
            raise InvalidInputError("the groups use different kernels or public seeds; one model shares (f_i, g_i).")
        kinds = {type(label) for label in self.labels}
        if not kinds <= {str, int, float, bool} or len(kinds) > 1 or len({*map(str, self.labels)}) < len(self.labels):
            raise InvalidInputError("labels must be texts, numbers or truth values: all of one kind, no two equal.")
        if any(isinstance(label, int) and not -(2**63) <= label < 2**63 for label in self.labels):
            raise InvalidInputError("labels that are whole numbers must fit in 64 bits; give other ones.")
        declared = self.classes_declared
        honest = promised(self.plans, self.label_response(), private=bool(self.private), declared=declared)
        if not isinstance(self.private, bool) or self.contract != honest:
            raise InvalidInputError("the contract is not the one that follows from the plans; publish the model again.")

    def _joint_classes(self) -> int | None:
        """The number of classes that one group holds together; None if there are no joint labels."""
        return self.announcements[0].plan.request.facts().joint_classes if self.announcements else None

    def _layout(self) -> JointLayout | RecordLayout | None:
        return self.announcements[0].layout() if self.announcements else None

    def _require_sums(self) -> None:
        shape = (len(self.announcements), self.announcements[0].n_instances)
        if self.sums.shape != shape or self.sums.dtype != np.float64:
            raise InvalidInputError(
                f"sums of shape {self.sums.shape} and type {self.sums.dtype} were given; give float64 of shape {shape}."
            )
        if not np.all(np.abs(self.sums) <= LARGEST_SUM):
            raise InvalidInputError(f"sums must be finite and at most {LARGEST_SUM:g}; publish the model again.")
        if len(self.n_users) != shape[0]:
            raise InvalidInputError(f"{len(self.n_users)} numbers of users were given for {shape[0]} groups.")
        for announcement, users in zip(self.announcements, self.n_users, strict=True):
            require_integer("n_users", users, low=announcement.least_packets, high=MOST_USERS)

    def _unseeded_contract(self) -> Contract:
        return self.contract if self.private or not self.contract.parts else self.contract.parts[0]

    @property
    def classes_declared(self) -> bool:
        """Whether the labels were known before the data; otherwise their set tells something about users."""
        return not self.labels or READ_OFF_CLASSES not in self._unseeded_contract().assumed

    def label_response(self) -> LabelResponse | None:
        """How labels were randomized by themselves, if the groups are classes."""
        if not self.labels or self._joint_classes() is not None:
            return None
        label = classifier_label(self._unseeded_contract())
        require_integer("classes", label.n_classes, low=len(self.labels), high=MOST_USERS)
        return label

    @property
    def plans(self) -> tuple[Plan, ...]:
        """The plan of each group."""
        return tuple(a.plan for a in self.announcements)

    def sizes(self) -> dict[Label, float]:
        """The users of each class: those that reported it, or an estimate with joint labels."""
        layout = self._layout()
        if layout is None:
            return dict(zip(self.labels, self.n_users, strict=False))
        return dict(zip(self.labels, layout.split(self.sums[0], self.n_users[0])[1].tolist(), strict=True))

    @property
    def classes(self) -> tuple[Label, ...]:
        """The classes that have a density, in the order of its columns.

        All labels; with joint labels only those whose estimated size stands out from its own error.
        """
        layout = self._layout()
        if layout is None:
            return self.labels
        least, (_, sizes) = self._least_size(), layout.split(self.sums[0], self.n_users[0])
        return tuple(label for label, size in zip(self.labels, sizes.tolist(), strict=True) if size > least)

    def _least_size(self) -> float:
        """The estimated size of a class that has a density is above this."""
        return max(TELLING_DEVIATIONS * self.size_deviation(), 1.0)

    def size_deviation(self) -> float:
        """Standard deviation of an estimated size; 0 where sizes are reported."""
        plan, n = self.plans[0], self.n_users[0]
        return plan.request.facts().size_deviation(n, plan.protocol().variance(n)) if plan.request.joint else 0.0

    def feature_sums(self) -> FeatureSums:
        """The sums of each class that has a density, with the family that they belong to."""
        family, layout = self.announcements[0].family(), self._layout()
        if layout is None:
            return FeatureSums(family=family, sums=self.sums, n_users=self.n_users, basis=self.basis)
        sums, sizes = layout.split(self.sums[0], self.n_users[0])
        kept = sizes > self._least_size()
        return FeatureSums(family=family, sums=sums[kept], n_users=tuple(sizes[kept].tolist()), basis=self.basis)

    @property
    def dim(self) -> int:
        """Entries of a query: those of the plan's vectors, or of vectors that are projected on the basis first."""
        return self.plans[0].request.dim if self.basis is None else len(self.basis)

    @property
    def ranked_by(self) -> str:
        """How classes are ranked: as the plan of joint labels says, else by `rule`."""
        planned = self.plans[0].request.model
        return self.rule if self._layout() is None or planned not in MODELS else planned

    def densities(self, y: Rows, *, progress: Progress | None = None) -> Floats:
        """K̃_c(y) for every query (rows) and every class that has a density (columns)."""
        require_queries(y, self.dim)
        return self.feature_sums().densities(y, progress=progress)

    def verify(self) -> None:
        """Raise `InvalidInputError` unless every plan in the model keeps what it promises; loading does not check."""
        for plan in self.plans:
            plan.verify()

    def linear_rule(self) -> LinearRule | None:
        """The linear classifier over all labels, if the plan has a model that is one; computed anew at each call."""
        layout, request = self._layout(), self.plans[0].request
        if not isinstance(layout, RecordLayout) or request.model == DENSITY:
            return None
        n, variance = self.n_users[0], self.plans[0].protocol().variance(self.n_users[0])
        sums, sizes = layout.split(self.sums[0], n)
        deviation, weight = layout.noise_deviation(n, variance), layout.vector.moment_weight
        moments = layout.second_moments(self.sums[0]) if request.model == DISCRIMINANT else None
        return LinearRule.of(
            Published(
                n_users=n,
                sizes=sizes,
                size_deviation=self.size_deviation(),
                sums=sums,
                deviation=deviation,
                moments=moments,
                moment_deviation=0.0 if moments is None else deviation / math.sqrt(weight),
            )
        )

    def ranked(self, densities: Floats, rule: str) -> Floats:
        """Scores of the classes: K̃_c(y), or K̃_c(y) − ½‖μ_c‖², which ranks them by the distance of y to their means."""
        require_choice("rule", rule, RULES)
        return densities - 0.5 * self.squared_means() if rule == "mean" else densities

    def squared_means(self) -> Floats:
        """Estimate of ‖μ_c‖², where μ_c = (1/n_c) Σ_u f(x_u)/√I is the mean of a class in feature space.

        Σ_ij F̃²/(n_c²I) exceeds it on average by the variance of rounding, (nQR² − n_c‖f‖²)/n_c², and of the bitsums,
        4R²QE²/n_c², where n users round in the instances of the class: n_c, or with joint labels all. Both are
        subtracted, with ‖f‖² = 1: its mean in every family here for vectors of unit norm.
        """
        features = self.feature_sums()
        joint = self._layout() is not None
        values = []
        for i, (row, size) in enumerate(zip(features.sums, features.n_users, strict=True)):
            plan, n = self.plans[0 if joint else i], self.n_users[0 if joint else i]
            facts = plan.request.facts()
            spread = facts.n_coordinates * facts.bound**2
            noise = (n * spread - size + 4.0 * spread * plan.protocol().variance(n)) / size**2
            values.append(float(row @ row) / (size**2 * facts.n_repetitions) - noise)
        return np.array(values)

    def save(self, path: str | Path) -> None:
        """Write the model, whole or not at all."""
        document = {
            "schema": SCHEMA,
            "announcements": [a.to_json() for a in self.announcements],
            "n_users": list(self.n_users),
            "contract": self.contract.to_json(),
            "private": self.private,
            "labels": list(self.labels),
            "rule": self.rule,
        } | ({"feature_names": list(self.feature_names)} if self.feature_names else {})
        write_container(
            Path(path), document, {"sums": self.sums} | ({} if self.basis is None else {"basis": self.basis})
        )

    @staticmethod
    def load(path: str | Path) -> DensityModel:
        """Read a model that `save` wrote; `DamagedFileError` for anything else."""
        document, arrays = read_container(Path(path), SCHEMAS, ("sums",), ("basis",))
        try:
            first = document["schema"] == SCHEMA_1
            require_members("the document", document, MEMBERS if first else (*MEMBERS, "rule", "feature_names"))
            if not isinstance(names := document.get("feature_names", []), list):
                raise InvalidInputError("feature_names is no list of texts")
            _require_as_many_plans(document, arrays["sums"])
            with reading_plans():
                announcements = tuple(Announcement.from_json(a) for a in document["announcements"])
            return DensityModel(
                announcements=announcements,
                sums=arrays["sums"],
                n_users=tuple(document["n_users"]),
                contract=Contract.from_json(document["contract"]),
                private=document["private"],
                labels=tuple(document["labels"]),
                rule=DENSITY if first else document["rule"],
                basis=arrays.get("basis"),
                feature_names=tuple(names),
            )
        except MemoryError:
            raise
        except Exception as error:  # a forged file may hold anything, so anything may be raised
            raise DamagedFileError(f"{str(path)!r} does not hold a valid model ({error}); write it again.") from error


def require_feature_names(names: Sequence[object], dim: int) -> None:
    """Refuse names of columns that are not `dim` texts which a document can hold; there may be none at all."""
    texts = [name for name in names if isinstance(name, str) and len(name) <= LONGEST_NAME]
    whole = "".join(texts)
    held = whole.encode("utf-8", "ignore")
    if names and (len(names) != dim or len(texts) != dim or len(held) > MOST_NAME_BYTES or held.decode() != whole):
        raise InvalidInputError(
            f"{len(names)} names of columns were given for {dim} columns; each must be a text of at most {LONGEST_NAME}"
            f" characters in UTF-8, all together at most {MOST_NAME_BYTES:,} bytes. Rename columns, or give an array."
        )


def _require_as_many_plans(document: Mapping[str, Any], sums: Floats) -> None:
    """Refuse a document with other numbers of announcements, users, labels and sums, before its plans are read."""
    groups, users, labels = (len(document[name]) for name in ("announcements", "n_users", "labels"))
    if users != groups or sums.shape[:1] != (groups,) or groups not in (1, labels):
        raise InvalidInputError(
            f"{groups} announcements, {users} numbers of users, {labels} labels and sums of shape {sums.shape} do not"
            " belong together"
        )


def promised(plans: Sequence[Plan], label: LabelResponse | None, *, private: bool, declared: bool) -> Contract:
    """The contract of all groups together; `label` randomizes the labels, if every class is a group.

    `declared` says whether the labels, if there are any, were known before the data.
    """
    parts = [plan.contract for plan in plans]
    releases = max(plan.request.releases for plan in plans)
    whole = parts[0] if label is None else classifier_contract(parts, label, releases)
    whole = whole if declared else replace(whole, assumed=(*whole.assumed, READ_OFF_CLASSES))
    return whole if private else seeded_contract(whole)
