"""The rounds of a collection: every order of calls, dropouts, small classes, and what the contract says at the end."""

import copy
import itertools
import pickle
import warnings
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from accounting.errors import InfeasibleError, InvalidInputError, PrivkdeError
from accounting.guarantee import Adjacency, View
from accounting.mechanisms import RandomizedResponse
from accounting.plan import Plan
from accounting.request import PlanRequest
from privkde.bitsum import Tally
from privkde.draws.randomness import ByteStream, private_randomness
from privkde.engines.local import collect
from privkde.protocol import rounds
from privkde.protocol.model import DensityModel
from privkde.protocol.parties import Analyzer, TooFewUsersError
from privkde.protocol.rounds import SMALL_CLASSES, Collection, ExcludedClassWarning, Round, Terms, WrongRoundError
from tests.plans import plan_for
from tests.privkde.unplanned import SEED, announced, unplanned

REQUEST: dict[str, Any] = {
    "kernel": "gaussian", "dim": 2, "repetitions": 4, "bitsum": "rr", "epsilon": 4.0, "delta": 1e-2,
    "accountant": "basic",
}  # fmt: skip
ABC = ("a", "b", "c")


def stream(*labels: str | int) -> ByteStream:
    return ByteStream(bytes(range(32))).child("test_rounds", *labels)


def terms(**given: Any) -> Terms:
    request = {**REQUEST, **given.pop("request", {})}
    return Terms(request=request, public_seed=SEED, **given)


def quick_plan(request: PlanRequest, *, progress: Callable[[str], None] | None = None) -> Plan:
    """A planner that takes no time; the noise depends on the number of users, and five are the fewest that will do."""
    if progress is not None:
        progress("planning quickly")
    if request.users < 5:
        raise InfeasibleError(f"users={request.users} are too few here.")
    law = RandomizedResponse(n_users=request.counted_users, flip_probability=1 / (request.users + 3))
    return replace(unplanned(law, dim=2, kernel="gaussian"), request=request)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "plan", quick_plan)


FIXED = plan_for(users=9, min_users=6, **REQUEST, allow_useless=True)
STRANGER = Analyzer(announced(RandomizedResponse(n_users=6, flip_probability=0.25)))


def counted(analyzer: Analyzer, n_users: int, ones: int = 0) -> Analyzer:
    """Another analyzer of the same collection with `n_users` reports, `ones` of them ones in every instance."""
    other = Analyzer(analyzer.announcement)
    other.add(Tally(np.full(4, ones), np.full(4, n_users - ones)), n_users, secret=True)
    return other


def snapshot(collection: Collection) -> tuple[Any, ...]:
    return (
        collection.round,
        collection.enrolled.tolist(),
        collection.released,
        [
            (
                analyzer.announcement,
                analyzer.n_users,
                analyzer.rejected,
                analyzer.tally.ones.tolist(),
                analyzer.tally.zeros.tolist(),
            )
            for analyzer in collection.analyzers
        ],
    )


