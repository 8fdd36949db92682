"""An interrupted bench continues where it was, and rounds of different code are never combined."""

from __future__ import annotations

from pathlib import Path

import pytest
from cells import CELLS
from figures import Round, Warm
from rounds import Run, Runs, code_of

CELL = CELLS["quick"]


def begun(runs: Runs, code: str = "c0de") -> Run:
    return runs.open(CELL, code, now="now", machine="here")


def ran(number: int, rival: str, **more: object) -> Round:
    return Round(number, rival, CELL.events, 1.0, 1.0, 1, 0.1, **more)  # type: ignore[arg-type]


def test_rivals_take_turns() -> None:
    assert list(begun(Runs(Path("nowhere"))).due(2, ["a", "b"])) == [
        (1, "a"),
        (1, "b"),
        (2, "a"),
        (2, "b"),
    ]


def test_a_finished_round_is_not_run_again_and_one_that_was_cut_short_is_run_whole() -> None:
    run = begun(Runs(Path("nowhere")))
    for done in (ran(1, "a"), ran(1, "b", refused="it died"), ran(2, "a")):
        run.put(done)

    assert list(run.due(3, ["a", "b"])) == [(2, "a"), (2, "b"), (3, "a"), (3, "b")]
    assert list(run.due(1, ["a", "b"])) == []


def test_who_is_run_again_replaces_what_he_did_in_that_round() -> None:
    run = begun(Runs(Path("nowhere")))
    run.put(ran(1, "a"))
    run.put(ran(1, "a", refused="it died"))

    assert [each.refused for each in run.rounds] == ["it died"]


def test_what_was_saved_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "new" / "results.json"
    runs = Runs(file)
    run = begun(runs)
    run.versions["a"] = {"python": "3"}
    run.missing["b"] = "no compiler"
    run.put(ran(1, "a", warm=Warm(5, 0.5)))
    run.put(ran(2, "a", refused="it died"))
    runs.save()

    again = Runs(file)

    assert again.all == [run]
    assert begun(again) is again.all[0]


def test_other_code_and_another_size_are_another_run(tmp_path: Path) -> None:
    runs = Runs(tmp_path / "results.json")
    run = begun(runs)

    assert begun(runs, "other") is not run
    assert (
        runs.open(CELL.sized(events=CELL.events + 1, rounds=None), "c0de", now="", machine="")
        is not run
    )
    # How many rounds are wanted is no difference.
    assert runs.open(CELL.sized(events=None, rounds=9), "c0de", now="", machine="") is run
    runs.forget(CELL, "c0de")
    assert runs.last(CELL, "c0de") is None
    assert runs.last(CELL, "other") is not None


def test_a_file_that_cannot_be_read_is_never_written_over(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    for text in ("{", '{"format": 99, "runs": []}', '{"format": 1, "runs": [{"cell": "quick"}]}'):
        file.write_text(text)

        with pytest.raises(SystemExit, match="cannot be read"):
            Runs(file)
        assert file.read_text() == text


def test_a_changed_file_is_other_code() -> None:
    assert code_of({"a": b"1", "b": b"2"}) == code_of({"b": b"2", "a": b"1"})
    assert (
        len(
            {
                code_of(files)
                for files in ({"a": b"1"}, {"a": b"2"}, {"b": b"1"}, {"a": b"1", "b": b""})
            }
        )
        == 4
    )
