"""Who was away for longer than a tombstone is kept may have missed it (law 5)."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

from kappa import Table, Topic, pipeline
from kappa.base.clock import now
from kappa.base.errors import Broken
from kappa.engine.job.fold_slice import SliceFolder
from kappa.records.tombstones import may_be_missed
from kappa.state.build import Birth, TopicBirth
from kappa.state.frontier import Frontier
from kappa.state.offsets import Offsets
from kappa.state.store import Store
from kappa.tables.shape import table_births

THEN = datetime(2026, 11, 1, tzinfo=UTC)
DAY = {"delete.retention.ms": "86400000"}


@pytest.mark.parametrize(
    ("config", "away", "missed"),
    [
        (DAY, timedelta(days=1), False),
        (DAY, timedelta(days=1, seconds=1), True),
        (None, timedelta(days=99), False),
        ({}, timedelta(days=99), False),
        ({"delete.retention.ms": "0"}, timedelta(seconds=1), True),
    ],
)
def test_it_is_missed_where_it_may_be_gone(
    config: dict[str, str] | None, away: timedelta, missed: bool
) -> None:
    said = may_be_missed("pages", THEN.isoformat(), config, THEN + away)

    assert (said is not None) == missed


def test_all_is_heard_that_was_there_when_it_was_asked_though_more_comes_all_the_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kappa.engine.job.fold_slice._HEARD_SECONDS", 0.0)
    asked: list[int] = []

    def end(_names: object) -> Offsets:
        asked.append(9 + len(asked))
        return Offsets({"pages": {0: asked[-1]}})

    def web() -> dict[str, object]:
        return {}

    made = pipeline(name="web", reads={"pages": PAGES}, writes=[Table("pages", latest=PAGES)])(web)
    birth = Birth(
        "b",
        "web",
        "v",
        {},
        1,
        {},
        "m",
        (TopicBirth("pages", "id", "compacted", 1),),
        table_births(made, {}),
        {},
        {},
        {},
        "then",
        "ada",
    )
    folder = SliceFolder(Store(tmp_path), birth, made, SimpleNamespace(end=end), driver_rows=1)  # type: ignore[arg-type]
    last = Frontier(3, "b", 1, Offsets({"pages": {0: 5}}), {}, THEN.isoformat())
    try:
        begun = now()
        assert folder.heard_with(last, Offsets({"pages": {0: 8}})) is None
        between = now()
        # Of two that are read by now the later one counts; what is asked now is not read yet.
        assert folder.heard_with(last, Offsets({"pages": {0: 8}})) is None
        after = now()
        assert between <= (folder.heard_with(last, Offsets({"pages": {0: 10}})) or begun) <= after
        assert asked == [9, 10, 11]
        assert folder.heard_with(last, Offsets({"pages": {0: 10}})) is None
    finally:
        folder.close()


PAGES = Topic("pages", kind="compacted", event="page string not null", key="page")
HITS = Topic("hits", event="page string not null")


@pytest.mark.parametrize(
    ("topic", "end", "days", "stops"),
    [(PAGES, 9, 2, True), (PAGES, 9, 0, False), (PAGES, 5, 2, False), (HITS, 9, 2, False)],
)
def test_a_job_that_was_away_for_so_long_stops_where_there_is_something_to_read(
    topic: Topic, end: int, days: int, stops: bool, tmp_path: Path
) -> None:
    def nothing() -> dict[str, object]:
        return {}

    def same(rows: object) -> dict[str, object]:
        return {"rows": rows}

    made = (
        pipeline(name="web", reads={"pages": topic}, writes=[Table("pages", latest=PAGES)])(nothing)
        if topic is PAGES
        else pipeline(name="web", reads={"rows": topic}, writes=[Table("rows")])(same)
    )
    tables = table_births(
        made,
        {"rows": {column.name: column.type for column in HITS.columns}} if topic is HITS else {},
    )
    birth = Birth(
        "b",
        "web",
        "v",
        {},
        1,
        {},
        "m",
        (TopicBirth(topic.name, "id", str(topic.kind), 1),),
        tables,
        {},
        {},
        {},
        "then",
        "ada",
    )
    asked: list[object] = []

    def end_of(names: list[str]) -> Offsets:
        asked.append(names)
        return Offsets({name: {0: end} for name in names})

    log = SimpleNamespace(end=end_of, config=lambda _name: DAY)
    folder = SliceFolder(Store(tmp_path), birth, made, log, driver_rows=1)  # type: ignore[arg-type]
    # What was published since by who read nothing of it changes nothing.
    last = Frontier(
        3,
        "b",
        1,
        Offsets({topic.name: {0: 5}}),
        {},
        (THEN + timedelta(days=days)).isoformat(),
        heard_at=THEN.isoformat(),
    )

    try:
        folder.check_heard(None, THEN + timedelta(days=99))
        if stops:
            with pytest.raises(
                Broken,
                match="build b was away for too long, or reads too slowly: topic pages keeps a tombstone for 1 day",
            ) as stopped:
                folder.check_heard(last, THEN + timedelta(days=days))
            assert "kappa replay web" in stopped.value.hint
            with pytest.raises(Broken, match="away for too long"):
                folder.check_still_heard(last, THEN + timedelta(days=days))
        else:
            folder.check_heard(last, THEN + timedelta(days=days))
        asked.clear()
        folder.check_still_heard(
            replace(last, heard_at=(THEN + timedelta(days=days)).isoformat()),
            THEN + timedelta(days=days, seconds=60),
        )
        assert asked == []
        told = folder.heard_with(last, last.offsets)
        assert (told is not None) == (topic is PAGES and end == 5)
        assert folder.heard_with(replace(last, heard_at=now()), last.offsets) is None
    finally:
        folder.close()