class Orders(RuleBasedStateMachine):
    """Calls in any order: legal ones do what they say, others raise and change nothing."""

    collection: Collection

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(rounds, "plan", quick_plan)

    def teardown(self) -> None:
        self.patch.undo()

    @initialize(
        labels=st.sampled_from([(), ABC]),
        small=st.sampled_from(SMALL_CLASSES),
        least=st.sampled_from([None, 3, 7]),
        sizes=st.lists(st.sampled_from([0, 4, 6, 8, 30]), min_size=3, max_size=3),
    )
    def begin(self, labels: tuple[str, ...], small: str, least: int | None, sizes: list[int]) -> None:
        given: dict[str, Any] = {"labels": labels, "label_epsilon": 1.0} if labels else {}
        self.terms = terms(request={"min_users": least}, small_classes=small, **given)
        self.collection = Collection(self.terms)
        self.least = least
        self.enrolled = [0] * max(1, len(labels))
        self.stage = Round.ENROLLMENT
        self.users: list[int] = []
        self.needed: list[int] = []
        if labels:
            self.enroll_labels(np.repeat(np.arange(3), sizes).tolist())
        else:
            self.enroll(sizes[0])

    def refused(self, error: type[Exception], call: Callable[[], object]) -> None:
        before = snapshot(self.collection)
        with pytest.raises(error):
            call()
        assert snapshot(self.collection) == before

    @rule(n_users=st.integers(0, 9))
    def enroll(self, n_users: int) -> None:
        if self.stage is Round.ENROLLMENT and not self.terms.labels:
            self.collection.enroll(n_users)
            self.enrolled[0] += n_users
        else:
            self.refused(WrongRoundError, lambda: self.collection.enroll(n_users))

    @rule(reported=st.lists(st.integers(0, 2), max_size=25))
    def enroll_labels(self, reported: list[int]) -> None:
        numbers = np.array(reported, np.int64)
        if self.stage is Round.ENROLLMENT and self.terms.labels:
            self.collection.enroll_labels(numbers)
            self.enrolled = [count + reported.count(number) for number, count in enumerate(self.enrolled)]
        else:
            self.refused(WrongRoundError, lambda: self.collection.enroll_labels(numbers))

    @rule(fixed=st.sampled_from([None, None, FIXED]))
    def fix_plan(self, fixed: Plan | None) -> None:
        if self.stage is not Round.ENROLLMENT:
            self.refused(WrongRoundError, lambda: self.collection.fix_plan(fixed))
            return
        least = 6 if fixed else max(5, self.least or 0)
        released = tuple(number for number, count in enumerate(self.enrolled) if count >= least)
        complete = len(released) == len(self.enrolled)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            if not released or not (complete or (self.terms.labels and self.terms.small_classes == "exclude")):
                self.refused(PrivkdeError, lambda: self.collection.fix_plan(fixed))
                return
            announcements = self.collection.fix_plan(fixed)
        assert [warning.category for warning in caught] == [ExcludedClassWarning] * (len(self.enrolled) - len(released))
        self.stage, self.users = Round.COLLECTION, [0] * len(released)
        assert self.collection.released == released
        assert tuple(analyzer.announcement for analyzer in self.collection.analyzers) == announcements
        for number, announcement in zip(released, announcements, strict=True):
            assert announcement.group == (self.terms.labels[number] if self.terms.labels else "")
            assert announcement.plan.request.users == (9 if fixed else self.enrolled[number])
        self.needed = [6 if fixed else self.least or self.enrolled[number] for number in released]

    @rule(n_users=st.sampled_from([0, 5, 40, None]))
    def count_everywhere(self, n_users: int | None) -> None:
        """None: everybody who enrolled and was not counted yet."""
        for position in range(max(1, len(self.users))):
            left = self.enrolled[self.collection.released[position]] - self.users[position] if self.users else 0
            self.count(position, left if n_users is None else n_users)

    @rule(position=st.integers(0, 2))
    def count_one_too_many(self, position: int) -> None:
        if self.stage is Round.COLLECTION:
            position %= len(self.users)
            left = self.enrolled[self.collection.released[position]] - self.users[position]
            self.count(position, left + 1)

    @rule(position=st.integers(0, 2), n_users=st.integers(0, 12))
    def count(self, position: int, n_users: int) -> None:
        if self.stage is not Round.COLLECTION:
            known = self.collection.analyzers
            self.refused(
                WrongRoundError, lambda: self.collection.count(0, counted(known[0], n_users) if known else STRANGER)
            )
            return
        position %= len(self.users)
        self.refused(InvalidInputError, lambda: self.collection.count(position, STRANGER))
        counts = counted(self.collection.analyzers[position], n_users)
        if self.users[position] + n_users > self.enrolled[self.collection.released[position]]:
            self.refused(InvalidInputError, lambda: self.collection.count(position, counts))
            return
        self.collection.count(position, counts)
        self.users[position] += n_users

    @rule(private=st.booleans())
    def publish(self, private: bool) -> None:
        if self.stage is not Round.COLLECTION:
            self.refused(WrongRoundError, lambda: self.collection.publish(private=private))
        elif any(users < needed for users, needed in zip(self.users, self.needed, strict=True)):
            self.refused(TooFewUsersError, lambda: self.collection.publish(private=private))
        else:
            model = self.collection.publish(private=private)
            self.stage = Round.PUBLICATION
            assert model.n_users == tuple(self.users)
            assert model.private is private
            assert model.contract.component.startswith("NOT PRIVATE") is not private
            assert model.contract == self.collection.contract(private=private)
            assert len(model.labels) == (len(self.users) if self.terms.labels else 0)

    @rule(private=st.booleans())
    def contract(self, private: bool) -> None:
        if self.stage is Round.ENROLLMENT:
            self.refused(WrongRoundError, lambda: self.collection.contract(private=private))
        else:
            assert self.collection.contract(private=private).component.startswith("NOT PRIVATE") is not private

    @invariant()
    def agrees(self) -> None:
        if hasattr(self, "collection"):
            assert self.collection.round is self.stage
            assert self.collection.enrolled.tolist() == self.enrolled
            assert [analyzer.n_users for analyzer in self.collection.analyzers] == self.users


