"""One record from its vector to the density, one function after the other, as CONTRIBUTING walks it."""

import numpy as np

from privkde import Analyzer, Announcement, Randomizer, Shuffler
from privkde.draws.randomness import private_randomness
from privkde.protocol.inputs import checked_vectors
from privkde.protocol.model import FeatureSums
from privkde.protocol.parties import new_ids
from tests.privkde.unplanned import announced, small_laws

X = np.array([[0.6], [-0.2], [0.9]], np.float32)


def packets(announcement: Announcement) -> list[bytes]:
    """The client's steps: checked vectors, features, bits, messages, packets."""
    stream = private_randomness(1)
    family, bitsum = announcement.family(), announcement.bitsum()
    vectors = checked_vectors(X, 1, longest=family.largest_norm)
    features = family.scaled_features(vectors)
    bits = bitsum.respond(features, stream)
    tally = bitsum.inputs(bits, stream) + bitsum.noise(1, bits.shape, stream)
    return announcement.wire_format().encode_users(tally, new_ids(len(X), stream), secret=False)


def test_the_steps_in_order_are_what_the_parties_do() -> None:
    announcement = announced(small_laws(3)["3nb"], users=3, repetitions=50)
    sent = packets(announcement)
    assert sent == Randomizer(announcement, stream=private_randomness(1)).packets(X)

    shuffler = Shuffler(announcement, stream=private_randomness(2))
    assert all(shuffler.receive(packet) for packet in sent)
    shuffled = shuffler.release()

    counts = announcement.wire_format().counts(shuffled).tally
    analyzer = Analyzer(announcement)
    assert analyzer.receive(shuffled)
    np.testing.assert_array_equal([counts.ones, counts.zeros], [analyzer.tally.ones, analyzer.tally.zeros])
    assert counts.ones.sum() > 0 < counts.zeros.sum()

    family, bound = announcement.family(), announcement.plan.request.facts().bound
    sums = (2.0 * announcement.bitsum().estimate(counts, 3) - 3) * bound
    np.testing.assert_array_equal(analyzer.sums(), sums)
    density = FeatureSums(family=family, sums=sums[None], n_users=(3,)).densities(X)
    np.testing.assert_allclose(density[:, 0], family.query_features(X) @ sums / (3 * 50), rtol=1e-5)
