"""Kappa as a program of the bench: a project with one pipeline, a new build, and its catch-up.

The catch-up leg runs as on the platform, and is measured from the start of its process to the exit.
If the topic is short, a job that has caught up continues as a tail; then scripts/fold_log.py stops
the job.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import sys
import time
from collections.abc import Iterable, Mapping
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from bids import warm_page_cache
from cells import TASKS, WAYS, Way
from figures import Warm
from oracle import Rows
from rivals import SCRIPTS, Attempt, Command, NotThereError

from kappa.base.clock import now
from kappa.base.java.java import find_java
from kappa.base.settings import load_settings
from kappa.code.code_snapshot import ensure_snapshot, hash_files
from kappa.code.fingerprint import SEMANTICS
from kappa.code.importer import open_sources
from kappa.code.project import load_module, pipelines_in
from kappa.code.sources import Sources
from kappa.declare.pipeline import Pipeline
from kappa.declare.topic import Topic
from kappa.declare.values.columns import parse_type
from kappa.engine.archive.archive_writer import ArchiveWriter
from kappa.engine.job.legs import LegKind
from kappa.engine.read.archive_reader import Archives, archive_fingerprint
from kappa.engine.read.source import KafkaAccess, LogSource
from kappa.kafka.client import Log
from kappa.serving.query.reader.relations import tables_of
from kappa.state.build import Birth, TopicBirth, put_birth, read_birth
from kappa.state.frontier import Frontiers
from kappa.state.offsets import Offsets
from kappa.state.store import Store, open_store
from kappa.state.table import TableBirth
from kappa.tables.archive import FOLDER
from kappa.tables.versions import files
from kappa.tables.views.view_tables import build_tables

BUILD = "bench"
_FILE, _MODULE = "pipelines/bench.py", "pipelines.bench"
# What a job prints of each slice (engine/job/bounded_legs.py): how many offsets, and how many a
# second.
_SLICE = re.compile(
    r"^\S+ INFO kappa: "
    r"slice \d+ of \d+: (?P<offsets>\d+) offsets in [\d.]+ s, (?P<rate>[\d,]+)/s",
    re.MULTILINE,
)


class KappaJob:
    """A program of the bench that runs a job for a build of the task's pipeline."""

    tasks = frozenset(TASKS)

    def __init__(self, settings: str = "", way: str = "") -> None:
        """Stores the project's settings. `{servers}` and `{run}` in `settings` will be filled in.

        `way` names a variant of the pipeline (`WAYS`) that is used instead of the task's own
        pipeline.
        """
        self._settings = settings
        self._way = way
        if way:
            self.tasks = frozenset({WAYS[way].task})

    def set_up(self, _home: Path) -> Mapping[str, str]:
        from rich.console import Console

        from kappa.base.sections import JarsSettings
        from kappa.setup import set_up

        set_up(Console(stderr=True), JarsSettings())
        try:
            own = version("kappa")
        except PackageNotFoundError:
            own = "from this tree"
        return {
            "kappa": own,
            "pyspark": version("pyspark"),
            "deltalake": version("deltalake"),
            "java": find_java().build,
        }

    def prepare(self, attempt: Attempt) -> Command:
        cell = attempt.cell
        way = self._way_of(cell.task)
        settings = self._settings.replace("{servers}", attempt.bootstrap_servers)
        code = {_FILE: cell.fill(way.pipeline).encode()}
        pipeline = declare(attempt.folder, code, settings.replace("{run}", secrets.token_hex(4)))
        returned = {
            table: {
                name: parse_type(kind)
                for name, _, kind in (column.partition(" ") for column in columns.split(", "))
            }
            for table, columns in way.returns.items()
        }
        store = begin_build(
            attempt.folder,
            code,
            pipeline,
            build_tables(pipeline, returned),
            {topic.name: attempt.given.id for topic in pipeline.topics},
        )
        for topic in pipeline.topics:
            self.made_ready(attempt, store, topic)
        return fold_command(attempt.folder, attempt.bootstrap_servers, attempt.given.offsets)

    def made_ready(self, attempt: Attempt, store: Store, topic: Topic) -> None:
        """Prepares additional files before the job runs. Does nothing in this class."""

    def result(self, attempt: Attempt) -> Rows:
        served = served_rows(attempt.folder, attempt.given.offsets)
        task = attempt.cell.task
        columns = self._way_of(task).served
        return {table: f"(select {columns} from ({served[table]}))" for table in TASKS[task].wanted}

    def warm(self, attempt: Attempt) -> Warm | None:
        return warm_in(_output(attempt))

    def _way_of(self, task: str) -> Way:
        if self._way:
            return WAYS[self._way]
        return Way(task, TASKS[task].pipeline, TASKS[task].returns)


class FromArchive(KappaJob):
    """The same program, except that the job reads the topic from an archive.

    The archive is created once per input, and kept for later runs.
    """

    def set_up(self, home: Path) -> Mapping[str, str]:
        self._archives = home / "archives"
        return super().set_up(home)

    def made_ready(self, attempt: Attempt, store: Store, topic: Topic) -> None:
        kept = self._archives / f"{topic.name}.{attempt.given.id}.{archive_fingerprint(topic)}"
        if not kept.exists():
            made = kept.with_suffix(".new")
            shutil.rmtree(made, ignore_errors=True)
            _archive(attempt, topic, made)
            made.replace(kept)
        shutil.copytree(kept / FOLDER, store.path(FOLDER), copy_function=os.link)
        warm_page_cache(kept.rglob("*.parquet"))
        if (
            not Archives(store, [topic], {topic.name: attempt.given.id})
            .end()
            .covers(attempt.given.offsets)
        ):
            raise NotThereError("its archive does not hold the topic")

    def result(self, attempt: Attempt) -> Rows:
        if "cannot be read" in _output(attempt):
            raise NotThereError("its archive could not be read")
        return super().result(attempt)


