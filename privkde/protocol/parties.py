"""The three parties of a collection. A party knows the announcement and what is sent to it, and nothing else."""

from __future__ import annotations

import copy
import hashlib
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from accounting import InvalidInputError, PlanRequest
from accounting.errors import require_integer, require_members
from privkde.bitsum import Tally
from privkde.draws.randomness import ByteStream, private_randomness, process_identity
from privkde.draws.sampling import permutation
from privkde.protocol.announcement import Announcement, reading_plans
from privkde.protocol.basis import Floats, projected, require_announced, require_basis
from privkde.protocol.inputs import checked_vectors
from privkde.protocol.messages import ID_BYTES, Counted, MalformedPacketError, WireFormat
from privkde.protocol.record_vectors import RecordLayout
from privkde.storage.container import DamagedFileError, read_container, write_container
from privkde.storage.report_register import CountedRelease, ReportRegister
from privkde.storage.user_blocks import Index

COUNTS_SCHEMA = "privkde.counts/2"
UNMARKED_COUNTS_SCHEMA = "privkde.counts/1"
"""Counts of versions that did not know whether draws were secret, nor which releases were counted."""
COUNTS_MEMBERS = ("schema", "announcement", "n_users", "rejected", "repeated", "secret", "releases")
MOST_COUNTED = 2**53
"""Messages in one instance: as many as sums can tell apart."""
Vectors = NDArray[np.floating]
Classes = NDArray[np.integer] | None
"""Class numbers, with joint labels."""


class TooFewUsersError(InvalidInputError):
    """Fewer users took part than the noise counts on, and as many more as may collude."""


def refuse_too_few(n_users: int, request: PlanRequest, rejected: int = 0, repeated: int = 0) -> None:
    """For fewer users than the noise counts on, and colluders, nothing leaves the shuffler and nothing is published.

    Each release needs as many: those of an earlier one have spent their noise. `repeated` reports are no further users.
    """
    if n_users < request.least_packets:
        refused = (
            f" {rejected} packets were refused: do they answer this announcement, by secret draws?" if rejected else ""
        )
        refused += f" {repeated} packets repeat reports that were already taken." if repeated else ""
        more = f" beside {request.n_colluders} that may collude" if request.n_colluders else ""
        raise TooFewUsersError(
            f"{n_users} users took part and the noise counts on {request.counted_users}{more}; nothing may be"
            f" published.{refused} Wait for more users, or start again with a plan that counts on fewer."
        )


class Randomizer:
    """The client: turns private vectors into messages (Algorithm 1, randomizer).

    Everything that leaves it is drawn from the planned law. Before anything is drawn, a vector outside the kernel's
    domain is rejected, or projected onto the domain with `outside="project"`.

    If the announcement names a `basis`, either give it, with vectors as users hold them, or leave it out and give
    vectors that are projected on it.
    """

    def __init__(
        self,
        announcement: Announcement,
        *,
        stream: ByteStream | None = None,
        outside: str = "reject",
        basis: Floats | None = None,
    ) -> None:
        if basis is not None:
            require_basis(basis, announcement.plan.request.dim)
            require_announced(basis, announcement.basis_sha256)
        self._basis = basis
        self._stream = stream or private_randomness()
        self._family = announcement.family()
        self._bitsum = announcement.bitsum()
        self._wire = announcement.wire_format()
        self._layout = announcement.layout()
        self._dim = announcement.plan.request.dim
        self._outside = outside

    def inputs(self, x: Vectors, classes: Classes = None, *, stream: ByteStream, numbers: Index | None = None) -> Tally:
        """The messages that carry these users' bits: features, rounding, randomizer; arrays (users, instances).

        `classes` are the users' class numbers: needed with joint labels, refused without them.
        """
        longest = self._family.largest_norm
        if self._basis is not None:
            x = projected(x, self._basis)
        vectors = checked_vectors(x, self._dim, longest=longest, outside=self._outside, numbers=numbers)
        if self._layout is None and classes is not None:
            raise InvalidInputError("classes were given and this collection has no joint labels; leave them out.")
        if isinstance(self._layout, RecordLayout):
            scaled = self._layout.scaled(vectors, classes)
        else:
            scaled = self._family.scaled_features(vectors)
            scaled = scaled if self._layout is None else self._layout.scaled(scaled, classes)
        return self._bitsum.inputs(self._bitsum.respond(scaled, stream), stream)

    def tally(
        self, x: Vectors, classes: Classes = None, *, stream: ByteStream | None = None, numbers: Index | None = None
    ) -> Tally:
        """How many ones and zeros each of these users sends in each instance, all noise included."""
        source = stream or self._stream
        inputs = self.inputs(x, classes, stream=source, numbers=numbers)
        return inputs + self._bitsum.noise(1, inputs.ones.shape, source)

    def packets(
        self, x: Vectors, classes: Classes = None, *, stream: ByteStream | None = None, numbers: Index | None = None
    ) -> list[bytes]:
        """One packet for each of these users, to be sent to the shuffler.

        Raises: `OverlongPacketError` if a user drew more messages than the plan allows one, which happens with
        probability at most e^−900; that user sends nothing.
        """
        source = stream or self._stream
        tally = self.tally(x, classes, stream=source, numbers=numbers)
        return self._wire.encode_users(tally, new_ids(len(tally.ones), source), secret=source.secret)

    def packet(self, x: Vectors, class_number: int | None = None) -> bytes:
        """The packet of one user with the vector `x` and, with joint labels, its class."""
        classes = None if class_number is None else np.array([class_number])
        return self.packets(np.asarray(x)[None], classes)[0]


