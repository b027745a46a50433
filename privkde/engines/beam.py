"""Run a collection by Apache Beam: the same blocks, draws and counts as in one process (extra `beam`).

`transforms` says what travels and who is trusted. The engine gets back one file of counts with all their noise, and
deletes it after reading. For fewer users than a shuffler waits for, the file holds their number and no counts. While
users are played, arrays of vectors and class numbers are kept in a file of the system's temporary folder: on Linux one
without a name, which ends with this process however that ends. A `runner` that is named may have workers elsewhere, so
its file has a name; only this user can read it, and it is deleted at the end.
"""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass, replace
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

import apache_beam as beam
import numpy as np
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import GoogleCloudOptions, PipelineOptions

from accounting.errors import InvalidInputError, PrivkdeError, require_integer
from privkde.bitsum import Tally
from privkde.draws.randomness import ByteStream
from privkde.engines import Engine
from privkde.engines.transforms import CountFiles, Played, opened, play_users
from privkde.engines.users import Users
from privkde.protocol.announcement import Announcement
from privkde.protocol.counting import Complaint, PacketCounter, PartialCounts, analyzed, refuse_complaint, released
from privkde.protocol.parties import Analyzer
from privkde.storage.container import sealed, unsealed
from privkde.storage.datasets import read_vectors
from privkde.storage.files import private_file
from privkde.storage.packets import matched
from privkde.storage.report_register import ReportRegister
from privkde.storage.user_blocks import Progress, block_parts

OUTCOME_SCHEMA = "privkde.outcome/2"
PLAIN = CompressionTypes.UNCOMPRESSED
MOST_WORKERS = 1024
DASK = "DaskRunner"
FULL_NAMES = {DASK: "apache_beam.runners.dask.dask_runner.DaskRunner"}
"""Runners that Beam has and does not know by their short names."""
DASK_PARTITIONS = ("--dask_partition_size", "--dask_npartitions")
WITH_OPTIONS_OF_THEIR_OWN = ("FlinkRunner", "SparkRunner", "PortableRunner")
"""Runners whose job server has more options than Beam's Python package knows."""