def declare(folder: Path, code: Mapping[str, bytes], settings: str) -> Pipeline:
    """Writes a project to a new folder, and returns the pipeline of its `pipelines/bench.py`.

    `code` maps the path of each file to its content. `settings` is the content of kappa.toml.
    """
    (folder / "pipelines").mkdir(parents=True)
    for path, content in code.items():
        (folder / path).write_bytes(content)
    (folder / "kappa.toml").write_text(settings, encoding="utf-8")
    sources = Sources(folder)
    open_sources(sources)
    (_, pipeline), *_ = pipelines_in(load_module(_MODULE, sources))
    return pipeline


def begin_build(
    folder: Path,
    code: Mapping[str, bytes],
    pipeline: Pipeline,
    tables: tuple[TableBirth, ...],
    ids: Mapping[str, str],
) -> Store:
    """Creates a build of the project in `folder` that has folded nothing, and returns its store.

    `ids` maps the name of each topic to its id.
    """
    store = store_of(folder)
    ensure_snapshot(store, BUILD, code)
    partitions = {topic.name: topic.partitions for topic in pipeline.topics}
    birth = Birth(
        build=BUILD,
        pipeline=pipeline.name,
        version="bench",
        parts={},
        semantics=SEMANTICS,
        sources=hash_files(code),
        module=_MODULE,
        topics=tuple(
            TopicBirth(topic.name, ids[topic.name], str(topic.kind), topic.partitions)
            for topic in pipeline.topics
        ),
        tables=tables,
        views={},
        origin=Offsets.zero(partitions).plain(),
        libraries={},
        born_at=now(),
        by="bench",
    )
    put_birth(store, birth)
    return store


def fold_command(
    folder: Path, bootstrap_servers: str, end: Offsets, *, leg: LegKind = LegKind.CATCH_UP
) -> Command:
    """Returns the command that folds the build of the project in `folder` up to `end`.

    `leg` is the leg with which the job begins.
    """
    where = {
        "--project": str(folder),
        "--root": store_of(folder).address("").rstrip("/"),
        "--bootstrap": bootstrap_servers,
        "--build": BUILD,
        "--leg": leg,
        "--nice": "0",
    }
    script = str(SCRIPTS / "fold_log.py")
    options = [word for option in where.items() for word in option]
    return Command([sys.executable, script, json.dumps(end.plain()), *options])


def served_rows(folder: Path, end: Offsets) -> Rows:
    """Maps each table of the build of the project in `folder` to SQL with its served rows.

    Raises NotThereError unless the build has folded exactly the records before `end`.
    """
    store = store_of(folder)
    frontier = Frontiers(store, BUILD).newest()
    if frontier is None or not frontier.offsets.equals(end):
        raise NotThereError(
            f"it has folded up to {None if frontier is None else frontier.offsets}, and the log "
            f"ends at {end}"
        )
    # Each round makes its tables at the same paths.
    served = tables_of(read_birth(store, BUILD), frontier, store, listed=files)
    return {name: table.sql for name, table in served.items()}


def store_of(folder: Path) -> Store:
    """Returns the store of the project in `folder`."""
    return open_store(load_settings(folder))


def _archive(attempt: Attempt, topic: Topic, root: Path) -> None:
    """Archives a topic with the archiver's code, and prints the archive's size and CPU time."""
    source = LogSource(KafkaAccess(attempt.bootstrap_servers, {}), Log(attempt.bootstrap_servers))
    begun = time.process_time()
    try:
        writer = ArchiveWriter(Store(root), topic, attempt.given.id)
        for name, partition, end in attempt.given.offsets.items():
            start = 0
            while start < end:
                start = writer.append(partition, start, end, partial(source.batches, name))
    finally:
        source.close()
    cpu, size = (
        time.process_time() - begun,
        sum(file.stat().st_size for file in root.rglob("*.parquet")),
    )
    told = (
        f"{size / attempt.given.events:.1f} bytes an event, {size / attempt.given.bytes:.2f} of "
        f"the topic's; {cpu / attempt.given.events * 1e6:.1f} us of CPU an event"
    )
    print(f"archived: {told}", file=sys.stderr, flush=True)


def _output(attempt: Attempt) -> str:
    return (attempt.folder / "output.log").read_text(errors="replace")


def warm_of(slices: Iterable[tuple[int, int]]) -> Warm | None:
    """Returns the offsets and seconds of the slices after the first large slice. Pure.

    `slices` contains a pair for each slice: its number of offsets, and its offsets per second. The
    first large slice is the first slice with at least half as many offsets as the largest slice.
    Small slices before the first large slice are not counted. Returns None if no slice follows it.
    """
    found = list(slices)
    most = max((offsets for offsets, _ in found), default=0)
    first = next((place for place, (offsets, _) in enumerate(found) if 2 * offsets >= most), 0)
    later = found[first + 1 :]
    return (
        Warm(sum(offsets for offsets, _ in later), sum(offsets / rate for offsets, rate in later))
        if later
        else None
    )


def warm_in(output: str) -> Warm | None:
    """Returns the events and seconds after the first large slice, parsed from a job's output."""
    return warm_of(
        (int(found["offsets"]), int(found["rate"].replace(",", "")))
        for found in _SLICE.finditer(output)
    )