def new_ids(count: int, stream: ByteStream) -> list[bytes]:
    """Ids of reports or releases: random, so that two are equal with probability 2⁻¹²⁸."""
    drawn = stream.take(count * ID_BYTES).tobytes()
    return [drawn[at : at + ID_BYTES] for at in range(0, len(drawn), ID_BYTES)]


def register_of(announcement: Announcement, given: ReportRegister | None) -> ReportRegister:
    """The register of this collection that was given, or a temporary one."""
    collection = announcement.collection()
    if given is not None and given.collection != collection:
        raise InvalidInputError("the register belongs to another collection; each has a register of its own.")
    return ReportRegister(collection) if given is None else given


class Admission:
    """What a shuffler takes: a packet of this collection, from exactly one user, whole or not at all.

    A packet that is longer than any of an honest user is refused by its header (docs/proofs/limits.md). Where the
    protocol (`rr`) says that a user sends exactly one message in each instance, no other packet can be written.

    A packet that is marked as drawn from a seed is refused, too: counted, it would make everybody's counts not private,
    and anybody can write such a mark. Only in a study, where all draws are `seeded`, it is taken.
    """

    def __init__(self, announcement: Announcement, *, seeded: bool) -> None:
        self._wire = announcement.wire_format()
        self._seeded = seeded

    def counts(self, packet: bytes) -> Counted | None:
        """What a packet that is taken holds; None if it is refused."""
        counted = _counted(self._wire, packet, of_one=True)
        return counted if counted is not None and (counted.secret or self._seeded) else None


def _counted(wire: WireFormat, packet: bytes, *, of_one: bool = False) -> Counted | None:
    try:
        return wire.counts(packet, of_one=of_one)
    except MalformedPacketError:
        return None


