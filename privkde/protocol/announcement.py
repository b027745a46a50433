"""What is announced to everybody before a collection starts. All of it is public."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from accounting import InvalidInputError, Plan
from accounting.errors import require_integer, require_members, require_real
from accounting.numerics.effort import TooMuchWorkError, at_most
from accounting.request import LARGEST_DELTA, LARGEST_EPSILON, MOST_USERS
from privkde.bitsum import Bitsum, executed
from privkde.draws.randomness import public_stream
from privkde.kernels import MOST_PARAMETERS, KernelChoice, LsqFamily
from privkde.protocol.joint_labels import JointLayout
from privkde.protocol.messages import WireFormat
from privkde.protocol.record_vectors import RecordLayout

SCHEMA = "privkde.announcement/1"
NO_LIMIT = 1e300
"""The highest ceiling for messages: more than anybody can send."""
MOST_INSTANCES = 1 << 24
"""Instances of one collection: counts of ones and zeros take 16 bytes for each."""
MOST_SECONDS = 600.0
"""Processor time to read the plans in a file of somebody else, and for shufflers and analyzers to verify one."""


class RefusedAnnouncementError(InvalidInputError):
    """An announcement promises less, or asks for more, than the client accepts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Announcement:
    """The plan, the seed of the public randomness, and which group of users (class) it is for."""

    plan: Plan
    public_seed: str
    bandwidth: float = 1.0
    projection: int | None = None
    group: str = ""
    basis_sha256: str | None = None
    """Names the public matrix on which vectors are projected first (`privkde.protocol.basis`); None: they are not."""

    def __post_init__(self) -> None:
        if self.plan.request.n_protocols > 1:
            raise InvalidInputError(
                f"the plan is for {self.plan.request.classes} classes together, which is a forecast;"
                " announce to each class a plan for the users that reported it."
            )
        if not isinstance(self.group, str):
            raise InvalidInputError(f"group={self.group!r} must be a text: the name of a class, or '' for none.")
        if self.basis_sha256 is not None and not re.fullmatch("[0-9a-f]{64}", self.basis_sha256):
            raise InvalidInputError("basis_sha256 is not 64 hexadecimal digits; announce the fingerprint of the basis.")
        require_integer("instances", self.n_instances, low=1, high=MOST_INSTANCES)
        public_stream(self.public_seed)
        self.kernel_choice().require_room()
        object.__setattr__(self, "bandwidth", float(self.bandwidth))  # 1 and 1.0 are one collection, of one id

    def kernel_choice(self) -> KernelChoice:
        """The kernel family, as planned."""
        return KernelChoice.planned(self.plan.request, bandwidth=self.bandwidth, projection=self.projection)

    def family(self) -> LsqFamily:
        """The maps f_i and g_i, drawn from the public seed when they are first needed.

        Refused if one user could shift its bits by them further than was declared to the accountant.
        """
        return _family(self.kernel_choice(), self.public_seed)

    def bitsum(self) -> Bitsum:
        """The bitsum protocol with the planned parameters."""
        return executed(self.plan.protocol())

    def layout(self) -> JointLayout | RecordLayout | None:
        """Where features and labels are, with joint labels: in blocks of instances, or in one rotated vector."""
        facts = self.plan.request.facts()
        return RecordLayout.of(facts, self.public_seed) or JointLayout.of(facts)

    @property
    def n_instances(self) -> int:
        """The number of bitsum instances."""
        return self.plan.request.facts().n_instances

    @property
    def least_packets(self) -> int:
        """Users that must take part, colluders included; for fewer, nothing may be published."""
        return self.plan.request.least_packets

    def collection(self) -> bytes:
        """SHA-256 of the announcement, which names this collection in every packet.

        All of it: of shorter names, whoever chooses the public seed can find two collections with the same one, and
        have packets counted under a plan that they were not drawn for.
        """
        canonical = json.dumps(self.to_json(), sort_keys=True, ensure_ascii=False, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).digest()

    def wire_format(self) -> WireFormat:
        """How the messages of this collection are written."""
        law = self.plan.protocol()
        return WireFormat(
            collection=self.collection(),
            n_instances=self.n_instances,
            content_bits=law.content_bits,
            most_messages=law.most_messages(self.n_instances),
            dense=law.one_message_each,
        )

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values; `basis_sha256` is left out if there is no basis."""
        return {
            "schema": SCHEMA,
            "plan": self.plan.to_json(),
            "public_seed": self.public_seed,
            "bandwidth": self.bandwidth,
            "projection": self.projection,
            "group": self.group,
        } | ({} if self.basis_sha256 is None else {"basis_sha256": self.basis_sha256})

    def most_messages_per_user(self) -> float:
        """Expected messages of one user in one release, for the bits that take most."""
        law = self.plan.protocol()
        return self.n_instances * max(law.messages_per_user(0.0), law.messages_per_user(1.0))

    @staticmethod
    def received(
        data: Mapping[str, Any],
        *,
        most_epsilon: float = 10.0,
        most_delta: float = 1e-5,
        least_users: int = 100,
        most_messages: float = 1e6,
        most_parameters: int = 1 << 22,
        most_seconds: float = 20.0,
    ) -> Announcement:
        """An announcement that somebody sent, accepted if it promises enough and its plan keeps the promise.

        A client calls this before it takes part, so that it need not trust whoever announces the collection. Each
        client sets its own limits; what is outside them is a `RefusedAnnouncementError`. Unless it says otherwise:

        - `most_epsilon=10`, for all releases of the plan together. Odds change by at most e^ε: at 10, one in 22,000 may
          become an even chance. A promise beyond that means little. (The ε of separate labels is not announced here.)
        - `most_delta=1e-5`: with probability δ a user may have no protection. Among as many users as below, nobody is
          hit in 999 of 1,000 collections. In a large collection, ask for much less than one over its users.
        - `least_users=100` honest ones, whose noise is counted on: with few, one who learns what most of the others
          sent undoes the shuffling. A client cannot check that they take part.
        - `most_messages=1e6` are expected in one release (`most_messages_per_user`): some megabytes.
        - `most_parameters=2²²` public numbers of the kernel's maps: 16 megabytes, and some seconds to draw and check.
        - `most_seconds=20` of processor time to read it and to compute the promise. Usual plans take one to five.

        All other limits are looked at before the promise is computed, and maps are drawn only once they are used.
        """
        epsilon = require_real("most_epsilon", most_epsilon, low=0.0, high=LARGEST_EPSILON)
        delta = require_real("most_delta", most_delta, low=0.0, high=LARGEST_DELTA, low_open=False)
        users = require_integer("least_users", least_users, low=2, high=MOST_USERS)
        messages = require_real("most_messages", most_messages, low=0.0, high=NO_LIMIT)
        parameters = require_integer("most_parameters", most_parameters, low=1, high=MOST_PARAMETERS)
        with _in_time(most_seconds):
            announcement = Announcement.from_json(data)
            request = announcement.plan.request
            _refuse_above("epsilon", request.epsilon, epsilon)
            _refuse_above("delta", announcement.plan.protocol().promised_delta(request.delta), delta)
            _refuse_above("messages", announcement.most_messages_per_user(), messages)
            _refuse_above("parameters", announcement.kernel_choice().n_parameters(), parameters)
            if request.counted_users < users:
                raise RefusedAnnouncementError(
                    f"the collection counts on {request.counted_users} honest users and this client asks for at least"
                    f" {users}; do not take part, or accept it by a lower least_users."
                )
            announcement.plan.verify()
        return announcement

    @staticmethod
    def verified(data: Mapping[str, Any], *, most_seconds: float = MOST_SECONDS) -> Announcement:
        """An announcement, accepted if its plan keeps what it promises (`Plan.verify`), however little that is.

        For a shuffler or an analyzer, whose users have already decided. Clients use `received`.
        """
        with _in_time(most_seconds):
            announcement = Announcement.from_json(data)
            announcement.plan.verify()
        return announcement

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Announcement:
        """Inverse of `to_json`; raises `InvalidInputError` on anything else."""
        if not isinstance(data, Mapping) or data.get("schema") != SCHEMA:
            raise InvalidInputError(f"this is not a {SCHEMA!r} document; get it from whoever runs the collection.")
        try:
            members = [field.name for field in dataclasses.fields(Announcement)]
            require_members("the announcement", data, ["schema", *members])
            announcement = Announcement(
                plan=Plan.from_json(data["plan"]),
                public_seed=data["public_seed"],
                bandwidth=data["bandwidth"],
                projection=data["projection"],
                group=data["group"],
                basis_sha256=data.get("basis_sha256"),
            )
            announcement.bitsum()
            announcement.collection()
        except (KeyError, TypeError, OverflowError) as error:
            raise InvalidInputError(f"the announcement is malformed near {error}; ask for it again.") from error
        return announcement


@contextmanager
def _in_time(most_seconds: float) -> Iterator[None]:
    try:
        with at_most(most_seconds):
            yield
    except TooMuchWorkError as error:
        raise RefusedAnnouncementError(
            f"the collection's promise takes more than most_seconds={most_seconds:g} of processor time to compute; do"
            " not take part, or accept it by a higher most_seconds."
        ) from error


@contextmanager
def reading_plans() -> Iterator[None]:
    """For the plans in a file: reading a law tests its hypotheses, which takes up to seconds for each."""
    try:
        with at_most(MOST_SECONDS):
            yield
    except TooMuchWorkError as error:
        raise InvalidInputError(f"its plans take more than {MOST_SECONDS:g} s of processor time to read") from error


def _refuse_above(name: str, announced: float, ceiling: float) -> None:
    if not announced <= ceiling:
        raise RefusedAnnouncementError(
            f"the collection announces {name}={announced:.10g} and this client accepts at most {ceiling:.10g};"
            f" do not take part, or accept it by a higher most_{name}."
        )


@lru_cache(maxsize=4)
def _family(choice: KernelChoice, public_seed: str) -> LsqFamily:
    """Drawn once: classes share (f_i, g_i), and so do all parties in one process."""
    family = choice.build(public_seed)
    family.require_declared_shift()
    return family
