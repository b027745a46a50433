"""What the analyzer counts for a whole group, drawn at once given how many users hold a one.

Counts have the law of the protocol's: users with the same bit in an instance send independent messages of one law, and
shares of noise add up to one draw. For n users of whom B hold a one, with the symbols of each mechanism:

    rr      ones = Bin(B, 1 − p) + Bin(n − B, p), zeros = n − ones
    3nb     ones = B + Ψ1 + Ψ3, zeros = Ψ2 + Ψ3
    pure    speakers S1 = Bin(B, 1 − q), S0 = Bin(n − B, 1 − q), S = S0 + S1;
            ones = sS + S1 + Z1 + F, zeros = sS + Z2 + F

Draws are NumPy's: quick enough for thousands of collections, good enough for a study, not to be sent by anybody.
Source: docs/proofs/sampling.md.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from accounting import InvalidInputError
from accounting.mechanisms import BitsumProtocol, Pure, RandomizedResponse, ThreeNegativeBinomial
from privkde.bitsum import Tally
from privkde.draws.randomness import ByteStream

Counts = NDArray[np.int64]


def counted(protocol: BitsumProtocol, bit_sums: Counts, n_users: int, draws: np.random.Generator) -> Tally:
    """Ones and zeros in every instance of a group of `n_users`, of whom `bit_sums` hold a one.

    >>> law = RandomizedResponse(n_users=100, flip_probability=0.25)
    >>> tally = counted(law, np.array([0, 100]), 100, np.random.Generator(np.random.Philox(1)))
    >>> (tally.ones + tally.zeros).tolist()
    [100, 100]
    """
    if isinstance(protocol, RandomizedResponse):
        flip = protocol.flip_probability
        ones = draws.binomial(bit_sums, 1.0 - flip) + draws.binomial(n_users - bit_sums, flip)
        return Tally(ones, n_users - ones)
    if isinstance(protocol, ThreeNegativeBinomial):
        return _correlated(protocol, bit_sums, n_users, draws)
    if isinstance(protocol, Pure):
        return _pure(protocol, bit_sums, n_users, draws)
    raise InvalidInputError(f"bitsum {protocol.name!r} is not among the paper's; choose rr, 3nb or pure.")


def _correlated(law: ThreeNegativeBinomial, bit_sums: Counts, n_users: int, draws: np.random.Generator) -> Tally:
    present = n_users / law.n_users
    plus, minus = (
        _negative_binomial(law.noise_shape * present, law.continue_probability, bit_sums.shape, draws) for _ in range(2)
    )
    pairs = _negative_binomial(law.flood_shape * present, law.flood_continue_probability, bit_sums.shape, draws)
    return Tally(bit_sums + plus + pairs, minus + pairs)


def _pure(law: Pure, bit_sums: Counts, n_users: int, draws: np.random.Generator) -> Tally:
    present, speaks = n_users / law.n_users, 1.0 - law.silence_probability
    ones, zeros = draws.binomial(bit_sums, speaks), draws.binomial(n_users - bit_sums, speaks)
    base = law.base_messages * (ones + zeros)
    continued = math.exp(-law.noise_epsilon)
    plus, minus = (_negative_binomial(present, continued, bit_sums.shape, draws) for _ in range(2))
    pairs = _negative_binomial(law.flood_shape * present, law.flood_continue_probability, bit_sums.shape, draws)
    return Tally(base + ones + plus + pairs, base + minus + pairs)


def _negative_binomial(
    shape: float, continue_probability: float, size: tuple[int, ...], draws: np.random.Generator
) -> Counts:
    """NB(r, p) with p the probability to go on; NumPy's p is the probability to stop."""
    return draws.negative_binomial(shape, 1.0 - continue_probability, size)


def study_generator(stream: ByteStream) -> np.random.Generator:
    """A NumPy generator keyed by a stream: for studies of accuracy, never for what a user sends.

    Its draws are quick and not exact, so a secret stream, which protects somebody, is refused.
    """
    if stream.secret:
        raise InvalidInputError("this stream is secret, and a study draws from a seeded one; pass an insecure_seed.")
    return np.random.Generator(np.random.Philox(key=int.from_bytes(stream.take(16).tobytes())))
