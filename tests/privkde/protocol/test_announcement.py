"""The announcement: public, complete, the same for everybody, and refused if any part of it is not one."""

import copy
import dataclasses
import hashlib
import inspect
import itertools
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from accounting import InvalidInputError, Plan
from accounting.composition import LADDER
from accounting.kernels import KERNELS
from accounting.mechanisms import BITSUMS
from privkde.bitsum import EXECUTED
from privkde.kernels import KernelChoice
from privkde.protocol.announcement import SCHEMA, Announcement, RefusedAnnouncementError
from tests.memory import MEGABYTE, peak
from tests.plans import plan_for
from tests.privkde.unplanned import SEED, announced, small_laws, unplanned

GAUSSIAN: dict[str, Any] = {"kernel": "gaussian", "dim": 3, "repetitions": 4}


def announcement(bitsum: str = "rr", **changes: Any) -> Announcement:
    return dataclasses.replace(announced(small_laws(5)[bitsum], group="a", **GAUSSIAN), **changes)


@pytest.mark.parametrize("bitsum", BITSUMS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_json_round_trip(kernel: str, bitsum: str) -> None:
    repetitions = None if kernel == "inner-product" else 4
    bias = 0.25 if kernel in ("laplacian", "exponential") else None
    original = announced(small_laws(5)[bitsum], kernel=kernel, dim=3, repetitions=repetitions, bias=bias, group="ü")
    text = json.dumps(original.to_json(), allow_nan=False)
    other = Announcement.from_json(json.loads(text))
    assert other == original
    assert other.collection() == original.collection()
    assert other.bitsum() == original.bitsum()
    x = np.full((1, 3), 0.5, np.float32)
    np.testing.assert_array_equal(other.family().scaled_features(x), original.family().scaled_features(x))


def test_what_it_says_is_what_was_planned() -> None:
    law = small_laws(5)["rr"]
    plan = unplanned(law, users=9, **GAUSSIAN)
    planned = Announcement(plan=plan, public_seed=SEED, bandwidth=2.0, projection=2)
    assert planned.kernel_choice() == KernelChoice(name="gaussian", dim=3, repetitions=4, bandwidth=2.0, projection=2)
    assert (planned.n_instances, planned.least_packets, planned.group) == (4, 5, "")
    assert planned.bitsum() == EXECUTED["rr"].of(law)
    expected = planned.kernel_choice().build(SEED)
    x = np.full((2, 3), 0.5, np.float32)
    np.testing.assert_array_equal(planned.family().scaled_features(x), expected.scaled_features(x))
    hashed = announced(law, kernel="laplacian", dim=2, repetitions=3, bias=0.25)
    assert hashed.n_instances == hashed.family().facts.n_instances == 12


@pytest.mark.parametrize("bitsum", BITSUMS)
def test_the_wire_format_follows_the_plan(bitsum: str) -> None:
    public = announcement(bitsum)
    wire = public.wire_format()
    assert wire.n_instances == 4
    assert wire.content_bits == small_laws(5)[bitsum].content_bits
    assert wire.collection == public.collection()


def test_groups_share_their_family_in_memory() -> None:
    first, other = announcement(group="a"), announcement(group="b")
    assert first.family() is other.family()
    assert first.family() is not announcement(public_seed="ff" * 16).family()


def test_the_collections_name_is_a_digest_of_everything() -> None:
    first = announcement()
    canonical = json.dumps(first.to_json(), sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    assert first.collection() == hashlib.sha256(canonical.encode()).digest()
    others = [
        announcement(group="b"),
        announcement(bandwidth=1.5),
        announcement(projection=2),
        announcement(public_seed="ff" * 16),
        announcement("poisson"),
        dataclasses.replace(first, plan=unplanned(small_laws(6)["rr"], **GAUSSIAN)),
        dataclasses.replace(first, plan=dataclasses.replace(first.plan, parameters={"flip_probability": 0.25})),
    ]
    names = {other.collection() for other in (first, *others)}
    assert len(names) == 1 + len(others)


def test_a_forecast_for_several_classes_cannot_be_announced() -> None:
    plan = unplanned(small_laws(5)["rr"], users=10, classes=2, label_epsilon=0.5, **GAUSSIAN)
    with pytest.raises(InvalidInputError, match="forecast"):
        Announcement(plan=plan, public_seed=SEED)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("public_seed", ""),
        ("public_seed", "0" * 31),
        ("public_seed", "zz" * 16),
        ("bandwidth", 0.0),
        ("bandwidth", float("nan")),
        ("projection", 4),
        ("projection", 0),
    ],
)
def test_what_no_family_can_be_built_from_is_refused_at_once(name: str, value: Any) -> None:
    with pytest.raises(InvalidInputError, match=name):
        announcement(**{name: value})


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if at:
        yield at
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield from places(child, (*at, key))


def bent(document: dict[str, Any], at: tuple[Any, ...]) -> tuple[dict[str, Any], Any]:
    """A copy of the document, and in it the container of the place `at`."""
    whole = copy.deepcopy(document)
    place: Any = whole
    for key in at[:-1]:
        place = place[key]
    return whole, place


