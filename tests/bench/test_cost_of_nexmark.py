"""Each Nexmark query is replayed with what it reads, and with nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from kappa_job import declare
from nexmark_replays import ANSWERS, DBSP, QueryReplay, code_of_query, needed, report
from rivals import SCRIPTS, NotThereError, ensure_cargo

from kappa.state.table import TableBirth

BIRTHS = {
    each.name: each
    for each in (
        TableBirth("bid", ()),
        TableBirth("auction", ()),
        TableBirth("q9", (), view="...", reads=("auction", "bid")),
        TableBirth("q4", (), view="...", reads=("q9",)),
        TableBirth("q0", ()),
    )
}


def test_a_query_needs_what_its_views_read() -> None:
    assert needed("q4", BIRTHS) == {"q4", "q9", "auction", "bid"}
    assert needed("q0", BIRTHS) == {"q0"}


@pytest.mark.parametrize(
    ("kept", "topics"),
    [
        ({"q4", "q9", "auction", "bid"}, {"auction", "bid"}),
        ({"q3", "auction", "person"}, {"auction", "person"}),
        ({"q0"}, {"bid"}),
    ],
)
def test_the_pipeline_of_a_query_has_only_these_tables(
    tmp_path: Path, kept: set[str], topics: set[str]
) -> None:
    found = declare(tmp_path / "project", code_of_query(kept), "")

    assert {each.name for each in (*found.tables, *found.views)} == kept
    assert {topic.name for topic in found.topics} == topics


def test_a_rate_is_per_core_and_a_size_per_event() -> None:
    replay = QueryReplay(1000, 2.0, 4.0, 7, 50_000, None)
    found = {name: replay for name in ANSWERS if name != "q23"}
    told = report(found, {"q23": "no memory"}, 2000)

    assert "| q4 | 1,000 | 7 | 2.0 |  | 4000.0 | 250 | 50,000 | 50 |" in told.page
    assert "q4 250" in told.line
    assert "| q23 |" not in told.page
    assert "q23 has no figures: no memory." in told.page


def test_a_rival_has_a_line_below_the_query_and_no_build() -> None:
    found = {
        "q4": QueryReplay(1000, 2.0, 4.0, 5, 50_000, None),
        DBSP: QueryReplay(1000, 1.0, 2.0, 5, None, None),
    }
    told = report(found, {}, 2000)

    ours, theirs = told.page.splitlines()[2:4]
    assert ours.startswith("| q4 |")
    assert theirs == "| q4, dbsp | 1,000 | 5 | 1.0 |  | 2000.0 | 500 |  |  |"
    assert "dbsp" not in told.line


def test_without_cargo_the_reason_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(NotThereError, match="there is no cargo"):
        ensure_cargo(tmp_path / "built", SCRIPTS / "dbsp_q4")
