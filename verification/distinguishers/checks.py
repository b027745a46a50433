"""Lower bounds on ε from attacks on the implementation: refuted if an attack shows more than was promised.

Each check plans a miniature of the subject's kind (200 users, 16 repetitions), takes neighbors that are as far apart as
the kernel allows, draws many views of both through the library's own randomizers, scores them and bounds ε from
below (`epsilon_bounds`). The bound holds with probability 1 − `CHECK_ALPHA` whatever the scores are. Noise is drawn for
all users at once, as the aggregated path of the engine does; the black-box check also attacks the faithful path.
"""

from __future__ import annotations

from accounting.guarantee import View
from privkde.randomness import private_randomness
from verification.distinguishers.arena import Arena
from verification.distinguishers.attacks import attack_finding
from verification.distinguishers.black_box import stacked, trained_attacks
from verification.distinguishers.classifier import joint_attacks, separate_attacks
from verification.distinguishers.faithful import USERS, FaithfulCollection, small_plan
from verification.verdicts import Check, Effort, Finding, Layer, Subject

WHITE_BOX, WHITE_BOX_GROWTH = 2, 1.3
"""White-box attacks get twice as many views; that on messages with the scale to this power: 1.6 million at scale 10."""
AGGREGATED = "Noise of all users is drawn at once (aggregated path)."


def communication(subject: Subject, effort: Effort, seed: int) -> Finding:
    """The likelihood-ratio test on everything that leaves the shuffler."""
    arena = Arena.of(subject, seed)
    attacks = arena.attacks((View.COMMUNICATION,), arena.count(WHITE_BOX * effort.scale**WHITE_BOX_GROWTH))
    claim = f"no attack on the messages of {arena.size} shows more"
    note = f"Σt² = {arena.neighbors.squared_shift:.4g} of the target's bits. {AGGREGATED}"
    return attack_finding(COMMUNICATION, claim, attacks, seed, note)


def model(subject: Subject, effort: Effort, seed: int) -> Finding:
    """The likelihood-ratio test on the published sums alone."""
    arena = Arena.of(subject, seed)
    attacks = arena.attacks((View.MODEL,), arena.count(WHITE_BOX * effort.scale))
    note = f"Densities are post-processing of the sums, so no attack on them can do better. {AGGREGATED}"
    return attack_finding(MODEL, f"no attack on the model of {arena.size} shows more", attacks, seed, note)


def black_box(subject: Subject, effort: Effort, seed: int) -> Finding:
    """Attacks that do not know the law: a histogram along the difference of means, and a trained scorer.

    On the messages of 200 users, and on those of 8 users whose packets pass through all parties (`faithful`).
    """
    arena, randomness = Arena.of(subject, seed), private_randomness(seed)
    count = arena.count(effort.scale)
    rows = (stacked(arena.drawn(is_first, count)) for is_first in (True, False))
    attacks = trained_attacks("messages", arena.claim(View.COMMUNICATION), *rows)
    parties = FaithfulCollection(
        plan=small_plan(subject.plan), public_seed=randomness.public_seed(), stream=randomness.stream
    )
    promise, sent = parties.plan.guarantees[0], parties.count(effort.scale)
    rows = (parties.views(is_first, sent) for is_first in (True, False))
    attacks += trained_attacks("packets (faithful path)", promise, *rows)
    note = (
        "Trained on fresh views; no knowledge of the law. Faithful path: every message of"
        f" {USERS} users is packed, shuffled and counted by the library's parties; the other views are aggregated."
    )
    return attack_finding(BLACK_BOX, f"no black-box attack on {arena.size} shows more", attacks, seed, note)


def classifier(subject: Subject, effort: Effort, seed: int) -> Finding:
    """Replacing (x, c), and the label alone: the messages with the reported label, and what is published."""
    joint = subject.plan.request.joint
    attacks = joint_attacks(subject, effort, seed) if joint else separate_attacks(subject, effort, seed)
    together, apart = (
        "Joint labels: one ε for both, in both views.",
        "Separate labels: ε + ε_lbl for both, ε for x, ε_lbl for the label, in both views; the model is that of 3 users"
        " in up to 3 classes, each planned for its realized size.",
    )
    claim = "no attack on a record with its label, in messages or model, shows more than is promised for it"
    return attack_finding(CLASSIFIER, claim, attacks, seed, f"{together if joint else apart} {AGGREGATED}")


COMMUNICATION, MODEL = "distinguisher-communication", "distinguisher-model"
BLACK_BOX, CLASSIFIER = "distinguisher-black-box", "distinguisher-classifier"

CHECKS: tuple[Check, ...] = (
    Check(
        name=COMMUNICATION,
        layer=Layer.STATISTICAL,
        about="likelihood-ratio attack on all messages",
        run=communication,
    ),
    Check(name=MODEL, layer=Layer.STATISTICAL, about="likelihood-ratio attack on the published sums", run=model),
    Check(name=BLACK_BOX, layer=Layer.STATISTICAL, about="attacks that do not know the law", run=black_box),
    Check(
        name=CLASSIFIER,
        layer=Layer.STATISTICAL,
        about="attack on a record with its label, and on the label alone",
        run=classifier,
        applies=lambda subject: subject.plan.request.classes is not None,
    ),
)
