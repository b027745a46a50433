"""`privkde collect`: a collection by any engine, from vectors to a model, or from packets to counts and a model."""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

from rich.console import Console

from accounting import InvalidInputError
from privkde.cli.fit_command import add_collection_options, fit_from_file
from privkde.cli.ledger_options import add_paying_options, ledger_files, paying
from privkde.cli.parsing import whole
from privkde.display.progress import tracked
from privkde.display.tables import counts_table, model_table
from privkde.engines import ENGINES, Engine, ThroughFiles, engine
from privkde.protocol.announcement import Announcement
from privkde.protocol.rounds import Collection, Terms
from privkde.storage.files import kept_by_sqlite, require_apart, require_outside, require_writable
from privkde.storage.json_text import read_json
from privkde.storage.packets import SUFFIXES
from privkde.storage.report_register import ReportRegister, register_beside

_EXPLAINED = """\
Run a collection on one machine or, by Apache Beam, on many.

From vectors, with --plan and -o: plays all users of a file, as `privkde fit` does.
With --packets, their packets are written to files first and counted from there.
If that is interrupted, the same command continues it: who has answered is kept.

From packets, with --announcement: counts users' packets as a shuffler. Whoever runs
this sees them and must be trusted with them. --counts keeps the counts; -o publishes
the density. Packets that are marked as drawn from a seed are rejected; with --seeded, for
studies, they are counted, and the density is then not private.
Every report is counted once, in all runs together: --reports keeps which were counted.

Options of Beam and its runner follow after `--`."""


def add_collect(collect: argparse.ArgumentParser) -> None:
    """Add the options of `collect`."""
    collect.description = _EXPLAINED
    collect.formatter_class = argparse.RawDescriptionHelpFormatter
    collect.add_argument(
        "source",
        nargs="+",
        metavar="SOURCE",
        help=f"a file of vectors (.npz, .parquet), or files of packets ({', '.join(SUFFIXES)}), or patterns",
    )
    given = collect.add_mutually_exclusive_group(required=True)
    given.add_argument("--plan", type=Path, metavar="FILE", help="vectors: plan written by `privkde plan --output`")
    given.add_argument("--announcement", type=Path, metavar="FILE", help="packets: announcement that they answer")
    collect.add_argument("-o", "--output", type=Path, metavar="MODEL", help="file for the published model")
    where = collect.add_argument_group("engine")
    where.add_argument("--engine", choices=ENGINES, default=ENGINES[0], help="this process, or Apache Beam")
    where.add_argument("--runner", metavar="NAME", help="runner of Beam (default: in this process)")
    where.add_argument("--workers", type=whole, default=1, metavar="N", help="processes of Beam on this machine")
    packets = collect.add_argument_group("packets")
    packets.add_argument("--packets", type=Path, metavar="FOLDER", help="vectors: also write packets and announcement")
    packets.add_argument("--format", choices=[suffix[1:] for suffix in SUFFIXES], help="of packets (default: packets)")
    packets.add_argument("--counts", type=Path, metavar="FILE", help="packets: file for the counts")
    packets.add_argument(
        "--reports", type=Path, metavar="FILE", help="packets: reports counted so far (default: beside announcement)"
    )
    packets.add_argument(
        "--seeded",
        action="store_true",
        help="packets: also count those drawn from a seed; NOT PRIVATE: for studies only",
    )
    vectors = collect.add_argument_group("vectors")
    add_collection_options(vectors)
    add_paying_options(collect)
    collect.set_defaults(run=_collect, of_vectors={action.dest: action.default for action in vectors._group_actions})


def _collect(parsed: argparse.Namespace) -> None:
    if parsed.engine == "beam":
        logging.getLogger().setLevel(logging.ERROR)  # Beam logs much that nobody needs
    chosen = engine(parsed.engine, runner=parsed.runner, workers=parsed.workers, options=parsed.further)
    if parsed.announcement is None:
        _from_vectors(parsed, chosen)
    else:
        _from_packets(parsed, chosen)