TestOrders = Orders.TestCase
TestOrders.settings = settings(max_examples=40, stateful_step_count=20)


@pytest.mark.slow
class TestMoreOrders(Orders.TestCase):  # type: ignore[misc, valid-type]
    settings = settings(max_examples=100, stateful_step_count=20)


def perform(collection: Collection, call: str) -> None:
    match call:
        case "enroll" if collection.terms.labels:
            collection.enroll_labels(np.arange(21) % 3)
        case "enroll":
            collection.enroll(7)
        case "count":
            for position, analyzer in enumerate(collection.analyzers or (STRANGER,)):
                everybody = int(collection.enrolled[collection.released[position]]) if collection.released else 7
                collection.count(position, counted(analyzer, everybody))
        case "fix_plan":
            collection.fix_plan()
        case _:
            collection.publish(private=True)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("labels", [(), ABC], ids=["one density", "classes"])
def test_of_all_orders_of_four_calls_only_the_right_ones_publish(labels: tuple[str, ...]) -> None:
    """All 4⁴ sequences: a call succeeds if and only if the round is its own."""
    published = []
    for sequence in itertools.product(("enroll", "fix_plan", "count", "publish"), repeat=4):
        collection = Collection(terms(labels=labels, label_epsilon=1.0) if labels else terms())
        stage = 0  # nobody enrolled, enrolled, fixed, counted, published
        for call in sequence:
            before = snapshot(collection)
            legal = (call, stage) in {
                ("enroll", 0), ("enroll", 1), ("fix_plan", 1), ("count", 2), ("publish", 3),
            }  # fmt: skip
            if not legal:
                # nobody enrolled, nobody counted and everybody counted twice are errors of their own
                own: dict[tuple[str, int], type[Exception]] = {
                    ("fix_plan", 0): PrivkdeError, ("publish", 2): TooFewUsersError, ("count", 3): InvalidInputError,
                }  # fmt: skip
                with pytest.raises(own.get((call, stage), WrongRoundError)):
                    perform(collection, call)
                assert snapshot(collection) == before
                continue
            perform(collection, call)
            stage = {"enroll": 1, "fix_plan": 2, "count": 3, "publish": 4}[call]
        if stage == 4:
            published.append(sequence)
    assert published == [("enroll", "fix_plan", "count", "publish")]


# Dropouts -----------------------------------------------------------------------------------------------------------


def enrolled_with_dropouts() -> Collection:
    """1000 enroll, the noise counts on 800."""
    collection = Collection(terms(request={"min_users": 800}))
    collection.enroll(600)
    collection.enroll(400)
    collection.fix_plan(plan_for(users=1000, **REQUEST, min_users=800))
    return collection