@pytest.mark.parametrize("key", ["schema", "plan", "public_seed", "bandwidth", "projection", "group"])
def test_nothing_may_be_missing(key: str) -> None:
    document = announcement().to_json()
    del document[key]
    with pytest.raises(InvalidInputError, match="announcement"):
        Announcement.from_json(document)


@pytest.mark.parametrize("document", [None, [], "x", 3, {}, {"schema": SCHEMA}, {"schema": "privkde.plan/1"}])
def test_other_documents_are_refused(document: Any) -> None:
    with pytest.raises(InvalidInputError, match="announcement"):
        Announcement.from_json(document)


@pytest.mark.parametrize("junk", [None, [], {}, "x", -1, 1e300, float("nan"), True, [[]], "missing"])
def test_junk_anywhere_is_refused_or_harmless(junk: Any) -> None:
    """Every value replaced or left out in turn; what is still accepted can announce itself and run its bitsum."""
    document = announcement().to_json()
    refused = 0
    everywhere = list(places(document))
    for at in everywhere:
        whole, place = bent(document, at)
        if junk == "missing":
            del place[at[-1]]
        else:
            place[at[-1]] = junk
        try:
            changed = Announcement.from_json(whole)
        except InvalidInputError:
            refused += 1
            continue
        assert changed.bitsum()
        assert len(changed.collection()) == 32
    assert refused > len(everywhere) // 4


def test_what_is_received_must_keep_its_promise() -> None:
    """A client need not believe whoever announces: the accountant is asked again."""
    plan = plan_for(
        users=9, dim=3, repetitions=4, bitsum="rr", accountant="basic", epsilon=50.0, delta=1e-6, allow_useless=True
    )
    honest = Announcement(plan=plan, public_seed=SEED)
    weak: dict[str, Any] = {"most_epsilon": 50.0, "least_users": 9}
    assert Announcement.received(honest.to_json(), **weak) == Announcement.verified(honest.to_json()) == honest
    bent = honest.to_json()
    bent["plan"]["instance"]["parameters"]["flip_probability"] /= 2.0
    assert Announcement.from_json(bent).bitsum().flip == plan.parameters["flip_probability"] / 2.0
    for accepted in (lambda data: Announcement.received(data, **weak), Announcement.verified):
        with pytest.raises(InvalidInputError, match="do not keep"):
            accepted(bent)
        with pytest.raises(InvalidInputError, match="announcement"):
            accepted({})


HARMLESS: dict[str, Any] = {"users": 200, "dim": 3, "repetitions": 4, "epsilon": 4.0, "delta": 1e-6}


def planned(**changes: Any) -> Announcement:
    return Announcement(plan=plan_for(**{**HARMLESS, **changes}), public_seed=SEED)


def test_clients_refuse_a_promise_that_means_nothing() -> None:
    """The plan is honest, (100, 0.5)-DP for two users; no client takes part unless it accepts each of the three."""
    worthless = planned(users=2, epsilon=100.0, delta=0.5, allow_useless=True)
    document = worthless.to_json()
    accepted: dict[str, Any] = {"most_epsilon": 100.0, "most_delta": 0.5, "least_users": 2}
    assert Announcement.received(document, **accepted) == worthless
    for name in accepted:
        others = {other: value for other, value in accepted.items() if other != name}
        with pytest.raises(RefusedAnnouncementError, match=name):
            Announcement.received(document, **others)
    with pytest.raises(RefusedAnnouncementError, match=r"announces epsilon=100 and .* at most 10; .* most_epsilon"):
        Announcement.received(document)
    assert Announcement.verified(document) == worthless, "the shuffler's users have decided"


@pytest.mark.parametrize(
    ("limit", "kept", "broken", "said"),
    [
        ("most_epsilon", 4.0, 3.99, "epsilon=4 and this client accepts at most 3.99"),
        ("most_delta", 1e-6, 0.0, "delta=1e-06 and this client accepts at most 0"),
        ("least_users", 150, 151, "counts on 150 honest users and this client asks for at least 151"),
        ("most_messages", 4, 3, "messages=4 and this client accepts at most 3"),
        ("most_parameters", 12, 11, "parameters=12 and this client accepts at most 11"),
    ],
)
def test_each_limit_is_the_clients_own(limit: str, kept: float, broken: float, said: str) -> None:
    """A limit that is just met is kept. Of 200 users, 30 may drop out and 20 collude: 150 are counted on."""
    public = planned(dropout=30, colluders=20)
    assert Announcement.received(public.to_json()) == public
    assert Announcement.received(public.to_json(), **{limit: kept}) == public  # type: ignore[arg-type]
    with pytest.raises(RefusedAnnouncementError, match=f"{said}.*{limit}"):
        Announcement.received(public.to_json(), **{limit: broken})  # type: ignore[arg-type]