def _from_vectors(parsed: argparse.Namespace, chosen: Engine) -> None:
    of_packets = parsed.counts is not None or parsed.reports is not None or parsed.seeded
    if parsed.output is None or len(parsed.source) != 1 or of_packets:
        raise InvalidInputError(
            "with --plan give one file of vectors and -o MODEL; --counts, --reports and --seeded are for packets."
        )
    if "://" in parsed.source[0]:
        raise InvalidInputError(
            f"{parsed.source[0]!r} is not on a disk; users are played from a file that this machine and all workers can"
            " open as one of their own. Only packets are read from elsewhere."
        )
    parsed.data = Path(parsed.source[0])
    if parsed.packets is None:
        if parsed.format is not None:
            raise InvalidInputError("--format is the format of packets; add --packets FOLDER.")
        fit_from_file(parsed, chosen)
        return
    require_outside(parsed.output, parsed.packets)
    require_apart([parsed.packets], ledger_files(parsed))
    through = ThroughFiles(engine=chosen, folder=parsed.packets, suffix=f".{parsed.format or 'packets'}")
    parsed.path, parsed.public_seed = "faithful", parsed.public_seed or through.public_seed()
    fit_from_file(parsed, through)


def _from_packets(parsed: argparse.Namespace, chosen: Engine) -> None:
    changed = [name for name, default in parsed.of_vectors.items() if getattr(parsed, name) != default]
    changed += [name for name in ("packets", "format") if getattr(parsed, name) is not None]
    if changed:
        option = "--" + changed[0].replace("_", "-")
        raise InvalidInputError(
            f"{option} is for vectors with --plan; the announcement of packets says all; leave it out."
        )
    if parsed.output is None and parsed.counts is None:
        raise InvalidInputError("nothing would be kept; add --counts FILE, -o MODEL, or both.")
    reports = parsed.reports or register_beside(parsed.announcement)
    database, *beside = kept_by_sqlite(reports)
    packets = [Path(name) for source in parsed.source if "://" not in source for name in chosen.matches(source)]
    require_apart(
        [parsed.output, parsed.counts, database], [parsed.announcement, *packets, *beside, *ledger_files(parsed)]
    )
    for target in (parsed.output, parsed.counts, reports):
        if target is not None:
            require_writable(target)
    announcement = Announcement.verified(read_json(parsed.announcement, "get it from whoever runs the collection."))
    collection = None if parsed.output is None else _collection(announcement)
    if collection is None and parsed.budget is not None:
        raise InvalidInputError("--budget pays for a model that is published; add -o MODEL.")
    users = announcement.plan.request.users
    with paying(parsed) as account:
        with tracked(sys.stderr.isatty()) as tracker, ReportRegister(announcement.collection(), reports) as register:
            bar = tracker.bar("counting", users)
            most = None if collection is None else users  # no more can be published
            analyzer = chosen.count(
                announcement, parsed.source, bar, register=register, seeded=parsed.seeded, most_users=most
            )
        if collection is not None and account is not None:
            account.require_private(analyzer.secret)
        if collection is not None:
            collection.count(0, analyzer)
            model = collection.publish(private=True, budget=account)  # as the packets say; there are no other draws
            model.save(parsed.output)
            Console().print(model_table(model, {}, parsed.output))
        if parsed.counts is not None:  # after they were paid for
            analyzer.save(parsed.counts)
            Console().print(counts_table(analyzer, parsed.counts))


def _collection(announcement: Announcement) -> Collection:
    """The collection of one density, at the round in which packets are counted."""
    request = announcement.plan.request
    if announcement.group or request.classes is not None:
        raise InvalidInputError(
            "the announcement is for one class, or for classes whose names it does not hold; keep --counts of each,"
            " and publish with privkde.protocol.rounds.Collection."
        )
    if announcement.basis_sha256 is not None:
        raise InvalidInputError(
            "the announcement names a basis, which a model holds and this command does not have; keep --counts, and"
            " publish with privkde.protocol.rounds.Collection and Terms(basis=…)."
        )
    planned = {name: value for name, value in request.to_json().items() if name not in ("users", "classes")}
    collection = Collection(
        Terms(
            request=planned,
            bandwidth=announcement.bandwidth,
            projection=announcement.projection,
            public_seed=announcement.public_seed,
        )
    )
    collection.enroll(request.users)
    collection.fix_plan(announcement.plan)
    return collection