def rows(n_users: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.random.default_rng(7).normal(size=(n_users, 2))


def took_part(collection: Collection, first: int, last: int) -> None:
    (analyzer,) = collection.analyzers
    index = np.arange(first, last)
    counts = collect(analyzer.announcement, rows(1000), index, stream=stream("dropouts", first))
    collection.count(0, counts)


def corrected(analyzer: Analyzer, n_users: int) -> list[float]:
    """(2(#ones − np)/(1−2p) − n)√2 in fractions, with the n that took part."""
    p = Fraction(analyzer.announcement.plan.parameters["flip_probability"])
    estimates = [(ones - n_users * p) / (1 - 2 * p) for ones in analyzer.tally.ones.tolist()]
    return [float(2 * estimate - n_users) * 2**0.5 for estimate in estimates]


def test_dropouts_within_the_plan_are_published_with_the_number_that_took_part() -> None:
    collection = enrolled_with_dropouts()
    took_part(collection, 0, 500)
    took_part(collection, 500, 900)
    model = collection.publish(private=True)
    assert model.n_users == (900,)
    assert model.sums[0].tolist() == pytest.approx(corrected(collection.analyzers[0], 900), rel=1e-12)
    assert model.sums[0].tolist() != pytest.approx(corrected(collection.analyzers[0], 1000), rel=1e-3)
    assert model.plans[0].request.counted_users == 800
    feature_sums = np.sqrt(2) * model.announcements[0].family().scaled_features(rows(1000)[:900]).sum(axis=0)
    # 12 deviations of rounding and flips, sub-Gaussian with at most n/4·(2√2/(1−2p))²: far below 1e-20 for all four
    assert np.abs(model.sums[0] - feature_sums).max() < 12 * np.sqrt(900 / 4) * 2 * np.sqrt(2) / (1 - 2 * 0.0125)


def test_too_many_dropouts_publish_nothing_until_others_come() -> None:
    collection = enrolled_with_dropouts()
    took_part(collection, 0, 700)
    before = snapshot(collection)
    for _ in range(2):
        with pytest.raises(TooFewUsersError, match="700 users took part and the noise counts on 800"):
            collection.publish(private=True)
    assert snapshot(collection) == before
    took_part(collection, 700, 799)
    with pytest.raises(TooFewUsersError, match="799"):
        collection.publish(private=True)
    took_part(collection, 799, 800)
    model = collection.publish(private=True)
    assert model.n_users == (800,)
    assert model.sums[0].tolist() == pytest.approx(corrected(collection.analyzers[0], 800), rel=1e-12)
    with pytest.raises(WrongRoundError, match="publication"):
        took_part(collection, 0, 1)


def test_nobody_is_counted_who_did_not_enroll() -> None:
    """1000 enrolled: a second packet of somebody, or one of a stranger, would be the 1001st."""
    collection = enrolled_with_dropouts()
    analyzer = collection.analyzers[0]
    for n_users in (900, 100):
        before = snapshot(collection)
        with pytest.raises(InvalidInputError, match="1001 users would be counted and 1000 enrolled"):
            collection.count(0, counted(analyzer, 1001 - analyzer.n_users))
        assert snapshot(collection) == before
        collection.count(0, counted(analyzer, n_users))
    with pytest.raises(InvalidInputError, match="1001 users"):
        collection.count(0, counted(analyzer, 1))
    collection.count(0, counted(analyzer, 0))
    assert collection.publish(private=True).n_users == (1000,)


@pytest.mark.usefixtures("quick")
def test_each_class_is_counted_up_to_those_who_reported_it() -> None:
    """Positions are among the released classes, not among all of them."""
    collection = Collection(terms(labels=ABC, label_epsilon=1.0, small_classes="exclude"))
    collection.enroll_labels(np.repeat(np.arange(3), (1, 8, 6)))
    with pytest.warns(ExcludedClassWarning):
        collection.fix_plan()
    assert collection.released == (1, 2)
    for position, users in enumerate((8, 6)):
        analyzer = collection.analyzers[position]
        with pytest.raises(InvalidInputError, match=f"{users + 1} users would be counted and {users} enrolled"):
            collection.count(position, counted(analyzer, users + 1))
        collection.count(position, counted(analyzer, users))
    assert collection.publish(private=True).n_users == (8, 6)


@pytest.mark.parametrize("position", [-1, 1, 2**70, 0.0, True, None, "0"])
def test_positions_are_those_of_released_groups(position: Any) -> None:
    collection = enrolled_with_dropouts()
    before = snapshot(collection)
    with pytest.raises(InvalidInputError, match="position"):
        collection.count(position, counted(collection.analyzers[0], 5))
    assert snapshot(collection) == before


def test_whether_draws_were_secret_must_be_said() -> None:
    """Nobody is told that a collection is private because somebody forgot to say otherwise."""
    collection = enrolled_with_dropouts()
    collection.count(0, counted(collection.analyzers[0], 800))
    for call in (collection.contract, collection.publish):
        with pytest.raises(TypeError, match="private"):
            call()  # type: ignore[call-arg]
    assert collection.round is Round.COLLECTION


def test_a_mark_of_seeded_draws_cannot_be_talked_away() -> None:
    collection = enrolled_with_dropouts()
    collection.count(0, counted(collection.analyzers[0], 799))
    seeded = Analyzer(collection.analyzers[0].announcement)
    seeded.add(Tally(np.zeros(4, int), np.ones(4, int)), 1, secret=False)
    with pytest.raises(AttributeError):
        seeded.secret = True  # type: ignore[misc]
    collection.count(0, seeded)
    model = collection.publish(private=True)
    assert not model.private
    assert model.contract.component.startswith("NOT PRIVATE")


def test_without_min_users_everybody_is_counted_on() -> None:
    collection = Collection(terms())
    collection.enroll(60)
    (announcement,) = collection.fix_plan(plan_for(users=60, **REQUEST))
    assert announcement.least_packets == 60
    collection.count(0, counted(collection.analyzers[0], 59))
    with pytest.raises(TooFewUsersError):
        collection.publish(private=True)


def test_plans_made_before_must_fit_the_users_who_enrolled() -> None:
    made = plan_for(users=1000, **REQUEST, min_users=800)
    few = Collection(terms())
    few.enroll(799)
    with pytest.raises(InfeasibleError, match="799 users enrolled and the plan counts on 800"):
        few.fix_plan(made)
    assert few.round is Round.ENROLLMENT
    few.enroll(1)
    (announcement,) = few.fix_plan(made)
    assert announcement.plan is made


# The plan -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("labels", [(), ABC[:2]])
def test_a_plan_promises_no_less_than_the_terms_and_keeps_it(labels: tuple[str, ...]) -> None:
    """The attack: terms of a small ε, which is what is charged, and a plan of a large one, or one without noise."""
    collection = Collection(terms(labels=labels, label_epsilon=0.5 if labels else None))
    if labels:
        collection.enroll_labels(np.repeat([0, 1], 30))
    else:
        collection.enroll(30)
    made = plan_for(users=20, **REQUEST)
    for weaker in ({"epsilon": 4.1}, {"delta": 1.1e-2}):
        with pytest.raises(InvalidInputError, match=r"the plan promises .* plan for what was agreed on"):
            collection.fix_plan(plan_for(users=20, **REQUEST | weaker))
    with pytest.raises(InvalidInputError, match="do not keep"):
        collection.fix_plan(replace(made, parameters={"flip_probability": 1e-9}))
    assert collection.round is Round.ENROLLMENT
    assert collection.fix_plan(plan_for(users=20, **REQUEST | {"epsilon": 3.0}))


def test_terms_are_what_they_were_when_the_collection_began() -> None:
    """A regression: one dict served two collections, and the first was charged what the second promised."""
    request = dict(REQUEST)
    agreed = Terms(request=request, labels=list(ABC[:2]), label_epsilon=0.5)  # type: ignore[arg-type]
    request["epsilon"] = 0.1
    assert agreed.features_guarantee(View.MODEL).epsilon == REQUEST["epsilon"]
    assert agreed.labels == ABC[:2]
    with pytest.raises(TypeError):
        agreed.request["epsilon"] = 0.1  # type: ignore[index]


@pytest.mark.parametrize("agreed", [{"colluders": 5}, {"colluders": 0.2}, {"min_users": 15}, {"dropout": 5}])
def test_a_plan_counts_on_no_more_honest_users_than_the_terms(agreed: dict[str, Any]) -> None:
    collection = Collection(terms(request=agreed))
    collection.enroll(20)
    with pytest.raises(InvalidInputError, match=r"counts on 20 honest users and on 0 colluders, the terms on 1\d and"):
        collection.fix_plan(plan_for(users=20, **REQUEST))
    assert collection.fix_plan(plan_for(users=20, **REQUEST, **agreed))


def test_a_plan_whose_protocol_spends_delta_is_none_for_pure_terms() -> None:
    collection = Collection(terms(request=REQUEST | {"bitsum": "pure"}))
    collection.enroll(30)
    with pytest.raises(InvalidInputError, match=r"delta=0\.01 and the terms epsilon=4, delta=0;"):
        collection.fix_plan(plan_for(users=20, **REQUEST))


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_collection_is_not_copied(copied: Callable[[Collection], Any]) -> None:
    """The attack: one charge for a round of labels, and two copies that publish."""
    with pytest.raises(InvalidInputError, match="published once"):
        copied(Collection(terms()))


def test_all_releases_of_a_schedule_have_the_plan_that_was_made_beforehand() -> None:
    """What was composed is one plan several times; one for those who happen to enroll this week may be another."""
    weekly = plan_for(users=9, min_users=6, releases=52, **REQUEST, allow_useless=True)
    request = {**terms().request, "releases": 52}
    for labels in ((), ABC[:2]):
        collection = Collection(Terms(request=request, labels=labels, label_epsilon=0.5 if labels else None))
        if labels:
            collection.enroll_labels(np.repeat([0, 1], 8))
        else:
            collection.enroll(8)
        with pytest.raises(InvalidInputError, match="all releases of a schedule have the same one"):
            collection.fix_plan()
        if labels:
            with pytest.raises(InvalidInputError, match="the plan is for 1 releases and the terms for 52"):
                collection.fix_plan(FIXED)
        assert [one.plan for one in collection.fix_plan(weekly)] == [weekly] * max(1, len(labels))
    label = [g.epsilon for g in collection.contract(private=True).guarantees if g.adjacency is Adjacency.LABEL]
    assert label == [26.0] * 3


def test_plan_is_made_for_the_enrolled_users_by_the_planner() -> None:
    """Real plans for two classes of different size: more users, less noise for each of them."""
    said: list[str] = []
    collection = Collection(terms(labels=("small", "large"), label_epsilon=2.0, bandwidth=3.0, projection=1))
    collection.enroll_labels(np.array([0] * 30 + [1] * 60))
    collection.enroll_labels(np.array([0] * 10))
    announcements = collection.fix_plan(progress=said.append)
    assert [announcement.plan for announcement in announcements] == [plan_for(users=n, **REQUEST) for n in (40, 60)]
    flips = [float(announcement.plan.parameters["flip_probability"]) for announcement in announcements]
    assert flips[0] > flips[1]
    assert said
    assert [
        (announcement.group, announcement.public_seed, announcement.bandwidth, announcement.projection)
        for announcement in announcements
    ] == [
        ("small", SEED, 3.0, 1),
        ("large", SEED, 3.0, 1),
    ]
    for position, (users, announcement) in enumerate(zip((40, 60), announcements, strict=True)):
        counts = collect(announcement, rows(users), np.arange(users), stream=private_randomness())
        message = ("another collection", "100 users would be counted and 40 enrolled")[position]
        with pytest.raises(InvalidInputError, match=message):
            collection.count(1 - position, counts)
        collection.count(position, counts)
    model = collection.publish(private=True)
    assert model.labels == ("small", "large")
    assert model.n_users == (40, 60)
    for analyzer, users, sums in zip(collection.analyzers, (40, 60), model.sums, strict=True):
        assert sums.tolist() == pytest.approx(corrected(analyzer, users), rel=1e-12)
    _states_both_budgets(model)


def _states_both_budgets(model: DensityModel) -> None:
    stated = {(g.adjacency, g.view): (g.epsilon, g.delta) for g in model.contract.guarantees}
    assert stated[Adjacency.FEATURES, View.COMMUNICATION] == (4.0, 1e-2)
    assert stated[Adjacency.RECORD, View.COMMUNICATION] == pytest.approx((6.0, 1e-2))
    assert stated[Adjacency.LABEL, View.LOCAL] == (2.0, 0.0)
    assert len(model.contract.parts) == 3


@pytest.mark.usefixtures("quick")
def test_contract_says_not_private_for_seeded_draws() -> None:
    for labels in ((), ABC):
        collection = Collection(terms(labels=labels, label_epsilon=1.0) if labels else terms())
        if labels:
            collection.enroll_labels(np.arange(30) % 3)
        else:
            collection.enroll(10)
        collection.fix_plan()
        for position, analyzer in enumerate(collection.analyzers):
            collection.count(position, counted(analyzer, 10))
        private, seeded = collection.contract(private=True), collection.contract(private=False)
        assert "NOT PRIVATE" not in str(private)
        assert str(seeded).startswith("NOT PRIVATE")
        assert all(g.is_empty for g in seeded.guarantees)
        assert {(g.adjacency, g.view) for g in seeded.guarantees} == {(g.adjacency, g.view) for g in private.guarantees}
        assert not all(g.is_empty for g in private.guarantees)
        assert seeded.parts == (private,)
        model = collection.publish(private=False)
        assert (model.private, model.contract) == (False, seeded)


# Small classes ------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("least", "sizes", "released"),
    [
        (None, (8, 4, 9), (0, 2)),  # the planner finds no plan
        (None, (8, 1, 0), (0,)),  # too few for any plan
        (7, (6, 7, 30), (1, 2)),  # fewer than the noise has to survive with
    ],
)
def test_small_classes_are_refused_or_excluded(
    least: int | None, sizes: tuple[int, ...], released: tuple[int, ...]
) -> None:
    reported = np.repeat(np.arange(3), sizes)
    first = next(number for number in range(3) if number not in released)
    refusing = Collection(terms(labels=ABC, label_epsilon=1.0, request={"min_users": least}))
    refusing.enroll_labels(reported)
    with pytest.raises(PrivkdeError, match=f"class '{ABC[first]}', reported by {sizes[first]} users") as refused:
        refusing.fix_plan()
    assert "Labels were reported: their part of epsilon is spent. small_classes='exclude'" in str(refused.value)
    assert snapshot(refusing) == (Round.ENROLLMENT, list(sizes), (), [])
    excluding = Collection(terms(labels=ABC, label_epsilon=1.0, request={"min_users": least}, small_classes="exclude"))
    excluding.enroll_labels(reported)
    with pytest.warns(ExcludedClassWarning) as caught:
        announcements = excluding.fix_plan()
    assert [str(warning.message).split(":")[0] for warning in caught] == ["excluded"] * (3 - len(released))
    assert f"class '{ABC[first]}', reported by {sizes[first]} users" in str(caught[0].message)
    assert excluding.released == released
    assert [announcement.group for announcement in announcements] == [ABC[number] for number in released]
    for position, analyzer in enumerate(excluding.analyzers):
        excluding.count(position, counted(analyzer, sizes[released[position]]))
    model = excluding.publish(private=True)
    assert model.labels == tuple(ABC[number] for number in released)
    assert len(model.contract.parts) == 1 + len(released)
    assert model.contract.parameters["classes"] == 3, "randomized response was over all classes"


