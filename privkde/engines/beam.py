"""Run a collection by Apache Beam: the same blocks, draws and counts as in one process (extra `beam`).

`transforms` says what travels and who is trusted. What the engine gets back is one file of counts with all their noise,
which it deletes once it is read; below the users that a shuffler waits for it holds how many there were, and no counts.
Vectors and class numbers that are arrays are written to a file in the system's temporary folder while they are played.
"""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import GoogleCloudOptions, PipelineOptions

from accounting.errors import InvalidInputError, PrivkdeError, require_choice, require_integer
from privkde.announcement import Announcement
from privkde.bitsum import Tally
from privkde.blocks import Progress, block_parts
from privkde.container import sealed, unsealed
from privkde.counting import Complaint, PartialCounts, analyzed, refuse_complaint, released
from privkde.datasets import read_vectors
from privkde.engines.local import PATHS
from privkde.engines.transforms import Block, CountPackets, Played, PlayUsers, ReadPackets, opened
from privkde.engines.users import Users
from privkde.packets import SUFFIXES, matched, require_unanswered
from privkde.parties import Analyzer
from privkde.randomness import ByteStream

OUTCOME_SCHEMA = "privkde.outcome/1"
MOST_WORKERS = 1024
WITH_OPTIONS_OF_THEIR_OWN = ("FlinkRunner", "SparkRunner", "PortableRunner")
"""Runners whose job server has more options than Beam's Python package knows."""


class PipelineError(PrivkdeError):
    """Beam could not run a pipeline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BeamEngine:
    """Runs collections by Beam: by default in this process, with `workers` in as many processes of this machine.

    `runner` names another one (`FlinkRunner`, `SparkRunner`, `DataflowRunner`, …) and `options` are its options. It
    needs `--temp_location`, where its workers leave the counts for this process.
    """

    runner: str | None = None
    workers: int = 1
    options: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        require_integer("workers", self.workers, low=1, high=MOST_WORKERS)
        if self.runner is not None and self.workers != 1:
            raise InvalidInputError(
                f"workers={self.workers} is for the runner on this machine; give {self.runner} its own options."
            )
        named = {one.split("=")[0] for one in self.options}
        if "--runner" in named:
            raise InvalidInputError("name the runner as `runner`, not among the options of Beam.")
        if self.runner is not None and "--temp_location" not in named:
            raise InvalidInputError(
                f"{self.runner} needs the option --temp_location: a folder that its workers and this machine reach."
            )
        unknown = [] if self.runner in WITH_OPTIONS_OF_THEIR_OWN else _unknown(self.options)
        if unknown:
            raise InvalidInputError(f"Beam has no option {unknown[0]!r} and would ignore it; correct or leave it out.")

    def play(
        self, users: Users, *, stream: ByteStream, path: str = "aggregated", progress: Progress | None = None
    ) -> Analyzer:
        """As `privkde.engines.local.play`, with the same counts for the same seed."""
        counts = self._played(users, stream, path=require_choice("path", path, PATHS))
        if progress is not None:
            progress(len(users.index))
        return (released if path == "faithful" else analyzed)(users.announcement, counts)

    def randomize(
        self,
        users: Users,
        folder: Path,
        *,
        stream: ByteStream,
        suffix: str = ".packets",
        progress: Progress | None = None,
    ) -> None:
        """As `privkde.engines.local.randomize`; all workers must see `folder`, where files can be linked."""
        require_unanswered(folder)
        self._played(users, stream, folder=folder.resolve(), suffix=require_choice("suffix", suffix, SUFFIXES))
        if progress is not None:
            progress(len(users.index))

    def count(self, announcement: Announcement, files: Sequence[str], progress: Progress | None = None) -> Analyzer:
        """As `privkde.engines.local.count`; files may be wherever Beam can read, and patterns such as `gs://a/*`."""
        names = matched(files, _found)

        def build(pipeline: Any) -> Any:
            return pipeline | beam.Create(names) | ReadPackets() | CountPackets(announcement)

        with tempfile.TemporaryDirectory() as scratch:
            counts = self._run(build, scratch)
        if progress is not None:
            progress(counts.n_users)
        return released(announcement, counts)

    def _played(self, users: Users, stream: ByteStream, **options: Any) -> PartialCounts:
        announcement = users.announcement
        blocks = [Block(start, part) for part, start in block_parts(users.index, announcement.n_instances)]
        with tempfile.TemporaryDirectory() as scratch:
            elsewhere, classes = _stored(users, Path(scratch))
            played = Played(users=elsewhere, classes=classes, recipe=stream.recipe(), **options)

            def build(pipeline: Any) -> Any:
                return pipeline | beam.Create(blocks) | PlayUsers(played)

            counts = self._run(build, scratch)
        refuse_complaint(counts)
        return counts

    def _run(self, build: Callable[[Any], Any], scratch: str) -> PartialCounts:
        """Run the pipeline, and read and delete what it delivered."""
        options = self._pipeline_options()
        place = options.view_as(GoogleCloudOptions).temp_location or scratch
        target = FileSystems.join(place, f"privkde-{secrets.token_hex(8)}.npz")
        try:
            try:
                with beam.Pipeline(runner=self._runner(options), options=options) as pipeline:
                    build(pipeline) | beam.Map(partial(_deliver, target))
                with opened(target) as file:
                    return _delivered(file.read(), target)
            finally:
                if FileSystems.exists(target):
                    FileSystems.delete([target])
        except PrivkdeError:
            raise
        except Exception as error:  # runners have errors of all kinds
            reason = str(error).strip().splitlines()
            raise PipelineError(
                f"Beam could not run the pipeline ({type(error).__name__}: {reason[-1] if reason else ''});"
                " check the runner and its options."
            ) from error

    def _pipeline_options(self) -> PipelineOptions:
        mine = ["--job_name=privkde-collect", "--default_sdk_harness_log_level=ERROR"]
        if self.runner is None:
            mode = "in_memory" if self.workers == 1 else "multi_processing"
            mine += [f"--direct_num_workers={self.workers}", f"--direct_running_mode={mode}"]
        else:
            mine += [f"--runner={self.runner}"]
        return PipelineOptions([*mine, *self.options])

    def _runner(self, options: PipelineOptions) -> Any:
        """By default Beam's runner inside this process: the one called DirectRunner may download another program."""
        if self.runner is not None:
            return self.runner
        from apache_beam.portability.api import beam_provision_api_pb2
        from apache_beam.runners.portability.fn_api_runner import fn_runner
        from apache_beam.runners.portability.portable_runner import JobServiceHandle

        told = JobServiceHandle.encode_pipeline_options(options.get_all_options())
        provision = beam_provision_api_pb2.ProvisionInfo(pipeline_options=told)
        return fn_runner.FnApiRunner(provision_info=fn_runner.ExtendedProvisionInfo(provision))


