"""Lower bounds on ε from attacks on the implementation: refuted if an attack shows more than was promised.

Each check plans a miniature of the subject's kind (200 users, 16 repetitions), takes neighbors that are as far apart as
the kernel allows, draws many views of both through the library's own randomizers, scores them and bounds ε from
below (`epsilon_bounds`). The bound holds with probability 1 − `CHECK_ALPHA` whatever the scores are. Noise is drawn for
all users at once, as the aggregated path of the engine does; the black-box check also attacks the faithful path.
"""

from __future__ import annotations

from accounting import InfeasibleError
from accounting.guarantee import View
from privkde.draws.randomness import private_randomness
from verification.statistical.distinguishers.arena import Arena
from verification.statistical.distinguishers.attacks import attack_finding
from verification.statistical.distinguishers.black_box import stacked, trained_attacks
from verification.statistical.distinguishers.classifier_attacks import joint_attacks, separate_attacks
from verification.statistical.distinguishers.collected_views import attacked
from verification.statistical.distinguishers.faithful import USERS, n_views, sent_views, small_plan
from verification.twins import TWINS, needs_kernel_twin, needs_twins
from verification.verdicts import Effort, Finding, Layer, Subject, check

WHITE_BOX, WHITE_BOX_GROWTH = 2, 1.3
"""White-box attacks get twice as many views; that on messages with the scale to this power: 1.6 million at scale 10."""
AGGREGATED = "Noise of all users is drawn at once (aggregated path)."


def _needs_small_plan(subject: Subject) -> str:
    """A mechanism that the checks do not know may be infeasible for so few users; of the others that is an error."""
    missing = needs_kernel_twin(subject)
    if missing or subject.plan.bitsum in TWINS:
        return missing
    try:
        attacked(subject.plan)
    except InfeasibleError:
        return f"no plan with {subject.plan.bitsum!r} is feasible for the few users of an attack"
    return ""


@check("distinguisher-communication", Layer.STATISTICAL, "likelihood-ratio attack on all messages", needs=needs_twins)
def communication(subject: Subject, effort: Effort, seed: int) -> Finding:
    """The likelihood-ratio test on everything that leaves the shuffler."""
    arena = Arena.of(subject, seed)
    attacks = arena.attacks((View.COMMUNICATION,), arena.count(WHITE_BOX * effort.scale**WHITE_BOX_GROWTH))
    claim = f"no attack on the messages of {arena.size} shows more"
    note = f"Σt² = {arena.neighbors.squared_shift:.4g} of the target's bits. {AGGREGATED}"
    return attack_finding(claim, attacks, note)


@check("distinguisher-model", Layer.STATISTICAL, "likelihood-ratio attack on the published sums", needs=needs_twins)
def model(subject: Subject, effort: Effort, seed: int) -> Finding:
    """The likelihood-ratio test on the published sums alone."""
    arena = Arena.of(subject, seed)
    attacks = arena.attacks((View.MODEL,), arena.count(WHITE_BOX * effort.scale))
    note = f"Densities are post-processing of the sums, so no attack on them can do better. {AGGREGATED}"
    return attack_finding(f"no attack on the model of {arena.size} shows more", attacks, note)


@check("distinguisher-black-box", Layer.STATISTICAL, "attacks that do not know the law", needs=_needs_small_plan)
def black_box(subject: Subject, effort: Effort, seed: int) -> Finding:
    """Attacks that do not know the law: a histogram along the difference of means, and a trained scorer.

    On the messages of 200 users, and on those of 8 users whose packets pass through all parties (`faithful`).
    """
    arena, randomness = Arena.of(subject, seed), private_randomness(seed)
    count = arena.count(effort.scale)
    rows = (stacked(arena.drawn(is_first, count)) for is_first in (True, False))
    attacks = trained_attacks("messages", arena.claim(View.COMMUNICATION), *rows)
    note = "Trained on fresh views; no knowledge of the law."
    try:
        small = small_plan(subject.plan)
    except InfeasibleError:
        note += f" Only the aggregated path: no plan of this kind is feasible for {USERS} users who send packets."
    else:
        sent = n_views(small, effort.scale)
        rows = (sent_views(small, randomness, first=is_first, count=sent) for is_first in (True, False))
        attacks += trained_attacks("packets (faithful path)", small.guarantees[0], *rows)
        note += (
            f" Faithful path: every message of {USERS} users is packed, shuffled and counted by the library's parties;"
            " the other views are aggregated."
        )
    return attack_finding(f"no black-box attack on {arena.size} shows more", attacks, note)


@check(
    "distinguisher-classifier",
    Layer.STATISTICAL,
    "attack on a record with its label, and on the label alone",
    applies=lambda subject: subject.plan.request.classes is not None,
    needs=needs_twins,
)
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
    return attack_finding(claim, attacks, f"{together if joint else apart} {AGGREGATED}")


CHECKS = (communication, model, black_box, classifier)