@pytest.mark.usefixtures("quick")
def test_no_class_large_enough_is_an_error_even_if_small_ones_may_be_excluded() -> None:
    collection = Collection(terms(labels=ABC, label_epsilon=1.0, small_classes="exclude"))
    collection.enroll_labels(np.array([0, 1, 2]))
    with pytest.warns(ExcludedClassWarning), pytest.raises(InfeasibleError, match="every class is too small"):
        collection.fix_plan()
    assert collection.round is Round.ENROLLMENT


def test_other_errors_are_not_taken_for_small_classes() -> None:
    """A plan for classes is a forecast and no announcement, however many users there are."""
    forecast = plan_for(users=20, classes=2, labels="separate", label_epsilon=0.5, **REQUEST, allow_useless=True)
    labeled = Collection(terms(labels=ABC, label_epsilon=1.0, small_classes="exclude"))
    labeled.enroll_labels(np.arange(300) % 3)
    with pytest.raises(InvalidInputError, match="class 'a', reported by 100 users: the plan is for 2 classes"):
        labeled.fix_plan(forecast)
    unlabeled = Collection(terms())
    unlabeled.enroll(10)
    with pytest.raises(InvalidInputError, match=r"^the plan is for 2 classes"):
        unlabeled.fix_plan(forecast)