class PipelineError(PrivkdeError):
    """Beam could not run a pipeline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BeamEngine(Engine):
    """Runs collections by Beam: by default in this process, with more `workers` in as many processes of this machine.

    `runner` names another runner (`DaskRunner`, `FlinkRunner`, `SparkRunner`, `DataflowRunner`, …) and `options` are
    its options. It needs `--temp_location`, where its workers leave the counts for this process. `DaskRunner` gives its
    workers one block of users, or one file of packets, at a time, unless its options say otherwise.
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
        if self.runner == DASK:
            _require_dask()
        named = self._named_options()
        if "--runner" in named:
            raise InvalidInputError("name the runner as `runner`, not among the options of Beam.")
        if self.runner is not None and "--temp_location" not in named:
            raise InvalidInputError(
                f"{self.runner} needs the option --temp_location: a folder that its workers and this machine reach."
            )
        unknown = [] if self.runner in WITH_OPTIONS_OF_THEIR_OWN else _unknown(self.options)
        if unknown:
            raise InvalidInputError(f"Beam has no option {unknown[0]!r} and would ignore it; correct or leave it out.")

    def _named_options(self) -> set[str]:
        return {option.split("=")[0] for option in self.options}

    def _aggregated(self, users: Users, stream: ByteStream, progress: Progress | None) -> Analyzer:
        return analyzed(users.announcement, self._played(users, stream, progress, path="aggregated"))

    def _faithful(self, users: Users, stream: ByteStream, progress: Progress | None) -> Analyzer:
        return released(users.announcement, self._played(users, stream, progress, path="faithful"))

    def _write_packets(
        self, users: Users, folder: Path, stream: ByteStream, suffix: str, progress: Progress | None
    ) -> None:
        """All workers must see `folder`, and be able to link files in it."""
        self._played(users, stream, progress, folder=folder.resolve(), suffix=suffix)

    def matches(self, pattern: str) -> list[str]:
        """See `Engine`."""
        absolute = pattern if "://" in pattern else os.path.abspath(pattern)  # Beam does not expand a bare file name
        (match,) = FileSystems.match([absolute])
        return [metadata.path for metadata in match.metadata_list]

    def _count(
        self,
        announcement: Announcement,
        counter: PacketCounter,
        files: Sequence[str],
        register: ReportRegister,
        progress: Progress | None,
    ) -> PartialCounts:
        """Wherever Beam can read the files; names may be patterns such as `gs://a/*`.

        Workers get the ids of reports that were counted before, and leave those that are new, as lines of files.
        """
        names = matched(files, self.matches)

        def build(pipeline: Any, place: str) -> Any:
            with FileSystems.create(f"{place}.known", compression_type=PLAIN) as known:
                known.writelines(f"{report.hex()}\n".encode() for report in register.reports())
            return pipeline | beam.Create(names) | CountFiles(announcement, counter, place)

        def add(place: str, counts: PartialCounts) -> None:
            (match,) = FileSystems.match([f"{place}.new-*"])
            new = 0
            for file in match.metadata_list:
                with opened(file.path) as lines:
                    new += sum(register.add(bytes.fromhex(line.decode().strip())) for line in lines)
            if counts.complaint is None and new != counts.n_users:
                raise PipelineError(
                    f"{counts.n_users} reports were counted and {new} are new: files were changed; count again."
                )

        with tempfile.TemporaryDirectory() as scratch:
            counts = self._run(build, scratch, add)
        if progress is not None:
            progress(counts.n_users)
        return counts

    def _played(self, users: Users, stream: ByteStream, progress: Progress | None, **options: Any) -> PartialCounts:
        """The counts of these users; none if they write packets."""
        announcement = users.announcement
        blocks = block_parts(users.index, announcement.n_instances)
        named = self.runner is not None
        with tempfile.TemporaryDirectory() as scratch, _stored(users, named=named) as (stored, classes):
            played = Played(users=stored, classes=classes, recipe=stream.recipe(), **options)

            def build(pipeline: Any, _: str) -> Any:
                return play_users(pipeline | beam.Create(blocks), played)

            counts = self._run(build, scratch)
        refuse_complaint(counts)
        if progress is not None:
            progress(len(users.index))
        return counts

    def _run(
        self,
        build: Callable[[Any, str], Any],
        scratch: str,
        read: Callable[[str, PartialCounts], None] | None = None,
    ) -> PartialCounts:
        """Run the pipeline, then read and delete the files that it delivered; their names begin with a `place`."""
        options = self._pipeline_options()
        folder = options.view_as(GoogleCloudOptions).temp_location or scratch
        place = FileSystems.join(folder, f"privkde-{secrets.token_hex(8)}")
        target = f"{place}.npz"
        try:
            try:
                with self._pipeline(options) as pipeline:
                    build(pipeline, place) | beam.Map(partial(_deliver, target))
                with opened(target) as file:
                    counts = _delivered(file.read(), target)
                if read is not None:
                    read(place, counts)
                return counts
            finally:
                (left,) = FileSystems.match([f"{place}*"])
                FileSystems.delete([file.path for file in left.metadata_list])
        except PrivkdeError:
            raise
        except Exception as error:  # runners have errors of all kinds
            reason = str(error).strip().splitlines()
            raise PipelineError(
                f"Beam could not run the pipeline ({type(error).__name__}: {reason[-1] if reason else ''});"
                " check the runner and its options."
            ) from error

    @contextmanager
    def _pipeline(self, options: PipelineOptions) -> Iterator[Any]:
        """A pipeline, which runs when the block ends."""
        pipeline = beam.Pipeline(runner=self._runner(options), options=options)
        try:
            with pipeline:
                yield pipeline
        finally:
            shutil.rmtree(pipeline.local_tempdir, ignore_errors=True)  # Beam does so unless it is interrupted before
            if self.runner == DASK and hasattr(pipeline, "result"):
                pipeline.result.client.close()  # Beam leaves it open

    def _pipeline_options(self) -> PipelineOptions:
        ours = ["--job_name=privkde-collect", "--default_sdk_harness_log_level=ERROR"]
        if self.runner is None:
            mode = "in_memory" if self.workers == 1 else "multi_processing"
            ours += [f"--direct_num_workers={self.workers}", f"--direct_running_mode={mode}"]
        else:
            ours += [f"--runner={FULL_NAMES.get(self.runner, self.runner)}"]
        if self.runner == DASK and not self._named_options() & set(DASK_PARTITIONS):
            ours += [f"{DASK_PARTITIONS[0]}=1"]
        return PipelineOptions([*ours, *self.options])

    def _runner(self, options: PipelineOptions) -> Any:
        """By default Beam's runner inside this process: its DirectRunner may download another program."""
        if self.runner is not None:
            return FULL_NAMES.get(self.runner, self.runner)
        from apache_beam.portability.api import beam_provision_api_pb2
        from apache_beam.runners.portability.fn_api_runner import fn_runner
        from apache_beam.runners.portability.portable_runner import JobServiceHandle

        encoded = JobServiceHandle.encode_pipeline_options(options.get_all_options())
        provision = beam_provision_api_pb2.ProvisionInfo(pipeline_options=encoded)
        return fn_runner.FnApiRunner(provision_info=fn_runner.ExtendedProvisionInfo(provision))


