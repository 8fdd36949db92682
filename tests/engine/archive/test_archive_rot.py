"""Bit rot in an archive: no slice and no join reads it, and a scrub finds it (I14)."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from test_archive import ID, VISITS, archived, reading, some_log, the_archive

from kappa.base.errors import Damaged
from kappa.engine.archive.archive_writer import ArchiveWriter
from kappa.engine.read.archived import Archives
from kappa.objects.address import read_file, write_file
from kappa.state.store import Store
from replay.doctor.scrub import scrub

pytestmark = pytest.mark.slow

STEPS = [{0: end, 1: end} for end in range(20, 121, 20)]


@pytest.fixture
def store(any_store: Store) -> Store:
    return any_store


def anew(store: Store) -> Store:
    """Returns the root as another process opens it, which has checked no file."""
    if store.is_on_disk:
        return Store(store.folder, syncs=False)
    return Store(store.url, storage=store.storage, local=store.local.folder)


def flip_one(store: Store, draw: random.Random) -> str:
    """Flips a bit of one of the archive's files, and returns which."""
    file = draw.choice(the_archive(store).blocks()).path
    content = bytearray(read_file(file))
    content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    write_file(file, bytes(content))
    return file


def test_every_file_has_a_sum_also_of_those_that_were_joined(store: Store) -> None:
    archived(store, some_log(400), [{0: end, 1: end} for end in range(10, 190, 10)])

    found = scrub(anew(store))

    assert (found.bad, found.unknown) == ((), 0)
    assert found.files == len(the_archive(store).blocks())


@pytest.mark.parametrize("seed", range(3))
def test_a_flipped_bit_is_found_and_slices_are_read_from_the_topic(
    store: Store, tmp_path: Path, seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    archived(store, some_log(300), STEPS)
    file = flip_one(store, random.Random(seed))

    (bad,) = scrub(anew(store)).bad
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
    assert [each.path for each in scrub(anew(store)).bad] == [file]
