"""A program that folds the log of a build once more, for a proof.

    python -m kappa.engine.children.refold --project DIR --root ROOT
        --bootstrap HOST:PORT --build BUILD --folder FOLDER

The program uses the build's own code snapshot and topics, and folds slices in the same way as a
job. The program's slices differ from the build's slices, and its tables are in a separate folder.
The program takes no lock and no lease, and changes no file of the build. FOLDER is a root with a
file that contains the ends of the program's slices, the cuts (kappa/state/slices.py defines the
file). The program writes tables and frontiers to FOLDER; the frontiers show its progress. If the
program fails, it prints the error to stderr, and records the error in FOLDER in the same way as a
job that stops.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from msgspec.structs import replace
from pyspark.sql import SparkSession

from kappa.base.errors import ExitCode, KappaError
from kappa.base.program import run_program
from kappa.base.settings import Settings, load_settings
from kappa.code.code_snapshot import load_snapshot
from kappa.engine.read.archive_reader import Archives
from kappa.engine.read.source import KafkaAccess, LogSource
from kappa.engine.slice import SliceRunner
from kappa.engine.spark.jvm import Profile, cluster_for
from kappa.engine.spark.session import boot_for, end_process
from kappa.engine.spark.workers import begin_executors
from kappa.engine.write.publisher import Publisher
from kappa.kafka.client import Log
from kappa.kafka.client_options import client_options
from kappa.kafka.stored_schemas import open_registry
from kappa.state.build import read_birth
from kappa.state.build_status import put_stopped, watch_slice
from kappa.state.files.bucket import is_bucket
from kappa.state.offsets import lost_ranges
from kappa.state.slices import Slice, read_cuts
from kappa.state.store import Store, open_store

# No job has this leg: transactions of a branch's base were copied with its tables.
REFOLDED = 0


def refold(
    settings: Settings,
    bootstrap_servers: str,
    build: str,
    folder: Store,
    session: Callable[[], SparkSession],
) -> None:
    """Folds the log of a build from the build's first offsets to the last recorded end.

    `folder` contains the ends of the slices, and gets the tables and frontiers. If an earlier run
    of the program was interrupted, continues after the last frontier in `folder`. Raises Broken in
    the same cases in which a job stops.
    """
    root = open_store(settings)
    open_registry(settings, root)
    birth = read_birth(root, build)
    cuts = read_cuts(folder)
    kafka = KafkaAccess(bootstrap_servers, client_options(settings))
    log = Log(kafka.bootstrap_servers, kafka.options)
    # The session's workers import what this process imports, so the snapshot is loaded first.
    pipeline = load_snapshot(root, birth)
    spark = session()
    source = LogSource(kafka, log)
    # A proof decodes the log again. An archive is read only if the log lacks records.
    lost = lost_ranges(birth.begins, log.beginning(birth.topic_ids))
    archives = Archives(root, pipeline.topics, birth.topic_ids, log) if lost else None
    publisher = Publisher(folder, birth, hold_seconds=settings.rollout.hold_seconds)
    publisher.take_over()
    slices = SliceRunner(
        folder,
        birth,
        pipeline,
        log,
        driver_rows=cuts.driver_rows,
        archives=archives,
    )
    try:
        slices.guard.check_topics()
        publisher.begin(slices.first_frontier())
        for number in range(publisher.newest.slice + 1, len(cuts.ends)):
            slices.guard.check_heard(publisher.newest, datetime.now(UTC))
            heard_at = slices.guard.heard_with(publisher.newest, cuts.ends[number])
            piece = Slice(REFOLDED, number, publisher.newest.offsets, cuts.ends[number])
            slices.run_slice(
                piece,
                lambda: spark,
                source,
                publisher,
                watch_slice(folder, build, piece, len(cuts.ends)),
                heard_at=heard_at,
                views_at=cuts.ends[-1],
            )
    finally:
        slices.close()
        source.close()


def _seen_from(settings: Settings) -> Settings:
    """Returns the settings, changed so that Spark workers can read the proof's folder.

    The proof's folder is on this host's disk. So if the root is in a bucket, the workers run on
    this host instead of the configured cluster.
    """
    here = replace(settings.engine, master="")
    return replace(settings, engine=here) if is_bucket(settings.root) else settings


def _session(settings: Settings, name: str, local_dir: Path) -> SparkSession:
    profile = Profile.CATCH_UP
    spark = boot_for(settings, profile=profile, name=name, local_dir=local_dir).session()
    cluster = cluster_for(settings, profile)
    if cluster is not None:
        begin_executors(spark, cluster, local_dir, lambda: False)
    return spark


def main(arguments: list[str] | None = None) -> int:
    """Runs the program, and returns its exit code."""

    def work(given: argparse.Namespace) -> ExitCode:
        folder = Store(given.folder)
        try:
            settings = _seen_from(load_settings(given.project, root=given.root))
            refold(
                settings,
                given.bootstrap,
                given.build,
                folder,
                lambda: _session(settings, f"proof of {given.build}", folder.path("spark")),
            )
        except KappaError as error:
            put_stopped(folder, given.build, error)
            raise
        return ExitCode.OK

    return run_program(
        "kappa.engine.children.refold", work, arguments, bootstrap=str, build=str, folder=str
    )


if __name__ == "__main__":
    end_process(main())