def test_messages_are_counted_from_the_law_and_not_from_what_is_announced() -> None:
    public = planned(bitsum="poisson")
    law = public.plan.protocol()
    expected = 4 * law.messages_per_user(1.0)
    assert public.most_messages_per_user() == expected == public.plan.messages_per_user + 2.0 > 4
    document = public.to_json()
    document["plan"]["communication"]["messages_per_user"] = 1.0
    with pytest.raises(RefusedAnnouncementError, match="most_messages"):
        Announcement.received(document, most_messages=0.99 * expected)


def test_a_pure_promise_has_no_delta_to_refuse() -> None:
    pure = planned(bitsum="pure", users=200, repetitions=1, dim=1, epsilon=8.0, allow_useless=True)
    assert Announcement.received(pure.to_json(), most_delta=0.0, most_messages=1e9) == pure


LIMITS = [name for name in inspect.signature(Announcement.received).parameters if name != "data"]


@pytest.mark.parametrize("junk", [None, "1", True, float("nan"), float("inf"), -1, [1]], ids=str)
@pytest.mark.parametrize("limit", LIMITS)
def test_limits_that_are_not_numbers_are_refused(limit: str, junk: Any) -> None:
    document = planned().to_json()
    with pytest.raises(InvalidInputError, match=limit) as refused:
        Announcement.received(document, **{limit: junk})
    assert not isinstance(refused.value, RefusedAnnouncementError)


@pytest.mark.parametrize(
    ("bitsum", "accountant"),
    [
        *(("rr", rung) for rung in LADDER if rung != "shifts"),
        ("3nb", "pld"),
        ("poisson", "geometric"),
        ("negative-binomial", "pld"),
    ],
)
def test_a_promise_that_takes_long_is_not_computed(
    bitsum: str, accountant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The attack: a few kilobytes that make the accountant work for a minute, by any rung.

    It looks at the clock while it works. Here every look takes a second, so three may pass and a few more are made.
    """
    users = 200 + list(LADDER).index(accountant)  # nothing is kept from the other accountants
    document = planned(bitsum=bitsum, users=users).to_json()
    document["plan"]["accountant"] = accountant
    document["plan"]["request"]["epsilon"] = 4.5
    looks = itertools.count()
    monkeypatch.setattr("accounting.numerics.effort.time.thread_time", lambda: float(next(looks)))
    for accepted in (Announcement.received, Announcement.verified):
        with pytest.raises(RefusedAnnouncementError, match=r"more than most_seconds=3 .* by a higher most_seconds"):
            accepted(document, most_seconds=3)
    assert next(looks) <= 2 * 5


def test_altered_numbers_of_instances_are_found_before_the_accountant_works(monkeypatch: pytest.MonkeyPatch) -> None:
    document = planned(bitsum="rr").to_json()
    document["plan"]["request"]["repetitions"] = 1000
    monkeypatch.setattr(Plan, "recomputed", None)
    for rung in LADDER.values():
        monkeypatch.setattr(type(rung), "excess", None)
    with pytest.raises(InvalidInputError, match="instances_per_user is 4 and should be 1000"):
        Announcement.received(document)


def test_the_group_is_a_text() -> None:
    for junk in (None, 3, ["a"]):
        with pytest.raises(InvalidInputError, match="group"):
            Announcement.from_json({**announcement().to_json(), "group": junk})


def test_what_does_not_belong_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="holds 'remark', which does not belong to it"):
        Announcement.from_json({**announcement().to_json(), "remark": "x"})


def test_a_few_kilobytes_do_not_become_a_gigabyte(monkeypatch: pytest.MonkeyPatch) -> None:
    """Maps of 2²⁸ numbers, the most that there may be: not drawn before they are needed, and refused by clients.

    Clients refuse before they compute what is promised, which takes longer.
    """
    huge = announced(small_laws(100)["rr"], kernel="gaussian", dim=2**14, repetitions=2**14, epsilon=1.0, delta=1e-6)
    document = huge.to_json()
    assert len(json.dumps(document)) < 8_000
    assert peak(lambda: Announcement.from_json(document).wire_format()) < MEGABYTE

    def verify(_: Plan) -> None:
        raise AssertionError("the promise was computed for an announcement that is refused")

    monkeypatch.setattr(Plan, "verify", verify)

    def received() -> None:
        with pytest.raises(RefusedAnnouncementError, match=r"parameters=268\d+ "):
            Announcement.received(document)

    assert peak(received) < MEGABYTE
    with pytest.raises(InvalidInputError, match="public numbers"):
        announced(small_laws(100)["rr"], kernel="gaussian", dim=2**14, repetitions=2**14 + 1)


def test_more_instances_than_can_be_counted_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="instances=100000000 is outside"):
        announced(small_laws(5)["rr"], kernel="laplacian", dim=1, repetitions=10**4, bias=1e-4)


def test_equal_announcements_have_one_name() -> None:
    """The attack: bandwidth 1 and 1.0 were equal, and were charged as two collections."""
    whole, real = announcement(bandwidth=2), announcement(bandwidth=2.0)
    assert whole == real
    assert whole.collection() == real.collection()
    read = Announcement.from_json({**real.to_json(), "bandwidth": 2})
    assert (read.collection(), read.to_json()) == (real.collection(), real.to_json())
