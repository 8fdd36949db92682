"""Laws of the spool: ordered, bounded, and complete after any death."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kappa.serving.collect import spool as module
from kappa.serving.collect.acknowledged_send import ArrivedEvent
from kappa.serving.collect.spool import Spool

if TYPE_CHECKING:
    from ext4 import Ext4

pytestmark = pytest.mark.slow

MANY = 10**9


def event(number: int, size: int = 0) -> ArrivedEvent:
    return ArrivedEvent("visits", f"{number}".encode() + b"x" * size, number)


def read(spool: Spool, most: int = MANY) -> list[int]:
    return [each.arrived_ms for each in spool.read(most, MANY)]


OpenSpool = Callable[..., Spool]


@pytest.fixture
def open_spool(tmp_path: Path) -> Iterator[OpenSpool]:
    """Yields a function that opens the spool again, as a new process does after a death."""
    opened: list[Spool] = []

    def again(most: int = MANY, folder: Path = tmp_path) -> Spool:
        opened.append(Spool(folder, most))
        return opened[-1]

    yield again
    for each in opened:
        each.close()


def test_events_are_read_in_order_across_files_and_processes(
    tmp_path: Path, open_spool: OpenSpool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_FILE_BYTES", 300)
    draw, appended, found = random.Random(3), 0, []
    spool = open_spool()
    for _ in range(200):
        match draw.randrange(4):
            case 0:
                count = draw.randrange(1, 9)
                events = [event(appended + each, draw.randrange(60)) for each in range(count)]
                assert spool.append(events) == count
                appended += count
            case 1:
                if some := read(spool, draw.randrange(1, 5)):
                    found += some
                    spool.keep_position()
            case 2:
                # It dies: what was read and not kept is read again.
                read(spool, 3)
                spool = open_spool()
            case 3:
                spool.close()
                spool = open_spool()
    while some := read(spool):
        found += some
        spool.keep_position()

    assert found == list(range(appended))
    assert len(list(tmp_path.glob("*.events"))) <= 1


@pytest.mark.parametrize("cut", range(1, 40, 3))
def test_an_event_that_was_cut_short_is_left_out(
    tmp_path: Path, open_spool: OpenSpool, cut: int
) -> None:
    open_spool().append([event(0), event(1, 20)])
    (file,) = tmp_path.glob("*.events")
    content = file.read_bytes()
    file.write_bytes(content[: -min(cut, len(content) - 30)])

    spool = open_spool()
    spool.append([event(2)])

    assert [*read(spool), *read(spool)] == [0, 2]
    spool.keep_position()
    assert read(open_spool()) == []


def test_it_takes_no_more_than_its_bytes_and_frees_what_was_sent(
    tmp_path: Path, open_spool: OpenSpool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_FILE_BYTES", 1_000)
    spool = open_spool(5_000)

    taken = spool.append([event(number, 100) for number in range(100)])
    assert 30 < taken < 50
    assert spool.append([event(1, 100)]) == 0
    assert sum(file.stat().st_size for file in tmp_path.glob("*.events")) <= 5_000

    assert read(spool) == list(range(taken))
    spool.keep_position()
    spool.append([event(-1)])
    assert read(spool) == [-1]
    spool.keep_position()
    assert spool.append([event(number, 100) for number in range(20)]) == 20


def test_a_damaged_position_sends_again_and_loses_nothing(
    tmp_path: Path, open_spool: OpenSpool
) -> None:
    spool = open_spool()
    spool.append([event(0), event(1)])
    read(spool, 1)
    spool.keep_position()
    (tmp_path / "position").write_bytes(b"{torn")

    assert read(open_spool()) == [0, 1]


def fill(path: Path) -> None:
    """Fills the file system of a file."""
    with suppress(OSError), path.open("wb", buffering=0) as filler:
        while True:
            filler.write(b"x" * 4096)


def test_on_a_full_disk_what_was_appended_stays_and_it_goes_on_later(
    disk: Ext4, open_spool: OpenSpool
) -> None:
    spool = open_spool(folder=disk.folder / "spool")
    assert spool.append([event(0)]) == 1
    fill(disk.folder / "filler")

    count = 1
    with suppress(OSError):
        while spool.append([event(count, 500)]):
            count += 1
    with pytest.raises(OSError, match="No space left"):
        spool.append([event(count, 5_000)])
    (disk.folder / "filler").unlink()
    assert spool.append([event(count)]) == 1

    found = read(spool) + read(spool)
    assert found == list(range(count + 1))
    assert read(open_spool(folder=disk.folder / "spool"), 1) == [0]
