"""The local baseline: every user is protected alone, nobody is trusted, and there is no shuffler.

The plan calibrates it for its own (ε, δ) (`accounting.accuracy.baselines`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from accounting import Plan
from privkde.bitsum import Bitsum, Tally
from privkde.bitsum.randomized_response import RandomizedResponseBitsum
from privkde.draws.randomness import ByteStream
from privkde.draws.sampling import column_sums
from privkde.kernels import LsqFamily
from privkde.learning.baselines import admitted, nonempty_sizes, planned_parameter
from privkde.protocol.inputs import Rows
from privkde.protocol.model import FeatureSums, Floats
from privkde.storage.user_blocks import Index, in_blocks


def local_sums(
    family: LsqFamily, plans: Sequence[Plan], rows: Rows, groups: Sequence[Index], *, stream: ByteStream
) -> FeatureSums:
    """Randomized response strong enough to protect each user alone."""
    sums, n_users = [], nonempty_sizes(groups)
    for number, (plan, index) in enumerate(zip(plans, groups, strict=True)):
        flip = planned_parameter(family, plan, "local", "flip_probability")
        response: Bitsum = RandomizedResponseBitsum(flip=flip)
        draws = stream.child("local", number)

        def work(part: Index, start: int, response: Bitsum = response, draws: ByteStream = draws) -> Floats:
            scaled = family.scaled_features(admitted(family, rows, part))
            return column_sums(response.respond(scaled, draws.child(start))).astype(np.float64)

        ones = np.sum(in_blocks(work, index, family.facts.n_instances), axis=0)
        estimate = response.estimate(Tally(ones, len(index) - ones), len(index))
        sums.append((2.0 * estimate - len(index)) * family.facts.bound)
    return FeatureSums(family=family, sums=np.stack(sums), n_users=n_users)
