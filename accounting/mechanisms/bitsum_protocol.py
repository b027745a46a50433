"""What every bitsum protocol declares: its exact law, error, messages, design and contract."""

from __future__ import annotations

import abc
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, Self

from accounting.contract import Contract, Evidence, EvidenceKind
from accounting.errors import InvalidInputError, require_integer
from accounting.guarantee import Adjacency, Guarantee, View
from accounting.numerics.profile import LossGrid, Pair, ProfileTable, smallest_epsilon, smallest_root, symmetric_delta

if TYPE_CHECKING:
    from accounting.composition.target import Target

MOST_USERS = 10**12


@dataclass(frozen=True, slots=True, kw_only=True)
class BitsumProtocol(abc.ABC):
    """One bitsum instance: `n_users` honest users each hold a bit; the shuffled output hides each of them.

    `n_users` is the number of users whose noise the guarantee counts on. If more take part, their
    extra messages are independent of the target's, so the guarantee can only improve.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    """What users do, in one line."""
    randomizer: ClassVar[str]
    """What users and the analyzer do, in the names of `parameters`."""
    content_bits: ClassVar[int] = 1
    """Bits of a message besides the name of its instance."""
    one_message_each: ClassVar[bool] = False
    """Whether every user sends exactly one message in every instance: in order they then need no names."""
    spends_delta: ClassVar[bool] = True
    """Whether it needs δ > 0; a law that does not keeps δ = 0 whatever is allowed."""
    takes_noise_shape: ClassVar[bool] = False
    """Whether its noise has a shape that is planned, and for which a request may ask."""
    default_excess: ClassVar[float] = 0.01
    """Extra noise, as a share of the least, that a design accepts for fewer messages unless a request says more."""
    noise_depends_on_users: ClassVar[bool] = False
    """Whether the least noise of one sum for a promise changes with n; otherwise the error of a mean falls as 1/n."""
    remedy: ClassVar[str] = "raise epsilon, or choose bitsum 3nb"
    """What to do if the noise drowns every density."""
    composition_checked: ClassVar[str | None] = None
    """What the library verified of the composed instances, if that is the law's merit and not the rung's."""

    n_users: int
    """Users whose noise the guarantee counts on."""

    def __post_init__(self) -> None:
        require_integer("n_users", self.n_users, low=1, high=MOST_USERS)

    @classmethod
    @abc.abstractmethod
    def design(cls, target: Target, n_users: int, *, certified: bool = True) -> Self:
        """The parameters that meet a target with the least noise, and then with the fewest messages.

        `certified=False` may skip the supremum over the others' data.
        """

    @classmethod
    def as_published(cls, epsilon: float, delta: float, n_users: int) -> Self:
        """The published calibration for an instance of (ε₀, δ₀), right or wrong; refused if there is none."""
        raise InvalidInputError(
            f"bitsum={cls.name!r} has no published calibration; choose accountant 'pld', 'advanced' or 'basic'."
        )

    def published_epsilon(self, delta: float) -> float | None:
        """The ε₀ for which exactly these parameters were published; None if there is none."""
        return None

    @classmethod
    def promised_delta(cls, allowed: float) -> float:
        """The δ that is promised if so much is allowed."""
        return allowed if cls.spends_delta else 0.0

    @abc.abstractmethod
    def parameters(self) -> dict[str, float | int]:
        """Everything a randomizer needs to run the protocol."""

    @abc.abstractmethod
    def pairs(self) -> Sequence[Pair]:
        """Laws (bit 1, bit 0) of the shuffled output for the others' data most likely to be the worst."""

    def kinds(self, grid: LossGrid) -> list[ProfileTable]:
        """Tables such that every dataset of the others is dominated by one of them, in one direction or the other."""
        return [ProfileTable.of_pair(pair, grid) for pair in likely_pairs(self)]

    def likely_delta(self, epsilon: float) -> float:
        """δ(ε) over `pairs()` only: a lower bound on `delta`, cheap enough to search with."""
        return symmetric_delta(likely_pairs(self), epsilon)

    def delta(self, epsilon: float) -> float:
        """δ(ε) of one instance, the supremum over everybody else's data included, rounded up."""
        return self.likely_delta(epsilon)

    def certified_margin(self) -> float:
        """How much more noise, relatively, the supremum over the others' data is likely to need than `pairs()`."""
        return 0.0

    def epsilon(self, delta: float) -> float:
        """Smallest ε with `delta(ε)` ≤ delta, rounded up; inf if none exists.

        Starts from the ε of `likely_delta`, which is never too large, and moves up until `delta` agrees.
        """
        return _instance_epsilon(self, delta)

    @abc.abstractmethod
    def variance(self, n_present: int) -> float:
        """Largest variance of the analyzer's estimate over all bits, when `n_present` users take part."""

    def rmse(self, n_present: int | None = None) -> float:
        """Root-mean-square error of the unbiased estimate (exact, largest over the bits)."""
        return math.sqrt(self.variance(self.n_users if n_present is None else n_present))

    @abc.abstractmethod
    def messages_per_user(self, mean_bit: float = 0.5) -> float:
        """Expected number of messages that one user sends in one instance."""

    @classmethod
    def message_bits(cls, n_instances: int) -> int:
        """Bits of one message in a user's packet."""
        return message_bits(n_instances, cls.content_bits, in_order=cls.one_message_each)

    @abc.abstractmethod
    def most_messages(self, n_instances: int) -> int:
        """Most messages of one user in so many instances, whatever its bits; a packet with more is not taken.

        An honest user draws more with probability at most e^−900. Source: docs/proofs/limits.md.
        """

    def local_guarantee(self) -> Guarantee:
        """What holds if the shuffler colludes; by default nothing, because one user's share of the noise is tiny."""
        return Guarantee(epsilon=0.0, delta=1.0, adjacency=Adjacency.BIT, view=View.LOCAL)

    @property
    @abc.abstractmethod
    def evidence(self) -> Evidence:
        """Why the computed profile holds."""

    def checked(self) -> tuple[str, ...]:
        """Hypotheses that the library verified."""
        return ("parameters are in the domain of the law",)

    def contract(self, epsilon: float, delta: float) -> Contract:
        """The contract of one instance at a given (ε₀, δ₀) point of its profile."""
        communication = Guarantee(epsilon=epsilon, delta=delta, adjacency=Adjacency.BIT, view=View.COMMUNICATION)
        return Contract(
            component=f"bitsum instance ({self.name})",
            guarantees=(communication, self.local_guarantee()),
            evidence=self.evidence,
            checked=self.checked(),
            assumed=(
                f"at least {self.n_users} users other than colluders take part and follow the protocol",
                "the shuffler outputs a uniformly random order and nothing else",
                "private random draws are independent and follow the declared law",
            ),
            parameters=self.parameters(),
        )