class Shuffler:
    """Collects users' packets and releases their messages in a uniformly random order, and nothing else.

    It holds no packets: only how many ones and zeros came in each instance, which is all that a random order leaves. A
    release is listed from these counts and shuffled, or is the counts where packets are dense (`WireFormat`).

    What it refuses (`Admission`) is counted in `rejected`; the sender then did not take part. A report that was taken
    before, by its id, is counted in `repeated` and nowhere else: also after a release and, with a `register` in a file,
    after a restart. A shuffler that stops before it releases has forgotten its packets, and takes them again.
    Nothing is released for fewer users than the noise counts on: what leaves the shuffler is what the contract
    protects. A shuffler whose own `stream` is seeded protects nobody, and takes packets that are marked as seeded;
    others refuse them.

    An exception while a report is counted, or counts are released, such as one that a handler of signals raises, leaves
    it unknown what was counted. The shuffler then refuses everything, and a new one begins again.

    A report is not a person: somebody who sends packets with many ids counts as many users. Where a user may send
    nothing (all protocols but `rr`), empty packets are enough, and as many as the noise counts on isolate a victim. So
    plan for as many `colluders`, or let only enrolled persons send: `admit` is asked for the token that comes with each
    new report, and False refuses it (`ReportRegister.spend`).
    """

    def __init__(
        self,
        announcement: Announcement,
        *,
        stream: ByteStream | None = None,
        register: ReportRegister | None = None,
        admit: Callable[[bytes | None], bool] | None = None,
    ) -> None:
        self._stream = stream or private_randomness()
        self._wire = announcement.wire_format()
        self._admission = Admission(announcement, seeded=not self._stream.secret)
        self._request = announcement.plan.request
        self._register = register_of(announcement, register)
        self._admit = admit
        self._require_asking()
        self._lock, self._process = threading.Lock(), process_identity()
        self._interrupted, self._secret = False, True
        self._forget()
        self.rejected = 0
        self.repeated = 0

    def receive(self, packet: bytes, token: bytes | None = None) -> bool:
        """Take one user's packet; False (and counted) if it is malformed, repeated or not admitted.

        The token is not kept.
        """
        self._refuse_copies()
        counted = self._admission.counts(packet)
        with self._lock:  # threads may share a shuffler
            self._refuse_interrupted()
            if counted is not None and counted.packet_id in self._register:
                self.repeated += 1
                return False
            if counted is None or not self._admitted(token):
                self.rejected += 1
                return False
            self._register.begin()
            with self._whole():
                if self._register.add(counted.packet_id):
                    self._tally.include(counted.tally)
                    self._n_users += 1
                    self._secret = self._secret and counted.secret
                    return True
            self.repeated += 1  # another one with the same file was faster
            return False

    def release(self) -> bytes:
        """One packet with everybody's messages, shuffled; the shuffler then keeps the reports' ids, and their counts.

        Several releases are fine, each for enough users: nobody is in two of them. The register knows of a release
        before it is returned, so that an interruption cannot repeat it.
        """
        self._refuse_copies()
        with self._lock:
            self._refuse_interrupted()
            refuse_too_few(self._n_users, self._request, self.rejected, self.repeated)
            (release_id,) = new_ids(1, self._stream)
            counted = Counted(self._n_users, self._tally, release_id, self._stream.secret and self._secret)
            packet = self._wire.encode(counted, lambda count: permutation(count, self._stream))
            n_users, (ones, zeros) = counted.n_users, (counted.tally.ones, counted.tally.zeros)
            with self._whole():
                self._register.release(
                    CountedRelease(
                        release_id=release_id, n_users=n_users, secret=counted.secret, ones=ones, zeros=zeros
                    )
                )
                self._forget()
            return packet

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """What happens in here happens to its end, or nothing does any more."""
        self._interrupted = True
        yield
        self._interrupted = False  # not after an exception

    def _refuse_interrupted(self) -> None:
        if self._interrupted:
            raise InvalidInputError(
                "the shuffler was interrupted while it counted; open its register again and make a new shuffler, to"
                " which clients send again whose reports were not released."
            )

    def _admitted(self, token: bytes | None) -> bool:
        self._require_asking()
        return self._admit is None or self._admit(token)

    def _require_asking(self) -> None:
        if self._admit is None and self._register.issues_tokens:
            raise InvalidInputError(
                "the register has issued tokens, and nobody asks for them; give admit=register.spend, or a register"
                " that has issued none."
            )

    def _refuse_copies(self) -> None:
        if process_identity() != self._process:
            raise InvalidInputError("this process is a copy of the one that began to shuffle; go on in that one.")

    def __reduce__(self) -> NoReturn:
        raise InvalidInputError("a shuffler cannot be copied or pickled: two would release the same reports.")

    def _forget(self) -> None:
        """Nobody has sent anything since the last release."""
        self._tally = Tally.nothing((self._wire.n_instances,))
        self._n_users = 0
        self._secret = True


@dataclass(frozen=True, slots=True)
class Total:
    """What an analyzer has counted at one moment."""

    tally: Tally
    n_users: int = 0
    secret: bool = True
    releases: frozenset[bytes] = frozenset()