def _unknown(options: Sequence[str]) -> list[str]:
    """Those that no part of Beam knows."""
    parsers: list[Any] = []
    PipelineOptions([]).get_all_options(add_extra_args_fn=parsers.append)
    (parser,) = parsers
    return list(parser.parse_known_args(list(options))[1])


def _found(pattern: str) -> list[str]:
    place = pattern if "://" in pattern else os.path.abspath(pattern)  # Beam expands no pattern without a folder
    (match,) = FileSystems.match([place])
    return [one.path for one in match.metadata_list]


def _stored(users: Users, scratch: Path) -> tuple[Users, Path | None]:
    """The users, and the file of their classes: arrays become files, which are not copied into the pipeline."""
    held: dict[str, Any] = {} if users.classes is None else {"classes": users.classes}
    if isinstance(users.rows, np.ndarray):
        held["rows"] = users.rows
    if held:
        np.savez(scratch / "users.npz", **held)
    rows = read_vectors(scratch / "users.npz", "rows") if "rows" in held else users.rows
    elsewhere = replace(users, rows=rows, index=users.index[:0], classes=None)
    return elsewhere, scratch / "users.npz" if "classes" in held else None


def _deliver(target: str, counts: PartialCounts) -> None:
    """Write the outcome to a file, for `_delivered`."""
    document = {
        "schema": OUTCOME_SCHEMA,
        "n_users": counts.n_users,
        "rejected": counts.rejected,
        "complaint": None if counts.complaint is None else [counts.complaint.place, counts.complaint.reason],
    }
    with FileSystems.create(target, compression_type=CompressionTypes.UNCOMPRESSED) as file:
        file.write(sealed(document, {"ones": counts.tally.ones, "zeros": counts.tally.zeros}))


def _delivered(content: bytes, name: str) -> PartialCounts:
    document, arrays = unsealed(content, name, OUTCOME_SCHEMA)
    complaint = document["complaint"]
    return PartialCounts(
        tally=Tally(arrays["ones"], arrays["zeros"]),
        n_users=document["n_users"],
        rejected=document["rejected"],
        complaint=None if complaint is None else Complaint(*complaint),
    )
