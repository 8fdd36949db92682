"""Reads each data file in use, and compares the file with the recorded checksum.

The files in use are those of archives and of serving, idle and candidate builds. For a build, these
are the files of its newest frontier and of its kept frontiers. Jobs continue meanwhile, so a file
that a job has deleted meanwhile is not damage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from kappa.base.errors import KappaError
from kappa.replay.rollout.current_state import current_state
from kappa.replay.rollout.state import State
from kappa.state.build import table_path
from kappa.state.file_sums import RecordedSums, describe_damage, sum_name, sum_of
from kappa.state.frontier import Frontiers, Sum
from kappa.state.kept_frontiers import kept_frontiers_of
from kappa.state.store import Store
from kappa.tables.archive import archived_topics, archives_of, folder
from kappa.tables.stored_archive import open_archive
from kappa.tables.versions import FileLists

# Gets the bytes that are done, all bytes, and how many files are bad so far.
Show = Callable[[int, int, int], None]


@dataclass(frozen=True, slots=True)
class ScrubbedFile:
    """A data file with its damage, or a table whose files cannot be listed.

    `of` is the build or the topic. `table` is the table, or None for an archive. `sum` is the
    recorded checksum of the file, or None if no checksum is recorded. `why` describes the damage,
    and is "" for an undamaged file.
    """

    path: str
    of: str
    table: str | None
    hint: str
    sum: Sum | None
    size: int = 0
    why: str = ""

    def damage_text(self, store: Store) -> str:
        """Returns a sentence that describes the damage of the file."""
        owner = (
            f"the archive of topic {self.of}"
            if self.table is None
            else f"table {self.table} of build {self.of}"
        )
        return f"file {store.name(self.path)} of {owner} {self.why}"


@dataclass(frozen=True, slots=True)
class ScrubResult:
    """The result of a scrub: the counts, and the files that have changed since they were written.

    `unknown` is the number of files without a recorded checksum. Such files were written by an
    older Kappa.
    """

    files: int
    bytes: int
    unknown: int
    bad: tuple[ScrubbedFile, ...]


def scrub_root(store: Store, *, show: Show = lambda _done, _of, _bad: None) -> ScrubResult:
    """Reads all data files in use, and compares each file with its recorded checksum.

    Files on a disk are read from the disk, not from the memory cache of the machine. In a bucket,
    the objects are fetched. `show` is called after each file with the number of bytes read so far,
    the number of all bytes, and the number of damaged files so far. Raises Damaged if a record that
    names the files in use cannot be read.
    """
    wanted = tuple(_files_in_use(store))
    whole, done, bad = sum(each.size for each in wanted), 0, []
    for each in wanted:
        why = each.why or _file_difference(each)
        if why:
            bad.append(replace(each, why=why))
        done += each.size
        show(done, whole, len(bad))
    # A job may have deleted a file, or published another version, since the files were listed.
    still = {each.path for each in _files_in_use(store)} if bad else set()
    return ScrubResult(
        len(wanted),
        done,
        sum(each.sum is None and not each.why for each in wanted),
        tuple(each for each in bad if each.path in still),
    )


def _file_difference(file: ScrubbedFile) -> str:
    try:
        found = sum_of(file.path, from_disk=True)
    except FileNotFoundError:
        return "is gone"
    except OSError as error:
        return f"cannot be read: {error.strerror or error}"
    return "" if file.sum is None or file.sum == found else describe_damage(file.sum, found)


def _files_in_use(store: Store) -> Iterator[ScrubbedFile]:
    state = current_state(store)
    for build in sorted({state.folded_by(build) for build in state.wanted_builds()}):
        yield from _of_build(store, state, build)
    for topic in archived_topics(store):
        for fingerprint in archives_of(store, topic):
            yield from _of_archive(store, topic, store.address(folder(topic, fingerprint)))


def _of_build(store: Store, state: State, build: str) -> Iterator[ScrubbedFile]:
    newest = Frontiers(store, build).newest()
    kept = {each.frontier.number: each.frontier for each in kept_frontiers_of(store, build)}
    frontiers = [*kept.values(), *([] if newest is None else [newest])]
    lists, sums = FileLists(), RecordedSums(store, build).all()
    seen: set[str] = set()
    for frontier in frontiers:
        for table, version in frontier.versions.items():
            path = table_path(store, build, table)
            hint = _repair_hint(state, build, is_past=frontier is not newest)
            try:
                listed = lists.list_at(path, version, frontier.file_lists.get(table))
            except KappaError as error:
                why = f"cannot be listed: {error.message}"
                yield ScrubbedFile(path, build, table, hint, None, why=why)
                continue
            for name, (size, _) in sorted(listed.files.items()):
                file = f"{path}/{name}"
                if file not in seen:
                    seen.add(file)
                    yield ScrubbedFile(file, build, table, hint, sums.get(sum_name(file)), size)


def _repair_hint(state: State, build: str, *, is_past: bool) -> str:
    """Returns the hint for a damaged file of a build.

    `is_past` is True if only a kept frontier needs the file.
    """
    over = {each for each in state.wanted_builds() if state.folded_by(each) == build}
    pipeline = state.pipelines[build]
    again = f"kappa replay {pipeline} makes a new build from the log"
    if is_past:
        return f"only answers as of the past need it; {again}"
    if over & set(state.serving.values()):
        return (
            f"kappa undo {pipeline} lets the build before serve meanwhile; {again}"
            if pipeline in state.idle
            else again
        )
    if over & set(state.idle.values()):
        return f"it does not serve: leave kappa undo {pipeline} alone; {again}"
    return f"it does not serve yet: kappa abandon {pipeline}; {again}"


def _of_archive(store: Store, topic: str, path: str) -> Iterator[ScrubbedFile]:
    hint = f"move {path} away: kappa up archives again what the topic has"
    try:
        archive = open_archive(path)
        if archive is not None:
            archive.ensure_listed(store)
        blocks = () if archive is None else archive.blocks()
        sums = {} if archive is None else archive.sums(store)
    except KappaError as error:
        yield ScrubbedFile(path, topic, None, hint, None, why=f"cannot be read: {error.message}")
        return
    for block in blocks:
        sum_ = sums.get(sum_name(block.path))
        yield ScrubbedFile(block.path, topic, None, hint, sum_, block.bytes)
