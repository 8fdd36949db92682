"""Only the log decides what is late or a duplicate (law 6).

The slices, the process that decodes them, and the place where a job began do not matter.
"""

from __future__ import annotations

import json
import random
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from kappa import Topic
from kappa.base.errors import KappaError
from kappa.engine.children.rehearsal import MemoryLog
from kappa.engine.read.identities import Identities
from kappa.records.decode.decode import decode_table
from kappa.records.decode.identity_file import memory_offsets
from kappa.records.decode.outcome import Fate, counts_in
from kappa.records.decode.parquet_decoder import Remembering, decode_to_file
from kappa.records.identity import Memory, identity_of
from kappa.records.redrive import Original, Position
from kappa.state.mark import Mark
from kappa.state.offsets import Offsets
from kappa.state.slices import Slice

if TYPE_CHECKING:
    from kappa.records.decode.outcome import Counts

HORIZON_MS = 10_000
LATENESS_MS = 5_000
EVENT = "id string, shard int, at timestamp"
PAID = Topic(
    "paid",
    event=EVENT,
    partitions=2,
    event_time="at",
    lateness="5 seconds",
    identity=("id", "shard"),
    identity_horizon="10 seconds",
)
START_MS = 1_700_000_000_000

# (partition, milliseconds since the last record of any partition, identity, event time's distance)
Told = tuple[int, int, str | None, int | None]


def appended(told: Sequence[Told]) -> MemoryLog:
    """Returns a log of these records; the brokers' clocks go back now and then."""
    log, clock = MemoryLog(), START_MS
    for partition, step, identity, behind in told:
        clock += step
        at = {} if behind is None else {"at": clock - behind}
        value = (
            b"{"
            if identity == "no JSON"
            else json.dumps({"id": identity, "shard": 1, **at}).encode()
        )
        log.add("paid", partition, value, ms=clock)
    return log