def message_bits(n_instances: int, content_bits: int, *, in_order: bool) -> int:
    """Bits of one message of one user: ⌈log₂ K⌉ that name its instance, and its content; at least one.

    Messages that are `in_order`, one in each instance, need no names.
    """
    return max(1, content_bits + (0 if in_order else (n_instances - 1).bit_length()))


@lru_cache(maxsize=2)
def likely_pairs(protocol: BitsumProtocol) -> Sequence[Pair]:
    """`protocol.pairs()`, kept for the protocol at hand: its profile is computed at many ε."""
    return protocol.pairs()


@lru_cache(maxsize=1)
def searched_kinds(protocol: BitsumProtocol, grid: LossGrid, *, certified: bool) -> Sequence[ProfileTable]:
    """`protocol.kinds(grid)` or, not certified, the tables of its likely pairs only.

    Kept for the protocol at hand: after a noise level that holds, its ε is computed.
    """
    return protocol.kinds(grid) if certified else BitsumProtocol.kinds(protocol, grid)


@lru_cache(maxsize=64)
def _instance_epsilon(protocol: BitsumProtocol, delta: float) -> float:
    low = smallest_epsilon(protocol.likely_delta, delta)
    if not math.isfinite(low) or protocol.delta(low) <= delta:
        return low
    step = max(1e-4 * low, 1e-9)
    while protocol.delta(low + step) > delta:
        low, step = low + step, 2.0 * step
    return smallest_root(lambda epsilon: protocol.delta(epsilon) <= delta, low, low + step)


def computed(method: str, source: str) -> Evidence:
    """Evidence by exact computation."""
    return Evidence(kind=EvidenceKind.COMPUTATION, method=method, source=source)