# Terms and enrollment -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given",
    [
        {"small_classes": "keep"},
        {"labels": ABC},
        {"labels": ("a",), "label_epsilon": 1.0},
        {"labels": ABC, "label_epsilon": 0.0},
        {"labels": ("a", "b", "a"), "label_epsilon": 1.0},
        {"labels": (1, "1"), "label_epsilon": 1.0},
        {"request": {"kernel": "gausian"}},
        {"request": {"delta": 2.0}},
        {"request": {"epsilon": -1.0}},
        {"request": {"dimension": 3}},
        {"request": {"dim": None}},
        {"bandwidth": 0.0},
        {"projection": 3},
    ],
    ids=str,
)
def test_impossible_terms_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError):
        terms(**given)


@pytest.mark.parametrize("reported", [[0, 3], [-1, 0], [5], [-(2**40)]])
def test_labels_out_of_range_are_refused(reported: list[int]) -> None:
    collection = Collection(terms(labels=ABC, label_epsilon=1.0))
    with pytest.raises(InvalidInputError, match="not one of the 3 classes"):
        collection.enroll_labels(np.array(reported))
    assert collection.enrolled.tolist() == [0, 0, 0]
    collection.enroll_labels(np.array([2, 2, 0], np.uint8))
    assert collection.enrolled.tolist() == [1, 0, 2]


