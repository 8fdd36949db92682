"""Laws of stored forms: records are written in their established form, and old ones are read.

Seals are hashes of these forms, and another Kappa may have written them.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import MappingProxyType
from typing import Any

import forms
import numpy as np
import pytest
from msgspec.structs import replace

from kappa.base.document_seal import encoded
from kappa.base.errors import Damaged
from kappa.declare.alert import AlertBirth
from kappa.declare.options import Thresholds
from kappa.declare.sink import SinkBirth
from kappa.declare.table import Table
from kappa.declare.values.tally import Tally
from kappa.engine.job.splits import Begun
from kappa.state.build import Birth
from kappa.state.documents import Documents
from kappa.state.frontier import Frontier
from kappa.state.journal.events import Proved
from kappa.state.journal.journal import JournalRecord
from kappa.state.kept_frontiers import KeptFrontierRecord
from kappa.state.lease import Lease
from kappa.state.mark import Mark, parse_mark
from kappa.state.offsets import Offsets
from kappa.state.table import TableBirth
from kappa.tables.archive import parse_archive_mark
from kappa.tables.stored_archive import LastingVersion

# As the first Kappa that had all these fields wrote them.
*STORED, MARK, ARCHIVE_MARK = (
    Path(forms.__file__).with_suffix(".jsonl").read_text(encoding="utf-8").splitlines()
)
FRONTIER = {"number": 1, "build": "b", "epoch": 2, "offsets": {}, "versions": {}}


def read(kind: type[Any], document: object) -> Any:
    return Documents(kind).parse(document, "it")


@pytest.mark.parametrize(("record", "stored"), [*zip(forms.RECORDS, STORED, strict=True)])
def test_a_record_has_the_form_it_has_always_had(record: Any, stored: str) -> None:
    plain = Documents(type(record)).plain(record)
    for table in plain.get("tables", ()) if isinstance(record, Birth) else ():
        # These came later.
        later = [table.pop(name) for name in ("view", "reads", "by", "file", "expiry")]
        assert later == [None, (), (), None, None]
    if isinstance(record, Birth):
        assert (plain.pop("sinks"), plain.pop("alerts")) == ((), ())
        assert plain.pop("lineage") == {}
    if isinstance(record, Lease):
        assert plain.pop("frontier") is None
    for frontier in frontiers_in(plain):
        assert (frontier.pop("failing"), frontier.pop("file_lists")) == ({}, {})
    if isinstance(record, KeptFrontierRecord):
        assert plain.pop("before") is None
    if isinstance(record, Begun):
        assert plain.pop("given_up") is False
    if isinstance(record, LastingVersion):
        assert plain.pop("file_list") is None
    if isinstance(record, JournalRecord):
        assert plain.pop("reason") == ""
    if isinstance(record, JournalRecord) and isinstance(record.event, Proved):
        assert plain["event"].pop("views") in ((), [])
    for check in checks_in(plain) if isinstance(record, JournalRecord) else ():
        assert (check.pop("columns"), check.pop("samples")) == ((), ())
    assert encoded(plain).decode() == stored
    assert read(type(record), json.loads(stored)) == record


def frontiers_in(plain: Any) -> list[dict[str, Any]]:
    """Lists the frontiers within a document, including the document itself if it is one."""
    parts = [each for each in plain.values() if isinstance(each, dict)]
    own = [plain] if "epoch" in plain and "versions" in plain else []
    return own + [found for each in parts for found in frontiers_in(each)]


def checks_in(plain: Any) -> list[dict[str, Any]]:
    """Lists the results of checks within a document."""
    if not isinstance(plain, dict | list | tuple):
        return []
    own = [plain] if isinstance(plain, dict) and "condition" in plain else []
    parts = plain.values() if isinstance(plain, dict) else plain
    return own + [found for each in parts for found in checks_in(each)]


def test_a_birth_keeps_its_sinks_and_alerts() -> None:
    sinks = (SinkBirth("pages", "hits", 2, ("n",), "n > 1"),)
    birth = replace(forms.RECORDS[0], sinks=sinks, alerts=(AlertBirth("a", "hits", "page"),))
    plain = json.loads(encoded(Documents(Birth).plain(birth)))

    assert plain["sinks"] == [
        {
            "columns": ["n"],
            "format": None,
            "of": "hits",
            "partitions": 2,
            "topic": "pages",
            "where": "n > 1",
        }
    ]
    assert plain["alerts"] == [
        {
            "columns": None,
            "name": "a",
            "of": "hits",
            "on": ["insert", "update", "delete"],
            "to": "page",
            "where": None,
        }
    ]
    assert read(Birth, plain) == birth
    # The first sinks had no format.
    del plain["sinks"][0]["format"]
    assert read(Birth, plain) == birth


def test_every_kind_of_event_has_its_form() -> None:
    kinds = [record.event.kind for record in forms.RECORDS if isinstance(record, JournalRecord)]

    assert kinds == [json.loads(each)["event"]["kind"] for each in STORED[-len(kinds) :]]
    assert len({type(event) for event in forms.EVENTS}) == len(forms.EVENTS) == len(kinds)


def test_marks_have_the_form_they_have_always_had() -> None:
    assert forms.MARK.to_json() == MARK
    assert parse_mark(MARK, where="it") == forms.MARK
    assert forms.ARCHIVE_MARK.to_json() == ARCHIVE_MARK
    assert parse_archive_mark(ARCHIVE_MARK, where="it") == forms.ARCHIVE_MARK


def test_fields_that_came_later_may_be_missing_and_unknown_ones_are_passed_over() -> None:
    found = read(Frontier, {**FRONTIER, "published_at": "then", "of_a_later_kappa": 1})

    assert found == Frontier(1, "b", 2, Offsets(), {}, "then")
    older = '{"build":"b","table":"t","leg":1,"slice":2,"from":{},"to":{},"tally":{"a":{"0":{}}}}'
    mark = Mark("b", "t", 1, 2, Offsets(), Offsets(), tally={"a": {0: Tally()}})
    assert parse_mark(older, where="it") == mark


def test_whole_numbers_are_read_where_a_share_or_a_time_is_meant() -> None:
    lease = read(Lease, {"pid": 1, "by": "me", "expires_at": 5, "pins": {}})
    table = read(TableBirth, {"name": "t", "columns": [], "thresholds": {"max_added": 1}})

    assert (lease.expires_at, type(lease.expires_at)) == (5.0, float)
    assert type(table.thresholds.max_added) is float
    declared = Table("t", checks=(), max_added=0).thresholds
    assert encoded(Documents(Thresholds).plain(declared)) == (
        b'{"max_added":0.0,"max_changed":null,"max_removed":null}'
    )


def test_values_of_other_libraries_are_written_as_plain_ones() -> None:
    witnesses = MappingProxyType({})
    frontier = Frontier(1, "b", 2, Offsets(), {}, "then", witnesses=witnesses)
    lease = Lease(1, np.str_("me"), np.float64(0.5), {}, "x")

    assert Documents(Frontier).plain(frontier)["witnesses"] == {}
    plain = Documents(Lease).plain(lease)
    assert (plain["by"], plain["expires_at"]) == ("me", 0.5)
    assert {type(plain[name]) for name in ("by", "expires_at")} == {str, float}


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ({**FRONTIER, "published_at": 5}, "Expected `str`, got `int` - at `$.published_at`"),
        (FRONTIER, "Object missing required field `published_at`"),
        ({**FRONTIER, "offsets": {"a": 5}}, "these are not offsets: {'a': 5} - at `$.offsets`"),
        ([], "Expected `object`, got `array`"),
    ],
)
def test_a_document_that_is_none_is_told_with_the_place(document: object, why: str) -> None:
    with pytest.raises(Damaged) as told:
        read(Frontier, document)

    assert told.value.message == f"it cannot be read: {why}"


@pytest.mark.parametrize(
    "event", [{"pipeline": "a"}, {"pipeline": "a", "kind": "of_a_later_kappa"}, {"kind": "paused"}]
)
def test_an_event_without_a_known_kind_is_told(event: object) -> None:
    with pytest.raises(Damaged, match=r"^it cannot be read: .* - at `\$\.event"):
        read(JournalRecord, {"number": 1, "event": event, "at": "a", "by": "b"})


@pytest.mark.parametrize("text", ["", "{", "[]", '{"build":"b"}', MARK.replace("1", '"x"')])
def test_a_mark_that_is_none_is_told(text: str) -> None:
    with pytest.raises(Damaged, match="^it carries a mark that cannot be read: "):
        parse_mark(text, where="it")
    with pytest.raises(Damaged, match="^it carries no mark of an archive: "):
        parse_archive_mark(text, where="it")
