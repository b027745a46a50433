"""One collection, round by round, with the library's parties: what `PrivateKDEClassifier.fit` does in one call."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from privkde.announcement import Announcement
from privkde.blocks import Index
from privkde.demo.data import Scans
from privkde.demo.settings import DemoSettings
from privkde.engines.local import collect
from privkde.labels import randomize_labels
from privkde.progress import tracked
from privkde.randomness import ByteStream
from privkde.rounds import Collection, Terms

STEPS_PER_PLAN = 2
"""The planner reports when it calibrates and when it climbs the ladder."""


def opened(settings: DemoSettings, dim: int, public_seed: str, *, accountant: str = "auto") -> Collection:
    """A collection that waits for users."""
    return Collection(
        Terms(
            request=settings.request(dim, accountant),
            labels=tuple(range(settings.n_classes)),
            label_epsilon=settings.label_epsilon,
            bandwidth=settings.bandwidth,
            public_seed=public_seed,
        )
    )


def report_labels(collection: Collection, users: Scans, stream: ByteStream) -> NDArray[np.int64]:
    """What each user says that its digit is: true most of the time, and deniable."""
    return randomize_labels(users.labels, collection.terms.label_response(), stream=stream)


def plan(collection: Collection, *, shown: bool) -> tuple[Announcement, ...]:
    """Close enrollment and set the noise of every class."""
    with tracked(shown) as tracker:
        advance = tracker.bar("planning", STEPS_PER_PLAN * len(collection.terms.labels))
        return collection.fix_plan(progress=None if advance is None else lambda _: advance(1))


def gather(
    collection: Collection,
    announcements: Sequence[Announcement],
    rows: NDArray[np.float32],
    groups: Sequence[Index],
    *,
    stream: ByteStream,
    shown: bool,
) -> None:
    """All users of all classes send their messages; the analyzers count."""
    with tracked(shown) as tracker:
        advance = tracker.bar("collecting", len(rows))
        for position, (announcement, number) in enumerate(zip(announcements, collection.released, strict=True)):
            analyzer = collect(
                announcement, rows, groups[number], stream=stream.child("group", number), progress=advance
            )
            collection.count(position, analyzer)
