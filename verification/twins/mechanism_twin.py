"""What a twin of a mechanism says: everything that the checks know of one mechanism, from its definition.

A twin shares no code and no formula with `accounting`. Laws of counts are SciPy's masses and convolutions, tables of
the noise come from 40 digits, the certificate's laws are balls, exact laws are fractions.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from accounting.errors import InvalidInputError
from verification.certified.noise_laws import LossBounds, TwoLaws, shifted
from verification.exact.brute_force import plane_table, sufficient_length, table
from verification.exact.rational_twins import ExactPair
from verification.statistical.execution.count_laws import TAIL, Laws, Parts, Tables, plus, point, times, window
from verification.twins.noise_counts import NoiseCount

Floats = NDArray[np.float64]
Number = TypeVar("Number", float, NDArray[np.float64])
LEAST_PARAMETER = 1e-300
"""Smaller numbers have fewer digits than a double."""
Outcomes = tuple[tuple[int, int, float], ...]
"""What may be sent: (ones, zeros, probability)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MechanismTwin(abc.ABC):
    """One instance of a mechanism. Fields besides `n_users` are the plan's parameters, under the plan's names."""

    name: ClassVar[str]
    one_message_each: ClassVar[bool] = False
    """Whether every user sends exactly one message in every instance."""
    reads_difference: ClassVar[bool] = False
    """Whether noise is sent as ones and as zeros, so that ones − zeros tells more than the ones."""
    spends_delta: ClassVar[bool] = True
    """Whether a promise with δ = 0 is impossible."""
    depends_on_others: ClassVar[bool] = False
    """Whether the others' bits change how well the target is hidden; else they only shift the counts."""
    many_messages: ClassVar[bool] = False
    """Whether a user sends thousands of messages: checks that draw them draw fewer samples."""
    prediction_is_bound: ClassVar[bool] = False
    """Whether the library's prediction of the error is an upper bound instead of the exact value."""

    shares: ClassVar[Mapping[str, str]] = {}
    """What plans list of the noise of one user: the name, and that of the whole which n users share."""

    transparent: ClassVar[Mapping[str, float | int]]
    """Parameters for tests of the execution: every ingredient shows, and messages are few. The plan has the others."""

    n_users: int
    """Users who share the noise."""

    @classmethod
    def of(cls, parameters: Mapping[str, float | int], n_users: int) -> Self:
        """From a plan's parameters, of which only those of the definition are read."""
        names = [field.name for field in dataclasses.fields(cls) if field.name != "n_users"]
        for name in names:
            if name not in parameters:
                raise InvalidInputError(f"the plan's parameters lack {name!r}; plan again.")
            if 0.0 < abs(parameters[name]) < LEAST_PARAMETER:
                raise InvalidInputError(f"{name}={parameters[name]!r} is below {LEAST_PARAMETER:g}; plan again.")
        return cls(n_users=n_users, **{name: parameters[name] for name in names})

    def unfounded(self, parameters: Mapping[str, float | int]) -> Iterator[str]:
        """Parameters that neither belong to the definition nor follow from those that do, as sentences."""
        known = dataclasses.asdict(self)
        known |= {share: known[whole] / self.n_users for share, whole in self.shares.items()}
        for name, value in parameters.items():
            if known.get(name) != value:
                yield f"the plan's parameters say {name}={value!r}, which does not follow from the others"

    # What a user sends

    @property
    def flip(self) -> float:
        """Probability that a bit is reported as the other one."""
        return 0.0

    @property
    def silence(self) -> float:
        """Probability that a user's input is not sent."""
        return 0.0

    @property
    def gain(self) -> float:
        """By how much the expected count grows if one user's bit changes from 0 to 1."""
        return (1.0 - 2.0 * self.flip) * (1.0 - self.silence)

    def report_probability(self, scaled: Number) -> Number:
        """Probability that a user with the feature f/R = `scaled` adds one to the count that is read."""
        return (1.0 - self.silence) * 0.5 * (1.0 + (1.0 - 2.0 * self.flip) * scaled)

    def sent(self, bit: int) -> Outcomes:
        """The messages that carry a reported bit; zeros that follow from the ones are left out."""
        return ((bit, 0, 1.0),)

    def inputs(self, chance: float) -> Outcomes:
        """What a user sends whose bit is one with probability `chance`, a flip included."""
        reported = self.flip + (1.0 - 2.0 * self.flip) * chance
        masses: dict[tuple[int, int], float] = {}
        for bit, share in ((1, reported), (0, 1.0 - reported)):
            for ones, zeros, mass in self.sent(bit):
                masses[ones, zeros] = masses.get((ones, zeros), 0.0) + share * mass
        return tuple((ones, zeros, mass) for (ones, zeros), mass in masses.items())

    def input_tables(self, sum_of_bits: int, n_users: int) -> Tables:
        """The messages that carry the bits of `n_users` users, `sum_of_bits` of which are 1."""
        return {"ones": point(sum_of_bits), "zeros": point(0), "ones − zeros": point(sum_of_bits)}

    # Noise

    @abc.abstractmethod
    def noise_counts(self) -> tuple[NoiseCount | None, NoiseCount | None, NoiseCount | None]:
        """All users' noise: what is added to the ones, to the zeros, and to both (the flood)."""

    def noise(self, n_users: int, *, tail: float = TAIL) -> Laws:
        """The noise of `n_users` of the users by SciPy: what is added to the ones, to the zeros, and to both."""
        share = n_users / self.n_users
        return tuple(point(0) if count is None else window(count.law(share), tail) for count in self.noise_counts())

    def noise_table(self) -> Floats:
        """The law of (ones, zeros) of all users' noise, from 40 digits."""
        ones, zeros, flood = (None if count is None else count.mass() for count in self.noise_counts())
        if ones is None:
            return np.ones((1, 1))
        if zeros is None or flood is None:
            return table(ones, sufficient_length(ones))[:, None]
        lengths = sufficient_length(ones), sufficient_length(flood)
        size = sum(lengths)
        if not self.spends_delta:  # ratios of masses matter everywhere, so no term of any sum may be left out
            lengths = (size, size)
        return plane_table(table(ones, lengths[0]), table(flood, lengths[1]), size)

    def noise_cumulants(self) -> tuple[float, float, float]:
        """The first, second and fourth of all users' noise in the count that is read; a flood cancels."""
        first = second = fourth = 0.0
        for sign, count in zip((1.0, -1.0), self.noise_counts()[:2], strict=True):
            if count is not None:
                mean, variance, kurtosis = (float(moment) for moment in count.law(1.0).stats("mvk"))
                first, second, fourth = first + sign * mean, second + variance, fourth + kurtosis * variance**2
        return first, second, fourth

    # What is counted

    @property
    def read_count(self) -> str:
        """The count that estimates are made of."""
        return "ones − zeros" if self.reads_difference else "ones"

    def counts(self, estimates: Floats, n_users: int) -> Floats:
        """The count that an estimate of the sum of bits of `n_users` users was made of."""
        certain = n_users * (1.0 - self.silence) * self.flip + self.noise_cumulants()[0]
        return np.asarray(self.gain * estimates + certain)

    def noise_parts(self, n_users: int) -> Parts:
        """What the noise adds to the ones, to the zeros, and to their difference."""
        ones, zeros, both = self.noise(n_users)
        return {"ones": (ones, both), "zeros": (zeros, both), "ones − zeros": (ones, times(zeros, -1))}

    def noise_tables(self, n_users: int) -> Tables:
        """The noise in the ones, in the zeros, and in their difference."""
        return {name: plus(*parts) for name, parts in self.noise_parts(n_users).items()}

    def tally_parts(self, sum_of_bits: int, n_users: int) -> Parts:
        """All messages of `n_users` users in one instance, as independent parts."""
        inputs, noise = self.input_tables(sum_of_bits, n_users), self.noise_parts(n_users)
        return {name: (inputs[name], *noise[name]) for name in inputs}

    def tally_tables(self, sum_of_bits: int, n_users: int) -> Tables:
        """All messages of `n_users` users in one instance."""
        return {name: plus(*parts) for name, parts in self.tally_parts(sum_of_bits, n_users).items()}

    # Exact and certified laws

    def exact_pairs(self) -> list[ExactPair] | None:
        """The shuffled output for the target's bit 1 and 0, for all bits of the others; None if it is not rational."""
        return None

    def certified_laws(self, tail: float, *, ones: int = 0, dropped: int = 0) -> TwoLaws:
        """The shuffled output for the target's bit 1 and 0, with at most about `tail` of it left out.

        `ones` of the others hold 1, and the reports of `dropped` others are given away. Here (1 + X, X), for the noise
        X in the ones. Not for mechanisms that spend no δ, which have `loss_bounds`.
        """
        noise = self.noise_counts()[0]
        assert noise is not None
        return shifted(noise.certified(tail))

    def certified_laws_below(self, tail: float, *, ones: int = 0) -> TwoLaws:
        """Laws for bounds from below: a pair that the shuffled output dominates."""
        return self.certified_laws(tail, ones=ones)

    def loss_bounds(self) -> LossBounds:
        """Bounds on the largest loss of one instance; only for mechanisms that spend no δ."""
        raise NotImplementedError(f"{self.name!r} spends δ: its largest loss is infinite")