def _require_dask() -> None:
    """Load Beam's runner for Dask, so that its options are known from now on."""
    if find_spec("distributed") is None:
        raise InvalidInputError(f"{DASK} needs distributed; install the extra with `pip install 'privkde[dask]'`.")
    import_module(FULL_NAMES[DASK].rpartition(".")[0])


def _unknown(options: Sequence[str]) -> list[str]:
    """The options that no part of Beam knows."""
    parsers: list[Any] = []
    PipelineOptions([]).get_all_options(add_extra_args_fn=parsers.append)
    (parser,) = parsers
    return list(parser.parse_known_args(list(options))[1])


@contextmanager
def _stored(users: Users, *, named: bool) -> Iterator[tuple[Users, Path | None]]:
    """The users, and the file of their classes: arrays become a file, so that the pipeline does not hold copies."""
    arrays: dict[str, Any] = {} if users.classes is None else {"classes": users.classes}
    if isinstance(users.rows, np.ndarray):
        arrays["rows"] = users.rows
    with _own_file(named=named) as (file, path):
        np.savez(file, **arrays)
        file.flush()
        rows = read_vectors(path, "rows") if "rows" in arrays else users.rows
        stored = replace(users, rows=rows, index=users.index[:0], classes=None)
        yield stored, path if "classes" in arrays else None


@contextmanager
def _own_file(*, named: bool) -> Iterator[tuple[IO[bytes], Path]]:
    """A temporary file to fill, and where processes of this user open it.

    Unless it has to be `named` it has no name, where the system allows: others then open it through this process.
    """
    if not named and Path("/proc/self/fd").is_dir():
        with tempfile.TemporaryFile() as file:
            yield file, Path(f"/proc/{os.getpid()}/fd/{file.fileno()}")
        return
    with private_file("users.npz") as path, path.open("wb") as held:
        yield held, path


def _deliver(target: str, counts: PartialCounts) -> None:
    """Write the outcome to a file, which `_delivered` reads."""
    document = {
        "schema": OUTCOME_SCHEMA,
        "n_users": counts.n_users,
        "rejected": counts.rejected,
        "repeated": counts.repeated,
        "secret": counts.secret,
        "complaint": None if counts.complaint is None else list(astuple(counts.complaint)),
    }
    with FileSystems.create(target, compression_type=PLAIN) as file:
        file.write(sealed(document, {"ones": counts.tally.ones, "zeros": counts.tally.zeros}))


def _delivered(content: bytes, name: str) -> PartialCounts:
    document, arrays = unsealed(content, name, OUTCOME_SCHEMA, ("ones", "zeros"))
    complaint = document["complaint"]
    return PartialCounts(
        tally=Tally(arrays["ones"], arrays["zeros"]),
        n_users=document["n_users"],
        rejected=document["rejected"],
        repeated=document["repeated"],
        secret=document["secret"],
        complaint=None if complaint is None else Complaint(*complaint),
    )
