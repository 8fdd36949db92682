"""A comparison of the table files on disk with the files that something refers to (I5)."""

from __future__ import annotations

from pathlib import Path

from testbed import Testbed

from kappa.state.build import read_birth, table_path
from kappa.state.kept_frontiers import kept_frontiers_of
from kappa.tables.delta import open_newest
from kappa.tables.versions import files


def assert_files_are_those_referenced(bed: Testbed) -> None:
    for build in bed.state().wanted_builds():
        birth = read_birth(bed.store, build)
        if birth.tables_of is not None:
            # The build below it has its tables.
            continue
        newest = bed.frontier(build)
        assert newest is not None
        shown = [newest, *(each.frontier for each in kept_frontiers_of(bed.store, build))]
        for table in birth.tables:
            path = table_path(bed.store, build, table.name)
            last = open_newest(path).version()
            referenced = {
                file
                for version in {last, *(frontier.versions[table.name] for frontier in shown)}
                for file in files(path, version, None)
            }
            # Spark writes a `.NAME.crc` beside each.
            there = {
                str(file)
                for file in Path(path).iterdir()
                if file.is_file() and not file.name.startswith(".")
            }
            assert there == referenced