class Analyzer:
    """Counts messages (Algorithm 1, analyzer): in any order, in any number of pieces, over any number of machines.

    Counts can be added, merged, saved and loaded; sums are published only for enough users. A release is counted once:
    a packet that repeats it is counted in `repeated` alone. `secret` says whether all that was counted was marked as
    drawn from secret randomness; whether clients told the truth, nobody can see. Threads may share it: a release is
    counted whole or not at all, whatever interrupts it. Of what belongs together, take one `snapshot`.
    """

    def __init__(self, announcement: Announcement) -> None:
        self.announcement = announcement
        self._wire = announcement.wire_format()
        self._lock = threading.RLock()
        self._total = Total(Tally.nothing((announcement.n_instances,)))  # replaced as one, and never changed
        self.rejected = 0
        self.repeated = 0

    @property
    def tally(self) -> Tally:
        """How many ones and zeros were counted in each instance."""
        return self._total.tally

    @property
    def n_users(self) -> int:
        """How many users sent them."""
        return self._total.n_users

    @property
    def secret(self) -> bool:
        """Whether all of it was marked as drawn from secret randomness."""
        return self._total.secret

    @property
    def releases(self) -> frozenset[bytes]:
        """The ids of what was counted."""
        return self._total.releases

    def snapshot(self) -> Analyzer:
        """A copy with all that was counted up to one moment; what others count later changes nothing in it."""
        with self._lock:
            return copy.copy(self)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= state
        self._lock = threading.RLock()

    def receive(self, packet: bytes) -> bool:
        """Count a released packet; False (and counted) if it is malformed or repeated. It then changes no count."""
        counted = _counted(self._wire, packet)
        with self._lock:
            if counted is None:
                self.rejected += 1
                return False
            if counted.packet_id in self.releases:
                self.repeated += 1
                return False
            self.add(counted.tally, counted.n_users, secret=counted.secret, releases=[counted.packet_id])
            return True

    def add(self, tally: Tally, n_users: int, *, secret: bool = False, releases: Sequence[bytes] | None = None) -> None:
        """Add counts that were already summed over `n_users` users; unless said so, their draws were not secret.

        `releases` are the ids of what was summed, by default a new one; none may have been counted.
        """
        named = frozenset(new_ids(1, private_randomness()) if releases is None else releases)
        if n_users and not named:
            raise InvalidInputError(f"counts of {n_users} users were given as of no release; name what was summed.")
        shape = (self._wire.n_instances,)
        if tally.ones.shape != shape or tally.zeros.shape != shape:
            raise InvalidInputError(f"counts of shape {tally.ones.shape} were given; this collection has {shape}.")
        require_integer("users", n_users, low=0, high=10**12)
        for counts in (tally.ones, tally.zeros):
            if counts.dtype.kind not in "iu" or not 0 <= int(counts.min()) <= int(counts.max()) <= MOST_COUNTED:
                raise InvalidInputError(
                    f"counts must be whole numbers from 0 to {MOST_COUNTED}; count the messages again."
                )
        added = Tally(tally.ones.astype(np.int64), tally.zeros.astype(np.int64))
        with self._lock:
            before = self._total
            if before.releases & named:
                raise InvalidInputError(
                    "a release would be counted twice; merge analyzers that counted different releases, each once."
                )
            marked = before.secret and (secret or not n_users)
            self._total = Total(before.tally + added, before.n_users + n_users, marked, before.releases | named)

    def merge(self, other: Analyzer) -> None:
        """Add everything that another analyzer of the same collection counted."""
        if other._wire != self._wire:
            raise InvalidInputError("the other analyzer belongs to another collection; merge within one only.")
        counted = other.snapshot()
        with self._lock:
            self.add(counted.tally, counted.n_users, secret=counted.secret, releases=[*counted.releases])
            self.rejected += counted.rejected
            self.repeated += counted.repeated

    def sums(self) -> NDArray[np.float64]:
        """F̃ = (2B̃ − n)R for every instance; refused below the number of users that the noise counts on."""
        total = self._total
        refuse_too_few(total.n_users, self.announcement.plan.request)
        if self._wire.dense and not np.all(total.tally.ones + total.tally.zeros == total.n_users):
            raise InvalidInputError(
                f"some instance does not hold exactly one message of each of the {total.n_users} users;"
                " messages were lost or added on the way, so nothing may be published."
            )
        bound = self.announcement.plan.request.facts().bound
        estimate = self.announcement.bitsum().estimate(total.tally, total.n_users)
        return (2.0 * estimate - total.n_users) * bound

    def save(self, path: str | Path) -> None:
        """Write the counts, whole or not at all, to continue later."""
        counted = self.snapshot()
        document = {
            "schema": COUNTS_SCHEMA,
            "announcement": counted.announcement.to_json(),
            "n_users": counted.n_users,
            "rejected": counted.rejected,
            "repeated": counted.repeated,
            "secret": counted.secret,
            "releases": sorted(release.hex() for release in counted.releases),
        }
        write_container(Path(path), document, {"ones": counted.tally.ones, "zeros": counted.tally.zeros})

    @staticmethod
    def load(path: str | Path) -> Analyzer:
        """Continue with counts that `save` wrote; `DamagedFileError` for anything else.

        Counts of schema 1 are not known to be secret, and count as one release, which their content names.
        """
        schemas = (COUNTS_SCHEMA, UNMARKED_COUNTS_SCHEMA)
        document, arrays = read_container(Path(path), schemas, ("ones", "zeros"))
        try:
            tally = Tally(arrays["ones"], arrays["zeros"])
            if document["schema"] == UNMARKED_COUNTS_SCHEMA:
                content = hashlib.sha256(tally.ones.tobytes() + tally.zeros.tobytes())
                document |= {"repeated": 0, "secret": False, "releases": [content.digest()[:ID_BYTES].hex()]}
            require_members("the document", document, COUNTS_MEMBERS)
            releases = [bytes.fromhex(release) for release in document["releases"]]
            if not isinstance(document["secret"], bool) or any(len(release) != ID_BYTES for release in releases):
                raise InvalidInputError("the mark or the ids of releases are malformed")
            with reading_plans():
                analyzer = Analyzer(Announcement.from_json(document["announcement"]))
            analyzer.add(tally, document["n_users"], secret=document["secret"], releases=releases)
            analyzer.rejected = require_integer("rejected", document["rejected"], low=0, high=10**12)
            analyzer.repeated = require_integer("repeated", document["repeated"], low=0, high=10**12)
        except (KeyError, TypeError, ValueError) as error:
            raise DamagedFileError(f"{str(path)!r} does not hold counts ({error}); write it again.") from error
        return analyzer