def expected(log: MemoryLog) -> dict[tuple[int, int], Fate]:
    """Compares each record with all records that were accepted before it in its partition."""
    fates: dict[tuple[int, int], Fate] = {}
    for wanted in range(2):
        accepted: list[tuple[str, int]] = []
        log_time = 0
        for _, partition, offset, micros, _, value, _ in log.records:
            if partition != wanted or value is None:
                continue
            log_time = max(log_time, micros // 1000)
            event: dict[str, Any] | None = None if value == b"{" else json.loads(value)
            if event is None or "at" not in event or micros // 1000 - event["at"] > LATENESS_MS:
                fates[partition, offset] = Fate.REJECTED
            elif event["id"] is not None and any(
                each == event["id"] and log_time - then < HORIZON_MS for each, then in accepted
            ):
                fates[partition, offset] = Fate.DUPLICATE
            else:
                fates[partition, offset] = Fate.DECODED
                accepted.append((event["id"], log_time))
    return fates


class Build:
    """A decoder of slice after slice, as in a job, with all of a job's files and without tables."""

    def __init__(self, folder: Path, log: MemoryLog, memories: str | None = None) -> None:
        self.folder = folder
        self.memories = memories or str(folder / "identities")
        self.log = log
        self.mark = Mark("b", "", 1, -1, Offsets(), Offsets())
        self.fates: dict[tuple[int, int], Fate] = {}
        self.read_back = 0
        self.now = 0.0
        self.restart()

    def restart(self) -> None:
        """Begins a new job of the same build."""
        self.identities = Identities(self.memories, (PAID,), Offsets(), clock=lambda: self.now)

    def read_records(self, piece: Slice) -> pa.Table:
        """Reads records back, and counts them."""
        self.read_back += piece.distance
        return self.log.read_records(piece)

    def fold(self, end: Offsets, *, by_tasks: bool, dies: bool = False) -> None:
        """Decodes a slice, in the job or in tasks. With `dies`, the job dies before the commit."""
        piece = Slice(1, self.mark.slice + 1, self.mark.end, end)
        clock = self.mark.log_time.get("paid", {})
        raw = self.log.read_records(piece)
        if by_tasks:
            path = self.identities.folders(piece.start, self)["paid"]
            bounds = (each.next.get("paid", {}) for each in (piece.start, piece.end))
            decoded, seen = self._by_tasks(raw, clock, Remembering(path, {}, *bounds))
            mark = self._after(piece, seen)
        else:
            memories = self.identities.take(piece.start, self)
            decoded = decode_table(raw, PAID, clock, memories["paid"])
            mark = self._after(piece, counts_in(decoded))
            self.identities.folded(mark)
        if dies:
            self.restart()
            return
        self.mark = mark
        self.identities.committed(end)
        for partition, offset, fate in zip(
            *(decoded.column(name).to_pylist() for name in ("_partition", "_offset", "_fate")),
            strict=True,
        ):
            self.fates[partition, offset] = Fate(fate)

    def _by_tasks(
        self, raw: pa.Table, clock: Mapping[int, int], remembering: Remembering
    ) -> tuple[pa.Table, dict[int, Counts]]:
        seen: dict[int, Counts] = {}
        tables = []
        for task in range(2):
            file = self.folder / f"{task}.parquet"
            batches = raw.filter(pa.compute.equal(raw.column("partition"), task)).to_batches(
                max_chunksize=3
            )
            seen |= decode_to_file(batches, PAID, clock, remembering, file)
            tables.append(pq.ParquetFile(file).read())
        return pa.concat_tables(tables), seen

    def _after(self, piece: Slice, seen: Mapping[int, Counts]) -> Mark:
        log_time = {partition: one.log_time for partition, one in seen.items()}
        log_time = {**self.mark.log_time.get("paid", {}), **log_time}
        return Mark("b", "", 1, piece.number, piece.start, piece.end, {"paid": log_time})


def some_records(draw: random.Random) -> list[Told]:
    """Returns enough records for chains of duplicates that span several slices."""
    steps = [0, 1, 500, 500, 999, 1_000, 5_000, 10_000, -3_000]
    identities = ["a", "b", "Ä", "c", "d", "e", None, "no JSON"]
    behind = [0, 0, 0, 0, 0, 0, 0, -9_000, LATENESS_MS, LATENESS_MS + 1, None]
    return [
        (draw.randrange(2), draw.choice(steps), draw.choice(identities), draw.choice(behind))
        for _ in range(draw.randrange(100))
    ]


# Each writes dozens of files.
@pytest.mark.law
@examples(15)
@given(st.integers(0, 10**9))
def test_any_cut_and_any_restart_find_the_same_duplicates_and_late_records(seed: int) -> None:
    draw = random.Random(seed)
    told = some_records(draw)
    log = appended(told)
    with tempfile.TemporaryDirectory() as folder:
        build = Build(Path(folder), log)
        while not build.mark.end.covers(log.end):
            ends = {
                p: min(last, build.mark.end.at("paid", p) + draw.choice([0, 1, 2, 5, 12]))
                for p, last in log.end.next.get("paid", {}).items()
            }
            end = Offsets({"paid": ends})
            while draw.random() < 0.2:
                build.fold(end, by_tasks=draw.random() < 0.3, dies=True)
            if draw.random() < 0.3:
                build.restart()
            build.fold(end, by_tasks=draw.random() < 0.3)

        assert build.fates == expected(log)


def beats(count: int) -> MemoryLog:
    """Returns records with the same identity, one every second.

    Wherever the log is cut, what is a duplicate then depends on what was accepted before.
    """
    return appended([(0, 1_000, "a", 0)] * count)


@pytest.mark.slow
@pytest.mark.parametrize("by_tasks", [True, False])
def test_the_horizon_bounds_what_is_read_back(tmp_path: Path, by_tasks: bool) -> None:
    log = beats(200)
    build = Build(tmp_path, log)
    for end in range(1, 198, 7 if by_tasks else 1):
        build.fold(Offsets({"paid": {0: end}}), by_tasks=by_tasks)
    assert build.read_back == 0 or by_tasks

    build.restart()
    build.read_back = 0
    build.fold(log.end, by_tasks=False)

    assert build.read_back <= HORIZON_MS // 1_000 + 7
    assert build.fates == expected(log)
    assert sum(fate is Fate.DECODED for fate in build.fates.values()) == 20
    assert len(memory_offsets(str(tmp_path / "identities" / "paid"), 0)) == 1


@pytest.mark.parametrize("identity", ["a", None, "no JSON"])
@pytest.mark.parametrize("ends", [True, False])
def test_nothing_is_read_back_of_a_resting_partition_which_retention_may_empty(
    tmp_path: Path, identity: str | None, ends: bool
) -> None:
    log = appended([(0, 1_000, identity, 0)] * 5)
    log.skip("paid", 1, 3)
    build = Build(tmp_path, log)
    for _, partition, offset, *_ in log.records:
        build.fold(Offsets({"paid": {partition: offset + 1, 1: 0}}), by_tasks=False)
    build.fold(log.end, by_tasks=False)

    build.now = HORIZON_MS / 1_000
    build.identities.rest(ends=ends)
    build.restart()
    build.fold(log.end, by_tasks=False)
    build.fold(log.end, by_tasks=True)

    assert build.read_back == 0


def test_topics_without_an_identity_are_nobodys_memory(tmp_path: Path) -> None:
    log = beats(5)
    log.add("plain", 0, b"{}")
    identities = Identities(str(tmp_path), (PAID, Topic("plain", event="id string")), Offsets())

    folders = identities.folders(log.end, log)
    identities.take(log.end, log)
    identities.folded(Mark("b", "", 1, 0, Offsets(), log.end, {"paid": {0: START_MS}}))
    identities.rest(ends=True)

    (file,) = tmp_path.rglob("*.parquet")
    assert file == tmp_path / "paid" / "0" / "5.parquet"
    assert folders == {"paid": str(tmp_path / "paid")}


def test_what_is_read_back_once_is_not_read_back_again(tmp_path: Path) -> None:
    build = Build(tmp_path, beats(9))
    for end in range(1, 9):
        build.fold(Offsets({"paid": {0: end}}), by_tasks=False)
    for _ in range(2):
        build.restart()
        build.fold(Offsets({"paid": {0: 8}}), by_tasks=False)

    assert build.read_back == 7


def test_a_memory_that_was_lost_is_made_from_the_log_again(tmp_path: Path) -> None:
    log = beats(100)
    build = Build(tmp_path, log)
    build.fold(Offsets({"paid": {0: 77}}), by_tasks=True)
    (tmp_path / "identities" / "paid" / "0" / "77.parquet").unlink()
    build.restart()

    build.fold(log.end, by_tasks=True)

    assert build.fates == expected(log)


def test_a_task_to_which_a_memory_is_missing_takes_none_for_it(tmp_path: Path) -> None:
    log = beats(10)
    raw = log.read_records(Slice(1, 1, Offsets({"paid": {0: 4}}), log.end))
    file = tmp_path / "0.parquet"

    def decoded(known: int) -> dict[int, Counts]:
        remembering = Remembering(str(tmp_path), {0: known}, {0: 4}, {0: 10})
        return decode_to_file(raw.to_batches(), PAID, {}, remembering, file)

    with pytest.raises(KappaError, match=r"0/4\.parquet is missing on this machine"):
        decoded(3)
    seen = decoded(4)

    assert (seen[0].decoded, seen[0].duplicate) == (1, 5)


def test_a_memory_that_cannot_be_read_is_made_from_the_log_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    build = Build(tmp_path, beats(10))
    build.fold(Offsets({"paid": {0: 5}}), by_tasks=True)
    file = tmp_path / "identities" / "paid" / "0" / "5.parquet"
    file.write_bytes(b"PAR1 and no more")
    build.restart()

    build.fold(Offsets({"paid": {0: 10}}), by_tasks=False)

    assert f"{file} cannot be read" in capsys.readouterr().err
    assert not file.exists() or file.read_bytes() != b"PAR1 and no more"


def test_a_memory_is_bounded_by_the_horizon() -> None:
    memory = Memory(HORIZON_MS)
    for second in range(20_000):
        assert memory.accepts(f"{second}".encode(), second * 1_000)

    assert len(memory._accepted) < 4_000
    assert sorted(memory.within(19_999_000)) == sorted(
        f"{second}".encode() for second in range(19_990, 20_000)
    )


def test_identities_of_several_columns_are_told_apart_and_a_null_is_none() -> None:
    identity = identity_of(PAID)
    assert identity is not None

    assert identity(("a", 1, 0)) == identity(("a", 1, 7))
    others = [("a", 1, 0), ("a", 11, 0), ("a1", 1, 0), ('a","1', 1, 0), ("Ä", 1, 0)]
    assert len(set(map(identity, others))) == 5
    assert identity((None, 1, 0)) is None
    assert identity(("a", None, 0)) is None
    assert identity_of(Topic("t", event=EVENT)) is None


def test_a_late_record_says_by_how_much_and_an_early_one_is_not_late() -> None:
    log = appended(
        [(0, 0, "a", 65_000), (0, 0, "b", LATENESS_MS), (0, 0, "c", -3_600_000), (0, 0, "d", None)]
    )
    decoded = decode_table(log.read_records(Slice(1, 0, Offsets(), log.end)), PAID, {}, {})

    assert [tuple(row.values()) for row in decoded.select(["_reason", "_detail"]).to_pylist()] == [
        ("late", "at lies 65 seconds before the record's timestamp, and 5 seconds are allowed"),
        (None, None),
        (None, None),
        ("missing_field", "at is null or missing, and it says whether the record is late"),
    ]
    counts = counts_in(decoded)[0]
    assert (counts.late, counts.rejected, counts.decoded) == (1, 2, 2)


def test_a_redriven_record_is_as_late_as_its_original_and_never_a_duplicate() -> None:
    """A redriven record is as late as its original, is no duplicate, and makes no other one."""
    log = appended([(0, 0, "a", 0), (0, 0, "no JSON", None)])
    for original_ms in (START_MS, START_MS + LATENESS_MS + 1):
        value = json.dumps({"id": "a", "shard": 1, "at": START_MS}).encode()
        header = Original(Position("paid", 0, 1), original_ms).header()
        log.add("paid", 0, value, ms=START_MS + HORIZON_MS - 1, headers=(header,))
    value = json.dumps({"id": "a", "shard": 1, "at": START_MS + HORIZON_MS}).encode()
    log.add("paid", 0, value, ms=START_MS + HORIZON_MS)
    decoded = decode_table(log.read_records(Slice(1, 0, Offsets(), log.end)), PAID, {}, {})

    fates = [Fate(fate) for fate in decoded.column("_fate").to_pylist()]
    assert fates == [*(Fate.DECODED, Fate.REJECTED) * 2, Fate.DECODED]
    assert decoded.column("_reason").to_pylist()[3] == "late"


def test_memories_outlive_the_host_that_has_put_them(any_store, tmp_path):
    log = beats(20)
    build = Build(tmp_path, log, any_store.address("builds/b/identities"))
    for end in range(1, 9):
        build.fold(Offsets({"paid": {0: end}}), by_tasks=end % 2 == 0)
    build.identities.rest(ends=True)

    if not any_store.is_on_disk:
        shutil.rmtree(any_store.local.folder)
    build.read_back = 0
    build.restart()
    build.fold(Offsets({"paid": {0: 9}}), by_tasks=False)

    assert build.read_back == 0
    assert len(any_store.names("builds/b/identities")) <= 2
