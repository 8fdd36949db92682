"""Rejects are read with all their data, and redriven once each.

A wrong line is reported with its number, and then nothing is sent.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from births import make_birth
from deltalake import write_deltalake
from msgspec.structs import replace
from served import serve_build

from kappa.base.clock import now
from kappa.base.errors import Conflict, KappaError, UsageError
from kappa.commands.app import run_command
from kappa.declare.values.arrow import arrow_schema
from kappa.kafka.client import TopicFacts
from kappa.kafka.producer import ProducedRecord
from kappa.records.lines.envelope import envelope_line, envelope_record
from kappa.records.redrive import Position, named_original
from kappa.replay.status.listings import reject_text, rejects_listing
from kappa.serving.query.redrive import (
    Redrive,
    export_line,
    plan_redrive,
    read_lines,
    rejects_to_mend,
)
from kappa.serving.query.rejects import RejectFilter, newest_rejects, rejects_in_order
from kappa.state.build import Birth, TopicBirth, put_birth, read_birth, table_path
from kappa.state.files.address import delta_options
from kappa.state.frontier import Frontier, Frontiers
from kappa.state.offsets import Offsets
from kappa.state.store import Store
from kappa.state.table import TableBirth
from kappa.tables.shape import REJECTS_BIRTH

OLD = replace(
    REJECTS_BIRTH,
    columns=tuple(
        column
        for column in REJECTS_BIRTH.columns
        if column[0] not in {"headers", "_redrives", "_deleted"}
    ),
)
FACTS = {"visits": TopicFacts("visits", "id", 2)}
MS = 1_700_000_000_000
REJECT: dict[str, Any] = {"topic": "visits", "partition": 0, "key": b"k", "value": b"{"}
REJECT |= {"reason": "malformed_json", "detail": "not one JSON value"}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "röot")


def reject(offset: int, *, redrives: int | None = None, **more: Any) -> dict[str, Any]:
    timestamp = datetime.fromtimestamp(MS / 1000 + offset, UTC)
    return {**REJECT, "offset": offset, "timestamp": timestamp, "_redrives": redrives, **more}


def folded(offset: int, redrives: int) -> dict[str, Any]:
    """Returns the row of the rejects table that remembers a redriven record."""
    row = {"topic": "visits", "partition": 0, "offset": offset}
    return {**row, "_redrives": redrives, "_deleted": True}


def serve(
    store: Store,
    rows: Sequence[dict[str, Any]],
    *,
    pipeline: str = "web",
    table: TableBirth = REJECTS_BIRTH,
    kind: str = "retained",
    lines: str = "",
    beside: tuple[TableBirth, ...] = (),
) -> Birth:
    """Makes a build serve whose rejects table has these rows."""
    birth = make_birth(
        f"{pipeline}-1",
        (table, *beside),
        topics=(TopicBirth("visits", "id", kind, 2),),
        pipeline=pipeline,
        declarations={"topic visits": lines},
    )
    put_birth(store, birth)
    schema = arrow_schema(table.columns)
    path = table_path(store, birth.build, "rejects")
    write_deltalake(
        path, pa.Table.from_pylist([*rows], schema=schema), storage_options=delta_options(path)
    )
    Frontiers(store, birth.build).publish(
        Frontier(1, birth.build, 1, Offsets({"visits": {0: 99}}), {"rejects": 0}, now())
    )
    serve_build(store, pipeline, birth.build)
    return birth


def at(offset: int) -> Position:
    return Position("visits", 0, offset)


def test_the_newest_come_first_and_what_only_remembers_is_none(store: Store) -> None:
    serve(store, [reject(3), reject(5, reason="bad_key"), folded(7, 3), reject(9)])

    def newest(limit: int | None = None, **chosen: Any) -> list[tuple[int, int | None]]:
        found = newest_rejects(store, RejectFilter(**chosen), limit=limit)
        return [(each.at.offset, each.redriven_at) for each in found]

    assert newest(2) == [(9, None), (5, None)]
    assert newest(pipeline="web") == [(9, None), (5, None), (3, 7)]
    assert newest(reason="bad_key") == [(5, None)]
    assert newest(reason="'") == []
    assert newest(at=at(9)) == newest(1, build="web-1") == [(9, None)]


def test_a_reject_is_shown_with_all_it_held(any_store: Store) -> None:
    store = any_store
    headers = [{"key": "trace", "value": "ä".encode()}, {"key": "trace", "value": None}]
    shown = reject(3, value=b"\xff\x00", headers=headers, key="é\n".encode())
    serve(store, [shown, folded(7, 3)])
    serve(store, [reject(3)], pipeline="old", table=OLD)

    old, new = rejects_in_order(store, RejectFilter(at=at(3)))

    assert (old.headers, old.build) == ((), "old-1")
    assert new.headers == (("trace", "ä".encode()), ("trace", None))
    assert new.timestamp_ms == MS + 3000
    lines = reject_text(new).splitlines()
    assert [line.split(None, 1) for line in lines] == [
        ["place", "visits:0:3"],
        ["timestamp", "2023-11-14T22:13:23Z"],
        ["pipeline", "web"],
        ["build", "web-1"],
        ["reason", "malformed_json"],
        ["detail", "not one JSON value"],
        ["redriven", "folded at visits:0:7"],
        ["key", "é\\n"],
        ["header", "trace: ä"],
        ["header", "trace: null"],
        ["value", "hex ff00"],
    ]
    assert rejects_listing((new,)).row_objects()[0]["headers"] == [
        {"name": "trace", "value": "ä".encode()},
        {"name": "trace", "value": None},
    ]


def test_what_is_exported_is_the_record_itself_with_a_header_that_names_it(store: Store) -> None:
    headers = [{"key": "trace", "value": b"\xfe"}, {"key": "kappa-redrive", "value": b"?"}]
    values = {3: b"\xff", 4: b'{"n": "1"}', 5: None}
    more: dict[int, dict[str, Any]] = {3: {"headers": headers}, 4: {"key": None}, 5: {}}
    serve(store, [reject(at, value=value, **more[at]) for at, value in values.items()])

    lines = [export_line(each) for each in rejects_to_mend(rejects_in_order(store, RejectFilter()))]

    named = [
        ("kappa-redrive", b"visits:0:%d@%d" % (offset, MS + offset * 1000)) for offset in (3, 4, 5)
    ]
    assert [envelope_record(line.encode()) for line in lines] == [
        ProducedRecord(b"\xff", b"k", MS + 3000, (("trace", b"\xfe"), named[0]), 0),
        ProducedRecord(b'{"n": "1"}', None, MS + 4000, (named[1],), 0),
        ProducedRecord(None, b"k", MS + 5000, (named[2],), 0),
    ]
    assert json.loads(lines[1])["value"] == {"n": "1"}
    assert "malformed_json" in json.loads(lines[0])["note"]


def test_of_a_chain_the_last_try_is_exported_and_nothing_that_was_folded(store: Store) -> None:
    chain = [reject(3), reject(5, value=b"[", redrives=3), reject(6), reject(7, redrives=6)]
    serve(store, [*chain, folded(8, 6), reject(9, redrives=1)])

    found = rejects_to_mend(rejects_in_order(store, RejectFilter()))

    assert [(each.at.offset, each.original.position.offset) for each in found] == [(5, 3), (9, 9)]
    assert found[0].original.timestamp_ms == MS + 3000


@pytest.mark.parametrize(
    ("arguments", "exported"), [([], [3]), (["--reason", "late"], [4, 5]), (["web"], [3])]
)
def test_late_rejects_are_exported_only_if_asked_for_and_counted(
    store: Store, capsys: pytest.CaptureFixture[str], arguments: list[str], exported: list[int]
) -> None:
    """Late rejects are exported only on request, because redriven records are late again."""
    serve(store, [reject(3), reject(4, reason="late"), reject(5, reason="late")])

    assert run_command(["--root", str(store.folder), "rejects", "export", *arguments, "-"]) == 0

    said = capsys.readouterr()
    lines = [envelope_record(line.encode()) for line in said.out.splitlines()]
    named = [original for line in lines if (original := named_original(line.headers))]
    assert [original.position.offset for original in named] == exported
    left_out = "left out: 2 late rejects, since a redriven record is as late as its original"
    assert (left_out in " ".join(said.err.split())) is (exported == [3])


def planned(store: Store, *lines: str, facts: dict[str, TopicFacts] = FACTS) -> Redrive:
    read = read_lines(f"{line}\n".encode() for line in lines)
    found = rejects_in_order(store, RejectFilter(topics={line.names.topic for line in read}))
    return plan_redrive(
        read, found, {each.build: read_birth(store, each.build) for each in found}, facts
    )


def line(
    offset: int,
    value: bytes | None = b'{"mended": 1}',
    *,
    partition: int | None = 0,
    of: int = 0,
    key: bytes = b"k",
) -> str:
    headers = (("trace", b"x"), ("kappa-redrive", b"visits:%d:%d@1" % (of, offset)))
    return envelope_line(ProducedRecord(value, key, MS, headers, partition))


def test_a_redrive_knows_the_pipelines_that_rejected(store: Store) -> None:
    """Whoever has folded a correction before needs none."""
    serve(store, [reject(3), reject(4)])
    serve(store, [reject(3), folded(7, 3)], pipeline="safe")

    assert planned(store, line(3), line(4)).pipelines == {"web": {"visits": 2}}
    serve(store, [reject(4)], pipeline="third")
    assert planned(store, line(3), line(4)).pipelines == {
        "third": {"visits": 1},
        "web": {"visits": 2},
    }


def test_a_mended_key_is_redriven_unless_rows_of_a_key_must_lie_in_one_partition(
    store: Store,
) -> None:
    watched = TableBirth(
        "watched", (("who", "string"), ("failed", "int")), ("who",), steps_over=(("who", "string"),)
    )
    serve(store, [reject(3), reject(4)])
    assert planned(store, line(3, key=b"mended")).records["visits"][0].key == b"mended"

    serve(store, [reject(3)], pipeline="safe", beside=(watched,))

    assert len(planned(store, line(3), line(4, key=b"mended")).records["visits"]) == 2
    moved = (
        "line 1 has another key than visits:0:3, and would be sent to its partition; "
        "table watched of pipeline safe is folded in the order of the log"
    )
    with pytest.raises(UsageError, match=moved) as refused:
        planned(store, line(3, key=b"mended"))
    anew = "without `partition` and the header kappa-redrive, kappa produce visits FILE --envelope"
    assert anew in refused.value.hint
    # If the topic has one partition, a key cannot be in two.
    one = {"visits": TopicFacts("visits", "id", 1)}
    assert len(planned(store, line(3, key=b"mended"), facts=one).records["visits"]) == 1


def test_what_is_mended_goes_to_its_originals_partition_and_names_it(any_store: Store) -> None:
    store = any_store
    chain = [reject(3), reject(5, value=b"[", redrives=3), reject(6)]
    serve(store, [*chain, folded(8, 6), reject(9)])

    found = planned(store, line(5, partition=None), "", line(6), line(9, b"{"))

    headers = (("trace", b"x"), ("kappa-redrive", b"visits:0:3@%d" % (MS + 3000)))
    mended = ProducedRecord(b'{"mended": 1}', b"k", MS, headers, 0)
    assert found.records == {"visits": (mended,)}
    assert found.as_text.splitlines() == [
        "1 record to topic visits",
        "1 of the lines were redriven and folded before, and are skipped",
        "1 of the lines are as they were rejected, and are skipped",
    ]


def test_what_one_of_two_pipelines_still_lacks_is_redriven_for_it(store: Store) -> None:
    serve(store, [reject(3), folded(8, 3)])
    serve(store, [reject(3)], pipeline="other")

    assert len(planned(store, line(3)).records["visits"]) == 1


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["", " "], "the file has no record"),
        ([line(3), "{"], "line 2 is not JSON"),
        ([line(3), "", '{"value": 1}'], "line 3 names no reject: it has no header kappa-redrive"),
        (
            ['{"value": 1, "headers": {"kappa-redrive": "visits"}}'],
            "line 1 cannot be redriven: the header kappa-redrive is 'visits'",
        ),
        ([line(3, partition=1)], "line 1 has the partition 1, and visits:0:3 is in another one"),
        ([line(4)], "line 1 names visits:0:4, which is not a reject of what serves"),
        ([line(3, of=1)], "line 1 has the partition 0"),
        ([line(7)], "line 1 names visits:0:7, which is not a reject of what serves"),
        ([line(3), line(3)], "line 2 names visits:0:3, as line 1 does"),
        ([line(3), line(5)], "line 2 mends visits:0:3, as line 1 does"),
    ],
)
def test_a_line_that_cannot_be_redriven_is_named_and_nothing_is_sent(
    store: Store, lines: list[str], message: str
) -> None:
    serve(store, [reject(3), reject(5, value=b"[", redrives=3), reject(6), folded(7, 6)])

    with pytest.raises(UsageError, match=message) as refused:
        planned(store, *lines)

    assert refused.value.hint


@pytest.mark.parametrize(
    ("kind", "table", "facts", "error", "message"),
    [
        ("compacted", REJECTS_BIRTH, FACTS, UsageError, "topic visits is compacted"),
        ("retained", OLD, FACTS, Conflict, "born before Kappa had redriven records"),
        (
            "retained",
            REJECTS_BIRTH,
            {"visits": TopicFacts("visits", "other", 2)},
            Conflict,
            "topic visits was created again since visits:0:3 was rejected",
        ),
        ("retained", REJECTS_BIRTH, {}, Conflict, "topic visits is gone"),
    ],
)
def test_nothing_is_sent_where_it_would_not_be_folded_once(
    store: Store,
    kind: str,
    table: TableBirth,
    facts: dict[str, TopicFacts],
    error: type[KappaError],
    message: str,
) -> None:
    serve(store, [reject(3)], kind=kind, table=table)

    with pytest.raises(error, match=message):
        planned(store, line(3), facts=facts)


def test_a_databases_changes_are_not_redriven(store: Store) -> None:
    serve(store, [reject(3)], lines="kind retained\nformat debezium-json")

    with pytest.raises(UsageError, match="a mended old one would be its row's newest") as refused:
        planned(store, line(3))
    assert "at its source" in (refused.value.hint or "")


def test_a_pipeline_that_does_not_serve_has_no_rejects_to_ask_for(store: Store) -> None:
    with pytest.raises(UsageError, match="no pipeline nobody is served"):
        newest_rejects(store, RejectFilter("nobody"), limit=1)
    assert rejects_in_order(store, RejectFilter()) == ()