@pytest.mark.parametrize(
    "reported", [[0.0, 1.0], ["a"], ["0"], [True, False], [None], [[0, 1]], [0, None], 1, None], ids=str
)
def test_reports_that_are_no_class_numbers_are_refused(reported: Any) -> None:
    collection = Collection(terms(labels=ABC, label_epsilon=1.0))
    for given in (reported, np.asarray(reported)):
        with pytest.raises(InvalidInputError, match="give class numbers"):
            collection.enroll_labels(given)
    assert collection.enrolled.tolist() == [0, 0, 0]


def test_reports_may_be_lists() -> None:
    collection = Collection(terms(labels=ABC, label_epsilon=1.0))
    for reported in ([2, 0, 2], (1, 2), [], np.zeros(0)):
        collection.enroll_labels(reported)  # type: ignore[arg-type]
    assert collection.enrolled.tolist() == [1, 1, 3]


@pytest.mark.parametrize("n_users", [-1, 2.0, True, "3"])
def test_numbers_of_users_are_whole(n_users: Any) -> None:
    collection = Collection(terms())
    with pytest.raises(InvalidInputError, match="users"):
        collection.enroll(n_users)
    assert collection.enrolled.tolist() == [0]


def test_seeds_are_fresh_unless_given() -> None:
    with pytest.raises(InvalidInputError, match="public_seed"):
        Terms(request=REQUEST, public_seed="00")
    made = [Terms(request=REQUEST).public_seed for _ in range(2)]
    assert made[0] != made[1]
    assert [len(bytes.fromhex(seed)) for seed in made] == [16, 16]
    assert Terms(request=REQUEST, public_seed=SEED).public_seed == SEED


