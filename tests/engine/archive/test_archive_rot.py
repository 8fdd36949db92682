"""Bit rot in an archive: no slice and no join reads it, and a scrub finds it (I14)."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping
from itertools import product
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from test_archive import ID, VISITS, archived, reading, some_log, the_archive

from kappa.base.errors import Broken, Damaged
from kappa.engine.archive.archive_writer import ArchiveWriter
from kappa.engine.read.archive_reader import Archives
from kappa.replay.status.doctor.examine import examine_root
from kappa.replay.status.doctor.scrub import scrub_root
from kappa.state.files.address import read_file, write_file
from kappa.state.store import Store

pytestmark = pytest.mark.slow

# A bit in the middle is another.
DAMAGES: Mapping[str, Callable[[bytes], bytes | None]] = {
    "flipped": lambda whole: (
        b"%b%c%b"
        % (whole[: len(whole) // 2], whole[len(whole) // 2] ^ 4, whole[len(whole) // 2 + 1 :])
    ),
    "zeroed": lambda whole: bytes(len(whole)),
    "halved": lambda whole: whole[: len(whole) // 2],
    "emptied": lambda _whole: b"",
    "deleted": lambda _whole: None,
}
STEPS = [{0: end, 1: end} for end in range(20, 121, 20)]


@pytest.fixture
def store(any_store: Store) -> Store:
    return any_store


def anew(store: Store) -> Store:
    """Returns the root as a new process opens it, which has checked no file."""
    if store.is_on_disk:
        return Store(store.folder, syncs=False)
    return Store(store.url, storage=store.storage, local=store.local.folder)


def flip_one(store: Store, draw: random.Random) -> str:
    """Flips a bit in one of the archive's files, and returns the file."""
    file = draw.choice(the_archive(store).blocks()).path
    content = bytearray(read_file(file))
    content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    write_file(file, bytes(content))
    return file


def test_every_file_has_a_sum_also_of_those_that_were_joined(store: Store) -> None:
    archived(store, some_log(400), [{0: end, 1: end} for end in range(10, 190, 10)])

    found = scrub_root(anew(store))

    assert (found.bad, found.unknown) == ((), 0)
    assert found.files == len(the_archive(store).blocks())


@pytest.mark.parametrize("seed", range(3))
def test_a_flipped_bit_is_found_and_slices_are_read_from_the_topic(
    store: Store, tmp_path: Path, seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    archived(store, some_log(300), STEPS)
    file = flip_one(store, random.Random(seed))

    (bad,) = scrub_root(anew(store)).bad
    into = tmp_path / "slice"
    into.mkdir()
    taken = Archives(anew(store), [VISITS], {"visits": ID}).take(
        VISITS, {0: (0, 120), 1: (0, 120)}, {}, into
    )

    assert (bad.path, bad.of, bad.table) == (file, "visits", None)
    folder, _, name = file.rpartition("/")
    assert f"move {folder} away" in bad.hint
    assert (taken, list(into.iterdir())) == ({}, [])
    assert f"{name} of an archive is not as it was written" in capsys.readouterr().err


def test_a_join_would_make_right_what_is_wrong_and_is_refused(store: Store) -> None:
    log = some_log(400)
    archived(store, log, [{0: end} for end in range(10, 90, 10)])
    file = flip_one(store, random.Random(3))

    with pytest.raises(Damaged, match=file.rpartition("/")[2]):
        ArchiveWriter(anew(store), VISITS, ID).append(0, 80, 90, reading(log))
    assert [each.path for each in scrub_root(anew(store)).bad] == [file]


def taken(store: Store, into: Path) -> list[dict[str, object]] | None:
    """Returns the rows that a slice takes from the archive, or None if it takes none."""
    into.mkdir()
    pieces = {0: (0, 120), 1: (0, 120)}
    if not Archives(store, [VISITS], {"visits": ID}).take(VISITS, pieces, {}, into):
        return None
    rows = [row for file in sorted(into.iterdir()) for row in pq.read_table(file).to_pylist()]
    return sorted(rows, key=repr)


def test_a_damage_of_any_file_of_an_archive_shows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The newest file of each kind is damaged in each way."""
    store = Store(tmp_path / "root", syncs=False)
    archived(store, some_log(300), STEPS)
    # Locks have no content, and Delta's hint of a checkpoint decides nothing.
    kinds = {
        re.sub(r"[0-9a-f-]{8,}|[0-9]+", "N", name): name
        for name in store.names("archive")
        if not name.endswith(("lock", "_last_checkpoint"))
    }
    right, wrong = taken(anew(store), tmp_path / "right"), {}
    assert right is not None
    assert len(kinds) == 4, kinds

    for number, (name, how) in enumerate(product(kinds.values(), DAMAGES)):
        path = store.path(name)
        whole = path.read_bytes()
        damaged = DAMAGES[how](whole)
        path.unlink() if damaged is None else path.write_bytes(damaged)
        capsys.readouterr()
        unknown = 0
        try:
            found = taken(anew(store), tmp_path / str(number))
            said = [each.what for each in examine_root(anew(store), now=0.0)]
            scrubbed = scrub_root(anew(store))
            unknown = scrubbed.unknown
            said += [each.path for each in scrubbed.bad]
        except Broken as error:
            found, said = None, [str(error)]
        told = f"{said} {capsys.readouterr().err}"
        # Without the note of its sums, a scrub counts files that it cannot compare.
        is_told = path.name in told or the_folder(name) in told or unknown
        if found not in (None, right):
            wrong[name, how] = f"other rows: {told}"
        elif not is_told or "kappa replay" in told:
            wrong[name, how] = f"silence, or what does not mend an archive: {told}"
        path.write_bytes(whole)

    assert wrong == {}


def the_folder(name: str) -> str:
    """Returns the archive's folder for one of its files, or for a note about it."""
    return "/".join(name.removesuffix(".json").split("/")[:3])