def test_what_a_request_may_leave_out_may_be_left_out_and_nothing_else() -> None:
    assert Terms(request={"dim": 2, "epsilon": 1.0, "delta": 1e-3}).small_classes == "refuse"
    with pytest.raises(InvalidInputError, match="dim"):
        Terms(request={"epsilon": 1.0, "delta": 1e-3})


def test_wrong_rounds_say_where_the_collection_stands() -> None:
    collection = Collection(terms())
    with pytest.raises(WrongRoundError, match="collection round; the collection is in the enrollment round"):
        collection.publish(private=True)
    with pytest.raises(WrongRoundError, match="without reporting a label"):
        collection.enroll_labels(np.array([0]))
    with pytest.raises(WrongRoundError, match="enroll_labels"):
        Collection(terms(labels=ABC, label_epsilon=1.0)).enroll(3)
    assert issubclass(WrongRoundError, PrivkdeError)
    assert [step.value for step in Round] == ["enrollment", "collection", "publication"]


def test_what_is_counted_while_a_collection_is_published_is_not_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The attack: sums of 800 users were published as those of 900."""
    collection = enrolled_with_dropouts()
    collection.count(0, counted(collection.analyzers[0], 800, ones=3))
    right, late = Analyzer.sums, counted(collection.analyzers[0], 100, ones=100)
    expected = collection.analyzers[0].sums()

    def counting_meanwhile(analyzer: Analyzer) -> Any:
        sums = right(analyzer)
        collection.analyzers[0].merge(late)
        return sums

    monkeypatch.setattr(Analyzer, "sums", counting_meanwhile)
    model = collection.publish(private=True)
    assert model.n_users == (800,)
    np.testing.assert_array_equal(model.sums[0], expected)
    assert collection.analyzers[0].n_users == 900
